//! The Rust blocks of README.md and docs/, compiled by `cargo test --doc`; `tests/documents.rs` holds that no page is
//! missing here. Empty otherwise.

#[cfg(feature = "sled")]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(all(feature = "sled", feature = "redb"))]
#[doc = include_str!("../docs/backends.md")]
mod backends {}

#[doc = include_str!("../docs/guides/check-then-act.md")]
mod check_then_act {}

#[doc = include_str!("../docs/guides/from-map.md")]
mod from_map {}

#[doc = include_str!("../docs/guides/from-redis.md")]
mod from_redis {}

#[doc = include_str!("../docs/guides/from-unique-index.md")]
mod from_unique_index {}

#[cfg(all(feature = "axum", feature = "sled"))]
#[doc = include_str!("../docs/http.md")]
mod http {}

#[cfg(feature = "admin")]
#[doc = include_str!("../docs/operations.md")]
mod operations {}

#[cfg(all(feature = "metrics", feature = "sled"))]
#[doc = include_str!("../docs/telemetry.md")]
mod telemetry {}
