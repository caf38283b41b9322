//! Counts the bytes that pass through a tunnel. Their content is not kept.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What passed through a tunnel so far, once it is open.
#[derive(Debug, Default)]
pub struct TunnelTraffic {
    was_open: AtomicBool,
    from_client: AtomicU64,
    from_cluster: AtomicU64,
}

impl TunnelTraffic {
    /// Notes that the cluster agreed to the tunnel.
    pub fn open(&self) {
        self.was_open.store(true, Ordering::Relaxed);
    }

    /// Counts bytes that were read from the client, framing included.
    pub fn count_from_client(&self, bytes: usize) {
        add(&self.from_client, bytes);
    }

    /// Counts bytes that were read from the cluster or backend, framing included.
    pub fn count_from_cluster(&self, bytes: usize) {
        add(&self.from_cluster, bytes);
    }

    pub(crate) fn was_open(&self) -> bool {
        self.was_open.load(Ordering::Relaxed)
    }

    /// The bytes from the client and from the cluster.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (
            self.from_client.load(Ordering::Relaxed),
            self.from_cluster.load(Ordering::Relaxed),
        )
    }
}

fn add(counter: &AtomicU64, bytes: usize) {
    counter.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
}
