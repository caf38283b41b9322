//! Ports on loopback for servers that tests start.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The lowest port for servers. The kernel gives none below 32,768 to clients.
const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;

/// The distance of the next port from the first. Each process starts elsewhere.
static NEXT: LazyLock<Mutex<u16>> = LazyLock::new(|| {
    let mut random = [0; 2];
    aws_lc_rs::rand::fill(&mut random).unwrap();
    Mutex::new(u16::from_be_bytes(random) % COUNT)
});

/// Returns a free port. No client gets it, nor another test of this process, even before the
/// server of this one listens.
pub fn free_port() -> u16 {
    let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let port = FIRST + *next;
        *next = (*next + 1) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
