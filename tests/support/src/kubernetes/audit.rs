//! Reads the audit log of a test cluster.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::eventually;

/// The audit log of a cluster, from its beginning.
pub struct Audit {
    pub(crate) path: PathBuf,
}

impl Audit {
    /// The events written so far, in order.
    ///
    /// The server writes an event after the response, so the event of a request that it just
    /// answered may be missing. [`Self::find`] waits for it.
    pub fn events(&self) -> Vec<Value> {
        self.events_with("")
    }

    /// The events whose line contains `word`, such as a namespace. Other lines are not parsed,
    /// because parsing takes long where many tests share a cluster.
    pub fn events_with(&self, word: &str) -> Vec<Value> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n') && line.contains(word))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits for the first event that is `wanted`.
    ///
    /// # Panics
    /// If there is none in time.
    pub async fn find(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        self.find_with("", wanted).await
    }

    /// Waits for the first event that is `wanted` among those whose line contains `word`.
    ///
    /// # Panics
    /// If there is none in time.
    pub async fn find_with(&self, word: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually("the server writes the audit event", async || {
            let mut events = self.events_with(word);
            let found = events.iter().position(&wanted)?;
            Some(events.swap_remove(found))
        })
        .await
    }

    /// Waits for the event of the request with this `Audit-ID` header.
    ///
    /// A server uses the caller's `Audit-ID` and returns it. Source:
    /// `k8s.io/apiserver/pkg/endpoints/filters/with_auditid.go`.
    pub async fn of(&self, id: &str) -> Value {
        self.find_with(id, |event| event["auditID"] == id).await
    }
}
