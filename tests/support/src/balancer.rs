//! A balancer of TCP connections in front of several servers: each connection goes to the next one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A balancer. It ends when the value is dropped.
pub struct Balancer {
    address: SocketAddr,
    servers: Arc<Mutex<Vec<SocketAddr>>>,
    task: JoinHandle<()>,
}

impl Balancer {
    /// Starts a balancer in front of these servers.
    pub async fn to(servers: &[SocketAddr]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let servers = Arc::new(Mutex::new(servers.to_vec()));
        let of_task = Arc::clone(&servers);
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let next = {
                    let mut servers = of_task.lock().unwrap();
                    servers.rotate_left(1);
                    servers.first().copied()
                };
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(next.unwrap()).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Self { address, servers, task }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends connections to this server, too.
    pub fn add(&self, server: SocketAddr) {
        self.servers.lock().unwrap().push(server);
    }

    /// Sends nothing to this server any more.
    pub fn remove(&self, server: SocketAddr) {
        self.servers.lock().unwrap().retain(|other| *other != server);
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
