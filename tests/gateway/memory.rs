//! Memory of the gateway process while it forwards large bodies.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::wire::{discard, read_head, request};
use test_support::client::PATIENCE;
use test_support::world::{Setup, World};

/// Bytes of a body that makes the process allocate what it needs only once.
const WARM_UP: usize = 64 << 20;
/// Bytes of a large body.
const LARGE: usize = 400 << 20;
/// How much the process may grow: the buffers of a few connections, what the allocators of its
/// threads keep, and pages of the program itself that were not needed before. With both cores busy
/// that was 20 to 65 MiB, however many bodies followed. It is less than a third of one body, so a
/// gateway that keeps bodies exceeds it.
const GROWTH_KIB: u64 = 128 << 10;

/// `tollgate serve` with the files of a [`World`].
pub(super) struct Process {
    child: Child,
    pub(super) address: SocketAddr,
    /// What it logged so far.
    log: Arc<Mutex<String>>,
}

impl Process {
    pub(super) async fn start(world: &World) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["serve", "--config"])
            .arg(world.path("tollgate.yaml"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = timeout(PATIENCE, lines.next_line()).await.expect("a line in time");
            let line = line.unwrap().expect("the gateway runs");
            if let Some((_, after)) = line.split_once("listen=") {
                break after.split(' ').next().unwrap().parse().unwrap();
            }
        };
        // The gateway would block on a full pipe if nothing read its log.
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut log = kept.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self { child, address, log }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(super) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Peak resident memory in KiB. Source: proc(5), `VmHWM`.
    fn peak_kib(&self) -> u64 {
        let file = format!("/proc/{}/status", self.child.id().unwrap());
        let status = std::fs::read_to_string(file).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// Reads `length` bytes of content and answers with as many.
async fn answer_in_kind(listener: &TcpListener, length: usize) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let (_, behind) = read_head(&mut stream).await;
    discard(&mut stream, length - behind.len()).await;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    send(&mut stream, length).await;
}

async fn send(stream: &mut TcpStream, mut left: usize) {
    let piece = vec![b'x'; 1 << 16];
    while left > 0 {
        let next = &piece[..piece.len().min(left)];
        timeout(PATIENCE, stream.write_all(next))
            .await
            .expect("the peer reads in time")
            .unwrap();
        left -= next.len();
    }
}

/// Sends and receives `length` bytes through the gateway.
async fn exchange(process: &Process, listener: &TcpListener, length: usize) {
    let client = async {
        let mut client = TcpStream::connect(process.address).await.unwrap();
        let fields = format!("content-length: {length}\r\nconnection: close\r\n");
        client
            .write_all(&request("POST", "echo/", "alice", &fields))
            .await
            .unwrap();
        send(&mut client, length).await;
        let (head, behind) = read_head(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        discard(&mut client, length - behind.len()).await;
    };
    tokio::join!(client, answer_in_kind(listener, length));
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_stays_flat_while_large_bodies_go_up_and_come_down() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = Setup::with_backend(listener.local_addr().unwrap()).start().await;
    let process = Process::start(&world).await;
    exchange(&process, &listener, WARM_UP).await;
    let before = process.peak_kib();
    exchange(&process, &listener, LARGE).await;
    let after = process.peak_kib();
    assert!(
        after - before < GROWTH_KIB,
        "the peak grew from {before} to {after} KiB, {GROWTH_KIB} KiB more are allowed"
    );
}
