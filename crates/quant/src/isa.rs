//! Which vector instructions the kernels may use.
//!
//! Each instruction set has a witness type that only its `new` can make, after the processor said that it has
//! it. Code that needs the instructions asks for the witness, so that "can this run here" is decided once, in
//! this file.

use std::sync::LazyLock;

use crate::Error;

/// The environment variable that forces an instruction set: the name of an [`Isa`].
pub const ISA_VARIABLE: &str = "WEIGHBRIDGE_CPU";

macro_rules! witness {
    ($(#[$doc:meta])* $name:ident on $arch:literal by $detected:ident: $($feature:tt),*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(());

        impl $name {
            /// A witness, if this processor and its operating system have the instructions.
            pub fn new() -> Option<Self> {
                #[cfg(target_arch = $arch)]
                if true $(&& std::arch::$detected!($feature))* {
                    return Some($name(()));
                }
                None
            }
        }
    };
}

witness! {
    /// AVX2 with FMA and F16C: Intel since Haswell (2013), AMD since Zen (2017).
    Avx2 on "x86_64" by is_x86_feature_detected: "avx2", "fma", "f16c"
}
witness! {
    /// AVX2 and the byte dot product `vpdpbusd` of 256 bits: Intel since Alder Lake, AMD since Zen 5.
    AvxVnni on "x86_64" by is_x86_feature_detected: "avx2", "fma", "f16c", "avxvnni"
}
witness! {
    /// AVX-512 with `vpdpbusd`: Intel servers since Cascade Lake, AMD since Zen 4.
    Avx512Vnni on "x86_64" by is_x86_feature_detected: "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"
}
witness! {
    /// NEON with the byte dot product `sdot`: Apple since the A13 and M1, Arm since Cortex-A75 and Neoverse N1 (Graviton 2).
    NeonDotprod on "aarch64" by is_aarch64_feature_detected: "neon", "dotprod"
}

/// The instruction set that kernels are chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Plain Rust. The reference that the others are tested against.
    Scalar,
    /// 256-bit vectors.
    Avx2(Avx2),
    /// 256-bit vectors and byte dot products.
    AvxVnni(AvxVnni),
    /// 512-bit vectors and byte dot products.
    Avx512Vnni(Avx512Vnni),
    /// 128-bit vectors of ARM and byte dot products.
    NeonDotprod(NeonDotprod),
}

/// The name of each, worse before better.
const NAMES: [&str; 5] = ["scalar", "avx2", "avxvnni", "avx512vnni", "neondotprod"];

impl Isa {
    /// Returns the fastest instruction set of this machine, or the one that the variable `WEIGHBRIDGE_CPU` forces.
    ///
    /// # Errors
    /// If the variable names no instruction set, or one that this machine lacks.
    pub fn detect() -> Result<Isa, Error> {
        static CHOSEN: LazyLock<Result<Isa, Error>> = LazyLock::new(|| match std::env::var(ISA_VARIABLE) {
            Ok(name) => Isa::named(&name),
            Err(std::env::VarError::NotPresent) => Ok(Isa::best()),
            Err(std::env::VarError::NotUnicode(name)) => Isa::named(&name.to_string_lossy()),
        });
        CHOSEN.clone()
    }

    /// Returns the instruction set called `name`.
    ///
    /// # Errors
    /// If `name` is unknown, or this machine lacks the instruction set.
    pub fn named(name: &str) -> Result<Isa, Error> {
        let missing = || Error::IsaMissing { name: name.to_owned() };
        match name {
            "scalar" => Ok(Isa::Scalar),
            "avx2" => Avx2::new().map(Isa::Avx2).ok_or_else(missing),
            "avxvnni" => AvxVnni::new().map(Isa::AvxVnni).ok_or_else(missing),
            "avx512vnni" => Avx512Vnni::new().map(Isa::Avx512Vnni).ok_or_else(missing),
            "neondotprod" => NeonDotprod::new().map(Isa::NeonDotprod).ok_or_else(missing),
            _ => Err(Error::IsaUnknown { name: name.to_owned() }),
        }
    }

    /// The name, as [`Isa::named`] takes it.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2(_) => "avx2",
            Isa::AvxVnni(_) => "avxvnni",
            Isa::Avx512Vnni(_) => "avx512vnni",
            Isa::NeonDotprod(_) => "neondotprod",
        }
    }

    /// All that this machine has, the best last.
    pub fn available() -> Vec<Isa> {
        NAMES.iter().filter_map(|name| Isa::named(name).ok()).collect()
    }

    /// How many rows the interleaved form of a matrix should have for this instruction set, as
    /// [`crate::interleaved`] takes it; `None` if interleaving gains nothing.
    pub fn interleave(self) -> Option<usize> {
        match self {
            Isa::Scalar => None,
            Isa::Avx2(_) | Isa::AvxVnni(_) | Isa::NeonDotprod(_) => Some(8),
            Isa::Avx512Vnni(_) => Some(16),
        }
    }

    /// The fastest of this machine.
    pub(crate) fn best() -> Isa {
        *Isa::available().last().unwrap_or(&Isa::Scalar)
    }
}

/// Compiles a function of plain Rust once for each instruction set, for the compiler to vectorise, and defines
/// the function that takes an [`Isa`] and calls the right one.
///
/// A body without a type parameter takes a `const FMA: bool`, which says whether `f32::mul_add` is one instruction.
/// Functions that the body calls must be inlined into it.
macro_rules! per_isa {
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$generic:ident: $bound:ident>($($a:ident: $t:ty),* $(,)?)
     = $body:ident) => {
        $(#[$doc])*
        $vis fn $name<$generic: $bound>(isa: $crate::Isa, $($a: $t),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn vex<$generic: $bound>($($a: $t),*) {
                $body::<$generic>($($a),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]
            fn evex<$generic: $bound>($($a: $t),*) {
                $body::<$generic>($($a),*)
            }
            match isa {
                // SAFETY: the witness was only made where the processor has the features.
                #[cfg(target_arch = "x86_64")]
                $crate::Isa::Avx2(_) | $crate::Isa::AvxVnni(_) => unsafe { vex::<$generic>($($a),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::Isa::Avx512Vnni(_) => unsafe { evex::<$generic>($($a),*) },
                _ => $body::<$generic>($($a),*),
            }
        }
    };
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($a:ident: $t:ty),* $(,)?) $(-> $r:ty)? = $body:ident) => {
        $(#[$doc])*
        $vis fn $name(isa: $crate::Isa, $($a: $t),*) $(-> $r)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn vex($($a: $t),*) $(-> $r)? {
                $body::<true>($($a),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]
            fn evex($($a: $t),*) $(-> $r)? {
                $body::<true>($($a),*)
            }
            match isa {
                // SAFETY: the witness was only made where the processor has the features.
                #[cfg(target_arch = "x86_64")]
                $crate::Isa::Avx2(_) | $crate::Isa::AvxVnni(_) => unsafe { vex($($a),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::Isa::Avx512Vnni(_) => unsafe { evex($($a),*) },
                // NEON is in every aarch64.
                #[cfg(target_arch = "aarch64")]
                $crate::Isa::NeonDotprod(_) => $body::<true>($($a),*),
                _ => $body::<false>($($a),*),
            }
        }
    };
}
pub(crate) use per_isa;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_or_missing_instruction_set_is_an_error_that_names_it() {
        let unknown = Isa::named("sse9").unwrap_err();
        assert_eq!(unknown.to_string(), "no instruction set is called `sse9`");
        let hint = unknown.hints().join("\n");
        for name in NAMES {
            assert!(hint.contains(&format!("`{name}`")), "{hint}");
            match Isa::named(name) {
                Ok(isa) => assert_eq!(isa.name(), name),
                Err(e) => assert!(e.to_string().contains(name), "{e}"),
            }
        }
    }

    #[test]
    fn scalar_is_always_there() {
        assert_eq!(Isa::available()[0], Isa::Scalar);
    }
}
