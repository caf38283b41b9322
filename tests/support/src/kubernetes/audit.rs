//! What the server says it was asked.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::eventually;

/// The audit log of a cluster, from its beginning.
pub struct Audit {
    pub(crate) path: PathBuf,
}

impl Audit {
    /// Events written so far: whole lines, in order.
    ///
    /// The server writes an event after the response, so that one of a request
    /// that was just answered may be missing; [`Self::find`] waits for it.
    pub fn events(&self) -> Vec<Value> {
        self.events_with("")
    }

    /// Those whose line has `word`: a namespace, say. The others are not even parsed,
    /// which takes its time where many tests share a cluster.
    pub fn events_with(&self, word: &str) -> Vec<Value> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n') && line.contains(word))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The first event that is `wanted`.
    ///
    /// # Panics
    /// None comes in time.
    pub async fn find(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        self.find_with("", wanted).await
    }

    /// The first event that is `wanted` among those whose line has `word`.
    ///
    /// # Panics
    /// None comes in time.
    pub async fn find_with(&self, word: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually("the server records it", async || {
            let mut events = self.events_with(word);
            let found = events.iter().position(&wanted)?;
            Some(events.swap_remove(found))
        })
        .await
    }

    /// The event of the request with this `Audit-ID` header.
    ///
    /// Source: a server takes the caller's `Audit-ID` over and answers with it
    /// (`k8s.io/apiserver/pkg/endpoints/filters/with_auditid.go`).
    pub async fn of(&self, id: &str) -> Value {
        self.find(|event| event["auditID"] == id).await
    }
}
