//! What each step does. What is decided is decided by claimdb itself, [`decide`]; a broken protocol asks it something
//! else than it should, or does not ask.

use super::model::{Act, Model};
use super::promise::Promise;
use super::protocol::Protocol;
use super::world::{Client, End, Found, NOW, OVER, Place, Step, WALL, Work, World, holder, is_settled};
use claimdb::protocol::decide::{self, Admission, Ask, Settling, Verdict};
use claimdb::protocol::{Holder, Opening, Purpose};
use claimdb::{Durability, Kept, OnInterrupt, Record, State, Terms, Token};
use std::sync::Arc;
use std::time::Duration;

const TERMS: Terms = Terms {
    lease: Duration::from_secs(30),
    retention: Duration::from_secs(24 * 60 * 60),
    durability: Durability::Full,
    on_interrupt: OnInterrupt::Rerun,
    max_attempts: None,
};
/// No token of a run comes near it: raising it is no part of the model.
const CEILING: Token = Token::new(1 << 40);

/// Makes the step `act` in `world`.
pub(super) fn take(model: &Model, world: &mut World, act: Act) {
    match act {
        Act::Look { client, other } => look(model, world, client, other),
        Act::Read(client) => world.clients[client].step = Step::Read(world.found().clone()),
        Act::ReadFails(client) => read_fails(model, world, client),
        Act::Tell(client) => match world.clients[client].step.clone() {
            Step::Read(seen) => tell_read(model, world, client, seen.as_deref()),
            Step::Written { synced, .. } => tell_done(world, client, synced),
            _ => {}
        },
        Act::Take(client) => enter(model, world, client),
        Act::Swap(client) => swap(model, world, client),
        Act::Grant(client) => grant(world, client),
        Act::Ask(client) => ask_card(model, world, client),
        Act::Charge(client) => charge(model, world, client),
        Act::Complete(client) => {
            if let Step::Working(work) = world.clients[client].step.clone() {
                world.clients[client].step = Step::Completing(work);
            }
        }
        Act::Settle(client) => settle(model, world, client),
        Act::Drop(client) => world.end(client, End::Gone),
        Act::Release(client) => release(world, client),
        Act::Expire => expire(world),
        Act::Sync => sync(world),
        Act::Crash { kept } => crash(world, kept),
        Act::Reopen => {
            world.open = true;
            world.first = world.next;
        }
    }
}

/// What memory says to a client.
enum Said {
    Free { ended: Option<Holder> },
    InFlight,
    Mismatched,
}

/// Asks memory whether the client may go on.
fn admit(model: &Model, world: &World, client: usize) -> Said {
    let unsynced = world.unsynced();
    let mut view = world.view(&unsynced);
    let over = view.place.map(|place| Holder { deadline: place.deadline.map(|_| OVER), ..*place });
    if model.protocol == Protocol::Impatient {
        view.place = over.as_ref();
    }
    let live = view.unsynced.or(view.place).map(|holder| holder.purpose);
    let purpose = match live {
        Some(purpose) if model.protocol == Protocol::Unchecked => purpose,
        _ => Purpose::Work(world.clients[client].fingerprint()),
    };
    match decide::admit(view, purpose, NOW) {
        Admission::Free { ended } => Said::Free { ended: ended.copied() },
        Admission::InFlight(_) => Said::InFlight,
        Admission::Mismatched => Said::Mismatched,
    }
}

/// What a client asks for, as [`decide`] is given it.
fn ask(
    model: &Model,
    world: &World,
    client: usize,
    record: Option<&Record>,
    ended: Option<Holder>,
) -> Ask<'static> {
    let asked = world.clients[client].fingerprint();
    Ask {
        fingerprint: match record {
            Some(record) if matches!(model.protocol, Protocol::Unchecked | Protocol::Naive) => {
                record.fingerprint
            }
            _ => asked,
        },
        terms: &TERMS,
        wall: WALL,
        opening: Opening { first: Token::new(world.first), ceiling: CEILING },
        ended,
        never_granted: None,
    }
}

/// Whether, by the record that a client has read, the work is that client's to do.
pub(super) fn is_free(model: &Model, world: &World, client: usize, seen: &Found) -> bool {
    let seen = seen.as_deref();
    match model.protocol {
        Protocol::Naive | Protocol::NoLease if seen.is_some() => false,
        Protocol::Naive => true,
        _ => matches!(decide::claim(seen, &ask(model, world, client, seen, None)), Ok(Verdict::Grant(_))),
    }
}

fn look(model: &Model, world: &mut World, client: usize, other: bool) {
    world.clients[client].other = other;
    if !model.protocol.claims() {
        world.clients[client].step = Step::Read(world.found().clone());
        return;
    }
    match admit(model, world, client) {
        Said::Free { .. } => world.clients[client].step = Step::Looked,
        Said::InFlight => refuse(world, client),
        Said::Mismatched => world.end(client, End::Mismatched),
    }
}

/// Tells that the key is in flight; it may be asked for again.
fn refuse(world: &mut World, client: usize) {
    world.leave_place(client);
    world.refused = true;
    world.clients[client].step = Step::Idle;
    let mut others = world.clients.iter().enumerate().filter(|(other, _)| *other != client);
    if !others.any(|(_, other)| other.keeps_others_waiting()) {
        world.broken.add(Promise::P6);
    }
}

fn read_fails(model: &Model, world: &mut World, client: usize) {
    world.failures -= 1;
    if model.protocol == Protocol::FailOpen {
        world.broken.add(Promise::P9);
        begin(world, client, None, None);
    } else {
        world.clients[client].step = Step::Idle;
    }
}

/// Tells what was read, if nothing says that it may not be told yet (rule 2: read first, then ask for the mark).
fn tell_read(model: &Model, world: &mut World, client: usize, seen: Option<&Record>) {
    if world.unsynced().is_some() {
        return refuse(world, client);
    }
    match decide::claim(seen, &ask(model, world, client, seen, None)) {
        Ok(Verdict::Settled) => {}
        // Only where there are no leases is a pending record an answer.
        Ok(Verdict::Grant(_) | Verdict::Interrupted | Verdict::Interrupt(_)) => return refuse(world, client),
        Ok(Verdict::Mismatched) => return world.end(client, End::Mismatched),
        Err(_) => return stuck(world, client),
    }
    if !world.disk[0].as_deref().is_some_and(is_settled) {
        world.broken.add(Promise::P4);
    }
    if seen.is_some_and(|record| record.fingerprint != world.clients[client].fingerprint()) {
        world.broken.add(Promise::P7);
    }
    world.told = true;
    world.end(client, End::Told);
}

/// Tells whoever did the work that it is done.
fn tell_done(world: &mut World, client: usize, synced: bool) {
    if !synced {
        world.broken.add(Promise::P4);
    }
    world.told = true;
    world.end(client, End::Told);
}

/// Nobody is granted a key whose record is damaged, and no protocol here damages one.
fn stuck(world: &mut World, client: usize) {
    world.broken.add(Promise::P6);
    world.end(client, End::Gone);
}

/// Looks at the key and takes its place in one step, which ends a claim whose lease is over.
fn enter(model: &Model, world: &mut World, client: usize) {
    let Step::Read(seen) = world.clients[client].step.clone() else { return };
    match admit(model, world, client) {
        Said::Free { ended } => {
            let purpose = Purpose::Work(world.clients[client].fingerprint());
            let holder =
                Holder { token: None, attempt: 0, stored: false, purpose, since: NOW, deadline: None };
            world.place = Some(Place { client, holder });
            prepare(model, world, client, seen, ended);
        }
        Said::InFlight => refuse(world, client),
        Said::Mismatched => world.end(client, End::Mismatched),
    }
}

/// Decides with the place in hand, and draws the token.
fn prepare(model: &Model, world: &mut World, client: usize, seen: Found, ended: Option<Holder>) {
    let record = seen.as_deref();
    let asked = ask(model, world, client, record, ended);
    let grant = match decide::claim(record, &asked) {
        Ok(Verdict::Grant(grant)) => grant,
        Ok(_) => return tell_read(model, world, client, record),
        Err(_) => return stuck(world, client),
    };
    let token = match model.protocol {
        Protocol::TokenPerKey => record.map_or(0, |record| record.token.get()) + 1,
        _ => world.next,
    };
    world.next = world.next.max(token + 1);
    match decide::grant(record, grant, Token::new(token), &asked) {
        Ok(record) => {
            world.clients[client].step = Step::Storing { seen, record: Arc::new(record), ended };
        }
        Err(_) => stuck(world, client),
    }
}

fn swap(model: &Model, world: &mut World, client: usize) {
    let Step::Storing { seen, record, ended } = world.clients[client].step.clone() else { return };
    let found = world.found().clone();
    if found != seen {
        if world.unsynced().is_some() {
            return refuse(world, client);
        }
        return prepare(model, world, client, found, ended);
    }
    if seen.is_some_and(|seen| seen.fingerprint != world.clients[client].fingerprint()) {
        world.broken.add(Promise::P7);
    }
    world.disk.push(Some(Arc::clone(&record)));
    world.clients[client].step = Step::Stored { record, ended, synced: false };
}

fn grant(world: &mut World, client: usize) {
    let Step::Stored { record, ended, synced } = world.clients[client].step.clone() else { return };
    if record.token.get() <= world.granted {
        world.broken.add(Promise::P2);
    }
    if !synced {
        world.broken.add(Promise::P4);
    }
    world.granted = world.granted.max(record.token.get());
    world.place = Some(Place { client, holder: holder(&record) });
    begin(world, client, Some(record), ended);
}

/// Work begins: with a claim, or without.
fn begin(world: &mut World, client: usize, claim: Found, ended: Option<Holder>) {
    let others = world.clients.iter().enumerate().filter(|(other, _)| *other != client);
    if others.map(|(_, other)| other).any(Client::is_at_work) {
        world.broken.add(if ended.is_some() { Promise::P5 } else { Promise::P1 });
    }
    if world.told {
        world.broken.add(Promise::P8);
    }
    let work = Work { claim, over: false, asked: false, charged: false };
    world.clients[client].step = Step::Working(work);
}

/// The next attempt asks what the one before has done, and with its own token: from here on that one is refused.
fn ask_card(model: &Model, world: &mut World, client: usize) {
    let charged = world.card.charges > 0;
    let Step::Working(work) = &mut world.clients[client].step else { return };
    (work.asked, work.charged) = (true, charged);
    if model.protocol != Protocol::Unfenced {
        world.card.greatest = world.card.greatest.max(work.token());
    }
}

fn charge(model: &Model, world: &mut World, client: usize) {
    if let Step::Read(_) = world.clients[client].step {
        begin(world, client, None, None);
    }
    let Step::Working(work) = &mut world.clients[client].step else { return };
    if work.claim.is_some() && model.protocol != Protocol::Unfenced {
        if work.token() < world.card.greatest {
            return world.end(client, End::Lost);
        }
        world.card.greatest = work.token();
    }
    work.charged = true;
    world.card.charges = (world.card.charges + 1).min(2);
    if world.card.charges > 1 {
        world.broken.add(Promise::Card);
    }
}

/// The settling write of a holder, or of who works without a claim.
fn settle(model: &Model, world: &mut World, client: usize) {
    let (Step::Completing(work) | Step::Working(work)) = world.clients[client].step.clone() else { return };
    let receipt = Kept::Completed(vec![b'A' + u8::try_from(client).unwrap_or(0)]);
    let found = world.found().clone();
    let settling = match &work.claim {
        Some(held) => {
            // Unfenced: whatever record is there is taken for the holder's own.
            let held = found.as_deref().filter(|_| model.protocol == Protocol::Unfenced).unwrap_or(held);
            match model.protocol {
                Protocol::LockOnly if world.has_place(client) => {
                    decide::release(found.as_deref(), held.token)
                }
                Protocol::LockOnly => Settling::Lost { by: None },
                _ => {
                    let mine = world.has_place(client);
                    decide::settle(found.as_deref(), held, true, mine, &receipt, WALL)
                }
            }
        }
        None => Settling::Swap(Some(Record {
            token: Token::new(0),
            attempt: 1,
            fingerprint: world.clients[client].fingerprint(),
            terms: TERMS,
            claimed_at: WALL,
            state: State::Settled { result: receipt, at: WALL, by_hand: false },
        })),
    };
    match settling {
        Settling::Swap(record) => {
            if work.claim.is_some() && work.token() < world.granted {
                world.broken.add(Promise::P3);
            }
            world.disk.push(record.map(Arc::new));
            world.leave_place(client);
            world.clients[client].step = Step::Written { work, synced: false };
        }
        Settling::Confirmed => {
            let synced = world.disk.len() == 1;
            world.clients[client].step = Step::Written { work, synced };
        }
        Settling::SettledOtherwise { .. } | Settling::Interrupted | Settling::Lost { .. } => {
            world.end(client, End::Lost);
        }
    }
}

/// A release is not waited for: a power cut may undo it, and then counts as an attempt.
fn release(world: &mut World, client: usize) {
    let Step::Working(Work { claim: Some(held), .. }) = world.clients[client].step.clone() else { return };
    match decide::release(world.found().as_deref(), held.token) {
        Settling::Swap(record) => {
            world.disk.push(record.map(Arc::new));
            world.end(client, End::Gone);
        }
        _ => world.end(client, End::Lost),
    }
}

fn expire(world: &mut World) {
    let Some(place) = &mut world.place else { return };
    place.holder.deadline = Some(OVER);
    if let Step::Working(work) | Step::Completing(work) = &mut world.clients[place.client].step {
        work.over = true;
    }
}

fn sync(world: &mut World) {
    world.disk.drain(..world.disk.len() - 1);
    for client in &mut world.clients {
        if let Step::Stored { synced, .. } | Step::Written { synced, .. } = &mut client.step {
            *synced = true;
        }
    }
}

/// Takes what no sync covers, but for what happens to be there all the same, and all that memory knows. Who was
/// promised nothing yet asks again.
fn crash(world: &mut World, kept: usize) {
    world.open = false;
    world.crashes -= 1;
    world.disk.drain(kept + 1..);
    world.disk.drain(..kept);
    world.place = None;
    for client in &mut world.clients {
        if !matches!(client.step, Step::Away | Step::Done(_)) {
            client.step = Step::Idle;
        }
    }
}
