//! What the project says about the Application's sources, and about the times of changes.

use tollgate_core::upgrade::Protocol;

use super::*;

#[test]
fn an_application_with_a_source_that_its_project_does_not_permit_is_closed() {
    for mode in [ImpersonationMode::Enforce, ImpersonationMode::Off] {
        let fixture = Fixture::new(mode);
        let overrides = fixture.person("overrides");
        for (name, refused) in [
            ("guestbook", None),
            ("ignored-source", None),
            ("hydrated", None),
            ("private", Some("https://git.example/private/shop.git")),
            ("several", Some("https://other.example/charts")),
            ("hydrated-elsewhere", Some("https://other.example/env")),
            ("without-source", Some("")),
        ] {
            // Argo CD shows no resources of such an Application.
            for attributes in [
                request(&Method::POST, PODS),
                request(&Method::GET, POD),
                request(&Method::GET, "/version"),
            ] {
                let observed = fixture.authorize(&overrides, &format!("argocd/{name}"), &attributes);
                match (observed, refused) {
                    (Ok(_), None) => {}
                    (Err(error @ Error::Source(_)), Some(url)) => {
                        let text = reason(&error);
                        let expected = format!("source repository `{url}`: sourceRepos");
                        assert!(text.ends_with(&expected) && !text.contains("hunter2"), "{text}");
                    }
                    (observed, _) => panic!("{name}: {observed:?}"),
                }
            }
        }
        // Nobody learns it who may not see the Application.
        let error = fixture.authorize(
            &fixture.person("stranger"),
            "argocd/private",
            &request(&Method::GET, POD),
        );
        assert_eq!(reason(&error.unwrap_err()), NOT_VISIBLE);
    }
}

#[test]
fn changes_outside_the_sync_windows_are_refused() {
    let mut fixture = Fixture::new(ImpersonationMode::Enforce);
    let everything = fixture.person("everything");
    let changes = [
        request(&Method::POST, PODS),
        request(&Method::PATCH, POD),
        request(&Method::DELETE, POD),
        request(&Method::POST, &format!("{POD}/eviction")),
        request(&Method::GET, &format!("{POD}/proxy/metrics")),
        // An upgrade makes no program of a new object.
        upgrade_request(&Method::POST, PODS, Protocol::Spdy),
    ];
    let only = "changes are only permitted in sync windows; the next one is `allow 0 22 * * *` for `8h` in `UTC`, from \
                2026-11-27 22:00:00 UTC";
    let denied = "sync window `deny 0 4 * * *` for `30m` in `Europe/Berlin` denies changes until \
                  2026-11-28 04:30:00 Europe/Berlin";
    for (at, name, expected) in [
        ("2026-11-27T12:00:00Z", "guarded", Some(only)),
        ("2026-11-27T12:00:00Z", "unguarded", None),
        ("2026-11-27T23:00:00Z", "guarded", None),
        ("2026-11-28T03:10:00Z", "guarded", Some(denied)),
        ("2026-11-28T03:40:00Z", "guarded", None),
        ("2026-11-28T03:10:00Z", "unguarded", None),
        (
            "2026-11-28T06:00:00.5Z",
            "guarded",
            Some("changes are only permitted in sync windows"),
        ),
        (
            "2026-11-27T23:00:00Z",
            "mistaken",
            Some("sync window `deny @weekly` for `1h` in `UTC` cannot be used: `schedule`: it has 1 fields"),
        ),
    ] {
        fixture.at = at.parse().unwrap();
        for attributes in &changes {
            let observed = fixture.check_access(&everything, &format!("argocd/{name}"), attributes);
            match (observed, expected) {
                (Ok(access), None) => assert!(access.is_sync(), "{name} {at}"),
                (Err(error @ Error::SyncWindow(_)), Some(expected)) => {
                    let text = reason(&error);
                    assert!(text.starts_with(expected), "{text}");
                }
                (observed, _) => panic!("{name} {at}: {observed:?}"),
            }
        }
        // Argo CD reads, and opens its terminal, at all times.
        for attributes in [
            request(&Method::GET, POD),
            request(&Method::GET, PODS),
            request(&Method::GET, &format!("{POD}/log")),
            request(&Method::GET, "/version"),
            request(&Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
            upgrade_request(&Method::POST, &format!("{POD}/exec"), Protocol::Spdy),
            upgrade_request(&Method::GET, &format!("{POD}/portforward"), Protocol::WebSocket),
        ] {
            let access = fixture.check_access(&everything, &format!("argocd/{name}"), &attributes);
            assert!(!access.unwrap().is_sync(), "{name} {at}");
        }
    }
}

#[test]
fn callers_who_may_not_change_anything_learn_no_windows() {
    let fixture = Fixture::new(ImpersonationMode::Enforce);
    let write = request(&Method::PATCH, POD);
    for (who, expected) in [
        ("stranger", NOT_VISIBLE),
        ("looks", "you may not sync this application"),
    ] {
        let error = fixture.check_access(&fixture.person(who), "argocd/guarded", &write);
        assert_eq!(reason(&error.unwrap_err()), expected);
    }
    let name = ObjectName {
        namespace: "argocd".to_owned(),
        name: "unguarded".to_owned(),
    };
    let caller = fixture.person("everything");
    let evaluation = fixture.evaluator().evaluation(&caller, &name);
    let without_time = check_access(evaluation, &caller, &write, None);
    assert!(matches!(without_time, Err(Error::SyncWindow(_))), "{without_time:?}");
}
