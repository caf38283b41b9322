//! The task that follows the list: it connects, reads the list, receives revocations, and begins
//! again when the connection is lost.
//!
//! Invariant: the list counts as complete up to the last request that Redis answered on a
//! connection that was subscribed before the list was read.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::RevokedTokens;
use super::connection::{Connection, Error};
use crate::sharded::lock;

/// How often Redis is asked whether it still answers.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// How often the whole list is read, as argocd-server does.
const SCAN_INTERVAL: Duration = Duration::from_secs(15);
/// Shortest and longest time between two attempts to connect. Each is twice as long as the one
/// before.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));
/// Most published revocations whose time is still to be asked for; the next scan finds the others.
const MAX_PUBLISHED: usize = 10_000;

/// Revocations that were published and whose time was not asked for.
type Published = Arc<Mutex<Vec<Vec<u8>>>>;

/// A connection on which the whole list was read once.
struct Follower {
    connection: Connection,
    published: Published,
    scanned_at: Duration,
}

/// Tries once to read the list, then follows it in the background until the list is dropped.
pub(super) async fn start(list: &Arc<RevokedTokens>) {
    let mut health = Health::default();
    let first = Follower::connect(list).await;
    health.note(list, first.as_ref().err());
    let tasks = &list.tasks;
    tasks.spawn("revoked tokens", run(Arc::downgrade(list), first.ok(), health));
    tasks.spawn("outages of Argo CD's Redis", report_outages(Arc::downgrade(list)));
}

async fn run(list: Weak<RevokedTokens>, mut follower: Option<Follower>, mut health: Health) {
    let (shortest, longest) = BACKOFF;
    let mut pause = shortest;
    loop {
        if let Some(follower) = follower.take() {
            pause = shortest;
            let Some(error) = follower.follow(&list).await else {
                return;
            };
            let Some(list) = list.upgrade() else { return };
            health.note(&list, Some(&error));
        }
        // Only the clock, because the pause must not keep the list alive.
        let Some(clock) = list.upgrade().map(|list| list.clock.clone()) else {
            return;
        };
        clock.sleep(pause).await;
        pause = pause.saturating_mul(2).min(longest);
        let Some(list) = list.upgrade() else { return };
        let connected = Follower::connect(&list).await;
        health.note(&list, connected.as_ref().err());
        follower = connected.ok();
    }
}

/// Tells those who wait for changes when the list becomes unavailable, regardless of Redis.
async fn report_outages(list: Weak<RevokedTokens>) {
    let mut was_outdated = false;
    loop {
        let Some(list) = list.upgrade() else { return };
        let is_outdated = list.is_outdated();
        list.metrics.revoked_tokens_unavailable.set(i64::from(is_outdated));
        if is_outdated && list.is_unavailable() {
            if !was_outdated {
                let grace = list.settings.grace_period;
                tracing::error!(
                    ?grace,
                    "Argo CD's list of revoked tokens is unavailable: its sessions are refused, and what they opened \
                     ends"
                );
            }
            list.changed.send_replace(());
        }
        was_outdated = is_outdated;
        let clock = list.clock.clone();
        // While this task waits, it must not keep the list alive.
        drop(list);
        clock.sleep(PING_INTERVAL / 2).await;
    }
}

impl Follower {
    /// Connects and reads the whole list.
    async fn connect(list: &Arc<RevokedTokens>) -> Result<Self, Error> {
        let published = Published::default();
        let (weak, queue) = (Arc::downgrade(list), Arc::clone(&published));
        let on_revoked = move |id: &[u8]| {
            if let Some(list) = Weak::upgrade(&weak) {
                // At once. How long Redis keeps it is asked for with the next ping.
                list.revoke([id]);
            }
            let mut queue = lock(&queue);
            if queue.len() < MAX_PUBLISHED {
                queue.push(id.to_vec());
            }
        };
        let mut follower = Self {
            connection: Connection::open(&list.settings, on_revoked).await?,
            published,
            scanned_at: Duration::ZERO,
        };
        follower.scan(list).await?;
        Ok(follower)
    }

    /// Returns why the connection cannot be used any more; `None` if the list was dropped.
    async fn follow(mut self, list: &Weak<RevokedTokens>) -> Option<Error> {
        loop {
            let (clock, ask_now) = {
                let list = list.upgrade()?;
                (list.clock.clone(), Arc::clone(&list.ask_now))
            };
            tokio::select! {
                error = self.connection.lost() => return Some(error),
                () = ask_now.notified() => {}
                () = clock.sleep(PING_INTERVAL) => {}
            }
            let list = list.upgrade()?;
            let is_due = clock.uptime().saturating_sub(self.scanned_at) >= SCAN_INTERVAL;
            let answered = match is_due {
                true => self.scan(&list).await,
                false => self.ping(&list).await,
            };
            if let Err(error) = answered {
                return Some(error);
            }
        }
    }

    /// Adds everything on the list, and forgets what has expired.
    async fn scan(&mut self, list: &RevokedTokens) -> Result<(), Error> {
        let begun_at = list.clock.uptime();
        let (mut position, mut all_fit) = (0, true);
        // First, because a list that is full takes no revocations.
        list.forget_expired();
        loop {
            let (next, ids) = self.connection.scan(position).await?;
            all_fit &= list.revoke(ids.iter().map(Vec::as_slice));
            let unasked: Vec<_> = ids.into_iter().filter(|id| list.needs_lifetime(id)).collect();
            self.read_lifetimes(list, &unasked).await?;
            if next == 0 {
                break;
            }
            position = next;
        }
        list.is_full.store(!all_fit, Ordering::SeqCst);
        // Not the end: a scan may miss what was revoked since it began. That was published on this connection.
        list.set_complete(begun_at);
        self.scanned_at = begun_at;
        Ok(())
    }

    async fn ping(&mut self, list: &RevokedTokens) -> Result<(), Error> {
        let begun_at = list.clock.uptime();
        let published = std::mem::take(&mut *lock(&self.published));
        // Any answer proves what that to a ping does.
        match published.is_empty() {
            true => self.connection.ping().await?,
            false => self.read_lifetimes(list, &published).await?,
        }
        list.set_complete(begun_at);
        Ok(())
    }

    async fn read_lifetimes(&mut self, list: &RevokedTokens, ids: &[Vec<u8>]) -> Result<(), Error> {
        let lifetimes = self.connection.lifetimes(ids.iter()).await?;
        for (id, lifetime) in ids.iter().zip(lifetimes) {
            list.set_lifetime(id, lifetime);
        }
        Ok(())
    }
}

/// Whether Redis answers; logged once whenever that changes.
#[derive(Default)]
struct Health {
    is_failing: bool,
}

impl Health {
    fn note(&mut self, list: &RevokedTokens, error: Option<&Error>) {
        match error {
            None if self.is_failing => tracing::info!("Argo CD's Redis answers again"),
            Some(error) if !self.is_failing => tracing::warn!(
                %error,
                advice = error.advice(),
                "Argo CD's list of revoked tokens cannot be read; trying again until it works"
            ),
            None | Some(_) => {}
        }
        if error.is_some() {
            list.metrics.argocd_redis_failures.inc();
        }
        self.is_failing = error.is_some();
    }
}
