//! Claim and complete without a sync, against the writes to sled that it needs: the record and its index entry.

use crate::rows::{Rows, on_threads};
use crate::{Keys, VALUE, bare_sled};
use claimdb::backend::Sled;
use claimdb::{Durability, Outcome, Request, Store};

/// As long as an entry of the retention index for a key of 16 bytes, which ends with the key.
const ENTRY: usize = 40;

pub fn measure(rows: &mut Rows) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::builder(Sled::new(folder.path().join("store"))).open().unwrap();
    let bare = bare_sled(&folder.path().join("bare"));
    let (mut set, mut time) = (0, 0_u64);
    for threads in [1, 2] {
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..rows.rounds {
            set += threads;
            ours.push(on_threads(threads, rows.span(), |thread| {
                let (mut keys, store) = (Keys::new((set + thread) as u64), &store);
                move || {
                    let request = Request::new(keys.fresh()).durability(Durability::Relaxed);
                    let Outcome::Granted(claim) = store.claim(request).unwrap() else {
                        panic!("keys repeat")
                    };
                    claim.complete_bytes(VALUE).unwrap();
                }
            }));
            time += 1_000_000_000;
            floor.push(on_threads(threads, rows.span(), |thread| {
                let (mut keys, bare) = (Keys::new((set + thread) as u64), &bare);
                let mut end = time;
                move || {
                    let key = keys.fresh();
                    // Entries come in the order of their ends, as those of the index do.
                    end += 1;
                    let mut entry = vec![4; ENTRY];
                    entry[1..9].copy_from_slice(&end.to_be_bytes());
                    entry[9] = thread as u8;
                    entry[ENTRY - key.len()..].copy_from_slice(key.as_bytes());
                    bare.insert(entry, &[]).unwrap();
                    bare.compare_and_swap(&key, None::<&[u8]>, Some(&VALUE[..])).unwrap().unwrap();
                }
            }));
        }
        let what = format!("claim and complete, Relaxed, {threads} threads, beside sled's two writes");
        rows.add(&what, "operations/s", &ours, &floor);
    }
}
