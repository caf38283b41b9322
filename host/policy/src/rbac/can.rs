//! `rbac can`: one subject, one question, as Argo CD's own tester asks it.
//!
//! In: a subject, an action, a resource as typed. Out: a verdict and advice.
//! Never: another evaluation than the server's.
//!
//! Source: Argo CD `cmd/argocd/commands/admin/settings_rbac.go`.

use super::names::is_project_scoped;
use super::{Rbac, TokenIssuer, Tuple, Verdict};
use tollgate_core::claims::project_of_subject;

/// What `rbac can` is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// Role, user or group.
    pub subject: &'a str,
    /// Action.
    pub action: &'a str,
    /// Resource, or one of its short names.
    pub resource: &'a str,
    /// Object; empty and `*` mean every object of a project-scoped resource.
    pub sub_resource: &'a str,
}

impl<'a> Question<'a> {
    /// What is judged: short names are resolved, and no object of a project-scoped
    /// resource is every object.
    pub fn tuple(&self) -> Tuple<'a> {
        let resource = resolve_resource(self.resource);
        let is_everything = is_project_scoped(resource) && matches!(self.sub_resource, "" | "*");
        Tuple {
            resource,
            action: self.action,
            object: if is_everything { "*/*" } else { self.sub_resource },
        }
    }
}

/// Something the verdict alone does not tell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Advice {
    /// The subject looks like a group, has its own rows, and no grant names it.
    #[error(
        "`{subject}` is a group with rows of its own but without a `g, {subject}, role:...` line: Argo CD does not \
         look at such rows, so this permission has no effect there"
    )]
    UnenforcedGroupGrant {
        /// The group.
        subject: String,
    },
    /// No row or grant names the subject.
    #[error("no row or grant names `{subject}`; only the default role was judged")]
    UnknownSubject {
        /// The subject.
        subject: String,
    },
}

/// A question about something that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No such resource.
    #[error("'{resource}' is not a valid resource name")]
    Resource {
        /// As asked.
        resource: String,
    },
    /// The resource has no such action.
    #[error("'{action}' is not a valid action for {resource}")]
    Action {
        /// As asked.
        action: String,
        /// The resource.
        resource: String,
    },
}

impl Rbac {
    /// Answers a question about a subject by name: what the gateway answers to whoever
    /// signs in by that name, and what [`Rbac::explain`] explains.
    pub fn can(&self, question: Question<'_>) -> (Verdict, Vec<Advice>) {
        let subject = question.subject;
        let tuple = question.tuple();
        let verdict = self.decide(&self.identify_name(subject, &[], TokenIssuer::Assumed), tuple);
        let mut advice = Vec::new();
        if !self.knows(subject) {
            advice.push(Advice::UnknownSubject {
                subject: subject.to_owned(),
            });
        }
        let alone = || self.decide(&self.identify_alone(subject), tuple);
        if verdict.is_allowed() && is_group(subject) && !self.has_grant(subject) && alone().is_allowed() {
            advice.push(Advice::UnenforcedGroupGrant {
                subject: subject.to_owned(),
            });
        }
        (verdict, advice)
    }

    /// Whether a global grant starts with the subject.
    fn has_grant(&self, subject: &str) -> bool {
        self.subjects
            .get(subject)
            .is_some_and(|id| self.roles_of.contains_key(&(None, *id)))
    }
}

/// Whether a name looks like `org:team`: a colon, and neither role nor project.
fn is_group(subject: &str) -> bool {
    !subject.starts_with("role:") && project_of_subject(subject).is_none() && subject.contains(':')
}

/// The resource a short name stands for; other names stand for themselves.
pub fn resolve_resource(name: &str) -> &str {
    match name {
        "account" => "accounts",
        "app" | "apps" | "application" => "applications",
        "cert" | "certs" | "certificate" => "certificates",
        "cluster" => "clusters",
        "extension" => "extensions",
        "gpgkey" | "key" => "gpgkeys",
        "log" => "logs",
        "proj" | "projs" | "project" => "projects",
        "repo" | "repos" | "repository" => "repositories",
        "session" => "sessions",
        "token" => "tokens",
        other => other,
    }
}

/// Checks that a resource exists and has the action; `/` and what follows is
/// taken for `update`, `delete` and `action` of applications only. Beyond Argo
/// CD's tester, `get` is an action of accounts and `write-repositories` is a
/// resource, since the server checks both; and so are the resources that only
/// the gateway checks.
///
/// # Errors
/// [`RequestError`] names what does not exist.
pub fn validate_request(resource: &str, action: &str) -> Result<(), RequestError> {
    let Some(actions) = actions(resource) else {
        return Err(RequestError::Resource {
            resource: resource.to_owned(),
        });
    };
    let (verb, path) = match action.split_once('/') {
        Some((verb, path)) => (verb, Some(path)),
        None => (action, None),
    };
    let takes_path = resource == "applications" && matches!(verb, "update" | "delete" | "action");
    if actions.contains(&verb) && (path.is_none() || takes_path) {
        return Ok(());
    }
    Err(RequestError::Action {
        action: action.to_owned(),
        resource: resource.to_owned(),
    })
}

/// The actions of a resource, if it exists.
pub(super) fn actions(resource: &str) -> Option<&'static [&'static str]> {
    Some(match resource {
        "applications" => &[
            "create", "get", "update", "delete", "action", "override", "sync", "rollback",
        ],
        // `preview` is the gateway's own.
        "applicationsets" => &["create", "get", "update", "delete", "preview"],
        // `connect` is the gateway's own.
        "clusters" => &["create", "get", "update", "delete", "connect"],
        "projects" | "repositories" | "write-repositories" => &["create", "get", "update", "delete"],
        "certificates" | "gpgkeys" => &["create", "get", "delete"],
        "accounts" => &["create", "get", "update"],
        "exec" => &["create"],
        "logs" => &["get"],
        "extensions" => &["invoke"],
        // The gateway's own.
        "credentials" | "audit" => &["get"],
        "tokens" => &["create", "get", "delete"],
        "sessions" => &["get", "delete"],
        _ => return None,
    })
}
