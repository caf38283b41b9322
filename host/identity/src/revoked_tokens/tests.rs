use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{CLOCK_SKEW, MAX_REVOCATIONS, RevocationStatus, RevokedTokens, TokenIds, UNKNOWN_LIFETIME};
use crate::clock::Clock;
use crate::metrics::Metrics;
use tollgate_config::{ArgocdRedis, WhenUnavailable};

const GRACE: Duration = Duration::from_secs(10);

/// A list that nothing follows, and the clock it goes by.
fn list(when_unavailable: WhenUnavailable) -> (RevokedTokens, Clock) {
    let settings = ArgocdRedis {
        host: "127.0.0.1".to_owned(),
        port: 1,
        database: 0,
        tls: None,
        username: None,
        password_file: None,
        when_unavailable,
        grace_period: GRACE,
    };
    let clock = Clock::default();
    let list = RevokedTokens::new(settings, clock.clone(), Arc::new(Metrics::default()));
    (list, clock)
}

fn complete(when_unavailable: WhenUnavailable) -> (RevokedTokens, Clock) {
    let (list, clock) = list(when_unavailable);
    list.set_complete(clock.uptime());
    (list, clock)
}

fn claims(claims: Value) -> Map<String, Value> {
    let Value::Object(claims) = claims else {
        panic!("not an object: {claims}");
    };
    claims
}

fn token(id: &str) -> TokenIds {
    TokenIds::of(&claims(json!({"jti": id})))
}

#[test]
fn each_identifying_claim_counts_and_others_do_not() {
    let (list, _) = complete(WhenUnavailable::Deny);
    list.revoke([&b"a"[..]]);
    for (told, status) in [
        (json!({"jti": "a"}), RevocationStatus::Revoked),
        (json!({"uti": "a"}), RevocationStatus::Revoked),
        (json!({"at_hash": "a"}), RevocationStatus::Revoked),
        (json!({"jti": "b", "at_hash": "a"}), RevocationStatus::Revoked),
        (json!({"jti": "b"}), RevocationStatus::NotRevoked),
        (json!({"sub": "a"}), RevocationStatus::NotRevoked),
        (json!({"jti": ["a"]}), RevocationStatus::NotRevoked),
        (json!({"jti": ""}), RevocationStatus::NotRevoked),
    ] {
        assert_eq!(list.status(&TokenIds::of(&claims(told.clone()))), status, "{told}");
    }
}

#[test]
fn tokens_that_may_be_listed_are_unknown_until_the_list_was_read_and_after_the_grace_period() {
    let (list, clock) = list(WhenUnavailable::Deny);
    assert_eq!(list.status(&token("a")), RevocationStatus::Unknown);
    assert_eq!(
        list.status(&TokenIds::default()),
        RevocationStatus::NotRevoked,
        "it is never listed"
    );
    list.set_complete(clock.uptime());
    assert_eq!(list.status(&token("a")), RevocationStatus::NotRevoked);
    clock.advance(GRACE - Duration::from_secs(1));
    assert_eq!(list.status(&token("a")), RevocationStatus::NotRevoked);
    clock.advance(Duration::from_secs(2));
    assert_eq!(list.status(&token("a")), RevocationStatus::Unknown);
    assert!(list.is_unavailable());
    list.set_complete(clock.uptime());
    assert!(!list.is_unavailable());
}

#[test]
fn with_allow_only_what_is_listed_is_refused() {
    let (list, _) = list(WhenUnavailable::Allow);
    list.revoke([&b"a"[..]]);
    assert_eq!(list.status(&token("a")), RevocationStatus::Revoked);
    assert_eq!(list.status(&token("b")), RevocationStatus::NotRevoked);
    assert!(list.is_outdated() && !list.is_unavailable());
}

#[test]
fn a_revocation_is_kept_until_its_token_must_have_expired() {
    let (list, clock) = complete(WhenUnavailable::Allow);
    list.revoke([&b"short"[..], b"unnamed"]);
    assert!(list.needs_lifetime(b"short") && !list.needs_lifetime(b"other"));
    list.set_lifetime(b"short", Some(Duration::from_secs(60)));
    list.set_lifetime(b"unnamed", None);
    assert!(!list.needs_lifetime(b"short") && !list.needs_lifetime(b"unnamed"));
    let is_listed = |id: &str| list.status(&token(id)) == RevocationStatus::Revoked;
    clock.advance(CLOCK_SKEW + Duration::from_secs(55));
    list.forget_expired();
    assert!(is_listed("short"));
    clock.advance(Duration::from_secs(10));
    list.forget_expired();
    assert!(!is_listed("short") && is_listed("unnamed"));
    clock.advance(UNKNOWN_LIFETIME);
    list.forget_expired();
    assert!(!is_listed("unnamed"));
}

#[test]
fn revoking_again_neither_prolongs_nor_shortens() {
    let (list, clock) = complete(WhenUnavailable::Allow);
    list.revoke([&b"a"[..]]);
    list.set_lifetime(b"a", Some(Duration::from_secs(60)));
    list.revoke([&b"a"[..]]);
    assert!(!list.needs_lifetime(b"a"));
    clock.advance(CLOCK_SKEW + Duration::from_secs(65));
    list.forget_expired();
    assert_eq!(list.status(&token("a")), RevocationStatus::NotRevoked);
}

#[test]
fn a_list_that_is_full_counts_as_unavailable_and_keeps_what_it_has() {
    let (list, _) = complete(WhenUnavailable::Deny);
    let ids: Vec<_> = (0..MAX_REVOCATIONS).map(usize::to_be_bytes).collect();
    assert!(list.revoke(ids.iter().map(|id| &id[..])));
    assert_eq!(list.status(&token("a")), RevocationStatus::NotRevoked);
    assert!(!list.revoke([&b"one more"[..]]));
    assert_eq!(list.status(&token("a")), RevocationStatus::Unknown);
    assert!(list.revoke([&ids[0][..]]), "it is on the list already");
}

#[test]
fn those_who_wait_hear_of_new_revocations_only() {
    let (list, _) = complete(WhenUnavailable::Deny);
    let mut changes = list.subscribe();
    list.revoke([&b"a"[..]]);
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    list.revoke([&b"a"[..]]);
    assert!(!changes.has_changed().unwrap());
}
