//! ApplicationSets, which the gateway serves itself, compared with argocd-server, and with Argo
//! CD's controller at work.

use serde_json::{Value, json};

use super::{Fixture, Through};
use test_support::kubernetes::argocd::{Cli, NAMESPACE, Wire};
use test_support::kubernetes::{PATIENCE, eventually};

const API: &str = "/api/v1/applicationsets";

async fn start() -> Fixture {
    Fixture::start(Wire::Plain).await
}

/// A set with an Application for each name.
fn set(fixture: &Fixture, name: &str, names: &[&str]) -> Value {
    let elements: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": name, "labels": {"of": "tests"}},
        "spec": {"goTemplate": true, "generators": [{"list": {"elements": elements}}], "template": {
            "metadata": {"name": "{{ .name }}"},
            "spec": {
                "project": "default",
                "source": {"repoURL": fixture.argocd.repository(), "path": "app", "targetRevision": "HEAD"},
                "destination": {"server": "https://kubernetes.default.svc", "namespace": "default"},
            },
        }},
    })
}

impl Fixture {
    /// A `GET` as `admin`, through the gateway or straight to argocd-server.
    async fn get(&self, through: Through, path: &str) -> reqwest::Response {
        let server = match through {
            Through::Gateway => self.gateway.url(),
            Through::Nothing => self.argocd.url(),
        };
        let request = self.gateway.client("admin").get(format!("{server}{path}"));
        request.send().await.unwrap()
    }

    /// The first event of a stream.
    async fn first_event(&self, through: Through, query: &str) -> Value {
        let path = format!("/api/v1/stream/applicationsets?{query}");
        let mut answer = self.get(through, &path).await;
        let first = async {
            let mut text = Vec::new();
            while !text.contains(&b'\n') {
                text.extend_from_slice(&answer.chunk().await.unwrap().expect("the stream goes on"));
            }
            text
        };
        let text = tokio::time::timeout(PATIENCE, first).await.expect("an event");
        let line = text.split(|byte| *byte == b'\n').next().unwrap();
        serde_json::from_slice(line).unwrap()
    }
}

/// What Argo CD's pages send is answered as argocd-server answers it.
async fn assert_same_reads(fixture: &Fixture) {
    for path in [
        "?selector=&appNamespace=&fields=metadata.resourceVersion,items.metadata,items.spec",
        "?selector=of%3Dtests&appNamespace=nowhere&projects=default&projects=other",
        "?selector=of%3Dnothing",
        "?appsetNamespace=nowhere&x=1&x=2",
        "?selector=%3D%3D",
        "/reads?appsetNamespace=&refresh=normal",
        "/reads?appsetNamespace=argocd&refresh=hard&x",
        "/reads?appsetNamespace=argocd&appsetNamespace=argocd",
        "/none?appsetNamespace=argocd",
        "/reads/resource-tree?appsetNamespace=argocd&fields=nodes",
        "/reads/events?appsetNamespace=argocd&x=1",
    ] {
        let mut answers = Vec::new();
        for through in [Through::Gateway, Through::Nothing] {
            let answer = fixture.get(through, &format!("{API}{path}")).await;
            let is_success = answer.status().is_success();
            let body: Value = answer.json().await.unwrap();
            let names = |key: &str| {
                let items = body[key].as_array().cloned().unwrap_or_default();
                let name = |item: &Value| item.pointer("/metadata/name").or(item.get("name")).cloned();
                items.iter().map(name).collect::<Vec<_>>()
            };
            answers.push((
                is_success,
                body["metadata"]["name"].clone(),
                names("items"),
                names("nodes"),
            ));
        }
        if path.contains("/events") {
            // The controller may add an event in between.
            answers.iter_mut().for_each(|answer| answer.2.clear());
        }
        assert_eq!(answers[0], answers[1], "{path}");
    }
}

/// Removes empty members, of which argocd-server adds some, such as the template of a generator.
fn prune(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(prune);
            members.retain(|_, member| *member != json!({}) && *member != json!(""));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

async fn assert_same_streams(fixture: &Fixture) {
    for fields in [
        "result.type,result.applicationSet.metadata.name,result.applicationSet.spec.generators.list",
        "result.applicationSet.metadata.namesake,result.ty",
        "result.applicationSet.spec.template.spec.source.path,result.applicationSet.kind",
        "-result.applicationSet.metadata,result.applicationSet.status,result.applicationSet.spec.template.spec",
        "other",
    ] {
        let query = format!("name=reads&appSetNamespace={NAMESPACE}&selector=of%3Dtests&y=1&fields={fields}");
        let mut events = [Value::Null, Value::Null];
        for (event, through) in events.iter_mut().zip([Through::Gateway, Through::Nothing]) {
            *event = fixture.first_event(through, &query).await;
        }
        // The gateway adds what argocd-server leaves out of its informer's objects.
        for event in &mut events {
            if let Some(set) = event
                .pointer_mut("/result/applicationSet")
                .and_then(Value::as_object_mut)
            {
                set.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
            }
            prune(event);
        }
        assert_eq!(events[0], events[1], "{fields}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sets_are_served_as_argocd_server_serves_them() {
    let fixture = start().await;
    let created = fixture
        .gateway
        .client("admin")
        .post(format!("{}{API}", fixture.gateway.url()));
    let created = created
        .json(&set(&fixture, "reads", &["one", "two"]))
        .send()
        .await
        .unwrap();
    assert_eq!(created.status().as_u16(), 200, "{}", created.text().await.unwrap());
    eventually("the set is in both", async || {
        for through in [Through::Gateway, Through::Nothing] {
            let tree = fixture.get(through, &format!("{API}/reads/resource-tree")).await;
            let tree: Value = tree.json().await.unwrap();
            tree["nodes"].as_array().filter(|nodes| nodes.len() == 2)?;
        }
        Some(())
    })
    .await;
    assert_same_reads(&fixture).await;
    assert_same_streams(&fixture).await;
}

/// Writes a set to a file for the CLI, and returns its path.
fn file(fixture: &Fixture, set: &Value) -> String {
    let name = set["metadata"]["name"].as_str().unwrap();
    let path = fixture.gateway.path(&format!("{name}.yaml"));
    std::fs::write(&path, set.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The same commands through the gateway and straight to argocd-server.
async fn assert_same_output(gateway: &Cli, direct: &Cli, name: &str, file: &str) {
    for command in [
        &["list"][..],
        &["list", "-o", "name"],
        &["list", "-o", "wide", "-l", "of=tests", "-p", "default"],
        &["list", "-o", "name", "-l", "of!=tests"],
        &["list", "-o", "name", "-p", "other", "-N", NAMESPACE],
        &["list", "-o", "name", "-N", "elsewhere"],
        &["get", name],
        &["get", name, "--show-params", "-N", NAMESPACE],
        &["get", &format!("{NAMESPACE}/{name}"), "-o", "wide", "-N", "elsewhere"],
    ] {
        let command = [&["appset"], command].concat();
        assert_eq!(
            gateway.succeed(&command).await,
            direct.succeed(&command).await,
            "{command:?}"
        );
    }
    // A preview of the gateway says in which namespace each Application would be.
    for command in [
        &["appset", "generate", file][..],
        &["appset", "generate", file, "-o", "wide", "-N", NAMESPACE],
    ] {
        let words = |text: String| -> Vec<String> {
            let words = text
                .split_whitespace()
                .map(|word| word.trim_start_matches("argocd/").to_owned());
            words.collect()
        };
        assert_eq!(
            words(gateway.succeed(command).await),
            words(direct.succeed(command).await),
            "{command:?}"
        );
    }
}

/// `--wait` waits for what Argo CD's controller writes to the set's status.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_once_the_controller_is_done() {
    let fixture = start().await;
    let direct = fixture.cli(Through::Nothing, &[]);
    for cli in [&direct, &fixture.cli(Through::Gateway, &[])] {
        let login = cli.login("admin", fixture.argocd.password()).await;
        assert!(login.status.success(), "{}", login.stderr);
    }
    for (name, more) in [("grpc", &[][..]), ("web", &["--grpc-web"])] {
        let cli = fixture.cli(Through::Gateway, more);
        let login = cli.login("admin", fixture.argocd.password()).await;
        assert!(login.status.success(), "{}", login.stderr);
        let small = file(&fixture, &set(&fixture, name, &["one"]));
        let waited = cli.run(&["appset", "create", &small, "--wait", "-o", "wide"]).await;
        assert!(waited.status.success(), "{}", waited.stderr);
        assert!(waited.stderr.contains("resources are up to date"), "{}", waited.stderr);
        // The controller's status is what everybody sees.
        let shown = cli.succeed(&["appset", "get", name]).await;
        assert!(shown.contains("ResourcesUpToDate"), "{shown}");
        assert_same_output(&cli, &direct, name, &small).await;
        let large = file(&fixture, &set(&fixture, name, &["one", "two"]));
        let waited = cli.run(&["appset", "create", &large, "--upsert", "--wait"]).await;
        assert!(
            waited.status.success() && waited.stderr.contains("updated"),
            "{}",
            waited.stderr
        );
        let deleted = cli.succeed(&["appset", "delete", name, "--yes", "--wait"]).await;
        assert_eq!(deleted, format!("applicationset '{name}' deleted\n"));
        // Without a cluster's garbage collector, what the set owned is deleted by the gateway.
        let left = cli.succeed(&["app", "list", "-o", "name"]).await;
        assert_eq!(left, "");
    }
}
