//! Behaviors of Argo CD's proxy extensions that Argo CD's own tests do not cover.
//!
//! Each test is named after its row in the table of derived behaviors. It checks what the gateway
//! does, what `compat: argocd` keeps, and the refused twin.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tollgate_config::Compatibility;
use tollgate_objects::decode;
use tollgate_objects::extensions::{ErrorClass, parse_with};

use test_support::backend::{Backend, Reply, Seen};
use test_support::client::{Answer, Client};
use test_support::issuer::Issuer;
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World, application, map, object, project};

async fn backend(reply: &'static str) -> Backend {
    Backend::start(move |_| Reply::ok(reply)).await
}

fn argocd() -> Value {
    json!({"extensions": {"compat": "argocd"}})
}

/// A GET of `path` by `alice`, about `application` of project `shop`.
async fn get(world: &World, path: &str, application: &str) -> Answer {
    let token = token::session(SESSION_KEY, "alice");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: gateway\r\nCookie: argocd.token={token}\r\n\
         Argocd-Application-Name: {application}\r\nArgocd-Project-Name: shop\r\n\r\n"
    );
    Client::connect(world.address())
        .await
        .exchange(request.as_bytes())
        .await
}

async fn ask(world: &World) -> Answer {
    get(world, "/extensions/echo/x", "argocd:cart").await
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.content).trim_end().to_owned()
}

fn only(backend: &Backend) -> Seen {
    let mut seen = backend.seen();
    assert_eq!(seen.len(), 1, "{seen:#?}");
    seen.remove(0)
}

/// Starts a gateway with exactly these keys in `argocd-cm`. Returns the names of its extensions,
/// or `None` if it does not start.
async fn extensions(keys: &[(&str, &str)], settings: Value) -> Option<Vec<String>> {
    let setup = Setup {
        argocd_cm: map(keys),
        settings,
        ..Setup::default()
    };
    let world = setup.try_start().await.ok()?;
    let configuration: Value = serde_json::from_str(&world.admin("/configuration").await).unwrap();
    serde_json::from_value(configuration["extensions"].clone()).unwrap()
}

/// The key of an extension `e` with this text.
fn single(text: &str) -> [(&str, &str); 1] {
    [("extension.config.e", text)]
}

/// The classes of a configuration's mistakes.
fn classes(keys: &[(&str, &str)], compatibility: Compatibility) -> Vec<ErrorClass> {
    let map = object("v1", "ConfigMap", "argocd-cm", "argocd", json!({"data": map(keys)}));
    let resources = decode::load_text(&map.to_string(), "argocd-cm", "argocd")
        .value
        .unwrap();
    parse_with(&resources, compatibility).classes
}

/// Asserts that these keys are refused for this reason, with and without `compat: argocd`.
async fn refused_everywhere(keys: &[(&str, &str)], class: ErrorClass) {
    for (compatibility, settings) in [(Compatibility::None, json!({})), (Compatibility::Argocd, argocd())] {
        assert_eq!(classes(keys, compatibility), [class]);
        assert_eq!(extensions(keys, settings).await, None);
    }
}

#[tokio::test]
async fn drv_ext_004_authorization_and_cookies_are_removed() {
    let backend = backend("x").await;
    let world = Setup::with_backend(backend.address).start().await;
    let token = token::session(SESSION_KEY, "alice");
    let request = |credential: &str| {
        format!(
            "GET /extensions/echo/x HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {credential}\r\n\
             Cookie: argocd.token={credential}; other=1\r\nX-Foo: 1\r\n\
             Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\n\r\n"
        )
    };
    let mut client = Client::connect(world.address()).await;
    let refused = client.exchange(request("not-a-token").as_bytes()).await;
    assert_eq!((refused.status, backend.seen().len()), (401, 0));
    assert_eq!(client.exchange(request(&token).as_bytes()).await.status, 200);
    let seen = only(&backend);
    assert_eq!(seen.values("x-foo"), ["1"]);
    assert!(seen.values("authorization").is_empty() && seen.values("cookie").is_empty());
    assert!(!seen.head.contains(&token));
}

/// Argo CD joins groups with commas and escapes nothing. The gateway escapes a comma within a
/// name, so that splitting at commas gives the groups back. With `compat: argocd` it escapes nothing
/// either.
#[tokio::test]
async fn drv_ext_005_groups_are_joined_unambiguously() {
    let issuer = Issuer::start().await;
    for (settings, expected) in [
        (json!({}), [["a%2Cb,c"], ["a,b,c"], ["a%252Cb,c"]]),
        (argocd(), [["a,b,c"], ["a,b,c"], ["a%2Cb,c"]]),
    ] {
        let backend = backend("x").await;
        let mut setup = Setup::with_backend(backend.address);
        let config = issuer.argocd_config(false);
        setup.argocd_cm.insert("oidc.config".to_owned(), config);
        let policy = "p, role:all, applications, get, *, allow\np, role:all, extensions, invoke, *, allow\n";
        setup.rbac_cm = map(&[("policy.csv", policy), ("policy.default", "role:all")]);
        setup.settings = settings;
        let world = setup.start().await;
        for groups in [json!(["a,b", "c"]), json!(["a", "b", "c"]), json!(["a%2Cb", "c"])] {
            let token = issuer.token(&json!({"sub": "u", "groups": groups}));
            // What the client sends is not what the backend gets.
            let request = format!(
                "GET /extensions/echo/x HTTP/1.1\r\nHost: gateway\r\nCookie: argocd.token={token}\r\n\
                 Argocd-User-Groups: admins\r\n\
                 Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\n\r\n"
            );
            let mut client = Client::connect(world.address()).await;
            assert_eq!(client.exchange(request.as_bytes()).await.status, 200);
        }
        let seen = backend.seen();
        let lists: Vec<_> = seen.iter().map(|seen| seen.values("argocd-user-groups")).collect();
        assert_eq!(lists, expected);
    }
}

/// The histogram has the duration of the whole exchange, as Argo CD's has.
#[tokio::test]
async fn the_duration_of_an_exchange_ends_with_its_content() {
    let (listener, address) = crate::streaming::bare_backend().await;
    let world = Setup::with_backend(address).start().await;
    let observed = async || {
        let metrics = world.admin("/metrics").await;
        let name = "argocd_proxy_extension_request_duration_seconds_count{extension=\"echo\"} ";
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name).map(str::to_owned));
        let counter = "argocd_proxy_extension_request_total{extension=\"echo\",status=\"200\"} 1";
        (metrics.contains(counter), line)
    };
    let sent = tokio::spawn(world.get("alice", "/x").send());
    let (mut backend, _) = listener.accept().await.unwrap();
    crate::wire::read_head(&mut backend).await;
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na";
    tokio::io::AsyncWriteExt::write_all(&mut backend, head).await.unwrap();
    let answer = sent.await.unwrap().unwrap();
    assert_eq!(observed().await, (true, None));
    tokio::io::AsyncWriteExt::write_all(&mut backend, b"b").await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "ab");
    let ended = async || observed().await == (true, Some("1".to_owned()));
    world.until("the exchange to be observed", ended).await;
    // The twin: what is refused is not observed.
    assert_eq!(world.get("bob", "/x").send().await.unwrap().status().as_u16(), 403);
    assert_eq!(observed().await, (true, Some("1".to_owned())));
}

#[tokio::test]
async fn drv_ext_008_an_encoded_slash_stays_encoded() {
    let backend = backend("x").await;
    let world = Setup::with_backend(backend.address).start().await;
    let refused = get(&world, "/extensions/echo/a%2F..%2Fb", "argocd:cart").await;
    assert_eq!((refused.status, backend.seen().len()), (400, 0));
    let answer = get(&world, "/extensions/echo/a%2Fb", "argocd:cart").await;
    assert_eq!(answer.status, 200);
    assert_eq!(only(&backend).line(), "GET /a%2Fb HTTP/1.1");
}

#[tokio::test]
async fn drv_ext_010_several_services_need_a_cluster_each() {
    let keys = |services: &str| format!("extensions: [{{name: e, backend: {{services: [{services}]}}}}]");
    let bad = keys("{url: 'http://a'}, {url: 'http://b'}");
    let class = ErrorClass::MissingClusterForMultipleServices;
    let both = [class, class];
    assert_eq!(classes(&[("extension.config", &bad)], Compatibility::None), both);
    assert_eq!(classes(&[("extension.config", &bad)], Compatibility::Argocd), both);
    for settings in [json!({}), argocd()] {
        assert_eq!(extensions(&[("extension.config", &bad)], settings).await, None);
    }
    let good = keys("{url: 'http://a', cluster: {name: a}}, {url: 'http://b', cluster: {name: b}}");
    let names = extensions(&[("extension.config", &good)], json!({})).await;
    assert_eq!(names.unwrap(), ["e"]);
}

#[tokio::test]
async fn drv_ext_011_an_empty_cluster_is_refused() {
    let keys = |cluster: &str| {
        let text = "extensions: [{name: e, backend: {services: [{url: 'http://a', cluster: CLUSTER}]}}]";
        text.replace("CLUSTER", cluster)
    };
    refused_everywhere(&[("extension.config", &keys("{}"))], ErrorClass::EmptyCluster).await;
    let good = keys("{name: c}");
    assert_eq!(
        extensions(&[("extension.config", &good)], json!({})).await.unwrap(),
        ["e"]
    );
}

#[tokio::test]
async fn drv_ext_013_two_services_for_one_cluster_are_refused() {
    let keys = |second: &str| {
        let text = "extensions: [{name: e, backend: {services: [{url: 'http://a', cluster: {name: c}}, \
                    {url: 'http://b', cluster: {name: SECOND}}]}}]";
        text.replace("SECOND", second)
    };
    refused_everywhere(&[("extension.config", &keys("c"))], ErrorClass::DuplicateClusterKey).await;
    let good = keys("d");
    assert_eq!(
        extensions(&[("extension.config", &good)], json!({})).await.unwrap(),
        ["e"]
    );
}

#[tokio::test]
async fn drv_ext_014_the_dot_before_a_name_is_required() {
    let key = |key| [(key, "services: [{url: 'http://a'}]")];
    assert_eq!(
        classes(&key("extension.configfoo"), Compatibility::None),
        [ErrorClass::InvalidSetting]
    );
    assert_eq!(extensions(&key("extension.configfoo"), json!({})).await, None);
    assert_eq!(
        extensions(&key("extension.configfoo"), argocd()).await.unwrap(),
        ["foo"]
    );
    assert_eq!(
        extensions(&key("extension.config.foo"), json!({})).await.unwrap(),
        ["foo"]
    );
}

#[tokio::test]
async fn drv_ext_015_a_url_without_a_scheme_is_refused() {
    let url = |url: &str| format!("services: [{{url: '{url}'}}]");
    let (bad, good) = (url("backend"), url("http://backend"));
    assert_eq!(
        classes(&single(&bad), Compatibility::None),
        [ErrorClass::InvalidSetting]
    );
    assert_eq!(extensions(&single(&bad), json!({})).await, None);
    assert_eq!(extensions(&single(&bad), argocd()).await.unwrap(), ["e"]);
    assert_eq!(extensions(&single(&good), json!({})).await.unwrap(), ["e"]);
    // Argo CD fails at each request.
    let mut setup = Setup::with_extension(&bad);
    setup.settings = argocd();
    assert_eq!(ask(&setup.start().await).await.status, 502);
}

#[tokio::test]
async fn drv_ext_016_unknown_keys_are_refused() {
    let bad = "services: [{url: 'http://a', timeout: 3s}]";
    assert_eq!(classes(&single(bad), Compatibility::None), [ErrorClass::InvalidSetting]);
    assert_eq!(extensions(&single(bad), json!({})).await, None);
    assert_eq!(extensions(&single(bad), argocd()).await.unwrap(), ["e"]);
    let good = "services: [{url: 'http://a'}]\nconnectionTimeout: 3s";
    assert_eq!(extensions(&single(good), json!({})).await.unwrap(), ["e"]);
}

#[tokio::test]
async fn drv_ext_018_a_bad_change_leaves_the_old_extensions() {
    let backend = backend("x").await;
    let setup = Setup::with_backend(backend.address);
    let mut changed = setup.argocd_cm.clone();
    let world = setup.start().await;
    let replace = |world: &World, keys: &std::collections::BTreeMap<String, String>| {
        let map = object("v1", "ConfigMap", "argocd-cm", "argocd", json!({"data": keys}));
        let next = world.path("next.yaml");
        std::fs::write(&next, map.to_string()).unwrap();
        std::fs::rename(next, world.path("state/000.yaml")).unwrap();
    };
    let broken = async |world: &World, value: u8| {
        let line = format!("tollgate_configuration_broken{{part=\"state\"}} {value}");
        world.admin("/metrics").await.contains(&line)
    };
    let bad = "extensions: [{name: bad/name, backend: {services: [{url: 'http://a'}]}}]";
    changed.insert("extension.config".to_owned(), bad.to_owned());
    replace(&world, &changed);
    world.until("a refused change", || broken(&world, 1)).await;
    assert_eq!(ask(&world).await.status, 200);
    // The twin: a good change takes effect; this one removes the extension.
    changed.retain(|key, _| !key.starts_with("extension."));
    replace(&world, &changed);
    world.until("a good change", || broken(&world, 0)).await;
    assert_eq!((ask(&world).await.status, backend.seen().len()), (404, 1));
}

/// A gateway with the application `other-ns:app1` and these RBAC rows.
async fn other_namespace(backend: SocketAddr, rows: &str, sources: Value, settings: Value) -> World {
    let mut setup = Setup::with_backend(backend);
    let policy = format!("{rows}\np, alice, extensions, invoke, echo, allow\n");
    setup.rbac_cm = map(&[("policy.csv", &policy)]);
    setup.settings = settings;
    let mut shop = project("shop", json!([{"server": "*", "namespace": "*"}]));
    shop["spec"]["sourceNamespaces"] = sources;
    let mut app = application("app1", "shop");
    app["metadata"]["namespace"] = "other-ns".into();
    setup.objects = vec![shop, app];
    setup.start().await
}

#[tokio::test]
async fn drv_ext_021_a_grant_for_a_namespace_counts_there() {
    let scoped = "p, alice, applications, get, shop/other-ns/*, allow";
    let control_plane = "p, alice, applications, get, shop/app1, allow";
    // Argo CD ignores the namespace here. So to Argo CD, the first row grants nothing and the
    // second too much.
    for (rows, settings, status, object) in [
        (scoped, json!({}), 200, "shop/other-ns/app1"),
        (control_plane, json!({}), 403, "shop/other-ns/app1"),
        (scoped, argocd(), 401, "shop/app1"),
        (control_plane, argocd(), 200, "shop/app1"),
    ] {
        let backend = backend("x").await;
        let world = other_namespace(backend.address, rows, json!(["other-ns"]), settings).await;
        let answer = get(&world, "/extensions/echo/x", "other-ns:app1").await;
        assert_eq!(answer.status, status, "{rows}");
        assert_eq!(backend.seen().len(), usize::from(status == 200), "{rows}");
        let records: Value = serde_json::from_str(&world.admin("/decisions").await).unwrap();
        assert_eq!(records[0]["checks"][0]["object"], object, "{rows}");
    }
}

#[tokio::test]
async fn drv_ext_022_a_project_takes_applications_from_its_namespaces_only() {
    let rows = "p, alice, applications, get, *, allow";
    for (sources, settings, status) in [
        (json!([]), json!({}), 403),
        (json!(["elsewhere"]), json!({}), 403),
        (json!(["other-*"]), json!({}), 200),
        (json!([]), argocd(), 200),
    ] {
        let backend = backend("x").await;
        let world = other_namespace(backend.address, rows, sources.clone(), settings).await;
        let answer = get(&world, "/extensions/echo/x", "other-ns:app1").await;
        assert_eq!(answer.status, status, "{sources}");
        assert_eq!(backend.seen().len(), usize::from(status == 200), "{sources}");
    }
}

#[tokio::test]
async fn drv_ext_023_a_missing_application_is_a_refusal_like_any_other() {
    for (settings, status) in [(json!({}), 403), (argocd(), 401)] {
        let backend = backend("x").await;
        let mut setup = Setup::with_backend(backend.address);
        setup.settings = settings;
        let world = setup.start().await;
        let missing = get(&world, "/extensions/echo/x", "argocd:missing").await;
        assert_eq!((missing.status, backend.seen().len()), (status, 0));
        if status == 401 {
            assert_eq!(text(&missing), "Unauthorized extension request");
        } else {
            assert!(text(&missing).contains("permission_denied"));
        }
        assert_eq!((ask(&world).await.status, backend.seen().len()), (200, 1));
    }
}

#[tokio::test]
async fn drv_ext_024_a_service_is_found_by_name_or_server_of_the_cluster() {
    for (settings, status, words) in [
        (json!({}), 404, "no_backend_for_cluster"),
        (argocd(), 400, "invalid extension"),
    ] {
        let backend = backend("x").await;
        let url = format!("http://{}", backend.address);
        let start = async |server: &str| {
            let services = format!(
                "services: [{{url: '{url}', cluster: {{server: '{server}'}}}}, \
                 {{url: '{url}/b', cluster: {{server: 'https://b'}}}}]"
            );
            let mut setup = Setup::with_extension(&services);
            setup.settings = settings.clone();
            setup.start().await
        };
        let world = start("https://a").await;
        let refused = ask(&world).await;
        assert_eq!((refused.status, backend.seen().len()), (status, 0));
        assert!(text(&refused).contains(words), "{}", text(&refused));
        // The application names the cluster `in-cluster`, the service names its server.
        let world = start("https://kubernetes.default.svc").await;
        assert_eq!(ask(&world).await.status, 200);
        assert_eq!(only(&backend).line(), "GET /x HTTP/1.1");
    }
}

#[tokio::test]
async fn drv_ext_025_a_backend_that_is_down_is_502() {
    for settings in [json!({}), argocd()] {
        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut setup = Setup::with_backend(address);
        setup.settings = settings;
        let world = setup.start().await;
        assert_eq!(ask(&world).await.status, 502);
        let counted = "argocd_proxy_extension_request_total{extension=\"echo\",status=\"502\"} 1";
        let metrics = world.admin("/metrics").await;
        assert!(metrics.contains(counted), "{metrics}");
        // The twin: a refused request is not forwarded and not counted.
        assert_eq!(world.get("bob", "/x").send().await.unwrap().status().as_u16() / 100, 4);
        let metrics = world.admin("/metrics").await;
        assert_eq!(metrics.matches("argocd_proxy_extension_request_total{").count(), 1);
    }
}

#[tokio::test]
async fn drv_ext_027_a_long_token_comes_in_chunks() {
    for (settings, refusal) in [(json!({}), 401), (argocd(), 400)] {
        let backend = backend("x").await;
        let mut setup = Setup::with_backend(backend.address);
        setup.settings = settings;
        let world = setup.start().await;
        let token = token::session(SESSION_KEY, "alice");
        let (first, rest) = token.split_at(token.len() / 3);
        let (second, third) = rest.split_at(rest.len() / 2);
        let send = async |cookies: String| {
            let request = format!(
                "GET /extensions/echo/x HTTP/1.1\r\nHost: gateway\r\nCookie: {cookies}\r\n\
                 Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\n\r\n"
            );
            let mut client = Client::connect(world.address()).await;
            client.exchange(request.as_bytes()).await.status
        };
        let whole = format!("argocd.token-2={third}; argocd.token=3:{first}; argocd.token-1={second}");
        assert_eq!(send(whole).await, 200);
        assert_eq!(
            send(format!("argocd.token=1:{token}; argocd.token-1=left-over")).await,
            200
        );
        for torn in [
            format!("argocd.token=3:{first}; argocd.token-1={second}"),
            format!("argocd.token=x:{first}; argocd.token-1={second}"),
            format!("argocd.token=0:{token}"),
            "other=1".to_owned(),
        ] {
            assert_eq!(send(torn.clone()).await, refusal, "{torn}");
        }
        // Chunks in another order make another token.
        let turned = format!("argocd.token=3:{first}; argocd.token-1={third}; argocd.token-2={second}");
        assert!([400, 401].contains(&send(turned).await));
        assert_eq!(backend.seen().len(), 2);
    }
}

#[tokio::test]
async fn a_backend_gets_the_whole_cluster_and_with_compat_only_what_the_application_names() {
    let by_server = json!({"spec": {"project": "shop", "destination": {
        "server": "https://kubernetes.default.svc", "namespace": "till"}}});
    let by_server = object("argoproj.io/v1alpha1", "Application", "till", "argocd", by_server);
    let (name, server) = (["in-cluster"].as_slice(), ["https://kubernetes.default.svc"].as_slice());
    for (settings, application, expected) in [
        (json!({}), "argocd:cart", (name, server)),
        (json!({}), "argocd:till", (name, server)),
        (argocd(), "argocd:cart", (name, [].as_slice())),
        (argocd(), "argocd:till", ([].as_slice(), server)),
    ] {
        let backend = backend("x").await;
        let mut setup = Setup::with_backend(backend.address);
        setup.objects.push(by_server.clone());
        setup.settings = settings.clone();
        let world = setup.start().await;
        let answer = get(&world, "/extensions/echo/x", application).await;
        assert_eq!(answer.status, 200, "{settings} {application}");
        let seen = only(&backend);
        let found = (
            seen.values("argocd-target-cluster-name"),
            seen.values("argocd-target-cluster-url"),
        );
        assert_eq!(
            (found.0.as_slice(), found.1.as_slice()),
            expected,
            "{settings} {application}"
        );
    }
}
