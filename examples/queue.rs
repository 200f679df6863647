//! A consumer of a queue that delivers at least once: `cargo run --example queue`.
//!
//! The queue hides a message that was received for a while and delivers it again unless it is acknowledged meanwhile. So
//! the consumer claims the message's id before it works, and acknowledges after the completion is durable, never before.
//! Here one consumer crashes in the middle, one between completing and acknowledging, and one is so slow that its message
//! is delivered again, and taken over, while it is still at it.
// A program of its own: its threads are not the library's.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use claimdb::backend::Sled;
use claimdb::{
    Clock, Fingerprint, Key, ManualClock, Moment, Outcome, Request, Settled, Store, Token, expired,
};
use std::collections::HashMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

type Told<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// For how long a consumer has the right to the work. Longer than most messages take.
const LEASE: Duration = Duration::from_secs(60);
/// For how long the queue hides a message. It may be shorter than the lease: that costs deliveries, not effects.
const HIDDEN: Duration = Duration::from_secs(20);
/// After so many attempts that did not end well a message is poison. The queue counts deliveries, which are more.
const ATTEMPTS: u32 = 3;

/// What became of a delivery.
#[derive(Debug, PartialEq)]
enum Consumed {
    /// The work was done here.
    Worked,
    /// It was done before, and is acknowledged again.
    Before,
    /// Somebody else is at it.
    Busy,
    /// It is put aside, for somebody to look at.
    DeadLetter,
}

/// What a consumer claims: the message's id in a scope of the queue's, so that no other work has the key. With the
/// fingerprint, one id for two different messages is found out.
fn request(message: &Delivery) -> Told<Request> {
    let request = Request::new(Key::scoped("orders-queue", &message.id)?);
    Ok(request.fingerprint(Fingerprint::of_bytes(&message.body)).lease(LEASE).max_attempts(ATTEMPTS))
}

/// The consumer.
fn consume(store: &Store, queue: &Queue, warehouse: &Warehouse, message: &Delivery) -> Told<Consumed> {
    Ok(match store.claim(request(message)?)? {
        Outcome::Granted(claim) => {
            // The token goes with the work, so that the warehouse can refuse a consumer that is too late.
            let parcel = warehouse.ship(&message.body, claim.token())?;
            claim.complete(&parcel)?;
            queue.acknowledge(message); // only now: complete returns when it is durable
            Consumed::Worked
        }
        // Done by an earlier delivery whose acknowledgement was lost or late.
        Outcome::Settled(Settled::Completed(_) | Settled::Omitted(_)) => {
            queue.acknowledge(message);
            Consumed::Before
        }
        // Not acknowledged: if the one who is at it fails, this message must come again, and not before that.
        Outcome::InFlight(holder) => {
            queue.hide(message, holder.remaining());
            Consumed::Busy
        }
        // Failed for good, out of attempts, or another message under this id: it would only come again and again.
        Outcome::Settled(Settled::Failed(_)) | Outcome::Interrupted(_) | Outcome::Mismatched(_) => {
            queue.put_aside(message);
            Consumed::DeadLetter
        }
    })
}

fn main() -> Told<()> {
    let temporary = tempfile::tempdir()?;
    let folder = std::env::args_os().nth(1).map_or_else(|| temporary.path().join("store"), PathBuf::from);
    if folder.exists() {
        return Err("this starts from nothing: name a folder that is not there".into());
    }
    // A clock that is moved, so that nothing here waits. A service leaves it out.
    let clock = ManualClock::new();
    let open = || Store::builder(Sled::new(&folder)).clock(clock.clone()).open();
    let mut store = open()?;
    let (queue, warehouse) = (Queue::new(clock.clone()), Warehouse::default());

    // The process ends after the work and before the acknowledgement: the message comes again, and is not worked on again.
    queue.send("m-1", "one kettle");
    let first = queue.receive().ok_or("m-1 was sent")?;
    queue.lose_next_acknowledgement();
    assert_eq!(consume(&store, &queue, &warehouse, &first)?, Consumed::Worked);
    store.close()?;
    store = open()?;
    assert!(queue.receive().is_none(), "the message is hidden");
    clock.advance(HIDDEN);
    let again = queue.receive().ok_or("m-1 was not acknowledged")?;
    assert_eq!(consume(&store, &queue, &warehouse, &again)?, Consumed::Before);
    println!("m-1: delivered {} times, shipped once", again.count);

    // A consumer that crashes in the middle of the work: its claim has ended, so the next delivery is granted the key at
    // once, as the next attempt and under a greater token. What was shipped only the warehouse knows; it knows by the token.
    queue.send("m-2", "two lamps");
    let first = queue.receive().ok_or("m-2 was sent")?;
    warehouse.crash_next();
    let consumer = || consume(&store, &queue, &warehouse, &first);
    std::thread::scope(|scope| scope.spawn(consumer).join()).expect_err("the consumer crashed");
    clock.advance(HIDDEN);
    let again = queue.receive().ok_or("m-2 was acknowledged before it was done, and is lost")?;
    assert_eq!(consume(&store, &queue, &warehouse, &again)?, Consumed::Worked);
    println!("m-2: delivered {} times, shipped once", again.count);

    // A consumer that is slow, at first by less than its lease: the second delivery finds it busy, and is hidden for the
    // rest of the lease. Then by more: the third delivery takes over, and the slow one is refused wherever it comes.
    queue.send("m-3", "three chairs");
    let first = queue.receive().ok_or("m-3 was sent")?;
    let Outcome::Granted(slow) = store.claim(request(&first)?)? else { return Err("m-3 is new".into()) };
    clock.advance(HIDDEN);
    let second = queue.receive().ok_or("m-3 is delivered again")?;
    assert_eq!(consume(&store, &queue, &warehouse, &second)?, Consumed::Busy);
    clock.advance(HIDDEN);
    assert!(queue.receive().is_none(), "it is hidden for the rest of the lease");
    clock.advance(LEASE);
    let third = queue.receive().ok_or("m-3 is delivered once more")?;
    assert_eq!(consume(&store, &queue, &warehouse, &third)?, Consumed::Worked);
    let late = warehouse.ship(&first.body, slow.token()).expect_err("the warehouse has seen a greater token");
    let lost = slow.complete(&0_u64).expect_err("another was granted the key");
    println!("m-3: {late}; {lost}");
    assert!(!queue.acknowledge(&first), "an old delivery acknowledges nothing");

    // One that nobody can ship: each try ends without settling, and after the last the message is put aside.
    queue.send("m-4", "");
    let mut tries = 0;
    while let Some(message) = queue.receive() {
        if matches!(consume(&store, &queue, &warehouse, &message), Ok(Consumed::DeadLetter)) {
            break;
        }
        tries += 1;
        assert!(tries <= ATTEMPTS, "poison is tried for ever");
        clock.advance(HIDDEN);
    }
    assert_eq!(tries, ATTEMPTS, "it is tried so often and no more");
    println!("m-4: put aside after {tries} tries");

    // Four consumers, and a queue that delivers each of many messages three times, at once.
    let ids: Vec<String> = (0..20).map(|number| format!("n-{number}")).collect();
    for id in ids.iter().cycle().take(60) {
        queue.send(id, &format!("a book for {id}"));
    }
    std::thread::scope(|scope| {
        let consumers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    while let Some(message) = queue.receive() {
                        consume(&store, &queue, &warehouse, &message)?;
                    }
                    Told::Ok(())
                })
            })
            .collect();
        consumers.into_iter().try_for_each(|consumer| consumer.join().expect("no consumer panics"))
    })?;
    // Those that found somebody else at it come again.
    clock.advance(LEASE);
    while let Some(message) = queue.receive() {
        assert_eq!(consume(&store, &queue, &warehouse, &message)?, Consumed::Before);
    }
    println!("n-0 to n-19: sent 60 times, shipped 20 times");

    assert_eq!(queue.left(), 0, "everything is acknowledged or put aside");
    assert_eq!(warehouse.parcels(), [1; 23], "each order was shipped, and once");
    store.close()?;
    Ok(())
}

/// Stands for what the work changes. It keeps the greatest token that it has seen for an order, and refuses lesser ones.
#[derive(Default)]
struct Warehouse {
    orders: Mutex<HashMap<String, (Token, usize)>>,
    crash: AtomicBool,
}

impl Warehouse {
    fn ship(&self, order: &str, token: Token) -> Told<u64> {
        if order.is_empty() {
            return Err("there is nothing to ship".into());
        }
        assert!(!self.crash.swap(false, Ordering::Relaxed), "this is the crash that is played");
        let mut orders = self.orders.lock().expect("nobody panics with it");
        let (seen, parcels) = orders.entry(order.to_owned()).or_insert((token, 0));
        if token < *seen {
            return Err(format!("the warehouse refuses token {token}: it has seen {seen}").into());
        }
        (*seen, *parcels) = (token, *parcels + 1);
        Ok(token.get())
    }

    /// Lets the next one who ships something crash.
    fn crash_next(&self) {
        self.crash.store(true, Ordering::Relaxed);
    }

    /// How many parcels each order has come to.
    fn parcels(&self) -> Vec<usize> {
        let orders = self.orders.lock().expect("nobody panics with it");
        orders.values().map(|(_, parcels)| *parcels).collect()
    }
}

/// Stands for a queue with a visibility timeout, in memory.
struct Queue {
    clock: ManualClock,
    messages: Mutex<Vec<Message>>,
    lose_next: AtomicBool,
}

struct Message {
    id: String,
    body: String,
    visible: Moment,
    delivered: u32,
    /// Acknowledged or put aside.
    gone: bool,
}

/// A message as it was delivered, for the `count`th time.
struct Delivery {
    id: String,
    body: String,
    count: u32,
    number: usize,
}

impl Queue {
    fn new(clock: ManualClock) -> Self {
        Self { clock, messages: Mutex::default(), lose_next: AtomicBool::new(false) }
    }

    fn send(&self, id: &str, body: &str) {
        let (id, body) = (id.to_owned(), body.to_owned());
        let message = Message { id, body, visible: self.clock.now(), delivered: 0, gone: false };
        self.messages.lock().expect("nobody panics with it").push(message);
    }

    /// The next message that is to be seen, which is hidden for a while then.
    fn receive(&self) -> Option<Delivery> {
        let now = self.clock.now();
        let mut messages = self.messages.lock().expect("nobody panics with it");
        let is_seen = |message: &Message| !message.gone && expired(now, message.visible);
        let number = messages.iter().position(is_seen)?;
        let message = &mut messages[number];
        message.visible = now.after(HIDDEN);
        message.delivered += 1;
        Some(Delivery {
            id: message.id.clone(),
            body: message.body.clone(),
            count: message.delivered,
            number,
        })
    }

    /// Hides a message for `span` from now.
    fn hide(&self, delivery: &Delivery, span: Duration) {
        let visible = self.clock.now().after(span);
        self.change(delivery, |message| message.visible = visible);
    }

    /// Takes a message away for good. Tells whether this was its last delivery; an older one changes nothing.
    fn acknowledge(&self, delivery: &Delivery) -> bool {
        if self.lose_next.swap(false, Ordering::Relaxed) {
            return false;
        }
        self.change(delivery, |message| message.gone = true)
    }

    /// Lets the next acknowledgement not arrive.
    fn lose_next_acknowledgement(&self) {
        self.lose_next.store(true, Ordering::Relaxed);
    }

    /// Where a real queue would have a queue of its own for such messages.
    fn put_aside(&self, delivery: &Delivery) {
        self.acknowledge(delivery);
    }

    fn change(&self, delivery: &Delivery, change: impl FnOnce(&mut Message)) -> bool {
        let mut messages = self.messages.lock().expect("nobody panics with it");
        let message = &mut messages[delivery.number];
        let is_last = message.delivered == delivery.count && !message.gone;
        if is_last {
            change(message);
        }
        is_last
    }

    fn left(&self) -> usize {
        self.messages.lock().expect("nobody panics with it").iter().filter(|message| !message.gone).count()
    }
}
