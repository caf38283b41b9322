//! Closed slots, evicted credentials and shutdown.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use tokio::time::Instant;

use super::{
    Credential, CredentialKey, Error, Fixture, ManualClock, Mint, MintError, MintErrorClass, MintRequest, Provider,
    SlotStatus, error, key, later, settle, text, token, until,
};

fn wanted(clusters: &[&str]) -> HashSet<CredentialKey> {
    clusters.iter().map(|cluster| key(cluster)).collect()
}

#[tokio::test]
async fn a_slot_survives_a_reload_with_the_same_key() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slot = fixture.slot("c");
    slot.get(later()).await.unwrap();
    let again = fixture.slot("c");
    fixture.cache.retain(&wanted(&["c"]));
    assert!(Arc::ptr_eq(&slot, &again));
    assert_eq!(again.get(later()).await.unwrap().generation, 1);
    assert!(fixture.provider.revoked().is_empty());
}

#[tokio::test]
async fn a_slot_whose_cluster_is_removed_closes_and_a_new_one_mints_again() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(token(&clock, 900)), clock);
    let slot = fixture.slot("c");
    let lease = slot.get(later()).await.unwrap();
    let weak = Arc::downgrade(&lease.credential);
    drop(lease);
    fixture.cache.retain(&wanted(&["other"]));
    until("the revocation", || fixture.provider.revoked() == ["r-t1"]).await;
    assert!(weak.upgrade().is_none(), "zeroized");
    assert_eq!(slot.get(later()).await.unwrap_err(), Error::Stopped);
    assert_eq!(
        slot.lease_after_unauthorized(1, later()).await.unwrap_err(),
        Error::Stopped
    );
    assert_eq!(slot.health().standing, SlotStatus::Closed);
    assert_eq!(text(&fixture.slot("c").get(later()).await.unwrap()), "t2");
}

#[tokio::test]
async fn a_changed_input_resets_failures() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(|_, _| Err(error(MintErrorClass::Denied))), clock);
    fixture.slot("c").get(later()).await.unwrap_err();
    fixture.slot("c").get(later()).await.unwrap_err();
    assert_eq!(fixture.provider.calls(), 1);
    fixture.slot("d").get(later()).await.unwrap_err();
    assert_eq!(fixture.provider.calls(), 2);
}

#[tokio::test]
async fn a_credential_minted_for_a_closed_slot_is_revoked() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::gated(token(&clock, 900)), clock);
    let slot = fixture.slot("c");
    let waiter = tokio::spawn({
        let slot = Arc::clone(&slot);
        async move { slot.get(later()).await }
    });
    until("the mint", || fixture.provider.calls() == 1).await;
    fixture.cache.retain(&wanted(&[]));
    assert_eq!(waiter.await.unwrap().unwrap_err(), Error::Stopped);
    fixture.provider.open(1);
    until("the revocation", || fixture.provider.revoked() == ["r-t1"]).await;
    assert_eq!(fixture.cache.totals().live, 0);
}

#[tokio::test]
async fn a_single_use_credential_whose_request_timed_out_is_revoked() {
    let clock = ManualClock::new();
    let script = token(&clock, 900);
    let provider =
        Provider::gated(move |nth, request| script(nth, request).map(|it| Credential { cacheable: false, ..it }));
    let fixture = Fixture::new(provider, clock);
    let slot = fixture.slot("c");
    assert_eq!(
        slot.get(Instant::now() + Duration::from_millis(5)).await.unwrap_err(),
        Error::Timeout
    );
    fixture.provider.open(1);
    until("the revocation", || fixture.provider.revoked() == ["r-t1"]).await;
}

#[tokio::test]
async fn idle_credentials_are_evicted_and_revoked() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(token(&clock, 36_000)), clock);
    let slot = fixture.slot("c");
    slot.get(later()).await.unwrap();
    fixture.clock.advance(3599.0);
    fixture.cache.shared.sweep();
    assert_eq!(fixture.cache.totals().live, 1);
    fixture.clock.advance(1.0);
    fixture.cache.shared.sweep();
    assert_eq!(fixture.cache.totals().live, 0);
    until("the revocation", || fixture.provider.revoked() == ["r-t1"]).await;
    assert_eq!(slot.get(later()).await.unwrap().generation, 2);
}

#[tokio::test]
async fn expired_credentials_are_not_revoked() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(token(&clock, 900)), clock);
    fixture.slot("c").get(later()).await.unwrap();
    fixture.clock.advance(900.0);
    fixture.cache.shared.sweep();
    settle().await;
    assert_eq!(fixture.cache.totals().live, 0);
    assert!(fixture.provider.revoked().is_empty());
}

#[tokio::test]
async fn above_max_live_the_least_recently_used_credential_is_evicted() {
    let clock = ManualClock::new();
    let fixture = Fixture::with(Provider::new(token(&clock, 9000)), clock, |settings| {
        settings.max_live = 2
    });
    let [a, b, c] = ["a", "b", "c"].map(|cluster| fixture.slot(cluster));
    for slot in [&a, &b, &a, &c] {
        fixture.clock.advance(2.0);
        slot.get(later()).await.unwrap();
    }
    until("the eviction", || fixture.cache.totals().live == 2).await;
    assert!(a.cached().is_some() && b.cached().is_none() && c.cached().is_some());
    until("the revocation", || fixture.provider.revoked() == ["r-t2"]).await;
}

#[tokio::test]
async fn shutdown_revokes_every_credential_and_stops_every_waiter() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::gated(token(&clock, 900)), clock);
    fixture.provider.open(1);
    fixture.slot("a").get(later()).await.unwrap();
    let slot = fixture.slot("b");
    let waiter = tokio::spawn(async move { slot.get(later()).await });
    until("the mint", || fixture.provider.calls() == 2).await;
    assert!(fixture.cache.shutdown().await);
    assert_eq!(fixture.provider.revoked(), ["r-t1"]);
    assert_eq!(waiter.await.unwrap().unwrap_err(), Error::Stopped);
    assert_eq!(fixture.slot("a").get(later()).await.unwrap_err(), Error::Stopped);
}

/// A provider whose revocations never complete.
struct Stuck(Provider);

impl Mint for Stuck {
    fn mint(&self, request: MintRequest) -> BoxFuture<'static, Result<Credential, MintError>> {
        self.0.mint(request)
    }

    fn revoke(&self, _revocation: SecretString) -> BoxFuture<'static, Result<(), MintError>> {
        std::future::pending().boxed()
    }
}

#[tokio::test]
async fn shutdown_waits_for_revocations_up_to_the_revoke_timeout() {
    let clock = ManualClock::new();
    let fixture = Fixture::with(Provider::new(token(&clock, 900)), clock, |settings| {
        settings.revoke_timeout = Duration::from_millis(20);
    });
    for cluster in 0..40 {
        let slot = fixture
            .cache
            .slot(key(&cluster.to_string()), Arc::new(Stuck(fixture.provider.clone())));
        slot.get(later()).await.unwrap();
    }
    let began = Instant::now();
    assert!(!fixture.cache.shutdown().await);
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_dropped_cache_leaves_no_task() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::gated(token(&clock, 900)), clock);
    let slot = fixture.slot("c");
    let waiter = tokio::spawn({
        let slot = Arc::clone(&slot);
        async move { slot.get(later()).await }
    });
    until("the mint", || fixture.provider.calls() == 1).await;
    drop(fixture.cache);
    assert_eq!(waiter.await.unwrap().unwrap_err(), Error::Stopped);
    until("the tasks", || {
        tokio::runtime::Handle::current().metrics().num_alive_tasks() == 0
    })
    .await;
    assert_eq!(slot.get(later()).await.unwrap_err(), Error::Stopped);
}
