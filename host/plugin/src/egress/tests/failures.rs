//! Requests without a response: TLS errors, timeouts, size limits and truncation.

use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::super::error::EgressStage;
use super::super::{EgressAllowList, EgressClient, Error, Request};
use super::fake_network::{Answer, Authority, FakeNetwork, HOST, PUBLIC, entry, fetch, get, ok_answer};

const OTHER: &str = "2606:4700::1111";

fn raw(text: &str) -> Answer {
    Answer::Raw(text.as_bytes().to_vec())
}

/// Sends a request to a server whose certificate `server` signed for `name`, valid until the end of
/// `year`. The entry trusts `trusted`, or the system's authorities if that is `None`.
async fn tls(server: &Authority, trusted: Option<&Authority>, name: &str, year: i32) -> Result<u16, Error> {
    let fake_network = FakeNetwork::new(server.server(name, year, &[]), ok_answer());
    let mut spec = entry(HOST, trusted.unwrap_or(server));
    if trusted.is_none() {
        spec.ca = None;
    }
    let allow_list = EgressAllowList::new([&spec]).unwrap();
    let request = get(&allow_list, &format!("https://{HOST}/")).unwrap();
    let response = EgressClient::with_network(Arc::new(fake_network)).send(request).await?;
    Ok(response.status.as_u16())
}

#[tokio::test]
async fn certificates_are_verified_against_the_entrys_authority_alone() {
    let (ours, other) = (Authority::new(), Authority::new());
    assert_eq!(tls(&ours, Some(&ours), HOST, 2099).await, Ok(200));
    for (result, message) in [
        (tls(&ours, Some(&other), HOST, 2099).await, "invalid peer certificate"),
        (tls(&ours, Some(&ours), HOST, 2001).await, "expired"),
        (
            tls(&ours, Some(&ours), "other.example.com", 2099).await,
            "not valid for name",
        ),
        // The system's authorities, if it has any, do not know ours.
        (tls(&ours, None, HOST, 2099).await, "the TLS handshake with"),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Tls { .. }), "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[tokio::test]
async fn a_truncated_response_is_an_error() {
    for cut in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"token\"",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n",
        // Ends with the connection, without a TLS `close_notify`.
        "HTTP/1.1 200 OK\r\n\r\n{\"token\":\"t\"}",
    ] {
        let (result, _) = fetch(raw(cut), |_| {}).await;
        let host = HOST.to_owned();
        assert_eq!(result.unwrap_err(), Error::Truncated { host }, "{cut:?}");
    }
    let whole = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(fetch(raw(whole), |_| {}).await.0.unwrap().body.as_slice(), b"{}");
}

#[tokio::test]
async fn responses_are_bounded() {
    let body = |length| Answer::Http(200, Vec::new(), vec![b'a'; length]);
    let (result, _) = fetch(body(1024 * 1024), |_| {}).await;
    assert_eq!(result.unwrap().body.len(), 1024 * 1024);
    let too_large = |what, allowed| Err(Error::TooLarge { what, allowed });
    let (result, _) = fetch(body(1024 * 1024 + 1), |_| {}).await;
    assert_eq!(result.map(|r| r.status), too_large("body", 1024 * 1024));
    let announced = "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n";
    assert_eq!(
        fetch(raw(announced), |_| {}).await.0.map(|r| r.status),
        too_large("body", 1024 * 1024)
    );
    let chunk = format!("{:x}\r\n{}\r\n", 64 * 1024, "a".repeat(64 * 1024));
    let endless = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}",
        chunk.repeat(17)
    );
    assert_eq!(
        fetch(raw(&endless), |_| {}).await.0.map(|r| r.status),
        too_large("body", 1024 * 1024)
    );
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(80 * 1024));
    assert_eq!(
        fetch(raw(&long), |_| {}).await.0.map(|r| r.status),
        too_large("head", 64 * 1024)
    );
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(200));
    assert_eq!(
        fetch(raw(&many), |_| {}).await.0.map(|r| r.status),
        too_large("head", 64 * 1024)
    );
    let fields = vec![("x", "a".repeat(80 * 1024))];
    let (result, _) = fetch(Answer::Http(200, fields, Vec::new()), |_| {}).await;
    assert!(result.is_err(), "a long head passed in HTTP/2");
}

#[tokio::test]
async fn a_response_that_is_not_http_is_an_error() {
    let (result, _) = fetch(raw("SSH-2.0-OpenSSH_9.9\r\n\r\n"), |_| {}).await;
    let error = result.unwrap_err();
    assert!(error.to_string().contains("is not HTTP"), "{error}");
}

#[tokio::test]
async fn a_timeout_names_its_stage() {
    let authority = Authority::new();
    let allow_list = EgressAllowList::new([&entry(HOST, &authority)]).unwrap();
    let allowed = Duration::from_secs(2);
    let request = || Request {
        timeout: allowed,
        ..get(&allow_list, &format!("https://{HOST}/")).unwrap()
    };
    let silent = FakeNetwork::new(authority.server(HOST, 2099, &[]), Answer::Silence);
    let mut unresponsive = FakeNetwork::new(authority.server(HOST, 2099, &[]), ok_answer());
    unresponsive.unresponsive = vec![PUBLIC.parse().unwrap()];
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
    let stuck = FakeNetwork::new(authority.server(HOST, 2099, &[]), Answer::Stuck(half.into()));
    let fetch = async |fake_network: FakeNetwork| {
        EgressClient::with_network(Arc::new(fake_network))
            .send(request())
            .await
            .unwrap_err()
    };
    let observed = tokio::join!(fetch(silent), fetch(unresponsive), fetch(stuck));
    let timeout = |stage| Error::Timeout { stage, allowed };
    assert_eq!(
        observed,
        (
            timeout(EgressStage::Head),
            timeout(EgressStage::Connect),
            timeout(EgressStage::Body)
        )
    );
}

#[tokio::test]
async fn a_connection_to_a_server_that_reads_nothing_is_closed() {
    for alpn in [&b"h2"[..], b"http/1.1"] {
        let authority = Authority::new();
        let fake_network = Arc::new(FakeNetwork::new(authority.server(HOST, 2099, &[alpn]), Answer::Silence));
        let allow_list = EgressAllowList::new([&entry(HOST, &authority)]).unwrap();
        let request = Request {
            method: Method::POST,
            body: vec![b'a'; 64 * 1024].into(),
            timeout: Duration::from_secs(1),
            ..get(&allow_list, &format!("https://{HOST}/")).unwrap()
        };
        let error = EgressClient::with_network(fake_network.clone())
            .send(request)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(Arc::strong_count(&fake_network.alive), 1, "a stream is still open");
    }
}

#[tokio::test]
async fn other_addresses_are_tried_in_turn() {
    let unresponsive = |fake_network: &mut FakeNetwork| {
        fake_network.name(HOST, &[&[PUBLIC, OTHER]]);
        fake_network.unresponsive = vec![PUBLIC.parse().unwrap()];
    };
    let alone = |fake_network: &mut FakeNetwork| fake_network.unresponsive = vec![PUBLIC.parse().unwrap()];
    let ((result, fake_network), (lost, _)) = tokio::join!(fetch(ok_answer(), unresponsive), fetch(ok_answer(), alone));
    assert_eq!(result.unwrap().peer.ip().to_string(), OTHER);
    assert_eq!(fake_network.connected.lock().unwrap().len(), 2);
    let dead = |fake_network: &mut FakeNetwork| fake_network.dead = vec![PUBLIC.parse().unwrap()];
    let (result, _) = fetch(ok_answer(), dead).await;
    assert_eq!(
        result.unwrap_err().to_string(),
        format!("no connection to `{HOST}`: connection refused")
    );
    let error = lost.unwrap_err();
    assert!(error.to_string().contains("did not accept within 3 s"), "{error}");
}

#[tokio::test]
async fn a_name_without_an_address_is_a_dns_error() {
    let (result, _) = fetch(ok_answer(), |fake_network| fake_network.name(HOST, &[&[]])).await;
    assert_eq!(
        result.unwrap_err().to_string(),
        format!("`{HOST}` does not resolve: it has no address")
    );
    let authority = Authority::new();
    let fake_network = FakeNetwork::new(authority.server(HOST, 2099, &[]), ok_answer());
    let allow_list = EgressAllowList::new([&entry("nowhere.example.com", &authority)]).unwrap();
    let request = get(&allow_list, "https://nowhere.example.com/").unwrap();
    let result = EgressClient::with_network(Arc::new(fake_network)).send(request).await;
    assert!(matches!(result, Err(Error::Dns { .. })));
}

#[tokio::test]
async fn debug_output_shows_no_content() {
    let secret = "s3cr3t";
    let authority = Authority::new();
    let answer = Answer::Http(200, vec![("location", secret.to_owned())], secret.into());
    let fake_network = FakeNetwork::new(authority.server(HOST, 2099, &[]), answer);
    let allow_list = EgressAllowList::new([&entry(HOST, &authority)]).unwrap();
    let request = Request {
        query: Some(secret.to_owned().into()),
        headers: vec![("authorization".to_owned(), secret.as_bytes().to_vec().into())],
        ..get(&allow_list, &format!("https://{HOST}/")).unwrap()
    };
    assert!(!format!("{request:?}").contains(secret));
    let response = EgressClient::with_network(Arc::new(fake_network))
        .send(request)
        .await
        .unwrap();
    assert!(!format!("{response:?}").contains(secret));
    assert_eq!(response.body.as_slice(), secret.as_bytes());
}
