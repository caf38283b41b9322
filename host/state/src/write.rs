//! Writing state: objects as they are stored, changed and put back.
//!
//! In: an object's key, what it shall be, the version that was looked at. Out:
//! the object as it is stored now. Refuses: an older version, a change that
//! would break the load, a file that cannot be edited without touching more.
//! Never: a write that nobody looked at the object for; half of one.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use futures_util::future::join_all;
use serde_json::Value;

use super::source::{self, Place};
use super::{ObjectName, kubernetes};
use tollgate_config::{Config, StateSource};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::dns;
use tollgate_core::yaml;

pub mod batch;
mod cluster;
mod edit;
mod folder;
pub mod same;
mod syntax;
mod value;

pub use cluster::Cluster;
pub use cluster::of_cluster;
pub use folder::Folder;
pub(crate) use folder::for_load;
pub(crate) use folder::version as version_of;
pub(crate) use value::json as value_of;
pub use value::{merge, merge_patch};

/// Objects that are read at once.
const READ_AT_ONCE: usize = 8;

/// The kinds that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `AppProject`.
    AppProject,
    /// `Application`.
    Application,
    /// `ApplicationSet`.
    ApplicationSet,
}

impl Kind {
    /// As objects have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AppProject => "AppProject",
            Self::Application => "Application",
            Self::ApplicationSet => "ApplicationSet",
        }
    }

    /// `apiVersion` of its objects.
    pub fn api_version(self) -> &'static str {
        "argoproj.io/v1alpha1"
    }

    /// As paths of a cluster's API have it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::AppProject => "appprojects",
            Self::Application => "applications",
            Self::ApplicationSet => "applicationsets",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One object of the state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub name: ObjectName,
}

impl Key {
    /// Whether there can be such an object.
    ///
    /// SECURITY: names become parts of paths; nothing but Kubernetes' own may.
    fn check(&self) -> Result<(), Error> {
        if dns::is_label(&self.name.namespace) && dns::is_subdomain(&self.name.name) {
            return Ok(());
        }
        Err(Error::NotFound(self.clone()))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.kind, self.name.name)
    }
}

/// Which state of an object somebody looked at: `metadata.resourceVersion` in a
/// cluster, a digest of the file's bytes in a folder. Opaque; equal or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(Arc<str>);

impl Version {
    /// As it was given out.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// As it is given out.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The object, whole; its version is `metadata.resourceVersion`, and
    /// `metadata.managedFields` is left out.
    pub object: Value,
    /// Its version.
    pub version: Version,
}

/// Why an object is not read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none.
    #[error("there is no {0}")]
    NotFound(Key),
    /// There is one already.
    #[error("{0} exists already")]
    Exists(Key),
    /// The write is based on another version than the one that is stored.
    #[error("{key} has changed since it was read: the write is based on version `{based_on}`, and `{found}` is stored")]
    Conflict {
        /// The object.
        key: Key,
        /// What the write is based on.
        based_on: String,
        /// What is stored.
        found: String,
    },
    /// Another manager of the object's fields owns what the write would change.
    #[error("{key} is managed by somebody else: {managers}")]
    Managed {
        /// The object.
        key: Key,
        /// The cluster's words, with the manager's name.
        managers: String,
    },
    /// Two places of the folder define the object.
    #[error("{key} is defined twice, in `{first}` and `{second}`")]
    Twice {
        /// The object.
        key: Key,
        /// One file.
        first: String,
        /// The other.
        second: String,
    },
    /// The file is reached through a symbolic link.
    #[error(
        "`{path}` is behind a symbolic link, as Kubernetes mounts ConfigMaps and git-sync keeps checkouts: a write would be lost with the next update, change it at its source"
    )]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// The file cannot be edited without touching more than the object.
    #[error("`{path}`, line {line}: {why}; edit the file by hand")]
    Layout {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What stands in the way.
        why: &'static str,
    },
    /// The state would not load with the change.
    #[error("the state would not load: {}", first(.0))]
    Refused(Vec<Diagnostic>),
    /// Another writer keeps the folder busy.
    #[error("another writer is at work in the state folder")]
    Busy,
    /// The file system says no.
    #[error("`{path}`: {source}")]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The cluster does not take it, or does not answer.
    #[error("the control plane's cluster: {message}")]
    Cluster {
        /// HTTP status of its answer; 0 where there was none.
        status: u16,
        /// Its words.
        message: String,
    },
    /// There was never a way to the cluster.
    #[error(transparent)]
    Source(#[from] source::Error),
    /// The work broke off.
    #[error("the write broke off")]
    Broken,
}

fn first(findings: &[Diagnostic]) -> String {
    findings.first().map(ToString::to_string).unwrap_or_default()
}

/// Reads and writes objects where the state is.
#[derive(Clone, Debug)]
pub enum Writer {
    /// A folder of files.
    Directory(Folder),
    /// A cluster.
    Cluster(Cluster),
}

impl Writer {
    /// The writer of a source's state; `namespace` is the control plane's.
    pub fn at(place: Place, namespace: &str) -> Self {
        match place {
            Place::Folder(folder) => Self::Directory(Folder::new(&folder, namespace)),
            Place::Cluster(client) => Self::Cluster(Cluster::new(client)),
        }
    }

    /// The writer of these settings' state, for commands that end soon. It works in
    /// the runtime it is opened in.
    ///
    /// # Errors
    /// [`Error::Cluster`]: the settings lead to no cluster.
    pub async fn open(config: &Config) -> Result<Self, Error> {
        let place = match &config.state {
            StateSource::Directory(folder) => Place::Folder(folder.clone()),
            StateSource::Kubernetes(settings) => {
                let connected = kubernetes::connect(settings).await;
                let refused = |message| Error::Cluster { status: 0, message };
                Place::Cluster(connected.map_err(refused)?)
            }
        };
        Ok(Self::at(place, &config.control_plane_namespace))
    }

    /// The object as it is stored now.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Twice`], [`Error::Io`], [`Error::Cluster`].
    pub async fn read(&self, key: &Key) -> Result<Stored, Error> {
        key.check()?;
        match self {
            Self::Directory(folder) => {
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
    pub async fn list(&self, kind: Kind, namespace: &str) -> Result<Vec<Stored>, Error> {
        match self {
            Self::Directory(folder) => {
                let (folder, namespace) = (folder.clone(), namespace.to_owned());
                blocking(move || folder.list(kind, &namespace)).await
            }
            Self::Cluster(cluster) => cluster.list(kind, namespace).await,
        }
    }

    /// Every object of a kind in a namespace: whole, without `status`, where `is_related`
    /// says so by its name and owner references, else nothing but these.
    ///
    /// # Errors
    /// As [`Writer::list`].
    pub async fn related(
        &self,
        kind: Kind,
        namespace: &str,
        is_related: impl Fn(&Value) -> bool + Send + 'static,
    ) -> Result<Vec<Value>, Error> {
        match self {
            Self::Directory(folder) => {
                let (folder, namespace) = (folder.clone(), namespace.to_owned());
                let reading = move || {
                    let all = folder.list(kind, &namespace)?.into_iter().map(|stored| stored.object);
                    let part = |object: Value| if is_related(&object) { object } else { head(&object) };
                    Ok(all.map(part).collect())
                };
                blocking(reading).await
            }
            Self::Cluster(cluster) => cluster.related(kind, namespace, is_related).await,
        }
    }

    /// The objects of a kind and namespace that `is_wanted` takes, by name. Others are not
    /// held longer than it takes to look at them.
    ///
    /// # Errors
    /// As [`Writer::list`].
    pub async fn select(
        &self,
        kind: Kind,
        namespace: &str,
        is_wanted: &(dyn Fn(&Value) -> bool + Sync),
    ) -> Result<Vec<Stored>, Error> {
        match self {
            Self::Directory(_) => {
                let mut all = self.list(kind, namespace).await?;
                all.retain(|stored| is_wanted(&stored.object));
                Ok(all)
            }
            Self::Cluster(cluster) => cluster.select(kind, namespace, is_wanted).await,
        }
    }

    /// Those of the named objects that are there, in their order.
    ///
    /// # Errors
    /// As [`Writer::read`].
    pub async fn read_each(&self, keys: &[Key]) -> Result<Vec<Stored>, Error> {
        let mut found = Vec::new();
        for group in keys.chunks(READ_AT_ONCE) {
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

    /// Makes the object what `wanted` says, if it still is the one of `based_on`.
    ///
    /// What `wanted` says of `metadata.resourceVersion` does not count. Gives the
    /// object as it is stored then; it is durable. Running gateways act on it with
    /// their next reload.
    ///
    /// # Errors
    /// [`Error::Conflict`] when it is another one, and the other variants.
    ///
    /// Dropping the future does not stop a write that has begun.
    pub async fn replace(&self, key: &Key, wanted: Value, based_on: &Version) -> Result<Stored, Error> {
        key.check()?;
        match self {
            Self::Directory(folder) => {
                let (folder, key, based_on) = (folder.clone(), key.clone(), based_on.clone());
                blocking(move || folder.replace(&key, &wanted, &based_on)).await
            }
            Self::Cluster(cluster) => cluster.replace(key, &wanted, based_on).await,
        }
    }

    /// Adds an object.
    ///
    /// # Errors
    /// [`Error::Exists`], and the other variants.
    pub async fn create(&self, key: &Key, object: Value) -> Result<Stored, Error> {
        key.check()?;
        match self {
            Self::Directory(folder) => {
                let (folder, key) = (folder.clone(), key.clone());
                blocking(move || folder.create(&key, &object)).await
            }
            Self::Cluster(cluster) => cluster.create(key, &object).await,
        }
    }

    /// Takes the object away, if it still is the one of `based_on`.
    ///
    /// # Errors
    /// As [`Writer::replace`].
    pub async fn delete(&self, key: &Key, based_on: &Version) -> Result<(), Error> {
        key.check()?;
        match self {
            Self::Directory(folder) => {
                let (folder, key, based_on) = (folder.clone(), key.clone(), based_on.clone());
                blocking(move || folder.delete(&key, &based_on)).await
            }
            Self::Cluster(cluster) => cluster.delete(key, based_on).await,
        }
    }
}

/// The documents of a text, empty ones left out, as values.
///
/// # Errors
/// The first mistake and its line, without any value of the text.
pub fn documents(text: &str) -> Result<Vec<Value>, String> {
    let parsed = yaml::parse(text);
    match parsed.problems.first() {
        Some(problem) => Err(format!("line {}: {}", problem.line, problem.message)),
        None => Ok(parsed.documents.iter().map(|node| value::json(node)).collect()),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Error::Broken))
}

/// Keys that come before others of new files.
static FIRST: LazyLock<[String; 5]> =
    LazyLock::new(|| ["apiVersion", "kind", "metadata", "name", "namespace"].map(str::to_owned));

fn writing(texts: Option<value::Texts>) -> value::Writing<'static> {
    value::Writing {
        line_break: "\n",
        list_step: 2,
        order: &*FIRST,
        quotes: value::Quotes::WhereNeeded,
        texts,
    }
}

/// An object as YAML, its name first, as new files have it.
pub fn yaml(object: &Value) -> String {
    let members = object.as_object();
    members
        .map(|members| writing(None).members(members, ""))
        .unwrap_or_default()
}

/// Parts of an object as YAML, each text as `texts` puts it: in this order, a key with
/// all of its value or with some of its members.
pub fn yaml_of(object: &Value, parts: &[(&str, Option<&[&str]>)], texts: value::Texts) -> String {
    let writing = writing(Some(texts));
    let mut lines = String::new();
    for (key, members) in parts {
        let Some(value) = object.get(*key) else { continue };
        match members {
            None => writing.put_member(&mut lines, (key, value), 0),
            Some(members) => {
                lines.push_str(&format!("{key}:\n"));
                for (member, value) in members.iter().filter_map(|member| Some((*member, value.get(*member)?))) {
                    writing.put_member(&mut lines, (member, value), 2);
                }
            }
        }
    }
    lines
}

/// Name and owner references of an object.
fn head(object: &Value) -> Value {
    let metadata = object.get("metadata").and_then(Value::as_object);
    let members = metadata.into_iter().flatten();
    let kept = members.filter(|(key, _)| matches!(key.as_str(), "name" | "namespace" | "ownerReferences"));
    let kept: serde_json::Map<String, Value> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    serde_json::json!({ "metadata": kept })
}

/// What only a store says of an object is not part of another one.
fn forget_version(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, Folder, Key, Kind, Writer};
    use crate::ObjectName;

    /// SECURITY: names become parts of paths, in folders and of an API server.
    #[tokio::test]
    async fn names_that_are_none_lead_nowhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let writer = Writer::Directory(Folder::new(folder.path(), "argocd"));
        for (namespace, name) in [
            ("argocd", "../secrets/x"),
            ("argocd", ".."),
            ("argocd", ""),
            ("argocd", "a?b=c"),
            ("argocd", "a%2fb"),
            ("../x", "a"),
        ] {
            let key = Key {
                kind: Kind::AppProject,
                name: ObjectName {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                },
            };
            let error = writer.read(&key).await.expect_err(name);
            assert!(matches!(error, Error::NotFound(_)), "{error}");
            let error = writer.create(&key, serde_json::json!({})).await.expect_err(name);
            assert!(matches!(error, Error::NotFound(_)), "{error}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}
