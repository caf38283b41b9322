//! A line to a server that can be cut and mended.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Passes bytes on while it is whole.
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    whole: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Line {
    /// To `server`, which is `host:port`.
    pub(crate) async fn to(server: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let whole = watch::Sender::new(true);
        let server = server.to_owned();
        let state = whole.subscribe();
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                // Cut: the connection ends as soon as it is there.
                if *state.borrow() {
                    tokio::spawn(pass(near, server.clone(), state.clone()));
                }
            }
        });
        Self { address, whole, task }
    }

    /// Ends every connection, and lets no new one through.
    pub(crate) fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// Lets connections through again.
    pub(crate) fn mend(&self) {
        self.whole.send_replace(true);
    }
}

impl Drop for Line {
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
        _ = state.wait_for(|whole| !whole) => {}
    }
}
