//! Looks up addresses of host names by the system's resolver, on separate threads.
//!
//! The system's call cannot be cancelled: while DNS hangs, each lookup holds its thread for up to a minute.
//! In the runtime's pool of blocking threads, such lookups would hold up reloads and withdrawal.
//!
//! Invariant: at most 64 run at once, and one of each name. Who waits does so for at most
//! 10 seconds.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Most lookups at once.
const MAX_LOOKUPS: usize = 64;

/// Longest wait for the addresses of a name.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// After this time, an answer that somebody gave up waiting for counts as missing.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the system's resolver does.
type Resolve = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// The answer of a lookup, in a form that several can have; `None` while there is none.
type Answer = Option<Result<Arc<[IpAddr]>, (io::ErrorKind, Arc<str>)>>;

static SYSTEM: LazyLock<Arc<Lookups>> = LazyLock::new(|| Lookups::new(Box::new(system)));

/// The addresses of a host, which may be an IP address itself. Cancel safe.
///
/// # Errors
/// The name has no address, the resolver did not answer within 10 seconds, or all 64 lookups that may run
/// at once wait for answers.
pub async fn lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let addresses = SYSTEM.lookup(host, MAX_WAIT).await?;
    Ok(addresses
        .iter()
        .map(|address| SocketAddr::new(*address, port))
        .collect())
}

/// How many lookups run now, and how many had no answer in time, also for a caller who gave up after a
/// second or more, or were refused because too many ran.
pub fn counts() -> (usize, u64) {
    let lookups = &**SYSTEM;
    (lookups.lock().len(), lookups.unanswered.load(Ordering::Relaxed))
}

fn system(host: &str) -> io::Result<Vec<IpAddr>> {
    Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

struct Lookups {
    resolve: Box<Resolve>,
    /// Those that run, by name.
    running: Mutex<HashMap<String, watch::Receiver<Answer>>>,
    unanswered: AtomicU64,
}

impl Lookups {
    fn new(resolve: Box<Resolve>) -> Arc<Self> {
        Arc::new(Self {
            resolve,
            running: Mutex::default(),
            unanswered: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<Answer>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn lookup(self: &Arc<Self>, host: &str, max_wait: Duration) -> io::Result<Arc<[IpAddr]>> {
        let unanswered = |why: String| {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            io::Error::new(io::ErrorKind::TimedOut, why)
        };
        let Some(mut answer) = self.join(host)? else {
            let why = format!("`{host}` is not looked up: {MAX_LOOKUPS} names wait for an answer of DNS already");
            return Err(unanswered(why));
        };
        let mut waiting = Waiting {
            unanswered: &self.unanswered,
            since: Instant::now(),
            is_over: false,
        };
        let answered = timeout(max_wait, answer.wait_for(Option::is_some)).await;
        waiting.is_over = true;
        match answered {
            Err(_) => Err(unanswered(format!(
                "DNS did not answer about `{host}` within {max_wait:?}"
            ))),
            // The thread ended without an answer.
            Ok(Err(_)) => Err(io::Error::other(format!("the lookup of `{host}` failed"))),
            Ok(Ok(answer)) => match &*answer {
                Some(Ok(addresses)) => Ok(Arc::clone(addresses)),
                Some(Err((kind, text))) => Err(io::Error::new(*kind, text.to_string())),
                None => Err(io::Error::other(format!("the lookup of `{host}` failed"))),
            },
        }
    }

    /// The lookup of a name that runs, or a new one; `None` if too many run.
    fn join(self: &Arc<Self>, host: &str) -> io::Result<Option<watch::Receiver<Answer>>> {
        let mut running = self.lock();
        if let Some(answer) = running.get(host) {
            return Ok(Some(answer.clone()));
        }
        if running.len() >= MAX_LOOKUPS {
            return Ok(None);
        }
        let (sender, answer) = watch::channel(None);
        running.insert(host.to_owned(), answer.clone());
        let lookup = RunningLookup {
            lookups: Arc::clone(self),
            host: host.to_owned(),
        };
        // Without the lock: if no thread can be started, the drop of `lookup` takes it.
        drop(running);
        let thread = std::thread::Builder::new().name("dns".to_owned());
        thread.spawn(move || {
            let found = (lookup.lookups.resolve)(&lookup.host);
            let found = found
                .map(Arc::from)
                .map_err(|error| (error.kind(), Arc::from(error.to_string())));
            // A caller that asks from here on gets a new lookup.
            drop(lookup);
            sender.send_replace(Some(found));
        })?;
        Ok(Some(answer))
    }
}

/// A caller that waits for an answer. Connections have shorter time limits than lookups: a caller that
/// gave up waiting had no answer either.
struct Waiting<'a> {
    unanswered: &'a AtomicU64,
    since: Instant,
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.since.elapsed() >= PATIENCE {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The place of a lookup, which is free again when this is dropped.
struct RunningLookup {
    lookups: Arc<Lookups>,
    host: String,
}

impl Drop for RunningLookup {
    fn drop(&mut self) {
        self.lookups.lock().remove(&self.host);
    }
}

#[cfg(test)]
mod tests;
