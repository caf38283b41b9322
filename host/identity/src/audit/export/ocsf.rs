//! Audit events in the form of the Open Cybersecurity Schema Framework, version 1.4.0.
//!
//! | events | class |
//! |---|---|
//! | requests, and the ends of streams | API Activity, 6003 |
//! | logins and browser sessions | Authentication, 3002 |
//! | locks of people | Account Change, 3001 |
//! | tokens and agents | Entity Management, 3004 |
//!
//! What the schema has no field for is in `unmapped`, as it is in the event. Source: the schema's
//! `events` and `objects`, <https://schema.ocsf.io/1.4.0/>.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use tollgate_store::AuditEvent;

const SCHEMA: &str = "1.4.0";

#[derive(Clone, Copy, PartialEq, Eq)]
struct ClassUid {
    category: u32,
    class: u32,
}

/// A class of events, and what was done.
struct Class {
    uid: ClassUid,
    /// The activity's number in the class; 99 for one that has none.
    activity: u32,
    name: String,
}

impl Class {
    fn new(uid: ClassUid, activity: u32, name: impl Into<String>) -> Self {
        Self {
            uid,
            activity,
            name: name.into(),
        }
    }
}

const API_ACTIVITY: ClassUid = ClassUid {
    category: 6,
    class: 6003,
};
const ACCOUNT_CHANGE: ClassUid = ClassUid {
    category: 3,
    class: 3001,
};
const AUTHENTICATION: ClassUid = ClassUid {
    category: 3,
    class: 3002,
};
const ENTITY_MANAGEMENT: ClassUid = ClassUid {
    category: 3,
    class: 3004,
};
const BASE: ClassUid = ClassUid { category: 0, class: 0 };

/// What an activity is that the class has no number for.
const OTHER: u32 = 99;

/// Converts an event.
///
/// - `agent`: name of its agent, if that exists.
pub(super) fn event(event: &AuditEvent, agent: Option<&str>) -> impl Serialize + use<> {
    // What a field is made of is taken out of it: the rest is `unmapped`.
    let details = &mut event.details.clone();
    let class = class(event, details);
    let is_failure = matches!(event.action.as_str(), "access.denied" | "agent.refused");
    let reason = take(details, "reason");
    let mut fields = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            fields.insert(key.to_owned(), value);
        }
    };
    put("category_uid", class.uid.category.into());
    put("class_uid", class.uid.class.into());
    put("activity_id", class.activity.into());
    put("activity_name", class.name.into());
    put("type_uid", (class.uid.class * 100 + class.activity).into());
    // Severity 1 is Informational and 2 Low; status 1 is Success and 2 Failure.
    put("severity_id", if is_failure { 2 } else { 1 }.into());
    put("status_id", if is_failure { 2 } else { 1 }.into());
    put("status_detail", reason);
    put("time", event.last_at.as_millisecond().into());
    put("message", message(event).into());
    match details
        .remove("opened_at")
        .as_ref()
        .and_then(Value::as_str)
        .map(str::parse::<Timestamp>)
    {
        Some(Ok(opened)) => {
            put("start_time", opened.as_millisecond().into());
            put("end_time", event.last_at.as_millisecond().into());
            put("duration", take(details, "duration_ms"));
        }
        Some(Err(_)) | None if event.count > 1 => {
            put("start_time", event.first_at.as_millisecond().into());
            put("end_time", event.last_at.as_millisecond().into());
            put("count", event.count.into());
        }
        Some(Err(_)) | None => {}
    }
    put("actor", actor(event));
    let client = take(details, "client");
    // A request has an origin, even if it was counted with those of others.
    let source = match (client.is_null(), class.uid == API_ACTIVITY) {
        (false, _) => json!({"ip": client}),
        (true, true) => json!({"name": "unknown"}),
        (true, false) => Value::Null,
    };
    put("src_endpoint", source);
    let endpoint = event
        .agent_id
        .map(|id| without_null(json!({"uid": id.to_string(), "name": agent})));
    match class.uid {
        API_ACTIVITY => put("dst_endpoint", endpoint.into()),
        // Other classes have no such field.
        _ => details.extend(endpoint.map(|endpoint| ("agent".to_owned(), endpoint))),
    }
    let audit_id = take(details, "audit_id");
    match class.uid {
        API_ACTIVITY => {
            put("api", api(details, &audit_id));
            put("resources", resources(details));
        }
        AUTHENTICATION => {
            put("user", owner(event, details));
            put("service", json!({"name": "Tollgate"}));
            let session = json!({
                "uid": event.session,
                "issuer": take(details, "issuer"),
                "expiration_time": milliseconds(&take(details, "expires_at")),
            });
            put("session", without_null(session));
        }
        ACCOUNT_CHANGE => put("user", owner(event, details)),
        ENTITY_MANAGEMENT => put("entity", entity(event, details, agent)),
        _ => {}
    }
    put(
        "metadata",
        without_null(json!({
            "uid": event.id,
            "version": SCHEMA,
            "product": {"name": "Tollgate", "vendor_name": "Tollgate", "version": env!("CARGO_PKG_VERSION")},
            "log_name": "audit",
            "event_code": event.action,
            "correlation_uid": audit_id,
        })),
    );
    let details = std::mem::take(details);
    put(
        "unmapped",
        if details.is_empty() {
            Value::Null
        } else {
            details.into()
        },
    );
    fields
}

fn class(event: &AuditEvent, details: &Map<String, Value>) -> Class {
    let text = |key: &str| details.get(key).and_then(Value::as_str);
    match event.action.as_str() {
        "access.allowed" | "access.denied" => {
            let runs = ["exec", "attach", "portforward", "proxy"];
            if let Some(subresource) = text("subresource").filter(|name| runs.contains(name)) {
                return Class::new(API_ACTIVITY, OTHER, subresource);
            }
            match text("verb") {
                Some("create") => Class::new(API_ACTIVITY, 1, "Create"),
                Some("get" | "list" | "watch" | "head" | "options") => Class::new(API_ACTIVITY, 2, "Read"),
                Some("update" | "patch") => Class::new(API_ACTIVITY, 3, "Update"),
                Some("delete" | "deletecollection") => Class::new(API_ACTIVITY, 4, "Delete"),
                Some(verb) => Class::new(API_ACTIVITY, OTHER, verb),
                None => Class::new(API_ACTIVITY, 0, "Unknown"),
            }
        }
        "stream.closed" | "stream.ended" => Class::new(API_ACTIVITY, OTHER, "Close"),
        "login.created" | "session.created" => Class::new(AUTHENTICATION, 1, "Logon"),
        "login.revoked" | "session.revoked" => Class::new(AUTHENTICATION, 2, "Logoff"),
        "person.locked" => Class::new(ACCOUNT_CHANGE, 9, "Lock"),
        "person.unlocked" => Class::new(ACCOUNT_CHANGE, 12, "Unlock"),
        "token.created" => Class::new(ENTITY_MANAGEMENT, 1, "Create"),
        "token.revoked" => Class::new(ENTITY_MANAGEMENT, 4, "Delete"),
        "agent.joined" => Class::new(ENTITY_MANAGEMENT, 6, "Enroll"),
        "agent.key_replaced" => Class::new(ENTITY_MANAGEMENT, 3, "Update"),
        "agent.key_revoked" => Class::new(ENTITY_MANAGEMENT, 7, "Unenroll"),
        "agent.connected" => Class::new(ENTITY_MANAGEMENT, 10, "Activate"),
        "agent.disconnected" => Class::new(ENTITY_MANAGEMENT, 11, "Deactivate"),
        "agent.refused" => Class::new(ENTITY_MANAGEMENT, OTHER, "Refuse"),
        action => Class::new(BASE, OTHER, action),
    }
}

/// The event in the words of `kubectl auth can-i`.
fn message(event: &AuditEvent) -> String {
    let text = |key: &str| event.details.get(key).and_then(Value::as_str);
    let resource = text("resource").map(|resource| match text("subresource") {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource.to_owned(),
    });
    let namespace = text("namespace").map(|namespace| format!("-n {namespace}"));
    let words = [
        Some(event.action.clone()),
        text("verb").map(str::to_owned),
        resource.or_else(|| text("path").map(str::to_owned)),
        text("name").map(str::to_owned),
        namespace,
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn actor(event: &AuditEvent) -> Value {
    let session = event.session.as_ref().map(|id| json!({"uid": id}));
    without_null(json!({"user": user(&event.user, event.user_id), "session": session}))
}

/// A person; the type is 1 for a user and 0 for somebody unknown.
fn user(name: &str, id: Option<i64>) -> Value {
    match name {
        "" => json!({"name": "unknown", "type_id": 0}),
        name => without_null(json!({"name": name, "uid": id.map(|id| id.to_string()), "type_id": 1})),
    }
}

/// The person whom an event is about, who may not be the one who did it.
fn owner(event: &AuditEvent, details: &mut Map<String, Value>) -> Value {
    let id = details.remove("owner_id").and_then(|id| id.as_i64());
    match take(details, "owner").as_str() {
        Some(name) => user(name, id),
        None => user(&event.user, event.user_id),
    }
}

fn api(details: &mut Map<String, Value>, audit_id: &Value) -> Value {
    let group = details.remove("api_group").filter(|group| group != "");
    without_null(json!({
        "operation": details.remove("verb").unwrap_or_else(|| "unknown".into()),
        "service": {"name": "kubernetes"},
        "group": group.map(|name| json!({"name": name})),
        "request": (!audit_id.is_null()).then(|| json!({"uid": audit_id})),
    }))
}

fn resources(details: &mut Map<String, Value>) -> Value {
    let Some(resource) = details.remove("resource") else {
        return Value::Null;
    };
    let resource = resource.as_str().unwrap_or_default();
    let kind = match take(details, "subresource").as_str() {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource.to_owned(),
    };
    let resource = json!({"type": kind, "namespace": take(details, "namespace"), "name": take(details, "name")});
    json!([without_null(resource)])
}

fn entity(event: &AuditEvent, details: &mut Map<String, Value>, agent: Option<&str>) -> Value {
    if event.action.starts_with("token.") {
        let owner = owner(event, details);
        let token = json!({
            "type": "Token", "name": take(details, "name"), "uid": event.session, "user": owner,
        });
        return without_null(token);
    }
    // The name that an agent gives itself proves nothing; it stays among the details.
    let server = take(details, "server");
    let name = if server.is_null() { agent.into() } else { server };
    let name = if name.is_null() { "unknown".into() } else { name };
    json!({"type": "Agent", "name": name})
}

fn take(details: &mut Map<String, Value>, key: &str) -> Value {
    details.remove(key).unwrap_or_default()
}

/// A time in milliseconds since 1970, as the schema has them.
fn milliseconds(time: &Value) -> Option<i64> {
    let time: Timestamp = time.as_str()?.parse().ok()?;
    Some(time.as_millisecond())
}

fn without_null(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        members.retain(|_, member| !member.is_null());
    }
    value
}
