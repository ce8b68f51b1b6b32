//! Saying which file it was when a mapped page is gone.
//!
//! Another program may shorten a file that is mapped here, or its disk may fail. Touching a page that is lost then
//! raises SIGBUS, whose default is to end the process without a word. [`Io::guard_maps`] puts a handler there that
//! names the file first.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use super::Io;

/// What the handler was installed for.
struct Guard {
    /// The exit code.
    code: c_int,
    /// The last line of the message.
    hint: &'static str,
    /// Who gets the signals that are not about a map of this crate.
    before: libc::sigaction,
}

static GUARD: OnceLock<Guard> = OnceLock::new();

/// Where maps are in memory. Those that find no room here are not named.
static PLACES: [GuardedMap; 4096] = [const { GuardedMap::empty() }; 4096];

/// Where to look for an empty place first.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A map, if `taken`; seen by the handler while `start` is not 0.
struct GuardedMap {
    taken: AtomicBool,
    start: AtomicUsize,
    /// The first address after it.
    end: AtomicUsize,
    message: AtomicPtr<u8>,
    message_len: AtomicUsize,
}

impl GuardedMap {
    const fn empty() -> GuardedMap {
        GuardedMap {
            taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            message: AtomicPtr::new(ptr::null_mut()),
            message_len: AtomicUsize::new(0),
        }
    }
}

impl Io {
    /// From now on, if a page of a file that this crate mapped after this call can no longer be read, the process
    /// ends with `exit_code` and a message on stderr that names the file and ends with the line `hint`. Without this,
    /// SIGBUS ends it, and says nothing.
    ///
    /// This sets the process's handler of SIGBUS, which is not for a library to do unasked: a program calls it, once,
    /// before it opens anything. Signals that are not about such a map go to the handler that was there before. The
    /// process ends without unwinding, as by any signal: temporary files stay, and nothing half-written is seen.
    /// The first 4096 maps at a time are named.
    ///
    /// Returns whether it is installed: not a second time, and not where the system refuses.
    pub fn guard_maps(exit_code: u8, hint: &'static str) -> bool {
        if GUARD.get().is_some() {
            return false;
        }
        let mut before = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: `before` is writable and of the type that is asked for; a null action changes nothing.
        if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) } != 0 {
            return false;
        }
        // SAFETY: the call returned 0, so that it has filled `before`.
        let before = unsafe { before.assume_init() };
        // The handler finds this when it is called, so it goes first.
        if GUARD.set(Guard { code: c_int::from(exit_code), hint, before }).is_err() {
            return false;
        }
        // SAFETY: `sigaction` is a C struct of integers, for all of which zero is a value.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = handle as *const () as libc::sighandler_t;
        // On the alternate stack that Rust gives every thread: a thread may fault when its own is all but full.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: `action` is initialised, its mask is empty by being zero, and `handle` has the signature that
        // SA_SIGINFO asks for and calls only what is safe in a handler.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) == 0 }
    }
}

impl Io {
    /// From now on, a write past the limit on the length of files (`ulimit -f`) is an error of that write, with the name of
    /// the file, as on a full disk. Without this, SIGXFSZ ends the process.
    ///
    /// Like [`Io::guard_maps`], it is for a program to call, once. Returns whether the system took it.
    pub fn guard_writes() -> bool {
        // SAFETY: ignoring a signal runs no code of ours.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) != libc::SIG_ERR }
    }
}

/// A map that the handler can name, for as long as this lives.
#[derive(Debug)]
pub(super) struct Registration {
    /// Which of [`PLACES`].
    place: usize,
    /// What the handler says. It is read through a pointer, and is not touched before the place is empty.
    _message: Box<str>,
}

impl Registration {
    /// Registers the `len` bytes mapped at `start` as those of `path`. `None` if no handler is installed, or there
    /// is no room.
    pub(super) fn new(start: *const u8, len: usize, path: &Path) -> Option<Registration> {
        let guard = GUARD.get()?;
        let message = format!(
            "error: `{}` was shortened by another program while it was mapped, or its disk failed\n{}\n",
            path.display(),
            guard.hint
        );
        let message = message.into_boxed_str();
        let first = NEXT.fetch_add(1, Ordering::Relaxed);
        let index = (0..PLACES.len())
            .map(|i| first.wrapping_add(i) % PLACES.len())
            .find(|i| PLACES.get(*i).is_some_and(|place| !place.taken.swap(true, Ordering::Acquire)))?;
        let place = PLACES.get(index)?;
        place.end.store((start as usize).saturating_add(len), Ordering::Relaxed);
        place.message.store(message.as_ptr().cast_mut(), Ordering::Relaxed);
        place.message_len.store(message.len(), Ordering::Relaxed);
        place.start.store(start as usize, Ordering::Release);
        Some(Registration { place: index, _message: message })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(place) = PLACES.get(self.place) {
            place.start.store(0, Ordering::SeqCst);
            place.taken.store(false, Ordering::Release);
        }
    }
}

/// The message about the map that `address` is in. Nothing here allocates, locks or can panic.
///
/// # Safety
/// A map of this crate that `address` is in must stay until the message is no longer used.
unsafe fn message_for(address: usize) -> Option<&'static [u8]> {
    PLACES.iter().find_map(|place| {
        let start = place.start.load(Ordering::Acquire);
        let end = place.end.load(Ordering::Acquire);
        let message = place.message.load(Ordering::Acquire);
        let len = place.message_len.load(Ordering::Acquire);
        // If another map has taken the place meanwhile, it is elsewhere, and what was read may be of both.
        if start == 0 || place.start.load(Ordering::Acquire) != start || !(start..end).contains(&address) {
            return None;
        }
        // SAFETY: `address` is in a map that stays, as the caller promises. A place is emptied before its map goes,
        // and maps do not overlap, so that this place is that map's, and its message stays with it.
        Some(unsafe { std::slice::from_raw_parts(message, len) })
    })
}

/// The handler of SIGBUS. It does only what is safe in one: atomics, write(2), pause(2), `_exit`(2), sigaction(2).
extern "C" fn handle(_signal: c_int, about: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let Some(guard) = GUARD.get() else { return };
    // SAFETY: with SA_SIGINFO the kernel passes a valid `siginfo_t`; of SIGBUS it holds an address, or, if a process
    // sent the signal, other fields in the same bytes, all of them integers: its sender is told from its code.
    let address = unsafe { if (*about).si_code > 0 { (*about).si_addr() as usize } else { 0 } };
    // SAFETY: a fault at an address in a map is by a reader that has borrowed it, so that it stays until that reader
    // goes on, which is after this handler.
    if let Some(message) = unsafe { message_for(address) } {
        // Another thread may be at it already, and will end all of them.
        while SAID.swap(true, Ordering::AcqRel) {
            // SAFETY: `pause` takes no arguments, and waits.
            unsafe { libc::pause() };
        }
        // SAFETY: the message is valid for its length. What is not written cannot be helped; `_exit` never fails.
        unsafe {
            libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
            libc::_exit(guard.code);
        }
    }
    // Not ours: the handler is as it was before, and the fault happens again there. A signal that another process
    // sent is lost, once, as Rust's own handler loses it.
    // SAFETY: `before` is what the same call gave.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const guard.before, ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(address: usize) -> Option<String> {
        // SAFETY: the tests use the message while the registration lives.
        unsafe { message_for(address) }.map(|m| String::from_utf8_lossy(m).into_owned())
    }

    #[test]
    fn an_address_is_named_while_its_map_is_registered() {
        assert!(Io::guard_maps(1, "hint: do not"));
        assert!(!Io::guard_maps(1, "hint: twice"));
        // Nothing is mapped there: the handler compares addresses alone.
        let map = |at: usize, name: &str| {
            Registration::new(ptr::without_provenance(at), 0x1000, Path::new(name)).unwrap()
        };
        let (a, b) = (map(0x10_000, "a"), map(0x11_000, "b"));
        let said = |name: &str| {
            Some(format!(
                "error: `{name}` was shortened by another program while it was mapped, or its disk failed\nhint: do not\n"
            ))
        };
        assert_eq!((name_of(0xffff), name_of(0x10_000), name_of(0x10_fff)), (None, said("a"), said("a")));
        assert_eq!(name_of(0x11_000), said("b"));
        drop(a);
        assert_eq!((name_of(0x10_800), name_of(0x11_800)), (None, said("b")));
        drop(b);
        assert_eq!(name_of(0x11_800), None);
        // No room: the next is not named, and room is found again.
        let all: Vec<_> = (1..=PLACES.len()).map(|i| map(i << 16, "x")).collect();
        assert!(Registration::new(ptr::without_provenance(7), 1, Path::new("y")).is_none());
        assert_eq!(name_of(PLACES.len() << 16), said("x"));
        drop(all);
        assert_eq!((name_of(1 << 16), map(0x10_000, "z").place < PLACES.len()), (None, true));
    }
}
