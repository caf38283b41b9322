//! A resolver that hangs.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use super::{Lookups, MAX_LOOKUPS, PATIENCE, lookup};

const FOUND: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Enough for a thread to answer, on a busy machine as well.
const ENOUGH: Duration = Duration::from_secs(60);

/// For what gets no answer.
const SHORT: Duration = Duration::from_millis(10);

/// A resolver whose answers about names that begin with `slow` wait until it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    asked: AtomicUsize,
}

impl Gate {
    /// Waits until so many lookups have begun. Their threads may not have run yet.
    async fn until_asked(&self, times: usize) {
        let asked = async {
            while self.asked.load(Ordering::SeqCst) < times {
                tokio::task::yield_now().await;
            }
        };
        timeout(ENOUGH, asked).await.expect("too few lookups");
        assert_eq!(self.asked.load(Ordering::SeqCst), times);
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

fn gated() -> (Arc<Gate>, Arc<Lookups>) {
    let gate = Arc::new(Gate::default());
    let behind = Arc::clone(&gate);
    let lookups = Lookups::new(Box::new(move |host| {
        behind.asked.fetch_add(1, Ordering::SeqCst);
        if host.starts_with("slow") {
            let is_open = behind.is_open.lock().unwrap();
            drop(behind.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
        }
        match host {
            "none" => Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
            "broken" => panic!("a simulated bug"),
            _ => Ok(vec![FOUND]),
        }
    }));
    (gate, lookups)
}

#[tokio::test]
async fn names_that_hang_hold_up_neither_others_nor_the_runtimes_threads() {
    let (gate, lookups) = gated();
    // Ten waits for each of a few names that get no answer: one lookup each.
    let waits = (0..30).map(|number| {
        let lookups = Arc::clone(&lookups);
        tokio::spawn(async move { lookups.lookup(&format!("slow-{}", number % 3), SHORT).await })
    });
    let waits: Vec<_> = waits.collect();
    tokio::task::yield_now().await;
    assert_eq!(lookups.lock().len(), 3);
    assert_eq!(*lookups.lookup("good", ENOUGH).await.unwrap(), [FOUND]);
    for error in join_all(waits).await {
        let error = error.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("DNS did not answer about `slow-"), "{error}");
    }
    gate.until_asked(4).await;
    assert_eq!(lookups.lock().len(), 3);
    assert_eq!(lookups.unanswered.load(Ordering::Relaxed), 30);
    gate.open();
}

#[tokio::test]
async fn lookups_are_bounded_and_begin_again_when_dns_answers() {
    let (gate, lookups) = gated();
    let names: Vec<_> = (0..MAX_LOOKUPS).map(|number| format!("slow-{number}")).collect();
    let before = join_all(names.iter().map(|name| lookups.lookup(name, SHORT))).await;
    assert!(before.iter().all(Result::is_err));
    let refused = lookups.lookup("good", ENOUGH).await.unwrap_err();
    assert!(
        refused.to_string().contains("wait for an answer of DNS already"),
        "{refused}"
    );
    gate.until_asked(MAX_LOOKUPS).await;
    // Recovery by itself.
    gate.open();
    while !lookups.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*lookups.lookup("good", ENOUGH).await.unwrap(), [FOUND]);
    assert_eq!(*lookups.lookup("slow-0", ENOUGH).await.unwrap(), [FOUND]);
}

#[tokio::test]
async fn who_gives_up_after_a_second_had_no_answer() {
    let (gate, lookups) = gated();
    let given_up = timeout(PATIENCE + SHORT, lookups.lookup("slow", ENOUGH)).await;
    assert!(given_up.is_err());
    assert_eq!(lookups.unanswered.load(Ordering::Relaxed), 1);
    gate.open();
}

#[tokio::test]
async fn errors_and_panics_free_the_place() {
    let (_, lookups) = gated();
    let none = lookups.lookup("none", ENOUGH).await.unwrap_err();
    assert_eq!(
        (none.kind(), none.to_string()),
        (io::ErrorKind::NotFound, "no such name".to_owned())
    );
    assert!(lookups.lookup("broken", ENOUGH).await.is_err());
    while !lookups.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*lookups.lookup("good", ENOUGH).await.unwrap(), [FOUND]);
}

#[tokio::test]
async fn addresses_and_names_of_this_machine_are_found() {
    for (host, expected) in [("127.0.0.1", "127.0.0.1:7"), ("::1", "[::1]:7"), ("[::1]", "[::1]:7")] {
        assert_eq!(lookup(host, 7).await.unwrap(), [expected.parse().unwrap()]);
    }
    let own = lookup("localhost", 7).await.unwrap();
    assert!(
        own.iter()
            .all(|address| address.ip().is_loopback() && address.port() == 7)
            && !own.is_empty()
    );
}
