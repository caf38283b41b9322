use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;

use super::super::{CLOCK_SKEW, LIFETIME, OVERLAP, RENEWAL};
use super::{END, Pair, Stored, after, before};

const NAME: &str = "tollgate-admission.argocd.svc";
const SECOND: Duration = Duration::from_secs(1);

fn now() -> Timestamp {
    "2026-11-27T00:00:00Z".parse().unwrap()
}

/// What follows from what is stored, if it has to change.
fn step(stored: &Stored, is_trusted: bool, at: Timestamp) -> Option<(Stored, &'static str)> {
    stored.due(NAME, is_trusted, at).unwrap()
}

fn first() -> Stored {
    let (stored, why) = step(&Stored::default(), false, now()).unwrap();
    assert_eq!(why, "there was none that can be used");
    assert!(stored.next.is_none());
    stored
}

fn count(pem: &str) -> usize {
    pem.matches(END).count()
}

#[test]
fn a_pair_is_valid_for_its_name_from_a_little_before_until_its_end() {
    let pair = first().current.unwrap();
    let end = after(now(), LIFETIME);
    for (name, at, expected) in [
        (NAME, now(), true),
        (NAME, before(now(), CLOCK_SKEW), true),
        (NAME, before(now(), CLOCK_SKEW + SECOND), false),
        (NAME, end, true),
        (NAME, after(end, SECOND), false),
        ("tollgate-admission.other.svc", now(), false),
    ] {
        assert_eq!(pair.is_valid(name, at), expected, "{name} {at}");
    }
}

#[test]
fn a_pair_of_another_key_or_authority_cannot_be_used() {
    let (pair, other) = (first().current.unwrap(), first().current.unwrap());
    assert_ne!(pair.authorities, other.authorities);
    let mixed = [
        Pair {
            key: other.key.clone(),
            ..pair.clone()
        },
        Pair {
            authorities: other.authorities.clone(),
            ..pair.clone()
        },
        Pair {
            certificate: other.certificate,
            ..pair.clone()
        },
        Pair {
            key: SecretString::from("no key"),
            ..pair.clone()
        },
        Pair {
            certificate: String::new(),
            ..pair.clone()
        },
        Pair {
            authorities: "no certificate".to_owned(),
            ..pair.clone()
        },
    ];
    for broken in mixed {
        let stored = Stored {
            current: Some(broken),
            next: None,
        };
        let (stored, _) = step(&stored, true, now()).unwrap();
        assert!(stored.current.unwrap().is_valid(NAME, now()));
        assert!(stored.next.is_none());
    }
    assert!(pair.is_valid(NAME, now()));
}

#[test]
fn the_next_pair_is_made_ahead_and_used_once_it_is_known() {
    let stored = first();
    let due = before(after(now(), LIFETIME), RENEWAL);
    assert!(step(&stored, true, now()).is_none());
    assert!(step(&stored, true, due).is_none());
    let due = after(due, SECOND);
    let (prepared, why) = step(&stored, true, due).unwrap();
    assert_eq!(why, "the next one is prepared");
    let (current, next) = (prepared.current.clone().unwrap(), prepared.next.clone().unwrap());
    assert_eq!(current.certificate, stored.current.as_ref().unwrap().certificate);
    assert_eq!(
        prepared.bundle(),
        [current.authorities.clone(), next.authorities.clone()].concat()
    );

    // Neither before API servers had the time, nor while they do not trust it.
    let known = after(due, OVERLAP);
    assert!(step(&prepared, true, before(known, SECOND)).is_none());
    assert!(step(&prepared, false, known).is_none());
    assert!(step(&prepared, false, after(known, OVERLAP)).is_none());
    let (used, why) = step(&prepared, true, known).unwrap();
    assert_eq!(why, "the next one is in use now");
    assert!(used.next.is_none());
    let pair = used.current.clone().unwrap();
    assert_eq!(pair.certificate, next.certificate);
    // Replicas that serve the former one are trusted, too.
    assert_eq!(used.bundle(), [next.authorities, current.authorities].concat());
    assert!(step(&used, true, known).is_none());

    // Of former authorities only the last one stays.
    let due = after(before(after(due, LIFETIME), RENEWAL), SECOND);
    let (prepared, _) = step(&used, true, due).unwrap();
    assert_eq!(count(&prepared.bundle()), 3);
    let (used, _) = step(&prepared, true, after(due, OVERLAP)).unwrap();
    assert_eq!(count(&used.bundle()), 2);
}

#[test]
fn after_a_long_pause_something_that_is_valid_is_used_at_once() {
    let stored = first();
    let end = after(now(), LIFETIME + SECOND);
    let (new, why) = step(&stored, true, end).unwrap();
    assert_eq!(why, "there was none that can be used");
    assert_eq!(count(&new.bundle()), 1, "nothing that has ended stays trusted");

    let due = after(before(after(now(), LIFETIME), RENEWAL), SECOND);
    let (prepared, _) = step(&stored, true, due).unwrap();
    let (used, why) = step(&prepared, false, end).unwrap();
    assert_eq!(why, "the former one cannot be used");
    assert_eq!(
        used.current.unwrap().certificate,
        prepared.next.clone().unwrap().certificate
    );

    // A next pair that cannot be used is made again.
    let mut next = prepared.next.clone().unwrap();
    next.key = SecretString::from("no key");
    let broken = Stored {
        next: Some(next),
        ..prepared
    };
    let (prepared, _) = step(&broken, true, due).unwrap();
    assert!(prepared.next.unwrap().is_valid(NAME, due));
}

/// SECURITY: a key in a log is a key that somebody else has.
#[test]
fn no_text_of_a_pair_has_its_key() {
    use secrecy::ExposeSecret as _;

    let pair = first().current.unwrap();
    let secret = pair.key.expose_secret().lines().nth(1).unwrap().to_owned();
    assert!(!format!("{pair:?}").contains(&secret));
}
