//! Tracks sessions with their open requests and streams, and ends those of a session that was
//! revoked or has expired.
//!
//! Security: a revoked or expired session has nothing open a second later. A process that cannot
//! learn of revocations for longer than its grace period ends everything it has open.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use jiff::Timestamp;
use tokio::sync::watch;
use uuid::Uuid;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::person::{PersonNames, linked_person};
use tollgate_config::UserClaimMapping;
use tollgate_core::agent::AgentId;
use tollgate_core::attributes::Attributes;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::User;
use tollgate_objects::people::UserDirectory;
use tollgate_runtime::tasks::Tasks;
use tollgate_store::{
    self as store, ActiveSession, ActiveSessionCursor, Actor, CredentialFilter, Page, SessionOwner, Store,
};

mod list;
mod signal;
pub(crate) mod table;
mod task;
mod tunnel;

pub use signal::{ClosableConnection, EndSignal, EndTrigger, PendingClose, PolledEndSignal};

use table::{Deregistered, EndedExchange, OpenExchange, SessionTable};
use task::Cursor;
pub use tunnel::TunnelTraffic;

/// How long after its last request a session counts as active.
pub const ACTIVE_WINDOW: Duration = Duration::from_mins(10);

/// A replica that has not reported for this long counts as having nothing open.
const REPLICA_TIMEOUT: Duration = Duration::from_secs(20);

/// Rows per transaction. Requests wait for it with their own transactions.
const ROWS_PER_TRANSACTION: usize = 500;

/// How long the revocation of a session is kept if its credentials are made elsewhere and may be
/// renewed: longer than any of them should live.
const RENEWABLE: Duration = Duration::from_hours(24 * 400);

/// Why an exchange ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
pub enum EndReason {
    /// Somebody revoked the session.
    Revoked,
    /// The credential expired.
    Expired,
    /// The configuration in force now would not let it in, or not in the same way.
    Withdrawn,
    /// The store did not answer for the grace period, so the session may have been revoked.
    StoreUnavailable,
    /// Argo CD's Redis did not answer for the grace period, so the token may have been revoked.
    RevocationsUnavailable,
    /// The gateway stops, and what is still open ends some time before its connections are cut.
    Stopping,
}

impl EndReason {
    /// The reason in audit events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Revoked => "session revoked",
            Self::Expired => "credential expired",
            Self::Withdrawn => "access withdrawn",
            Self::StoreUnavailable => "store unavailable",
            Self::RevocationsUnavailable => "revocations unavailable",
            Self::Stopping => "gateway stopping",
        }
    }

    /// The stable reason code in decision records and answers.
    pub fn code(self) -> &'static str {
        match self {
            Self::Revoked => "session_revoked",
            Self::Expired => "credential_ended",
            Self::Withdrawn => "access_withdrawn",
            Self::StoreUnavailable => "store_unavailable",
            Self::RevocationsUnavailable => "revocations_unavailable",
            Self::Stopping => "gateway_stopping",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum ExchangeKind {
    /// A request that soon ends by itself.
    Request,
    /// A watch or a log.
    Stream,
    /// A connection that changes protocol.
    Tunnel,
}

impl ExchangeKind {
    fn of(attributes: &Attributes) -> Self {
        let is_log = attributes.subresource.as_deref() == Some("log");
        match attributes.upgrade {
            Some(_) => Self::Tunnel,
            None if attributes.verb == "watch" || is_log => Self::Stream,
            None => Self::Request,
        }
    }
}

/// An exchange that is about to begin.
#[derive(Debug)]
pub struct NewExchange {
    kind: ExchangeKind,
    decision: Uuid,
    client: IpAddr,
    attributes: Arc<Attributes>,
}

impl NewExchange {
    /// - `decision`: id of the record that lets it pass, its Audit-ID.
    /// - `client`: its address as the kernel sees it.
    pub fn new(attributes: Arc<Attributes>, decision: Uuid, client: IpAddr) -> Self {
        Self {
            kind: ExchangeKind::of(&attributes),
            decision,
            client: client.to_canonical(),
            attributes,
        }
    }
}

/// The holder of a session, and the agent it is used for.
#[derive(Clone, Copy, Debug)]
pub struct SessionHolder<'a> {
    /// The session; it can be revoked.
    pub session: &'a SessionId,
    /// The person whose session it is.
    pub user: &'a User,
    /// Their names besides, as far as the credential tells.
    pub names: Option<&'a PersonNames>,
    /// The agent it is used for.
    pub agent: AgentId,
    /// When the credential expires.
    pub expires_at: Option<Timestamp>,
}

impl SessionHolder<'_> {
    fn person_names(&self) -> PersonNames {
        let names = self.names.cloned().unwrap_or_default();
        names.and([self.user.username.as_str()])
    }
}

/// The directory, and which claims of issuers link to it.
#[derive(Debug)]
struct LinkedDirectory {
    people: Arc<UserDirectory>,
    links: Arc<[UserClaimMapping]>,
}

type OnClosed = Box<dyn Fn(EndedExchange) + Send + Sync>;

/// The sessions open in this process, and the revocations of all processes.
///
/// The methods that return [`store::Error`] fail if the store does.
#[derive(derive_more::Debug)]
#[debug("SessionRegistry {{ replica: {replica:?}, .. }}")]
pub struct SessionRegistry {
    table: SessionTable,
    store: Arc<Store>,
    clock: Clock,
    metrics: Arc<Metrics>,
    /// Identifies this process among those that share the store.
    replica: Uuid,
    numbers: AtomicU64,
    on_closed: OnceLock<OnClosed>,
    is_store_unavailable: AtomicBool,
    /// The names of people who are locked.
    locked: ArcSwap<HashSet<String>>,
    /// Whom the claims of a caller mean in the directory.
    directory: ArcSwapOption<LinkedDirectory>,
    /// Held while locks are read and applied, so that an earlier list never replaces a later one.
    applying_locks: tokio::sync::Mutex<()>,
    /// Changes whenever a login may have ended, or a person may have been locked.
    withdrawals: watch::Sender<()>,
    /// The tasks that follow revocations and end what has expired.
    pub tasks: Tasks,
}

impl SessionRegistry {
    /// Loads every revocation that still counts, then follows new ones, which take effect here
    /// within a second. Stops when the last clone is dropped.
    ///
    /// - `grace`: how long the store may be silent. After that, everything open here is ended and
    ///   nobody is let in until it answers again.
    ///
    /// # Errors
    /// The store does not answer; the caller must serve nobody.
    pub async fn start(
        store: Arc<Store>,
        clock: Clock,
        grace: Duration,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, store::Error> {
        let sessions = Arc::new(Self {
            table: SessionTable::new(),
            store,
            clock,
            metrics,
            replica: Uuid::now_v7(),
            numbers: AtomicU64::new(0),
            on_closed: OnceLock::new(),
            is_store_unavailable: AtomicBool::new(false),
            locked: ArcSwap::default(),
            directory: ArcSwapOption::empty(),
            applying_locks: tokio::sync::Mutex::default(),
            withdrawals: watch::Sender::new(()),
            tasks: Tasks::default(),
        });
        let mut cursor = Cursor::default();
        sessions.apply_new_revocations(&mut cursor).await?;
        sessions.apply_locks().await?;
        task::spawn(&sessions, cursor, grace);
        Ok(sessions)
    }

    /// Sets the listener that is called once for every stream and tunnel that is ended before its
    /// time, and for every tunnel that ends by itself. It must not block. Only the first call has an
    /// effect.
    pub(crate) fn on_stream_closed(&self, listener: impl Fn(EndedExchange) + Send + Sync + 'static) {
        if self.on_closed.set(Box::new(listener)).is_err() {
            tracing::warn!("closed streams have a listener already");
        }
    }

    /// Registers an exchange, unless its session may not have one.
    ///
    /// The caller holds the result until the response body, upload and tunnel have ended.
    ///
    /// # Errors
    /// The session was revoked, its credential has expired, or the store has been silent for too
    /// long to tell.
    pub fn register<'a>(
        self: &Arc<Self>,
        holder: impl Into<SessionHolder<'a>>,
        exchange: NewExchange,
    ) -> Result<ExchangeGuard, EndReason> {
        let holder = holder.into();
        let names = holder.person_names();
        if self.is_locked(&names) {
            return Err(EndReason::Revoked);
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let is_stream = exchange.kind != ExchangeKind::Request;
        let open = self.table.register(&holder, exchange, number, self.clock.now())?;
        if is_stream {
            self.metrics.open_streams.inc();
        }
        // A return from here on drops it, which takes the exchange out of the table.
        let guard = ExchangeGuard {
            open,
            sessions: self.clone(),
            session: holder.session.clone(),
            number,
        };
        // INVARIANT: this is checked after the exchange is in the table, so that it is either
        // refused here or ended by `fail_closed`.
        if self.is_store_unavailable() {
            return Err(EndReason::StoreUnavailable);
        }
        // A lock that came meanwhile ended only what was in the table then.
        if self.is_locked(&names) {
            return Err(EndReason::Revoked);
        }
        Ok(guard)
    }

    /// Whether a person is locked by any of their names, as far as this process knows.
    pub fn is_locked(&self, names: &PersonNames) -> bool {
        names.has_any(&self.locked.load())
    }

    /// Whether anybody is locked, as far as this process knows.
    pub fn has_locks(&self) -> bool {
        !self.locked.load().is_empty()
    }

    /// Sets the directory in force, and which claims of issuers link to it.
    pub fn set_directory(&self, people: Arc<UserDirectory>, links: &[UserClaimMapping]) {
        self.directory.store(Some(Arc::new(LinkedDirectory {
            people,
            links: links.into(),
        })));
        // Somebody who is locked may have got another name.
        if self.has_locks() {
            self.withdrawals.send_replace(());
        }
    }

    /// The same person, with the name in the directory that these claims of an issuer link to.
    pub(crate) fn with_directory_name(
        &self,
        names: PersonNames,
        issuer: &str,
        claims: &serde_json::Map<String, serde_json::Value>,
    ) -> PersonNames {
        let directory = self.directory.load();
        let Some(LinkedDirectory { people, links }) = directory.as_deref() else {
            return names;
        };
        // An issuer's own claims are under `token` if it has claim mappings.
        let own = claims.get("token").and_then(serde_json::Value::as_object);
        let found = [Some(claims), own].into_iter().flatten();
        let found = found.filter_map(|claims| linked_person(people, links, issuer, claims));
        names.and(found.map(|person| person.user.username.as_str()))
    }

    /// Changes whenever a login may have ended, or a person may have been locked.
    pub fn withdrawals(&self) -> watch::Receiver<()> {
        self.withdrawals.subscribe()
    }

    /// Locks a person, first in the store and then here; other processes follow within a second.
    /// Returns whether they were not locked before.
    pub async fn lock_person(&self, name: &str, reason: &str, by: &Actor) -> Result<bool, store::Error> {
        let is_new = self.store.lock_person(name, reason, self.clock.now(), by).await?;
        self.apply_locks().await?;
        Ok(is_new)
    }

    /// Unlocks a person. Returns whether they were locked.
    pub async fn unlock_person(&self, name: &str, by: &Actor) -> Result<bool, store::Error> {
        let was_locked = self.store.unlock_person(name, self.clock.now(), by).await?;
        self.apply_locks().await?;
        Ok(was_locked)
    }

    /// Reads who is locked, and ends what they have open here.
    async fn apply_locks(&self) -> Result<(), store::Error> {
        let _order = self.applying_locks.lock().await;
        let locks = self.store.person_locks().await?;
        let names: HashSet<String> = locks.into_iter().map(|lock| lock.name).collect();
        // This is read several times a second, and a change has everything that is open judged again.
        if **self.locked.load() == names {
            return Ok(());
        }
        let names = Arc::new(names);
        // INVARIANT: first, so that what begins from here on is refused, and what began before is in the table.
        self.locked.store(Arc::clone(&names));
        let ended = self.table.end_people(&names, self.clock.now());
        self.close(ended);
        self.withdrawals.send_replace(());
        Ok(())
    }

    /// Whether the store has been silent for longer than the grace period, so that any session
    /// may have been revoked.
    pub fn is_store_unavailable(&self) -> bool {
        self.is_store_unavailable.load(Ordering::SeqCst)
    }

    /// For tests of later stages.
    #[cfg(test)]
    pub(crate) fn set_store_unavailable_for_test(&self, is_unavailable: bool) {
        self.is_store_unavailable.store(is_unavailable, Ordering::SeqCst);
    }

    /// Ends everything that is open here, and refuses new exchanges.
    fn fail_closed(&self) {
        self.is_store_unavailable.store(true, Ordering::SeqCst);
        let ended = self.table.end_all(EndReason::StoreUnavailable, self.clock.now());
        self.close(ended);
        self.withdrawals.send_replace(());
    }

    /// Whether a session was revoked, as far as this process knows.
    pub fn is_revoked(&self, session: &SessionId) -> bool {
        self.table.is_revoked(session)
    }

    /// Revokes a session, first in the store and then here; other processes follow within a
    /// second. Returns how many streams and tunnels were closed here. After an error, nothing is
    /// revoked.
    pub async fn revoke(&self, session: &SessionId, owner: &SessionOwner, by: &Actor) -> Result<u32, store::Error> {
        let now = self.clock.now();
        let until = self.expiry_of(session, now).await?;
        let revocation = self.store.revoke(session, until, now, by, owner).await?;
        Ok(self.apply_revocation(session, revocation.until))
    }

    /// Returns a page of the sessions active within [`ACTIVE_WINDOW`], and the key after which the
    /// next page begins, if there is one.
    ///
    /// There is one row for each session and agent, merged over all replicas and ordered by key.
    /// What this process has open is counted as of now; what others have open, as of some seconds
    /// ago.
    pub async fn page(
        &self,
        filter: &CredentialFilter,
        page: &Page<ActiveSessionCursor>,
    ) -> Result<(Vec<ActiveSession>, Option<ActiveSessionCursor>), store::Error> {
        let now = self.clock.now();
        let (since, stale_before) = (before(now, ACTIVE_WINDOW), before(now, REPLICA_TIMEOUT));
        let stored = self.store.active_sessions(since, stale_before, filter, page);
        let stored = stored.await?;
        let is_full = u32::try_from(stored.len()).is_ok_and(|rows| rows >= page.limit);
        let last = stored.last().filter(|_| is_full);
        let end = last.map(|row| (row.session.clone(), row.agent_id));
        let mut local = self.table.local_sessions(filter, self.replica, now);
        // Rows of this process that are on other pages would otherwise be on each.
        local.retain(|session| {
            let key = (session.row.session.as_str(), session.row.agent_id);
            let is_behind = |other: &ActiveSessionCursor| key > (other.0.as_str(), other.1);
            page.after.as_ref().is_none_or(is_behind) && !end.as_ref().is_some_and(is_behind)
        });
        let mut rows = list::merge(stored, local, stale_before);
        rows.retain(|row| {
            let revoked = SessionId::parse(&row.session).is_some_and(|id| self.is_revoked(&id));
            !revoked && row.last_at >= since && row.expires_at.is_none_or(|end| end > now)
        });
        Ok((rows, end))
    }

    /// Returns which of these sessions, given in their text form, were active within
    /// [`ACTIVE_WINDOW`].
    pub async fn active_among(&self, sessions: &[String]) -> Result<HashSet<String>, store::Error> {
        let since = before(self.clock.now(), ACTIVE_WINDOW);
        let mut found: HashSet<_> = self.store.active_since(since, sessions).await?.into_iter().collect();
        // What began here lately is not in the store yet.
        let is_here = |text: &&String| SessionId::parse(text).is_some_and(|id| !self.table.owners_here(&id).is_empty());
        found.extend(sessions.iter().filter(is_here).cloned());
        Ok(found)
    }

    /// Returns the owner of a session, for each agent it was used for within the last day, here
    /// or in another replica.
    pub async fn owners_of(&self, session: &SessionId) -> Result<Vec<SessionOwner>, store::Error> {
        let mut uses = self.table.owners_here(session);
        for row in self.store.activity_of(session).await? {
            let owner = SessionOwner {
                user: row.user,
                agent_id: Some(row.agent_id),
            };
            if !uses.contains(&owner) {
                uses.push(owner);
            }
        }
        Ok(uses)
    }

    /// Stores the active sessions at once, before the process ends.
    pub async fn flush(&self) -> Result<(), store::Error> {
        let rows = self.table.take_changed(self.replica, self.clock.now());
        let mut sent = Ok(());
        for rows in rows.chunks(ROWS_PER_TRANSACTION) {
            if sent.is_ok() {
                sent = task::with_timeout(task::STORE_TIMEOUT, self.store.upsert_active_sessions(rows)).await;
            }
            // After an error, this marks the remaining rows as well, so that they are sent the next time.
            self.table.mark_sent(rows, sent.is_ok());
        }
        sent
    }

    /// When a session expires; its revocation must be kept until then.
    async fn expiry_of(&self, session: &SessionId, now: Timestamp) -> Result<Timestamp, store::Error> {
        let id = Uuid::parse_str(session.id()).ok();
        let end = match (session.access_type(), id) {
            (AccessType::PersonalAccessToken, Some(id)) => self.store.token(id).await?.map(|one| one.expires_at),
            (AccessType::SessionCookie, Some(id)) => self.store.browser_session(id).await?.map(|one| one.expires_at),
            (AccessType::Login, Some(id)) => self.store.login(id).await?.map(|one| one.expires_at),
            (AccessType::PersonalAccessToken | AccessType::SessionCookie | AccessType::Login, None)
            | (AccessType::OidcIdToken | AccessType::CiJobToken, _) => None,
        };
        Ok(end.unwrap_or_else(|| now.checked_add(RENEWABLE).unwrap_or(Timestamp::MAX)))
    }

    /// Refuses a session from now on and ends everything it has open here.
    fn apply_revocation(&self, session: &SessionId, until: Timestamp) -> u32 {
        if !self.is_revoked(session) {
            self.metrics.revocations.inc();
        }
        let closed = self.close(self.table.revoke(session, until, self.clock.now()));
        // What a login has open at other fronts is not in this table.
        if session.access_type() == AccessType::Login {
            self.withdrawals.send_replace(());
        }
        closed
    }

    /// Returns how many of them are streams and tunnels.
    fn close(&self, ended: impl IntoIterator<Item = EndedExchange>) -> u32 {
        let mut streams = 0_u32;
        for ended in ended {
            let Some(reason) = ended.reason else { continue };
            ended.open.end_trigger.end(reason);
            if ended.open.kind == ExchangeKind::Request {
                continue;
            }
            streams = streams.saturating_add(1);
            self.metrics.open_streams.dec();
            self.metrics.stream_closed(match reason {
                EndReason::Revoked => "revoked",
                EndReason::Expired => "expired",
                EndReason::Withdrawn => "withdrawn",
                EndReason::StoreUnavailable => "store_unavailable",
                EndReason::RevocationsUnavailable => "revocations_unavailable",
                EndReason::Stopping => "gateway_stopping",
            });
            self.report(ended);
        }
        streams
    }

    fn report(&self, ended: EndedExchange) {
        if let Some(listener) = self.on_closed.get() {
            listener(ended);
        }
    }
}

/// The registration of an open exchange. Dropping it marks the exchange as ended.
#[derive(Debug)]
pub struct ExchangeGuard {
    open: Arc<OpenExchange>,
    sessions: Arc<SessionRegistry>,
    session: SessionId,
    number: u64,
}

impl ExchangeGuard {
    /// The trigger that ends it.
    pub fn end_trigger(&self) -> &Arc<EndTrigger> {
        &self.open.end_trigger
    }

    /// Ends the exchange and records that. Returns whether it had not been ended before.
    pub fn end(&self, reason: EndReason) -> bool {
        let now = self.sessions.clock.now();
        // If another call took it out of the table, that one may not have fired the trigger yet.
        let Some(ended) = self.sessions.table.end(&self.session, self.number, reason, now) else {
            return self.open.end_trigger.end(reason);
        };
        self.sessions.close([ended]);
        true
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        let sessions = &self.sessions;
        let now = sessions.clock.now();
        match sessions.table.deregister(&self.session, self.number, now) {
            None | Some(Deregistered::Other(ExchangeKind::Request)) => {}
            Some(Deregistered::Other(_)) => {
                sessions.metrics.open_streams.dec();
            }
            Some(Deregistered::Tunnel(ended)) => {
                sessions.metrics.open_streams.dec();
                sessions.report(ended);
            }
        }
    }
}

fn before(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_sub(by).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests;
