//! A gateway that takes exact bytes, and what the API server says arrived.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::access::world::{As, Token, World};
use test_support::client::{Answer, Client};
use test_support::kubernetes::gateway::Layout;

/// The gateway, with a token of alice.
pub(super) struct Target {
    pub(super) world: World,
    pub(super) token: Token,
}

impl Target {
    pub(super) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    /// One whose folder is changed before.
    pub(super) async fn start_with(change: impl FnOnce(&mut Layout)) -> Self {
        let world = World::start_with(|layout| {
            layout.without_tls();
            change(layout);
        })
        .await;
        Self {
            token: world.token(As::User).await,
            world,
        }
    }

    /// A text no other request of any test has: all share a cluster.
    pub(super) fn mark() -> String {
        static MARKS: AtomicU32 = AtomicU32::new(0);
        format!("mark-{}", MARKS.fetch_add(1, Ordering::Relaxed))
    }

    /// Path of an object that is not there, called `mark`.
    pub(super) fn object(&self, mark: &str) -> String {
        format!("/api/v1/namespaces/{}/configmaps/{mark}", self.world.home)
    }

    /// Path of a shell that says one word.
    pub(super) fn exec(&self, namespace: &str, mark: &str) -> String {
        let command = "command=echo&command=entered&container=main&stdout=true";
        format!("/api/v1/namespaces/{namespace}/pods/pod/exec?{command}&mark={mark}")
    }

    /// Head of a request with alice's token; `lines` each end with CRLF.
    pub(super) fn head(&self, (method, path): (&str, &str), lines: &str) -> String {
        let bearer = &self.token.bearer;
        format!("{method} /k8s-proxy{path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {bearer}\r\n{lines}\r\n")
    }

    pub(super) async fn connect(&self) -> Client {
        Client::connect(self.world.gateway.address()).await
    }

    /// Sends a head on a connection of its own.
    pub(super) async fn exchange(&self, head: &str) -> Answer {
        self.connect().await.exchange(head.as_bytes()).await
    }

    /// GETs the object `mark` with further lines.
    pub(super) async fn get(&self, mark: &str, lines: &str) -> Answer {
        self.exchange(&self.head(("GET", &self.object(mark)), lines)).await
    }

    /// Every event of the API server whose URL has `mark`, and none is under way.
    pub(super) async fn arrived(&self, mark: &str) -> Vec<Value> {
        // Events are written in the order of answers: this one's is the last.
        let answer = self.get(&Self::mark(), "Connection: close\r\n").await;
        self.world.cluster.audit().of(answer.values("audit-id")[0]).await;
        let has_mark = |event: &Value| {
            let uri = event["requestURI"].as_str().unwrap();
            uri.split(['/', '?', '&', '=']).any(|piece| piece == mark)
        };
        let events = self.world.cluster.audit().events().into_iter();
        events.filter(has_mark).collect()
    }

    /// Nothing with this mark arrived, and the caller knows why.
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

    /// One request with this mark arrived, as alice and nobody else; gives it.
    pub(super) async fn as_alice(&self, mark: &str) -> Value {
        let mut arrived = self.arrived(mark).await;
        // A stream has an event for its start and one for its end.
        arrived.dedup_by(|one, other| one["auditID"] == other["auditID"]);
        assert_eq!(arrived.len(), 1, "{mark}: {arrived:?}");
        let event = arrived.remove(0);
        assert_eq!(event["user"]["username"], self.world.account(As::User), "{event}");
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
        // Its number is that of a decision of the gateway.
        let id = event["auditID"].as_str().unwrap();
        let decision = self.world.gateway.admin(&format!("/decisions/{id}")).await;
        assert_eq!(decision["outcome"], "allowed", "{decision}");
        event
    }
}
