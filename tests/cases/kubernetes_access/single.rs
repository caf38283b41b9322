//! Runs cases of one request: sends it, and checks the response and what each party received.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::case::{Connection, Credential, Expect, Jose, Question, RequestLine, Signature, Stream, UpstreamReply};
use super::cluster::{Script, Seen};
use super::credentials::{self, fill};
use super::environment::TestEnvironment;
use super::response::{self, Outcome};
use super::table::{Head, Published};
use super::upstream::{self, Values};
use super::wire::{Answer, Http1Connection, bytes, over_http2};

/// Bytes that a tunnel must echo.
const PROBE: &[u8] = b"\x00bytes of a tunnel\xff";
/// Number of events of a stream. Their median delay is compared.
const EVENTS: usize = 5;
/// Longer than a gateway caches anything in these cases.
pub(super) const PAST_CACHE_LIFETIMES: Duration = Duration::from_secs(61);

/// The result of a case.
pub(super) struct CaseResult {
    pub(super) answer: Answer,
    pub(super) outcome: Outcome,
}

/// Whether a case needs a new gateway.
pub(super) fn needs_fresh(question: &Question, head: &Head) -> bool {
    let later = |kid: &&str| head.world.oidc.keys.get(*kid) == Some(&Published::Later);
    let counts = question.expect.jwks_fetches.is_some() || question.expect.jwks_fetches_max.is_some();
    counts || credentials::key_ids(&question.credential).iter().any(later)
}

/// Runs a case.
///
/// # Errors
/// Expected and observed.
pub(super) async fn run(
    question: &Question,
    ours: Option<u16>,
    (head, environment): (&Head, &mut TestEnvironment),
) -> Result<CaseResult, String> {
    let request = question.request.as_ref().ok_or("the case has no `request`")?;
    environment.clock.advance(PAST_CACHE_LIFETIMES);
    if needs_fresh(question, head) {
        fetch_keys(environment, head).await?;
    }
    let token = credentials::prepare(&question.credential, environment, head).await?;
    let request = fill(request, token.as_deref())?;
    environment.platform.set_answer(question.backend.clone());
    let (seen, calls, fetches) = (
        environment.cluster.seen().len(),
        environment.platform.calls(),
        environment.issuer.fetches(),
    );
    let (answer, sent) = exchange(question, &request, environment).await?;
    let seen = environment.cluster.seen().split_off(seen);

    let expect = &question.expect;
    let outcome = response::status(expect, ours, &answer)?;
    check_answer(question, &answer, outcome, (&sent, &seen), (head, environment))?;
    if outcome != Outcome::Passed {
        check_forwarded(question, &seen)?;
        for seen in &seen {
            let values = Values {
                client_ip: "127.0.0.1".to_owned(),
                api_server_host: environment.cluster.address.to_string(),
                decision: answer.decision()?,
            };
            upstream::check(seen, &request, expect.upstream.as_ref(), (&head.defaults, &values))?;
        }
    }
    check_counts(
        expect,
        environment.platform.calls() - calls,
        environment.issuer.fetches() - fetches,
    )?;
    if let Some(limit) = expect.bytes_after_response_forwarded {
        let after: usize = seen
            .iter()
            .map(|seen| seen.after.load(std::sync::atomic::Ordering::SeqCst))
            .sum();
        if after != limit {
            return Err(format!("bytes after the response: expected {limit}, observed {after}"));
        }
    }
    if let Some(expected) = &expect.policy_input {
        let record = environment.decision(&answer.decision()?).await?;
        policy_input(expected, &record)?;
    }
    Ok(CaseResult { answer, outcome })
}

/// Makes the gateway fetch the keys published so far, and then publishes the rest.
async fn fetch_keys(environment: &mut TestEnvironment, head: &Head) -> Result<(), String> {
    let keys = &head.world.oidc.keys;
    let first = keys.iter().find(|(_, when)| **when == Published::Always);
    let (kid, _) = first.ok_or("no key is in the JWKS from the beginning")?;
    let credential = Credential::Oidc {
        _user: None,
        jose: Jose {
            alg: "RS256".to_owned(),
            kid: Some(kid.clone()),
            signature: Signature::Valid,
        },
        claims: serde_json::Map::from_iter([
            ("iss".to_owned(), head.world.oidc.issuer.clone().into()),
            ("aud".to_owned(), head.world.oidc.audiences.clone().into()),
            ("sub".to_owned(), "0".into()),
            ("exp".to_owned(), (head.world.now.as_second() + 600).into()),
            (head.world.oidc.agent_claim.clone(), 1.into()),
        ]),
        _note: crate::suite::Documentation,
    };
    let token = credentials::prepare(&credential, environment, head)
        .await?
        .ok_or("no token")?;
    let request = RequestLine {
        method: "GET".to_owned(),
        path: "/k8s-proxy/version".to_owned(),
        query: None,
        headers: vec![("Authorization".to_owned(), format!("Bearer {token}"))],
        http_version: None,
        body: None,
    };
    let mut connection = Http1Connection::connect(environment.running.address()).await?;
    connection.send(&bytes(&request, environment.running.address())).await;
    connection.head().await?;
    if environment.issuer.fetches() == 0 {
        return Err("expected a fetch of the keys, observed none".to_owned());
    }
    environment.issuer.publish(Published::Later);
    environment.clock.advance(PAST_CACHE_LIFETIMES);
    Ok(())
}

/// Sends the request and reads the response. Also returns the content that the API server sent.
async fn exchange(
    question: &Question,
    request: &RequestLine,
    environment: &TestEnvironment,
) -> Result<(Answer, Vec<u8>), String> {
    let expect = &question.expect;
    let address = environment.running.address();
    let (script, content) = script(&question.upstream_reply, request, expect);
    match request.http_version.as_deref() {
        None | Some("1.1") => {}
        Some("2") => {
            environment.cluster.set_script(script);
            return Ok((over_http2(request, address).await?, content));
        }
        Some(other) => return Err(format!("http_version `{other}` is not supported")),
    }
    let mut connection = Http1Connection::connect(address).await?;
    if let Some(stream) = &expect.stream {
        let (events, _) = broadcast::channel(16);
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
        environment
            .cluster
            .set_script(Script::Events(head.to_vec(), events.clone()));
        connection.send(&bytes(request, address)).await;
        let answer = connection.head().await?;
        if answer.status == 200 {
            watch(&mut connection, stream, &events, environment).await?;
        }
        return Ok((answer, content));
    }
    environment.cluster.set_script(script);
    connection.send(&bytes(request, address)).await;
    let mut answer = connection.head().await?;
    connection.body(&request.method, &mut answer).await?;
    if answer.status == 101 {
        connection.send(PROBE).await;
        let back = connection
            .read_exactly(PROBE.len())
            .await
            .map_err(|error| format!("tunnel: {error}"))?;
        if back != PROBE {
            return Err(format!("tunnel: expected {PROBE:?}, observed {back:?}"));
        }
    }
    if let Some(Connection::Closed) = expect.connection {
        connection.send(PROBE).await;
        // If the gateway still reads requests, it answers these bytes.
        let more = connection.rest().await?;
        if !more.is_empty() {
            let more = String::from_utf8_lossy(&more).into_owned();
            return Err(format!("connection: expected closed, observed `{more}`"));
        }
    }
    Ok((answer, content))
}

/// Checks that events arrive soon after they are sent, even after ten minutes.
async fn watch(
    connection: &mut Http1Connection,
    stream: &Stream,
    events: &broadcast::Sender<Vec<u8>>,
    environment: &TestEnvironment,
) -> Result<(), String> {
    if stream.response_timeout.is_some() {
        return Err("the gateway has no `response_timeout` for streams".to_owned());
    }
    let limit = Duration::from_millis(stream.max_flush_delay_ms);
    let mut delays = Vec::new();
    for number in 0..EVENTS {
        if number == EVENTS - 1 {
            environment.clock.advance(Duration::from_secs(600));
        }
        let event = format!("{{\"type\":\"ADDED\",\"object\":{{\"n\":{number}}}}}\n");
        let made = Instant::now();
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        events
            .send(chunk.into_bytes())
            .map_err(|_| "stream: the API server's side ended".to_owned())?;
        match connection
            .chunk()
            .await
            .map_err(|error| format!("stream: event {number}: {error}"))?
        {
            Some(chunk) if chunk == event.as_bytes() => delays.push(made.elapsed()),
            other => return Err(format!("stream: expected `{event}`, observed {other:?}")),
        }
    }
    // A busy machine delays single events; a gateway that buffers delays all of them.
    delays.sort();
    let median = delays[EVENTS / 2];
    if median > limit {
        return Err(format!("stream: expected events within {limit:?}, observed {median:?}"));
    }
    Ok(())
}

/// What the API server does in a case, and the content that it sends.
pub(super) fn script(reply: &UpstreamReply, request: &RequestLine, expect: &Expect) -> (Script, Vec<u8>) {
    let default_status = if expect.status == Some(101) { 101 } else { 200 };
    let status = reply.status.unwrap_or(default_status);
    let mut head = format!("HTTP/1.1 {status} X\r\n");
    let mut put = |name: &str, value: &str| {
        if !reply.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    };
    let asked = |name: &str| {
        let mut fields = request.headers.iter();
        fields
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    };
    let content = match (&reply.json, &reply.body) {
        (Some(json), _) => json.to_string(),
        (None, Some(text)) => text.clone(),
        (None, None) => "{\"kind\":\"Told\",\"apiVersion\":\"v1\"}".to_owned(),
    };
    if status == 101 {
        put("Connection", "Upgrade");
        put("Upgrade", asked("upgrade").unwrap_or("websocket"));
        if let Some(protocols) = asked("sec-websocket-protocol") {
            let last = protocols.rsplit(',').next().unwrap_or_default();
            put("Sec-WebSocket-Protocol", last.trim());
        }
    } else {
        put("Content-Type", "application/json");
        if !matches!(status, 204 | 304) {
            put("Content-Length", &content.len().to_string());
        }
    }
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    if status == 101 {
        return (Script::Tunnel(bytes), Vec::new());
    }
    if request.method != "HEAD" && !matches!(status, 204 | 304) {
        bytes.extend(content.as_bytes());
    }
    (Script::Reply(bytes), content.into_bytes())
}

fn check_answer(
    question: &Question,
    answer: &Answer,
    outcome: Outcome,
    (sent, seen): (&[u8], &[Seen]),
    (head, environment): (&Head, &TestEnvironment),
) -> Result<(), String> {
    let expect = &question.expect;
    let rule = expect.response.as_ref().and_then(|response| response.body);
    let may_be_empty = rule.is_some_and(|rule| rule != super::case::BodyRule::Identical);
    if let Some(expected) = &expect.status_object {
        response::status_object(expected, answer, (outcome, may_be_empty))?;
    }
    if seen.is_empty() && answer.status >= 400 {
        let mut secrets = credentials::secrets(&question.credential);
        secrets.push(environment.cluster.address.to_string());
        secrets.push(environment.platform.address.to_string());
        response::own_error(&head.defaults.gateway_error, answer, &secrets)?;
    }
    match &expect.response {
        Some(expected) => response::response(expected, answer, sent),
        None => Ok(()),
    }
}

fn check_forwarded(question: &Question, seen: &[Seen]) -> Result<(), String> {
    let lines: Vec<String> = seen
        .iter()
        .map(|seen| format!("{} {}", seen.method, seen.target))
        .collect();
    // After a 401, the gateway tries once more with another credential.
    let most = if question.upstream_reply.status == Some(401) {
        2
    } else {
        1
    };
    match question.expect.forwarded {
        Some(true) if seen.is_empty() => Err("forwarded: expected one request, observed none".to_owned()),
        Some(true) if seen.len() > most => Err(format!("forwarded: expected {most} at most, observed {lines:?}")),
        Some(false) if !seen.is_empty() => Err(format!("forwarded: expected none, observed {lines:?}")),
        Some(_) | None => Ok(()),
    }
}

fn check_counts(expect: &Expect, calls: usize, fetches: usize) -> Result<(), String> {
    if let Some(wanted) = expect.backend_called
        && wanted != (calls > 0)
    {
        return Err(format!("backend_called: expected {wanted}, observed {calls} calls"));
    }
    if let Some(wanted) = expect.jwks_fetches
        && wanted != fetches
    {
        return Err(format!("jwks_fetches: expected {wanted}, observed {fetches}"));
    }
    match expect.jwks_fetches_max {
        Some(most) if fetches > most => Err(format!("jwks_fetches: expected {most} at most, observed {fetches}")),
        Some(_) | None => Ok(()),
    }
}

/// Compares the policy's input; `null` means absent.
fn policy_input(expected: &std::collections::BTreeMap<String, Value>, record: &Value) -> Result<(), String> {
    let attributes = &record["kubernetes"]["attributes"];
    for (key, wanted) in expected {
        let found = &attributes[camel(key)];
        if found != wanted {
            return Err(format!(
                "policy_input.{key}: expected {wanted}, observed {found} in {attributes}"
            ));
        }
    }
    Ok(())
}

/// Converts snake case to camel case: `also_verb` to `alsoVerb`.
fn camel(key: &str) -> String {
    let mut words = key.split('_');
    let mut text = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        text.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        text.push_str(letters.as_str());
    }
    text
}
