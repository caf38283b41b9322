//! Combines the host's findings and the policy's decision about one question into refusals.
//!
//! Security: a finding of the host refuses even where the policy allows.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::applicationsets::permit::error::{Error, FindingKind, RefusalCollector};
use crate::applicationsets::permit::rights::project_text;
use crate::applicationsets::permit::{Desk, MAX_RECORDED_CHECKS, Operation};
use tollgate_applicationset::{GeneratorKind, Refusal, RefusedResource};
use tollgate_core::diagnostic::one_line;
use tollgate_policy::rego::{ApplicationSetDetails, ApplicationSetFacts, ApplicationSetInput, RbacCheck};
use tollgate_proxy::record::CheckRecord;
use tollgate_state::ObjectName;

/// Longest reason in bytes. The caller chooses names in it, and the policy passes it on.
const REASON_BYTES: usize = 480;
/// The rule that is named if only the policy refuses.
const POLICY: &str = "policies/applicationsets";

/// One reason to refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    lacks: FindingKind,
    rule: Option<String>,
    reason: String,
}

impl Finding {
    #[expect(clippy::needless_pass_by_value, reason = "callers word it for this alone")]
    pub(super) fn new(lacks: FindingKind, rule: Option<String>, reason: String) -> Self {
        Self {
            lacks,
            rule,
            reason: one_line(&reason, REASON_BYTES),
        }
    }

    /// A permission that is missing.
    pub(super) fn missing(check: RbacCheck<'_>) -> Self {
        let reason = format!("`{}, {}` is not permitted", check.resource, check.action);
        Self::new(FindingKind::Permission, check.verdict.rule.map(str::to_owned), reason)
    }

    /// The policy's own denial.
    pub(super) fn of_policy(reason: String) -> Self {
        Self {
            lacks: FindingKind::Permission,
            rule: Some(POLICY.to_owned()),
            reason,
        }
    }

    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    pub(super) fn refusal(self, about: RefusedResource) -> Refusal {
        Refusal {
            about,
            rule: self.rule,
            reason: self.reason,
        }
    }

    pub(super) fn put(self, about: RefusedResource, collected: &mut RefusalCollector) {
        collected.push(self.lacks, self.refusal(about));
    }
}

/// Adds a check to the record, if there is room.
pub(super) fn record_check(checks: &mut Vec<CheckRecord>, check: impl FnOnce() -> CheckRecord) {
    if checks.len() < MAX_RECORDED_CHECKS {
        checks.push(check());
    }
}

impl Desk<'_> {
    /// Adds the policy's denial to the findings, unless it repeats one.
    pub(super) fn add_policy_denial(
        &self,
        input: &ApplicationSetInput<'_>,
        findings: &mut Vec<Finding>,
    ) -> Result<(), Error> {
        let denied = self.policy.deny_reason(input).map_err(Error::Policy)?;
        if let Some(reason) = denied.filter(|reason| findings.iter().all(|finding| finding.reason != *reason)) {
            findings.push(Finding::of_policy(reason));
        }
        Ok(())
    }

    /// The facts that all questions about a set share.
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
        let labels = set.pointer("/metadata/labels").and_then(Value::as_object);
        let labels: BTreeMap<String, String> = labels
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        let projects: Vec<String> = projects.iter().cloned().collect();
        let mut kinds = BTreeSet::new();
        if let Some(generators) = set.pointer("/spec/generators") {
            generator_kinds(generators, &mut kinds);
        }
        let kinds: Vec<&'static str> = kinds.into_iter().collect();
        let known = ApplicationSetDetails {
            namespace: &name.namespace,
            name: &name.name,
            project: project_text(set),
            projects: &projects,
            labels: &labels,
            generators: &kinds,
        };
        ApplicationSetFacts::new(&self.caller.policy, operation.as_str(), &known)
    }
}

/// Collects the kinds of generators in a list and in nested lists.
///
/// Generators nest at most two deep.
fn generator_kinds(generators: &Value, kinds: &mut BTreeSet<&'static str>) {
    let mut lists = vec![(generators, 0)];
    while let Some((list, depth)) = lists.pop() {
        let entries = list.as_array().into_iter().flatten().filter_map(Value::as_object);
        for (key, settings) in entries.flatten() {
            let known = GeneratorKind::ALL.into_iter().find(|kind| kind.as_str() == key);
            kinds.extend(known.map(GeneratorKind::as_str));
            if let (Some(below), true) = (settings.get("generators"), depth < 2) {
                lists.push((below, depth + 1));
            }
        }
    }
}
