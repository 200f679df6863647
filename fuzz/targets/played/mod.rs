//! A store over a drive that fails when told to, and what is known of it.

mod claims;
mod holders;
mod others;

use crate::faults::drive::{Cut, Drive, Survivors};
use crate::faults::{Fault as Wrong, Faulty};
use crate::reference::{Key, Op, Reference, Ret};
use crate::{Act, Ask, Goes, Left, Level};
use claimdb::{
    AdminError, Claim, Durability, Fingerprint, ManualClock, OnInterrupt, Request, Settled, Store, Stored,
    SyncBy, WallTime,
};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const KEYS: [&str; 2] = ["a", "b"];
/// What a claim is renewed for, in seconds.
const LEASE: u64 = 10;

pub struct World {
    drive: Drive,
    faulty: Faulty,
    clock: ManualClock,
    /// `None` only while it is opened.
    store: Option<Store>,
    now: u64,
    keys: [KnownKey; 2],
    values: [Reference; 2],
    hand: Vec<Held>,
    greatest_token: u64,
    step: u64,
    /// Whether a call has gone wrong during this act; and a sync, in this opening.
    went_wrong: bool,
    sync_failed: bool,
}

/// What is known of a key.
struct KnownKey {
    may_be: Reference,
    /// Who has it, and until when.
    live: Option<(u64, u64)>,
    /// The pending record, if it is certain.
    pending: Option<Pending>,
    interrupted: Option<u64>,
    /// Whether a call has told nothing of it in this opening: its write may be under way, which lets a lease be.
    left_untold: bool,
}

#[derive(Debug, PartialEq)]
struct Pending {
    token: u64,
    /// When its retention is over, after which a sweep forgets that it had begun.
    until: u64,
    attempt: u32,
    progress: Option<Vec<u8>>,
}

struct Held {
    claim: Claim,
    key: usize,
    relaxed: bool,
    retention: u64,
    /// Whether it was tried to complete it, which may have landed.
    tried: bool,
}

/// Why a call told nothing.
enum Untold {
    Fault,
    /// It says by itself that nothing was done.
    Otherwise,
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Ask {
    fn lease(&self) -> u64 {
        if self.long { 30 } else { 10 }
    }

    fn retention(&self) -> u64 {
        if self.kept { 1_000 } else { 50 }
    }

    fn is_quarantined(&self) -> bool {
        self.quarantine && self.durability == Level::Full
    }

    fn request(&self) -> Request {
        let durability = match self.durability {
            Level::Full => Durability::Full,
            Level::Result => Durability::Result,
            Level::Relaxed => Durability::Relaxed,
        };
        let on_interrupt = if self.is_quarantined() { OnInterrupt::Quarantine } else { OnInterrupt::Rerun };
        Request::new(KEYS[usize::from(self.key)])
            .fingerprint(Fingerprint::of_bytes([u8::from(self.work)]))
            .durability(durability)
            .lease(seconds(self.lease()))
            .retention(seconds(self.retention()))
            .on_interrupt(on_interrupt)
    }

    fn op(&self, now: u64) -> Op {
        let (work, stored) = (u8::from(self.work), self.durability == Level::Full);
        Op::Claim { work, stored, quarantine: self.is_quarantined(), by: now, until: now + self.retention() }
    }
}

impl World {
    pub fn new() -> Self {
        let drive = Drive::default();
        let key = || KnownKey {
            may_be: Reference(vec![Key::Absent { was: None }]),
            live: None,
            pending: None,
            interrupted: None,
            left_untold: false,
        };
        let value = || Reference(vec![Key::Value(vec![None])]);
        let mut world = Self {
            faulty: Faulty::over(drive.clone()),
            drive,
            clock: ManualClock::new(),
            store: None,
            now: 0,
            keys: [key(), key()],
            values: [value(), value()],
            hand: Vec::new(),
            greatest_token: 0,
            step: 0,
            went_wrong: false,
            sync_failed: false,
        };
        world.open();
        world
    }

    fn open(&mut self) {
        let builder = Store::builder(self.faulty.clone()).clock(self.clock.clone()).sync_by(SyncBy::Caller);
        let store = builder.lock_wait(Duration::ZERO).open();
        self.store = Some(store.expect("P6 never stuck: a store that was closed does not open"));
        (self.sync_failed, self.went_wrong) = (false, false);
        for key in &mut self.keys {
            key.left_untold = false;
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open between acts")
    }

    pub fn play(&mut self, act: &Act) {
        self.step += 1;
        self.went_wrong = false;
        match act {
            Act::Claim(ask) => {
                let told = self.store().claim(ask.request());
                self.claimed(ask, told);
            }
            Act::ClaimAndGo(ask) => {
                let told = once(self.store().claim_async(ask.request()));
                match told {
                    Some(told) => self.claimed(ask, told),
                    None => self.untold(usize::from(ask.key), &ask.op(self.now), &Untold::Fault),
                }
            }
            Act::ClaimAll(first, second) => self.claim_all(first, second),
            Act::Renew(at) => self.renew(*at),
            Act::Checkpoint(at) => self.checkpoint(*at),
            Act::Complete(at)
            | Act::CompleteWith(at)
            | Act::Fail(at)
            | Act::Omit(at)
            | Act::Release(at)
            | Act::Drop(at) => self.end(*at, act),
            Act::EndLease(at) => self.end_lease(*at),
            Act::Get(key) => self.get(usize::from(*key)),
            Act::Remove(key) => {
                let told = self.store().remove(KEYS[usize::from(*key)]);
                self.removed(usize::from(*key), false, told);
            }
            Act::RemoveByForce(key) => {
                let told = self.store().remove_by_force(KEYS[usize::from(*key)]);
                self.removed(usize::from(*key), true, told);
            }
            Act::Resolve(key) => self.resolve(usize::from(*key)),
            Act::Put(value) => self.put(usize::from(*value), Some(self.step.to_string())),
            Act::Delete(value) => self.put(usize::from(*value), None),
            Act::Read(value) => {
                let told = self.store().kv("values").get([u8::from(*value)]);
                self.value(usize::from(*value), &Op::Read, told.map(|found| Ret::Value(text(found))));
            }
            Act::Swap(value) => self.swap(usize::from(*value)),
            Act::Sweep => {
                let told = self.store().sweep(10).map(drop);
                self.expect_told(&told);
                let now = self.now;
                for key in &mut self.keys {
                    key.pending.take_if(|pending| pending.until <= now);
                }
            }
            Act::RebuildIndex => {
                let told = self.store().rebuild_index().map(drop);
                self.expect_told(&told);
            }
            Act::Sync => {
                let told = self.store().sync();
                self.expect_told(&told);
            }
            Act::Pass(steps) => {
                let passed = 10 * u64::from(*steps);
                self.now += passed;
                self.clock.advance(seconds(passed));
            }
            Act::Fault(after, goes) => {
                let wrong = match goes {
                    Goes::WrongBefore => Wrong::FailBefore,
                    Goes::WrongAfter => Wrong::FailAfter,
                    Goes::DownBefore => Wrong::DownBefore,
                    Goes::DownAfter => Wrong::DownAfter,
                };
                self.faulty.arm(u64::from(*after % 16), 1, wrong);
            }
            Act::PowerCut(left) => self.cut_power(*left),
            Act::Reopen(left) => self.reopen(*left),
        }
        if self.faulty.is_down() {
            self.cut_power(Left::First(u8::MAX));
        }
    }

    /// What has gone wrong since it was asked last.
    fn notice(&mut self) {
        let fired = self.faulty.fired();
        if !fired.is_empty() {
            self.faulty.disarm();
            self.went_wrong = true;
            self.sync_failed |= fired.contains(&"sync");
        }
    }

    /// Whether what is told counts: what comes after a power cut is told to nobody.
    fn counts(&mut self) -> bool {
        self.notice();
        !self.faulty.is_down()
    }

    fn expect_told(&mut self, told: &Result<(), AdminError>) {
        self.notice();
        let excused = self.went_wrong || self.sync_failed;
        assert!(told.is_ok() || excused, "P6 never stuck: nothing has failed, and yet: {told:?}");
    }

    /// An operation of a key goes on by what was told.
    fn goes_on(&mut self, key: usize, op: &Op, ret: &Ret) {
        let before = self.keys[key].may_be.clone();
        let may = self.keys[key].may_be.goes_on(op, ret);
        assert!(may, "linearizable: {op:?} told {ret:?} of {}, which may be {before:?}", KEYS[key]);
    }

    /// An operation of a key ended without an answer that says whether it was done.
    fn untold(&mut self, key: usize, op: &Op, why: &Untold) {
        self.notice();
        let excused = self.went_wrong || self.sync_failed || matches!(why, Untold::Otherwise);
        assert!(
            excused,
            "P6 never stuck: nothing has failed, and yet {op:?} was told nothing of {}",
            KEYS[key]
        );
        (self.keys[key].pending, self.keys[key].left_untold) = (None, true);
        self.goes_on(key, op, &Ret::Unclear);
    }

    fn writes(&self, what: &str) {
        assert!(!self.sync_failed, "P9 fail closed: {what} after a failed sync");
    }

    fn has(&self, key: usize) -> Option<u64> {
        self.keys[key].live.filter(|(_, until)| self.now < *until).map(|(token, _)| token)
    }

    /// Cuts the power, if it is not cut yet, and opens it again.
    fn cut_power(&mut self, left: Left) {
        let cut = self.faulty.down().unwrap_or_else(|| {
            self.drive.kill();
            self.drive.cut()
        });
        let store = self.store.take().expect("it is open between acts");
        let _ = store.close();
        self.restore(&cut, left);
    }

    fn restore(&mut self, cut: &Cut, left: Left) {
        let first = |number: u8| usize::from(number).min(cut.unsynced());
        let survivors = match left {
            Left::First(number) => Survivors::Prefix(first(number)),
            Left::Torn(number) if first(number) < cut.unsynced() => Survivors::Torn(first(number)),
            Left::Torn(number) => Survivors::Prefix(first(number)),
            Left::Any(bits) => Survivors::Subset(bits.into()),
        };
        self.drive = cut.after(survivors);
        self.faulty = Faulty::over(self.drive.clone());
        self.all_go_on(&Op::PowerCut);
        self.open();
    }

    /// Closes it and opens it again. After a failed sync nobody knows what the drive holds.
    fn reopen(&mut self, left: Left) {
        let told = self.store().close().map_err(|error| error.to_string());
        self.notice();
        if self.faulty.is_down() {
            return;
        }
        let excused = self.went_wrong || self.sync_failed;
        assert!(told.is_ok() || excused, "P6 never stuck: nothing has failed, and yet: {told:?}");
        self.store = None;
        if self.went_wrong || self.sync_failed {
            self.drive.kill();
            return self.restore(&self.drive.cut(), left);
        }
        self.faulty.disarm();
        self.all_go_on(&Op::Reopen);
        self.open();
    }

    fn all_go_on(&mut self, op: &Op) {
        self.hand.clear();
        for key in 0..KEYS.len() {
            self.goes_on(key, op, &Ret::Done);
            self.keys[key].live = None;
        }
        for value in &mut self.values {
            value.goes_on(op, &Ret::Done);
        }
    }

    /// What was told is there after a power cut that leaves nothing more, and every key can be had.
    pub fn look_at_last(&mut self) {
        self.cut_power(Left::First(0));
        for key in [false, true] {
            self.play(&Act::Get(key));
            self.play(&Act::Read(key));
            let ask = Ask {
                key,
                work: false,
                durability: Level::Full,
                quarantine: false,
                long: false,
                kept: false,
            };
            self.play(&Act::Claim(ask));
            self.play(&Act::Complete(0));
        }
        let store = self.store.take().expect("it is open between acts");
        store.close().expect("nothing fails any more");
    }
}

/// In one poll; `None` if it is not done by then, and is dropped.
fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(told) => Some(told),
        Poll::Pending => None,
    }
}

fn value_of(settled: &Settled) -> String {
    let text = |stored: &Stored| stored.decode::<String>().expect("a string was stored");
    match settled {
        Settled::Completed(stored) => format!("completed {}", text(stored)),
        Settled::Failed(stored) => format!("failed {}", text(stored)),
        Settled::Omitted(_) => "omitted".to_owned(),
    }
}

fn text(bytes: Option<Vec<u8>>) -> Option<String> {
    bytes.map(|bytes| String::from_utf8(bytes).expect("text was written"))
}

/// The seconds at which a clock that began with the world's shows `wall`.
fn in_seconds(wall: WallTime) -> u64 {
    const Y2025: u64 = 1_735_689_600;
    wall.unix_seconds().saturating_sub(Y2025)
}
