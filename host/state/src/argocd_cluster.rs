//! Reads how the API server of the cluster that Argo CD runs in is reached, and what Argo CD's pods know
//! of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Volume};
use kube::api::{Api, ListParams};
use kube::{Client, Config, ResourceExt as _};

use crate::kubernetes;
use crate::write::cluster_secret::{Error, bounded};
use tollgate_config::KubernetesState;
use tollgate_objects::{ClusterTls, TlsVerification};

/// The components that enter clusters, by the label `app.kubernetes.io/name` of Argo CD's manifests.
const COMPONENTS: &str = "app.kubernetes.io/name in (argocd-application-controller,argocd-server)";

/// Where a pod finds its account.
///
/// Source: client-go, `rest.InClusterConfig`.
const ACCOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The file there with the authorities that client-go trusts.
const AUTHORITY_FILE: &str = "ca.crt";

/// The variable by which client-go finds the API server.
const HOST_VARIABLE: &str = "KUBERNETES_SERVICE_HOST";

/// Every namespace has a ConfigMap of this name with the authorities of the API server.
const ROOT_AUTHORITY: &str = "kube-root-ca.crt";

/// The cluster that Argo CD runs in, as the settings reach it.
#[derive(Clone, derive_more::Debug)]
#[debug("ArgocdCluster {{ server: {server:?}, .. }}")]
pub struct ArgocdCluster {
    client: Client,
    /// URL of its API server.
    pub server: String,
    /// How that server is verified.
    pub tls: ClusterTls,
}

/// A pod of a component of Argo CD that enters clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentPod {
    /// The pod's name.
    pub name: String,
    /// The host at which it looks for the API server, if its specification names one.
    pub api_server_host: Option<String>,
    /// PEM of the authorities that its specification gives it for the API server; `None` if it has
    /// those that every pod gets.
    pub authorities: Option<String>,
}

struct ConfigMapKey {
    config_map: String,
    key: String,
}

impl ArgocdCluster {
    /// Connects as the settings say. It works in the runtime it is opened in.
    ///
    /// # Errors
    /// [`Error::Settings`].
    pub async fn open(settings: &KubernetesState) -> Result<Self, Error> {
        let config = kubernetes::client_config(settings).await.map_err(Error::Settings)?;
        let (server, tls) = endpoint(&config);
        let client = kubernetes::connect(settings).await.map_err(Error::Settings)?;
        Ok(Self { client, server, tls })
    }

    /// PEM of the authorities of its API server, as Kubernetes gives them to the pods of a namespace.
    /// `None` if it does not.
    ///
    /// # Errors
    /// [`Error::Cluster`].
    pub async fn root_authority(&self, namespace: &str) -> Result<Option<String>, Error> {
        self.config_map_value(namespace, ROOT_AUTHORITY, AUTHORITY_FILE).await
    }

    /// The pods of Argo CD's components that enter clusters, by name.
    ///
    /// # Errors
    /// [`Error::Cluster`].
    pub async fn component_pods(&self, namespace: &str) -> Result<Vec<ComponentPod>, Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let parameters = ListParams::default().labels(COMPONENTS);
        let mut found = Vec::new();
        for pod in bounded(pods.list(&parameters), None).await? {
            let authorities = match authority_source(&pod) {
                Some(ConfigMapKey { config_map, key }) => self.config_map_value(namespace, &config_map, &key).await?,
                None => None,
            };
            found.push(ComponentPod {
                name: pod.name_any(),
                api_server_host: api_server_host(&pod),
                authorities,
            });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    async fn config_map_value(&self, namespace: &str, name: &str, key: &str) -> Result<Option<String>, Error> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let found = bounded(maps.get_opt(name), None).await?;
        Ok(found.and_then(|map| map.data?.remove(key)))
    }
}

fn endpoint(config: &Config) -> (String, ClusterTls) {
    let certificates = config.root_cert.as_ref().map(|certificates| {
        let pem = |der: &Vec<u8>| {
            let text = STANDARD.encode(der);
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        certificates.iter().map(pem).collect()
    });
    let tls = ClusterTls {
        verification: match config.accept_invalid_certs {
            true => TlsVerification::Off,
            false => TlsVerification::On,
        },
        server_name: config.tls_server_name.clone(),
        ca_pem: certificates,
    };
    (config.cluster_url.to_string().trim_end_matches('/').to_owned(), tls)
}

/// The first container of a pod of Argo CD is the component.
fn component(pod: &Pod) -> Option<&Container> {
    pod.spec.as_ref()?.containers.first()
}

fn api_server_host(pod: &Pod) -> Option<String> {
    let variables = component(pod)?.env.as_ref()?;
    let found = variables.iter().find(|variable| variable.name == HOST_VARIABLE)?;
    found.value.clone()
}

/// The ConfigMap that gives the component its authorities, in a projected volume.
fn authority_source(pod: &Pod) -> Option<ConfigMapKey> {
    let mounts = component(pod)?.volume_mounts.as_ref()?;
    let is_account = |path: &str| path.trim_end_matches('/') == ACCOUNT_PATH;
    let mount = mounts.iter().find(|mount| is_account(&mount.mount_path))?;
    let mut volumes = pod.spec.as_ref()?.volumes.iter().flatten();
    let volume: &Volume = volumes.find(|volume| volume.name == mount.name)?;
    let sources = volume.projected.as_ref()?.sources.as_ref()?;
    let projected = sources.iter().filter_map(|source| source.config_map.as_ref());
    let mut keys = projected.filter_map(|map| {
        let mut items = map.items.iter().flatten();
        let key = match items.find(|item| item.path == AUTHORITY_FILE) {
            Some(item) => item.key.clone(),
            // Kubernetes: without `items`, every key is a file of its name.
            None if map.items.is_none() => AUTHORITY_FILE.to_owned(),
            None => return None,
        };
        Some(ConfigMapKey {
            config_map: map.name.clone(),
            key,
        })
    });
    keys.next()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::Config;
    use serde_json::{Value, json};

    use super::{api_server_host, authority_source, endpoint};
    use tollgate_objects::TlsVerification;
    use tollgate_objects::are_certificates;

    fn pod(container: &Value, volume: &Value) -> Pod {
        let spec = json!({"containers": [container, {"name": "other"}], "volumes": [volume]});
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap()
    }

    fn mounted(path: &str, source: &Value) -> Option<(String, String)> {
        let container = json!({"name": "a", "volumeMounts": [{"name": "account", "mountPath": path}]});
        let volume = json!({"name": "account", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token"}}, {"configMap": source},
        ]}});
        let found = authority_source(&pod(&container, &volume))?;
        Some((found.config_map, found.key))
    }

    #[test]
    fn the_authorities_of_a_pod_are_those_at_the_path_of_its_account() {
        let path = "/var/run/secrets/kubernetes.io/serviceaccount";
        let whole = json!({"name": "authorities"});
        let item = json!({"name": "authorities", "items": [{"key": "both.pem", "path": "ca.crt"}]});
        let other = json!({"name": "authorities", "items": [{"key": "both.pem", "path": "other.crt"}]});
        let key = |key: &str| Some(("authorities".to_owned(), key.to_owned()));
        assert_eq!(mounted(path, &whole), key("ca.crt"));
        assert_eq!(mounted(&format!("{path}/"), &item), key("both.pem"));
        assert_eq!(mounted(path, &other), None);
        assert_eq!(mounted("/elsewhere", &whole), None);
        assert!(authority_source(&pod(&json!({"name": "a"}), &json!({"name": "v"}))).is_none());
    }

    #[test]
    fn the_api_server_is_where_the_first_container_looks_for_it() {
        let variable = json!({"name": "KUBERNETES_SERVICE_HOST", "value": "kubernetes.default.svc"});
        let with = json!({"name": "a", "env": [{"name": "A", "value": "b"}, variable]});
        let host = |container: &Value| api_server_host(&pod(container, &json!({"name": "v"})));
        assert_eq!(host(&with).as_deref(), Some("kubernetes.default.svc"));
        assert_eq!(host(&json!({"name": "a"})), None);
        assert_eq!(api_server_host(&Pod::default()), None);
    }

    #[test]
    fn the_server_is_verified_as_the_settings_say() {
        let mut config = Config::new("https://a.example:6443/".parse().unwrap());
        let (server, tls) = endpoint(&config);
        assert_eq!((server.as_str(), tls.ca_pem), ("https://a.example:6443", None));
        assert_eq!(tls.verification, TlsVerification::On);
        let certificate = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert;
        config.root_cert = Some(vec![certificate.der().to_vec()]);
        config.accept_invalid_certs = true;
        config.tls_server_name = Some("b".to_owned());
        let (_, tls) = endpoint(&config);
        assert!(are_certificates(&tls.ca_pem.unwrap()));
        assert_eq!(
            (tls.verification, tls.server_name.as_deref()),
            (TlsVerification::Off, Some("b"))
        );
    }
}
