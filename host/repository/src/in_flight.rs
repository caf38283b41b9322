//! The fetches in progress. Requests for the same revision share one fetch.
//!
//! Invariant: no single host can occupy all slots.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use crate::cache::Checkout;
use crate::fetch_key::FetchKey;
use crate::{Error, MAX_FETCHES, MAX_FETCHES_OF_HOST, MAX_FETCHES_OF_REPOSITORY};

#[derive(Debug)]
pub(crate) struct InFlightFetch {
    pub(crate) started_at: Instant,
    pub(crate) outcome: OnceLock<Result<Arc<Checkout>, Error>>,
}

#[derive(Debug, Default)]
pub(crate) struct InFlightFetches {
    pub(crate) by_key: HashMap<FetchKey, Arc<InFlightFetch>>,
    pub(crate) started_count: u64,
}

impl InFlightFetches {
    pub(crate) fn has_capacity(&self, key: &FetchKey) -> bool {
        let same = |of: fn(&FetchKey, &FetchKey) -> bool| self.by_key.keys().filter(|other| of(other, key)).count();
        self.by_key.len() < MAX_FETCHES
            && same(|a, b| a.host == b.host) < MAX_FETCHES_OF_HOST
            && same(|a, b| a.repository == b.repository) < MAX_FETCHES_OF_REPOSITORY
    }

    pub(crate) fn begin(&mut self, key: &FetchKey) -> Arc<InFlightFetch> {
        self.started_count = self.started_count.saturating_add(1);
        let fetch = self.by_key.entry(key.clone()).insert_entry(Arc::new(InFlightFetch {
            started_at: Instant::now(),
            outcome: OnceLock::new(),
        }));
        Arc::clone(fetch.get())
    }

    pub(crate) fn end(&mut self, key: &FetchKey, outcome: Result<Arc<Checkout>, Error>) {
        if let Some(in_flight_fetch) = self.by_key.remove(key) {
            // It is set nowhere else.
            let _ = in_flight_fetch.outcome.set(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FetchKey, InFlightFetches};
    use crate::{MAX_FETCHES, MAX_FETCHES_OF_HOST, MAX_FETCHES_OF_REPOSITORY};

    fn fetch_key(host: usize, repository: u8, revision: usize) -> FetchKey {
        FetchKey {
            repository: [repository; 32],
            host: format!("host{host}"),
            revision: revision.to_string(),
        }
    }

    #[test]
    fn fetches_of_one_repository_are_limited() {
        let mut in_flight = InFlightFetches::default();
        for revision in 0..MAX_FETCHES_OF_REPOSITORY {
            assert!(in_flight.has_capacity(&fetch_key(0, 0, revision)));
            in_flight.begin(&fetch_key(0, 0, revision));
        }
        assert!(
            !in_flight.has_capacity(&fetch_key(0, 0, 99)),
            "the repository is at its limit"
        );
        assert!(
            in_flight.has_capacity(&fetch_key(0, 1, 0)),
            "another repository of the host has capacity"
        );
    }

    #[test]
    fn fetches_of_one_host_are_limited() {
        let mut in_flight = InFlightFetches::default();
        for repository in (0u8..).take(MAX_FETCHES_OF_HOST) {
            assert!(in_flight.has_capacity(&fetch_key(0, repository, 0)));
            in_flight.begin(&fetch_key(0, repository, 0));
        }
        assert!(
            !in_flight.has_capacity(&fetch_key(0, 99, 0)),
            "the host is at its limit"
        );
        assert!(
            in_flight.has_capacity(&fetch_key(1, 99, 0)),
            "another host has capacity"
        );
    }

    #[test]
    fn all_fetches_are_limited_until_they_end() {
        let mut in_flight = InFlightFetches::default();
        for number in 0..MAX_FETCHES {
            in_flight.begin(&fetch_key(number, u8::try_from(number).unwrap(), 0));
        }
        assert!(!in_flight.has_capacity(&fetch_key(99, 99, 0)));
        let error = crate::Error::Disk { reason: String::new() };
        in_flight.end(&fetch_key(0, 0, 0), Err(error));
        assert!(in_flight.has_capacity(&fetch_key(99, 99, 0)));
        assert_eq!(in_flight.by_key.len(), MAX_FETCHES - 1);
    }
}
