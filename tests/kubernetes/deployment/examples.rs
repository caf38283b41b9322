//! The examples of `deploy/examples` that surround the gateway: a real API server accepts them, and they
//! lead to what the manifests deploy.

use std::path::Path;

use serde_json::Value;

use super::{Overlay, chart, restricted_namespace, shipped};
use test_support::checkout;
use tollgate_config::raw;

/// The objects of a file, as kubectl reads them.
fn objects(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n");
    documents
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(checkout().join("deploy/examples").join(name)).unwrap()
}

/// Whether a port of the Service has this name or number.
fn serves(service: &Value, port: &Value) -> bool {
    let ports = service["spec"]["ports"].as_array().unwrap();
    ports.iter().any(|one| one["name"] == *port || one["port"] == *port)
}

#[tokio::test]
async fn they_are_accepted_and_lead_to_the_gateway() {
    let cluster = chart::cluster().await;
    let namespace = restricted_namespace(cluster).await;
    let overlay = Overlay::new(&namespace, &[]);
    overlay.apply(cluster, &[]).await;
    let manifests = overlay.objects(cluster).await;
    let find = |kind: &str| manifests.iter().find(|object| object["kind"] == kind).unwrap();
    let (service, pods) = (find("Service"), &find("Deployment")["spec"]["template"]);

    let mut led = 0;
    let there = format!("--namespace={namespace}");
    for name in [
        "gateway-api/route.yaml",
        "ingress/ingress.yaml",
        "network-policy/networkpolicy.yaml",
    ] {
        let text = read(name);
        let apply = ["apply", "--server-side", "--filename=-", &there];
        let run = cluster.admin().run_with(&apply, &text).await;
        assert!(run.status.success(), "{name}: {run:?}");
        assert_eq!(run.stderr, "", "{name}: kubectl printed a warning");
        for object in objects(&text) {
            let spec = &object["spec"];
            let (target, port) = match object["kind"].as_str().unwrap() {
                "Gateway" => continue,
                "Ingress" => {
                    let backend = &spec["rules"][0]["http"]["paths"][0]["backend"]["service"];
                    (&backend["name"], &backend["port"]["name"])
                }
                "HTTPRoute" => {
                    let backend = &spec["rules"][0]["backendRefs"][0];
                    (&backend["name"], &backend["port"])
                }
                "BackendTLSPolicy" => {
                    let target = &spec["targetRefs"][0];
                    (&target["name"], &target["sectionName"])
                }
                "NetworkPolicy" => {
                    // It replaces the one of the manifests.
                    assert_eq!(object["metadata"]["name"], find("NetworkPolicy")["metadata"]["name"]);
                    let wanted = spec["podSelector"]["matchLabels"].as_object().unwrap();
                    let labels = &pods["metadata"]["labels"];
                    assert!(wanted.iter().all(|(key, value)| labels[key] == *value), "{spec}");
                    let ports = pods["spec"]["containers"][0]["ports"].as_array().unwrap();
                    for rule in spec["ingress"].as_array().unwrap() {
                        let port = &rule["ports"][0]["port"];
                        assert!(ports.iter().any(|one| one["name"] == *port), "{port}");
                    }
                    continue;
                }
                other => panic!("{name}: {other}"),
            };
            assert_eq!(*target, service["metadata"]["name"], "{name}");
            assert!(serves(service, port), "{name}: {port}");
            led += 1;
        }
    }
    assert_eq!(led, 4);
}

#[test]
fn their_settings_are_valid() {
    let base = std::fs::read_to_string(shipped("base/tollgate.yaml")).unwrap();
    for name in ["gateway-api/settings.yaml", "ingress/settings.yaml"] {
        let text = format!("{base}\n{}", read(name));
        let loaded = raw::parse(&text, name, Path::new("/etc/tollgate/settings"));
        let found = loaded.diagnostics.iter().map(|found| &found.message);
        let wrong: Vec<_> = found.filter(|message| !message.contains("No such file")).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
    }
}
