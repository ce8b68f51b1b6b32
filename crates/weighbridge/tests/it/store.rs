//! The cache: a copy is what was loaded, or is not used.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use safetensors::SafeTensors;
use tempfile::TempDir;
use weighbridge::store::{
    Built, Cache, Companion, Entry, RankSet, Ranks, Stale, Start, State, Step, Tier, Tiers, Weights,
};
use weighbridge::tensor::{FileId, PlaneData};
use weighbridge::{
    Checkpoint, Dtype, LayoutKind, Loaded, Mesh, Plan, PlanBuilder, Pool, Scheme, Shape, TensorEntry,
};

use crate::golden;

/// As long as a source must have been left alone.
const SETTLED: Duration = Duration::from_millis(2100);

fn planned(path: &Path) -> Plan {
    let checkpoint = weighbridge::open(path).unwrap();
    PlanBuilder::new(&checkpoint).layout(LayoutKind::Packed { rows: 16 }).build().unwrap()
}

fn tiny() -> PathBuf {
    golden().join("llama-tiny/model.gguf")
}

/// A copy of a source that may be changed.
fn own(dir: &TempDir) -> PathBuf {
    let path = dir.path().join("model.gguf");
    fs::copy(tiny(), &path).unwrap();
    sleep(SETTLED);
    path
}

fn load(plan: &Plan) -> Loaded {
    plan.load(&mut Pool::new(2)).unwrap()
}

fn built(entry: &Entry<'_>, loaded: &Loaded) -> Built {
    entry.builder(loaded).unwrap().run().unwrap()
}

/// All parameters of both are the same, byte for byte.
fn same(a: &Loaded, b: &Loaded) -> bool {
    let mut names: Vec<&str> = a.names().collect();
    let mut others: Vec<&str> = b.names().collect();
    names.sort_unstable();
    others.sort_unstable();
    names == others
        && names.iter().all(|name| {
            let (a, b) = (a.get(name).unwrap(), b.get(name).unwrap());
            a.shape() == b.shape() && a.scheme().name == b.scheme().name && *a.planes() == *b.planes()
        })
}

/// Everything in the folder, by name.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Writes `byte` at `at`, as another program would.
fn flip(path: &Path, at: usize) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_copy_is_what_was_loaded_and_others_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("new/ready"));
    let names = ["llama-tiny/model.gguf", "llama-tiny", "gpt2-tiny", "gemma3-tiny/model.gguf", "phi3-tiny"];
    for name in names {
        let plan = planned(&golden().join(name));
        let entry = cache.entry(&plan, "any").unwrap();
        assert_eq!((entry.state(), entry.load().unwrap().is_none()), (State::Absent, true));
        let loaded = load(&plan);
        let bytes = entry.bytes().unwrap();
        assert_eq!(built(&entry, &loaded), Built::Ready { bytes }, "{name}");
        assert_eq!(entry.state(), State::Ready);
        let ready = entry.load().unwrap().unwrap();
        assert!(same(&loaded, &ready), "{name}");
        assert_eq!((ready.report().owned_bytes, ready.report().bytes_read), (0, 0));

        // The judge is the library that the format is of.
        let file = fs::read(entry.path()).unwrap();
        assert_eq!(file.len() as u64, bytes);
        let theirs = SafeTensors::deserialize(&file).unwrap();
        let (header, metadata) = SafeTensors::read_metadata(&file).unwrap();
        let key = metadata.metadata().as_ref().unwrap()["key"].clone();
        assert_eq!((key, (header + 8) % 4096), (entry.key().to_string(), 0));
        let own = plan.params().iter().filter(|param| param.tied_to.is_none());
        let mut found = 0;
        for (param, borrowed) in own.zip(plan.borrowed(weighbridge::load::Options::default()).unwrap()) {
            let tensor = loaded.get(&param.name).unwrap();
            for (plane, spec) in tensor.planes().iter().zip(param.scheme.planes.iter()) {
                let name = format!("{}.{}", param.name, spec.role);
                let view = theirs.tensor(&param.name).or_else(|_| theirs.tensor(&name));
                assert_eq!(view.is_err(), borrowed, "{name}");
                let Ok(view) = view else { continue };
                assert_eq!(view.data(), *plane, "{name}");
                assert_eq!((view.data().as_ptr().addr() - file.as_ptr().addr()) % 64, 0, "{name}");
                found += 1;
            }
        }
        let padding = theirs.names().iter().filter(|name| name.starts_with("__padding__.")).count();
        assert_eq!(theirs.len(), found + padding, "{name}");
    }
    assert_eq!(cache.list().unwrap().len(), 5);
}

#[test]
fn a_flipped_bit_anywhere_is_never_used() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path());
    let plan = planned(&tiny());
    let entry = cache.entry(&plan, "any").unwrap();
    let loaded = load(&plan);
    built(&entry, &loaded);
    let bytes = usize::try_from(entry.bytes().unwrap()).unwrap();
    for step in 0..100 {
        flip(&entry.path(), step * (bytes - 1) / 99);
        assert_eq!(entry.state(), State::Doubtful);
        assert!(entry.load().unwrap().is_none(), "bit of byte {}", step * (bytes - 1) / 99);
        assert_eq!((entry.state(), names(dir.path())), (State::Absent, vec![]));
        built(&entry, &loaded);
    }
    // Of the record: the copy is used as what it is, or not at all.
    let record = entry.path().with_extension("json");
    for at in 0..fs::read(&record).unwrap().len() {
        // Each time that it is written, its times have other digits.
        let at = at.min(fs::read(&record).unwrap().len() - 1);
        flip(&record, at);
        if let Some(ready) = entry.load().unwrap() {
            assert!(same(&loaded, &ready), "byte {at}");
        }
        built(&entry, &loaded);
        assert_eq!(entry.state(), State::Ready, "byte {at}");
    }
}

#[test]
fn another_file_with_the_same_bytes_is_verified_and_used() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path());
    let plan = planned(&tiny());
    let entry = cache.entry(&plan, "any").unwrap();
    let loaded = load(&plan);
    built(&entry, &loaded);
    let (path, other) = (entry.path(), dir.path().join("other"));
    fs::copy(&path, &other).unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(entry.state(), State::Doubtful);
    assert!(same(&loaded, &entry.load().unwrap().unwrap()));
    assert_eq!((entry.state(), cache.verify(entry.key()).unwrap()), (State::Ready, true));
    // One of another length, one that is cut short, and a link to somewhere.
    for spoil in [
        (|path| fs::write(path, b"x").unwrap()) as fn(&Path),
        |path| fs::File::options().write(true).open(path).unwrap().set_len(4096).unwrap(),
        |path| {
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/etc/hostname", path).unwrap();
        },
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        spoil(&path);
        assert!(entry.load().unwrap().is_none());
        cache.remove(entry.key()).unwrap();
        built(&entry, &loaded);
    }
}

#[test]
fn a_changed_source_has_no_copy() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("ready"));
    let source = own(&dir);
    let plan = planned(&source);
    let entry = cache.entry(&plan, "any").unwrap();
    let loaded = load(&plan);
    built(&entry, &loaded);
    assert!(cache.entry(&plan, "another").unwrap().load().unwrap().is_none());
    // The same bytes at the same time as before, but written anew: only its inode's own time tells.
    let modified = fs::metadata(&source).unwrap().modified().unwrap();
    let bytes = fs::read(&source).unwrap();
    fs::write(&source, &bytes).unwrap();
    fs::File::options().append(true).open(&source).unwrap().set_modified(modified).unwrap();
    assert!(cache.entry(&planned(&source), "any").is_none(), "it may be written to once more");
    sleep(SETTLED);
    let plan = planned(&source);
    let other = cache.entry(&plan, "any").unwrap();
    assert!(other.key() != entry.key() && other.load().unwrap().is_none());
    // It changes while its copy is built: nothing is left of that.
    let builder = other.builder(&loaded).unwrap();
    fs::write(&source, &bytes).unwrap();
    assert_eq!(builder.run().unwrap(), Built::SourceChanged);
    assert_eq!(names(cache.folder()).len(), 2, "the copy before, and its record");
}

#[test]
fn builders_at_once_leave_one_whole_copy() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path());
    let plan = planned(&tiny());
    let entry = cache.entry(&plan, "any").unwrap();
    let loaded = load(&plan);
    for _ in 0..20 {
        let builders: Vec<_> = (0..4).map(|_| entry.builder(&loaded).unwrap().spawn()).collect();
        let ends: Vec<_> = builders.into_iter().map(|builder| builder.join().unwrap()).collect();
        assert!(ends.iter().any(Result::is_ok), "{ends:?}");
        assert!(same(&loaded, &entry.load().unwrap().unwrap()));
        cache.remove(entry.key()).unwrap();
        assert_eq!(names(dir.path()), [""; 0]);
    }
}

#[test]
fn an_unfinished_copy_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path());
    let plan = planned(&tiny());
    let entry = cache.entry(&plan, "any").unwrap();
    let loaded = load(&plan);
    // Ended after the file had its name, and before the record.
    built(&entry, &loaded);
    fs::remove_file(entry.path().with_extension("json")).unwrap();
    assert_eq!((entry.state(), entry.load().unwrap().is_none()), (State::Partial, true));
    let was = fs::metadata(entry.path()).unwrap().modified().unwrap();
    built(&entry, &loaded);
    assert_eq!(entry.state(), State::Ready);
    assert_eq!(fs::metadata(entry.path()).unwrap().modified().unwrap(), was, "it was not written again");
    // The same with other bytes in it.
    fs::remove_file(entry.path().with_extension("json")).unwrap();
    flip(&entry.path(), 5000);
    built(&entry, &loaded);
    assert!(same(&loaded, &entry.load().unwrap().unwrap()));
}

#[test]
fn the_least_used_go_and_what_is_not_ours_stays() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("ready");
    fs::create_dir(&folder).unwrap();
    let foreign =
        ["README", "0f0102030405060708090a0b0c0d0eff.txt", "x.safetensors", ".x.safetensors.partial"];
    for name in foreign {
        fs::write(folder.join(name), "mine").unwrap();
    }
    let cache = Cache::new(&folder);
    let sources = ["llama-tiny/model.gguf", "qwen2-tiny/model.gguf", "mistral-tiny/model.gguf"];
    let plans: Vec<Plan> = sources.iter().map(|name| planned(&golden().join(name))).collect();
    let entries: Vec<_> = plans.iter().map(|plan| cache.entry(plan, "any").unwrap()).collect();
    for (entry, plan) in entries.iter().zip(&plans) {
        built(entry, &load(plan));
        sleep(Duration::from_millis(20));
    }
    // The first is used once more, so that the second is the oldest.
    assert!(entries[0].load().unwrap().is_some());
    let order: Vec<_> = cache.list().unwrap().iter().map(|listed| listed.key).collect();
    assert_eq!(order, [entries[0].key(), entries[2].key(), entries[1].key()]);
    let all: u64 = cache.list().unwrap().iter().map(|listed| listed.bytes).sum();
    let removed = cache.prune(all - 1).unwrap();
    assert_eq!(removed.iter().map(|listed| listed.key).collect::<Vec<_>>(), [entries[1].key()]);
    // A limit that holds two: building the third again makes the oldest of the others go.
    let bytes = entries.iter().map(|entry| entry.bytes().unwrap()).max().unwrap();
    let small = cache.clone().limited(2 * bytes);
    let again = small.entry(&plans[1], "any").unwrap();
    built(&again, &load(&plans[1]));
    assert_eq!(
        entries.iter().map(Entry::state).collect::<Vec<_>>(),
        [State::Ready, State::Ready, State::Absent]
    );
    let none = cache.clone().limited(bytes / 4);
    let entry = none.entry(&plans[2], "any").unwrap();
    let ended = built(&entry, &load(&plans[2]));
    assert!(matches!(ended, Built::TooLong { .. }), "{ended:?}");
    assert_eq!(cache.prune(0).unwrap().len(), 2);
    let mut left: Vec<String> = foreign.iter().map(|name| (*name).to_owned()).collect();
    left.sort();
    assert_eq!(names(&folder), left);
}

#[test]
fn events_move_a_model_as_the_table_of_tiers_says() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("ready"));
    let source = own(&dir);
    let plan = planned(&source);
    let entry = cache.entry(&plan, "any").unwrap();
    let weights = Weights::of(plan.checkpoint());
    let tiers = || Tiers::new(&weights, entry.state());
    let begin = tiers();
    assert_eq!((begin.now(), entry.state().start()), (weights.tier(), Start::Loads));
    let loaded = load(&plan);
    built(&entry, &loaded);
    assert_eq!(Some(tiers()), begin.after(Step::Keep));
    assert_eq!((tiers().now(), entry.state().start()), (Tier::RuntimeReady, Start::Maps));
    assert_eq!(begin.after(Step::Keep).unwrap().after(Step::Keep), None, "it is there");
    // Each of these loses it.
    let lost = tiers().after(Step::Lose);
    assert_eq!(lost, Some(begin));
    flip(&entry.path(), 5000);
    assert_eq!((Some(tiers()), entry.state().start()), (lost, Start::Verifies));
    built(&entry, &loaded);
    cache.remove(entry.key()).unwrap();
    assert_eq!((Some(tiers()), entry.state().start()), (lost, Start::Loads));
    built(&entry, &loaded);
    let bytes = fs::read(&source).unwrap();
    fs::write(&source, &bytes).unwrap();
    sleep(SETTLED);
    let plan = planned(&source);
    let now = cache.entry(&plan, "any").unwrap();
    assert_eq!(Some(Tiers::new(&weights, now.state())), lost);
    // The old one is named, with the reason.
    let others = |entry: &Entry<'_>| -> Vec<_> {
        entry.others().unwrap().into_iter().map(|(listed, why)| (listed.key, why)).collect()
    };
    assert_eq!(others(&now), [(entry.key(), Stale::FilesChanged)]);
    built(&now, &load(&plan));
    cache.remove(entry.key()).unwrap();
    assert_eq!(others(&now), []);
    let avx = cache.entry(&plan, "another").unwrap();
    assert_eq!(others(&avx), [(now.key(), Stale::OtherIsa)]);
    let checkpoint = weighbridge::open(&source).unwrap();
    let canonical = PlanBuilder::new(&checkpoint).layout(LayoutKind::Canonical).build().unwrap();
    assert_eq!(others(&cache.entry(&canonical, "any").unwrap()), [(now.key(), Stale::OtherLayout)]);
}

#[test]
fn the_tier_of_files_is_that_of_their_encodings() {
    type Tensors<'a> = &'a [(&'a str, Arc<Scheme>)];
    let cases: [(Tensors<'_>, Tier, Option<f64>); 6] = [
        (
            &[("w", Scheme::plain(Dtype::BF16)), ("norm", Scheme::plain(Dtype::BF16))],
            Tier::Source,
            Some(16.0),
        ),
        (
            &[("w", Scheme::plain(Dtype::F32)), ("positions", Scheme::plain(Dtype::I64))],
            Tier::Source,
            Some(32.0),
        ),
        (&[("mask", Scheme::plain(Dtype::U8))], Tier::Source, None),
        (&[("w", Scheme::blocks("q8_0", 32, 34))], Tier::Compressed, Some(8.5)),
        (&[("w", Scheme::plain(Dtype::F8E4M3))], Tier::Compressed, Some(8.0)),
        // Most elements are floats, and it is compressed all the same.
        (
            &[
                ("embedding", Scheme::plain(Dtype::F16)),
                ("head", Scheme::plain(Dtype::F16)),
                ("w", Scheme::blocks("q8_0", 32, 34)),
            ],
            Tier::Compressed,
            Some(13.5),
        ),
    ];
    // Nothing of it is read.
    let any = weighbridge::open(tiny()).unwrap();
    for (tensors, tier, bits) in cases {
        let tensors = tensors.iter().map(|(name, scheme)| {
            let shape = Shape::from(vec![4, 64]);
            let plane = scheme.plane_bytes(&scheme.planes[0], &shape).unwrap();
            let planes = vec![PlaneData { file: FileId(0), bytes: 0..plane }];
            let name = (*name).to_owned();
            let entry = TensorEntry { name, shape, scheme: Arc::clone(scheme), planes, strides: None };
            (entry, Arc::clone(&any.files()[0].source))
        });
        let weights = Weights::of(&Checkpoint::in_memory(tensors.collect()));
        assert_eq!((weights.tier(), weights.bits()), (tier, bits), "{weights:?}");
    }
}

#[test]
fn a_companion_is_what_was_written_or_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path().join("ready"));
    let beside = dir.path().join("tokenizer.json");
    fs::write(&beside, "{}").unwrap();
    let identity = || checkpoint_identity(&beside);
    let plan = planned(&tiny());
    let entry = cache.entry(&plan, "any").unwrap();
    assert!(Companion::of(&entry, "form", &[("a", identity())]).is_none(), "it may change once more");
    sleep(SETTLED);
    let of = |form: &str, name: &str| Companion::of(&entry, form, &[(name, identity())]).unwrap();
    let companion = of("form", "a");
    assert!(!companion.write(b"bytes").unwrap(), "there is no copy");
    assert_eq!((companion.read().unwrap(), names(cache.folder())), (None, vec![]));
    let loaded = load(&plan);
    built(&entry, &loaded);
    let bare = cache.list().unwrap()[0].bytes;
    let write = || assert!(companion.write(b"bytes").unwrap());
    write();
    assert_eq!(companion.read().unwrap().as_deref(), Some(&b"bytes"[..]));
    assert_eq!(cache.list().unwrap()[0].bytes, bare + 5 + 64);
    assert!(cache.verify(entry.key()).unwrap());
    // Of another form, another file, or no file.
    for other in [of("form 2", "a"), of("form", "b"), Companion::of(&entry, "form", &[]).unwrap()] {
        assert_eq!(other.read().unwrap(), None);
    }
    // The same bytes in a file that has changed.
    fs::write(&beside, "{}").unwrap();
    sleep(SETTLED);
    assert_eq!(of("form", "a").read().unwrap(), None);
    let path = entry.path().with_extension("tokenizer");
    let len = fs::read(&path).unwrap().len();
    for at in 0..len {
        flip(&path, at);
        assert_eq!((companion.read().unwrap(), path.exists()), (None, false), "byte {at}");
        write();
    }
    for len in 0..len {
        fs::write(&path, &fs::read(&path).unwrap()[..len]).unwrap();
        assert_eq!((companion.read().unwrap(), path.exists()), (None, false), "{len} bytes");
        write();
    }
    // What a killed process has left goes, and what another writes now stays.
    let left = ["1.0", "2.0"].map(|number| entry.path().with_extension(format!("{number}.partial")));
    for path in &left {
        fs::write(path, "x").unwrap();
    }
    fs::File::open(&left[0]).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    write();
    assert_eq!((left[0].exists(), left[1].exists()), (false, true));
    // What no start has read yet is found all the same.
    flip(&path, 2);
    assert_eq!((cache.verify(entry.key()).unwrap(), names(cache.folder())), (false, vec![]));
    // It goes with its copy, and alone if the copy is gone.
    built(&entry, &loaded);
    write();
    fs::remove_file(entry.path()).unwrap();
    fs::remove_file(entry.path().with_extension("json")).unwrap();
    assert_eq!(cache.list().unwrap().len(), 1);
    assert_eq!(cache.prune(0).unwrap().len(), 1);
    assert_eq!(names(cache.folder()), [""; 0]);
}

fn checkpoint_identity(path: &Path) -> weighbridge::checkpoint::Identity {
    weighbridge::checkpoint::Identity::now(&fs::File::open(path).unwrap()).unwrap()
}

/// The plans of `n` ranks.
fn ranked(path: &Path, n: u64) -> Vec<Plan> {
    let checkpoint = weighbridge::open(path).unwrap();
    let mesh = Mesh { tp: n, ..Mesh::default() };
    let ranks =
        PlanBuilder::new(&checkpoint).layout(LayoutKind::Packed { rows: 16 }).mesh(mesh).ranks().unwrap();
    (0..n).map(|rank| ranks.plan(rank).unwrap()).collect()
}

#[test]
fn a_set_is_ready_when_all_its_ranks_are() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path());
    let plans = ranked(&tiny(), 2);
    let set = RankSet::of(&cache, &plans, "any").unwrap().unwrap();
    assert!(RankSet::of(&cache, &plans[..1], "any").unwrap().is_none(), "one rank is no set");
    let entries: Vec<_> = plans.iter().map(|plan| cache.entry(plan, "any").unwrap()).collect();
    let bytes: u64 = entries.iter().map(|entry| entry.bytes().unwrap()).sum();
    assert_eq!(
        (set.bytes(), set.ranks(), set.is_ready().unwrap()),
        (bytes, Ranks { ready: 0, of: 2 }, false)
    );
    let loaded: Vec<_> = plans.iter().map(load).collect();
    let small = RankSet::of(&cache.clone().limited(bytes - 1), &plans, "any").unwrap().unwrap();
    assert_eq!((small.begin().unwrap(), names(dir.path())), (Some(bytes - 1), vec![]));
    // One after the other.
    for (ready, (entry, loaded)) in (1..).zip(entries.iter().zip(&loaded)) {
        assert_eq!(set.begin().unwrap(), None);
        built(entry, loaded);
        let list = cache.list().unwrap();
        let state = if ready == 2 { State::Ready } else { State::Partial };
        assert_eq!(list.len(), 1);
        let listed = &list[0];
        assert_eq!(
            (listed.key, listed.state, listed.ranks),
            (set.key(), state, Some(Ranks { ready, of: 2 }))
        );
        assert_eq!(set.is_ready().unwrap(), ready == 2);
    }
    assert_eq!(cache.list().unwrap()[0].bytes, bytes);
    for (entry, loaded) in entries.iter().zip(&loaded) {
        assert!(same(loaded, &entry.load().unwrap().unwrap()), "each rank has its own");
    }
    // Other ranks, and another instruction set, are other sets.
    assert_ne!(RankSet::of(&cache, &plans, "another").unwrap().unwrap().key(), set.key());
    // One is missing.
    cache.remove(entries[1].key()).unwrap();
    assert_eq!((set.ranks(), set.is_ready().unwrap()), (Ranks { ready: 1, of: 2 }, false));
    built(&entries[1], &loaded[1]);
    // One was touched: it is verified first.
    fs::File::open(entries[0].path()).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!((cache.list().unwrap()[0].state, set.is_ready().unwrap()), (State::Doubtful, true));
    // One is wrong: all go.
    flip(&entries[1].path(), 5000);
    assert_eq!((cache.verify(set.key()).unwrap(), names(dir.path())), (false, vec![]));
    // A manifest that was changed names nothing, and goes.
    set.begin().unwrap();
    built(&entries[0], &loaded[0]);
    let manifest = dir.path().join(format!("{}.ranks", set.key()));
    flip(&manifest, 20);
    assert_eq!(cache.list().unwrap()[0].ranks, None);
    cache.prune(0).unwrap();
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn a_set_goes_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::new(dir.path());
    let plans = ranked(&tiny(), 2);
    let set = RankSet::of(&cache, &plans, "any").unwrap().unwrap();
    let entries: Vec<_> = plans.iter().map(|plan| cache.entry(plan, "any").unwrap()).collect();
    let loaded: Vec<_> = plans.iter().map(load).collect();
    for _ in 0..10 {
        // Both at the same time, from the first file on.
        std::thread::scope(|scope| {
            let begins: Vec<_> = (0..4).map(|_| scope.spawn(|| set.begin())).collect();
            for begin in begins {
                assert_eq!(begin.join().unwrap().unwrap(), None);
            }
        });
        let builders: Vec<_> = entries
            .iter()
            .zip(&loaded)
            .map(|(entry, loaded)| entry.builder(loaded).unwrap().spawn())
            .collect();
        for builder in builders {
            assert!(builder.join().unwrap().is_ok());
        }
        assert!(set.is_ready().unwrap());
        // One byte too much, and all of them go.
        let removed = cache.prune(set.bytes() - 1).unwrap();
        assert_eq!((removed.len(), removed[0].key, names(dir.path())), (1, set.key(), vec![]));
    }
    // Room for another copy is made by the whole set; room for one of its own ranks is not.
    set.begin().unwrap();
    built(&entries[0], &loaded[0]);
    let exact = cache.clone().limited(set.bytes());
    let second = exact.entry(&plans[1], "any").unwrap();
    built(&second, &loaded[1]);
    assert!(set.is_ready().unwrap());
    sleep(Duration::from_millis(20));
    let other = planned(&tiny());
    let entry = exact.entry(&other, "any").unwrap();
    built(&entry, &load(&other));
    let kept: Vec<_> = cache.list().unwrap().iter().map(|listed| listed.key).collect();
    assert_eq!((kept, set.ranks()), (vec![entry.key()], Ranks { ready: 0, of: 2 }));
}
