//! The cluster that Argo CD runs in. Argo CD reads neither an authority nor a name from its Secret, but
//! takes both from the pod (`rest.InClusterConfig`): so its pods must trust the gateway, too, and look for
//! the API server by a name that the gateway's certificate can have.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::{PAGE, secret_failure, warn};
use tollgate_client::failure::Failure;
use tollgate_cluster::access::{ClusterEndpoint, authority_and_path};
use tollgate_config::KubernetesState;
use tollgate_objects::destination::IN_CLUSTER_SERVER;
use tollgate_state::argocd_cluster::{ArgocdCluster, ComponentPod};

/// The host of the API server for Argo CD's pods. Their tunnel is for this host and port 443, by which the
/// gateway knows the cluster.
pub(super) const HOST: &str = "kubernetes.default.svc";

/// Whether a server is this cluster, in any spelling: for Argo CD it is another one with a port, for
/// example.
pub(super) fn is_own_cluster(server: &str) -> bool {
    let host = authority_and_path(server).map(|(authority, _)| authority);
    host.is_some_and(|host| host.starts_with(HOST))
}

/// What is known of the cluster.
pub(super) struct InCluster {
    /// Where it is reached from here.
    pub(super) endpoint: ClusterEndpoint,
    /// PEM of the authorities of its API server, for pods.
    pub(super) authority: String,
    namespace: String,
    pods: Vec<ComponentPod>,
}

impl InCluster {
    /// - `namespace`: Argo CD's.
    pub(super) async fn read(settings: &KubernetesState, namespace: &str) -> Result<Self, Failure> {
        let failed = |error| secret_failure(&error);
        let cluster = ArgocdCluster::open(settings).await.map_err(failed)?;
        let authority = cluster.root_authority(namespace).await.map_err(failed)?;
        let authority = authority.ok_or_else(|| {
            let message = format!("the namespace `{namespace}` has no ConfigMap `kube-root-ca.crt` with `ca.crt`");
            Failure::new("cluster.authority", message).with_hint("kube-controller-manager makes it")
        })?;
        let pods = cluster.component_pods(namespace).await.map_err(failed)?;
        Ok(Self {
            endpoint: ClusterEndpoint {
                server: cluster.server,
                tls: cluster.tls,
            },
            authority,
            namespace: namespace.to_owned(),
            pods,
        })
    }

    /// What keeps Argo CD's pods from verifying the gateway, or the API server. Prints a warning if there
    /// are no pods to look at.
    ///
    /// - `gateway`: PEM of the authorities of the gateway's certificate.
    pub(super) fn check_pods(&self, gateway: &str) -> Vec<Failure> {
        if self.pods.is_empty() {
            let namespace = &self.namespace;
            warn(&format!(
                "no pod of Argo CD is in the namespace `{namespace}` (label `app.kubernetes.io/name`), so nobody \
                 checked that Argo CD trusts the gateway"
            ));
        }
        let needed = [certificates(gateway), certificates(&self.authority)].concat();
        let problems = self.pods.iter().filter_map(|pod| problem(pod, &needed));
        problems.collect()
    }
}

/// What `enroll` warns of if Argo CD knew the cluster without a Secret.
pub(super) const NEW_SECRET: &str = "the cluster gets a Secret: ApplicationSets whose cluster generator has a \
                                     `selector` did not select it so far, and select it from now on if its labels match";

/// The certificates of a PEM text.
fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).flatten().collect()
}

fn problem(pod: &ComponentPod, needed: &[CertificateDer<'_>]) -> Option<Failure> {
    let name = &pod.name;
    let message = match (pod.api_server_host.as_deref(), &pod.authorities) {
        (Some(HOST), Some(authorities)) => {
            let trusted = certificates(authorities);
            if needed.iter().all(|certificate| trusted.contains(certificate)) {
                return None;
            }
            format!(
                "the authorities that Argo CD's pod `{name}` trusts are not those of `{IN_CLUSTER_SERVER}` and of the \
                 gateway"
            )
        }
        (Some(HOST), None) => format!("Argo CD's pod `{name}` does not trust the gateway"),
        (host, _) => format!(
            "Argo CD's pod `{name}` looks for the API server at `{}`, and not at `{HOST}`",
            host.unwrap_or("the address of its service")
        ),
    };
    let hint = format!("prepare Argo CD's pods as {PAGE} shows");
    Some(Failure::new("cluster.pods", message).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::{ComponentPod, HOST, certificates, is_own_cluster, problem};

    fn authority() -> String {
        rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem()
    }

    #[test]
    fn the_own_cluster_is_known_in_any_spelling() {
        for server in [
            "https://kubernetes.default.svc",
            "https://kubernetes.default.svc:443",
            "https://Kubernetes.default.svc.cluster.local/",
        ] {
            assert!(is_own_cluster(server), "{server}");
        }
        for server in [
            "https://prod.example",
            "https://a/kubernetes.default.svc",
            "kubernetes.default.svc",
        ] {
            assert!(!is_own_cluster(server), "{server}");
        }
    }

    #[test]
    fn pods_need_the_host_and_both_authorities() {
        let (cluster, gateway, other) = (authority(), authority(), authority());
        let needed = [certificates(&gateway), certificates(&cluster)].concat();
        let check = |host: Option<&str>, authorities: Option<String>| {
            let pod = ComponentPod {
                name: "argocd-server-0".to_owned(),
                api_server_host: host.map(str::to_owned),
                authorities,
            };
            problem(&pod, &needed).map(|problem| problem.to_string())
        };
        assert_eq!(check(Some(HOST), Some(format!("{cluster}{gateway}"))), None);
        assert_eq!(check(Some(HOST), Some(format!("{gateway}\n{other}{cluster}"))), None);
        for (host, authorities, expected) in [
            (None, Some(format!("{cluster}{gateway}")), "looks for the API server at"),
            (
                Some("10.0.0.1"),
                Some(format!("{cluster}{gateway}")),
                "at `10.0.0.1`, and not at",
            ),
            (Some(HOST), None, "does not trust the gateway"),
            (Some(HOST), Some(cluster.clone()), "are not those of"),
            (Some(HOST), Some(gateway.clone()), "are not those of"),
            (Some(HOST), Some(other), "are not those of"),
            (Some(HOST), Some("none".to_owned()), "are not those of"),
        ] {
            let text = check(host, authorities).unwrap();
            assert!(text.starts_with("cluster.pods: ") && text.contains(expected), "{text}");
        }
    }
}
