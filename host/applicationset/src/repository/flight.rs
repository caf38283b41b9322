//! The fetches in progress. Requests for the same revision share one fetch.
//!
//! Invariant: no single host can occupy all slots.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use super::cache::Checkout;
use super::permission::AllowedRepository;
use super::{Error, MAX_FETCHES, MAX_FETCHES_OF_HOST, MAX_FETCHES_OF_REPOSITORY};

/// A revision of a repository, read with certain credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FetchKey {
    /// Fingerprint of repository and credentials.
    pub(super) repository: [u8; 32],
    host: String,
    /// Branch, tag, `HEAD` or commit.
    pub(super) revision: String,
}

impl FetchKey {
    pub(super) fn new(permitted: &AllowedRepository, revision: &str) -> Self {
        Self {
            repository: permitted.fingerprint(),
            host: permitted.location().host(),
            revision: revision.to_owned(),
        }
    }
}

/// One fetch, and its outcome.
#[derive(Debug)]
pub(super) struct InFlightFetch {
    begun: Instant,
    outcome: OnceLock<Result<Arc<Checkout>, Error>>,
}

impl InFlightFetch {
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    pub(super) fn outcome(&self) -> Option<&Result<Arc<Checkout>, Error>> {
        self.outcome.get()
    }
}

/// All fetches in progress.
#[derive(Debug, Default)]
pub(super) struct InFlightFetches {
    by_key: HashMap<FetchKey, Arc<InFlightFetch>>,
    begun: u64,
}

impl InFlightFetches {
    pub(super) fn of(&self, asked: &FetchKey) -> Option<Arc<InFlightFetch>> {
        self.by_key.get(asked).cloned()
    }

    pub(super) fn running(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Whether one more may start.
    pub(super) fn has_capacity(&self, asked: &FetchKey) -> bool {
        let same = |of: fn(&FetchKey, &FetchKey) -> bool| self.by_key.keys().filter(|other| of(other, asked)).count();
        self.by_key.len() < MAX_FETCHES
            && same(|a, b| a.host == b.host) < MAX_FETCHES_OF_HOST
            && same(|a, b| a.repository == b.repository) < MAX_FETCHES_OF_REPOSITORY
    }

    pub(super) fn begin(&mut self, asked: &FetchKey) -> Arc<InFlightFetch> {
        let flight = Arc::new(InFlightFetch {
            begun: Instant::now(),
            outcome: OnceLock::new(),
        });
        self.by_key.insert(asked.clone(), Arc::clone(&flight));
        self.begun = self.begun.saturating_add(1);
        flight
    }

    pub(super) fn end(&mut self, asked: &FetchKey, outcome: Result<Arc<Checkout>, Error>) {
        if let Some(flight) = self.by_key.remove(asked) {
            // It is set nowhere else.
            let _ = flight.outcome.set(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FetchKey, InFlightFetches};
    use crate::repository::{MAX_FETCHES, MAX_FETCHES_OF_HOST, MAX_FETCHES_OF_REPOSITORY};

    fn asked(host: usize, repository: u8, revision: usize) -> FetchKey {
        FetchKey {
            repository: [repository; 32],
            host: format!("host{host}"),
            revision: revision.to_string(),
        }
    }

    #[test]
    fn a_repository_takes_its_places_only() {
        let mut flights = InFlightFetches::default();
        for revision in 0..MAX_FETCHES_OF_REPOSITORY {
            assert!(flights.has_capacity(&asked(0, 0, revision)));
            flights.begin(&asked(0, 0, revision));
        }
        assert!(!flights.has_capacity(&asked(0, 0, 99)), "of the same repository");
        assert!(flights.has_capacity(&asked(0, 1, 0)), "of another one of the host");
    }

    #[test]
    fn a_host_takes_its_places_only() {
        let mut flights = InFlightFetches::default();
        for repository in (0u8..).take(MAX_FETCHES_OF_HOST) {
            assert!(flights.has_capacity(&asked(0, repository, 0)));
            flights.begin(&asked(0, repository, 0));
        }
        assert!(!flights.has_capacity(&asked(0, 99, 0)), "of the same host");
        assert!(flights.has_capacity(&asked(1, 99, 0)), "of another host");
    }

    #[test]
    fn all_places_are_counted_and_given_back() {
        let mut flights = InFlightFetches::default();
        for number in 0..MAX_FETCHES {
            flights.begin(&asked(number, u8::try_from(number).unwrap(), 0));
        }
        assert!(!flights.has_capacity(&asked(99, 99, 0)));
        let error = super::Error::Disk { reason: String::new() };
        flights.end(&asked(0, 0, 0), Err(error));
        assert!(flights.has_capacity(&asked(99, 99, 0)));
        assert_eq!(flights.running(), MAX_FETCHES - 1);
    }
}
