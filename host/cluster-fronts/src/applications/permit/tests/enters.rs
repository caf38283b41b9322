//! Access by RBAC and by the Application's own state.

use super::*;
use tollgate_cluster::discovery::{ResourceKind, ResourceScope};
use tollgate_policy::applications::Inheritance;

#[test]
fn reads_need_get_and_writes_need_sync() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
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
        let caller = fixture.person(who);
        let observed = fixture.check_access(&caller, "argocd/guestbook", &request(&method, POD));
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
fn requests_beyond_one_object_need_override() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
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
        let attributes = request(&method, path);
        let check_access = |who: &str| fixture.check_access(&fixture.person(who), "argocd/guestbook", &attributes);
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
    // The object must belong to the Application, unless the caller may override.
    for (who, needs_owned_object) in [("looks", true), ("syncs", true), ("overrides", false)] {
        let access = fixture.check_access(&fixture.person(who), "argocd/guestbook", &request(&Method::GET, POD));
        assert_eq!(access.unwrap().requires_owned_object(), needs_owned_object, "{who}");
    }
}

#[test]
fn changing_an_object_needs_permission_for_it() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
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
        let attributes = request(&method, POD);
        let access = fixture
            .check_access(&fixture.person(who), "argocd/guestbook", &attributes)
            .unwrap();
        let observed = access.check_permission(&fixture.rbac, inheritance, &pod);
        assert_eq!(
            observed.is_ok(),
            permitted,
            "{who} {method} {inheritance:?}: {observed:?}"
        );
    }
    // The permission is for this object only.
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
        let attributes = request(&Method::PATCH, path);
        let access = fixture
            .check_access(&fixture.person("updates"), "argocd/guestbook", &attributes)
            .unwrap();
        let error = access
            .check_permission(&fixture.rbac, Inheritance::Disabled, &kind)
            .unwrap_err();
        assert!(
            error.starts_with("this needs `applications, override` or `applications, update/"),
            "{error}"
        );
    }
}

#[test]
fn the_gateways_own_identity_acts_only_if_allowed() {
    let read = request(&Method::GET, POD);
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
        let mut fixture = Fixture::with_rules(mode, rules);
        let caller = fixture.person("overrides");
        assert!(fixture.check_access(&caller, name, &read).is_ok(), "{mode:?}");
        fixture.gateway_identity = GatewayIdentity::Refused;
        fixture.cache = ApplicationEvaluationCache::default();
        let observed = fixture.check_access(&caller, name, &read);
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
fn callers_do_not_learn_which_applications_exist() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
    let requests = [
        request(&Method::GET, PODS),
        request(&Method::POST, PODS),
        request(&Method::GET, "/version"),
        upgrade_request(&Method::GET, &format!("{PODS}/web-0/exec"), Protocol::WebSocket),
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
        let caller = fixture.person(who);
        for attributes in &requests {
            let absent = fixture.check_access(&caller, "argocd/absent", attributes).unwrap_err();
            assert!(absent.to_string().ends_with(&format!(": {NOT_VISIBLE}")), "{absent}");
            for name in existing {
                let refused = fixture.check_access(&caller, name, attributes).unwrap_err();
                assert_eq!(refused, absent, "{who} {name}");
            }
        }
    }
    // A caller who may sync an Application but not get it does not see it.
    let caller = fixture.person("only-syncs");
    let read = request(&Method::GET, PODS);
    let absent = fixture.check_access(&caller, "argocd/absent", &read).unwrap_err();
    assert_eq!(
        fixture.check_access(&caller, "argocd/homeless", &read).unwrap_err(),
        absent
    );
    // A caller who may see every Application gets the same error for one that does not exist.
    let error = fixture
        .check_access(&fixture.person("syncs"), "argocd/absent", &read)
        .unwrap_err();
    assert!(matches!(error, Error::NotVisible { .. }), "{error:?}");
    let policy = std::fs::read_to_string(folder().join("policy.rego")).unwrap();
    assert!(policy.contains(&format!("refusal := \"{NOT_VISIBLE}\" if {{")));
}

#[test]
fn callers_who_may_see_an_application_get_the_actual_error() {
    let fixture = Fixture::with_rules(ImpersonationMode::Enforce, "fallback: deny\n");
    let caller = fixture.person("looks");
    let read = request(&Method::GET, POD);
    let refused = |name: &str| fixture.check_access(&caller, name, &read).unwrap_err();
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
        assert!(fixture.check_access(&caller, name, &read).is_ok(), "{name}");
    }
    // While no account acts, a missing account does not refuse the request.
    for mode in [ImpersonationMode::Off, ImpersonationMode::Audit] {
        let fixture = Fixture::with_rules(mode, "fallback: deny\n");
        let access = fixture
            .check_access(&fixture.person("looks"), "argocd/nobody", &read)
            .unwrap();
        assert_eq!(*access.acting_identity(), ActingIdentity::Gateway);
        assert!(access.indexed().derived_account.is_err());
    }
}

#[test]
fn rbac_objects_contain_namespaces_other_than_the_control_planes() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
    let read = request(&Method::GET, POD);
    let shop = |who: &str| fixture.check_access(&fixture.person(who), "team-a/shop", &read);
    assert!(shop("one-of-a-team").is_ok());
    assert_eq!(reason(&shop("one-of-argocd").unwrap_err()), NOT_VISIBLE);
}

#[test]
fn a_project_role_token_works_only_in_its_own_project() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
    let write = request(&Method::POST, PODS);
    for (subject, name, passes) in [
        ("proj:payments:ci", "argocd/guestbook", true),
        ("proj:payments:ci", "argocd/of-other", false),
        ("proj:other:ci", "argocd/of-other", true),
        ("proj:other:ci", "argocd/guestbook", false),
        ("proj:payments:unknown", "argocd/guestbook", false),
    ] {
        match (fixture.authorize(&fixture.role(subject), name, &write), passes) {
            (Ok(permit), true) => assert_eq!(permit.access.caller().principal.username(), subject),
            (Err(error), false) => assert_eq!(reason(&error), NOT_VISIBLE, "{subject} {name}"),
            (other, _) => panic!("{subject} {name}: {other:?}"),
        }
    }
}

#[test]
fn the_mode_decides_the_acting_identity() {
    let read = request(&Method::GET, POD);
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
        let fixture = Fixture::with_rules(mode, rules);
        let caller = fixture.person("syncs");
        let access = fixture.check_access(&caller, name, &read).unwrap();
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
fn an_extra_that_cannot_be_expressed_refuses() {
    let write = request(&Method::POST, PODS);
    let fixture = Fixture::new(ImpersonationMode::Enforce);
    let error = fixture
        .check_access(&fixture.person("overrides "), "argocd/guestbook", &write)
        .unwrap_err();
    assert!(matches!(error, Error::Extra { .. }), "{error:?}");
    assert_eq!(reason(&error), "the caller's identity cannot be told to the cluster");
    // If the gateway itself acts, no `extra` is sent.
    let fixture = Fixture::new(ImpersonationMode::Off);
    let caller = fixture.person("overrides ");
    assert!(fixture.check_access(&caller, "argocd/guestbook", &write).is_ok());
}

#[test]
fn evaluations_are_cached_by_caller_and_application() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
    let (ann, ben) = (fixture.person("looks"), fixture.person("syncs"));
    let resolved = |caller: &Arc<Caller>, name: &str, attributes: &Arc<Attributes>| {
        fixture.check_access(caller, name, attributes).unwrap().resolved
    };
    let read = request(&Method::GET, POD);
    let first = resolved(&ben, "argocd/guestbook", &read);
    assert!(Arc::ptr_eq(
        &first,
        &resolved(&ben, "argocd/guestbook", &request(&Method::PATCH, POD))
    ));
    assert!(!Arc::ptr_eq(&first, &resolved(&ann, "argocd/guestbook", &read)));
    assert!(!Arc::ptr_eq(&first, &resolved(&ben, "argocd/frozen", &read)));
}

#[test]
fn records_contain_the_relevant_permissions() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
    let caller = fixture.person("looks");
    let name = ObjectName {
        namespace: "team-a".into(),
        name: "shop".into(),
    };
    let evaluation = fixture.evaluator().evaluation(&caller, &name).unwrap();
    let always = [
        ("applications", "get", true),
        ("applications", "sync", false),
        ("applications", "override", false),
    ];
    for (attributes, besides) in [
        (request(&Method::GET, PODS), None),
        (request(&Method::POST, PODS), None),
        (
            request(&Method::GET, &format!("{PODS}/a/log")),
            Some(("logs", "get", false)),
        ),
        (
            upgrade_request(&Method::GET, &format!("{PODS}/a/exec"), Protocol::WebSocket),
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
