//! Whether two Applications are equal, apart from fields that only the store sets.

use serde_json::Value;

use super::Owner;
use tollgate_state::write::equivalence::fields_equal;

/// Whether storing `after` in place of `before` changes nothing.
pub(super) fn application(before: &Value, after: &Value, owner: &Owner) -> bool {
    let part = |key: &str| after.get("metadata").and_then(|metadata| metadata.get(key));
    specs(before, after)
        && before.get("operation") == after.get("operation")
        && ["labels", "annotations", "finalizers"]
            .iter()
            .all(|key| metadata(key, before, part(key)))
        && owner.has_exact_reference(before)
}

/// Whether the stored object contains everything that is generated and checked: the spec is equal
/// and no operation is started.
pub(super) fn generated(stored: &Value, generated: &Value) -> bool {
    let starts = generated
        .get("operation")
        .is_some_and(|operation| !operation.is_null() && stored.get("operation") != Some(operation));
    !starts && specs(stored, generated)
}

/// Whether their specs are equivalent.
pub(super) fn specs(before: &Value, after: &Value) -> bool {
    fields_equal("spec", before.get("spec"), after.get("spec"))
}

/// Whether this part of the metadata is unchanged.
pub(super) fn metadata(key: &str, before: &Value, after: Option<&Value>) -> bool {
    let before = before.get("metadata").and_then(|metadata| metadata.get(key));
    fields_equal(key, before, after)
}
