//! Values: how results become bytes and back.
//!
//! serde through bincode 2 with fixed-width integers. Decoding is bounded and must use up all bytes: a value that
//! decodes with bytes left over was written as another type.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest limit for encoded values that a store may be given, in bytes.
pub const MAX_VALUE_LIMIT: usize = 64 << 20;

fn config() -> bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Fixint,
    bincode::config::Limit<MAX_VALUE_LIMIT>,
> {
    bincode::config::standard().with_fixed_int_encoding().with_limit()
}

/// Encodes `value`. The size is checked by whoever stores it: the codec's limit does not bind encoding.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, EncodeError> {
    bincode::serde::encode_to_vec(value, config())
        .map_err(|error| EncodeError { type_name: std::any::type_name::<T>(), reason: error.to_string() })
}

/// Decodes all of `bytes` as a `T`.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let fail = |reason| DecodeError { type_name: std::any::type_name::<T>(), length: bytes.len(), reason };
    let (value, used) =
        bincode::serde::decode_from_slice(bytes, config()).map_err(|error| fail(error.to_string()))?;
    if used == bytes.len() {
        Ok(value)
    } else {
        Err(fail(format!("{} bytes were left over", bytes.len() - used)))
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
    "the stored value of {length} bytes is no {type_name}: {reason}. It was stored as another type, or by \
     another version of that type; get the bytes with Store::get and Stored::bytes, nothing was run"
)]
pub struct DecodeError {
    type_name: &'static str,
    length: usize,
    reason: String,
}
