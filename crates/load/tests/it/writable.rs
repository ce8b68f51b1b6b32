//! Memory of parameters that may be written to.

use checkpoint::Io;
use load::{Options, Pool};

use crate::{Matrix, as_stored, file, folder, halves, open};

#[test]
fn what_is_written_to_a_private_map_is_this_process_own() {
    let dir = folder();
    let matrices = [Matrix::new("a", &[3000, 1000], 1), Matrix::new("none", &[0, 5], 3)];
    let path = file(dir.path(), "model.safetensors", &matrices);
    let before = std::fs::read(&path).unwrap();
    let load = |io, owned| {
        let checkpoint = open(&path, io);
        let options = Options { owned, ..Options::default() };
        as_stored(&checkpoint).load_with(&mut Pool::new(2), options).unwrap()
    };
    let values = matrices[0].values();
    for (io, owned, writable, borrowed) in [
        (Io::Mmap, false, false, true),
        (Io::CopyOnWrite, false, true, true),
        (Io::CopyOnWrite, true, true, false),
        (Io::Pread, false, true, false),
    ] {
        let loaded = load(io, owned);
        assert!(loaded.get("none").unwrap().slots()[0].writable().is_none());
        let slot = &loaded.get("a").unwrap().slots()[0];
        assert_eq!((slot.writable().is_some(), slot.is_borrowed()), (writable, borrowed), "{io:?}");
        assert!(halves(slot.bytes()) == values);
        let Some(place) = slot.writable() else { continue };
        // SAFETY: no slice of these bytes is alive.
        unsafe { place.cast::<u16>().write(!values[0]) };
        assert_eq!(halves(slot.bytes())[0], !values[0], "{io:?}");
        // Advice that drops pages must not drop what was written.
        slot.release();
        assert_eq!(halves(slot.bytes())[0], !values[0], "{io:?}");
        assert!(halves(load(Io::Mmap, false).get("a").unwrap().bytes()) == values);
    }
    assert!(std::fs::read(&path).unwrap() == before);
}
