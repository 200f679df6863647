//! A lone thread that waits for the disk, against a file to which the same bytes are appended and synced.

use crate::rows::{Rows, rate};
use crate::written::Written;
use crate::{Keys, VALUE};
use claimdb::backend::Sled;
use claimdb::{Durability, Outcome, Request, Store, SyncBy};
use std::fs::File;
use std::io::Write as _;

pub fn measure(rows: &mut Rows) {
    beside_append(rows, "one thread", SyncBy::Thread);
    beside_append(rows, "one thread, SyncBy::Caller", SyncBy::Caller);
}

fn beside_append(rows: &mut Rows, who: &str, sync_by: SyncBy) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::builder(Sled::new(folder.path().join("store"))).sync_by(sync_by).open().unwrap();
    let mut file = File::create_new(folder.path().join("file")).unwrap();
    let (mut keys, written) = (Keys::new(1), Written::new());
    for durability in [Durability::Full, Durability::Result] {
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..rows.rounds {
            ours.push(rate(rows.span(), || {
                let request = Request::new(keys.fresh()).durability(durability);
                let Outcome::Granted(claim) = store.claim(request).unwrap() else { panic!("keys repeat") };
                claim.complete_bytes(VALUE).unwrap();
            }));
            floor.push(rate(rows.span(), || {
                let mut bytes = written.key(&keys.fresh());
                bytes.extend_from_slice(&written.record);
                file.write_all(&bytes).unwrap();
                file.sync_data().unwrap();
            }));
        }
        let what = format!("{who}, {durability:?}, beside append and fdatasync");
        rows.add(&what, "operations/s", &ours, &floor);
    }
}
