//! JSON pointers (RFC 6901), and what one finds in a line.
//!
//! What is found is kept as it was written, never as a number of the machine, so that no two keys are rounded into
//! one. Each level of the document is passed over once; nothing but the way to the key is built.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::str::FromStr;

/// A parsed pointer.
#[derive(Debug, Clone)]
pub(super) struct Pointer {
    text: String,
    steps: Vec<String>,
}

/// What can be a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scalar<'a> {
    String(String),
    /// As it was written.
    Number(&'a str),
    Boolean(bool),
}

impl FromStr for Pointer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut steps = Vec::new();
        if !text.is_empty() {
            let path = text.strip_prefix('/').ok_or_else(|| {
                format!("a JSON pointer begins with a slash, as in /{text}; the empty one is the whole line")
            })?;
            for step in path.split('/') {
                steps.push(unescape(step)?);
            }
        }
        Ok(Self { text: text.to_owned(), steps })
    }
}

fn unescape(step: &str) -> Result<String, String> {
    let mut parts = step.split('~');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (escaped, rest) = match (part.strip_prefix('0'), part.strip_prefix('1')) {
            (Some(rest), _) => ('~', rest),
            (_, Some(rest)) => ('/', rest),
            _ => return Err("in a JSON pointer ~ is written ~0, and / within a name ~1".to_owned()),
        };
        plain.push(escaped);
        plain.push_str(rest);
    }
    Ok(plain)
}

impl Pointer {
    /// The pointer as it was given. It has only one spelling, so it names what it points at.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The key that this pointer finds in `line`, or why there is none.
    pub(super) fn find<'a>(&self, line: &'a [u8]) -> Result<Scalar<'a>, String> {
        if line.is_empty() {
            return Err("the line is empty, and not JSON".to_owned());
        }
        let document: &RawValue = serde_json::from_slice(line).map_err(|error| not_json(&error))?;
        let mut found = document.get();
        for (depth, step) in self.steps.iter().enumerate() {
            found = match found.as_bytes().first() {
                Some(b'{') => child(found, |json| json.deserialize_map(Child(step)))?,
                Some(b'[') => child(found, |json| json.deserialize_seq(Child(step)))?,
                _ => None,
            }
            .ok_or_else(|| self.absent(depth))?;
        }
        self.scalar(found)
    }

    fn scalar<'a>(&self, found: &'a str) -> Result<Scalar<'a>, String> {
        let place = if self.text.is_empty() { "the line" } else { &self.text };
        let no_key = |what| Err(format!("{place} is {what}; a key is a string, a number or a boolean"));
        match found.as_bytes().first() {
            Some(b'"') => match serde_json::from_str(found) {
                Ok(string) => Ok(Scalar::String(string)),
                Err(error) => Err(not_json(&error)),
            },
            Some(b't') => Ok(Scalar::Boolean(true)),
            Some(b'f') => Ok(Scalar::Boolean(false)),
            Some(b'n') => no_key("null"),
            Some(b'{') => no_key("an object"),
            Some(b'[') => no_key("an array"),
            _ => Ok(Scalar::Number(found)),
        }
    }

    fn absent(&self, depth: usize) -> String {
        let step = &self.steps[depth];
        if self.steps.len() == 1 {
            return format!("there is nothing at {}", self.text);
        }
        format!("there is nothing at {}: {step:?} is missing (step {})", self.text, depth + 1)
    }
}

/// serde_json names a line of its own, which is always the first.
fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let reason = match text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]) {
        "expected ident" => "a word that is none of true, false and null",
        "key must be a string" => "a name is to be text in double quotes",
        reason => reason,
    };
    format!("not JSON: {reason} (column {})", error.column())
}

fn child<'a>(
    json: &'a str,
    read: impl FnOnce(&mut serde_json::Deserializer<serde_json::de::StrRead<'a>>) -> serde_json::Result<Found<'a>>,
) -> Result<Found<'a>, String> {
    read(&mut serde_json::Deserializer::from_str(json)).map_err(|error| not_json(&error))
}

type Found<'a> = Option<&'a str>;

/// Finds the child of an object or array that a step names.
struct Child<'s>(&'s str);

impl<'de> Visitor<'de> for Child<'_> {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found<'de>, A::Error> {
        let mut found = None;
        while let Some(named) = map.next_key_seed(Named(self.0))? {
            if named {
                found = Some(map.next_value::<&RawValue>()?.get());
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Found<'de>, A::Error> {
        // RFC 6901: no sign, no leading zero; `-`, the item behind the last, is never there.
        let digits = !self.0.is_empty() && self.0.bytes().all(|byte| byte.is_ascii_digit());
        let plain = digits && (self.0 == "0" || !self.0.starts_with('0'));
        let wanted = if plain { self.0.parse::<usize>().ok() } else { None };
        let mut found = None;
        let mut index = 0;
        while let Some(item) = items.next_element::<&RawValue>()? {
            if Some(index) == wanted {
                found = Some(item.get());
            }
            index += 1;
        }
        Ok(found)
    }
}

/// Whether an object's name is the wanted one.
struct Named<'s>(&'s str);

impl<'de> DeserializeSeed<'de> for Named<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<bool, D::Error> {
        name.deserialize_str(self)
    }
}

impl Visitor<'_> for Named<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}
