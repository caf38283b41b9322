//! The shipped filters, and granted imports.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tollgate_plugin::{CallError, FilterContext, TrapCause};

use crate::plugins::support::{Fixture, call, filter, headers, lines, unchanged};

#[tokio::test]
async fn granted_imports_work_within_their_budget() {
    let mut fixture = Fixture::new();
    for (name, config) in [
        ("chatty", json!({ "lines": 10, "bytes": 16 })),
        ("too-many-calls", json!({ "lines": 1000, "bytes": 0 })),
        ("too-many-bytes", json!({ "lines": 0, "bytes": 4097 })),
    ] {
        fixture.install("chatty", name, unchanged);
        fixture.grant(name, &["log", "clock", "random"], config);
    }
    let set = fixture.load();
    let mut first = HeaderMap::new();
    let mut second = HeaderMap::new();
    call(&filter(&set, "chatty"), &mut first).await.unwrap();
    call(&filter(&set, "chatty"), &mut second).await.unwrap();
    let number = |headers: &HeaderMap| headers["x-now"].to_str().unwrap().parse::<u64>().unwrap();
    assert!(number(&first) > 1_700_000_000_000);
    assert_eq!(first["x-random"].len(), 32);
    assert_ne!(first["x-random"], second["x-random"]);
    let error = call(&filter(&set, "too-many-calls"), &mut first).await.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::Trap {
                cause: TrapCause::HostCalls,
                ..
            }
        ),
        "{error:?}"
    );
    let error = call(&filter(&set, "too-many-bytes"), &mut first).await.unwrap_err();
    assert!(
        matches!(
            error,
            CallError::Trap {
                cause: TrapCause::Guest,
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn wasi_is_present_but_empty() {
    let mut fixture = Fixture::new();
    fixture.install("foreign", "nothing", unchanged);
    fixture.install("foreign", "something", |manifest| {
        format!("{manifest}imports: [clock, random]\n")
    });
    fixture.grant("nothing", &[], Value::Null);
    fixture.grant("something", &["clock", "random"], Value::Null);
    let set = fixture.load();
    let mut nothing = HeaderMap::new();
    call(&filter(&set, "nothing"), &mut nothing).await.unwrap();
    for (name, value) in [
        ("x-environment", "0"),
        ("x-preopens", "0"),
        ("x-wall", "0"),
        ("x-random", "0000000000000000"),
    ] {
        assert_eq!(nothing[name], value, "{name}");
    }
    let mut something = HeaderMap::new();
    call(&filter(&set, "something"), &mut something).await.unwrap();
    assert_eq!(something["x-environment"], "0");
    assert_ne!(something["x-wall"], "0");
    assert_ne!(something["x-random"], "0000000000000000");
}

#[tokio::test]
async fn the_tenant_comes_from_the_project_or_the_groups() {
    let mut fixture = Fixture::new();
    fixture.install("tenant-router", "tenant-router", unchanged);
    let groups = json!({ "team-a": "a", "team-b": "b" });
    fixture.grant(
        "tenant-router",
        &[],
        json!({ "projects": { "payments": "pay" }, "groups": groups }),
    );
    let filter = filter(&fixture.load(), "tenant-router");
    let ask = async |project: Option<&str>, groups: &[&str], wanted: Option<&'static str>| {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        let context = FilterContext {
            project,
            groups: &groups,
            ..FilterContext::default()
        };
        let mut headers = HeaderMap::new();
        if let Some(wanted) = wanted {
            headers.insert("x-scope-orgid", HeaderValue::from_static(wanted));
        }
        match filter.filter_request(&context, &mut headers).await {
            Ok(()) => headers["x-scope-orgid"].to_str().unwrap().to_owned(),
            Err(CallError::Refused { status, .. }) => status.as_str().to_owned(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(ask(Some("payments"), &["team-a"], None).await, "pay");
    assert_eq!(ask(Some("payments"), &[], Some("a")).await, "403");
    assert_eq!(ask(None, &["team-a"], None).await, "a");
    assert_eq!(ask(None, &["team-a", "team-b"], Some("b")).await, "b");
    assert_eq!(ask(None, &["team-a", "team-b"], None).await, "400");
    assert_eq!(ask(None, &["team-a"], Some("b")).await, "403");
    assert_eq!(ask(None, &[], None).await, "403");
}

#[test]
fn the_baseline_strips_noise_and_keeps_the_rest() {
    let mut fixture = Fixture::new();
    fixture.install("baseline", "baseline", unchanged);
    fixture.grant(
        "baseline",
        &[],
        json!({ "keepRequest": ["X-Api-Key"], "setResponse": { "x-frame-options": null } }),
    );
    fixture.plugins.grants.get_mut("baseline").unwrap().extensions = vec!["metrics".to_owned()];
    fixture.plugins.required = vec!["baseline".to_owned()];
    let set = fixture.load();
    assert_eq!(set.header_filters("metrics").count(), 1);
    assert_eq!(set.header_filters("logs").count(), 0);
    assert_eq!(set.missing_required(), Vec::<String>::new());
    let plugin = filter(&set, "baseline");
    assert!(!plugin.filters_requests() && !plugin.filters_responses());
    let mut request = headers(&[
        ("accept", "*/*"),
        ("x-api-key", "kept by the operator"),
        ("x-vault-token", "s.1"),
        ("x-auth-request-user", "root"),
        ("argocd-username", "eve"),
    ]);
    plugin.request_plan().apply(&mut request);
    let left: Vec<_> = request.keys().map(HeaderName::as_str).collect();
    assert_eq!(left, ["accept", "x-api-key", "argocd-username"]);
    let mut response = headers(&[
        ("server", "nginx/1.2"),
        ("set-cookie", "a=b"),
        ("content-type", "text/html"),
    ]);
    plugin.response_plan().apply(&mut response);
    assert_eq!(response["x-content-type-options"], "nosniff");
    assert_eq!(response["content-type"], "text/html");
    for gone in ["server", "set-cookie", "x-frame-options"] {
        assert!(!response.contains_key(gone), "{gone}");
    }
}

#[test]
fn a_required_plugin_that_is_missing_is_named() {
    let mut fixture = Fixture::new();
    fixture.plugins.required = vec!["baseline".to_owned()];
    let (set, diagnostics) = fixture.runtime().load(None);
    assert_eq!(set.missing_required(), ["baseline"]);
    assert!(
        lines(&diagnostics)
            .iter()
            .any(|line| line.contains("the required plugin `baseline` is not loaded"))
    );
}
