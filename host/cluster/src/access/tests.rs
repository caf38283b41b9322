//! Which cluster takes a request that comes in a tunnel.

use std::sync::Arc;

use super::{ClusterAccess, Clusters, endpoint, unusable_source};
use tollgate_config::{Ambient, KubernetesApi};
use tollgate_objects::{ClusterAuth, ClusterConfig};

/// A cluster that Argo CD reaches through the gateway.
fn enrolled(server: &str, has_own_secret: bool) -> ClusterAccess {
    let access = ClusterAccess::at(server, unusable_source("test", "none"));
    let config = ClusterConfig {
        is_enrolled: true,
        has_own_secret,
        ..ClusterConfig::clone(&access.config)
    };
    ClusterAccess {
        config: Arc::new(config),
        ..ClusterAccess::clone(&access)
    }
}

fn clusters(all: &[(&str, bool)]) -> Clusters {
    let mut clusters = Clusters::default();
    for (server, has_own_secret) in all {
        clusters.add(enrolled(server, *has_own_secret));
    }
    clusters
}

fn found<'c>(clusters: &'c Clusters, authority: &str, path: &'c str) -> Option<(&'c str, &'c str)> {
    let (access, rest) = clusters.find_enrolled(authority, path)?;
    Some((access.cluster().server.as_str(), rest))
}

#[test]
fn a_cluster_that_a_project_adds_takes_no_request_of_an_enrolled_one() {
    let prod = ("https://prod.example:6443", true);
    let at = "prod.example:6443";
    for theirs in [
        "https://prod.example:6443/api",
        "https://prod.example:6443/api/v1",
        "https://PROD.example:6443",
        "http://prod.example:6443",
    ] {
        for all in [[prod, (theirs, false)], [(theirs, false), prod]] {
            let clusters = clusters(&all);
            for path in ["/api/v1/pods", "/api", "/apis/apps/v1", "/"] {
                assert_eq!(found(&clusters, at, path), Some((prod.0, path)), "{theirs} {path}");
            }
        }
    }
    let default_port = clusters(&[("https://b.example", true), ("https://b.example:443", false)]);
    assert_eq!(
        found(&default_port, "b.example:443", "/api"),
        Some(("https://b.example", "/api"))
    );
}

#[test]
fn several_clusters_of_an_operator_share_a_host_by_path() {
    let clusters = clusters(&[
        ("https://many.example/a", true),
        ("https://many.example/a/b", true),
        ("https://many.example/theirs", false),
    ]);
    let at = "many.example:443";
    assert_eq!(found(&clusters, at, "/a/api"), Some(("https://many.example/a", "/api")));
    assert_eq!(
        found(&clusters, at, "/a/b/api"),
        Some(("https://many.example/a/b", "/api"))
    );
    assert_eq!(found(&clusters, at, "/ab/api"), None);
    // Nothing else is there.
    assert_eq!(
        found(&clusters, at, "/theirs/api"),
        Some(("https://many.example/theirs", "/api"))
    );
}

/// The connections to the gateway's own cluster follow the file with its authorities.
#[test]
fn a_renewed_authority_of_the_own_cluster_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    std::fs::write(&file, "first").unwrap();
    let ambient = Ambient {
        kubernetes: Some(KubernetesApi {
            server: "https://10.0.0.1:443".to_owned(),
            token_file: folder.path().join("token"),
            ca_file: file.clone(),
        }),
        ..Ambient::default()
    };
    let access = ClusterAccess::at("https://kubernetes.default.svc", unusable_source("test", "none"));
    let config = Arc::new(ClusterConfig {
        auth: ClusterAuth::InCluster,
        ..ClusterConfig::clone(&access.config)
    });
    let cluster = &access.cluster;
    let build = || {
        let endpoint = endpoint(cluster, &config, &ambient);
        let mut clusters = Clusters::default();
        let agents = Arc::default();
        clusters.add(ClusterAccess::new(
            cluster,
            &config,
            "own".into(),
            None,
            &endpoint,
            &agents,
        ));
        clusters
    };
    let before = build();
    assert!(!before.is_outdated(&ambient));
    std::fs::write(&file, "second").unwrap();
    assert!(before.is_outdated(&ambient));
    assert!(!build().is_outdated(&ambient));
    // Other clusters do not depend on the file.
    assert!(!clusters(&[("https://prod.example:6443", true)]).is_outdated(&ambient));
}
