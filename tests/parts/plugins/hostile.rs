//! What goes wrong in one call stays in that call.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::json;
use tollgate_plugin::{Allocation, CallError, FilterContext, InvalidOutput, ProviderEnvironment, Runtime, TrapCause};

use crate::plugins::support::{LOOP_MS, Place, call, filter, headers, lines, same};

/// A refusal or failure, without the plugin's name, as it should be.
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

/// The plugin that misbehaves in one way.
fn name_of(behavior: &str) -> String {
    format!("bad-{}", behavior.to_lowercase())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_hostile_guest_harms_only_its_own_call() {
    const GOOD_CALLS: usize = 10_000;
    let mut place = Place::new();
    place.install("hostile", "good", same);
    place.grant("good", &[], json!({}));
    for behavior in BEHAVIORS {
        place.install("hostile", &name_of(behavior), same);
        place.grant(
            &name_of(behavior),
            &[],
            json!({ "request": behavior, "response": behavior }),
        );
    }
    let set = place.load();
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
    // More loops at once than one plugin has slots.
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
            assert_eq!(headers, before, "{behavior} left half of its edits");
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
async fn a_looping_guest_leaves_its_worker_to_others() {
    let mut place = Place::new();
    place.install("hostile", "good", same);
    place.grant("good", &[], json!({}));
    place.install("hostile", "bad", same);
    place.grant("bad", &[], json!({ "request": "loop" }));
    place.plugins.grants.get_mut("bad").unwrap().time = Some(Duration::from_secs(3));
    let set = place.load();
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
fn a_plugin_that_fails_in_plan_is_left_out_alone() {
    let mut place = Place::new();
    place.install("hostile", "good", same);
    place.grant("good", &[], json!({}));
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
        place.install("hostile", &name_of(behavior), same);
        place.grant(&name_of(behavior), &[], json!({ "plan": behavior }));
    }
    let (set, diagnostics) = place.runtime().load(None);
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
async fn without_a_pool_everything_works_as_well() {
    let mut place = Place::new();
    place.install("hostile", "good", same);
    place.grant("good", &[], json!({}));
    place.install("hostile", "bad", same);
    place.grant("bad", &[], json!({ "request": "memoryBomb" }));
    let environment = ProviderEnvironment::of_pod(&place.plugins.ambient);
    let runtime = Runtime::with_environment(&place.plugins, Allocation::OnDemand, environment).unwrap();
    assert_eq!(runtime.allocation(), Allocation::OnDemand);
    let (set, diagnostics) = runtime.load(None);
    assert_eq!(lines(&diagnostics), Vec::<String>::new());
    call(&filter(&set, "good"), &mut HeaderMap::new()).await.unwrap();
    let error = call(&filter(&set, "bad"), &mut HeaderMap::new()).await.unwrap_err();
    assert!(expected("memoryBomb", &error), "{error:?}");
}
