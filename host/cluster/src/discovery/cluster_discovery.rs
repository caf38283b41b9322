//! The cached discovery documents of one cluster, and the fetches in flight.
//!
//! Invariant: no two fetches of one endpoint run at once, and no endpoint is cached that the
//! cluster does not list.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::answer::{self, DiscoveryContent, DiscoveryEndpoint, EndpointError};
use super::{Error, Limits, ResourceKind};
use crate::access::ClusterAccess;
use tollgate_core::diagnostic::shortened;
use tollgate_identity::clock::Clock;

/// Age at which the content of an endpoint is fetched again.
const REFRESH: Duration = Duration::from_secs(600);
/// Age at which the content of an endpoint is no longer used.
const MAX_AGE: Duration = Duration::from_secs(3600);
/// Minimum time between two fetches of the same endpoint.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(3);
/// Maximum fetches for one lookup: the list of versions, the content of one version, and each once
/// more if another caller's fetch came first.
const MAX_FETCHES: usize = 4;
const SHOWN_BYTES: usize = 256;

#[derive(Clone, Copy, Debug)]
pub(super) struct GroupVersionResource<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) resource: &'a str,
}

#[derive(Debug, Default)]
pub(super) struct ClusterDiscovery {
    endpoints: Mutex<HashMap<DiscoveryEndpoint, EndpointState>>,
    kinds: AtomicU32,
    /// Number of kinds when the cache last computed the weight.
    weighed_kinds: AtomicU32,
}

#[derive(Debug, Default)]
struct EndpointState {
    content: Option<DiscoveryContent>,
    /// Uptime when the content was fetched.
    read_at: Duration,
    /// Uptime when the last fetch ended.
    tried_at: Option<Duration>,
    problem: Option<EndpointError>,
    /// Closed when the fetch in flight ends.
    in_flight: Option<watch::Receiver<()>>,
}

/// A fetch that this caller must run.
struct FetchTask {
    endpoint: DiscoveryEndpoint,
    /// Dropping it wakes those that wait.
    done: watch::Sender<()>,
}

enum LookupStep {
    Known(ResourceKind),
    /// The kind is usable, but must be refreshed.
    Stale(ResourceKind, FetchTask),
    Fetch(FetchTask),
    Wait(watch::Receiver<()>),
    Unknown,
    Failed(EndpointError),
}

impl ClusterDiscovery {
    pub(super) fn kind_count(&self) -> u32 {
        let kinds = self.kinds.load(Ordering::Relaxed);
        self.weighed_kinds.store(kinds, Ordering::Relaxed);
        kinds
    }

    /// Whether the number of kinds changed since [`ClusterDiscovery::kind_count`] was called.
    pub(super) fn kind_count_changed(&self) -> bool {
        self.kinds.load(Ordering::Relaxed) != self.weighed_kinds.load(Ordering::Relaxed)
    }

    pub(super) async fn find(
        self: &Arc<Self>,
        access: &Arc<ClusterAccess>,
        gvr: GroupVersionResource<'_>,
        clock: &Clock,
        limits: Limits,
    ) -> Result<ResourceKind, Error> {
        let launch = |task| tokio::spawn(Arc::clone(self).run_fetch(task, Arc::clone(access), clock.clone(), limits));
        for _ in 0..MAX_FETCHES {
            let mut in_flight = match self.step(gvr, clock.uptime()) {
                LookupStep::Known(kind) => return Ok(kind),
                LookupStep::Stale(kind, task) => {
                    launch(task);
                    return Ok(kind);
                }
                LookupStep::Fetch(task) => {
                    let in_flight = task.done.subscribe();
                    launch(task);
                    in_flight
                }
                LookupStep::Wait(in_flight) => in_flight,
                LookupStep::Unknown => break,
                LookupStep::Failed(source) => {
                    return Err(Error::Unavailable {
                        cluster: Arc::clone(&access.label),
                        source,
                    });
                }
            };
            // Nothing is ever sent: an error means that the fetch ended.
            drop(in_flight.changed().await);
        }
        Err(gvr.unknown(access))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<DiscoveryEndpoint, EndpointState>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, gvr: GroupVersionResource<'_>, now: Duration) -> LookupStep {
        let mut endpoints = self.lock();
        let top = DiscoveryEndpoint::of_group(gvr.group);
        let (endpoint, kind) = match endpoints.get(&top).and_then(|state| state.content.as_ref()) {
            None => (top, None),
            Some(DiscoveryContent::Kinds(kinds)) => (top, kinds.get(gvr)),
            Some(DiscoveryContent::Versions(versions)) if versions.contains(gvr.group, gvr.version) => {
                let endpoint = DiscoveryEndpoint::of_version(gvr.group, gvr.version);
                let content = endpoints.get(&endpoint).and_then(|state| state.content.as_ref());
                let kind = content.and_then(|content| content.kind(gvr));
                (endpoint, kind)
            }
            Some(DiscoveryContent::Versions(_)) => (top, None),
        };
        let state = endpoints.entry(endpoint.clone()).or_default();
        state.step(endpoint, kind, now)
    }

    async fn run_fetch(self: Arc<Self>, task: FetchTask, access: Arc<ClusterAccess>, clock: Clock, limits: Limits) {
        let FetchTask { endpoint, done } = task;
        let answer = answer::fetch(&access, &endpoint, limits).await;
        if let Err(problem) = &answer {
            let cluster = &access.label;
            tracing::warn!(%cluster, %problem, "the cluster does not say which resources it serves");
        }
        let now = clock.uptime();
        let mut endpoints = self.lock();
        if let Ok(DiscoveryContent::Versions(versions)) = &answer {
            endpoints.retain(|listed, _| versions.still_lists(listed, &endpoint));
        }
        let state = endpoints.entry(endpoint).or_default();
        state.store_result(answer, now);
        let contents = endpoints.values().filter_map(|state| state.content.as_ref());
        let kinds: usize = contents.map(DiscoveryContent::len).sum();
        self.kinds
            .store(u32::try_from(kinds).unwrap_or(u32::MAX), Ordering::Relaxed);
        drop(endpoints);
        drop(done);
    }
}

impl EndpointState {
    fn step(&mut self, endpoint: DiscoveryEndpoint, kind: Option<ResourceKind>, now: Duration) -> LookupStep {
        let age = now.saturating_sub(self.read_at);
        // A task that ended without storing a result is no longer in progress.
        drop(self.in_flight.take_if(|in_flight| in_flight.has_changed().is_err()));
        let may_fetch = self
            .tried_at
            .is_none_or(|tried| now.saturating_sub(tried) >= MIN_FETCH_INTERVAL);
        match kind {
            Some(kind) if age < REFRESH || (age < MAX_AGE && (self.in_flight.is_some() || !may_fetch)) => {
                LookupStep::Known(kind)
            }
            Some(kind) if age < MAX_AGE => LookupStep::Stale(kind, self.start_fetch(endpoint)),
            Some(_) | None => match &self.in_flight {
                Some(in_flight) => LookupStep::Wait(in_flight.clone()),
                None if may_fetch => LookupStep::Fetch(self.start_fetch(endpoint)),
                None => self.problem.clone().map_or(LookupStep::Unknown, LookupStep::Failed),
            },
        }
    }

    fn start_fetch(&mut self, endpoint: DiscoveryEndpoint) -> FetchTask {
        let (done, in_flight) = watch::channel(());
        self.in_flight = Some(in_flight);
        FetchTask { endpoint, done }
    }

    fn store_result(&mut self, answer: Result<DiscoveryContent, EndpointError>, now: Duration) {
        self.in_flight = None;
        self.tried_at = Some(now);
        match answer {
            Ok(content) => {
                self.content = Some(content);
                self.read_at = now;
                self.problem = None;
            }
            Err(problem) => self.problem = Some(problem),
        }
    }
}

impl GroupVersionResource<'_> {
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
            cluster: Arc::clone(&access.label),
            resource: shortened(&resource, SHOWN_BYTES),
        }
    }
}
