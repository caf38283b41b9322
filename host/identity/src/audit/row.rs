//! Turns audit entries into rows, and chooses how each is written: individually or counted with
//! others.
//!
//! Security: a row contains no query, no content and no text of unbounded length. A read of a Secret
//! is always attributable: its name is in the row.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::buckets::AggregationKey;
use super::{AccessEntry, AccessOutcome};
use crate::sessions::table::EndedExchange;
use crate::sessions::{EndReason, ExchangeKind, SessionHolder};
use tollgate_core::agent::AgentId;
use tollgate_core::attributes::Attributes;
use tollgate_store::AuditEvent;

/// Longest text from a caller, in bytes; Kubernetes names have at most 253.
const TEXT_BYTES: usize = 256;

pub(super) enum Aggregation {
    Individual,
    /// Counted with others of this key.
    Read(AggregationKey),
    /// A refusal of a known caller: the first ones get individual rows, further ones are counted.
    Refusal(AggregationKey),
    /// A request of an unknown caller, counted like reads.
    UnknownCaller(AggregationKey),
}

pub(super) fn aggregation(entry: &AccessEntry<'_>) -> Aggregation {
    match (&entry.holder, entry.outcome, entry.attributes) {
        (None, _, _) => Aggregation::UnknownCaller(unknown_caller_key(entry)),
        (Some(holder), AccessOutcome::Denied, _) => Aggregation::Refusal(refusal_key(holder, entry.reason)),
        (Some(holder), AccessOutcome::Allowed, Some(attributes)) if is_read(attributes) => {
            Aggregation::Read(read_key(holder, entry, attributes))
        }
        (Some(_), AccessOutcome::Allowed, _) => Aggregation::Individual,
    }
}

/// Whether the request changes and runs nothing, and either ends by itself or is a watch.
fn is_read(attributes: &Attributes) -> bool {
    is_review(attributes) || reads(attributes)
}

/// Whether the request asks what somebody may do, or who they are. It is a `create` of which nothing is stored:
/// `kubectl auth can-i` in a loop is as many of them as somebody likes.
fn is_review(attributes: &Attributes) -> bool {
    let reviews: &[&str] = match attributes.api_group.as_str() {
        "authorization.k8s.io" => &[
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
            "subjectaccessreviews",
            "localsubjectaccessreviews",
        ],
        "authentication.k8s.io" => &["selfsubjectreviews", "tokenreviews"],
        _ => return false,
    };
    let is_one = attributes
        .resource
        .as_deref()
        .is_some_and(|resource| reviews.contains(&resource));
    is_one && attributes.verb == "create" && attributes.subresource.is_none() && attributes.upgrade.is_none()
}

fn reads(attributes: &Attributes) -> bool {
    let verb = attributes.verb.as_str();
    let reads = match attributes.resource_request {
        true => matches!(verb, "get" | "list" | "watch"),
        false => matches!(verb, "get" | "head" | "options"),
    };
    // A `get` of these starts a command, or reaches a server that may do anything on `GET`.
    let runs = ["exec", "attach", "portforward", "proxy"];
    let subresource = attributes.subresource.as_deref();
    reads && attributes.upgrade.is_none() && subresource.is_none_or(|name| !runs.contains(&name))
}

/// The name of the Secret that is requested, if it is one by name. A list names no Secret: its row
/// says that all of a namespace, or of the cluster, were read.
fn secret_name(attributes: &Attributes) -> Option<&str> {
    let is_secret = attributes.api_group.is_empty() && attributes.resource.as_deref() == Some("secrets");
    attributes.name.as_deref().filter(|_| is_secret)
}

/// Whether somebody reads a Secret by its name.
pub(super) fn is_secret_read(entry: &AccessEntry<'_>) -> bool {
    let is_allowed = entry.holder.is_some() && entry.outcome == AccessOutcome::Allowed;
    is_allowed && entry.attributes.and_then(secret_name).is_some()
}

fn read_key(holder: &SessionHolder<'_>, entry: &AccessEntry<'_>, attributes: &Attributes) -> AggregationKey {
    let mut discriminator = String::with_capacity(192);
    // Writing to a string cannot fail.
    let _written = write!(discriminator, "{}@{}", holder.user.id, holder.agent);
    push_component(&mut discriminator, entry.impersonated);
    push_component(&mut discriminator, Some(&attributes.verb));
    push_component(&mut discriminator, Some(&attributes.api_group));
    push_component(&mut discriminator, attributes.resource.as_deref());
    push_component(&mut discriminator, attributes.subresource.as_deref());
    push_component(&mut discriminator, attributes.namespace.as_deref());
    push_component(&mut discriminator, Some(entry.reason));
    push_component(&mut discriminator, secret_name(attributes));
    AggregationKey {
        owner: holder.session.to_string(),
        discriminator,
    }
}

fn refusal_key(holder: &SessionHolder<'_>, reason: &str) -> AggregationKey {
    AggregationKey {
        owner: holder.session.to_string(),
        discriminator: format!("{} {reason}", holder.agent),
    }
}

/// The agent is not part of the key, since unknown callers may name any.
fn unknown_caller_key(entry: &AccessEntry<'_>) -> AggregationKey {
    AggregationKey {
        // An IPv4 client of an IPv6 listener has a mapped address.
        owner: entry.client.to_canonical().to_string(),
        discriminator: format!("{:?} {}", entry.outcome, entry.reason),
    }
}

/// The key of entries beyond those counted separately: one for each session and agent it may use,
/// each session and reason of a refusal, or each reason unknown callers are refused for.
pub(super) fn overflow_key(entry: &AccessEntry<'_>) -> AggregationKey {
    let agent = overflow_agent(entry).map_or(0, AgentId::get);
    let session = entry.holder.map(|holder| holder.session.to_string());
    AggregationKey {
        owner: session.unwrap_or_default(),
        discriminator: format!("rest {:?} {agent} {}", entry.outcome, entry.reason),
    }
}

/// The agent, if access to it was granted; a refused caller may name any.
fn overflow_agent(entry: &AccessEntry<'_>) -> Option<AgentId> {
    match entry.outcome {
        AccessOutcome::Allowed => entry.holder.map(|holder| holder.agent),
        AccessOutcome::Denied => None,
    }
}

/// Appends a component preceded by its length, so that components cannot run together. A long
/// component is replaced by a digest, so that keys stay short.
fn push_component(key: &mut String, text: Option<&str>) {
    let Some(text) = text else {
        key.push('-');
        return;
    };
    let _written = if text.len() <= TEXT_BYTES {
        write!(key, "{}:{text}", text.len())
    } else {
        let digest: [u8; 32] = Sha256::digest(text).into();
        write!(key, "{}#{}", text.len(), URL_SAFE_NO_PAD.encode(digest))
    };
}

pub(super) fn individual_event(entry: &AccessEntry<'_>, now: Timestamp) -> AuditEvent {
    let mut event = base_event(entry, now);
    let details = &mut event.details;
    if let Some(attributes) = entry.attributes {
        put_attributes(details, attributes);
        // The other attributes already say what the path of a resource does.
        if !attributes.resource_request {
            put(details, "path", Some(&attributes.path));
        }
        put(details, "upgrade", attributes.upgrade);
    }
    put(details, "detail", entry.detail);
    event
}

pub(super) fn aggregated_event(entry: &AccessEntry<'_>, now: Timestamp) -> AuditEvent {
    let mut event = base_event(entry, now);
    match (&entry.holder, entry.outcome) {
        (Some(_), AccessOutcome::Allowed) => {
            if let Some(attributes) = entry.attributes {
                put_attributes(&mut event.details, attributes);
                if secret_name(attributes).is_none() {
                    // The row counts reads of every name.
                    event.details.remove("name");
                }
            }
        }
        // The entry no longer says what each of these requested.
        (Some(_), AccessOutcome::Denied) => {
            event.details.insert("counted".to_owned(), Value::Bool(true));
        }
        (None, AccessOutcome::Allowed | AccessOutcome::Denied) => {}
    }
    event
}

pub(super) fn overflow_event(entry: &AccessEntry<'_>, now: Timestamp) -> AuditEvent {
    let mut event = base_event(entry, now);
    event.agent_id = overflow_agent(entry);
    let kept = ["reason", "access_type", "audit_id", "enforced"];
    event.details.retain(|key, _| kept.contains(&key.as_str()));
    event.details.insert("counted".to_owned(), Value::Bool(true));
    if entry.holder.is_none() {
        // Callers with other kinds of credentials share this row.
        event.details.remove("access_type");
        put(&mut event.details, "clients", Some("many"));
    }
    event
}

/// An event with who, from where and why, but not what they request.
fn base_event(entry: &AccessEntry<'_>, now: Timestamp) -> AuditEvent {
    let mut details = Map::new();
    let holder = entry.holder.as_ref();
    let access_type = holder.map(|holder| holder.session.access_type()).or(entry.access_type);
    put(&mut details, "reason", Some(entry.reason));
    put(&mut details, "access_type", access_type.map(Into::into));
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

pub(super) fn closed_stream_event(stream: &EndedExchange) -> AuditEvent {
    let EndedExchange {
        session,
        user,
        open,
        reason,
        at,
    } = stream;
    let mut details = Map::new();
    put_attributes(&mut details, &open.attributes);
    put(&mut details, "reason", reason.map(EndReason::as_str));
    put(&mut details, "kind", Some(open.kind.as_ref()));
    put(&mut details, "access_type", Some(session.access_type().as_ref()));
    put(&mut details, "audit_id", Some(&open.decision.to_string()));
    put(&mut details, "opened_at", Some(&open.since.to_string()));
    // The clock may have been set back since.
    let milliseconds = at.duration_since(open.since).as_millis().max(0);
    put_number(&mut details, "duration_ms", milliseconds);
    if open.kind == ExchangeKind::Tunnel {
        let (from_client, from_cluster) = open.end_trigger.traffic.bytes();
        put_number(&mut details, "bytes_from_client", from_client);
        put_number(&mut details, "bytes_from_cluster", from_cluster);
    }
    AuditEvent {
        id: Uuid::now_v7(),
        first_at: *at,
        last_at: *at,
        count: 1,
        action: match reason {
            Some(_) => "stream.closed".to_owned(),
            None => "stream.ended".to_owned(),
        },
        user: user.username.clone(),
        user_id: Some(user.id).filter(|id| *id > 0),
        agent_id: Some(open.agent),
        session: Some(session.to_string()),
        details,
    }
}

fn put_attributes(details: &mut Map<String, Value>, attributes: &Attributes) {
    put(details, "verb", Some(&attributes.verb));
    // Without a resource, the empty group would read as the core group.
    if attributes.resource.is_some() {
        put(details, "api_group", Some(&attributes.api_group));
    }
    put(details, "resource", attributes.resource.as_deref());
    put(details, "subresource", attributes.subresource.as_deref());
    put(details, "namespace", attributes.namespace.as_deref());
    put(details, "name", attributes.name.as_deref());
}

fn put_number(details: &mut Map<String, Value>, key: &str, number: impl TryInto<u64>) {
    details.insert(key.to_owned(), number.try_into().unwrap_or(u64::MAX).into());
}

fn put(details: &mut Map<String, Value>, key: &str, text: Option<&str>) {
    let Some(text) = text else { return };
    let short = text.get(..text.floor_char_boundary(TEXT_BYTES)).unwrap_or_default();
    details.insert(key.to_owned(), short.into());
}
