//! What the gateway fetches from a cluster, and what it makes of the responses.

mod answers;
mod fake_cluster;
mod times;

use std::sync::Arc;

use super::{Discovery, EndpointError, Error, ResourceKind, ResourceScope, likely_resource};
use crate::access::ClusterAccess;

/// `group/Kind`, with `*` for a cluster-scoped kind, or the error with its causes.
async fn find(discovery: &Discovery, access: &Arc<ClusterAccess>, gvr: &str) -> String {
    let (gv, resource) = gvr.rsplit_once('/').unwrap();
    let (group, version) = gv.split_once('/').unwrap_or(("", gv));
    match discovery.find(access, group, version, resource).await {
        Ok(ResourceKind { group, kind, scope }) => match scope {
            ResourceScope::Namespaced => format!("{group}/{kind}"),
            ResourceScope::Cluster => format!("{group}/{kind}*"),
        },
        Err(error) => tollgate_core::diagnostic::with_causes(&error),
    }
}

fn unavailable(why: &str) -> String {
    format!("the cluster `prod` does not say which resources it serves: {why}")
}

fn unknown(resource: &str) -> String {
    format!("the cluster `prod` does not serve the resource `{resource}`")
}

#[test]
fn errors_name_the_cluster_and_the_cause() {
    let error = Error::Unavailable {
        cluster: "prod".into(),
        source: EndpointError::Answer,
    };
    let text = tollgate_core::diagnostic::with_causes(&error);
    assert_eq!(text, unavailable("its answer is not a list of resources"));
}

#[test]
fn kinds_map_to_their_plural_resources() {
    for (kind, resource) in [
        ("Deployment", "deployments"),
        ("ReplicaSet", "replicasets"),
        ("CronJob", "cronjobs"),
        ("NetworkPolicy", "networkpolicies"),
        ("Ingress", "ingresses"),
        ("Endpoints", "endpoints"),
    ] {
        assert_eq!(likely_resource(kind), resource);
    }
}
