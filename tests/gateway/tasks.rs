//! Tasks that live as long as the gateway: none of them ends in silence.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use test_support::client::PATIENCE;
use test_support::redis::Redis;
use test_support::world::{Setup, World};

async fn world(redis: &Redis) -> World {
    let setup = Setup {
        settings: json!({
            "argocd": {"server": "http://127.0.0.1:1", "redis": redis.settings()},
            "kubernetes": {"users": [{"issuer": "argocd", "is": "username"}]},
        }),
        ..Setup::default()
    };
    setup.start().await
}

#[tokio::test]
async fn one_that_panics_ends_the_gateway() {
    let redis = Redis::start().await;
    let parts = world(&redis).await.running.tasks().len();
    // The store, sessions, the audit log, revoked tokens, and credentials.
    assert_eq!(parts, 5);
    for part in 0..parts {
        let mut world = world(&redis).await;
        let early = timeout(Duration::ZERO, world.running.ended()).await;
        assert!(early.is_err(), "nothing has ended yet: {early:?}");
        world.running.tasks()[part].spawn("a task of the test", async { panic!("on purpose") });
        let ended = timeout(PATIENCE, world.running.ended()).await;
        let error = ended.expect("the gateway ends").to_string();
        assert!(error.contains("a task of the test"), "{error}");
    }
}
