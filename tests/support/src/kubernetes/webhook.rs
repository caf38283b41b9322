//! The admission webhook of a gateway, as an API server calls it: where it listens, its settings, and
//! the shipped manifests that register it.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::argocd::NAMESPACE;
use super::cluster::{Cluster, Options};
use super::gateway::{Layout, base64};
use crate::authority::{Authority, Pair};
use crate::port::free_port;

/// The name in the client certificate of API servers.
const API_SERVER: &str = "kube-apiserver";

/// Where the webhook listens, and the identity with which API servers call it.
pub struct Webhook {
    port: u16,
    clients: Authority,
    /// Configuration of API servers.
    folder: TempDir,
}

impl Webhook {
    #[expect(clippy::new_without_default, reason = "it takes a port, so each is another one")]
    pub fn new() -> Self {
        let port = free_port();
        let clients = Authority::new("api-servers");
        let folder = tempfile::tempdir().unwrap();
        let Pair { certificate, key } = clients.client(API_SERVER, None);
        let user = json!({
            "client-certificate-data": base64(&certificate), "client-key-data": base64(&key),
        });
        let names = [address(port), format!("{}:{port}", server_name())];
        let users = names.map(|name| json!({"name": name, "user": user}));
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "users": users});
        let file = folder.path().join("webhooks.kubeconfig");
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let plugin = |name: &str| {
            json!({"name": name, "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": file,
            }})
        };
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
            "plugins": [plugin("ValidatingAdmissionWebhook"), plugin("MutatingAdmissionWebhook")],
        });
        std::fs::write(folder.path().join("admission.json"), configuration.to_string()).unwrap();
        Self { port, clients, folder }
    }

    pub fn url(&self) -> String {
        format!("https://{}", address(self.port))
    }

    /// A certificate as API servers have it.
    pub fn client_certificate(&self) -> Pair {
        self.clients.client(API_SERVER, None)
    }

    /// PEM of the authority of such certificates.
    pub fn client_authority(&self) -> &str {
        &self.clients.pem
    }

    /// Its port, on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A cluster whose API server authenticates to the webhook.
    pub async fn start_cluster(&self) -> Cluster {
        let file = self.folder.path().join("admission.json");
        let flag = format!("--admission-control-config-file={}", file.display());
        let options = Options {
            flags: vec![flag],
            ..Options::default()
        };
        Cluster::start_with(options).await
    }

    /// Settings of the gateway.
    ///
    /// - `more`: further ones of the section `admission`.
    pub fn configure(&self, layout: &mut Layout, more: &Value) {
        layout.tls();
        std::fs::write(layout.root().join("clients.pem"), &self.clients.pem).unwrap();
        let mut admission = json!({
            "listen": address(self.port),
            "tls": {"certificate": "gateway.pem", "key": "gateway.key"},
            "clientCertificateAuthority": "clients.pem",
        });
        let more = more.as_object().unwrap().clone();
        admission.as_object_mut().unwrap().extend(more);
        layout.settings(json!({"applications": {}, "applicationSets": {}, "admission": admission}));
        for front in ["applications", "applicationsets"] {
            layout.policies(front);
        }
    }

    /// Registers the shipped webhooks at an API server.
    pub async fn register(&self, cluster: &Cluster, authority: &str) {
        for component in ["admission", "admission-author"] {
            let path = format!("deploy/kubernetes/components/{component}/webhooks.yaml");
            let text = std::fs::read_to_string(crate::checkout().join(path)).unwrap();
            let mut configuration: Value = serde_saphyr::from_str(&text).unwrap();
            let client = &mut configuration["webhooks"][0]["clientConfig"];
            let path = client["service"]["path"].as_str().unwrap();
            *client = json!({"url": format!("{}{path}", self.url()), "caBundle": base64(authority)});
            cluster.admin().apply(&configuration.to_string()).await;
        }
    }
}

/// The name by which an API server calls the Service of the shipped manifests.
pub fn server_name() -> String {
    format!("tollgate-admission.{NAMESPACE}.svc")
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}
