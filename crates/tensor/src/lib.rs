//! What a tensor is: its shape, the scheme its bytes follow, where they lie, and the expressions
//! that move them. No I/O, no arithmetic on values, no `unsafe`.
#![forbid(unsafe_code)]

mod arrangement;
mod bands;
mod binding;
mod bytes;
mod counted;
mod diagnostic;
mod dtype;
mod entry;
mod expr;
mod inverse;
mod mapping;
mod name;
mod scheme;
mod shape;
mod stage;
mod template;

pub use arrangement::{Arrangement, MeshRank, RopeOrder, ValueOrder};
pub use bands::{Bands, band_unit, lcm};
pub use binding::{Binding, Bindings, DropRule, Presence, Target};
pub use bytes::Bytes;
pub use counted::{Counted, counted};
pub use diagnostic::{Diagnostic, Diagnostics};
pub use dtype::Dtype;
pub use entry::{FileId, PlaneData, TensorEntry};
pub use expr::{Expr, Function, Step};
pub use inverse::{Copies, Inverse, Made, OneWay, invert, invert_knowing, take_apart};
pub use mapping::{MapOutcome, MapRule, MapStep, Mapping};
pub use name::{Pattern, nearest, nearness};
pub use scheme::{Hold, IN, OUT, PlaneAxis, PlaneSpec, Rows, Scheme, SchemeError};
pub use shape::Shape;
pub use stage::{Lines, SharedStage, Stage, StageInput};
pub use template::{Captures, Segment, Takes, Template};
