//! Reads, changes and stores single objects of the state. A change or deletion names the version it
//! is based on and is refused if the stored version is another one, if the state would no longer
//! load, or if a file cannot be edited without touching more than the object.
//!
//! Invariant: a write is done completely or not at all.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::Value;

use super::kubernetes;
use tollgate_config::{Config, StateSource};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::dns;
use tollgate_core::yaml;
use tollgate_objects::ObjectName;
use tollgate_objects::decode::read::ObjectKind;

pub mod batch;
mod cluster;
pub mod cluster_secret;
mod edit;
mod folder;
mod syntax;
mod value;

pub use cluster::ClusterWriter;
pub use cluster::cluster_error;
pub use folder::FolderWriter;
pub(crate) use folder::lock_for_load;
pub use json_patch::merge;
pub use value::merge_patch;
use value::{Quotes, TextTransform, YamlEmitter};

const MAX_CONCURRENT_READS: usize = 8;

/// The kinds of objects that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{}", self.as_str())]
pub enum WritableKind {
    /// `AppProject`.
    AppProject,
    /// `Application`.
    Application,
    /// `ApplicationSet`.
    ApplicationSet,
}

impl WritableKind {
    fn read_kind(self) -> ObjectKind {
        match self {
            Self::AppProject => ObjectKind::AppProject,
            Self::Application => ObjectKind::Application,
            Self::ApplicationSet => ObjectKind::ApplicationSet,
        }
    }

    /// `kind` as objects have it.
    pub fn as_str(self) -> &'static str {
        self.read_kind().as_str()
    }

    /// `apiVersion` of its objects.
    pub fn api_version(self) -> &'static str {
        self.read_kind().version()
    }

    /// The plural name in paths of a cluster's API.
    pub fn plural(self) -> &'static str {
        self.read_kind().plural()
    }
}

/// Identifies one object of the state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, derive_more::Display)]
#[display("{kind} `{}`", self.name.name)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: WritableKind,
    /// Its namespace and name.
    pub name: ObjectName,
}

impl ObjectKey {
    /// The key of an object of a kind.
    pub fn of(kind: WritableKind, name: &ObjectName) -> Self {
        Self {
            kind,
            name: name.clone(),
        }
    }

    /// Checks that the names are valid.
    ///
    /// SECURITY: names become parts of paths, so only names that Kubernetes allows pass.
    fn check(&self) -> Result<(), Error> {
        if dns::is_label(&self.name.namespace) && dns::is_subdomain(&self.name.name) {
            return Ok(());
        }
        // The same answer as for an object that is not there: such a name cannot exist.
        Err(Error::NotFound(self.clone()))
    }
}

/// Identifies the state of an object: `metadata.resourceVersion` in a cluster, a digest of the
/// file's bytes in a folder. Opaque; only equality has a meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceVersion(Arc<str>);

impl ResourceVersion {
    /// A version from the text it was given out as.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The text of the version.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredObject {
    /// The whole object. Its version is `metadata.resourceVersion`, and `metadata.managedFields` is
    /// left out.
    pub object: Value,
    /// Its version.
    pub version: ResourceVersion,
}

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object does not exist.
    #[error("there is no {0}")]
    NotFound(ObjectKey),
    /// The object exists already.
    #[error("{0} exists already")]
    AlreadyExists(ObjectKey),
    /// The write is based on a version that is not the stored one.
    #[error(
        "{key} has changed since it was read: the write is based on version `{expected_version}`, and `{found}` is stored"
    )]
    Conflict {
        /// The object.
        key: ObjectKey,
        /// The version the write is based on.
        expected_version: String,
        /// The stored version.
        found: String,
    },
    /// Another manager of the object's fields owns what the write would change.
    #[error("{key} is managed by somebody else: {managers}")]
    ManagedElsewhere {
        /// The object.
        key: ObjectKey,
        /// The cluster's message, with the manager's name.
        managers: String,
    },
    /// Two places of the folder define the object.
    #[error("{key} is defined twice, in `{first}` and `{second}`")]
    DefinedTwice {
        /// The object.
        key: ObjectKey,
        /// One file.
        first: String,
        /// The other.
        second: String,
    },
    /// The file is reached through a symbolic link.
    #[error(
        "`{0}` is behind a symbolic link, as Kubernetes mounts ConfigMaps and git-sync keeps checkouts: a write would be lost with the next update, change it at its source"
    )]
    SymbolicLink(PathBuf),
    /// The file cannot be edited without touching more than the object.
    #[error("`{path}`, line {line}: {why}; edit the file by hand")]
    UnsupportedLayout {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What stands in the way.
        why: &'static str,
    },
    /// The state would not load with the change.
    #[error("the state would not load: {}", first(.0))]
    InvalidState(Vec<Diagnostic>),
    /// Another writer holds the folder's lock.
    #[error("another writer is at work in the state folder")]
    Busy,
    /// The file system reported an error.
    #[error("`{path}`: {source}")]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The cluster refused the request or did not answer.
    #[error("the control plane's cluster: {message}")]
    Cluster {
        /// HTTP status of its answer; 0 if there was none.
        status: u16,
        /// Its message.
        message: String,
    },
    /// The cluster was never reached.
    #[error("the API server of the control plane's cluster was not reached yet")]
    NotConnected,
    /// The work ended early.
    #[error("the write was interrupted")]
    Interrupted,
}

impl Error {
    /// HTTP status of an answer, and the stable reason for programs.
    pub fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotFound(key) => {
                let reason = match key.kind {
                    WritableKind::AppProject => "project_not_found",
                    WritableKind::Application => "application_not_found",
                    WritableKind::ApplicationSet => "applicationset_not_found",
                };
                (StatusCode::NOT_FOUND, reason)
            }
            Self::AlreadyExists(_) => (StatusCode::CONFLICT, "exists"),
            Self::Conflict { .. } => (StatusCode::CONFLICT, "conflict"),
            Self::ManagedElsewhere { .. } => (StatusCode::CONFLICT, "managed_elsewhere"),
            Self::DefinedTwice { .. } | Self::SymbolicLink(_) | Self::UnsupportedLayout { .. } => {
                (StatusCode::CONFLICT, "not_editable")
            }
            Self::InvalidState(_)
            | Self::Cluster {
                status: 400 | 413 | 422,
                ..
            } => (StatusCode::BAD_REQUEST, "state_refused"),
            Self::Cluster { .. } => (StatusCode::BAD_GATEWAY, "state_unavailable"),
            Self::Busy | Self::Io { .. } | Self::NotConnected | Self::Interrupted => {
                (StatusCode::SERVICE_UNAVAILABLE, "state_unavailable")
            }
        }
    }

    /// Text for a caller, who may see the object but not paths of the machine.
    pub fn public_text(&self) -> Cow<'static, str> {
        match self {
            Self::NotFound(_) | Self::AlreadyExists(_) | Self::ManagedElsewhere { .. } => self.to_string().into(),
            Self::Conflict { key, .. } => {
                format!("{key} has changed since it was read: read it again and repeat the change").into()
            }
            Self::DefinedTwice { key, .. } => format!("{key} is defined twice in the state folder").into(),
            Self::SymbolicLink(_) => {
                "the state folder is behind a symbolic link, as Kubernetes mounts ConfigMaps and git-sync keeps \
                 checkouts: change the object at its source"
                    .into()
            }
            Self::UnsupportedLayout { line, why, .. } => {
                format!("the object's file has to be edited by hand: line {line}: {why}").into()
            }
            Self::InvalidState(findings) => {
                let finding = findings.first().map(|finding| finding.message.as_str());
                let finding = finding.unwrap_or("it has mistakes");
                format!("the state would not load with this change: {finding}").into()
            }
            // The caller may read the cluster's message about the object they sent.
            Self::Cluster {
                status: 400 | 413 | 422,
                message,
            } => format!("the control plane's cluster refuses the change: {message}").into(),
            Self::Cluster { .. } => "the control plane's cluster does not take the change".into(),
            Self::Busy => "another writer is at work, try again".into(),
            Self::Io { .. } | Self::NotConnected | Self::Interrupted => {
                "the state cannot be read or written right now".into()
            }
        }
    }
}

impl Error {
    fn conflict(key: &ObjectKey, expected_version: &str, found: &str) -> Self {
        Self::Conflict {
            key: key.clone(),
            expected_version: expected_version.to_owned(),
            found: found.to_owned(),
        }
    }
}

fn first(findings: &[Diagnostic]) -> String {
    findings.first().map(ToString::to_string).unwrap_or_default()
}

/// Reads and writes objects where the state is stored.
#[derive(Clone, Debug)]
pub enum Writer {
    /// A folder of files.
    Folder(FolderWriter),
    /// A cluster.
    Cluster(ClusterWriter),
}

impl Writer {
    /// A writer for the state that the settings name, for commands that end soon. It works in the
    /// runtime it is opened in.
    ///
    /// # Errors
    /// [`Error::Cluster`] if the settings lead to no cluster.
    pub async fn open(config: &Config) -> Result<Self, Error> {
        match &config.state {
            StateSource::Directory(folder) => {
                let folder = FolderWriter::new(folder, &config.control_plane_namespace);
                Ok(Self::Folder(folder))
            }
            StateSource::Kubernetes(settings) => {
                let connected = kubernetes::connect(settings).await;
                let refused = |message| Error::Cluster { status: 0, message };
                Ok(Self::Cluster(ClusterWriter::new(connected.map_err(refused)?)))
            }
        }
    }

    /// The object as it is stored now.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::DefinedTwice`], [`Error::Io`], [`Error::Cluster`].
    pub async fn read(&self, key: &ObjectKey) -> Result<StoredObject, Error> {
        key.check()?;
        match self {
            Self::Folder(folder) => {
                let (folder, key) = (folder.clone(), key.clone());
                blocking(move || folder.read(&key)).await
            }
            Self::Cluster(cluster) => cluster.read(key).await,
        }
    }

    /// Every object of a kind in a namespace, by name.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Cluster`].
    pub async fn list(&self, kind: WritableKind, namespace: &str) -> Result<Vec<StoredObject>, Error> {
        self.select(kind, namespace, &|_| true).await
    }

    /// Every object of a kind in a namespace. Where `is_related` accepts an object's name and owner
    /// references, it is whole, without `status`; otherwise it has only these.
    ///
    /// # Errors
    /// As [`Writer::list`].
    pub async fn related(
        &self,
        kind: WritableKind,
        namespace: &str,
        is_related: impl Fn(&Value) -> bool + Send + 'static,
    ) -> Result<Vec<Value>, Error> {
        match self {
            Self::Folder(folder) => {
                let (folder, namespace) = (folder.clone(), namespace.to_owned());
                let reading = move || {
                    let all = folder.list(kind, &namespace)?.into_iter();
                    let part = |stored: StoredObject| match is_related(&stored.object) {
                        true => stored.object,
                        false => name_and_owners(&stored.object),
                    };
                    Ok(all.map(part).collect())
                };
                blocking(reading).await
            }
            Self::Cluster(cluster) => cluster.related(kind, namespace, is_related).await,
        }
    }

    /// The objects of a kind and namespace that `is_wanted` accepts, by name. Others are dropped
    /// right after they were checked.
    ///
    /// # Errors
    /// As [`Writer::list`].
    pub async fn select(
        &self,
        kind: WritableKind,
        namespace: &str,
        is_wanted: &(dyn Fn(&Value) -> bool + Sync),
    ) -> Result<Vec<StoredObject>, Error> {
        match self {
            Self::Folder(folder) => {
                let (folder, namespace) = (folder.clone(), namespace.to_owned());
                let mut all = blocking(move || folder.list(kind, &namespace)).await?;
                all.retain(|stored| is_wanted(&stored.object));
                Ok(all)
            }
            Self::Cluster(cluster) => cluster.select(kind, namespace, is_wanted).await,
        }
    }

    /// Shows each object of a kind in a namespace to `visit`, with its status, and keeps none.
    ///
    /// # Errors
    /// As [`Writer::list`].
    pub async fn visit(&self, kind: WritableKind, namespace: &str, visit: &mut dyn FnMut(&Value)) -> Result<(), Error> {
        match self {
            Self::Folder(folder) => {
                let (folder, namespace) = (folder.clone(), namespace.to_owned());
                let all = blocking(move || folder.list(kind, &namespace)).await?;
                all.iter().for_each(|stored| visit(&stored.object));
                Ok(())
            }
            Self::Cluster(cluster) => cluster.visit(kind, namespace, visit).await,
        }
    }

    /// The named objects that exist, in the order of `keys`.
    ///
    /// # Errors
    /// As [`Writer::read`].
    pub async fn read_each(&self, keys: &[ObjectKey]) -> Result<Vec<StoredObject>, Error> {
        let mut found = Vec::new();
        for group in keys.chunks(MAX_CONCURRENT_READS) {
            for read in join_all(group.iter().map(|key| self.read(key))).await {
                match read {
                    Ok(stored) => found.push(stored),
                    Err(Error::NotFound(_)) => {}
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(found)
    }

    /// Has the cluster check a new object as if it were created, without storing it. A folder checks
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Cluster`] with the cluster's refusal, [`Error::AlreadyExists`].
    pub async fn create_dry_run(&self, key: &ObjectKey, object: &Value) -> Result<(), Error> {
        key.check()?;
        match self {
            Self::Folder(_) => Ok(()),
            Self::Cluster(cluster) => cluster.create_dry_run(key, object).await,
        }
    }

    /// Changes the object to `wanted`, if its version is still `expected_version`.
    ///
    /// `metadata.resourceVersion` in `wanted` is ignored. Gives the object as it is stored
    /// afterwards, durably. Running gateways act on it with their next reload.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the version is another one, and the other variants.
    ///
    /// Dropping the future does not stop a write that has begun.
    pub async fn replace(
        &self,
        key: &ObjectKey,
        wanted: Value,
        expected_version: &ResourceVersion,
    ) -> Result<StoredObject, Error> {
        key.check()?;
        match self {
            Self::Folder(folder) => {
                let (folder, key, expected_version) = (folder.clone(), key.clone(), expected_version.clone());
                blocking(move || folder.replace(&key, &wanted, &expected_version)).await
            }
            Self::Cluster(cluster) => cluster.replace(key, &wanted, expected_version).await,
        }
    }
}

/// The documents of a text as values, without empty ones.
///
/// # Errors
/// The first mistake and its line, without any value of the text.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
    let parsed = yaml::parse(text);
    match parsed.problems.first() {
        Some(problem) => Err(format!("line {}: {}", problem.line, problem.message)),
        None => Ok(parsed.documents.iter().map(|node| yaml::to_json(node)).collect()),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or(Err(Error::Interrupted))
}

/// Keys that come before others in new files.
const FIRST: [&str; 5] = ["apiVersion", "kind", "metadata", "name", "namespace"];

fn yaml_emitter(texts: Option<TextTransform>) -> YamlEmitter<'static> {
    YamlEmitter {
        line_break: "\n",
        list_step: 2,
        order: &FIRST,
        quotes: Quotes::WhereNeeded,
        texts,
    }
}

/// An object as YAML with its name first, as in new files.
pub fn yaml(object: &Value) -> String {
    let mut lines = String::new();
    if let Some(members) = object.as_object() {
        yaml_emitter(None).put_members(&mut lines, members, 0, 0);
    }
    lines
}

/// Parts of an object as YAML, in the order of `parts`: a key with all of its value or with some of
/// its members. Each text is written as `texts` gives it.
pub fn yaml_parts(object: &Value, parts: &[(&str, Option<&[&str]>)], texts: TextTransform) -> String {
    let emitter = yaml_emitter(Some(texts));
    let mut lines = String::new();
    for (key, members) in parts {
        let Some(value) = object.get(*key) else { continue };
        let Some(members) = members else {
            emitter.put_member(&mut lines, key, value, 0, 0);
            continue;
        };
        lines.push_str(&format!("{key}:\n"));
        for member in *members {
            if let Some(value) = value.get(*member) {
                emitter.put_member(&mut lines, member, value, 2, 2);
            }
        }
    }
    lines
}

fn name_and_owners(object: &Value) -> Value {
    let metadata = object.get("metadata").and_then(Value::as_object);
    let members = metadata.into_iter().flatten();
    let kept = members.filter(|(key, _)| matches!(key.as_str(), "name" | "namespace" | "ownerReferences"));
    let kept: serde_json::Map<String, Value> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    serde_json::json!({ "metadata": kept })
}

/// The version of an object that was sent or stored. `None` if it names none.
pub fn resource_version(object: &Value) -> Option<ResourceVersion> {
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    version.filter(|version| !version.is_empty()).map(ResourceVersion::new)
}

/// Writes the version into the object's metadata, if it has any.
pub(crate) fn set_version(object: &mut Value, version: &ResourceVersion) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), version.as_str().into());
    }
}

fn strip_server_metadata(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
}

#[cfg(test)]
mod tests {
    use super::batch::Write;
    use super::{Error, FolderWriter, ObjectKey, WritableKind, Writer};
    use tollgate_objects::ObjectName;

    /// SECURITY: names become parts of paths, in folders and at an API server.
    #[tokio::test]
    async fn invalid_names_are_not_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let writer = Writer::Folder(FolderWriter::new(folder.path(), "argocd"));
        for (namespace, name) in [
            ("argocd", "../secrets/x"),
            ("argocd", ".."),
            ("argocd", ""),
            ("argocd", "a?b=c"),
            ("argocd", "a%2fb"),
            ("../x", "a"),
        ] {
            let key = ObjectKey {
                kind: WritableKind::AppProject,
                name: ObjectName {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                },
            };
            let error = writer.read(&key).await.expect_err(name);
            assert!(matches!(error, Error::NotFound(_)), "{error}");
            let object = serde_json::json!({});
            let failed = writer.batch(vec![Write::Create { key, object }]).await.expect_err(name);
            assert!(matches!(failed.error, Error::NotFound(_)), "{failed}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
