//! Fingerprints of what a JSON body means.

use super::fingerprint::{FingerprintBy, of_whole, query};
use super::key::one_header;
use crate::error::InvalidSetting;
use crate::fingerprint::Fingerprint;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

impl FingerprintBy {
    /// Query and what the body means as JSON: not its blanks, the order of its names or how numbers and characters
    /// are written (`1`, `1.0` and `10e-1` are one number, of any length). A name that is there twice is two entries.
    ///
    /// A body that is not sent as JSON, that is none, or that is nested more than 128 deep, is compared as
    /// [`whole`](Self::whole).
    #[must_use]
    pub fn json() -> Self {
        Self::named("FingerprintBy::json", |request, body| match json_of(request, body).and_then(canonical) {
            Some(canonical) => Fingerprint::of_parts([b"json", query(request), &canonical]),
            None => of_whole(request, body),
        })
    }

    /// What the JSON pointers (RFC 6901) find in the body, as by [`json`](Self::json), and nothing else. What a
    /// pointer does not find differs from everything that it could. A body that is no JSON, or has a field that is nested
    /// more than 128 deep, is compared as [`whole`](Self::whole).
    ///
    /// A pointer is empty, for the whole body, or begins with `/`. What is no pointer makes no layer: building one is
    /// refused.
    #[must_use]
    pub fn json_fields<P: Into<String>>(pointers: impl IntoIterator<Item = P>) -> Self {
        let pointers: Vec<String> = pointers.into_iter().map(Into::into).collect();
        if let Some(given) = pointers.iter().find(|pointer| !is_pointer(pointer)) {
            let (given, allowed) =
                (format!("{given:?}"), "JSON pointers, such as \"/order/amount\" (RFC 6901)");
            return Self(Err(InvalidSetting { setting: "json_fields", given, allowed }));
        }
        Self::named("FingerprintBy::json_fields", move |request, body| {
            let fields = json_of(request, body).and_then(|json| {
                let mut fields = vec![b"fields".to_vec()];
                for pointer in &pointers {
                    let field = find(json, pointer)?;
                    fields.push(field.map_or(Some(Vec::new()), canonical)?);
                }
                Some(fields)
            });
            fields.map_or_else(|| of_whole(request, body), Fingerprint::of_parts)
        })
    }
}

fn json_of<'a>(request: &Parts, body: &'a Bytes) -> Option<&'a RawValue> {
    let content_type = one_header(&request.headers, &CONTENT_TYPE).ok()??;
    let content_type = content_type.to_str().ok()?.to_ascii_lowercase();
    let essence = content_type.split(';').next()?.trim();
    let is_json = essence == "application/json" || essence.ends_with("+json");
    if is_json { serde_json::from_slice(body).ok() } else { None }
}

/// How deep values may be nested: as deep as serde_json reads them. A raw value may be of any depth, and its reader
/// runs out of stack.
const MAX_DEPTH: usize = 128;

/// The canonical form, or `None` if a number has an exponent beyond reason, or values are nested too deep.
fn canonical(json: &RawValue) -> Option<Vec<u8>> {
    let mut form = Vec::new();
    write(json, MAX_DEPTH, &mut form)?;
    Some(form)
}

fn write(json: &RawValue, depth: usize, form: &mut Vec<u8>) -> Option<()> {
    match json.get().as_bytes().first()? {
        b'{' => {
            let inside = depth.checked_sub(1)?;
            let Object(mut entries) = serde_json::from_str(json.get()).ok()?;
            // Stable: entries of one name stay in their order.
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            form.push(b'{');
            for (name, value) in entries {
                write_text(b'"', name.as_bytes(), form);
                write(value, inside, form)?;
            }
            form.push(b'}');
        }
        b'[' => {
            let inside = depth.checked_sub(1)?;
            form.push(b'[');
            for item in serde_json::from_str::<Vec<&RawValue>>(json.get()).ok()? {
                write(item, inside, form)?;
            }
            form.push(b']');
        }
        b'"' => {
            write_text(b'"', serde_json::from_str::<String>(json.get()).ok()?.as_bytes(), form);
        }
        b'-' | b'0'..=b'9' => write_text(b'#', number(json.get())?.as_bytes(), form),
        &literal => form.push(literal),
    }
    Some(())
}

fn write_text(tag: u8, text: &[u8], form: &mut Vec<u8>) {
    form.push(tag);
    form.extend_from_slice(&(text.len() as u64).to_le_bytes());
    form.extend_from_slice(text);
}

/// A number's digits without zeros at either end, and the power of ten that belongs to the last: exact at any length.
fn number(text: &str) -> Option<String> {
    let (sign, text) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let exponent = exponent.parse::<i64>().ok()?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    let exponent = exponent.checked_add(i64::try_from(digits.len() - significant.len()).ok()?)?;
    Some(format!("{sign}{significant}e{exponent}"))
}

/// Whether it is a JSON pointer: empty, or steps that each begin with `/`, in which `~` stands in `~0` and `~1` alone.
fn is_pointer(text: &str) -> bool {
    let escaped = |rest: &str| rest.starts_with(['0', '1']);
    (text.is_empty() || text.starts_with('/')) && text.split('~').skip(1).all(escaped)
}

/// The index that a step of a pointer names: digits, without a zero before others.
fn index(step: &str) -> Option<usize> {
    let digits = step.bytes().all(|byte| byte.is_ascii_digit());
    let plain = digits && (step == "0" || !step.starts_with('0'));
    step.parse().ok().filter(|_| plain)
}

/// What `pointer` finds; the outer `None` if the answer is not plain, because a name on the way is there twice.
fn find<'a>(json: &'a RawValue, pointer: &str) -> Option<Option<&'a RawValue>> {
    let mut found = json;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let next = match found.get().as_bytes().first()? {
            b'{' => {
                let Object(entries) = serde_json::from_str(found.get()).ok()?;
                let mut named = entries.into_iter().filter(|(name, _)| *name == step);
                let first = named.next();
                if named.next().is_some() {
                    return None;
                }
                first.map(|(_, value)| value)
            }
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(found.get()).ok()?;
                index(&step).and_then(|index| items.get(index).copied())
            }
            _ => None,
        };
        let Some(next) = next else { return Some(None) };
        found = next;
    }
    Some(Some(found))
}

/// The entries of an object, all of them, in their order.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Object(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
