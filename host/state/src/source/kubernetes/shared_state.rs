//! The state that the watching thread shares with the threads that load: the decoded objects, the
//! statuses of ApplicationSets, the failures of watches, and a count of changes.
//!
//! Invariant: no lock is held across an await.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use kube::runtime::watcher::Event;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::kinds::{WatchRequirement, WatchSpec, watch_specs};
use super::object::Object;
use super::watch_failure::WatchFailure;
use super::watch_store::{WatchState, WatchStore, name_of};
use tollgate_config::KubernetesState;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_objects::decode::read::{DecodedItem, ObjectKind};
use tollgate_objects::{ApplicationSetStatus, ApplicationSetStatuses};
use tollgate_objects::{ObjectName, WatchAge};

pub(super) struct SharedState {
    namespace: String,
    inner: Mutex<Inner>,
    /// Notified when a watch makes progress.
    progress: Condvar,
    count: watch::Sender<u64>,
    /// Never older than the objects: it changes under the lock of `inner`.
    statuses: watch::Sender<Arc<ApplicationSetStatuses>>,
    /// Notified when a request failed that another client might bring through.
    client_failed: Notify,
}

struct Inner {
    /// The last client that could be made, whose server may be unreachable.
    client: Option<Client>,
    /// Why no client can be made now; then the former one stays, if there was one.
    client_failure: Option<WatchFailure>,
    /// The last second of validity of the client's certificate.
    certificate_end: Option<u64>,
    stores: Vec<WatchStore>,
}

impl SharedState {
    pub(super) fn new(settings: &KubernetesState, namespace: &str) -> Self {
        let specs = watch_specs(settings, namespace);
        Self {
            namespace: namespace.to_owned(),
            inner: Mutex::new(Inner {
                client: None,
                client_failure: None,
                certificate_end: None,
                stores: specs.into_iter().map(WatchStore::new).collect(),
            }),
            progress: Condvar::new(),
            count: watch::Sender::new(0),
            statuses: watch::Sender::default(),
            client_failed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.progress.notify_all();
        self.count.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(super) fn watches(&self) -> Vec<WatchSpec> {
        self.lock().stores.iter().map(|store| store.spec.clone()).collect()
    }

    pub(super) fn count(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    pub(super) fn statuses(&self) -> watch::Receiver<Arc<ApplicationSetStatuses>> {
        self.statuses.subscribe()
    }

    pub(super) fn client(&self) -> Option<Client> {
        self.lock().client.clone()
    }

    /// The last second of validity of the client's certificate, since the Unix epoch.
    pub(super) fn certificate_end(&self) -> Option<u64> {
        self.lock().certificate_end
    }

    pub(super) fn record_client(&self, client: Client, certificate_end: Option<u64>) {
        let mut inner = self.lock();
        inner.client = Some(client);
        inner.certificate_end = certificate_end;
        let failure = inner.client_failure.take();
        drop(inner);
        // Otherwise nothing that a load reports has changed.
        if failure.is_some() {
            self.notify();
        }
    }

    pub(super) fn record_connection_error(&self, message: String) {
        let failure = Some(WatchFailure::other(message));
        let mut inner = self.lock();
        let is_other = inner.client_failure != failure;
        inner.client_failure = failure;
        drop(inner);
        if is_other {
            self.notify();
        }
    }

    /// Asks for another client. Several requests count as one.
    pub(super) fn record_client_failure(&self) {
        self.client_failed.notify_one();
    }

    pub(super) async fn client_failed(&self) {
        self.client_failed.notified().await;
    }

    /// Waits until the credential that a program made ends, if the client has one.
    pub(super) async fn client_expired(&self) {
        let end = self.client().and_then(|client| *client.valid_until());
        let Some(end) = end else {
            return std::future::pending().await;
        };
        let left = end
            .as_second()
            .saturating_sub(k8s_openapi::jiff::Timestamp::now().as_second());
        tokio::time::sleep(Duration::from_secs(left.try_into().unwrap_or(0))).await;
    }

    pub(super) fn apply<const WHOLE: bool>(&self, watch: usize, event: Event<Object<WHOLE>>) {
        self.update(watch, |store| {
            let update = StatusUpdate::of(store.spec.kind, &event);
            let changed = store.apply(event, &self.namespace);
            if let Some(update) = update {
                self.statuses.send_if_modified(|statuses| update.apply(statuses, store));
            }
            changed
        });
    }

    pub(super) fn fail(&self, watch: usize, failure: WatchFailure) {
        self.update(watch, |store| store.fail(failure));
    }

    fn update(&self, watch: usize, change: impl FnOnce(&mut WatchStore) -> bool) {
        // Those who are woken take the lock, so it is free before that.
        let changed = self.lock().stores.get_mut(watch).is_some_and(change);
        if changed {
            self.notify();
        }
    }

    /// Records that every watch broke by a bug of the gateway.
    pub(super) fn fail_all(&self) {
        for (number, spec) in self.watches().iter().enumerate() {
            self.fail(number, WatchFailure::broken(spec));
        }
    }

    /// The items of all objects, in the order of kinds and names. Waits until every kind has been
    /// listed, at most until `deadline`; then reports what is missing.
    pub(super) fn wait_until_listed(&self, deadline: Instant) -> Result<Vec<Arc<[DecodedItem]>>, Vec<Diagnostic>> {
        let mut inner = self.lock();
        while !inner.is_complete() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(inner.missing());
            }
            let waited = self.progress.wait_timeout(inner, remaining);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(inner.stores.iter().flat_map(WatchStore::decoded_items).collect())
    }

    pub(super) fn watch_ages(&self) -> Vec<WatchAge> {
        let inner = self.lock();
        inner.stores.iter().map(WatchStore::age).collect()
    }

    /// What [`SharedState::wait_until_listed`] would wait for now.
    pub(super) fn missing(&self) -> Vec<Diagnostic> {
        self.lock().missing()
    }

    pub(super) fn health(&self) -> Vec<Diagnostic> {
        let inner = self.lock();
        let of = |store: &WatchStore| match &store.state {
            WatchState::Syncing(_) | WatchState::Synced => None,
            WatchState::Unavailable(failure) if store.spec.requirement == WatchRequirement::Optional => {
                Some(failure.warning())
            }
            WatchState::Unavailable(failure) => {
                let namespace = store.spec.namespace.as_deref().unwrap_or_default();
                Some(failure.error(&format!("nothing of namespace `{namespace}` is known: ")))
            }
            WatchState::Stale(failure) => Some(failure.error("what is known stays, and may be old: ")),
        };
        // Before the first client, `missing` says why there is none.
        let former = inner.client.as_ref().and(inner.client_failure.as_ref());
        let former = former.map(|failure| failure.error("the client that was made before stays: "));
        former.into_iter().chain(inner.stores.iter().filter_map(of)).collect()
    }
}

/// What an event means for the statuses of ApplicationSets.
enum StatusUpdate {
    Written(ObjectName, ApplicationSetStatus),
    Removed(ObjectName),
    /// A list is complete.
    Listed,
}

impl StatusUpdate {
    /// `None` if the event is about something else.
    fn of<const WHOLE: bool>(kind: ObjectKind, event: &Event<Object<WHOLE>>) -> Option<Self> {
        if kind != ObjectKind::ApplicationSet {
            return None;
        }
        match event {
            Event::Init => None,
            Event::InitDone => Some(Self::Listed),
            Event::Delete(object) => Some(Self::Removed(name_of(object))),
            Event::Apply(object) | Event::InitApply(object) => {
                let Some(status) = object.value.get("status").filter(|status| !status.is_null()) else {
                    return Some(Self::Removed(name_of(object)));
                };
                let status = ApplicationSetStatus {
                    uid: object.metadata.uid.clone().unwrap_or_default(),
                    resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
                    status: status.clone(),
                };
                Some(Self::Written(name_of(object), status))
            }
        }
    }

    /// Returns whether a status changed.
    fn apply(self, statuses: &mut Arc<ApplicationSetStatuses>, store: &WatchStore) -> bool {
        match self {
            Self::Written(name, status) => {
                let is_same = |old: &Arc<ApplicationSetStatus>| old.uid == status.uid && old.status == status.status;
                if statuses.get(&name).is_some_and(is_same) {
                    return false;
                }
                Arc::make_mut(statuses).insert(name, Arc::new(status));
                true
            }
            Self::Removed(name) => statuses.contains_key(&name) && Arc::make_mut(statuses).remove(&name).is_some(),
            Self::Listed => {
                let before = statuses.len();
                // Several watches fill the map, and a list says nothing about the namespaces of the others.
                let of_watch =
                    |name: &ObjectName| store.spec.namespace.as_ref().is_none_or(|one| *one == name.namespace);
                Arc::make_mut(statuses).retain(|name, _| !of_watch(name) || store.contains(name));
                statuses.len() != before
            }
        }
    }
}

impl Inner {
    fn is_complete(&self) -> bool {
        let known = |store: &WatchStore| !matches!(store.state, WatchState::Syncing(_));
        self.stores.iter().all(known)
    }

    fn missing(&self) -> Vec<Diagnostic> {
        if self.is_complete() {
            return Vec::new();
        }
        if self.client.is_none() {
            let unknown = WatchFailure::other("there was no answer in time".to_owned());
            let failure = self.client_failure.as_ref().unwrap_or(&unknown);
            return vec![failure.error("the API server of the control plane cannot be reached: ")];
        }
        let of = |store: &WatchStore| match &store.state {
            WatchState::Syncing(Some(failure)) => Some(failure.error("")),
            WatchState::Syncing(None) => {
                let read = store.incoming_count();
                let message = format!(
                    "{} were not all there in time, only {read} so far",
                    store.spec.resource()
                );
                Some(WatchFailure::other(message).error(""))
            }
            WatchState::Synced | WatchState::Unavailable(_) | WatchState::Stale(_) => None,
        };
        self.stores.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::SharedState;
    use crate::source::kubernetes::object::Object;
    use tollgate_config::KubernetesState;
    use tollgate_objects::decode::read::ObjectKind;

    fn set(name: &str, version: &str, status: &Value) -> Object<true> {
        let object = json!({
            "metadata": {"name": name, "namespace": "argocd", "uid": name, "resourceVersion": version},
            "spec": {"generators": []}, "status": status,
        });
        serde_json::from_str(&object.to_string()).unwrap()
    }

    /// A write of a status alone changes the statuses, and no object.
    #[test]
    fn statuses_of_sets_change_beside_the_objects() {
        let shared = SharedState::new(&KubernetesState::default(), "argocd");
        let watch = shared
            .watches()
            .iter()
            .position(|spec| spec.kind == ObjectKind::ApplicationSet)
            .unwrap();
        let (mut statuses, mut count) = (shared.statuses(), shared.count());
        let mut seen = || {
            let changed = (statuses.has_changed().unwrap(), count.has_changed().unwrap());
            count.mark_unchanged();
            let now = statuses.borrow_and_update().clone();
            let of = |(name, one): (
                &tollgate_objects::ObjectName,
                &std::sync::Arc<super::ApplicationSetStatus>,
            )| { (name.name.clone(), one.resource_version.clone(), one.status.clone()) };
            (changed, now.iter().map(of).collect::<Vec<_>>())
        };
        let one = |version: &str, status: Value| ("a".to_owned(), version.to_owned(), status);
        for (event, changed, expected) in [
            (Event::Init, (false, false), vec![]),
            (Event::InitApply(set("a", "1", &json!(null))), (false, false), vec![]),
            (Event::InitDone, (false, true), vec![]),
            (
                Event::Apply(set("a", "2", &json!({"v": 1}))),
                (true, false),
                vec![one("2", json!({"v": 1}))],
            ),
            (
                Event::Apply(set("a", "3", &json!({"v": 1}))),
                (false, false),
                vec![one("2", json!({"v": 1}))],
            ),
            (
                Event::Apply(set("a", "4", &json!({"v": 2}))),
                (true, false),
                vec![one("4", json!({"v": 2}))],
            ),
            (Event::Init, (false, false), vec![one("4", json!({"v": 2}))]),
            (Event::InitDone, (true, true), vec![]),
        ] {
            shared.apply(watch, event);
            assert_eq!(seen(), (changed, expected));
        }
    }
}
