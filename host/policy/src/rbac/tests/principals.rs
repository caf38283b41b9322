//! Which principals a caller has: denies over principals, groups, roles, project roles.

use super::*;
use crate::rbac::explain::PrincipalOutcome;

#[test]
fn strict_deny_wins_over_every_principal() {
    let policy = "p, role:a, applications, get, prod/*, allow\np, role:b, applications, get, prod/*, deny\n\
                  g, team-a, role:a\ng, team-b, role:b";
    for (groups, argocd) in [(["team-a", "team-b"], true), (["team-b", "team-a"], true)] {
        let caller = json!({"sub": "u", "groups": groups});
        assert_eq!(
            decide(&load(&source(policy, RbacSemantics::Argocd)), caller.clone(), GET_X).is_allowed(),
            argocd
        );
        let strict = decide(&load(&source(policy, RbacSemantics::Strict)), caller, GET_X);
        assert_eq!(
            (strict.outcome, strict.why),
            (Outcome::Deny, VerdictReason::DeniedByRule)
        );
    }
    let default = |semantics| PolicySource {
        default_role: "role:a".to_owned(),
        ..source(&format!("{policy}\np, u, applications, get, prod/x, deny"), semantics)
    };
    assert!(decide(&load(&default(RbacSemantics::Argocd)), json!({"sub": "u"}), GET_X).is_allowed());
    assert!(!decide(&load(&default(RbacSemantics::Strict)), json!({"sub": "u"}), GET_X).is_allowed());
    assert!(decide(&load(&default(RbacSemantics::Strict)), json!({"sub": "v"}), GET_X).is_allowed());
}

#[test]
fn strict_groups_always_count() {
    let policy = "p, org:t, applications, get, */*, allow";
    let caller = json!({"sub": "u", "groups": ["org:t"]});
    assert!(!decide(&load(&source(policy, RbacSemantics::Argocd)), caller.clone(), GET_X).is_allowed());
    assert!(decide(&load(&source(policy, RbacSemantics::Strict)), caller, GET_X).is_allowed());
}

#[test]
fn strict_reserves_the_names_of_roles_and_local_accounts() {
    let strict = PolicySource {
        builtin: Builtin::Argocd,
        ..source("", RbacSemantics::Strict)
    };
    let strict = load(&PolicySource {
        accounts: BTreeSet::from(["admin".into(), "bot".into()]),
        ..strict
    });
    let argocd = load(&PolicySource {
        builtin: Builtin::Argocd,
        ..source("", RbacSemantics::Argocd)
    });
    for caller in [
        json!({"sub": "x", "groups": ["role:admin"]}),
        json!({"sub": "x", "groups": ["admin"]}),
        json!({"sub": "role:admin"}),
        json!({"sub": "admin", "iss": "https://idp.example"}),
    ] {
        assert!(decide(&argocd, caller.clone(), GET_X).is_allowed(), "{caller}");
        assert!(!decide(&strict, caller.clone(), GET_X).is_allowed(), "{caller}");
        let who = strict.identify(&claims(caller));
        let [resource, action, object] = GET_X;
        let explanation = strict.explain(
            &who,
            RbacRequest {
                resource,
                action,
                object,
            },
        );
        assert!(
            explanation
                .principals
                .iter()
                .any(|evaluated| evaluated.outcome == PrincipalOutcome::ReservedName),
            "{explanation:?}"
        );
    }
    assert!(decide(&strict, json!({"sub": "admin", "iss": "argocd"}), GET_X).is_allowed());
    assert!(!decide(&strict, json!({"sub": "role:admin", "iss": "argocd"}), GET_X).is_allowed());
}

#[test]
fn argocd_follows_ten_role_hops_and_strict_every_hop() {
    let chain = |hops: usize| {
        let grants: String = (0..hops).map(|hop| format!("g, r{hop}, r{}\n", hop + 1)).collect();
        format!("{grants}p, r{hops}, applications, get, */*, allow")
    };
    for (hops, argocd) in [(10, true), (11, false)] {
        let caller = json!({"sub": "r0"});
        assert_eq!(
            decide(
                &load(&source(&chain(hops), RbacSemantics::Argocd)),
                caller.clone(),
                GET_X
            )
            .is_allowed(),
            argocd
        );
        assert!(decide(&load(&source(&chain(hops), RbacSemantics::Strict)), caller, GET_X).is_allowed());
    }
    let circle = load(&source(
        "g, a, b\ng, b, a\np, b, applications, get, */*, allow",
        RbacSemantics::Strict,
    ));
    assert!(decide(&circle, json!({"sub": "a"}), GET_X).is_allowed());
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
    for semantics in [RbacSemantics::Argocd, RbacSemantics::Strict] {
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
                decide(&rbac, caller.clone(), ["applications", "sync", "p1/x"]).is_allowed(),
                "{caller}"
            );
            assert!(
                decide(&rbac, caller.clone(), ["projects", "get", "p1"]).is_allowed(),
                "{caller}"
            );
            assert!(
                !decide(&rbac, caller.clone(), ["projects", "get", "p2"]).is_allowed(),
                "{caller}"
            );
            assert!(
                !decide(&rbac, caller.clone(), ["applications", "get", "p2/x"]).is_allowed(),
                "{caller}"
            );
            assert!(
                !decide(&rbac, caller.clone(), ["extensions", "invoke", "e"]).is_allowed(),
                "{caller}"
            );
        }
        assert!(
            !decide(
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
        ..source(deny, RbacSemantics::Argocd)
    });
    let caller = json!({"sub": "u", "groups": ["team"]});
    assert!(decide(&rbac, caller.clone(), ["applications", "get", "p1/x"]).is_allowed());
    assert!(!decide(&rbac, caller, ["applications", "delete", "p1/x"]).is_allowed());
}

#[test]
fn a_broken_project_line_drops_that_project_and_nothing_else() {
    // Strict semantics also refuse the last two: an effect and a pattern that can never apply.
    let lines = [
        ("nonsense", true),
        ("p, proj:p1:r, applications, get, p1/secret, dney", false),
        ("p, proj:p1:r, applications, get, p1/[, deny", false),
    ];
    for (line, is_broken_to_argocd) in lines {
        let projects = BTreeMap::from([
            project(
                "p1",
                "r",
                &["p, proj:p1:r, applications, *, p1/*, allow", line],
                &["team"],
            ),
            project("p2", "r", &["p, proj:p2:r, applications, *, p2/*, allow"], &["team"]),
        ]);
        for semantics in [RbacSemantics::Argocd, RbacSemantics::Strict] {
            let loaded = Rbac::compile(&PolicySource {
                projects: projects.clone(),
                ..source("", semantics)
            });
            let findings: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
            let rbac = loaded.value.unwrap();
            let caller = json!({"sub": "u", "groups": ["team"]});
            let is_dropped = semantics == RbacSemantics::Strict || is_broken_to_argocd;
            assert_eq!(
                decide(&rbac, caller.clone(), ["applications", "get", "p1/x"]).is_allowed(),
                !is_dropped,
                "{line} {semantics:?}"
            );
            assert!(decide(&rbac, caller, ["applications", "get", "p2/x"]).is_allowed());
            let is_reported = findings
                .iter()
                .any(|line| line.contains("roles of project `p1` do not count"));
            assert_eq!(is_reported, is_dropped, "{findings:?}");
        }
    }
    // A broken line of the operator's own still refuses the policy.
    assert_eq!(errors(&source("nonsense", RbacSemantics::Strict)).len(), 1);
}

#[test]
fn identities_belong_to_one_policy() {
    let policy = "p, u, applications, get, */*, allow";
    let (one, two) = (
        load(&source(policy, RbacSemantics::Argocd)),
        load(&source(policy, RbacSemantics::Argocd)),
    );
    let who = one.identify(&claims(json!({"sub": "u"})));
    let [resource, action, object] = GET_X;
    assert!(
        one.decide(
            &who,
            RbacRequest {
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
            RbacRequest {
                resource,
                action,
                object
            }
        )
        .is_allowed()
    );
    assert!(Arc::ptr_eq(&who, &one.identify(&claims(json!({"sub": "u"})))));
}
