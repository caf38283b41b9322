//! Argo CD's list of revoked tokens. argocd-server writes it to Redis when somebody signs out.
//!
//! The list is kept in memory, so that no request waits for Redis. A revocation is kept until its
//! token must have expired, even if Redis lost it: Argo CD itself accepts such a token again.
//!
//! Security: while Redis does not answer for longer than the grace period, tokens that may be on
//! the list are refused and what they opened ends, unless the settings say otherwise.
//!
//! Invariant: the list is complete up to the last answer of Redis, or it counts as unavailable.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use aws_lc_rs::digest;
use jiff::Timestamp;
use rustc_hash::FxBuildHasher;
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::clock::Clock;
use crate::metrics::Metrics;
use tollgate_config::{ArgocdRedis, WhenUnavailable};
use tollgate_runtime::tasks::Tasks;

mod connection;
mod follow;
#[cfg(test)]
mod tests;

pub use connection::{Error, probe};

/// Most revocations that are kept, 60 MB. If there are more, the list counts as unavailable. A local
/// account makes one with each sign-out, so there are many more than sessions. An alert fires at half
/// of it.
const MAX_REVOCATIONS: usize = 900_000;

/// How long a revocation is kept beyond the time Redis names, because clocks differ.
const CLOCK_SKEW: Duration = Duration::from_mins(5);

/// How long a revocation is kept if Redis names no time: longer than any session should live.
const UNKNOWN_LIFETIME: Duration = Duration::from_hours(24 * 400);

/// How long [`RevokedTokens::catch_up`] waits.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Claims that identify a token on the list. argocd-server writes `jti` or, for a token without
/// it, `at_hash`; it looks for `jti`, for `uti` without it, and for `at_hash` without both (source:
/// `server/logout/logout.go` and `util/session/sessionmanager.go`).
const IDENTIFYING_CLAIMS: [&str; 3] = ["jti", "uti", "at_hash"];

/// The digest of what identifies a token on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TokenId([u8; 32]);

impl TokenId {
    fn of(text: &[u8]) -> Self {
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest::digest(&digest::SHA256, text).as_ref());
        Self(sha256)
    }
}

/// Everything by which a token may be on the list. Empty for tokens that are never on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenIds(Vec<TokenId>);

impl TokenIds {
    /// Reads the claims of a token. Each of the claims counts, so that a token with `uti`, whose
    /// `at_hash` argocd-server writes and never looks for, is revoked as well.
    pub(crate) fn of(claims: &Map<String, Value>) -> Self {
        let texts = IDENTIFYING_CLAIMS
            .iter()
            .filter_map(|claim| claims.get(*claim)?.as_str());
        let texts = texts.filter(|text| !text.is_empty());
        Self(texts.map(|text| TokenId::of(text.as_bytes())).collect())
    }
}

/// What the list says about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevocationStatus {
    /// It is not on the list, or cannot be.
    NotRevoked,
    /// It is on the list.
    Revoked,
    /// It may be on the list, which cannot be read.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Revocation {
    /// When it may be forgotten.
    until: Timestamp,
    /// Whether Redis was asked for the time.
    is_asked: bool,
}

type Revocations = HashMap<TokenId, Revocation, FxBuildHasher>;

/// The list, as far as this process knows it.
#[derive(derive_more::Debug)]
#[debug("RevokedTokens {{ redis: {:?}, .. }}", settings.host)]
pub struct RevokedTokens {
    settings: ArgocdRedis,
    clock: Clock,
    metrics: Arc<Metrics>,
    revocations: RwLock<Revocations>,
    /// Uptime up to which every revocation is known; `None` until the list was read once.
    complete_until: watch::Sender<Option<Duration>>,
    is_full: AtomicBool,
    /// Asks the task that follows the list to ask Redis now.
    ask_now: Arc<Notify>,
    /// Sent when tokens were revoked, and when the list became unavailable.
    changed: watch::Sender<()>,
    /// The tasks that follow the list.
    pub tasks: Tasks,
}

impl RevokedTokens {
    /// Reads the list and follows it until the last clone is dropped. Waits at most some seconds
    /// for Redis; if it does not answer, the list is unavailable until it does.
    pub async fn start(settings: ArgocdRedis, clock: Clock, metrics: Arc<Metrics>) -> Arc<Self> {
        let list = Arc::new(Self::new(settings, clock, metrics));
        follow::start(&list).await;
        list
    }

    fn new(settings: ArgocdRedis, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self {
            settings,
            clock,
            metrics,
            revocations: RwLock::default(),
            complete_until: watch::Sender::new(None),
            is_full: AtomicBool::new(false),
            ask_now: Arc::default(),
            changed: watch::Sender::new(()),
            tasks: Tasks::default(),
        }
    }

    /// Whether tokens that may be on the list are refused, because it is not known well enough.
    pub fn is_unavailable(&self) -> bool {
        match self.settings.when_unavailable {
            WhenUnavailable::Allow => false,
            WhenUnavailable::Deny => self.is_outdated(),
        }
    }

    /// Whether revocations may be missing: Redis was silent for the grace period, or never
    /// answered, or there are too many.
    fn is_outdated(&self) -> bool {
        let Some(complete_until) = *self.complete_until.borrow() else {
            return true;
        };
        let silent_for = self.clock.uptime().saturating_sub(complete_until);
        silent_for > self.settings.grace_period || self.is_full.load(Ordering::SeqCst)
    }

    /// What the list says about a caller's token. Does not wait for Redis.
    pub fn status(&self, token: &TokenIds) -> RevocationStatus {
        if token.0.is_empty() {
            return RevocationStatus::NotRevoked;
        }
        let revocations = self.read();
        // First, because what is on the list was revoked even if the list is outdated.
        if token.0.iter().any(|id| revocations.contains_key(id)) {
            return RevocationStatus::Revoked;
        }
        drop(revocations);
        match self.is_unavailable() {
            true => RevocationStatus::Unknown,
            false => RevocationStatus::NotRevoked,
        }
    }

    /// Waits until everything revoked before the call is on the list, at most a second.
    pub async fn catch_up(&self) {
        let called_at = self.clock.uptime();
        let mut complete_until = self.complete_until.subscribe();
        self.ask_now.notify_one();
        let caught_up = complete_until.wait_for(|until| until.is_some_and(|until| until >= called_at));
        // A Redis that does not answer is reported by the task that follows the list.
        drop(timeout(CATCH_UP, caught_up).await);
    }

    /// Receives a value whenever the status of tokens may have changed for the worse.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Adds tokens that Redis says are revoked, whose time is asked for later. Returns whether all
    /// are on the list now; if not, it counts as unavailable.
    fn revoke<'a>(&self, texts: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let now = self.clock.now();
        let mut revocations = self.write();
        let (before, mut all_fit) = (revocations.len(), true);
        for text in texts {
            let id = TokenId::of(text);
            if revocations.contains_key(&id) {
                continue;
            }
            if revocations.len() >= MAX_REVOCATIONS {
                all_fit = false;
                break;
            }
            let revocation = Revocation {
                until: after(now, UNKNOWN_LIFETIME),
                is_asked: false,
            };
            revocations.insert(id, revocation);
        }
        let count = revocations.len();
        drop(revocations);
        self.metrics
            .revoked_tokens
            .set(i64::try_from(count).unwrap_or(i64::MAX));
        if !all_fit && !self.is_full.swap(true, Ordering::SeqCst) {
            tracing::error!(
                allowed = MAX_REVOCATIONS,
                "Argo CD's Redis has more revoked tokens than are kept: shorten `users.session.duration`"
            );
        }
        if count > before {
            self.changed.send_replace(());
        }
        all_fit
    }

    /// Notes how long Redis keeps a revocation; `None` if it names no time.
    fn set_lifetime(&self, text: &[u8], lifetime: Option<Duration>) {
        let lifetime = lifetime.map_or(UNKNOWN_LIFETIME, |lifetime| lifetime.saturating_add(CLOCK_SKEW));
        let until = after(self.clock.now(), lifetime);
        if let Some(revocation) = self.write().get_mut(&TokenId::of(text)) {
            *revocation = Revocation { until, is_asked: true };
        }
    }

    /// Whether Redis was not asked yet how long it keeps this revocation.
    fn needs_lifetime(&self, text: &[u8]) -> bool {
        let revocations = self.read();
        let revocation = revocations.get(&TokenId::of(text));
        revocation.is_some_and(|revocation| !revocation.is_asked)
    }

    fn forget_expired(&self) {
        let now = self.clock.now();
        let mut revocations = self.write();
        revocations.retain(|_, revocation| revocation.until > now);
        let count = revocations.len();
        drop(revocations);
        self.metrics
            .revoked_tokens
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Notes that everything revoked before this uptime is on the list, unless it is full.
    fn set_complete(&self, uptime: Duration) {
        self.complete_until.send_replace(Some(uptime));
    }

    fn read(&self) -> RwLockReadGuard<'_, Revocations> {
        self.revocations.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Revocations> {
        self.revocations.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn after(now: Timestamp, time: Duration) -> Timestamp {
    now.checked_add(time).unwrap_or(Timestamp::MAX)
}
