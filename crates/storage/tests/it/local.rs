//! The file system: what is found, and that nothing leads out.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use storage::{Error, Identity, Io, LocalFiles, Location, Name, Storage};

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// Writes a file with its directories.
fn put(dir: &Path, name: &str, content: &[u8]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn content(files: &LocalFiles, file: &str) -> Result<Vec<u8>, Error> {
    let source = files.open(&name(file))?;
    let mut bytes = vec![0; usize::try_from(source.len()).unwrap()];
    source.read_at(0, &mut bytes).unwrap();
    Ok(bytes)
}

#[test]
fn a_directory_is_listed_and_its_files_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "b", b"bytes");
    put(dir.path(), "sub/deep/c", b"c");
    put(dir.path(), "empty", b"");
    for (io, kind) in
        [(Io::Auto, "mmap"), (Io::Mmap, "mmap"), (Io::CopyOnWrite, "mmap"), (Io::Pread, "pread")]
    {
        let files = LocalFiles::new(dir.path()).with_io(io);
        assert_eq!(files.list(&Name::ROOT).unwrap(), ["b", "empty", "sub"]);
        assert_eq!(files.list(&name("sub")).unwrap(), ["deep"]);
        assert_eq!(content(&files, "sub/deep/c").unwrap(), b"c");
        assert_eq!(content(&files, "empty").unwrap(), b"");
        let source = files.open(&name("b")).unwrap();
        assert_eq!((source.kind(), source.mapped().is_some()), (kind, kind == "mmap"));
        assert_eq!(source.is_private(), io == Io::CopyOnWrite);
        assert!(files.open_small(&name("b")).unwrap().mapped().is_none());
        let Some(Identity::File { len, inode, .. }) = source.identity() else { panic!("a file") };
        assert!(len == 5 && inode > 0);
        assert_eq!(files.location(&name("sub/x")), Location::Path(dir.path().join("sub/x")));
        assert!(matches!(files.open(&name("sub")), Err(Error::Directory { .. })));
        assert!(matches!(files.open(&Name::ROOT), Err(Error::Directory { .. })));
        assert!(matches!(files.list(&name("b")), Err(Error::NotADirectory { .. })));
        assert!(files.open(&name("sub/none")).unwrap_err().is_not_found());
        assert!(files.list(&name("none")).unwrap_err().is_not_found());
    }
}

#[test]
fn no_link_leads_out_whichever_part_of_the_name_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
    put(&inside, "real/file", b"inside");
    put(&outside, "file", b"outside");
    symlink("real", inside.join("within")).unwrap();
    symlink("real/file", inside.join("file")).unwrap();
    symlink(&outside, inside.join("dir")).unwrap();
    symlink("../out/file", inside.join("gone")).unwrap();
    symlink("../../out/file", inside.join("real/gone")).unwrap();
    let files = LocalFiles::new(&inside);
    for good in ["real/file", "within/file", "file"] {
        assert_eq!(content(&files, good).unwrap(), b"inside", "{good}");
    }
    for bad in ["dir/file", "gone", "real/gone", "within/gone"] {
        let error = files.open(&name(bad)).unwrap_err();
        assert!(matches!(&error, Error::Outside { name, .. } if name == bad), "{bad}: {error}");
        assert!(matches!(files.open_small(&name(bad)), Err(Error::Outside { .. })), "{bad}");
    }
    assert!(matches!(files.list(&name("dir")), Err(Error::Outside { .. })));
    // Who names the file chooses where it is.
    let (files, chosen) = LocalFiles::at(inside.join("gone")).unwrap();
    assert_eq!(content(&files, chosen.as_str()).unwrap(), b"outside");
    assert!(matches!(files.open(&name("real/gone")), Err(Error::Outside { .. })));
}

#[test]
fn links_within_a_model_of_the_hub_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("models--who--what");
    put(&model, "blobs/0a", b"blob");
    put(dir.path(), "other", b"other");
    fs::create_dir_all(model.join("snapshots/1/sub")).unwrap();
    symlink("../../blobs/0a", model.join("snapshots/1/w")).unwrap();
    symlink("../../../blobs/0a", model.join("snapshots/1/sub/w")).unwrap();
    symlink("../../../other", model.join("snapshots/1/x")).unwrap();
    let files = LocalFiles::new(model.join("snapshots/1"));
    assert_eq!(content(&files, "w").unwrap(), b"blob");
    assert_eq!(content(&files, "sub/w").unwrap(), b"blob");
    assert!(matches!(files.open(&name("x")), Err(Error::Outside { .. })));
}

/// huggingface_hub 2.4.0 keeps blobs in a store that all models share, which has a mark.
#[test]
fn links_to_the_shared_store_of_the_hub_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("models--who--what");
    put(dir.path(), "blobs/ab/abcd", b"shared");
    fs::create_dir_all(model.join("snapshots/1")).unwrap();
    fs::create_dir_all(model.join("blobs")).unwrap();
    symlink("../../blobs/ab/abcd", model.join("blobs/0a")).unwrap();
    symlink("../../blobs/0a", model.join("snapshots/1/w")).unwrap();
    let files = LocalFiles::new(model.join("snapshots/1"));
    assert!(matches!(files.open(&name("w")), Err(Error::Outside { .. })));
    put(dir.path(), "blobs/.huggingface-shared-blobs", b"1\n");
    assert_eq!(content(&files, "w").unwrap(), b"shared");
    // Only from a model of the hub.
    fs::create_dir_all(dir.path().join("other")).unwrap();
    symlink("../blobs/ab/abcd", dir.path().join("other/w")).unwrap();
    let files = LocalFiles::new(dir.path().join("other"));
    assert!(matches!(files.open(&name("w")), Err(Error::Outside { .. })));
}

#[test]
fn a_path_is_a_directory_or_a_file_in_one() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a\\b", b"odd");
    let (files, name) = LocalFiles::at(dir.path()).unwrap();
    assert!(name.is_root());
    assert_eq!(files.location(&name), dir.path().into());
    // No storage has such a name, but a caller may choose the file.
    let (files, name) = LocalFiles::at(dir.path().join("a\\b")).unwrap();
    assert_eq!(files.location(&name), dir.path().join("a\\b").into());
    assert_eq!(content(&files, name.as_str()).unwrap(), b"odd");
    assert!(LocalFiles::at(dir.path().join("none")).unwrap_err().is_not_found());
}

#[test]
fn what_is_no_file_is_refused_without_being_opened() {
    for (path, found) in [("/dev/zero", "a device"), ("/dev/null", "a device")] {
        let (files, name) = LocalFiles::at(path).unwrap();
        let error = files.open(&name).unwrap_err();
        assert_eq!(error.to_string(), format!("`{path}`: wanted a regular file, found {found}"));
    }
}
