//! A TCP proxy that can be interrupted.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards connections to a server while it is enabled.
pub(crate) struct TcpProxy {
    pub(crate) address: SocketAddr,
    enabled: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl TcpProxy {
    /// Starts a proxy to `server`, which is `host:port`.
    pub(crate) async fn to(server: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let enabled = watch::Sender::new(true);
        let server = server.to_owned();
        let state = enabled.subscribe();
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                // While disabled, new connections are closed at once.
                if *state.borrow() {
                    tokio::spawn(pass(near, server.clone(), state.clone()));
                }
            }
        });
        Self { address, enabled, task }
    }

    /// Closes every connection, and accepts no new ones.
    pub(crate) fn disable(&self) {
        self.enabled.send_replace(false);
    }

    /// Forwards connections again.
    pub(crate) fn enable(&self) {
        self.enabled.send_replace(true);
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut near: TcpStream, server: String, mut state: watch::Receiver<bool>) {
    let Ok(mut far) = TcpStream::connect(server).await else {
        return;
    };
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => {}
        _ = state.wait_for(|enabled| !enabled) => {}
    }
}
