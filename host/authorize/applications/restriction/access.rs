//! What a request into a cluster is to Argo CD.
//!
//! In: [`Attributes`]. Out: whether it reads or writes, and what RBAC it needs
//! besides. Never: a request taken for a read that may change something.

use crate::authorize::kubernetes::Attributes;

/// First segments of paths about resources, and how many stand before a verb of
/// old.
const BEFORE_VERB: [(&str, usize); 2] = [("api", 2), ("apis", 3)];
/// Subresources of pods behind which programs run.
const RUNS: [&str; 3] = ["attach", "exec", "portforward"];
/// Reviews about whoever asks: group and resource. They keep nothing.
const ABOUT_ONESELF: [(&str, &str); 3] = [
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
];

/// Whether a request may change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It changes nothing: `get`, `list` and `watch` of objects, `GET`, `HEAD` and
    /// `OPTIONS` of other paths, reviews about oneself.
    Read,
    /// Everything else: dry runs, what runs programs, verbs nobody knows.
    Write,
}

impl Access {
    /// The word of policies.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// What a request is.
    pub fn of(attributes: &Attributes) -> Self {
        let path_only = !attributes.resource_request && attributes.upgrade.is_none();
        let reads = match attributes.verb.as_str() {
            "get" | "list" | "watch" if attributes.resource.is_some() => {
                !runs(attributes) && !has_verb_in_path(attributes)
            }
            "get" | "head" | "options" => path_only,
            "create" => is_about_oneself(attributes),
            _ => false,
        };
        if reads { Self::Read } else { Self::Write }
    }
}

/// What Argo CD asks for besides `applications`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// For logs of pods.
    Logs,
    /// For what runs programs or opens connections into the cluster: `exec`,
    /// `attach`, `portforward`, `proxy`, and every upgrade but those of logs and
    /// watches.
    Exec,
}

impl Need {
    /// What a request needs besides; most need nothing.
    pub fn of(attributes: &Attributes) -> Option<Self> {
        let is_log = attributes.api_group.is_empty()
            && attributes.resource.as_deref() == Some("pods")
            && attributes.subresource.as_deref() == Some("log");
        match (runs(attributes), is_log) {
            (true, _) => Some(Self::Exec),
            (false, true) => Some(Self::Logs),
            (false, false) => None,
        }
    }

    /// Resource and action of Argo CD's RBAC; the object is the Application's.
    pub const fn rbac(self) -> (&'static str, &'static str) {
        match self {
            Self::Logs => ("logs", "get"),
            Self::Exec => ("exec", "create"),
        }
    }
}

/// Whether programs run or connections open.
fn runs(attributes: &Attributes) -> bool {
    let runs = |part: &str| RUNS.contains(&part);
    attributes.also_verb.is_some()
        || attributes.is_proxied()
        || attributes.subresource.as_deref().is_some_and(runs)
        || (attributes.upgrade.is_some() && attributes.verb == "create")
}

/// Whether the verb stands in the path, as it did before Kubernetes 1.11:
/// `/api/v1/watch/pods`.
// SECURITY: such a verb says nothing of the method, and a server behind an API
// group of its own may go by that one.
pub(super) fn has_verb_in_path(attributes: &Attributes) -> bool {
    let mut parts = attributes.path.trim_matches('/').split('/');
    let first = parts.next().unwrap_or_default();
    let before = BEFORE_VERB.iter().find(|(prefix, _)| *prefix == first);
    let verb = before.and_then(|(_, before)| parts.nth(before - 1));
    attributes.resource_request && matches!(verb, Some("watch" | "proxy"))
}

/// Whether only the one who asks is asked about, and nothing is kept.
fn is_about_oneself(attributes: &Attributes) -> bool {
    let asked = (attributes.api_group.as_str(), attributes.resource.as_deref());
    let known = |(group, resource): &(&str, &str)| asked == (*group, Some(*resource));
    let plain = attributes.subresource.is_none() && attributes.name.is_none() && attributes.namespace.is_none();
    plain && attributes.upgrade.is_none() && ABOUT_ONESELF.iter().any(known)
}
