//! Decodes Services, Ingresses and NetworkPolicies.

use std::collections::{BTreeMap, BTreeSet};

use super::Object;
use crate::fields::Fields;
use crate::network::{Ingress, IngressRule, LabelSelector, NetworkPeer, NetworkPolicy, Service, ServiceExposure};

pub(super) fn service(object: &Object<'_>) -> Option<Service> {
    let spec = object.fields.child("spec")?;
    let exposure = match spec.text_or_empty("type").as_str() {
        "LoadBalancer" => ServiceExposure::LoadBalancer,
        "NodePort" => ServiceExposure::Nodes,
        _ if !spec.texts("externalIPs").is_empty() => ServiceExposure::ExternalAddresses,
        _ => ServiceExposure::Cluster,
    };
    Some(Service {
        name: object.name.name.clone(),
        selector: texts(&spec, "selector"),
        exposure,
        location: object.fields.location(),
    })
}

pub(super) fn ingress(object: &Object<'_>) -> Option<Ingress> {
    let spec = object.fields.child("spec")?;
    let mut services = BTreeSet::new();
    let mut add = |backend: Option<Fields<'_>>| {
        let service = backend.and_then(|backend| backend.child("service"));
        services.extend(service.and_then(|service| service.text("name")));
    };
    add(spec.child("defaultBackend"));
    for rule in spec.children("rules") {
        let Some(http) = rule.child("http") else { continue };
        for path in http.children("paths") {
            add(path.child("backend"));
        }
    }
    Some(Ingress {
        name: object.name.name.clone(),
        services,
        location: object.fields.location(),
    })
}

pub(super) fn network_policy(object: &Object<'_>) -> Option<NetworkPolicy> {
    let spec = object.fields.child("spec")?;
    let types = spec.texts("policyTypes");
    // Without types, a policy is always about connections to pods.
    let is_ingress = types.is_empty() || types.iter().any(|one| &*one.value == "Ingress");
    let rules = || spec.children("ingress").iter().map(rule).collect();
    Some(NetworkPolicy {
        name: object.name.name.clone(),
        pods: spec
            .child("podSelector")
            .map(|selector| label_selector(&selector))
            .unwrap_or_default(),
        ingress: is_ingress.then(rules),
        location: object.fields.location(),
    })
}

fn rule(fields: &Fields<'_>) -> IngressRule {
    let number = |port: &Fields<'_>| {
        let has_range = port.node("endPort").is_some();
        let text = port
            .node("port")
            .and_then(|node| node.scalar())
            .map(|scalar| scalar.text.to_string());
        text.filter(|_| !has_range)?.parse::<i64>().ok()
    };
    let ports = fields.children("ports");
    let numbers: Option<BTreeSet<i64>> = ports.iter().map(number).collect();
    IngressRule {
        from: fields.children("from").iter().map(peer).collect(),
        ports: numbers.filter(|_| !ports.is_empty()),
    }
}

fn peer(fields: &Fields<'_>) -> NetworkPeer {
    if fields.node("ipBlock").is_some() {
        return NetworkPeer::Addresses;
    }
    let selector = |key: &str| fields.child(key).map(|selector| label_selector(&selector));
    NetworkPeer::Pods {
        namespaces: selector("namespaceSelector"),
        pods: selector("podSelector"),
    }
}

fn label_selector(fields: &Fields<'_>) -> LabelSelector {
    LabelSelector {
        labels: texts(fields, "matchLabels"),
        has_expressions: !fields.children("matchExpressions").is_empty(),
    }
}

fn texts(fields: &Fields<'_>, key: &str) -> BTreeMap<String, String> {
    let texts = fields.text_map(key).into_iter();
    texts.map(|(key, text)| (key, text.value.to_string())).collect()
}
