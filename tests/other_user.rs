//! A store that another user has: root leaves nothing in it that its user could not use, and a file that stands in the way is
//! named. Needs root, which alone can be two users, and says *skipped* without.
#![cfg(all(not(loom), feature = "sled"))] // real files
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/engines.rs"]
mod engines;

use claimdb::{OpenError, Store};
use engines::Engine;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Tells a child of these tests which store to open, and over which engine.
const OPEN: &str = "CLAIMDB_TEST_OPEN";
const ENGINE: &str = "CLAIMDB_TEST_ENGINE";
/// Somebody who is not root.
const USER: u32 = 65534;

fn open(engine: Engine, folder: &Path) -> Result<Store, OpenError> {
    Store::builder(engine.at(folder)).lock_wait(Duration::ZERO).sweep_every(Duration::ZERO).open()
}

/// Whether this is root; says so if not.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: only root can be two users");
    }
    root
}

/// Not a test of its own: what [`as_user`] runs.
#[test]
fn open_a_store_if_asked_to() {
    let (Some(folder), Ok(engine)) = (std::env::var_os(OPEN), std::env::var(ENGINE)) else { return };
    match open(Engine::of(&engine), Path::new(&folder)) {
        Ok(store) => {
            match store.claim("k").unwrap().granted() {
                Some(claim) => claim.complete("done").unwrap(),
                None => println!("\ntold: settled"),
            }
            store.close().unwrap();
        }
        Err(error) => println!("\ntold: {error}"),
    }
}

/// A folder in which that user may run these tests and have a store.
fn place() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    fs::copy(std::env::current_exe().unwrap(), place.path().join("tests")).unwrap();
    let store = place.path().join("claims");
    fs::create_dir(&store).unwrap();
    chown(&store, Some(USER), Some(USER)).unwrap();
    (place, store)
}

/// Opens the store as that user, and settles the key; what that says.
fn as_user(engine: Engine, place: &TempDir, store: &Path) -> String {
    let mut command = Command::new(place.path().join("tests"));
    command.args(["--exact", "open_a_store_if_asked_to", "--nocapture"]);
    command.env(OPEN, store).env(ENGINE, engine.name()).uid(USER).gid(USER).stdin(Stdio::null());
    let output = command.current_dir(place.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    said.lines().find_map(|line| line.strip_prefix("told: ")).unwrap_or_default().to_owned()
}

/// Which of the files in and below `folder` are not that user's.
fn not_theirs(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let about = fs::symlink_metadata(&path).unwrap();
        if about.is_dir() {
            found.extend(not_theirs(&path));
        }
        if about.uid() != USER {
            found.push(path);
        }
    }
    found
}

#[test]
fn root_leaves_nothing_in_a_store_that_its_user_could_not_use() {
    if !is_root() {
        return;
    }
    for &engine in Engine::ALL {
        let (place, store) = place();
        assert_eq!(as_user(engine, &place, &store), "");
        let looked = Store::builder(claimdb::backend::existing(&store)).verify(&mut |_| {});
        let [looked, compacted, repaired] = [
            looked.err().map(|error| error.to_string()),
            Store::compact(&store).err().map(|error| error.to_string()),
            Store::repair(&store).err().map(|error| error.to_string()),
        ];
        let opened = open(engine, &store).err().map(|error| error.to_string());
        let left = not_theirs(&store);
        assert!(left.is_empty(), "P6 never stuck: root has left {left:?} over {engine:?}");
        for told in [looked, compacted, repaired, opened] {
            let told = told.expect("root opened another user's store");
            let user = "it is user nobody's, and this process is root's";
            assert!(told.contains(user) && told.contains("`runuser -u nobody -- COMMAND`"), "{told}");
        }
        assert_eq!(as_user(engine, &place, &store), "settled", "P8 remembered, over {engine:?}");
        // Given to root, it is root's.
        lchown(&store, Some(0), Some(0)).unwrap();
        assert!(open(engine, &store).is_err(), "its `lock` is still another's");
        lchown(store.join("lock"), Some(0), Some(0)).unwrap();
        assert!(open(engine, &store).unwrap().get("k").unwrap().is_some());
    }
}

#[test]
fn a_file_that_is_roots_is_named_and_nothing_is_opened_without_it() {
    if !is_root() {
        return;
    }
    for &engine in Engine::ALL {
        let (place, store) = place();
        assert_eq!(as_user(engine, &place, &store), "");
        let main = format!("{}/db", engine.name());
        fs::write(store.join("compacting"), "").unwrap();
        for name in ["lock", "format", "clean", "reserve", "compacting", &main] {
            let file = store.join(name);
            chown(&file, Some(0), Some(0)).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            let told = as_user(engine, &place, &store);
            let named = format!("its file `{name}` is user root's and has mode 600, and user nobody");
            let remedy = format!("`chown -R nobody '{}'`", store.display());
            assert!(told.contains(&named) && told.contains(&remedy), "P9 fail closed: {name}: {told}");
            chown(&file, Some(USER), Some(USER)).unwrap();
        }
        let folder = store.join(engine.name());
        fs::set_permissions(&folder, Permissions::from_mode(0o500)).unwrap();
        let told = as_user(engine, &place, &store);
        let named = format!("its folder `{}` is user nobody's and has mode 500", engine.name());
        assert!(told.contains(&named) && told.contains("`chmod -R u+rwX"), "{told}");
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(as_user(engine, &place, &store), "settled", "P8 remembered, over {engine:?}");
    }
}
