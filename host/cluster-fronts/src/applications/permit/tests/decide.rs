//! Decisions of policy bundles, and of the checks that they cannot overrule.

use std::collections::BTreeMap;

use super::*;
use tollgate_proxy::record::Recorder;

fn refused(result: Result<ApplicationPermit, Error>) -> String {
    match result {
        Err(error @ Error::Denied { .. }) => reason(&error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_are_allowed_and_secrets_need_override() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
    let secrets = "/api/v1/namespaces/guestbook/secrets";
    let authorize = |who: &str, path: &str| {
        fixture.authorize(&fixture.person(who), "argocd/guestbook", &request(&Method::GET, path))
    };
    assert!(authorize("looks", POD).is_ok());
    assert!(authorize("looks", "/apis/apps/v1").is_ok());
    // A path that contains a verb counts as a write.
    let watch = authorize("looks", "/api/v1/watch/namespaces/guestbook/secrets/db").unwrap_err();
    assert!(matches!(watch, Error::SyncDenied { .. }), "{watch:?}");
    // Readers may ask what the account itself may do. Other reviews are writes.
    for (path, passes) in [
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", true),
        ("/apis/authorization.k8s.io/v1/subjectaccessreviews", false),
    ] {
        let review = request(&Method::POST, path);
        let outcome = fixture.authorize(&fixture.person("looks"), "argocd/guestbook", &review);
        assert_eq!(outcome.is_ok(), passes, "{outcome:?}");
    }
    for path in [secrets, "/api/v1/namespaces/guestbook/secrets/db", "/api/v1/secrets"] {
        for who in ["looks", "syncs"] {
            let error = authorize(who, path).unwrap_err();
            assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
        }
        assert!(authorize("overrides", path).is_ok(), "{path}");
    }
}

#[test]
fn logs_and_exec_need_their_own_permissions() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
    let authorize =
        |who: &str, name: &str, attributes: &Arc<Attributes>| fixture.authorize(&fixture.person(who), name, attributes);
    let lacks = |result: Result<ApplicationPermit, Error>| match result {
        Err(error @ Error::PermissionDenied { .. }) => reason(&error),
        other => panic!("{other:?}"),
    };
    let log = request(&Method::GET, &format!("{POD}/log"));
    assert!(authorize("reads-logs", "argocd/guestbook", &log).is_ok());
    for (who, name) in [("looks", "argocd/guestbook"), ("reads-logs", "argocd/frozen")] {
        assert_eq!(
            lacks(authorize(who, name, &log)),
            "you may not read logs of this application"
        );
    }
    let forbidden = "you may not run programs in this application";
    for attributes in [
        upgrade_request(&Method::GET, &format!("{POD}/exec"), Protocol::WebSocket),
        upgrade_request(&Method::POST, &format!("{POD}/exec"), Protocol::Spdy),
        upgrade_request(&Method::POST, &format!("{POD}/attach"), Protocol::Spdy),
        upgrade_request(&Method::POST, &format!("{POD}/portforward"), Protocol::Spdy),
    ] {
        assert!(authorize("runs", "argocd/guestbook", &attributes).is_ok());
        assert_eq!(lacks(authorize("syncs", "argocd/guestbook", &attributes)), forbidden);
        assert_eq!(
            lacks(authorize("overrides", "argocd/guestbook", &attributes)),
            forbidden
        );
        assert_eq!(
            reason(&authorize("looks", "argocd/guestbook", &attributes).unwrap_err()),
            "you may not sync this application"
        );
    }
    // A proxied response may come from something that does not belong to the Application.
    let proxy = request(&Method::GET, &format!("{POD}/proxy/metrics"));
    let message = lacks(authorize("runs", "argocd/guestbook", &proxy));
    assert!(message.starts_with("this needs `applications, override`"), "{message}");
}

#[test]
fn the_project_and_the_policy_can_deny() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
    let overrides = fixture.person("overrides");
    let write = request(&Method::POST, PODS);
    assert!(fixture.authorize(&overrides, "argocd/guestbook", &write).is_ok());
    for attributes in [&write, &request(&Method::GET, PODS)] {
        let refused = refused(fixture.authorize(&overrides, "argocd/elsewhere", attributes));
        assert_eq!(refused, "the project does not permit the destination");
    }
    let frozen = refused(fixture.authorize(&overrides, "argocd/frozen", &write));
    assert_eq!(frozen, "the application is frozen");
    assert!(
        fixture
            .authorize(&overrides, "argocd/frozen", &request(&Method::GET, PODS))
            .is_ok()
    );
}

#[test]
fn refusals_of_lists_and_ownership_reach_the_caller() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
    for (who, attributes) in [
        ("overrides", request(&Method::POST, PODS)),
        ("syncs", request(&Method::PATCH, POD)),
        ("looks", request(&Method::GET, POD)),
    ] {
        let decide = |listed: &ProjectListCheck, owned: &OwnershipCheck| {
            let access = fixture
                .check_access(&fixture.person(who), "argocd/guestbook", &attributes)
                .unwrap();
            fixture.decide(access, listed, owned)
        };
        assert!(
            decide(&ProjectListCheck::Permitted, &OwnershipCheck::Permitted).is_ok(),
            "{who}"
        );
        let why = "resource :Pod is not permitted in project payments";
        let listed = ProjectListCheck::Refused(why.into());
        assert_eq!(refused(decide(&listed, &OwnershipCheck::NotChecked)), why);
        assert_eq!(refused(decide(&listed, &OwnershipCheck::Permitted)), why);
        let owned = OwnershipCheck::Refused("it is another's".into());
        let not_checked = decide(&ProjectListCheck::Permitted, &OwnershipCheck::NotChecked);
        match who {
            "overrides" => {
                assert!(not_checked.is_ok());
            }
            _ => {
                assert_eq!(refused(decide(&ProjectListCheck::Permitted, &owned)), "it is another's");
                assert_eq!(refused(not_checked), "you may not override this application");
            }
        }
        // Callers choose names, and the reason contains them.
        let long = format!("a\nb{}", "c".repeat(2_000));
        let message = refused(decide(&ProjectListCheck::Refused(long), &OwnershipCheck::NotChecked));
        assert!(message.starts_with("a bccc") && message.len() == 480, "{message}");
    }
}

/// A fixture whose bundle is only `decision`.
fn with_bundle(mode: ImpersonationMode, decision: &str) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let policy = format!("package tollgate.applications\n\n{decision}\n");
    for (name, text) in [
        ("policy.rego", policy.as_str()),
        ("cases.yaml", "cases: []"),
        ("impersonation.cel.yaml", "{}"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let source = BundleSource::read(folder.path(), Front::Applications).value.unwrap();
    let mut fixture = Fixture::new(mode);
    fixture.bundle = Bundle::unchecked(&source).unwrap();
    fixture.rules = ImpersonationRules::default();
    fixture
}

#[test]
fn a_bundle_that_allows_everything_grants_nothing() {
    let fixture = with_bundle(
        ImpersonationMode::Enforce,
        "decision := {\"allow\": true, \"reason\": \"any\"}",
    );
    let authorize =
        |who: &str, name: &str, attributes: &Arc<Attributes>, listed: &ProjectListCheck, owned: &OwnershipCheck| {
            let access = fixture.check_access(&fixture.person(who), name, attributes)?;
            fixture.decide(access, listed, owned)
        };
    let (guestbook, permitted) = ("argocd/guestbook", ProjectListCheck::Permitted);
    let (list, read) = (request(&Method::GET, PODS), request(&Method::GET, POD));
    let (create, patch) = (request(&Method::POST, PODS), request(&Method::PATCH, POD));
    // The lists.
    assert!(authorize("overrides", guestbook, &create, &permitted, &OwnershipCheck::NotChecked).is_ok());
    let no = ProjectListCheck::Refused("resource Pod is not permitted".to_owned());
    for attributes in [&list, &create, &read, &patch] {
        let message = refused(authorize(
            "overrides",
            guestbook,
            attributes,
            &no,
            &OwnershipCheck::NotChecked,
        ));
        assert_eq!(message, "resource Pod is not permitted");
    }
    // The object.
    assert!(authorize("syncs", guestbook, &patch, &permitted, &OwnershipCheck::Permitted).is_ok());
    let another = OwnershipCheck::Refused("it is another's".to_owned());
    for attributes in [&read, &patch] {
        let message = refused(authorize("syncs", guestbook, attributes, &permitted, &another));
        assert_eq!(message, "it is another's");
        let message = refused(authorize(
            "syncs",
            guestbook,
            attributes,
            &permitted,
            &OwnershipCheck::NotChecked,
        ));
        assert_eq!(message, "the object was not looked at");
    }
    // RBAC.
    for (attributes, owned) in [
        (&list, &OwnershipCheck::Permitted),
        (&create, &OwnershipCheck::Permitted),
    ] {
        let error = authorize("syncs", guestbook, attributes, &permitted, owned).unwrap_err();
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
    }
    // The destination.
    let elsewhere = authorize(
        "overrides",
        "argocd/elsewhere",
        &read,
        &permitted,
        &OwnershipCheck::NotChecked,
    );
    assert_eq!(refused(elsewhere), "the project does not permit the destination");
    // Logs and programs.
    let log = request(&Method::GET, &format!("{POD}/log"));
    assert!(authorize("reads-logs", guestbook, &log, &permitted, &OwnershipCheck::Permitted).is_ok());
    let message = reason(&authorize("looks", guestbook, &log, &permitted, &OwnershipCheck::Permitted).unwrap_err());
    assert_eq!(message, "you may not read logs of this application");
    let exec = upgrade_request(&Method::GET, &format!("{POD}/exec"), Protocol::WebSocket);
    assert!(authorize("runs", guestbook, &exec, &permitted, &OwnershipCheck::Permitted).is_ok());
    assert_eq!(
        refused(authorize("runs", guestbook, &exec, &permitted, &another)),
        "it is another's"
    );
    let message =
        reason(&authorize("overrides", guestbook, &exec, &permitted, &OwnershipCheck::NotChecked).unwrap_err());
    assert_eq!(message, "you may not run programs in this application");
}

#[test]
fn the_log_of_a_bundle_is_recorded_whether_it_allows_or_denies() {
    for allow in [true, false] {
        let decision = format!("decision := {{\"allow\": {allow}, \"reason\": \"r\", \"log\": {{\"k\": \"v\"}}}}");
        let fixture = with_bundle(ImpersonationMode::Enforce, &decision);
        let looks = fixture.person("looks");
        let access = fixture.check_access(&looks, "argocd/guestbook", &request(&Method::GET, POD));
        let checks = ObjectChecks {
            project_lists: &ProjectListCheck::Permitted,
            ownership: &OwnershipCheck::Permitted,
        };
        let recorder = Recorder::start(1, None, Arc::default(), None).unwrap();
        let mut record = recorder.open(Method::GET, POD);
        let id = record.id();
        let decided = super::super::decide(&fixture.bundle, access.unwrap(), checks, Some(&mut record));
        assert_eq!(decided.is_ok(), allow, "{decided:?}");
        drop(record);
        let notes = &recorder.find(id).unwrap().notes;
        assert_eq!(*notes, BTreeMap::from([("k".to_owned(), "v".to_owned())]));
    }
}

#[test]
fn an_undefined_decision_denies() {
    let fixture = with_bundle(
        ImpersonationMode::Enforce,
        "decision := {\"allow\": true} if input.application.name == \"x\"",
    );
    let looks = fixture.person("looks");
    let error = fixture
        .authorize(&looks, "argocd/guestbook", &request(&Method::GET, POD))
        .unwrap_err();
    assert!(matches!(error, Error::Policy { .. }), "{error:?}");
    assert_eq!(reason(&error), "the policy could not be evaluated");
}

#[test]
fn a_permit_describes_its_request() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
    let overrides = fixture.person("overrides");
    let write = request(&Method::POST, PODS);
    let permit = fixture.authorize(&overrides, "argocd/guestbook", &write).unwrap();
    assert!(Arc::ptr_eq(permit.access.caller(), &overrides));
    assert!(Arc::ptr_eq(permit.attributes(), &write));
    assert_eq!(permit.indexed().application.name.name, "guestbook");
    assert_eq!(permit.access.project().name, "payments");
    assert_eq!(permit.cluster().server, "https://kubernetes.default.svc");
    assert_eq!(permit.access.access_mode(), ReadOrWrite::Write);
    assert!(matches!(permit.acting_identity(), ActingIdentity::ServiceAccount(_)));
    assert_eq!(permit.extra().len(), 1);
}

#[test]
fn the_policy_input_matches_its_schema() {
    let requests = [
        upgrade_request(&Method::GET, &format!("{PODS}/p/exec"), Protocol::WebSocket),
        request(&Method::GET, "/"),
        request(&Method::GET, PODS),
        request(&Method::DELETE, &format!("{PODS}/p")),
    ];
    let long = "x".repeat(9_000);
    let answers = [
        (ProjectListCheck::Permitted, OwnershipCheck::NotChecked),
        (ProjectListCheck::Permitted, OwnershipCheck::Permitted),
        (ProjectListCheck::Permitted, OwnershipCheck::Refused(long.clone())),
        (ProjectListCheck::Refused(long), OwnershipCheck::NotChecked),
    ];
    let schema = jsonschema::validator_for(Front::Applications.input_schema()).unwrap();
    for (mode, rules) in [
        (ImpersonationMode::Off, "fallback: deny\n"),
        (ImpersonationMode::Audit, EXTRA),
        (ImpersonationMode::Enforce, EXTRA),
        (ImpersonationMode::Enforce, "fallback: controller\n"),
    ] {
        let fixture = Fixture::with_rules(mode, rules);
        let caller = fixture.person("everything");
        for (name, attributes, (listed, owned)) in ["argocd/guestbook", "argocd/nobody"].into_iter().flat_map(|name| {
            let pairs = requests
                .iter()
                .flat_map(|request| answers.iter().map(move |found| (request, found)));
            pairs.map(move |(request, found)| (name, request, found))
        }) {
            let access = fixture.check_access(&caller, name, attributes).unwrap();
            let input = crate::applications::permit::ApplicationInput {
                facts: &access.resolved.facts,
                attributes,
                access: access.access_mode(),
                operation: access.operation(),
                checks: ObjectChecks {
                    project_lists: listed,
                    ownership: owned,
                },
                time: Some("2026-11-27T17:30:00Z"),
            };
            let json = serde_json::to_value(input.to_value()).unwrap();
            if let Some(error) = schema.iter_errors(&json).next() {
                panic!("{error} at {}: {json}", error.instance_path());
            }
            assert_eq!(json["identity"]["mode"], mode.as_ref());
            assert_eq!(json["access"], access.access_mode().as_ref());
            assert_eq!(json["rbac"]["applications_sync"]["allow"], true);
            assert_eq!(json["application"]["name"], name.strip_prefix("argocd/").unwrap());
            let account = &json["identity"]["acting"]["name"];
            match (name, rules) {
                ("argocd/guestbook", _) => assert_eq!(account, "guestbook-deployer"),
                (_, EXTRA) => assert_eq!(account, "default"),
                (_, _) => assert!(account.is_null()),
            }
            assert_eq!(json["operation"], access.operation().as_ref());
            assert_eq!(json["restriction"]["permitted"], *listed == ProjectListCheck::Permitted);
            assert_eq!(json["object"].is_null(), *owned == OwnershipCheck::NotChecked);
        }
    }
}
