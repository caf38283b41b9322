//! Builds the RBAC objects that let the service account of Applications deploy the kinds of objects
//! that they have, in the namespaces where they have them, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use tollgate_cluster::discovery::likely_resource;
use tollgate_policy::gateway_rights::manifest::{RBAC_GROUP, Subject, cluster_role, namespaced_role};
use tollgate_policy::impersonate::service_account::ServiceAccountName;
use tollgate_state::deployed::DeployedKind;

/// What Argo CD does with objects as an account.
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// The names of a role and its binding.
fn role_name(account: &ServiceAccountName) -> String {
    // Several accounts may have one name, and deploy to one namespace.
    format!("argocd:{}:{}", account.namespace, account.name)
}

/// The account, a role and its binding in each namespace, and one for objects of the cluster if there
/// are any.
///
/// Resources are those that kinds are called by convention: an API server may call one otherwise.
pub(super) fn deployer(account: &ServiceAccountName, kinds: &BTreeSet<DeployedKind>) -> Vec<Value> {
    let mut by_namespace: BTreeMap<&str, BTreeMap<&str, BTreeSet<String>>> = BTreeMap::new();
    for DeployedKind { namespace, group, kind } in kinds {
        let groups = by_namespace.entry(namespace).or_default();
        groups.entry(group).or_default().insert(likely_resource(kind));
    }
    let ServiceAccountName { namespace, name } = account;
    let metadata = json!({"name": name, "namespace": namespace});
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})];
    let subject = Subject::ServiceAccount {
        namespace: namespace.clone(),
        name: name.clone(),
    };
    let role = role_name(account);
    for (namespace, groups) in by_namespace {
        let rules = groups
            .into_iter()
            .map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": VERBS}));
        let rules: Vec<Value> = rules.collect();
        objects.extend(match namespace {
            "" => cluster_role(&role, &rules, &subject),
            namespace => namespaced_role(namespace, &role, &rules, &subject),
        });
    }
    objects
}

/// Whether rights on a kind do not suffice to write its objects: the grantor of a right must have
/// it.
///
/// Source: Kubernetes, "Privilege escalation prevention and bootstrapping".
pub(super) fn grants_rights(kind: &DeployedKind) -> bool {
    kind.group == RBAC_GROUP
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::{deployer, grants_rights};
    use tollgate_policy::impersonate::service_account::ServiceAccountName;
    use tollgate_state::deployed::DeployedKind;

    fn kind(namespace: &str, group: &str, kind: &str) -> DeployedKind {
        DeployedKind {
            namespace: namespace.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
        }
    }

    fn account() -> ServiceAccountName {
        ServiceAccountName {
            namespace: "shop".to_owned(),
            name: "deployer".to_owned(),
        }
    }

    #[test]
    fn an_account_gets_its_kinds_where_it_has_them() {
        let kinds = BTreeSet::from([
            kind("shop", "", "ConfigMap"),
            kind("shop", "", "Secret"),
            kind("shop", "networking.k8s.io", "NetworkPolicy"),
            kind("other", "apps", "Deployment"),
            kind("", "", "Namespace"),
        ]);
        let objects = deployer(&account(), &kinds);
        let roles = objects.iter().filter(|object| object.get("rules").is_some());
        let granted: Vec<_> = roles
            .map(|role| {
                let rules = role["rules"].as_array().unwrap().iter();
                let pairs = rules.map(|rule| json!([rule["apiGroups"], rule["resources"]]));
                (
                    role["kind"].clone(),
                    role["metadata"].clone(),
                    json!(pairs.collect::<Vec<_>>()),
                )
            })
            .collect();
        let name = "argocd:shop:deployer";
        assert_eq!(
            granted,
            [
                (
                    json!("ClusterRole"),
                    json!({ "name": name }),
                    json!([[[""], ["namespaces"]]])
                ),
                (
                    json!("Role"),
                    json!({"name": name, "namespace": "other"}),
                    json!([[["apps"], ["deployments"]]])
                ),
                (
                    json!("Role"),
                    json!({"name": name, "namespace": "shop"}),
                    json!([
                        [[""], ["configmaps", "secrets"]],
                        [["networking.k8s.io"], ["networkpolicies"]]
                    ])
                ),
            ]
        );
        for object in &objects {
            let verbs = object.pointer("/rules/0/verbs").cloned().unwrap_or_default();
            assert!(!verbs.to_string().contains('*'), "{object}");
            if let Some(subjects) = object.get("subjects") {
                let subject = json!({"kind": "ServiceAccount", "name": "deployer", "namespace": "shop"});
                assert_eq!(*subjects, json!([subject]));
            }
        }
    }

    #[test]
    fn an_account_that_deploys_nothing_gets_no_role() {
        let objects = deployer(&account(), &BTreeSet::new());
        assert_eq!(objects.len(), 1, "{objects:?}");
        assert_eq!(objects[0]["kind"], "ServiceAccount");
    }

    #[test]
    fn roles_need_more_than_a_right_on_roles() {
        assert!(grants_rights(&kind("shop", "rbac.authorization.k8s.io", "RoleBinding")));
        assert!(!grants_rights(&kind("shop", "apps", "Deployment")));
    }
}
