//! Fills many of sled's segments, from several threads, and looks whether all that was told is there (P4, P8).
//!
//! Small results, durable and relaxed, and plain values of up to 1 MiB are written, removed and written over, so that sled
//! uses its segments again. What each thread does next follows from the seed and from what it did before, so the parent
//! knows what must be there from how far each thread came. All answers are compared while it runs, after a close, and
//! after a kill. `CLAIMDB_SEGMENTS` says how many segments are filled, `CLAIMDB_SEED` repeats a run.
//!
//! In the same run two twins must be found: an engine that loses one commit in a few hundred at once, and one that
//! remembers it until it is closed.

#[cfg(not(loom))]
#[path = "support/child.rs"]
mod child;
#[cfg(not(loom))]
#[path = "support/ledger.rs"]
mod ledger;
#[cfg(not(loom))]
#[path = "support/parent.rs"]
mod parent;
#[cfg(not(loom))]
#[path = "support/segments/mod.rs"]
mod segments;

// The loom build has none of the above; cargo still wants a main.
#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
fn main() -> std::process::ExitCode {
    if let Some(round) = segments::Round::of_this_process() {
        return round.run();
    }
    parent::run_as_test("many_segments", harness::run)
}

#[cfg(not(loom))]
mod harness {
    #![allow(clippy::disallowed_methods, clippy::disallowed_types)] // a harness: its threads are not the library's

    use crate::child::Random;
    use crate::parent::{Passed, seed, setting};
    use crate::segments::{End, Loses, Round, Seen, Segments};
    use claimdb::{Store, backend::Sled};
    use std::io::{BufRead as _, BufReader};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;
    use std::time::{Duration, Instant};

    /// A child that takes longer for its round hangs.
    const LIMIT: Duration = Duration::from_secs(240);
    /// How many segments a twin is given to show itself.
    const FOR_A_TWIN: u64 = 4;

    pub fn run() -> Result<Passed, String> {
        let (seed, wanted) = (seed()?, setting("CLAIMDB_SEGMENTS", 48)?);
        println!("many_segments: CLAIMDB_SEED={seed} CLAIMDB_SEGMENTS={wanted}");
        let filled =
            fill(Random(seed), wanted, Loses::Nothing).map_err(|why| format!("seed {seed}: {why}"))?;
        println!("many_segments: segments filled: {filled}");
        let mut found = 0;
        for loses in [Loses::AtOnce, Loses::AtTheEnd] {
            match fill(Random(seed), FOR_A_TWIN, loses) {
                Err(why) if why.contains("P8 remembered") || why.contains("P4 durable before told") => {
                    println!("many_segments: the twin {loses:?}: {why}");
                    found += 1;
                }
                other => {
                    return Err(format!("seed {seed}: the twin {loses:?} was not found, but: {other:?}"));
                }
            }
        }
        println!("many_segments: twins found: {found}");
        Ok(Passed::Ran)
    }

    /// Rounds on one store, every other one of which is killed, until so many segments have been filled.
    fn fill(mut random: Random, wanted: u64, loses: Loses) -> Result<u64, String> {
        const ROUNDS: u64 = 4;
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.map_err(|error| format!("making a folder: {error}"))?;
        let mut seen: Vec<Seen> = Vec::new();
        let mut segments = Segments::default();
        for number in 0..ROUNDS {
            let end = if number % 2 == 0 { End::Close } else { End::Kill };
            let until = wanted * (number + 1) / ROUNDS;
            let store = folder.path().join("store");
            let round = Round { store: store.clone(), seed: random.next(), number, until, end, loses };
            one_round(&round, &mut random).map_err(|why| format!("round {number}: {why}"))?;
            seen.push(Seen::of(&round)?);
            segments = Segments::of(&store)?;
            let opened = Store::builder(Sled::new(&store)).sweep_every(Duration::ZERO).open();
            let opened = opened.map_err(|error| format!("opening after round {number}, {end:?}: {error}"))?;
            for (of, seen) in seen.iter_mut().enumerate() {
                let of = |why| format!("after round {number}, {end:?}, of what round {of} wrote: {why}");
                seen.compare(&opened).map_err(of)?;
            }
            opened.close().map_err(|error| format!("closing after round {number}: {error}"))?;
        }
        let mut flaws = String::new();
        let verified = Store::builder(Sled::existing(folder.path().join("store")))
            .verify(&mut |flaw| flaws += &format!("{flaw}; "))
            .map_err(|error| format!("verifying: {error}"))?;
        if !verified.is_sound() {
            return Err(format!("P8 remembered: verifying finds {flaws}"));
        }
        let acts: u64 = seen.iter().map(Seen::acts).sum();
        let Segments { filled, stand } = segments;
        println!(
            "many_segments: {acts} acts, {} records and {} values at the end, {filled} segments filled, of which {stand} \
             stand: {} were used again",
            verified.records,
            verified.values,
            filled - stand
        );
        if filled < wanted {
            return Err(format!("only {filled} segments were filled, and {wanted} were to be"));
        }
        Ok(filled)
    }

    /// Ended whatever becomes of the harness.
    struct Ends(Child);

    impl Drop for Ends {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn one_round(round: &Round, random: &mut Random) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("starting a child: {error}");
        let child = Command::new(std::env::current_exe().map_err(failed)?)
            .env(Round::IN, round.to_text())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut child = Ends(child);
        let pipe = child.0.stdout.take().ok_or("the child has no pipe")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            BufReader::new(pipe).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        match lines.recv_timeout(LIMIT) {
            Ok(line) if line == "full" => {}
            Ok(line) => return Err(line),
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("P6 never stuck: nothing was told for {LIMIT:?}"));
            }
            Err(RecvTimeoutError::Disconnected) => return Err("the child ended by itself".to_owned()),
        }
        if round.end == End::Kill {
            // It works on meanwhile.
            let strike = Instant::now() + Duration::from_micros(random.below(20_000) as u64);
            while Instant::now() < strike {
                std::hint::spin_loop();
            }
            child.0.kill().map_err(|error| format!("killing the child: {error}"))?;
        }
        // What it still has to say is what is wrong.
        match lines.recv_timeout(LIMIT) {
            Ok(line) => Err(line),
            Err(RecvTimeoutError::Timeout) => Err(format!("P6 never stuck: it did not end within {LIMIT:?}")),
            Err(RecvTimeoutError::Disconnected) => Ok(()),
        }
    }
}
