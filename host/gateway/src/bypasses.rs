//! Warns about ways to argocd-server that go past the gateway, as far as the objects show them:
//! `tollgate check` and the log name each with what to do.
//!
//! A NetworkPolicy that admits only the gateway to argocd-server's pods closes all of them. Without
//! one, argocd-server itself must not serve what Tollgate decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_config::Config;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_objects::Resources;
use tollgate_objects::network::{
    IngressRule, LabelSelector, NetworkPeer, NetworkPolicy, Selection, Service, ServiceExposure,
};
use tollgate_policy::rbac::Rbac;

/// The label by which Argo CD's and Tollgate's manifests select pods.
const NAME_LABEL: &str = "app.kubernetes.io/name";
/// Its value for argocd-server, and the name of its Service.
const ARGOCD_SERVER: &str = "argocd-server";
/// Its value for the gateway.
const TOLLGATE: &str = "tollgate";
/// The label with which Kubernetes names a namespace.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";
/// argocd-server's port for Prometheus, which serves nothing of its API.
const METRICS_PORT: i64 = 8083;

const PROXY_EXTENSION_KEY: &str = "server.enable.proxy.extension";

/// Most rows of the policy that are named.
const MAX_ROWS: usize = 10;

const CLOSE_HINT: &str = "admit only Tollgate to its pods: deploy/kubernetes/components/only-through-tollgate";

/// Warns about each way past the gateway that the objects show.
pub(crate) fn findings(config: &Config, resources: &Resources, rbac: &Rbac) -> Vec<Diagnostic> {
    let server = ArgocdServer::of(resources);
    if server.isolation(&resources.network_policies) == Isolation::OnlyTollgate {
        return Vec::new();
    }
    let mut found = Vec::new();
    if config.argocd.is_some() {
        found.extend(server.open_ways(resources));
    }
    found.extend(proxy_extensions(resources));
    if config.application_sets.is_some() {
        found.extend(rows_for_sets(rbac));
    }
    found
}

/// Whether argocd-server's pods accept connections only from the gateway.
#[derive(Debug, PartialEq, Eq)]
enum Isolation<'a> {
    OnlyTollgate,
    /// No policy selects the pods, so everybody may connect.
    None,
    /// These policies admit others.
    AdmitsOthers(Vec<&'a NetworkPolicy>),
}

struct ArgocdServer<'a> {
    services: Vec<&'a Service>,
    /// Labels that its pods have.
    labels: BTreeMap<String, String>,
}

impl<'a> ArgocdServer<'a> {
    fn of(resources: &'a Resources) -> Self {
        let is_its = |service: &&Service| match service.selector.get(NAME_LABEL) {
            Some(name) => name == ARGOCD_SERVER,
            None => service.name == ARGOCD_SERVER,
        };
        let services: Vec<_> = resources
            .services
            .values()
            .map(|service| &**service)
            .filter(is_its)
            .collect();
        let mut labels = BTreeMap::from([(NAME_LABEL.to_owned(), ARGOCD_SERVER.to_owned())]);
        // A Service selects pods that have all of its labels, so argocd-server's pods have them.
        for service in &services {
            labels.extend(service.selector.clone());
        }
        Self { services, labels }
    }

    /// NetworkPolicies add up: all that select a pod admit what any of them admits.
    fn isolation<'p>(&self, policies: &'p BTreeMap<String, Arc<NetworkPolicy>>) -> Isolation<'p> {
        let mut is_selected = false;
        let mut others = Vec::new();
        for policy in policies.values() {
            let Some(rules) = &policy.ingress else { continue };
            let selection = policy.pods.selects(&self.labels);
            is_selected |= selection == Selection::Yes;
            // What is not known never counts as isolation: only a sure selection closes, and a possible one opens.
            if selection != Selection::No && !rules.iter().all(admits_only_tollgate) {
                others.push(&**policy);
            }
        }
        match (is_selected, others.is_empty()) {
            (true, true) => Isolation::OnlyTollgate,
            (false, true) => Isolation::None,
            (_, false) => Isolation::AdmitsOthers(others),
        }
    }

    /// Warns about each object that opens argocd-server, or about the cluster's network alone.
    fn open_ways(&self, resources: &Resources) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        for service in &self.services {
            let by = match service.exposure {
                ServiceExposure::Cluster => continue,
                ServiceExposure::Nodes => "a port of every node",
                ServiceExposure::LoadBalancer => "a load balancer",
                ServiceExposure::ExternalAddresses => "addresses from outside the cluster",
            };
            let message = format!("Service `{}` opens argocd-server by {by}, past Tollgate", service.name);
            let hint = format!("make it `ClusterIP`, and {CLOSE_HINT}");
            found.push(Diagnostic::warning(service.location.clone(), message).with_hint(hint));
        }
        for ingress in resources.ingresses.values() {
            let mut services = self.services.iter().map(|service| &service.name);
            let Some(service) = services.find(|name| ingress.services.contains(*name)) else {
                continue;
            };
            let name = &ingress.name;
            let message = format!("Ingress `{name}` leads to Service `{service}` of argocd-server, past Tollgate");
            let hint = format!("let it lead to Tollgate's Service, and {CLOSE_HINT}");
            found.push(Diagnostic::warning(ingress.location.clone(), message).with_hint(hint));
        }
        match self.isolation(&resources.network_policies) {
            Isolation::AdmitsOthers(policies) => found.extend(policies.into_iter().map(|policy| {
                let name = &policy.name;
                let message = format!("NetworkPolicy `{name}` admits others than Tollgate to argocd-server");
                let hint = "remove it, because policies add up, or admit only pods with the label \
                            `app.kubernetes.io/name: tollgate`";
                Diagnostic::warning(policy.location.clone(), message).with_hint(hint)
            })),
            // Nothing is said where the objects do not show how argocd-server is reached.
            Isolation::None if !self.services.is_empty() => {
                let message = "no NetworkPolicy keeps others than Tollgate from argocd-server";
                found.push(Diagnostic::warning(None, message).with_hint(CLOSE_HINT));
            }
            Isolation::None | Isolation::OnlyTollgate => {}
        }
        found
    }
}

fn admits_only_tollgate(rule: &IngressRule) -> bool {
    let is_metrics = rule
        .ports
        .as_ref()
        .is_some_and(|ports| ports.iter().all(|port| *port == METRICS_PORT));
    is_metrics || (!rule.from.is_empty() && rule.from.iter().all(is_tollgate))
}

fn is_tollgate(peer: &NetworkPeer) -> bool {
    let has = |selector: &LabelSelector, key: &str, value: Option<&str>| {
        let found = selector.labels.get(key);
        found.is_some_and(|found| value.is_none_or(|value| found == value))
    };
    match peer {
        NetworkPeer::Pods {
            namespaces,
            pods: Some(pods),
        } => {
            // The owner of any namespace can give a pod there Tollgate's label.
            let is_one_namespace = namespaces
                .as_ref()
                .is_none_or(|selector| has(selector, NAMESPACE_LABEL, None));
            is_one_namespace && has(pods, NAME_LABEL, Some(TOLLGATE))
        }
        NetworkPeer::Pods { pods: None, .. } | NetworkPeer::Addresses => false,
    }
}

/// argocd-server serves the extensions of `argocd-cm` itself.
fn proxy_extensions(resources: &Resources) -> Option<Diagnostic> {
    let key = PROXY_EXTENSION_KEY;
    let switch = resources.command_parameters.data.get(key)?;
    // Source: Go's `strconv.ParseBool`, with which argocd-server reads it.
    let is_on = matches!(&*switch.value, "1" | "t" | "T" | "true" | "True" | "TRUE");
    let mut keys = resources.argocd_cm.data.keys();
    if !is_on || !keys.any(|key| key.starts_with("extension.config")) {
        return None;
    }
    let message = format!(
        "`{key}` of `argocd-cmd-params-cm` is `{}`: argocd-server serves the extensions of `argocd-cm` too, past \
         Tollgate's policies",
        switch.value
    );
    let hint = format!("remove the key and restart argocd-server, or {CLOSE_HINT}");
    Some(Diagnostic::warning(switch.location.clone(), message).with_hint(hint))
}

/// Rows with which people write ApplicationSets at argocd-server, without Tollgate's checks of what
/// a set generates.
fn rows_for_sets(rbac: &Rbac) -> Vec<Diagnostic> {
    let rows: Vec<_> = rbac
        .allowing_rows("applicationsets", &["create", "update", "delete"])
        .collect();
    let more = rows.len().saturating_sub(MAX_ROWS);
    let mut found: Vec<_> = rows
        .into_iter()
        .take(MAX_ROWS)
        .map(|row| {
            let message = format!(
                "`{}` lets people write ApplicationSets at argocd-server too, past Tollgate's checks",
                row.text
            );
            Diagnostic::warning(row.location.clone(), message).with_hint(CLOSE_HINT)
        })
        .collect();
    if more > 0 {
        let message = format!("{more} more rows let people write ApplicationSets at argocd-server");
        found.push(Diagnostic::warning(None, message).with_hint(CLOSE_HINT));
    }
    found
}

#[cfg(test)]
mod tests;
