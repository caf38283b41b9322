use std::num::NonZeroU32;

use super::*;
use tollgate_objects::extensions::LimitSpec;

fn some(number: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(number)
}

fn refusal(limiter: &Arc<Limiter>, person: u64) -> (LimitKind, u64) {
    let refused = limiter.acquire(person).expect_err("a refusal");
    (refused.kind, refused.retry_after_seconds)
}

#[test]
fn without_limits_every_request_passes() {
    let limiter = Limiter::new(&LimitSpec::default());
    let permits: Vec<_> = (0..1000).map(|_| limiter.acquire(1).unwrap()).collect();
    assert_eq!(limiter.open(), 1000);
    drop(permits);
    assert_eq!(limiter.open(), 0);
    assert!(
        limiter.persons.iter().all(|shard| shard.lock().unwrap().is_empty()),
        "no person has an entry"
    );
}

#[test]
fn a_dropped_permit_frees_its_concurrency() {
    let limiter = Limiter::new(&LimitSpec {
        concurrency: some(2),
        ..LimitSpec::default()
    });
    let first = limiter.acquire(1).unwrap();
    let _second = limiter.acquire(2).unwrap();
    assert_eq!(refusal(&limiter, 3), (LimitKind::ExtensionConcurrency, 1));
    drop(first);
    limiter.acquire(3).unwrap();
}

#[test]
fn one_person_does_not_use_the_others_share() {
    let mut spec = LimitSpec::default();
    spec.per_person.concurrency = some(1);
    let limiter = Limiter::new(&spec);
    let first = limiter.acquire(1).unwrap();
    assert_eq!(refusal(&limiter, 1), (LimitKind::PersonConcurrency, 1));
    let _other = limiter.acquire(2).unwrap();
    drop(first);
    limiter.acquire(1).unwrap();
}

/// Milliseconds after the start.
fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn refusal_at(limiter: &Arc<Limiter>, person: u64, milliseconds: u64) -> (LimitKind, u64) {
    let refused = limiter.acquire_at(person, at(milliseconds)).expect_err("a refusal");
    (refused.kind, refused.retry_after_seconds)
}

#[test]
fn rates_allow_the_burst_and_then_the_rate() {
    let spec = LimitSpec {
        requests_per_second: some(2),
        burst: some(3),
        ..LimitSpec::default()
    };
    let limiter = Limiter::new(&spec);
    for _ in 0..3 {
        limiter.acquire_at(1, at(0)).unwrap();
    }
    assert_eq!(refusal_at(&limiter, 1, 0), (LimitKind::ExtensionRate, 1));
    assert_eq!(refusal_at(&limiter, 1, 499), (LimitKind::ExtensionRate, 1));
    limiter.acquire_at(1, at(500)).unwrap();
    assert_eq!(refusal_at(&limiter, 1, 500).0, LimitKind::ExtensionRate);
    for _ in 0..3 {
        limiter.acquire_at(1, at(60_000)).unwrap();
    }
    assert_eq!(
        refusal_at(&limiter, 1, 60_000).0,
        LimitKind::ExtensionRate,
        "unused time is not saved up"
    );
}

#[test]
fn a_person_above_the_rate_waits_and_others_do_not() {
    let mut spec = LimitSpec::default();
    spec.per_person.requests_per_second = some(1);
    let limiter = Limiter::new(&spec);
    limiter.acquire_at(1, at(0)).unwrap();
    assert_eq!(refusal_at(&limiter, 1, 0), (LimitKind::PersonRate, 1));
    limiter.acquire_at(2, at(0)).unwrap();
    limiter.acquire_at(1, at(1000)).unwrap();
}

#[test]
fn a_refusal_by_the_extensions_limit_does_not_count_for_the_person() {
    let mut spec = LimitSpec {
        concurrency: some(1),
        ..LimitSpec::default()
    };
    spec.per_person.requests_per_second = some(1);
    let limiter = Limiter::new(&spec);
    let open = limiter.acquire_at(1, at(0)).unwrap();
    for _ in 0..5 {
        assert_eq!(refusal_at(&limiter, 2, 0).0, LimitKind::ExtensionConcurrency);
    }
    drop(open);
    limiter.acquire_at(2, at(0)).unwrap();
}

#[test]
fn the_table_of_persons_is_bounded() {
    let mut spec = LimitSpec::default();
    spec.per_person.concurrency = some(1);
    let limiter = Limiter::new(&spec);
    let shards = u64::try_from(SHARDS).unwrap();
    let persons = u64::try_from(SHARD_PERSONS).unwrap();
    let mut open: Vec<_> = (0..persons).map(|n| limiter.acquire(n * shards).unwrap()).collect();
    assert_eq!(refusal(&limiter, persons * shards).0, LimitKind::PersonConcurrency);
    limiter.acquire(1).expect("another shard has a free entry");
    open.pop();
    limiter
        .acquire(persons * shards)
        .expect("a released entry is free again");
}

#[test]
fn retry_after_is_rounded_up_to_whole_seconds() {
    for (nanoseconds, seconds) in [
        (0, 1),
        (1, 1),
        (1_000_000_000, 1),
        (1_000_000_001, 2),
        (2_500_000_000, 3),
    ] {
        assert_eq!(
            exceeded(LimitKind::ExtensionRate, nanoseconds).retry_after_seconds,
            seconds
        );
    }
}
