//! Nothing: this package is its tests, which are the crate's.
