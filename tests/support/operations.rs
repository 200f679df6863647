//! The operations of a store that may wait, as tasks.

use claimdb::{
    AllClaimed, Claim, Compared, LiveClaims, Omission, OnInterrupt, Outcome, Request, Resolution, Run, Store,
    Writes,
};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A claim of a free key.
pub fn claim(store: &Store, key: &str) -> Claim {
    store.claim(key).unwrap().granted().expect("nobody else has the key")
}

pub const QUARANTINE: OnInterrupt = OnInterrupt::Quarantine;

/// A name, and what starts the operation.
pub type Operation = (&'static str, fn(&Store) -> Told);

pub type Told = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

fn ok<T, E: std::fmt::Debug>(told: Result<T, E>) -> Result<T, String> {
    told.map_err(|error| format!("{error:?}"))
}

/// Each operation that is told only after a sync. They expect the settled key `settled`, the interrupted key `case` and
/// the plain values `old` and `gone`, and work on the keys `k` and `l`.
pub fn operations() -> Vec<Operation> {
    vec![
        ("claim", |store| {
            let told = store.claim_async("k");
            Box::pin(async move { ok(ok(told.await)?.granted().unwrap().release()) })
        }),
        ("claim_many", |store| {
            let told = store.claim_many_async(["k", "l", "k"]);
            Box::pin(async move {
                let told: Vec<_> = ok(told.await.into_iter().collect::<Result<_, _>>())?;
                assert!(matches!(
                    told.as_slice(),
                    [Outcome::Granted(_), Outcome::Granted(_), Outcome::InFlight(_)]
                ));
                for claim in told.into_iter().filter_map(Outcome::granted) {
                    ok(claim.release())?;
                }
                Ok(())
            })
        }),
        ("claim_all", |store| {
            let told = store.claim_all_async(["k", "l"]);
            Box::pin(async move {
                let AllClaimed::Granted(claims) = ok(told.await)? else { panic!("they were free") };
                assert_eq!(claims.len(), 2);
                for claim in claims {
                    ok(claim.release())?;
                }
                Ok(())
            })
        }),
        ("complete", |store| {
            let told = claim(store, "k").complete_async("done");
            Box::pin(async move { ok(told.await) })
        }),
        ("complete_bytes", |store| {
            let told = claim(store, "k").complete_bytes_async(*b"done");
            Box::pin(async move { ok(told.await) })
        }),
        ("complete_with", |store| {
            let told = claim(store, "k").complete_with_async("done", Writes::new().put("v", "e", "1"));
            Box::pin(async move { ok(told.await) })
        }),
        ("fail", |store| {
            let told = claim(store, "k").fail_async("declined");
            Box::pin(async move { ok(told.await) })
        }),
        ("omit", |store| {
            let told = claim(store, "k").omit_async(Omission::OnPurpose);
            Box::pin(async move { ok(told.await) })
        }),
        ("release under quarantine", |store| {
            let request = Request::new("k").on_interrupt(QUARANTINE);
            let told = store.claim(request).unwrap().granted().unwrap().release_async();
            Box::pin(async move { ok(told.await) })
        }),
        ("complete_many", |store| {
            let claims = [(claim(store, "k"), "done"), (claim(store, "l"), "done")];
            let told = store.complete_many_async(claims);
            Box::pin(async move { told.await.into_iter().try_for_each(ok) })
        }),
        ("checkpoint", |store| {
            let mut claim = claim(store, "k");
            Box::pin(async move {
                ok(claim.checkpoint_async("half").await)?;
                ok(claim.release())
            })
        }),
        ("run", |store| {
            let store = store.clone();
            Box::pin(async move {
                let told = store.run_async("k", async |_: &Claim| Ok::<_, String>(7)).await;
                assert!(matches!(ok(told)?, Run::Fresh(7) | Run::Replayed(7)));
                Ok(())
            })
        }),
        ("put", |store| {
            let told = store.kv("v").put_async("k", "1");
            Box::pin(async move { ok(told.await) })
        }),
        ("put_value", |store| {
            let told = store.kv("v").put_value_async("k", &1_u8);
            Box::pin(async move { ok(told.await) })
        }),
        ("delete", |store| {
            let told = store.kv("v").delete_async("gone");
            Box::pin(async move { ok(told.await) })
        }),
        ("compare_and_swap", |store| {
            let told = store.kv("v").compare_and_swap_async("old", Some(b"1".into()), Some(b"2".into()));
            Box::pin(async move { ok(told.await).map(drop) })
        }),
        ("write", |store| {
            let told = store.write_async(Writes::new().put("v", "k", "1").delete("v", "gone"));
            Box::pin(async move { ok(told.await) })
        }),
        ("remove", |store| {
            let told = store.remove_async("settled");
            Box::pin(async move { ok(told.await).map(|was| assert!(was)) })
        }),
        ("remove_by_force", |store| {
            let told = store.remove_by_force_async("settled");
            Box::pin(async move { ok(told.await).map(|was| assert!(was)) })
        }),
        ("resolve", |store| {
            let Outcome::Interrupted(case) = store.claim("case").unwrap() else {
                panic!("it is interrupted")
            };
            let told = store.resolve_async("case", case.token(), Resolution::released());
            Box::pin(async move { ok(told.await).map(|was| assert!(was)) })
        }),
        ("empty", |store| {
            let scope = store.scope("").unwrap();
            let told = scope.empty_async(LiveClaims::Refuse);
            Box::pin(async move { ok(told.await).map(|removed| assert_eq!(removed, 2)) })
        }),
        ("sync", |store| {
            let told = store.sync_async();
            Box::pin(async move { ok(told.await) })
        }),
    ]
}

/// Each operation that waits for somebody else's sync, of the values that a writer has written.
pub fn readers() -> Vec<Operation> {
    vec![
        ("get", |store| {
            let told = store.kv("v").get_async("new");
            Box::pin(async move { ok(told.await).map(|value| assert_eq!(value.as_deref(), Some(&b"2"[..]))) })
        }),
        ("get_value", |store| {
            let told = store.kv("v").get_value_async::<u8>("number");
            Box::pin(async move { ok(told.await).map(|value| assert_eq!(value, Some(2))) })
        }),
        ("compare_and_swap that differs", |store| {
            let told = store.kv("v").compare_and_swap_async("new", None, None);
            Box::pin(async move {
                let differs = Compared::Differs { current: Some(b"2".into()) };
                ok(told.await).map(|told| assert_eq!(told, differs))
            })
        }),
        ("scan", |store| {
            let mut scan = store.kv("v").scan("").unwrap();
            Box::pin(async move {
                let mut keys = Vec::new();
                while let Some(pair) = scan.next_async().await {
                    keys.push(String::from_utf8(ok(pair)?.0).unwrap());
                }
                assert_eq!(keys, ["new", "number", "old"]);
                Ok(())
            })
        }),
        ("claim that is replayed", |store| {
            let told = store.claim_async(Request::new("unsynced").wait(Duration::from_secs(1)));
            Box::pin(async move { ok(told.await).map(|told| drop(told.settled().unwrap())) })
        }),
    ]
}
