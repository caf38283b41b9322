//! What RBAC and the Application's own state say.

use super::*;
use tollgate_cluster::discovery::{ResourceKind, ResourceScope};
use tollgate_policy::applications::Inheritance;

#[test]
fn rbac_lets_in_who_reads_and_who_writes() {
    let world = World::new(ImpersonationMode::Enforce);
    for (who, method, expected) in [
        ("looks", Method::GET, None),
        ("looks", Method::PATCH, Some("you may not sync this application")),
        ("looks", Method::DELETE, Some("you may not sync this application")),
        ("only-syncs", Method::GET, Some(NOT_VISIBLE)),
        ("only-syncs", Method::PATCH, Some(NOT_VISIBLE)),
        ("only-overrides", Method::PATCH, Some(NOT_VISIBLE)),
        ("syncs", Method::GET, None),
        ("syncs", Method::PATCH, None),
        ("overrides", Method::DELETE, None),
        ("stranger", Method::GET, Some(NOT_VISIBLE)),
        ("stranger", Method::PATCH, Some(NOT_VISIBLE)),
    ] {
        let caller = world.person(who);
        let observed = world.check_access(&caller, "argocd/guestbook", &asks(&method, POD));
        let observed = observed.map(|access| (access.access_mode(), Arc::clone(access.caller())));
        match (&observed, expected) {
            (Ok((wanted, of)), None) => {
                let reads = method == Method::GET;
                assert_eq!(
                    *wanted,
                    if reads { ReadOrWrite::Read } else { ReadOrWrite::Write },
                    "{who}"
                );
                assert!(Arc::ptr_eq(of, &caller));
            }
            (Err(error), Some(expected)) => assert_eq!(reason(error), expected, "{who} {method}"),
            (observed, _) => panic!("{who} {method}: {observed:?}"),
        }
    }
}

#[test]
fn what_is_not_one_object_is_for_who_overrides() {
    let world = World::new(ImpersonationMode::Enforce);
    let secret = "/api/v1/namespaces/guestbook/secrets/db";
    let (reads, writes) = (
        crate::applications::permit::READS_ALL,
        crate::applications::permit::WRITES_ALL,
    );
    for (method, path, expected) in [
        (Method::GET, PODS, reads),
        (Method::GET, secret, reads),
        (Method::POST, PODS, writes),
        (Method::PATCH, secret, writes),
        (Method::DELETE, PODS, writes),
        (Method::POST, &format!("{POD}/eviction"), writes),
    ] {
        let attributes = asks(&method, path);
        let check_access = |who: &str| world.check_access(&world.person(who), "argocd/guestbook", &attributes);
        for who in ["syncs", "updates", "of-old"] {
            let error = check_access(who).unwrap_err();
            assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
            assert_eq!(reason(&error), expected, "{who} {method} {path}");
        }
        let access = check_access("overrides").unwrap();
        assert_eq!(
            (access.operation(), access.requires_owned_object()),
            (ObjectOperation::Other, false)
        );
    }
    // One object is asked about, unless the caller could make it the Application's.
    for (who, asks_object) in [("looks", true), ("syncs", true), ("overrides", false)] {
        let access = world.check_access(&world.person(who), "argocd/guestbook", &asks(&Method::GET, POD));
        assert_eq!(access.unwrap().requires_owned_object(), asks_object, "{who}");
    }
}

#[test]
fn changing_an_object_needs_the_right_to_it() {
    let world = World::new(ImpersonationMode::Enforce);
    let pod = ResourceKind {
        group: "".into(),
        kind: "Pod".into(),
        scope: ResourceScope::Namespaced,
    };
    for (who, method, inheritance, permitted) in [
        ("updates", Method::PATCH, Inheritance::Disabled, true),
        ("updates", Method::PUT, Inheritance::Disabled, true),
        ("updates", Method::DELETE, Inheritance::Disabled, false),
        ("syncs", Method::PATCH, Inheritance::Enabled, false),
        ("syncs", Method::GET, Inheritance::Disabled, true),
        ("of-old", Method::PATCH, Inheritance::Disabled, false),
        ("of-old", Method::PATCH, Inheritance::Enabled, true),
        ("of-old", Method::DELETE, Inheritance::Enabled, true),
    ] {
        let attributes = asks(&method, POD);
        let access = world
            .check_access(&world.person(who), "argocd/guestbook", &attributes)
            .unwrap();
        let observed = access.check_permission(&world.rbac, inheritance, &pod);
        assert_eq!(
            observed.is_ok(),
            permitted,
            "{who} {method} {inheritance:?}: {observed:?}"
        );
    }
    // The right is to this object.
    for (path, kind) in [
        ("/api/v1/namespaces/other/pods/web-0", pod.clone()),
        (
            "/apis/metrics.k8s.io/v1/namespaces/guestbook/pods/web-0",
            ResourceKind {
                group: "metrics.k8s.io".into(),
                ..pod
            },
        ),
    ] {
        let attributes = asks(&Method::PATCH, path);
        let access = world
            .check_access(&world.person("updates"), "argocd/guestbook", &attributes)
            .unwrap();
        let told = access
            .check_permission(&world.rbac, Inheritance::Disabled, &kind)
            .unwrap_err();
        assert!(
            told.starts_with("this needs `applications, override` or `applications, update/"),
            "{told}"
        );
    }
}

#[test]
fn the_gateway_acts_in_its_own_name_only_where_it_is_let() {
    let read = asks(&Method::GET, POD);
    for (mode, rules, name, refused) in [
        (ImpersonationMode::Off, EXTRA, "argocd/guestbook", true),
        (ImpersonationMode::Audit, EXTRA, "argocd/guestbook", true),
        (
            ImpersonationMode::Enforce,
            "fallback: controller\n",
            "argocd/elsewhere",
            true,
        ),
        (
            ImpersonationMode::Enforce,
            "fallback: controller\n",
            "argocd/guestbook",
            false,
        ),
        (ImpersonationMode::Enforce, EXTRA, "argocd/guestbook", false),
    ] {
        let mut world = World::with_rules(mode, rules);
        let caller = world.person("overrides");
        assert!(world.check_access(&caller, name, &read).is_ok(), "{mode:?}");
        world.gateway_identity = GatewayIdentity::Refused;
        world.cache = ApplicationEvaluationCache::default();
        let observed = world.check_access(&caller, name, &read);
        assert_eq!(
            matches!(observed, Err(Error::GatewayIdentityRefused { .. })),
            refused,
            "{mode:?}: {observed:?}"
        );
        assert_eq!(observed.is_ok(), !refused);
        if let Err(error) = observed {
            assert!(
                error.to_string().ends_with("(`applications.gatewayIdentity`)"),
                "{error}"
            );
        }
    }
}

#[test]
fn nobody_learns_which_applications_there_are() {
    let world = World::new(ImpersonationMode::Enforce);
    let requests = [
        asks(&Method::GET, PODS),
        asks(&Method::POST, PODS),
        asks(&Method::GET, "/version"),
        upgrades(&Method::GET, &format!("{PODS}/web-0/exec"), Protocol::WebSocket),
    ];
    let existing = [
        "argocd/guestbook",
        "argocd/nobody",
        "argocd/homeless",
        "argocd/lost",
        "argocd/elsewhere",
        "team-a/shop",
        "team-b/stray",
    ];
    for who in ["stranger", "one-of-argocd", "proj:payments:nobody"] {
        let caller = world.person(who);
        for attributes in &requests {
            let absent = world.check_access(&caller, "argocd/absent", attributes).unwrap_err();
            assert!(absent.to_string().ends_with(&format!(": {NOT_VISIBLE}")), "{absent}");
            for name in existing {
                let refused = world.check_access(&caller, name, attributes).unwrap_err();
                assert_eq!(refused, absent, "{who} {name}");
            }
        }
    }
    // What may be synced, and not seen, is not seen at all.
    let caller = world.person("only-syncs");
    let read = asks(&Method::GET, PODS);
    let absent = world.check_access(&caller, "argocd/absent", &read).unwrap_err();
    assert_eq!(
        world.check_access(&caller, "argocd/homeless", &read).unwrap_err(),
        absent
    );
    // A caller who may see every Application gets the same error for one that does not exist.
    let told = world
        .check_access(&world.person("syncs"), "argocd/absent", &read)
        .unwrap_err();
    assert!(matches!(told, Error::NotVisible { .. }), "{told:?}");
    let policy = std::fs::read_to_string(folder().join("policy.rego")).unwrap();
    assert!(policy.contains(&format!("refusal := \"{NOT_VISIBLE}\" if {{")));
}

#[test]
fn who_may_see_an_application_is_told_what_is_wrong_with_it() {
    let world = World::with_rules(ImpersonationMode::Enforce, "fallback: deny\n");
    let caller = world.person("looks");
    let read = asks(&Method::GET, POD);
    let refused = |name: &str| world.check_access(&caller, name, &read).unwrap_err();
    let project = "there is no such project for the application, or it takes none of its namespace";
    for name in ["argocd/homeless", "team-b/stray"] {
        let error = refused(name);
        assert!(matches!(error, Error::Project { .. }), "{error:?}");
        assert_eq!(reason(&error), project);
    }
    let error = refused("argocd/lost");
    assert!(matches!(error, Error::Destination { .. }), "{error:?}");
    assert_eq!(reason(&error), "no cluster has the name `nowhere`");
    let error = refused("argocd/nobody");
    assert!(matches!(error, Error::Identity { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "pods \"web-0\" is forbidden: User \"looks\" cannot get resource \"pods\" in API group \"\" in the namespace \
         \"guestbook\": no matching service account found for destination server https://kubernetes.default.svc and \
         namespace nobody"
    );
    for name in ["argocd/guestbook", "team-a/shop"] {
        assert!(world.check_access(&caller, name, &read).is_ok(), "{name}");
    }
    // While no account acts, that none would is no reason to refuse.
    for mode in [ImpersonationMode::Off, ImpersonationMode::Audit] {
        let world = World::with_rules(mode, "fallback: deny\n");
        let access = world
            .check_access(&world.person("looks"), "argocd/nobody", &read)
            .unwrap();
        assert_eq!(*access.acting_identity(), ActingIdentity::Gateway);
        assert!(access.indexed().derived_account.is_err());
    }
}

#[test]
fn the_object_has_the_namespace_unless_it_is_the_control_planes() {
    let world = World::new(ImpersonationMode::Enforce);
    let read = asks(&Method::GET, POD);
    let shop = |who: &str| world.check_access(&world.person(who), "team-a/shop", &read);
    assert!(shop("one-of-a-team").is_ok());
    assert_eq!(reason(&shop("one-of-argocd").unwrap_err()), NOT_VISIBLE);
}

#[test]
fn a_token_of_a_project_role_is_for_its_own_project() {
    let world = World::new(ImpersonationMode::Enforce);
    let write = asks(&Method::POST, PODS);
    for (subject, name, passes) in [
        ("proj:payments:ci", "argocd/guestbook", true),
        ("proj:payments:ci", "argocd/of-other", false),
        ("proj:other:ci", "argocd/of-other", true),
        ("proj:other:ci", "argocd/guestbook", false),
        ("proj:payments:unknown", "argocd/guestbook", false),
    ] {
        match (world.judge(&world.role(subject), name, &write), passes) {
            (Ok(permit), true) => assert_eq!(permit.access.caller().principal.username(), subject),
            (Err(error), false) => assert_eq!(reason(&error), NOT_VISIBLE, "{subject} {name}"),
            (other, _) => panic!("{subject} {name}: {other:?}"),
        }
    }
}

#[test]
fn the_mode_says_who_acts() {
    let read = asks(&Method::GET, POD);
    for (mode, rules, name, account) in [
        (ImpersonationMode::Off, EXTRA, "argocd/guestbook", None),
        (ImpersonationMode::Audit, EXTRA, "argocd/guestbook", None),
        (
            ImpersonationMode::Enforce,
            EXTRA,
            "argocd/guestbook",
            Some("guestbook-deployer"),
        ),
        (
            ImpersonationMode::Enforce,
            "fallback: controller\n",
            "argocd/elsewhere",
            None,
        ),
    ] {
        let world = World::with_rules(mode, rules);
        let caller = world.person("syncs");
        let access = world.check_access(&caller, name, &read).unwrap();
        match (access.acting_identity(), account) {
            (ActingIdentity::Gateway, None) => assert!(access.extra().is_empty()),
            (ActingIdentity::ServiceAccount(impersonation), Some(account)) => {
                let Impersonation::As(identity) = &**impersonation else {
                    panic!("nobody is impersonated");
                };
                assert_eq!(identity.username, format!("system:serviceaccount:guestbook:{account}"));
                assert!(identity.groups.is_empty() && identity.extra.is_empty() && identity.uid.is_none());
                let expected = [("tollgate.dev/user".to_owned(), vec!["syncs".to_owned()])];
                assert_eq!(**access.extra(), expected);
            }
            (other, _) => panic!("{mode:?}: {other:?}"),
        }
    }
}

#[test]
fn what_cannot_be_said_of_a_caller_is_not_left_out() {
    let write = asks(&Method::POST, PODS);
    let world = World::new(ImpersonationMode::Enforce);
    let error = world
        .check_access(&world.person("overrides "), "argocd/guestbook", &write)
        .unwrap_err();
    assert!(matches!(error, Error::Extra { .. }), "{error:?}");
    assert_eq!(reason(&error), "the caller's identity cannot be told to the cluster");
    // Nothing is said of anybody where the gateway itself acts.
    let world = World::new(ImpersonationMode::Off);
    let caller = world.person("overrides ");
    assert!(world.check_access(&caller, "argocd/guestbook", &write).is_ok());
}

#[test]
fn what_follows_from_a_caller_and_an_application_is_made_once() {
    let world = World::new(ImpersonationMode::Enforce);
    let (ann, ben) = (world.person("looks"), world.person("syncs"));
    let resolved = |caller: &Arc<Caller>, name: &str, attributes: &Arc<Attributes>| {
        world.check_access(caller, name, attributes).unwrap().resolved
    };
    let read = asks(&Method::GET, POD);
    let first = resolved(&ben, "argocd/guestbook", &read);
    assert!(Arc::ptr_eq(
        &first,
        &resolved(&ben, "argocd/guestbook", &asks(&Method::PATCH, POD))
    ));
    assert!(!Arc::ptr_eq(&first, &resolved(&ann, "argocd/guestbook", &read)));
    assert!(!Arc::ptr_eq(&first, &resolved(&ben, "argocd/frozen", &read)));
}

#[test]
fn records_show_the_permissions_that_matter() {
    let world = World::new(ImpersonationMode::Enforce);
    let caller = world.person("looks");
    let name = ObjectName {
        namespace: "team-a".into(),
        name: "shop".into(),
    };
    let evaluation = world.evaluator().evaluation(&caller, &name).unwrap();
    let always = [
        ("applications", "get", true),
        ("applications", "sync", false),
        ("applications", "override", false),
    ];
    for (attributes, besides) in [
        (asks(&Method::GET, PODS), None),
        (asks(&Method::POST, PODS), None),
        (
            asks(&Method::GET, &format!("{PODS}/a/log")),
            Some(("logs", "get", false)),
        ),
        (
            upgrades(&Method::GET, &format!("{PODS}/a/exec"), Protocol::WebSocket),
            Some(("exec", "create", false)),
        ),
    ] {
        let expected: Vec<_> = always.into_iter().chain(besides).collect();
        let checks = evaluation.checks(&attributes);
        assert!(checks.iter().all(|check| check.object == "payments/team-a/shop"));
        let observed: Vec<_> = checks
            .iter()
            .map(|check| (check.resource, check.action, check.allowed))
            .collect();
        assert_eq!(observed, expected);
    }
}
