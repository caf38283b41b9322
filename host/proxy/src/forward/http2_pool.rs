//! Spreads exchanges over several HTTP/2 connections to one server: the first client with room
//! takes the next exchange.
//!
//! A client has one HTTP/2 connection to a server, and the server limits the streams of a
//! connection, while watches and logs of kube-apiserver stay open for hours.
//!
//! Invariant: an exchange never waits because others are long.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hyper_util::client::legacy::Client;

use super::Body;
use super::backend::Connector;

/// Exchanges of one client. A server that follows RFC 9113, section 6.5.2, allows at least as many
/// streams.
const MAX_EXCHANGES_PER_CLIENT: usize = 100;

/// Clients to one server.
const MAX_CLIENTS: usize = 1_000;

type HttpClient = Client<Connector, Body>;

/// Clients to one server, made as they are needed.
pub(super) struct Http2Pool {
    make: Box<dyn Fn() -> HttpClient + Send + Sync>,
    lanes: Mutex<Vec<PooledClient>>,
}

struct PooledClient {
    pool: HttpClient,
    open: Arc<AtomicUsize>,
}

/// A place in a lane, given back when dropped.
#[derive(Debug)]
pub(super) struct StreamPermit(Arc<AtomicUsize>);

impl PooledClient {
    fn is_empty(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Http2Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2Pool").finish_non_exhaustive()
    }
}

impl Http2Pool {
    /// None yet; `make` makes each.
    pub(super) fn new(make: impl Fn() -> HttpClient + Send + Sync + 'static) -> Self {
        Self {
            make: Box::new(make),
            lanes: Mutex::default(),
        }
    }

    /// A client with room, and the slot taken in it.
    pub(super) fn take(&self) -> (HttpClient, StreamPermit) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        // Connections nobody uses any more close with their client. One empty lane
        // stays behind those in use: the next exchange finds a connection there.
        while let [.., before, last] = lanes.as_slice()
            && before.is_empty()
            && last.is_empty()
        {
            lanes.pop();
        }
        let free = lanes
            .iter()
            .find(|lane| lane.open.load(Ordering::Relaxed) < MAX_EXCHANGES_PER_CLIENT);
        let full = lanes.len() >= MAX_CLIENTS;
        let least = || lanes.iter().min_by_key(|lane| lane.open.load(Ordering::Relaxed));
        if let Some(lane) = free.or_else(|| full.then(least).flatten()) {
            lane.open.fetch_add(1, Ordering::Relaxed);
            return (lane.pool.clone(), StreamPermit(Arc::clone(&lane.open)));
        }
        let lane = PooledClient {
            pool: (self.make)(),
            open: Arc::new(AtomicUsize::new(1)),
        };
        let taken = (lane.pool.clone(), StreamPermit(Arc::clone(&lane.open)));
        lanes.push(lane);
        taken
    }

    /// How many there are.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.lanes.lock().unwrap().len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::backend::Backend;
    use super::{MAX_EXCHANGES_PER_CLIENT, Ordering};
    use crate::forward::ClusterBackend;
    use tollgate_state::{ClusterTls, TlsVerification};

    fn backend() -> std::sync::Arc<Backend> {
        let tls = ClusterTls {
            verification: TlsVerification::Off,
            ..ClusterTls::default()
        };
        let cluster = ClusterBackend::build("https://k8s.example", &tls).unwrap();
        cluster.without_certificate()
    }

    #[test]
    fn a_full_lane_sends_the_next_one_to_another_and_empty_ones_go() {
        let backend = backend();
        let lanes = backend.http2_pool().expect("a cluster's connections");
        let mut first: Vec<_> = (0..MAX_EXCHANGES_PER_CLIENT).map(|_| lanes.take()).collect();
        assert_eq!(lanes.count(), 1);
        let second = lanes.take();
        assert_eq!(lanes.count(), 2);
        // A place that was given back is taken again.
        drop(first.pop());
        let third = lanes.take();
        drop(second);
        assert_eq!(lanes.count(), 2);
        // The empty one behind a full one has its connection still.
        let open = |at: usize| lanes.lanes.lock().unwrap()[at].open.load(Ordering::Relaxed);
        let fourth = lanes.take();
        assert_eq!((lanes.count(), open(0), open(1)), (2, MAX_EXCHANGES_PER_CLIENT, 1));
        drop((first, fourth));
        drop(third);
        let _last = lanes.take();
        assert_eq!(lanes.count(), 1);
    }
}
