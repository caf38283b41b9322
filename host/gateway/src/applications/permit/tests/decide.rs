//! What the shipped bundle says of what the host tells it.

use super::*;

fn refused(result: Result<ApplicationPermit, Error>) -> String {
    match result {
        Err(error @ Error::Denied { .. }) => reason(&error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reading_passes_and_secrets_need_more() {
    let world = World::new(ImpersonationMode::Enforce);
    let secrets = "/api/v1/namespaces/guestbook/secrets";
    let judge = |who: &str, path: &str| world.judge(&world.person(who), "argocd/guestbook", &asks(&Method::GET, path));
    assert!(judge("looks", POD).is_ok());
    assert!(judge("looks", "/apis/apps/v1").is_ok());
    // A verb that stands in the path says nothing of the method.
    let watch = judge("looks", "/api/v1/watch/namespaces/guestbook/secrets/db").unwrap_err();
    assert!(matches!(watch, Error::SyncDenied { .. }), "{watch:?}");
    // What the account may do is asked by who looks, and not created by them.
    for (path, passes) in [
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", true),
        ("/apis/authorization.k8s.io/v1/subjectaccessreviews", false),
    ] {
        let review = asks(&Method::POST, path);
        let asked = world.judge(&world.person("looks"), "argocd/guestbook", &review);
        assert_eq!(asked.is_ok(), passes, "{asked:?}");
    }
    for path in [secrets, "/api/v1/namespaces/guestbook/secrets/db", "/api/v1/secrets"] {
        for who in ["looks", "syncs"] {
            let error = judge(who, path).unwrap_err();
            assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
        }
        assert!(judge("overrides", path).is_ok(), "{path}");
    }
}

#[test]
fn logs_and_programs_need_permissions_of_their_own() {
    let world = World::new(ImpersonationMode::Enforce);
    let judge = |who: &str, name: &str, attributes: &Arc<Attributes>| world.judge(&world.person(who), name, attributes);
    let lacks = |result: Result<ApplicationPermit, Error>| match result {
        Err(error @ Error::PermissionDenied { .. }) => reason(&error),
        other => panic!("{other:?}"),
    };
    let log = asks(&Method::GET, &format!("{POD}/log"));
    assert!(judge("reads-logs", "argocd/guestbook", &log).is_ok());
    for (who, name) in [("looks", "argocd/guestbook"), ("reads-logs", "argocd/frozen")] {
        assert_eq!(
            lacks(judge(who, name, &log)),
            "you may not read logs of this application"
        );
    }
    let forbidden = "you may not run programs in this application";
    for attributes in [
        upgrades(&Method::GET, &format!("{POD}/exec"), Protocol::WebSocket),
        upgrades(&Method::POST, &format!("{POD}/exec"), Protocol::Spdy),
        upgrades(&Method::POST, &format!("{POD}/attach"), Protocol::Spdy),
        upgrades(&Method::POST, &format!("{POD}/portforward"), Protocol::Spdy),
    ] {
        assert!(judge("runs", "argocd/guestbook", &attributes).is_ok());
        assert_eq!(lacks(judge("syncs", "argocd/guestbook", &attributes)), forbidden);
        assert_eq!(lacks(judge("overrides", "argocd/guestbook", &attributes)), forbidden);
        assert_eq!(
            reason(&judge("looks", "argocd/guestbook", &attributes).unwrap_err()),
            "you may not sync this application"
        );
    }
    // What answers behind a proxy may be of no pod of the Application.
    let proxy = asks(&Method::GET, &format!("{POD}/proxy/metrics"));
    let told = lacks(judge("runs", "argocd/guestbook", &proxy));
    assert!(told.starts_with("this needs `applications, override`"), "{told}");
}

#[test]
fn the_project_has_a_say() {
    let world = World::new(ImpersonationMode::Enforce);
    let overrides = world.person("overrides");
    let write = asks(&Method::POST, PODS);
    assert!(world.judge(&overrides, "argocd/guestbook", &write).is_ok());
    for attributes in [&write, &asks(&Method::GET, PODS)] {
        let refused = refused(world.judge(&overrides, "argocd/elsewhere", attributes));
        assert_eq!(refused, "the project does not permit the destination");
    }
    let frozen = refused(world.judge(&overrides, "argocd/frozen", &write));
    assert_eq!(frozen, "the application is frozen");
    assert!(
        world
            .judge(&overrides, "argocd/frozen", &asks(&Method::GET, PODS))
            .is_ok()
    );
}

#[test]
fn what_lists_and_object_say_is_what_the_caller_is_told() {
    let world = World::new(ImpersonationMode::Enforce);
    for (who, attributes) in [
        ("overrides", asks(&Method::POST, PODS)),
        ("syncs", asks(&Method::PATCH, POD)),
        ("looks", asks(&Method::GET, POD)),
    ] {
        let decide = |listed: &ProjectListCheck, owned: &OwnershipCheck| {
            let access = world
                .check_access(&world.person(who), "argocd/guestbook", &attributes)
                .unwrap();
            world.decide(access, listed, owned)
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
        let unasked = decide(&ProjectListCheck::Permitted, &OwnershipCheck::NotChecked);
        match who {
            "overrides" => {
                assert!(unasked.is_ok());
            }
            _ => {
                assert_eq!(refused(decide(&ProjectListCheck::Permitted, &owned)), "it is another's");
                assert_eq!(refused(unasked), "you may not override this application");
            }
        }
        // A caller chooses names, and the reason holds them.
        let long = format!("a\nb{}", "c".repeat(2_000));
        let told = refused(decide(&ProjectListCheck::Refused(long), &OwnershipCheck::NotChecked));
        assert!(told.starts_with("a bccc") && told.len() == 480, "{told}");
    }
}

/// A world whose bundle is `decision` alone.
fn with_bundle(mode: ImpersonationMode, decision: &str) -> World {
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
    let mut world = World::new(mode);
    world.policy = ApplicationsPolicy::new(Bundle::unchecked(&source).unwrap(), ImpersonationRules::default());
    world
}

#[test]
fn a_bundle_that_allows_everything_widens_nothing() {
    let world = with_bundle(
        ImpersonationMode::Enforce,
        "decision := {\"allow\": true, \"reason\": \"whatever\"}",
    );
    let judge =
        |who: &str, name: &str, attributes: &Arc<Attributes>, listed: &ProjectListCheck, owned: &OwnershipCheck| {
            let access = world.check_access(&world.person(who), name, attributes)?;
            world.decide(access, listed, owned)
        };
    let (guestbook, permitted) = ("argocd/guestbook", ProjectListCheck::Permitted);
    let (list, read) = (asks(&Method::GET, PODS), asks(&Method::GET, POD));
    let (create, patch) = (asks(&Method::POST, PODS), asks(&Method::PATCH, POD));
    // The lists.
    assert!(judge("overrides", guestbook, &create, &permitted, &OwnershipCheck::NotChecked).is_ok());
    let no = ProjectListCheck::Refused("resource Pod is not permitted".to_owned());
    for attributes in [&list, &create, &read, &patch] {
        let told = refused(judge(
            "overrides",
            guestbook,
            attributes,
            &no,
            &OwnershipCheck::NotChecked,
        ));
        assert_eq!(told, "resource Pod is not permitted");
    }
    // The object.
    assert!(judge("syncs", guestbook, &patch, &permitted, &OwnershipCheck::Permitted).is_ok());
    let another = OwnershipCheck::Refused("it is another's".to_owned());
    for attributes in [&read, &patch] {
        let told = refused(judge("syncs", guestbook, attributes, &permitted, &another));
        assert_eq!(told, "it is another's");
        let told = refused(judge(
            "syncs",
            guestbook,
            attributes,
            &permitted,
            &OwnershipCheck::NotChecked,
        ));
        assert_eq!(told, "the object was not looked at");
    }
    // RBAC.
    for (attributes, owned) in [
        (&list, &OwnershipCheck::Permitted),
        (&create, &OwnershipCheck::Permitted),
    ] {
        let error = judge("syncs", guestbook, attributes, &permitted, owned).unwrap_err();
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
    }
    // The destination.
    let elsewhere = judge(
        "overrides",
        "argocd/elsewhere",
        &read,
        &permitted,
        &OwnershipCheck::NotChecked,
    );
    assert_eq!(refused(elsewhere), "the project does not permit the destination");
    // Logs and programs.
    let log = asks(&Method::GET, &format!("{POD}/log"));
    assert!(judge("reads-logs", guestbook, &log, &permitted, &OwnershipCheck::Permitted).is_ok());
    let told = reason(&judge("looks", guestbook, &log, &permitted, &OwnershipCheck::Permitted).unwrap_err());
    assert_eq!(told, "you may not read logs of this application");
    let exec = upgrades(&Method::GET, &format!("{POD}/exec"), Protocol::WebSocket);
    assert!(judge("runs", guestbook, &exec, &permitted, &OwnershipCheck::Permitted).is_ok());
    assert_eq!(
        refused(judge("runs", guestbook, &exec, &permitted, &another)),
        "it is another's"
    );
    let told = reason(&judge("overrides", guestbook, &exec, &permitted, &OwnershipCheck::NotChecked).unwrap_err());
    assert_eq!(told, "you may not run programs in this application");
}

#[test]
fn the_texts_of_a_bundle_are_recorded_whether_it_allows_or_denies() {
    for allow in [true, false] {
        let decision = format!("decision := {{\"allow\": {allow}, \"reason\": \"r\", \"log\": {{\"k\": \"v\"}}}}");
        let world = with_bundle(ImpersonationMode::Enforce, &decision);
        let looks = world.person("looks");
        let access = world.check_access(&looks, "argocd/guestbook", &asks(&Method::GET, POD));
        let checks = ObjectChecks {
            project_lists: &ProjectListCheck::Permitted,
            ownership: &OwnershipCheck::Permitted,
        };
        let mut notes = BTreeMap::new();
        let decided = world.policy.decide(access.unwrap(), checks, &mut notes);
        assert_eq!(decided.is_ok(), allow, "{decided:?}");
        assert_eq!(notes, BTreeMap::from([("k".to_owned(), "v".to_owned())]));
    }
}

#[test]
fn a_bundle_that_does_not_decide_denies() {
    let world = with_bundle(
        ImpersonationMode::Enforce,
        "decision := {\"allow\": true} if input.application.name == \"x\"",
    );
    let looks = world.person("looks");
    let error = world
        .judge(&looks, "argocd/guestbook", &asks(&Method::GET, POD))
        .unwrap_err();
    assert!(matches!(error, Error::Policy { .. }), "{error:?}");
    assert_eq!(reason(&error), "the policy could not be evaluated");
}

#[test]
fn a_permit_has_what_was_asked_for() {
    let world = World::new(ImpersonationMode::Enforce);
    let overrides = world.person("overrides");
    let write = asks(&Method::POST, PODS);
    let permit = world.judge(&overrides, "argocd/guestbook", &write).unwrap();
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
fn what_the_policy_is_told_fits_its_schema() {
    let requests = [
        upgrades(&Method::GET, &format!("{PODS}/p/exec"), Protocol::WebSocket),
        asks(&Method::GET, "/"),
        asks(&Method::GET, PODS),
        asks(&Method::DELETE, &format!("{PODS}/p")),
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
        let world = World::with_rules(mode, rules);
        let caller = world.person("everything");
        for (name, attributes, (listed, owned)) in ["argocd/guestbook", "argocd/nobody"].into_iter().flat_map(|name| {
            let pairs = requests
                .iter()
                .flat_map(|request| answers.iter().map(move |found| (request, found)));
            pairs.map(move |(request, found)| (name, request, found))
        }) {
            let access = world.check_access(&caller, name, attributes).unwrap();
            let input = crate::applications::permit::ApplicationInput {
                facts: &access.resolved.facts,
                attributes,
                access: access.access_mode(),
                operation: access.operation(),
                checks: ObjectChecks {
                    project_lists: listed,
                    ownership: owned,
                },
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

/// Far above what it takes: this one catches a request that looks permissions up,
/// evaluates what travels along, or copies what belongs to the Application.
#[test]
fn a_request_prepares_nothing() {
    let world = World::new(ImpersonationMode::Enforce);
    let (caller, attributes) = (world.person("overrides"), asks(&Method::POST, PODS));
    let ask = || world.judge(&caller, "argocd/guestbook", &attributes).is_ok();
    assert!(ask());
    let started = std::time::Instant::now();
    assert!((0..10_000).all(|_| ask()));
    let took = started.elapsed();
    println!("{:?} a request", took / 10_000);
    assert!(took < std::time::Duration::from_secs(6), "{took:?}");
}
