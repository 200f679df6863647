//! Bytes that somebody else wrote, or that a disk has changed, taken for a record.
//!
//! A single allocation is limited (`run.sh`): a length that lies must not be believed before its bytes are there.
#![no_main]

mod framed;

use claimdb::Record;
use framed::framed;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    look_at(bytes);
    look_at(&framed(bytes));
});

fn look_at(bytes: &[u8]) {
    let Ok(record) = Record::decode(bytes) else { return };
    let again = record.encode();
    assert_eq!(again, bytes, "two byte strings are one record: {record:?}");
    assert_eq!(Record::decode(&again).as_ref(), Ok(&record), "what was encoded is another record");
    let _ = (record.forgotten_at(), record.kept_until(), format!("{record:?}"));
}
