//! What the gateway depends on stalls: it accepts and never answers, or is a pipe that nobody reads. Requests
//! that do not need it go on, probes are answered, what is withdrawn meanwhile ends, a metric and an alert say
//! so, and everything works again by itself afterwards.

mod clusters;
mod dependency;
mod names;
mod process;
mod servers;
mod stores;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use dependency::{Dependency, End, Meanwhile, World, assert_alert, policy};
use process::Process;
use test_support::backend::{Backend, Reply};
use test_support::client::PATIENCE;
use test_support::world::Setup;

/// Requests that wait for what stalls.
const WAITING: usize = 20;

/// Of them, those whose clients give up.
const GIVEN_UP: usize = 5;

/// Requests of each kind that are served meanwhile.
const SERVED: usize = 20;

/// How long what stalls may be noticed, and how long it may take until it works again: a little longer than the
/// longest time limit of the gateway, and its pauses between two attempts.
const NOTICED: Duration = Duration::from_secs(90);

#[tokio::test]
async fn a_log_that_nobody_reads_stops_nothing() {
    stall(servers::log).await;
}

#[tokio::test]
async fn a_decision_file_that_blocks_stops_nothing() {
    stall(servers::decision_file).await;
}

#[tokio::test]
async fn argocd_server_that_stalls_stops_nothing_else() {
    stall(servers::argocd_server).await;
}

#[tokio::test]
async fn a_backend_that_stalls_stops_nothing_else() {
    stall(servers::backend).await;
}

#[tokio::test]
async fn an_api_server_that_stalls_stops_nothing_else() {
    stall(servers::api_server).await;
}

#[tokio::test]
async fn an_agent_that_stalls_stops_nothing_else() {
    stall(clusters::agent).await;
}

#[tokio::test]
async fn an_api_server_behind_an_agent_that_stalls_stops_nothing_else() {
    stall(clusters::api_server_of_agent).await;
}

#[tokio::test]
async fn an_api_server_of_the_state_that_stalls_stops_nothing_else() {
    stall(clusters::api_server_of_state).await;
}

#[tokio::test]
async fn a_host_of_a_plugin_that_stalls_stops_nothing_else() {
    stall(servers::host_of_plugin).await;
}

#[tokio::test]
async fn a_git_server_that_stalls_stops_nothing_else() {
    stall(servers::git_server).await;
}

#[tokio::test]
async fn an_issuer_that_stalls_before_its_keys_are_known_stops_nothing_else() {
    stall(servers::issuer_keys).await;
}

#[tokio::test]
async fn an_issuer_whose_userinfo_stalls_stops_nothing_else() {
    stall(servers::issuer_userinfo).await;
}

#[tokio::test]
async fn dns_that_stalls_stops_nothing_else() {
    stall(names::dns).await;
}

#[tokio::test]
async fn a_collector_that_stalls_stops_nothing() {
    stall(servers::collector).await;
}

#[tokio::test]
async fn a_redis_that_stalls_stops_nothing() {
    stall(stores::redis).await;
}

#[tokio::test]
async fn a_store_that_stalls_stops_nothing_else_for_a_while() {
    stall(stores::store).await;
}

#[tokio::test]
async fn a_store_that_stalls_for_longer_stops_everybody_until_it_is_back() {
    stall(stores::store_beyond_grace).await;
}

#[tokio::test]
async fn a_receiver_of_audit_events_that_stalls_stops_nothing() {
    stall(stores::audit_receiver).await;
}

/// The one driver of all rows.
async fn stall(row: fn(&mut Setup) -> LocalBoxFuture<'_, Dependency>) {
    let backend = Backend::start(|seen| match seen.line().contains("/stream") {
        true => Reply::Stall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n\n\r\n".to_vec()),
        false => Reply::ok("hello"),
    })
    .await;
    let mut setup = Setup::with_backend(backend.address);
    setup
        .rbac_cm
        .insert("policy.csv".to_owned(), policy(&["alice", "bob", "carol", "dave"]));
    let mut dependency = row(&mut setup).await;
    let log = dependency.log.take().unwrap_or_else(Stdio::null);
    let world = World::start(setup).await;
    let gateway = Process::start(&world, &dependency.settings, log, &dependency.through).await;
    gateway.until("/readyz", 200).await;
    let mut stream = gateway.stream("bob").await;
    if let Some(needs) = dependency.needs.as_ref().filter(|needs| needs.is_asked_before) {
        gateway.until_status(|| needs.request(&gateway), needs.works).await;
    }

    // It stalls.
    let open = |text: &process::Metrics| {
        let needs = dependency.needs.as_ref();
        needs.map_or(0.0, |needs| {
            text.value(&format!("tollgate_open_exchanges{{front=\"{}\"}}", needs.front))
        })
    };
    let before = open(&gateway.metrics().await);
    (dependency.set)(true);
    let ask = || {
        dependency
            .needs
            .as_ref()
            .map(|needs| tokio::spawn(gateway.status(needs.request(&gateway))))
    };
    let waiting = dependency.needs.as_ref().map_or(0, |needs| needs.waiting);
    let mut waiting: Vec<_> = (0..waiting).filter_map(|_| ask()).collect();
    let meanwhile = dependency.needs.as_ref().map(|needs| needs.meanwhile);
    match meanwhile {
        Some(Meanwhile::Waits) => {
            let all = before + f64::from(u32::try_from(waiting.len()).unwrap());
            gateway
                .until_metrics("waiting requests", NOTICED, |text| open(text) >= all)
                .await;
            for given_up in waiting.drain(..GIVEN_UP) {
                given_up.abort();
            }
        }
        Some(Meanwhile::Refused(status)) => {
            for asked in waiting.drain(..) {
                assert_eq!(timeout(NOTICED, asked).await.expect("an answer").unwrap(), status);
            }
        }
        None => {}
    }
    let noticed = Instant::now() + NOTICED;
    while !gateway.metrics().await.shows(&dependency.sign, true) {
        let text = gateway.metrics().await;
        assert!(Instant::now() < noticed, "{:?}: {text:?}", dependency.sign);
        if dependency.needs_many_requests {
            gateway.send_many().await;
        }
        sleep(Duration::from_millis(50)).await;
    }
    assert_alert(&dependency.sign);
    gateway.assert_serves(SERVED, dependency.others).await;
    assert!(waiting.iter().all(|asked| !asked.is_finished()));

    // What is withdrawn meanwhile ends.
    match dependency.ends {
        End::WhenWithdrawn | End::WhenItAnswers => {
            assert!(!stream.has_ended().await, "it ended before its time");
            dependency.set_policy(&world, &policy(&["alice", "carol", "dave"]));
        }
        End::ByItself => {}
    }
    if dependency.ends != End::WhenItAnswers {
        stream.until_ended().await;
    }

    // It works again by itself.
    (dependency.set)(false);
    for asked in waiting {
        let works = dependency.needs.as_ref().unwrap().works;
        assert_eq!(asked.await.unwrap(), works);
    }
    if let Some(needs) = &dependency.needs {
        gateway.until_status(|| needs.request(&gateway), needs.works).await;
    }
    stream.until_ended().await;
    dependency.set_policy(&world, &policy(&["alice", "bob", "carol", "dave"]));
    let works = |text: &process::Metrics| text.shows(&dependency.sign, false) && (dependency.works)();
    gateway.until_metrics("all is well", NOTICED, works).await;
    gateway.until("/readyz", 200).await;
    gateway.assert_serves(SERVED, 200).await;
    drop(gateway.stream("bob").await);
    drop(dependency.kept);
}

/// It accepts connections and never answers.
async fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The process waits instead of ending, and says for what.
#[tokio::test]
async fn a_store_that_stalls_at_the_start_is_awaited() {
    let world = World::start(Setup::default()).await;
    let (_listener, address) = silent().await;
    let settings = json!({
        "store": {"url": format!("postgres://tollgate@{address}/tollgate?sslmode=disable")},
        "kubernetes": {"users": [{"issuer": "argocd", "is": "username"}]},
    });
    let gateway = Process::start(&world, &settings, Stdio::null(), &[]).await;
    let awaited = gateway.until("/readyz", 503).await;
    assert!(awaited.contains("waits for"), "{awaited}");
    gateway.probe().await;
    let text = gateway.until("/metrics", 200).await;
    assert!(text.contains("tollgate_log_lines_lost_total"), "{text}");
    // Longer than one attempt takes.
    let end = Instant::now() + PATIENCE;
    loop {
        let awaited = gateway.until("/readyz", 503).await;
        if awaited.contains("the store") {
            return;
        }
        assert!(
            Instant::now() < end,
            "it does not say that it waits for the store: {awaited}"
        );
        sleep(Duration::from_millis(200)).await;
    }
}
