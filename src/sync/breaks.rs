//! Rules that models break on purpose.

/// Rules that a model may break on purpose, to see that the break is found.
///
/// Outside models [`is`](Break::is) is constant `false` and the branch vanishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(any(loom, shuttle)), allow(dead_code))]
pub enum Break {
    /// A claim looks at the key, and takes it in a second step without looking again.
    CheckThenAct,
    /// A claim in memory goes by what it read before it took the key, whatever happened in between.
    StaleLook,
    /// A settling write does not ask whose token the record carries.
    NoTokenCheck,
    /// The unsynced mark is put on the key after the swap (rule 1).
    MarkAfterSwap,
    /// Readers check for the mark first and read the record afterwards (rule 2).
    CheckBeforeRead,
    /// A completion puts a mark on its own key alone, and none on the keys of its effects (rule 5).
    EffectsUnmarked,
    /// The sweeper deletes whatever stands under the key, and not what it has judged (rule 21).
    SweepWithoutSwap,
    /// An opening draws its tokens by the clock alone, whatever ceiling it finds (rule 8).
    CeilingIgnored,
    /// A claim's lease counts as over before it is.
    EarlyTakeover,
    /// A claim that ends wakes nobody (rule 20).
    NoWake,
    /// A claim is not asked what it is for (rule 16).
    NoFingerprintCheck,
    /// A failed sync counts as one that ended well (rule 7).
    FailedSyncIgnored,
    /// A claim whose swap failed is granted all the same.
    ErrorGrants,
}

#[cfg(any(loom, shuttle))]
mod breaks {
    use super::Break;
    use std::cell::Cell;

    // A model's threads are all run as coroutines of one system thread, so a thread-local reaches them all
    // and tests that run beside it see nothing of it.
    thread_local!(static BROKEN: Cell<Option<Break>> = const { Cell::new(None) });

    impl Break {
        pub(crate) fn is(self) -> bool {
            BROKEN.get() == Some(self)
        }

        /// Runs `model` with this rule broken.
        pub fn run(self, model: impl FnOnce()) {
            struct Mend;
            impl Drop for Mend {
                fn drop(&mut self) {
                    BROKEN.set(None);
                }
            }
            BROKEN.set(Some(self));
            let _mend = Mend;
            model();
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
impl Break {
    pub(crate) const fn is(self) -> bool {
        false
    }
}
