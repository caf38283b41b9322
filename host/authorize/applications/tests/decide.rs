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
    let world = World::new(Mode::Enforce);
    let secrets = "/api/v1/namespaces/guestbook/secrets";
    let hidden = "only those who may sync the application see what this resource holds";
    let judge = |who: &str, path: &str| world.judge(&world.person(who), "argocd/guestbook", &asks(&Method::GET, path));
    assert!(judge("looks", PODS).is_ok());
    assert!(judge("looks", "/apis/apps/v1").is_ok());
    // A verb that stands in the path says nothing of the method.
    let watch = judge("looks", "/api/v1/watch/namespaces/guestbook/secrets/db").unwrap_err();
    assert!(matches!(watch, Error::NoSync { .. }), "{watch:?}");
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
        let error = judge("looks", path).unwrap_err();
        assert!(error.to_string().ends_with(hidden), "{error}");
        assert!(judge("syncs", path).is_ok(), "{path}");
    }
}

#[test]
fn logs_and_programs_need_permissions_of_their_own() {
    let world = World::new(Mode::Enforce);
    let judge = |who: &str, name: &str, attributes: &Arc<Attributes>| world.judge(&world.person(who), name, attributes);
    let log = asks(&Method::GET, &format!("{PODS}/web-0/log"));
    assert!(judge("reads-logs", "argocd/guestbook", &log).is_ok());
    for (who, name) in [("looks", "argocd/guestbook"), ("reads-logs", "argocd/frozen")] {
        assert_eq!(
            refused(judge(who, name, &log)),
            "you may not read logs of this application"
        );
    }
    let forbidden = "you may not run programs in this application";
    for attributes in [
        upgrades(&Method::GET, &format!("{PODS}/web-0/exec"), Protocol::WebSocket),
        upgrades(&Method::POST, &format!("{PODS}/web-0/exec"), Protocol::Spdy),
        upgrades(&Method::POST, &format!("{PODS}/web-0/attach"), Protocol::Spdy),
        upgrades(&Method::POST, &format!("{PODS}/web-0/portforward"), Protocol::Spdy),
        asks(&Method::GET, &format!("{PODS}/web-0/proxy/metrics")),
    ] {
        assert!(judge("runs", "argocd/guestbook", &attributes).is_ok());
        assert_eq!(refused(judge("syncs", "argocd/guestbook", &attributes)), forbidden);
        assert_eq!(
            reason(&judge("looks", "argocd/guestbook", &attributes).unwrap_err()),
            "you may not sync this application"
        );
    }
}

#[test]
fn the_project_has_a_say() {
    let world = World::new(Mode::Enforce);
    let syncs = world.person("syncs");
    let write = asks(&Method::POST, PODS);
    assert!(world.judge(&syncs, "argocd/guestbook", &write).is_ok());
    for attributes in [&write, &asks(&Method::GET, PODS)] {
        let refused = refused(world.judge(&syncs, "argocd/elsewhere", attributes));
        assert_eq!(refused, "the project does not permit the destination");
    }
    let frozen = refused(world.judge(&syncs, "argocd/frozen", &write));
    assert_eq!(frozen, "the application is frozen");
    assert!(world.judge(&syncs, "argocd/frozen", &asks(&Method::GET, PODS)).is_ok());
}

#[test]
fn what_the_lists_say_is_what_the_caller_is_told() {
    let world = World::new(Mode::Enforce);
    let syncs = world.person("syncs");
    let write = asks(&Method::POST, PODS);
    let decide = |listed: &Listed| {
        let access = world.enter(&syncs, "argocd/guestbook", &write).unwrap();
        world.policy.decide(access, listed)
    };
    let why = "resource :Pod is not permitted in project payments";
    assert!(decide(&Listed::Permitted).is_ok());
    assert_eq!(refused(decide(&Listed::Refused(why.into()))), why);
    // A caller chooses names, and the reason holds them.
    let long = format!("a\nb{}", "c".repeat(2_000));
    let told = refused(decide(&Listed::Refused(long)));
    assert!(told.starts_with("a bccc") && told.len() == 480, "{told}");
    // Nobody asked: no change.
    let unasked = refused(decide(&Listed::Unasked));
    assert_eq!(unasked, "the project's lists were not asked");
}

#[test]
fn the_gateways_own_identity_reads_what_the_lists_permit() {
    let read = asks(&Method::GET, PODS);
    for mode in [Mode::Off, Mode::Audit, Mode::Enforce] {
        let world = World::new(mode);
        let looks = world.person("looks");
        let decide = |attributes: &Arc<Attributes>, listed: &Listed| {
            let access = world.enter(&looks, "argocd/guestbook", attributes).unwrap();
            world.policy.decide(access, listed)
        };
        assert!(decide(&read, &Listed::Permitted).is_ok());
        let why = "namespace shop is not permitted";
        assert_eq!(refused(decide(&read, &Listed::Refused(why.into()))), why);
        let unasked = decide(&read, &Listed::Unasked);
        let metrics = decide(&asks(&Method::GET, "/metrics"), &Listed::Unasked);
        assert!(decide(&asks(&Method::GET, "/openapi/v3"), &Listed::Permitted).is_ok());
        match mode {
            Mode::Enforce => assert!(unasked.is_ok() && metrics.is_ok()),
            Mode::Off | Mode::Audit => {
                assert_eq!(refused(unasked), "the project's lists were not asked");
                let error = metrics.unwrap_err().to_string();
                let told = "forbidden: User \"looks\" cannot get path \"/metrics\": the project's lists were not asked";
                assert_eq!(error, told);
            }
        }
    }
}

/// A world whose bundle is `decision` alone.
fn with_bundle(mode: Mode, decision: &str) -> World {
    let folder = tempfile::tempdir().unwrap();
    let policy = format!("package tollgate.applications\n\n{decision}\n");
    for (name, text) in [
        ("policy.rego", policy.as_str()),
        ("cases.yaml", "cases: []"),
        ("impersonation.cel.yaml", "{}"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let source = Source::read(folder.path(), Front::Applications).value.unwrap();
    let mut world = World::new(mode);
    world.policy = ApplicationsPolicy::new(Bundle::unchecked(&source), Rules::default());
    world
}

#[test]
fn a_bundle_that_allows_everything_widens_nothing() {
    let open = "decision := {\"allow\": true, \"reason\": \"whatever\"}";
    let world = with_bundle(Mode::Enforce, open);
    let judge = |who: &str, name: &str, attributes: &Arc<Attributes>, listed: &Listed| {
        let access = world.enter(&world.person(who), name, attributes).unwrap();
        world.policy.decide(access, listed)
    };
    let (guestbook, read, write) = ("argocd/guestbook", asks(&Method::GET, PODS), asks(&Method::POST, PODS));
    // The lists.
    assert!(judge("syncs", guestbook, &write, &Listed::Permitted).is_ok());
    let no = Listed::Refused("resource Pod is not permitted".to_owned());
    for attributes in [&read, &write] {
        let told = refused(judge("syncs", guestbook, attributes, &no));
        assert_eq!(told, "resource Pod is not permitted");
    }
    let unasked = refused(judge("syncs", guestbook, &write, &Listed::Unasked));
    assert_eq!(unasked, "the project's lists were not asked");
    assert!(judge("syncs", guestbook, &read, &Listed::Unasked).is_ok());
    // The destination.
    let elsewhere = refused(judge("syncs", "argocd/elsewhere", &read, &Listed::Unasked));
    assert_eq!(elsewhere, "the project does not permit the destination");
    // Logs and programs.
    let log = asks(&Method::GET, &format!("{PODS}/web-0/log"));
    assert!(judge("reads-logs", guestbook, &log, &Listed::Unasked).is_ok());
    let told = refused(judge("looks", guestbook, &log, &Listed::Unasked));
    assert_eq!(told, "you may not read logs of this application");
    let exec = upgrades(&Method::GET, &format!("{PODS}/web-0/exec"), Protocol::WebSocket);
    assert!(judge("runs", guestbook, &exec, &Listed::Permitted).is_ok());
    let told = refused(judge("syncs", guestbook, &exec, &Listed::Permitted));
    assert_eq!(told, "you may not run programs in this application");
    // What the gateway's own identity reads is asked about too.
    let own = with_bundle(Mode::Off, open);
    let decide = |listed: &Listed| {
        let access = own.enter(&own.person("looks"), guestbook, &read).unwrap();
        own.policy.decide(access, listed)
    };
    assert!(decide(&Listed::Permitted).is_ok());
    assert_eq!(refused(decide(&Listed::Unasked)), "the project's lists were not asked");
}

#[test]
fn a_bundle_that_does_not_decide_denies() {
    let world = with_bundle(
        Mode::Enforce,
        "decision := {\"allow\": true} if input.application.name == \"x\"",
    );
    let looks = world.person("looks");
    let error = world
        .judge(&looks, "argocd/guestbook", &asks(&Method::GET, PODS))
        .unwrap_err();
    assert!(matches!(error, Error::Policy { .. }), "{error:?}");
    assert_eq!(reason(&error), "the policy could not be evaluated");
}

#[test]
fn a_permit_has_what_was_asked_for() {
    let world = World::new(Mode::Enforce);
    let syncs = world.person("syncs");
    let write = asks(&Method::POST, PODS);
    let permit = world.judge(&syncs, "argocd/guestbook", &write).unwrap();
    assert!(Arc::ptr_eq(permit.access.caller(), &syncs));
    assert!(Arc::ptr_eq(permit.attributes(), &write));
    assert_eq!(permit.governed().application.name.name, "guestbook");
    assert_eq!(permit.access.project().name, "payments");
    assert_eq!(permit.cluster().server, "https://kubernetes.default.svc");
    assert_eq!(permit.access.wanted(), Access::Write);
    assert!(matches!(permit.whom(), Whom::Account(_)));
    assert_eq!(permit.extra().len(), 1);
    assert!(permit.notes.is_empty());
}

#[test]
fn what_the_policy_is_told_fits_its_schema() {
    let requests = [
        upgrades(&Method::GET, &format!("{PODS}/p/exec"), Protocol::WebSocket),
        asks(&Method::GET, "/"),
        asks(&Method::GET, PODS),
        asks(&Method::DELETE, &format!("{PODS}/p")),
    ];
    let answers = [Listed::Unasked, Listed::Permitted, Listed::Refused("x".repeat(9_000))];
    let schema = jsonschema::validator_for(Front::Applications.input_schema()).unwrap();
    for (mode, rules) in [
        (Mode::Off, "fallback: deny\n"),
        (Mode::Audit, EXTRA),
        (Mode::Enforce, EXTRA),
        (Mode::Enforce, "fallback: controller\n"),
    ] {
        let world = World::with_rules(mode, rules);
        let caller = world.person("syncs");
        for (name, attributes, listed) in ["argocd/guestbook", "argocd/nobody"].into_iter().flat_map(|name| {
            let pairs = requests
                .iter()
                .flat_map(|request| answers.iter().map(move |listed| (request, listed)));
            pairs.map(move |(request, listed)| (name, request, listed))
        }) {
            let access = world.enter(&caller, name, attributes).unwrap();
            let input = super::super::ApplicationInput {
                facts: &access.ready.facts,
                attributes,
                wanted: access.wanted(),
                listed,
            };
            let json = serde_json::to_value(input.to_value()).unwrap();
            if let Some(error) = schema.iter_errors(&json).next() {
                panic!("{error} at {}: {json}", error.instance_path());
            }
            assert_eq!(json["identity"]["mode"], mode.as_str());
            assert_eq!(json["access"], access.wanted().as_str());
            assert_eq!(json["rbac"]["applications_sync"]["allow"], true);
            assert_eq!(json["application"]["name"], name.strip_prefix("argocd/").unwrap());
            let account = &json["identity"]["acting"]["name"];
            match (name, rules) {
                ("argocd/guestbook", _) => assert_eq!(account, "guestbook-deployer"),
                (_, EXTRA) => assert_eq!(account, "default"),
                (_, _) => assert!(account.is_null()),
            }
            assert_eq!(json["restriction"].is_null(), *listed == Listed::Unasked);
        }
    }
}

/// Far above what it takes: this one catches a request that looks permissions up,
/// evaluates what travels along, or copies what belongs to the Application.
#[test]
fn a_request_prepares_nothing() {
    let world = World::new(Mode::Enforce);
    let (caller, attributes) = (world.person("syncs"), asks(&Method::POST, PODS));
    let ask = || world.judge(&caller, "argocd/guestbook", &attributes).is_ok();
    assert!(ask());
    let started = std::time::Instant::now();
    assert!((0..10_000).all(|_| ask()));
    let took = started.elapsed();
    println!("{:?} a request", took / 10_000);
    assert!(took < std::time::Duration::from_secs(6), "{took:?}");
}
