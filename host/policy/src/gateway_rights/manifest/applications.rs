//! Builds the RBAC objects, in a fixed order, that let a gateway's identity impersonate the named
//! service accounts of Applications, with keys of `extra`, and nothing else.
//!
//! Security: every rule on service accounts names them. An identity that may impersonate every
//! service account may act as those of Kubernetes' own controllers, and so do anything in the
//! cluster.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::grants::{AUTHENTICATION_GROUP, AccountRight, ImpersonationKind};
use super::{ConstrainedPermissions, Subject, cluster_role, constrained_rules, namespaced_role};
use crate::impersonate::service_account::ServiceAccountName;

/// Name of the role for classic impersonation in each namespace, and of its binding.
const ROLE: &str = "tollgate-applications";
/// Name of the roles for constrained impersonation, and of their bindings.
const CONSTRAINED_ROLE: &str = "tollgate-applications-constrained";
/// Name of the role for keys of `extra`, and of its binding.
const EXTRA_ROLE: &str = "tollgate-applications-extra";

/// Label of all these objects, by which obsolete ones are found.
const LABEL: (&str, &str) = ("tollgate.dev/roles", "applications");

/// Whether the gateway may check which accounts exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExistenceCheck {
    /// It may not.
    #[default]
    Without,
    /// It may `get` the accounts by name.
    With,
}

/// The accounts of one cluster, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountsByNamespace {
    /// Names by namespace, in order.
    pub namespaces: BTreeMap<String, BTreeSet<String>>,
    /// Accounts that are left out because no cluster can have one of their names.
    pub impossible: BTreeSet<ServiceAccountName>,
}

impl<'a> FromIterator<&'a ServiceAccountName> for AccountsByNamespace {
    fn from_iter<I: IntoIterator<Item = &'a ServiceAccountName>>(accounts: I) -> Self {
        let mut all = Self::default();
        for account in accounts {
            if account.is_valid() {
                let names = all.namespaces.entry(account.namespace.clone()).or_default();
                names.insert(account.name.clone());
            } else {
                all.impossible.insert(account.clone());
            }
        }
        all
    }
}

/// A role and its binding in each namespace, and one for the keys of `extra` if there are any.
///
/// - `keys`: in order.
pub fn classic(
    accounts: &AccountsByNamespace,
    keys: &[String],
    subject: &Subject,
    check: ExistenceCheck,
) -> Vec<Value> {
    let mut objects = roles(accounts, ROLE, ImpersonationKind::Classic, subject, check);
    if !keys.is_empty() {
        let resources: Vec<String> = keys.iter().map(|key| format!("userextras/{key}")).collect();
        let rule = json!({"apiGroups": [AUTHENTICATION_GROUP], "resources": resources, "verbs": ["impersonate"]});
        objects.extend(cluster_role(EXTRA_ROLE, &[rule], subject));
    }
    labeled(objects)
}

/// A role and its binding in each namespace, and one cluster-wide for what may be done as the
/// accounts, because they may have rights in other namespaces too.
pub fn constrained(
    accounts: &AccountsByNamespace,
    permissions: &ConstrainedPermissions,
    subject: &Subject,
    check: ExistenceCheck,
) -> Vec<Value> {
    let mut objects = roles(
        accounts,
        CONSTRAINED_ROLE,
        ImpersonationKind::Constrained,
        subject,
        check,
    );
    let rules = constrained_rules(permissions, "serviceaccount");
    objects.extend(cluster_role(CONSTRAINED_ROLE, &rules, subject));
    labeled(objects)
}

fn labeled(mut objects: Vec<Value>) -> Vec<Value> {
    let (label, value) = LABEL;
    for object in &mut objects {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("labels".to_owned(), json!({label: value}));
        }
    }
    objects
}

fn roles(
    accounts: &AccountsByNamespace,
    role: &str,
    mode: ImpersonationKind,
    subject: &Subject,
    check: ExistenceCheck,
) -> Vec<Value> {
    let mut objects = Vec::new();
    for (namespace, names) in &accounts.namespaces {
        let rule = |right: AccountRight| {
            json!({
                "apiGroups": [right.api_group()], "resources": ["serviceaccounts"], "resourceNames": names,
                "verbs": [right.verb()],
            })
        };
        let mut rights = vec![AccountRight::Impersonate(mode)];
        if check == ExistenceCheck::With {
            rights.push(AccountRight::Get);
        }
        let rules: Vec<Value> = rights.into_iter().map(rule).collect();
        objects.extend(namespaced_role(namespace, role, &rules, subject));
    }
    objects
}
