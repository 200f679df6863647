//! What the tests share.
#![allow(dead_code, unused_imports)] // each test file uses a part

#[cfg(loom)]
pub mod drive;
#[cfg(loom)]
mod models;
#[cfg(loom)]
mod world;

#[cfg(loom)]
pub(crate) use models::models;
#[cfg(loom)]
pub use models::{Still, broken, hanging_twin, model, twin};
#[cfg(loom)]
pub use world::{Fault, Faulty, LEASE_OVER, World, claim, value};
