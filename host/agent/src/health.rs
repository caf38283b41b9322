//! Whether the agent still works, for a liveness probe.
//!
//! An agent is stuck if one of its connections has neither been made nor begun again for [`STUCK_AFTER`]. That
//! the gateway cannot be reached, or refuses the agent, is no reason to start it again: each attempt is bounded,
//! and another process would do the same.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// Longest time between two attempts to connect, and for one of them. Those that work take less than a minute.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(300);

/// Most probes at a time, and the longest time for one. Anybody who reaches the pod may send them.
const PROBES: usize = 16;
const PROBE_WITHIN: Duration = Duration::from_secs(5);

/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What one connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It has nothing to do, or serves. Pings end a connection that broke.
    Idle,
    /// It connects, or pauses before it does.
    Connecting { since: Instant },
}

/// What the connections do.
#[derive(Debug)]
pub(crate) struct Progress(Mutex<Vec<Step>>);

impl Progress {
    pub(crate) fn new(connections: usize) -> Self {
        Self(Mutex::new(vec![Step::Idle; connections]))
    }

    fn set(&self, number: usize, step: Step) {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = steps.get_mut(number) {
            *own = step;
        }
    }

    /// A connection begins an attempt, or the pause before one.
    pub(crate) fn connects(&self, number: usize) {
        self.set(number, Step::Connecting { since: Instant::now() });
    }

    /// A connection serves, or is not needed.
    pub(crate) fn is_idle(&self, number: usize) {
        self.set(number, Step::Idle);
    }

    /// For how long the connection that is stuck has been; `None` if none is.
    fn stuck_for(&self, now: Instant) -> Option<Duration> {
        let steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = steps.iter().filter_map(|step| match step {
            Step::Idle => None,
            Step::Connecting { since } => Some(now.saturating_duration_since(*since)),
        });
        longest.max().filter(|longest| *longest > STUCK_AFTER)
    }
}

/// Answers probes: `GET /healthz` gets 200, or 503 if the agent is stuck. Never returns; cancel safe.
pub(crate) async fn serve(listener: TcpListener, progress: Arc<Progress>) -> Infallible {
    let slots = Arc::new(Semaphore::new(PROBES));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a probe cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // One more is closed at once, so that those who hold connections keep out no probe for long.
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            continue;
        };
        let progress = Arc::clone(&progress);
        tokio::spawn(async move {
            let _slot = slot;
            let service = service_fn(|request| {
                let answer = answer(&request, progress.stuck_for(Instant::now()));
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).keep_alive(false);
            let served = builder.serve_connection(TokioIo::new(stream), service);
            // Nobody needs to know about a client that went away.
            let _ = timeout(PROBE_WITHIN, served).await;
        });
    }
}

fn answer(request: &Request<Incoming>, stuck_for: Option<Duration>) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path(), stuck_for) {
        (&Method::GET | &Method::HEAD, "/healthz", None) => (StatusCode::OK, "ok\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/healthz", Some(time)) => {
            let text = format!("the connector has not tried to connect for {} s\n", time.as_secs());
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
        _ => (StatusCode::NOT_FOUND, "ask for /healthz\n".to_owned()),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

/// Listens for probes.
///
/// # Errors
/// The address cannot be listened on.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| format!("`health.listen` {address} cannot be listened on: {error}"))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    #[test]
    fn an_attempt_that_does_not_end_is_stuck_and_silence_is_not() {
        let progress = Progress::new(2);
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(progress.stuck_for(after(100_000)), None, "nothing has begun");
        progress.set(1, Step::Connecting { since: now });
        assert_eq!(progress.stuck_for(after(300)), None);
        assert_eq!(progress.stuck_for(after(301)), Some(Duration::from_secs(301)));
        progress.set(1, Step::Connecting { since: after(300) });
        assert_eq!(progress.stuck_for(after(301)), None, "it has begun another one");
        progress.is_idle(1);
        assert_eq!(progress.stuck_for(after(100_000)), None, "it serves");
    }

    async fn probe(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: agent\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn probes_fail_while_it_is_stuck() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let progress = Arc::new(Progress::new(1));
        let probes = async {
            assert_eq!(probe(address, "/healthz").await, "HTTP/1.1 200 OK");
            assert_eq!(probe(address, "/").await, "HTTP/1.1 404 Not Found");
            let since = Instant::now().checked_sub(STUCK_AFTER * 2).unwrap();
            progress.set(0, Step::Connecting { since });
            assert_eq!(probe(address, "/healthz").await, "HTTP/1.1 503 Service Unavailable");
            progress.connects(0);
            assert_eq!(probe(address, "/healthz").await, "HTTP/1.1 200 OK");
            // Those who say nothing keep out nobody for long, and are closed.
            let mut silent = Vec::new();
            for _ in 0..PROBES {
                silent.push(TcpStream::connect(address).await.unwrap());
            }
            let mut text = String::new();
            let mut refused = TcpStream::connect(address).await.unwrap();
            assert!(matches!(refused.read_to_string(&mut text).await, Ok(0) | Err(_)));
        };
        tokio::select! {
            never = serve(listener, Arc::clone(&progress)) => match never {},
            () = probes => {}
        }
    }
}
