//! Checkpoints that are not in the file system: the same entries, the same errors.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use checkpoint::{ByteSource, Checkpoint, Error, Location, Name, OpenOptions, Storage, open_from};
use storage::Memory;

use crate::build::Gguf;
use crate::shards::{index, shard};
use crate::{Dir, open_both};
use testkit::corpus::{Case, Made, corpus};

fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

/// The files of a case, as they would be in `DIR`; `None` if some are no files.
fn in_memory(case: &Case) -> Option<Memory> {
    let mut files = BTreeMap::new();
    for (path, made) in &case.made {
        let content = match made {
            Made::File(content) => content.clone(),
            Made::Long(start, len) => {
                let mut content = vec![0; usize::try_from(*len).expect("fits")];
                content[..start.len()].copy_from_slice(start);
                content
            }
            Made::Link(_) | Made::Pipe | Made::Folder => return None,
        };
        files.insert(Name::parse(path.clone()).ok()?, content);
    }
    Some(files.into_iter().fold(Memory::new("DIR"), |memory, (name, content)| memory.with(name, content)))
}

fn opened(storage: impl Storage + 'static, at: &str) -> Result<Checkpoint, Error> {
    open_from(Arc::new(storage), &name(at), &OpenOptions::default())
}

#[test]
fn every_broken_checkpoint_is_refused_in_the_same_words() {
    let (mut seen, mut wrong) = (0, vec![]);
    for case in corpus() {
        let Some(memory) = in_memory(&case) else { continue };
        let who = format!("{}, {}", case.family, case.name);
        let dir = Dir::new();
        let from_files = dir.text(&open_both(&case.make(dir.0.path())).expect_err(&who));
        // Mapped as it were, and read.
        let unmapped = Counted::of(memory.clone());
        for found in [opened(memory, &case.path), opened(unmapped, &case.path)] {
            let found = found.map_or_else(|error| format!("{error:?}"), |_| "it opens".to_owned());
            if found != from_files {
                wrong.push(format!("{who}: wanted\n    {from_files}\n  found\n    {found}"));
            }
        }
        seen += 1;
    }
    assert!(wrong.is_empty(), "{} of {seen}:\n{}", wrong.len(), wrong.join("\n"));
    // All but links, pipes, devices and empty directories.
    assert!(seen > 400, "{seen} cases");
}

/// A storage whose sources are not mapped, and that counts what is read of them.
#[derive(Debug)]
struct Counted {
    files: Memory,
    /// Bytes by name.
    read: Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>,
}

#[derive(Debug)]
struct CountedSource {
    source: Arc<dyn ByteSource>,
    read: Arc<AtomicU64>,
}

impl Counted {
    fn of(files: Memory) -> Counted {
        Counted { files, read: Arc::default() }
    }
}

impl Storage for Counted {
    fn list(&self, dir: &Name) -> Result<Vec<String>, storage::Error> {
        self.files.list(dir)
    }

    fn open(&self, name: &Name) -> Result<Arc<dyn ByteSource>, storage::Error> {
        let mut all = self.read.lock().expect("nobody panics");
        let read = Arc::clone(all.entry(name.to_string()).or_default());
        Ok(Arc::new(CountedSource { source: self.files.open(name)?, read }))
    }

    fn location(&self, name: &Name) -> Location {
        self.files.location(name)
    }
}

impl ByteSource for CountedSource {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.source.read_at(offset, buf)
    }

    fn mapped(&self) -> Option<&[u8]> {
        None
    }

    fn kind(&self) -> &'static str {
        "counted"
    }
}

#[test]
fn opening_reads_headers_alone() {
    // 4 MiB of data each, after headers of some hundred bytes.
    const DATA: usize = 4 << 20;
    let floats = DATA / 4;
    let header = format!(r#"{{"a":{{"dtype":"F32","shape":[{floats}],"data_offsets":[0,{DATA}]}}}}"#);
    let renamed = |tensor: &str| {
        let header = header.replacen("\"a\"", &format!("\"{tensor}\""), 1);
        crate::build::safetensors(header, DATA)
    };
    let files = Memory::new("m")
        .with(name("config.json"), b"{}".as_slice())
        .with(name("tokenizer.json"), vec![b' '; 1 << 20])
        .with(name("model.safetensors.index.json"), index(&[("x", "s/1"), ("y", "s/2")]).into_bytes())
        .with(name("s/1"), renamed("x"))
        .with(name("s/2"), renamed("y"))
        .with(name("g/model.gguf"), Gguf::new().f32("a", &[floats as u64]).build());
    let counted = Counted::of(files);
    let read = Arc::clone(&counted.read);
    let storage: Arc<dyn Storage> = Arc::new(counted);
    for (at, format, tensors) in
        [("", "hf", 2), ("g/model.gguf", "gguf", 1), ("g", "gguf", 1), ("s/1", "safetensors", 1)]
    {
        let opened = open_from(Arc::clone(&storage), &name(at), &OpenOptions::default()).expect(at);
        assert_eq!((opened.format().name(), opened.entries().len()), (format, tensors), "{at}");
    }
    let read = read.lock().expect("nobody panics");
    for (file, most) in [("s/1", 2 << 10), ("s/2", 2 << 10), ("g/model.gguf", 1 << 20), ("tokenizer.json", 0)]
    {
        let found = read[file].load(Ordering::Relaxed);
        assert!(found <= most, "{found} bytes of `{file}`");
    }
}

/// The path to open, and the files.
type Files = (&'static str, Vec<(&'static str, Vec<u8>)>);

#[test]
fn a_checkpoint_in_memory_is_what_it_is_in_files() {
    let dir = Dir::new();
    let split = |no: u16, tensor: &str| {
        let part = Gguf::new()
            .pair("split.no", crate::build::kind::U16, no.to_le_bytes())
            .pair("split.count", crate::build::kind::U16, 2u16.to_le_bytes())
            .pair("split.tensors.count", crate::build::kind::I32, 2i32.to_le_bytes());
        part.f32(tensor, &[8]).build()
    };
    let golden = |file: &str| std::fs::read(testkit::golden(file)).expect(file);
    let cases: Vec<Files> = vec![
        ("x.gguf", vec![("x.gguf", Gguf::new().str("k", "v").f32("a", &[4]).f32("b", &[2, 2]).build())]),
        ("s", vec![("s/x-00001-of-00002.gguf", split(0, "a")), ("s/x-00002-of-00002.gguf", split(1, "b"))]),
        (
            "s/x-00002-of-00002.gguf",
            vec![("s/x-00001-of-00002.gguf", split(0, "a")), ("s/x-00002-of-00002.gguf", split(1, "b"))],
        ),
        (
            "h",
            vec![
                ("h/config.json", b"{}".to_vec()),
                ("h/model.safetensors.index.json", index(&[("a", "1"), ("b", "d/2")]).into_bytes()),
                ("h/1", shard(&["a"])),
                ("h/d/2", shard(&["b"])),
            ],
        ),
        ("x.npz", vec![("x.npz", golden("npz/arrays.npz"))]),
        ("x.pt", vec![("x.pt", golden("pytorch/zip1.pt"))]),
        ("x.bin", vec![("x.bin", golden("pytorch/legacy1.bin"))]),
    ];
    for (at, files) in cases {
        let mut memory = Memory::new(dir.0.path().display().to_string());
        for (file, content) in files {
            dir.file(file, &content);
            memory.insert(name(file), content);
        }
        let from_files = open_both(&dir.path(at)).expect(at);
        for from_memory in [opened(memory.clone(), at).expect(at), opened(Counted::of(memory), at).expect(at)]
        {
            assert_eq!(from_files.entries(), from_memory.entries(), "{at}");
            assert_eq!(from_files.format(), from_memory.format(), "{at}");
            assert_eq!(from_files.location().to_string(), from_memory.location().to_string());
            let shown = |c: &Checkpoint| c.files().iter().map(|f| f.location.to_string()).collect::<Vec<_>>();
            assert_eq!(shown(&from_files), shown(&from_memory), "{at}");
            for (a, b) in from_files.files().iter().zip(from_memory.files()) {
                let all = |source: &dyn ByteSource| {
                    let mut bytes = vec![0; usize::try_from(source.len()).expect("small")];
                    source.read_at(0, &mut bytes).expect("readable");
                    bytes
                };
                assert_eq!(all(&*a.source), all(&*b.source), "{at}");
                assert_eq!((b.location.path(), b.source.identity()), (None, None));
            }
            from_memory.unchanged().expect("nobody can change it");
        }
        assert_eq!(
            format!("{:?}", opened(Memory::new("m"), at).expect_err("nothing")),
            match at.split_once('/') {
                Some((parent, _)) => format!(
                    "cannot open `m/{at}`: entity not found\nhint: there is no directory `m/{parent}`"
                ),
                None => format!("cannot open `m/{at}`: entity not found"),
            }
        );
    }
}

#[test]
fn what_is_beside_the_weights_is_read_from_the_storage() {
    let files = Memory::new("m")
        .with(name("config.json"), br#"{"model_type":"llama"}"#.as_slice())
        .with(name("tokenizer.json"), b"{}".as_slice())
        .with(name("model.safetensors"), shard(&["a"]));
    for at in ["", "model.safetensors"] {
        let opened = opened(files.clone(), at).expect(at);
        let hf = opened.metadata().hf().expect("hf");
        assert_eq!(hf.config().expect("there")["model_type"], "llama");
        assert_eq!(hf.tokenizer().expect("there").read().expect("readable"), b"{}");
        assert_eq!(hf.dir(), &Location::Named("m".to_owned()));
        assert_eq!(hf.tokenizer().expect("there").location().to_string(), "m/tokenizer.json");
    }
    let error = opened(files, "modle.safetensors").expect_err("missing");
    assert_eq!(error.hints(), ["did you mean `m/model.safetensors`?"]);
}
