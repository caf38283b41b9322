//! Computes how long to wait after a mint failed, from the kind of failure, the number of failures
//! and the provider's own request. Reads no clock.
//!
//! Invariant: no delay exceeds ten minutes.

use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};

use super::super::{MAX_RETRY_AFTER, MintErrorClass};

/// Whether delays and renewals are randomized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// They are random, so that clusters of one provider do not act at the same time.
    Random,
    /// They are exactly as computed. For tests.
    Off,
}

impl Jitter {
    /// A random number from 0 to 1, or 0.
    pub(super) fn fraction(self) -> f64 {
        match self {
            Self::Off => 0.0,
            Self::Random => {
                let mut bytes = [0; 4];
                // Without a random number there is no jitter. The times stay within bounds.
                if SystemRandom::new().fill(&mut bytes).is_err() {
                    return 0.0;
                }
                f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
            }
        }
    }
}

/// The first and the longest delay of a class.
pub(super) fn delay_bounds(class: MintErrorClass) -> (Duration, Duration) {
    let seconds = |first, longest| (Duration::from_secs(first), Duration::from_secs(longest));
    match class {
        MintErrorClass::Retryable => seconds(1, 60),
        MintErrorClass::Denied | MintErrorClass::Permanent => seconds(30, 600),
        MintErrorClass::Config => seconds(60, 600),
    }
}

/// The delay before the next attempt.
///
/// - `nth`: how many failures of this class came in a row, from 1.
/// - `retry_after`: what the provider asked for; up to [`MAX_RETRY_AFTER`]. It replaces the delay
///   of a retryable failure and may only lengthen that of another. Zero asks for nothing.
/// - `jitter`: 0 to 1. Shortens a retryable delay by up to nine tenths ("full jitter"; the rest
///   keeps many requests from trying at once) and another delay by up to a tenth, and lengthens
///   what the provider asked for by up to a tenth.
pub(super) fn delay(class: MintErrorClass, nth: u32, retry_after: Option<Duration>, jitter: f64) -> Duration {
    let jitter = jitter.clamp(0.0, 1.0);
    let (first, longest) = delay_bounds(class);
    let doubled = 2_u32.saturating_pow(nth.saturating_sub(1));
    let own = first.saturating_mul(doubled).min(longest);
    let taken = match class {
        MintErrorClass::Retryable => 0.9,
        MintErrorClass::Denied | MintErrorClass::Config | MintErrorClass::Permanent => 0.1,
    };
    let own = own.mul_f64(1.0 - taken * jitter);
    let Some(asked) = retry_after.filter(|asked| !asked.is_zero()) else {
        return own;
    };
    let asked = asked.min(MAX_RETRY_AFTER);
    let asked = asked.saturating_add(asked.mul_f64(0.1 * jitter)).min(MAX_RETRY_AFTER);
    match class {
        MintErrorClass::Retryable => asked,
        MintErrorClass::Denied | MintErrorClass::Config | MintErrorClass::Permanent => own.max(asked),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::{prop_assert, proptest};

    use super::{Jitter, MintErrorClass, delay, delay_bounds};

    const CLASSES: [MintErrorClass; 4] = [
        MintErrorClass::Retryable,
        MintErrorClass::Denied,
        MintErrorClass::Config,
        MintErrorClass::Permanent,
    ];

    fn check(class: MintErrorClass, expected: &[u64]) {
        let observed: Vec<_> = (1_u32..)
            .take(expected.len())
            .map(|nth| delay(class, nth, None, 0.0).as_secs())
            .collect();
        assert_eq!(observed, expected, "{class:?}");
    }

    #[test]
    fn delays_double_up_to_the_maximum() {
        check(MintErrorClass::Retryable, &[1, 2, 4, 8, 16, 32, 60, 60]);
        check(MintErrorClass::Denied, &[30, 60, 120, 240, 480, 600, 600]);
        check(MintErrorClass::Permanent, &[30, 60, 120, 240, 480, 600, 600]);
        check(MintErrorClass::Config, &[60, 120, 240, 480, 600, 600]);
        assert_eq!(
            delay(MintErrorClass::Retryable, u32::MAX, None, 0.0),
            Duration::from_secs(60)
        );
    }

    #[test]
    fn the_providers_retry_after_is_clamped_to_the_bounds() {
        let asks = |class, seconds| delay(class, 1, Some(Duration::from_secs(seconds)), 0.0).as_secs();
        assert_eq!(asks(MintErrorClass::Retryable, 120), 120);
        assert_eq!(asks(MintErrorClass::Retryable, 0), 1);
        assert_eq!(asks(MintErrorClass::Retryable, 3600), 600);
        assert_eq!(asks(MintErrorClass::Denied, 5), 30);
        assert_eq!(asks(MintErrorClass::Denied, 90), 90);
        assert_eq!(
            delay(MintErrorClass::Retryable, 7, Some(Duration::from_secs(2)), 0.0),
            Duration::from_secs(2)
        );
    }

    #[test]
    fn jitter_is_a_fraction_or_zero() {
        assert!(
            (0..1000)
                .map(|_| Jitter::Random.fraction())
                .all(|it| (0.0..=1.0).contains(&it))
        );
        assert!(Jitter::Off.fraction().abs() < f64::EPSILON);
    }

    proptest! {
        #[test]
        fn delays_stay_within_their_bounds(nth in 1_u32.., jitter in 0.0_f64..=1.0, asked in 0_u64..10_000) {
            for class in CLASSES {
                let (first, longest) = delay_bounds(class);
                let own = delay(class, nth, None, jitter);
                prop_assert!(own <= longest && own >= first.mul_f64(0.0999));
                let asked = Duration::from_secs(asked);
                let wait = delay(class, nth, Some(asked), jitter);
                prop_assert!(wait <= Duration::from_secs(600));
                prop_assert!(asked.is_zero() || wait >= asked.min(Duration::from_secs(600)));
            }
        }
    }
}
