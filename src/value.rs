//! Values: how results become bytes and back.
//!
//! serde through bincode 2 with fixed-width integers. Decoding must use up all bytes: a value that decodes with bytes
//! left over was written as another type.
//!
//! Decoding is bounded by the bytes: no more is read than there is, and for a text or a byte string, whose length
//! bincode believes before it looks, at most 4 KiB or sixteen times as much as there is are reserved; for a list 1 MiB,
//! which is serde's own bound. bincode counts bytes and nothing else, so two things are not bounded. The items of a list
//! that have none, as those of `Vec<()>`, are as many as the list's length says, up to 2^64. And a type that contains
//! itself is decoded as deep as the bytes say, on the stack.

use crate::error::counted;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest limit for encoded values that a store may be given, in bytes.
pub const MAX_VALUE_LIMIT: usize = 64 << 20;

fn config<const LIMIT: usize>() -> bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Fixint,
    bincode::config::Limit<LIMIT>,
> {
    bincode::config::standard().with_fixed_int_encoding().with_limit()
}

/// How much is reserved for what is being encoded: a small receipt is not moved while it grows.
pub(crate) const AT_FIRST: usize = 512;

/// Encodes `value`. The size is checked by whoever stores it: the codec's limit does not bind encoding.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = Vec::with_capacity(AT_FIRST);
    encode_behind(&mut bytes, value)?;
    Ok(bytes)
}

/// Encodes `value` behind what there is in `bytes`.
pub(crate) fn encode_behind<T: Serialize + ?Sized>(
    bytes: &mut Vec<u8>,
    value: &T,
) -> Result<(), EncodeError> {
    bincode::serde::encode_into_std_write(value, bytes, config::<MAX_VALUE_LIMIT>())
        .map(drop)
        .map_err(|error| EncodeError { type_name: std::any::type_name::<T>(), reason: not_encoded(error) })
}

/// Decodes all of `bytes` as a `T`.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let raw = "Store::get and Stored::bytes";
    let fail =
        |reason| DecodeError { type_name: std::any::type_name::<T>(), length: bytes.len(), reason, raw };
    // A limit is a part of bincode's types.
    let decoded = match bytes.len() {
        0..=0x1000 => decode_within::<T, 0x1000>(bytes),
        0x1001..=0x1_0000 => decode_within::<T, 0x1_0000>(bytes),
        0x1_0001..=0x10_0000 => decode_within::<T, 0x10_0000>(bytes),
        0x10_0001..=0x100_0000 => decode_within::<T, 0x100_0000>(bytes),
        _ => decode_within::<T, MAX_VALUE_LIMIT>(bytes),
    };
    let (value, used) = decoded.map_err(|error| fail(not_decoded(error)))?;
    if used == bytes.len() {
        Ok(value)
    } else {
        let left = counted(bytes.len() - used, "byte was", "bytes were");
        Err(fail(format!("{left} left over")))
    }
}

/// Decodes a `T` from the beginning of `bytes` and tells how many it took; none may take more than `LIMIT`.
fn decode_within<T: DeserializeOwned, const LIMIT: usize>(
    bytes: &[u8],
) -> Result<(T, usize), bincode::error::DecodeError> {
    bincode::serde::decode_from_slice(bytes, config::<LIMIT>())
}

/// What bincode says, which shows its errors as Rust code.
fn not_encoded(error: bincode::error::EncodeError) -> String {
    use bincode::error::EncodeError as E;
    match error {
        E::Other(reason) => reason.to_owned(),
        E::OtherString(reason) => reason,
        E::Serde(_) => "a list or a map in it does not know its length beforehand".to_owned(),
        other => other.to_string(),
    }
}

fn not_decoded(error: bincode::error::DecodeError) -> String {
    use bincode::error::DecodeError as E;
    match error {
        E::Other(reason) => reason.to_owned(),
        E::OtherString(reason) => without_value(reason),
        E::UnexpectedEnd { additional: 1 } => "at least 1 more byte would be needed".to_owned(),
        E::UnexpectedEnd { additional } => format!("at least {additional} more bytes would be needed"),
        E::LimitExceeded => "a length in it is more than there are bytes".to_owned(),
        E::InvalidBooleanValue(_) => "a truth value in it is neither 0 nor 1".to_owned(),
        E::UnexpectedVariant { .. } => "a variant in it is none of those that there are".to_owned(),
        E::Utf8 { .. } => "a text in it is not UTF-8".to_owned(),
        E::InvalidCharEncoding(_) => "a character in it is none".to_owned(),
        E::OutsideUsizeRange(_) => "a length in it is more than this machine can count".to_owned(),
        E::Serde(_) => "the type asks the bytes what they are, and they do not say".to_owned(),
        other => other.to_string(),
    }
}

/// What serde finds wrong, without the value that it shows: values do not belong in messages. What a type's own
/// `Deserialize` says is left as it is.
fn without_value(reason: String) -> String {
    let what = ["invalid value", "invalid type", "unknown variant", "unknown field"];
    let Some(what) = what.into_iter().find(|what| reason.starts_with(what)) else { return reason };
    // The last one: the value may say so as well.
    match reason.rsplit_once(", expected ") {
        Some((_, expected)) => format!("{what}, expected {expected}"),
        None => what.to_owned(),
    }
}

/// A value could not be turned into bytes.
#[derive(Debug, Clone, thiserror::Error)]
#[error("a value of type {type_name} could not be encoded: {reason}")]
pub struct EncodeError {
    type_name: &'static str,
    reason: String,
}

/// Stored bytes are not a value of the type asked for.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "the stored value of {} is no {type_name}: {reason}. It was stored as another type, or by \
     another version of that type; get the bytes with {raw}, nothing was run",
    counted(length, "byte", "bytes")
)]
pub struct DecodeError {
    type_name: &'static str,
    length: usize,
    reason: String,
    raw: &'static str,
}

impl DecodeError {
    /// The same with `raw` as what gives the bytes as they are.
    pub(crate) fn of_bytes_from(self, raw: &'static str) -> Self {
        Self { raw, ..self }
    }
}
