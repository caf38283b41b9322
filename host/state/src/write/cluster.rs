//! Reads and writes objects in the control plane's cluster.
//!
//! A change is sent as a JSON merge patch (RFC 7396) of what differs, with
//! `metadata.resourceVersion`: the API server refuses it with 409 when the object has changed.
//! Lists of Argo CD's kinds are atomic to it. Server-side apply would need force as soon as anybody
//! else wrote these fields, and force hides who owns them. So the owners are checked here instead:
//! a manager that applies a field from elsewhere would undo the change, so the change is refused
//! with the manager's name.
//!
//! Invariant: every patch has a version and contains only fields that change.

use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use serde_json::{Value, json};

use super::value::merge_patch;
use super::{
    Error, ObjectKey, ResourceVersion, StoredObject, WritableKind, Writer, name_and_owners, set_version,
    strip_server_metadata,
};
use tollgate_core::diagnostic::one_line;
use tollgate_objects::ObjectName;

mod batch;

/// Name under which the cluster records us as the manager of fields.
pub(super) const MANAGER: &str = "tollgate";

const PAGE_SIZE: u32 = 500;

/// Most objects of one page of a list whose objects may be large.
const SMALL_PAGE_SIZE: u32 = 50;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Most bytes of the cluster's message that an error repeats.
const MAX_MESSAGE_BYTES: usize = 500;

/// A request, unless its path is wrong.
type Unsent = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// Reads and writes objects at the API server of the control plane's cluster.
#[derive(Clone, derive_more::Debug)]
#[debug("Cluster")]
pub struct ClusterWriter {
    /// The client it works with.
    pub client: Client,
}

impl ClusterWriter {
    /// A writer for the cluster of this client, with its rights.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) async fn read(&self, key: &ObjectKey) -> Result<StoredObject, Error> {
        self.raw(key).await.and_then(stored)
    }

    /// The objects that are wanted, by name. They are read in pages, and at most one page is held
    /// besides them.
    pub(super) async fn select(
        &self,
        kind: WritableKind,
        namespace: &str,
        is_wanted: &(dyn Fn(&Value) -> bool + Sync),
    ) -> Result<Vec<StoredObject>, Error> {
        let page = match kind {
            WritableKind::Application => PAGE_SIZE,
            // One object may have a megabyte.
            WritableKind::ApplicationSet | WritableKind::AppProject => SMALL_PAGE_SIZE,
        };
        let path = path(kind, namespace);
        let mut all = Vec::new();
        let keep = |item| {
            let stored = complete_item(item, kind)?;
            if is_wanted(&stored.object) {
                all.push(stored);
            }
            Ok(())
        };
        self.each_item(page, |parameters| path.list(parameters), keep).await?;
        Ok(all)
    }

    /// As [`Writer::visit`]. At most one page is held.
    pub(super) async fn visit(
        &self,
        kind: WritableKind,
        namespace: &str,
        visit: &mut dyn FnMut(&Value),
    ) -> Result<(), Error> {
        // Here objects have their status, so pages are small.
        let path = path(kind, namespace);
        let show = |item: Value| {
            visit(&item);
            Ok(())
        };
        self.each_item(SMALL_PAGE_SIZE, |parameters| path.list(parameters), show)
            .await
    }

    /// As [`Writer::related`]. Of objects that are not related only metadata is sent.
    pub(super) async fn related(
        &self,
        kind: WritableKind,
        namespace: &str,
        is_related: impl Fn(&Value) -> bool + Send,
    ) -> Result<Vec<Value>, Error> {
        let path = path(kind, namespace);
        let (mut all, mut related) = (Vec::new(), Vec::new());
        let sort = |item| {
            let part = name_and_owners(&item);
            match is_related(&part) {
                true => related.extend(key_of(&part, kind, namespace)),
                false => all.push(part),
            }
            Ok(())
        };
        self.each_item(PAGE_SIZE, |parameters| path.list_metadata(parameters), sort)
            .await?;
        for stored in Writer::Cluster(self.clone()).read_each(&related).await? {
            let mut object = stored.object;
            if let Some(members) = object.as_object_mut() {
                members.remove("status");
            }
            all.push(object);
        }
        Ok(all)
    }

    async fn each_item(
        &self,
        page: u32,
        request: impl Fn(&ListParams) -> Unsent,
        mut handle: impl FnMut(Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut parameters = ListParams::default().limit(page);
        loop {
            let mut list = self.send(request(&parameters), None).await?;
            if let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) {
                items.into_iter().try_for_each(&mut handle)?;
            }
            let next = list.pointer("/metadata/continue").and_then(Value::as_str);
            match next.filter(|next| !next.is_empty()) {
                Some(next) => parameters = parameters.continue_token(next),
                None => return Ok(()),
            }
        }
    }

    pub(super) async fn replace(
        &self,
        key: &ObjectKey,
        wanted: &Value,
        expected_version: &ResourceVersion,
    ) -> Result<StoredObject, Error> {
        let raw = self.raw(key).await?;
        let managed = raw.pointer("/metadata/managedFields").cloned().unwrap_or_default();
        let old = stored(raw)?;
        // The patch is made of this reading, so the reading must be the one that the caller changed.
        if old.version != *expected_version {
            return Err(Error::conflict(key, expected_version.as_str(), old.version.as_str()));
        }
        let mut wanted = wanted.clone();
        strip_server_metadata(&mut wanted);
        set_version(&mut wanted, expected_version);
        let Some(mut patch) = merge_patch(&old.object, &wanted) else {
            return Ok(old);
        };
        let owners = owners(&managed, &patch);
        if !owners.is_empty() {
            return Err(Error::ManagedElsewhere {
                key: key.clone(),
                managers: owners.join(", "),
            });
        }
        // `set_version` only writes into metadata that is there, and a patch without a version overwrites.
        if let Some(members) = patch.as_object_mut() {
            members.entry("metadata").or_insert_with(|| json!({}));
        }
        set_version(&mut patch, expected_version);
        let parameters = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let request = path(key.kind, &key.name.namespace).patch(&key.name.name, &parameters, &Patch::Merge(&patch));
        self.send(request, Some((key, expected_version))).await.and_then(stored)
    }

    pub(super) async fn create(&self, key: &ObjectKey, object: &Value) -> Result<StoredObject, Error> {
        self.post(key, object, false).await.and_then(stored)
    }

    pub(super) async fn create_dry_run(&self, key: &ObjectKey, object: &Value) -> Result<(), Error> {
        self.post(key, object, true).await.map(drop)
    }

    async fn post(&self, key: &ObjectKey, object: &Value, dry_run: bool) -> Result<Value, Error> {
        let parameters = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            dry_run,
        };
        let mut object = object.clone();
        // The API server refuses a new object that has a `resourceVersion`.
        strip_server_metadata(&mut object);
        let request = path(key.kind, &key.name.namespace).create(&parameters, object.to_string().into_bytes());
        let none = ResourceVersion::new("");
        self.send(request, Some((key, &none))).await
    }

    async fn delete(
        &self,
        key: &ObjectKey,
        expected_version: &ResourceVersion,
        mut parameters: DeleteParams,
    ) -> Result<(), Error> {
        parameters.preconditions = Some(Preconditions {
            resource_version: Some(expected_version.as_str().to_owned()),
            uid: None,
        });
        let request = path(key.kind, &key.name.namespace).delete(&key.name.name, &parameters);
        self.send(request, Some((key, expected_version))).await.map(drop)
    }

    async fn raw(&self, key: &ObjectKey) -> Result<Value, Error> {
        let request = path(key.kind, &key.name.namespace).get(&key.name.name, &GetParams::default());
        self.send(request, Some((key, &ResourceVersion::new("")))).await
    }

    /// Sends a request and converts refusals; `about` is the object and its expected version.
    async fn send(&self, request: Unsent, about: Option<(&ObjectKey, &ResourceVersion)>) -> Result<Value, Error> {
        let request = request.map_err(|error| unanswered(error.to_string()))?;
        match tokio::time::timeout(REQUEST_TIMEOUT, self.client.request::<Value>(request)).await {
            Ok(answer) => answer.map_err(|error| refused(&error, about)),
            Err(_) => Err(unanswered(format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()))),
        }
    }
}

fn unanswered(message: String) -> Error {
    Error::Cluster { status: 0, message }
}

/// Converts an error of the client that is about no object in particular.
pub fn cluster_error(error: &kube::Error) -> Error {
    refused(error, None)
}

fn refused(error: &kube::Error, about: Option<(&ObjectKey, &ResourceVersion)>) -> Error {
    let kube::Error::Api(status) = error else {
        let message = crate::kubernetes::describe_client_error(error);
        return unanswered(one_line(&message, MAX_MESSAGE_BYTES));
    };
    match (status.code, about) {
        (404, Some((key, _))) => Error::NotFound(key.clone()),
        (409, Some((key, _))) if status.reason == "AlreadyExists" => Error::AlreadyExists(key.clone()),
        (409, Some((key, expected_version))) => Error::conflict(key, expected_version.as_str(), "a newer one"),
        (code, _) => Error::Cluster {
            status: code,
            message: one_line(&status.message, MAX_MESSAGE_BYTES),
        },
    }
}

fn path(kind: WritableKind, namespace: &str) -> Request {
    let version = kind.api_version();
    Request::new(format!("/apis/{version}/namespaces/{namespace}/{}", kind.plural()))
}

fn key_of(name_and_owners: &Value, kind: WritableKind, namespace: &str) -> Option<ObjectKey> {
    let name = ObjectName {
        namespace: namespace.to_owned(),
        name: name_and_owners.pointer("/metadata/name")?.as_str()?.to_owned(),
    };
    Some(ObjectKey { kind, name })
}

/// Makes an item of a list a complete object: adds what only the list says. The `status` of
/// Applications is dropped.
fn complete_item(mut item: Value, kind: WritableKind) -> Result<StoredObject, Error> {
    if let Some(members) = item.as_object_mut() {
        members.insert("apiVersion".to_owned(), kind.api_version().into());
        members.insert("kind".to_owned(), kind.as_str().into());
        if kind == WritableKind::Application {
            members.remove("status");
        }
    }
    stored(item)
}

fn stored(mut object: Value) -> Result<StoredObject, Error> {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let version = metadata.and_then(|metadata| {
        metadata.remove("managedFields");
        Some(ResourceVersion::new(metadata.get("resourceVersion")?.as_str()?))
    });
    let version = version.ok_or(Error::Interrupted)?;
    Ok(StoredObject { object, version })
}

/// The managers that apply (`Apply`) a field that the patch changes. A manager that once wrote it
/// (`Update`) does not own it.
///
/// Source: Kubernetes, server-side apply, `metadata.managedFields`.
fn owners(managed: &Value, patch: &Value) -> Vec<String> {
    let entries = managed.as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let others = entries.iter().filter(|entry| {
        text(entry, "operation") == "Apply"
            && text(entry, "manager") != MANAGER
            && entry.get("fieldsV1").is_some_and(|fields| has_any(fields, patch))
    });
    others.map(|entry| format!("`{}`", text(entry, "manager"))).collect()
}

/// Whether a set of fields has one that the patch changes, or one within it. The owner of a mapping
/// as such (`f:spec: {}`) does not own what others put into it.
fn has_any(fields: &Value, patch: &Value) -> bool {
    let Some(members) = patch.as_object().filter(|members| !members.is_empty()) else {
        return true;
    };
    members.iter().any(|(key, value)| {
        let inner = fields.get(format!("f:{key}"));
        inner.is_some_and(|inner| has_any(inner, value))
    })
}

#[cfg(test)]
mod tests;
