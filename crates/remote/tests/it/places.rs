//! Which URLs are read, and what messages say of them.

use storage::{Error, Name, Resolver};
use testkit::http::{Answer, Faults, FileServer};

use crate::{open, served};

fn at(url: &str) -> Result<(String, String), Error> {
    let (files, name) = weighbridge_remote::Servers::from_env().at(url)?;
    Ok((files.location(&Name::ROOT).to_string(), name.to_string()))
}

#[test]
fn a_url_is_a_directory_and_a_name() {
    for (url, dir, name) in [
        ("https://host/a/b.gguf", "https://host/a", "b.gguf"),
        ("https://host/a/b/", "https://host/a/b", ""),
        ("https://host", "https://host", ""),
        ("http://host:8080/b.gguf", "http://host:8080", "b.gguf"),
        ("HTTPS://host/b%20c.gguf", "https://host", "b c.gguf"),
        ("https://user:secret@host/a/b.gguf?sig=secret#x", "https://host/a", "b.gguf"),
    ] {
        assert_eq!(at(url).unwrap(), (dir.to_owned(), name.to_owned()), "{url}");
    }
    for url in [
        "https://",
        "ftp://host/a",
        "https://host/a//b",
        "https://host/..%2fa",
        "https://host/a%00",
        "https://[x",
        "s3:///a",
    ] {
        assert!(at(url).is_err(), "{url}");
    }
    let servers = weighbridge_remote::Servers::from_env();
    for path in ["a/b.gguf", "hf:a/b", "ftp://host/a", "C:\\a"] {
        assert!(servers.resolve(path).is_none(), "{path}");
    }
}

#[test]
fn a_secret_of_a_url_is_sent_and_never_said() {
    let (server, bytes) = served(100_000);
    let url = server.url("dir/a.bin?sig=hunter2").replace("http://", "http://me:hunter3@");
    let (files, name) = weighbridge_remote::Servers::from_env().at(&url).unwrap();
    let source = files.open(&name).unwrap();
    let mut buf = vec![0; 50_000];
    source.read_at(30_000, &mut buf).unwrap();
    assert!(buf == bytes[30_000..80_000]);
    for asked in server.asked() {
        assert!(
            asked.contains("sig=hunter2") && asked.to_ascii_lowercase().contains("authorization: basic"),
            "{asked}"
        );
    }
    server.fail(Faults { repeats: true, ..Faults::default() });
    let error = source.read_at(30_000, &mut buf).unwrap_err().to_string();
    assert_eq!(error, "the server answers 400 Bad Request");
    let refused = url.replace("a.bin", "c.bin");
    let error = open(&refused).unwrap_err().to_string();
    assert!(error.contains("400 Bad Request") && !error.contains("hunter"), "{error}");
    server.fail(Faults::default());
    let gone = url.replace("a.bin", "b.bin");
    let closed = "http://me:hunter3@127.0.0.1:1/a.bin?sig=hunter2".to_owned();
    for url in [gone, closed, "https://me:hunter3@/?sig=hunter2".to_owned(), "ftp://a?sig=hunter2".to_owned()]
    {
        let text = match weighbridge_remote::Servers::from_env().at(&url) {
            Err(error) => format!("{error} {error:?}"),
            Ok((files, name)) => match files.open(&name) {
                Err(error) => format!("{error} {error:?} {files:?} {}", files.location(&name)),
                Ok(source) => format!("{source:?} {files:?}"),
            },
        };
        assert!(!text.contains("hunter"), "{url}: {text}");
    }
}

#[test]
fn what_is_missing_is_not_found() {
    let server = FileServer::start();
    for path in ["a.bin", "dir/a.bin", "dir"] {
        let error = open(&server.url(path)).unwrap_err();
        assert!(error.is_not_found(), "{path}: {error}");
    }
    // An empty file is a file.
    server.put("empty.bin", Vec::new());
    assert_eq!(open(&server.url("empty.bin")).unwrap().len(), 0);
}

#[test]
fn a_server_without_lists_is_asked_for_the_usual_names() {
    let server = FileServer::start();
    for name in ["config.json", "tokenizer.json", "unusual.gguf"] {
        server.put(&format!("model/{name}"), b"{}".as_slice());
    }
    // As of a bucket that may not be listed.
    let forbidden = Answer { status: "403 Forbidden", headers: "", body: "" };
    for faults in [Faults::default(), Faults { missing: Some(forbidden), ..Faults::default() }] {
        server.fail(faults);
        for url in ["model", "model/"] {
            let (files, name) = weighbridge_remote::Servers::from_env().at(&server.url(url)).unwrap();
            assert!(matches!(files.open(&name), Err(Error::Directory { .. })), "{url}");
            assert_eq!(files.list(&name).unwrap(), ["config.json", "tokenizer.json"]);
            assert!(!files.lists_all());
            // Each name is asked for once.
            let before = server.counts().requests;
            files.list(&name).unwrap();
            assert!(before > 0 && server.counts().requests == 0);
        }
    }
}

#[test]
fn a_directory_whose_names_are_known_is_not_asked_for_others() {
    let (hub, elsewhere) = (FileServer::start(), FileServer::start());
    hub.put("o/n/config.json", b"{}".as_slice());
    hub.redirect("o/n/sub/a.bin", elsewhere.url("blobs/1?sig=hunter2"));
    let bytes = crate::noise(100_000);
    elsewhere.put("blobs/1", bytes.clone());
    let names = ["config.json", "sub/a.bin", "sub/b.bin"].map(str::to_owned);
    let servers = weighbridge_remote::Servers::from_env();
    let files = servers.directory(&hub.url("o/n"), Some("Bearer hunter3"), names, "hf:o/n").unwrap();
    assert_eq!(files.list(&Name::ROOT).unwrap(), ["config.json", "sub"]);
    let sub = Name::parse("sub").unwrap();
    assert_eq!(files.list(&sub).unwrap(), ["a.bin", "b.bin"]);
    assert!(matches!(files.open(&sub), Err(Error::Directory { .. })) && files.lists_all());
    assert!(files.open(&Name::parse("tokenizer.json").unwrap()).unwrap_err().is_not_found());
    assert!(hub.asked().is_empty(), "nothing was asked for");

    let source = files.open(&Name::parse("sub/a.bin").unwrap()).unwrap();
    let mut buf = vec![0; 50_000];
    source.read_at(30_000, &mut buf).unwrap();
    assert!(buf == bytes[30_000..80_000]);
    // The hub gets the credential with each request, and the server that it names never does.
    let hub_asked = hub.asked();
    assert!(
        hub_asked.len() >= 2 && hub_asked.iter().all(|head| head.contains("Bearer hunter3")),
        "{hub_asked:?}"
    );
    let others = elsewhere.asked();
    assert!(others.len() >= 2 && others.iter().all(|head| !head.contains("hunter3")), "{others:?}");

    let error = files.open(&Name::parse("sub/b.bin").unwrap()).unwrap_err();
    let text = format!("{error} {error:?} {files:?}");
    assert!(error.is_not_found() && text.contains("hf:o/n/sub/b.bin") && !text.contains("hunter"), "{text}");
}
