//! Rows of what remembers.

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use reqwest::Method;
use serde_json::{Value, json};

use super::WAITING;
use super::dependency::{Dependency, End, Meanwhile, Needs, Sign};
use crate::clusters::cluster;
use test_support::backend::{Backend, Reply};
use test_support::postgres;
use test_support::redis::Redis;
use test_support::relay::Relay;
use test_support::world::{CONTROL_PLANE, Setup, object};

/// Tokens are accepted while the list of revoked ones is not known, if the settings say so.
pub(super) fn redis(_: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let redis = Redis::start().await;
        let relay = Relay::to(&format!("redis://{}", redis.address())).await;
        let settings = json!({"argocd": {"server": "http://127.0.0.1:1", "redis": {
            "server": relay.url(), "whenUnavailable": "allow", "gracePeriod": "2s",
        }}});
        let sign = Sign::gauge(
            "tollgate_argocd_revoked_tokens_unavailable",
            "TollgateRevocationsUnavailable",
        );
        Dependency {
            kept: vec![Box::new(redis)],
            ..Dependency::new(settings, sign).relayed(relay)
        }
    }
    .boxed_local()
}

/// People, and an agent that alice may use.
fn people() -> [Value; 3] {
    let people = json!({"spec": {
        "users": [{"id": 1, "username": "alice"}, {"id": 2, "username": "bob"}],
        "projects": [{"id": 1, "path": "group/all", "members": [{"username": "alice", "role": "developer"}]}],
    }});
    let access = json!({"access_as": {"user": {}}, "projects": [{"id": "group/all"}]});
    let agent = json!({"spec": {
        "id": 1, "configProject": {"id": 1}, "cluster": "prod", "config": {"user_access": access},
    }});
    [
        object(
            "tollgate.dev/v1alpha1",
            "UserDirectory",
            "people",
            CONTROL_PLANE,
            people,
        ),
        object("tollgate.dev/v1alpha1", "Agent", "prod", CONTROL_PLANE, agent),
        cluster("prod", "http://127.0.0.1:1", &json!({}), &[]),
    ]
}

/// - `grace`: how long people are served without it.
async fn postgres(setup: &mut Setup, grace: &str) -> Dependency {
    setup.objects.extend(people());
    let relay = Relay::to(&postgres::shared().database().await).await;
    let settings = json!({
        "store": {"url": relay.url(), "gracePeriod": grace},
        "kubernetes": {"users": [{"issuer": "argocd", "is": "username"}]},
    });
    let needs = Needs {
        request: Box::new(|gateway| gateway.request(Method::GET, "alice", "/api/v1/tokens")),
        front: "access",
        waiting: WAITING,
        works: 200,
        is_asked_before: true,
        meanwhile: Meanwhile::Refused(503),
    };
    let sign = Sign::counter(
        "tollgate_store_failures_total{operation=\"revocations\"}",
        "TollgateStoreFails",
    );
    Dependency {
        needs: Some(needs),
        ..Dependency::new(settings, sign).relayed(relay)
    }
}

pub(super) fn store(setup: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let sign = Sign::counter(
            "tollgate_store_failures_total{operation=\"read\"}",
            "TollgateStoreFails",
        );
        Dependency {
            sign,
            ..postgres(setup, "5m").await
        }
    }
    .boxed_local()
}

/// Nobody knows who was revoked or locked meanwhile.
pub(super) fn store_beyond_grace(setup: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        Dependency {
            others: 503,
            ends: End::ByItself,
            ..postgres(setup, "2s").await
        }
    }
    .boxed_local()
}

pub(super) fn audit_receiver(setup: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        setup.objects.extend(people());
        let receiver = Backend::start(|_| Reply::ok("")).await;
        let relay = Relay::to(&format!("http://{}", receiver.address)).await;
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "a-token").unwrap();
        let export = json!({"webhook": {"url": relay.url(), "tokenFile": token}});
        let settings = json!({
            "store": {"url": format!("sqlite:{}", folder.path().join("store.db").display())},
            "kubernetes": {
                "users": [{"issuer": "argocd", "is": "username"}],
                "audit": {"bucket": "1s", "export": export},
            },
        });
        // An event.
        let request = |gateway: &super::Process| {
            let made = json!({"name": "laptop", "agent": 1});
            gateway.request(Method::POST, "alice", "/api/v1/tokens").json(&made)
        };
        let needs = Needs {
            request: Box::new(request),
            front: "access",
            waiting: WAITING,
            works: 201,
            is_asked_before: true,
            meanwhile: Meanwhile::Refused(201),
        };
        let works = move || !receiver.seen().is_empty();
        let sign = Sign::counter("tollgate_audit_export_failures_total", "TollgateAuditExportFails");
        Dependency {
            needs: Some(needs),
            works: Box::new(works),
            kept: vec![Box::new(folder)],
            ..Dependency::new(settings, sign).relayed(relay)
        }
    }
    .boxed_local()
}
