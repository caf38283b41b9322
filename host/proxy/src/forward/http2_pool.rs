//! Spreads exchanges over several HTTP/2 connections to one server: the first client with a free
//! stream takes the next exchange.
//!
//! A client has one HTTP/2 connection to a server, and the server limits the streams of a
//! connection, while watches and logs of kube-apiserver stay open for hours.
//!
//! Invariant: an exchange never waits because others are long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::backend::HttpClient;

/// Exchanges of one client. A server that follows RFC 9113, section 6.5.2, allows at least as many
/// streams.
const MAX_EXCHANGES_PER_CLIENT: usize = 100;

const MAX_CLIENTS: usize = 1_000;

/// Clients to one server, made as they are needed.
pub(super) struct Http2Pool {
    make: Box<dyn Fn() -> HttpClient + Send + Sync>,
    clients: Mutex<Vec<PooledClient>>,
}

struct PooledClient {
    client: HttpClient,
    open_exchanges: Arc<AtomicUsize>,
}

/// One exchange counted in a pooled client, until dropped.
#[derive(Debug)]
pub(super) struct StreamPermit(Arc<AtomicUsize>);

impl PooledClient {
    fn count(&self) -> usize {
        self.open_exchanges.load(Ordering::Relaxed)
    }

    fn take(&self) -> (HttpClient, StreamPermit) {
        self.open_exchanges.fetch_add(1, Ordering::Relaxed);
        (self.client.clone(), StreamPermit(Arc::clone(&self.open_exchanges)))
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Http2Pool {
    pub(super) fn new(make: impl Fn() -> HttpClient + Send + Sync + 'static) -> Self {
        Self {
            make: Box::new(make),
            clients: Mutex::default(),
        }
    }

    /// Returns a client with a free stream, and the permit that counts the exchange in it.
    pub(super) fn take(&self) -> (HttpClient, StreamPermit) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // Dropping a client closes its connection. One idle client stays behind those in use, so
        // that the next exchange finds a connection there.
        while let [.., before, last] = clients.as_slice()
            && before.count() == 0
            && last.count() == 0
        {
            clients.pop();
        }
        // The first with room, so that the last clients run empty and can be dropped.
        let free = clients.iter().find(|pooled| pooled.count() < MAX_EXCHANGES_PER_CLIENT);
        let full = clients.len() >= MAX_CLIENTS;
        let least_busy = || clients.iter().min_by_key(|pooled| pooled.count());
        if let Some(pooled) = free.or_else(|| full.then(least_busy).flatten()) {
            return pooled.take();
        }
        let pooled = PooledClient {
            client: (self.make)(),
            open_exchanges: Arc::default(),
        };
        let taken = pooled.take();
        clients.push(pooled);
        taken
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.clients.lock().unwrap().len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::backend::Backend;
    use super::{MAX_EXCHANGES_PER_CLIENT, Ordering};
    use crate::forward::ClusterBackend;
    use tollgate_objects::{ClusterTls, TlsVerification};

    fn backend() -> std::sync::Arc<Backend> {
        let tls = ClusterTls {
            verification: TlsVerification::Off,
            ..ClusterTls::default()
        };
        let cluster = ClusterBackend::build("https://k8s.example", &tls).unwrap();
        cluster.without_certificate()
    }

    #[test]
    fn full_clients_get_no_more_exchanges_and_idle_ones_are_dropped() {
        let backend = backend();
        let pool = backend.http2_pool().expect("a cluster's connections");
        let mut first: Vec<_> = (0..MAX_EXCHANGES_PER_CLIENT).map(|_| pool.take()).collect();
        assert_eq!(pool.count(), 1);
        let second = pool.take();
        assert_eq!(pool.count(), 2);
        // A stream that was released is used again.
        drop(first.pop());
        let third = pool.take();
        drop(second);
        assert_eq!(pool.count(), 2);
        // The idle client behind a full one still has its connection.
        let open = |at: usize| pool.clients.lock().unwrap()[at].open_exchanges.load(Ordering::Relaxed);
        let fourth = pool.take();
        assert_eq!((pool.count(), open(0), open(1)), (2, MAX_EXCHANGES_PER_CLIENT, 1));
        drop((first, fourth));
        drop(third);
        let _last = pool.take();
        assert_eq!(pool.count(), 1);
    }
}
