//! The driver: starts the service, sends clients to it, kills it, and judges what is left.

use crate::client::{Client, Random, Seen};
use crate::ledger;
use crate::report::Report;
use crate::service::{Service, fresh_folder};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How many payments a client takes up together, in an order of its own.
const CHUNK: usize = 4;

#[derive(clap::Args)]
pub struct Options {
    /// How many payments are to be made.
    #[arg(long, default_value_t = 100)]
    payments: usize,
    /// How many clients ask for each of them.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// How often the service is killed on the way. It is killed once more at the end.
    #[arg(long, default_value_t = 10)]
    kills: usize,
    /// Of the orders and the moments; two runs with one seed still differ in what the machine does between them.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Milliseconds between a payment and its answer: longer, and more kills come between the two.
    #[arg(long, default_value_t = 5)]
    pause: u64,
    /// Seconds after which it is given up.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// The folder of the store and the ledger, which must not be there; `target/payments` and emptied if not set.
    #[arg(long)]
    folder: Option<PathBuf>,
}

pub async fn drive(options: Options) -> Result<(), Box<dyn Error>> {
    let folder = fresh_folder(options.folder.as_deref(), "target/payments")?;
    let begun = Instant::now();
    let limit = Duration::from_secs(options.limit);
    let Ok(driven) = tokio::time::timeout(limit, run(&options, &folder)).await else {
        return Err(format!("not every payment had its answer after {} s", options.limit).into());
    };
    let (seen, kills) = driven?;
    let effects = ledger::read(&folder.join("ledger"))?;
    let report = Report::new(&effects, &seen, kills);
    report.print(begun.elapsed());
    let broken = report.broken_promises(options.payments);
    if broken.is_empty() {
        return Ok(());
    }
    for promise in &broken {
        eprintln!("BROKEN: {promise}");
    }
    Err(format!("{} promises were broken; what is left is in {}", broken.len(), folder.display()).into())
}

/// Sends all clients through all payments, and one more through them after the last kill. What they saw, and how often
/// the service was killed.
async fn run(options: &Options, folder: &Path) -> Result<(Vec<Seen>, usize), Box<dyn Error>> {
    let names: Arc<Vec<String>> =
        Arc::new((0..options.payments).map(|number| format!("payment-{number}")).collect());
    let pause = ["--pause".to_owned(), options.pause.to_string()];
    let (mut service, address) = Service::start(folder, &pause)?;
    let (tell, told) = watch::channel(address);
    let answers = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for number in 0..u64::from(options.clients) {
        let seed = options.seed.wrapping_mul(1000).wrapping_add(number);
        let (client, order) = (Client::new(told.clone(), seed), Random(!seed));
        clients.spawn(pay_all(client, order, Arc::clone(&names), Arc::clone(&answers)));
    }
    let mut random = Random(options.seed);
    let total = options.payments * usize::from(options.clients);
    let mut kills = 0;
    let mut seen = Vec::new();
    // A kill comes when its share of the answers is there, and up to two pauses later.
    while kills < options.kills {
        let share = total * (kills + 1) / (options.kills + 1);
        if answers.load(Ordering::Relaxed) < share {
            tokio::time::sleep(Duration::from_millis(1)).await;
            // A client that was told nonsense ends the run here, and not at the limit.
            while let Some(ended) = clients.try_join_next() {
                seen.push(ended??);
            }
            continue;
        }
        tokio::time::sleep(Duration::from_micros(random.below(2000 * (options.pause + 1)))).await;
        drop(service);
        kills += 1;
        let address;
        (service, address) = Service::start(folder, &pause)?;
        tell.send_replace(address);
    }
    while let Some(ended) = clients.join_next().await {
        seen.push(ended??);
    }
    drop(service);
    kills += 1;
    let (_service, address) = Service::start(folder, &pause)?;
    tell.send_replace(address);
    seen.push(pay_all(Client::new(told, 0), Random(0), names, answers).await?);
    Ok((seen, kills))
}

/// What `client` has seen once it has all payments, chunk by chunk, in an `order` of its own within each.
async fn pay_all(
    mut client: Client,
    mut order: Random,
    names: Arc<Vec<String>>,
    answers: Arc<AtomicUsize>,
) -> Result<Seen, String> {
    for chunk in names.chunks(CHUNK) {
        let mut left: Vec<_> = chunk.iter().collect();
        while !left.is_empty() {
            let next = usize::try_from(order.below(left.len() as u64)).unwrap_or(0);
            client.pay(left.swap_remove(next)).await?;
            answers.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(client.seen)
}
