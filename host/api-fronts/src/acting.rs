//! Which account acts for an Application, and which Applications a caller may see.

use serde::Serialize;

use tollgate_front::policies::Policies;
use tollgate_objects::{Application, ObjectName};
use tollgate_policy::applications::IndexedApplication;
use tollgate_policy::impersonate::service_account::AccountSource;
use tollgate_policy::rbac::{RbacIdentity, object_name};

/// Who acts for an Application.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Acting {
    /// `namespace:name`. Absent if nobody acts, or the gateway itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<String>,
    /// Index of the entry that decided. Absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<usize>,
    /// Why nobody acts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl Acting {
    pub(crate) fn of(indexed: &IndexedApplication) -> Self {
        match &indexed.derived_account {
            Ok(derived) => Self {
                account: derived
                    .account
                    .as_ref()
                    .map(|account| format!("{}:{}", account.namespace, account.name)),
                entry: match &derived.by {
                    AccountSource::Entry { index, .. } => Some(*index),
                    AccountSource::Fallback(_) => None,
                },
                error: None,
            },
            Err(error) => Self {
                account: None,
                entry: None,
                error: Some(error.public_message()),
            },
        }
    }
}

/// For each Application, whether a caller with these roles may see it.
pub(crate) fn visible_applications<'a>(
    policies: &Policies,
    roles: &RbacIdentity,
    applications: impl Iterator<Item = &'a Application>,
) -> Vec<bool> {
    let control_plane = &policies.config.control_plane_namespace;
    let object = |application: &Application| {
        let ObjectName { namespace, name } = &application.name;
        object_name(control_plane, &application.project, namespace, name)
    };
    let objects: Vec<String> = applications.map(object).collect();
    let objects = objects.iter().map(String::as_str);
    let verdicts = policies.rbac.decide_each(roles, "applications", "get", objects);
    verdicts.into_iter().map(|verdict| verdict.is_allowed()).collect()
}
