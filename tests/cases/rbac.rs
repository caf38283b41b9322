//! Runs the cases of `rbac.yaml` and `rbac_derived.yaml`, and cases about object names of other
//! tables.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_config::RbacSemantics;
use tollgate_core::diagnostic::Location;
use tollgate_objects::Text;
use tollgate_policy::rbac;

use crate::suite::{Case, Suite, Table, same};

mod enforce;

/// Kinds of the RBAC tables.
pub(crate) struct Rbac;

impl Suite for Rbac {
    fn covers(&self, table: &Table, kind: &str) -> bool {
        match kind {
            "rbac_object_name" => true,
            "enforce" | "cli_can" => table.head.contains_key("shared_policies"),
            _ => {
                table.subject.contains("RBAC")
                    && matches!(
                        kind,
                        "policy_line"
                            | "policy_text"
                            | "policy_role_integrity"
                            | "policy_compose"
                            | "project_policy_validation"
                            | "project_policy_action"
                            | "project_policy_object"
                            | "project_group_name"
                            | "project_role_name"
                            | "repository_object_name"
                            | "user_identifier"
                            | "group_membership"
                            | "scope_values"
                    )
            }
        }
    }

    fn run(&self, table: &Table, case: &Case) -> Result<(), String> {
        match case.kind.as_str() {
            "enforce" => enforce::enforce(table, case, &case.read()?),
            "cli_can" => enforce::can(table, &case.read()?),
            "policy_line" => line(&case.read()?),
            "policy_text" | "policy_role_integrity" => text(&case.read()?),
            "policy_compose" => compose(case.read()?),
            "project_policy_validation" => project_policy(&case.read()?),
            "project_policy_action" => project_action(&case.read()?),
            "project_policy_object" => project_object(&case.read()?),
            "project_group_name" => group_name(&case.read()?),
            "project_role_name" => role_name(&case.read()?),
            "rbac_object_name" => object_name(&case.read()?),
            "repository_object_name" => repository_name(&case.read()?),
            "user_identifier" => user(case.read()?),
            "group_membership" => membership(case.read()?),
            "scope_values" => scope_values(case.read()?),
            other => Err(format!("no handler for `{other}`")),
        }
    }
}

/// `expected` of kinds that validate a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Validity {
    Valid,
    Invalid,
}

impl Validity {
    fn of<E>(result: &Result<(), E>) -> Self {
        if result.is_ok() { Self::Valid } else { Self::Invalid }
    }
}

/// Compares the result of a validation with the expected one. `words` must be in its error.
fn check_validity(expected: Validity, words: Option<&str>, result: Result<(), String>) -> Result<(), String> {
    same(&expected, &Validity::of(&result)).map_err(|error| format!("{error}: {result:?}"))?;
    match (words, result) {
        (Some(words), Err(error)) if !error.contains(words) => {
            Err(format!("error is `{error}`, expected `{words}` in it"))
        }
        (Some(words), Ok(())) => Err(format!("no error, expected one with `{words}`")),
        _ => Ok(()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    text: String,
    expected: Validity,
    error_contains: Option<String>,
}

fn line(case: &Line) -> Result<(), String> {
    check_validity(
        case.expected,
        case.error_contains.as_deref(),
        rbac::validate_line(&case.text),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyText {
    text: String,
    expected: Validity,
    error_contains: Option<String>,
    expected_warning_undefined_roles: Option<Vec<String>>,
}

fn text(case: &PolicyText) -> Result<(), String> {
    let text = Text {
        value: case.text.as_str().into(),
        location: Location::new("policy.csv", 1),
    };
    let findings = rbac::validate_text(&text, RbacSemantics::Argocd);
    let result = match findings.iter().find(|finding| finding.is_error()) {
        Some(finding) => Err(finding.to_string()),
        None => Ok(()),
    };
    check_validity(case.expected, case.error_contains.as_deref(), result)?;
    match &case.expected_warning_undefined_roles {
        Some(roles) => same(roles, &rbac::undefined_roles(&case.text)),
        None => Ok(()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Compose {
    configmap_data: Option<BTreeMap<String, String>>,
    expected_text: String,
}

fn compose(case: Compose) -> Result<(), String> {
    same(
        &case.expected_text,
        &rbac::compose_policy(&case.configmap_data.unwrap_or_default()),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProjectPolicy {
    project: String,
    role: String,
    policy_line: String,
    expected: Validity,
    error_contains: Option<String>,
}

fn project_policy(case: &ProjectPolicy) -> Result<(), String> {
    let result = rbac::validate_policy(&case.project, &case.role, &case.policy_line);
    check_validity(
        case.expected,
        case.error_contains.as_deref(),
        result.map_err(|error| error.to_string()),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProjectAction {
    action: String,
    expected: Validity,
}

fn project_action(case: &ProjectAction) -> Result<(), String> {
    same(
        &(case.expected == Validity::Valid),
        &rbac::validate_action(&case.action),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProjectObject {
    project: String,
    object: String,
    expected: Validity,
}

fn project_object(case: &ProjectObject) -> Result<(), String> {
    same(
        &(case.expected == Validity::Valid),
        &rbac::validate_object(&case.project, &case.object),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupName {
    group: String,
    expected: Validity,
    error_contains: Option<String>,
}

fn group_name(case: &GroupName) -> Result<(), String> {
    let result = rbac::validate_group_name(&case.group).map_err(|error| error.to_string());
    check_validity(case.expected, case.error_contains.as_deref(), result)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RoleName {
    role: String,
    expected: Validity,
    error_contains: Option<String>,
}

fn role_name(case: &RoleName) -> Result<(), String> {
    let result = rbac::validate_role_name(&case.role).map_err(|error| error.to_string());
    check_validity(case.expected, case.error_contains.as_deref(), result)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectName {
    control_plane_namespace: String,
    input: Object,
    expected_object: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    project: String,
    #[serde(default)]
    namespace: String,
    name: String,
}

fn object_name(case: &ObjectName) -> Result<(), String> {
    let Object {
        project,
        namespace,
        name,
    } = &case.input;
    same(
        &case.expected_object,
        &rbac::object_name(&case.control_plane_namespace, project, namespace, name),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RepositoryName {
    input: Repository,
    expected_object: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Repository {
    #[serde(default)]
    project: String,
    repo: String,
}

fn repository_name(case: &RepositoryName) -> Result<(), String> {
    same(
        &case.expected_object,
        &rbac::url_object_name(&case.input.project, &case.input.repo),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct User {
    claims: Option<Map<String, Value>>,
    expected_id: String,
}

fn user(case: User) -> Result<(), String> {
    let claims = case.claims.unwrap_or_default();
    same(
        &case.expected_id.as_str(),
        &tollgate_core::claims::user_identifier(&claims),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Membership {
    claims: Option<Map<String, Value>>,
    groups: Option<Vec<String>>,
    scopes: Option<Vec<String>>,
    expected: bool,
}

fn membership(case: Membership) -> Result<(), String> {
    let (groups, scopes) = (case.groups.unwrap_or_default(), case.scopes.unwrap_or_default());
    same(
        &case.expected,
        &tollgate_core::claims::is_member(&case.claims.unwrap_or_default(), &groups, &scopes),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeValues {
    claims: Option<Map<String, Value>>,
    scopes: Option<Vec<String>>,
    expected_groups: Option<Vec<String>>,
}

fn scope_values(case: ScopeValues) -> Result<(), String> {
    let scopes = case.scopes.unwrap_or_default();
    let observed = tollgate_core::claims::scope_values(&case.claims.unwrap_or_default(), &scopes);
    same(&case.expected_groups.unwrap_or_default(), &observed)
}
