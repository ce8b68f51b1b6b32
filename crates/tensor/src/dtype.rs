//! Plain element types.

use std::fmt;

macro_rules! dtypes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $bytes:literal;)*) => {
        /// A plain element type: one element, one cell.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Dtype { $($(#[$doc])* $name,)* }

        impl Dtype {
            /// Every dtype, in the order of the table.
            pub const ALL: &[Dtype] = &[$(Dtype::$name),*];

            /// The lower-case name, which is also the name of the plain scheme.
            pub const fn name(self) -> &'static str {
                match self { $(Dtype::$name => $text,)* }
            }

            /// Bytes of one element.
            pub const fn bytes(self) -> u64 {
                match self { $(Dtype::$name => $bytes,)* }
            }
        }
    };
}

dtypes! {
    /// One byte, 0 or 1.
    Bool = "bool", 1;
    /// Unsigned byte.
    U8 = "u8", 1;
    /// Signed byte.
    I8 = "i8", 1;
    /// Unsigned 16-bit integer.
    U16 = "u16", 2;
    /// Signed 16-bit integer.
    I16 = "i16", 2;
    /// Unsigned 32-bit integer.
    U32 = "u32", 4;
    /// Signed 32-bit integer.
    I32 = "i32", 4;
    /// Unsigned 64-bit integer.
    U64 = "u64", 8;
    /// Signed 64-bit integer.
    I64 = "i64", 8;
    /// IEEE 754 binary16.
    F16 = "f16", 2;
    /// The upper half of a binary32.
    BF16 = "bf16", 2;
    /// IEEE 754 binary32.
    F32 = "f32", 4;
    /// IEEE 754 binary64.
    F64 = "f64", 8;
    /// Two binary32: real, imaginary.
    C64 = "c64", 8;
    /// OCP FP8 E4M3 (finite, one NaN).
    F8E4M3 = "f8_e4m3", 1;
    /// OCP FP8 E5M2.
    F8E5M2 = "f8_e5m2", 1;
    /// OCP E8M0: a power of two.
    F8E8M0 = "f8_e8m0", 1;
    /// FP8 E4M3 without negative zero.
    F8E4M3FNUZ = "f8_e4m3fnuz", 1;
    /// FP8 E5M2 without negative zero.
    F8E5M2FNUZ = "f8_e5m2fnuz", 1;
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
