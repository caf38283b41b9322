//! Hostile filters: a failed call does not affect other calls.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::json;
use tollgate_plugin::{Allocation, CallError, FilterContext, InvalidOutput, ProviderEnvironment, Runtime, TrapCause};

use crate::plugins::support::{Fixture, LOOP_MS, call, filter, headers, lines, unchanged};

/// Whether the error is the expected one for a behavior of the guest.
fn expected(behavior: &str, error: &CallError) -> bool {
    let forbidden = |name: &'static str| InvalidOutput::ForbiddenHeader(HeaderName::from_static(name));
    let invalid = |wanted: InvalidOutput| matches!(error, CallError::InvalidOutput { output, .. } if *output == wanted);
    let trap = |wanted: TrapCause| matches!(error, CallError::Trap { cause, .. } if *cause == wanted);
    match behavior {
        "loop" => matches!(error, CallError::Timeout { allowed_ms, .. } if *allowed_ms == u128::from(LOOP_MS)),
        "trap" | "panic" => trap(TrapCause::Guest),
        "recurse" => trap(TrapCause::Stack) || trap(TrapCause::Guest),
        "memoryBomb" => matches!(error, CallError::Memory { .. }),
        "forbiddenHeader" => invalid(forbidden("argocd-username")),
        "forbiddenRemoval" => invalid(forbidden("authorization")),
        "badHeaderName" => invalid(InvalidOutput::HeaderName),
        "badHeaderValue" => invalid(InvalidOutput::HeaderValue),
        "tooManyEdits" => invalid(InvalidOutput::TooManyEdits {
            observed: 1000,
            allowed: 128,
        }),
        "tooManyBytes" => invalid(InvalidOutput::TooManyBytes {
            observed: 100_006,
            allowed: 32_768,
        }),
        "gigabyte" => trap(TrapCause::HostData),
        "refuseWithOk" => invalid(InvalidOutput::Status(200)),
        "refuse" => {
            let (status, reason) = (StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS, "for  legal  reasons");
            matches!(error, CallError::Refused { status: s, reason: r, .. } if *s == status && r == reason)
        }
        other => panic!("unknown behavior {other}"),
    }
}

const BEHAVIORS: [&str; 14] = [
    "loop",
    "trap",
    "panic",
    "recurse",
    "memoryBomb",
    "forbiddenHeader",
    "forbiddenRemoval",
    "badHeaderName",
    "badHeaderValue",
    "tooManyEdits",
    "tooManyBytes",
    "gigabyte",
    "refuseWithOk",
    "refuse",
];

/// The name of the plugin with this behavior.
fn name_of(behavior: &str) -> String {
    format!("bad-{}", behavior.to_lowercase())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_hostile_guest_affects_only_its_own_call() {
    const GOOD_CALLS: usize = 10_000;
    let mut fixture = Fixture::new();
    fixture.install("hostile", "good", unchanged);
    fixture.grant("good", &[], json!({}));
    for behavior in BEHAVIORS {
        fixture.install("hostile", &name_of(behavior), unchanged);
        fixture.grant(
            &name_of(behavior),
            &[],
            json!({ "request": behavior, "response": behavior }),
        );
    }
    let set = fixture.load();
    let good = filter(&set, "good");

    let work = tokio::spawn(async move {
        for _ in 0..GOOD_CALLS {
            let mut headers = headers(&[("x-tenant", "a"), ("accept", "*/*")]);
            call(&good, &mut headers).await.unwrap();
            assert_eq!(
                headers.get("x-calls-before").unwrap(),
                "0",
                "an instance was used twice"
            );
            assert_eq!(headers.len(), 3);
        }
    });
    // More concurrent loops than a plugin may have calls.
    let looping = filter(&set, &name_of("loop"));
    let loops: Vec<_> = (0..200)
        .map(|_| {
            let looping = looping.clone();
            tokio::spawn(async move { call(&looping, &mut HeaderMap::new()).await.unwrap_err() })
        })
        .collect();
    let mut rounds = 0;
    while !work.is_finished() {
        rounds += 1;
        for behavior in BEHAVIORS.into_iter().filter(|behavior| *behavior != "loop") {
            let mut headers = headers(&[("x-tenant", "a")]);
            let before = headers.clone();
            let bad = filter(&set, &name_of(behavior));
            let error = call(&bad, &mut headers).await.unwrap_err();
            assert!(expected(behavior, &error), "{behavior}: {error:?}");
            assert_eq!(headers, before, "{behavior} left some of its edits");
            let context = FilterContext::default();
            let error = bad
                .filter_response(&context, StatusCode::OK, &mut headers)
                .await
                .unwrap_err();
            assert!(expected(behavior, &error), "{behavior}: {error:?}");
        }
    }
    work.await.unwrap();
    assert!(rounds > 0);
    let mut codes = BTreeSet::new();
    for task in loops {
        let error = task.await.unwrap();
        assert!(
            matches!(error, CallError::Busy { .. }) || expected("loop", &error),
            "{error:?}"
        );
        codes.insert(error.code());
    }
    assert!(codes.contains("timeout") && codes.contains("busy"), "{codes:?}");
}

#[tokio::test]
async fn a_looping_guest_does_not_block_its_thread() {
    let mut fixture = Fixture::new();
    fixture.install("hostile", "good", unchanged);
    fixture.grant("good", &[], json!({}));
    fixture.install("hostile", "bad", unchanged);
    fixture.grant("bad", &[], json!({ "request": "loop" }));
    fixture.plugins.grants.get_mut("bad").unwrap().time = Some(Duration::from_secs(3));
    let set = fixture.load();
    let (good, bad) = (filter(&set, "good"), filter(&set, "bad"));
    let looping = tokio::spawn(async move { call(&bad, &mut HeaderMap::new()).await });
    tokio::task::yield_now().await;
    call(&good, &mut HeaderMap::new()).await.unwrap();
    assert!(!looping.is_finished(), "the good call waited for the loop to end");
    let error = looping.await.unwrap().unwrap_err();
    assert!(
        matches!(error, CallError::Timeout { allowed_ms: 3000, .. }),
        "{error:?}"
    );
}

#[test]
fn only_the_plugins_that_fail_in_plan_are_left_out() {
    let mut fixture = Fixture::new();
    fixture.install("hostile", "good", unchanged);
    fixture.grant("good", &[], json!({}));
    let cases = [
        ("trap", "a trap"),
        ("panic", "a trap"),
        ("memoryBomb", "bytes of memory"),
        ("forbiddenHeader", "`argocd-username`, which belongs to the gateway"),
        ("badHeaderName", "a name that no header field can have"),
        ("refuse", "refuses its configuration"),
        ("error", "this configuration is not to my taste"),
    ];
    for (behavior, _) in cases {
        fixture.install("hostile", &name_of(behavior), unchanged);
        fixture.grant(&name_of(behavior), &[], json!({ "plan": behavior }));
    }
    let (set, diagnostics) = fixture.runtime().load(None);
    assert_eq!(set.list().map(|plugin| plugin.name).collect::<Vec<_>>(), ["good"]);
    for (behavior, text) in cases {
        let named = lines(&diagnostics)
            .into_iter()
            .find(|line| line.contains(&name_of(behavior)) && line.contains("plan"));
        let named = named.unwrap_or_else(|| panic!("nothing about {behavior}: {diagnostics:#?}"));
        assert!(named.contains(text), "{named}");
    }
}

#[tokio::test]
async fn everything_works_without_a_pool() {
    let mut fixture = Fixture::new();
    fixture.install("hostile", "good", unchanged);
    fixture.grant("good", &[], json!({}));
    fixture.install("hostile", "bad", unchanged);
    fixture.grant("bad", &[], json!({ "request": "memoryBomb" }));
    let environment = ProviderEnvironment::of_pod(&fixture.plugins.ambient);
    let runtime = Runtime::with_environment(&fixture.plugins, Allocation::OnDemand, environment).unwrap();
    assert_eq!(runtime.allocation(), Allocation::OnDemand);
    let (set, diagnostics) = runtime.load(None);
    assert_eq!(lines(&diagnostics), Vec::<String>::new());
    call(&filter(&set, "good"), &mut HeaderMap::new()).await.unwrap();
    let error = call(&filter(&set, "bad"), &mut HeaderMap::new()).await.unwrap_err();
    assert!(expected("memoryBomb", &error), "{error:?}");
}
