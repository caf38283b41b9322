//! Semantics beyond the case tables, and the index against a plain scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::glob::Pattern;
use tollgate_objects::ProjectRole;

mod answers;
mod in_project;
mod model;
mod principals;

pub(super) fn text(value: &str) -> Text {
    Text {
        value: value.into(),
        location: Location::new("policy.csv", 1),
    }
}

fn source(policy: &str, semantics: RbacSemantics) -> PolicySource {
    PolicySource {
        builtin: Builtin::None,
        texts: vec![text(policy)],
        semantics,
        ..PolicySource::default()
    }
}

fn load(source: &PolicySource) -> Rbac {
    let loaded = Rbac::compile(source);
    loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

fn errors(source: &PolicySource) -> Vec<String> {
    let loaded = Rbac::compile(source);
    assert_eq!(
        loaded.value.is_none(),
        loaded.diagnostics.iter().any(Diagnostic::is_error)
    );
    loaded
        .diagnostics
        .iter()
        .filter(|finding| finding.is_error())
        .map(ToString::to_string)
        .collect()
}

fn claims(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(claims) => claims,
        other => panic!("{other}"),
    }
}

fn decide(rbac: &Rbac, caller: Value, request: [&str; 3]) -> Verdict {
    let [resource, action, object] = request;
    rbac.decide(
        &rbac.identify(&claims(caller)),
        RbacRequest {
            resource,
            action,
            object,
        },
    )
}

fn project(name: &str, role: &str, policies: &[&str], groups: &[&str]) -> (String, Arc<Project>) {
    let location = Location::new("projects.yaml", 7);
    let texts = |list: &[&str]| {
        list.iter()
            .map(|value| Text {
                value: (*value).into(),
                location: location.clone(),
            })
            .collect::<Vec<_>>()
    };
    let role = ProjectRole {
        name: role.to_owned(),
        policies: texts(policies),
        groups: texts(groups),
        tokens: Vec::new(),
        location: location.clone(),
    };
    let project = Project {
        name: name.to_owned(),
        roles: vec![role],
        location,
        ..Project::default()
    };
    (name.to_owned(), Arc::new(project))
}

const GET_X: [&str; 3] = ["applications", "get", "prod/x"];

#[test]
fn the_builtin_policy_has_the_rows_of_argo_cds() {
    let table: Value = serde_saphyr::from_str(include_str!("../../../../tests/cases/rbac.yaml")).unwrap();
    let upstream = table["shared_policies"]["argocd-builtin"].as_str().unwrap().to_owned();
    let facts = |text: &str| -> BTreeSet<String> {
        text.lines()
            .filter_map(|line| line::parse(line).ok())
            .map(|line| format!("{line:?}"))
            .collect()
    };
    let mut expected = facts(&upstream);
    expected.insert(format!("{:?}", line::Line::Nothing));
    assert_eq!(facts(BUILTIN_POLICY), expected);
}

#[test]
fn every_malformed_line_is_reported() {
    let policy = "p, a, b\np, u, applications, get, */*, allow\nx, y\n\ng, only-one\np, \"u, r, a, o, allow";
    let found = errors(&source(policy, RbacSemantics::Argocd));
    assert_eq!(found.len(), 4, "{found:?}");
    for (finding, location) in
        found
            .iter()
            .zip(["policy.csv:1: ", "policy.csv:3: ", "policy.csv:5: ", "policy.csv:6: "])
    {
        assert!(finding.starts_with(location), "{finding}");
    }
}

#[test]
fn inert_rows_are_warnings_or_errors() {
    for policy in [
        "p, u, applications, get, */*, Deny",
        "p, u, applications, get, */*, allow # note",
        "p, u, applications, get, [a-zA-Z]*, deny",
        "p, u , applications, get, */*, allow",
    ] {
        assert!(errors(&source(policy, RbacSemantics::Argocd)).is_empty(), "{policy}");
        assert!(
            !Rbac::compile(&source(policy, RbacSemantics::Argocd))
                .diagnostics
                .is_empty(),
            "{policy}"
        );
        assert_eq!(errors(&source(policy, RbacSemantics::Strict)).len(), 1, "{policy}");
    }
    let rbac = load(&source(
        "p, u, applications, get, */*, allow\np, u, applications, get, [a-zA-Z]*, deny",
        RbacSemantics::Argocd,
    ));
    assert!(decide(&rbac, json!({"sub": "u"}), GET_X).is_allowed());
}

#[test]
fn a_subject_with_an_asterisk_warns() {
    for policy in [
        "p, *, applications, get, */*, allow",
        "p, team-*, applications, get, */*, deny",
        "g, team-*, role:admin\np, role:admin, applications, get, */*, allow",
    ] {
        for semantics in [RbacSemantics::Argocd, RbacSemantics::Strict] {
            let loaded = Rbac::compile(&source(policy, semantics));
            assert!(loaded.value.is_some());
            let findings: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
            let expected = "has a `*`, and a subject is no pattern";
            assert!(
                findings.iter().any(|finding| finding.contains(expected)),
                "{findings:?}"
            );
        }
    }
    let rbac = load(&source(
        "p, team-*, applications, get, */*, allow",
        RbacSemantics::Argocd,
    ));
    assert!(!decide(&rbac, json!({"sub": "team-a"}), GET_X).is_allowed());
    assert!(decide(&rbac, json!({"sub": "team-*"}), GET_X).is_allowed());
    // Patterns in the other fields are what they are for.
    let loaded = Rbac::compile(&source("p, u, *, get, */*, allow", RbacSemantics::Argocd));
    assert_eq!(loaded.diagnostics, []);
}

#[test]
fn a_group_that_a_line_cannot_hold_is_named() {
    let mut source = source("", RbacSemantics::Argocd);
    let (name, project) = project(
        "shop",
        "ci",
        &["p, proj:shop:ci, applications, get, shop/*, allow"],
        &["a, b"],
    );
    source.projects.insert(name, project);
    let loaded = Rbac::compile(&source);
    let findings: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    let expected = "group `a, b` of role `ci` has a comma or a quotation mark";
    assert!(
        findings.iter().any(|finding| finding.contains(expected)),
        "{findings:?}"
    );
    assert!(
        !findings.iter().any(|finding| finding.contains("takes 3 fields")),
        "{findings:?}"
    );
}

#[test]
fn undefined_roles_and_unknown_resources_warn() {
    let loaded = Rbac::compile(&source(
        "g, a, role:none\np, u, aplications, get, *, allow",
        RbacSemantics::Strict,
    ));
    let findings: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    assert!(loaded.value.is_some());
    assert!(
        findings
            .iter()
            .any(|finding| finding.starts_with("policy.csv:1: warning: role `role:none` has no rows")),
        "{findings:?}"
    );
    assert!(
        findings
            .iter()
            .any(|finding| finding.contains("no resource is called `aplications`")),
        "{findings:?}"
    );
}

#[test]
fn regular_expressions_are_unanchored_and_can_be_invalid() {
    let make = |policy: &str, builtin, semantics| PolicySource {
        builtin,
        match_mode: MatchMode::Regex,
        ..source(policy, semantics)
    };
    let rbac = load(&make(
        "p, u, application, ^get$, ^prod/.+$, allow",
        Builtin::None,
        RbacSemantics::Argocd,
    ));
    assert!(decide(&rbac, json!({"sub": "u"}), ["applicationsets", "get", "prod/x"]).is_allowed());
    assert!(!decide(&rbac, json!({"sub": "u"}), ["applicationsets", "get", "xprod/x"]).is_allowed());
    let broken = "p, u, applications, get, .*, allow\np, u, applications, get, *, deny";
    let verdict = decide(
        &load(&make(broken, Builtin::None, RbacSemantics::Argocd)),
        json!({"sub": "u"}),
        GET_X,
    );
    assert_eq!(
        (verdict.outcome, verdict.why),
        (Outcome::Deny, VerdictReason::EvaluationError)
    );
    let other = decide(
        &load(&make(broken, Builtin::None, RbacSemantics::Argocd)),
        json!({"sub": "u"}),
        ["applications", "sync", "p/x"],
    );
    assert_eq!(other.why, VerdictReason::NoRule);
    assert_eq!(errors(&make(broken, Builtin::None, RbacSemantics::Strict)).len(), 1);
    let admin = json!({"sub": "admin", "iss": "argocd"});
    assert!(
        !decide(
            &load(&make("", Builtin::Argocd, RbacSemantics::Argocd)),
            admin.clone(),
            GET_X
        )
        .is_allowed()
    );
    assert!(decide(&load(&make("", Builtin::Argocd, RbacSemantics::Strict)), admin, GET_X).is_allowed());
}

#[test]
fn hostile_texts_are_refused_or_harmless() {
    let long = format!("p, u, applications, get, {}*, deny", "a".repeat(1 << 20));
    for semantics in [RbacSemantics::Argocd, RbacSemantics::Strict] {
        let found = errors(&source(&long, semantics));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("8192 are allowed") && found[0].len() < 300,
            "{}",
            found[0].len()
        );
        assert_eq!(
            errors(&source(
                &format!("p, u, applications, get, {}, deny", "{".repeat(5000)),
                semantics
            ))
            .len(),
            1
        );
        assert_eq!(errors(&source(&"\"".repeat(100_001), semantics)).len(), 1);
        assert_eq!(errors(&source(&",".repeat(1 << 20), semantics)).len(), 1);
    }
    let stars = load(&source(
        &format!("p, u, applications, get, {}b, allow", "*a".repeat(500)),
        RbacSemantics::Argocd,
    ));
    let object = "a".repeat(10_000);
    assert!(!decide(&stars, json!({"sub": "u"}), ["applications", "get", &object]).is_allowed());
}

#[test]
fn settings_come_from_the_configmap() {
    let value = |value: &str| Text {
        value: value.into(),
        location: Location::new("cm.yaml", 3),
    };
    let mut resources = tollgate_objects::Resources::default();
    for (key, text) in [
        ("policy.csv", "p, a, applications, get, */*, allow"),
        ("policy.b.csv", "g, b, a"),
        ("policy.a.csv", "g, c, b"),
        ("policy.default", "role:d"),
        ("policy.matchMode", "regexp"),
        ("scopes", "[groups, email]"),
    ] {
        resources.rbac_cm.data.insert(key.to_owned(), value(text));
    }
    resources
        .argocd_cm
        .data
        .insert("accounts.bot".to_owned(), value("apiKey"));
    resources
        .argocd_cm
        .data
        .insert("accounts.bot.enabled".to_owned(), value("true"));
    let loaded = PolicySource::from_resources(&resources, RbacSemantics::Strict);
    assert_eq!(loaded.diagnostics.len(), 1, "{:?}", loaded.diagnostics);
    let source = loaded.value.unwrap();
    let texts: Vec<&str> = source.texts.iter().map(|text| &*text.value).collect();
    assert_eq!(texts, ["p, a, applications, get, */*, allow", "g, c, b", "g, b, a"]);
    assert_eq!(
        (source.match_mode, source.default_role.as_str()),
        (MatchMode::Glob, "role:d")
    );
    assert_eq!(source.scopes, ["groups", "email"]);
    assert_eq!(source.accounts, BTreeSet::from(["admin".to_owned(), "bot".to_owned()]));
    resources.rbac_cm.data.insert("scopes".to_owned(), value("{a: b}"));
    assert!(
        PolicySource::from_resources(&resources, RbacSemantics::Argocd)
            .value
            .is_none()
    );
}
