//! Checks the shape of `ci_access` in an agent's configuration. The platform, not the gateway,
//! decides whether a job may use an agent.
//!
//! Source: GitLab, "Using GitLab CI/CD with a Kubernetes cluster".

use crate::fields::Fields;

pub(super) fn check(fields: &Fields<'_>) {
    fields.reject_unknown_keys(&["projects", "groups", "instance"]);
    for key in ["projects", "groups"] {
        for entry in fields.children(key) {
            entry.required("id");
            settings(&entry, &["id"]);
        }
    }
    if let Some(instance) = fields.child("instance") {
        settings(&instance, &[]);
    }
}

fn settings(entry: &Fields<'_>, more: &[&str]) {
    let mut known = vec![
        "default_namespace",
        "environments",
        "access_as",
        "protected_branches_only",
    ];
    known.extend(more);
    entry.reject_unknown_keys(&known);
    entry.text("default_namespace");
    entry.texts("environments");
    entry.boolean("protected_branches_only");
    let Some(access_as) = entry.child("access_as") else {
        return;
    };
    access_as.reject_unknown_keys(&["agent", "ci_job", "impersonate"]);
    if access_as.entries().len() != 1 {
        let (path, count) = (entry.path_of("access_as"), access_as.entries().len());
        access_as.error(format!("`{path}` has {count} keys, exactly one is allowed"));
    }
    if let Some(identity) = access_as.child("impersonate") {
        identity.reject_unknown_keys(&["username", "uid", "groups", "extra"]);
        identity.required("username");
        identity.text("uid");
        identity.texts("groups");
        for extra in identity.children("extra") {
            extra.reject_unknown_keys(&["key", "val"]);
            extra.required("key");
            extra.texts("val");
        }
    }
}
