//! Products of two-bit matrices by table look-up, as T-MAC does them, against products by multiplication, on this machine.
//!
//! ```text
//! cargo bench -p weighbridge-quant --bench lookup
//! ```
//!
//! A look-up (Wei et al., T-MAC, arXiv:2407.00088) takes the sum of some columns from a table of 16 sums, one for each value of four bits
//! of weights: here of two columns of two bits. `vpshufb` does 64 look-ups at once, in tables of bytes. Sums of two activations of eight
//! bits, times up to 3, have more than eight bits: *rounded* tables hold them in seven bits, *exact* ones in two bytes, with two look-ups.
//! Multiplication unpacks the codes and multiplies them with the activations, by VNNI (`vpdpbusd`) or, on AVX2, by `vpmaddubsw`.
//!
//! Both read the same bytes: codes of two bits, and a scale in f16 for 128 columns of each row. Minima, which take the sum of the
//! activations alone, are left out of both. Figures are GB/s of the matrix (medians of 9) and thousand million multiply-adds a second.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "sizes that fit"
)]
#![allow(clippy::wildcard_imports, reason = "instructions")]
#![allow(clippy::cast_ptr_alignment, reason = "read without alignment")]
#![allow(missing_docs, reason = "a program for people")]

#[cfg(target_arch = "x86_64")]
fn main() {
    x86::main();
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("it measures instructions of x86-64");
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::sync::Barrier;
    use std::time::Instant;

    /// Columns that share a scale.
    const GROUP: usize = 128;
    /// Rows of a block, the same for all ways, so that all read the same bytes.
    const ROWS: usize = 64;
    /// Bytes of the codes of a block.
    const CODES: usize = ROWS * GROUP / 4;
    /// Bytes of a block of 64 rows and 128 columns: codes, then a scale in f16 for each row.
    const BLOCK: usize = CODES + 2 * ROWS;
    const RUNS: usize = 9;

    /// The activations, and what is made of them before a product.
    struct Inputs {
        /// `[k]`, of eight bits.
        x: Vec<i8>,
        /// The tables of each pair of columns: sums in seven bits, less the least of the group.
        rounded: Vec<[u8; 16]>,
        /// For each group, the value of one unit of these sums, and the sum of what was taken from its tables.
        units: Vec<(f32, f32)>,
        /// The low bytes and the high bytes of sums plus `BIAS`.
        exact: Vec<[[u8; 16]; 2]>,
    }

    /// More than a sum of two columns can be below 0.
    const BIAS: i32 = 2 * 3 * 128;

    impl Inputs {
        fn of(x: Vec<i8>) -> Inputs {
            let mut inputs = Inputs { x, rounded: vec![], units: vec![], exact: vec![] };
            for group in inputs.x.chunks(GROUP) {
                let sums = |pair: &[i8]| {
                    let sum = |code: usize| {
                        (code & 3) as i32 * i32::from(pair[0]) + (code >> 2) as i32 * i32::from(pair[1])
                    };
                    std::array::from_fn::<i32, 16, _>(sum)
                };
                let least = |table: &[i32; 16]| *table.iter().min().unwrap();
                let tables: Vec<[i32; 16]> = group.chunks(2).map(sums).collect();
                let span = tables.iter().map(|t| t.iter().max().unwrap() - least(t)).max().unwrap().max(1);
                let unit = span as f32 / 127.0;
                for table in &tables {
                    let low = least(table);
                    inputs.rounded.push(table.map(|sum| ((sum - low) as f32 / unit).round() as u8));
                    inputs.exact.push([0, 8].map(|shift| table.map(|sum| ((sum + BIAS) >> shift) as u8)));
                }
                inputs.units.push((unit, tables.iter().map(least).sum::<i32>() as f32));
            }
            inputs
        }
    }

    /// The code of each place of a block, in the order of a way.
    type Place = fn(row: usize, column: usize) -> (usize, usize);

    /// For multiplication: 16 columns of 16 rows in 64 bytes; a byte has the columns `j`, `4 + j`, `8 + j` and `12 + j` of a row.
    fn multiplied(row: usize, column: usize) -> (usize, usize) {
        let (tile, r, part, c) = (row / 16, row % 16, column / 16, column % 16);
        ((tile * (GROUP / 16) + part) * 64 + r * 4 + c % 4, 2 * (c / 4))
    }

    /// For look-ups: 4 columns of 64 rows in 64 bytes, a byte for each row.
    fn looked_up(row: usize, column: usize) -> (usize, usize) {
        (column / 4 * ROWS + row, 2 * (column % 4))
    }

    fn packed(codes: impl Fn(usize, usize) -> u8, rows: usize, k: usize, place: Place) -> Vec<u8> {
        let mut bytes = vec![0u8; rows / ROWS * (k / GROUP) * BLOCK];
        for (n, block) in bytes.chunks_mut(BLOCK).enumerate() {
            let (row, column) = (n / (k / GROUP) * ROWS, n % (k / GROUP) * GROUP);
            for r in 0..ROWS {
                for c in 0..GROUP {
                    let (byte, shift) = place(r, c);
                    block[byte] |= codes(row + r, column + c) << shift;
                }
                // 1.0 in f16.
                block[CODES + 2 * r..][..2].copy_from_slice(&0x3c00u16.to_le_bytes());
            }
        }
        bytes
    }

    /// A way of multiplying blocks of rows: `y[rows]`.
    type Way = unsafe fn(blocks: &[u8], inputs: &Inputs, y: &mut [f32]);

    #[target_feature(enable = "avx512f,avx512bw,avx512vnni,f16c")]
    unsafe fn vnni(blocks: &[u8], inputs: &Inputs, y: &mut [f32]) {
        let three = _mm512_set1_epi8(3);
        for (row, y) in blocks.chunks(inputs.x.len() / GROUP * BLOCK).zip(y.chunks_mut(ROWS)) {
            let mut sums = [_mm512_setzero_ps(); ROWS / 16];
            for (block, x) in row.chunks(BLOCK).zip(inputs.x.chunks(GROUP)) {
                for (tile, sum) in sums.iter_mut().enumerate() {
                    let mut acc = [_mm512_setzero_si512(); 2];
                    for part in 0..GROUP / 16 {
                        // SAFETY: a block has `CODES` bytes of codes, and a group 128 activations.
                        unsafe {
                            let at = block.as_ptr().add((tile * (GROUP / 16) + part) * 64);
                            let codes = _mm512_loadu_si512(at.cast());
                            let x = x.as_ptr().add(part * 16).cast::<i32>();
                            let of = |i| _mm512_set1_epi32(x.add(i).read_unaligned());
                            let by = |codes| _mm512_and_si512(codes, three);
                            acc[0] = _mm512_dpbusd_epi32(acc[0], by(codes), of(0));
                            acc[1] = _mm512_dpbusd_epi32(acc[1], by(_mm512_srli_epi16(codes, 2)), of(1));
                            acc[0] = _mm512_dpbusd_epi32(acc[0], by(_mm512_srli_epi16(codes, 4)), of(2));
                            acc[1] = _mm512_dpbusd_epi32(acc[1], by(_mm512_srli_epi16(codes, 6)), of(3));
                        }
                    }
                    let acc = _mm512_cvtepi32_ps(_mm512_add_epi32(acc[0], acc[1]));
                    *sum = _mm512_fmadd_ps(acc, scales512(block, tile), *sum);
                }
            }
            for (y, sum) in y.chunks_mut(16).zip(sums) {
                // SAFETY: 16 floats.
                unsafe { _mm512_storeu_ps(y.as_mut_ptr(), sum) };
            }
        }
    }

    #[target_feature(enable = "avx512f,f16c")]
    fn scales512(block: &[u8], tile: usize) -> __m512 {
        // SAFETY: after the codes are 64 scales of two bytes.
        let scales = unsafe { _mm256_loadu_si256(block.as_ptr().add(CODES + 32 * tile).cast()) };
        _mm512_cvtph_ps(scales)
    }

    /// 64 sums of 16 bits without a sign, as floats, in the order of rows: `even` and `odd` have every other.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn floats512(even: __m512i, odd: __m512i) -> [__m512; 4] {
        // Within each lane of 128 bits, rows 0 to 7 and 8 to 15.
        let (low, high) = (_mm512_unpacklo_epi16(even, odd), _mm512_unpackhi_epi16(even, odd));
        let lane = |i: i32| {
            let pick = |v| match i {
                0 => _mm512_extracti32x4_epi32::<0>(v),
                1 => _mm512_extracti32x4_epi32::<1>(v),
                2 => _mm512_extracti32x4_epi32::<2>(v),
                _ => _mm512_extracti32x4_epi32::<3>(v),
            };
            let both = _mm256_set_m128i(pick(high), pick(low));
            _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(both))
        };
        [lane(0), lane(1), lane(2), lane(3)]
    }

    #[target_feature(enable = "avx512f,avx512bw,f16c")]
    unsafe fn rounded512(blocks: &[u8], inputs: &Inputs, y: &mut [f32]) {
        let (low4, low8) = (_mm512_set1_epi8(15), _mm512_set1_epi16(255));
        let groups = inputs.x.len() / GROUP;
        for (row, y) in blocks.chunks(groups * BLOCK).zip(y.chunks_mut(ROWS)) {
            let mut sums = [_mm512_setzero_ps(); 4];
            for ((block, tables), (unit, least)) in
                row.chunks(BLOCK).zip(inputs.rounded.chunks(GROUP / 2)).zip(&inputs.units)
            {
                let (mut even, mut odd) = (_mm512_setzero_si512(), _mm512_setzero_si512());
                for (n, pair) in tables.chunks_exact(2).enumerate() {
                    // SAFETY: a block has `CODES` bytes of codes, 64 for each pair of tables.
                    let (codes, first, second) = unsafe {
                        let table =
                            |i: usize| _mm512_broadcast_i32x4(_mm_loadu_si128(pair[i].as_ptr().cast()));
                        (_mm512_loadu_si512(block.as_ptr().add(n * 64).cast()), table(0), table(1))
                    };
                    let first = _mm512_shuffle_epi8(first, _mm512_and_si512(codes, low4));
                    let second =
                        _mm512_shuffle_epi8(second, _mm512_and_si512(_mm512_srli_epi16(codes, 4), low4));
                    // Two sums of seven bits are one of eight.
                    let both = _mm512_add_epi8(first, second);
                    even = _mm512_add_epi16(even, _mm512_and_si512(both, low8));
                    odd = _mm512_add_epi16(odd, _mm512_srli_epi16(both, 8));
                }
                let (unit, least) = (_mm512_set1_ps(*unit), _mm512_set1_ps(*least));
                for (tile, (sum, found)) in sums.iter_mut().zip(floats512(even, odd)).enumerate() {
                    let found = _mm512_fmadd_ps(found, unit, least);
                    *sum = _mm512_fmadd_ps(found, scales512(block, tile), *sum);
                }
            }
            for (y, sum) in y.chunks_mut(16).zip(sums) {
                // SAFETY: 16 floats.
                unsafe { _mm512_storeu_ps(y.as_mut_ptr(), sum) };
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,f16c")]
    unsafe fn exact512(blocks: &[u8], inputs: &Inputs, y: &mut [f32]) {
        let (low4, low8) = (_mm512_set1_epi8(15), _mm512_set1_epi16(255));
        let groups = inputs.x.len() / GROUP;
        let bias = _mm512_set1_ps((BIAS * (GROUP / 2) as i32) as f32);
        let wide = _mm512_set1_ps(256.0);
        for (row, y) in blocks.chunks(groups * BLOCK).zip(y.chunks_mut(ROWS)) {
            let mut sums = [_mm512_setzero_ps(); 4];
            for (block, tables) in row.chunks(BLOCK).zip(inputs.exact.chunks(GROUP / 2)) {
                let zero = _mm512_setzero_si512();
                let (mut even, mut odd, mut high_even, mut high_odd) = (zero, zero, zero, zero);
                for (half, tables) in tables.chunks_exact(GROUP / 4).enumerate() {
                    // High bytes are at most 5: 32 of them are at most 160.
                    let mut high = zero;
                    for (n, pair) in tables.chunks_exact(2).enumerate() {
                        // SAFETY: a block has `CODES` bytes of codes, 64 for each pair of tables.
                        let (codes, [first, second]) = unsafe {
                            let table = |bytes: &[u8; 16]| {
                                _mm512_broadcast_i32x4(_mm_loadu_si128(bytes.as_ptr().cast()))
                            };
                            let at = block.as_ptr().add((half * GROUP / 8 + n) * 64);
                            let of = |i: usize| [table(&pair[i][0]), table(&pair[i][1])];
                            (_mm512_loadu_si512(at.cast()), [of(0), of(1)])
                        };
                        let places = [
                            _mm512_and_si512(codes, low4),
                            _mm512_and_si512(_mm512_srli_epi16(codes, 4), low4),
                        ];
                        for (tables, places) in [first, second].into_iter().zip(places) {
                            let low = _mm512_shuffle_epi8(tables[0], places);
                            even = _mm512_add_epi16(even, _mm512_and_si512(low, low8));
                            odd = _mm512_add_epi16(odd, _mm512_srli_epi16(low, 8));
                            high = _mm512_add_epi8(high, _mm512_shuffle_epi8(tables[1], places));
                        }
                    }
                    high_even = _mm512_add_epi16(high_even, _mm512_and_si512(high, low8));
                    high_odd = _mm512_add_epi16(high_odd, _mm512_srli_epi16(high, 8));
                }
                let high = floats512(high_even, high_odd);
                for (tile, ((sum, low), high)) in
                    sums.iter_mut().zip(floats512(even, odd)).zip(high).enumerate()
                {
                    let found = _mm512_sub_ps(_mm512_fmadd_ps(high, wide, low), bias);
                    *sum = _mm512_fmadd_ps(found, scales512(block, tile), *sum);
                }
            }
            for (y, sum) in y.chunks_mut(16).zip(sums) {
                // SAFETY: 16 floats.
                unsafe { _mm512_storeu_ps(y.as_mut_ptr(), sum) };
            }
        }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn maddubs(blocks: &[u8], inputs: &Inputs, y: &mut [f32]) {
        let (three, ones) = (_mm256_set1_epi8(3), _mm256_set1_epi16(1));
        for (row, y) in blocks.chunks(inputs.x.len() / GROUP * BLOCK).zip(y.chunks_mut(ROWS)) {
            let mut sums = [_mm256_setzero_ps(); ROWS / 8];
            for (block, x) in row.chunks(BLOCK).zip(inputs.x.chunks(GROUP)) {
                for (tile, sum) in sums.iter_mut().enumerate() {
                    // 64 products of a code and an activation, at most 24,384.
                    let mut acc = [_mm256_setzero_si256(); 2];
                    for part in 0..GROUP / 16 {
                        // SAFETY: a block has `CODES` bytes of codes, and a group 128 activations.
                        unsafe {
                            let at =
                                block.as_ptr().add((tile / 2 * (GROUP / 16) + part) * 64 + tile % 2 * 32);
                            let codes = _mm256_loadu_si256(at.cast());
                            let x = x.as_ptr().add(part * 16).cast::<i32>();
                            let of = |i| _mm256_set1_epi32(x.add(i).read_unaligned());
                            let by = |codes, i| _mm256_maddubs_epi16(_mm256_and_si256(codes, three), of(i));
                            acc[0] = _mm256_add_epi16(acc[0], by(codes, 0));
                            acc[1] = _mm256_add_epi16(acc[1], by(_mm256_srli_epi16(codes, 2), 1));
                            acc[0] = _mm256_add_epi16(acc[0], by(_mm256_srli_epi16(codes, 4), 2));
                            acc[1] = _mm256_add_epi16(acc[1], by(_mm256_srli_epi16(codes, 6), 3));
                        }
                    }
                    let acc = _mm256_madd_epi16(_mm256_add_epi16(acc[0], acc[1]), ones);
                    *sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc), scales256(block, tile), *sum);
                }
            }
            for (y, sum) in y.chunks_mut(8).zip(sums) {
                // SAFETY: 8 floats.
                unsafe { _mm256_storeu_ps(y.as_mut_ptr(), sum) };
            }
        }
    }

    #[target_feature(enable = "avx2,f16c")]
    fn scales256(block: &[u8], tile: usize) -> __m256 {
        // SAFETY: after the codes are 64 scales of two bytes.
        let scales = unsafe { _mm_loadu_si128(block.as_ptr().add(CODES + 16 * tile).cast()) };
        _mm256_cvtph_ps(scales)
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn rounded256(blocks: &[u8], inputs: &Inputs, y: &mut [f32]) {
        let (low4, low8) = (_mm256_set1_epi8(15), _mm256_set1_epi16(255));
        let groups = inputs.x.len() / GROUP;
        for (row, y) in blocks.chunks(groups * BLOCK).zip(y.chunks_mut(ROWS)) {
            let mut sums = [_mm256_setzero_ps(); ROWS / 8];
            for ((block, tables), (unit, least)) in
                row.chunks(BLOCK).zip(inputs.rounded.chunks(GROUP / 2)).zip(&inputs.units)
            {
                let (mut even, mut odd) = ([_mm256_setzero_si256(); 2], [_mm256_setzero_si256(); 2]);
                for (n, pair) in tables.chunks_exact(2).enumerate() {
                    // SAFETY: 16 bytes each.
                    let table = |i: usize| unsafe {
                        _mm256_broadcastsi128_si256(_mm_loadu_si128(pair[i].as_ptr().cast()))
                    };
                    let tables = [table(0), table(1)];
                    for half in 0..2 {
                        // SAFETY: a block has `CODES` bytes of codes, 64 for each pair of tables.
                        let codes =
                            unsafe { _mm256_loadu_si256(block.as_ptr().add(n * 64 + half * 32).cast()) };
                        let first = _mm256_shuffle_epi8(tables[0], _mm256_and_si256(codes, low4));
                        let second = _mm256_shuffle_epi8(
                            tables[1],
                            _mm256_and_si256(_mm256_srli_epi16(codes, 4), low4),
                        );
                        let both = _mm256_add_epi8(first, second);
                        even[half] = _mm256_add_epi16(even[half], _mm256_and_si256(both, low8));
                        odd[half] = _mm256_add_epi16(odd[half], _mm256_srli_epi16(both, 8));
                    }
                }
                let (unit, least) = (_mm256_set1_ps(*unit), _mm256_set1_ps(*least));
                for half in 0..2 {
                    let low = _mm256_unpacklo_epi16(even[half], odd[half]);
                    let high = _mm256_unpackhi_epi16(even[half], odd[half]);
                    let found = [
                        _mm256_castsi256_si128(low),
                        _mm256_castsi256_si128(high),
                        _mm256_extracti128_si256::<1>(low),
                        _mm256_extracti128_si256::<1>(high),
                    ];
                    for (i, found) in found.into_iter().enumerate() {
                        let (tile, found) = (half * 4 + i, _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(found)));
                        let found = _mm256_fmadd_ps(found, unit, least);
                        sums[tile] = _mm256_fmadd_ps(found, scales256(block, tile), sums[tile]);
                    }
                }
            }
            for (y, sum) in y.chunks_mut(8).zip(sums) {
                // SAFETY: 8 floats.
                unsafe { _mm256_storeu_ps(y.as_mut_ptr(), sum) };
            }
        }
    }

    /// Median seconds of a product, with the rows dealt out to `threads` threads.
    fn seconds(way: Way, bytes: &[u8], inputs: &Inputs, y: &mut [f32], threads: usize) -> f64 {
        let (rows, barrier) = (y.len() / ROWS / threads * ROWS, Barrier::new(threads));
        let part = bytes.len() / threads;
        // Small matrices are multiplied several times, so that a run takes long enough to be measured.
        let times = (20_000_000 / bytes.len()).max(1);
        let run = |(bytes, y): (&[u8], &mut [f32])| -> Vec<f64> {
            let time = |_| {
                barrier.wait();
                let start = Instant::now();
                for _ in 0..times {
                    // SAFETY: the instructions were found by `main`.
                    unsafe { way(bytes, inputs, y) }
                }
                barrier.wait();
                start.elapsed().as_secs_f64() / times as f64
            };
            (0..=RUNS).map(time).collect()
        };
        let run = &run;
        let mut found = std::thread::scope(|scope| {
            let parts = bytes.chunks(part).zip(y.chunks_mut(rows));
            let threads: Vec<_> = parts.map(|part| scope.spawn(move || run(part))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).next().unwrap()
        });
        // The first run warms up.
        found.remove(0);
        found.sort_by(f64::total_cmp);
        found[RUNS / 2]
    }

    pub(super) fn main() {
        const K: usize = 4096;
        /// Rows of the small matrix, which the large one repeats, so that packing it does not take minutes.
        const SOME: usize = 1024;
        let code = |row: usize, column: usize| (((row * 31 + column * 17) ^ (row * column / 7)) % 4) as u8;
        let x: Vec<i8> = (0..K).map(|i| ((i * 7919 % 255) as i32 - 127) as i8).collect();
        let start = Instant::now();
        let inputs = Inputs::of(x);
        println!("tables of {K} columns: {:.0} µs, not vectorised", start.elapsed().as_secs_f64() * 1e6);
        let wide = is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512bw");
        let narrow = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
        let ways: [(&str, bool, Place, Way); 5] = [
            ("avx512: multiplied (VNNI)", wide, multiplied, vnni),
            ("avx512: looked up, rounded", wide, looked_up, rounded512),
            ("avx512: looked up, exact", wide, looked_up, exact512),
            ("avx2: multiplied (maddubs)", narrow, multiplied, maddubs),
            ("avx2: looked up, rounded", narrow, looked_up, rounded256),
        ];
        for (what, rows) in [("in the second-level cache", SOME), ("in memory", 512 << 10)] {
            let mb = (rows * K / 4 + rows * K / GROUP * 2) as f64 / 1e6;
            println!("\n{rows} × {K}, {mb:.1} MB, {what}: GB/s and Gmac/s with 1 and 2 threads, error");
            for place in [multiplied as Place, looked_up] {
                let bytes = packed(code, SOME, K, place).repeat(rows / SOME);
                let wanted: Vec<f32> = (0..SOME)
                    .map(|row| {
                        (0..K).map(|i| i32::from(code(row, i)) * i32::from(inputs.x[i])).sum::<i32>() as f32
                    })
                    .collect();
                for (name, there, of, way) in ways {
                    if !there || !std::ptr::fn_addr_eq(of, place) {
                        continue;
                    }
                    let mut y = vec![0.0; rows];
                    let times = [1, 2].map(|threads| seconds(way, &bytes, &inputs, &mut y, threads));
                    let squares = |it: &mut dyn Iterator<Item = f32>| it.map(|x| x * x).sum::<f32>();
                    let errors = squares(&mut y.iter().zip(&wanted).map(|(y, x)| y - x));
                    let error = (errors / squares(&mut wanted.iter().copied())).sqrt();
                    let [one, two] =
                        times.map(|t| (bytes.len() as f64 / t / 1e9, (rows * K) as f64 / t / 1e9));
                    println!(
                        "{name:28} {:6.1} {:6.1} GB/s {:7.1} {:7.1} Gmac/s {:7.3} %",
                        one.0,
                        two.0,
                        one.1,
                        two.1,
                        100.0 * error
                    );
                }
            }
        }
    }
}
