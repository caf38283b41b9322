//! Many slots, many requests, many 401.

use std::sync::Weak;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Credential, CredentialKey, Fixture, ManualClock, Provider, later, settle, token, until};

#[tokio::test]
async fn a_thousand_slots_rotate_a_hundred_times_without_a_leak() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slots: Vec<_> = (0..1000).map(|cluster| fixture.slot(&cluster.to_string())).collect();
    let mut before: Vec<Weak<Credential>> = Vec::new();
    for round in 1..=100 {
        let mut now = Vec::new();
        for slot in &slots {
            let lease = slot.get(later()).await.unwrap();
            assert_eq!(lease.generation, round);
            now.push(Arc::downgrade(&lease.credential));
        }
        settle().await;
        assert_eq!(
            before.iter().filter(|it| it.strong_count() > 0).count(),
            0,
            "round {round}"
        );
        assert_eq!(fixture.cache.totals().live, 1000);
        before = now;
        fixture.clock.advance(900.0);
    }
    assert_eq!(fixture.provider.calls(), 100_000);
    fixture.cache.retain(&HashSet::<CredentialKey>::new());
    settle().await;
    assert_eq!(before.iter().filter(|it| it.strong_count() > 0).count(), 0);
    assert_eq!(fixture.cache.totals().live, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_leader_does_not_fail_the_other_waiters() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::gated(token(&clock, 900)), clock);
    let slot = fixture.slot("c");
    let acquire = || {
        let slot = Arc::clone(&slot);
        tokio::spawn(async move { slot.get(later()).await.map(|it| it.generation) })
    };
    let leader = acquire();
    until("the mint", || fixture.provider.calls() == 1).await;
    let others: Vec<_> = (0..99).map(|_| acquire()).collect();
    leader.abort();
    assert!(leader.await.unwrap_err().is_cancelled());
    fixture.provider.open(100);
    for other in others {
        assert_eq!(other.await.unwrap().unwrap(), 1);
    }
    assert_eq!(fixture.provider.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_401_forces_one_mint_in_ten_seconds() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(token(&clock, 3600)), clock);
    let slot = fixture.slot("c");
    slot.get(later()).await.unwrap();
    for round in 1..=5 {
        let storm: Vec<_> = (0..200)
            .map(|_| {
                let slot = Arc::clone(&slot);
                tokio::spawn(async move {
                    let lease = slot.get(later()).await.unwrap();
                    slot.lease_after_unauthorized(lease.generation, later()).await.unwrap();
                })
            })
            .collect();
        for one in storm {
            one.await.unwrap();
        }
        assert_eq!(fixture.provider.calls(), round + 1);
        fixture.clock.advance(10.0);
    }
}

#[tokio::test]
async fn a_cold_start_mints_at_most_sixteen_at_once() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::gated(token(&clock, 900)), clock);
    let tasks: Vec<_> = (0..500)
        .map(|cluster| {
            let slot = fixture.slot(&cluster.to_string());
            tokio::spawn(async move { slot.get(later()).await })
        })
        .collect();
    until("the first mints", || fixture.provider.calls() == 16).await;
    settle().await;
    assert_eq!(fixture.provider.calls(), 16);
    fixture.provider.open(500);
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(fixture.provider.0.max_concurrent.load(Ordering::Relaxed), 16);
    assert_eq!(fixture.provider.calls(), 500);
}
