//! A job that takes far longer than a lease: `cargo run --example long_job`.
//!
//! It is kept alive while its process runs, saves its progress, and looks for its loss before each step. Here the process
//! is paused (stopped, swapped out, a virtual machine moved) between such a look and the step: the lease runs out, a
//! successor goes on from the progress that was saved, and the one who wakes up is refused by its token wherever it comes.
// A program of its own: its threads and its clock are not the library's.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use claimdb::backend::Sled;
use claimdb::{CheckpointError, Claim, ManualClock, Outcome, Request, SettleError, Store, Token};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

type Told<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// After a crash of the process alone the key is free at once; this is for how long others wait if it is paused.
const LEASE: Duration = Duration::from_secs(30);
/// How long the job may take in all. Being kept alive proves that the process lives, not that the job gets on.
const MAX_HOLD: Duration = Duration::from_secs(2 * 3600);
const PAGES: u32 = 10;

/// The job: imports the pages that its predecessors have not. `meanwhile` is what else happens, before each page.
fn import(mut claim: Claim, archive: &Archive, mut meanwhile: impl FnMut(&Claim, u32)) -> Told<u32> {
    claim.keep_alive(MAX_HOLD)?;
    let lost = claim.lost();
    let first = claim.last_checkpoint().map(page_of).transpose()?.unwrap_or(0);
    for page in first..PAGES {
        // Stops work that is in vain. It proves nothing about the next moment: what is behind must refuse the token.
        if let Some(cause) = lost.cause() {
            return Err(format!("stopped before page {page}: {cause:?}").into());
        }
        meanwhile(&claim, page);
        archive.write(page, claim.token())?;
        // Durable when it returns. A crash before it costs a page that is written twice, so pages can be.
        claim.checkpoint((page + 1).to_le_bytes())?;
    }
    claim.complete(&PAGES)?;
    Ok(first)
}

/// The page to go on with.
fn page_of(checkpoint: &[u8]) -> Told<u32> {
    Ok(u32::from_le_bytes(checkpoint.try_into()?))
}

fn main() -> Told<()> {
    let temporary = tempfile::tempdir()?;
    let folder = std::env::args_os().nth(1).map_or_else(|| temporary.path().join("store"), PathBuf::from);
    if folder.exists() {
        return Err("this starts from nothing: name a folder that is not there".into());
    }
    // A clock that is moved, so that hours pass in a moment. A service leaves it out.
    let clock = ManualClock::new();
    let store = Store::builder(Sled::new(&folder)).clock(clock.clone()).open()?;
    let archive = Archive::default();
    let request = Request::new("import-7").lease(LEASE);

    // Ten minutes for each page, and nobody else is given the key.
    let Outcome::Granted(mut first) = store.claim(&request)? else { return Err("the key is new".into()) };
    first.keep_alive(MAX_HOLD)?;
    for page in 0..4 {
        pass(&clock, &first, Duration::from_secs(600));
        assert!(matches!(store.claim(&request)?, Outcome::InFlight(_)), "P5: it was kept alive");
        archive.write(page, first.token())?;
        first.checkpoint((page + 1).to_le_bytes())?;
    }
    println!("{} leases long, and still the holder's; 4 pages of {PAGES}", 4 * 600 / LEASE.as_secs());

    // The pause: the clock goes on and this process does not, so nothing renews.
    let (lost, late) = (first.lost(), first.token());
    assert_eq!(lost.cause(), None, "it looks before page 4: all is well");
    clock.advance(LEASE * 2);
    let Outcome::Granted(second) = store.claim(&request)? else { return Err("P6: its lease is over".into()) };
    let previous = second.previous().ok_or("there was one before")?;
    assert_eq!((second.attempt(), previous.token), (2, late));
    assert!(second.token() > late, "P2: the successor's token is greater");
    let from = import(second, &archive, |claim, page| {
        if page % 3 == 0 {
            pass(&clock, claim, LEASE * 2);
        }
    })?;
    assert_eq!(from, 4, "it goes on where the first one has saved its progress");
    println!("the second goes on from page {from} to the end");

    // The first one wakes up, with page 4 in its hands.
    assert!(lost.is_raised(), "who looks is told");
    let written = archive.write(4, late).expect_err("P3: the archive has seen a greater token");
    let saved = first.checkpoint(5_u32.to_le_bytes()).expect_err("P3: another was granted the key");
    assert!(matches!(saved, CheckpointError::Lost(_)), "{saved}");
    let settled = first.complete(&PAGES).expect_err("P3: another was granted the key");
    assert!(matches!(settled, SettleError::Lost(_)), "{settled}");
    println!("the first is too late: {written}; {settled}");

    let done =
        store.claim(&request)?.settled().and_then(|settled| settled.completed()).ok_or("it is done")?;
    assert_eq!(done.decode::<u32>()?, PAGES);
    assert_eq!(archive.pages(), (0..PAGES).collect::<Vec<_>>(), "each page was written, once and in order");
    store.close()?;
    Ok(())
}

/// Lets `span` pass as it does for a process that runs: so slowly that its renewals come in between.
fn pass(clock: &ManualClock, claim: &Claim, span: Duration) {
    let begun = Instant::now();
    for _ in 0..span.as_millis() / (LEASE / 4).as_millis() {
        clock.advance(LEASE / 4);
        while claim.remaining() <= LEASE / 2 {
            assert!(begun.elapsed() < Duration::from_secs(10), "nobody renews the lease");
            std::thread::yield_now();
        }
    }
}

/// Stands for what the work changes. It keeps the greatest token that it has seen, and refuses lesser ones.
#[derive(Default)]
struct Archive(Mutex<(Option<Token>, Vec<u32>)>);

impl Archive {
    fn write(&self, page: u32, token: Token) -> Told<()> {
        let mut archive = self.0.lock().expect("nobody panics with it");
        if let Some(seen) = archive.0.filter(|seen| token < *seen) {
            return Err(format!("the archive refuses token {token}: it has seen {seen}").into());
        }
        archive.0 = Some(token);
        archive.1.push(page);
        Ok(())
    }

    fn pages(&self) -> Vec<u32> {
        self.0.lock().expect("nobody panics with it").1.clone()
    }
}
