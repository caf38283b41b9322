//! The errors of authorizing ApplicationSets: collects refusals into an [`Error`] of bounded
//! size. Every error denies.
//!
//! Security: a refusal tells only what the caller may learn.

use std::fmt;

use http::StatusCode;

use tollgate_applicationset::Denial;
use tollgate_objects::ObjectName;
use tollgate_rego as rego;

/// Most refusals that one response lists.
pub(crate) const MAX_REFUSALS: usize = 100;

/// Reasons to refuse one request, in the order they were found, at most `MAX_REFUSALS`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusalList {
    refusals: Vec<Denial>,
    more: usize,
    lacks_permission: bool,
}

impl RefusalList {
    pub(super) fn push(&mut self, kind: FindingKind, refusal: Denial) {
        // Before the bound: a missing permission that is no longer listed still makes the answer 403 in place of 400.
        self.lacks_permission |= kind == FindingKind::Permission;
        let refusal = refusal.truncated();
        if self.refusals.contains(&refusal) {
            return;
        }
        if self.refusals.len() < MAX_REFUSALS {
            self.refusals.push(refusal);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.refusals.is_empty()
    }

    pub(super) fn finish(self) -> Option<Self> {
        (!self.is_empty()).then_some(self)
    }

    /// The first `MAX_REFUSALS` reasons.
    pub fn refusals(&self) -> &[Denial] {
        &self.refusals
    }

    /// How many reasons are left out.
    pub fn more(&self) -> usize {
        self.more
    }
}

impl fmt::Display for RefusalList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.refusals.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("; "))?;
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Why a request for a set is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// ApplicationSets are not permitted in the namespace. (403)
    #[error("namespace '{0}' is not permitted")]
    Namespace(String),
    /// The set does not exist, or the caller may not see it: the text is the same.
    #[error("applicationsets.argoproj.io \"{}\" not found", .0.name)]
    NotVisible(ObjectName),
    /// What the set reads or writes is refused. (403; 400 if no permission is missing)
    #[error("{0}")]
    Refused(RefusalList),
    /// RBAC refuses the set's own RBAC object. (403)
    #[error("{0}")]
    Denied(String),
    /// The project is a template, which `compat: argocd` refuses as Argo CD does. (400)
    #[error("the Argo CD API does not currently support creating ApplicationSets with templated `project` fields")]
    Templated,
    /// The project does not exist. (400)
    #[error("ApplicationSet references project {0} which does not exist")]
    UnknownProject(String),
    /// A set of the name exists and differs. (400)
    #[error("existing ApplicationSet spec is different, use upsert flag to force update")]
    Exists,
    /// The bundle did not decide. (403)
    #[error("the policy could not be evaluated")]
    Policy(#[source] rego::Error),
    /// The plan is not of the permitted request: the set changed, or the plan lacks an Application
    /// that the set owns. Try again.
    #[error("the plan was made for another request; try again")]
    PlanMismatch,
}

impl Error {
    /// HTTP status, and the stable reason for programs.
    pub fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Namespace(_) => (StatusCode::FORBIDDEN, "namespace_not_permitted"),
            Self::NotVisible(_) => (StatusCode::NOT_FOUND, "applicationset_not_found"),
            Self::Refused(refused) if !refused.lacks_permission => (StatusCode::BAD_REQUEST, "applications_invalid"),
            Self::Refused(_) | Self::Denied(_) => (StatusCode::FORBIDDEN, "permission_denied"),
            Self::Templated => (StatusCode::BAD_REQUEST, "project_templated"),
            Self::UnknownProject(_) => (StatusCode::BAD_REQUEST, "project_not_found"),
            Self::Exists => (StatusCode::BAD_REQUEST, "exists_differently"),
            Self::Policy(_) => (StatusCode::FORBIDDEN, "policy_failed"),
            Self::PlanMismatch => (StatusCode::CONFLICT, "conflict"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FindingKind {
    Permission,
    Validity,
}

#[cfg(test)]
mod tests {
    use super::{FindingKind, MAX_REFUSALS, RefusalList};
    use tollgate_applicationset::{Denial, DeniedResource};

    fn refusal(name: String) -> Denial {
        Denial {
            about: DeniedResource::Application(name),
            rule: None,
            reason: "no".to_owned(),
        }
    }

    /// 5,000 duplicates with names of 100 kB make no response of 500 MB.
    #[test]
    fn a_response_lists_a_bounded_number_and_counts_the_rest() {
        let mut collector = RefusalList::default();
        for number in 0..5_000 {
            collector.push(
                FindingKind::Validity,
                refusal(format!("dev/{number}-{}", "x".repeat(100_000))),
            );
        }
        let refused = collector.finish().unwrap();
        assert_eq!(
            (refused.refusals().len(), refused.more()),
            (MAX_REFUSALS, 5_000 - MAX_REFUSALS)
        );
        assert!(!refused.lacks_permission);
        let text = refused.to_string();
        assert!(
            text.len() < 100 * 600 && text.ends_with("; and 4900 more"),
            "{}",
            text.len()
        );

        let mut few = RefusalList::default();
        for number in 0..3 {
            few.push(FindingKind::Validity, refusal(format!("dev/{number}")));
            few.push(FindingKind::Validity, refusal(format!("dev/{number}")));
        }
        let few = few.finish().unwrap();
        assert_eq!((few.refusals().len(), few.more()), (3, 0));
        assert!(
            few.to_string()
                .starts_with("application `dev/0`: no; application `dev/1`: no")
        );
    }
}
