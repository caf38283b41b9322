//! Semantics beyond the case tables, and the index against a plain scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use crate::diagnostic::Diagnostic;
use crate::glob::Pattern;
use crate::state::ProjectRole;

mod model;

pub(super) fn text(value: &str) -> Text {
    Text {
        value: value.into(),
        location: Location::new("policy.csv", 1),
    }
}

fn source(policy: &str, semantics: Semantics) -> PolicySource {
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

fn ask(rbac: &Rbac, caller: Value, tuple: [&str; 3]) -> Verdict {
    let [resource, action, object] = tuple;
    rbac.decide(
        &rbac.identify(&claims(caller)),
        Tuple {
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
        destinations: Vec::new(),
        source_repos: Vec::new(),
        source_namespaces: Vec::new(),
        permit_only_project_scoped_clusters: false,
        roles: vec![role],
        location,
    };
    (name.to_owned(), Arc::new(project))
}

const GET_X: [&str; 3] = ["applications", "get", "prod/x"];

#[test]
fn builtin_policy_states_the_same_facts() {
    let table: Value = serde_saphyr::from_str(include_str!("../../../tests/cases/rbac.yaml")).unwrap();
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
fn every_broken_line_is_told_at_once() {
    let policy = "p, a, b\np, u, applications, get, */*, allow\nx, y\n\ng, only-one\np, \"u, r, a, o, allow";
    let found = errors(&source(policy, Semantics::Argocd));
    assert_eq!(found.len(), 4, "{found:?}");
    for (finding, place) in found
        .iter()
        .zip(["policy.csv:1: ", "policy.csv:3: ", "policy.csv:5: ", "policy.csv:6: "])
    {
        assert!(finding.starts_with(place), "{finding}");
    }
}

#[test]
fn inert_rows_warn_or_refuse() {
    for policy in [
        "p, u, applications, get, */*, Deny",
        "p, u, applications, get, */*, allow # note",
        "p, u, applications, get, [a-zA-Z]*, deny",
        "p, u , applications, get, */*, allow",
    ] {
        assert!(errors(&source(policy, Semantics::Argocd)).is_empty(), "{policy}");
        assert!(
            !Rbac::compile(&source(policy, Semantics::Argocd)).diagnostics.is_empty(),
            "{policy}"
        );
        assert_eq!(errors(&source(policy, Semantics::Strict)).len(), 1, "{policy}");
    }
    let rbac = load(&source(
        "p, u, applications, get, */*, allow\np, u, applications, get, [a-zA-Z]*, deny",
        Semantics::Argocd,
    ));
    assert!(ask(&rbac, json!({"sub": "u"}), GET_X).is_allowed());
}

#[test]
fn undefined_roles_and_unknown_resources_warn() {
    let loaded = Rbac::compile(&source(
        "g, a, role:none\np, u, aplications, get, *, allow",
        Semantics::Strict,
    ));
    let told: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    assert!(loaded.value.is_some());
    assert!(
        told.iter()
            .any(|told| told.starts_with("policy.csv:1: warning: role `role:none` has no rows")),
        "{told:?}"
    );
    assert!(
        told.iter()
            .any(|told| told.contains("no resource is called `aplications`")),
        "{told:?}"
    );
}

#[test]
fn strict_deny_wins_over_every_principal() {
    let policy = "p, role:a, applications, get, prod/*, allow\np, role:b, applications, get, prod/*, deny\n\
                  g, team-a, role:a\ng, team-b, role:b";
    for (groups, argocd) in [(["team-a", "team-b"], true), (["team-b", "team-a"], true)] {
        let caller = json!({"sub": "u", "groups": groups});
        assert_eq!(
            ask(&load(&source(policy, Semantics::Argocd)), caller.clone(), GET_X).is_allowed(),
            argocd
        );
        let strict = ask(&load(&source(policy, Semantics::Strict)), caller, GET_X);
        assert_eq!((strict.outcome, strict.why), (Outcome::Deny, Why::DeniedByRule));
    }
    let default = |semantics| PolicySource {
        default_role: "role:a".to_owned(),
        ..source(&format!("{policy}\np, u, applications, get, prod/x, deny"), semantics)
    };
    assert!(ask(&load(&default(Semantics::Argocd)), json!({"sub": "u"}), GET_X).is_allowed());
    assert!(!ask(&load(&default(Semantics::Strict)), json!({"sub": "u"}), GET_X).is_allowed());
    assert!(ask(&load(&default(Semantics::Strict)), json!({"sub": "v"}), GET_X).is_allowed());
}

#[test]
fn strict_groups_always_count() {
    let policy = "p, org:t, applications, get, */*, allow";
    let caller = json!({"sub": "u", "groups": ["org:t"]});
    assert!(!ask(&load(&source(policy, Semantics::Argocd)), caller.clone(), GET_X).is_allowed());
    assert!(ask(&load(&source(policy, Semantics::Strict)), caller, GET_X).is_allowed());
}

#[test]
fn strict_names_of_roles_and_accounts_are_not_for_providers() {
    let strict = PolicySource {
        builtin: Builtin::Argocd,
        ..source("", Semantics::Strict)
    };
    let strict = load(&PolicySource {
        accounts: BTreeSet::from(["admin".into(), "bot".into()]),
        ..strict
    });
    let argocd = load(&PolicySource {
        builtin: Builtin::Argocd,
        ..source("", Semantics::Argocd)
    });
    for caller in [
        json!({"sub": "x", "groups": ["role:admin"]}),
        json!({"sub": "x", "groups": ["admin"]}),
        json!({"sub": "role:admin"}),
        json!({"sub": "admin", "iss": "https://idp.example"}),
    ] {
        assert!(ask(&argocd, caller.clone(), GET_X).is_allowed(), "{caller}");
        assert!(!ask(&strict, caller.clone(), GET_X).is_allowed(), "{caller}");
        let who = strict.identify(&claims(caller));
        let [resource, action, object] = GET_X;
        let told = strict.explain(
            &who,
            Tuple {
                resource,
                action,
                object,
            },
        );
        assert!(
            told.principals
                .iter()
                .any(|tried| tried.outcome == TriedOutcome::ReservedName),
            "{told:?}"
        );
    }
    assert!(ask(&strict, json!({"sub": "admin", "iss": "argocd"}), GET_X).is_allowed());
    assert!(!ask(&strict, json!({"sub": "role:admin", "iss": "argocd"}), GET_X).is_allowed());
}

#[test]
fn roles_are_followed_ten_hops_or_all_the_way() {
    let chain = |hops: usize| {
        let grants: String = (0..hops).map(|hop| format!("g, r{hop}, r{}\n", hop + 1)).collect();
        format!("{grants}p, r{hops}, applications, get, */*, allow")
    };
    for (hops, argocd) in [(10, true), (11, false)] {
        let caller = json!({"sub": "r0"});
        assert_eq!(
            ask(&load(&source(&chain(hops), Semantics::Argocd)), caller.clone(), GET_X).is_allowed(),
            argocd
        );
        assert!(ask(&load(&source(&chain(hops), Semantics::Strict)), caller, GET_X).is_allowed());
    }
    let circle = load(&source(
        "g, a, b\ng, b, a\np, b, applications, get, */*, allow",
        Semantics::Strict,
    ));
    assert!(ask(&circle, json!({"sub": "a"}), GET_X).is_allowed());
}

#[test]
fn project_roles_count_for_their_project_only() {
    let lines = [
        "p, proj:p1:r, applications, *, p1/*, allow",
        "p, proj:p1:r, applications, get, p2/*, allow",
    ];
    let projects = BTreeMap::from([
        project("p1", "r", &lines, &["team", "\"my,group\""]),
        project("p2", "r", &[], &[]),
    ]);
    for semantics in [Semantics::Argocd, Semantics::Strict] {
        let rbac = load(&PolicySource {
            projects: projects.clone(),
            ..source("", semantics)
        });
        for caller in [
            json!({"sub": "u", "groups": ["team"]}),
            json!({"sub": "u", "groups": ["my,group"]}),
            json!({"sub": "proj:p1:r", "iss": "argocd"}),
        ] {
            assert!(
                ask(&rbac, caller.clone(), ["applications", "sync", "p1/x"]).is_allowed(),
                "{caller}"
            );
            assert!(
                ask(&rbac, caller.clone(), ["projects", "get", "p1"]).is_allowed(),
                "{caller}"
            );
            assert!(
                !ask(&rbac, caller.clone(), ["projects", "get", "p2"]).is_allowed(),
                "{caller}"
            );
            assert!(
                !ask(&rbac, caller.clone(), ["applications", "get", "p2/x"]).is_allowed(),
                "{caller}"
            );
            assert!(
                !ask(&rbac, caller.clone(), ["extensions", "invoke", "e"]).is_allowed(),
                "{caller}"
            );
        }
        assert!(
            !ask(
                &rbac,
                json!({"sub": "u", "groups": ["other"]}),
                ["applications", "sync", "p1/x"]
            )
            .is_allowed()
        );
    }
}

#[test]
fn global_denies_apply_on_top_of_project_roles() {
    let projects = BTreeMap::from([project(
        "p1",
        "r",
        &["p, proj:p1:r, applications, *, p1/*, allow"],
        &["team"],
    )]);
    let deny = "p, proj:p1:r, applications, delete, *, deny";
    let rbac = load(&PolicySource {
        projects,
        ..source(deny, Semantics::Argocd)
    });
    let caller = json!({"sub": "u", "groups": ["team"]});
    assert!(ask(&rbac, caller.clone(), ["applications", "get", "p1/x"]).is_allowed());
    assert!(!ask(&rbac, caller, ["applications", "delete", "p1/x"]).is_allowed());
}

#[test]
fn a_broken_project_line_drops_that_project_or_refuses() {
    let projects = BTreeMap::from([
        project(
            "p1",
            "r",
            &["p, proj:p1:r, applications, *, p1/*, allow", "nonsense"],
            &["team"],
        ),
        project("p2", "r", &["p, proj:p2:r, applications, *, p2/*, allow"], &["team"]),
    ]);
    let make = |semantics| PolicySource {
        projects: projects.clone(),
        ..source("", semantics)
    };
    let rbac = load(&make(Semantics::Argocd));
    let caller = json!({"sub": "u", "groups": ["team"]});
    assert!(!ask(&rbac, caller.clone(), ["applications", "get", "p1/x"]).is_allowed());
    assert!(ask(&rbac, caller, ["applications", "get", "p2/x"]).is_allowed());
    assert_eq!(errors(&make(Semantics::Strict)).len(), 1);
}

#[test]
fn regular_expressions_search_and_break() {
    let make = |policy: &str, builtin, semantics| PolicySource {
        builtin,
        match_mode: MatchMode::Regex,
        ..source(policy, semantics)
    };
    let rbac = load(&make(
        "p, u, application, ^get$, ^prod/.+$, allow",
        Builtin::None,
        Semantics::Argocd,
    ));
    assert!(ask(&rbac, json!({"sub": "u"}), ["applicationsets", "get", "prod/x"]).is_allowed());
    assert!(!ask(&rbac, json!({"sub": "u"}), ["applicationsets", "get", "xprod/x"]).is_allowed());
    let broken = "p, u, applications, get, .*, allow\np, u, applications, get, *, deny";
    let verdict = ask(
        &load(&make(broken, Builtin::None, Semantics::Argocd)),
        json!({"sub": "u"}),
        GET_X,
    );
    assert_eq!((verdict.outcome, verdict.why), (Outcome::Deny, Why::EvaluationError));
    let other = ask(
        &load(&make(broken, Builtin::None, Semantics::Argocd)),
        json!({"sub": "u"}),
        ["applications", "sync", "p/x"],
    );
    assert_eq!(other.why, Why::NoRule);
    assert_eq!(errors(&make(broken, Builtin::None, Semantics::Strict)).len(), 1);
    let admin = json!({"sub": "admin", "iss": "argocd"});
    assert!(
        !ask(
            &load(&make("", Builtin::Argocd, Semantics::Argocd)),
            admin.clone(),
            GET_X
        )
        .is_allowed()
    );
    assert!(ask(&load(&make("", Builtin::Argocd, Semantics::Strict)), admin, GET_X).is_allowed());
}

#[test]
fn explains_principals_rows_and_near_misses() {
    let policy = "p, role:dev, applications, get, dev/*, allow\np, role:ops, applications, get, prod/*, allow\n\
                  p, role:dev, applications, sync, prod/*, allow\np, role:dev, applications, get, prod/*, Allow\n\
                  g, team, role:dev";
    let rbac = load(&source(policy, Semantics::Argocd));
    let who = rbac.identify(&claims(json!({"sub": "nobody", "groups": ["team", "lost"]})));
    let [resource, action, object] = GET_X;
    let told = rbac.explain(
        &who,
        Tuple {
            resource,
            action,
            object,
        },
    );
    assert_eq!(told.verdict.why, Why::NoRule);
    let outcomes: Vec<_> = told
        .principals
        .iter()
        .map(|tried| (tried.name.as_str(), tried.outcome))
        .collect();
    assert_eq!(
        outcomes,
        [
            ("nobody", TriedOutcome::NoRule),
            ("team", TriedOutcome::NoRule),
            ("lost", TriedOutcome::GroupWithoutGrant),
            ("", TriedOutcome::NoRule)
        ]
    );
    let misses: Vec<_> = told
        .near_misses
        .iter()
        .map(|miss| (miss.field, miss.rule.location.as_str()))
        .collect();
    assert_eq!(
        misses,
        [
            (Field::Effect, "policy.csv:4"),
            (Field::Object, "policy.csv:1"),
            (Field::Action, "policy.csv:3"),
            (Field::Subject, "policy.csv:2")
        ]
    );
    assert!(
        told.notes
            .iter()
            .any(|note| note.contains("no row or grant names `nobody`")),
        "{:?}",
        told.notes
    );
    let allowed = rbac.explain(
        &who,
        Tuple {
            resource,
            action,
            object: "dev/x",
        },
    );
    assert_eq!(allowed.rule.map(|rule| rule.location), Some("policy.csv:1".to_owned()));
    assert!(allowed.near_misses.is_empty());
}

#[test]
fn candidates_keep_denies_when_cut() {
    let mut policy: String = (0..100)
        .map(|n| format!("p, u, applications, get, prod/{}*, allow\n", "x".repeat(n % 2)))
        .collect();
    policy.push_str("p, u, applications, get, *, deny\np, v, applications, get, *, allow");
    let rbac = load(&source(&policy, Semantics::Argocd));
    let who = rbac.identify(&claims(json!({"sub": "u"})));
    let [resource, action, object] = GET_X;
    let rows = rbac.candidates(
        &who,
        Tuple {
            resource,
            action,
            object,
        },
        64,
    );
    assert_eq!(rows.len(), 64);
    assert_eq!(
        rows.last().and_then(|id| rbac.rule(*id)).map(|rule| rule.effect),
        Some(Effect::Deny)
    );
    assert_eq!(
        rbac.candidates(
            &who,
            Tuple {
                resource,
                action,
                object
            },
            1000
        )
        .len(),
        101
    );
}

#[test]
fn can_advises_about_groups_without_grants() {
    let rbac = load(&source("p, my-org:team, logs, get, p/a, allow", Semantics::Argocd));
    let question = Question {
        subject: "my-org:team",
        action: "get",
        resource: "log",
        sub_resource: "p/a",
    };
    let (verdict, advice) = rbac.can(question);
    assert!(verdict.is_allowed());
    assert_eq!(
        advice,
        [Advice::UnenforcedGroupGrant {
            subject: "my-org:team".into()
        }]
    );
    let (verdict, advice) = rbac.can(Question {
        subject: "stranger",
        ..question
    });
    assert!(!verdict.is_allowed());
    assert_eq!(
        advice,
        [Advice::UnknownSubject {
            subject: "stranger".into()
        }]
    );
    assert!(validate_request("applications", "action/apps/Deployment/restart").is_ok());
    assert!(validate_request("applications", "get/apps").is_err());
    assert!(validate_request("logs", "create").is_err());
    assert!(validate_request("nothing", "get").is_err());
}

#[test]
fn differences_show_both_verdicts() {
    let policy = "p, role:a, applications, delete, prod/*, allow\np, role:b, applications, delete, *-db, deny\n\
                  g, team-a, role:a\ng, team-b, role:b\np, org:t, applications, get, dev/*, allow";
    let (left, right) = (
        load(&source(policy, Semantics::Argocd)),
        load(&source(policy, Semantics::Strict)),
    );
    let (found, complete) = differences(&left, &right);
    assert!(complete);
    assert!(
        found.iter().any(|one| one.groups == ["team-a", "team-b"]
            && one.action == "delete"
            && one.object.starts_with("prod/")
            && one.object.ends_with("-db")
            && one.left.is_allowed()
            && !one.right.is_allowed()),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|one| one.groups == ["org:t"] && one.action == "get" && one.right.is_allowed()),
        "{found:?}"
    );
    assert!(found.iter().all(|one| one.left.outcome != one.right.outcome));
    let (none, _) = differences(&left, &load(&source(policy, Semantics::Argocd)));
    assert!(none.is_empty(), "{none:?}");
}

#[test]
fn identities_belong_to_one_policy() {
    let policy = "p, u, applications, get, */*, allow";
    let (one, two) = (
        load(&source(policy, Semantics::Argocd)),
        load(&source(policy, Semantics::Argocd)),
    );
    let who = one.identify(&claims(json!({"sub": "u"})));
    let [resource, action, object] = GET_X;
    assert!(
        one.decide(
            &who,
            Tuple {
                resource,
                action,
                object
            }
        )
        .is_allowed()
    );
    assert!(
        !two.decide(
            &who,
            Tuple {
                resource,
                action,
                object
            }
        )
        .is_allowed()
    );
    assert!(Arc::ptr_eq(&who, &one.identify(&claims(json!({"sub": "u"})))));
}

#[test]
fn hostile_texts_are_refused_or_harmless() {
    let long = format!("p, u, applications, get, {}*, deny", "a".repeat(1 << 20));
    for semantics in [Semantics::Argocd, Semantics::Strict] {
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
        Semantics::Argocd,
    ));
    let object = "a".repeat(10_000);
    assert!(!ask(&stars, json!({"sub": "u"}), ["applications", "get", &object]).is_allowed());
}

#[test]
fn settings_come_from_the_configmap() {
    let value = |value: &str| Text {
        value: value.into(),
        location: Location::new("cm.yaml", 3),
    };
    let mut resources = crate::state::Resources::default();
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
    let loaded = PolicySource::from_resources(&resources, Semantics::Strict);
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
        PolicySource::from_resources(&resources, Semantics::Argocd)
            .value
            .is_none()
    );
}
