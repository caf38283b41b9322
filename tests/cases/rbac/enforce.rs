//! Kinds that decide a request: `enforce` and `cli_can`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_config::RbacSemantics;
use tollgate_core::diagnostic::Location;
use tollgate_objects::{Project, ProjectRole, RoleToken, Text};
use tollgate_policy::rbac::{
    Advice, Builtin, CanQuery, MatchMode, Outcome, PolicySource, Rbac, RbacRequest, TokenIssuer, resolve_resource,
    validate_request, validate_text,
};

use crate::suite::{Case, Table, same};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    builtin: Option<String>,
    user: Option<String>,
    runtime_policy: Option<String>,
    default_role: Option<String>,
    match_mode: Option<String>,
    claims_enforcer: Option<ClaimsEnforcer>,
    enforcement_enabled: Option<bool>,
    scopes: Option<Vec<String>>,
    projects: Option<Vec<CaseProject>>,
}

/// How claims are evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClaimsEnforcer {
    Argocd,
    ConstTrue,
    ConstFalse,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseProject {
    name: String,
    roles: Option<Vec<CaseRole>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseRole {
    name: String,
    policies: Option<Vec<String>>,
    groups: Option<Vec<String>>,
    jwt_tokens: Option<Vec<CaseToken>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseToken {
    iat: Option<i64>,
    exp: Option<i64>,
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Enforce {
    policy: Policy,
    subject: Subject,
    request: Request,
    expected: Option<Answer>,
    argocd_actual: Option<Answer>,
    /// A verdict, or prose, which `outcomes.yaml` translates.
    recommended: Option<String>,
}

/// Result of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Decision {
    Allow,
    Deny,
    /// The policy is refused, so nothing is decided.
    Refused,
}

impl From<Answer> for Decision {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Allow => Self::Allow,
            Answer::Deny => Self::Deny,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    #[serde(rename = "type")]
    kind: SubjectKind,
    value: Option<Value>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SubjectKind {
    String,
    Claims,
    Nil,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    resource: String,
    action: String,
    object: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Allow,
    Deny,
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Allow => Self::Allow,
            Outcome::Deny => Self::Deny,
        }
    }
}

/// Decides a request under Argo CD's semantics and, if the table recommends a verdict, under strict
/// semantics.
pub(super) fn enforce(table: &Table, written: &Case, case: &Enforce) -> Result<(), String> {
    let actual = case
        .expected
        .or(case.argocd_actual)
        .ok_or("neither `expected` nor `argocd_actual`")?;
    let observed = decide(table, case, RbacSemantics::Argocd)?;
    same(&Decision::from(actual), &observed).map_err(|error| format!("semantics argocd: {error}"))?;
    let Some(recommended) = case.recommended.as_deref() else {
        return Ok(());
    };
    let strict = decide(table, case, RbacSemantics::Strict)?;
    let expected = match recommended {
        "allow" => Some(Decision::Allow),
        "deny" => Some(Decision::Deny),
        words => written.ours_for_words(words)?,
    };
    match expected {
        Some(expected) => same(&expected, &strict),
        // The prose is unknown: it only means that the gateway differs from Argo CD.
        None if strict != observed => Ok(()),
        None => Err(format!("expected `{recommended}`, observed what Argo CD does")),
    }
    .map_err(|error| format!("semantics strict: {error}"))
}

fn decide(table: &Table, case: &Enforce, semantics: RbacSemantics) -> Result<Decision, String> {
    if case.policy.enforcement_enabled == Some(false) {
        // The gateway cannot turn enforcement off. In Argo CD, everything is then allowed.
        return Ok(Decision::Allow);
    }
    let rbac = match (compile(table, &case.policy, semantics)?, semantics) {
        (Ok(rbac), _) => rbac,
        (Err(_), RbacSemantics::Strict) => return Ok(Decision::Refused),
        (Err(refused), RbacSemantics::Argocd) => return Err(refused),
    };
    let Request {
        resource,
        action,
        object,
    } = &case.request;
    let tuple = RbacRequest {
        resource,
        action,
        object,
    };
    let anonymous = || rbac.decide(&rbac.identify_anonymous(), tuple);
    let verdict = match (case.subject.kind, &case.subject.value, case.policy.claims_enforcer) {
        (SubjectKind::String, Some(Value::String(subject)), _) => rbac.decide(&rbac.identify_subject(subject), tuple),
        (SubjectKind::Claims, _, Some(ClaimsEnforcer::ConstTrue)) => return Ok(Decision::Allow),
        (SubjectKind::Claims, Some(Value::Object(claims)), Some(ClaimsEnforcer::Argocd)) => {
            decide_claims(&rbac, claims, tuple)?
        }
        (SubjectKind::Claims, None | Some(Value::Null), Some(ClaimsEnforcer::Argocd)) => {
            decide_claims(&rbac, &Map::new(), tuple)?
        }
        (SubjectKind::Claims, _, None | Some(ClaimsEnforcer::ConstFalse)) | (SubjectKind::Nil, _, _) => anonymous(),
        (_, value, _) => return Err(format!("subject is {value:?}")),
    };
    Ok(Answer::from(verdict.outcome).into())
}

/// Decides for claims, and checks that the batch and the explanation agree.
fn decide_claims(
    rbac: &Rbac,
    claims: &Map<String, Value>,
    tuple: RbacRequest<'_>,
) -> Result<tollgate_policy::rbac::Verdict, String> {
    let who = rbac.identify(claims);
    let verdict = rbac.decide(&who, tuple);
    let batch = rbac.decide_each(&who, tuple.resource, tuple.action, std::iter::once(tuple.object));
    same(&vec![verdict], &batch)?;
    same(&verdict, &rbac.explain(&who, tuple).verdict)?;
    Ok(verdict)
}

/// The policy, or why it is refused.
fn compile(table: &Table, policy: &Policy, semantics: RbacSemantics) -> Result<Result<Rbac, String>, String> {
    let user = referenced(table, policy.user.as_deref().unwrap_or_default())?;
    let mut texts = vec![file("policy.csv", &user)];
    if let Some(runtime) = &policy.runtime_policy {
        // Argo CD ignores a run-time policy that is invalid.
        let text = file("runtime.csv", &named(table, runtime)?);
        if !validate_text(&text, RbacSemantics::Argocd)
            .iter()
            .any(|finding| finding.is_error())
        {
            texts.push(text);
        }
    }
    let builtin = match policy.builtin.as_deref() {
        None | Some("none" | "") => Builtin::None,
        Some("argocd-builtin") => Builtin::Argocd,
        Some(other) => Builtin::Text(file("builtin.csv", &named(table, other)?)),
    };
    let source = PolicySource {
        builtin,
        texts,
        default_role: policy.default_role.clone().unwrap_or_default(),
        match_mode: MatchMode::from_setting(policy.match_mode.as_deref().unwrap_or_default()),
        scopes: policy.scopes.clone().unwrap_or_else(|| vec!["groups".to_owned()]),
        projects: projects(policy.projects.as_deref().unwrap_or_default()),
        semantics,
        ..PolicySource::default()
    };
    let loaded = Rbac::compile(&source);
    Ok(loaded.value.ok_or_else(|| {
        let errors = loaded.diagnostics.iter().filter(|finding| finding.is_error());
        format!(
            "policy is refused: {}",
            errors.map(ToString::to_string).collect::<Vec<_>>().join("; ")
        )
    }))
}

fn file(name: &str, text: &str) -> Text {
    Text {
        value: text.into(),
        location: Location::new(name, 1),
    }
}

/// Resolves a text: `ref:<key>` is a shared policy, anything else the policy itself.
fn referenced(table: &Table, text: &str) -> Result<String, String> {
    match text.strip_prefix("ref:") {
        Some(key) => shared(table, key).ok_or_else(|| format!("no shared policy `{key}`")),
        None => Ok(text.to_owned()),
    }
}

/// Resolves a name: a key of the shared policies, `ref:<key>`, `text:<csv>`, `none`, or the policy
/// itself.
fn named(table: &Table, text: &str) -> Result<String, String> {
    if let Some(text) = text.strip_prefix("text:") {
        return Ok(text.to_owned());
    }
    match shared(table, text) {
        Some(policy) => Ok(policy),
        None if text == "none" => Ok(String::new()),
        None => referenced(table, text),
    }
}

fn shared(table: &Table, key: &str) -> Option<String> {
    table.head.get("shared_policies")?.get(key)?.as_str().map(str::to_owned)
}

fn projects(cases: &[CaseProject]) -> BTreeMap<String, Arc<Project>> {
    let role = |role: &CaseRole| ProjectRole {
        name: role.name.clone(),
        policies: role
            .policies
            .iter()
            .flatten()
            .map(|line| file("project.yaml", line))
            .collect(),
        groups: role
            .groups
            .iter()
            .flatten()
            .map(|group| file("project.yaml", group))
            .collect(),
        tokens: role.jwt_tokens.iter().flatten().map(token).collect(),
        location: Location::new("project.yaml", 1),
    };
    let project = |project: &CaseProject| Project {
        name: project.name.clone(),
        roles: project.roles.iter().flatten().map(role).collect(),
        location: Location::new("project.yaml", 1),
        ..Project::default()
    };
    cases
        .iter()
        .map(|case| (case.name.clone(), Arc::new(project(case))))
        .collect()
}

fn token(token: &CaseToken) -> RoleToken {
    RoleToken {
        id: token.id.clone().unwrap_or_default(),
        issued_at: token.iat.unwrap_or_default(),
        expires_at: token.exp.unwrap_or_default(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Can {
    policy: Policy,
    request: CanRequest,
    expected: Option<Answer>,
    error_contains: Option<String>,
    expected_warning: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CanRequest {
    subject: String,
    action: String,
    resource: String,
    sub_resource: Option<String>,
    strict: Option<bool>,
}

/// Decides a request as the command line does.
pub(super) fn can(table: &Table, case: &Can) -> Result<(), String> {
    let rbac = compile(table, &case.policy, RbacSemantics::Argocd)??;
    let CanRequest {
        subject,
        action,
        resource,
        sub_resource,
        strict,
    } = &case.request;
    if strict.unwrap_or(true) {
        match (
            validate_request(resolve_resource(resource), action),
            &case.error_contains,
        ) {
            (Ok(()), None) => {}
            (Ok(()), Some(words)) => return Err(format!("no error, expected one with `{words}`")),
            (Err(error), Some(words)) if error.to_string().contains(words) => return Ok(()),
            (Err(error), _) => return Err(error.to_string()),
        }
    }
    let sub_resource = sub_resource.as_deref().unwrap_or_default();
    let (verdict, advice) = rbac.can(CanQuery {
        subject,
        action,
        resource,
        sub_resource,
    });
    if let Some(expected) = case.expected {
        same(&expected, &Answer::from(verdict.outcome))?;
    }
    let question = CanQuery {
        subject,
        action,
        resource,
        sub_resource,
    };
    let caller = rbac.identify_name(subject, &[], TokenIssuer::Assumed);
    let explained = rbac.explain(&caller, question.request()).verdict;
    same(&verdict, &explained).map_err(|error| format!("`can` and `explain`: {error}"))?;
    let warned = advice
        .iter()
        .any(|advice| matches!(advice, Advice::UnenforcedGroupGrant { .. }));
    case.expected_warning.map_or(Ok(()), |expected| {
        same(&expected, &warned).map_err(|error| format!("warning: {error}"))
    })
}
