//! What the pure decisions say at the edges of their guards, which a whole store reaches by accident alone.
#![cfg(not(any(loom, shuttle)))]

use claimdb::protocol::decide::{self, Settling};
use claimdb::{Damage, Durability, Kept, OnInterrupt, Record, State, Terms, Token, WallTime};
use std::time::Duration;

const NOW: WallTime = WallTime::from_unix_millis(1_735_689_600_000);

fn record(token: u64, state: State) -> Record {
    let terms = Terms {
        lease: Duration::from_secs(30),
        retention: Duration::from_secs(60),
        durability: Durability::Result,
        on_interrupt: OnInterrupt::Rerun,
        max_attempts: None,
    };
    Record { token: Token::new(token), attempt: 1, fingerprint: None, terms, claimed_at: NOW, state }
}

fn pending(token: u64) -> Record {
    record(token, State::Pending { previous: None, checkpoint: None })
}

fn settled(token: u64) -> Record {
    record(token, State::Settled { result: Kept::Completed(b"old".into()), at: NOW, by_hand: false })
}

#[test]
fn a_token_that_is_the_ceiling_was_not_handed_out() {
    for (token, known) in [(9, true), (10, false), (11, false)] {
        let checked = decide::check_token(&pending(token), Token::new(10));
        let refused = matches!(checked, Err(Damage::TokenAboveCeiling { .. }));
        assert_eq!(!refused, known, "rule 8: token {token} below a ceiling of 10 was judged {checked:?}");
    }
}

/// Only a claim in memory, which has the key's place yet, settles over a record that is not its own: over one that was
/// settled before it was granted, and forgotten then.
#[test]
fn who_may_settle_over_the_record_of_another() {
    let new = Kept::Completed(b"new".into());
    for found in [Some(settled(5)), Some(settled(7)), Some(pending(5)), None] {
        for (durable, mine) in [(false, true), (false, false), (true, true), (true, false)] {
            let held = pending(6);
            let told = decide::settle(found.as_ref(), &held, durable, mine, &new, NOW);
            let older = found
                .as_ref()
                .is_none_or(|found| matches!(found.state, State::Settled { .. }) && found.token < held.token);
            let may = older && !durable && mine;
            let lost = told == Settling::Lost { by: found.as_ref().map(|found| found.token) };
            assert_eq!(
                lost, !may,
                "P3 fenced: durable {durable}, with its place {mine}, over {found:?}: {told:?}"
            );
        }
    }
}
