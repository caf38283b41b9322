//! Behind load balancers and ingresses: what trusted proxies say of their clients is believed, and
//! what everybody else says of themselves is not.

use serde_json::{Value, json};

use crate::wire::{bare, reason, request};
use test_support::backend::{Backend, Reply, Seen};
use test_support::client::{Answer, Client};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World};

/// A network that no test client is in.
const ELSEWHERE: &str = "192.0.2.0/24";
/// The address of the test clients.
const HERE: &str = "127.0.0.1";

/// A gateway that trusts `proxies`, with the extension `echo`. Below `/held` the backend sends a
/// head only.
async fn world(proxies: Value, limits: Value) -> (World, Backend) {
    let backend = Backend::start(|seen| match seen.line().contains("/held") {
        true => Reply::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n".to_vec()),
        false => Reply::ok("x"),
    })
    .await;
    let mut setup = Setup::with_backend(backend.address);
    setup.settings = json!({"trustedProxies": proxies, "limits": limits});
    (setup.start().await, backend)
}

async fn send(world: &World, fields: &str) -> Answer {
    let request = request("GET", "echo/x", "alice", fields);
    Client::connect(world.address()).await.exchange(&request).await
}

async fn record(world: &World, answer: &Answer) -> Value {
    let id = answer.values("tollgate-decision-id")[0];
    serde_json::from_str(&world.admin(&format!("/decisions/{id}")).await).unwrap()
}

/// Addresses, scheme and host that the backend got.
fn forwarded(seen: &Seen) -> [Vec<&str>; 3] {
    ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"].map(|name| seen.values(name))
}

/// Fields, and the client's address, scheme and host in them.
const BELIEVED: [(&str, [&str; 3]); 8] = [
    ("", [HERE, "http", "gateway.test"]),
    (
        "X-Forwarded-For: 203.0.113.7\r\n",
        ["203.0.113.7", "http", "gateway.test"],
    ),
    (
        "X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: 203.0.113.7, 127.0.0.1\r\nX-Forwarded-Proto: \
         https\r\nX-Forwarded-Host: argocd.example\r\nX-Forwarded-Port: 443\r\nX-Real-IP: 198.51.100.2\r\n",
        ["203.0.113.7", "https", "argocd.example"],
    ),
    (
        "X-Forwarded-For: [2001:db8::7]:4711\r\nX-Forwarded-Proto: wss\r\n",
        ["2001:db8::7", "https", "gateway.test"],
    ),
    (
        "Forwarded: for=198.51.100.1;host=evil.example, for=\"[2001:db8::7]:4711\";proto=https;host=argocd.example\r\n",
        ["2001:db8::7", "https", "argocd.example"],
    ),
    (
        "Forwarded: for=203.0.113.7;proto=https\r\nX-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\n",
        ["203.0.113.7", "https", "gateway.test"],
    ),
    // A client that claims addresses, and one with fields that others read.
    (
        "X-Forwarded-For: 127.0.0.1, unknown, 203.0.113.7\r\nX_Forwarded_For: 198.51.100.1\r\n",
        ["203.0.113.7", "http", "gateway.test"],
    ),
    (
        "X-Forwarded-For: 203.0.113.7\r\nTrue-Client-IP: 198.51.100.1\r\nX-Client-IP: 198.51.100.1\r\n",
        ["203.0.113.7", "http", "gateway.test"],
    ),
];

/// Fields that do not say clearly who the client is.
const UNCLEAR: [&str; 16] = [
    "X-Forwarded-For:\r\n",
    "X-Forwarded-For: 203.0.113.7,\r\n",
    "X-Forwarded-For: evil\r\n",
    "X-Forwarded-For: 203.0.113.7, _hidden\r\n",
    "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-For: unknown\r\n",
    "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https, http\r\n",
    "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: gopher\r\n",
    "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Host: a.example, b.example\r\n",
    "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Host: a.example\r\nX-Forwarded-Host: a.example\r\n",
    "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Host: a.example/x\r\n",
    "Forwarded: for=\"203.0.113.7\r\n",
    "Forwarded: for=203.0.113.7;for=198.51.100.1\r\n",
    "Forwarded: for=203.0.113.7, proto=https\r\n",
    "Forwarded: for=unknown\r\n",
    "Forwarded: for=198.51.100.1\r\nX-Forwarded-For: 203.0.113.7\r\n",
    "Forwarded: for=203.0.113.7;proto=http\r\nX-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\n",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_trusted_proxy_says_who_its_client_is() {
    let (world, backend) = world(json!([HERE, ELSEWHERE]), json!({})).await;
    for (fields, expected) in BELIEVED {
        let answer = send(&world, fields).await;
        assert_eq!(answer.status, 200, "{fields}");
        let seen = backend.seen().pop().unwrap();
        assert_eq!(forwarded(&seen), expected.map(|value| vec![value]), "{fields}");
        for name in [
            "forwarded",
            "x-forwarded-port",
            "x-real-ip",
            "x_forwarded_for",
            "true-client-ip",
        ] {
            assert_eq!(seen.values(name), [""; 0], "{fields}: {name}");
        }
        let record = record(&world, &answer).await;
        assert_eq!(record["client"], expected[0], "{fields}");
        assert!(record["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{record}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_says_who_they_are() {
    for proxies in [json!([]), json!([ELSEWHERE])] {
        let (world, backend) = world(proxies, json!({})).await;
        for fields in BELIEVED.into_iter().map(|(fields, _)| fields).chain(UNCLEAR) {
            let answer = send(&world, fields).await;
            assert_eq!(answer.status, 200, "{fields}");
            let seen = backend.seen().pop().unwrap();
            assert_eq!(
                forwarded(&seen),
                [vec![HERE], vec!["http"], vec!["gateway.test"]],
                "{fields}"
            );
            assert_eq!(seen.values("forwarded"), [""; 0], "{fields}");
            assert_eq!(record(&world, &answer).await["client"], HERE, "{fields}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_leaves_doubts_about_its_client_is_refused() {
    let (world, backend) = world(json!([HERE]), json!({})).await;
    let long = format!("X-Forwarded-For: {}\r\n", vec!["203.0.113.7"; 33].join(","));
    for fields in UNCLEAR.into_iter().chain([&*long]) {
        let answer = send(&world, fields).await;
        let found = (answer.status, reason(&answer));
        assert_eq!(found, (400, "bad_forwarded_fields".to_owned()), "{fields}");
        let record = record(&world, &answer).await;
        let found = (&record["outcome"], &record["reason"], &record["client"]);
        assert_eq!(
            found,
            (&json!("denied"), &json!("bad_forwarded_fields"), &json!(HERE)),
            "{fields}"
        );
    }
    assert!(backend.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_behind_a_proxy_has_the_share_of_one_address() {
    let (world, _backend) = world(json!([HERE]), json!({"connectionsPerAddress": 2})).await;
    let hold = async |client: &str| {
        let fields = format!("X-Forwarded-For: {client}\r\n");
        let mut connection = Client::connect(world.address()).await;
        connection.send(&request("GET", "echo/held", "alice", &fields)).await;
        (connection.head().await.unwrap().status, connection)
    };
    let (first, connection) = hold("203.0.113.7").await;
    // Both are in one /64 network of IPv6, and neither is the first address.
    let [one, two] = [hold("2001:db8::1").await, hold("2001:db8::2").await];
    let (second, _second) = hold("203.0.113.7").await;
    assert_eq!((first, second, one.0, two.0), (200, 200, 200, 200));
    for client in ["203.0.113.7", "2001:db8::3"] {
        let answer = send(&world, &format!("X-Forwarded-For: {client}\r\n")).await;
        let found = (answer.status, reason(&answer), answer.values("retry-after").len());
        assert_eq!(found, (429, "too_many_requests_of_address".to_owned(), 1), "{client}");
        assert_eq!(record(&world, &answer).await["client"], client);
    }
    // Others come over the same proxy, which has more connections than one address may have.
    assert_eq!(send(&world, "X-Forwarded-For: 203.0.113.8\r\n").await.status, 200);
    drop(connection);
    let is_free = || async { send(&world, "X-Forwarded-For: 203.0.113.7\r\n").await.status == 200 };
    world.until("a free place", is_free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_of_the_origin_that_the_proxy_serves() {
    let cookie = token::session(SESSION_KEY, "alice");
    let fields = format!(
        "Cookie: argocd.token={cookie}\r\nOrigin: https://argocd.example\r\nX-Forwarded-Host: argocd.example\r\n\
         X-Forwarded-Proto: https\r\nContent-Length: 0\r\n"
    );
    for (proxies, status) in [(json!([ELSEWHERE]), 403), (json!([HERE]), 200)] {
        let (world, _backend) = world(proxies, json!({})).await;
        let request = bare("POST", "echo/x", &fields);
        let answer = Client::connect(world.address()).await.exchange(&request).await;
        assert_eq!(answer.status, status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn argocd_server_gets_the_host_that_the_client_asked_for() {
    for (proxies, host) in [(json!([ELSEWHERE]), "inner"), (json!([HERE]), "argocd.example")] {
        let backend = Backend::start(|_| Reply::ok("x")).await;
        let setup = Setup {
            settings: json!({
                "argocd": {"server": format!("http://{}", backend.address)},
                "trustedProxies": proxies,
            }),
            ..Setup::default()
        };
        let world = setup.start().await;
        // An absolute target names a second host, which has to go too.
        let request =
            b"GET http://inner/auth/login HTTP/1.1\r\nhost: inner\r\nx-forwarded-host: argocd.example\r\n\r\n";
        let answer = Client::connect(world.address()).await.exchange(request).await;
        assert_eq!(answer.status, 200);
        let seen = backend.seen().pop().unwrap();
        assert_eq!(seen.line(), "GET /auth/login HTTP/1.1");
        assert_eq!(
            (seen.values("host"), seen.values("x-forwarded-host")),
            (vec![host], vec![host])
        );
    }
}
