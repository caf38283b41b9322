//! Runs the cases of `impersonation.yaml` and `impersonation_derived.yaml`. Derivations use the
//! index of Applications. Operations also go through a whole gateway to a fake cluster that records
//! its requests.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tollgate_config::ServiceAccountSemantics;
use tollgate_policy::impersonate::service_account::validate;

use crate::suite::{Case, Suite, Table, same};

mod gateway;
mod operation;
mod scenario;

use operation::{Expected, Operation, Outcome};
use scenario::{App, Destination, Entry, Known, Scenario};

/// Placeholder for the namespace to which Argo CD's test suite deploys.
const PLACEHOLDER: &str = "$DEPLOY_NS";
const DEPLOY_NAMESPACE: &str = "deploy-ns";

/// Kinds of the impersonation tables.
pub(crate) struct Impersonation;

impl Suite for Impersonation {
    fn covers(&self, _table: &Table, kind: &str) -> bool {
        matches!(
            kind,
            "derive" | "operation" | "project_validation" | "global_project_merge" | "cli_flag_parse" | "impersonation"
        )
    }

    fn run(&self, _table: &Table, case: &Case) -> Result<(), String> {
        let case = case.with(PLACEHOLDER, DEPLOY_NAMESPACE);
        match case.kind.as_str() {
            "derive" => derive(case.read()?),
            "operation" => operate(&case, case.read()?),
            "project_validation" => project_validation(case.read()?),
            "global_project_merge" => global_project_merge(&case.read()?),
            "cli_flag_parse" => cli_flag_parse(case.read()?),
            "impersonation" => derived(&case, case.read()?),
            other => Err(format!("no handler for `{other}`")),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Derive {
    destination_service_accounts: Vec<Entry>,
    app: App,
    resolved_cluster: Option<Known>,
    expected: Derived,
}

/// Expected result of a derivation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Derived {
    user: Option<String>,
    error_class: Option<String>,
    error_contains: Option<String>,
}

impl Derived {
    fn check(&self, scenario: &Scenario, semantics: ServiceAccountSemantics) -> Result<(), String> {
        let found = scenario.derived(semantics);
        match (&self.user, &found) {
            (Some(user), Ok(found)) => {
                same(
                    &(&None::<String>, &None::<String>),
                    &(&self.error_class, &self.error_contains),
                )?;
                same(user, found)
            }
            (None, Err(error)) => {
                if self.error_class.is_none() && self.error_contains.is_none() {
                    return Err("nothing is expected".to_owned());
                }
                if let Some(class) = &self.error_class {
                    same(class, &scenario::class(error).to_owned())?;
                }
                let part = self.error_contains.as_deref().unwrap_or_default();
                contains(&error.to_string(), part)
            }
            (_, found) => Err(format!("expected {self:?}, observed {found:?}")),
        }
    }
}

/// `derive`: the account that acts, by Argo CD's semantics.
fn derive(case: Derive) -> Result<(), String> {
    let scenario = Scenario::new(case.destination_service_accounts, case.app, case.resolved_cluster);
    case.expected.check(&scenario, ServiceAccountSemantics::Argocd)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Operate {
    operation: Operation,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    destination_service_accounts: Vec<Entry>,
    app: App,
    resolved_cluster: Option<Known>,
    existing_service_accounts: Option<BTreeSet<String>>,
    project_destinations_after_patch: Option<Vec<Destination>>,
    expected: Expected,
}

/// `operation`: the results of a tool that acts for an Application.
fn operate(written: &Case, case: Operate) -> Result<(), String> {
    let mut scenario = Scenario::new(case.destination_service_accounts, case.app, case.resolved_cluster);
    scenario.settings = case.settings;
    scenario.existing = case.existing_service_accounts;
    scenario.patched = case.project_destinations_after_patch;
    // What Argo CD's control plane does without the cluster has another outcome here, because the
    // gateway only sees requests.
    let ours: Option<Expected> = if case.expected.is_control_planes() {
        written.ours_for_words("finalizers_removed")?
    } else {
        None
    };
    operation::check(
        case.operation,
        &scenario,
        ours.as_ref().unwrap_or(&case.expected),
        ServiceAccountSemantics::Argocd,
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Validation {
    destination_service_accounts: Vec<Entry>,
    expected: Verdict,
    error_contains: Option<String>,
    grpc_code: Option<GrpcCode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Valid,
    Invalid,
}

/// The gRPC code of every finding of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum GrpcCode {
    InvalidArgument,
}

/// `project_validation`: whether the API accepts a list.
fn project_validation(case: Validation) -> Result<(), String> {
    let entries: Vec<_> = case.destination_service_accounts.iter().map(Entry::written).collect();
    let found = validate(&entries, ServiceAccountSemantics::Argocd);
    match (case.expected, found.as_slice()) {
        (Verdict::Valid, []) => match (case.error_contains, case.grpc_code) {
            (None, None) => Ok(()),
            expected => Err(format!("a valid list has no error: {expected:?}")),
        },
        // Argo CD stops at the first finding.
        (Verdict::Invalid, [first, ..]) => {
            same(&true, &first.is_error())?;
            contains(&first.message, case.error_contains.as_deref().unwrap_or_default())
        }
        (expected, found) => Err(format!("expected {expected:?}, observed {found:?}")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Merge {
    project: Vec<Entry>,
    global_project: Vec<Entry>,
    expected_effective: Vec<Entry>,
}

/// `global_project_merge`: the order of entries of a project and a global project.
fn global_project_merge(case: &Merge) -> Result<(), String> {
    for semantics in [ServiceAccountSemantics::Argocd, ServiceAccountSemantics::Strict] {
        let found = scenario::merged(&case.project, &case.global_project, semantics)?;
        same(&case.expected_effective, &found)?;
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Flags {
    flags: Vec<String>,
    expected: Option<Vec<Entry>>,
    error_contains: Option<String>,
}

/// `cli_flag_parse`: `SERVER,NAMESPACE,ACCOUNT`.
fn cli_flag_parse(case: Flags) -> Result<(), String> {
    let read = |flag: &String| flag.parse().map(|entry| Entry::of(&entry));
    let found: Result<Vec<Entry>, _> = case.flags.iter().map(read).collect();
    match (case.expected, case.error_contains, found) {
        (Some(expected), None, Ok(found)) => same(&expected, &found),
        (None, Some(part), Err(error)) => contains(&error.to_string(), &part),
        (expected, error, found) => Err(format!("expected {expected:?} or {error:?}, observed {found:?}")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Behavior {
    given: Given,
    argocd_actual: Expectation,
    recommended: Option<Recommended>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    destination_service_accounts: Vec<Entry>,
    app: App,
    resolved_cluster: Option<Known>,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    operation: Option<Operation>,
    existing_service_accounts: Option<BTreeSet<String>>,
}

/// What a derived case expects of a derivation or of an operation.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Expectation {
    Derivation(Derived),
    Operation(Expected),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Recommended {
    Expectation(Expectation),
    /// Prose, which `outcomes.yaml` translates. In tables of other folders it only means that the
    /// gateway must differ from Argo CD.
    Words(String),
}

/// `impersonation`: Argo CD's behavior under its semantics, the recommended one under strict
/// semantics.
fn derived(written: &Case, case: Behavior) -> Result<(), String> {
    let given = case.given;
    let mut scenario = Scenario::new(given.destination_service_accounts, given.app, given.resolved_cluster);
    scenario.settings = given.settings;
    scenario.existing = given.existing_service_accounts;
    let actual = &case.argocd_actual;
    // A user is compared with the derivation alone, everything else with an operation.
    let operation = given.operation.unwrap_or(Operation::Sync);
    let check = |expectation: &Expectation, semantics| match (expectation, given.operation) {
        (Expectation::Derivation(derived), None) => derived.check(&scenario, semantics),
        (Expectation::Derivation(derived), Some(_)) if derived.user.is_some() => derived.check(&scenario, semantics),
        (Expectation::Derivation(derived), Some(operation)) => {
            let refused = Expected::refused(derived.error_class.clone(), derived.error_contains.clone());
            operation::check(operation, &scenario, &refused, semantics)
        }
        (Expectation::Operation(expected), _) => operation::check(operation, &scenario, expected, semantics),
    };
    check(actual, ServiceAccountSemantics::Argocd).map_err(|error| format!("argocd: {error}"))?;
    let Some(recommended) = &case.recommended else {
        return Ok(());
    };
    let strict = match recommended {
        Recommended::Expectation(expectation) => check(expectation, ServiceAccountSemantics::Strict),
        Recommended::Words(words) => match written.ours_for_words::<Expectation>(words)? {
            Some(expectation) => check(&expectation, ServiceAccountSemantics::Strict),
            None => match check(actual, ServiceAccountSemantics::Strict) {
                Ok(()) => Err(format!("expected `{words}`, observed what Argo CD does")),
                Err(_) => Ok(()),
            },
        },
    };
    strict.map_err(|error| format!("strict: {error}"))
}

fn contains(text: &str, part: &str) -> Result<(), String> {
    if text.contains(part) {
        Ok(())
    } else {
        Err(format!("`{text}` does not contain `{part}`"))
    }
}

/// The message of Argo CD's controller for an operation whose requests all had this outcome. Its
/// message for success is constant; `gateway` checks that the cluster has what was applied.
fn controller_message(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done { .. } => "successfully synced (no more tasks)".to_owned(),
        Outcome::ClusterRefused { message, .. } => {
            format!("one or more objects failed to apply, reason: {message}")
        }
        Outcome::GatewayRefused { message } => message.clone(),
    }
}
