//! Resolves the host names of upstreams, by the system's resolver.

#[cfg(not(test))]
pub(super) use system::Resolver;

#[cfg(test)]
pub(super) use of_tests::Resolver;

#[cfg(not(test))]
mod system {
    use std::io;
    use std::net::SocketAddr;
    use std::task::{Context, Poll};

    use futures_util::future::BoxFuture;
    use hyper_util::client::legacy::connect::dns::Name;
    use tollgate_state::name_lookup;
    use tower::Service;

    /// The port of what it finds is 0, and replaced by that of the URL.
    #[derive(Clone)]
    pub(in crate::forward) struct Resolver;

    impl Resolver {
        pub(in crate::forward) fn new() -> Self {
            Self
        }
    }

    impl Service<Name> for Resolver {
        type Response = std::vec::IntoIter<SocketAddr>;
        type Error = io::Error;
        type Future = BoxFuture<'static, io::Result<Self::Response>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, name: Name) -> Self::Future {
            Box::pin(async move { Ok(name_lookup::lookup(name.as_str(), 0).await?.into_iter()) })
        }
    }
}

/// In unit tests, every Service of a cluster is on this machine.
#[cfg(test)]
mod of_tests {
    use std::future::{Ready, ready};
    use std::io;
    use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};
    use std::task::{Context, Poll};

    use hyper_util::client::legacy::connect::dns::Name;
    use tower::Service;

    #[derive(Clone)]
    pub(in crate::forward) struct Resolver;

    impl Resolver {
        pub(in crate::forward) fn new() -> Self {
            Self
        }
    }

    impl Service<Name> for Resolver {
        type Response = std::vec::IntoIter<SocketAddr>;
        type Error = io::Error;
        type Future = Ready<io::Result<Self::Response>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, name: Name) -> Self::Future {
            let found = match name.as_str().ends_with(".svc") {
                true => Ok(vec![(Ipv4Addr::LOCALHOST, 0).into()].into_iter()),
                false => (name.as_str(), 0).to_socket_addrs(),
            };
            ready(found)
        }
    }
}
