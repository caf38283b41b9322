//! Checks every identity, wherever it comes from, before it is sent to a cluster, and removes
//! duplicates.
//!
//! Invariant: a value is refused rather than changed to make it fit.

use std::collections::HashSet;

use super::Error;
use tollgate_core::user::Identity;

/// Prefix of the names that are reserved for Kubernetes.
pub(super) const SYSTEM: &str = "system:";
/// Maximum length of a name, a group, a uid, a key or a value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1_024;
/// Maximum number of values of all keys of `extra` together.
pub const MAX_VALUES: usize = 256;
/// Domains whose keys are reserved for Kubernetes.
const OWN_DOMAINS: [&str; 2] = ["kubernetes.io", "k8s.io"];

/// The `system:` names that an identity may have, because the mapping gives them as literals. An
/// identity that does not come from a mapping may have none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AllowedSystemNames<'a> {
    pub(super) users: &'a [String],
    pub(super) groups: &'a [String],
}

/// Checks every part, and removes duplicate groups and duplicate values of one key.
pub(super) fn check(identity: Identity, allowed: AllowedSystemNames<'_>, max_groups: usize) -> Result<Identity, Error> {
    let Identity {
        username,
        groups,
        uid,
        extra,
    } = identity;
    check_value("username", &username)?;
    check_system("username", &username, allowed.users)?;
    let groups = unique(groups);
    if groups.len() > max_groups {
        return Err(Error::TooManyGroups {
            observed: groups.len(),
            allowed: max_groups,
        });
    }
    for group in &groups {
        check_value("group", group)?;
        check_system("group", group, allowed.groups)?;
    }
    let uid = uid.filter(|uid| !uid.is_empty());
    if let Some(uid) = &uid {
        check_value("uid", uid)?;
    }
    Ok(Identity {
        username,
        groups,
        uid,
        extra: check_extra(extra)?,
    })
}

/// Checks keys and values. Returns the keys in their order, each once, with its values.
pub(super) fn check_extra(extra: Vec<(String, Vec<String>)>) -> Result<Vec<(String, Vec<String>)>, Error> {
    // A key without values counts as one, or the number of keys would have no bound.
    let observed = extra.iter().map(|(_, values)| values.len().max(1)).sum();
    if observed > MAX_VALUES {
        return Err(Error::TooManyValues(observed));
    }
    let mut checked: Vec<(String, Vec<String>)> = Vec::with_capacity(extra.len());
    for (key, values) in extra {
        check_key(&key)?;
        for value in &values {
            check_value("value of `extra`", value)?;
        }
        match checked.iter_mut().find(|(existing, _)| *existing == key) {
            Some((_, existing)) => existing.extend(values),
            None => checked.push((key, values)),
        }
    }
    // A key without a value sends no header, so it means nothing to Kubernetes.
    let kept = checked.into_iter().filter(|(_, values)| !values.is_empty());
    Ok(kept.map(|(key, values)| (key, unique(values))).collect())
}

/// Whether Kubernetes reads a key of `extra` as it is written, and does not reserve it for itself.
///
/// Source: `k8s.io/apiserver`, validation of `AuthenticationConfiguration`; the
/// server lower-cases the header's name before it decodes it.
pub(super) fn check_key(key: &str) -> Result<(), Error> {
    let domain = key.split('/').next().unwrap_or_default();
    let within = |own: &str| {
        domain
            .strip_suffix(own)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._~!$&'()*+,;=:@/%".contains(c);
    let problem = if key.is_empty() || domain.is_empty() {
        "is empty, or its domain is"
    } else if key.len() > MAX_VALUE_BYTES {
        "is too long"
    } else if key.chars().any(|c| c.is_uppercase()) {
        "is not lower case"
    } else if !key.chars().all(plain) {
        "has characters a path cannot have"
    } else if OWN_DOMAINS.into_iter().any(within) {
        "is of a domain of Kubernetes' own"
    } else {
        return Ok(());
    };
    let key = key.chars().filter(|c| !c.is_control()).take(128).collect();
    Err(Error::Key { key, problem })
}

/// Whether HTTP carries the value unchanged.
fn check_value(part: &'static str, value: &str) -> Result<(), Error> {
    if value.is_empty() {
        return Err(Error::Empty(part));
    }
    if value.len() > MAX_VALUE_BYTES {
        let observed = value.len();
        return Err(Error::TooLong { part, observed });
    }
    if value.chars().any(char::is_control) {
        return Err(Error::Control(part));
    }
    // Parsers trim fields: `admin ` would arrive as `admin`.
    if value.trim() != value {
        return Err(Error::Blank(part));
    }
    Ok(())
}

// SECURITY: `system:masters` may do everything, and `system:serviceaccount:…` is another identity.
// A user who chooses a name must not be able to choose one of these.
fn check_system(part: &'static str, name: &str, allowed: &[String]) -> Result<(), Error> {
    if !name.starts_with(SYSTEM) || allowed.iter().any(|literal| literal == name) {
        return Ok(());
    }
    let name = name.to_owned();
    Err(Error::System { part, name })
}

fn unique(values: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::with_capacity(values.len());
    let mut kept = values;
    kept.retain(|value| seen.insert(value.clone()));
    kept
}
