//! A credential that is there, its renewal, and 401.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::SignedDuration;

use super::{
    Clock as _, Credential, Fixture, ManualClock, Provider, Reason, Token, later, minted, settle, text, token, until,
};

async fn check(at: f64, expected: &str, mints: u64) {
    let clock = ManualClock::new();
    let bench = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slot = bench.slot("c");
    assert_eq!(text(&slot.get(later()).await.unwrap()), "t1");
    bench.clock.advance(at);
    assert_eq!(text(&slot.get(later()).await.unwrap()), expected, "at {at}");
    settle().await;
    assert_eq!(bench.provider.calls(), mints, "at {at}");
}

#[tokio::test]
async fn a_credential_serves_until_its_times() {
    check(0.0, "t1", 1).await;
    check(719.9, "t1", 1).await;
    check(720.0, "t1", 2).await;
    check(869.9, "t1", 2).await;
    check(870.0, "t2", 2).await;
}

#[tokio::test]
async fn renewal_replaces_what_is_there_and_says_why_it_asks() {
    let clock = ManualClock::new();
    let bench = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slot = bench.slot("c");
    let first = slot.get(later()).await.unwrap();
    bench.clock.advance(800.0);
    assert_eq!(slot.cached().unwrap().generation, 1);
    until("the second", || slot.cached().is_some_and(|it| it.generation == 2)).await;
    assert_eq!(bench.provider.reasons(), [Reason::Initial, Reason::Refresh]);
    let requests = bench.provider.0.requests.lock().unwrap().clone();
    assert_eq!(requests[1].previous_expiry, first.credential.expires_at);
    assert_eq!(requests[0].previous_expiry, None);
    assert!(bench.provider.revoked().is_empty(), "requests may still use the first");
}

#[tokio::test]
async fn an_idle_slot_costs_nothing() {
    let clock = ManualClock::new();
    let bench = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slot = bench.slot("c");
    slot.get(later()).await.unwrap();
    bench.clock.advance(869.0);
    settle().await;
    assert_eq!(bench.provider.calls(), 1);
}

#[tokio::test]
async fn after_a_sleep_the_wall_clock_decides() {
    let clock = ManualClock::new();
    let bench = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slot = bench.slot("c");
    slot.get(later()).await.unwrap();
    bench.clock.sleep(870);
    assert!(slot.cached().is_none());
    assert_eq!(text(&slot.get(later()).await.unwrap()), "t2");
    // Set back by an hour: the monotonic clock still ends it.
    bench.clock.sleep(-3600);
    bench.clock.advance(870.0);
    assert!(slot.cached().is_none());
}

#[tokio::test]
async fn the_same_token_is_kept_and_not_asked_for_at_once() {
    let clock = ManualClock::new();
    let end = clock.now().wall + SignedDuration::from_secs(300);
    let provider = Provider::new(move |_, _| {
        let mut same = Credential::from_token(Token::parse("same".to_owned()).unwrap());
        same.expires_at = Some(end);
        Ok(same)
    });
    let bench = Fixture::new(provider, clock);
    let slot = bench.slot("c");
    slot.get(later()).await.unwrap();
    bench.clock.advance(240.0);
    assert!(slot.cached().is_some());
    until("the second mint", || bench.provider.calls() == 2).await;
    settle().await;
    assert_eq!(slot.get(later()).await.unwrap().generation, 1);
    bench.clock.advance(29.0);
    assert!(slot.cached().is_some());
    settle().await;
    assert_eq!(bench.provider.calls(), 2);
    // Its end did not move, and the distance from it does not shrink.
    bench.clock.advance(0.9);
    assert!(slot.cached().is_some());
    bench.clock.advance(0.1);
    assert!(slot.cached().is_none());
}

#[tokio::test]
async fn a_credential_for_one_request_serves_one() {
    let clock = ManualClock::new();
    let script = token(&clock, 900);
    let provider =
        Provider::gated(move |nth, request| script(nth, request).map(|it| Credential { cacheable: false, ..it }));
    let bench = Fixture::new(provider, clock);
    let slot = bench.slot("c");
    let asks: Vec<_> = (0..5)
        .map(|_| {
            tokio::spawn({
                let slot = Arc::clone(&slot);
                async move { slot.get(later()).await.map(|it| text(&it).to_owned()) }
            })
        })
        .collect();
    bench.provider.open(10);
    let mut tokens = HashSet::new();
    for ask in asks {
        assert!(tokens.insert(ask.await.unwrap().unwrap()), "given twice");
    }
    assert!(slot.cached().is_none());
    assert!(bench.provider.revoked().is_empty());
    assert_eq!(bench.cache.totals().live, 0);
    assert_eq!(slot.refused(3, later()).await.unwrap().map(|it| it.generation), None);
}

#[tokio::test]
async fn a_credential_that_is_over_serves_who_waits() {
    let clock = ManualClock::new();
    let bench = Fixture::new(Provider::new(token(&clock, 0)), clock);
    let slot = bench.slot("c");
    assert_eq!(text(&slot.get(later()).await.unwrap()), "t1");
    assert!(slot.cached().is_none());
    assert_eq!(text(&slot.get(later()).await.unwrap()), "t2");
}

#[tokio::test]
async fn a_401_counts_against_the_present_credential_only() {
    let clock = ManualClock::new();
    let bench = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slot = bench.slot("c");
    slot.get(later()).await.unwrap();
    let second = slot.refused(1, later()).await.unwrap().unwrap();
    assert_eq!((second.generation, text(&second)), (2, "t2"));
    assert_eq!(bench.provider.reasons()[1], Reason::Unauthorized);
    // A late 401 of the first gives the second.
    assert_eq!(slot.refused(1, later()).await.unwrap().unwrap().generation, 2);
    // Too soon for a third, and the second stays.
    bench.clock.advance(9.9);
    assert!(slot.refused(2, later()).await.unwrap().is_none());
    assert_eq!(slot.cached().unwrap().generation, 2);
    assert_eq!(bench.provider.calls(), 2);
    bench.clock.advance(0.1);
    assert_eq!(slot.refused(2, later()).await.unwrap().unwrap().generation, 3);
}

#[tokio::test]
async fn nobody_gets_a_refused_credential_while_a_mint_is_under_way() {
    let clock = ManualClock::new();
    let bench = Fixture::new(Provider::gated(token(&clock, 900)), clock);
    let slot = bench.slot("c");
    bench.provider.open(1);
    slot.get(later()).await.unwrap();
    let refused = tokio::spawn({
        let slot = Arc::clone(&slot);
        async move { slot.refused(1, later()).await }
    });
    until("the forced mint", || bench.provider.calls() == 2).await;
    assert!(slot.cached().is_none());
    let other = tokio::spawn({
        let slot = Arc::clone(&slot);
        async move { slot.get(later()).await }
    });
    settle().await;
    bench.provider.open(1);
    assert_eq!(refused.await.unwrap().unwrap().unwrap().generation, 2);
    assert_eq!(other.await.unwrap().unwrap().generation, 2);
    assert_eq!(bench.provider.calls(), 2);
}

#[tokio::test]
async fn the_same_token_after_a_401_is_no_reason_to_try_again() {
    let clock = ManualClock::new();
    let made = Arc::clone(&clock);
    let bench = Fixture::new(Provider::new(move |_, _| Ok(minted(&made, "same", 900))), clock);
    let slot = bench.slot("c");
    slot.get(later()).await.unwrap();
    assert!(slot.refused(1, later()).await.unwrap().is_none());
    assert_eq!(bench.provider.calls(), 2);
    assert_eq!(slot.cached().unwrap().generation, 1);
}
