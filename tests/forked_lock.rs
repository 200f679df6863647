//! A process that was forked off lives on when the store is closed: the folder is free all the same.
#![cfg(all(not(loom), feature = "sled", target_os = "linux"))]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

use claimdb::Store;
use claimdb::backend::Sled;
use std::io::{Read, Write, pipe};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

#[test]
fn the_lock_is_given_back_at_close_though_a_fork_lives_on() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Store::builder(Sled::new(folder.path())).lock_wait(Duration::ZERO).open();
    let store = open().unwrap();
    store.claim("k").unwrap().granted().unwrap().complete("done").unwrap();

    // Between the fork and its own program a process has copies of all descriptors. This one stays there.
    let (mut forked, mut says) = pipe().unwrap();
    let (mut waits, mut release) = pipe().unwrap();
    let in_fork = store.clone();
    let mut command = Command::new("true");
    #[allow(unsafe_code)]
    // nothing else runs code in a fork; nobody else uses this store or these pipes meanwhile
    unsafe {
        command.pre_exec(move || {
            // Should this test fail, the fork is not to outlive it.
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            let refused = in_fork.claim("new").is_err();
            says.write_all(&[u8::from(refused)])?;
            waits.read_exact(&mut [0])
        });
    }
    let forks = std::thread::spawn(move || {
        let status = command.status();
        drop(command);
        status
    });
    let mut refused = [0];
    forked.read_exact(&mut refused).unwrap();
    assert_eq!(refused, [1], "rule 9: a fork was granted a claim");
    assert!(!forks.is_finished(), "the fork lives");

    store.close().unwrap();
    let store = open().expect("P6 never stuck: a fork keeps the folder locked, and the store was closed");
    assert!(store.get("k").unwrap().is_some(), "P8 remembered");
    assert!(store.claim("new").unwrap().granted().is_some(), "P9: what the fork was refused is not there");
    assert!(!forks.is_finished(), "the fork still lives");
    release.write_all(&[0]).unwrap();
    assert!(forks.join().unwrap().unwrap().success());
    println!("\nforked_lock: forks: 1");
}
