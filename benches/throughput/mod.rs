//! Durable operations a second, from one thread and from 64: what group commit gains.

pub mod costs;

use crate::{Bare, Keys, VALUE, store};
use claimdb::{Durability, Outcome, Request};
use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const DURABILITIES: [Durability; 3] = [Durability::Full, Durability::Result, Durability::Relaxed];

/// What one measurement does, told the thread and the time to stop.
type Work<'a> = dyn Fn(u64, Instant) -> u64 + Sync + 'a;

/// Measures one thread against 64 in turn, prints medians and their ratio, and writes them as JSON. A trial does
/// one short round and writes nothing.
pub fn run(trial: bool) {
    let (rounds, span) =
        if trial { (1, Duration::from_millis(50)) } else { (ROUNDS, Duration::from_secs(2)) };
    println!(
        "\nclaim and complete, {} bytes, operations a second, median of {rounds} rounds of {span:?}:",
        VALUE.len()
    );
    println!("{:<64} {:>10} {:>10} {:>8}", "", "1 thread", "64 threads", "ratio");
    let mut json = String::new();
    for durability in DURABILITIES {
        let (_folder, store) = store();
        let work = |thread: u64, until: Instant| {
            let (mut keys, mut done) = (Keys::new(unique(thread)), 0);
            while Instant::now() < until {
                let request = Request::new(keys.fresh()).durability(durability);
                let Outcome::Granted(claim) = store.claim(request).unwrap() else { panic!("keys repeat") };
                claim.complete_bytes(VALUE).unwrap();
                done += 1;
            }
            done
        };
        row(&format!("{durability:?}"), rounds, span, &work, &mut json);
    }
    let bare = Bare::open();
    let work = |thread: u64, until: Instant| {
        let (mut keys, mut done) = (Keys::new(unique(thread)), 0);
        while Instant::now() < until {
            let key = keys.fresh();
            bare.swap(&key, None, &VALUE);
            bare.sync();
            done += 1;
        }
        done
    };
    row("floor: bare sled, one write of 200 bytes and a sync of its own", rounds, span, &work, &mut json);
    if !trial {
        let json = format!(
            "{{\"value_bytes\": {}, \"rounds\": {rounds}, \"round_seconds\": {}, \"operations_per_second\": [{}]}}",
            VALUE.len(),
            span.as_secs(),
            json.trim_end_matches(',')
        );
        crate::about::write("claim-throughput", "cargo bench --bench claim", &json);
    }
}

/// Where a thread's keys start: apart from those of all other threads and earlier rounds.
fn unique(thread: u64) -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static ROUND: AtomicU64 = AtomicU64::new(0);
    let round = ROUND.fetch_add(1, Ordering::Relaxed);
    (round * 1000 + thread).wrapping_mul(0xD134_2543_DE82_EF95)
}

fn row(name: &str, rounds: usize, span: Duration, work: &Work<'_>, json: &mut String) {
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        one.push(rate(1, span, work));
        many.push(rate(64, span, work));
    }
    let (one, many) = (median(one), median(many));
    println!("{name:<64} {one:>10.0} {many:>10.0} {:>7.1}x", many / one);
    write!(
        json,
        "\n  {{\"what\": \"{name}\", \"threads_1\": {one:.0}, \"threads_64\": {many:.0}, \"ratio\": {:.1}}},",
        many / one
    )
    .unwrap();
}

fn rate(threads: u64, span: Duration, work: &Work<'_>) -> f64 {
    let start = Instant::now();
    let until = start + span;
    let done: u64 = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread, until))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    done as f64 / start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
