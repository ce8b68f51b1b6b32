//! Arrays compressed with zstd: files of Python's `zstandard` are read, and broken files are rejected with a message,
//! on opening or on the first read, with memory in proportion to the file.

use std::fs;

use checkpoint::{Checkpoint, Draft, Error, Outgoing, WriteOptions};
use insta::assert_snapshot;

use testkit::golden;

use crate::npy::npy;
use crate::{Dir, open_both, plane, timed};

/// Builds one frame of stored blocks, which zstd writes for noise. `flags` are those of its descriptor.
fn stored(flags: u8, content: Option<u64>, data: &[u8]) -> Vec<u8> {
    // A window of 1 MiB; a content size of 8 bytes if there is one.
    let size = content.map_or(vec![], |size| size.to_le_bytes().to_vec());
    let flags = flags | if content.is_some() { 0xc0 } else { 0 };
    let mut out = [&[0x28, 0xb5, 0x2f, 0xfd, flags, 10 << 3][..], &size].concat();
    let blocks = data.chunks(100_000).collect::<Vec<_>>();
    for (i, block) in blocks.iter().enumerate() {
        let header = u32::try_from(block.len()).expect("short") << 3 | u32::from(i + 1 == blocks.len());
        out.extend(&header.to_le_bytes()[..3]);
        out.extend(*block);
    }
    out
}

#[test]
fn every_way_of_writing_is_read() {
    let wanted = checkpoint::open(golden("npy-zst/values.npz")).expect("sound");
    assert_eq!(wanted.entries().len(), 9);
    for entry in wanted.entries() {
        let path = golden(&format!("npy-zst/{}.npy.zst", entry.name));
        let read = open_both(&path).expect("sound");
        let [found] = read.entries() else { panic!("one tensor") };
        assert_eq!((&found.name, &found.shape, &found.scheme), (&entry.name, &entry.shape, &entry.scheme));
        assert_eq!(found.strides, entry.strides, "{}", entry.name);
        assert_eq!(
            plane(&read, &found.planes[0]).unwrap(),
            plane(&wanted, &entry.planes[0]).unwrap(),
            "{}",
            entry.name
        );
        let source = &read.files()[0].source;
        assert_eq!((source.kind(), source.mapped(), source.len()), ("zstd", None, read.files()[0].len));
        assert!(source.read_at(source.len(), &mut [0]).is_err());
    }
    let sparse = checkpoint::open(golden("npy-zst/sparse.npy.zst")).expect("sound");
    let values = plane(&sparse, &sparse.entries()[0].planes[0]).unwrap();
    let (values, _) = values.as_chunks::<4>();
    assert_eq!(values.len(), 400_000);
    assert!((0..).zip(values).all(|(i, v)| i32::from_le_bytes(*v) == if i % 1000 == 7 { 3 } else { 0 }));
}

#[test]
fn directories_of_them() {
    let dir = Dir::new();
    for name in ["plain", "number", "columns"] {
        fs::create_dir_all(dir.path("m")).unwrap();
        let name = format!("{name}.npy.zst");
        fs::copy(golden(&format!("npy-zst/{name}")), dir.path("m").join(name)).unwrap();
    }
    dir.file("m/a.npy", npy("<f4", &[1], &[0; 4]));
    let names = |c: &Checkpoint| c.entries().iter().map(|e| e.name.clone()).collect::<Vec<_>>().join(" ");
    assert_eq!(names(&open_both(&dir.path("m")).expect("sound")), "a columns number plain");
    fs::copy(dir.path("m/plain.npy.zst"), dir.path("m/a.npy.zst")).unwrap();
    assert_snapshot!(dir.error("m"), @"
    mismatch in `DIR/m`: tensor `a`: is in `a.npy` and in `a.npy.zst`
    hint: if these are different models, open one of the files by its own path
    ");

    let (plain, packed) = (golden("squish/directory"), golden("squish/compressed"));
    let (plain, packed) = (open_both(&plain).expect("sound"), open_both(&packed).expect("sound"));
    assert_eq!(plain.entries(), packed.entries());
    for (a, b) in plain.files().iter().zip(packed.files()) {
        let whole = |source: &dyn checkpoint::ByteSource| {
            let mut bytes = vec![0; usize::try_from(source.len()).unwrap()];
            source.read_at(0, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(whole(&*a.source), whole(&*b.source), "{}", b.location);
    }
    // An uncompressed file wins, as in squish.
    let dir = Dir::new();
    dir.file("m/manifest.json", r#"{"a": "a"}"#);
    dir.file("m/tensors/a__pt.npy", npy("<f2", &[2], &[0; 4]));
    dir.file("m/tensors/a__pt.npy.zst", "broken");
    assert_eq!(open_both(&dir.path("m")).expect("sound").entries()[0].shape.to_string(), "[2]");
}

/// Returns the error of opening, else the result of reading.
fn said(dir: &Dir, content: &[u8]) -> String {
    let path = dir.file("x.npy.zst", content);
    match open_both(&path) {
        Err(error) => dir.text(&error),
        Ok(checkpoint) => match plane(&checkpoint, &checkpoint.entries()[0].planes[0]) {
            Err(error) => format!("reading: {error}"),
            Ok(bytes) => format!("{} bytes", bytes.len()),
        },
    }
}

#[test]
fn what_is_broken_is_said() {
    let dir = Dir::new();
    let noise: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let array = npy("|u1", &[300_000], &noise);
    let len = array.len() as u64;
    let sound = stored(0, Some(len), &array);
    let skip = |bytes: u32| [&0x184d_2a50u32.to_le_bytes()[..], &bytes.to_le_bytes()].concat();
    let changed = |at: usize, to: u8| {
        let mut file = sound.clone();
        file[at] = to;
        file
    };
    let cases: [(&str, Vec<u8>); 23] = [
        ("sound", sound.clone()),
        ("with no content size", stored(0, None, &array)),
        ("cut in the third block", sound[..sound.len() - 1].to_vec()),
        ("cut in the first block", sound[..100].to_vec()),
        ("cut in the header", sound[..7].to_vec()),
        ("no end", stored(0, None, &array[..200_000])),
        ("a content size of nothing", stored(0, Some(0), &array)),
        ("a content size too small", stored(0, Some(len - 1), &array)),
        ("a content size too large", stored(0, Some(len + 1), &array)),
        ("less than the array wants", stored(0, Some(len - 9), &array[..array.len() - 9])),
        ("more than the array wants", stored(0, None, &[&array[..], &[0]].concat())),
        ("a second frame", [&sound[..], &stored(0, None, b"more")].concat()),
        ("junk at the end", [&sound[..], b"junk"].concat()),
        ("a frame to skip at the end", [&sound[..], &skip(2), b"ab"].concat()),
        ("a frame to skip that is cut", [&sound[..], &skip(3), b"ab"].concat()),
        ("nothing but frames to skip", [skip(0), skip(0)].concat()),
        ("the reserved bit", changed(4, 0xc8)),
        ("a block of the reserved type", changed(14, 0x06)),
        ("a window of 2^41", changed(5, 31 << 3)),
        ("a dictionary", [&[0x28, 0xb5, 0x2f, 0xfd, 1, 10 << 3, 77][..], &sound[14..]].concat()),
        ("a wrong checksum", [&stored(4, None, &array)[..], &[1, 2, 3, 4]].concat()),
        ("no checksum", stored(4, None, &array)),
        ("no array", stored(0, None, b"hello")),
    ];
    let lines: Vec<String> = cases
        .iter()
        .map(|(what, file)| format!("{what}: {}", said(&dir, file).replace("\nhint: ", " / ")))
        .collect();
    assert_snapshot!(lines.join("\n"), @"
    sound: 300000 bytes
    with no content size: 300000 bytes
    cut in the third block: reading: the zstd data is broken: Failed to parse block header: Error while reading bytes for Raw: failed to fill whole buffer (at byte 300026)
    cut in the first block: malformed `DIR/x.npy.zst`: the file ends inside a zstd block: 100003 bytes wanted, 86 left (at byte 14) / the download may be incomplete: download the file again
    cut in the header: malformed `DIR/x.npy.zst`: the file ends inside the header of a zstd frame: 14 bytes wanted, 7 left (at byte 0) / the download may be incomplete: download the file again
    no end: reading: decompresses to 200000 bytes, wanted 300128 (at byte 200012)
    a content size of nothing: reading: the zstd data is broken: a frame says it holds 0 bytes, and holds 300128 (at byte 0)
    a content size too small: reading: the zstd data is broken: a frame says it holds 300127 bytes, and holds 300128 (at byte 0)
    a content size too large: malformed `DIR/x.npy.zst`: decompresses to 300129 bytes, wanted 300128 (at byte 0)
    less than the array wants: reading: decompresses to 300119 bytes, wanted 300128 (at byte 300145)
    more than the array wants: reading: the zstd data is broken: it holds more than is wanted of it (at byte 300147)
    a second frame: reading: the zstd data is broken: it holds more than is wanted of it (at byte 300167)
    junk at the end: reading: wanted a zstd frame, or the end of the file, found [6a, 75, 6e, 6b] (at byte 300154)
    a frame to skip at the end: 300000 bytes
    a frame to skip that is cut: reading: the file ends inside a skippable zstd frame: 11 bytes wanted, 10 left (at byte 300154)
    nothing but frames to skip: malformed `DIR/x.npy.zst`: the zstd data is broken: there is no frame with content (at byte 16) / the download may be incomplete: download the file again
    the reserved bit: malformed `DIR/x.npy.zst`: the zstd data is broken: its reserved bit is set (at byte 0) / the download may be incomplete: download the file again
    a block of the reserved type: malformed `DIR/x.npy.zst`: the zstd data is broken: a block is of the reserved type (at byte 14) / the download may be incomplete: download the file again
    a window of 2^41: malformed `DIR/x.npy.zst`: zstd window in bytes of 2199023255552, over the limit of 134217728 (at byte 0)
    a dictionary: unsupported `DIR/x.npy.zst`: is compressed with the zstd dictionary 77, which is not here (at byte 0)
    a wrong checksum: reading: the zstd data is broken: its checksum is 0x04030201, that of what it holds 0x4b6ef768 (at byte 300146)
    no checksum: reading: the zstd data is broken: Failed to read checksum: failed to fill whole buffer (at byte 300146)
    no array: unsupported `DIR/x.npy.zst`: the content is zstd-compressed data that is no array: decompress it first
    ");
    assert!(matches!(checkpoint::open(golden("npy-zst/dictionary.npy.zst")), Err(Error::Unsupported(_))));
    assert_snapshot!(
        checkpoint::open(golden("npy-zst/window.npy.zst")).unwrap_err().to_string().rsplit_once('/').unwrap().1,
        @"window.npy.zst`: zstd window in bytes of 268435456, over the limit of 134217728 (at byte 0)"
    );
    // Another thing that is compressed, under its own name.
    let gguf = stored(0, None, b"GGUF and so on");
    dir.file("m.gguf.zst", &gguf);
    dir.file("m.gguf", &gguf);
    assert_snapshot!([dir.error("m.gguf.zst"), dir.error("m.gguf")].join("\n"), @"
    unsupported `DIR/m.gguf.zst`: the content is zstd-compressed data that is no array: decompress it first
    unsupported `DIR/m.gguf`: the content is zstd-compressed data
    hint: decompress it first
    ");
}

/// Three bytes of header and one of content for 128 KiB of zeros: no header can make more than the file earns.
#[test]
fn a_bomb_is_refused_before_it_goes_off() {
    let dir = Dir::new();
    let bomb = |gigabytes: u64, blocks: u32| {
        let len = (gigabytes << 30).to_string();
        let head = npy("|u1", &[gigabytes << 30], &[]);
        let mut file = stored(0, None, &head);
        // The block with the header of the array is not the last.
        file[6] &= !1;
        for i in 0..blocks {
            let header = (128 << 10) << 3 | 1 << 1 | u32::from(i + 1 == blocks);
            file.extend(&header.to_le_bytes()[..3]);
            file.push(0);
        }
        (file, len)
    };
    let (file, _) = bomb(64, 64 << 13);
    let (text, time) = timed(|| said(&dir, &file));
    assert_snapshot!(text, @"
    malformed `DIR/x.npy.zst`: 2097289 bytes would decompress to 68719476864, over the limit of 2214732800 (at byte 0)
    hint: if the file can be trusted, decompress it with `zstd -d`
    ");
    assert!(time.as_secs() < 2, "{time:?}");
    // The header alone, that promises what does not come.
    assert_snapshot!(said(&dir, &bomb(1 << 30, 1).0), @"
    malformed `DIR/x.npy.zst`: 141 bytes would decompress to 1152921504606847104, over the limit of 67253248 (at byte 0)
    hint: if the file can be trusted, decompress it with `zstd -d`
    ");
    // Blocks of nothing before the array.
    let mut empty = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 10 << 3];
    empty.extend(vec![0; 3 << 20]);
    let (text, time) = timed(|| said(&dir, &empty));
    assert_snapshot!(text, @"unsupported `DIR/x.npy.zst`: the content is zstd-compressed data that is no array: decompress it first");
    assert!(time.as_secs() < 2, "{time:?}");
}

/// Any byte changed, any end cut: an error, or values.
#[test]
fn no_damage_makes_it_panic() {
    let dir = Dir::new();
    let mut noise = 1u32;
    for name in ["checked", "blocks", "frames", "columns", "sparse"] {
        let sound = fs::read(golden(&format!("npy-zst/{name}.npy.zst"))).unwrap();
        let (mut refused, times) = (0, if name == "sparse" { 50 } else { 300 });
        for _ in 0..times {
            let mut file = sound.clone();
            for _ in 0..=noise % 3 {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = noise as usize / 7 % file.len();
                file[at] = (noise >> 24) as u8;
            }
            if noise.is_multiple_of(5) {
                file.truncate(noise as usize / 11 % file.len());
            }
            let path = dir.file("x.npy.zst", &file);
            let Ok(checkpoint) = checkpoint::open(&path) else {
                refused += 1;
                continue;
            };
            refused += usize::from(plane(&checkpoint, &checkpoint.entries()[0].planes[0]).is_err());
        }
        assert!(refused > times / 3, "{name}: {refused}");
    }
}

/// Arrays of a directory, each with its bytes: of few values, of many, of one, and of none.
fn written() -> Vec<(Outgoing, Vec<u8>)> {
    let mut random = testkit::Rng(3);
    let mut tensor = |name: &str, rows: u64, values: u64| {
        let shape = tensor::Shape::from([rows, 64]);
        let bytes = (0..rows * 64).map(|_| u8::try_from(random.below(values)).expect("a byte")).collect();
        (Outgoing { name: name.into(), shape, scheme: tensor::Scheme::plain(tensor::Dtype::U8) }, bytes)
    };
    let mut all = vec![
        tensor("few", 9000, 12),
        tensor("many", 9000, 256),
        tensor("one", 9000, 1),
        tensor("none", 0, 1),
        tensor("little", 1, 3),
    ];
    let codes = quant::scheme("squish-int8:row").expect("known");
    let shape = tensor::Shape::from([40, 64]);
    let bytes = codes.byte_len(&shape).expect("small");
    let codes = Outgoing { name: "codes".into(), shape, scheme: codes };
    all.push((codes, (0..bytes).map(|i| u8::try_from(i % 11).expect("a byte")).collect()));
    all
}

fn write(path: &std::path::Path, stop_after: Option<usize>) -> checkpoint::Zstd {
    let all = written();
    let draft = Draft::npy_dir(all.iter().map(|(one, _)| one.clone()).collect(), None).expect("sound");
    let options = WriteOptions { sync_every: 1, ..WriteOptions::default() };
    let mut writer = draft.with_zstd().create_with(path, &options).expect("created");
    for (i, (one, bytes)) in all.iter().enumerate() {
        if stop_after == Some(i) {
            return checkpoint::Zstd::default();
        }
        if writer.again().expect("read").is_some() {
            continue;
        }
        let mut rest = &bytes[..];
        let mut planes = vec![];
        for plane in one.scheme.planes.iter() {
            let bytes = one.scheme.plane_bytes(plane, &one.shape).expect("small");
            let (plane, others) = rest.split_at(usize::try_from(bytes).expect("small"));
            (rest, planes) = (others, [planes, vec![plane]].concat());
        }
        writer.tensor(&planes).expect("written");
    }
    let held = writer.finish_and_hold().expect("finished");
    let zstd = held.zstd();
    held.release().expect("released");
    zstd
}

#[test]
fn arrays_are_compressed_where_that_is_smaller() {
    let dir = Dir::new();
    let zstd = write(&dir.path("m"), None);
    let mut names: Vec<String> = fs::read_dir(dir.path("m/tensors"))
        .expect("there")
        .map(|entry| entry.expect("there").file_name().into_string().expect("ours"))
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            ".manifest_ready",
            "codes__q.npy.zst",
            "codes__s.npy.zst",
            "codes__shape.npy",
            "few__pt.npy.zst",
            "little__pt.npy.zst",
            "many__pt.npy",
            "none__pt.npy.zst",
            "one__pt.npy.zst",
        ]
    );
    assert_eq!(zstd.arrays, 6);
    // A half for four bits of eight, and nearly all for one value.
    assert!(zstd.saved > 9000 * 64 / 3 + 9000 * 63, "{}", zstd.saved);
    let again = open_both(&dir.path("m")).expect("sound");
    for (one, bytes) in written() {
        let found = again.entry(&one.name).expect("there");
        assert_eq!((&found.shape, &found.scheme.name), (&one.shape, &one.scheme.name));
        let planes: Vec<u8> = found.planes.iter().flat_map(|p| plane(&again, p).expect("read")).collect();
        assert!(planes == bytes, "{}", one.name);
    }
}

/// An array that an ended process has left is kept if it is as the journal says; and the same arrays are compressed.
#[test]
fn compressed_arrays_are_continued() {
    let dir = Dir::new();
    let zstd = write(&dir.path("whole"), None);
    for stop in 0..=5 {
        let path = dir.path(&format!("m{stop}"));
        write(&path, Some(stop));
        if stop == 3 {
            // Damaged: it is written again.
            let few = dir.path(&format!(".m{stop}.partial/output/tensors/few__pt.npy.zst"));
            let mut bytes = fs::read(&few).expect("there");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&few, bytes).expect("written");
        }
        assert_eq!(write(&path, None), zstd);
        for entry in fs::read_dir(dir.path("whole/tensors")).expect("there") {
            let entry = entry.expect("there");
            let found = fs::read(path.join("tensors").join(entry.file_name())).expect("there");
            assert!(found == fs::read(entry.path()).expect("there"), "{stop}: {:?}", entry.file_name());
        }
        assert_eq!(fs::read_dir(path.join("tensors")).expect("there").count(), 9);
    }
}
