//! A gateway for requests of exact bytes, and the API server's events about them.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::access::fixture::{AccessAs, Fixture, Token};
use test_support::client::{Answer, Client};
use test_support::kubernetes::gateway::Layout;

/// The gateway and a token of alice.
pub(super) struct Target {
    pub(super) fixture: Fixture,
    pub(super) token: Token,
}

impl Target {
    pub(super) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    /// Changes the gateway's folder before it starts.
    pub(super) async fn start_with(change: impl FnOnce(&mut Layout)) -> Self {
        let fixture = Fixture::start_with(|layout| {
            layout.without_tls();
            change(layout);
        })
        .await;
        Self {
            token: fixture.token(AccessAs::User).await,
            fixture,
        }
    }

    /// A text that identifies one request, because all tests share a cluster.
    pub(super) fn mark() -> String {
        static MARKS: AtomicU32 = AtomicU32::new(0);
        format!("mark-{}", MARKS.fetch_add(1, Ordering::Relaxed))
    }

    /// The path of an absent object called `mark`.
    pub(super) fn object(&self, mark: &str) -> String {
        format!("/api/v1/namespaces/{}/configmaps/{mark}", self.fixture.home)
    }

    /// The path of an exec that prints one word.
    pub(super) fn exec(&self, namespace: &str, mark: &str) -> String {
        let command = "command=echo&command=entered&container=main&stdout=true";
        format!("/api/v1/namespaces/{namespace}/pods/pod/exec?{command}&mark={mark}")
    }

    /// The head of a request with alice's token. Each of `lines` ends with CRLF.
    pub(super) fn head(&self, (method, path): (&str, &str), lines: &str) -> String {
        let bearer = &self.token.bearer;
        format!("{method} /k8s-proxy{path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {bearer}\r\n{lines}\r\n")
    }

    pub(super) async fn connect(&self) -> Client {
        Client::connect(self.fixture.gateway.address()).await
    }

    /// Sends a head on a new connection. Returns the response.
    pub(super) async fn exchange(&self, head: &str) -> Answer {
        self.connect().await.exchange(head.as_bytes()).await
    }

    /// Sends a GET for the object `mark` with more header lines.
    pub(super) async fn get(&self, mark: &str, lines: &str) -> Answer {
        self.exchange(&self.head(("GET", &self.object(mark)), lines)).await
    }

    /// Every event of the API server whose URL has `mark`. No later ones follow.
    pub(super) async fn arrived(&self, mark: &str) -> Vec<Value> {
        // Events are written in the order of responses, so the event of this request is the last.
        let answer = self.get(&Self::mark(), "Connection: close\r\n").await;
        self.fixture.cluster.audit().of(answer.values("audit-id")[0]).await;
        let has_mark = |event: &Value| {
            let uri = event["requestURI"].as_str().unwrap();
            uri.split(['/', '?', '&', '=']).any(|piece| piece == mark)
        };
        let events = self.fixture.cluster.audit().events_with(mark).into_iter();
        events.filter(has_mark).collect()
    }

    /// Asserts that no request with this mark arrived, and that the response has this reason.
    pub(super) async fn refused(&self, mark: &str, answer: &Answer, (status, reason): (u16, &str)) {
        assert_eq!(answer.status, status, "{mark}: {answer:?}");
        let content: Value = serde_json::from_slice(&answer.content).unwrap();
        assert_eq!(
            (&content["kind"], &content["code"], &content["reason"]),
            (&json!("Status"), &json!(status), &json!(reason)),
            "{content}"
        );
        let arrived = self.arrived(mark).await;
        assert!(arrived.is_empty(), "{mark}: {arrived:?}");
    }

    /// Asserts that one request with this mark arrived, impersonating alice. Returns its event.
    pub(super) async fn as_alice(&self, mark: &str) -> Value {
        let mut arrived = self.arrived(mark).await;
        // A stream has an event for its start and one for its end.
        arrived.dedup_by(|one, other| one["auditID"] == other["auditID"]);
        assert_eq!(arrived.len(), 1, "{mark}: {arrived:?}");
        let event = arrived.remove(0);
        assert_eq!(
            event["user"]["username"],
            self.fixture.account(AccessAs::User),
            "{event}"
        );
        let wanted = json!({
            "username": "gitlab:user:alice",
            "groups": [
                "gitlab:user",
                "gitlab:group_role:2:reporter",
                "gitlab:group_role:2:developer",
                "system:authenticated",
            ],
            "extra": {
                "agent.gitlab.com/id": ["9999"],
                "agent.gitlab.com/username": ["alice"],
                "agent.gitlab.com/access_type": ["personal_access_token"],
                "agent.gitlab.com/config_project_id": ["1234"],
            },
        });
        assert_eq!(event["impersonatedUser"], wanted, "{mark}");
        // Its id is that of a decision of the gateway.
        let id = event["auditID"].as_str().unwrap();
        let decision = self.fixture.gateway.admin(&format!("/decisions/{id}")).await;
        assert_eq!(decision["outcome"], "allowed", "{decision}");
        event
    }
}
