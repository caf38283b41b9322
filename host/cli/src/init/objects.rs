//! The objects by which people reach clusters: an Agent for each cluster, and a UserDirectory.

use std::fmt::Write as _;

use serde_json::Value;

use super::found::Found;

/// The file that they are in.
pub(super) const FILE: &str = "agents.yaml";

/// What the API server needs to know of the two kinds. A folder ignores it.
const DEFINITIONS: [&str; 2] = [
    include_str!("../../../../deploy/kubernetes/crds/agents.yaml"),
    include_str!("../../../../deploy/kubernetes/crds/userdirectories.yaml"),
];

/// The objects; `None` if there is no cluster to reach.
pub(super) fn agents(found: &Found) -> Option<String> {
    if found.clusters.is_empty() {
        return None;
    }
    let (namespace, directory) = (&found.namespace, &found.directory);
    let (group_id, group) = &directory.group;
    let mut text = "# Who reaches which cluster with kubectl, and which identity they act as:\n\
                    # docs/kubernetes-access.md. First the definitions of the two kinds, then the objects.\n"
        .to_owned();
    for definition in DEFINITIONS {
        text.push_str("---\n");
        text.push_str(definition.trim_end());
        text.push('\n');
    }
    let _ = write!(
        text,
        "---\n\
         # The people, and their roles in groups and projects. Those of an issuer's groups need no entry:\n\
         # `kubernetes.memberships` of tollgate.yaml.\n\
         apiVersion: tollgate.dev/v1alpha1\n\
         kind: UserDirectory\n\
         metadata: {{name: {}, namespace: {namespace}}}\n\
         spec:\n",
        directory.name
    );
    text.push_str(if directory.users.is_empty() {
        "  users: []\n"
    } else {
        "  users:\n"
    });
    for (id, name) in &directory.users {
        let _ = writeln!(text, "    - {{id: {id}, username: {}}}", quoted(name));
    }
    let _ = write!(
        text,
        "  groups:\n\
         \x20   # `developer` is the lowest role that reaches clusters. `state: blocked` of a user ends all.\n\
         \x20   - id: {group_id}\n\
         \x20     path: {group}\n\
         \x20     members:\n",
    );
    for name in &directory.members {
        let role = if name == "admin" { "maintainer" } else { "guest" };
        let _ = writeln!(text, "        - {{username: {}, role: {role}}}", quoted(name));
    }
    for cluster in &found.clusters {
        let _ = write!(
            text,
            "---\n\
             # The cluster sees `gitlab:user:NAME` and groups such as `gitlab:group_role:{group_id}:developer`\n\
             # (policies/kubernetes/impersonation.cel.yaml). Its own RBAC decides what they may do:\n\
             # Grant it with your administrator's kubeconfig, as not everybody may:\n\
             #   kubectl create clusterrolebinding people-view --clusterrole=view \\\n\
             #     --group=gitlab:group_role:{group_id}:developer\n\
             apiVersion: tollgate.dev/v1alpha1\n\
             kind: Agent\n\
             metadata: {{name: {agent}, namespace: {namespace}}}\n\
             spec:\n\
             \x20 id: {id}\n\
             \x20 configProject: {{id: 1}}\n\
             \x20 cluster: {name}\n\
             \x20 config:\n\
             \x20   user_access:\n\
             \x20     access_as: {{user: {{}}}}\n\
             \x20     groups: [{{id: {group}}}]\n",
            id = cluster.id,
            agent = cluster.agent,
            name = quoted(&cluster.name),
        );
    }
    Some(text)
}

/// A text in YAML's notation of JSON.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
