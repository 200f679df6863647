//! What a claim asks for, and the bounds of what may be asked.

use crate::error::{ClaimError, InvalidSetting};
use crate::fingerprint::Fingerprint;
use crate::key::{Key, KeyError, KeyLabel};
use crate::record::{Durability, OnInterrupt, Terms};
use std::time::Duration;

/// The longest lease, 366 days: whoever needs more means "for ever", which a lease is not.
pub const MAX_LEASE: Duration = Duration::from_secs(366 * 86_400);
/// The longest retention, 100 years.
pub const MAX_RETENTION: Duration = Duration::from_secs(36_525 * 86_400);
/// The longest wait, one day.
pub const MAX_WAIT: Duration = Duration::from_secs(86_400);

/// A claim to be made: the key, and what differs from the store's defaults. Nothing is checked before the claim, which
/// refuses what is out of bounds with [`ClaimError::InvalidRequest`].
///
/// Text and bytes are requests too, so `store.claim("order-42")` asks for that key on the store's terms.
///
/// ```
/// use claimdb::{Fingerprint, OnInterrupt, Request, Store, backend::Mem};
/// use std::time::Duration;
/// let store = Store::builder(Mem::new()).open()?;
/// let request = Request::new("order-42")
///     .fingerprint(Fingerprint::of_bytes("1999 cents"))
///     .wait(Duration::from_secs(2))
///     .lease(Duration::from_secs(60))
///     .retention(Duration::from_secs(7 * 86_400))
///     .on_interrupt(OnInterrupt::Quarantine);
/// assert!(store.claim(request)?.granted().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Request {
    key: Result<Key, KeyError>,
    fingerprint: Option<Fingerprint>,
    wait: Duration,
    lease: Option<Duration>,
    retention: Option<Duration>,
    durability: Option<Durability>,
    on_interrupt: OnInterrupt,
    max_attempts: Option<u32>,
    /// How many live claims the key's scope may have; only a scope sets it.
    max_live: Option<usize>,
}

impl Request {
    /// A claim of `key`, in the empty scope unless it is a [`Key`] in another. A key that is none is told by the
    /// claim.
    pub fn new(key: impl IntoKey) -> Self {
        Self {
            key: key.into_key(),
            fingerprint: None,
            wait: Duration::ZERO,
            lease: None,
            retention: None,
            durability: None,
            on_interrupt: OnInterrupt::Rerun,
            max_attempts: None,
            max_live: None,
        }
    }

    /// The same for another key.
    pub(crate) fn for_key(&self, key: Result<Key, KeyError>) -> Self {
        Self { key, ..self.clone() }
    }

    /// Bounds the live claims of the key's scope.
    pub(super) fn max_live(self, claims: usize) -> Self {
        Self { max_live: Some(claims), ..self }
    }

    /// What the work is; compared with what the key was used for before. None if not set.
    #[must_use]
    pub fn fingerprint(self, fingerprint: Fingerprint) -> Self {
        Self { fingerprint: Some(fingerprint), ..self }
    }

    /// How long to wait while the key is in flight, at most [`MAX_WAIT`]. Zero, the default, does not wait.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// How long the holder has, from 1 ms to [`MAX_LEASE`]; the store's default if not set, 30 s.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// How long the settled key is remembered, from 1 ms to [`MAX_RETENTION`]; the store's default if not set,
    /// 24 h.
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        Self { retention: Some(retention), ..self }
    }

    /// What is durable when; the store's default if not set, [`Durability::Full`].
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability: Some(durability), ..self }
    }

    /// What happens if the holder ends without settling. [`OnInterrupt::Quarantine`] needs
    /// [`Durability::Full`].
    #[must_use]
    pub fn on_interrupt(self, on_interrupt: OnInterrupt) -> Self {
        Self { on_interrupt, ..self }
    }

    /// After how many attempts that ended without settling the key becomes interrupted, from 1. Needs
    /// [`Durability::Full`]. No cap if not set.
    #[must_use]
    pub fn max_attempts(self, attempts: u32) -> Self {
        Self { max_attempts: Some(attempts), ..self }
    }

    /// Stands for the key, if it is one.
    pub(super) fn label(&self) -> Option<KeyLabel> {
        self.key.as_ref().ok().map(Key::label)
    }

    /// The request, checked and with the store's defaults filled in.
    pub(super) fn resolve(&self, defaults: &Terms) -> Result<Resolved<'_>, ClaimError> {
        let key = self.key.as_ref().map_err(|error| *error)?;
        let terms = Terms {
            lease: self.lease.unwrap_or(defaults.lease),
            retention: self.retention.unwrap_or(defaults.retention),
            durability: self.durability.unwrap_or(defaults.durability),
            on_interrupt: self.on_interrupt,
            max_attempts: self.max_attempts,
        };
        check_terms(&terms)?;
        if self.wait > MAX_WAIT {
            let given = format!("{:?}", self.wait);
            return Err(InvalidSetting { setting: "wait", given, allowed: "at most 24 h" }.into());
        }
        Ok(Resolved { request: self, key, terms })
    }
}

/// A checked request.
pub(super) struct Resolved<'a> {
    request: &'a Request,
    pub(super) key: &'a Key,
    pub(super) terms: Terms,
}

impl Resolved<'_> {
    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        self.request.fingerprint
    }

    pub(super) fn wait(&self) -> Duration {
        self.request.wait
    }

    pub(super) fn max_live(&self) -> Option<usize> {
        self.request.max_live
    }

    /// Whether this asks for its key on the same terms as `earlier`, a request for the same key in the same call.
    pub(super) fn check_same(&self, earlier: &Self) -> Result<(), InvalidSetting> {
        let (terms, before) = (&self.terms, &earlier.terms);
        let differing = [
            ("lease", terms.lease != before.lease, format!("{:?}", terms.lease)),
            ("retention", terms.retention != before.retention, format!("{:?}", terms.retention)),
            ("durability", terms.durability != before.durability, format!("{:?}", terms.durability)),
            ("on_interrupt", terms.on_interrupt != before.on_interrupt, format!("{:?}", terms.on_interrupt)),
            ("max_attempts", terms.max_attempts != before.max_attempts, shown(terms.max_attempts)),
            ("max_live", self.max_live() != earlier.max_live(), shown(self.max_live())),
        ];
        match differing.into_iter().find(|(_, differs, _)| *differs) {
            Some((setting, _, given)) => Err(InvalidSetting {
                setting,
                given,
                allowed: "what an earlier request for the same key says",
            }),
            None => Ok(()),
        }
    }
}

fn shown(given: Option<impl ToString>) -> String {
    given.map_or_else(|| "not set".to_owned(), |given| given.to_string())
}

/// Whether `terms` are within bounds and go together.
pub(super) fn check_terms(terms: &Terms) -> Result<(), InvalidSetting> {
    check_lease(terms.lease)?;
    check_span("retention", terms.retention, MAX_RETENTION, "from 1 ms to 36525 days")?;
    let invalid =
        |setting, given: &str, allowed| Err(InvalidSetting { setting, given: given.to_owned(), allowed });
    if terms.max_attempts == Some(0) {
        return invalid("max_attempts", "0", "at least 1");
    }
    if terms.durability != Durability::Full {
        let allowed = "used with Durability::Full: without a stored claim a crash would forget it";
        if terms.on_interrupt == OnInterrupt::Quarantine {
            return invalid("on_interrupt", "Quarantine", allowed);
        }
        if terms.max_attempts.is_some() {
            return invalid("max_attempts", "set", allowed);
        }
    }
    Ok(())
}

pub(super) fn check_lease(lease: Duration) -> Result<(), InvalidSetting> {
    check_span("lease", lease, MAX_LEASE, "from 1 ms to 366 days")
}

pub(super) fn check_hold(max_hold: Duration) -> Result<(), InvalidSetting> {
    check_span("max_hold", max_hold, MAX_LEASE, "from 1 ms to 366 days")
}

fn check_span(
    setting: &'static str,
    given: Duration,
    most: Duration,
    allowed: &'static str,
) -> Result<(), InvalidSetting> {
    if (Duration::from_millis(1)..=most).contains(&given) {
        return Ok(());
    }
    Err(InvalidSetting { setting, given: format!("{given:?}"), allowed })
}

/// What can be taken for a key: text and bytes, in the empty scope, and keys.
pub trait IntoKey {
    /// The key, or why it is none.
    ///
    /// # Errors
    /// [`KeyError`] as [`Key::new`].
    fn into_key(self) -> Result<Key, KeyError>;
}

impl IntoKey for Key {
    fn into_key(self) -> Result<Key, KeyError> {
        Ok(self)
    }
}

impl IntoKey for &Key {
    fn into_key(self) -> Result<Key, KeyError> {
        Ok(self.clone())
    }
}

impl IntoKey for &str {
    fn into_key(self) -> Result<Key, KeyError> {
        Key::new(self)
    }
}

impl IntoKey for String {
    fn into_key(self) -> Result<Key, KeyError> {
        Key::new(self)
    }
}

impl IntoKey for &String {
    fn into_key(self) -> Result<Key, KeyError> {
        Key::new(self)
    }
}

impl IntoKey for &[u8] {
    fn into_key(self) -> Result<Key, KeyError> {
        Key::new(self)
    }
}

impl IntoKey for Vec<u8> {
    fn into_key(self) -> Result<Key, KeyError> {
        Key::new(self)
    }
}

impl<const N: usize> IntoKey for &[u8; N] {
    fn into_key(self) -> Result<Key, KeyError> {
        Key::new(self)
    }
}

impl<K: IntoKey> From<K> for Request {
    fn from(key: K) -> Self {
        Self::new(key)
    }
}

impl From<&Request> for Request {
    fn from(request: &Request) -> Self {
        request.clone()
    }
}
