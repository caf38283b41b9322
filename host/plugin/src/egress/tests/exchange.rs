//! What a server sees, and what comes back, in both HTTP versions.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Version};
use tokio::net::TcpListener;
use zeroize::Zeroizing;

use super::super::{EgressAllowList, EgressClient, Error, Request};
use super::fake_network::{
    Answer, Authority, FakeNetwork, HOST, ReceivedRequests, entry, fetch, get, ok_answer, serve,
};
use tollgate_config::EgressEntry;

/// Sends what `edit` makes of a POST to [`HOST`], over one HTTP version.
async fn post(alpn: &[u8], edit: impl FnOnce(&mut Request)) -> (Result<(Version, Vec<u8>), Error>, ReceivedRequests) {
    let authority = Authority::new();
    let answer = Answer::Http(201, vec![("x-answer", "yes".to_owned())], b"{\"a\":1}".to_vec());
    let fake_network = FakeNetwork::new(authority.server(HOST, 2099, &[alpn]), answer);
    let seen = fake_network.seen.clone();
    let allow_list = EgressAllowList::new([&entry(HOST, &authority)]).unwrap();
    let mut request = get(&allow_list, &format!("https://{HOST}/a%20b/token")).unwrap();
    request.method = Method::POST;
    request.query = Some(Zeroizing::new("x=1&y=%2B".to_owned()));
    request.headers = vec![
        ("Authorization".to_owned(), Zeroizing::new(b"Bearer s3cr3t".to_vec())),
        ("accept".to_owned(), Zeroizing::new(b"application/json".to_vec())),
    ];
    request.body = Zeroizing::new(b"grant_type=x".to_vec());
    edit(&mut request);
    let result = EgressClient::with_network(Arc::new(fake_network)).send(request).await;
    let result = result.map(|response| {
        assert_eq!(
            (response.status.as_u16(), &response.headers["x-answer"]),
            (201, &"yes".parse().unwrap())
        );
        (response.version, response.body.to_vec())
    });
    (result, seen)
}

#[tokio::test]
async fn a_request_arrives_byte_for_byte_in_both_versions() {
    for (alpn, version, line) in [
        (
            &b"http/1.1"[..],
            Version::HTTP_11,
            "POST /a%20b/token?x=1&y=%2B HTTP/1.1",
        ),
        (
            b"h2",
            Version::HTTP_2,
            "POST https://idp.example.com/a%20b/token?x=1&y=%2B HTTP/2.0",
        ),
    ] {
        let (result, seen) = post(alpn, |_| {}).await;
        assert_eq!(result.unwrap(), (version, b"{\"a\":1}".to_vec()));
        let seen = seen.lock().unwrap();
        let [(observed, headers, body)] = seen.as_slice() else {
            panic!("{} requests", seen.len());
        };
        assert_eq!((observed.as_str(), body.as_slice()), (line, &b"grant_type=x"[..]));
        let mut names: Vec<&str> = headers.keys().map(http::HeaderName::as_str).collect();
        names.retain(|name| *name != "host");
        names.sort_unstable();
        assert_eq!(names, ["accept", "authorization", "content-length", "user-agent"]);
        assert_eq!(headers["authorization"], "Bearer s3cr3t");
        assert!(headers["user-agent"].to_str().unwrap().starts_with("tollgate/"));
        assert_eq!(headers.get("host").is_some(), version == Version::HTTP_11);
    }
}

#[tokio::test]
async fn the_host_field_contains_a_port_other_than_443() {
    let authority = Authority::new();
    let fake_network = FakeNetwork::new(authority.server(HOST, 2099, &[]), ok_answer());
    let seen = fake_network.seen.clone();
    let allow_list = EgressAllowList::new([&entry("idp.example.com:8443", &authority)]).unwrap();
    let request = get(&allow_list, "https://idp.example.com:8443/x").unwrap();
    EgressClient::with_network(Arc::new(fake_network))
        .send(request)
        .await
        .unwrap();
    assert_eq!(seen.lock().unwrap()[0].1["host"], "idp.example.com:8443");
}

#[tokio::test]
async fn callers_cannot_set_fields_of_the_host() {
    for name in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "connection",
        "Keep-Alive",
        "TE",
        "trailer",
        "upgrade",
        "Expect",
        "proxy-authorization",
        "Proxy-Connection",
        "cookie",
    ] {
        let field = (name.to_owned(), Zeroizing::new(b"s3cr3t".to_vec()));
        let (result, seen) = post(b"h2", |request| request.headers.push(field)).await;
        let Err(error @ Error::InvalidRequest { .. }) = result else {
            panic!("{name} was sent");
        };
        let message = error.to_string();
        assert!(
            message.contains(&name.to_ascii_lowercase()) && !message.contains("s3cr3t"),
            "{message}"
        );
        assert!(seen.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn an_invalid_request_is_refused_with_a_reason() {
    type Edit = fn(&mut Request);
    let cases: [(Edit, &str); 7] = [
        (
            |r| r.body = Zeroizing::new(vec![b'a'; 64 * 1024 + 1]),
            "65536 are allowed",
        ),
        (|r| r.method = Method::GET, "a GET has no body"),
        (
            |r| r.query = Some(Zeroizing::new("a b".to_owned())),
            "a query is encoded",
        ),
        (
            |r| r.query = Some(Zeroizing::new("a#b".to_owned())),
            "a query is encoded",
        ),
        (|r| r.headers[0].0 = "a b".to_owned(), "no name has"),
        (
            |r| r.headers[0].1 = Zeroizing::new(b"a\r\nb: c".to_vec()),
            "value of `authorization`",
        ),
        (
            |r| r.headers[0].1 = Zeroizing::new(vec![b'a'; 64 * 1024]),
            "header fields",
        ),
    ];
    for (edit, message) in cases {
        let (result, _) = post(b"h2", edit).await;
        let error = result.unwrap_err();
        assert!(matches!(error, Error::InvalidRequest { .. }));
        assert!(error.to_string().contains(message), "{error}");
    }
    let largest = |r: &mut Request| r.body = Zeroizing::new(vec![b'a'; 64 * 1024]);
    for alpn in [&b"h2"[..], b"http/1.1"] {
        let (result, seen) = post(alpn, largest).await;
        assert!(result.is_ok());
        assert_eq!(seen.lock().unwrap()[0].2.len(), 64 * 1024);
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let fields = vec![
            ("location", format!("https://{HOST}/elsewhere")),
            ("set-cookie", "a=b".to_owned()),
        ];
        let (result, fake_network) = fetch(Answer::Http(status, fields, Vec::new()), |_| {}).await;
        let response = result.unwrap();
        assert_eq!(response.status.as_u16(), status);
        assert_eq!(response.headers["location"], format!("https://{HOST}/elsewhere"));
        assert_eq!(fake_network.seen.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn each_request_has_a_connection_of_its_own() {
    let authority = Authority::new();
    let fake_network = Arc::new(FakeNetwork::new(authority.server(HOST, 2099, &[b"h2"]), ok_answer()));
    let allow_list = EgressAllowList::new([&entry(HOST, &authority)]).unwrap();
    let client = EgressClient::with_network(fake_network.clone());
    for _ in 0..3 {
        let request = get(&allow_list, &format!("https://{HOST}/")).unwrap();
        client.send(request).await.unwrap();
    }
    assert_eq!(fake_network.connected.lock().unwrap().len(), 3);
    assert_eq!(fake_network.resolved.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn the_system_network_reaches_loopback_if_granted() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = authority.server("127.0.0.1", 2099, &[b"h2"]);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, tls.clone(), ok_answer(), ReceivedRequests::default()));
        }
    });
    let spec = EgressEntry {
        port: Some(port),
        loopback: true,
        ..entry("127.0.0.1", &authority)
    };
    let allow_list = EgressAllowList::new([&spec]).unwrap();
    let request = get(&allow_list, &format!("https://127.0.0.1:{port}/")).unwrap();
    let response = EgressClient::default().send(request).await.unwrap();
    assert_eq!((response.status.as_u16(), response.body.as_slice()), (200, &b"{}"[..]));
}

#[tokio::test]
async fn a_host_gets_a_burst_of_twenty_requests_then_ten_a_second() {
    let authority = Authority::new();
    let fake_network = Arc::new(FakeNetwork::new(authority.server(HOST, 2099, &[]), ok_answer()));
    let allow_list = EgressAllowList::new([&entry(HOST, &authority)]).unwrap();
    let client = EgressClient::with_network(fake_network.clone());
    let request = || get(&allow_list, &format!("https://{HOST}/")).unwrap();
    let start = tokio::time::Instant::now();
    for _ in 0..20 {
        client.send(request()).await.unwrap();
    }
    let hurried = || Request {
        timeout: Duration::from_millis(20),
        ..request()
    };
    // On a busy machine, the first permits are free again before the last ones are taken, and a request
    // that gets one may be too late for its answer.
    let limited = "no answer within 20 ms, while waiting for the rate limit of this host";
    let mut permits = 20;
    loop {
        match client.send(hurried()).await {
            Err(error) if error.to_string() == limited => break,
            _ => permits += 1,
        }
        assert!(permits < 200, "no request is rate limited");
    }
    for _ in 0..15 {
        client.send(request()).await.unwrap();
    }
    permits += 15;
    // 20 at once, the others at 10 a second.
    let least = Duration::from_millis(100) * (permits - 20) - Duration::from_millis(10);
    assert!(start.elapsed() >= least, "{:?}", start.elapsed());
    let connected = fake_network.connected.lock().unwrap().len();
    assert!((35..=permits as usize).contains(&connected), "{connected} of {permits}");
}
