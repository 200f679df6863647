//! A frame around bytes, as docs/format.md has it: no fuzzer guesses a checksum.

/// `payload` in a frame that is right.
pub fn framed(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("inputs are shorter");
    let mut checked = vec![1, 0];
    checked.extend_from_slice(&length.to_le_bytes());
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&checked);
    checksum.update(payload);
    [&[0xC1, 0xDB], &checked[..], &checksum.finalize().to_le_bytes(), payload].concat()
}
