//! What is to be measured.

use crate::built::EngineNames;
use crate::failure::Failure;
use crate::out::counted;
use claimdb::Durability;
use clap::ValueEnum;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// Measure what claims cost on this machine
///
/// Threads claim keys and complete them with a value; some of the keys were asked for before. One row for each
/// combination of --backend, --durability, --keys and --threads; the first one is always the default configuration,
/// which is sled and full. Stores are made in --dir, in a folder claimdb-bench-XXXXXX that is deleted at the end; what is
/// interrupted (Ctrl-C) leaves it there.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// How many threads claim at once
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,8,64", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Vec<u16>,

    /// How many completed keys a store has before it is measured
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "10000", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) keys: Vec<u64>,

    /// Which share of the claims is for keys that were asked for before
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, value_parser = share)]
    pub(super) duplicates: f64,

    /// How many bytes a result has
    #[arg(long, value_name = "BYTES", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub(super) value: u32,

    /// What is durable when
    #[arg(long, value_name = "LEVEL,...", value_delimiter = ',', default_value = "full,result,relaxed")]
    durability: Vec<Level>,

    /// The storage engine
    #[arg(long, value_name = "ENGINE,...", value_delimiter = ',', default_value = "sled", value_parser = EngineNames::<Storage>::new())]
    backend: Vec<Storage>,

    /// How long a round is measured
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub(super) seconds: f64,

    /// How long the same is done before each round without being measured
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = seconds)]
    pub(super) warm_up: f64,

    /// How often each row is measured; it tells its median round
    #[arg(long, value_name = "N", default_value = "3")]
    pub(super) rounds: NonZeroUsize,

    /// In which folder the stores are made: its disk is measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) dir: PathBuf,

    /// Give the report as JSON, in one line
    #[arg(long)]
    pub(super) json: bool,

    /// Write the report with plots to FILE as well, a page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  All durabilities at 1, 8 and 64 threads, in about three minutes:
    claimdb bench

  A first impression:
    claimdb bench --seconds 0.5 --rounds 1 --threads 1,64

  What a larger store costs, with plots:
    claimdb bench --keys 10000,1000000 --threads 1 --html report.html

  An engine and memory alone, for a script:
    claimdb bench --backend sled,mem --json > report.json";

/// [`Durability`] by its names on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Level {
    /// claim and result are synced
    Full,
    /// the result is synced
    Result,
    /// nothing is synced
    Relaxed,
}

/// Where a store's bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Storage {
    /// sled 0.34.7, the default engine
    Sled,
    /// redb 4, the careful engine
    #[cfg(feature = "redb")]
    Redb,
    /// memory alone: what claimdb itself costs
    Mem,
}

/// One configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    pub(super) storage: Storage,
    pub(super) durability: Durability,
    pub(super) threads: u16,
    pub(super) keys: u64,
}

impl Args {
    /// What to measure, the default configuration first.
    pub(super) fn rows(&self) -> Result<Vec<Row>, Failure> {
        let (Some(&threads), Some(&keys)) = (self.threads.first(), self.keys.first()) else {
            return Err(Failure::Usage("--threads and --keys each need a number".to_owned()));
        };
        let mut rows = vec![Row { storage: Storage::Sled, durability: Durability::Full, threads, keys }];
        for &storage in &self.backend {
            for level in &self.durability {
                for &keys in &self.keys {
                    for &threads in &self.threads {
                        let row = Row { storage, durability: level.durability(), threads, keys };
                        if !rows.contains(&row) {
                            rows.push(row);
                        }
                    }
                }
            }
        }
        Ok(rows)
    }

    pub(super) fn round(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

impl Level {
    fn durability(self) -> Durability {
        match self {
            Self::Full => Durability::Full,
            Self::Result => Durability::Result,
            Self::Relaxed => Durability::Relaxed,
        }
    }
}

impl Storage {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sled => "sled",
            #[cfg(feature = "redb")]
            Self::Redb => "redb",
            Self::Mem => "mem",
        }
    }
}

impl Row {
    pub(super) fn durability_name(&self) -> &'static str {
        match self.durability {
            Durability::Full => "full",
            Durability::Result => "result",
            Durability::Relaxed => "relaxed",
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = counted(self.threads, "thread", "threads");
        write!(f, "{} {}, {threads}", self.storage.name(), self.durability_name())
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("it is a number from 0 to 1".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("it is a number from 0.01 to 3600".to_owned()),
    }
}
