//! A provider that fails, hangs or panics.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use super::{
    Clock as _, Error, Fixture, Lease, ManualClock, MintError, MintErrorClass, Provider, SlotStatus, error, later,
    settle, text, token, until,
};

/// Gives one token, then errors of a class.
fn once(clock: &Arc<ManualClock>, class: MintErrorClass) -> Provider {
    let good = token(clock, 900);
    Provider::new(move |nth, request| {
        if nth == 1 {
            good(nth, request)
        } else {
            Err(error(class))
        }
    })
}

fn waits(result: Result<Lease, Error>) -> (MintErrorClass, f64) {
    match result {
        Err(Error::Mint(error)) => (error.class, error.retry_after.unwrap().as_secs_f64()),
        other => panic!("{other:?}"),
    }
}

async fn check(class: MintErrorClass, expected: &[f64]) {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::new(move |_, _| Err(error(class))), clock);
    let slot = fixture.slot("c");
    for (calls, wait) in (1..).zip(expected) {
        assert_eq!(waits(slot.get(later()).await), (class, *wait));
        fixture.clock.advance(wait / 2.0);
        assert_eq!(waits(slot.get(later()).await), (class, wait / 2.0));
        assert_eq!(fixture.provider.calls(), calls, "no mint before its time");
        fixture.clock.advance(wait / 2.0);
    }
    assert_eq!(slot.health().failed, expected.len() as u64);
}

#[tokio::test]
async fn the_retry_delay_grows_with_each_failure() {
    check(MintErrorClass::Retryable, &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]).await;
    check(MintErrorClass::Denied, &[30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]).await;
    check(MintErrorClass::Permanent, &[30.0, 60.0, 120.0, 240.0, 480.0, 600.0]).await;
    check(MintErrorClass::Config, &[60.0, 120.0, 240.0, 480.0, 600.0, 600.0]).await;
}

#[tokio::test]
async fn a_successful_mint_resets_the_backoff() {
    let clock = ManualClock::new();
    let good = token(&clock, 900);
    let provider = Provider::new(move |nth, request| {
        if nth == 3 {
            good(nth, request)
        } else {
            Err(error(MintErrorClass::Retryable))
        }
    });
    let fixture = Fixture::new(provider, clock);
    let slot = fixture.slot("c");
    for wait in [1.0, 2.0] {
        assert_eq!(waits(slot.get(later()).await).1, wait);
        fixture.clock.advance(wait);
    }
    slot.get(later()).await.unwrap();
    assert_eq!(slot.health().standing, SlotStatus::Usable);
    assert!(slot.health().last_error.is_some(), "operators still see it");
    fixture.clock.advance(900.0);
    assert_eq!(waits(slot.get(later()).await).1, 1.0);
}

#[tokio::test]
async fn another_error_class_starts_its_own_backoff() {
    let clock = ManualClock::new();
    let provider = Provider::new(|nth, _| {
        Err(error(if nth < 3 {
            MintErrorClass::Retryable
        } else {
            MintErrorClass::Denied
        }))
    });
    let fixture = Fixture::new(provider, clock);
    let slot = fixture.slot("c");
    for wait in [1.0, 2.0, 30.0] {
        assert_eq!(waits(slot.get(later()).await).1, wait);
        fixture.clock.advance(wait);
    }
}

#[tokio::test]
async fn the_providers_retry_after_is_bounded() {
    let clock = ManualClock::new();
    let provider = Provider::new(|_, _| {
        Err(MintError {
            retry_after: Some(Duration::from_secs(7200)),
            ..error(MintErrorClass::Retryable)
        })
    });
    let fixture = Fixture::new(provider, clock);
    let slot = fixture.slot("c");
    assert_eq!(waits(slot.get(later()).await).1, 600.0);
}

#[tokio::test]
async fn a_provider_outage_is_not_noticed_while_the_credential_is_usable() {
    let clock = ManualClock::new();
    let good = token(&clock, 900);
    let down = Arc::new(AtomicU64::new(0));
    let is_down = Arc::clone(&down);
    let provider = Provider::new(move |nth, request| match is_down.load(Ordering::Relaxed) {
        0 => good(nth, request),
        _ => Err(error(MintErrorClass::Retryable)),
    });
    let fixture = Fixture::new(provider, clock);
    let slot = fixture.slot("c");
    slot.get(later()).await.unwrap();
    down.store(1, Ordering::Relaxed);
    fixture.clock.advance(720.0);
    for _ in 0..150 {
        assert_eq!(slot.get(later()).await.unwrap().generation, 1);
        settle().await;
        fixture.clock.advance(1.0);
    }
    let tries = fixture.provider.calls() - 1;
    assert!((5..12).contains(&tries), "{tries} tries in 150 s");
    assert_eq!(waits(slot.get(later()).await).0, MintErrorClass::Retryable);
    assert_eq!(slot.health().standing, SlotStatus::Failing);
    down.store(0, Ordering::Relaxed);
    fixture.clock.advance(60.0);
    assert_eq!(slot.get(later()).await.unwrap().generation, 2);
    assert_eq!(slot.health().standing, SlotStatus::Usable);
}

#[tokio::test]
async fn a_failed_renewal_keeps_the_usable_credential() {
    for class in [
        MintErrorClass::Denied,
        MintErrorClass::Config,
        MintErrorClass::Permanent,
    ] {
        let clock = ManualClock::new();
        let fixture = Fixture::new(once(&clock, class), clock);
        let slot = fixture.slot("c");
        slot.get(later()).await.unwrap();
        fixture.clock.advance(720.0);
        slot.get(later()).await.unwrap();
        until("the failure", || slot.health().standing == SlotStatus::Stale).await;
        assert_eq!(slot.get(later()).await.unwrap().generation, 1);
        fixture.clock.advance(150.0);
        assert_eq!(waits(slot.get(later()).await).0, class);
    }
}

#[tokio::test]
async fn after_a_401_the_error_class_decides_whether_the_credential_is_kept() {
    for (class, back) in [
        (MintErrorClass::Retryable, true),
        (MintErrorClass::Denied, false),
        (MintErrorClass::Config, false),
    ] {
        let clock = ManualClock::new();
        let fixture = Fixture::new(once(&clock, class), clock);
        let slot = fixture.slot("c");
        slot.get(later()).await.unwrap();
        let refused = slot.lease_after_unauthorized(1, later()).await;
        assert_eq!(slot.cached().is_some(), back, "{class:?}");
        settle().await;
        if back {
            assert!(refused.unwrap().is_none());
            assert!(fixture.provider.revoked().is_empty());
        } else {
            assert!(matches!(refused, Err(Error::Mint(error)) if error.class == class));
            assert_eq!(fixture.provider.revoked(), ["r-t1"]);
        }
        assert_eq!(fixture.provider.calls(), 2);
    }
}

#[tokio::test]
async fn a_panic_is_a_mint_error_and_the_slot_recovers() {
    let clock = ManualClock::new();
    let good = token(&clock, 900);
    let provider = Provider::new(move |nth, request| {
        if nth == 1 {
            panic!("from the test")
        } else {
            good(nth, request)
        }
    });
    let fixture = Fixture::new(provider, clock);
    let slot = fixture.slot("c");
    match slot.get(later()).await {
        Err(Error::Mint(error)) => assert_eq!(error.code, "host.panic"),
        other => panic!("{other:?}"),
    }
    fixture.clock.advance(1.0);
    assert_eq!(text(&slot.get(later()).await.unwrap()), "t2");
}

#[tokio::test]
async fn each_waiter_has_its_own_deadline_and_the_mint_continues() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(Provider::gated(token(&clock, 900)), clock);
    let slot = fixture.slot("c");
    let short = Instant::now() + Duration::from_millis(10);
    assert_eq!(slot.get(short).await.unwrap_err(), Error::Timeout);
    fixture.provider.open(1);
    assert_eq!(slot.get(later()).await.unwrap().generation, 1);
    assert_eq!(fixture.provider.calls(), 1);
    // A cached credential needs no time.
    assert_eq!(slot.get(Instant::now()).await.unwrap().generation, 1);
}

#[tokio::test]
async fn a_mint_over_its_budget_is_dropped() {
    let clock = ManualClock::new();
    let provider = Provider::gated(token(&clock, 900));
    let fixture = Fixture::with(provider, clock, |settings| {
        settings.mint_budget = Duration::from_millis(1)
    });
    let slot = fixture.slot("c");
    match slot.get(later()).await {
        Err(Error::Mint(error)) => assert_eq!(
            (error.class, error.code.as_str()),
            (MintErrorClass::Retryable, "host.timeout")
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.cache.totals().free_mints, 16);
}

#[tokio::test]
async fn health_shows_no_secret() {
    let clock = ManualClock::new();
    let fixture = Fixture::new(once(&clock, MintErrorClass::Denied), clock);
    let slot = fixture.slot("c");
    slot.get(later()).await.unwrap();
    fixture.clock.advance(800.0);
    slot.get(later()).await.unwrap();
    until("the failure", || slot.health().failed == 1).await;
    let shown = serde_json::to_value(slot.health()).unwrap();
    assert_eq!(shown["standing"], "stale");
    assert_eq!(shown["generation"], 1);
    assert_eq!(shown["mints"], 2);
    assert_eq!(shown["last_error"]["class"], "denied");
    assert_eq!(shown["fingerprint"].as_str().unwrap().len(), 8);
    assert_eq!(
        shown["next_attempt"],
        (fixture.clock.now().wall + SignedDuration::from_secs(30)).to_string()
    );
    assert!(!shown.to_string().contains("t1"));
}

#[tokio::test]
async fn the_log_names_the_cluster() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::sync::Mutex::new(log.reopen().unwrap()))
        .finish();
    // Tasks of this runtime run on this thread.
    let _logged = tracing::subscriber::set_default(subscriber);
    let fixture = Fixture::new(
        Provider::new(|_, _| Err(error(MintErrorClass::Denied))),
        ManualClock::new(),
    );
    assert_eq!(waits(fixture.slot("c").get(later()).await).0, MintErrorClass::Denied);
    // Another thread without a log may have been the first at that line just now, and turned it off.
    tracing::callsite::rebuild_interest_cache();
    assert_eq!(waits(fixture.slot("d").get(later()).await).0, MintErrorClass::Denied);
    let text = std::fs::read_to_string(log.path()).unwrap();
    let line = text.lines().find(|line| line.contains("a mint failed")).unwrap();
    assert!(
        line.contains("cluster=\"production\"") && line.contains("class=\"denied\""),
        "{line}"
    );
}
