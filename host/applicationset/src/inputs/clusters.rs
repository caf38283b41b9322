//! Makes [`ClusterInput`]s from the objects of the control plane.
//!
//! Security: of a Secret's data, only the cluster's name, server and project are used.

use super::{ClusterInput, Metadata};
use tollgate_objects::{Cluster, Resources};

impl ClusterInput {
    /// The clusters of a control plane: first those with a Secret, in their order, then the own
    /// one without a Secret. There is no own cluster if `argocd-cm` disables it. Argo CD generates
    /// Applications for it even then, but refuses them.
    pub fn all(resources: &Resources) -> Vec<Self> {
        let inputs = resources.clusters.iter().map(|cluster| Self::new(cluster, resources));
        let (mut inputs, own): (Vec<_>, Vec<_>) = inputs.partition(|input| input.secret.is_some());
        inputs.extend(own);
        inputs
    }

    fn new(cluster: &Cluster, resources: &Resources) -> Self {
        let config = resources.cluster_configs.get(&cluster.server);
        let config = config.filter(|config| config.secret_name.is_some());
        Self {
            name: cluster.name.clone(),
            server: cluster.server.clone(),
            project: cluster.project.clone(),
            secret: config.map(|config| Metadata {
                labels: config.labels.clone(),
                annotations: config.annotations.clone(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterInput, Metadata};
    use tollgate_objects::decode::load_text;

    const CM: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-cm}}\n---\n";

    /// A Secret that describes a cluster; `more` is added to its metadata.
    fn secret(name: &str, server: &str, more: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: secret-{name}\n  labels:\n    \
             argocd.argoproj.io/secret-type: cluster\n    env: dev\n{more}stringData:\n  name: {name}\n  \
             server: {server}\n  project: p\n  config: '{{\"bearerToken\": \"t0p-s3cr3t\"}}'\n---\n"
        )
    }

    fn inputs(text: &str) -> Vec<ClusterInput> {
        let loaded = load_text(text, "clusters.yaml", "argocd");
        ClusterInput::all(&loaded.value.expect("the load is not refused"))
    }

    #[test]
    fn clusters_have_the_labels_and_annotations_of_their_secrets() {
        let annotations = "  annotations:\n    team: shop\n    \
             kubectl.kubernetes.io/last-applied-configuration: t0p-s3cr3t\n";
        let found = inputs(&format!("{CM}{}", secret("prod", "https://prod.example", annotations)));
        let pairs = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            pairs.collect()
        };
        let prod = ClusterInput {
            name: "prod".to_owned(),
            server: "https://prod.example".to_owned(),
            project: "p".to_owned(),
            secret: Some(Metadata {
                labels: pairs(&[("argocd.argoproj.io/secret-type", "cluster"), ("env", "dev")]),
                // kubectl's annotation contains the Secret's values.
                annotations: pairs(&[
                    ("kubectl.kubernetes.io/last-applied-configuration", ""),
                    ("team", "shop"),
                ]),
            }),
        };
        let own = ClusterInput {
            name: "in-cluster".to_owned(),
            server: "https://kubernetes.default.svc".to_owned(),
            project: String::new(),
            secret: None,
        };
        assert_eq!(found, [prod, own]);
    }

    #[test]
    fn in_cluster_may_have_a_secret_or_be_disabled() {
        let found = inputs(&format!("{CM}{}", secret("home", "https://kubernetes.default.svc", "")));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].secret.is_some()), ("home", true));
        let off = "{apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-cm}, data: \
                   {cluster.inClusterEnabled: 'false'}}\n";
        assert!(inputs(off).is_empty());
    }
}
