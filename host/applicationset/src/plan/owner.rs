//! Which ApplicationSet owns an Application, by its owner references: as its controller, or so
//! that deleting the set deletes it.
//!
//! Security: where both sides have a UID, a name alone never matches.

use serde_json::{Value, json};

use super::put_or_remove;

const KIND: &str = "ApplicationSet";
const GROUP: &str = "argoproj.io/";
const VERSION: &str = "argoproj.io/v1alpha1";

/// An ApplicationSet as owner references identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `metadata.name`; the set is in the namespace of what it owns.
    name: String,
    /// `metadata.uid`; `None` before a cluster assigns one, or in a file without.
    uid: Option<String>,
}

impl Owner {
    /// The owner for the `set` of this name; null if that is not stored yet.
    pub fn of(name: &str, set: &Value) -> Self {
        let uid = set.pointer("/metadata/uid").and_then(Value::as_str);
        Self {
            name: name.to_owned(),
            uid: uid.filter(|uid| !uid.is_empty()).map(str::to_owned),
        }
    }

    /// Whether it is the controller of an Application in its namespace.
    ///
    /// A reference to an earlier set of the same name, which had another UID, does not count.
    /// Files written by hand may have no UID.
    pub fn is_controller_of(&self, application: &Value) -> bool {
        controller(application).is_some_and(|reference| self.matches_reference(reference))
    }

    /// Whether a cluster treats the Application's reference as one to this set as an owner,
    /// controller or not. The cluster deletes objects that have no owner left.
    ///
    /// Source: Kubernetes, garbage collection by `uid`.
    pub fn garbage_collects(&self, application: &Value) -> bool {
        let mut references = references(application).iter();
        references
            .any(|reference| self.uid.as_deref() == Some(text(reference, "uid")) && self.matches_reference(reference))
    }

    /// The references of an Application to other owners.
    pub(super) fn others<'a>(&self, application: &'a Value) -> impl Iterator<Item = &'a Value> {
        let all = references(application).iter();
        all.filter(|reference| !self.matches_reference(reference))
    }

    fn matches_reference(&self, reference: &Value) -> bool {
        let uid = text(reference, "uid");
        text(reference, "kind") == KIND
            && text(reference, "apiVersion").starts_with(GROUP)
            && text(reference, "name") == self.name
            // Files written by hand may lack a UID, on either side.
            && (uid.is_empty() || self.uid.as_deref().is_none_or(|own| own == uid))
    }

    /// The owner reference that Applications of the set have.
    ///
    /// Source: Kubernetes, `SetControllerReference`.
    fn reference(&self) -> Value {
        let mut reference = json!({
            "apiVersion": VERSION,
            "kind": KIND,
            "name": self.name,
            "controller": true,
            "blockOwnerDeletion": true,
        });
        if let (Some(members), Some(uid)) = (reference.as_object_mut(), &self.uid) {
            members.insert("uid".to_owned(), uid.as_str().into());
        }
        reference
    }

    /// Whether the Application's reference to it is exactly the one that would be written.
    pub(super) fn has_exact_reference(&self, application: &Value) -> bool {
        let reference = self.reference();
        references(application).contains(&reference)
    }
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn references(object: &Value) -> &[Value] {
    let listed = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    listed.map(Vec::as_slice).unwrap_or_default()
}

fn controller(object: &Value) -> Option<&Value> {
    let is_controller = |reference: &&Value| reference.get("controller") == Some(&Value::Bool(true));
    references(object).iter().find(is_controller)
}

/// The Application with a reference to the set, which replaces an earlier one.
pub fn with_owner_reference(application: Value, owner: &Owner) -> Value {
    if owner.has_exact_reference(&application) {
        return application;
    }
    let mut all: Vec<Value> = owner.others(&application).cloned().collect();
    all.push(owner.reference());
    with_references(application, all)
}

/// The Application without a reference to the set.
pub fn without_owner_reference(application: &Value, owner: &Owner) -> Value {
    with_references(application.clone(), owner.others(application).cloned().collect())
}

fn with_references(mut application: Value, references: Vec<Value>) -> Value {
    if let Some(metadata) = application.get_mut("metadata").and_then(Value::as_object_mut) {
        let references = (!references.is_empty()).then_some(Value::Array(references));
        put_or_remove(metadata, "ownerReferences", references);
    }
    application
}
