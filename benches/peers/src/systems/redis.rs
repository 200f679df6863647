//! Redis over its Unix socket, a connection for each thread.

use super::{Level, Server};
use crate::job::{Error, Result, Session, System, VALUE};
use redis::{Client, Connection, cmd};
use std::path::Path;

struct Redis(Client);

pub fn open(_: Level, folder: &Path) -> Result<Box<dyn System>> {
    Ok(Box::new(client(folder)?))
}

fn client(folder: &Path) -> Result<Redis> {
    Ok(Redis(Client::open(format!("unix://{}", folder.join("socket").display()))?))
}

/// What the server below the run's folder says it is.
pub fn version(run: &Path) -> Result<String> {
    let mut connection = client(&Server::Redis.folder(run))?.0.get_connection()?;
    let about: String = cmd("INFO").arg("server").query(&mut connection)?;
    let version = about.lines().find_map(|line| line.strip_prefix("redis_version:"));
    Ok(version.ok_or_else(|| Error::from("Redis does not tell its version"))?.trim().to_owned())
}

impl System for Redis {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Connected(self.0.get_connection()?)))
    }
}

struct Connected(Connection);

impl Session for Connected {
    fn claim(&mut self, key: &str) -> Result<bool> {
        let set: Option<String> = cmd("SET").arg(key).arg("").arg("NX").query(&mut self.0)?;
        Ok(set.is_some())
    }

    fn store(&mut self, key: &str) -> Result<()> {
        Ok(cmd("SET").arg(key).arg(VALUE.as_slice()).exec(&mut self.0)?)
    }
}
