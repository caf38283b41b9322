//! Tests that run with both sources.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tollgate_applicationset::{
    ApplicationSet, ClusterInput, Denial, GenerationBudget, GeneratorKind, GitTree, InputAuthorizer, InputError,
    Inputs, Params, PluginGenerators, Repositories, generate,
};
use tollgate_config::GenerationLimits;
use tollgate_core::diagnostic::{Loaded, Location};
use tollgate_objects::{Application, ObjectName, Project, Resources, SyncWindow};
use tollgate_state::write::batch::Write;
use tollgate_state::write::{self, ObjectKey, WritableKind};

use crate::state::backend::{
    ARGO, Folder, Namespace, Reader, StateBackend, application, cluster_secret, config_map, fill, object, project,
    sample, to_text,
};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn app(backend: &impl StateBackend, name: &str) -> ObjectName {
    ObjectName {
        namespace: backend.namespace().to_owned(),
        name: name.to_owned(),
    }
}

/// The content of resources, without locations and the name of the namespace.
fn summary(resources: &Resources) -> BTreeMap<String, String> {
    let mut summary = BTreeMap::new();
    for (name, map) in [("cm", &resources.argocd_cm), ("rbac", &resources.rbac_cm)] {
        for (key, text) in &map.data {
            summary.insert(format!("{name} {key}"), text.value.to_string());
        }
    }
    for (name, secret) in &resources.secrets {
        for (key, value) in &secret.values {
            summary.insert(format!("secret {name} {key}"), value.expose_secret().to_owned());
        }
    }
    for (name, project) in &resources.projects {
        let Project {
            destinations,
            source_repos,
            sync_windows,
            resources,
            roles,
            ..
        } = &**project;
        let roles: Vec<_> = roles
            .iter()
            .map(|role| {
                (
                    &role.name,
                    role.policies[0].value.to_string(),
                    role.groups[0].value.to_string(),
                )
            })
            .collect();
        let windows: Vec<_> = sync_windows
            .iter()
            .map(|window| SyncWindow {
                location: Location::default(),
                ..window.clone()
            })
            .collect();
        summary.insert(
            format!("project {name}"),
            format!("{destinations:?} {source_repos:?} {windows:?} {resources:?} {roles:?}"),
        );
    }
    for (name, application) in &resources.applications {
        let Application {
            project,
            destination,
            repositories,
            labels,
            ..
        } = &**application;
        summary.insert(
            format!("application {}", name.name),
            format!("{project} {destination:?} {repositories:?} {labels:?}"),
        );
    }
    for (name, extension) in &resources.extensions {
        let url = extension.url.as_str();
        let url = url.replace(&resources.control_plane_namespace, "NAMESPACE");
        summary.insert(format!("extension {name}"), url);
    }
    for (name, agent) in &resources.agents {
        summary.insert(format!("agent {name}"), format!("{:?}", agent.binding));
    }
    for (server, config) in &resources.cluster_configs {
        let (labels, mut annotations) = (&config.labels, config.annotations.clone());
        // Only kubectl writes this annotation. Its value must not be kept.
        if let Some(applied) = annotations.remove(LAST_APPLIED) {
            assert_eq!(applied, "");
        }
        summary.insert(format!("cluster {server}"), format!("{labels:?} {annotations:?}"));
    }
    summary.insert("people".to_owned(), format!("{:?}", resources.people));
    summary.insert("clusters".to_owned(), format!("{:?}", resources.clusters));
    summary
}

/// Lets generators read clusters, and nothing else.
#[derive(Debug)]
struct ClustersOnly;

impl InputAuthorizer for ClustersOnly {
    fn check_cluster(&self, _: &ClusterInput) -> Result<(), Denial> {
        Ok(())
    }

    fn check_repository(&self, _: &str) -> Result<(), Denial> {
        panic!("no repository is asked for")
    }

    fn check_plugin(&self, _: GeneratorKind) -> Result<(), Denial> {
        panic!("no plugin is asked for")
    }
}

impl PluginGenerators for ClustersOnly {
    fn generate(&self, _: GeneratorKind, _: &Value, _: &GenerationBudget) -> Result<Vec<Params>, InputError> {
        panic!("no plugin is asked for")
    }
}

impl Repositories for ClustersOnly {
    fn open(&self, _: &str, _: &str, _: &GenerationBudget) -> Result<Box<dyn GitTree>, InputError> {
        panic!("no repository is asked for")
    }
}

/// The names of the Applications that a cluster generator makes from annotations.
fn generated(resources: &Resources) -> Vec<String> {
    let set = json!({
        "apiVersion": ARGO, "kind": "ApplicationSet", "metadata": {"name": "of-teams", "namespace": "argocd"},
        "spec": {
            "generators": [{"clusters": {"selector": {"matchLabels": {"argocd.argoproj.io/secret-type": "cluster"}}}}],
            "template": {
                "metadata": {"name": "{{metadata.annotations.team}}-{{name}}"},
                "spec": {
                    "project": "shop", "destination": {"server": "{{server}}", "namespace": "web-1"},
                    "source": {"repoURL": "https://git.example.org/r", "path": "."},
                },
            },
        },
    });
    let set = ApplicationSet::read(set).unwrap();
    let inputs = Inputs {
        clusters: &ClusterInput::all(resources),
        authorizer: &ClustersOnly,
        repositories: &ClustersOnly,
        plugin_generators: &ClustersOnly,
    };
    let made = generate(&set, &inputs, &GenerationBudget::new(GenerationLimits::default())).unwrap();
    let name = |one: &Value| one["metadata"]["name"].as_str().unwrap().to_owned();
    made.iter().map(name).collect()
}

#[tokio::test]
async fn both_give_the_same_objects() {
    let (folder, namespace) = (Folder::new(), Namespace::new("same").await);
    fill(&folder).await;
    fill(&namespace).await;
    let of_folder = Reader::of(&folder.config()).await.good().await;
    let of_cluster = Reader::of(&namespace.config()).await.good().await;
    let expected = summary(&of_folder);
    assert_eq!(expected["extension metrics"], "http://metrics.NAMESPACE.svc:8080/api");
    assert_eq!(expected["secret argocd-secret server.secretkey"], "hunter2");
    assert!(expected.contains_key("application guestbook") && expected.contains_key("project shop"));
    assert!(expected["cluster https://one.example.org"].contains(r#"{"team": "shop"}"#));
    assert_eq!(of_folder.agents.len(), 1);
    assert!(of_folder.people.person_by_username("alice").is_some());
    assert_eq!(summary(&of_cluster), expected);
    assert_eq!(generated(&of_folder), ["shop-one"]);
    assert_eq!(
        generated(&of_cluster),
        ["shop-one"],
        "with another name, an update would delete and create the Application"
    );
    // Locations name the object.
    let guestbook = &of_cluster.applications[&app(&namespace, "guestbook")];
    let place = format!("kubernetes Application {}/guestbook", namespace.namespace());
    assert_eq!(guestbook.location.to_string(), place);
    assert!(!format!("{of_cluster:?}").contains("hunter"));
}

/// Changes are loaded, and unchanged objects keep their pointers.
async fn changes_are_loaded(backend: &impl StateBackend) {
    fill(backend).await;
    let mut reader = Reader::of(&backend.config()).await;
    let before = reader.good().await;
    reader.calm().await;
    assert!(Arc::ptr_eq(&before, &reader.good().await), "nothing changed");
    let (guestbook, web) = (app(backend, "guestbook"), app(backend, "web"));
    backend.put(&application(backend, "guestbook", "default")).await;
    let is_so = |resources: &Resources| resources.applications[&guestbook].project == "default";
    let after = reader
        .until("the project has changed", |loaded| {
            loaded.value.as_deref().is_some_and(is_so)
        })
        .await;
    let after = after.value.unwrap();
    assert!(Arc::ptr_eq(&before.applications[&web], &after.applications[&web]));
    assert!(Arc::ptr_eq(&before.projects["shop"], &after.projects["shop"]));
    assert!(Arc::ptr_eq(&before.secrets["one"], &after.secrets["one"]));
    assert!(Arc::ptr_eq(&before.people, &after.people));
    assert!(Arc::ptr_eq(&before.agents["edge"], &after.agents["edge"]));
    // One object is deleted and one is created.
    backend.delete(&application(backend, "guestbook", "default")).await;
    backend.put(&application(backend, "fresh", "shop")).await;
    let fresh = app(backend, "fresh");
    let is_so = |resources: &Resources| {
        !resources.applications.contains_key(&guestbook) && resources.applications.contains_key(&fresh)
    };
    reader
        .until("one Application is gone and one is new", |loaded| {
            loaded.value.as_deref().is_some_and(is_so)
        })
        .await;
    backend.put(&project(backend, "shop", &["ci"])).await;
    let is_so = |resources: &Resources| resources.projects["shop"].roles.len() == 1;
    reader
        .until("the project has one role", |loaded| {
            loaded.value.as_deref().is_some_and(is_so)
        })
        .await;
}

/// A set is created together with its Applications, or not at all if one of them fails.
async fn batches_are_atomic(backend: &impl StateBackend) {
    fill(backend).await;
    let reader = Reader::of(&backend.config()).await;
    reader.good().await;
    let writer = reader.source.writer().unwrap();
    let key = |kind: WritableKind, name: &str| ObjectKey {
        kind,
        name: app(backend, name),
    };
    let set = object(
        backend,
        (ARGO, "ApplicationSet", "several"),
        json!({"spec": {"generators": [], "template": {"metadata": {"name": "a"}, "spec": {
            "project": "default", "destination": {},
        }}}}),
    );
    let writes = |names: &[&str]| {
        let first = Write::Create {
            key: key(WritableKind::ApplicationSet, "several"),
            object: set.clone(),
        };
        let others = names.iter().map(|name| Write::Create {
            key: key(WritableKind::Application, name),
            object: application(backend, name, "default"),
        });
        std::iter::once(first).chain(others).collect::<Vec<_>>()
    };
    // `web` exists already, without an owner.
    let failed = writer.batch(writes(&["first", "web"])).await.unwrap_err();
    assert_eq!(failed.key, key(WritableKind::Application, "web"));
    assert!(failed.not_undone.is_empty(), "{:?}", failed.not_undone);
    for (kind, name) in [
        (WritableKind::ApplicationSet, "several"),
        (WritableKind::Application, "first"),
    ] {
        let error = writer.read(&key(kind, name)).await.unwrap_err();
        assert!(matches!(error, write::Error::NotFound(_)), "{error}");
    }
    writer.batch(writes(&["first", "second"])).await.unwrap();
    let stored = writer
        .read(&key(WritableKind::ApplicationSet, "several"))
        .await
        .unwrap();
    assert_eq!(stored.object["spec"]["template"], set["spec"]["template"]);
    let mut reader = reader;
    let name = app(backend, "several");
    let is_so = |resources: &Resources| resources.application_sets.contains_key(&name);
    reader
        .until("the set is there", |loaded| loaded.value.as_deref().is_some_and(is_so))
        .await;
}

#[tokio::test]
async fn batches_are_atomic_in_a_folder() {
    batches_are_atomic(&Folder::new()).await;
}

#[tokio::test]
async fn batches_are_atomic_in_a_cluster() {
    batches_are_atomic(&Namespace::new("several").await).await;
}

#[tokio::test]
async fn changes_are_loaded_in_a_folder() {
    changes_are_loaded(&Folder::new()).await;
}

#[tokio::test]
async fn changes_are_loaded_in_a_cluster() {
    changes_are_loaded(&Namespace::new("changes").await).await;
}

/// The next load has a renewed secret.
async fn secrets_rotate(backend: &impl StateBackend) {
    fill(backend).await;
    let mut reader = Reader::of(&backend.config()).await;
    let before = reader.good().await;
    backend
        .put(&cluster_secret(backend, "one", ("https://one.example.org", "hunter4")))
        .await;
    let value = |resources: &Resources| resources.secrets["one"].values["config"].expose_secret().to_owned();
    assert!(value(&before).contains("hunter3"));
    let after = reader
        .until("the token is the new one", |loaded| {
            loaded
                .value
                .as_deref()
                .is_some_and(|resources| value(resources).contains("hunter4"))
        })
        .await;
    let after = after.value.unwrap();
    let config = |resources: &Resources| Arc::clone(&resources.cluster_configs["https://one.example.org"]);
    assert!(!Arc::ptr_eq(&config(&before), &config(&after)));
    assert!(Arc::ptr_eq(
        &before.secrets["argocd-secret"],
        &after.secrets["argocd-secret"]
    ));
}

#[tokio::test]
async fn secrets_rotate_in_a_folder() {
    secrets_rotate(&Folder::new()).await;
}

#[tokio::test]
async fn secrets_rotate_in_a_cluster() {
    secrets_rotate(&Namespace::new("rotate").await).await;
}

/// Two secrets for one cluster are ambiguous. The cluster is not used until one is deleted.
async fn duplicates_are_not_used(backend: &impl StateBackend) {
    fill(backend).await;
    let mut reader = Reader::of(&backend.config()).await;
    reader.good().await;
    let double = cluster_secret(backend, "double", ("https://one.example.org", "hunter5"));
    backend.put(&double).await;
    let knows = |loaded: &Loaded<Arc<Resources>>| {
        let resources = loaded.value.as_ref().expect("the load is valid");
        resources
            .clusters
            .iter()
            .any(|known| known.server == "https://one.example.org")
    };
    let doubtful = reader.until("the cluster is gone", |loaded| !knows(loaded)).await;
    let text = to_text(&doubtful.diagnostics);
    assert!(
        text.contains("two cluster secrets name the server `https://one.example.org`"),
        "{text}"
    );
    assert!(!text.contains("hunter"), "{text}");
    backend.delete(&double).await;
    reader.until("the cluster is known again", knows).await;
}

#[tokio::test]
async fn duplicates_are_not_used_in_a_folder() {
    duplicates_are_not_used(&Folder::new()).await;
}

#[tokio::test]
async fn duplicates_are_not_used_in_a_cluster() {
    duplicates_are_not_used(&Namespace::new("doubles").await).await;
}

/// An invalid object is reported, and only this object is left out.
async fn mistakes_are_reported(backend: &impl StateBackend) {
    fill(backend).await;
    let mut reader = Reader::of(&backend.config()).await;
    reader.good().await;
    backend.put(&project(backend, "shop", &["ci", "ci"])).await;
    let invalid = reader
        .until("the mistake is reported", |loaded| {
            to_text(&loaded.diagnostics).contains("role `ci` is defined twice")
        })
        .await;
    let text = to_text(&invalid.diagnostics);
    let resources = invalid.value.unwrap();
    assert!(
        !resources.projects.contains_key("shop"),
        "the invalid project is not used in part"
    );
    assert!(resources.is_invalid_project("shop"), "{text}");
    assert_eq!(resources.applications.len(), 2);
    assert!(text.contains("warning: the object is set aside: "), "{text}");
    backend.put(&project(backend, "shop", &["ci"])).await;
    let is_so = |resources: &Resources| resources.projects.contains_key("shop");
    reader
        .until("the project is back", |loaded| {
            loaded.value.as_deref().is_some_and(is_so)
        })
        .await;
}

#[tokio::test]
async fn mistakes_are_reported_in_a_folder() {
    mistakes_are_reported(&Folder::new()).await;
}

#[tokio::test]
async fn mistakes_are_reported_in_a_cluster() {
    mistakes_are_reported(&Namespace::new("mistakes").await).await;
}

/// An extension from an object, and one of the same name from `argocd-cm`.
async fn extensions_are_objects(backend: &impl StateBackend) {
    fill(backend).await;
    let mut reader = Reader::of(&backend.config()).await;
    let parse = |resources: &Resources| tollgate_objects::extensions::parse(resources);
    let specs = parse(&*reader.good().await).value.unwrap();
    assert_eq!(specs.len(), 1);
    assert_eq!(specs[0].name, "metrics");
    let double = json!({
        "extension.config": "extensions: [{name: metrics, backend: {services: [{url: 'http://m'}]}}]\n",
    });
    backend.put(&config_map(backend, "argocd-cm", double)).await;
    let twice = reader
        .until("the other extension is loaded", |loaded| {
            loaded
                .value
                .as_deref()
                .is_some_and(|resources| !parse(resources).diagnostics.is_empty())
        })
        .await;
    // The extension in `argocd-cm` is used. The object is left out with a warning.
    let parsed = parse(&twice.value.unwrap());
    let found = to_text(&parsed.diagnostics);
    assert!(found.contains("metrics") && found.contains("argocd-cm"), "{found}");
    assert!(parsed.diagnostics.iter().all(|finding| !finding.is_error()), "{found}");
    assert_eq!(parsed.value.unwrap().len(), 1);
    // An object without a backend is no extension.
    let other = object(
        backend,
        (ARGO, "ArgoCDExtension", "metrics"),
        json!({"spec": {"sources": []}}),
    );
    backend.put(&other).await;
    reader
        .until("only `argocd-cm` has the extension", |loaded| {
            loaded
                .value
                .as_deref()
                .is_some_and(|resources| parse(resources).diagnostics.is_empty())
        })
        .await;
}

#[tokio::test]
async fn extensions_are_objects_in_a_folder() {
    extensions_are_objects(&Folder::new()).await;
}

#[tokio::test]
async fn extensions_are_objects_in_a_cluster() {
    let backend = Namespace::new("extensions").await;
    assert_eq!(sample(&backend).len(), sample(&Folder::new()).len());
    extensions_are_objects(&backend).await;
}
