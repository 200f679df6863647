//! The canonical form of a value, version 1: typed, self-delimiting, and the same for values of one meaning.
//!
//! ```text
//! 00        the end of a list or a map
//! 01        null            02 false            03 true
//! 04        a number that is no integer of the next two: f64 (8), little endian
//! 05        text: length (8), little endian, and UTF-8
//! 06        a list: its items, and the end
//! 07        a map: key, value, key, value, ..., sorted by the bytes of the keys, and the end
//! 10 + n    an integer from 0 on: its n bytes, little endian, the last of them not zero; n from 0 to 16
//! 30 + n    a negative integer: the n bytes of its magnitude in the same way
//! ```
//!
//! Why these types and no others is told in `docs/decisions/canonical-fingerprints.md`. Records hold hashes of this
//! form, so it is frozen: another one is another version.

use serde::ser::{self, Serialize};
use std::fmt;
use std::ops::Range;

const END: u8 = 0x00;
const NULL: u8 = 0x01;
const FALSE: u8 = 0x02;
const TRUE: u8 = 0x03;
const FLOAT: u8 = 0x04;
const TEXT: u8 = 0x05;
const LIST: u8 = 0x06;
const MAP: u8 = 0x07;
const INTEGER: u8 = 0x10;
const NEGATIVE: u8 = 0x30;

/// The bytes of a text's length.
const LENGTH: usize = 8;
/// How deep lists, maps, options and newtypes may lie in each other; what is deeper could use up the stack. JSON is
/// parsed to half of it.
const MAX_DEPTH: usize = 256;

/// The form, as it is written.
#[derive(Debug, Default)]
pub(super) struct Form {
    bytes: Vec<u8>,
    depth: usize,
}

/// Why a value has no form.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) reason: String,
}

impl Refused {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Refused {}

impl ser::Error for Refused {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
}

impl Form {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn tag(&mut self, tag: u8) {
        self.bytes.push(tag);
    }

    pub(super) fn null(&mut self) {
        self.tag(NULL);
    }

    pub(super) fn truth(&mut self, value: bool) {
        self.tag(if value { TRUE } else { FALSE });
    }

    pub(super) fn text(&mut self, text: &str) {
        self.tag(TEXT);
        self.bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn integer(&mut self, negative: bool, magnitude: u128) {
        let bytes = magnitude.to_le_bytes();
        // From 0 to 16, so the tag does not overflow.
        let length = bytes.len() - (magnitude.leading_zeros() / 8) as usize;
        self.tag(if negative { NEGATIVE } else { INTEGER } + length as u8);
        self.bytes.extend_from_slice(&bytes[..length]);
    }

    pub(super) fn float(&mut self, value: f64) {
        /// 2^128, the first number beyond the integers.
        const BEYOND: f64 = u128::MAX as f64;
        /// One of the many NaNs stands for all.
        const NAN: u64 = 0x7FF8_0000_0000_0000;
        if value.fract() == 0.0 && value.abs() < BEYOND {
            self.integer(value < 0.0, value.abs() as u128);
        } else {
            let bits = if value.is_nan() { NAN } else { value.to_bits() };
            self.tag(FLOAT);
            self.bytes.extend_from_slice(&bits.to_le_bytes());
        }
    }

    /// Takes the map back that ends here and holds one text, at `value`, and puts the number in its place.
    pub(super) fn unwrap_json_number(&mut self, map: usize, value: usize) -> Result<(), Refused> {
        let text = match self.bytes.get(value..) {
            Some([TEXT, rest @ ..]) => {
                String::from_utf8_lossy(rest.get(LENGTH..).unwrap_or_default()).into_owned()
            }
            _ => return Err(Refused::new("it names a JSON number that is no text")),
        };
        self.depth -= 1;
        self.bytes.truncate(map);
        self.json_number(&text)
    }

    /// A number as JSON writes it. One that an `f64` would round is refused: two such could be taken for one.
    fn json_number(&mut self, text: &str) -> Result<(), Refused> {
        if let Ok(value) = text.parse::<i128>() {
            self.integer(value < 0, value.unsigned_abs());
            return Ok(());
        }
        if let Ok(value) = text.parse::<u128>() {
            self.integer(false, value);
            return Ok(());
        }
        // Rust writes the fewest digits that mean this very f64.
        match text.parse::<f64>() {
            Ok(value) if digits(text) == digits(&format!("{value:e}")) => {
                self.float(value);
                Ok(())
            }
            _ => Err(Refused::new("a JSON number has more digits than a f64 keeps")),
        }
    }

    fn enter(&mut self, tag: u8) -> Result<(), Refused> {
        self.deeper()?;
        self.tag(tag);
        Ok(())
    }

    fn deeper(&mut self) -> Result<(), Refused> {
        if self.depth == MAX_DEPTH {
            let reason = format!("its lists, maps, options and newtypes lie more than {MAX_DEPTH} deep");
            return Err(Refused::new(reason));
        }
        self.depth += 1;
        Ok(())
    }

    /// What stands for itself and for what it is wrapped in. The wrapping leaves nothing but its depth.
    pub(super) fn wrapped<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        self.deeper()?;
        value.serialize(&mut *self)?;
        self.depth -= 1;
        Ok(())
    }

    pub(super) fn begin_list(&mut self) -> Result<(), Refused> {
        self.enter(LIST)
    }

    pub(super) fn begin_map(&mut self) -> Result<(), Refused> {
        self.enter(MAP)
    }

    /// Ends the list or map that was begun last.
    pub(super) fn end(&mut self) {
        self.depth -= 1;
        self.tag(END);
    }

    pub(super) fn position(&self) -> usize {
        self.bytes.len()
    }

    /// Sorts the entries of the map that ends here. Each begins at its key, and has its value where it says.
    pub(super) fn sort(&mut self, entries: &[(usize, usize)]) -> Result<(), Refused> {
        let Some(&(start, _)) = entries.first() else { return Ok(()) };
        let ends = entries[1..].iter().map(|&(next, _)| next).chain([self.bytes.len()]);
        let mut sorted: Vec<_> =
            entries.iter().zip(ends).map(|(&(key, value), end)| (key..value, key..end)).collect();
        let key = |entry: &(Range<usize>, Range<usize>)| &self.bytes[entry.0.clone()];
        sorted.sort_by(|one, other| key(one).cmp(key(other)));
        if sorted.windows(2).any(|two| key(&two[0]) == key(&two[1])) {
            return Err(Refused::new("a map in it has one key twice"));
        }
        let bytes: Vec<u8> =
            sorted.iter().flat_map(|(_, entry)| &self.bytes[entry.clone()]).copied().collect();
        self.bytes.truncate(start);
        self.bytes.extend_from_slice(&bytes);
        Ok(())
    }
}

/// The digits of a decimal number, without the zeros at both ends.
fn digits(text: &str) -> String {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').to_owned()
}
