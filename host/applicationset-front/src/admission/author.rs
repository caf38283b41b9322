//! Adds the signed statements of who wrote an ApplicationSet: in the patch of the mutating webhook, and
//! in sets that the gateway itself writes.
//!
//! Security: a statement is signed only for the user who writes the `spec` and by whose rights the
//! write is judged. A statement that a client sends is never taken.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use kube::core::admission::{AdmissionResponse, SerializePatchError};
use serde_json::{Map, Value, json};

use crate::admission::judge::{Judge, Writer, WriterKind};
use crate::admission::review::WrittenObject;
use crate::set_author::{author_of, sign};
use tollgate_applicationset::plan::{AUTHOR_ANNOTATION, PARENT_ANNOTATION};
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
    pub(super) async fn of(judge: &Judge<'_>, writer: &Writer, object: &WrittenObject, now: i64) -> Self {
        let Some(set) = object.after().filter(|_| object.kind == WritableKind::ApplicationSet) else {
            return Self::Keep;
        };
        // The gateway signs for the person whose request it carries out.
        if writer.kind == WriterKind::Gateway {
            return Self::Keep;
        }
        let [author, sent_author] = author_statements(judge, writer, object, set, now);
        let [stored, sent] = object.parent_statements();
        let parent = judge.parent_statement(writer, object, now).await;
        // It counts again when the Application restores the spec that it deployed.
        let parent = parent.or_else(|| stored.map(str::to_owned));
        if author == sent_author && parent.as_deref() == sent {
            return Self::Keep;
        }
        // A JSON patch cannot add to a map that does not exist, so the whole map is sent.
        let mut annotations = match set.pointer("/metadata/annotations") {
            Some(Value::Object(annotations)) => annotations.clone(),
            Some(_) | None => Map::new(),
        };
        for (key, wanted) in [(AUTHOR_ANNOTATION, author), (PARENT_ANNOTATION, parent)] {
            match wanted {
                Some(wanted) => annotations.insert(key.to_owned(), json!(wanted)),
                None => annotations.remove(key),
            };
        }
        match annotations.is_empty() {
            true => Self::Remove,
            false => Self::Annotations(Value::Object(annotations)),
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

/// The statement of the author that a set is to have, and the one that was sent.
fn author_statements(
    judge: &Judge<'_>,
    writer: &Writer,
    object: &WrittenObject,
    set: &Value,
    now: i64,
) -> [Option<String>; 2] {
    let [stored, sent] = object.statements();
    // A stored statement that also holds for the new object stays: a change of labels keeps the author.
    let kept = stored.filter(|text| author_of(judge.policies(), &object.name, set, text).is_ok());
    let user = &writer.principal;
    // SECURITY: a user who changes a label has not read the `spec`, which may be anybody's.
    let is_writer =
        writer.kind == WriterKind::User && object.changes("/spec") && judge.parent_acting_as(user, object).is_none();
    let wanted = match kept {
        Some(kept) => Some(kept.to_owned()),
        None if is_writer => sign(judge.policies(), &object.name, set, user, now),
        None => None,
    };
    [wanted, sent.map(str::to_owned)]
}
