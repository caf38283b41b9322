//! Header values that tell a backend who the caller is: a principal's names and groups. Names that
//! a header cannot carry unchanged are refused.
//!
//! Security: no two different identities read the same to a backend, except with
//! [`GroupEncoding::Argocd`].

use http::{HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::Error;
use super::kubernetes::ESCAPED;

/// The caller, as authentication knows it. Borrowed, because the fields are copied into header
/// values once.
#[derive(Clone, Copy, Debug)]
pub struct UserInfo<'a> {
    /// Argo CD's user id: `federated_claims.user_id`, else `sub`.
    pub user_id: &'a str,
    /// Display name; may be empty.
    pub username: &'a str,
    /// Values of all configured scopes.
    pub groups: &'a [String],
    /// Further values by key, for `X-Remote-Extra-*`.
    pub extra: &'a [(String, Vec<String>)],
}

/// How groups become the value of `Argocd-User-Groups`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupEncoding {
    /// Percent-encoded where a backend would otherwise see other groups.
    #[default]
    Escaped,
    /// As Argo CD: joined with `,` and otherwise unchanged. A group `a,b` reads like the groups `a`
    /// and `b`.
    Argocd,
}

/// Header values that say who calls. Made once for each principal and cloned cheaply.
#[derive(Clone, Debug, Default)]
pub struct IdentityHeaders {
    pub(super) user_id: Option<HeaderValue>,
    pub(super) username: Option<HeaderValue>,
    pub(super) groups: Option<HeaderValue>,
    /// As [`GroupEncoding::Argocd`] has them. An error for groups that no header can carry.
    pub(super) joined_groups: Option<Result<HeaderValue, Error>>,
    /// `X-Remote-*` lines, in the order they are sent.
    pub(super) remote: Vec<(HeaderName, HeaderValue)>,
}

impl IdentityHeaders {
    /// Makes the `Argocd-*` fields.
    ///
    /// Groups are joined with `,` as in Argo CD. Where a group's own characters
    /// would make a backend see other groups, [`GroupEncoding::Escaped`] percent-encodes
    /// them: `,` as `%2C`, `%` as `%25`, control characters, and blanks at either end. So
    /// splitting at commas gives exactly the groups, and no two lists look alike.
    ///
    /// # Errors
    /// [`Error::Identity`] when the id or name has control characters or blanks
    /// at either end: HTTP parsers trim, and `"admin "` would be `admin`.
    pub fn new(caller: &UserInfo<'_>) -> Result<Self, Error> {
        Ok(Self {
            user_id: single("user id", caller.user_id)?,
            username: single("username", caller.username)?,
            groups: escaped(caller.groups)?,
            joined_groups: joined(caller.groups),
            remote: Vec::new(),
        })
    }

    /// Adds the `X-Remote-*` fields, as Kubernetes sends it to aggregated API
    /// servers: name, uid, one line a group, extras with escaped keys.
    ///
    /// # Errors
    /// [`Error::Identity`] as above, also for a group, and [`Error::Nameless`]
    /// when there is neither a name nor an id.
    ///
    /// Source: Kubernetes `transport.SetAuthProxyHeaders`.
    pub fn with_request_header(mut self, caller: &UserInfo<'_>) -> Result<Self, Error> {
        let name = if caller.username.is_empty() {
            caller.user_id
        } else {
            caller.username
        };
        let user = single("username", name)?.ok_or(Error::Nameless)?;
        let mut remote = Vec::with_capacity(2 + caller.groups.len() + caller.extra.len());
        remote.push((HeaderName::from_static("x-remote-user"), user));
        if let Some(uid) = self.user_id.clone() {
            remote.push((HeaderName::from_static("x-remote-uid"), uid));
        }
        for group in caller.groups {
            if let Some(value) = single("group", group)? {
                remote.push((HeaderName::from_static("x-remote-group"), value));
            }
        }
        for (key, values) in caller.extra {
            let name = HeaderName::try_from(format!("x-remote-extra-{}", utf8_percent_encode(key, ESCAPED)))
                .map_err(|_| Error::Identity("extra key"))?;
            for value in values {
                if let Some(value) = single("extra value", value)? {
                    remote.push((name.clone(), value));
                }
            }
        }
        self.remote = remote;
        Ok(self)
    }
}

/// Returns a value that must arrive unchanged; `None` for an empty text.
pub(super) fn single(part: &'static str, text: &str) -> Result<Option<HeaderValue>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.trim() != text || text.chars().any(char::is_control) {
        return Err(Error::Identity(part));
    }
    HeaderValue::from_bytes(text.as_bytes())
        .map(Some)
        .map_err(|_| Error::Identity(part))
}

/// Source: Argo CD, `prepareRequest`; Go trims values when it sends them.
fn joined(groups: &[String]) -> Option<Result<HeaderValue, Error>> {
    let list = groups.join(",");
    let value = HeaderValue::from_bytes(list.trim_matches([' ', '\t']).as_bytes());
    (!groups.is_empty()).then(|| value.map_err(|_| Error::Identity("group")))
}

fn escaped(groups: &[String]) -> Result<Option<HeaderValue>, Error> {
    let mut list = String::with_capacity(groups.iter().map(|group| group.len() + 1).sum());
    // A backend that splits the list would see an element without a name.
    for group in groups.iter().filter(|group| !group.is_empty()) {
        if !list.is_empty() {
            list.push(',');
        }
        push_group(&mut list, group);
    }
    if list.is_empty() {
        return Ok(None);
    }
    HeaderValue::try_from(list)
        .map(Some)
        .map_err(|_| Error::Identity("group"))
}

fn push_group(list: &mut String, group: &str) {
    let special = |c: char| c == ',' || c == '%' || c.is_control();
    if group.trim() == group && !group.contains(special) {
        list.push_str(group);
        return;
    }
    let body = group.trim();
    let start = group.len() - group.trim_start().len();
    for (at, c) in group.char_indices() {
        let edge = at < start || at >= start + body.len();
        if edge || special(c) {
            list.extend(utf8_percent_encode(c.encode_utf8(&mut [0; 4]), NON_ALPHANUMERIC));
        } else {
            list.push(c);
        }
    }
}
