//! Compares the outcomes for every ApplicationSet in Argo CD's documentation that needs no external
//! service. The examples are read from the release's own source, not copied.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tollgate_applicationset::ClusterInput;
use tollgate_applicationset::inputs::Metadata;

use crate::applicationsets::compare::{Agreed, World};
use crate::applicationsets::repositories::{LocalRepositories, files};
use test_support::judge::{Judge, argocd};

/// Generators that read only clusters and git, and the fields that may be beside them.
const KINDS: [&str; 7] = ["list", "clusters", "git", "matrix", "merge", "selector", "template"];

/// Complete sets in the documentation of v3.5.7, and fragments that [`completed`] makes into sets.
/// With fewer, the test no longer finds its examples.
const WHOLE: usize = 67;
const COMPLETED: usize = 8;

/// One ApplicationSet and where it is.
#[derive(Debug)]
struct Example {
    place: String,
    set: Value,
}

/// A cluster with a Secret.
pub(crate) fn cluster(name: &str, server: &str, labels: &[(&str, &str)]) -> ClusterInput {
    let owned = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let mut labels: BTreeMap<String, String> = owned(labels);
    labels.insert("argocd.argoproj.io/secret-type".to_owned(), "cluster".to_owned());
    ClusterInput {
        name: name.to_owned(),
        server: server.to_owned(),
        project: String::new(),
        secret: Some(Metadata {
            labels,
            annotations: owned(&[("team", "platform"), ("example.com/region", "eu")]),
        }),
    }
}

/// The control plane's own cluster, without a Secret.
pub(crate) fn in_cluster() -> ClusterInput {
    ClusterInput {
        name: "in-cluster".to_owned(),
        server: "https://kubernetes.default.svc".to_owned(),
        project: String::new(),
        secret: None,
    }
}

fn clusters() -> Vec<ClusterInput> {
    let labels = |name: &str| match name {
        "staging" => vec![("environment", "staging"), ("type", "staging"), ("use-kafka", "true")],
        "production" => vec![
            ("environment", "production"),
            ("type", "production"),
            ("use-kafka", "false"),
        ],
        _ => vec![("argocd.argoproj.io/kubernetes-version", "1.28")],
    };
    let named = |name, server| cluster(name, server, &labels(name));
    vec![
        named("dev_Cluster", "https://dev.example.com"),
        named("production", "https://production.example.com:6443"),
        named("staging", "https://staging.example.com"),
        in_cluster(),
    ]
}

/// The repositories of the documentation, with the files that its examples read.
fn repositories(examples: &Path) -> LocalRepositories {
    let shipped: BTreeMap<String, Vec<u8>> = files(&examples.join("applicationset"))
        .into_iter()
        .map(|(path, content)| (format!("applicationset/{path}"), content))
        .collect();
    let split = shipped
        .iter()
        .filter_map(|(path, content)| Some((path.strip_prefix("applicationset/")?.to_owned(), content.clone())));
    let owner = |cluster: &str| {
        format!(
            r#"{{"asset_id": "1", "aws_account": "2", "appName": "{cluster}-app",
                 "cluster": {{"owner": "o-{cluster}", "name": "{cluster}", "address": "https://{cluster}.example.com"}},
                 "foo": {{"bar": "{cluster}"}}}}"#
        )
    };
    let others = [
        ("donotdeploy/README.md", "no"),
        (".hidden/README.md", "no"),
        ("guestbook/service.yaml", "kind: Service"),
        ("add-ons/argo-rollouts/kustomization.yaml", "{}"),
        ("add-ons/prometheus_operator/Chart.yaml", "name: p"),
        (
            "global.values.yaml",
            "tier: global\nreplicas: 1\nhost: all.example.com\n",
        ),
        ("one/stage.values.yaml", "tier: one\nreplicas: 2\n"),
        ("two/stage.values.yaml", "host: two.example.com\n"),
        (
            "apps/first.json",
            r#"{"appName": "first", "app": {"source": "https://example.com/first"}}"#,
        ),
        (
            "apps/second.json",
            r#"{"appName": "second", "app": {"source": "https://example.com/second"}}"#,
        ),
        ("targets/first/dev.json", r#"{"env": "dev"}"#),
        ("targets/first/prod.json", r#"{"env": "prod"}"#),
        ("targets/second/dev.json", r#"{"env": "dev"}"#),
        ("clusters/a/config.json", &owner("a")),
        ("clusters/b/config.json", &owner("b")),
        ("config/clusters.json", &format!("[{}, {}]", owner("c"), owner("d"))),
    ];
    let others = others.map(|(path, content)| (path.to_owned(), content.as_bytes().to_vec()));
    let example = "https://github.com/example/example-repo.git";
    LocalRepositories::new()
        .with("https://github.com/argoproj/argo-cd.git", &shipped)
        .with("https://github.com/argoproj/applicationset.git", &split.collect())
        .with(example, &others.into_iter().collect())
        .also("https://github.com/example/values.git", example)
        .also("https://github.com/some-org/some-repo.git", example)
        .also("https://github.com/argoproj/argocd-example-apps/", example)
        .also("https://github.com/infra-team/cluster-deployments.git", example)
}

/// Every YAML document of a YAML file, or of the fenced blocks of a Markdown file.
fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let texts = match path.extension().and_then(|extension| extension.to_str()) {
        Some("md") => fenced(&text),
        Some("yaml" | "yml") => vec![text],
        _ => Vec::new(),
    };
    // Some blocks are not valid YAML, because of `...` or templates. They are no sets.
    let read = |text: &String| serde_saphyr::from_multiple::<Value>(text).unwrap_or_default();
    texts.iter().flat_map(read).collect()
}

/// The blocks of a page that are marked as YAML, without their indentation.
fn fenced(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for line in text.lines() {
        let bare = line.trim_start();
        let indent = line.len() - bare.len();
        match &mut open {
            None if bare.starts_with("```yaml") || bare.starts_with("```yml") => open = Some((indent, String::new())),
            None => {}
            Some(_) if bare.starts_with("```") => blocks.extend(open.take().map(|(_, block)| block)),
            Some((base, block)) => {
                block.push_str(line.get((*base).min(indent)..).unwrap());
                block.push('\n');
            }
        }
    }
    blocks
}

/// Whether there is at least one generator, and all of them are of the [`KINDS`].
fn is_covered(generators: &Value) -> bool {
    let covered = |entry: &Value| {
        entry.as_object().is_some_and(|entry| {
            entry.iter().all(
                |(kind, settings)| match (KINDS.contains(&kind.as_str()), kind.as_str()) {
                    (true, "matrix" | "merge") => is_covered(&settings["generators"]),
                    (known, _) => known,
                },
            )
        })
    };
    generators
        .as_array()
        .is_some_and(|entries| !entries.is_empty() && entries.iter().all(covered))
}

/// The examples whose documents `read` makes a set of.
fn examples(root: &Path, read: impl Fn(Value) -> Option<Value>) -> Vec<Example> {
    let mut found = Vec::new();
    for name in files(root).into_keys() {
        let sets = documents(&root.join(&name)).into_iter().filter_map(&read);
        let covered = sets.filter(|set| is_covered(&set["spec"]["generators"]));
        found.extend(covered.enumerate().map(|(index, set)| Example {
            place: format!("{name}, covered example {}", index + 1),
            set,
        }));
    }
    found
}

/// The document, if it is a complete set. A set without a project gets one, because Argo CD's git
/// generators need it.
fn whole(mut document: Value) -> Option<Value> {
    if document["kind"] != "ApplicationSet" || !document["spec"].is_object() {
        return None;
    }
    if document["spec"]["template"]["spec"]["project"].is_null() {
        document["spec"]["template"]["spec"]["project"] = json!("default");
    }
    Some(document)
}

/// Makes a set of a document with only `spec.generators`, by adding a template that renders all
/// parameters.
fn completed(mut document: Value) -> Option<Value> {
    if document.get("kind").is_some() || !document["spec"]["generators"].is_array() {
        return None;
    }
    document["metadata"] = json!({"name": "completed"});
    if !document["spec"]["template"].is_object() {
        let go = document["spec"]["goTemplate"] == true;
        let name = if go {
            "{{ . | toJson | sha256sum }}"
        } else {
            "{{name}}-{{values.a}}"
        };
        document["spec"]["template"] = json!({
            "metadata": {"name": name},
            "spec": {
                "project": "default",
                "destination": {"server": if go { "{{ . | toJson }}" } else { "{{server}}{{path}}" }},
                "source": {"repoURL": "https://example.com/repo", "path": "."},
            },
        });
    }
    Some(document)
}

/// Compares all examples. Returns how many made Applications (`true`) and how many did not.
///
/// # Panics
/// If any example differs.
fn agree(examples: &[Example], world: &World) -> BTreeMap<bool, usize> {
    let mut wrong = Vec::new();
    let mut counts = BTreeMap::new();
    for Example { place, set } in examples {
        match world.compare(set) {
            Ok(agreed) => *counts.entry(matches!(agreed, Agreed::Applications(1..))).or_default() += 1,
            Err(difference) => wrong.push(format!("{place}:\n{difference}")),
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n\n"));
    counts
}

fn world() -> (World, std::path::PathBuf) {
    let root = argocd().files;
    let world = World {
        judge: Judge::start(),
        repositories: repositories(&root),
        clusters: clusters(),
    };
    (world, root)
}

#[test]
fn every_example_of_the_documentation_becomes_what_argo_cd_makes_of_it() {
    let (world, root) = world();
    let examples = examples(&root, whole);
    assert!(examples.len() >= WHOLE, "{} of {WHOLE} examples", examples.len());
    let counts = agree(&examples, &world);
    // Examples that fail on both sides or select nothing prove little. Some of the documentation's
    // own do.
    let made = counts.get(&true).copied().unwrap_or_default();
    assert!(made * 20 >= examples.len() * 17, "{counts:?}");
}

#[test]
fn parts_of_the_documentation_become_what_argo_cd_makes_of_them() {
    let (world, root) = world();
    let examples = examples(&root, completed);
    assert!(examples.len() >= COMPLETED, "{} of {COMPLETED} parts", examples.len());
    agree(&examples, &world);
}

/// The manifest from the proposal of the API: each folder of a repository becomes an Application.
#[test]
fn the_proposal_s_manifest_makes_an_application_of_each_folder() {
    let url = "https://github.com/argoproj-labs/applicationset.git";
    let folder = "examples/git-generator-directory/cluster-addons";
    let names = ["argo-workflows", "prometheus-operator"];
    let chart = |name: &str| (format!("{folder}/{name}/Chart.yaml"), b"name: x".to_vec());
    let world = World {
        judge: Judge::start(),
        repositories: LocalRepositories::new().with(url, &names.iter().map(|name| chart(name)).collect()),
        clusters: vec![in_cluster()],
    };
    let set = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": "cluster-addons"},
        "spec": {
            "generators": [{"git": {
                "repoURL": url, "revision": "HEAD", "directories": [{"path": format!("{folder}/*")}],
            }}],
            "template": {
                "metadata": {"name": "{{path.basename}}"},
                "spec": {
                    "project": "default",
                    "source": {"repoURL": url, "targetRevision": "HEAD", "path": "{{path}}"},
                    "destination": {"server": "https://kubernetes.default.svc", "namespace": "{{path.basename}}"},
                },
            },
        },
    });
    assert_eq!(world.compare(&set), Ok(Agreed::Applications(names.len())));
}
