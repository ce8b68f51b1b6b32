//! Several ranges at once are what they are one by one.

use std::io::ErrorKind;
use std::sync::Arc;

use proptest::prelude::*;
use storage::{ByteSource, Fill, Io, LocalFiles, Memory, Name, Storage};

const LEN: usize = 3 * 4096 + 77;

fn content() -> Vec<u8> {
    (0..LEN).map(|i| ((i * i) >> 5).to_le_bytes()[0]).collect()
}

/// The same bytes by every way of reading them.
fn sources(dir: &tempfile::TempDir) -> Vec<Arc<dyn ByteSource>> {
    let name = Name::parse("file").unwrap();
    std::fs::write(dir.path().join("file"), content()).unwrap();
    let local = |io| LocalFiles::new(dir.path()).with_io(io).open(&name).unwrap();
    let memory = Memory::new("m").with(name.clone(), content());
    vec![local(Io::Mmap), local(Io::Pread), local(Io::Direct), memory.open(&name).unwrap()]
}

/// Ranges, some of which begin where the one before ends.
fn ranges() -> impl Strategy<Value = Vec<(usize, usize)>> {
    let range = (any::<bool>(), 0..=LEN, 0usize..5000);
    prop::collection::vec(range, 0..40).prop_map(|parts| {
        let mut last = 0;
        let ranges = parts.into_iter().map(|(touches, at, len)| {
            let at = if touches { last } else { at };
            let len = len.min(LEN - at);
            last = at + len;
            (at, len)
        });
        ranges.collect()
    })
}

fn read(source: &dyn ByteSource, ranges: &[(usize, usize)]) -> Vec<Vec<u8>> {
    let mut buffers: Vec<Vec<u8>> = ranges.iter().map(|(_, len)| vec![0xa5; *len]).collect();
    let mut fills: Vec<Fill<'_>> =
        buffers.iter_mut().zip(ranges).map(|(buf, (at, _))| Fill { offset: *at as u64, buf }).collect();
    source.read_many(&mut fills).unwrap();
    buffers
}

proptest! {
    #[test]
    fn any_ranges(ranges in ranges()) {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let content = content();
        for source in sources(&dir) {
            let found = read(&*source, &ranges);
            for ((at, len), found) in ranges.iter().zip(found) {
                let mut single = vec![0; *len];
                source.read_at(*at as u64, &mut single).unwrap();
                prop_assert_eq!(&single, &content[*at..*at + *len]);
                prop_assert_eq!(single, found, "{} {}", source.kind(), at);
            }
        }
    }
}

#[test]
fn more_ranges_than_one_call_takes() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ranges: Vec<_> = (0..LEN / 3).map(|i| (3 * i, 3)).collect();
    for source in sources(&dir) {
        assert_eq!(read(&*source, &ranges).concat(), content()[..LEN / 3 * 3], "{}", source.kind());
    }
}

#[test]
fn a_range_past_the_end_is_an_error() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for source in sources(&dir) {
        for past in [LEN as u64 - 1, LEN as u64, u64::MAX] {
            let (mut one, mut two) = ([0; 4], [0; 2]);
            let mut fills = [Fill { offset: 0, buf: &mut one }, Fill { offset: past, buf: &mut two }];
            let error = source.read_many(&mut fills).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{} {past}", source.kind());
        }
    }
    // A file that was shortened since.
    let source = &sources(&dir)[1];
    std::fs::OpenOptions::new().write(true).open(dir.path().join("file")).unwrap().set_len(6).unwrap();
    let (mut one, mut two) = ([0; 4], [0; 4]);
    let mut fills = [Fill { offset: 0, buf: &mut one }, Fill { offset: 4, buf: &mut two }];
    assert_eq!(source.read_many(&mut fills).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}
