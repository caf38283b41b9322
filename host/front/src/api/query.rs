//! Decodes the query of a list into [`Query`], or answers 400.
//!
//! Security: unknown parameters are refused, because ignoring one could show more than the caller
//! meant.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::Error;
use tollgate_objects::ObjectName;

/// Events of one response if the caller gives no limit.
const DEFAULT_EVENT_LIMIT: u32 = 100;
/// Most rows of one response, and the number of tokens and sessions if the caller gives no limit.
const MAX_ROWS: u16 = 1_000;
/// Longest value of a parameter that is no row of the store, in bytes.
pub const PARAMETER_BYTES: usize = 1_024;

/// Whose rows are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OwnerFilter {
    /// The caller's.
    #[default]
    Mine,
    /// Those of the person of this name.
    User(String),
    /// Everybody's.
    All,
}

impl OwnerFilter {
    /// The person who is named.
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::User(name) => Some(name),
            Self::Mine | Self::All => None,
        }
    }
}

/// The parameters of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Whose rows.
    pub owner: OwnerFilter,
    /// Name or number of an agent.
    pub agent: Option<String>,
    /// Audit: with this action.
    pub action: Option<String>,
    /// Audit: done with this session, or about it.
    pub session: Option<String>,
    /// Audit: requests with this verb.
    pub verb: Option<String>,
    /// Audit: requests for this resource.
    pub resource: Option<String>,
    /// Audit: requests for this subresource.
    pub subresource: Option<String>,
    /// Audit: requests in this namespace.
    pub namespace: Option<String>,
    /// Audit: requests for the object of this name.
    pub name: Option<String>,
    /// Audit: that happened at this time or later.
    pub since: Option<Timestamp>,
    /// Audit: that happened before this time.
    pub until: Option<Timestamp>,
    /// Audit: older than this event.
    pub before: Option<Uuid>,
    /// Most rows of the answer.
    pub limit: Option<u32>,
    /// Tokens and sessions: the page behind this cursor.
    pub cursor: Option<String>,
}

/// Parameters of the list of agents.
pub const AGENT_PARAMETERS: &[&str] = &["user"];
/// Parameters of the lists of tokens and of sessions.
pub const ROW_PARAMETERS: &[&str] = &["user", "agent", "limit", "continue"];
/// Parameters of the audit log.
pub const AUDIT_PARAMETERS: &[&str] = &[
    "user",
    "agent",
    "action",
    "session",
    "verb",
    "resource",
    "namespace",
    "name",
    "since",
    "until",
    "before",
    "limit",
];

impl Query {
    /// Decodes a query. `user=*` stands for everybody.
    ///
    /// - `names`: the known parameters.
    pub fn read(raw: Option<&str>, names: &'static [&'static str]) -> Result<Self, Error> {
        let mut query = Self::default();
        let pairs = url::form_urlencoded::parse(raw.unwrap_or_default().as_bytes());
        for_each_parameter(pairs, names, |name, value| {
            // The longest cursor has the id of a session in it.
            let max_bytes = if name == "continue" { 512 } else { 255 };
            query.set(name, bounded(name, value, max_bytes)?)
        })?;
        Ok(query)
    }

    /// Most audit events of the answer.
    pub fn event_limit(&self) -> u32 {
        self.limit.unwrap_or(DEFAULT_EVENT_LIMIT)
    }

    /// Most tokens or sessions of the answer.
    pub fn row_limit(&self) -> u32 {
        self.limit.unwrap_or(MAX_ROWS.into())
    }

    /// The position that the cursor of an earlier response encodes.
    pub fn decode_cursor<P: DeserializeOwned>(&self, is_sound: impl FnOnce(&P) -> bool) -> Result<Option<P>, Error> {
        let Some(text) = &self.cursor else {
            return Ok(None);
        };
        // The client had the cursor in its hands, so it is checked like any parameter.
        let position = decode_cursor(text).ok().filter(is_sound);
        Ok(Some(position.ok_or_else(no_cursor)?))
    }

    fn set(&mut self, name: &'static str, value: String) -> Result<(), Error> {
        match name {
            "user" if value == "*" => self.owner = OwnerFilter::All,
            "user" => self.owner = OwnerFilter::User(value),
            "agent" => self.agent = Some(value),
            "action" => self.action = Some(value),
            "session" => self.session = Some(value),
            "verb" => self.verb = Some(value),
            "resource" => self.set_resource(&value)?,
            "namespace" => self.namespace = Some(value),
            "name" => self.name = Some(value),
            "since" => self.since = Some(time(name, &value)?),
            "until" => self.until = Some(time(name, &value)?),
            "continue" => self.cursor = Some(value),
            "before" => {
                let id = Uuid::try_parse(&value).map_err(|_| wrong("has a `before` that is not an event's id"))?;
                self.before = Some(id);
            }
            // `limit`: every unknown name was refused before.
            _ => self.limit = Some(row_limit(&value)?.into()),
        }
        Ok(())
    }
}

impl Query {
    /// Reads a resource as RBAC of Kubernetes writes it: `pods` with any subresource, `pods/exec`, or
    /// `*/exec` for every resource.
    fn set_resource(&mut self, text: &str) -> Result<(), Error> {
        let (resource, subresource) = match text.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (text, None),
        };
        let is_name = |name: &str| !name.is_empty() && !name.contains(['/', '*']);
        let is_any = resource == "*" && subresource.is_some();
        if !(is_any || is_name(resource)) || !subresource.is_none_or(is_name) {
            return Err(wrong("has a `resource` that is none of `pods`, `pods/exec`, `*/exec`"));
        }
        self.resource = (!is_any).then(|| resource.to_owned());
        self.subresource = subresource.map(str::to_owned);
        Ok(())
    }
}

fn time(name: &str, text: &str) -> Result<Timestamp, Error> {
    let time = text.parse();
    time.map_err(|_| {
        wrong(format!(
            "has a `{name}` that is not a time such as `2026-01-31T08:00:00Z`"
        ))
    })
}

/// Calls `set` for each parameter of a query, up to the first error.
///
/// - `names`: the known parameters. Each may occur once, `projects` any number of times.
pub fn for_each_parameter<'a>(
    pairs: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
    names: &'static [&'static str],
    mut set: impl FnMut(&'static str, Cow<'a, str>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut seen: Vec<&'static str> = Vec::new();
    for (name, value) in pairs {
        let Some(known) = names.iter().find(|known| **known == name) else {
            return Err(wrong(match names {
                [] => "has parameters, and none are known here".to_owned(),
                names => format!("has a parameter other than `{}`", names.join("`, `")),
            }));
        };
        // Argo CD's API repeats `projects` for a list. Of another one, two readers could take different values.
        if seen.contains(known) && *known != "projects" {
            return Err(wrong(format!("has `{known}` twice")));
        }
        seen.push(known);
        set(known, value)?;
    }
    Ok(())
}

/// The value of a parameter, if it is neither empty, nor longer than this, nor has a control character:
/// PostgreSQL stores no NUL, and no name has another one.
pub fn bounded(name: &str, value: Cow<'_, str>, max_bytes: usize) -> Result<String, Error> {
    let bytes = value.len();
    if bytes == 0 || bytes > max_bytes {
        let why = format!("has a `{name}` of {bytes} bytes, allowed are 1 to {max_bytes}");
        return Err(wrong(why));
    }
    if value.contains(char::is_control) {
        return Err(wrong(format!("has a `{name}` with a control character")));
    }
    Ok(value.into_owned())
}

/// The value of `limit`: how many rows an answer has at most.
pub fn row_limit(value: &str) -> Result<u16, Error> {
    let limit = value.parse().ok().filter(|limit| (1..=MAX_ROWS).contains(limit));
    limit.ok_or_else(|| wrong(format!("has a `limit` outside of 1 to {MAX_ROWS}")))
}

/// The value of a parameter that selects what has a property, or what has it not.
pub fn flag(name: &str, value: &str) -> Result<bool, Error> {
    let flag = value.parse();
    flag.map_err(|_| wrong(format!("has a `{name}` that is neither `true` nor `false`")))
}

/// The name behind which a page of objects begins, as a cursor encodes it.
pub fn decode_name_cursor(text: &str) -> Result<ObjectName, Error> {
    let (namespace, name) = decode_cursor(text)?;
    Ok(ObjectName { namespace, name })
}

/// Encodes the last name of a page as a cursor.
pub fn encode_name_cursor(ObjectName { namespace, name }: &ObjectName) -> String {
    encode_cursor(&(namespace, name))
}

/// The position that a cursor encodes.
pub fn decode_cursor<P: DeserializeOwned>(text: &str) -> Result<P, Error> {
    let json = URL_SAFE_NO_PAD.decode(text).ok();
    json.and_then(|json| serde_json::from_slice(&json).ok())
        .ok_or_else(no_cursor)
}

fn no_cursor() -> Error {
    wrong("has an invalid `continue` token")
}

/// The cursor of the page after a position.
pub fn encode_cursor(position: &impl Serialize) -> String {
    // A cursor goes into a query, where the other characters of base64 would need encoding.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(position).unwrap_or_default())
}

/// The error of a query.
pub fn wrong(why: impl Into<String>) -> Error {
    Error::Query { why: why.into() }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{AGENT_PARAMETERS, AUDIT_PARAMETERS, Error, OwnerFilter, Query, ROW_PARAMETERS, encode_cursor};

    #[test]
    fn parameters_are_parsed() {
        let id = Uuid::now_v7();
        let raw = format!("user=bob%20b&agent=prod&action=token.created&before={id}&limit=1000");
        let expected = Query {
            owner: OwnerFilter::User("bob b".to_owned()),
            agent: Some("prod".to_owned()),
            action: Some("token.created".to_owned()),
            before: Some(id),
            limit: Some(1_000),
            ..Query::default()
        };
        assert_eq!(Query::read(Some(&raw), AUDIT_PARAMETERS).unwrap(), expected);
        assert_eq!(Query::read(None, AGENT_PARAMETERS).unwrap(), Query::default());
        let all = Query::read(Some("user=*"), ROW_PARAMETERS).unwrap();
        assert_eq!(
            (all.owner.clone(), all.event_limit(), all.row_limit()),
            (OwnerFilter::All, 100, 1_000)
        );
    }

    #[test]
    fn what_a_request_was_about_is_read() {
        let raw = "session=pat:7&verb=create&resource=pods/exec&namespace=shop&name=web-0\
                   &since=2026-01-31T08:00:00Z&until=2026-01-31T10:00:00%2B01:00";
        let text = |text: &str| Some(text.to_owned());
        let expected = Query {
            session: text("pat:7"),
            verb: text("create"),
            resource: text("pods"),
            subresource: text("exec"),
            namespace: text("shop"),
            name: text("web-0"),
            since: "2026-01-31T08:00:00Z".parse().ok(),
            until: "2026-01-31T09:00:00Z".parse().ok(),
            ..Query::default()
        };
        assert_eq!(Query::read(Some(raw), AUDIT_PARAMETERS).unwrap(), expected);
        for (raw, resource, subresource) in [
            ("resource=secrets", text("secrets"), None),
            ("resource=*/exec", None, text("exec")),
        ] {
            let query = Query::read(Some(raw), AUDIT_PARAMETERS).unwrap();
            assert_eq!((query.resource, query.subresource), (resource, subresource), "{raw}");
        }
    }

    #[test]
    fn cursors_are_read_as_they_are_written() {
        let after = |text: &str| {
            let query = Query::read(Some(&format!("continue={text}")), ROW_PARAMETERS)?;
            query.decode_cursor(|(name, _): &(String, i64)| name.len() <= 256)
        };
        let longest = ("x".repeat(256), i64::MAX);
        assert_eq!(after(&encode_cursor(&longest)).unwrap(), Some(longest));
        assert_eq!(Query::default().decode_cursor(|_: &String| true).unwrap(), None);
        for text in [
            encode_cursor(&("x".repeat(257), 1)),
            encode_cursor(&("x", "y")),
            encode_cursor(&"x"),
            format!("{}=", encode_cursor(&("x", 1))),
            "x".repeat(513),
            "*".to_owned(),
        ] {
            let error = after(&text).unwrap_err();
            assert!(
                matches!(&error, Error::Query { why } if why.contains("`continue`")),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn invalid_parameters_are_refused() {
        for (raw, parameters, part) in [
            (
                "users=bob",
                ROW_PARAMETERS,
                "other than `user`, `agent`, `limit`, `continue`",
            ),
            (
                "before=5",
                ROW_PARAMETERS,
                "other than `user`, `agent`, `limit`, `continue`",
            ),
            (
                "continue=5",
                AUDIT_PARAMETERS,
                "other than `user`, `agent`, `action`, `session`, `verb`, `resource`, `namespace`, `name`, `since`, ",
            ),
            ("limit=1001", ROW_PARAMETERS, "1 to 1000"),
            ("agent=a", AGENT_PARAMETERS, "other than `user`"),
            ("user=a&user=b", ROW_PARAMETERS, "`user` twice"),
            ("user=", ROW_PARAMETERS, "of 0 bytes"),
            ("limit=0", AUDIT_PARAMETERS, "1 to 1000"),
            ("limit=1001", AUDIT_PARAMETERS, "1 to 1000"),
            ("limit=-1", AUDIT_PARAMETERS, "1 to 1000"),
            ("before=7", AUDIT_PARAMETERS, "not an event's id"),
            (
                "since=yesterday",
                AUDIT_PARAMETERS,
                "a `since` that is not a time such as",
            ),
            ("until=2026-01-31", AUDIT_PARAMETERS, "a `until` that"),
            ("name=a%00", AUDIT_PARAMETERS, "a `name` with a control character"),
            ("resource=*", AUDIT_PARAMETERS, "none of `pods`, `pods/exec`, `*/exec`"),
            ("resource=pods/", AUDIT_PARAMETERS, "none of `pods`"),
            ("resource=/exec", AUDIT_PARAMETERS, "none of `pods`"),
            ("resource=pods/exec/x", AUDIT_PARAMETERS, "none of `pods`"),
        ] {
            let error = Query::read(Some(raw), parameters).unwrap_err();
            assert!(
                matches!(&error, Error::Query { why } if why.contains(part)),
                "{raw}: {error}"
            );
        }
    }
}
