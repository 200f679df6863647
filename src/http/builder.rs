//! Settings of the layer.

use super::fingerprint::FingerprintBy;
use super::key::{Form, KeySource, Kind, MAX_KEY};
use super::layer::{Config, Counters, Idempotency};
use super::replay::NOT_STORED;
use super::scope::Scope;
use super::tasks::{Spawn, Tasks};
use crate::error::{ClaimError, InvalidSetting};
use crate::record::{Durability, OnInterrupt, Terms};
use crate::store::{MAX_LEASE, Request, Store};
use http::{HeaderName, Method};
use std::sync::Arc;
use std::time::Duration;

/// How long a handler's lease is renewed if that is not set, and its lease is no longer.
const MAX_HOLD: Duration = Duration::from_secs(600);

/// What the `type` of a problem begins with.
const PROBLEM_TYPES: &str = "urn:problem-type:idempotency:";

/// Settings of an [`Idempotency`] layer, and the way to make it. Bounds are looked at when it is built.
#[derive(Debug, Clone)]
#[must_use = "a builder makes a layer once it is built"]
pub struct Builder {
    config: Config,
    terms: Request,
    max_hold: Option<Duration>,
    stripe: bool,
    base: String,
}

/// The settings make no layer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// One is out of bounds.
    #[error("building the idempotency layer: {0}")]
    Invalid(#[from] InvalidSetting),
    /// Two exclude each other.
    #[error("building the idempotency layer: {one} and {other} exclude each other: {why}")]
    Conflict {
        /// One of the two.
        one: &'static str,
        /// The other.
        other: &'static str,
        /// Why not both.
        why: &'static str,
    },
    /// The store does not take claims on these terms.
    #[error("building the idempotency layer: {0}")]
    Terms(#[from] ClaimError),
}

impl Builder {
    pub(super) fn new(store: &Store, scope: Scope, spawn: Arc<dyn Spawn>) -> Self {
        let terms = Request::new("idempotency");
        let config = Config {
            store: store.clone(),
            scope,
            spawn,
            tasks: Arc::new(Tasks::default()),
            counters: Arc::new(Counters::default()),
            terms: terms.clone(),
            methods: vec![Method::POST, Method::PATCH],
            keys: KeySource::header(HeaderName::from_static("idempotency-key")),
            form: Form { strict: false, at_least: 1 },
            required: false,
            fingerprint: FingerprintBy::whole(),
            max_hold: MAX_HOLD,
            max_tasks: 4096,
            request_limit: 1 << 20,
            response_limit: 1 << 20,
            patience: Duration::from_millis(100),
            store_5xx: false,
            fail_open: false,
            marker: HeaderName::from_static("idempotency-replayed"),
            echo: false,
            times: false,
            retry_after_limit: Duration::MAX,
            not_stored: NOT_STORED.into_iter().map(str::to_owned).collect(),
            types: String::new(),
        };
        let base = PROBLEM_TYPES.to_owned();
        Self { config, terms, max_hold: None, stripe: false, base }
    }

    /// The methods that are protected, POST and PATCH if not set. GET, HEAD, OPTIONS, TRACE and CONNECT always pass
    /// through, and may not be among them.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.config.methods = methods.into_iter().collect();
        self
    }

    /// Where keys come from; the header `Idempotency-Key` if not set.
    pub fn key_from(mut self, keys: KeySource) -> Self {
        self.config.keys = keys;
        self
    }

    /// Takes keys in the draft's form alone: a structured-field string, in double quotes. Real clients send bare
    /// ones, which are refused then.
    pub fn strict(mut self) -> Self {
        self.config.form.strict = true;
        self
    }

    /// The fewest characters that a key in a header may have, from 1 to 255, 1 if not set. A UUID has 36: keys that callers
    /// think up are short, and meet.
    pub fn min_key_length(mut self, characters: usize) -> Self {
        self.config.form.at_least = characters;
        self
    }

    /// Refuses requests without a key, with 400. If not set, they pass through unprotected. For some routes alone,
    /// put a layer with this on those.
    pub fn required(mut self) -> Self {
        self.config.required = true;
        self
    }

    /// What of a request a retry has to repeat; [`FingerprintBy::whole`] if not set.
    pub fn fingerprint(mut self, fingerprint: FingerprintBy) -> Self {
        self.config.fingerprint = fingerprint;
        self
    }

    /// As [`Request::lease`]: how long a handler has without a renewal; the store's if not set, 30 s. It is renewed by
    /// itself up to [`max_hold`](Self::max_hold).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.terms = self.terms.lease(lease);
        self
    }

    /// For how long the lease of a running handler is renewed, up to 366 days. At least a lease, which is then not renewed
    /// at all; if not set, 10 minutes, or a lease that is longer. After that a retry runs beside a handler that hangs, as
    /// the next attempt.
    pub fn max_hold(mut self, hold: Duration) -> Self {
        self.max_hold = Some(hold);
        self
    }

    /// As [`Request::retention`]: how long responses are replayed, from their completion; the store's if not set, 24 h.
    /// After it a retry runs anew, as a first request: tell callers.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.terms = self.terms.retention(retention);
        self
    }

    /// As [`Request::wait`]: how long a retry waits for the response of a request that is being worked on before it
    /// is told 409, 24 h at most. It does not, if not set.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.terms = self.terms.wait(wait);
        self
    }

    /// As [`Request::durability`]; [`Durability::Full`] unless the store has another default.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.terms = self.terms.durability(durability);
        self
    }

    /// As [`OnInterrupt::Quarantine`]: a request whose handler ended without an outcome is not run again, and its
    /// retries are told 409 until somebody resolves it.
    pub fn quarantine(mut self) -> Self {
        self.terms = self.terms.on_interrupt(OnInterrupt::Quarantine);
        self
    }

    /// As [`Request::max_attempts`]: after how many attempts that ended without an outcome a request is told 409 until
    /// somebody resolves it. No cap if not set; needs [`Durability::Full`].
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.terms = self.terms.max_attempts(attempts);
        self
    }

    /// How many handlers run at a time for requests with keys, at least 1, 4096 if not set; one more is told 503.
    pub fn max_tasks(mut self, tasks: usize) -> Self {
        self.config.max_tasks = tasks;
        self
    }

    /// The longest body of a request with a key, from 1 byte to 64 MiB, 1 MiB if not set. It is held in memory; a longer one is
    /// told 413. Requests without a key are not buffered.
    pub fn request_limit(mut self, bytes: usize) -> Self {
        self.config.request_limit = bytes;
        self
    }

    /// The longest body of a response that is stored, from 1 byte to 64 MiB, 1 MiB if not set. A longer one, or one that
    /// does not fit into the store ([`value_limit`](crate::Builder::value_limit)), goes to its client, and retries are told
    /// 409 that it was done.
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.config.response_limit = bytes;
        self
    }

    /// How long a response of unknown length may take until its end, at most 60 s, 100 ms if not set. After that it streams
    /// to its client, and retries are told 409 that it was done.
    pub fn stream_after(mut self, patience: Duration) -> Self {
        self.config.patience = patience;
        self
    }

    /// Stores and replays responses with a status of 5xx. If not set, they free the key.
    pub fn store_server_errors(mut self) -> Self {
        self.config.store_5xx = true;
        self
    }

    /// Runs requests without protection while the store cannot be asked, and counts them
    /// ([`Stats::unprotected`](super::Stats::unprotected)). If not set, they are told 503.
    pub fn fail_open(mut self) -> Self {
        self.config.fail_open = true;
        self
    }

    /// The header that marks replays, with the value `true`; `Idempotency-Replayed` if not set.
    pub fn marker(mut self, marker: HeaderName) -> Self {
        self.config.marker = marker;
        self
    }

    /// Gives the key's header back with each response to a request with a key.
    pub fn echo_key(mut self) -> Self {
        self.config.echo = true;
        self
    }

    /// Tells with each replay when the response was stored and when it will be forgotten, as structured-field dates:
    /// `Idempotency-Settled-At: @1735689600` and `Idempotency-Expires-At`.
    pub fn show_times(mut self) -> Self {
        self.config.times = true;
        self
    }

    /// The longest `Retry-After` of a request that is being worked on. If not set it is the rest of that request's
    /// lease, after which the key can be had in any case.
    pub fn retry_after_limit(mut self, limit: Duration) -> Self {
        self.config.retry_after_limit = limit;
        self
    }

    /// Headers that are not stored either. Not stored in any case unless [`store_headers`](Self::store_headers) says
    /// so: `Date`, `Set-Cookie`, headers of the connection and of authentication, rate limits, ids of requests and
    /// traces.
    pub fn do_not_store_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.config.not_stored.extend(names.into_iter().map(|name| name.as_str().to_owned()));
        self
    }

    /// Headers that are stored after all.
    pub fn store_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        for name in names {
            self.config.not_stored.remove(name.as_str());
        }
        self
    }

    /// What the `type` of a problem begins with, before its code; `urn:problem-type:idempotency:` if not set. The
    /// address of your documentation, such as `https://example.com/problems/`.
    pub fn problem_types(mut self, base: impl Into<String>) -> Self {
        self.base = base.into();
        self
    }

    /// As Stripe does it: replays are marked `Idempotent-Replayed`, the key is given back, and responses with a
    /// status of 5xx are stored as well.
    pub fn stripe(mut self) -> Self {
        self.stripe = true;
        self.marker(HeaderName::from_static("idempotent-replayed")).echo_key().store_server_errors()
    }

    /// The layer.
    ///
    /// # Errors
    /// [`BuildError`] if a setting is out of bounds, or two exclude each other.
    pub fn build(self) -> Result<Idempotency, BuildError> {
        self.check_bounds()?;
        let terms = self.config.store.check(&self.terms)?;
        // The lease may be the store's.
        let max_hold = self.max_hold.unwrap_or(MAX_HOLD.max(terms.lease));
        self.check_conflicts(&terms, max_hold)?;
        // Each layer counts by itself, also where builders were cloned.
        let (tasks, counters) = (Arc::default(), Arc::default());
        let config = Config { terms: self.terms, types: self.base, max_hold, tasks, counters, ..self.config };
        Ok(Idempotency::new(config))
    }

    fn check_bounds(&self) -> Result<(), InvalidSetting> {
        let config = &self.config;
        let check = |setting, given: String, fits: bool, allowed| {
            if fits { Ok(()) } else { Err(InvalidSetting { setting, given, allowed }) }
        };
        let never = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT];
        let fits = !config.methods.is_empty() && !config.methods.iter().any(|method| never.contains(method));
        let allowed = "some, and none of GET, HEAD, OPTIONS, TRACE and CONNECT";
        check("methods", format!("{:?}", config.methods), fits, allowed)?;
        let at_least = config.form.at_least;
        let fits = (1..=MAX_KEY).contains(&at_least);
        check("min_key_length", at_least.to_string(), fits, "from 1 to 255 characters")?;
        check("max_tasks", config.max_tasks.to_string(), config.max_tasks > 0, "at least 1")?;
        let most = 64 << 20;
        for (setting, limit) in
            [("request_limit", config.request_limit), ("response_limit", config.response_limit)]
        {
            check(setting, format!("{limit} bytes"), (1..=most).contains(&limit), "from 1 byte to 64 MiB")?;
        }
        let fits = config.patience <= Duration::from_secs(60);
        check("stream_after", format!("{:?}", config.patience), fits, "at most 60 s")?;
        config.fingerprint.check()?;
        let plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
        check("problem_types", self.base.clone(), self.base.chars().all(plain), "the beginning of a URI")?;
        let max_hold = self.max_hold.unwrap_or(MAX_HOLD);
        let fits = (Duration::from_millis(1)..=MAX_LEASE).contains(&max_hold);
        check("max_hold", format!("{max_hold:?}"), fits, "from 1 ms to 366 days")
    }

    fn check_conflicts(&self, terms: &Terms, max_hold: Duration) -> Result<(), BuildError> {
        let config = &self.config;
        let check = |both: bool, one, other, why| {
            if both { Err(BuildError::Conflict { one, other, why }) } else { Ok(()) }
        };
        let (strict, function) = (config.form.strict, !matches!(config.keys.0, Kind::Header(_)));
        let why = "the clients that send no quotes are those that the preset is for";
        check(strict && self.stripe, "strict", "stripe", why)?;
        let why = "only keys from a header have a form";
        check(strict && function, "strict", "key_from a function", why)?;
        check(config.form.at_least > 1 && function, "min_key_length", "key_from a function", why)?;
        let why = "there is no header to give back";
        check(config.echo && function, "echo_key", "key_from a function", why)?;
        let why = "what must not run twice unseen cannot run unprotected";
        let quarantine = terms.on_interrupt == OnInterrupt::Quarantine;
        check(config.fail_open && quarantine, "fail_open", "quarantine", why)?;
        check(config.fail_open && terms.max_attempts.is_some(), "fail_open", "max_attempts", why)?;
        let why = "a handler holds its claim for one lease at least, the store's if the layer sets none";
        check(max_hold < terms.lease, "max_hold", "a longer lease", why)?;
        let why = "a replay would look like a request's key";
        let same = matches!(&config.keys.0, Kind::Header(name) if *name == config.marker);
        check(same, "marker", "key_from the same header", why)
    }
}
