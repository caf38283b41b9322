//! Lists active sessions, one row per session and agent, from the rows of all replicas and this
//! process's own state.
//!
//! Invariant: this process's current state replaces the rows it stored earlier.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use jiff::Timestamp;

use crate::store::ActiveSession;

/// What this process last told the store of a session.
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

/// Merges the rows.
///
/// - `seen`: rows of all replicas, with the open streams of those that reported since `silent`.
pub(super) fn merge(seen: Vec<ActiveSession>, here: Vec<LocalSession>, silent: Timestamp) -> Vec<ActiveSession> {
    let mut rows = HashMap::with_capacity(seen.len());
    for row in seen {
        rows.insert((row.session.clone(), row.agent_id), row);
    }
    for LocalSession { row, reported } in here {
        match rows.entry((row.session.clone(), row.agent_id)) {
            Entry::Vacant(vacant) => {
                vacant.insert(row);
            }
            Entry::Occupied(mut occupied) => replace_reported(occupied.get_mut(), row, reported, silent),
        }
    }
    rows.into_values().collect()
}

/// Replaces what this process stored in a row by its current state.
fn replace_reported(row: &mut ActiveSession, here: ActiveSession, reported: ReportedUse, silent: Timestamp) {
    let told_open = if reported.at >= silent {
        reported.open_streams
    } else {
        0
    };
    row.open_streams = row
        .open_streams
        .saturating_sub(told_open)
        .saturating_add(here.open_streams);
    row.requests = row
        .requests
        .saturating_sub(reported.requests)
        .saturating_add(here.requests);
    row.first_at = row.first_at.min(here.first_at);
    row.expires_at = row.expires_at.max(here.expires_at);
    if here.last_at >= row.last_at {
        row.last_at = here.last_at;
        row.client = here.client;
        row.replica = here.replica;
    }
}
