//! Tells whether a caller may be allowed to do something to any object whose name begins with a
//! prefix.
//!
//! Invariant: the answer is never no if some such object would be allowed. It can be yes although
//! none would be, since each object is decided by itself afterwards.

use super::identity::{Eligibility, RbacIdentity};
use super::matcher::Matcher;
use super::{Effect, Rbac, RbacRequest, Rule, VerdictReason};
use tollgate_config::RbacSemantics;
use tollgate_core::glob::{Pattern, quote_meta};

impl Rbac {
    /// Whether [`Rbac::decide`] may allow some object that begins with `prefix`.
    ///
    /// Evaluates every row once, at some rows a microsecond.
    pub fn may_allow_prefix(&self, who: &RbacIdentity, [resource, action]: [&str; 2], prefix: &str) -> bool {
        if !who.belongs_to(self) {
            return false;
        }
        // A prefix that is too long for a pattern proves nothing, and the answer must not be no.
        let Ok(prefix_pattern) = Pattern::compile_exact(&format!("{}*", quote_meta(prefix)), &[]) else {
            return true;
        };
        let fits = |rule: &&Rule| {
            let [of_resource, of_action, _] = rule.patterns;
            self.pool.matches(of_resource, resource) && self.pool.matches(of_action, action)
        };
        let allows = self.rules.iter().filter(|rule| rule.effect == Effect::Allow);
        let mut allows = allows.filter(fits);
        allows.any(|rule| self.rule_may_allow(who, rule, resource, action, &prefix_pattern))
    }

    /// Rows that allow one of `actions` on some object of `resource`, except built-in ones.
    pub fn allowing_rows<'a>(&'a self, resource: &'a str, actions: &'a [&str]) -> impl Iterator<Item = &'a Rule> {
        let fits = move |rule: &&Rule| {
            let [of_resource, of_action, _] = rule.patterns;
            let mut actions = actions.iter();
            self.pool.matches(of_resource, resource) && actions.any(|action| self.pool.matches(of_action, action))
        };
        let is_written = |rule: &&Rule| rule.effect == Effect::Allow && !rule.location.file.starts_with("builtin:");
        self.rules.iter().filter(is_written).filter(fits)
    }

    fn rule_may_allow(
        &self,
        who: &RbacIdentity,
        rule: &Rule,
        resource: &str,
        action: &str,
        prefix_pattern: &Pattern,
    ) -> bool {
        let [_, _, of_object] = rule.patterns;
        match self.pool.matcher(of_object) {
            None | Some(Matcher::BrokenGlob(_) | Matcher::BrokenRegex(_) | Matcher::OutOfBounds(_)) => false,
            // Which objects a regular expression matches is not determined.
            Some(Matcher::Regex(_)) => self.applies_to(who, rule),
            Some(Matcher::Glob(pattern)) => {
                let Some(object) = pattern.common_witness(prefix_pattern) else {
                    return false;
                };
                let request = RbacRequest {
                    resource,
                    action,
                    object: &object,
                };
                match self.decide(who, request).why {
                    VerdictReason::Allowed => true,
                    // The row matches, so it does not count for this object; it may for another.
                    VerdictReason::NoRule => self.applies_to(who, rule),
                    // Another object may be allowed, unless all of them are denied.
                    VerdictReason::DeniedByRule | VerdictReason::EvaluationError => {
                        self.applies_to(who, rule)
                            && !self.is_denied_all(who, rule, resource, action, [pattern, prefix_pattern])
                    }
                }
            }
        }
    }

    /// Whether one denying row matches everything that both patterns match, wherever the allowing
    /// row counts.
    fn is_denied_all(
        &self,
        who: &RbacIdentity,
        allowing: &Rule,
        resource: &str,
        action: &str,
        both: [&Pattern; 2],
    ) -> bool {
        let covers = |rule: &Rule| {
            let [of_resource, of_action, of_object] = rule.patterns;
            let fields = [(of_resource, resource), (of_action, action)];
            let fits = fields.iter().all(|(id, text)| self.pool.matches(*id, text));
            let Some(Matcher::Glob(denied)) = self.pool.matcher(of_object) else {
                return false;
            };
            // `prefix*` matches everything that begins with the prefix.
            let prefix = denied.literal_prefix();
            let open = denied.source().strip_suffix('*') == Some(prefix);
            let takes = |pattern: &&Pattern| {
                denied.source() == pattern.source() || (open && pattern.literal_prefix().starts_with(prefix))
            };
            fits && (denied.is_everything() || both.iter().any(takes))
        };
        let denies = self.rules.iter().filter(|rule| rule.effect == Effect::Deny);
        // Argo CD judges principals alone: what one is denied, another may be allowed.
        let counts = |rule: &Rule| match self.semantics {
            RbacSemantics::Strict => true,
            RbacSemantics::Argocd => rule.subject == allowing.subject,
        };
        // A project's deny counts for its objects only, while the allow may count for others.
        let mut denies = denies.filter(|rule| rule.project.is_none() && self.applies_to(who, rule) && counts(rule));
        denies.any(covers)
    }

    /// Whether a row counts for the caller in any plan.
    fn applies_to(&self, who: &RbacIdentity, rule: &Rule) -> bool {
        let Some(subject) = self.subjects.get(&rule.subject) else {
            return false;
        };
        let of_project = rule.project.as_ref().and_then(|project| self.projects.get(&**project));
        let plans = match of_project {
            Some(project) => vec![Some(*project)],
            None => std::iter::once(None)
                .chain(self.projects.values().copied().map(Some))
                .collect(),
        };
        let mut steps = plans.into_iter().flat_map(|project| who.plan(project));
        steps.any(|step| step.eligibility == Eligibility::Eligible && step.roles.contains(subject))
    }
}
