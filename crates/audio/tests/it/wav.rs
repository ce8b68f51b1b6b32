//! Wav files that are made here.

use weighbridge_audio::{Error, Format};

use crate::files::{decode, open, whole};
use crate::narrow;

/// A file of one chunk `fmt ` and one chunk `data`.
fn wav(tag: u16, channels: u16, rate: u32, bits: u16, samples: &[u8]) -> Vec<u8> {
    let length = u32::try_from(samples.len()).unwrap();
    let mut file = header(tag, channels, rate, bits, length + 36, length);
    file.extend(samples);
    file
}

pub(crate) fn header(tag: u16, channels: u16, rate: u32, bits: u16, riff: u32, data: u32) -> Vec<u8> {
    let frame = channels * bits.div_ceil(8);
    let mut file = b"RIFF".to_vec();
    file.extend(riff.to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0");
    file.extend(tag.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate.wrapping_mul(frame.into())).to_le_bytes());
    file.extend(frame.to_le_bytes());
    file.extend(bits.to_le_bytes());
    file.extend(b"data");
    file.extend(data.to_le_bytes());
    file
}

#[test]
fn all_kinds_of_samples() {
    let i16s: Vec<u8> = [0_i16, 16_384, -32_768, 32_767].iter().flat_map(|x| x.to_le_bytes()).collect();
    let i32s: Vec<u8> = [0, 1 << 30, i32::MIN, i32::MAX].iter().flat_map(|x| x.to_le_bytes()).collect();
    let i24s: Vec<u8> =
        [0, 1 << 30, i32::MIN, i32::MAX].iter().flat_map(|x| x.to_le_bytes().into_iter().skip(1)).collect();
    let f32s: Vec<u8> = [0.0_f32, 0.5, -1.0, 1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let f64s: Vec<u8> = [0.0_f64, 0.5, -1.0, 1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let cases: [(u16, u16, &[u8]); 6] = [
        (1, 8, &[128, 192, 0, 255]),
        (1, 16, &i16s),
        (1, 24, &i24s),
        (1, 32, &i32s),
        (3, 32, &f32s),
        (3, 64, &f64s),
    ];
    for (tag, bits, samples) in cases {
        let (found, sound) = whole(&wav(tag, 1, 192_000, bits, samples));
        assert_eq!((sound.format(), sound.rate(), sound.channels()), (Format::Wav, 192_000, 1));
        assert_eq!(sound.seconds(), Some(4.0 / 192_000.0));
        let top = if tag == 3 { 1.0 } else { narrow(1.0 - (1.0 - f64::from(bits)).exp2()) };
        assert_eq!(found, [0.0, 0.5, -1.0, top], "{tag} {bits}");
    }
}

#[test]
fn channels_are_mixed_by_their_mean() {
    let frames: Vec<u8> = [[0_i16, 800, 1_600, 2_400, 3_200, 4_000, 4_800, 5_600]; 3]
        .iter()
        .flatten()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let (found, sound) = whole(&wav(1, 8, 48_000, 16, &frames));
    assert_eq!(sound.channels(), 8);
    assert_eq!(found, [2_800.0 / 32_768.0; 3]);
}

/// Floats may be louder than full scale, and are clipped.
#[test]
fn loud_floats() {
    let samples: Vec<u8> = [1.5_f32, -3.0, f32::MAX].iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(whole(&wav(3, 1, 8_000, 32, &samples)).0, [1.0, -1.0, 1.0]);
}

#[test]
fn infinite_samples_are_refused_with_their_time() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut samples = vec![0.25_f32; 20_000];
        samples[16_001] = bad;
        let bytes: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
        let (found, result) = decode(&wav(3, 2, 8_000, 32, &bytes));
        assert_eq!(found.len(), 8_000);
        let error = result.unwrap_err();
        assert!(matches!(error, Error::NotFinite { format: Format::Wav, seconds } if seconds == 1.0));
        assert_eq!(error.to_string(), "the wav has a sample at 1.000 s that is infinite or not a number");
    }
}

/// Programs that write into a pipe cannot go back to write the length: ffmpeg, sox, Python's wave, arecord.
#[test]
fn lengths_of_pipes() {
    let lengths =
        [(u32::MAX, u32::MAX), (0x7fff_f024, 0x7fff_f000), (36, 0), (0, 0), (0x8000_0024, 0x8000_0000)];
    for (riff, data) in lengths {
        let mut file = header(1, 1, 16_000, 16, riff, data);
        file.extend([0, 64].repeat(40_000));
        let (found, sound) = whole(&file);
        assert_eq!(sound.seconds(), None, "{data:#x}");
        assert!(found == vec![0.5; 40_000]);
        // Where the recorder was stopped in the middle of a sample.
        file.push(1);
        assert_eq!(whole(&file).0.len(), 40_000);
    }
}

#[test]
fn no_samples() {
    let (found, sound) = whole(&wav(1, 1, 16_000, 16, &[]));
    assert!(found.is_empty());
    assert_eq!(sound.read_seconds(), 0.0);
    // Another chunk follows.
    let mut file = header(1, 1, 16_000, 16, 36 + 12, 0);
    file.extend(b"LIST\x04\0\0\0INFO");
    assert!(whole(&file).0.is_empty());
}

#[test]
fn chunks_around_the_samples() {
    let plain = wav(1, 1, 16_000, 16, &[0, 64, 0, 32]);
    let mut file = plain[..12].to_vec();
    file.extend(b"LIST\x03\0\0\0abc\0");
    file.extend(&plain[12..]);
    file.extend(b"id3 \x04\0\0\0abcd");
    assert_eq!(whole(&file).0, [0.5, 0.25]);
}

#[test]
fn extensible() {
    let plain = wav(1, 2, 16_000, 24, &[0, 0, 64, 0, 0, 32]);
    let mut file = plain[..16].to_vec();
    file.extend([40, 0, 0, 0, 0xfe, 0xff]);
    file.extend(&plain[22..36]);
    // 22 bytes follow: 20 of the 24 bits are used, front left and right, PCM.
    file.extend(b"\x16\0\x14\0\x03\0\0\0\x01\0\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71");
    file.extend(&plain[36..]);
    assert_eq!(whole(&file).0, [0.375]);
}

#[test]
fn files_of_more_than_4_gib() {
    let plain = wav(1, 1, 16_000, 16, &[0, 64, 0, 32]);
    for magic in [b"RF64", b"BW64"] {
        let mut file = magic.to_vec();
        file.extend(b"\xff\xff\xff\xffWAVEds64\x1c\0\0\0");
        file.extend(80_u64.to_le_bytes());
        file.extend(4_u64.to_le_bytes());
        file.extend([0; 12]);
        file.extend(&plain[12..40]);
        file.extend(u32::MAX.to_le_bytes());
        file.extend(&plain[44..]);
        file.extend(b"more");
        let (found, sound) = whole(&file);
        assert_eq!(found, [0.5, 0.25]);
        assert_eq!(sound.seconds(), Some(2.0 / 16_000.0));
    }
}

#[test]
fn cut_off() {
    let file = wav(1, 2, 16_000, 16, &vec![0; 128_000]);
    let (samples, result) = decode(&file[..64_044]);
    assert_eq!(samples.len(), 16_000);
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Truncated { format: Format::Wav, seconds } if seconds == 1.0));
    assert_eq!(error.to_string(), "the wav is cut off after 1.000 s");
    for cut in 12..44 {
        assert!(matches!(open(&file[..cut]), Err(Error::Truncated { .. })), "{cut}");
    }
}

#[test]
fn headers_that_are_refused() {
    for (file, wanted) in [
        (header(7, 1, 8_000, 8, 36, 0), "cannot read mu-law in wav"),
        (header(0x11, 1, 8_000, 4, 36, 0), "cannot read ADPCM in wav"),
        (header(0x1234, 1, 8_000, 8, 36, 0), "cannot read the encoding 0x1234 in wav"),
        (header(1, 1, 8_000, 64, 36, 0), "cannot read PCM of 64 bits in 8 bytes in wav"),
        (header(3, 1, 8_000, 16, 36, 0), "cannot read floats of 16 bits in 2 bytes in wav"),
        (header(1, 0, 8_000, 16, 36, 0), "malformed wav after 0.000 s: frames of 0 bytes for 0 channels"),
        (header(1, 65, 8_000, 16, 36, 0), "malformed wav after 0.000 s: 65 channels: wanted 1 to 64"),
        (header(1, 1, 0, 16, 36, 0), "malformed wav after 0.000 s: a rate of 0 Hz: wanted 1000 to 768000 Hz"),
        (
            header(1, 1, u32::MAX, 16, 36, 0),
            "malformed wav after 0.000 s: a rate of 4294967295 Hz: wanted 1000 to 768000 Hz",
        ),
        (
            b"RIFF\x24\0\0\0WAVEdata\0\0\0\0".to_vec(),
            "malformed wav after 0.000 s: samples come before the chunk `fmt `",
        ),
    ] {
        assert_eq!(open(&file).unwrap_err().to_string(), wanted);
    }
}
