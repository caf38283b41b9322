//! `tollgate serve` as a process, so that nothing of a test shares its threads.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::NOTICED;
use super::dependency::{Sign, World};
use test_support::client::{Client, PATIENCE};
use test_support::port::free_port;
use test_support::token;
use test_support::world::{SESSION_KEY, merge};

/// The one bound of wall time here: a probe that takes longer may get the process killed.
const PROBE: Duration = Duration::from_millis(100);

/// Requests on one connection before their answers are read.
const PIPELINED: usize = 50;

/// A gateway with the files of a [`World`].
pub(super) struct Process {
    _process: Child,
    client: reqwest::Client,
    public: SocketAddr,
    admin: SocketAddr,
}

/// The text of `/metrics`.
#[derive(Debug)]
pub(super) struct Metrics(String);

/// A response without an end.
pub(super) struct Stream(reqwest::Response);

impl Process {
    /// - `log`: its standard error.
    /// - `through`: a program that starts it, with arguments.
    pub(super) async fn start(world: &World, settings: &Value, log: Stdio, through: &[String]) -> Self {
        let port = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let (public, admin) = (port(), port());
        let text = std::fs::read_to_string(world.path("tollgate.yaml")).unwrap();
        let mut all: Value = serde_json::from_str(&text).unwrap();
        merge(&mut all, &json!({"listen": public, "admin": {"listen": admin}}));
        all.as_object_mut().unwrap().remove("decisions");
        merge(&mut all, settings);
        // A setting that is null is none.
        all["state"]
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        let public = serde_json::from_value(all["listen"].clone()).unwrap();
        let path = world.path("stalled.yaml");
        std::fs::write(&path, all.to_string()).unwrap();
        let mut words = through
            .iter()
            .map(String::as_str)
            .chain([env!("CARGO_BIN_EXE_tollgate")]);
        let process = Command::new(words.next().unwrap())
            .args(words)
            .args(["serve", "--log", "trace", "--config"])
            .arg(path)
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            _process: process,
            client: reqwest::Client::new(),
            public,
            admin,
        }
    }

    async fn admin(&self, path: &str) -> Option<(u16, String)> {
        let url = format!("http://{}{path}", self.admin);
        let answer = self.client.get(url).send().await.ok()?;
        Some((answer.status().as_u16(), answer.text().await.ok()?))
    }

    /// Waits until a page of the admin listener has this status, and returns it.
    pub(super) async fn until(&self, path: &str, status: u16) -> String {
        let end = Instant::now() + NOTICED;
        loop {
            let answer = self.admin(path).await;
            if let Some((_, text)) = answer.as_ref().filter(|(seen, _)| *seen == status) {
                return text.clone();
            }
            assert!(Instant::now() < end, "{path} is not {status}: {answer:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) async fn metrics(&self) -> Metrics {
        Metrics(self.until("/metrics", 200).await)
    }

    /// Waits until the metrics are so.
    pub(super) async fn until_metrics(&self, what: &str, patience: Duration, is_so: impl Fn(&Metrics) -> bool) {
        let end = Instant::now() + patience;
        loop {
            let text = self.metrics().await;
            if is_so(&text) {
                return;
            }
            assert!(Instant::now() < end, "not {what}: {text:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// The fastest of a few probes: other tests take the machine's time as well.
    pub(super) async fn probe(&self) {
        let mut fastest = Duration::MAX;
        for _ in 0..10 {
            let start = Instant::now();
            let answer = timeout(PATIENCE, self.admin("/healthz")).await.expect("an answer");
            assert_eq!(answer.map(|(status, _)| status), Some(200));
            fastest = fastest.min(start.elapsed());
        }
        assert!(fastest < PROBE, "{fastest:?}");
    }

    /// A request of a person.
    pub(super) fn request(&self, method: Method, user: &str, path: &str) -> RequestBuilder {
        self.bearing(method, &token::session(SESSION_KEY, user), path)
    }

    /// A request with this bearer token.
    pub(super) fn bearing(&self, method: Method, token: &str, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.public);
        let request = self.client.request(method, url).bearer_auth(token);
        request
            .header("Argocd-Application-Name", "argocd:cart")
            .header("Argocd-Project-Name", "shop")
    }

    /// Sends a request, and returns the status of its answer.
    pub(super) fn status(&self, request: RequestBuilder) -> impl Future<Output = u16> + Send + use<> {
        async move {
            let answer = timeout(NOTICED, request.send()).await.expect("an answer").unwrap();
            answer.status().as_u16()
        }
    }

    /// Sends requests until one gets this status.
    pub(super) async fn until_status(&self, request: impl Fn() -> RequestBuilder, status: u16) {
        let end = Instant::now() + NOTICED;
        loop {
            let answer = timeout(NOTICED, request().send()).await.expect("an answer").unwrap();
            if answer.status() == status {
                return;
            }
            let seen = (answer.status(), answer.text().await);
            assert!(Instant::now() < end, "not {status}: {seen:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Requests of strangers and of `alice` are answered, and so are probes.
    ///
    /// - `status`: what `alice` gets.
    pub(super) async fn assert_serves(&self, requests: usize, status: u16) {
        const PATH: &str = "/api/v1/extensions/echo/hello";
        let url = format!("http://{}{PATH}", self.public);
        for _ in 0..requests {
            let stranger = timeout(PATIENCE, self.client.get(&url).send())
                .await
                .expect("an answer");
            assert_eq!(stranger.unwrap().status(), 401);
            let request = self.request(Method::GET, "alice", PATH);
            let answer = timeout(PATIENCE, request.send()).await.expect("an answer").unwrap();
            let seen = answer.status();
            assert_eq!(seen, status, "{:?}", answer.text().await);
        }
        self.probe().await;
    }

    /// Sends thousands of requests of a stranger.
    pub(super) async fn send_many(&self) {
        let request = "GET /api/v1/extensions/echo/hello HTTP/1.1\r\nhost: gateway.test\r\n\r\n".repeat(PIPELINED);
        let mut client = Client::connect(self.public).await;
        for _ in 0..2_000 / PIPELINED {
            client.send(request.as_bytes()).await;
            for _ in 0..PIPELINED {
                assert_eq!(client.answer().await.unwrap().status, 401);
            }
        }
    }

    /// Opens a stream.
    pub(super) async fn stream(&self, user: &str) -> Stream {
        let end = Instant::now() + NOTICED;
        loop {
            let request = self.request(Method::GET, user, "/api/v1/extensions/echo/stream");
            let mut answer = timeout(PATIENCE, request.send()).await.expect("a head").unwrap();
            if answer.status() == 200 {
                assert!(answer.chunk().await.unwrap().is_some());
                return Stream(answer);
            }
            // A right that was given a moment ago.
            assert!(Instant::now() < end, "{answer:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Stream {
    pub(super) async fn has_ended(&mut self) -> bool {
        let next = timeout(Duration::from_millis(1), self.0.chunk()).await;
        !matches!(next, Err(_) | Ok(Ok(Some(_))))
    }

    pub(super) async fn until_ended(&mut self) {
        let ended = async { while !self.has_ended().await {} };
        timeout(NOTICED, ended).await.expect("the end of the stream");
    }
}

impl Metrics {
    /// The value of a series; 0 if there is none yet.
    pub(super) fn value(&self, series: &str) -> f64 {
        let lines = self
            .0
            .lines()
            .filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        lines.map(|value| value.parse::<f64>().unwrap()).next().unwrap_or(0.0)
    }

    /// Whether a sign shows that something stalls, or that it does not any more.
    pub(super) fn shows(&self, sign: &Sign, is_stalled: bool) -> bool {
        let value = self.value(sign.series);
        match is_stalled {
            true => (sign.while_stalled)(value),
            false => (sign.afterwards)(value),
        }
    }
}
