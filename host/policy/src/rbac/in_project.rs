//! Decides requests whose object may also be named with its project before it: a row about the
//! extension `metrics` in the project `shop` has the object `shop/metrics`.
//!
//! Argo CD asks for the plain name only, so no such row ever counts there.
//!
//! Security: only a row whose object has a `/` counts for the longer name. Patterns match across
//! `/`: a row about the extensions `s*` must not count for every extension in the project `shop`.
//! A row that allows must also name the resource: `*, *, shop/*` was written about Applications.
//!
//! Source: Argo CD's proposal for proxy extensions, UC-2.

use super::decide::combine;
use super::identity::{Eligibility, RbacIdentity};
use super::index::Leaf;
use super::{Effect, Rbac, RbacRequest, Rule, RuleId, Verdict};

impl Rbac {
    /// [`Rbac::decide`] by the rows that match the object, and those about the object in `project`.
    pub fn decide_in_project(&self, who: &RbacIdentity, request: RbacRequest<'_>, project: &str) -> Verdict {
        let longer_name = longer_name(request, project);
        let in_project = RbacRequest {
            object: &longer_name,
            ..request
        };
        let steps = self.plan(who, request).iter();
        let founds = steps
            .filter(|step| step.eligibility == Eligibility::Eligible)
            .map(|step| {
                let mut found = self.search(step, request);
                let broken = self.visit(step, in_project, &mut |leaf| {
                    self.counted_in_project(leaf, request.resource)
                        .iter()
                        .for_each(|leaf| found.leaf(leaf));
                });
                found.broken(broken);
                found
            });
        self.narrow(combine(self.semantics, founds), who, |narrower, who| {
            narrower.decide_in_project(who, request, project)
        })
    }

    /// Rows about the object in `project` that match for any of the caller's principals, beyond
    /// [`Rbac::candidates`]. At most `most`, denies first.
    pub fn candidates_in_project(
        &self,
        who: &RbacIdentity,
        request: RbacRequest<'_>,
        project: &str,
        most: usize,
    ) -> Vec<RuleId> {
        let longer_name = longer_name(request, project);
        let in_project = RbacRequest {
            object: &longer_name,
            ..request
        };
        let plain = self.candidates(who, request, usize::MAX);
        let mut rows = self.candidates(who, in_project, usize::MAX);
        rows.retain(|id| {
            let counts = self
                .rule(*id)
                .is_some_and(|rule| counts_in_project(rule, request.resource));
            counts && plain.binary_search(id).is_err()
        });
        self.shorten(&mut rows, most);
        rows
    }

    /// What of a leaf, whose rows share resource, action and object, counts for the longer name.
    fn counted_in_project(&self, leaf: &Leaf, resource: &str) -> Option<Leaf> {
        let rule = self.rule(RuleId(*leaf.rows.first()?))?;
        let allow = leaf.allow.filter(|_| &*rule.resource == resource);
        rule.object.contains('/').then(|| Leaf {
            allow,
            deny: leaf.deny,
            rows: leaf.rows.clone(),
        })
    }
}

fn counts_in_project(rule: &Rule, resource: &str) -> bool {
    rule.object.contains('/') && (rule.effect == Effect::Deny || &*rule.resource == resource)
}

fn longer_name(request: RbacRequest<'_>, project: &str) -> String {
    [project, "/", request.object].concat()
}
