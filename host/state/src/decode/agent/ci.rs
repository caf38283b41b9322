//! Checks the shape of `ci_access` in an agent's configuration. The platform, not the gateway,
//! decides whether a job may use an agent.
//!
//! Source: GitLab, "Using GitLab CI/CD with a Kubernetes cluster".

use crate::fields::Fields;
use tollgate_core::diagnostic::Diagnostic;

/// Checks the shape of GitLab's `ci_access`.
pub(super) fn check(fields: &Fields<'_>, mistakes: &mut Vec<Diagnostic>) {
    fields.reject_unknown_keys(&["projects", "groups", "instance"], mistakes);
    for key in ["projects", "groups"] {
        for entry in fields.children(key, mistakes) {
            entry.required("id", mistakes);
            settings(&entry, &["id"], mistakes);
        }
    }
    if let Some(instance) = fields.child("instance", mistakes) {
        settings(&instance, &[], mistakes);
    }
}

fn settings(entry: &Fields<'_>, more: &[&str], mistakes: &mut Vec<Diagnostic>) {
    let mut known = vec![
        "default_namespace",
        "environments",
        "access_as",
        "protected_branches_only",
    ];
    known.extend(more);
    entry.reject_unknown_keys(&known, mistakes);
    entry.text("default_namespace", mistakes);
    entry.texts("environments", mistakes);
    entry.boolean("protected_branches_only", mistakes);
    let Some(access_as) = entry.child("access_as", mistakes) else {
        return;
    };
    access_as.reject_unknown_keys(&["agent", "ci_job", "impersonate"], mistakes);
    if access_as.entries().len() != 1 {
        let count = access_as.entries().len();
        let message = format!(
            "`{}` has {count} keys, exactly one is allowed",
            entry.path_of("access_as")
        );
        mistakes.push(Diagnostic::error(access_as.location(), message));
    }
    if let Some(identity) = access_as.child("impersonate", mistakes) {
        identity.reject_unknown_keys(&["username", "uid", "groups", "extra"], mistakes);
        identity.required("username", mistakes);
        identity.text("uid", mistakes);
        identity.texts("groups", mistakes);
        for extra in identity.children("extra", mistakes) {
            extra.reject_unknown_keys(&["key", "val"], mistakes);
            extra.required("key", mistakes);
            extra.texts("val", mistakes);
        }
    }
}
