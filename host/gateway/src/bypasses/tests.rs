use serde_json::{Value, json};

use super::findings;
use tollgate_config::{RbacSemantics, raw};
use tollgate_objects::decode;
use tollgate_policy::rbac::{PolicySource, Rbac};

const BOTH: &str = "argocd: {server: 'https://argocd-server.argocd.svc'}\napplicationSets: {}";

/// The messages about these objects, with settings besides the required ones.
fn messages(settings: &str, objects: &[Value]) -> Vec<String> {
    let settings = format!("state: {{directory: s}}\npolicies: {{directory: p}}\n{settings}\n");
    let config = raw::parse(&settings, "t.yaml", std::path::Path::new("/etc"))
        .value
        .unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let loaded = decode::load_text(&list.to_string(), "objects.yaml", "argocd");
    let resources = loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let source = PolicySource::from_resources(&resources, RbacSemantics::Argocd)
        .value
        .unwrap();
    let rbac = Rbac::compile(&source).value.unwrap();
    let found = findings(&config, &resources, &rbac);
    assert!(
        found
            .iter()
            .all(|finding| !finding.is_error() && finding.hint.is_some())
    );
    found.into_iter().map(|finding| finding.message).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]
fn object(version: &str, kind: &str, name: &str, body: Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "argocd"}});
    object
        .as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    object
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]
fn config_map(name: &str, data: Value) -> Value {
    object("v1", "ConfigMap", name, json!({"data": data}))
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]
fn service(kind: &str, selector: Value) -> Value {
    object(
        "v1",
        "Service",
        "argocd-server",
        json!({"spec": {"type": kind, "selector": selector}}),
    )
}

fn server() -> Value {
    service("ClusterIP", json!({"app.kubernetes.io/name": "argocd-server"}))
}

#[expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]
fn policy(name: &str, selector: Value, ingress: Value) -> Value {
    let spec = json!({"podSelector": selector, "policyTypes": ["Ingress"], "ingress": ingress});
    object("networking.k8s.io/v1", "NetworkPolicy", name, json!({"spec": spec}))
}

fn of_server() -> Value {
    json!({"matchLabels": {"app.kubernetes.io/name": "argocd-server"}})
}

fn of_tollgate() -> Value {
    json!({"matchLabels": {"app.kubernetes.io/name": "tollgate"}})
}

/// The policy that deploy/kubernetes ships.
fn only_tollgate() -> Value {
    policy(
        "only-through-tollgate",
        of_server(),
        json!([{"from": [{"podSelector": of_tollgate()}]}]),
    )
}

const NO_POLICY: &str = "no NetworkPolicy keeps others than Tollgate from argocd-server";

#[test]
fn an_open_service_or_ingress_is_named_unless_only_tollgate_is_admitted() {
    let by_name = || json!({"app.kubernetes.io/name": "argocd-server"});
    let ingress = |service: &str| {
        let backend = json!({"service": {"name": service, "port": {"number": 443}}});
        let rules = json!([{"host": "argocd.example", "http": {"paths": [{"path": "/", "backend": backend}]}}]);
        object(
            "networking.k8s.io/v1",
            "Ingress",
            "people",
            json!({"spec": {"rules": rules}}),
        )
    };
    let default_backend = object(
        "networking.k8s.io/v1",
        "Ingress",
        "all",
        json!({"spec": {"defaultBackend": {"service": {"name": "argocd-server"}}}}),
    );
    let external = object(
        "v1",
        "Service",
        "argocd-server",
        json!({"spec": {"selector": by_name(), "externalIPs": ["192.0.2.1"]}}),
    );
    for (objects, way) in [
        (vec![server()], None),
        (vec![server(), ingress("tollgate")], None),
        (
            vec![server(), ingress("argocd-server")],
            Some("Ingress `people` leads to"),
        ),
        (vec![server(), default_backend], Some("Ingress `all` leads to")),
        (vec![service("LoadBalancer", by_name())], Some("by a load balancer")),
        (vec![service("NodePort", by_name())], Some("by a port of every node")),
        (vec![service("NodePort", json!({}))], Some("by a port of every node")),
        (vec![external], Some("by addresses from outside")),
    ] {
        let found = messages(BOTH, &objects);
        let expected = usize::from(way.is_some()) + 1;
        assert_eq!(
            (found.len(), found.last().unwrap().as_str()),
            (expected, NO_POLICY),
            "{objects:?}"
        );
        assert!(found[0].contains(way.unwrap_or(NO_POLICY)), "{found:?}");
        // A gateway that stands beside Argo CD leaves it open on purpose.
        assert_eq!(messages("applicationSets: {}", &objects), [""; 0]);
        let closed = [objects, vec![only_tollgate()]].concat();
        assert_eq!(messages(BOTH, &closed), [""; 0], "{closed:?}");
    }
    // Another Service, and nothing that shows how argocd-server is reached.
    let other = service("LoadBalancer", json!({"app.kubernetes.io/name": "argocd-repo-server"}));
    assert_eq!(messages(BOTH, &[other]), [""; 0]);
    assert_eq!(messages(BOTH, &[]), [""; 0]);
}

#[test]
fn a_policy_counts_if_it_admits_nobody_but_tollgate() {
    let to = |from: Value| json!([{"from": from}]);
    let named = |labels: Value| json!({"podSelector": of_tollgate(), "namespaceSelector": {"matchLabels": labels}});
    let metrics = json!([
        {"from": [{"podSelector": of_tollgate()}], "ports": [{"port": 8080}]},
        {"from": [{"namespaceSelector": {}}], "ports": [{"port": 8083}]},
    ]);
    for ingress in [
        json!([]),
        to(json!([{"podSelector": of_tollgate()}])),
        to(json!([named(json!({"kubernetes.io/metadata.name": "tollgate"}))])),
        metrics,
    ] {
        let closed = [server(), policy("a", of_server(), ingress)];
        assert_eq!(messages(BOTH, &closed), [""; 0], "{closed:?}");
    }
    for ingress in [
        json!([{}]),
        to(json!([])),
        to(json!([{"podSelector": {}}])),
        to(json!([{"podSelector": of_tollgate()}, {"podSelector": {"matchLabels": {"app": "x"}}}])),
        to(json!([{"namespaceSelector": {}}])),
        to(json!([{"podSelector": of_tollgate(), "namespaceSelector": {}}])),
        to(json!([named(json!({"team": "a"}))])),
        to(json!([{"ipBlock": {"cidr": "10.0.0.0/8"}}])),
        json!([{"ports": [{"port": 8080}]}]),
        json!([{"ports": [{"port": 8083}, {"port": "server"}]}]),
        json!([{"ports": [{"port": 8083, "endPort": 9000}]}]),
    ] {
        let open = [server(), policy("a", of_server(), ingress.clone())];
        let message = "NetworkPolicy `a` admits others than Tollgate to argocd-server";
        assert_eq!(messages(BOTH, &open), [message], "{ingress}");
        // Policies add up: a second one takes nothing away.
        let more = [&open[..], &[only_tollgate()]].concat();
        assert_eq!(messages(BOTH, &more), [message], "{ingress}");
    }
}

#[test]
fn a_policy_has_to_select_the_pods_for_sure() {
    let everybody = || json!([{}]);
    let expression = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
    let instance = json!({"matchLabels": {"app.kubernetes.io/instance": "argocd"}});
    let other = json!({"matchLabels": {"app.kubernetes.io/name": "argocd-repo-server"}});
    let only = |selector: &Value| {
        policy(
            "a",
            selector.clone(),
            json!([{"from": [{"podSelector": of_tollgate()}]}]),
        )
    };
    for (selector, closes) in [(json!({}), true), (of_server(), true)] {
        assert_eq!(
            messages(BOTH, &[server(), only(&selector)]).is_empty(),
            closes,
            "{selector}"
        );
    }
    for selector in [&expression, &instance, &other] {
        assert_eq!(messages(BOTH, &[server(), only(selector)]), [NO_POLICY], "{selector}");
    }
    // The Service knows more labels of its pods.
    let labels = json!({"app.kubernetes.io/name": "argocd-server", "app.kubernetes.io/instance": "argocd"});
    assert_eq!(
        messages(BOTH, &[service("ClusterIP", labels), only(&instance)]),
        [""; 0]
    );
    // One that perhaps selects them may admit others; one that does not may not.
    let admits = |selector: &Value| [server(), only_tollgate(), policy("a", selector.clone(), everybody())];
    assert_eq!(messages(BOTH, &admits(&expression)).len(), 1);
    assert_eq!(messages(BOTH, &admits(&other)), [""; 0]);
    // One about connections of the pods is not about connections to them.
    let spec = json!({"podSelector": of_server(), "policyTypes": ["Egress"]});
    let egress = object("networking.k8s.io/v1", "NetworkPolicy", "a", json!({"spec": spec}));
    assert_eq!(messages(BOTH, &[server(), egress]), [NO_POLICY]);
}

#[test]
fn extensions_that_argocd_server_serves_too_are_named() {
    let params = |value: &str| config_map("argocd-cmd-params-cm", json!({"server.enable.proxy.extension": value}));
    let extension = || {
        config_map(
            "argocd-cm",
            json!({"extension.config.a": "services: [{url: 'http://a'}]"}),
        )
    };
    for value in ["true", "1", "T"] {
        let objects = [params(value), extension()];
        let found = messages("", &objects);
        assert!(
            matches!(found.as_slice(), [one] if one.contains("serves the extensions of `argocd-cm` too")),
            "{found:?}"
        );
        assert_eq!(messages("", &[&objects[..], &[only_tollgate()]].concat()), [""; 0]);
    }
    for value in ["false", "yes", ""] {
        assert_eq!(messages("", &[params(value), extension()]), [""; 0], "{value}");
    }
    assert_eq!(
        messages("", &[params("true"), config_map("argocd-cm", json!({}))]),
        [""; 0]
    );
    assert_eq!(messages("", &[extension()]), [""; 0]);
}

#[test]
fn rows_for_application_sets_are_named_while_tollgate_serves_sets() {
    let policy = |text: &str| config_map("argocd-rbac-cm", json!({"policy.csv": text}));
    for row in [
        "p, role:dev, applicationsets, create, shop/*, allow",
        "p, alice, applicationsets, update, shop/*, allow",
        "p, role:dev, applicationsets, *, */*, allow",
        "p, role:dev, *, delete, *, allow",
    ] {
        let found = messages("applicationSets: {}", &[policy(row)]);
        let expected =
            format!("`{row}` lets people write ApplicationSets at argocd-server too, past Tollgate's checks");
        assert_eq!(found, [expected]);
        assert_eq!(messages("", &[policy(row)]), [""; 0]);
        assert_eq!(
            messages("applicationSets: {}", &[policy(row), only_tollgate()]),
            [""; 0]
        );
    }
    for row in [
        "p, role:dev, applicationsets, get, */*, allow",
        "p, role:dev, applicationsets, create, */*, deny",
        "p, role:dev, applications, create, */*, allow",
        "g, alice, role:admin",
    ] {
        assert_eq!(messages("applicationSets: {}", &[policy(row)]), [""; 0], "{row}");
    }
    let many: String = (0..12)
        .map(|number| format!("p, u{number}, applicationsets, create, */*, allow\n"))
        .collect();
    let found = messages("applicationSets: {}", &[policy(&many)]);
    assert_eq!(found.len(), 11);
    assert!(found[10].starts_with("2 more rows"), "{found:?}");
}
