//! Reads and writes the Secrets that say how a cluster is reached: Argo CD's, and the gateway's own for
//! clusters that Argo CD reaches through the gateway.
//!
//! A change names the version that was read, and the API server refuses it with 409 if another one is
//! stored.
//!
//! Security: `Debug` and errors contain no value of a Secret.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::cluster::MANAGER;
use crate::kubernetes;
use tollgate_config::KubernetesState;
use tollgate_core::diagnostic::one_line;
use tollgate_objects::ObjectName;
use tollgate_objects::decode::{CREDENTIAL_LABEL, CREDENTIAL_TYPE, LAST_APPLIED, TYPE_LABEL};
use tollgate_objects::destination::{IN_CLUSTER_NAME, IN_CLUSTER_SERVER};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Most bytes of the API server's message that an error repeats.
const MAX_MESSAGE_BYTES: usize = 500;

/// The key of a Secret that says how its cluster is reached.
const CONFIG: &str = "config";

/// The label that says which program manages an object.
///
/// Source: Kubernetes, recommended labels.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Whose Secrets are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretOwner {
    /// Argo CD's cluster Secrets.
    ArgoCd,
    /// The gateway's own.
    Gateway,
}

impl SecretOwner {
    /// Name and value of the label by which they are found.
    pub fn label(self) -> (&'static str, &'static str) {
        match self {
            Self::ArgoCd => (TYPE_LABEL, "cluster"),
            Self::Gateway => (CREDENTIAL_LABEL, CREDENTIAL_TYPE),
        }
    }
}

/// Why a Secret could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings lead to no API server.
    #[error("{0}")]
    Settings(String),
    /// It has changed since it was read.
    #[error("the secret `{}/{}` has changed since it was read", .0.namespace, .0.name)]
    Conflict(ObjectName),
    /// Another Secret has the name.
    #[error("there is another secret `{}/{}`", .0.namespace, .0.name)]
    AlreadyExists(ObjectName),
    /// The API server refused the request, or did not answer.
    #[error("the control plane's cluster: {0}")]
    Cluster(String),
}

/// A Secret that says how a cluster is reached.
#[derive(Clone, derive_more::Debug)]
#[debug("ClusterSecret({name:?}, {:?})", values.keys())]
pub struct ClusterSecret {
    /// Its namespace and name.
    pub name: ObjectName,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations, without the one in which kubectl keeps what it applied.
    pub annotations: BTreeMap<String, String>,
    /// Its values. Those that are not text are left out.
    pub values: BTreeMap<String, SecretString>,
    /// Whether an annotation of kubectl repeats its values.
    pub repeats_values: bool,
    /// What would write `config` again: managers that apply it, and the Secret's controller.
    pub managers: Vec<String>,
    /// Its `metadata.resourceVersion`; empty if it is not stored yet.
    pub version: String,
}

impl ClusterSecret {
    /// The URL of the cluster's API server, without slashes at its end.
    pub fn server(&self) -> &str {
        self.text("server").trim_end_matches('/')
    }

    /// The cluster's name; may be empty.
    pub fn cluster_name(&self) -> &str {
        self.text("name")
    }

    /// How the cluster is reached, JSON. Empty if the Secret does not say it.
    pub fn config(&self) -> &str {
        self.text(CONFIG)
    }

    /// A value; empty if there is none.
    pub fn text(&self, key: &str) -> &str {
        self.values.get(key).map_or("", |value| value.expose_secret())
    }

    /// Whether it is stored.
    pub fn is_stored(&self) -> bool {
        !self.version.is_empty()
    }

    /// Whether it is Argo CD's Secret of the cluster that Argo CD runs in.
    pub fn is_in_cluster(&self) -> bool {
        self.server() == IN_CLUSTER_SERVER
    }

    /// Whether [`in_cluster_secret`] made it. Argo CD does not need it then.
    pub fn is_dispensable(&self) -> bool {
        self.is_in_cluster() && self.labels.get(MANAGED_BY).is_some_and(|manager| manager == MANAGER)
    }

    /// The Secret as [`ClusterSecrets::replace_config`] leaves it.
    pub fn with_config(&self, config: &SecretString) -> Self {
        let mut changed = self.clone();
        changed.values.insert(CONFIG.to_owned(), config.clone());
        changed.repeats_values = false;
        changed
    }

    fn of(secret: Secret, namespace: &str) -> Self {
        let name = ObjectName {
            namespace: namespace.to_owned(),
            name: secret.name_any(),
        };
        let mut annotations = secret.metadata.annotations.clone().unwrap_or_default();
        // SECURITY: kubectl's annotation repeats the credential, and annotations are shown.
        let repeats_values = annotations.remove(LAST_APPLIED).is_some();
        let managers = managers(&secret.metadata);
        let values = secret.data.unwrap_or_default().into_iter();
        let text = |(key, ByteString(bytes))| Some((key, SecretString::from(String::from_utf8(bytes).ok()?)));
        Self {
            name,
            labels: secret.metadata.labels.unwrap_or_default(),
            annotations,
            values: values.filter_map(text).collect(),
            repeats_values,
            managers,
            version: secret.metadata.resource_version.unwrap_or_default(),
        }
    }

    fn to_object(&self) -> Secret {
        let values = self.values.iter();
        let data = values.map(|(key, value)| (key.clone(), ByteString(value.expose_secret().as_bytes().to_vec())));
        Secret {
            metadata: ObjectMeta {
                name: Some(self.name.name.clone()),
                namespace: Some(self.name.namespace.clone()),
                labels: Some(self.labels.clone()),
                annotations: Some(self.annotations.clone()),
                ..ObjectMeta::default()
            },
            data: Some(data.collect()),
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        }
    }
}

/// A Secret of the gateway's that is not stored yet.
///
/// - `values`: `server` and `config` at least.
pub fn own_secret(
    name: ObjectName,
    values: BTreeMap<String, SecretString>,
    annotations: BTreeMap<String, String>,
) -> ClusterSecret {
    let (label, value) = SecretOwner::Gateway.label();
    ClusterSecret {
        name,
        labels: BTreeMap::from([(label.to_owned(), value.to_owned())]),
        annotations,
        values,
        repeats_values: false,
        managers: Vec::new(),
        version: String::new(),
    }
}

/// Argo CD's Secret of a cluster that only the gateway knows so far, not stored yet. It does not say how the
/// cluster is reached.
///
/// - `known`: the gateway's Secret of the cluster.
/// - `namespace`: Argo CD's.
pub fn argocd_secret(known: &ClusterSecret, namespace: &str) -> ClusterSecret {
    let name = ObjectName {
        namespace: namespace.to_owned(),
        name: known.name.name.clone(),
    };
    without_credential(name, known.cluster_name(), known.server())
}

/// A Secret of Argo CD that does not say how its cluster is reached.
fn without_credential(object: ObjectName, name: &str, server: &str) -> ClusterSecret {
    let (label, value) = SecretOwner::ArgoCd.label();
    let values = [("name", name), ("server", server), (CONFIG, "{}")];
    let values = values.map(|(key, value)| (key.to_owned(), SecretString::from(value)));
    ClusterSecret {
        labels: BTreeMap::from([(label.to_owned(), value.to_owned())]),
        ..own_secret(object, values.into(), BTreeMap::new())
    }
}

/// Argo CD's Secret of the cluster that it runs in, not stored yet. Argo CD knows that cluster without a
/// Secret too, and reaches it then as with this one: by itself, with the account of its pods.
///
/// - `namespace`: Argo CD's.
pub fn in_cluster_secret(namespace: &str) -> ClusterSecret {
    let name = ObjectName {
        namespace: namespace.to_owned(),
        name: IN_CLUSTER_NAME.to_owned(),
    };
    let mut secret = without_credential(name, IN_CLUSTER_NAME, IN_CLUSTER_SERVER);
    secret.labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    secret
}

/// Reads and writes Secrets of clusters at the API server of the control plane's cluster.
#[derive(Clone, derive_more::Debug)]
#[debug("ClusterSecrets")]
pub struct ClusterSecrets {
    client: Client,
}

impl ClusterSecrets {
    /// Connects as the settings say. It works in the runtime it is opened in.
    ///
    /// # Errors
    /// [`Error::Settings`].
    pub async fn open(settings: &KubernetesState) -> Result<Self, Error> {
        let client = kubernetes::connect(settings).await.map_err(Error::Settings)?;
        Ok(Self { client })
    }

    /// Every Secret of this owner in a namespace, by name.
    ///
    /// # Errors
    /// [`Error::Cluster`].
    pub async fn list(&self, namespace: &str, owner: SecretOwner) -> Result<Vec<ClusterSecret>, Error> {
        let (label, value) = owner.label();
        let parameters = ListParams::default().labels(&format!("{label}={value}"));
        let secrets = self.secrets(namespace);
        let listed = bounded(secrets.list(&parameters), None).await?;
        let mut all: Vec<_> = listed
            .into_iter()
            .map(|secret| ClusterSecret::of(secret, namespace))
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Stores a new Secret.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`], [`Error::Cluster`].
    pub async fn create(&self, secret: &ClusterSecret) -> Result<(), Error> {
        let parameters = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let (secrets, object) = (self.secrets(&secret.name.namespace), secret.to_object());
        let creating = secrets.create(&parameters, &object);
        bounded(creating, Some(&secret.name)).await.map(drop)
    }

    /// Replaces `config` of a stored Secret, and removes the annotation in which kubectl repeats its
    /// values. Nothing else changes.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Cluster`].
    pub async fn replace_config(&self, secret: &ClusterSecret, config: &SecretString) -> Result<(), Error> {
        let patch = config_patch(secret, config);
        let parameters = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let (secrets, patch) = (self.secrets(&secret.name.namespace), Patch::Merge(&patch));
        let patching = secrets.patch(&secret.name.name, &parameters, &patch);
        bounded(patching, Some(&secret.name)).await.map(drop)
    }

    /// Deletes a stored Secret.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::Cluster`].
    pub async fn delete(&self, secret: &ClusterSecret) -> Result<(), Error> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                resource_version: Some(secret.version.clone()),
                uid: None,
            }),
            ..DeleteParams::default()
        };
        let secrets = self.secrets(&secret.name.namespace);
        let deleting = secrets.delete(&secret.name.name, &parameters);
        bounded(deleting, Some(&secret.name)).await.map(drop)
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

fn config_patch(secret: &ClusterSecret, config: &SecretString) -> Value {
    let mut metadata = json!({ "resourceVersion": secret.version });
    if secret.repeats_values
        && let Some(members) = metadata.as_object_mut()
    {
        // RFC 7396: null removes. The annotation would keep the credential that is replaced here.
        members.insert("annotations".to_owned(), json!({ LAST_APPLIED: null }));
    }
    let bytes = ByteString(config.expose_secret().as_bytes().to_vec());
    json!({ "metadata": metadata, "data": { CONFIG: bytes } })
}

/// What would undo a change of `config`: managers that apply the key (`Apply`), and the object that
/// controls the Secret. A manager that once wrote the key (`Update`) does not own it.
fn managers(metadata: &ObjectMeta) -> Vec<String> {
    let owns_config = |fields: &Value| fields.pointer("/f:data/f:config").is_some();
    let applied = metadata.managed_fields.iter().flatten().filter(|entry| {
        entry.operation.as_deref() == Some("Apply")
            && entry.manager.as_deref() != Some(MANAGER)
            && entry.fields_v1.as_ref().is_some_and(|fields| owns_config(&fields.0))
    });
    let mut found: Vec<String> = applied
        .filter_map(|entry| entry.manager.as_ref())
        .map(|manager| format!("`{manager}`"))
        .collect();
    let owners = metadata.owner_references.iter().flatten();
    let controllers = owners.filter(|owner| owner.controller == Some(true));
    found.extend(controllers.map(|owner| format!("{} `{}`", owner.kind, owner.name)));
    found
}

/// Waits for an answer for a bounded time, and converts refusals.
///
/// - `about`: the Secret of the request, if it is about one.
pub(crate) async fn bounded<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
    about: Option<&ObjectName>,
) -> Result<T, Error> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(|error| refused(&error, about)),
        Err(_) => Err(Error::Cluster(format!(
            "no answer within {} s",
            REQUEST_TIMEOUT.as_secs()
        ))),
    }
}

fn refused(error: &kube::Error, about: Option<&ObjectName>) -> Error {
    let kube::Error::Api(status) = error else {
        let message = kubernetes::describe_client_error(error);
        return Error::Cluster(one_line(&message, MAX_MESSAGE_BYTES));
    };
    match (status.code, about) {
        (409, Some(name)) if status.reason == "AlreadyExists" => Error::AlreadyExists(name.clone()),
        // Somebody deleted it after it was read.
        (409 | 404, Some(name)) => Error::Conflict(name.clone()),
        (_, _) => Error::Cluster(one_line(&status.message, MAX_MESSAGE_BYTES)),
    }
}

#[cfg(test)]
mod tests;
