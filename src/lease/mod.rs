//! The lease table: who has which key now, in memory.
//!
//! For each key, while anything needs it: its *place* (the claim that has the key or is taking it), its *unsynced
//! marks* (settling writes that no finished sync covers), its *waiters*, and the tokens of records that were stored and
//! never granted (rule 15). An entry goes away when it has none
//! of them. Deadlines are judged when a key is touched, so nothing depends on a timer. Beside the entries, each shard
//! keeps a bounded number of settled records that were told lately.
//!
//! # Locking
//! Keys are spread over shards, each behind one mutex. At most one shard is locked at a time, and nothing is done
//! under the lock but looking, changing the entry and collecting the signals to raise; they are raised after it
//! is released. No I/O, no user code, no other lock.
//!
//! # Wake-ups (rule 20)
//! Waiters of a key stand in a queue, oldest first. *The front waiter is responsible for the key.* Whoever frees
//! the key raises the front's signal; a settle, a failed sync and a close raise everybody's. Whoever leaves the
//! front, in whatever way, raises the signal of the next. Each woken waiter decides anew from the top, so a
//! signal too many costs a look and a signal too few cannot be: the key is never free with a front that was not
//! told. Only the front waits for the holder's deadline, so an expiry wakes one. A newcomer may get the key ahead
//! of a waiter that was just woken; the waiter then keeps its place in the queue.

mod entry;
mod look;
mod loss;
mod marks;
mod place;
mod recent;
mod table;
mod waiters;

pub(crate) use look::{Busy, Found};
pub(crate) use loss::Loss;
pub use loss::LossCause;
pub(crate) use marks::{Mark, Storing};
pub(crate) use place::{Place, PlaceName};
pub(crate) use recent::is_short;
pub(crate) use table::{Admitted, Closed, Queued, Refusal, Stamp, Table};
pub(crate) use waiters::Waiting;
