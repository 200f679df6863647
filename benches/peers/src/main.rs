//! claimdb beside its peers. `run.sh` starts the servers and calls this: `measure` measures and writes JSON, `tables` puts
//! what it wrote into a page.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it measures, from outside

#[path = "../../about/commit.rs"]
mod commit;
#[path = "../../../src/bin/claimdb/failure.rs"]
#[allow(dead_code)] // the command's
mod failure;
mod job;
#[path = "../../../src/bin/claimdb/bench/machine.rs"]
#[allow(dead_code)] // what the command's report needs besides
mod machine;
mod measure;
mod memory;
mod plots;
mod queue;
mod report;
mod syncs;
mod systems;

use failure::Failure;
use job::{Error, Result, VALUE};
use machine::Machine;
use measure::{Load, Plan, THREADS};
use report::{Row, Table};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use systems::{CANNOT, Level, PEERS, Peer, Server, TWIN};

const USAGE: &str = "used as: claimdb-peers measure FOLDER JSON ROUNDS SECONDS [NAME=WHY IT IS SKIPPED]..., or \
                     claimdb-peers tables JSON PAGE PICTURES";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match *arguments.as_slice() {
        ["measure", folder, json, rounds, seconds, ref skipped @ ..] => {
            plan(rounds, seconds).and_then(|plan| run(folder.as_ref(), json.as_ref(), plan, skipped))
        }
        ["tables", json, page, pictures] => tables(json.as_ref(), page.as_ref(), pictures.as_ref()),
        _ => return Failure::Usage(USAGE.to_owned()).report(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Failure::Failed(error.to_string()).report(),
    }
}

fn plan(rounds: &str, seconds: &str) -> Result<Plan> {
    let (rounds, span) = (rounds.parse()?, Duration::try_from_secs_f64(seconds.parse()?)?);
    if rounds == 0 || span.is_zero() {
        return Err("there is nothing to measure in no time".into());
    }
    Ok(Plan { rounds, span, warm_up: span / 4 })
}

/// A peer whose check went well.
struct Ready {
    peer: Peer,
    load: Load,
    syncs_per_operation: Option<f64>,
    rates: [Vec<f64>; THREADS.len()],
}

fn run(run: &Path, json: &Path, plan: Plan, skipped: &[&str]) -> Result<()> {
    let missing: Vec<_> = skipped.iter().filter_map(|skipped| skipped.split_once('=')).collect();
    let why = |peer: &Peer| {
        let server = peer.server?;
        missing.iter().find(|(name, _)| *name == server.name()).map(|(_, why)| (*why).to_owned())
    };
    let (there, absent): (Vec<_>, Vec<_>) = PEERS.into_iter().partition(|peer| why(peer).is_none());
    let absent = absent.iter().map(|peer| (peer.name.to_owned(), peer.level, why(peer).unwrap_or_default()));
    let cannot = CANNOT.map(|(name, level, why)| (name.to_owned(), level, why.to_owned()));
    let skipped: Vec<_> = absent.chain(cannot).collect();

    let mut machine = Machine::look(run, VALUE.len() as u32)?.json();
    if let Some(machine) = machine.as_object_mut() {
        machine.remove("versions"); // it takes this package for the command's
    }
    let versions = versions(run, &there)?;
    let mut ready = Vec::new();
    check_the_twin(run)?;
    for (number, peer) in there.into_iter().enumerate() {
        let syncs_per_operation = checked(&peer, number, run).map_err(|error| about(&peer, error))?;
        let folder =
            peer.server.map_or_else(|| run.join(format!("store-{number}")), |server| server.folder(run));
        let load = Load::new((peer.open)(peer.level, &folder).map_err(|error| about(&peer, error))?);
        ready.push(Ready { peer, load, syncs_per_operation, rates: Default::default() });
    }
    let contenders = memory::contenders(&run.join("memory"))?;
    let mut answers: Vec<[Vec<f64>; THREADS.len()]> = contenders.iter().map(|_| Default::default()).collect();
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}", plan.rounds);
        for one in &mut ready {
            for (threads, rates) in THREADS.into_iter().zip(&mut one.rates) {
                rates.push(one.load.rate(threads, plan).map_err(|error| about(&one.peer, error))?);
            }
        }
        for (contender, rates) in contenders.iter().zip(&mut answers) {
            for (rates, rate) in rates.iter_mut().zip(contender.rates(plan)?) {
                rates.push(rate);
            }
        }
    }
    let rows = rows(&ready, contenders.iter().zip(answers));
    let figures = report::json(plan, machine, versions, &rows, &skipped);
    fs::write(json, format!("{figures:#}\n"))
        .map_err(|error| format!("writing {}: {error}", json.display()))?;
    println!("{}", report::text(&figures)?);
    println!("measured: {} systems", ready.len());
    Ok(())
}

fn about(peer: &Peer, error: Error) -> Error {
    format!("measuring {} ({:?}): {error}", peer.name, peer.level).into()
}

/// The syncs of an operation of `peer`, if they can be counted; fails if they are fewer than it claims.
fn checked(peer: &Peer, number: usize, run: &Path) -> Result<Option<f64>> {
    let (folder, process) = match peer.server {
        None => (run.join(format!("check-{number}")), std::process::id()),
        Some(server) => {
            let folder = server.folder(run);
            let process = fs::read_to_string(folder.join("pid"))?.trim().parse()?;
            (folder, process)
        }
    };
    let seen = measure::check(peer, &folder, process, run)?;
    match seen {
        Some(seen) if seen < peer.level.syncs() as f64 => Err(format!(
            "{seen} syncs an operation were seen, and {} are claimed: it is not shown as one that syncs",
            peer.level.syncs()
        )
        .into()),
        _ => Ok(seen),
    }
}

/// Shows that the count would find a system that does not sync.
fn check_the_twin(run: &Path) -> Result<()> {
    match measure::check(&TWIN, &run.join("twin"), std::process::id(), run)? {
        Some(seen) if seen >= TWIN.level.syncs() as f64 => {
            Err(format!("{} was seen to sync {seen} times an operation: the count is wrong", TWIN.name)
                .into())
        }
        Some(seen) => {
            println!("twin {}: found, {seen} syncs an operation", TWIN.name);
            Ok(())
        }
        None => {
            println!("syncs are not counted: there is no strace");
            Ok(())
        }
    }
}

/// The rows of all tables. claimdb's default is the first of the second table as well.
fn rows<'a>(
    ready: &'a [Ready],
    answers: impl Iterator<Item = (&'a memory::Contender, [Vec<f64>; THREADS.len()])>,
) -> Vec<Row> {
    let row = |one: &Ready, level: Level, way: &'static str| Row {
        table: Table::Durable(level),
        name: one.peer.name,
        way,
        rates: one.rates.clone(),
        syncs_per_operation: one.syncs_per_operation,
    };
    let mut rows: Vec<_> = ready.iter().map(|one| row(one, one.peer.level, one.peer.way)).collect();
    if let Some(default) = ready.first() {
        let first = row(default, Level::Result, "its default, claim synced too");
        let before = rows.iter().position(|row| row.table == first.table).unwrap_or(rows.len());
        rows.insert(before, first);
    }
    rows.extend(answers.map(|(contender, rates)| Row {
        table: Table::Memory,
        name: contender.name,
        way: contender.way,
        rates,
        syncs_per_operation: None,
    }));
    rows
}

/// What was measured: of crates what the lock says, of the rest what they say themselves.
fn versions(run: &Path, peers: &[Peer]) -> Result<Value> {
    const CRATES: [&str; 9] =
        ["claimdb", "sled", "redb", "heed", "fjall", "rusqlite", "dashmap", "moka", "idempotent"];
    let mut versions = serde_json::Map::new();
    for name in CRATES {
        versions
            .insert(name.to_owned(), locked(name).ok_or_else(|| format!("Cargo.lock has no {name}"))?.into());
    }
    versions.insert("SQLite".to_owned(), rusqlite::version().into());
    let lmdb = heed::lmdb_version();
    versions.insert("LMDB".to_owned(), format!("{}.{}.{}", lmdb.major, lmdb.minor, lmdb.patch).into());
    let there = |server| peers.iter().any(|peer| peer.server == Some(server));
    if there(Server::Redis) {
        versions.insert("Redis".to_owned(), systems::redis_version(run)?.into());
    }
    if there(Server::Postgres) {
        versions.insert("PostgreSQL".to_owned(), systems::postgres_version(run)?.into());
    }
    Ok(json!(versions))
}

fn locked(name: &str) -> Option<&'static str> {
    let packages = include_str!("../Cargo.lock");
    let after = packages.split_once(&format!("name = \"{name}\"\nversion = \""))?.1;
    after.split_once('"').map(|(version, _)| version)
}

/// Puts the tables of `json` into `page`, and their pictures into the folder `pictures`.
fn tables(json: &Path, page: &Path, pictures: &Path) -> Result<()> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("reading {}: {error}", path.display()))
    };
    let write = |path: PathBuf, text: &str| {
        fs::write(&path, text).map_err(|error| format!("writing {}: {error}", path.display()))
    };
    let figures: Value = serde_json::from_str(&read(json)?)?;
    write(page.to_owned(), &report::page(read(page)?, &figures)?)?;
    for (name, picture) in report::pictures(&figures)? {
        write(pictures.join(name), &picture)?;
    }
    Ok(())
}
