//! Bytes that somebody else wrote, or that a disk has changed, taken for a record.
//!
//! A single allocation is limited (`run.sh`): a length that lies must not be believed before its bytes are there.
#![no_main]

use claimdb::Record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    look_at(bytes);
    look_at(&framed(bytes));
});

/// `payload` in a frame that is right, as docs/format.md has it: no fuzzer guesses a checksum.
fn framed(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("inputs are shorter");
    let mut checked = vec![1, 0];
    checked.extend_from_slice(&length.to_le_bytes());
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&checked);
    checksum.update(payload);
    [&[0xC1, 0xDB], &checked[..], &checksum.finalize().to_le_bytes(), payload].concat()
}

fn look_at(bytes: &[u8]) {
    let Ok(record) = Record::decode(bytes) else { return };
    let again = record.encode();
    assert_eq!(again, bytes, "two byte strings are one record: {record:?}");
    assert_eq!(Record::decode(&again).as_ref(), Ok(&record), "what was encoded is another record");
    let _ = (record.forgotten_at(), record.kept_until(), format!("{record:?}"));
}
