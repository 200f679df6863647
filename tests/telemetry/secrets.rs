//! A service in which everything happens, with a subscriber at `TRACE` and a recorder: no key, scope, value, checkpoint,
//! reason, effect or fingerprint shows in what is logged, measured, told as an error or shown by `Debug`.

use crate::captured;
use crate::http_world::Seen;
use crate::service::{play_damage, play_faults, play_http, play_sled, play_store};
use claimdb::Fingerprint;
use metrics_exporter_prometheus::PrometheusBuilder;
use std::error::Error;
use std::fmt::Debug;

pub const KEY: &str = "jane.doe-4711";
pub const SCOPE: &str = "acme-tenant-0815";
pub const VALUE: &str = "4000-0000-0000-0002";
pub const PROGRESS: &str = "half-of-it-1337";
pub const REASON: &str = "card-was-stolen-99";
pub const EFFECT: &str = "balance-of-jane-42";

pub fn fingerprint() -> Fingerprint {
    Fingerprint::of_bytes(VALUE)
}

/// What was shown to anybody, and by what.
#[derive(Default)]
pub struct Shown(pub Vec<(String, String)>);

impl Shown {
    pub fn debug(&mut self, what: &str, value: &impl Debug) {
        self.0.push((format!("Debug of {what}"), format!("{value:?} {value:#?}")));
    }

    pub fn error(&mut self, what: &str, error: &(dyn Error + 'static)) {
        let mut source = Some(error);
        while let Some(error) = source {
            self.0.push((format!("the error of {what}"), format!("{error} {error:?} {error:#?}")));
            source = error.source();
        }
    }

    pub fn told<T: Debug, E: Error + 'static>(&mut self, what: &str, told: Result<T, E>) -> Option<T> {
        self.debug(what, &told);
        match told {
            Ok(told) => Some(told),
            Err(error) => {
                self.error(what, &error);
                None
            }
        }
    }

    /// What a client was told that was not the handler's own response.
    pub fn problem(&mut self, what: &str, seen: &Seen) {
        assert!(!seen.code().is_empty(), "{what}: it is a response of the handler's: {seen:?}");
        self.0.push((format!("the problem of {what}"), format!("{:?} {}", seen.head, seen.text())));
    }
}

fn base64(bytes: &[u8], last: &[u8; 2]) -> String {
    let digits: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').chain(*last).collect();
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    // Only whole digits: what follows the bytes is not known.
    let whole = bits.as_bytes().chunks_exact(6).map(|chunk| std::str::from_utf8(chunk).unwrap());
    whole.map(|chunk| char::from(digits[usize::from_str_radix(chunk, 2).unwrap()])).collect()
}

/// How bytes may show.
fn forms(secret: &[u8]) -> Vec<String> {
    let list = |separator: &str| secret.iter().map(u8::to_string).collect::<Vec<_>>().join(separator);
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![hex.to_uppercase(), hex, list(", "), list(","), list(" ")];
    // As `{:02x?}` has it.
    forms.push(secret.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(", "));
    forms.push(secret.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "));
    // `{:#?}` of bytes has a line for each.
    forms.push(secret.iter().map(|byte| format!("\n{byte},")).collect());
    forms.push(secret.escape_ascii().to_string());
    if let Ok(text) = std::str::from_utf8(secret) {
        forms.push(text.to_owned());
    }
    // Wherever it begins in what is encoded.
    for skip in 0..3 {
        for last in [b"+/", b"-_"] {
            forms.push(base64(&secret[skip..], last));
        }
    }
    // Taken for numbers.
    let of = |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0)));
    forms.extend(secret.windows(4).map(|bytes| format!("{}", of(bytes))));
    forms.extend(secret.windows(8).map(|bytes| format!("{}", of(bytes))));
    forms
}

fn secrets() -> Vec<(&'static str, Vec<u8>)> {
    let mut secrets: Vec<_> = [
        ("key", KEY),
        ("scope", SCOPE),
        ("value", VALUE),
        ("checkpoint", PROGRESS),
        ("reason", REASON),
        ("effect", EFFECT),
    ]
    .map(|(what, text)| (what, text.as_bytes().to_vec()))
    .into();
    for (what, bytes) in [("value", VALUE), ("key", KEY)] {
        let hash = Fingerprint::of_bytes(bytes);
        secrets.push((
            if what == "value" { "fingerprint" } else { "hash of the key" },
            hash.as_bytes().to_vec(),
        ));
    }
    secrets
}

/// The secrets that `text` gives away, and how.
fn found_in(text: &str) -> Vec<String> {
    let squeezed = text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (what, secret) in secrets() {
        for form in forms(&secret) {
            if text.contains(&form) || squeezed.contains(&form) {
                found.push(format!("the {what} as {form:?}"));
            }
        }
    }
    found
}

#[test]
fn secrets_are_found_where_they_are() {
    let key = [b"\x01\x10acme-tenant-0815", KEY.as_bytes()].concat();
    let encoded = base64(&[&key[..], b"and more"].concat(), b"+/");
    for shown in [
        format!("{KEY:?}"),
        format!("{:?}", KEY.as_bytes()),
        format!("{:#?}", KEY.as_bytes()),
        format!("{:02x?}", KEY.as_bytes()).replace(", ", " "),
        encoded,
        format!("integer `{}`, expected variant index", u32::from_le_bytes(*b"jane")),
    ] {
        assert!(!found_in(&shown).is_empty(), "{shown} was taken for harmless");
    }
    assert_eq!(found_in("claim{store=\"default\" key=key#0123456789ab token=1820000000000000}"), [""; 0]);
}

#[test]
fn nothing_that_is_logged_measured_or_told_gives_a_secret_away() {
    captured::capture();
    let recorder = PrometheusBuilder::new().build_recorder();
    let mut shown = Shown::default();
    metrics::with_local_recorder(&recorder, || {
        play_store(&mut shown);
        play_faults(&mut shown);
        play_damage(&mut shown);
        play_http(&mut shown);
        play_sled(&mut shown);
    });
    let page = recorder.handle().render();
    assert!(
        page.len() > 4000 && page.contains("claimdb_claims_total{store=\"http\",outcome=\"settled\"}"),
        "{page}"
    );
    shown.0.push(("the metrics".to_owned(), page));
    let lines = captured::lines();
    let ours: Vec<_> = lines.iter().filter(|line| line.contains(" claimdb")).collect();
    for word in [
        "open{",
        "claim{",
        "settle{",
        "sync{",
        "sweep{",
        "ERROR",
        "WARN",
        "damaged",
        "outlived",
        "refused to",
    ] {
        assert!(ours.iter().any(|line| line.contains(word)), "nothing that is logged has {word}");
    }
    // sled logs its keys and pages by itself, and the documentation says what to do about that.
    let trace_of_sled = |line: &&String| line.starts_with("TRACE") && line.contains(": sled::");
    let (of_sled, others): (Vec<_>, Vec<_>) = lines.iter().partition(trace_of_sled);
    assert!(
        of_sled.iter().any(|line| !found_in(line).is_empty()),
        "sled logs no keys any more: docs/telemetry.md says so"
    );
    assert!(others.len() > 300, "only {} lines were logged", others.len());
    for line in others {
        shown.0.push(("the log".to_owned(), line.clone()));
    }
    assert!(shown.0.len() > 500, "only {} texts were looked at", shown.0.len());
    for (what, text) in &shown.0 {
        let found = found_in(text);
        assert!(
            found.is_empty(),
            "no key, value or fingerprint belongs in {what}: it shows {found:?}: {text}"
        );
    }
}
