//! Builds the RBAC objects that give a gateway's identity its [`ImpersonationGrants`] in a cluster,
//! and nothing else.
//!
//! Security: service accounts are granted by name only, and there is no wildcard where the names
//! are known.

use serde_json::{Value, json};

use super::grants::{AUTHENTICATION_GROUP, ImpersonationGrants, ImpersonationKind};
pub use crate::impersonate::service_account::ServiceAccountName as ServiceAccount;

pub mod applications;

/// The API group of roles and bindings.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const CLASSIC_ROLE: &str = "tollgate-impersonate";
const CONSTRAINED_ROLE: &str = "tollgate-impersonate-constrained";

/// The subject that the roles are bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A service account, by namespace and name.
    ServiceAccount {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// A user.
    User(String),
    /// A group.
    Group(String),
}

/// What may be done under constrained impersonation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstrainedPermissions {
    /// Verbs of requests, such as `get`.
    pub verbs: Vec<String>,
    /// Resources in kubectl's form: `pods`, `pods/log`, `deployments.apps`, or `*` for all.
    pub resources: Vec<String>,
    /// Non-resource paths, such as `/version`, which discovery needs.
    pub urls: Vec<String>,
}

/// Role and binding for classic impersonation.
pub fn classic(grants: &ImpersonationGrants, subject: &Subject) -> Vec<Value> {
    let rules = name_rules(grants, ImpersonationKind::Classic);
    cluster_role(CLASSIC_ROLE, &rules, subject).into()
}

/// Role and binding for constrained impersonation.
pub fn constrained(
    grants: &ImpersonationGrants,
    permissions: &ConstrainedPermissions,
    subject: &Subject,
) -> Vec<Value> {
    let mut rules = name_rules(grants, ImpersonationKind::Constrained);
    rules.extend(constrained_rules(permissions, "user-info"));
    cluster_role(CONSTRAINED_ROLE, &rules, subject).into()
}

/// The rules of constrained permissions.
///
/// - `kind`: kind of constrained impersonation, `user-info` or `serviceaccount`.
fn constrained_rules(permissions: &ConstrainedPermissions, kind: &str) -> Vec<Value> {
    let on = |verb: &String| format!("impersonate-on:{kind}:{verb}");
    let verbs: Vec<String> = permissions.verbs.iter().map(on).collect();
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for resource in &permissions.resources {
        let (group, name) = group_and_resource(resource);
        match groups.iter_mut().find(|(other, _)| *other == group) {
            Some((_, names)) => names.push(name),
            None => groups.push((group, vec![name])),
        }
    }
    let rule = |(group, names)| json!({"apiGroups": [group], "resources": names, "verbs": verbs});
    let mut rules: Vec<Value> = groups.into_iter().map(rule).collect();
    if !permissions.urls.is_empty() {
        rules.push(json!({"nonResourceURLs": permissions.urls, "verbs": [on(&"get".to_owned())]}));
    }
    rules
}

/// Role and binding for classic impersonation of one service account, in its namespace.
pub fn service_account(account: &ServiceAccount, subject: &Subject) -> Vec<Value> {
    let ServiceAccount { namespace, name } = account;
    let role = format!("{CLASSIC_ROLE}-{name}");
    let rule = json!({
        "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [name], "verbs": [ImpersonationKind::Classic.verb()],
    });
    namespaced_role(namespace, &role, &[rule], subject).into()
}

fn name_rules(grants: &ImpersonationGrants, mode: ImpersonationKind) -> Vec<Value> {
    let rules = ["", AUTHENTICATION_GROUP].into_iter().filter_map(|group| {
        let resources = grants.resources(group, mode);
        let rule = || json!({"apiGroups": [group], "resources": resources, "verbs": [mode.verb()]});
        (!resources.is_empty()).then(rule)
    });
    rules.collect()
}

/// A role for the whole cluster, and its binding.
pub fn cluster_role(name: &str, rules: &[Value], subject: &Subject) -> [Value; 2] {
    role_and_binding("ClusterRole", name, &json!({ "name": name }), rules, subject)
}

/// A role in a namespace, and its binding.
pub fn namespaced_role(namespace: &str, name: &str, rules: &[Value], subject: &Subject) -> [Value; 2] {
    let metadata = json!({"name": name, "namespace": namespace});
    role_and_binding("Role", name, &metadata, rules, subject)
}

fn role_and_binding(kind: &str, name: &str, metadata: &Value, rules: &[Value], subject: &Subject) -> [Value; 2] {
    let version = format!("{RBAC_GROUP}/v1");
    [
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": version, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": kind, "name": name},
            "subjects": [subject.to_value()],
        }),
    ]
}

/// Splits resource and group: `deployments.apps` is `deployments` of group `apps`. The group of
/// `*` is every group. A name without a dot is in the core group.
fn group_and_resource(resource: &str) -> (&str, &str) {
    match resource.split_once('.') {
        Some((name, group)) => (group, name),
        None if resource == "*" => ("*", "*"),
        None => ("", resource),
    }
}

impl Subject {
    fn to_value(&self) -> Value {
        match self {
            Self::ServiceAccount { namespace, name } => {
                json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
            }
            Self::User(name) => json!({"apiGroup": RBAC_GROUP, "kind": "User", "name": name}),
            Self::Group(name) => json!({"apiGroup": RBAC_GROUP, "kind": "Group", "name": name}),
        }
    }
}
