//! Attempts to use more than a call's budget.

use serde_json::json;
use tollgate_credential::MintErrorClass::{Config, Permanent};

use super::{Fixture, case, check, observed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_stopped_at_its_budget() {
    let fixture = Fixture::new().await;
    let attack = |name: &str, number: u64, place: &str| json!({"attack": format!("exhaust-{name}"), "number": number, "place": place});
    let budget = |name: &str, number: u64, reason| case(attack(name, number, ""), Permanent, "plugin.budget", reason);
    let trap = |name: &str, number: u64| case(attack(name, number, ""), Permanent, "plugin.trap", "failed");
    check(
        &fixture,
        vec![
            budget("calls", 0, "more host calls than allowed"),
            budget("requests", 0, "more requests than a call may send").seen(8),
            budget("memory", 0, "bytes of memory"),
            budget("loop", 0, "took longer than"),
            budget("wrap", 3 << 20, "data"),
            trap("stack", 0),
            trap("random", 4097),
            observed(attack("random", 4096, ""), "done"),
            trap("memo", 17),
            observed(attack("memo", 16, ""), "done"),
            observed(attack("secrets", 300, "kept"), "256 secrets, then"),
            observed(attack("secrets", 300, "dropped"), "256 secrets, then"),
            observed(attack("secrets", 200, "dropped"), "200 secrets"),
            observed(attack("composed", 100, ""), "17 composed, then"),
            observed(attack("composed", 16, ""), "16 composed"),
            observed(attack("composed", 16, "logged"), "16 composed"),
            observed(attack("log", 1, ""), "done"),
            case(
                attack("wrap", (64 << 10) + 1, ""),
                Config,
                "secret.too-large",
                "too large",
            ),
            observed(attack("wrap", 64 << 10, ""), "done"),
            case(
                attack("body", (64 << 10) + 1, ""),
                Config,
                "secret.too-large",
                "too large",
            ),
            observed(attack("body", 64 << 10, ""), "done").seen(1),
            case(attack("url", 9000, ""), Config, "egress.malformed", "over 8192 bytes"),
            observed(attack("url", 8000, ""), "done").seen(1),
            case(
                attack("query", 20_000, ""),
                Config,
                "egress.invalid-request",
                "up to 16384 bytes",
            ),
            observed(attack("query", 16_000, ""), "done").seen(1),
            case(
                attack("header", 50_000, ""),
                Config,
                "egress.invalid-request",
                "49152 are allowed",
            ),
            observed(attack("header", 48_000, ""), "done").seen(1),
            case(
                attack("headers", 65, ""),
                Config,
                "egress.invalid-request",
                "64 of 49152 are allowed",
            ),
            observed(attack("headers", 64, ""), "done").seen(1),
            observed(attack("path", 0, ""), "true"),
            observed(attack("paths", 0, ""), "done"),
            observed(attack("depth", 0, ""), "not JSON"),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attack_does_not_affect_concurrent_mints() {
    let fixture = Fixture::new().await;
    let looping = fixture.source("loops", &json!({"attack": "exhaust-loop"}));
    let request = tollgate_credential::MintRequest {
        reason: tollgate_credential::MintReason::Initial,
        previous_expiry: None,
        budget: std::time::Duration::from_secs(10),
    };
    let loops: Vec<_> = (0..4)
        .map(|_| {
            let source = looping.clone();
            tokio::spawn(async move { source.mint_traced(request).await.0 })
        })
        .collect();
    fixture.still_mints().await;
    for looping in loops {
        let error = looping.await.unwrap().unwrap_err();
        assert_eq!(
            (error.class, error.code.as_str()),
            (Permanent, "plugin.budget"),
            "{error}"
        );
    }
    fixture.still_mints().await;
}
