//! The errors of authorizing ApplicationSets: collects refusals into an [`Error`] of bounded
//! size. Every error denies.
//!
//! Security: a refusal tells only what the caller may learn.

use std::fmt;

use tollgate_applicationset::Denial;
use tollgate_policy::rego;
use tollgate_state::ObjectName;

/// Most refusals that one response lists.
pub const MAX_REFUSALS: usize = 100;

/// Class of a refusal, which determines its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalClass {
    /// The caller lacks a permission: 403, `PermissionDenied`.
    PermissionDenied,
    /// What was sent is not valid: 400, `InvalidArgument`.
    InvalidArgument,
    /// There is no such set, or the caller may not see it: 404, `NotFound`.
    NotFound,
    /// The gateway could not decide: 403. The record has the cause.
    Undecided,
}

/// All reasons to refuse one request, at most [`MAX_REFUSALS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalList {
    refusals: Vec<Denial>,
    more: usize,
    class: RefusalClass,
}

impl RefusalList {
    /// The reasons, in the order they were found.
    pub fn refusals(&self) -> &[Denial] {
        &self.refusals
    }

    /// How many more there are.
    pub fn more(&self) -> usize {
        self.more
    }

    /// [`RefusalClass::PermissionDenied`] if any reason is a missing permission, or else
    /// [`RefusalClass::InvalidArgument`].
    pub fn class(&self) -> RefusalClass {
        self.class
    }
}

impl fmt::Display for RefusalList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, refusal) in self.refusals.iter().enumerate() {
            if number > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{refusal}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Why a request is refused. The text is for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Sets of this namespace are not served.
    #[error("namespace '{namespace}' is not permitted")]
    Namespace {
        /// As the request has it.
        namespace: String,
    },
    /// The set does not exist, or the caller may not see it: the text is the same.
    #[error("applicationsets.argoproj.io \"{}\" not found", .name.name)]
    NotVisible {
        /// As the request has it.
        name: ObjectName,
    },
    /// All reasons to refuse the request.
    #[error("{0}")]
    Refused(RefusalList),
    /// A permission is missing; with `compat: argocd`, in Argo CD's words.
    #[error("{message}")]
    Denied {
        /// With resource, action and object.
        message: String,
    },
    /// With `compat: argocd` the project must not be a template.
    #[error("the Argo CD API does not currently support creating ApplicationSets with templated `project` fields")]
    Templated,
    /// There is no such project.
    #[error("ApplicationSet references project {project} which does not exist")]
    UnknownProject {
        /// As the set has it.
        project: String,
    },
    /// A different set of this name is stored.
    #[error("existing ApplicationSet spec is different, use upsert flag to force update")]
    Exists,
    /// The policy could not be evaluated.
    #[error("the policy could not be evaluated")]
    Policy(#[source] rego::Error),
    /// The plan is not of the permitted request: the set changed, or the plan lacks an Application
    /// that the set owns. Try again.
    #[error("the plan is not of what was asked; try again")]
    PlanMismatch,
}

impl Error {
    /// Its class, which determines the status.
    pub fn class(&self) -> RefusalClass {
        match self {
            Self::Namespace { .. } | Self::Denied { .. } => RefusalClass::PermissionDenied,
            Self::NotVisible { .. } => RefusalClass::NotFound,
            Self::Refused(refused) => refused.class(),
            Self::Templated | Self::UnknownProject { .. } | Self::Exists => RefusalClass::InvalidArgument,
            Self::Policy(_) | Self::PlanMismatch => RefusalClass::Undecided,
        }
    }
}

/// Whether a finding is about a permission or about validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FindingKind {
    /// A permission of RBAC, of a project or of the policy.
    Permission,
    /// Validity of what was sent.
    Validity,
}

/// Collects refusals, up to [`MAX_REFUSALS`].
#[derive(Debug, Default)]
pub(super) struct RefusalCollector {
    refusals: Vec<Denial>,
    more: usize,
    permission: bool,
}

impl RefusalCollector {
    pub(super) fn push(&mut self, kind: FindingKind, refusal: Denial) {
        self.permission |= kind == FindingKind::Permission;
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

    /// All refusals, if there are any.
    pub(super) fn finish(self) -> Option<RefusalList> {
        let class = match self.permission {
            true => RefusalClass::PermissionDenied,
            false => RefusalClass::InvalidArgument,
        };
        (!self.refusals.is_empty()).then_some(RefusalList {
            refusals: self.refusals,
            more: self.more,
            class,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{FindingKind, MAX_REFUSALS, RefusalClass, RefusalCollector};
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
    fn an_answer_lists_so_many_and_counts_the_rest() {
        let mut collector = RefusalCollector::default();
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
        assert_eq!(refused.class(), RefusalClass::InvalidArgument);
        let text = refused.to_string();
        assert!(
            text.len() < 100 * 600 && text.ends_with("; and 4900 more"),
            "{}",
            text.len()
        );

        let mut few = RefusalCollector::default();
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
