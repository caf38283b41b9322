//! argocd-server, Redis and the gateway are killed with SIGKILL during 200 requests a second. No
//! answer is half of one that looks whole, or false, and what is left goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::{Fixture, Setup};
use test_support::kubernetes::argocd::Wire;
use test_support::kubernetes::eventually;
use test_support::port::free_port;

/// argocd-server's, and Tollgate's own.
const PATHS: [&str; 2] = ["/api/v1/applications", "/api/v1/applicationsets"];

/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(5);

/// Requests at a time: fewer than one person may have.
const OPEN: usize = 20;

/// How long requests go on before and after a kill, at least, and how many end meanwhile, at least.
const PHASE: Duration = Duration::from_secs(2);
const SEEN: usize = 100;

/// What a client saw.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    /// A whole answer: status, and the reason of a refusal.
    Answer(u16, String),
    /// No answer, or one that was cut and that the client knows to be cut.
    Cut,
    /// Half of an answer that looks whole, or another than the path's.
    False(String),
}

/// Requests to both paths, as fast as [`PAUSE`] and [`OPEN`] say, until it is stopped.
struct Load {
    seen: Arc<Mutex<Vec<(&'static str, Seen)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Load {
    fn start(url: String, session: String) -> Self {
        let seen: Arc<Mutex<Vec<(&'static str, Seen)>>> = Arc::default();
        let results = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20));
            let client = client.build().unwrap();
            let mut ticks = interval(PAUSE);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let (mut running, places) = (JoinSet::new(), Arc::new(Semaphore::new(OPEN)));
            for path in PATHS.into_iter().cycle() {
                ticks.tick().await;
                let place = Arc::clone(&places).acquire_owned().await.unwrap();
                let request = client.get(format!("{url}{path}")).bearer_auth(&session);
                let results = Arc::clone(&results);
                running.spawn(async move {
                    let seen = one(request, path).await;
                    results.lock().await.push((path, seen));
                    drop(place);
                });
                while running.try_join_next().is_some_and(|ended| ended.is_ok()) {}
            }
        });
        Self { seen, task }
    }

    /// What was seen since the last call.
    async fn take(&self) -> Vec<(&'static str, Seen)> {
        std::mem::take(&mut *self.seen.lock().await)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn one(request: reqwest::RequestBuilder, path: &str) -> Seen {
    let Ok(answer) = request.send().await else {
        return Seen::Cut;
    };
    let status = answer.status().as_u16();
    let Ok(content) = answer.bytes().await else {
        return Seen::Cut;
    };
    let Ok(body) = serde_json::from_slice::<Value>(&content) else {
        return Seen::False(format!("{status}: {content:?}"));
    };
    if status == 200 && (body.get("metadata").is_none() || body.get("items").is_none()) {
        return Seen::False(format!("{path}: {body}"));
    }
    Seen::Answer(status, body["reason"].as_str().unwrap_or_default().to_owned())
}

/// Waits, and checks what was seen meanwhile.
async fn during(load: &Load, what: &str, allows: impl Fn(&str, &Seen) -> bool) {
    load.take().await;
    let start = Instant::now();
    eventually(&format!("{what}: {SEEN} requests"), async || {
        let is_enough = load.seen.lock().await.len() >= SEEN;
        (is_enough && start.elapsed() >= PHASE).then_some(())
    })
    .await;
    for (path, seen) in load.take().await {
        assert!(allows(path, &seen), "{what}: {path}: {seen:?}");
    }
}

fn is_ok(seen: &Seen) -> bool {
    *seen == Seen::Answer(200, String::new())
}

/// Waits until a request to each path gets 200.
async fn until_ok(fixture: &Fixture, session: &str) {
    for path in PATHS {
        eventually(&format!("{path} answers"), async || {
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let request = client
                .get(format!("{}{path}", fixture.gateway.url()))
                .bearer_auth(session);
            is_ok(&one(request, path).await).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_parts_leave_no_false_answers_and_the_rest_goes_on() {
    let mut setup = Setup::new(Wire::Plain);
    setup.listen = format!("127.0.0.1:{}", free_port());
    let mut fixture = setup.start(|_| {}).await;
    let password = fixture.argocd.password().to_owned();
    let session = fixture.session("admin", &password).await;
    until_ok(&fixture, &session).await;
    let load = Load::start(fixture.gateway.url(), session.clone());
    during(&load, "nothing is killed", |_, seen| is_ok(seen)).await;

    fixture.argocd.kill_server();
    during(&load, "argocd-server is killed", |path, seen| match seen {
        // Only what argocd-server had begun to answer is cut.
        Seen::Cut => path == PATHS[0],
        Seen::Answer(502, reason) => path == PATHS[0] && reason.starts_with("backend_"),
        Seen::Answer(..) | Seen::False(_) => is_ok(seen),
    })
    .await;
    fixture.argocd.start_server().await;
    until_ok(&fixture, &session).await;
    during(&load, "argocd-server is back", |_, seen| is_ok(seen)).await;

    fixture.argocd.redis().kill();
    during(&load, "Redis is killed", |path, seen| match seen {
        Seen::Cut | Seen::False(_) => false,
        Seen::Answer(503, reason) => reason == "revocations_unavailable",
        // argocd-server's own failures, and its reads that need no Redis.
        Seen::Answer(status, _) => is_ok(seen) || (path == PATHS[0] && *status >= 500),
    })
    .await;
    fixture.argocd.redis().restart().await;
    until_ok(&fixture, &session).await;

    fixture.gateway.kill().await;
    during(&load, "the gateway is killed", |_, seen| {
        *seen == Seen::Cut || is_ok(seen)
    })
    .await;
    let start = Instant::now();
    fixture.gateway.restart().await;
    until_ok(&fixture, &session).await;
    let took = start.elapsed();
    assert!(took < Duration::from_secs(20), "serving {took:?} after the start");
    during(&load, "the gateway is back", |_, seen| is_ok(seen)).await;
}
