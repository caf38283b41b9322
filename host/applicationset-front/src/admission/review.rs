//! Reads what a review is about: one of the kinds that are judged, before and after the write.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, Operation};
use serde_json::Value;

use crate::set_author::{parent_statement, statement};
use tollgate_objects::ObjectName;
use tollgate_policy::applications::{ResourceKey, TrackedBy, Tracking};
use tollgate_state::write::WritableKind;

pub(super) const GROUP: &str = "argoproj.io";
pub(super) const KINDS: [WritableKind; 3] = [
    WritableKind::Application,
    WritableKind::ApplicationSet,
    WritableKind::AppProject,
];

/// Annotation in which kubectl and Argo CD keep what they applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The only subresource that has the whole object.
const STATUS: &str = "status";

/// An object before and after a write, of which at least one is there.
#[derive(Debug)]
pub(super) struct WrittenObject {
    pub(super) kind: WritableKind,
    pub(super) name: ObjectName,
    operation: &'static str,
    before: Option<State>,
    after: Option<State>,
}

#[derive(Debug)]
struct State {
    metadata: ObjectMeta,
    object: Value,
}

impl State {
    fn read(object: &DynamicObject) -> Result<Self, String> {
        Ok(Self {
            metadata: object.metadata.clone(),
            object: serde_json::to_value(object).map_err(|error| error.to_string())?,
        })
    }
}

impl WrittenObject {
    /// `None` for a kind that is not judged, and for a request that writes nothing.
    ///
    /// # Errors
    /// What is needed to judge the write is not there, such as a name that the API server has not
    /// chosen yet. The text says what is missing.
    pub(super) fn read(request: &AdmissionRequest<DynamicObject>) -> Result<Option<Self>, String> {
        let resource = &request.resource;
        let kind = KINDS.into_iter().find(|kind| kind.plural() == resource.resource);
        let Some(kind) = kind.filter(|_| resource.group == GROUP) else {
            return Ok(None);
        };
        // The object of another one is no object of this kind.
        if let Some(other) = request
            .sub_resource
            .as_deref()
            .filter(|name| !["", STATUS].contains(name))
        {
            return Err(format!("the subresource `{other}` is not judged"));
        }
        let (operation, has_before, has_after) = match request.operation {
            Operation::Create => ("create", false, true),
            Operation::Update => ("update", true, true),
            Operation::Delete => ("delete", true, false),
            Operation::Connect => return Ok(None),
        };
        let state = |object: &Option<DynamicObject>, is_there: bool, field: &str| {
            let object = object.as_ref().filter(|_| is_there);
            let read = object.map(State::read).transpose()?;
            match read.is_some() == is_there {
                true => Ok(read),
                false => Err(format!("operation `{operation}` without `{field}`")),
            }
        };
        let before = state(&request.old_object, has_before, "oldObject")?;
        let after = state(&request.object, has_after, "object")?;
        // The request has no name if the API server chose it, and neither has one if it has not yet.
        let metadata = after.as_ref().or(before.as_ref()).map(|state| &state.metadata);
        let name = metadata.and_then(|metadata| metadata.name.clone());
        let name = name.filter(|name| !name.is_empty());
        let namespace = request.namespace.clone().filter(|namespace| !namespace.is_empty());
        Ok(Some(Self {
            kind,
            name: ObjectName {
                namespace: namespace.ok_or("it has no namespace")?,
                name: name.ok_or("it has no name yet")?,
            },
            operation,
            before,
            after,
        }))
    }

    pub(super) fn before(&self) -> Option<&Value> {
        self.before.as_ref().map(|state| &state.object)
    }

    /// The object as it is to be stored. `None` if it is deleted.
    pub(super) fn after(&self) -> Option<&Value> {
        self.after.as_ref().map(|state| &state.object)
    }

    /// The object as it is to be stored, or was.
    pub(super) fn object(&self) -> &Value {
        self.after().or(self.before()).unwrap_or(&Value::Null)
    }

    /// Whether a field differs, by its JSON pointer. One that is null is absent, as is one of
    /// `metadata` that is empty. Elsewhere `{}` is a value: it is an operation, for one.
    pub(super) fn changes(&self, pointer: &str) -> bool {
        let is_metadata = pointer.starts_with("/metadata/");
        let [before, after] = [self.before(), self.after()].map(|object| {
            let field = object.and_then(|object| object.pointer(pointer));
            field.filter(|field| !(field.is_null() || is_metadata && is_empty(field)))
        });
        before != after
    }

    /// Whether it is only there until its finalizers are gone.
    pub(super) fn is_being_deleted(&self) -> bool {
        let before = self.before.as_ref();
        before.is_some_and(|before| before.metadata.deletion_timestamp.is_some())
    }

    /// Whether anything differs that a client can write.
    pub(super) fn changes_anything(&self) -> bool {
        self.changes_besides(&[])
    }

    /// Whether anything differs that a client can write, besides these.
    pub(super) fn changes_besides(&self, others: &[&str]) -> bool {
        let everything = [
            "/spec",
            "/status",
            "/operation",
            "/metadata/labels",
            "/metadata/annotations",
            "/metadata/finalizers",
            "/metadata/ownerReferences",
        ];
        let mut looked_at = everything.iter().filter(|pointer| !others.contains(pointer));
        self.before.is_none() || self.after.is_none() || looked_at.any(|pointer| self.changes(pointer))
    }

    /// The instance name of the Application that it says it belongs to, or belonged to if it is
    /// deleted. `Err` if it belongs to another installation, or its metadata cannot be read.
    pub(super) fn claim(&self, tracking: &Tracking) -> Option<Result<&str, ()>> {
        claim_of(tracking, self.after.as_ref().or(self.before.as_ref()))
    }

    /// Whether it says to belong to another Application than before.
    pub(super) fn changes_claim(&self, tracking: &Tracking) -> bool {
        let [before, after] = [&self.before, &self.after].map(|state| claim_of(tracking, state.as_ref()));
        self.after.is_some() && before != after
    }

    /// The statement of its author that is stored with it, and the one that is to be.
    pub(super) fn statements(&self) -> [Option<&str>; 2] {
        [&self.before, &self.after].map(|state| state.as_ref().and_then(|state| statement(&state.object)))
    }

    /// The statement of the Application that deployed it that is stored with it, and the one that is
    /// to be.
    pub(super) fn parent_statements(&self) -> [Option<&str>; 2] {
        [&self.before, &self.after].map(|state| state.as_ref().and_then(|state| parent_statement(&state.object)))
    }

    /// Whether this write says by itself what the whole `spec` is: kubectl and Argo CD keep in an
    /// annotation what they applied. Otherwise they merge it into what is stored.
    ///
    /// SECURITY: an annotation that was there before says nothing about this write.
    pub(super) fn applies_whole_spec(&self) -> bool {
        let [before, after] = [&self.before, &self.after].map(|state| {
            let annotations = state.as_ref()?.metadata.annotations.as_ref()?;
            annotations.get(LAST_APPLIED)
        });
        let Some(applied) = after.filter(|after| before != Some(after)) else {
            return false;
        };
        let applied: Option<Value> = serde_json::from_str(applied).ok();
        let [applied, stored] = [applied.as_ref(), self.after()].map(|object| object.and_then(|one| one.get("spec")));
        applied.is_some() && applied == stored
    }

    /// What a decision record says about it.
    pub(super) fn notes(&self) -> [(String, String); 3] {
        let name = format!("{}/{}", self.name.namespace, self.name.name);
        [
            ("operation", self.operation),
            ("kind", self.kind.as_str()),
            ("object", &name),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
    }
}

fn claim_of<'a>(tracking: &Tracking, state: Option<&'a State>) -> Option<Result<&'a str, ()>> {
    let claim = tracking.claim(&state?.metadata)?;
    Some(match claim {
        TrackedBy::Instance(instance) => Ok(instance),
        TrackedBy::Unknown => Err(()),
    })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The instance name of the Application that deployed a stored set. `None` if its tracking id is of
/// another object, from which it was copied.
pub(super) fn deployed_by(tracking: &Tracking, name: &ObjectName, set: &Value) -> Option<String> {
    let metadata: ObjectMeta = serde_json::from_value(set.get("metadata")?.clone()).ok()?;
    let key = ResourceKey {
        group: GROUP,
        kind: WritableKind::ApplicationSet.as_str(),
        namespace: Some(&name.namespace),
        name: &name.name,
    };
    match tracking.tracked_by(key, &metadata)? {
        TrackedBy::Instance(instance) => Some(instance.to_owned()),
        TrackedBy::Unknown => None,
    }
}
