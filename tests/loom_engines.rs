//! Engines that have files are refused in models, which would see nothing of what they do. Not run by `cargo loom` alone,
//! which leaves them out: `cargo loom --features sled,redb --test loom_engines`.
#![cfg(all(loom, any(feature = "sled", feature = "redb")))]
#![allow(missing_docs)]

use claimdb::backend::Backend;
use claimdb::{OpenError, Store};

/// Not within a model: a refusal needs none.
fn refused(engine: impl Backend + 'static, folder: &std::path::Path) {
    let opened = Store::builder(engine).open();
    let error = opened.expect_err("an engine that has files was opened in a model");
    assert!(matches!(error, OpenError::Storage { .. }), "{error:?}");
    let told = error.to_string();
    assert!(told.contains("use backend::Mem in models"), "{told}");
    assert!(!folder.exists(), "a folder was made for an engine that was refused");
}

#[cfg(feature = "sled")]
#[test]
fn sled_is_refused() {
    let folder = std::env::temp_dir().join(format!("claimdb-loom-sled-{}", std::process::id()));
    refused(claimdb::backend::Sled::new(&folder), &folder);
}

#[cfg(feature = "redb")]
#[test]
fn redb_is_refused() {
    let folder = std::env::temp_dir().join(format!("claimdb-loom-redb-{}", std::process::id()));
    refused(claimdb::backend::Redb::new(&folder), &folder);
}
