//! Synchronisation of a pool's threads: the standard library's types, or in a model those of loom, which tries every
//! order of their steps. `RUSTFLAGS="--cfg loom" cargo test -p weighbridge-load --release --lib models` runs the
//! models.

#[cfg(loom)]
pub(crate) use modelled::*;
#[cfg(not(loom))]
pub(crate) use native::*;

#[cfg(not(loom))]
mod native {
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize};
    pub(crate) use std::sync::{Arc, Mutex};
    pub(crate) use std::thread::{Builder, JoinHandle, park, yield_now};

    /// Shared memory with the interface of loom's cell: the pointer is only used within the call.
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(loom)]
mod modelled {
    use std::cell::Cell;
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::Ordering;
    use std::sync::{LockResult, TryLockError, TryLockResult};

    use loom::cell::MutPtr;
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU8};
    pub(crate) use loom::thread::{Builder, JoinHandle, park, yield_now};

    loom::thread_local! {
        /// This thread's last `SeqCst` store has no `SeqCst` load after it.
        static STORED: Cell<bool> = Cell::new(false);
    }

    fn before_load(order: Ordering) {
        if order == Ordering::SeqCst && STORED.with(|stored| stored.replace(false)) {
            loom::sync::atomic::fence(order);
        }
    }

    fn after_store(order: Ordering) {
        if order == Ordering::SeqCst {
            STORED.with(|stored| stored.set(true));
        }
    }

    /// An atomic whose `SeqCst` loads are not done before the `SeqCst` stores that precede them. Loom takes both for `AcqRel`,
    /// says its README, and would see wake-ups lost that are not; but it knows fences.
    macro_rules! sequential {
        ($name:ident, $value:ty) => {
            #[derive(Default)]
            pub(crate) struct $name(loom::sync::atomic::$name);

            impl $name {
                #[track_caller]
                pub(crate) fn new(value: $value) -> $name {
                    $name(loom::sync::atomic::$name::new(value))
                }

                #[track_caller]
                pub(crate) fn load(&self, order: Ordering) -> $value {
                    before_load(order);
                    self.0.load(order)
                }

                #[track_caller]
                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    self.0.store(value, order);
                    after_store(order);
                }
            }

            impl Deref for $name {
                type Target = loom::sync::atomic::$name;

                fn deref(&self) -> &loom::sync::atomic::$name {
                    &self.0
                }
            }
        };
    }
    sequential!(AtomicBool, bool);
    sequential!(AtomicUsize, usize);

    impl AtomicUsize {
        #[track_caller]
        pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
            let before = self.0.fetch_add(value, order);
            after_store(order);
            before
        }
    }

    /// A lock that another thread can find taken: while loom's own is held, no other thread runs unless its holder
    /// waits.
    #[derive(Default)]
    pub(crate) struct Mutex<T> {
        held: loom::sync::atomic::AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: only the thread that has set `held` reaches the value, and loom checks it.
    unsafe impl<T: Send> Sync for Mutex<T> {}

    pub(crate) struct MutexGuard<'a, T> {
        held: &'a loom::sync::atomic::AtomicBool,
        /// None while the lock is let go of.
        value: Option<MutPtr<T>>,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex { held: false.into(), value: UnsafeCell::new(value) }
        }

        pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
            let taken = self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
            taken.map_err(|_| TryLockError::WouldBlock)?;
            Ok(MutexGuard { held: &self.held, value: Some(self.value.get_mut()) })
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            loop {
                if let Ok(guard) = self.try_lock() {
                    return Ok(guard);
                }
                yield_now();
            }
        }

        #[expect(clippy::unnecessary_wraps, reason = "as the standard library's")]
        pub(crate) fn get_mut(&mut self) -> LockResult<&mut T> {
            // SAFETY: the borrow is exclusive.
            Ok(self.value.with_mut(|value| unsafe { &mut *value }))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            // SAFETY: see `Sync`.
            unsafe { self.value.as_ref().expect("the lock is held").deref() }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: see `Sync`.
            unsafe { self.value.as_ref().expect("the lock is held").deref() }
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            self.value = None;
            self.held.store(false, Ordering::Release);
        }
    }
}

/// Memory that is reached through a raw pointer: a model fails where two uses of it have no order. Nothing otherwise.
#[derive(Default)]
pub(crate) struct Claim {
    #[cfg(loom)]
    cell: UnsafeCell<()>,
}

// SAFETY: there is nothing in it.
#[cfg(loom)]
unsafe impl Sync for Claim {}

impl Claim {
    /// Does what uses the memory.
    #[inline(always)]
    #[cfg_attr(not(loom), expect(clippy::unused_self, reason = "models use it"))]
    pub(crate) fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        #[cfg(loom)]
        return self.cell.with_mut(|_| f());
        #[cfg(not(loom))]
        f()
    }
}

/// A job that its caller need not wait for: it owns what it reads.
pub(crate) trait Help: Send + Sync {
    /// Takes items until none is left.
    fn help(&self, thread: usize);
}

/// A job for a worker's mail.
#[cfg(not(loom))]
pub(crate) fn help<T: Help + 'static>(job: &Arc<T>) -> Arc<dyn Help> {
    Arc::clone(job) as Arc<dyn Help>
}

/// The same: loom's `Arc` does not coerce.
#[cfg(loom)]
pub(crate) fn help<T: Help + 'static>(job: &Arc<T>) -> Arc<dyn Help> {
    // SAFETY: the pointer comes from `into_raw`, and what it points to has not changed.
    unsafe { Arc::from_raw(Arc::into_raw(Arc::clone(job)) as *const dyn Help) }
}
