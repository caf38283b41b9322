//! The Helm chart, tested with the real helm and a real API server. It renders what kustomize renders, the
//! API server accepts each variant, and wrong values are explained.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::{Overlay, only_restricted_pods_are_created, restricted_namespace};
use test_support::checkout;
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::helm;
use tollgate_config::raw;
use xtask::cache::{self, OPTIONAL_CRDS};
use xtask::manifests::{self, CHART};

/// A cluster of the tests of manifests alone, because webhooks of the chart would refuse what other tests
/// write. It has the definitions of all objects of the chart and the examples.
pub(super) async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let start = || async {
        let cluster = Cluster::start().await;
        cluster.with_crds().await;
        let folder = cache::crds(checkout()).unwrap();
        let files = OPTIONAL_CRDS.map(|(_, _, name)| format!("--filename={}", folder.join(name).display()));
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let apply = [&["apply", "--server-side"][..], &files].concat();
        cluster.admin().succeed(&apply).await;
        let wait = ["wait", "--for=condition=Established", "--timeout=60s"];
        cluster.admin().succeed(&[&wait[..], &files].concat()).await;
        cluster
    };
    CLUSTER.get_or_init(start).await
}

fn chart() -> PathBuf {
    checkout().join(CHART)
}

/// The option for a file of values in the folder `ci` of the chart.
fn values(name: &str) -> String {
    format!("--values={}", chart().join(format!("ci/{name}-values.yaml")).display())
}

/// What `helm template` prints for a namespace.
///
/// # Errors
/// What it prints if it fails.
pub(super) async fn template(namespace: &str, options: &[&str]) -> Result<String, String> {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(helm())
        .env_clear()
        .env("HOME", home.path())
        .args(["template", "tollgate"])
        .arg(chart())
        .args(["--namespace", namespace])
        .args(options)
        .output()
        .await
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

/// The objects that `helm template` printed.
pub(super) fn objects(text: &str) -> Vec<Value> {
    let documents = text.split("---\n# Source: ").skip(1);
    let objects = documents.map(|document| document.split_once('\n').unwrap().1);
    objects.map(|object| serde_saphyr::from_str(object).unwrap()).collect()
}

/// tollgate.yaml of these objects.
fn settings(objects: &[Value]) -> &str {
    let mut texts = objects
        .iter()
        .filter_map(|object| object["data"]["tollgate.yaml"].as_str());
    texts.next().unwrap()
}

/// Removes labels that Helm or kustomize adds.
fn remove_labels(metadata: &mut Map<String, Value>, names: &[&str]) {
    let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) else {
        return;
    };
    labels.retain(|name, _| !names.contains(&name.as_str()));
    if labels.is_empty() {
        metadata.remove("labels");
    }
}

/// The labels of a release.
const OF_RELEASE: [&str; 5] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "helm.sh/chart",
];

/// The objects by kind and name, without what Helm and kustomize add by themselves: labels, the checksum
/// of the settings, the hash in the name of the ConfigMap, and the namespace of a kind whose scope kustomize
/// does not know. The settings are read, because only one of both has their comments.
fn comparable(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let mut comparable = BTreeMap::new();
    for mut object in objects {
        let kind = object["kind"].as_str().unwrap().to_owned();
        if kind == "ConfigMap" {
            let settings = object["data"]["tollgate.yaml"].as_str().unwrap();
            let settings: Value = serde_saphyr::from_str(settings).unwrap();
            object["data"]["tollgate.yaml"] = settings;
            object["metadata"]["name"] = json!("tollgate");
        }
        if kind == "Deployment" {
            let template = &mut object["spec"]["template"];
            template["spec"]["volumes"][0]["configMap"]["name"] = json!("tollgate");
            let metadata = template["metadata"].as_object_mut().unwrap();
            remove_labels(metadata, &OF_RELEASE);
            let annotations = metadata.remove("annotations").unwrap_or_default();
            let mut names = annotations.as_object().into_iter().flat_map(Map::keys);
            assert!(names.all(|name| name == "checksum/settings"), "{annotations}");
        }
        let metadata = object["metadata"].as_object_mut().unwrap();
        remove_labels(metadata, &OF_RELEASE);
        remove_labels(metadata, &["app.kubernetes.io/name"]);
        if kind.starts_with("ValidatingAdmissionPolicy") {
            metadata.remove("namespace");
        }
        let name = metadata["name"].as_str().unwrap();
        let key = format!("{kind}/{name}");
        assert!(comparable.insert(key, object).is_none());
    }
    comparable
}

/// Components that belong to the gateway, and monitoring. Each patch puts its port before the others, so
/// the order matters.
const COMPONENTS: [&str; 8] = [
    "connectors",
    "all-namespaces",
    "write-applicationsets",
    "write-projects",
    "admission",
    "admission-author",
    "only-through-tollgate",
    "../../monitoring",
];

/// The settings that these components need. The chart adds them, but for those of `ci/components-values.yaml`.
fn settings_of_components() -> Value {
    json!({
        "admission": {
            "clientCertificateAuthority": "/etc/tollgate/webhook-clients/ca.crt",
            "listen": "0.0.0.0:8444",
            "tls": {"secret": "tollgate-admission-tls"},
        },
        "applicationSets": {"git": {"cacheBytes": 1_073_741_824, "directory": "/var/cache/tollgate"}},
        "argocd": {"server": "https://argocd-server.argocd.svc"},
        "connectors": {"peers": {"listen": "0.0.0.0:8445"}},
        "state": {"kubernetes": {"applicationNamespaces": ["*"]}, "namespace": "argocd"},
        "store": {"urlFile": "/etc/tollgate/store/url"},
    })
}

#[tokio::test]
async fn the_chart_and_the_kustomizations_have_the_same_objects() {
    let cluster = Cluster::shared().await;
    let base = Overlay::new("argocd", &[]).objects(cluster).await;
    let mut more: Value = serde_saphyr::from_str(settings(&base)).unwrap();
    let added = settings_of_components();
    more.as_object_mut().unwrap().extend(added.as_object().unwrap().clone());
    let everything = Overlay::new("argocd", &COMPONENTS).with_settings(&more);
    let everything = everything.objects(cluster).await;
    let values = values("components");
    let without = vec!["--set=crds.install=false"];
    let with = vec!["--set=crds.install=false", &values];
    for (kustomized, options, count) in [(base, without, 8), (everything, with, 32)] {
        let rendered = template("argocd", &options).await.unwrap();
        let rendered = comparable(objects(&rendered));
        assert_eq!(rendered.len(), count, "{:?}", rendered.keys());
        let kustomized = comparable(kustomized);
        assert!(
            rendered.keys().eq(kustomized.keys()),
            "{:?} {:?}",
            rendered.keys(),
            kustomized.keys()
        );
        for (name, object) in &rendered {
            assert_eq!(*object, kustomized[name], "{name}");
        }
    }
    // The chart has the definitions, too.
    let rendered = objects(&template("argocd", &[]).await.unwrap());
    let definitions = rendered
        .iter()
        .filter(|object| object["kind"] == "CustomResourceDefinition");
    let definitions: Vec<_> = definitions.collect();
    assert_eq!(definitions.len(), 3);
    for definition in definitions {
        assert_eq!(definition["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap();
        let file = super::shipped(&format!("crds/{plural}.yaml"));
        let file: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(definition["metadata"]["name"], file["metadata"]["name"]);
        assert_eq!(definition["spec"], file["spec"]);
    }
}

#[test]
fn the_manifests_are_rendered_from_the_chart() {
    for (name, text) in manifests::render(&helm(), checkout()).unwrap() {
        let present = std::fs::read_to_string(checkout().join(&name)).unwrap_or_default();
        assert_eq!(present, text, "{name}: run `cargo xtask manifests`");
    }
}

#[test]
fn all_versions_are_the_one_of_the_program() {
    let read = |path: PathBuf| -> Value { serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap() };
    let about = read(chart().join("Chart.yaml"));
    let kustomization = read(super::shipped("base/kustomization.yaml"));
    for version in [
        &about["version"],
        &about["appVersion"],
        &kustomization["images"][0]["newTag"],
    ] {
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
    }
}

/// The gateway reads settings without an objection, except that files of the pod are not here.
fn accepted_by_the_gateway(settings: &str) {
    let loaded = raw::parse(settings, "tollgate.yaml", Path::new("/etc/tollgate/settings"));
    let found = loaded.diagnostics.iter().map(|found| &found.message);
    let wrong: Vec<_> = found.filter(|message| !message.contains("No such file")).collect();
    assert!(wrong.is_empty(), "{wrong:?}\n{settings}");
}

#[tokio::test]
async fn the_api_server_accepts_every_variant() {
    let cluster = cluster().await;
    let apply = ["apply", "--server-side", "--filename=-"];
    let (components, everything) = (values("components"), values("everything"));
    let variants: [(&[&str], &str); 3] = [
        (&[], "tollgate"),
        (&[components.as_str()], "tollgate"),
        (&[everything.as_str()], "gateway"),
    ];
    for (options, name) in variants {
        let namespace = restricted_namespace(cluster).await;
        let text = template(&namespace, options).await.unwrap();
        let run = cluster.admin().run_with(&apply, &text).await;
        assert!(run.status.success(), "{run:?}");
        assert_eq!(run.stderr, "", "kubectl printed a warning");
        let objects = objects(&text);
        assert_eq!(run.stdout.lines().count(), objects.len());
        accepted_by_the_gateway(settings(&objects));

        let there = format!("--namespace={namespace}");
        let get = |kind: &'static str, name: String| {
            let there = there.clone();
            async move { cluster.admin().json(&["get", kind, &name, &there]).await }
        };
        let deployment = get("deployment", name.to_owned()).await;
        let template = &deployment["spec"]["template"];
        only_restricted_pods_are_created(cluster, &namespace, template).await;
        // Prometheus finds the Service, and the Service the pods.
        if !options.is_empty() {
            let selects = |wanted: &Value, labels: &Value| {
                let wanted = wanted.as_object().unwrap();
                assert!(!wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value));
            };
            let service = get("service", format!("{name}-metrics")).await;
            let monitor = get("servicemonitors", name.to_owned()).await;
            let selector = &monitor["spec"]["selector"]["matchLabels"];
            selects(selector, &service["metadata"]["labels"]);
            selects(&service["spec"]["selector"], &template["metadata"]["labels"]);
            assert_eq!(
                monitor["spec"]["endpoints"][0]["port"],
                service["spec"]["ports"][0]["name"]
            );
            // `job` in alerts and dashboard.
            assert_eq!(service["metadata"]["labels"]["app.kubernetes.io/name"], "tollgate");
        }
    }

    // The definitions of others are the real ones.
    let namespace = restricted_namespace(cluster).await;
    for (option, complaint) in [
        (
            "--set=httpRoute.timeouts.request=forever",
            "\"gateway\" is invalid: spec.rules[0].timeouts.request: Invalid value: \"forever\"",
        ),
        (
            "--set-json=metrics.serviceMonitor.relabelings=[{\"action\":\"invent\"}]",
            "\"gateway\" is invalid: spec.endpoints[0].relabelings[0].action: Unsupported value: \
             \"invent\"",
        ),
    ] {
        // Another Service has the port of the nodes.
        let port = "--set=service.nodePort=null";
        let text = template(&namespace, &[everything.as_str(), port, option])
            .await
            .unwrap();
        let run = cluster.admin().run_with(&apply, &text).await;
        assert!(!run.status.success(), "{option}");
        assert!(run.stderr.contains(complaint), "{}", run.stderr);
    }
}

#[tokio::test]
async fn a_release_takes_over_what_kustomize_applied() {
    let cluster = cluster().await;
    let namespace = restricted_namespace(cluster).await;
    Overlay::new(&namespace, &[]).apply(cluster, &[]).await;
    let there = format!("--namespace={namespace}");
    let chart = chart().display().to_string();
    let helm = cluster.admin().beside(helm());
    let install = [
        "install",
        "tollgate",
        &chart,
        &there,
        "--take-ownership",
        "--force-conflicts",
    ];
    let notes = helm.succeed(&install).await;
    let tls = format!("kubectl create secret tls tollgate-tls --namespace {namespace} --cert tls.crt --key tls.key");
    assert!(notes.contains(&tls), "{notes}");
    let get = ["get", "deployment", "tollgate", &there];
    let deployment = cluster.admin().json(&get).await;
    let volume = &deployment["spec"]["template"]["spec"]["volumes"][0];
    assert_eq!(volume["configMap"]["name"], "tollgate");

    // kubectl still owns the fields, too.
    let upgrade = [
        "upgrade",
        "tollgate",
        &chart,
        &there,
        "--set=replicas=3",
        "--force-conflicts",
    ];
    helm.succeed(&upgrade).await;
    assert_eq!(cluster.admin().json(&get).await["spec"]["replicas"], 3);

    helm.succeed(&["uninstall", "tollgate", &there]).await;
    let all = ["get", "deployments,services,roles", "--output=name", &there];
    assert_eq!(cluster.admin().succeed(&all).await, "");
    // Objects of these kinds outlive the release.
    let kept = [
        "get",
        "customresourcedefinition",
        "agents.tollgate.dev",
        "--output=name",
    ];
    cluster.admin().succeed(&kept).await;
}

/// Values and kustomizations of the version before name the component `agents`.
#[tokio::test]
async fn the_former_name_of_the_component_works() {
    let database = "--set=store.urlSecret.name=database";
    let rendered = async |options: &[&str]| template("argocd", &[&[database][..], options].concat()).await.unwrap();
    let (former, current) = ("--set=components.agents=true", "--set=components.connectors=true");
    assert_eq!(rendered(&[former]).await, rendered(&[current]).await);
    // The gateway refuses both names in its settings.
    let mixed = rendered(&[current, "--set-json=settings.agents={\"hosts\":[\"gate.example\"]}"]).await;
    let mixed: Value = serde_saphyr::from_str(settings(&objects(&mixed))).unwrap();
    let expected = json!({"hosts": ["gate.example"], "peers": {"listen": "0.0.0.0:8445"}});
    assert_eq!((&mixed["agents"], &mixed["connectors"]), (&expected, &Value::Null));

    let cluster = Cluster::shared().await;
    let kustomized = async |component| Overlay::new("argocd", &[component]).objects(cluster).await;
    assert_eq!(kustomized("agents").await, kustomized("connectors").await);
}

/// Options, and the whole message about them.
const WRONG: [(&[&str], &str); 23] = [
    (
        &["--set=replica=3"],
        "- at '': additional properties 'replica' not allowed",
    ),
    (&["--set=replicas=two"], "- at '/replicas': got string, want integer"),
    (
        &["--set=ingress.host=tollgate.example.com"],
        "- at '/ingress': additional properties 'host' not allowed",
    ),
    (
        &["--set=policies.application.configMap=mine"],
        "- at '/policies': additional properties 'application' not allowed",
    ),
    (
        &["--set=settings.drain=1m30s"],
        "terminationGracePeriodSeconds is 75, and settings.drain is 1m30s: it must be at least 40 s longer, or pods are \
         killed before they have written what is in memory",
    ),
    (
        &["--set=settings.drain=40s"],
        "terminationGracePeriodSeconds is 75, and settings.drain is 40s: it must be at least 40 s longer, or pods are \
         killed before they have written what is in memory",
    ),
    (
        &["--set=settings.drain=0.5h"],
        "settings.drain is 0.5h: write it in whole hours, minutes and seconds, such as 1m30s, so that \
         terminationGracePeriodSeconds can be compared with it",
    ),
    (
        &["--set=components.connectors=true"],
        "components.connectors needs a database: set store.urlSecret.name to a Secret with the URL of a PostgreSQL \
         database, or, with replicas: 1, settings.store.url to a SQLite file on a volume of extraVolumes",
    ),
    (
        &[
            "--set-json=settings={\"connectors\":{},\"agents\":{}}",
            "--set=store.urlSecret.name=database",
        ],
        "settings.agents is now called settings.connectors, and both are there: keep settings.connectors, with the \
         keys of both",
    ),
    (
        &["--set-json=settings={\"kubernetes\":{}}"],
        "settings.kubernetes needs a database: set store.urlSecret.name to a Secret with the URL of a PostgreSQL \
         database, or, with replicas: 1, settings.store.url to a SQLite file on a volume of extraVolumes",
    ),
    (
        &[
            "--set=components.connectors=true,replicas=3",
            "--set=settings.store.url=sqlite:/var/lib/tollgate/tollgate.db",
        ],
        "components.connectors needs a database that all 3 replicas share, and settings.store.url is a SQLite file: set \
         store.urlSecret.name to a Secret with the URL of a PostgreSQL database, or replicas to 1",
    ),
    (
        &["--set=store.urlSecret.name=database,settings.store.urlFile=/etc/database"],
        "store.urlSecret.name and settings.store both say where the database is: remove one of them",
    ),
    (
        &["--set=components.admission=true"],
        "components.admission needs the rights of components.writeApplicationSets: set that to true, too",
    ),
    (
        &["--set=settings.admission.mode=audit"],
        "settings.admission is there, and nothing calls the webhook: set components.admission to true",
    ),
    (
        &["--set=components.admissionAuthor=true,settings.admission.clientCertificateAuthority=/ca.crt"],
        "settings.admission is there, and nothing calls the webhook: set components.admission to true\n\
         components.admissionAuthor is a part of the admission webhook: set components.admission to true, too",
    ),
    (
        &["--set=components.admissionAuthor=true,components.admission=true,components.writeApplicationSets=true"],
        "components.admissionAuthor signs only for API servers that authenticate: set \
         settings.admission.clientCertificateAuthority to the file with the authority of their certificates",
    ),
    (
        &["--set=components.onlyThroughTollgate=true"],
        "components.onlyThroughTollgate keeps everybody but the gateway from argocd-server: set \
         settings.argocd.server to its address, so that they reach it through the gateway",
    ),
    (
        &["--set=ingress.enabled=true"],
        "ingress.enabled needs a host name: set ingress.hosts, such as [tollgate.example.com]",
    ),
    (
        &["--set=httpRoute.enabled=true,httpRoute.backendTLS.hostname=tollgate.argocd.svc"],
        "httpRoute.enabled needs a Gateway to attach to: set httpRoute.parentRefs, such as [{name: public, \
         namespace: gateways}]",
    ),
    (
        &["--set=httpRoute.enabled=true,httpRoute.parentRefs[0].name=public"],
        "httpRoute.backendTLS.enabled needs the name for which the gateway's certificate is valid: set \
         httpRoute.backendTLS.hostname",
    ),
    (
        &["--set=networkPolicy.egress.enabled=true"],
        "networkPolicy.egress.enabled without rules cuts the gateway off from the API server: set \
         networkPolicy.egress.rules",
    ),
    (
        &["--set-json=policies={\"argocd\":{}}"],
        "policies.argocd needs either files or configMap",
    ),
    // Every mistake is reported, not only the first.
    (
        &["--set=ingress.enabled=true,components.admission=true"],
        "components.admission needs the rights of components.writeApplicationSets: set that to true, too\n\
         ingress.enabled needs a host name: set ingress.hosts, such as [tollgate.example.com]",
    ),
];

#[tokio::test]
async fn wrong_values_are_explained() {
    let of_schema =
        "Error: values don't meet the specifications of the schema(s) in the following chart(s):\ntollgate:\n";
    let of_checks = "Error: execution error at (tollgate/templates/checks.yaml:1:44): ";
    for (options, message) in WRONG {
        let error = template("argocd", options).await.unwrap_err();
        let text = error.strip_prefix(of_schema).or_else(|| error.strip_prefix(of_checks));
        let text = text.unwrap_or_else(|| panic!("{options:?}: {error}"));
        assert_eq!(text.split("\n\n").next(), Some(message), "{options:?}");
    }
}

/// Compares the keys of a value's default with those that its schema permits.
fn same_keys(path: &str, default: &Value, schema: &Value) {
    let (Some(default), Some(properties)) = (default.as_object(), schema["properties"].as_object()) else {
        return;
    };
    assert_eq!(schema["additionalProperties"], false, "{path}");
    // An empty map by default, such as `policies`.
    if default.is_empty() {
        return;
    }
    let (keys, known): (BTreeSet<_>, BTreeSet<_>) = (default.keys().collect(), properties.keys().collect());
    // Optional fields of Kubernetes' own types, and what Helm passes to every chart.
    let unset = ["global", "claims"].map(str::to_owned);
    let missing: Vec<_> = known.difference(&keys).filter(|key| !unset.contains(key)).collect();
    assert!(missing.is_empty(), "values.yaml lacks {missing:?} of `{path}`");
    let unknown: Vec<_> = keys.difference(&known).collect();
    assert!(unknown.is_empty(), "values.schema.json lacks {unknown:?} of `{path}`");
    for (key, value) in default {
        same_keys(&format!("{path}.{key}"), value, &properties[key]);
    }
}

#[test]
fn every_value_has_a_default_and_a_schema() {
    let read = |name: &str| std::fs::read_to_string(chart().join(name)).unwrap();
    let default: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    same_keys("", &default, &schema);
}
