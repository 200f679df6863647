//! PostgreSQL over its Unix socket, a connection for each thread and prepared statements.

use super::{Level, Server};
use crate::job::{Result, Session, System, VALUE};
use postgres::{Client, Config, NoTls, Statement};
use std::path::Path;

struct Postgres {
    config: Config,
    level: Level,
    table: &'static str,
}

pub fn open(level: Level, folder: &Path) -> Result<Box<dyn System>> {
    let config = config(folder);
    let table = match level {
        Level::Full => "claims_full",
        Level::Result => "claims_result",
    };
    let create = format!("CREATE TABLE IF NOT EXISTS {table} (key text PRIMARY KEY, result bytea)");
    config.connect(NoTls)?.batch_execute(&create)?;
    Ok(Box::new(Postgres { config, level, table }))
}

fn config(folder: &Path) -> Config {
    let mut config = Config::new();
    config.host_path(folder).user("postgres").dbname("postgres");
    config
}

/// What the server below the run's folder says it is.
pub fn version(run: &Path) -> Result<String> {
    let row = config(&Server::Postgres.folder(run)).connect(NoTls)?.query_one("SHOW server_version", &[])?;
    let version: String = row.get(0);
    Ok(version.split(' ').next().unwrap_or_default().to_owned())
}

impl System for Postgres {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let mut storing = self.config.connect(NoTls)?;
        // Another connection rather than a setting changed before each statement, which would be a round trip more.
        let mut claiming = match self.level {
            Level::Full => None,
            Level::Result => Some(self.config.clone().options("-c synchronous_commit=off").connect(NoTls)?),
        };
        let table = self.table;
        let claim = format!("INSERT INTO {table} (key) VALUES ($1) ON CONFLICT DO NOTHING");
        let claim = claiming.as_mut().unwrap_or(&mut storing).prepare(&claim)?;
        let store = storing.prepare(&format!("UPDATE {table} SET result = $2 WHERE key = $1"))?;
        Ok(Box::new(Connected { storing, claiming, claim, store }))
    }
}

struct Connected {
    storing: Client,
    /// Where claims are made if they are not to be synced.
    claiming: Option<Client>,
    claim: Statement,
    store: Statement,
}

impl Session for Connected {
    fn claim(&mut self, key: &str) -> Result<bool> {
        let client = self.claiming.as_mut().unwrap_or(&mut self.storing);
        Ok(client.execute(&self.claim, &[&key])? == 1)
    }

    fn store(&mut self, key: &str) -> Result<()> {
        match self.storing.execute(&self.store, &[&key, &VALUE.as_slice()])? {
            1 => Ok(()),
            rows => Err(format!("{rows} rows got the result of {key}").into()),
        }
    }
}
