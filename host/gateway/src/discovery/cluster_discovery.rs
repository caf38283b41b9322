//! What is known about the resources of one cluster, and the discovery requests in progress. A kind
//! comes from memory or from the cluster.
//!
//! Invariant: no two requests for one part run at once, and no part is kept that the cluster did
//! not name.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::answer::{self, DiscoveryContent, DiscoveryEndpoint, EndpointError};
use super::{Error, Limits, ResourceKind};
use crate::cluster_access::ClusterAccess;
use tollgate_core::diagnostic::shortened;
use tollgate_identity::clock::Clock;

/// Age at which a part is fetched again.
const REFRESH: Duration = Duration::from_secs(600);
/// Age at which a part is no longer used.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// Minimum time between two requests for the same part.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(3);
/// Maximum requests for one lookup: the list of versions, the content of one version, and each once
/// more if another caller's request came first.
const MAX_FETCHES: usize = 4;
/// Bytes of a resource in an error.
const SHOWN_BYTES: usize = 256;

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) resource: &'a str,
}

/// One cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterDiscovery {
    parts: Mutex<HashMap<DiscoveryEndpoint, EndpointState>>,
    /// How many kinds are known.
    kinds: AtomicU32,
    /// Number of kinds when the weight was computed.
    weighed: AtomicU32,
}

/// One part of what a cluster says.
#[derive(Debug, Default)]
struct EndpointState {
    known: Option<DiscoveryContent>,
    /// Running time when it was read.
    read_at: Duration,
    /// Running time when the last question ended.
    tried_at: Option<Duration>,
    /// The failure of the last request, if it failed.
    problem: Option<EndpointError>,
    /// Closed when the request in progress ends.
    flight: Option<watch::Receiver<()>>,
}

/// A request that this caller must send.
struct FetchTask {
    part: DiscoveryEndpoint,
    /// Dropping it wakes those who wait.
    end: watch::Sender<()>,
}

enum LookupStep {
    Known(ResourceKind),
    /// Usable, but must be refreshed.
    Stale(ResourceKind, FetchTask),
    Fetch(FetchTask),
    Wait(watch::Receiver<()>),
    Unknown,
    Failed(EndpointError),
}

impl ClusterDiscovery {
    /// The weight: how many kinds are known.
    pub(super) fn kind_count(&self) -> u32 {
        let kinds = self.kinds.load(Ordering::Relaxed);
        self.weighed.store(kinds, Ordering::Relaxed);
        kinds
    }

    /// Whether more or fewer kinds are known than when it was weighed.
    pub(super) fn kind_count_changed(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) != self.weighed.load(Ordering::Relaxed)
    }

    /// As [`super::Discovery::find`].
    pub(super) async fn find(
        self: &Arc<Self>,
        access: &Arc<ClusterAccess>,
        asked: Asked<'_>,
        (clock, limits): (&Clock, Limits),
    ) -> Result<ResourceKind, Error> {
        let launch =
            |start| tokio::spawn(Arc::clone(self).run_fetch(start, Arc::clone(access), (clock.clone(), limits)));
        for _ in 0..MAX_FETCHES {
            let mut flight = match self.step(asked, clock.uptime()) {
                LookupStep::Known(kind) => return Ok(kind),
                LookupStep::Stale(kind, start) => {
                    launch(start);
                    return Ok(kind);
                }
                LookupStep::Fetch(start) => {
                    let flight = start.end.subscribe();
                    launch(start);
                    flight
                }
                LookupStep::Wait(flight) => flight,
                LookupStep::Unknown => break,
                LookupStep::Failed(source) => {
                    return Err(Error::Unavailable {
                        cluster: Arc::clone(access.label()),
                        source,
                    });
                }
            };
            // It only ever ends.
            drop(flight.changed().await);
        }
        Err(asked.unknown(access))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<DiscoveryEndpoint, EndpointState>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, asked: Asked<'_>, now: Duration) -> LookupStep {
        let mut parts = self.lock();
        let top = DiscoveryEndpoint::of_group(asked.group);
        let (part, kind) = match parts.get(&top).and_then(|slot| slot.known.as_ref()) {
            None => (top, None),
            Some(DiscoveryContent::Kinds(kinds)) => (top, kinds.get(asked)),
            Some(DiscoveryContent::Versions(versions)) if versions.contains(asked.group, asked.version) => {
                let part = DiscoveryEndpoint::of_version(asked.group, asked.version);
                let known = parts.get(&part).and_then(|slot| slot.known.as_ref());
                let kind = known.and_then(|content| content.kind(asked));
                (part, kind)
            }
            Some(DiscoveryContent::Versions(_)) => (top, None),
        };
        let slot = match parts.entry(part.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(EndpointState::default()),
        };
        slot.step(part, kind, now)
    }

    /// Sends the request and stores the answer, even if nobody waits for it any more.
    async fn run_fetch(
        self: Arc<Self>,
        start: FetchTask,
        access: Arc<ClusterAccess>,
        (clock, limits): (Clock, Limits),
    ) {
        let FetchTask { part, end } = start;
        let answer = answer::fetch(&access, &part, limits).await;
        if let Err(problem) = &answer {
            let cluster = access.label();
            tracing::warn!(%cluster, %problem, "the cluster does not say which resources it serves");
        }
        let now = clock.uptime();
        let mut parts = self.lock();
        if let Ok(DiscoveryContent::Versions(versions)) = &answer {
            parts.retain(|known, _| versions.still_lists(known, &part));
        }
        let slot = parts.entry(part).or_default();
        slot.store_result(answer, now);
        let known = parts.values().filter_map(|slot| slot.known.as_ref());
        let kinds: usize = known.map(DiscoveryContent::len).sum();
        self.kinds
            .store(u32::try_from(kinds).unwrap_or(u32::MAX), Ordering::Relaxed);
        drop(parts);
        drop(end);
    }
}

impl EndpointState {
    fn step(&mut self, part: DiscoveryEndpoint, kind: Option<ResourceKind>, now: Duration) -> LookupStep {
        let age = now.saturating_sub(self.read_at);
        // A task that ended without storing a result is no longer in progress.
        let flight = self.flight.take_if(|flight| flight.has_changed().is_err());
        drop(flight);
        let rested = self
            .tried_at
            .is_none_or(|tried| now.saturating_sub(tried) >= MIN_FETCH_INTERVAL);
        match kind {
            Some(kind) if age < REFRESH || (age < MAX_AGE && (self.flight.is_some() || !rested)) => {
                LookupStep::Known(kind)
            }
            Some(kind) if age < MAX_AGE => LookupStep::Stale(kind, self.start(part)),
            Some(_) | None => match &self.flight {
                Some(flight) => LookupStep::Wait(flight.clone()),
                None if rested => LookupStep::Fetch(self.start(part)),
                None => match &self.problem {
                    Some(problem) => LookupStep::Failed(problem.clone()),
                    None => LookupStep::Unknown,
                },
            },
        }
    }

    fn start(&mut self, part: DiscoveryEndpoint) -> FetchTask {
        let (end, flight) = watch::channel(());
        self.flight = Some(flight);
        FetchTask { part, end }
    }

    fn store_result(&mut self, answer: Result<DiscoveryContent, EndpointError>, now: Duration) {
        self.flight = None;
        self.tried_at = Some(now);
        match answer {
            Ok(content) => {
                self.known = Some(content);
                self.read_at = now;
                self.problem = None;
            }
            Err(problem) => self.problem = Some(problem),
        }
    }
}

impl Asked<'_> {
    fn unknown(&self, access: &ClusterAccess) -> Error {
        let Self {
            group,
            version,
            resource,
        } = self;
        let resource = match group.is_empty() {
            true => format!("{resource}/{version}"),
            false => format!("{resource}.{group}/{version}"),
        };
        Error::Unknown {
            cluster: Arc::clone(access.label()),
            resource: shortened(&resource, SHOWN_BYTES),
        }
    }
}
