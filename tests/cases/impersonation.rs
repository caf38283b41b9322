//! Kinds of `impersonation.yaml` and of the derived table. Lists are read by the
//! index of Applications; operations also go through a whole gateway, to a cluster
//! that notes what it is sent.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tollgate_config::ServiceAccountSemantics;
use tollgate_policy::impersonate::service_account::validate;

use crate::suite::{Case, Suite, Table, same};

mod gateway;
mod operation;
mod scene;

use operation::{Expected, Operation, Outcome};
use scene::{App, Destination, Entry, Known, Scene};

/// Stands for the namespace the upstream suite deploys to.
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

/// What a derivation gives.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Derived {
    user: Option<String>,
    error_class: Option<String>,
    error_contains: Option<String>,
}

impl Derived {
    fn check(&self, scene: &Scene, semantics: ServiceAccountSemantics) -> Result<(), String> {
        let found = scene.derived(semantics);
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
                    same(class, &scene::class(error).to_owned())?;
                }
                let part = self.error_contains.as_deref().unwrap_or_default();
                contains(&error.to_string(), part)
            }
            (_, found) => Err(format!("expected {self:?}, observed {found:?}")),
        }
    }
}

/// `derive`: who acts, by Argo CD's reading.
fn derive(case: Derive) -> Result<(), String> {
    let scene = Scene::new(case.destination_service_accounts, case.app, case.resolved_cluster);
    case.expected.check(&scene, ServiceAccountSemantics::Argocd)
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

/// `operation`: what a tool that acts for an Application meets.
fn operate(written: &Case, case: Operate) -> Result<(), String> {
    let mut scene = Scene::new(case.destination_service_accounts, case.app, case.resolved_cluster);
    scene.settings = case.settings;
    scene.existing = case.existing_service_accounts;
    scene.patched = case.project_destinations_after_patch;
    // What the control plane does by itself has another outcome here, where a request is
    // all there is.
    let ours: Option<Expected> = if case.expected.is_control_planes() {
        written.ours_for_words("finalizers_removed")?
    } else {
        None
    };
    operation::check(
        case.operation,
        &scene,
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

/// The code of what the caller did wrong: each finding of a validation is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum GrpcCode {
    InvalidArgument,
}

/// `project_validation`: whether the API takes a list.
fn project_validation(case: Validation) -> Result<(), String> {
    let entries: Vec<_> = case.destination_service_accounts.iter().map(Entry::written).collect();
    let found = validate(&entries, ServiceAccountSemantics::Argocd);
    match (case.expected, found.as_slice()) {
        (Verdict::Valid, []) => match (case.error_contains, case.grpc_code) {
            (None, None) => Ok(()),
            told => Err(format!("a valid list has no error: {told:?}")),
        },
        // Argo CD stops at the first.
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

/// `global_project_merge`: whose entries stand behind whose.
fn global_project_merge(case: &Merge) -> Result<(), String> {
    for semantics in [ServiceAccountSemantics::Argocd, ServiceAccountSemantics::Strict] {
        let found = scene::merged(&case.project, &case.global_project, semantics)?;
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
    argocd_actual: Told,
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

/// What a derived case says happens: of a derivation, or of an operation.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Told {
    Derivation(Derived),
    Operation(Expected),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Recommended {
    Told(Told),
    /// In words, which `outcomes.yaml` translates. Of somebody else's table: whatever it
    /// is, it is not what Argo CD does.
    Words(String),
}

/// `impersonation`: Argo CD's behavior under its own reading, the recommended one
/// under ours.
fn derived(written: &Case, case: Behavior) -> Result<(), String> {
    let given = case.given;
    let mut scene = Scene::new(given.destination_service_accounts, given.app, given.resolved_cluster);
    scene.settings = given.settings;
    scene.existing = given.existing_service_accounts;
    let actual = &case.argocd_actual;
    // Who acts is asked of the list alone, everything else of an operation.
    let operation = given.operation.unwrap_or(Operation::Sync);
    let check = |told: &Told, semantics| match (told, given.operation) {
        (Told::Derivation(derived), None) => derived.check(&scene, semantics),
        (Told::Derivation(derived), Some(_)) if derived.user.is_some() => derived.check(&scene, semantics),
        (Told::Derivation(derived), Some(operation)) => {
            let refused = Expected::refused(derived.error_class.clone(), derived.error_contains.clone());
            operation::check(operation, &scene, &refused, semantics)
        }
        (Told::Operation(expected), _) => operation::check(operation, &scene, expected, semantics),
    };
    check(actual, ServiceAccountSemantics::Argocd).map_err(|error| format!("argocd: {error}"))?;
    let Some(recommended) = &case.recommended else {
        return Ok(());
    };
    let strict = match recommended {
        Recommended::Told(told) => check(told, ServiceAccountSemantics::Strict),
        Recommended::Words(words) => match written.ours_for_words::<Told>(words)? {
            Some(told) => check(&told, ServiceAccountSemantics::Strict),
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

/// What Argo CD's controller says of an operation whose every request came to this. Of a
/// success it has one sentence, which depends on nothing that a gateway says; that the
/// cluster holds what was applied is looked at where the requests are sent.
fn told(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done { .. } => "successfully synced (no more tasks)".to_owned(),
        Outcome::ClusterRefused { message, .. } => {
            format!("one or more objects failed to apply, reason: {message}")
        }
        Outcome::GatewayRefused { message } => message.clone(),
    }
}
