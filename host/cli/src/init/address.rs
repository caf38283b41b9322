//! Chooses addresses that the new gateway can listen on.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};

/// How many ports are tried.
const ATTEMPTS: u16 = 20;

/// An address, and the listener that keeps it until all addresses are chosen.
pub(super) struct Reserved {
    pub(super) address: SocketAddr,
    _listener: Option<TcpListener>,
}

impl Reserved {
    /// An address that was named: it is not replaced, only reported if it is in use.
    pub(super) fn named(address: SocketAddr) -> (Self, bool) {
        let bound = TcpListener::bind(address);
        let is_used = is_used(&bound);
        (Self::of(address, bound), is_used)
    }

    /// `wanted`, or the next port of the same host that is free.
    pub(super) fn from(wanted: SocketAddr) -> Self {
        let mut address = wanted;
        for port in (wanted.port()..=u16::MAX).take(ATTEMPTS.into()) {
            address.set_port(port);
            let bound = TcpListener::bind(address);
            if !is_used(&bound) {
                return Self::of(address, bound);
            }
        }
        // All are in use, which `serve` says.
        Self {
            address: wanted,
            _listener: None,
        }
    }

    fn of(address: SocketAddr, bound: io::Result<TcpListener>) -> Self {
        Self {
            address,
            _listener: bound.ok(),
        }
    }
}

/// Other errors are about this machine, while the gateway may be meant for another one.
fn is_used(bound: &io::Result<TcpListener>) -> bool {
    matches!(bound, Err(error) if error.kind() == ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::Reserved;

    #[test]
    fn an_address_in_use_is_replaced_unless_it_was_named() {
        let used = TcpListener::bind("127.0.0.1:0").unwrap();
        let wanted = used.local_addr().unwrap();
        let first = Reserved::from(wanted);
        assert_eq!(first.address.ip(), wanted.ip());
        assert_ne!(first.address, wanted);
        // What is chosen is not chosen again.
        assert_ne!(Reserved::from(wanted).address, first.address);
        let (named, is_used) = Reserved::named(wanted);
        assert_eq!((named.address, is_used), (wanted, true));
        // An address of another machine.
        let (named, is_used) = Reserved::named("192.0.2.1:8443".parse().unwrap());
        assert_eq!((named.address.port(), is_used), (8443, false));
    }
}
