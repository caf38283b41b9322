//! Combines the host's findings and the policy's decision about one resource into refusals.
//!
//! Security: a finding of the host refuses even where the policy allows.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::{Error, FindingKind, RefusalList};
use tollgate_front::set_list::project_text;

use crate::set::labels;
use crate::{MAX_RECORDED_CHECKS, Operation, SetAuthorizer};
use strum::VariantArray;
use tollgate_applicationset::{Denial, DeniedResource, GeneratorKind};
use tollgate_core::diagnostic::one_line;
use tollgate_objects::ObjectName;
use tollgate_proxy::record::CheckRecord;
use tollgate_rego::{ApplicationSetDetails, ApplicationSetFacts, ApplicationSetInput, RbacCheck};

/// Longest reason in bytes. The caller chooses names in it, and the policy repeats it.
const REASON_BYTES: usize = 480;
const POLICY: &str = "policies/applicationsets";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    kind: FindingKind,
    rule: Option<String>,
    reason: String,
}

impl Finding {
    pub(super) fn denied(reason: &str) -> Self {
        Self {
            kind: FindingKind::Permission,
            rule: None,
            reason: one_line(reason, REASON_BYTES),
        }
    }

    pub(super) fn invalid(reason: &str) -> Self {
        Self {
            kind: FindingKind::Validity,
            ..Self::denied(reason)
        }
    }

    /// - `rule`: what refuses.
    pub(super) fn by(self, rule: impl Into<String>) -> Self {
        Self {
            rule: Some(rule.into()),
            ..self
        }
    }

    pub(super) fn missing(check: RbacCheck<'_>) -> Self {
        Self {
            rule: check.verdict.rule.map(str::to_owned),
            ..Self::denied(&format!("`{}, {}` is not permitted", check.resource, check.action))
        }
    }

    pub(super) fn of_policy(reason: String) -> Self {
        Self {
            kind: FindingKind::Permission,
            rule: Some(POLICY.to_owned()),
            reason,
        }
    }

    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    pub(super) fn into_denial(self, resource: DeniedResource) -> Denial {
        Denial {
            about: resource,
            rule: self.rule,
            reason: self.reason,
        }
    }

    pub(super) fn put(self, resource: DeniedResource, collector: &mut RefusalList) {
        collector.push(self.kind, self.into_denial(resource));
    }
}

/// Adds a check to the record, unless it has [`MAX_RECORDED_CHECKS`] already.
pub(super) fn record_check(checks: &mut Vec<CheckRecord>, check: impl FnOnce() -> CheckRecord) {
    if checks.len() < MAX_RECORDED_CHECKS {
        checks.push(check());
    }
}

impl SetAuthorizer<'_> {
    /// Why the bundle `policies/applicationsets` denies. `None` if it allows.
    pub(super) fn policy_denial(&self, input: &ApplicationSetInput<'_>) -> Result<Option<String>, Error> {
        let decision = self.policy.decide(input.to_value()).map_err(Error::Policy)?;
        Ok((!decision.allow).then_some(decision.reason))
    }

    /// Adds the policy's denial to the findings, unless it repeats one.
    pub(super) fn add_policy_denial(
        &self,
        input: &ApplicationSetInput<'_>,
        findings: &mut Vec<Finding>,
    ) -> Result<(), Error> {
        let denied = self.policy_denial(input)?;
        if let Some(reason) = denied.filter(|reason| findings.iter().all(|finding| finding.reason != *reason)) {
            findings.push(Finding::of_policy(reason));
        }
        Ok(())
    }

    /// The facts that all inputs of the policy about a set share.
    ///
    /// - `set`: the object.
    /// - `projects`: projects of its RBAC objects.
    pub(super) fn facts(
        &self,
        operation: Operation,
        name: &ObjectName,
        set: &Value,
        projects: &BTreeSet<String>,
    ) -> ApplicationSetFacts {
        let labels = labels(set);
        let projects: Vec<String> = projects.iter().cloned().collect();
        let kinds: Vec<&'static str> = generator_kinds_of(set).into_iter().collect();
        let details = ApplicationSetDetails {
            namespace: &name.namespace,
            name: &name.name,
            project: project_text(set),
            projects: &projects,
            labels: &labels,
            generators: &kinds,
        };
        ApplicationSetFacts::new(&self.caller.policy, operation.as_ref(), &details)
    }
}

pub(super) fn generator_kinds_of(set: &Value) -> BTreeSet<&'static str> {
    let mut kinds = BTreeSet::new();
    if let Some(generators) = set.pointer("/spec/generators") {
        generator_kinds(generators, &mut kinds);
    }
    kinds
}

/// Collects the kinds of generators in a list and in nested lists.
///
/// Generators nest at most two deep.
fn generator_kinds(generators: &Value, kinds: &mut BTreeSet<&'static str>) {
    let mut lists = vec![(generators, 0)];
    while let Some((list, depth)) = lists.pop() {
        let entries = list.as_array().into_iter().flatten().filter_map(Value::as_object);
        for (key, settings) in entries.flatten() {
            let kind = GeneratorKind::VARIANTS.iter().find(|kind| kind.as_ref() == key);
            kinds.extend(kind.map(AsRef::<str>::as_ref));
            if let (Some(below), true) = (settings.get("generators"), depth < 2) {
                lists.push((below, depth + 1));
            }
        }
    }
}
