//! Entries as rows.
//!
//! In: an entry. Out: what kind of row it is, and the row. Never: a query, content
//! or a text of unbounded length.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{AccessEntry, Outcome};
use crate::authorize::kubernetes::Attributes;
use crate::sessions::{Closed, Target};
use crate::store::AuditEvent;

/// Longest text a caller chose, in bytes; names of Kubernetes have 253.
const TEXT_BYTES: usize = 256;

/// How often an entry is written.
pub(super) enum Counting {
    /// A row of its own.
    Alone,
    /// Counted with others of this key.
    Read(String),
    /// As reads, of callers nobody knows.
    Stranger(String),
}

/// How often an entry is written, by its kind.
pub(super) fn counting(entry: &AccessEntry<'_>) -> Counting {
    match (&entry.holder, entry.outcome, entry.attributes) {
        (None, _, _) => Counting::Stranger(stranger_key(entry)),
        (Some(_), Outcome::Allowed, Some(attributes)) if is_read(attributes) => {
            Counting::Read(read_key(entry, attributes))
        }
        (Some(_), Outcome::Allowed | Outcome::Denied, _) => Counting::Alone,
    }
}

/// Whether it changes nothing and runs nothing, and ends by itself or is a watch.
fn is_read(attributes: &Attributes) -> bool {
    let verb = attributes.verb.as_str();
    let reads = match attributes.resource_request {
        true => matches!(verb, "get" | "list" | "watch"),
        false => matches!(verb, "get" | "head" | "options"),
    };
    let runs = ["exec", "attach", "portforward", "proxy"];
    let subresource = attributes.subresource.as_deref();
    reads && attributes.upgrade.is_none() && subresource.is_none_or(|name| !runs.contains(&name))
}

fn read_key(entry: &AccessEntry<'_>, attributes: &Attributes) -> String {
    let mut key = String::with_capacity(192);
    if let Some(holder) = &entry.holder {
        piece(&mut key, Some(holder.session.access_type().as_str()));
        piece(&mut key, Some(holder.session.id()));
        // A string takes every write.
        let _written = write!(key, "{}@{}", holder.user.id, holder.agent);
    }
    piece(&mut key, entry.impersonated);
    piece(&mut key, Some(&attributes.verb));
    piece(&mut key, Some(&attributes.api_group));
    piece(&mut key, attributes.resource.as_deref());
    piece(&mut key, attributes.subresource.as_deref());
    piece(&mut key, attributes.namespace.as_deref());
    piece(&mut key, Some(entry.reason));
    key
}

fn stranger_key(entry: &AccessEntry<'_>) -> String {
    let agent = entry.agent.map_or(0, crate::access::AgentId::get);
    format!("{:?} {} {agent} {}", entry.outcome, entry.client, entry.reason)
}

/// The key of every stranger refused for this reason.
pub(super) fn reason_key(entry: &AccessEntry<'_>) -> String {
    format!("{:?} {}", entry.outcome, entry.reason)
}

/// Pieces cannot run into each other: each has its length before it.
fn piece(key: &mut String, text: Option<&str>) {
    let _written = match text {
        Some(text) => write!(key, "{}:{text}", text.len()),
        None => key.write_char('-'),
    };
}

/// A row of its own.
pub(super) fn alone(entry: &AccessEntry<'_>, now: Timestamp) -> AuditEvent {
    let mut event = counted(entry, now);
    let details = &mut event.details;
    if let Some(attributes) = entry.attributes {
        put(details, "name", attributes.name.as_deref());
        if !attributes.resource_request {
            put(details, "path", Some(&attributes.path));
        }
        put(details, "upgrade", attributes.upgrade);
    }
    put(details, "detail", entry.detail);
    event
}

/// The first of those that are counted together.
pub(super) fn counted(entry: &AccessEntry<'_>, now: Timestamp) -> AuditEvent {
    let mut details = Map::new();
    let holder = entry.holder.as_ref();
    // What strangers ask for is not told apart.
    if let Some(attributes) = entry.attributes.filter(|_| holder.is_some()) {
        put_target(&mut details, &attributes.into());
        details.remove("name");
    }
    let access_type = holder.map(|holder| holder.session.access_type()).or(entry.access_type);
    put(&mut details, "reason", Some(entry.reason));
    put(&mut details, "access_type", access_type.map(|one| one.as_str()));
    put(&mut details, "impersonated_user", entry.impersonated);
    put(&mut details, "client", Some(&entry.client.to_canonical().to_string()));
    put(&mut details, "audit_id", Some(&entry.audit_id.to_string()));
    details.insert("enforced".to_owned(), Value::Bool(true));
    AuditEvent {
        id: Uuid::now_v7(),
        first_at: now,
        last_at: now,
        count: 1,
        action: entry.outcome.action().to_owned(),
        user: holder.map(|holder| holder.user.username.clone()).unwrap_or_default(),
        user_id: holder.map(|holder| holder.user.id).filter(|id| *id > 0),
        agent_id: holder.map(|holder| holder.agent).or(entry.agent),
        session: holder.map(|holder| holder.session.to_string()),
        details,
    }
}

/// Strangers of whom only the reason is told apart.
pub(super) fn of_reason(entry: &AccessEntry<'_>, now: Timestamp) -> AuditEvent {
    let mut event = counted(entry, now);
    event.agent_id = None;
    event
        .details
        .retain(|key, _| matches!(key.as_str(), "reason" | "audit_id" | "enforced"));
    event.details.insert("clients".to_owned(), "many".into());
    event
}

/// A stream that was ended.
pub(super) fn closed(closed: &Closed) -> AuditEvent {
    let Closed {
        session,
        user,
        agent,
        kind,
        target,
        decision,
        opened_at,
        closed_at,
        ending,
    } = closed;
    let mut details = Map::new();
    put_target(&mut details, target);
    put(&mut details, "reason", Some(ending.as_str()));
    put(&mut details, "kind", Some(kind.as_str()));
    put(&mut details, "access_type", Some(session.access_type().as_str()));
    put(&mut details, "audit_id", Some(&decision.to_string()));
    put(&mut details, "opened_at", Some(&opened_at.to_string()));
    AuditEvent {
        id: Uuid::now_v7(),
        first_at: *closed_at,
        last_at: *closed_at,
        count: 1,
        action: "stream.closed".to_owned(),
        user: user.username.clone(),
        user_id: Some(user.id).filter(|id| *id > 0),
        agent_id: Some(*agent),
        session: Some(session.to_string()),
        details,
    }
}

fn put_target(details: &mut Map<String, Value>, target: &Target) {
    let Target {
        verb,
        api_group,
        resource,
        subresource,
        namespace,
        name,
    } = target;
    put(details, "verb", Some(verb));
    if resource.is_some() {
        put(details, "api_group", Some(api_group));
    }
    put(details, "resource", resource.as_deref());
    put(details, "subresource", subresource.as_deref());
    put(details, "namespace", namespace.as_deref());
    put(details, "name", name.as_deref());
}

/// Adds what is known, shortened.
fn put(details: &mut Map<String, Value>, key: &str, text: Option<&str>) {
    let Some(text) = text else { return };
    let short = text.get(..text.floor_char_boundary(TEXT_BYTES)).unwrap_or_default();
    details.insert(key.to_owned(), short.into());
}
