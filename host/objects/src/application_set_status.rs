//! The status of each ApplicationSet as it was last written in the cluster.
//!
//! Argo CD's controller writes it all the time, and nothing is decided by it. It is therefore kept
//! beside [`crate::Resources`]: a write of a status alone causes no load.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::ObjectName;

/// The latest statuses by their set's name. A set without a status is not in it.
pub type ApplicationSetStatuses = BTreeMap<ObjectName, Arc<ApplicationSetStatus>>;

/// The status of one set.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplicationSetStatus {
    /// `metadata.uid` of the set.
    pub uid: String,
    /// `metadata.resourceVersion` of the set when the status became what it is.
    pub resource_version: String,
    /// `status`.
    pub status: Value,
}

impl ApplicationSetStatus {
    /// `status`, if it is of this set and not of an earlier one of the same name.
    pub fn of(&self, set: &Value) -> Option<&Value> {
        let uid = set.pointer("/metadata/uid").and_then(Value::as_str);
        (uid == Some(&*self.uid)).then_some(&self.status)
    }

    /// The set with this status, if it is of this set and not the one that the set has. The version
    /// is the newer one of both.
    pub fn applied_to(&self, set: &Value) -> Option<Value> {
        self.of(set).filter(|status| set.get("status") != Some(status))?;
        let mut set = set.clone();
        let members = set.as_object_mut()?;
        members.insert("status".to_owned(), self.status.clone());
        let version = members.get_mut("metadata")?.get_mut("resourceVersion")?;
        // The set may have been written after its status.
        let number = |text: &str| text.parse::<u64>().ok();
        if number(&self.resource_version) > version.as_str().and_then(number) {
            *version = self.resource_version.as_str().into();
        }
        Some(set)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::ApplicationSetStatus;

    fn set(version: &str, status: &Value) -> Value {
        json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version}, "status": status})
    }

    #[test]
    fn a_status_replaces_that_of_its_own_set() {
        let (old, new) = (json!({"health": 1}), json!({"health": 2}));
        let status = |uid: &str| ApplicationSetStatus {
            uid: uid.to_owned(),
            resource_version: "10".to_owned(),
            status: new.clone(),
        };
        assert_eq!(status("u").applied_to(&set("9", &old)), Some(set("10", &new)));
        // The set itself was written after the status.
        assert_eq!(status("u").applied_to(&set("11", &old)), Some(set("11", &new)));
        assert_eq!(status("u").applied_to(&set("9", &new)), None);
        // A set of the same name that was deleted had this one.
        assert_eq!(status("other").applied_to(&set("9", &old)), None);
    }
}
