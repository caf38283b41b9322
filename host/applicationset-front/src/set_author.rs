//! The signed statements of who wrote an ApplicationSet, and which Application deployed it.
//!
//! Security: a statement says so of one set, as it is. It is no statement about another.

use std::sync::Arc;

use serde_json::Value;

use tollgate_applicationset::plan::{AUTHOR_ANNOTATION, PARENT_ANNOTATION};
use tollgate_front::policies::Policies;
use tollgate_identity::authenticate::{AuthoredSet, DeployedBy, Principal};
use tollgate_objects::ObjectName;

/// The statement that `author` wrote a set as it is.
///
/// - `now`: seconds since 1970.
pub(crate) fn sign(
    policies: &Policies,
    name: &ObjectName,
    set: &Value,
    author: &Principal,
    now: i64,
) -> Option<String> {
    let key = policies.author_key.as_ref()?;
    key.sign(AuthoredSet { name, object: set }, author, now)
}

/// The statement that an Application deployed a set as it is.
///
/// - `now`: seconds since 1970.
pub(crate) fn sign_parent(
    policies: &Policies,
    name: &ObjectName,
    set: &Value,
    parent: &DeployedBy,
    now: i64,
) -> Option<String> {
    let key = policies.author_key.as_ref()?;
    key.sign_parent(AuthoredSet { name, object: set }, parent, now)
}

/// The Application that deployed a set as it is, by this statement.
///
/// # Errors
/// Why none is known.
pub(crate) fn parent_of(policies: &Policies, name: &ObjectName, set: &Value, text: &str) -> Result<DeployedBy, String> {
    let key = policies.author_key.as_ref().ok_or("Argo CD's signing key is missing")?;
    let parent = key.verify_parent(AuthoredSet { name, object: set }, text);
    parent.map_err(|error| error.to_string())
}

/// Whether a set as it is has a statement of its author.
pub(crate) fn is_signed(policies: &Policies, name: &ObjectName, set: &Value) -> bool {
    statement(set).is_some_and(|text| author_of(policies, name, set, text).is_ok())
}

/// The author of a set as it is, by this statement.
///
/// # Errors
/// Why the author is unknown.
pub(crate) fn author_of(
    policies: &Policies,
    name: &ObjectName,
    set: &Value,
    text: &str,
) -> Result<Arc<Principal>, String> {
    let key = policies.author_key.as_ref().ok_or("Argo CD's signing key is missing")?;
    let author = key.verify(AuthoredSet { name, object: set }, text, &policies.rbac.scopes);
    author.map_err(|error| error.to_string())
}

/// The statement of the Application that deployed a stored set.
pub(crate) fn parent_statement(set: &Value) -> Option<&str> {
    set.pointer("/metadata/annotations")?.get(PARENT_ANNOTATION)?.as_str()
}

/// The statement of the author of a stored set.
pub(crate) fn statement(set: &Value) -> Option<&str> {
    set.pointer("/metadata/annotations")?.get(AUTHOR_ANNOTATION)?.as_str()
}
