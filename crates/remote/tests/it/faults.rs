//! Bytes are those of the file, whatever the server does on the way, or there is an error.

use std::time::Duration;

use storage::Fill;
use testkit::Rng;
use testkit::http::Faults;

use crate::{open, served};

#[test]
fn any_range_has_the_bytes_of_the_file() {
    let (server, bytes) = served(3_000_000);
    let source = open(&server.url("dir/a.bin")).unwrap();
    assert_eq!((source.len(), source.kind()), (3_000_000, "http"));
    let mut rng = Rng(3);
    for round in 0..200 {
        let len = [1, 100, 5_000, 20_000, 400_000][round % 5];
        let at = rng.index(bytes.len() - len);
        let mut buf = vec![0; len];
        source.read_at(at as u64, &mut buf).unwrap();
        assert!(buf == bytes[at..at + len], "{len} bytes at {at}");
    }
    // The end, nothing, and past the end.
    let mut buf = [0; 10];
    source.read_at(2_999_990, &mut buf).unwrap();
    assert_eq!(buf, bytes[2_999_990..]);
    source.read_at(3_000_000, &mut []).unwrap();
    for at in [2_999_991, 3_000_000, u64::MAX - 3, u64::MAX] {
        let error = source.read_at(at, &mut buf).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
    }
}

#[test]
fn answers_that_break_off_and_servers_that_are_busy_cost_time_alone() {
    let (server, bytes) = served(3_000_000);
    server.fail(Faults { breaks: 4, busy: 8, ..Faults::default() });
    let source = open(&server.url("dir/a.bin")).unwrap();
    let mut read = vec![0; bytes.len()];
    let fills = read.chunks_mut(70_000).enumerate().map(|(no, buf)| Fill { offset: no as u64 * 70_000, buf });
    source.read_many(&mut fills.collect::<Vec<_>>()).unwrap();
    assert!(read == bytes);
    for at in (0..2_000_000).step_by(300_000) {
        let mut buf = vec![0; 900_000];
        source.read_at(at as u64, &mut buf).unwrap();
        assert!(buf == bytes[at..at + 900_000]);
    }
    assert!(server.counts().broken > 3);
}

#[test]
fn many_ranges_are_asked_for_at_once() {
    let (server, bytes) = served(2_000_000);
    let source = open(&server.url("dir/a.bin")).unwrap();
    server.fail(Faults { delay: Duration::from_millis(50), ..Faults::default() });
    server.counts();
    let mut read = vec![0; bytes.len()];
    let fills = read.chunks_mut(50_000).enumerate().map(|(no, buf)| Fill { offset: no as u64 * 50_000, buf });
    source.read_many(&mut fills.collect::<Vec<_>>()).unwrap();
    assert!(read == bytes);
    let counts = server.counts();
    // The first bytes are there since it was opened, but are read again with their range.
    assert_eq!((counts.requests, counts.bytes), (40, 2_000_000));
    assert!(counts.at_once >= 8, "{counts:?}");
}

#[test]
fn small_reads_that_follow_each_other_are_few_requests() {
    let (server, bytes) = served(1_000_000);
    let source = open(&server.url("dir/a.bin")).unwrap();
    let mut buf = [0; 1_000];
    for at in (0..500_000).step_by(1_000) {
        source.read_at(at as u64, &mut buf).unwrap();
        assert!(buf == bytes[at..at + 1_000]);
    }
    let counts = server.counts();
    assert!(counts.requests <= 6 && counts.bytes < 640_000, "{counts:?}");
    // Those that do not follow take what they ask for.
    for at in [900_000, 600_000, 800_000, 700_000] {
        source.read_at(at, &mut buf).unwrap();
    }
    assert_eq!(server.counts().bytes, 4_000);
}

#[test]
fn a_server_that_lies_is_an_error_and_not_wrong_bytes() {
    let read = |faults: Faults| {
        let (server, bytes) = served(200_000);
        server.fail(faults);
        let mut buf = vec![0; 100_000];
        let result = open(&server.url("dir/a.bin")).map_err(|e| e.to_string());
        let result = result.and_then(|source| source.read_at(50_000, &mut buf).map_err(|e| e.to_string()));
        result.map(|()| assert!(buf == bytes[50_000..150_000]))
    };
    let error = read(Faults { no_ranges: true, ..Faults::default() }).unwrap_err();
    assert!(error.contains("not ranges of them"), "{error}");
    // Bytes that are not those of the file, whatever their number.
    let gzip = Faults { coding: Some("gzip".to_owned()), ..Faults::default() };
    let error = read(gzip).unwrap_err();
    assert!(error.contains("compressed (gzip)"), "{error}");
    read(Faults { coding: Some("identity".to_owned()), ..Faults::default() }).unwrap();
    // More bytes than were asked for.
    match read(Faults { surplus: 100, ..Faults::default() }) {
        Ok(()) => {}
        Err(error) => assert!(error.contains("more than was asked"), "{error}"),
    }
    // A file that is shorter than the server says ends early, after a bounded number of tries.
    let (server, _) = served(200_000);
    server.fail(Faults { longer: 100_000, ..Faults::default() });
    let source = open(&server.url("dir/a.bin")).unwrap();
    let error = source.read_at(150_000, &mut vec![0; 100_000]).unwrap_err();
    assert!(server.counts().requests < 40, "{error}");
}

#[test]
fn a_thread_of_a_runtime_may_read() {
    let (server, bytes) = served(200_000);
    let url = server.url("dir/a.bin");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let read = runtime.block_on(async move {
        let source = open(&url).unwrap();
        let mut buf = vec![0; 150_000];
        source.read_at(20_000, &mut buf).unwrap();
        buf
    });
    assert!(read == bytes[20_000..170_000]);
}

#[test]
fn a_coding_that_comes_later_is_an_error_too() {
    let (server, _) = served(200_000);
    let source = open(&server.url("dir/a.bin")).unwrap();
    server.fail(Faults { coding: Some("br".to_owned()), ..Faults::default() });
    let error = source.read_at(50_000, &mut vec![0; 100_000]).unwrap_err().to_string();
    assert!(error.contains("compressed (br)"), "{error}");
}
