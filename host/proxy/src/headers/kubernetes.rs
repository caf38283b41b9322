//! The fields that tell a cluster who a request is from: `Impersonate-*`, `Audit-ID` and `Via`,
//! for an identity that passed the guard rails.
//!
//! Security: a request never names two users or an empty one, and a request that impersonates
//! nobody has none of these fields.
//!
//! Source: `k8s.io/client-go/transport`, impersonating round tripper, and
//! `k8s.io/apiserver/pkg/endpoints/filters/impersonation`.

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use uuid::Uuid;

use super::Error;
use super::seal::{PSEUDONYM, put};
use tollgate_core::header_names::is_impersonation;
use tollgate_core::user::Identity;
use tollgate_policy::impersonate::Impersonation;

#[cfg(test)]
mod tests;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const EXTRA_PREFIX: &str = "impersonate-extra-";
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Fields that only the front reads, and no cluster gets.
const FRONT_ONLY_FIELDS: [HeaderName; 2] = [
    HeaderName::from_static("gitlab-agent-id"),
    HeaderName::from_static("x-csrf-token"),
];

/// Bytes of a key that are escaped in a field name: `%`, and every byte that a token cannot contain.
/// Source: RFC 9110, section 5.6.2; Kubernetes `transport.headerKeyEscape`.
pub(super) const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// The first field with which a client requests impersonation, in any spelling: `Impersonate-*`,
/// also with `_` or `.` for `-`, and also without a suffix.
pub fn client_impersonates(fields: &HeaderMap) -> Option<&HeaderName> {
    fields.keys().find(|name| is_impersonation(name.as_str()))
}

/// The list `Via` with this gateway appended.
pub(super) fn via_after(before: Option<&HeaderValue>) -> Option<HeaderValue> {
    let Some(before) = before else {
        return Some(HeaderValue::from_static(PSEUDONYM));
    };
    HeaderValue::try_from(format!("{}, {PSEUDONYM}", before.to_str().ok()?)).ok()
}

/// Removes the client's copies of fields that only the front reads.
pub(super) fn remove_front_only_fields(fields: &mut HeaderMap) {
    for name in FRONT_ONLY_FIELDS {
        fields.remove(name);
    }
}

pub(super) fn put_audit_id(fields: &mut HeaderMap, id: Uuid) -> Result<(), Error> {
    let mut text = Uuid::encode_buffer();
    let value = HeaderValue::from_str(id.hyphenated().encode_lower(&mut text));
    put(fields, AUDIT_ID, value.map_err(|_| Error::Value(AUDIT_ID))?)
}

/// Writes the user that the cluster should impersonate. Writes nothing if there is none.
pub(super) fn put_impersonation(fields: &mut HeaderMap, impersonation: &Impersonation) -> Result<(), Error> {
    let Identity {
        username,
        groups,
        uid,
        extra,
    } = match impersonation {
        Impersonation::Nobody => return Ok(()),
        Impersonation::As(identity) => identity,
    };
    put(fields, USER, value(&USER, username)?)?;
    if let Some(uid) = uid {
        put(fields, UID, value(&UID, uid)?)?;
    }
    put_lines(fields, &GROUP, groups)?;
    for (key, values) in extra {
        let name = format!("{EXTRA_PREFIX}{}", utf8_percent_encode(key, ESCAPED));
        let name = HeaderName::try_from(name).map_err(|_| Error::Impersonation)?;
        put_lines(fields, &name, values)?;
    }
    Ok(())
}

/// INVARIANT: `Impersonate-User` is present once and not empty. Without it, the request would be
/// the gateway's own, and of two the cluster takes the first. This is checked last, so that it also
/// covers mistakes of earlier steps.
pub(super) fn check_impersonation(fields: &HeaderMap, impersonation: &Impersonation) -> Result<(), Error> {
    let mut users = fields.get_all(USER).iter();
    let is_as_decided = match impersonation {
        Impersonation::Nobody => !fields.keys().any(|name| is_impersonation(name.as_str())),
        Impersonation::As(identity) => {
            let user = users.next().map(HeaderValue::as_bytes);
            user == Some(identity.username.as_bytes())
                && user.is_some_and(|user| !user.trim_ascii().is_empty())
                && users.next().is_none()
        }
    };
    if is_as_decided {
        Ok(())
    } else {
        Err(Error::Impersonation)
    }
}

/// One line for each value, of a field that is not there yet.
fn put_lines(fields: &mut HeaderMap, name: &HeaderName, values: &[String]) -> Result<(), Error> {
    let mut values = values.iter();
    let Some(first) = values.next() else { return Ok(()) };
    put(fields, name.clone(), value(name, first)?)?;
    for other in values {
        fields.append(name.clone(), value(name, other)?);
    }
    Ok(())
}

/// A header value with the UTF-8 bytes unchanged, as the API server expects.
fn value(name: &HeaderName, text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| Error::Value(name.clone()))
}
