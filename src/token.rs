//! Fencing tokens: one counter for the whole store.
//!
//! A token is drawn from memory, below a *ceiling* that was made durable before. An opening starts at the larger
//! of the ceiling it finds and the wall clock's seconds shifted by 20 bits, and raises the ceiling before it
//! answers anything. So tokens never go back: not across reopenings (the ceiling), deletes (it is no key's
//! counter) or a clock that jumps back (the ceiling again); and they move on when an old copy of the folder is
//! restored (the clock).

use crate::clock::WallTime;
use crate::sync::{AtomicU64, Ordering};
use std::fmt;

/// Tokens between the ceiling and the next draw after a raise: one second's worth of clock, and far more than
/// a second's worth of claims, so that raising is rare. It costs one sync. Models come to the ceiling sooner.
const BLOCK: u64 = if cfg!(loom) { 8 } else { 1 << 20 };
const CLOCK_SHIFT: u32 = 20;
/// A clock at or beyond this is broken (the year 2242), and would use tokens up.
const CLOCK_END: u64 = 1 << 33;

/// Orders claims: a later claim's token is greater. Hand it to whatever the work changes, and let that refuse
/// what is older than the greatest it has seen.
///
/// ```
/// use claimdb::{Store, Token, backend::Mem};
/// let store = Store::builder(Mem::new()).open()?;
/// let mut seen = Token::new(0); // what the outside has seen; 0 is never handed out
/// let claim = store.claim("order-42")?.granted().expect("it is free");
/// assert!(claim.token() > seen); // else it is refused
/// seen = claim.token();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Below 2^63 always, so it fits a signed 64-bit column; below 2^53 until the year 2242, so it fits a JSON number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The token with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The first token of an opening that found `ceiling` in the store and was given `floor`, which lies below 2^62, by the
/// operator: one that was granted.
#[must_use]
pub(crate) fn first_of_opening(ceiling: Token, floor: Token, now: WallTime) -> Token {
    let seconds = now.unix_seconds();
    let by_clock = if seconds < CLOCK_END { seconds << CLOCK_SHIFT } else { 0 };
    // Token 0 is never handed out, so that outside systems can start from "0: nothing seen".
    Token(ceiling.0.max(by_clock).max(floor.0 + 1))
}

/// The tokens of one opening.
#[derive(Debug)]
pub(crate) struct Tokens {
    first: Token,
    next: AtomicU64,
    /// Below this, tokens are safe to hand out. Stored with `Release` after the durable ceiling was synced, loaded
    /// with `Acquire` before a token below it is handed out.
    ceiling: AtomicU64,
}

/// What became of drawing a token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    /// A token to use.
    Token(Token),
    /// A token to use, and the ceiling should be raised soon.
    Low(Token),
    /// None may be handed out before the ceiling was raised above this one.
    Exhausted(Token),
}

impl Tokens {
    /// Tokens from `first` on, with a durable ceiling at [`ceiling_above`]`(first)`.
    pub(crate) fn starting_at(first: Token) -> Self {
        Self { first, next: AtomicU64::new(first.0), ceiling: AtomicU64::new(ceiling_above(first).0) }
    }

    /// None to hand out: those of an opening that only looks. All below `ceiling` belong to openings that have ended.
    pub(crate) fn none_above(ceiling: Token) -> Self {
        Self { first: ceiling, next: AtomicU64::new(ceiling.0), ceiling: AtomicU64::new(ceiling.0) }
    }

    /// The first token of this opening; an older one on a pending record belongs to an opening that has ended.
    pub(crate) fn first(&self) -> Token {
        self.first
    }

    /// The durable ceiling.
    pub(crate) fn ceiling(&self) -> Token {
        Token(self.ceiling.load(Ordering::Acquire))
    }

    /// Draws the next token.
    pub(crate) fn draw(&self) -> Drawn {
        let token = self.next.fetch_add(1, Ordering::Relaxed); // unique by itself; orders nothing else
        let ceiling = self.ceiling.load(Ordering::Acquire);
        if token >= ceiling {
            Drawn::Exhausted(Token(token))
        } else if ceiling - token == BLOCK / 2 {
            Drawn::Low(Token(token))
        } else {
            Drawn::Token(Token(token))
        }
    }

    /// Tells that `ceiling` is durable.
    pub(crate) fn raised(&self, ceiling: Token) {
        self.ceiling.fetch_max(ceiling.0, Ordering::Release);
    }
}

/// The ceiling to make durable so that `token` and a block after it may be handed out.
#[must_use]
pub(crate) fn ceiling_above(token: Token) -> Token {
    Token(token.0.saturating_add(BLOCK))
}
