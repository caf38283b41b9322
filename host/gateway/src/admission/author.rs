//! Adds the signed statement of who wrote an ApplicationSet: in the patch of the mutating webhook, and
//! in sets that the gateway itself writes.
//!
//! Security: a statement is only signed for somebody whose write is judged by their own rights. A
//! statement that a client sends is never taken.

use std::sync::Arc;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use kube::core::admission::{AdmissionResponse, SerializePatchError};
use serde_json::{Value, json};

use crate::admission::judge::{Judge, Writer, WriterKind};
use crate::admission::review::{WrittenObject, statement};
use crate::policies::Policies;
use tollgate_applicationset::plan::AUTHOR_ANNOTATION;
use tollgate_identity::authenticate::{AuthoredSet, Principal};
use tollgate_state::ObjectName;
use tollgate_state::write::WritableKind;

/// What the mutating webhook does with a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AuthorPatch {
    /// Nothing.
    Keep,
    /// Replaces all annotations, which are then these.
    Annotations(Value),
    /// Removes the annotations, of which none is left.
    Remove,
}

impl AuthorPatch {
    /// - `now`: seconds since 1970.
    pub(super) fn of(judge: &Judge<'_>, writer: &Writer, object: &WrittenObject, now: i64) -> Self {
        let Some(set) = object.after().filter(|_| object.kind == WritableKind::ApplicationSet) else {
            return Self::Keep;
        };
        // The gateway signs for the person whose request it carries out.
        if writer.kind == WriterKind::Gateway {
            return Self::Keep;
        }
        let [stored, sent] = object.statements();
        let kept = stored.filter(|text| author_of(judge.policies(), &object.name, set, text).is_ok());
        let user = &writer.principal;
        let wanted = match (kept, writer.kind) {
            (Some(kept), _) => Some(kept.to_owned()),
            (None, WriterKind::User) if judge.parent_acting_as(user, object).is_none() => {
                sign(judge.policies(), &object.name, set, (user, now))
            }
            (None, _) => None,
        };
        if wanted.as_deref() == sent {
            return Self::Keep;
        }
        let mut annotations = set.pointer("/metadata/annotations").cloned().unwrap_or_default();
        match (annotations.as_object_mut(), wanted) {
            (Some(annotations), Some(wanted)) => {
                annotations.insert(AUTHOR_ANNOTATION.to_owned(), json!(wanted));
            }
            (Some(annotations), None) => {
                annotations.remove(AUTHOR_ANNOTATION);
            }
            (None, Some(wanted)) => annotations = json!({AUTHOR_ANNOTATION: wanted}),
            (None, None) => return Self::Keep,
        }
        match annotations.as_object().is_some_and(serde_json::Map::is_empty) {
            true => Self::Remove,
            false => Self::Annotations(annotations),
        }
    }

    pub(super) fn apply(&self, response: AdmissionResponse) -> Result<AdmissionResponse, SerializePatchError> {
        let path = PointerBuf::from_tokens(["metadata", "annotations"]);
        let operation = match self {
            Self::Keep => return Ok(response),
            Self::Annotations(value) => PatchOperation::Add(AddOperation {
                path,
                value: value.clone(),
            }),
            Self::Remove => PatchOperation::Remove(RemoveOperation { path }),
        };
        response.with_patch(Patch(vec![operation]))
    }

    /// The reason in the decision record.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Keep => "author_kept",
            Self::Annotations(_) | Self::Remove => "author_changed",
        }
    }
}

/// The statement that `author` wrote a set as it is.
///
/// - `now`: seconds since 1970.
pub(crate) fn sign(
    policies: &Policies,
    name: &ObjectName,
    set: &Value,
    (author, now): (&Principal, i64),
) -> Option<String> {
    let key = policies.author_key.as_ref()?;
    key.sign(AuthoredSet { name, object: set }, author, now)
}

/// Whether a set as it is has a statement of its author.
pub(crate) fn is_signed(policies: &Policies, name: &ObjectName, set: &Value) -> bool {
    statement(set).is_some_and(|text| author_of(policies, name, set, text).is_ok())
}

/// The author of a set as it is, by this statement.
///
/// # Errors
/// Why the author is unknown.
pub(super) fn author_of(
    policies: &Policies,
    name: &ObjectName,
    set: &Value,
    text: &str,
) -> Result<Arc<Principal>, String> {
    let key = policies.author_key.as_ref().ok_or("Argo CD's signing key is missing")?;
    let author = key.verify(AuthoredSet { name, object: set }, text, policies.rbac.scopes());
    author.map_err(|error| error.to_string())
}
