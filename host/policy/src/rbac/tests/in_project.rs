//! Tests of rows about an object in a project.

use super::*;

const INVOKE: RbacRequest<'_> = RbacRequest {
    resource: "extensions",
    action: "invoke",
    object: "metrics",
};

fn why(policy: &str, semantics: RbacSemantics) -> [VerdictReason; 2] {
    let rbac = load(&source(policy, semantics));
    let who = rbac.identify(&claims(json!({"sub": "u", "groups": ["team"]})));
    let verdict = rbac.decide_in_project(&who, INVOKE, "shop");
    assert_eq!(verdict.is_allowed(), verdict.why == VerdictReason::Allowed);
    [verdict.why, rbac.decide(&who, INVOKE).why]
}

/// The verdict by both names, and the one by the plain name alone, which is Argo CD's.
#[test]
fn a_row_may_name_the_object_with_its_project() {
    use VerdictReason::{Allowed, DeniedByRule, NoRule};
    for (rows, expected) in [
        (&["*, shop/metrics, allow"][..], [Allowed, NoRule]),
        (&["invoke, */metrics, allow"], [Allowed, NoRule]),
        (&["invoke, */*, allow"], [Allowed, NoRule]),
        (&["invoke, shop/*, allow"], [Allowed, NoRule]),
        (&["invoke, s*/metrics, allow"], [Allowed, NoRule]),
        (&["invoke, other/metrics, allow"], [NoRule, NoRule]),
        (&["invoke, shop/other, allow"], [NoRule, NoRule]),
        (&["get, shop/metrics, allow"], [NoRule, NoRule]),
        (&["invoke, shop/ns/metrics, allow"], [NoRule, NoRule]),
        // Rows about extensions stay what they are, although `*` matches `/` too.
        (&["invoke, s*, allow"], [NoRule, NoRule]),
        (&["invoke, m*, allow"], [Allowed, Allowed]),
        (&["invoke, shop/metrics, allow", "invoke, s*, deny"], [Allowed, NoRule]),
        // A deny by either name wins.
        (
            &["invoke, metrics, allow", "invoke, shop/metrics, deny"],
            [DeniedByRule, Allowed],
        ),
        (&["invoke, *, allow", "*, shop/*, deny"], [DeniedByRule, Allowed]),
        (
            &["invoke, shop/metrics, allow", "invoke, metrics, deny"],
            [DeniedByRule, DeniedByRule],
        ),
        (
            &["invoke, metrics, allow", "invoke, other/metrics, deny"],
            [Allowed, Allowed],
        ),
    ] {
        let rows: Vec<String> = rows.iter().map(|row| format!("p, u, extensions, {row}")).collect();
        let policy = rows.join("\n");
        for semantics in [RbacSemantics::Argocd, RbacSemantics::Strict] {
            assert_eq!(why(&policy, semantics), expected, "{policy}");
        }
    }
}

/// Rows that were written about Applications grant no extension.
#[test]
fn a_row_that_allows_names_the_resource() {
    use VerdictReason::{Allowed, DeniedByRule, NoRule};
    for (policy, expected) in [
        ("p, u, *, *, shop/*, allow", [NoRule, NoRule]),
        ("p, u, ext*, *, shop/*, allow", [NoRule, NoRule]),
        ("p, u, extensions, *, shop/*, allow", [Allowed, NoRule]),
        (
            "p, u, extensions, *, metrics, allow\np, u, *, *, shop/*, deny",
            [DeniedByRule, Allowed],
        ),
    ] {
        for semantics in [RbacSemantics::Argocd, RbacSemantics::Strict] {
            assert_eq!(why(policy, semantics), expected, "{policy}");
        }
    }
}

#[test]
fn principals_are_combined_as_for_any_request() {
    let policy = "p, u, extensions, invoke, shop/metrics, deny\n\
                  p, role:dev, extensions, invoke, metrics, allow\ng, team, role:dev";
    assert_eq!(why(policy, RbacSemantics::Argocd)[0], VerdictReason::Allowed);
    assert_eq!(why(policy, RbacSemantics::Strict)[0], VerdictReason::DeniedByRule);
}

#[test]
fn regular_expressions_count_for_the_longer_name_if_they_have_a_slash() {
    let decide = |object: &str| {
        let rbac = load(&PolicySource {
            match_mode: MatchMode::Regex,
            ..source(
                &format!("p, u, extensions, invoke, {object}, allow"),
                RbacSemantics::Argocd,
            )
        });
        let who = rbac.identify(&claims(json!({"sub": "u"})));
        rbac.decide_in_project(&who, INVOKE, "shop").is_allowed()
    };
    assert!(decide("^shop/metrics$") && decide("/metrics") && decide("metrics"));
    assert!(!decide("shop") && !decide("^other/") && !decide("^shop.metrics$"));
}

#[test]
fn a_policy_that_narrows_is_asked_about_both_names() {
    let rows = |object: &str| {
        load(&source(
            &format!("p, u, extensions, invoke, {object}, allow"),
            RbacSemantics::Argocd,
        ))
    };
    let decide = |narrower: &str| {
        let rbac = rows("shop/metrics").narrowed_by(&Arc::new(rows(narrower)));
        let who = rbac.identify(&claims(json!({"sub": "u"})));
        rbac.decide_in_project(&who, INVOKE, "shop").is_allowed()
    };
    assert!(decide("shop/metrics") && decide("metrics"));
    assert!(!decide("other/metrics") && !decide("s*"));
}

#[test]
fn candidates_are_the_rows_beyond_those_of_the_plain_name() {
    let policy = "p, u, extensions, invoke, *, allow\np, u, extensions, invoke, s*, allow\n\
                  p, u, extensions, invoke, */metrics, allow\np, u, extensions, *, shop/*, deny\n\
                  p, u, extensions, invoke, \"{metrics,shop/metrics}\", allow\np, v, extensions, invoke, shop/metrics, allow";
    let rbac = load(&source(policy, RbacSemantics::Argocd));
    let who = rbac.identify(&claims(json!({"sub": "u"})));
    let objects = |most| {
        let rows = rbac.candidates_in_project(&who, INVOKE, "shop", most).into_iter();
        let rules: Vec<String> = rows.map(|id| rbac.rule(id).unwrap().object.to_string()).collect();
        rules
    };
    assert_eq!(objects(64), ["*/metrics", "shop/*"]);
    // Denies are kept first.
    assert_eq!(objects(1), ["shop/*"]);
}
