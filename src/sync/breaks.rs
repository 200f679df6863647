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
    /// A write that was refused clears all marks of its key (rule 1).
    RefusedClearsAll,
    /// A failed sync clears the marks that it would have covered (rule 1).
    FailedSyncClears,
    /// Readers check for the mark first and read the record afterwards (rule 2).
    CheckBeforeRead,
    /// Nobody syncs a write whose caller is gone (rule 3).
    NobodySyncs,
    /// Nobody who waits is told that the caller of a write is gone (rule 3).
    AbandonedUntold,
    /// A sync covers what was written while it ran (rule 4).
    CoversTooMuch,
    /// Whoever waits for a sync does not ask whether one has failed (rule 4).
    PoisonUnasked,
    /// A sync that panicked counts as one that ended well (rule 4).
    PanicIsSuccess,
    /// A completion puts a mark on its own key alone, and none on the keys of its effects (rule 5).
    EffectsUnmarked,
    /// Whoever is to wait for a sync goes on at once (rule 5).
    ToldUnsynced,
    /// The release of a quarantined claim is told before its sync (rule 5).
    ReleaseUnsynced,
    /// An opening answers before anything is synced (rule 6).
    NoBarrier,
    /// After a failed sync a key that no sync covers reads as absent (rule 7).
    PoisonUntold,
    /// Tokens are handed out once a higher ceiling is written, and not when it is durable (rule 8).
    CeilingUnsynced,
    /// A renewal puts its alarm, which has rung meanwhile, in place of the next one (P6).
    SpentAlarmKept,
    /// Closing a store fences no claim (rule 9).
    CloseFencesNothing,
    /// Closing a store does not wait for the calls that are under way (rule 9).
    CloseLeavesWrites,
    /// A claimant that fails leaves its place behind (rule 10).
    PlaceLeft,
    /// A place that is only being taken expires (rule 10).
    TakingExpires,
    /// A claim whose expired place another has taken can be renewed (rule 11).
    RenewsFormer,
    /// A claim that ends takes the key's place out, whosever it is (rule 12).
    EndsAnothers,
    /// The place is given up and taken anew after the token was drawn (rule 13).
    PlaceGivenUp,
    /// A released key is free before its record is gone (rule 14).
    FreedBeforeSwap,
    /// A stored claim that was never granted counts as an attempt (rule 15).
    NeverGrantedCounts,
    /// A lease starts when the key is taken, and not when it is granted (rule 15).
    LeaseFromTake,
    /// A key that is being taken for something else is told as busy (rule 16).
    BusyBeforeMismatch,
    /// A completion replaces the one that stands under its token (rule 17).
    ReplacesSettled,
    /// Whether work may run again is judged by the request, and not by the record (rule 18).
    RecordsTermsIgnored,
    /// A removal takes the place of a live claim (rule 19).
    RemovesLive,
    /// A resolution settles whatever case it finds (rule 19).
    ResolvesAny,
    /// A waiter that leaves tells nobody that it was responsible for the key (rule 20).
    WakeNotPassed,
    /// A claim that ends wakes nobody (rule 20).
    EndWakesNobody,
    /// A failed sync wakes nobody who waits for a key (rule 20).
    PoisonWakesNobody,
    /// The sweeper deletes whatever stands under the key, and not what it has judged (rule 21).
    SweepWithoutSwap,
    /// The sweeper drops an entry by what it read, whoever came to the key meanwhile (rule 21).
    SweepUnasked,
    /// What was told of a key lately is kept though somebody is about to change its record (rule 22).
    RecentKept,
    /// A record is kept, to be told again, though the shard has moved since it was looked for (rule 22).
    RecentFilledLate,
    /// An opening believes the wall clock, however far it has moved since the last one (rule 23).
    ClockBelieved,
    /// A batch that fails leaves the records that had landed (rule 24).
    NotSwappedBack,
    /// An opening draws its tokens by the clock alone, whatever ceiling it finds (rule 8).
    CeilingIgnored,
    /// A claim's lease counts as over before it is.
    EarlyTakeover,
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
