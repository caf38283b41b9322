//! Where the admission webhook of a test listens, and as whom API servers call it.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::NAMESPACE;
use test_support::authority::{Authority, Pair};
use test_support::kubernetes::argocd::free_port;
use test_support::kubernetes::cluster::{Cluster, Options};
use test_support::kubernetes::gateway::{Layout, base64};

/// Where the webhook listens, and as whom API servers call it.
pub(super) struct Webhook {
    port: u16,
    pub(super) clients: Authority,
    /// Configuration of API servers.
    folder: TempDir,
}

impl Webhook {
    pub(super) fn new() -> Self {
        let port = free_port();
        let clients = Authority::new("api-servers");
        let folder = tempfile::tempdir().unwrap();
        let Pair { certificate, key } = clients.client("kube-apiserver", None);
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

    pub(super) fn url(&self) -> String {
        format!("https://{}", address(self.port))
    }

    /// Its port, on loopback.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// A cluster whose API server authenticates to the webhook.
    pub(super) async fn start_cluster(&self) -> Cluster {
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
    pub(super) fn configure(&self, layout: &mut Layout, more: &Value) {
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
    pub(super) async fn register(&self, cluster: &Cluster, authority: &str) {
        for component in ["admission", "admission-author"] {
            let path = format!("deploy/kubernetes/components/{component}/webhooks.yaml");
            let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
            let mut configuration: Value = serde_saphyr::from_str(&text).unwrap();
            let client = &mut configuration["webhooks"][0]["clientConfig"];
            let path = client["service"]["path"].as_str().unwrap();
            *client = json!({"url": format!("{}{path}", self.url()), "caBundle": base64(authority)});
            cluster.admin().apply(&configuration.to_string()).await;
        }
    }
}

/// The name by which an API server calls the Service of the shipped manifests.
pub(super) fn server_name() -> String {
    format!("tollgate-admission.{NAMESPACE}.svc")
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}
