//! Ambiguous requests and forged identities, through the whole gateway: how they are answered, and
//! what exactly a backend receives.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use test_support::attack::{Attack, attacks};
use test_support::backend::{Backend, Reply, Seen};
use test_support::client::Client;
use test_support::issuer::Issuer;
use test_support::world::{Setup, World, map};

/// A gateway with the extension `metrics` and one caller who may invoke it.
struct Target {
    world: World,
    backend: Backend,
    token: String,
}

impl Target {
    /// - `scope`: of the extension.
    /// - `claims`: of the caller.
    async fn start(scope: &str, claims: Value) -> Self {
        let issuer = Issuer::start().await;
        let backend = Backend::start(|_| Reply::ok("x")).await;
        let mut setup = Setup::default();
        let block = format!(
            "{{scope: {scope}, services: [{{url: 'http://{}/base'}}]}}",
            backend.address
        );
        setup.argocd_cm = map(&[
            ("extension.config.metrics", &block),
            ("oidc.config", &issuer.argocd_config(false)),
        ]);
        let policy = "p, role:all, applications, get, *, allow\np, role:all, extensions, invoke, *, allow\n";
        setup.rbac_cm = map(&[("policy.csv", policy), ("policy.default", "role:all")]);
        setup.settings = json!({"limits": {"headerBytes": 16_384, "bodyBytes": 104_857_600}});
        Self {
            world: setup.start().await,
            backend,
            token: issuer.token(&claims),
        }
    }

    /// The header lines of the caller.
    fn caller(&self) -> String {
        format!(
            "Authorization: Bearer {0}\r\nCookie: argocd.token={0}\r\n\
             Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\n",
            self.token
        )
    }

    /// Sends bytes. Returns the status, the connection and what the backend received.
    async fn send(&self, bytes: &[u8]) -> (u16, Client, Vec<Seen>) {
        let before = self.backend.seen().len();
        let mut client = Client::connect(self.world.address()).await;
        client.send(bytes).await;
        let status = client.answer().await.map_or(0, |answer| answer.status);
        (status, client, self.backend.seen().split_off(before))
    }

    /// A GET by the caller with further lines, each ended by CRLF.
    async fn get(&self, lines: &[u8]) -> (u16, Vec<Seen>) {
        let head = format!(
            "GET /extensions/metrics/x HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\
             Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\n",
            self.token
        );
        let bytes = [head.as_bytes(), lines, b"\r\n"].concat();
        let (status, _, seen) = self.send(&bytes).await;
        (status, seen)
    }
}

fn ada() -> Value {
    json!({"sub": "id-1", "email": "ada", "groups": ["dev", "ops"]})
}

async fn check(attack: &Attack, target: &Target) {
    let name = &attack.name;
    let (status, mut client, seen) = target.send(&attack.bytes(&target.caller())).await;
    assert_eq!(status, attack.status, "{name}");
    if attack.closed {
        let rest = client.rest().await;
        assert_eq!(String::from_utf8_lossy(&rest), "", "{name}: a second answer");
    } else {
        let next = format!("GET /none HTTP/1.1\r\nHost: gateway\r\n{}\r\n", target.caller());
        client.send(next.as_bytes()).await;
        let next = client.answer().await.map(|answer| answer.status);
        assert_eq!(next, Some(404), "{name}: the connection is out of step");
    }
    attack.assert_seen(&seen);
}

#[tokio::test]
async fn ambiguous_requests_are_refused_or_forwarded_clean() {
    // The scope is global, in which the backend must get no cluster.
    let target = Target::start("global", ada()).await;
    for attack in &attacks() {
        check(attack, &target).await;
    }
}

/// Fields that clients try to forge: they say who calls, for whom, from where or about what.
const FORGED_FIELDS: [&str; 48] = [
    "Argocd-Username",
    "Argocd-User-Id",
    "Argocd-User-Groups",
    "Argocd-Namespace",
    "Argocd-Target-Cluster-Name",
    "Argocd-Target-Cluster-URL",
    "Argocd-Anything",
    "X-Remote-User",
    "X-Remote-Group",
    "X-Remote-Uid",
    "X-Remote-Extra-Scopes",
    "Impersonate-User",
    "Impersonate-Group",
    "Impersonate-Uid",
    "Impersonate-Extra-Reason",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-User",
    "X-Forwarded-Email",
    "X-Forwarded-Groups",
    "X-Forwarded-Access-Token",
    "X-Forwarded-Client-Cert",
    "X-Original-Forwarded-For",
    "X-Real-IP",
    "X-Client-IP",
    "True-Client-IP",
    "Tollgate-Assertion",
    "Tollgate-Decision-Id",
    "Tollgate-Anything",
    "Proxy-Authorization",
    "X-Auth-Request-User",
    "X-Auth-Request-Groups",
    "X-WebAuth-User",
    "Remote-User",
    "Ssl-Client-Cert",
    "X-Original-URL",
    "X-HTTP-Method-Override",
    "X-Scope-OrgID",
    "X-Original-URI",
    "X-Goog-Authenticated-User-Email",
    "X-Ms-Client-Principal",
    "X-Auth-Request-Email",
    "Cf-Access-Authenticated-User-Email",
    "X-Envoy-External-Address",
    "Audit-ID",
];

/// What a client may try with the field `name`. Each line ends with CRLF.
fn attempts(name: &str) -> Vec<String> {
    let mixed: String = name
        .chars()
        .enumerate()
        .map(|(at, c)| match at % 2 {
            0 => c.to_ascii_uppercase(),
            _ => c.to_ascii_lowercase(),
        })
        .collect();
    let spellings = [
        name.to_owned(),
        name.to_lowercase(),
        name.to_uppercase(),
        mixed,
        name.replace('-', "_"),
        name.replace('-', "."),
        name.replacen('-', "_", 1),
    ];
    let mut attempts: Vec<String> = spellings.iter().map(|name| format!("{name}: evil\r\n")).collect();
    attempts.push(format!("{name}: evil\r\n{name}: evil2\r\n"));
    attempts.push(format!("{name}: evil\r\n{}: evil2\r\n", name.replace('-', "_")));
    attempts.push(format!("{name}:\r\n"));
    attempts.push(format!("Connection: {name}\r\n"));
    attempts.push(format!(
        "Connection: close, {}\r\n{name}: evil\r\n",
        name.to_lowercase()
    ));
    attempts.push(format!(
        "Connection: keep-alive\r\nConnection: {name}\r\n{name}: evil\r\n"
    ));
    attempts
}

/// Names of the fields that a backend received.
fn names(seen: &Seen) -> BTreeSet<String> {
    let lines = seen.head.trim_end().split("\r\n").skip(1);
    lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.to_lowercase())
        .collect()
}

/// Tries every forgery. Each request must pass, and the backend must get exactly the `expected`
/// fields, each once.
async fn check_forgeries(target: &Target, expected: &[(&str, &str)]) {
    for name in FORGED_FIELDS {
        for attempt in attempts(name) {
            let (status, seen) = target.get(attempt.as_bytes()).await;
            assert_eq!(status, 200, "{attempt}");
            let [seen] = seen.as_slice() else {
                panic!("{attempt}: the backend saw {seen:#?}");
            };
            assert!(!seen.head.contains("evil"), "{attempt}: {}", seen.head);
            let allowed: BTreeSet<String> = expected.iter().map(|(name, _)| (*name).to_owned()).collect();
            assert_eq!(names(seen), allowed, "{attempt}");
            for (name, value) in expected {
                assert_eq!(seen.values(name), [*value], "{attempt}: {name}");
            }
        }
    }
}

#[tokio::test]
async fn nobody_forges_groups_or_a_cluster_he_does_not_have() {
    let target = Target::start("global", json!({"sub": "u-1"})).await;
    let host = target.backend.address.to_string();
    let expected = [
        ("host", host.as_str()),
        ("via", "1.1 tollgate"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", "gateway"),
        ("x-forwarded-proto", "http"),
        ("argocd-namespace", "argocd"),
        ("argocd-user-id", "u-1"),
        ("argocd-username", "u-1"),
    ];
    check_forgeries(&target, &expected).await;
}

#[tokio::test]
async fn nobody_forges_over_what_he_has() {
    let target = Target::start("application", ada()).await;
    let host = target.backend.address.to_string();
    let expected = [
        ("host", host.as_str()),
        ("via", "1.1 tollgate"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", "gateway"),
        ("x-forwarded-proto", "http"),
        ("argocd-namespace", "argocd"),
        ("argocd-application-name", "argocd:cart"),
        ("argocd-project-name", "shop"),
        ("argocd-target-cluster-name", "in-cluster"),
        ("argocd-target-cluster-url", "https://kubernetes.default.svc"),
        ("argocd-user-id", "id-1"),
        ("argocd-username", "ada"),
        ("argocd-user-groups", "dev,ops"),
    ];
    check_forgeries(&target, &expected).await;
}

#[tokio::test]
async fn a_service_may_list_what_clients_say_to_it() {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let block = format!(
        "{{identity: {{allowHeaders: [X-Scope-OrgID, X-Page]}}, services: [{{url: 'http://{}'}}]}}",
        backend.address
    );
    let world = Setup::with_extension(&block).start().await;
    let answer = world
        .get("alice", "/x")
        .header("X-Scope-OrgID", "tenant-1")
        .header("X-Page", "3")
        .header("Accept", "text/plain")
        .header("X-Anything", "evil")
        .header("X_Page", "evil")
        .header("X-WebAuth-User", "evil")
        .header("Argocd-Username", "evil")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let seen = backend.seen();
    let [seen] = seen.as_slice() else { panic!("{seen:#?}") };
    assert_eq!(seen.values("x-scope-orgid"), ["tenant-1"]);
    assert_eq!(seen.values("x-page"), ["3"]);
    assert_eq!(seen.values("accept"), ["text/plain"]);
    assert_eq!(seen.values("argocd-username"), ["alice"]);
    assert!(!seen.head.contains("evil"), "{}", seen.head);
    // Some servers turn trailers into header fields.
    let token = test_support::token::session(test_support::world::SESSION_KEY, "alice");
    let request = format!(
        "POST /extensions/echo/x HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {token}\r\n\
         Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\nTrailer: x-anything\r\n\
         Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-anything: evil\r\n\r\n"
    );
    let mut client = Client::connect(world.address()).await;
    assert_eq!(client.exchange(request.as_bytes()).await.status, 200);
    let seen = backend.seen().pop().unwrap();
    assert_eq!(String::from_utf8_lossy(&seen.content), "1\r\na\r\n0\r\n\r\n");
    assert!(!seen.head.contains("x-anything"), "{}", seen.head);
}

#[tokio::test]
async fn the_gateways_own_fields_cannot_be_listed() {
    for name in ["Argocd-Username", "Authorization", "x_forwarded_for", "a b"] {
        let block = format!("{{identity: {{allowHeaders: ['{name}']}}, services: [{{url: 'http://127.0.0.1:1'}}]}}");
        let refused = Setup::with_extension(&block).try_start().await;
        assert!(refused.is_err(), "{name}");
    }
}

#[tokio::test]
async fn the_application_is_named_once() {
    let target = Target::start("application", ada()).await;
    let refused = [
        "Argocd-Application-Name: argocd:other\r\n",
        "ARGOCD-PROJECT-NAME: shop\r\n",
    ];
    for lines in refused {
        let (status, seen) = target.get(lines.as_bytes()).await;
        assert_eq!((status, seen.len()), (400, 0), "{lines}");
    }
    // Other spellings are other fields to the gateway, and do not reach the backend.
    let (status, seen) = target.get(b"Argocd_Application_Name: argocd:other\r\n").await;
    assert_eq!((status, seen.len()), (200, 1));
    assert_eq!(seen[0].values("argocd-application-name"), ["argocd:cart"]);
    assert!(!seen[0].head.contains("other"), "{}", seen[0].head);
    // `Connection` removes the client's field, but the gateway writes its own.
    let (status, seen) = target.get(b"Connection: Argocd-Application-Name\r\n").await;
    assert_eq!((status, seen.len()), (200, 1));
    assert_eq!(seen[0].values("argocd-application-name"), ["argocd:cart"]);
}

#[tokio::test]
async fn heads_above_the_limit_are_431_and_below_it_pass() {
    let target = Target::start("global", ada()).await;
    let field = |length: usize| format!("X-Long: {}\r\n", "a".repeat(length)).into_bytes();
    assert_eq!(target.get(&field(12_000)).await.0, 200);
    let (status, seen) = target.get(&field(17_000)).await;
    assert_eq!((status, seen.len()), (431, 0));
    let many = |count: usize| (0..count).map(|at| format!("X-{at}: y\r\n")).collect::<String>();
    assert_eq!(target.get(many(80).as_bytes()).await.0, 200);
    let (status, seen) = target.get(many(120).as_bytes()).await;
    assert_eq!((status, seen.len()), (431, 0));
}

#[tokio::test]
async fn content_above_the_limit_is_413_also_without_a_length() {
    let issuer = Issuer::start().await;
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let mut setup = Setup::with_backend(backend.address);
    setup
        .argocd_cm
        .insert("oidc.config".to_owned(), issuer.argocd_config(false));
    setup.settings = json!({"limits": {"bodyBytes": 1_000}});
    let world = setup.start().await;
    let post = |length: usize| {
        world
            .request(reqwest::Method::POST, "alice", "/x")
            .body(vec![b'a'; length])
    };
    assert_eq!(post(1_000).send().await.unwrap().status(), 200);
    assert_eq!(backend.seen()[0].content.len(), 1_000);
    assert_eq!(post(1_001).send().await.unwrap().status(), 413);
    assert_eq!(backend.seen().len(), 1);
    let chunked = |length: usize| {
        let token = test_support::token::session(test_support::world::SESSION_KEY, "alice");
        let body = "a".repeat(length);
        format!(
            "POST /extensions/echo/x HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {token}\r\n\
             Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\n\
             Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
        )
    };
    let mut client = Client::connect(world.address()).await;
    assert_eq!(client.exchange(chunked(1_000).as_bytes()).await.status, 200);
    assert_eq!(client.exchange(chunked(1_001).as_bytes()).await.status, 413);
    // The backend may have seen the head, never a whole request.
    assert_eq!(backend.seen().len(), 2);
}

#[tokio::test]
async fn bytes_that_are_no_utf_8_are_refused_where_they_would_be_read() {
    let target = Target::start("application", ada()).await;
    for (lines, expected) in [
        (b"X-Name: caf\xe9\r\n".as_slice(), 400),
        (b"Argocd-Project-Name: \xff\r\n", 400),
        (b"Cookie: argocd.token=\xff\r\n", 401),
        (b"Cookie: elsewhere=\xff\r\n", 200),
        (b"X-Name: caf\xc3\xa9\r\n", 200),
    ] {
        let (status, seen) = target.get(lines).await;
        let shown = String::from_utf8_lossy(lines);
        assert_eq!(
            (status, seen.len()),
            (expected, usize::from(expected == 200)),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn other_cookies_neither_authenticate_nor_reach_the_backend() {
    let target = Target::start("global", ada()).await;
    let send = async |cookies: &str| {
        let head = format!("GET /extensions/metrics/x HTTP/1.1\r\nHost: gateway\r\n{cookies}\r\n");
        let (status, _, seen) = target.send(head.as_bytes()).await;
        (status, seen)
    };
    let token = &target.token;
    let (status, seen) = send(&format!(
        "Cookie: grafana_session=secret; argocd.token={token}; argocd.tokens=x\r\nCookie: theme=dark\r\n"
    ))
    .await;
    assert_eq!((status, seen.len()), (200, 1));
    assert!(seen[0].values("cookie").is_empty() && !seen[0].head.contains("secret"));
    for refused in [
        format!("Cookie: other={token}\r\n"),
        format!("Cookie: xargocd.token={token}\r\n"),
        format!("Cookie: argocd.token={token}; argocd.token=x\r\n"),
        format!("Cookie: argocd.token={token}\r\nCookie: argocd.token={token}\r\n"),
        format!("Cookie: argocd.token=x\r\nAuthorization: Bearer {token}\r\n"),
        "Cookie: grafana_session=secret\r\n".to_owned(),
    ] {
        let (status, seen) = send(&refused).await;
        assert_eq!((status, seen.len()), (401, 0), "{refused}");
    }
}
