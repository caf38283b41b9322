//! A TCP relay in front of a server, which simulates network failures.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use url::Url;

/// What happens to bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They arrive.
    #[default]
    Pass,
    /// Open and new connections are closed.
    Cut,
    /// They are held until the mode is [`Mode::Pass`] again.
    Stall,
    /// They are lost silently, as when a host vanishes. Connections that exist meanwhile never
    /// carry bytes again.
    Drop,
}

/// A relay to a server. It ends when the value is dropped.
pub struct Relay {
    url: Url,
    port: u16,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

/// The state that connections watch.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    mode: Mode,
    /// How often [`Mode::Cut`] and [`Mode::Drop`] were set. Counters let a connection notice a
    /// mode that lasted only a moment.
    cuts: u64,
    drops: u64,
}

impl Relay {
    /// Starts a relay to the server of a URL with a port, whose host is an IP address or `localhost`.
    pub async fn to(url: &str) -> Self {
        let mut url = Url::parse(url).unwrap();
        let host = match url.host_str().unwrap() {
            "localhost" => Ipv4Addr::LOCALHOST.into(),
            host => host.parse().unwrap(),
        };
        let target = SocketAddr::new(host, url.port().unwrap());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        url.set_port(Some(port)).unwrap();
        url.set_ip_host(Ipv4Addr::LOCALHOST.into()).unwrap();
        let (state, states) = watch::channel(State::default());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, target, states.clone()));
            }
        });
        Self { url, port, state, task }
    }

    /// The URL of the server through the relay.
    pub fn url(&self) -> String {
        self.url.to_string()
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the mode for open and new connections.
    pub fn set(&self, mode: Mode) {
        self.state.send_modify(|state| {
            state.mode = mode;
            state.cuts += u64::from(mode == Mode::Cut);
            state.drops += u64::from(mode == Mode::Drop);
        });
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries one connection until one end closes it or it is cut.
async fn carry(mut client: TcpStream, target: SocketAddr, states: watch::Receiver<State>) {
    let began = *states.borrow();
    let (mut passes, mut cut, mut lost) = (states.clone(), states.clone(), states.clone());
    let is_cut = |state: &State| state.cuts != began.cuts || state.mode == Mode::Cut;
    let is_lost = |state: &State| state.drops != began.drops || state.mode == Mode::Drop;
    let mut server = None;
    let carried = async {
        if passes.wait_for(|state| state.mode == Mode::Pass).await.is_err() {
            return;
        }
        let Ok(connected) = TcpStream::connect(target).await else {
            return;
        };
        let server = server.insert(connected);
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        // When one end closes, the other is closed too.
        tokio::select! {
            () = copy(from_client, to_server, states.clone()) => {}
            () = copy(from_server, to_client, states.clone()) => {}
        }
    };
    let is_lost = tokio::select! {
        biased;
        _ = cut.wait_for(is_cut) => false,
        _ = lost.wait_for(is_lost) => true,
        () = carried => false,
    };
    if is_lost {
        // Both ends stay open, but no bytes pass between them.
        let _ = cut.wait_for(is_cut).await;
    }
}

/// Copies bytes in one direction until one end is closed. Waits while the mode is not
/// [`Mode::Pass`].
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut states: watch::Receiver<State>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let passes = states.wait_for(|state| state.mode == Mode::Pass).await.is_ok();
        if !passes || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
