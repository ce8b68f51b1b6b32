//! A file that is replaced while it is read is an error.

use storage::Identity;
use testkit::http::{Faults, Tags};

use crate::{noise, open, served};

#[test]
fn another_version_is_never_mixed_with_the_one_that_was_opened() {
    for tags in [Tags::Strong, Tags::Weak, Tags::Time] {
        let (server, bytes) = served(300_000);
        server.fail(Faults { tags, ..Faults::default() });
        let source = open(&server.url("dir/a.bin")).unwrap();
        let was = source.identity().unwrap();
        assert_eq!(source.identity_now().unwrap(), Some(was.clone()), "{tags:?}");

        let mut buf = vec![0; 100_000];
        source.read_at(100_000, &mut buf).unwrap();
        server.put("dir/a.bin", noise(300_000));
        let error = source.read_at(200_000, &mut buf).unwrap_err();
        assert!(error.to_string().contains("another version"), "{tags:?}: {error}");
        assert!(buf == bytes[100_000..200_000], "{tags:?}: nothing of another version");
        let now = source.identity_now().unwrap().unwrap();
        assert!(was.changed_to(&now).is_some(), "{tags:?}");
        // A new one is opened anew.
        open(&server.url("dir/a.bin")).unwrap().read_at(200_000, &mut buf).unwrap();
    }
}

#[test]
fn a_version_that_changes_where_an_answer_broke_off_is_an_error() {
    let (server, _) = served(3_000_000);
    let source = open(&server.url("dir/a.bin")).unwrap();
    server.fail(Faults { breaks: 1, ..Faults::default() });
    let reader = std::thread::spawn(move || {
        let mut buf = vec![0; 2_000_000];
        loop {
            if let Err(error) = source.read_at(20_000, &mut buf) {
                return error.to_string();
            }
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    server.put("dir/a.bin", noise(3_000_000));
    let error = reader.join().unwrap();
    assert!(error.contains("another version"), "{error}");
}

#[test]
fn a_server_without_tags_is_told_by_length() {
    let (server, _) = served(300_000);
    server.fail(Faults { tags: Tags::None, ..Faults::default() });
    let source = open(&server.url("dir/a.bin")).unwrap();
    assert_eq!(source.identity(), None);
    let mut buf = vec![0; 50_000];
    source.read_at(100_000, &mut buf).unwrap();
    server.put("dir/a.bin", noise(300_001));
    assert!(source.read_at(200_000, &mut buf).is_err());
}

#[test]
fn the_identity_is_the_tag() {
    let (server, _) = served(10);
    let source = open(&server.url("dir/a.bin")).unwrap();
    assert!(matches!(source.identity(), Some(Identity::Tagged { len: 10, tag, .. }) if &*tag == "\"v1\""));
}

#[test]
fn another_query_is_another_file() {
    let (server, _) = served(10);
    for tags in [Tags::Strong, Tags::Time] {
        server.fail(Faults { tags, ..Faults::default() });
        let identity =
            |query: &str| open(&server.url(&format!("dir/a.bin{query}"))).unwrap().identity().unwrap();
        assert!(identity("?m=a") != identity("?m=b") && identity("?m=a") != identity(""), "{tags:?}");
        assert_eq!(identity("?m=a"), identity("?m=a"));
        assert!(!format!("{:?}", identity("?m=secret")).contains("secret"));
    }
}
