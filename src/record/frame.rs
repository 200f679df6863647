//! The frame around every stored record.
//!
//! ```text
//! offset  size
//!      0     2  magic, C1 DB
//!      2     1  version of the payload
//!      3     1  zero
//!      4     4  length of the payload, little endian
//!      8     4  CRC-32 of bytes 2..8 and the payload, little endian
//!     12     -  payload
//! ```

use crate::error::Damage;

const MAGIC: [u8; 2] = [0xC1, 0xDB];
const HEADER: usize = 12;

/// Puts the frame around the payload that `write` appends, of which `room` is a guess at the length: a good one spares
/// moving it.
pub(super) fn wrap(version: u8, room: usize, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut framed = Vec::with_capacity(HEADER + room);
    framed.extend_from_slice(&MAGIC);
    framed.extend_from_slice(&[version, 0]);
    framed.resize(HEADER, 0);
    write(&mut framed);
    let length = u32::try_from(framed.len() - HEADER)
        .expect("values are limited to 64 MiB, so a payload is shorter than 4 GiB");
    framed[4..8].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(&framed[2..8], &framed[HEADER..]);
    framed[8..HEADER].copy_from_slice(&checksum.to_le_bytes());
    framed
}

/// Takes the frame off: the version and the payload.
pub(super) fn unwrap(framed: &[u8]) -> Result<(u8, &[u8]), Damage> {
    let not_framed = Damage::NotFramed { length: framed.len() };
    let Some((header, payload)) = framed.split_first_chunk::<HEADER>() else { return Err(not_framed) };
    let [m0, m1, version, reserved, l0, l1, l2, l3, c0, c1, c2, c3] = *header;
    if [m0, m1] != MAGIC {
        return Err(not_framed);
    }
    let length = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
    if length != payload.len() as u64 {
        return Err(Damage::WrongLength { expected: length, found: payload.len() as u64 });
    }
    // Before the version is believed: a flipped bit in it must not read as "written by a later claimdb".
    let (expected, found) = (u32::from_le_bytes([c0, c1, c2, c3]), checksum(&header[2..8], payload));
    if expected != found {
        return Err(Damage::WrongChecksum { expected, found });
    }
    // What it may come to mean is not to be passed over.
    if reserved != 0 {
        return Err(Damage::Content {
            reason: format!("byte 3 of its header is {reserved} and should be 0"),
        });
    }
    Ok((version, payload))
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}
