//! The bytes of records: version 1 is held by golden files, and no damage is taken for a record.
#![cfg(not(loom))] // nothing here has threads
#![allow(clippy::unwrap_used)] // helpers of tests are tests
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // a test of how long something takes

use claimdb::{
    Damage, Durability, EndedBy, Fingerprint, Kept, Omission, OnInterrupt, Previous, Record, State, Terms,
    Token, WallTime,
};
use proptest::prelude::*;
use std::path::Path;
use std::time::{Duration, Instant};

const HEADER: usize = 12;

/// The records behind the files in `tests/golden`, which stay as they are for as long as version 1 is read.
fn golden() -> [(&'static str, Record); 5] {
    let fingerprint = Fingerprint::new(std::array::from_fn(|n| u8::try_from(n).unwrap() + 1));
    let base = Record {
        token: Token::new(0x0006_7748_5800_0001),
        attempt: 1,
        fingerprint: Some(fingerprint),
        terms: Terms {
            lease: Duration::from_secs(30),
            retention: Duration::from_secs(86_400),
            durability: Durability::Full,
            on_interrupt: OnInterrupt::Rerun,
            max_attempts: None,
        },
        claimed_at: WallTime::from_unix_millis(1_735_689_600_123),
        state: State::Pending { previous: None, checkpoint: None },
    };
    let at = WallTime::from_unix_millis(1_735_689_605_456);
    let settled = |result, by_hand| State::Settled { result, at, by_hand };
    let previous = |ended_by| Some(Previous { token: Token::new(0x0006_7748_57FF_FFFF), ended_by });
    [
        (
            "pending",
            Record {
                attempt: 3,
                terms: Terms { max_attempts: Some(5), ..base.terms },
                state: State::Pending {
                    previous: previous(EndedBy::Reopened),
                    checkpoint: Some(b"page 7".to_vec()),
                },
                ..base.clone()
            },
        ),
        (
            "interrupted",
            Record {
                attempt: 2,
                terms: Terms { on_interrupt: OnInterrupt::Quarantine, ..base.terms },
                state: State::Interrupted { ended_by: EndedBy::Dropped, checkpoint: Some(vec![0, 255]) },
                ..base.clone()
            },
        ),
        (
            "completed",
            Record {
                terms: Terms { durability: Durability::Result, ..base.terms },
                state: settled(Kept::Completed(b"\x09\0\0\0\0\0\0\0receipt 7".to_vec()), false),
                ..base.clone()
            },
        ),
        (
            "failed",
            Record {
                fingerprint: None,
                terms: Terms { durability: Durability::Relaxed, ..base.terms },
                state: settled(Kept::Failed(b"declined".to_vec()), true),
                ..base.clone()
            },
        ),
        ("omitted", Record { state: settled(Kept::Omitted(Omission::TooLarge), false), ..base }),
    ]
}

fn golden_bytes(name: &str) -> Vec<u8> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("record_v1_{name}.hex"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn as_hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    bytes.chunks(16).map(|chunk| line(chunk) + "\n").collect()
}

#[test]
fn golden_records_are_read_and_written_as_they_are() {
    for (name, record) in golden() {
        let bytes = golden_bytes(name);
        assert_eq!(Record::decode(&bytes).as_ref(), Ok(&record), "{name} is read as something else");
        assert_eq!(as_hex(&record.encode()), as_hex(&bytes), "{name} is written as something else");
    }
}

#[test]
fn the_frame_is_as_it_is_documented() {
    for (name, _) in golden() {
        let bytes = golden_bytes(name);
        assert_eq!(bytes[..4], [0xC1, 0xDB, 1, 0]);
        let payload = &bytes[HEADER..];
        assert_eq!(bytes[4..8], u32::try_from(payload.len()).unwrap().to_le_bytes());
        let checked = [&bytes[2..8], payload].concat();
        assert_eq!(bytes[8..12], crc32fast::hash(&checked).to_le_bytes());
    }
}

/// The bytes of a frame with this version and payload, and the checksum that belongs to them.
fn framed(version: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let checked = [&[version, 0], &length[..], payload].concat();
    let checksum = crc32fast::hash(&checked).to_le_bytes();
    [&[0xC1, 0xDB], &checked[..6], &checksum[..], payload].concat()
}

#[test]
fn a_header_that_says_more_than_this_build_knows_is_refused() {
    let payload = &golden()[0].1.encode()[HEADER..];
    let mut bytes = framed(1, payload);
    bytes[3] = 1;
    let checked = [&bytes[2..8], payload].concat();
    bytes[8..12].copy_from_slice(&crc32fast::hash(&checked).to_le_bytes());
    assert!(matches!(Record::decode(&bytes), Err(Damage::Content { .. })));
}

#[test]
fn a_version_that_is_not_known_is_said_and_not_guessed() {
    for (_, record) in golden() {
        let payload = &record.encode()[HEADER..];
        assert_eq!(Record::decode(&framed(1, payload)), Ok(record), "the test frames as claimdb does");
        for version in (0..=255).filter(|version| *version != 1) {
            let told = Record::decode(&framed(version, payload));
            assert_eq!(told, Err(Damage::UnknownVersion { version, newest: 1 }));
        }
    }
}

#[test]
fn a_length_inside_that_is_not_true_is_refused_at_once() {
    let record = |state| Record { state, ..golden()[0].1.clone() };
    let mark = b"here are the bytes";
    let at = WallTime::from_unix_millis(0);
    let settled = |result| State::Settled { result, at, by_hand: false };
    let states = [
        State::Pending { previous: None, checkpoint: Some(mark.to_vec()) },
        State::Interrupted { ended_by: EndedBy::LeaseOver, checkpoint: Some(mark.to_vec()) },
        settled(Kept::Completed(mark.to_vec())),
        settled(Kept::Failed(mark.to_vec())),
    ];
    let start = Instant::now();
    for state in states {
        let payload = record(state).encode()[HEADER..].to_vec();
        let found = payload.windows(mark.len()).position(|window| window == mark).unwrap();
        let length = found - 8..found;
        assert_eq!(payload[length.clone()], (mark.len() as u64).to_le_bytes());
        let true_length = mark.len() as u64;
        let bombs =
            [true_length + 1, true_length - 1, 0, 1 << 20, 64 << 20, 1 << 32, 1 << 40, 1 << 63, u64::MAX];
        for bomb in bombs {
            let mut payload = payload.clone();
            payload[length.clone()].copy_from_slice(&bomb.to_le_bytes());
            let told = Record::decode(&framed(1, &payload));
            assert!(matches!(told, Err(Damage::Content { .. })), "a length of {bomb} was believed: {told:?}");
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10), "it took {:?}", start.elapsed());
}

#[test]
fn every_byte_of_a_payload_may_be_anything_without_a_panic() {
    for (_, record) in golden() {
        let payload = record.encode()[HEADER..].to_vec();
        for at in 0..payload.len() {
            for byte in [0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF] {
                let mut payload = payload.clone();
                payload[at] = byte;
                // With a checksum that is right: what is read must be what would be written.
                let bytes = framed(1, &payload);
                if let Ok(read) = Record::decode(&bytes) {
                    assert_eq!(read.encode(), bytes, "two spellings of one record");
                }
            }
        }
    }
}

fn durations() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_millis)
}

fn ended_by() -> impl Strategy<Value = EndedBy> {
    prop::sample::select(vec![EndedBy::LeaseOver, EndedBy::Dropped, EndedBy::Reopened])
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..100)
}

fn results() -> impl Strategy<Value = Kept> {
    let omissions = vec![Omission::TooLarge, Omission::NotEncodable, Omission::OnPurpose];
    prop_oneof![
        bytes().prop_map(Kept::Completed),
        bytes().prop_map(Kept::Failed),
        prop::sample::select(omissions).prop_map(Kept::Omitted),
    ]
}

fn states() -> impl Strategy<Value = State> {
    let previous = (any::<u64>(), ended_by())
        .prop_map(|(token, ended_by)| Previous { token: Token::new(token), ended_by });
    prop_oneof![
        (prop::option::of(previous), prop::option::of(bytes()))
            .prop_map(|(previous, checkpoint)| State::Pending { previous, checkpoint }),
        (ended_by(), prop::option::of(bytes()))
            .prop_map(|(ended_by, checkpoint)| State::Interrupted { ended_by, checkpoint }),
        (results(), any::<u64>(), any::<bool>()).prop_map(|(result, at, by_hand)| State::Settled {
            result,
            at: WallTime::from_unix_millis(at),
            by_hand
        }),
    ]
}

fn records() -> impl Strategy<Value = Record> {
    let terms = (
        durations(),
        durations(),
        prop::sample::select(vec![Durability::Full, Durability::Result, Durability::Relaxed]),
        prop::sample::select(vec![OnInterrupt::Rerun, OnInterrupt::Quarantine]),
        any::<Option<u32>>(),
    )
        .prop_map(|(lease, retention, durability, on_interrupt, max_attempts)| Terms {
            lease,
            retention,
            durability,
            on_interrupt,
            max_attempts,
        });
    (any::<u64>(), any::<u32>(), any::<Option<[u8; 32]>>(), terms, any::<u64>(), states()).prop_map(
        |(token, attempt, fingerprint, terms, claimed_at, state)| Record {
            token: Token::new(token),
            attempt,
            fingerprint: fingerprint.map(Fingerprint::new),
            terms,
            claimed_at: WallTime::from_unix_millis(claimed_at),
            state,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_record_comes_back_as_it_was(record in records()) {
        prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn a_flipped_bit_is_always_found(record in records()) {
        let mut bytes = record.encode();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Record::decode(&bytes).is_err(), "bit {} was flipped", bit);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_cut_is_always_found(record in records()) {
        let bytes = record.encode();
        for length in 0..bytes.len() {
            prop_assert!(Record::decode(&bytes[..length]).is_err(), "cut to {} bytes", length);
        }
    }

    #[test]
    fn appended_bytes_are_refused(record in records(), more in prop::collection::vec(any::<u8>(), 1..50)) {
        let bytes = record.encode();
        let longer = [&bytes[..], &more].concat();
        let told = Record::decode(&longer);
        prop_assert!(matches!(told, Err(Damage::WrongLength { .. })), "{:?}", told);
        // In the frame as well, with a checksum that is right.
        let longer = framed(1, &longer[HEADER..]);
        let told = Record::decode(&longer);
        prop_assert!(matches!(told, Err(Damage::Content { .. })), "{:?}", told);
    }

    #[test]
    fn noise_is_never_a_record(noise in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Record::decode(&noise).is_err());
        // Behind a right checksum it may spell a record by chance, and then one that is written like this.
        let bytes = framed(1, &noise);
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert_eq!(record.encode(), bytes);
        }
    }
}

#[test]
fn a_value_of_the_greatest_size_comes_back() {
    let state = State::Settled {
        result: Kept::Completed(vec![7; claimdb::MAX_VALUE_LIMIT]),
        at: WallTime::from_unix_millis(0),
        by_hand: false,
    };
    let record = Record { state, ..golden()[0].1.clone() };
    assert!(Record::decode(&record.encode()) == Ok(record));
}

#[test]
fn a_value_that_no_store_accepts_is_not_believed() {
    let state = State::Pending { previous: None, checkpoint: Some(vec![7; claimdb::MAX_VALUE_LIMIT + 5000]) };
    let record = Record { state, ..golden()[0].1.clone() };
    assert!(matches!(Record::decode(&record.encode()), Err(Damage::Content { .. })));
}

#[test]
fn a_record_is_written_without_being_moved() {
    for (name, record) in golden() {
        let written = allocation_counter::measure(|| drop(record.encode()));
        assert_eq!(written.count_total, 1, "{name}: {written:?}");
        assert!(written.bytes_max <= 300, "{name} takes more room than it needs: {written:?}");
    }
}

#[test]
fn debug_shows_how_a_record_stands_and_no_bytes_of_it() {
    let shown: Vec<_> = golden().iter().map(|(_, record)| format!("{:?}", record.state)).collect();
    assert_eq!(
        shown,
        [
            "Pending { previous: Some(Previous { token: Token(1820002458009599), ended_by: Reopened }), checkpoint: Some(6 bytes) }",
            "Interrupted { ended_by: Dropped, checkpoint: Some(2 bytes) }",
            "Settled { result: Completed(17 bytes), at: WallTime(1735689605456), by_hand: false }",
            "Settled { result: Failed(8 bytes), at: WallTime(1735689605456), by_hand: true }",
            "Settled { result: Omitted(TooLarge), at: WallTime(1735689605456), by_hand: false }",
        ]
    );
}
