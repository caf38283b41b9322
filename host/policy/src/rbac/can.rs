//! `rbac can`: answers one question about one subject, as Argo CD's own tester does, with a verdict
//! and advice.
//!
//! Invariant: the verdict comes from the same evaluation as the server's.
//!
//! Source: Argo CD `cmd/argocd/commands/admin/settings_rbac.go`.

use super::names::{actions, is_project_scoped};
use super::{Rbac, RbacRequest, TokenIssuer, Verdict};
use tollgate_core::claims::project_of_subject;

/// A question to `rbac can`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanQuery<'a> {
    /// Role, user or group.
    pub subject: &'a str,
    /// Action.
    pub action: &'a str,
    /// Resource, or one of its short names.
    pub resource: &'a str,
    /// Object; empty and `*` mean every object of a project-scoped resource.
    pub sub_resource: &'a str,
}

impl<'a> CanQuery<'a> {
    /// The request to decide. Short names are resolved, and a missing object of a project-scoped
    /// resource means every object.
    pub fn request(&self) -> RbacRequest<'a> {
        let resource = resolve_resource(self.resource);
        let is_everything = is_project_scoped(resource) && matches!(self.sub_resource, "" | "*");
        RbacRequest {
            resource,
            action: self.action,
            object: if is_everything { "*/*" } else { self.sub_resource },
        }
    }
}

/// Advice beyond the verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Advice {
    /// The subject looks like a group, has its own rows, and no grant names it.
    #[error(
        "`{0}` is a group with its own rows but without a `g, {0}, role:...` line: Argo CD does not look at \
         such rows, so this permission has no effect there"
    )]
    UnenforcedGroupGrant(String),
    /// No row or grant names the subject.
    #[error("no row or grant names `{0}`; only the default role was judged")]
    UnknownSubject(String),
}

/// The question names something that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("'{0}' is not a valid resource name")]
    Resource(String),
    #[error("'{action}' is not a valid action for {resource}")]
    Action { action: String, resource: String },
}

impl Rbac {
    /// Answers a question about a subject by name. The verdict is what the gateway decides for a
    /// caller who signs in by that name, and what [`Rbac::explain`] explains.
    pub fn can(&self, query: CanQuery<'_>) -> (Verdict, Vec<Advice>) {
        let subject = query.subject;
        let request = query.request();
        let verdict = self.decide(&self.identify_name(subject, &[], TokenIssuer::Assumed), request);
        let mut advice = Vec::new();
        if !self.has_subject(subject) {
            advice.push(Advice::UnknownSubject(subject.to_owned()));
        }
        // The default role may allow it as well, and then the rows of the group make no difference.
        let alone = || self.decide(&self.identify_without_default_role(subject), request);
        if verdict.is_allowed() && is_group(subject) && !self.is_granted(subject, None) && alone().is_allowed() {
            advice.push(Advice::UnenforcedGroupGrant(subject.to_owned()));
        }
        (verdict, advice)
    }
}

/// Whether a name looks like `org:team`: it has a colon, and is neither a role nor a project role.
fn is_group(subject: &str) -> bool {
    !subject.starts_with("role:") && project_of_subject(subject).is_none() && subject.contains(':')
}

/// The resource that a short name stands for. Other names are returned unchanged.
pub fn resolve_resource(name: &str) -> &str {
    match name {
        "account" => "accounts",
        "app" | "apps" | "application" => "applications",
        "cert" | "certs" | "certificate" => "certificates",
        "cluster" => "clusters",
        "extension" => "extensions",
        "gpgkey" | "key" => "gpgkeys",
        "log" => "logs",
        "person" => "people",
        "proj" | "projs" | "project" => "projects",
        "repo" | "repos" | "repository" => "repositories",
        "session" => "sessions",
        "token" => "tokens",
        other => other,
    }
}

/// Checks that a resource exists and has the action. A `/` and what follows it is only accepted for
/// `update`, `delete` and `action` of applications. Beyond Argo CD's tester, `get` is an action of
/// accounts and `write-repositories` is a resource, since the server checks both; so are the
/// resources that only the gateway checks.
pub fn validate_request(resource: &str, action: &str) -> Result<(), RequestError> {
    let Some(actions) = actions(resource) else {
        return Err(RequestError::Resource(resource.to_owned()));
    };
    let verb = action.split('/').next().unwrap_or_default();
    let takes_path = resource == "applications" && matches!(verb, "update" | "delete" | "action");
    if actions.contains(&verb) && (verb == action || takes_path) {
        return Ok(());
    }
    Err(RequestError::Action {
        action: action.to_owned(),
        resource: resource.to_owned(),
    })
}
