//! Each event is played once, and the one count of it goes up by one: in the statistics, and to the recorder.

use crate::plays::{CLAIMS, Play, done};
use crate::plays_of_ends::ENDS;
use crate::world::{Metrics, World, counted, counters};
use std::collections::BTreeMap;

/// The metric of a short name: of one with a label, its value behind a space.
fn metric(short: &str) -> String {
    match short.split_once(' ') {
        Some(("claims", outcome)) => format!("claimdb_claims_total{{outcome=\"{outcome}\"}}"),
        Some(("settles", state)) => format!("claimdb_settles_total{{state=\"{state}\"}}"),
        Some((family, cause)) => format!("claimdb_{family}_total{{cause=\"{cause}\"}}"),
        None if short == "sync" => "claimdb_sync_seconds_count".to_owned(),
        None if short == "sync_writes" => "claimdb_sync_writes_sum".to_owned(),
        None => format!("claimdb_{short}_total"),
    }
}

fn grown(before: &Metrics, after: &Metrics) -> Metrics {
    let grown = after.iter().map(|(name, now)| (name.clone(), now - before.get(name).unwrap_or(&0.0)));
    grown.filter(|(_, by)| *by != 0.0).collect()
}

fn play_all(plays: &[Play]) {
    for (name, set_up, play, expected) in plays {
        let world = set_up();
        let before = (counted(&world.store.stats()), counters(&world.metrics()));
        assert_eq!(before.0, before.1, "{name}: the statistics and the metrics differ beforehand");
        play(&world);
        let after = (counted(&world.store.stats()), counters(&world.metrics()));
        assert_eq!(after.0, after.1, "{name}: the statistics and the metrics differ");
        let expected: BTreeMap<_, _> =
            expected.iter().map(|(name, count)| (metric(name), *count as f64)).collect();
        assert_eq!(grown(&before.0, &after.0), expected, "{name}: each event is counted once");
    }
}

#[test]
fn each_answer_to_a_claim_is_counted_once() {
    play_all(CLAIMS);
}

#[test]
fn each_end_of_a_claim_is_counted_once() {
    play_all(ENDS);
}

#[test]
fn every_count_is_played() {
    let world = World::new();
    let mut played: Vec<_> = CLAIMS
        .iter()
        .chain(ENDS)
        .flat_map(|(.., counts)| counts.iter().map(|(name, _)| metric(name)))
        .collect();
    played.push(metric("slow_syncs")); // in `counts_of_syncs`
    let page = world.recorded.render();
    let there: Vec<_> =
        page.lines().filter(|line| !line.starts_with('#') && line.contains("_total{")).collect();
    assert!(there.len() > 15, "{page}");
    for line in there {
        let name = line.rsplit_once(' ').unwrap().0;
        let name = name.replace("store=\"default\",", "").replace("{store=\"default\"}", "");
        assert!(played.contains(&name), "{name} is played by no test");
    }
}

#[test]
fn what_is_counted_belongs_to_one_opening() {
    let world = done();
    assert_eq!(world.store.stats().granted, 1);
    let world = world.reopened();
    assert_eq!((counted(&world.store.stats()), counters(&world.metrics())), (Metrics::new(), Metrics::new()));
}
