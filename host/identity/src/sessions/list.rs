//! Lists active sessions, one row per session and agent, from the rows of all replicas and this
//! process's own state.
//!
//! Invariant: this process's current state replaces the rows it stored earlier.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use jiff::Timestamp;

use tollgate_store::ActiveSession;

/// What this process last stored of the use of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportedUse {
    pub(super) at: Timestamp,
    pub(super) requests: u64,
    pub(super) open_streams: u32,
}

/// A session as it is in this process, and as this process last stored it.
pub(super) struct LocalSession {
    pub(super) row: ActiveSession,
    pub(super) reported: ReportedUse,
}

/// Returns the rows ordered by session and agent.
///
/// - `stored`: rows of all replicas, with the open streams of those that reported since
///   `stale_before`.
pub(super) fn merge(
    stored: Vec<ActiveSession>,
    local: Vec<LocalSession>,
    stale_before: Timestamp,
) -> Vec<ActiveSession> {
    let stored = stored.into_iter();
    let mut rows: BTreeMap<_, _> = stored.map(|row| ((row.session.clone(), row.agent_id), row)).collect();
    for LocalSession { row, reported } in local {
        match rows.entry((row.session.clone(), row.agent_id)) {
            Entry::Vacant(vacant) => {
                vacant.insert(row);
            }
            Entry::Occupied(mut occupied) => replace_reported(occupied.get_mut(), row, reported, stale_before),
        }
    }
    rows.into_values().collect()
}

fn replace_reported(row: &mut ActiveSession, local: ActiveSession, reported: ReportedUse, stale_before: Timestamp) {
    let reported_open = if reported.at >= stale_before {
        reported.open_streams
    } else {
        0
    };
    let open_elsewhere = row.open_streams.saturating_sub(reported_open);
    row.open_streams = open_elsewhere.saturating_add(local.open_streams);
    let requests_elsewhere = row.requests.saturating_sub(reported.requests);
    row.requests = requests_elsewhere.saturating_add(local.requests);
    row.first_at = row.first_at.min(local.first_at);
    row.expires_at = row.expires_at.max(local.expires_at);
    if local.last_at >= row.last_at {
        row.last_at = local.last_at;
        row.client = local.client;
        row.replica = local.replica;
    }
}
