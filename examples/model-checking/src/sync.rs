//! The service's own locks: loom's in models, so that loom can switch threads at them.

#[cfg(loom)]
pub(crate) use loom::sync::Mutex;
#[cfg(not(loom))]
pub(crate) use std::sync::Mutex;
