//! The in-memory table of open sessions, in shards.
//!
//! It records when exchanges begin and end, when sessions are revoked and when credentials expire,
//! and yields the exchanges that must be ended.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use tokio::sync::Notify;
use uuid::Uuid;

use super::EndTrigger;
use super::list::{LocalSession, ReportedUse};
use super::{EndReason, ExchangeKind, NewExchange, SessionHolder};
use crate::person::PersonNames;
use crate::sharded::{Sharded, lock};
use tollgate_core::agent::AgentId;
use tollgate_core::attributes::Attributes;
use tollgate_core::session::SessionId;
use tollgate_core::user::User;
use tollgate_store::{ActiveSession, CredentialFilter, SessionOwner};

const SHARDS: usize = 64;

#[derive(Debug)]
pub(crate) struct OpenExchange {
    pub(crate) end_trigger: Arc<EndTrigger>,
    pub(crate) kind: ExchangeKind,
    pub(crate) agent: AgentId,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) since: Timestamp,
    pub(crate) decision: Uuid,
    pub(crate) attributes: Arc<Attributes>,
}

#[derive(Debug)]
struct SessionUse {
    agent: AgentId,
    user: User,
    names: PersonNames,
    first_at: Timestamp,
    last_at: Timestamp,
    client: IpAddr,
    requests: u64,
    open_streams: u32,
    expires_at: Option<Timestamp>,
    /// Whether it differs from what is in the store.
    changed: bool,
    reported: ReportedUse,
}

#[derive(Debug, Default)]
struct Session {
    /// One for each agent; few.
    uses: Vec<SessionUse>,
    open: HashMap<u64, Arc<OpenExchange>>,
    /// The expiries of this session that are on the schedule.
    scheduled: BTreeSet<Timestamp>,
}

#[derive(Debug, Default)]
struct Shard {
    sessions: HashMap<SessionId, Session>,
    /// Revoked sessions, and until when each revocation must be kept.
    revoked: HashMap<SessionId, Timestamp>,
}

#[derive(Debug)]
pub(super) struct SessionTable {
    shards: Sharded<Shard>,
    /// When credentials of sessions expire, the next first.
    schedule: Mutex<BTreeSet<(Timestamp, SessionId)>>,
    /// Notified when an expiry earlier than all others is put on the schedule.
    pub(super) earlier_expiry: Arc<Notify>,
}

/// An exchange that was removed from the table: it must end, or it was a tunnel that has ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedExchange {
    pub(crate) session: SessionId,
    pub(crate) user: User,
    pub(crate) open: Arc<OpenExchange>,
    /// Why it ends before its time; `None` if it ended by itself.
    pub(crate) reason: Option<EndReason>,
    pub(crate) at: Timestamp,
}

/// An exchange that has ended, and was removed from the table.
#[derive(Debug)]
pub(super) enum Deregistered {
    /// A tunnel that was open.
    Tunnel(EndedExchange),
    Other(ExchangeKind),
}

impl SessionTable {
    pub(super) fn new() -> Self {
        Self {
            shards: Sharded::new(SHARDS),
            schedule: Mutex::default(),
            earlier_expiry: Arc::default(),
        }
    }

    pub(super) fn register(
        &self,
        holder: &SessionHolder<'_>,
        exchange: NewExchange,
        number: u64,
        now: Timestamp,
    ) -> Result<Arc<OpenExchange>, EndReason> {
        if holder.expires_at.is_some_and(|end| end <= now) {
            return Err(EndReason::Expired);
        }
        let mut shard = self.shards.lock(holder.session);
        let Shard { sessions, revoked } = &mut *shard;
        // INVARIANT: checked under the lock that `revoke` takes, so that no exchange begins between the two.
        if revoked.contains_key(holder.session) {
            return Err(EndReason::Revoked);
        }
        // `entry` alone would clone the id for each request.
        let session = match sessions.get_mut(holder.session) {
            Some(session) => session,
            None => sessions.entry(holder.session.clone()).or_default(),
        };
        session.record_use(holder, &exchange, now);
        if let Some(end) = holder.expires_at
            && session.scheduled.insert(end)
        {
            self.schedule(end, holder.session);
        }
        let open = Arc::new(OpenExchange {
            end_trigger: Arc::default(),
            kind: exchange.kind,
            agent: holder.agent,
            expires_at: holder.expires_at,
            since: now,
            decision: exchange.decision,
            attributes: exchange.attributes,
        });
        session.open.insert(number, Arc::clone(&open));
        Ok(open)
    }

    /// Removes an exchange that has ended. `None` if the table already ended it.
    pub(super) fn deregister(&self, id: &SessionId, number: u64, now: Timestamp) -> Option<Deregistered> {
        let mut shard = self.shards.lock(id);
        let session = shard.sessions.get_mut(id)?;
        // Of what ends by itself, only a tunnel to which the cluster agreed makes an audit event.
        if session.open.get(&number)?.end_trigger.traffic.was_open() {
            return session.take(id, number, None, now).map(Deregistered::Tunnel);
        }
        let open = session.open.remove(&number)?;
        session.record_close(&open, now);
        Some(Deregistered::Other(open.kind))
    }

    /// Refuses a session from now on. Returns what it has open, to be ended.
    pub(super) fn revoke(&self, id: &SessionId, until: Timestamp, now: Timestamp) -> Vec<EndedExchange> {
        let mut shard = self.shards.lock(id);
        let known = shard.revoked.entry(id.clone()).or_insert(until);
        *known = until.max(*known);
        let session = shard.sessions.get_mut(id);
        session.map_or_else(Vec::new, |session| session.end(id, EndReason::Revoked, now, |_| true))
    }

    pub(super) fn is_revoked(&self, id: &SessionId) -> bool {
        self.shards.lock(id).revoked.contains_key(id)
    }

    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        lock(&self.schedule).first().map(|(end, _)| *end)
    }

    /// Returns what is open with expired credentials, to be ended.
    pub(super) fn expire(&self, now: Timestamp) -> Vec<EndedExchange> {
        // INVARIANT: this lock is released before one of a shard is taken: `register` takes them the other way round.
        let due = {
            let mut schedule = lock(&self.schedule);
            let mut due = Vec::new();
            while schedule.first().is_some_and(|(end, _)| *end <= now) {
                due.extend(schedule.pop_first());
            }
            due
        };
        let mut ended = Vec::new();
        for (end, id) in due {
            let mut shard = self.shards.lock(&id);
            if let Some(session) = shard.sessions.get_mut(&id) {
                session.scheduled.remove(&end);
                // A session whose token was renewed has other exchanges, which may go on.
                let is_expired = |open: &OpenExchange| open.expires_at.is_some_and(|end| end <= now);
                ended.extend(session.end(&id, EndReason::Expired, now, is_expired));
            }
        }
        ended
    }

    pub(super) fn end_all(&self, reason: EndReason, now: Timestamp) -> Vec<EndedExchange> {
        let mut ended = Vec::new();
        self.each(|id, session| ended.extend(session.end(id, reason, now, |_| true)));
        ended
    }

    /// Returns what people of these names have open, to be ended.
    pub(super) fn end_people(&self, names: &HashSet<String>, now: Timestamp) -> Vec<EndedExchange> {
        let mut ended = Vec::new();
        self.each(|id, session| {
            if session.uses.iter().any(|one| one.names.has_any(names)) {
                ended.extend(session.end(id, EndReason::Revoked, now, |_| true));
            }
        });
        ended
    }

    /// Removes one exchange that must end; `None` if it has ended already.
    pub(super) fn end(&self, id: &SessionId, number: u64, reason: EndReason, now: Timestamp) -> Option<EndedExchange> {
        let mut shard = self.shards.lock(id);
        let session = shard.sessions.get_mut(id)?;
        session.take(id, number, Some(reason), now)
    }

    /// Returns the rows that differ from those in the store.
    pub(super) fn take_changed(&self, replica: Uuid, now: Timestamp) -> Vec<ActiveSession> {
        let mut rows = Vec::new();
        self.each(|id, session| {
            for one in &mut session.uses {
                // Stored each time, because others take a row that is not renewed for that of a process that died.
                if one.open_streams > 0 {
                    one.last_at = now;
                } else if !one.changed {
                    continue;
                }
                // `mark_sent` sets it again if the store does not take the row.
                one.changed = false;
                rows.push(one.row(id, replica));
            }
        });
        rows
    }

    /// Notes whether the store took `rows`; those that it did not take are sent again.
    pub(super) fn mark_sent(&self, rows: &[ActiveSession], is_stored: bool) {
        for row in rows {
            if let Some(id) = SessionId::parse(&row.session)
                && let Some(session) = self.shards.lock(&id).sessions.get_mut(&id)
                && let Some(one) = session.uses.iter_mut().find(|one| one.agent == row.agent_id)
            {
                if !is_stored {
                    one.changed = true;
                    continue;
                }
                one.reported = ReportedUse {
                    at: row.last_at,
                    requests: row.requests,
                    open_streams: row.open_streams,
                };
            }
        }
    }

    pub(super) fn local_sessions(&self, filter: &CredentialFilter, replica: Uuid, now: Timestamp) -> Vec<LocalSession> {
        let mut local = Vec::new();
        self.each(|id, session| {
            for one in &mut session.uses {
                let of_user = filter.user_id.is_none_or(|user| user == one.user.id)
                    && filter.username.as_ref().is_none_or(|name| *name == one.user.username);
                if of_user && filter.agents.as_ref().is_none_or(|agents| agents.contains(&one.agent)) {
                    if one.open_streams > 0 {
                        one.last_at = now;
                    }
                    let (row, reported) = (one.row(id, replica), one.reported);
                    local.push(LocalSession { row, reported });
                }
            }
        });
        local
    }

    pub(super) fn owners_here(&self, id: &SessionId) -> Vec<SessionOwner> {
        let shard = self.shards.lock(id);
        let uses = shard.sessions.get(id).into_iter().flat_map(|session| &session.uses);
        uses.map(|one| SessionOwner {
            user: one.user.clone(),
            agent_id: Some(one.agent),
        })
        .collect()
    }

    #[cfg(test)]
    pub(super) fn open(&self, id: &SessionId) -> Vec<Arc<OpenExchange>> {
        let shard = self.shards.lock(id);
        let open = shard.sessions.get(id).into_iter();
        open.flat_map(|session| session.open.values().cloned()).collect()
    }

    /// Forgets sessions last seen before `idle`, and revocations of sessions that would have
    /// expired before `now`.
    pub(super) fn forget(&self, idle: Timestamp, now: Timestamp) {
        for mut shard in self.shards.each() {
            shard.revoked.retain(|_, until| *until > now);
            shard.sessions.retain(|id, session| {
                if !session.open.is_empty() {
                    return true;
                }
                // What is not stored yet must not be lost.
                session.uses.retain(|one| one.changed || one.last_at >= idle);
                let stays = !session.uses.is_empty();
                if !stays {
                    let mut schedule = lock(&self.schedule);
                    for end in &session.scheduled {
                        schedule.remove(&(*end, id.clone()));
                    }
                }
                stays
            });
        }
    }

    fn each(&self, mut visit: impl FnMut(&SessionId, &mut Session)) {
        for mut shard in self.shards.each() {
            for (id, session) in &mut shard.sessions {
                visit(id, session);
            }
        }
    }

    fn schedule(&self, end: Timestamp, session: &SessionId) {
        let mut schedule = lock(&self.schedule);
        let is_first = schedule.first().is_none_or(|(first, _)| end < *first);
        schedule.insert((end, session.clone()));
        drop(schedule);
        if is_first {
            self.earlier_expiry.notify_one();
        }
    }
}

impl Session {
    fn record_use(&mut self, holder: &SessionHolder<'_>, exchange: &NewExchange, now: Timestamp) {
        let found = self.uses.iter_mut().find(|one| one.agent == holder.agent);
        let streams = u32::from(exchange.kind != ExchangeKind::Request);
        let Some(one) = found else {
            self.uses.push(SessionUse {
                agent: holder.agent,
                user: holder.user.clone(),
                names: holder.person_names(),
                first_at: now,
                last_at: now,
                client: exchange.client,
                requests: 1,
                open_streams: streams,
                expires_at: holder.expires_at,
                changed: true,
                reported: ReportedUse::default(),
            });
            return;
        };
        one.last_at = now;
        one.requests = one.requests.saturating_add(1);
        one.open_streams = one.open_streams.saturating_add(streams);
        // An issuer's session outlives each of its tokens.
        one.expires_at = one.expires_at.max(holder.expires_at);
        one.changed = true;
        one.client = exchange.client;
        if one.user != *holder.user || holder.names.is_some_and(|names| *names != one.names) {
            one.user = holder.user.clone();
            one.names = holder.person_names();
        }
    }

    fn record_close(&mut self, open: &OpenExchange, now: Timestamp) {
        if open.kind == ExchangeKind::Request {
            return;
        }
        for one in self.uses.iter_mut().filter(|one| one.agent == open.agent) {
            one.open_streams = one.open_streams.saturating_sub(1);
            one.last_at = now;
            one.changed = true;
        }
    }

    fn end(
        &mut self,
        id: &SessionId,
        reason: EndReason,
        now: Timestamp,
        must: impl Fn(&OpenExchange) -> bool,
    ) -> Vec<EndedExchange> {
        let due = self.open.iter().filter(|(_, open)| must(open));
        let numbers: Vec<_> = due.map(|(number, _)| *number).collect();
        let ended = numbers.into_iter();
        ended
            .filter_map(|number| self.take(id, number, Some(reason), now))
            .collect()
    }

    fn take(&mut self, id: &SessionId, number: u64, reason: Option<EndReason>, at: Timestamp) -> Option<EndedExchange> {
        let open = self.open.remove(&number)?;
        self.record_close(&open, at);
        // INVARIANT: uses are not forgotten while something is open.
        let user = self.uses.iter().find(|one| one.agent == open.agent);
        Some(EndedExchange {
            session: id.clone(),
            user: user.map(|one| one.user.clone()).unwrap_or_else(|| User {
                id: 0,
                username: String::new(),
            }),
            open,
            reason,
            at,
        })
    }
}

impl SessionUse {
    fn row(&self, session: &SessionId, replica: Uuid) -> ActiveSession {
        ActiveSession {
            session: session.to_string(),
            replica,
            user: self.user.clone(),
            agent_id: self.agent,
            first_at: self.first_at,
            last_at: self.last_at,
            client: self.client.to_string(),
            requests: self.requests,
            open_streams: self.open_streams,
            expires_at: self.expires_at,
        }
    }
}
