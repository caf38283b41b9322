//! Runs cases of several steps on one gateway. The steps advance its clock.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::suite::Documentation;
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tollgate_core::agent::AgentId;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_store::{AuditEvent, AuditFilter};

use super::case::{Credential, Expect, Open, Question, RequestLine, Step, StepExpect, StreamKind};
use super::cluster::Script;
use super::credentials::{self, fill, token_of};
use super::environment::TestEnvironment;
use super::plan::OPERATOR;
use super::single::script;
use super::table::Head;
use super::wire::{Http1Connection, TIMEOUT, bytes};
use test_support::token;
use test_support::world::SESSION_KEY;

/// How long a stream must stay open if that is expected.
const STABLE_FOR: Duration = Duration::from_millis(700);
/// Longest wait for a stream that is expected to end. Revocation takes effect within a second.
const END_TIMEOUT: Duration = Duration::from_millis(1500);

/// A running sequence.
pub(super) struct Sequence<'a> {
    head: &'a Head,
    question: &'a Question,
    environment: &'a mut TestEnvironment,
    /// Streams that were open when last checked.
    streams: Vec<Http1Connection>,
    opened: usize,
    sessions: BTreeMap<String, String>,
    changes: Vec<(String, Value)>,
    seconds: u64,
    /// Keeps streams of the API server open.
    events: broadcast::Sender<Vec<u8>>,
}

/// Runs the steps of a case.
///
/// # Errors
/// The number of the failed step; expected and observed.
pub(super) async fn run(question: &Question, head: &Head, environment: &mut TestEnvironment) -> Result<(), String> {
    if question.steps.is_empty() {
        return Err("the case has no `steps`".to_owned());
    }
    credentials::give_everybody_tokens(environment, head).await?;
    credentials::prepare(&question.credential, environment, head).await?;
    environment.platform.set_answer(question.backend.clone());
    let mut sequence = Sequence {
        head,
        question,
        environment,
        streams: Vec::new(),
        opened: 0,
        sessions: BTreeMap::new(),
        changes: Vec::new(),
        seconds: 0,
        events: broadcast::channel(1).0,
    };
    for (at, step) in question.steps.iter().enumerate() {
        let done = sequence.step(step).await;
        done.map_err(|error| format!("step {} (second {}): {error}", at + 1, step.at_seconds))?;
    }
    Ok(())
}

impl Sequence<'_> {
    async fn step(&mut self, step: &Step) -> Result<(), String> {
        let passed = step.at_seconds.checked_sub(self.seconds);
        let passed = passed.ok_or_else(|| format!("is before second {}", self.seconds))?;
        self.environment.clock.advance(Duration::from_secs(passed));
        self.seconds = step.at_seconds;
        if let Some(changes) = &step.world_change {
            self.changes.extend(changes.clone());
            self.environment
                .update_state(&self.head.changed(&self.changes)?)
                .await?;
        }
        if let Some(name) = &step.revoke_session {
            self.revoke(name).await?;
        }
        if let Some(open) = &step.open {
            self.open(open).await?;
        }
        if step.request.is_some() || step.credential.is_some() {
            self.send(step).await?;
        } else if step.status.is_some() || step.impersonate_groups.is_some() {
            return Err("`status` of a step without request".to_owned());
        }
        match &step.expect {
            Some(expect) => self.expect(expect).await,
            None => Ok(()),
        }
    }

    async fn send(&mut self, step: &Step) -> Result<(), String> {
        let (token, fields) = match &step.credential {
            Some(credential) => {
                let token = credentials::prepare(credential, self.environment, self.head).await?;
                let carried = (self.head.agent.as_str(), token.as_deref());
                let fields = match &step.request {
                    Some(_) => Vec::new(),
                    None => credentials::fields(credential, carried)?,
                };
                (token, fields)
            }
            None => (None, Vec::new()),
        };
        let default_request = || get("/k8s-proxy/version", None, fields);
        let request = fill(&step.request.clone().unwrap_or_else(default_request), token.as_deref())?;
        let (script, _) = script(&self.question.upstream_reply, &request, &Expect::default());
        self.environment.cluster.set_script(script);
        let before = self.environment.cluster.seen().len();
        let address = self.environment.running.address();
        let mut connection = Http1Connection::connect(address).await?;
        connection.send(&bytes(&request, address)).await;
        let mut answer = connection.head().await?;
        connection.body(&request.method, &mut answer).await?;
        let body = String::from_utf8_lossy(&answer.body);
        let wanted = step.status.ok_or("a request without `status`")?;
        if answer.status != wanted {
            return Err(format!("status: expected {wanted}, observed {}: {body}", answer.status));
        }
        let seen = self.environment.cluster.seen().split_off(before);
        if wanted >= 400 && !seen.is_empty() {
            return Err(format!("forwarded: expected none, observed {seen:?}"));
        }
        if let Some(wanted) = &step.impersonate_groups {
            let [seen] = seen.as_slice() else {
                return Err(format!("forwarded: expected one request, observed {seen:?}"));
            };
            let mut found = seen.values("impersonate-group");
            let mut wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
            found.sort_unstable();
            wanted.sort_unstable();
            if found != wanted {
                return Err(format!("impersonate_groups: expected {wanted:?}, observed {found:?}"));
            }
        }
        Ok(())
    }

    async fn open(&mut self, open: &Open) -> Result<(), String> {
        let credential = match (&open.credential, &open.user) {
            (Some(credential), _) => credential.clone(),
            (None, Some(user)) => Credential::Pat {
                user: Some(user.clone()),
                token: token_of(user),
                record: None,
                _note: Documentation,
            },
            (None, None) => return Err("a stream needs `user` or `credential`".to_owned()),
        };
        let token = credentials::prepare(&credential, self.environment, self.head).await?;
        let mut fields = credentials::fields(&credential, (&self.head.agent, token.as_deref()))?;
        if let (Credential::SessionCookie { .. }, Some(origin)) = (&credential, self.head.world.allowed_origins.first())
        {
            fields.push(("Origin".to_owned(), origin.clone()));
        }
        let (request, status) = stream(open.kind, &fields);
        let head = match status {
            101 => Script::Tunnel(switching(&request)),
            _ => Script::Events(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
                self.events.clone(),
            ),
        };
        self.environment.cluster.set_script(head);
        let address = self.environment.running.address();
        let mut connection = Http1Connection::connect(address).await?;
        connection.send(&bytes(&request, address)).await;
        let mut answer = connection.head().await?;
        if answer.status != status {
            connection.body(&request.method, &mut answer).await?;
            let body = String::from_utf8_lossy(&answer.body);
            return Err(format!("open: expected {status}, observed {}: {body}", answer.status));
        }
        self.streams.push(connection);
        self.opened += 1;
        if let Some(name) = &open.session {
            let session = self.session(&credential).await?;
            self.sessions.insert(name.clone(), session);
        }
        Ok(())
    }

    /// Id in the API of the session that was just opened.
    async fn session(&self, credential: &Credential) -> Result<String, String> {
        if let Credential::Pat { token, .. } = credential {
            let id = self
                .environment
                .token_id(token)
                .ok_or("the token is not in the store")?;
            return Ok(SessionId::new(AccessType::PersonalAccessToken, id.to_string()).to_string());
        }
        let url = format!("http://{}/api/v1/sessions?user=*", self.environment.running.address());
        let request = reqwest::Client::new()
            .get(url)
            .bearer_auth(token::session(SESSION_KEY, OPERATOR));
        let answer = request.send().await.map_err(|error| error.to_string())?;
        let page: Value = answer.json().await.map_err(|error| error.to_string())?;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        let open = items.iter().filter(|item| item["openStreams"].as_u64() > Some(0));
        let ids = open.filter_map(|item| item["id"].as_str());
        let known = |id: &&str| id.starts_with("pat:") || self.sessions.values().any(|known| known == id);
        let fresh: Vec<&str> = ids.filter(|id| !known(id)).collect();
        match fresh.as_slice() {
            [id] => Ok((*id).to_owned()),
            _ => Err(format!(
                "expected one session that was just opened, observed {fresh:?} in {page}"
            )),
        }
    }

    /// Revokes a session as an operator does.
    async fn revoke(&self, name: &str) -> Result<(), String> {
        let session = self
            .sessions
            .get(name)
            .ok_or(format!("no session `{name}` was opened"))?;
        let url = format!(
            "http://{}/api/v1/sessions/{session}",
            self.environment.running.address()
        );
        let request = reqwest::Client::new()
            .delete(url)
            .bearer_auth(token::session(SESSION_KEY, OPERATOR));
        let answer = request.send().await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let body = answer.text().await.unwrap_or_default();
        if (200..300).contains(&status) {
            Ok(())
        } else {
            Err(format!("revoke_session: expected success, observed {status}: {body}"))
        }
    }

    async fn expect(&mut self, expect: &StepExpect) -> Result<(), String> {
        if let Some(wanted) = expect.open_streams {
            self.open_streams(wanted).await?;
        }
        if let Some(wanted) = &expect.audit_reason {
            let closed = self.opened - self.streams.len();
            self.until(|events| check_closings(events, wanted, closed)).await?;
        }
        if let Some(wanted) = &expect.audit_entries {
            self.until(|events| check_entries(events, wanted)).await?;
        }
        Ok(())
    }

    /// Waits until both sides have `wanted` open streams, and checks that they stay open.
    async fn open_streams(&mut self, wanted: usize) -> Result<(), String> {
        let since = Instant::now();
        loop {
            let mut open = Vec::new();
            for mut connection in std::mem::take(&mut self.streams) {
                if !connection.ends_within(Duration::from_millis(5)).await {
                    open.push(connection);
                }
            }
            self.streams = open;
            let (here, there) = (self.streams.len(), self.environment.cluster.open());
            let waited = since.elapsed();
            if (here, there) == (wanted, wanted) && (wanted == 0 || waited >= STABLE_FOR) {
                return Ok(());
            }
            if here < wanted || waited >= END_TIMEOUT {
                return Err(format!(
                    "open_streams: expected {wanted}, observed {here} of the caller and {there} of the API server"
                ));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Reads the audit log until `is_so` accepts it. It is written asynchronously.
    async fn until(&self, is_so: impl Fn(&[AuditEvent]) -> Result<(), String>) -> Result<(), String> {
        let since = Instant::now();
        loop {
            let filter = AuditFilter {
                limit: 1_000,
                ..AuditFilter::default()
            };
            let events = self
                .environment
                .store
                .audit(&filter)
                .await
                .map_err(|error| error.to_string())?;
            match is_so(&events) {
                Err(error) if since.elapsed() >= TIMEOUT / 3 => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                Ok(()) => return Ok(()),
            }
        }
    }
}

/// Checks that there is one event for each closed stream, with this reason.
fn check_closings(events: &[AuditEvent], reason: &str, closed: usize) -> Result<(), String> {
    let found: Vec<String> = events
        .iter()
        .filter(|event| event.action == "stream.closed")
        .map(|event| {
            event
                .details
                .get("reason")
                .and_then(Value::as_str)
                .unwrap_or("none")
                .to_owned()
        })
        .collect();
    if found.len() == closed && found.iter().all(|found| found == reason) {
        Ok(())
    } else {
        Err(format!(
            "audit_reason: expected `{reason}` {closed} times, observed {found:?}"
        ))
    }
}

/// Checks that the entries about access are exactly those in `wanted`.
fn check_entries(events: &[AuditEvent], wanted: &[BTreeMap<String, Value>]) -> Result<(), String> {
    let access = events.iter().filter_map(|event| {
        let outcome = event.action.strip_prefix("access.")?;
        let mut entry: BTreeMap<String, Value> = event.details.clone().into_iter().collect();
        entry.insert("user".to_owned(), event.user.as_str().into());
        entry.insert("agent_id".to_owned(), event.agent_id.map(AgentId::get).into());
        entry.insert("outcome".to_owned(), outcome.into());
        entry.insert("count".to_owned(), event.count.into());
        Some(entry)
    });
    let found: Vec<_> = access.collect();
    let mut left = found.clone();
    for wanted in wanted {
        let fits = |entry: &BTreeMap<String, Value>| wanted.iter().all(|(key, value)| entry.get(key) == Some(value));
        match left.iter().position(fits) {
            Some(at) => drop(left.remove(at)),
            None => return Err(format!("audit_entries: expected {wanted:?}, observed {found:?}")),
        }
    }
    if left.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "audit_entries: expected {} entries, observed also {left:?}",
            wanted.len()
        ))
    }
}

fn get(path: &str, query: Option<&str>, headers: Vec<(String, String)>) -> RequestLine {
    RequestLine {
        method: "GET".to_owned(),
        path: path.to_owned(),
        query: query.map(str::to_owned),
        headers,
        http_version: None,
        body: None,
    }
}

/// The request that opens a stream, and the status of success.
fn stream(kind: StreamKind, credential: &[(String, String)]) -> (RequestLine, u16) {
    const POD: &str = "/k8s-proxy/api/v1/namespaces/default/pods/web-0";
    let upgrade = |to: &str, more: &[(&str, &str)]| {
        let fields = [("Connection", "Upgrade"), ("Upgrade", to)];
        let fields = fields.iter().chain(more);
        let fields = fields.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        credential.iter().cloned().chain(fields).collect::<Vec<_>>()
    };
    let websocket = |protocol: &str| {
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let fields = [
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", key),
            ("Sec-WebSocket-Protocol", protocol),
        ];
        upgrade("websocket", &fields)
    };
    let query = Some("command=sh&stdin=true&stdout=true&tty=true");
    match kind {
        StreamKind::ExecWebsocket => (get(&format!("{POD}/exec"), query, websocket("v5.channel.k8s.io")), 101),
        StreamKind::AttachWebsocket => (
            get(&format!("{POD}/attach"), query, websocket("v5.channel.k8s.io")),
            101,
        ),
        StreamKind::PortforwardWebsocket => {
            let fields = websocket("SPDY/3.1+portforward.k8s.io");
            (get(&format!("{POD}/portforward"), None, fields), 101)
        }
        StreamKind::ExecSpdy => {
            let fields = upgrade("SPDY/3.1", &[("X-Stream-Protocol-Version", "v4.channel.k8s.io")]);
            let request = get(&format!("{POD}/exec"), query, fields);
            let method = "POST".to_owned();
            (RequestLine { method, ..request }, 101)
        }
        StreamKind::Watch => (
            get("/k8s-proxy/api/v1/pods", Some("watch=true"), credential.to_vec()),
            200,
        ),
        StreamKind::Logs => (
            get(&format!("{POD}/log"), Some("follow=true"), credential.to_vec()),
            200,
        ),
    }
}

fn switching(request: &RequestLine) -> Vec<u8> {
    let mut head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n".to_owned();
    for (name, value) in &request.headers {
        if ["upgrade", "sec-websocket-protocol", "x-stream-protocol-version"].contains(&&*name.to_ascii_lowercase()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    head.push_str("\r\n");
    head.into_bytes()
}
