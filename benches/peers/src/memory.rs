//! What losers and replays cost, which are answered from memory, beside what a map or a cache takes for less.

use crate::job::{Error, Result, VALUE, key};
use crate::measure::{self, Plan, THREADS};
use claimdb::backend::Sled;
use claimdb::{Claim, Outcome, Request, Settled, Store};
use dashmap::DashMap;
use idempotent::entry::ExistingEntry;
use idempotent::fingerprint::{DefaultFingerprintStrategy, FingerprintStrategy};
use idempotent::store::memory::MemoryStore;
use idempotent::store::{IdempotencyStore, InsertResult};
use idempotent::{CachedResponse, Fingerprint, IdempotencyEntry, IdempotencyKey, Metadata};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How many keys have a result; they are asked for in turn.
const KEYS: usize = 1000;
/// Longer than any run.
const DAY: Duration = Duration::from_secs(86_400);
/// How often the clock of the measurement is read.
const BATCH: u64 = 256;

/// What is measured, and what of it.
pub struct Contender {
    pub name: &'static str,
    pub way: &'static str,
    rate: Rate,
}

/// Answers a second from so many threads in one round.
type Rate = Box<dyn Fn(usize, Plan) -> Result<f64>>;

impl Contender {
    pub fn rates(&self, plan: Plan) -> Result<[f64; THREADS.len()]> {
        let mut rates = [0.0; THREADS.len()];
        for (rate, threads) in rates.iter_mut().zip(THREADS) {
            *rate = (self.rate)(threads, plan)?;
        }
        Ok(rates)
    }
}

/// All of them, claimdb's default first. `folder` is where its store may be.
pub fn contenders(folder: &Path) -> Result<Vec<Contender>> {
    let store = Store::builder(Sled::new(folder)).open()?;
    let keys: Arc<[String]> = (0..KEYS as u64).map(key).collect();
    let live = key(KEYS as u64);
    let held =
        store.claim(Request::new(&live).lease(DAY))?.granted().ok_or("the live key was not granted")?;
    for key in keys.iter() {
        store.claim(key)?.granted().ok_or("a fresh key was not granted")?.complete_bytes(VALUE.as_slice())?;
    }
    let replays = (store.clone(), keys.clone());
    let losers = (store, live, held);

    let deadlines: DashMap<String, Instant> =
        keys.iter().map(|key| (key.clone(), Instant::now() + DAY)).collect();
    let dashmap = (deadlines, keys[0].clone());
    let results: DashMap<String, (Instant, Arc<[u8]>)> =
        keys.iter().map(|key| (key.clone(), (Instant::now() + DAY, Arc::from(VALUE)))).collect();
    let results = (results, keys.clone());
    let cache = moka::sync::Cache::builder().max_capacity(2 * KEYS as u64).time_to_live(DAY).build();
    for key in keys.iter() {
        cache.insert(key.clone(), Arc::<[u8]>::from(VALUE));
    }
    let cache = (cache, keys.clone());
    let mut all = vec![
        Contender { name: "claimdb, sled", way: "a losing claim on a live key", rate: rate(losers, lose) },
        Contender {
            name: "dashmap",
            way: "get of one key, one clock reading",
            rate: rate(dashmap, |(map, key), _| {
                black_box(map.get(key).map(|deadline| Instant::now() < *deadline));
                Ok(())
            }),
        },
        Contender {
            name: "claimdb, sled",
            way: "a replay of a recent completion",
            rate: rate(replays, replay),
        },
        Contender {
            name: "dashmap",
            way: "get of a result, one clock reading",
            rate: rate(results, |(map, keys), number| {
                let result = map.get(&keys[number % KEYS]).ok_or("a key is gone")?;
                black_box((Instant::now() < result.0).then(|| result.1.clone()));
                Ok(())
            }),
        },
        Contender {
            name: "moka",
            way: "get of a result with a time to live",
            rate: rate(cache, |(cache, keys), number| {
                black_box(cache.get(&keys[number % KEYS]).ok_or("a key is gone")?);
                Ok(())
            }),
        },
    ];
    let tasks = Arc::new(Tasks::new(&keys)?);
    let (losers, replays) = (tasks.clone(), tasks);
    all.insert(
        2,
        Contender {
            name: "idempotent",
            way: "try_insert of one key that is there, from tasks",
            rate: Box::new(move |threads, plan| losers.rate(threads, plan, 0, 1)),
        },
    );
    all.push(Contender {
        name: "idempotent",
        way: "try_insert of a key that has a result, from tasks",
        rate: Box::new(move |threads, plan| replays.rate(threads, plan, 1, KEYS)),
    });
    Ok(all)
}

fn lose((store, key, _held): &(Store, String, Claim), _: usize) -> Result<()> {
    match store.claim(key)? {
        Outcome::InFlight(_) => Ok(()),
        other => Err(format!("a loser was told {other:?}").into()),
    }
}

fn replay((store, keys): &(Store, Arc<[String]>), number: usize) -> Result<()> {
    match store.claim(&keys[number % KEYS])? {
        Outcome::Settled(Settled::Completed(stored)) => {
            black_box(stored);
            Ok(())
        }
        other => Err(format!("a replay was told {other:?}").into()),
    }
}

/// The rate of `ask`, which is given `of` and the number of the call.
fn rate<T: Sync + 'static>(of: T, ask: impl Fn(&T, usize) -> Result<()> + Sync + 'static) -> Rate {
    Box::new(move |threads, plan| {
        measure::rate(threads, plan, |thread| {
            let (of, ask, mut number) = (&of, &ask, thread * KEYS / THREADS[2]);
            Ok(move || {
                for _ in 0..BATCH {
                    number += 1;
                    ask(of, number)?;
                }
                Ok(BATCH)
            })
        })
    })
}

/// The store of `idempotent` is a task of its own, and its callers are tasks too.
struct Tasks {
    runtime: Runtime,
    store: Arc<MemoryStore>,
    /// One without a result, then those that have one.
    keys: Arc<[IdempotencyKey]>,
    fingerprint: Fingerprint,
}

impl Tasks {
    fn new(keys: &[String]) -> Result<Self> {
        let runtime = Runtime::new()?;
        let store = Arc::new(runtime.block_on(async { MemoryStore::new(1024, DAY) }));
        let names = [key(KEYS as u64)].into_iter().chain(keys.iter().cloned());
        let keys = names.map(IdempotencyKey::new).collect::<std::result::Result<Arc<[_]>, _>>()?;
        let fingerprint = DefaultFingerprintStrategy.compute("POST /", b"");
        let tasks = Self { runtime, store, keys, fingerprint };
        tasks.runtime.block_on(async {
            for (number, key) in tasks.keys.iter().enumerate() {
                let entry = IdempotencyEntry::new(fingerprint, DAY);
                let InsertResult::Claimed { fencing_token } =
                    tasks.store.try_insert(key, entry.clone()).await?
                else {
                    return Err("idempotent: a fresh key was not granted".into());
                };
                if number > 0 {
                    let response = CachedResponse {
                        status_code: 200,
                        metadata: Metadata::default(),
                        body: VALUE.as_slice().into(),
                    };
                    tasks.store.complete(key, entry.complete(response), fencing_token).await?;
                }
            }
            Ok::<_, Error>(())
        })?;
        Ok(tasks)
    }

    /// The rate at which `callers` tasks are told of `count` keys from `first` on.
    fn rate(&self, callers: usize, plan: Plan, first: usize, count: usize) -> Result<f64> {
        let start = Instant::now();
        let one = |caller: usize| {
            let (store, keys, fingerprint) = (self.store.clone(), self.keys.clone(), self.fingerprint);
            async move {
                let wrong = |what: &str| Error::from(format!("idempotent: {what}"));
                let (mut number, mut done) = (caller, 0_u64);
                loop {
                    number += 1;
                    let entry = IdempotencyEntry::new(fingerprint, DAY);
                    let told = store.try_insert(&keys[first + number % count], entry).await?;
                    let InsertResult::Exists(existing) = told else {
                        return Err(wrong("a key was granted twice"));
                    };
                    match (&existing, count) {
                        (ExistingEntry::Processing(_), 1) => {}
                        (ExistingEntry::Completed(_), 2..) => {}
                        _ => return Err(wrong("a key is not as it was left")),
                    }
                    black_box(existing);
                    let spent = start.elapsed();
                    if spent >= plan.warm_up + plan.span {
                        return Ok(done);
                    }
                    done += u64::from(spent >= plan.warm_up);
                }
            }
        };
        let done: Result<u64> = self.runtime.block_on(async {
            let running: Vec<_> = (0..callers).map(|caller| tokio::spawn(one(caller))).collect();
            let mut done = 0;
            for task in running {
                done += task.await??;
            }
            Ok(done)
        });
        Ok(done? as f64 / plan.span.as_secs_f64())
    }
}
