//! Tests of explanations, candidates, advice and differences.

use super::*;
use crate::rbac::can::RequestError;
use crate::rbac::explain::PrincipalOutcome;

#[test]
fn explains_principals_rows_and_near_misses() {
    let policy = "p, role:dev, applications, get, dev/*, allow\np, role:ops, applications, get, prod/*, allow\n\
                  p, role:dev, applications, sync, prod/*, allow\np, role:dev, applications, get, prod/*, Allow\n\
                  g, team, role:dev";
    let rbac = load(&source(policy, RbacSemantics::Argocd));
    let who = rbac.identify(&claims(json!({"sub": "nobody", "groups": ["team", "lost"]})));
    let [resource, action, object] = GET_X;
    let explanation = rbac.explain(
        &who,
        RbacRequest {
            resource,
            action,
            object,
        },
    );
    assert_eq!(explanation.verdict.why, VerdictReason::NoRule);
    let outcomes: Vec<_> = explanation
        .principals
        .iter()
        .map(|evaluated| (evaluated.name.as_str(), evaluated.outcome))
        .collect();
    assert_eq!(
        outcomes,
        [
            ("nobody", PrincipalOutcome::NoRule),
            ("team", PrincipalOutcome::NoRule),
            ("lost", PrincipalOutcome::GroupWithoutGrant),
            ("", PrincipalOutcome::NoRule)
        ]
    );
    let misses: Vec<_> = explanation
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
        explanation
            .notes
            .iter()
            .any(|note| note.contains("no row or grant names `nobody`")),
        "{:?}",
        explanation.notes
    );
    let allowed = rbac.explain(
        &who,
        RbacRequest {
            resource,
            action,
            object: "dev/x",
        },
    );
    assert_eq!(allowed.rule.map(|rule| rule.location), Some("policy.csv:1".to_owned()));
    assert!(allowed.near_misses.is_empty());
}

#[test]
fn truncated_candidates_keep_denies() {
    let mut policy: String = (0..100)
        .map(|n| format!("p, u, applications, get, prod/{}*, allow\n", "x".repeat(n % 2)))
        .collect();
    policy.push_str("p, u, applications, get, *, deny\np, v, applications, get, *, allow");
    let rbac = load(&source(&policy, RbacSemantics::Argocd));
    let who = rbac.identify(&claims(json!({"sub": "u"})));
    let [resource, action, object] = GET_X;
    let rows = rbac.candidates(
        &who,
        RbacRequest {
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
            RbacRequest {
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
    let rbac = load(&source("p, my-org:team, logs, get, p/a, allow", RbacSemantics::Argocd));
    let query = CanQuery {
        subject: "my-org:team",
        action: "get",
        resource: "log",
        sub_resource: "p/a",
    };
    let (verdict, advice) = rbac.can(query);
    assert!(verdict.is_allowed());
    assert_eq!(advice, [Advice::UnenforcedGroupGrant("my-org:team".into())]);
    let (verdict, advice) = rbac.can(CanQuery {
        subject: "stranger",
        ..query
    });
    assert!(!verdict.is_allowed());
    assert_eq!(advice, [Advice::UnknownSubject("stranger".into())]);
    assert!(validate_request("applications", "action/apps/Deployment/restart").is_ok());
    assert!(validate_request("applications", "get/apps").is_err());
    // An action of Argo CD's resource that only the gateway has.
    assert!(validate_request("applicationsets", "preview").is_ok());
    assert!(validate_request("applications", "preview").is_err());
    assert!(validate_request("clusters", "connect").is_ok());
    assert!(validate_request("projects", "connect").is_err());
    assert!(validate_request("logs", "create").is_err());
    assert!(validate_request("nothing", "get").is_err());
}

#[test]
fn the_gateways_own_resources_have_actions() {
    for (resource, actions, not) in [
        ("credentials", &["get"][..], "create"),
        ("tokens", &["create", "get", "delete"], "update"),
        ("sessions", &["get", "delete"], "create"),
        ("people", &["lock"], "delete"),
        ("audit", &["get"], "delete"),
    ] {
        for action in actions {
            assert_eq!(validate_request(resource, action), Ok(()), "{resource}, {action}");
        }
        let missing = RequestError::Action {
            action: not.to_owned(),
            resource: resource.to_owned(),
        };
        assert_eq!(validate_request(resource, not), Err(missing));
    }
    let policy = "p, role:admin, tokens, *, *, allow\np, role:look, audit, get, prod/*, allow";
    let loaded = Rbac::compile(&source(policy, RbacSemantics::Strict));
    assert!(loaded.diagnostics.is_empty(), "{:?}", loaded.diagnostics);
    let rbac = loaded.value.unwrap();
    let may = |subject, action, resource, sub_resource| {
        let query = CanQuery {
            subject,
            action,
            resource,
            sub_resource,
        };
        rbac.can(query).0.is_allowed()
    };
    assert!(may("role:admin", "create", "tokens", "prod/bob"));
    assert!(may("role:admin", "delete", "tokens", "*/bob"));
    assert!(!may("role:admin", "get", "sessions", "prod/bob"));
    assert!(may("role:look", "get", "audit", "prod/bob"));
    assert!(!may("role:look", "get", "audit", "*/bob"));
}

#[test]
fn differences_show_both_verdicts() {
    let policy = "p, role:a, applications, delete, prod/*, allow\np, role:b, applications, delete, *-db, deny\n\
                  g, team-a, role:a\ng, team-b, role:b\np, org:t, applications, get, dev/*, allow";
    let (left, right) = (
        load(&source(policy, RbacSemantics::Argocd)),
        load(&source(policy, RbacSemantics::Strict)),
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
    let (none, _) = differences(&left, &load(&source(policy, RbacSemantics::Argocd)));
    assert!(none.is_empty(), "{none:?}");
}
