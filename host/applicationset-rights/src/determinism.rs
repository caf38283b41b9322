//! Finds nondeterminism: inputs that could give a set's Applications other projects, names or operations
//! later than those that are authorized now.
//!
//! The gateway authorizes a set when it is written. Argo CD's controller renders it again when an
//! input changes, and only the admission webhook asks the gateway then.
//!
//! Security: unless the caller may write in every project, or the webhook judges later Applications, no
//! clock, randomness or repository of somebody else may decide a project.

use crate::finding::{Finding, generator_kinds_of, record_check};
use crate::inherited::SELF_CONTAINED;
use crate::{LaterApplications, SetAuthorizer, SetRequest};
use tollgate_applicationset::ApplicationSet;
use tollgate_applicationset::template::{Nondeterminism, nondeterminism};
use tollgate_objects::ObjectName;
use tollgate_proxy::record::CheckRecord;

const PROJECT: &str = "spec.template.spec.project";

/// Whether a set can have Applications later that nobody is asked about, unless the admission webhook
/// judges them.
pub fn can_change_later(set: &ApplicationSet) -> bool {
    let kinds = generator_kinds_of(&set.object);
    kinds.into_iter().any(|kind| !SELF_CONTAINED.contains(&kind)) || !nondeterminism(&set.spec).is_empty()
}

impl SetAuthorizer<'_> {
    /// The findings that prevent authorizing the projects of a set.
    pub(super) fn nondeterminism(&self, request: &SetRequest<'_>, checks: &mut Vec<CheckRecord>) -> Vec<Finding> {
        let found = request.sent.map(|sent| nondeterminism(&sent.spec)).unwrap_or_default();
        if found.is_empty() {
            return Vec::new();
        }
        // The answer matters only to findings that lead anywhere, and takes a lookup for every project.
        let missing = match self.later {
            LaterApplications::Unjudged if found.iter().any(leads_anywhere) => self.first_denied_project(request.name),
            LaterApplications::Unjudged | LaterApplications::JudgedByAuthor => None,
        };
        if let Some(object) = &missing {
            record_check(checks, || {
                self.lookup_permission("applications", "create", object.clone())
                    .into_check()
            });
        }
        let is_judged = missing.is_none();
        let findings = found.iter().filter_map(|one| match one {
            Nondeterminism::Patch(path) => self.later_operation(request, path),
            _ => nondeterminism_finding(one, is_judged),
        });
        findings.collect()
    }

    /// The finding for a patch to which somebody else could add an operation.
    fn later_operation(&self, request: &SetRequest<'_>, path: &str) -> Option<Finding> {
        let set = request.sent?;
        if self.later == LaterApplications::JudgedByAuthor {
            return None;
        }
        let possible = self.possible_applications(request.name, &set.object);
        let mut denied = ["sync", "override"].into_iter().filter_map(|action| {
            let object = self
                .denied_objects(action, &possible)
                .first()
                .map(|object| (*object).to_owned());
            Some((action, object?))
        });
        let (action, object) = denied.next()?;
        let reason = format!(
            "what `{path}` reads is in the patch, where it could start an operation later, and `applications, {action}` \
             is not permitted on `{object}`"
        );
        Some(Finding::denied(&reason).by("spec.templatePatch"))
    }

    /// The RBAC object of the first project where the caller may not create an Application. `None`
    /// if they may in every project that exists or will exist.
    fn first_denied_project(&self, set: &ObjectName) -> Option<String> {
        let everywhere = self.applications_everywhere(set);
        let missing = self.denied_objects("create", &everywhere);
        missing.first().map(|object| (*object).to_owned())
    }
}

/// Whether it could give Applications other projects later.
fn leads_anywhere(one: &Nondeterminism) -> bool {
    match one {
        Nondeterminism::Generator { .. } | Nondeterminism::Parameters(_) => true,
        Nondeterminism::Function(_)
        | Nondeterminism::Name { .. }
        | Nondeterminism::Operation
        | Nondeterminism::Patch(_) => false,
    }
}

/// - `is_judged`: whether the caller may write in every project, or the webhook judges later Applications.
fn nondeterminism_finding(nondeterminism: &Nondeterminism, is_judged: bool) -> Option<Finding> {
    let (path, what) = match nondeterminism {
        Nondeterminism::Function(name) => {
            let reason =
                format!("`{name}` gives another project each time, and none of them can be judged: name the project");
            // Neither rights in all projects nor the webhook help: what is judged need not be what Argo CD renders.
            return Some(Finding::invalid(&reason).by(PROJECT));
        }
        Nondeterminism::Name { function, path } => {
            let reason = format!(
                "`{function}` gives another name each time, and none of them can be judged: it could become that of \
                 somebody else's Application"
            );
            return Some(Finding::invalid(&reason).by(*path));
        }
        Nondeterminism::Operation => {
            let reason = "it must not set `operation`, not even under a condition: start a sync by itself";
            return Some(Finding::invalid(reason).by("spec.templatePatch"));
        }
        // `later_operation` judges it, because it takes other rights.
        Nondeterminism::Patch(_) => return None,
        Nondeterminism::Generator { path, kind } => (
            path,
            format!("the project depends on what the generator `{}` reads", kind.as_ref()),
        ),
        Nondeterminism::Parameters(path) => (
            path,
            "a project or a name depends on what a text of the generator makes".to_owned(),
        ),
    };
    if is_judged {
        return None;
    }
    let reason = format!(
        "{what}, which can lead into any project later: name the project, or have `applications, create` in all \
         projects"
    );
    Some(Finding::denied(&reason).by(path.as_str()))
}
