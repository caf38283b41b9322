//! Connections that change protocol: after the backend's 101, bytes are copied in both directions
//! until the connection ends.
//!
//! Security: a tunnel needs a 101 with the protocol that was asked for, and always has a time
//! limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Response};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::io::InspectReader;

use super::{Body, Error};
use crate::client::Client;
use crate::headers::{HeldValue, Upstream, clean_response};
use tollgate_core::upgrade::Protocol;
use tollgate_identity::sessions::{EndSignal, TunnelTraffic};
use tollgate_objects::extensions::TimeoutSpec;

/// Longest life of a tunnel when none is configured.
const LIFETIME: Duration = Duration::from_hours(24);

/// Longest silence after one side finished, during which the other side may still send.
const LINGER: Duration = Duration::from_secs(30);

/// Longest wait for both connections to be handed over after the 101.
pub(crate) const HANDOVER: Duration = Duration::from_secs(10);

/// Bytes read at once, from the client and from the backend. What comes from backends is much more.
const BUFFER_BYTES: [usize; 2] = [8 * 1024, 64 * 1024];

/// - `left`: time until the caller's credential ends.
pub(super) fn lifetime(timeouts: &TimeoutSpec, left: Option<Duration>) -> Duration {
    let lifetime = timeouts.upgrade_lifetime.unwrap_or(LIFETIME);
    left.map_or(lifetime, |left| left.min(lifetime))
}

pub(super) struct Tunnel {
    pub(super) protocol: Protocol,
    /// The client's side of the tunnel.
    pub(super) upgrade: OnUpgrade,
    pub(super) idle: Option<Duration>,
    pub(super) lifetime: Duration,
    /// Signal that ends the tunnel from outside.
    pub(super) signal: Option<EndSignal>,
    pub(super) client: Arc<Client>,
    pub(super) held: Vec<HeldValue>,
}

impl Tunnel {
    /// Checks the backend's 101 and returns the one for the client.
    pub(super) fn open(self, mut response: Response<Incoming>, upstream: &Upstream) -> Result<Response<Body>, Error> {
        let wanted = HeaderValue::from_static(self.protocol.into());
        let given = response.headers().get(UPGRADE);
        if !given.is_some_and(|given| given.as_bytes().eq_ignore_ascii_case(wanted.as_bytes())) {
            return Err(Error::Protocol);
        }
        let backend = hyper::upgrade::on(&mut response);
        let (mut parts, _) = response.into_parts();
        clean_response(&mut parts.headers, &upstream.responder);
        // Again, because `clean_response` removes what is hop-by-hop.
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(UPGRADE, wanted);
        tokio::spawn(async move {
            let traffic = self.signal.as_ref().map(EndSignal::traffic);
            if let Some(traffic) = traffic {
                traffic.open();
            }
            let run = run(self.upgrade, backend, self.idle, traffic);
            tokio::select! {
                // hyper gave the connection away, so a stop of the server does not reach it otherwise.
                () = self.client.peer().closing.cancelled() => {}
                () = ended(self.signal.as_ref()) => {}
                _ = timeout(self.lifetime, run) => {}
            }
            drop(self.held);
        });
        Ok(Response::from_parts(parts, Body::empty()))
    }
}

/// Waits for the signal that ends the tunnel from outside. Never returns if there is none.
async fn ended(signal: Option<&EndSignal>) {
    match signal {
        Some(signal) => {
            signal.ended().await;
        }
        None => std::future::pending().await,
    }
}

async fn run(client: OnUpgrade, backend: OnUpgrade, idle: Option<Duration>, traffic: Option<&TunnelTraffic>) {
    let handover = async { tokio::try_join!(client, backend) };
    let Ok(Ok((client, backend))) = timeout(HANDOVER, handover).await else {
        return;
    };
    let activity = Activity {
        start: Instant::now(),
        last: AtomicU64::new(0),
        half_closed: AtomicBool::new(false),
        changed: Notify::new(),
    };
    let activity = &activity;
    let watched = |io, count: fn(&TunnelTraffic, usize)| {
        InspectReader::new(TokioIo::new(io), move |bytes: &[u8]| {
            activity.note_read(bytes);
            if let Some(traffic) = traffic {
                count(traffic, bytes.len());
            }
        })
    };
    let mut client = watched(client, TunnelTraffic::count_from_client);
    let mut backend = watched(backend, TunnelTraffic::count_from_cluster);
    let [up, down] = BUFFER_BYTES;
    let copy = tokio::io::copy_bidirectional_with_sizes(&mut client, &mut backend, up, down);
    tokio::select! {
        _ = copy => {}
        () = activity.wait_until_idle(idle) => {}
    }
}

/// When bytes were last read on either side.
#[derive(Debug)]
struct Activity {
    start: Instant,
    /// Milliseconds since `start`.
    last: AtomicU64,
    half_closed: AtomicBool,
    changed: Notify,
}

impl Activity {
    /// - `bytes`: empty if the side has finished.
    fn note_read(&self, bytes: &[u8]) {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
        if bytes.is_empty() && !self.half_closed.swap(true, Ordering::AcqRel) {
            // The allowed silence is shorter from here on, and the wait began with the longer one.
            self.changed.notify_one();
        }
    }

    /// Returns when nothing was read for the allowed time.
    async fn wait_until_idle(&self, idle: Option<Duration>) {
        loop {
            let bound = match (idle, self.half_closed.load(Ordering::Acquire)) {
                (Some(idle), true) => Some(idle.min(LINGER)),
                (None, true) => Some(LINGER),
                (idle, false) => idle,
            };
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            let end = bound.and_then(|bound| self.start.checked_add(last)?.checked_add(bound));
            match end {
                Some(end) if Instant::now() >= end => return,
                Some(end) => {
                    tokio::select! {
                        () = sleep_until(end) => {}
                        () = self.changed.notified() => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }
}
