//! The renewal window, for chosen and for random lifetimes.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

use super::{MAX_EXPIRY_SKEW, Moment, RenewalWindow};
use tollgate_config::MAX_RENEW_AFTER;

fn known(seconds: i64) -> Option<SignedDuration> {
    Some(SignedDuration::from_secs(seconds))
}

fn check(lifetime: Option<SignedDuration>, refresh: f64, unusable: f64) {
    let expected = RenewalWindow {
        refresh: Duration::from_secs_f64(refresh),
        unusable: Duration::from_secs_f64(unusable),
    };
    assert_eq!(
        RenewalWindow::for_lifetime(lifetime, 0.0),
        Some(expected),
        "{lifetime:?}"
    );
}

#[test]
fn windows_of_common_lifetimes() {
    check(known(3600), 2880.0, 3570.0);
    check(known(900), 720.0, 870.0);
    check(known(120), 90.0, 90.0);
    check(known(119), 89.25, 89.25);
    check(known(10), 7.5, 7.5);
    check(known(1), 0.75, 0.75);
    check(None, 240.0, 270.0);
    check(known(86_400), 3600.0, 86_370.0);
}

#[test]
fn an_expired_lifetime_has_no_window() {
    assert_eq!(RenewalWindow::for_lifetime(known(0), 0.0), None);
    assert_eq!(RenewalWindow::for_lifetime(known(-1), 0.0), None);
    assert_eq!(RenewalWindow::for_lifetime(Some(SignedDuration::MIN), 1.0), None);
    assert!(RenewalWindow::for_lifetime(Some(SignedDuration::from_nanos(1)), 1.0).is_some());
}

#[test]
fn the_longest_lifetime_does_not_overflow() {
    let window = RenewalWindow::for_lifetime(Some(SignedDuration::MAX), 1.0).unwrap();
    let now = Moment {
        monotonic: Duration::from_secs(5),
        wall: Timestamp::UNIX_EPOCH,
    };
    let deadlines = window.deadlines_from(now);
    assert_eq!(deadlines.unusable.wall, Timestamp::MAX);
    assert!(deadlines.is_usable(now) && !deadlines.is_renewal_due(now));
}

#[test]
fn either_clock_ends_the_lifetime() {
    let start = Moment {
        monotonic: Duration::from_secs(100),
        wall: Timestamp::from_second(1_000_000).unwrap(),
    };
    let deadlines = RenewalWindow::for_lifetime(known(900), 0.0)
        .unwrap()
        .deadlines_from(start);
    let at = |monotonic: u64, wall: i64| Moment {
        monotonic: start.monotonic + Duration::from_secs(monotonic),
        wall: start.wall + SignedDuration::from_secs(wall),
    };
    assert!(deadlines.is_usable(at(869, 869)) && deadlines.is_renewal_due(at(720, 720)));
    assert!(!deadlines.is_renewal_due(at(719, 719)));
    assert!(!deadlines.is_usable(at(870, 870)));
    // The machine slept: only the wall clock went on.
    assert!(!deadlines.is_usable(at(1, 870)) && deadlines.is_renewal_due(at(1, 720)));
    // Somebody set the wall clock back: only the monotonic one went on.
    assert!(!deadlines.is_usable(at(870, -5000)) && deadlines.is_renewal_due(at(720, -5000)));
}

proptest! {
    #[test]
    fn every_lifetime_has_an_ordered_window(nanos in 1_i64..i64::MAX, jitter in 0.0_f64..=1.0) {
        let lifetime = Duration::from_nanos(nanos.unsigned_abs());
        let window = RenewalWindow::for_lifetime(Some(SignedDuration::from_nanos(nanos)), jitter);
        let window = window.expect("alive");
        let skew = lifetime - window.unusable;
        prop_assert!(window.refresh <= window.unusable && window.unusable <= lifetime);
        prop_assert!(window.refresh <= MAX_RENEW_AFTER);
        prop_assert_eq!(skew, MAX_EXPIRY_SKEW.min(lifetime / 4));
        let latest = RenewalWindow::for_lifetime(Some(SignedDuration::from_nanos(nanos)), 0.0).expect("alive").refresh;
        prop_assert!(window.refresh <= latest);
        prop_assert!(window.refresh >= latest.mul_f64(0.949_999));
    }

    #[test]
    fn a_longer_lifetime_is_never_usable_for_less_time(one in 1_i64..1_000_000_000, more in 0_i64..1_000_000_000) {
        let window = |millis| RenewalWindow::for_lifetime(Some(SignedDuration::from_millis(millis)), 0.0).expect("alive");
        let (short, long) = (window(one), window(one + more));
        prop_assert!(short.refresh <= long.refresh && short.unusable <= long.unusable);
    }

    #[test]
    fn jitter_out_of_range_is_clamped(jitter in -5.0_f64..5.0) {
        let window = RenewalWindow::for_lifetime(known(900), jitter).expect("alive");
        prop_assert!(window.refresh >= Duration::from_secs(684) && window.refresh <= Duration::from_secs(720));
    }
}
