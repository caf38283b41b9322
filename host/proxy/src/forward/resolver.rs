//! Resolves the host names of upstreams, by the system's resolver.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;

/// The port of what it finds is 0, and replaced by that of the URL.
#[derive(Clone)]
pub(super) struct Resolver;

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        Box::pin(async move { Ok(lookup(name.as_str()).await?.into_iter()) })
    }
}

#[cfg(not(test))]
async fn lookup(host: &str) -> io::Result<Vec<SocketAddr>> {
    tollgate_runtime::name_lookup::lookup(host, 0).await
}

/// In unit tests, every Service of a cluster is on this machine, and clocks may be paused.
#[cfg(test)]
async fn lookup(host: &str) -> io::Result<Vec<SocketAddr>> {
    match host.ends_with(".svc") {
        true => Ok(vec![(std::net::Ipv4Addr::LOCALHOST, 0).into()]),
        false => Ok(std::net::ToSocketAddrs::to_socket_addrs(&(host, 0))?.collect()),
    }
}
