//! Classifies a request into a cluster that is made in an Application's name: whether it reads or
//! writes, which Argo CD permission it needs besides those on the Application, and what it does to
//! which object.
//!
//! Security: anything that is not certainly a read counts as a write, and anything that is not
//! certainly about one existing object is [`ObjectOperation::Other`].

use std::sync::Arc;

use tollgate_core::attributes::Attributes;

use crate::impersonate::Impersonation;

const EXEC_SUBRESOURCES: [&str; 3] = ["attach", "exec", "portforward"];
const PODS: (&str, Option<&str>) = ("", Some("pods"));
const SECRETS: (&str, Option<&str>) = ("", Some("secrets"));
/// Group and resource of reviews about the caller. The API server stores nothing for them.
const SELF_REVIEWS: [(&str, &str); 3] = [
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
];

/// Whether a request may change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum ReadOrWrite {
    /// It changes nothing: `get`, `list` and `watch` of objects, `GET`, `HEAD` and `OPTIONS` of
    /// other paths, reviews about the caller.
    Read,
    /// Everything else, including dry runs, requests that run programs, and unknown verbs.
    Write,
}

impl ReadOrWrite {
    /// Classifies a request.
    pub fn classify(attributes: &Attributes) -> Self {
        let path_only = !attributes.resource_request && attributes.upgrade.is_none();
        let reads = match attributes.verb.as_str() {
            "get" | "list" | "watch" if attributes.resource.is_some() => {
                // A verb in the path says nothing about the method: a `POST` below `/watch/` has it, too.
                !runs_program(attributes) && !attributes.has_verb_in_path()
            }
            "get" | "head" | "options" => path_only,
            "create" => is_self_review(attributes),
            _ => false,
        };
        if reads { Self::Read } else { Self::Write }
    }
}

/// The permission that Argo CD requires besides those on `applications`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraPermission {
    /// For logs of pods.
    Logs,
    /// For requests that run programs or open connections into the cluster: `exec`, `attach`,
    /// `portforward`, `proxy`, and every upgrade but those of logs and watches.
    Exec,
}

impl ExtraPermission {
    /// What a request needs besides; `None` for most.
    pub fn required_for(attributes: &Attributes) -> Option<Self> {
        let resource = (attributes.api_group.as_str(), attributes.resource.as_deref());
        let is_log = resource == PODS && attributes.subresource.as_deref() == Some("log");
        match (runs_program(attributes), is_log) {
            (true, _) => Some(Self::Exec),
            (false, true) => Some(Self::Logs),
            (false, false) => None,
        }
    }

    /// Resource and action in Argo CD's RBAC. The object is the Application's.
    pub const fn rbac(self) -> (&'static str, &'static str) {
        match self {
            Self::Logs => ("logs", "get"),
            Self::Exec => ("exec", "create"),
        }
    }

    /// The message for callers who lack it.
    pub fn refusal(self) -> &'static str {
        match self {
            Self::Logs => "you may not read logs of this application",
            Self::Exec => "you may not run programs in this application",
        }
    }
}

/// What a request does, in the terms in which Argo CD's server distinguishes operations on live
/// objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum ObjectOperation {
    /// It asks what the cluster serves, or what the caller may do. It is about no object.
    Discover,
    /// It reads one object, or the log of one pod.
    Get,
    /// It runs a program in one pod, or opens a connection to it.
    Run,
    /// It changes one existing object.
    Update,
    /// It deletes one object.
    Delete,
    /// Everything else: new objects, several objects at once, watches, Secrets, which Argo CD never
    /// shows, and subresources that Argo CD does not know.
    Other,
}

impl ObjectOperation {
    /// Classifies a request.
    pub fn classify(attributes: &Attributes) -> Self {
        let access = ReadOrWrite::classify(attributes);
        // Of requests that create something, only reviews about the caller are reads.
        if access == ReadOrWrite::Read && (!attributes.resource_request || attributes.verb == "create") {
            return Self::Discover;
        }
        let (group, resource) = (attributes.api_group.as_str(), attributes.resource.as_deref());
        if attributes.name.is_none() || (group, resource) == SECRETS || attributes.has_verb_in_path() {
            return Self::Other;
        }
        let subresource = attributes.subresource.as_deref();
        let is_pod = (group, resource) == PODS;
        match (attributes.verb.as_str(), subresource) {
            ("get" | "create", Some(part)) if is_pod && EXEC_SUBRESOURCES.contains(&part) => Self::Run,
            ("get", Some("log")) if is_pod => Self::Get,
            ("get", None | Some("scale" | "status")) if access == ReadOrWrite::Read => Self::Get,
            ("update" | "patch", None | Some("scale")) => Self::Update,
            ("delete", None) => Self::Delete,
            (_, _) => Self::Other,
        }
    }

    /// The action on `applications` that an object of the Application requires besides `get` and
    /// `sync`. `None` where those, or [`ExtraPermission`], are enough.
    pub fn action(self) -> Option<&'static str> {
        match self {
            Self::Update => Some("update"),
            Self::Delete => Some("delete"),
            Self::Discover | Self::Get | Self::Run | Self::Other => None,
        }
    }
}

/// Who acts in the cluster. The text is its name in policies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, strum::AsRefStr, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum ActingIdentity {
    /// The gateway's own identity in the cluster.
    Gateway,
    /// The service account of the Application, without the `extra` values about the caller.
    #[strum(serialize = "account")]
    ServiceAccount(Arc<Impersonation>),
}

/// Whether the project's lists permit a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectListCheck {
    /// They permit it.
    Permitted,
    /// They do not. Holds the reason for the caller.
    Refused(String),
}

/// Whether the object of a request belongs to the Application, and the caller may do to it what the
/// request does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OwnershipCheck {
    /// Not checked: `ApplicationAccess::asks_object` says that no check is needed, or the lists
    /// already refuse the request.
    NotChecked,
    /// It belongs to the Application, and the caller may.
    Permitted,
    /// It does not belong to the Application, or this cannot be determined, or the caller may not.
    /// Holds the reason for the caller.
    Refused(String),
}

/// The checks of the object of a request.
#[derive(Clone, Copy, Debug)]
pub struct ObjectChecks<'a> {
    /// Whether the project's lists permit the request.
    pub project_lists: &'a ProjectListCheck,
    /// Whether the object is the Application's.
    pub ownership: &'a OwnershipCheck,
}

fn runs_program(attributes: &Attributes) -> bool {
    let is_exec = |part: &str| EXEC_SUBRESOURCES.contains(&part);
    attributes.also_verb.is_some()
        || attributes.is_proxied()
        || attributes.subresource.as_deref().is_some_and(is_exec)
        || (attributes.upgrade.is_some() && attributes.verb == "create")
}

/// Whether the request is a review about the caller alone, for which the API server stores nothing.
fn is_self_review(attributes: &Attributes) -> bool {
    let asked = (attributes.api_group.as_str(), attributes.resource.as_deref());
    let known = |(group, resource): &(&str, &str)| asked == (*group, Some(*resource));
    let plain = attributes.subresource.is_none() && attributes.name.is_none() && attributes.namespace.is_none();
    plain && attributes.upgrade.is_none() && SELF_REVIEWS.iter().any(known)
}
