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

/// A copy that is on the disk and in the page cache, as the files of a store that was killed are: each claim was synced.
fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-r").args([from, to]));
    run(Command::new("sync").arg("-f").arg(to));
}

/// Drops the files of `folder` from the page cache, as claimdb does before sled opens them after a kill.
fn drop_from_cache(folder: &Path) {
    let dd =
        ["-exec", "dd", "of={}", "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none", ";"];
    run(Command::new("find").arg(folder).args(["-type", "f"]).args(dd));
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
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
    let (mut ours, mut first) = (Vec::new(), Vec::new());
    let (mut warm, mut cold) = (Vec::new(), Vec::new());
    for _ in 0..rows.rounds {
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

        for (floor, is_cold) in [(&mut cold, true), (&mut warm, false)] {
            copy(&killed, &copied);
            if is_cold {
                drop_from_cache(&copied);
            }
            let begun = Instant::now();
            let bare = bare_sled(&copied.join("sled"));
            floor.push(begun.elapsed().as_secs_f64() * 1e3);
            assert!(bare.was_recovered());
            drop(bare);
            std::fs::remove_dir_all(&copied).unwrap();
        }
    }
    let what = format!("opening with {pending} pending after a kill");
    rows.add(&format!("{what}, sled's from the disk"), "ms", &ours, &cold);
    rows.add(&format!("{what}, sled's from the page cache"), "ms", &ours, &warm);
    let without = vec![1.0; first.len()];
    rows.add("the first claim after that, Full; the floor is the goal", "ms", &first, &without);
}
