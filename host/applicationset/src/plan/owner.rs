//! Whose an Application is.
//!
//! In: owner references. Out: whether a set is the controller, and whether an object
//! goes with it. Never: by name alone where both sides have a uid.

use serde_json::{Value, json};

const KIND: &str = "ApplicationSet";
const GROUP: &str = "argoproj.io/";
const VERSION: &str = "argoproj.io/v1alpha1";

/// An ApplicationSet as owner references name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `metadata.name`; it is in the namespace of what it owns.
    name: String,
    /// `metadata.uid`; none before a cluster gave one, or in a file without.
    uid: Option<String>,
}

impl Owner {
    /// The stored `set` of this name.
    pub fn of(name: &str, set: &Value) -> Self {
        let uid = set.pointer("/metadata/uid").and_then(Value::as_str);
        Self {
            name: name.to_owned(),
            uid: uid.filter(|uid| !uid.is_empty()).map(str::to_owned),
        }
    }

    /// A set that is not stored yet.
    pub(super) fn unborn(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            uid: None,
        }
    }

    /// Whether it is the controller of an Application of its namespace.
    ///
    /// A reference to an earlier set of the name, which had another uid, does not
    /// count. Files written by hand may have none.
    pub fn owns(&self, application: &Value) -> bool {
        controller(application).is_some_and(|reference| self.is_named(reference))
    }

    /// Whether a cluster takes the reference of an Application to it for one to an owner,
    /// controller or not: it deletes what has no owner any more.
    ///
    /// Source: Kubernetes, garbage collection by `uid`.
    pub fn takes_along(&self, application: &Value) -> bool {
        references(application).iter().any(|reference| self.is_bound(reference))
    }

    /// Whether an Application has another owner as well.
    pub(super) fn has_others(&self, application: &Value) -> bool {
        references(application)
            .iter()
            .any(|reference| !self.is_named(reference))
    }

    fn is_bound(&self, reference: &Value) -> bool {
        self.uid.as_deref() == Some(text(reference, "uid")) && self.is_named(reference)
    }

    fn is_named(&self, reference: &Value) -> bool {
        let uid = text(reference, "uid");
        text(reference, "kind") == KIND
            && text(reference, "apiVersion").starts_with(GROUP)
            && text(reference, "name") == self.name
            && (uid.is_empty() || self.uid.as_deref().is_none_or(|own| own == uid))
    }

    /// The reference that Applications of the set have.
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

    /// Whether the Application refers to it just as it would be written.
    pub(super) fn is_linked(&self, application: &Value) -> bool {
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

/// The Application with a reference to the set, in place of an earlier one.
pub fn linked(application: Value, owner: &Owner) -> Value {
    if owner.is_linked(&application) {
        return application;
    }
    let mut all: Vec<Value> = references(&application)
        .iter()
        .filter(|reference| !owner.is_named(reference))
        .cloned()
        .collect();
    all.push(owner.reference());
    with_references(application, all)
}

/// The Application without a reference to the set.
pub fn unlinked(application: &Value, owner: &Owner) -> Value {
    let others = references(application)
        .iter()
        .filter(|reference| !owner.is_named(reference));
    let others = others.cloned().collect();
    with_references(application.clone(), others)
}

fn with_references(mut application: Value, references: Vec<Value>) -> Value {
    if let Some(metadata) = application.get_mut("metadata").and_then(Value::as_object_mut) {
        if references.is_empty() {
            metadata.remove("ownerReferences");
        } else {
            metadata.insert("ownerReferences".to_owned(), Value::Array(references));
        }
    }
    application
}
