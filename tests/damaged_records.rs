//! Stored bytes that are no record: whoever meets them is told, nothing is granted, and they stay as they are unless
//! they are removed by force.
#![cfg(not(loom))] // the support code plays faults on real threads
#![allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::unwrap_used)] // tests play the caller

#[path = "support/faults.rs"]
#[allow(dead_code)] // each test file uses a part
mod faults;

use claimdb::{
    AdminError, ClaimError, Damage, Durability, EndedBy, Fault, Kept, ManualClock, Omission, OnInterrupt,
    OpenError, Outcome, Record, Request, Resolution, State, Store, Terms, Token, WallTime,
};
use faults::Faulty;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// The key of the damaged record, which no message may show.
const NAME: &str = "secret-canary";
/// What precedes the name under which a record of the empty scope is stored.
const CLAIMS: [u8; 2] = [1, 0];
const CEILING: &[u8] = b"\x00token-ceiling";

fn encoded(name: &str) -> Vec<u8> {
    [&CLAIMS[..], name.as_bytes()].concat()
}

fn open(faulty: &Faulty) -> Result<Store, OpenError> {
    Store::builder(faulty.clone()).clock(ManualClock::new()).lock_wait(Duration::ZERO).open()
}

/// A place in which a store has been: it has a ceiling, and a good record before and behind where the bad one goes.
fn place() -> Faulty {
    let faulty = Faulty::new();
    let store = open(&faulty).unwrap();
    for name in ["before", "then"] {
        store.claim(name).unwrap().granted().unwrap().complete("good").unwrap();
    }
    store.close().unwrap();
    faulty
}

fn record(token: u64, state: State) -> Record {
    let terms = Terms {
        lease: Duration::from_secs(30),
        retention: HOUR,
        durability: Durability::Full,
        on_interrupt: OnInterrupt::Rerun,
        max_attempts: None,
    };
    let claimed_at = WallTime::from_unix_millis(1_735_689_600_000);
    Record { token: Token::new(token), attempt: 1, fingerprint: None, terms, claimed_at, state }
}

fn states() -> [State; 4] {
    let settled =
        |result| State::Settled { result, at: WallTime::from_unix_millis(1_735_689_600_000), by_hand: false };
    [
        State::Pending { previous: None, checkpoint: None },
        State::Interrupted { ended_by: EndedBy::Dropped, checkpoint: None },
        settled(Kept::Completed(b"value-canary".to_vec())),
        settled(Kept::Omitted(Omission::OnPurpose)),
    ]
}

/// The bytes of a frame with this version and payload, and the checksum that belongs to them.
fn framed(version: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let checked = [&[version, 0], &length[..], payload].concat();
    let checksum = crc32fast::hash(&checked).to_le_bytes();
    [&[0xC1, 0xDB], &checked[..6], &checksum[..], payload].concat()
}

/// Checks a message: what was tried, on which key, what is wrong; and neither the key itself nor a value.
fn check_message(error: &impl std::error::Error, doing: &str, damage: &Damage) {
    let text = error.to_string();
    for part in [doing, "key#", &damage.to_string()] {
        assert!(text.contains(part), "the message does not say {part:?}: {text}");
    }
    let thrown_away = text.contains("repair");
    let is_newer = matches!(damage, Damage::UnknownVersion { .. });
    assert!(
        !(is_newer && thrown_away),
        "P8 remembered: a record of a newer claimdb is to be put aside: {text}"
    );
    for shown in [text, format!("{error:?}")] {
        assert!(!shown.contains("canary"), "the message gives a key or a value away: {shown}");
    }
}

fn damage_of(error: &AdminError) -> &Damage {
    match error {
        AdminError::Failed { fault: Fault::Damaged(damage), .. }
        | AdminError::Listed { fault: Fault::Damaged(damage), .. } => damage,
        other => panic!("P9 fail closed: {other:?}"),
    }
}

fn damage_is_a_token(error: &AdminError) -> bool {
    matches!(damage_of(error), Damage::TokenAboveCeiling { .. })
}

/// Puts `bytes` where the record belongs and asks for it in every way. `expected` looks at what is told.
fn is_damage(bytes: &[u8], expected: impl Fn(&Damage) -> bool) {
    let faulty = place();
    faulty.put(&encoded(NAME), Some(bytes));
    let store = open(&faulty).expect("one bad record does not keep a store from opening");
    let before = faulty.stored(&[1]);
    assert_eq!(before.len(), 3);
    for durability in [Durability::Full, Durability::Result, Durability::Relaxed] {
        for wait in [Duration::ZERO, HOUR] {
            let told = store.claim(Request::new(NAME).durability(durability).wait(wait));
            let error = told.expect_err("P9 fail closed: a damaged record was taken for something");
            let ClaimError::Failed { fault: Fault::Damaged(damage), .. } = &error else {
                panic!("P9 fail closed: {error:?}")
            };
            assert!(expected(damage), "{damage:?}");
            check_message(&error, "claiming", damage);
        }
    }
    let ran = store.run(NAME, |_| -> Result<(), String> { panic!("P9 fail closed: it ran") });
    assert!(ran.is_err());
    let get = store.get(NAME).expect_err("it is damaged");
    let remove = store.remove(NAME).expect_err("it is damaged");
    let resolve = store.resolve(NAME, Token::new(1), Resolution::released()).expect_err("it is damaged");
    for (error, doing) in [(&get, "reading"), (&remove, "removing"), (&resolve, "resolving")] {
        let damage = damage_of(error);
        assert!(expected(damage), "{damage:?}");
        check_message(error, doing, damage);
    }
    let scanned: Vec<_> = store.scan("", "").unwrap().collect();
    let [Ok((first, _)), Err(error), Ok((last, _))] = &scanned[..] else {
        panic!("what is good, the error, what is good: {scanned:?}")
    };
    assert_eq!((first.name(), last.name()), (&b"before"[..], &b"then"[..]));
    assert!(matches!(error, AdminError::Listed { key, .. } if key.name() == NAME.as_bytes()));
    let damage = damage_of(error);
    assert!(expected(damage), "{damage:?}");
    check_message(error, "listing", damage);

    // The others are as they were.
    assert_eq!(store.scan("", "then").unwrap().filter_map(Result::ok).count(), 1);
    assert!(matches!(store.claim("before").unwrap(), Outcome::Settled(_)));
    let granted = store.claim("new").unwrap().granted().expect("another key");
    granted.release().unwrap();
    store.sync().unwrap(); // of the marks that the refused removal left to a sync
    assert_eq!(faulty.stored(&[1]), before, "the damaged bytes were changed");
    assert_eq!(store.stats().entries, 0, "something was left in memory");
    store.close().unwrap();
    assert_eq!(faulty.stored(&[1]), before, "the damaged bytes were changed");

    // By force, on the other hand.
    let store = open(&faulty).unwrap();
    let newest = store.claim("newest").unwrap().granted().unwrap().token();
    let removed = store.remove_by_force(NAME);
    if damage_is_a_token(&remove) {
        assert!(removed.is_err(), "P2 ordered tokens: the key could be granted below the record's token");
        return;
    }
    assert!(removed.unwrap(), "a record that cannot be decoded could not be removed");
    assert_eq!(store.get(NAME).unwrap(), None);
    let claim = store.claim(NAME).unwrap().granted().expect("nothing is there");
    assert!(claim.attempt() == 1 && claim.token() > newest, "P2 ordered tokens: {claim:?}");
}

#[test]
fn a_record_of_a_later_version_is_left_alone() {
    for payload in [&b""[..], b"something new", &[0; 1000]] {
        for version in [2, 3, 255] {
            is_damage(&framed(version, payload), |damage| {
                *damage == Damage::UnknownVersion { version, newest: 1 }
            });
        }
    }
    is_damage(&framed(0, b""), |damage| matches!(damage, Damage::UnknownVersion { version: 0, .. }));
}

#[test]
fn a_record_that_was_cut_is_left_alone() {
    for state in states() {
        let bytes = record(1, state).encode();
        for length in [0, 1, 2, 11, 12, 13, bytes.len() / 2, bytes.len() - 1] {
            is_damage(&bytes[..length], |damage| {
                let framed = matches!(damage, Damage::NotFramed { length: found } if *found == length);
                framed || matches!(damage, Damage::WrongLength { .. })
            });
        }
        is_damage(&[&bytes[..], b"\0"].concat(), |damage| matches!(damage, Damage::WrongLength { .. }));
        is_damage(&[&bytes[..], &bytes].concat(), |damage| matches!(damage, Damage::WrongLength { .. }));
    }
}

#[test]
fn a_record_with_a_flipped_bit_is_left_alone() {
    for state in states() {
        let bytes = record(1, state).encode();
        for at in [0, 1, 2, 3, 4, 7, 8, 11, 12, 20, bytes.len() - 1] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            is_damage(&flipped, |damage| match at {
                0 | 1 => matches!(damage, Damage::NotFramed { .. }),
                4..8 => matches!(damage, Damage::WrongLength { .. }),
                _ => matches!(damage, Damage::WrongChecksum { .. }),
            });
        }
    }
}

#[test]
fn bytes_of_something_else_are_left_alone() {
    for bytes in [&b""[..], b"null", b"{\"state\":\"pending\"}", &[0; 64], &[0xFF; 64]] {
        is_damage(bytes, |damage| matches!(damage, Damage::NotFramed { .. }));
    }
    for payload in [&b""[..], b"not what bincode wrote", &[0xFF; 200]] {
        is_damage(&framed(1, payload), |damage| matches!(damage, Damage::Content { .. }));
    }
}

#[test]
fn a_token_that_was_never_handed_out_is_damage() {
    for state in states() {
        for token in [1 << 62, (1 << 63) - 1, u64::MAX] {
            let bytes = record(token, state.clone()).encode();
            is_damage(
                &bytes,
                |damage| matches!(damage, Damage::TokenAboveCeiling { token: found, .. } if found.get() == token),
            );
        }
    }
}

#[test]
fn the_token_ceiling_is_the_documented_bytes() {
    // The clock's seconds shifted by 20 bits, and a block of tokens above that.
    let ceiling = (1_735_689_600_u64 << 20) + (1 << 20);
    assert_eq!(place().stored(CEILING), [(CEILING.to_vec(), framed(1, &ceiling.to_le_bytes()))]);
}

#[test]
fn a_damaged_token_ceiling_keeps_the_store_closed() {
    let good = place().stored(CEILING)[0].1.clone();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let absurd = framed(1, &u64::MAX.to_le_bytes());
    for bad in [Vec::new(), good[..good.len() - 1].to_vec(), flipped(0), flipped(12), framed(9, b""), absurd]
    {
        let faulty = place();
        faulty.put(CEILING, Some(&bad));
        let before = faulty.stored(b"");
        let error = open(&faulty).expect_err("P2 ordered tokens: a damaged ceiling was believed");
        assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("token ceiling"), "{error}");
        assert_eq!(faulty.stored(b""), before, "a refused opening changed something");
        faulty.put(CEILING, Some(&good));
        assert!(open(&faulty).unwrap().get("before").unwrap().is_some(), "with its ceiling back it opens");
    }
}

#[test]
fn records_without_a_token_ceiling_keep_the_store_closed() {
    let faulty = place();
    faulty.put(CEILING, None);
    let before = faulty.stored(b"");
    for _ in 0..2 {
        let error = open(&faulty).expect_err("P2 ordered tokens: tokens were started anew over records");
        assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("no token ceiling"), "{error}");
        assert_eq!(faulty.stored(b""), before, "a refused opening changed something");
    }
}
