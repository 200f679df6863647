//! Opening a store that was killed with many claims pending, against sled's own opening of the same files.

use crate::rows::Rows;
use crate::{Keys, bare_sled};
use claimdb::backend::Sled;
use claimdb::{Request, Store};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const THREADS: usize = 64;

/// `hold FOLDER N`: claims so many keys there, and dies without an end.
pub fn is_child(arguments: &[String]) -> bool {
    let [hold, folder, claims] = arguments else { return false };
    if hold != "hold" {
        return false;
    }
    let (store, claims) =
        (Store::builder(Sled::new(folder)).open().unwrap(), claims.parse::<usize>().unwrap());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut keys = Keys::new(thread as u64 + 1);
                for _ in 0..claims / THREADS {
                    std::mem::forget(store.claim(Request::new(keys.fresh())).unwrap().granted().unwrap());
                }
            });
        }
    });
    // As SIGKILL does: nothing is closed.
    std::process::abort();
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").args([from, to]).status().unwrap();
    assert!(copied.success());
}

pub fn measure(rows: &mut Rows) {
    let pending = rows.many(1_000_000, 640);
    let folder = tempfile::tempdir().unwrap();
    let (killed, copied) = (folder.path().join("killed"), folder.path().join("copy"));
    let child = Command::new(std::env::current_exe().unwrap())
        .arg("hold")
        .arg(&killed)
        .arg(pending.to_string())
        .status();
    assert!(!child.unwrap().success(), "it was to die");
    let (mut ours, mut floor, mut first) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rows.rounds {
        // Each opens a copy that was written just now, so all of it is in the page cache.
        copy(&killed, &copied);
        let begun = Instant::now();
        let store = Store::builder(Sled::new(&copied)).open().unwrap();
        ours.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        let claim = store.claim(Request::new("the first")).unwrap().granted().unwrap();
        first.push(begun.elapsed().as_secs_f64() * 1e3);
        claim.release().unwrap();
        store.close().unwrap();
        std::fs::remove_dir_all(&copied).unwrap();

        copy(&killed, &copied);
        let begun = Instant::now();
        let bare = bare_sled(&copied.join("sled"));
        floor.push(begun.elapsed().as_secs_f64() * 1e3);
        assert!(bare.was_recovered());
        drop(bare);
        std::fs::remove_dir_all(&copied).unwrap();
    }
    rows.add(
        &format!("opening with {pending} pending after a kill, sled's own opening"),
        "ms",
        &ours,
        &floor,
    );
    let without = vec![1.0; first.len()];
    rows.add("the first claim after that, Full; the floor is the goal", "ms", &first, &without);
}
