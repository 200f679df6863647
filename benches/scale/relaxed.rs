//! Claim and complete without a sync, against the writes to sled that it needs: the record and its index entry.

use crate::rows::{Rows, on_threads};
use crate::written::Written;
use crate::{Keys, VALUE, bare_sled};
use claimdb::backend::Sled;
use claimdb::{Durability, Outcome, Request, Store};

pub fn measure(rows: &mut Rows) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::builder(Sled::new(folder.path().join("store"))).open().unwrap();
    let bare = bare_sled(&folder.path().join("bare"));
    let (written, mut set, mut time) = (Written::new(), 0, 0);
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
                let (mut keys, bare, written) = (Keys::new((set + thread) as u64), &bare, &written);
                let mut end = time;
                move || {
                    let name = keys.fresh();
                    end += 1;
                    bare.insert(written.entry(end, &name), &[]).unwrap();
                    let swapped =
                        bare.compare_and_swap(written.key(&name), None::<&[u8]>, Some(&written.record[..]));
                    swapped.unwrap().unwrap();
                }
            }));
        }
        let what = format!("claim and complete, Relaxed, {threads} threads, beside sled's two writes");
        rows.add(&what, "operations/s", &ours, &floor);
    }
}
