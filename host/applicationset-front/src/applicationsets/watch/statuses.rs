//! The statuses of watched sets, which controllers write without a change of the snapshot.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use tollgate_objects::{ApplicationSetStatuses, ObjectName};

/// How long a watch that ended without a controller's report is remembered.
const ENDED_TTL: Duration = Duration::from_secs(10);

const MAX_ENDED: usize = 64;

/// Receives statuses. It receives none if the sets are in a folder: there a status is a part of the
/// snapshot's set.
pub(super) struct StatusReceiver(pub(super) Option<watch::Receiver<Arc<ApplicationSetStatuses>>>);

impl StatusReceiver {
    /// Waits until a status has changed, and until `earliest`. Cancel safe as long as the latest
    /// statuses are read afterwards.
    pub(super) async fn changed(&mut self, earliest: Instant) {
        let changed = match &mut self.0 {
            Some(statuses) => statuses.changed().await.is_ok(),
            None => false,
        };
        match changed {
            true => sleep_until(earliest).await,
            // There are no statuses, or the gateway stops.
            false => std::future::pending().await,
        }
    }

    pub(super) fn latest(&mut self) -> Arc<ApplicationSetStatuses> {
        let latest = self
            .0
            .as_mut()
            .map(|statuses| Arc::clone(&statuses.borrow_and_update()));
        latest.unwrap_or_default()
    }
}

/// Watches that ended because no controller reported on the set, by person.
///
/// `argocd --grpc-web` does not read the status at the end of a stream, and watches again. It then
/// gets the error at once.
#[derive(Debug, Default)]
pub(in super::super) struct EndedWatches(Mutex<VecDeque<(u64, ObjectName, Instant)>>);

impl EndedWatches {
    pub(super) fn record(&self, person: u64, name: ObjectName) {
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() >= MAX_ENDED {
            ended.pop_front();
        }
        ended.push_back((person, name, Instant::now()));
    }

    pub(super) fn contains(&self, person: u64, name: &ObjectName) -> bool {
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.retain(|(_, _, at)| at.elapsed() < ENDED_TTL);
        ended.iter().any(|(by, of, _)| *by == person && of == name)
    }
}

/// Whether no controller has written a condition to the set. A set that is being deleted is left
/// out: its deletion is what its watchers wait for.
pub(super) fn is_unreported(set: &Value) -> bool {
    let conditions = set.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_none_or(Vec::is_empty) && set.pointer("/metadata/deletionTimestamp").is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_unreported;

    #[test]
    fn a_set_is_reported_once_it_has_a_condition() {
        assert!(is_unreported(&json!({"metadata": {}})));
        assert!(is_unreported(&json!({"metadata": {}, "status": {"conditions": []}})));
        let condition = json!({"type": "ErrorOccurred", "status": "True"});
        assert!(!is_unreported(
            &json!({"metadata": {}, "status": {"conditions": [condition]}})
        ));
        assert!(!is_unreported(
            &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        ));
    }
}
