//! How a scheme's bytes become the units of its row-interleaved forms, and what the kernels find there.

use std::borrow::Cow;

/// Planes that a unit may take bytes from.
pub(crate) const PLANES: usize = 3;
/// Bytes of the longest record.
pub(crate) const RECORD_MAX: usize = 210;
/// Rows of the largest group.
pub(crate) const ROWS_MAX: usize = 16;

/// A place in a record: a plane, and bytes from the start of what it has there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At(pub(crate) usize, pub(crate) usize);

/// Which part of a record becomes the next vectors of a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field {
    /// One vector of two 16-bit numbers: `r` of the first, `r` of the second (zeros where there is none).
    Scales(At, Option<At>),
    /// One vector of two exponents (E8M0), as scales that are half of what they stand for, in bfloat16.
    Powers(At, At, Largest),
    /// One vector of a word.
    Word(At),
    /// One vector of a word whose bits are the fifth bits of 32 codes, in order: byte `i` gets those of the codes `i`,
    /// `i + 4`, `i + 8` and so on, so that the bits of four codes in a word need one shift.
    Fifths(At),
    /// This many vectors of words, at least 4.
    Words(At, usize, Change),
}

/// Meaning of the largest exponent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Largest {
    /// A power like the others.
    Power,
    /// No number.
    Nan,
}

/// How the words of a field are changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// Nothing.
    None,
    /// Signed bytes become unsigned, by their top bit.
    Flip,
    /// Eight codes of four bits, the first the lowest, become four low nibbles and four high ones.
    Runs,
}

impl Field {
    /// Vectors that the field fills.
    pub(crate) const fn vectors(self) -> usize {
        match self {
            Field::Scales(..) | Field::Powers(..) | Field::Word(_) | Field::Fifths(_) => 1,
            Field::Words(_, n, _) => n,
        }
    }
}

/// Meaning of the codes of a block to the kernels.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Codes {
    /// Blocks of 32 with one scale, which they may share with others.
    Plain(Plain),
    /// Eight sub-blocks of 32 with a scale and a minimum each; the codes have a fifth bit if `five`.
    ScaleMin { five: bool },
    /// Eight sub-blocks of 32 with a signed scale each, codes of four bits that stand for the values of a list.
    ScaleListed(&'static Listed),
    /// Sixteen sub-blocks of 16 with a scale and a minimum each, codes of two bits.
    TwoBit,
    /// Sixteen sub-blocks of 16 with a signed scale each, codes of three bits with zero point 4.
    ThreeBit,
    /// Sixteen sub-blocks of 16 with a signed scale each, codes of six bits with zero point 32.
    SixBit,
}

/// The codes of blocks of 32 with one scale.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Plain {
    /// Bits of a code: 4, 5 or 8.
    pub(crate) bits: u32,
    /// Where codes of four bits are.
    pub(crate) order: Order,
    pub(crate) means: Means,
    pub(crate) scale: Number,
}

impl Plain {
    /// Unsigned codes whose zero point is half of their range, and a scale in binary16.
    pub(crate) const fn zero(bits: u32) -> Codes {
        Codes::Plain(Plain {
            bits,
            order: Order::Halves,
            means: Means::Zero(1 << (bits - 1)),
            scale: Number::F16,
        })
    }

    /// Unsigned codes with a scale and a minimum in binary16.
    pub(crate) const fn min(bits: u32) -> Codes {
        Codes::Plain(Plain { bits, order: Order::Halves, means: Means::Min, scale: Number::F16 })
    }

    /// Unsigned codes in the order of their bits, with scales and minima of some kind.
    pub(crate) const fn affine(bits: u32, scale: Number) -> Plain {
        Plain { bits, order: Order::Runs, means: Means::Min, scale }
    }

    /// The same with a zero point, and scales in f32. Codes of 8 bits are signed.
    pub(crate) const fn symmetric(bits: u32, zero: u8) -> Plain {
        Plain { bits, order: Order::Runs, means: Means::Zero(zero), scale: Number::F32 }
    }

    /// Four-bit floats in the order of their bits, with powers of two.
    pub(crate) const fn powers() -> Plain {
        Plain { bits: 4, order: Order::Runs, means: Means::Listed(&FP4), scale: Number::BF16 }
    }

    /// Codes of four bits that stand for the values of a list.
    pub(crate) const fn listed(list: &'static Listed, scale: Number) -> Codes {
        Codes::Plain(Plain { bits: 4, order: Order::Halves, means: Means::Listed(list), scale })
    }

    /// The change that brings codes in the order of their bits into this form; codes are signed if they are bytes with
    /// a zero point.
    const fn change(self) -> Change {
        match (self.bits, self.means) {
            (4, _) => Change::Runs,
            (_, Means::Zero(_)) => Change::Flip,
            _ => Change::None,
        }
    }

    /// Vectors that hold the codes of 32 columns.
    pub(crate) const fn vectors(self) -> usize {
        self.bits as usize
    }

    /// Where the numbers of a unit of `blocks` blocks with `groups` scales are.
    pub(crate) const fn sharing(self, blocks: usize, groups: usize) -> Sharing {
        let lead = (groups * self.numbers() * self.scale.bytes()).div_ceil(4);
        Sharing { blocks, shift: (blocks / groups).ilog2(), groups, lead }
    }

    /// Kinds of numbers that come with the codes.
    const fn numbers(self) -> usize {
        match (self.scale, self.means) {
            (Number::None, _) => 0,
            (_, Means::Min) => 2,
            _ => 1,
        }
    }
}

/// Where the codes of a block of 32 are, if two share a byte.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Order {
    /// The first 16 in the low nibbles of the four words, the others in the high ones.
    Halves,
    /// Eight in each word: the first four in the low nibbles, the others in the high ones. [`Change::Runs`] makes this
    /// order.
    Runs,
}

/// Meaning of the codes of a [`Plain`] block before scaling.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Means {
    /// Themselves; and there is a minimum.
    Min,
    /// Themselves less a zero point.
    Zero(u8),
    /// The values of a list.
    Listed(&'static Listed),
}

/// How scales and minima are stored.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Number {
    F16,
    BF16,
    F32,
    /// Neither scales nor minima.
    None,
}

impl Number {
    /// Bytes of one.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Number::F16 | Number::BF16 => 2,
            Number::F32 => 4,
            Number::None => 0,
        }
    }
}

/// Sixteen values, made unsigned.
#[derive(PartialEq, Debug)]
pub(crate) struct Listed {
    /// The values plus `zero`.
    pub(crate) values: [u8; 16],
    /// The zero point.
    pub(crate) zero: i32,
    /// Bits of the largest of `values`, at least 5.
    pub(crate) bits: u32,
}

impl Listed {
    pub(crate) const fn of(values: [i8; 16], zero: u8) -> Listed {
        let (mut raised, mut max, mut i) = ([0; 16], 16, 0);
        while i < 16 {
            raised[i] = zero.strict_add_signed(values[i]);
            max |= raised[i];
            i += 1;
        }
        Listed { values: raised, zero: zero as i32, bits: max.ilog2() + 1 }
    }
}

/// Twice the values of a four-bit float (E2M1).
///
/// Source: ggml `kvalues_mxfp4`; OCP Microscaling Formats v1.0, 5.3.3.
pub(crate) const FP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// [`FP4_VALUES`] for the kernels.
pub(crate) static FP4: Listed = Listed::of(FP4_VALUES, 12);

/// A number for each row of the matrix, which multiplies its results: f32 in a plane of their own, after the planes
/// that have a part in records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factor {
    /// Multiplies them all.
    pub(crate) times: f32,
}

/// All of a scheme that the kernels and the interleaved forms are made from.
///
/// The bytes of one row for one unit, some in each plane, are its *record*.
#[derive(Clone, Debug)]
pub struct Packing {
    /// Meaning of the codes.
    pub(crate) codes: Codes,
    /// The vectors of a unit, in order: they take each byte of a record once.
    pub(crate) fields: Cow<'static, [Field]>,
    /// Elements of one row in one unit.
    pub(crate) unit: usize,
    /// The columns of a stored matrix are a multiple of this, which divides `unit`.
    pub(crate) per: usize,
    /// Columns that share a scale, if the codes are [`Codes::Plain`].
    pub(crate) group: usize,
    /// Bytes of a record in each plane. These planes come first in the stored form.
    pub(crate) stored: [usize; PLANES],
    /// The factor of each row, if there is one.
    pub(crate) factor: Option<Factor>,
}

impl Packing {
    /// For blocks of `per` elements and `bytes` bytes in one plane. Two blocks of 32 make a record.
    pub(crate) const fn blocks(per: usize, bytes: usize, codes: Codes, fields: &'static [Field]) -> Packing {
        let unit = if per == 32 { 64 } else { per };
        let (fields, stored) = (Cow::Borrowed(fields), [unit / per * bytes, 0, 0]);
        Packing { codes, fields, unit, per, group: 32, stored, factor: None }
    }

    /// For codes in one plane, scales in the next, and minima in a third if there are any, each for `group` columns of
    /// a row: 32, 64 or 128.
    pub(crate) fn groups(plain: Plain, group: usize) -> Option<Packing> {
        if ![32, 64, 128].contains(&group) {
            return None;
        }
        let unit = group.max(64);
        let (size, count) = (plain.scale.bytes(), unit / group * plain.numbers());
        let (groups, codes) = (unit / group, unit * plain.bits as usize / 8);
        let number = |i: usize| At(1 + i / groups, i % groups * size);
        let numbers = |i: usize| match size {
            2 => Field::Scales(number(2 * i), (2 * i + 1 < count).then(|| number(2 * i + 1))),
            _ => Field::Word(number(i)),
        };
        let numbers = (0..(count * size).div_ceil(4)).map(numbers);
        let fields = numbers.chain([Field::Words(At(0, 0), codes / 4, plain.change())]).collect();
        let minima = if let Means::Min = plain.means { groups * size } else { 0 };
        let stored = [codes, groups * size, minima];
        Some(Packing { codes: Codes::Plain(plain), fields, unit, per: group, group, stored, factor: None })
    }

    /// For four-bit floats in the order of their bits, and exponents in the next plane, each for 32 columns of a row.
    /// The largest exponent is not a number.
    pub(crate) fn powers() -> Packing {
        let fields =
            &[Field::Powers(At(1, 0), At(1, 1), Largest::Nan), Field::Words(At(0, 0), 8, Change::Runs)];
        let blocks = Packing::blocks(32, 16, Codes::Plain(Plain::powers()), fields);
        Packing { stored: [blocks.stored[0], 2, 0], ..blocks }
    }

    /// For codes in one plane, and a factor for each row in the next, which is multiplied by `times`.
    pub(crate) fn rows(plain: Plain, times: f32) -> Packing {
        let plain = Plain { scale: Number::None, ..plain };
        let (unit, codes) = (64, 8 * plain.bits as usize);
        let fields = vec![Field::Words(At(0, 0), codes / 4, plain.change())].into();
        let (stored, factor) = ([codes, 0, 0], Some(Factor { times }));
        Packing { codes: Codes::Plain(plain), fields, unit, per: 32, group: unit, stored, factor }
    }

    /// Vectors in one unit.
    pub(crate) fn vectors(&self) -> usize {
        self.fields.iter().map(|f| f.vectors()).sum()
    }

    /// Planes that have a part in a record.
    pub(crate) fn planes(&self) -> usize {
        self.stored.iter().take_while(|bytes| **bytes > 0).count()
    }

    /// Where the numbers of a unit are.
    pub(crate) fn sharing(&self) -> Sharing {
        let (blocks, groups) = (self.unit / 32, self.unit / self.group);
        match self.codes {
            Codes::Plain(plain) => plain.sharing(blocks, groups),
            _ => Sharing { blocks, shift: (blocks / groups).ilog2(), groups, lead: 0 },
        }
    }
}

/// How the blocks of a unit of [`Codes::Plain`] share scales. All scales come first, then all minima, then codes.
#[derive(Clone, Copy)]
pub(crate) struct Sharing {
    /// Blocks of 32 columns.
    pub(crate) blocks: usize,
    /// Block `b` has scale `b >> shift`.
    pub(crate) shift: u32,
    /// Scales.
    pub(crate) groups: usize,
    /// Vectors before the codes.
    pub(crate) lead: usize,
}
