//! The row of DNS. It needs root, for its own port 53 and `/etc/resolv.conf`.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use reqwest::Method;
use serde_json::json;
use tokio::net::UdpSocket;

use super::WAITING;
use super::dependency::{Dependency, Meanwhile, Needs, Sign};
use test_support::backend::{Backend, Reply};
use test_support::world::Setup;

/// Starts a program with another `/etc/resolv.conf`.
const SCRIPT: &str = "mount --bind \"$1\" /etc/resolv.conf; shift; exec \"$@\"";

/// The system's resolver asks again after 5 s, five times.
pub(super) fn dns(setup: &mut Setup) -> LocalBoxFuture<'_, Dependency> {
    async {
        let (address, socket) = listen().await;
        let is_silent = Arc::new(AtomicBool::new(true));
        tokio::spawn(answer(socket, Arc::clone(&is_silent)));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("resolv.conf");
        std::fs::write(&file, format!("nameserver {address}\noptions timeout:5 attempts:5\n")).unwrap();
        let backend = Backend::start(|_| Reply::ok("hello")).await;
        let port = backend.address.port();
        let config = format!("{{services: [{{url: 'http://backend.stalls.example:{port}'}}]}}");
        setup.argocd_cm.insert("extension.config.named".to_owned(), config);
        let needs = Needs {
            request: Box::new(|gateway| gateway.request(Method::GET, "alice", "/api/v1/extensions/named/hello")),
            front: "extensions",
            waiting: WAITING,
            works: 200,
            is_asked_before: false,
            meanwhile: Meanwhile::Refused(502),
        };
        let shell = ["unshare", "--mount", "sh", "-ec", SCRIPT, "sh"].map(str::to_owned);
        let sign = Sign::counter("tollgate_name_lookups_unanswered_total", "TollgateDnsStalls");
        Dependency {
            needs: Some(needs),
            through: shell.into_iter().chain([file.display().to_string()]).collect(),
            set: Box::new(move |stalls| is_silent.store(stalls, Ordering::Relaxed)),
            kept: vec![Box::new(folder)],
            ..Dependency::new(json!({}), sign)
        }
    }
    .boxed_local()
}

/// Listens at port 53 of an address of loopback that nobody else uses.
async fn listen() -> (Ipv4Addr, UdpSocket) {
    loop {
        let mut random = [0; 2];
        aws_lc_rs::rand::fill(&mut random).unwrap();
        let address = Ipv4Addr::new(127, 53, random[0], random[1]);
        match UdpSocket::bind((address, 53)).await {
            Ok(socket) => return (address, socket),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => panic!("port 53 of {address} cannot be used, so run this test as root: {error}"),
        }
    }
}

/// Says that every name is 127.0.0.1, or nothing.
async fn answer(socket: UdpSocket, is_silent: Arc<AtomicBool>) {
    let mut query = [0; 512];
    while let Ok((length, client)) = socket.recv_from(&mut query).await {
        if is_silent.load(Ordering::Relaxed) {
            continue;
        }
        // The question is a name, which ends with an empty label, a type and a class (RFC 1035, section 4.1).
        let name = query[12..length].iter().position(|byte| *byte == 0).unwrap();
        let question = &query[12..12 + name + 5];
        let is_address = question[name + 1..name + 3] == [0, 1];
        let mut answer = query[..2].to_vec();
        // A response, recursion desired and available; one question.
        answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
        answer.extend(question);
        if is_address {
            // The name of the question; type A, class IN, a second, four bytes.
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1]);
        }
        let _ = socket.send_to(&answer, client).await;
    }
}
