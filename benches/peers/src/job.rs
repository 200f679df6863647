//! The job that each system is given: claim a key, then store a result under it.

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

/// As large as a small JSON receipt.
pub const VALUE: [u8; 200] = [7; 200];

/// 16 characters, spread over the key space as hashes and random identifiers are; the same for every system.
pub fn key(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// A store, opened once, that any number of threads use.
pub trait System: Sync {
    /// What one thread needs of its own.
    fn session(&self) -> Result<Box<dyn Session + '_>>;
}

pub trait Session {
    /// Whether `key` is now this session's to work on. It is nobody's else then, and never again once it is stored.
    fn claim(&mut self, key: &str) -> Result<bool>;

    /// Stores the result of a key that this session has claimed.
    fn store(&mut self, key: &str) -> Result<()>;
}

/// One operation.
pub fn operate(session: &mut dyn Session, key: &str) -> Result<()> {
    if !session.claim(key)? {
        return Err(format!("the fresh key {key} was not granted").into());
    }
    session.store(key)
}
