//! Tracks open exchanges, each with its [`Reauthorize`], and reauthorizes them whenever a
//! snapshot comes into force. An exchange ends unless the new snapshot permits it likewise: with
//! the same identity, to the same upstream, by the same verdict. An exchange also ends when Argo CD
//! revokes its caller's token.
//!
//! Reauthorization runs off the threads that serve, and holds no lock.
//!
//! Invariant: an exchange stays open only while the newest snapshot that exchanges were
//! reauthorized by permits it. An exchange that begins while a snapshot comes into force is either
//! among those that are reauthorized, or sees the new snapshot when it is registered and is
//! reauthorized there. The same holds for an exchange that begins while its token is revoked.

use http::StatusCode;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::{FxBuildHasher, FxHashMap};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use uuid::Uuid;

use crate::Denial;
use crate::snapshot::{CurrentSnapshot, Snapshot};
use tollgate_identity::authenticate::Principal;
use tollgate_identity::revoked_tokens::{RevocationStatus, RevokedTokens};
use tollgate_identity::sessions::{EndReason, EndSignal, EndTrigger, ExchangeGuard, SessionRegistry};
use tollgate_proxy::forward;
use tollgate_proxy::metrics::{Counted, Metrics};
use tollgate_proxy::record::Recorder;
use tollgate_rego::Front;

/// Number of shards. Exchanges are spread over them so that requests do not wait for each other.
const SHARDS: usize = 32;

/// How much longer an exchange may stay open that may have ended its own caller's session, such as a
/// change of the password: argocd-server answers it only after the session has ended. It must be less
/// than the second within which access ends.
const OWN_SESSION_GRACE: Duration = Duration::from_millis(500);

/// What a front keeps of an exchange that it permitted, to be asked again of every new snapshot. Equal values
/// have equal answers and are asked once for each change.
pub trait Reauthorize: Key + fmt::Debug + Send + Sync {
    /// The front, as decision records name it.
    fn front(&self) -> &'static str;

    /// The caller; `None` if the credential is not one of Argo CD's.
    fn principal(&self) -> Option<&Principal>;

    /// Whether a snapshot permits the exchange likewise: with the same identity, to the same upstream, by the
    /// same verdict.
    fn is_allowed_by(&self, now: &Snapshot) -> bool;

    /// Whether everything that [`Self::is_allowed_by`] reads is the same in both snapshots. Most changes of
    /// objects do not affect authorization, so nothing has to be asked again after them.
    fn inputs_unchanged(&self, change: &Change<'_>) -> bool;

    /// Whether the exchange may itself end its caller's session.
    fn may_end_own_session(&self) -> bool {
        false
    }
}

/// Equality and hash of values whose type is not known.
pub trait Key: Any {
    /// Whether `other` has the same type and value.
    fn is_equal(&self, other: &dyn Any) -> bool;
    /// Hashes type and value.
    fn add_hash(&self, state: &mut dyn Hasher);
}

impl<T: Eq + Hash + 'static> Key for T {
    fn is_equal(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| self == other)
    }

    fn add_hash(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }
}

impl PartialEq for dyn Reauthorize {
    fn eq(&self, other: &Self) -> bool {
        let other: &dyn Any = other;
        self.is_equal(other)
    }
}

impl Eq for dyn Reauthorize {}

impl Hash for dyn Reauthorize {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.add_hash(state);
    }
}

impl dyn Reauthorize {
    /// Whether `now`, and the snapshot that narrows it, permit the exchange likewise.
    fn is_still_allowed(&self, now: &Snapshot) -> bool {
        // SECURITY: if reauthorization panics, the exchange ends.
        let asks = |now: &Snapshot| catch_unwind(AssertUnwindSafe(|| self.is_allowed_by(now))).unwrap_or(false);
        asks(now) && now.narrowed_by.as_ref().is_none_or(|narrower| asks(narrower))
    }
}

/// What is the same in two snapshots.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The snapshot that permitted everything that is open.
    pub before: &'a Snapshot,
    /// The new one.
    pub now: &'a Snapshot,
}

impl Change<'_> {
    /// Whether one of them is restricted by a refused load.
    pub fn is_narrowed(&self) -> bool {
        self.before.narrowed_by.is_some() || self.now.narrowed_by.is_some()
    }

    /// Who is authenticated, and how.
    pub fn same_callers(&self) -> bool {
        // By pointer: an equal value that was made anew counts as changed, which costs time but never keeps access.
        !self.is_narrowed() && Arc::ptr_eq(&self.before.authenticator, &self.now.authenticator)
    }

    /// The same, and what RBAC permits them.
    pub fn same_permissions(&self) -> bool {
        self.same_callers() && Arc::ptr_eq(&self.before.policies.rbac, &self.now.policies.rbac)
    }

    /// Whether clusters and their credentials are the same.
    pub fn same_clusters(&self) -> bool {
        Arc::ptr_eq(&self.before.clusters, &self.now.clusters)
    }

    /// Whether all objects are the same.
    pub fn same_resources(&self) -> bool {
        Arc::ptr_eq(&self.before.policies.resources, &self.now.policies.resources)
    }

    /// Whether both have the same Applications, and permit the same with them.
    pub fn same_applications(&self) -> bool {
        let index = |snapshot: &Snapshot| Some(Arc::as_ptr(&snapshot.policies.applications.as_ref()?.index));
        self.same_permissions()
            && self.same_clusters()
            && self.same_resources()
            && index(self.before) == index(self.now)
            && self.same_bundle(Front::Applications)
    }

    /// Whether a front has the same bundle, or none, in both.
    pub fn same_bundle(&self, front: Front) -> bool {
        match (self.before.policies.bundle(front), self.now.policies.bundle(front)) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

/// A pointer that is equal to itself and its clones, and hashes accordingly.
#[derive(Debug)]
pub struct PtrEqArc<T>(pub Arc<T>);

impl<T> PartialEq for PtrEqArc<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Eq for PtrEqArc<T> {}

impl<T> Hash for PtrEqArc<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

#[derive(Debug)]
struct Exchange<R: ?Sized = dyn Reauthorize> {
    end_trigger: Arc<EndTrigger>,
    /// The session that also counts the exchange and records its end.
    session: Option<Arc<ExchangeGuard>>,
    _counted: Counted,
    reauthorization: R,
}

impl Exchange {
    /// Ends the exchange. Returns whether it was still open.
    fn end(&self, reason: EndReason) -> bool {
        match &self.session {
            Some(session) => session.end(reason),
            None => self.end_trigger.end(reason),
        }
    }

    /// Ends the exchange because access ended after it began: at once, or after [`OWN_SESSION_GRACE`].
    /// Returns whether it was still open.
    ///
    /// # Panics
    /// If it is called outside of a runtime.
    fn withdraw(self: &Arc<Self>, reason: EndReason) -> bool {
        if !self.reauthorization.may_end_own_session() {
            return self.end(reason);
        }
        let exchange = Arc::clone(self);
        tokio::spawn(async move {
            sleep(OWN_SESSION_GRACE).await;
            exchange.end(reason);
        });
        self.end_trigger.end_reason().is_none()
    }

    /// Why the exchange must end, if its caller's login ended or the caller was locked.
    fn withdrawal(&self, now: &Snapshot, sessions: &SessionRegistry) -> Option<EndReason> {
        let principal = self.reauthorization.principal()?;
        // Fails closed: among the locks that cannot be read may be one of this caller.
        if now.authenticator.is_lock_unknown(principal) {
            return Some(EndReason::StoreUnavailable);
        }
        let login = principal.login().map(|login| login.login.session());
        let is_over = login.is_some_and(|session| sessions.is_revoked(&session));
        (is_over || now.authenticator.is_locked(principal)).then_some(EndReason::Revoked)
    }

    /// Why the exchange must end, if Argo CD revoked its token or may have.
    fn revocation(&self, revoked: &RevokedTokens) -> Option<EndReason> {
        match revoked.status(self.reauthorization.principal()?.token_ids()) {
            RevocationStatus::NotRevoked => None,
            RevocationStatus::Revoked => Some(EndReason::Revoked),
            RevocationStatus::Unknown => Some(EndReason::RevocationsUnavailable),
        }
    }
}

type Shard = FxHashMap<u64, Arc<Exchange>>;

/// All open exchanges, of all fronts. There is one for each process.
#[derive(Debug)]
pub struct OpenExchanges {
    shards: [Mutex<Shard>; SHARDS],
    next: AtomicU64,
    current: CurrentSnapshot,
    recorder: Arc<Recorder>,
    metrics: Arc<Metrics>,
    /// Tokens that Argo CD revoked; `None` if its Redis is not read.
    revoked: Option<Arc<RevokedTokens>>,
    /// Logins that ended, and who is locked; `None` if nothing is stored.
    sessions: Option<Arc<SessionRegistry>>,
    changed: Notify,
    /// The newest snapshot by which all open exchanges were reauthorized.
    reauthorized: watch::Sender<Arc<Snapshot>>,
}

/// The registration of an open exchange. Dropping it unregisters the exchange.
#[derive(Debug)]
pub struct OpenExchangeGuard {
    all: Arc<OpenExchanges>,
    number: u64,
    decision: Uuid,
    end_trigger: Arc<EndTrigger>,
}

/// Access ended after a request was permitted and before its exchange began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("access was withdrawn")]
pub struct NotAdmitted(pub EndReason);

impl OpenExchanges {
    /// An empty registry, for `current`.
    pub fn new(
        current: CurrentSnapshot,
        recorder: Arc<Recorder>,
        metrics: Arc<Metrics>,
        revoked: Option<Arc<RevokedTokens>>,
        sessions: Option<Arc<SessionRegistry>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            next: AtomicU64::new(0),
            reauthorized: watch::Sender::new(current.load_full()),
            current,
            recorder,
            metrics,
            revoked,
            sessions,
            changed: Notify::new(),
        })
    }

    /// Signals that another snapshot is in force.
    pub fn changed(&self) {
        self.changed.notify_one();
    }

    /// Reauthorizes all open exchanges after every change, for as long as it is polled. Changes
    /// that arrive meanwhile are handled together.
    pub async fn run(self: Arc<Self>) {
        loop {
            self.changed.notified().await;
            let now = self.current.load_full();
            let before = Arc::clone(&self.reauthorized.borrow());
            // A change that arrived during the last round may have been part of it already.
            if Arc::ptr_eq(&before, &now) {
                continue;
            }
            let (here, by) = (Arc::clone(&self), Arc::clone(&now));
            let begun = Instant::now();
            let ended = tokio::task::spawn_blocking(move || here.reauthorize_all(&before, &by)).await;
            let metrics = &self.metrics.load;
            metrics.reauthorization.observe(begun.elapsed().as_secs_f64());
            metrics.withdrawal_lag.observe(now.begun.elapsed().as_secs_f64());
            match ended {
                Ok(0) => {}
                Ok(ended) => tracing::info!(ended, "ended exchanges that are no longer permitted"),
                Err(error) => tracing::error!(%error, "reauthorization of open exchanges failed"),
            }
            let before = self.reauthorized.send_replace(now);
            // Freeing a snapshot takes milliseconds.
            drop(tokio::task::spawn_blocking(move || drop(before)));
        }
    }

    /// Ends everything that is open, because the process stops. Returns how much it was.
    pub fn end_all(&self) -> usize {
        let is_ended = |exchange: &&Arc<Exchange>| exchange.end(EndReason::Stopping);
        self.open().iter().filter(is_ended).count()
    }

    /// Ends what callers have open whose login ended, or who were locked, for as long as it is polled.
    pub async fn follow_withdrawals(self: Arc<Self>, sessions: Arc<SessionRegistry>) {
        let mut changes = sessions.withdrawals();
        // A caller may have been locked before this task ran, and have something open.
        changes.mark_changed();
        while changes.changed().await.is_ok() {
            let now = self.current.load_full();
            let must_end = |exchange: &Arc<Exchange>| {
                let reason = exchange.withdrawal(&now, &sessions);
                reason.is_some_and(|reason| exchange.withdraw(reason))
            };
            let ended = self.open().iter().filter(|exchange| must_end(exchange)).count();
            if ended > 0 {
                tracing::info!(ended, "ended exchanges of callers who signed out or were locked");
            }
        }
    }

    /// Waits until the list of revoked tokens has what argocd-server just added, if it is read.
    pub async fn await_sign_out(&self) {
        if let Some(revoked) = &self.revoked {
            revoked.catch_up().await;
        }
    }

    /// Ends the exchanges of tokens that Argo CD revoked, for as long as it is polled.
    pub async fn follow_revocations(self: Arc<Self>) {
        let Some(revoked) = &self.revoked else { return };
        let mut changes = revoked.subscribe();
        // What was revoked before this task ran may have something open as well.
        changes.mark_changed();
        while changes.changed().await.is_ok() {
            let must_end = |exchange: &Arc<Exchange>| {
                let reason = exchange.revocation(revoked);
                reason.is_some_and(|reason| exchange.withdraw(reason))
            };
            let ended = self.open().iter().filter(|exchange| must_end(exchange)).count();
            if ended > 0 {
                tracing::info!(ended, "ended exchanges of revoked sessions");
            }
        }
    }

    /// Receives each snapshot once all open exchanges were reauthorized by it.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.reauthorized.subscribe()
    }

    /// Registers an exchange that `snapshot` permits.
    ///
    /// - `decision`: id of the record of its decision.
    ///
    /// # Errors
    /// A snapshot that came into force meanwhile does not permit it, or Argo CD revoked the token.
    pub fn register(
        self: &Arc<Self>,
        reauthorization: impl Reauthorize,
        snapshot: &Snapshot,
        decision: Uuid,
    ) -> Result<OpenExchangeGuard, NotAdmitted> {
        self.register_with_session(reauthorization, snapshot, decision, None)
    }

    /// Same as [`OpenExchanges::register`], for a session that also counts the exchange.
    pub fn register_with_session(
        self: &Arc<Self>,
        reauthorization: impl Reauthorize,
        snapshot: &Snapshot,
        decision: Uuid,
        session: Option<Arc<ExchangeGuard>>,
    ) -> Result<OpenExchangeGuard, NotAdmitted> {
        let end_trigger: Arc<EndTrigger> = match &session {
            Some(session) => Arc::clone(session.end_trigger()),
            None => Arc::default(),
        };
        let recorder = Arc::clone(&self.recorder);
        // Before the insertion, after which another thread may end the exchange.
        end_trigger.on_end(move |ending| recorder.ended(decision, ending.code()));
        let exchange: Arc<Exchange> = Arc::new(Exchange {
            end_trigger: Arc::clone(&end_trigger),
            session,
            _counted: Counted::in_gauge(&self.metrics.load.open_exchanges(reauthorization.front())),
            reauthorization,
        });
        // Before the insertion, so that every way out of this function removes the exchange again.
        let guard = OpenExchangeGuard {
            all: Arc::clone(self),
            number: self.next.fetch_add(1, Ordering::Relaxed),
            decision,
            end_trigger,
        };
        self.shard(guard.number).insert(guard.number, Arc::clone(&exchange));
        // This must come after the insertion: see the invariant above.
        let current = self.current.load();
        // The permit did not ask the refused load that narrows a snapshot, so a narrowed one is always asked here.
        let is_current = current.generation == snapshot.generation && current.narrowed_by.is_none();
        let ending = match !is_current && !exchange.reauthorization.is_still_allowed(&current) {
            true => Some(EndReason::Withdrawn),
            false => {
                let revocation = self.revoked.as_ref().and_then(|revoked| exchange.revocation(revoked));
                let withdrawal = || exchange.withdrawal(&current, self.sessions.as_ref()?);
                revocation.or_else(withdrawal)
            }
        };
        match ending {
            None => Ok(guard),
            Some(reason) => {
                exchange.end(reason);
                Err(NotAdmitted(reason))
            }
        }
    }

    /// Ends the exchanges that `now` does not permit. Returns how many it ended.
    fn reauthorize_all(&self, before: &Snapshot, now: &Snapshot) -> usize {
        let change = Change { before, now };
        let mut verdicts: HashMap<&dyn Reauthorize, bool, FxBuildHasher> = HashMap::default();
        let mut ended = 0_usize;
        let open = self.open();
        for exchange in &open {
            let asked = catch_unwind(AssertUnwindSafe(|| {
                let reauthorization = &exchange.reauthorization;
                if reauthorization.inputs_unchanged(&change) || exchange.end_trigger.end_reason().is_some() {
                    return false;
                }
                // Thousands of watches of one controller ask the same question.
                let is_allowed = *verdicts
                    .entry(reauthorization)
                    .or_insert_with(|| reauthorization.is_still_allowed(now));
                !is_allowed && exchange.withdraw(EndReason::Withdrawn)
            }));
            // SECURITY: after a panic nobody knows whether it is allowed, and the others are still to be asked.
            let end = || catch_unwind(AssertUnwindSafe(|| exchange.end(EndReason::Withdrawn))).unwrap_or(true);
            ended = ended.saturating_add(usize::from(asked.unwrap_or_else(|_| end())));
        }
        ended
    }

    /// Copies the list, so that reauthorization holds no lock while exchanges begin and end.
    fn open(&self) -> Vec<Arc<Exchange>> {
        let copied = |shard| lock(shard).values().cloned().collect::<Vec<_>>();
        self.shards.iter().flat_map(copied).collect()
    }

    #[expect(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        reason = "the remainder is below the length; the upper bits may go"
    )]
    fn shard(&self, number: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[number as usize % SHARDS])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A panic elsewhere must not keep the gateway from ending exchanges.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenExchangeGuard {
    /// Checks that access has not ended. For an answer that is made after something was awaited.
    ///
    /// # Errors
    /// [`NotAdmitted`], with the reason.
    pub fn check(&self) -> Result<(), NotAdmitted> {
        self.end_trigger
            .end_reason()
            .map_or(Ok(()), |reason| Err(NotAdmitted(reason)))
    }

    /// The signal that ends the exchange.
    pub fn ending(&self) -> EndSignal {
        EndSignal::new(&self.end_trigger)
    }
}

impl Drop for OpenExchangeGuard {
    fn drop(&mut self) {
        self.all.shard(self.number).remove(&self.number);
        if let Some(ending) = self.end_trigger.end_reason() {
            // The exchange may have ended before the record of its start was closed.
            self.all.recorder.amend(self.decision, ending.code());
        }
    }
}

impl From<NotAdmitted> for Denial {
    fn from(error: NotAdmitted) -> Self {
        match error {
            NotAdmitted(EndReason::Withdrawn) => {
                Self::denied(StatusCode::FORBIDDEN, EndReason::Withdrawn.code(), error.to_string()).caused_by(error)
            }
            NotAdmitted(ending) => forward::Error::Ended(ending).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use crate::sources;

    /// Questions are keys of a map. A hash that leaves out what distinguishes thousands of them, as the
    /// cluster does for Argo CD's watches, makes each change cost their square. So a hash is derived,
    /// and these take in all that their equality does, or nearly: that of `dyn Reauthorize` is the derived one of
    /// the type behind it.
    #[test]
    fn a_hash_is_derived_like_the_equality_beside_it() {
        let host = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = Vec::new();
        for path in sources::rust_files(host) {
            let text = fs::read_to_string(&path).unwrap();
            let by_hand = text
                .lines()
                .map(str::trim)
                .filter(|line| line.starts_with("impl") && line.contains(" Hash for ") && line.ends_with('{'));
            found.extend(by_hand.map(|line| format!("{}: {line}", path.strip_prefix(host).unwrap().display())));
        }
        found.sort();
        assert_eq!(
            found,
            [
                "argocd-fronts/src/extensions.rs: impl Hash for Terms {",
                "front/src/open_exchanges.rs: impl Hash for dyn Reauthorize {",
                "front/src/open_exchanges.rs: impl<T> Hash for PtrEqArc<T> {",
            ]
        );
    }
}
