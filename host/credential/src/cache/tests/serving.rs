//! Use of a cached credential, its renewal, and 401.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::SignedDuration;

use super::{
    Clock as _, Credential, Fixture, ManualClock, MintReason, Provider, Token, later, minted, settle, text, token,
    until,
};

async fn check(at: f64, expected: &str, mints: u64) {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slot = fixture.slot("c");
    assert_eq!(text(&slot.get(later()).await.unwrap()), "t1");
    fixture.clock.advance(at);
    assert_eq!(text(&slot.get(later()).await.unwrap()), expected, "at {at}");
    settle().await;
    assert_eq!(fixture.provider.calls(), mints, "at {at}");
}

#[tokio::test]
async fn a_credential_is_renewed_and_replaced_at_its_deadlines() {
    check(0.0, "t1", 1).await;
    check(719.9, "t1", 1).await;
    check(720.0, "t1", 2).await;
    check(869.9, "t1", 2).await;
    check(870.0, "t2", 2).await;
}

#[tokio::test]
async fn renewal_replaces_the_credential_and_sends_its_reason() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slot = fixture.slot("c");
    let first = slot.get(later()).await.unwrap();
    fixture.clock.advance(800.0);
    assert_eq!(slot.cached().unwrap().generation, 1);
    until("the second credential", || {
        slot.cached().is_some_and(|it| it.generation == 2)
    })
    .await;
    assert_eq!(fixture.provider.reasons(), [MintReason::Initial, MintReason::Refresh]);
    let requests = fixture.provider.0.requests.lock().unwrap().clone();
    assert_eq!(requests[1].previous_expiry, first.credential.expires_at);
    assert_eq!(requests[0].previous_expiry, None);
    assert!(
        fixture.provider.revoked().is_empty(),
        "requests may still use the first"
    );
}

#[tokio::test]
async fn an_idle_slot_is_not_renewed() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slot = fixture.slot("c");
    slot.get(later()).await.unwrap();
    fixture.clock.advance(869.0);
    settle().await;
    assert_eq!(fixture.provider.calls(), 1);
}

#[tokio::test]
async fn after_a_sleep_the_wall_clock_decides() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slot = fixture.slot("c");
    slot.get(later()).await.unwrap();
    fixture.clock.sleep(870);
    assert!(slot.cached().is_none());
    assert_eq!(text(&slot.get(later()).await.unwrap()), "t2");
    // The wall clock is set back by an hour; the monotonic clock still ends the lifetime.
    fixture.clock.sleep(-3600);
    fixture.clock.advance(870.0);
    assert!(slot.cached().is_none());
}

#[tokio::test]
async fn a_renewal_that_returns_the_same_token_is_not_repeated_at_once() {
    let clock = ManualClock::new();
    let end = clock.now().wall + SignedDuration::from_secs(300);
    let provider = Provider::new(move |_, _| {
        let mut same = Credential::from_token(Token::parse("same".to_owned()).unwrap());
        same.expires_at = Some(end);
        Ok(same)
    });
    let fixture = Fixture::new(provider, clock);
    let slot = fixture.slot("c");
    slot.get(later()).await.unwrap();
    fixture.clock.advance(240.0);
    assert!(slot.cached().is_some());
    until("the second mint", || fixture.provider.calls() == 2).await;
    settle().await;
    assert_eq!(slot.get(later()).await.unwrap().generation, 1);
    fixture.clock.advance(29.0);
    assert!(slot.cached().is_some());
    settle().await;
    assert_eq!(fixture.provider.calls(), 2);
    // Its expiry did not change, so the safety margin does not shrink.
    fixture.clock.advance(0.9);
    assert!(slot.cached().is_some());
    fixture.clock.advance(0.1);
    assert!(slot.cached().is_none());
}

#[tokio::test]
async fn a_single_use_credential_serves_one_request() {
    let clock = ManualClock::new();
    let script = token(&clock, 900);
    let provider =
        Provider::gated(move |nth, request| script(nth, request).map(|it| Credential { cacheable: false, ..it }));
    let fixture = Fixture::new(provider, clock);
    let slot = fixture.slot("c");
    let tasks: Vec<_> = (0..5)
        .map(|_| {
            tokio::spawn({
                let slot = Arc::clone(&slot);
                async move { slot.get(later()).await.map(|it| text(&it).to_owned()) }
            })
        })
        .collect();
    fixture.provider.open(10);
    let mut tokens = HashSet::new();
    for task in tasks {
        assert!(
            tokens.insert(task.await.unwrap().unwrap()),
            "two requests got one credential"
        );
    }
    assert!(slot.cached().is_none());
    assert!(fixture.provider.revoked().is_empty());
    assert_eq!(fixture.cache.totals().live, 0);
    assert_eq!(
        slot.lease_after_unauthorized(3, later())
            .await
            .unwrap()
            .map(|it| it.generation),
        None
    );
}

#[tokio::test]
async fn an_expired_credential_serves_only_the_waiting_request() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(token(&clock, 0)), clock);
    let slot = fixture.slot("c");
    assert_eq!(text(&slot.get(later()).await.unwrap()), "t1");
    assert!(slot.cached().is_none());
    assert_eq!(text(&slot.get(later()).await.unwrap()), "t2");
}

#[tokio::test]
async fn a_401_counts_only_against_the_current_credential() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slot = fixture.slot("c");
    slot.get(later()).await.unwrap();
    let second = slot.lease_after_unauthorized(1, later()).await.unwrap().unwrap();
    assert_eq!((second.generation, text(&second)), (2, "t2"));
    assert_eq!(fixture.provider.reasons()[1], MintReason::Unauthorized);
    // A late 401 to the first credential gives the second.
    assert_eq!(
        slot.lease_after_unauthorized(1, later())
            .await
            .unwrap()
            .unwrap()
            .generation,
        2
    );
    // It is too soon for a third, and the second stays.
    fixture.clock.advance(9.9);
    assert!(slot.lease_after_unauthorized(2, later()).await.unwrap().is_none());
    assert_eq!(slot.cached().unwrap().generation, 2);
    assert_eq!(fixture.provider.calls(), 2);
    fixture.clock.advance(0.1);
    assert_eq!(
        slot.lease_after_unauthorized(2, later())
            .await
            .unwrap()
            .unwrap()
            .generation,
        3
    );
}

#[tokio::test]
async fn no_request_gets_a_refused_credential_during_the_forced_mint() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::gated(token(&clock, 900)), clock);
    let slot = fixture.slot("c");
    fixture.provider.open(1);
    slot.get(later()).await.unwrap();
    let refused = tokio::spawn({
        let slot = Arc::clone(&slot);
        async move { slot.lease_after_unauthorized(1, later()).await }
    });
    until("the forced mint", || fixture.provider.calls() == 2).await;
    assert!(slot.cached().is_none());
    let other = tokio::spawn({
        let slot = Arc::clone(&slot);
        async move { slot.get(later()).await }
    });
    settle().await;
    fixture.provider.open(1);
    assert_eq!(refused.await.unwrap().unwrap().unwrap().generation, 2);
    assert_eq!(other.await.unwrap().unwrap().generation, 2);
    assert_eq!(fixture.provider.calls(), 2);
}

#[tokio::test]
async fn the_same_token_after_a_401_is_not_retried() {
    let clock = ManualClock::new();
    let timer = Arc::clone(&clock);
    let fixture = Fixture::new(Provider::new(move |_, _| Ok(minted(&timer, "same", 900))), clock);
    let slot = fixture.slot("c");
    slot.get(later()).await.unwrap();
    assert!(slot.lease_after_unauthorized(1, later()).await.unwrap().is_none());
    assert_eq!(fixture.provider.calls(), 2);
    assert_eq!(slot.cached().unwrap().generation, 1);
}
