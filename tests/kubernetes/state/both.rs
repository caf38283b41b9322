//! What both sources do: one suite, run on each.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tollgate_applicationset::{
    ApplicationSet, ClusterInput, Denial, GenerationBudget, GeneratorKind, GitTree, InputAuthorizer, InputError,
    Inputs, Params, PluginGenerators, Repositories, generate,
};
use tollgate_config::GenerationLimits;
use tollgate_core::diagnostic::Loaded;
use tollgate_state::write::batch::Write;
use tollgate_state::write::{self, ObjectKey, WritableKind};
use tollgate_state::{Application, ObjectName, Project, Resources};

use crate::state::world::{
    ARGO, Folder, Namespace, Reader, World, application, cluster_secret, config_map, fill, object, project, said,
    sample,
};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn app(world: &impl World, name: &str) -> ObjectName {
    ObjectName {
        namespace: world.namespace().to_owned(),
        name: name.to_owned(),
    }
}

/// What resources say, without places and the name of the namespace.
fn summary(resources: &Resources) -> BTreeMap<String, String> {
    let mut said = BTreeMap::new();
    for (name, map) in [("cm", &resources.argocd_cm), ("rbac", &resources.rbac_cm)] {
        for (key, text) in &map.data {
            said.insert(format!("{name} {key}"), text.value.to_string());
        }
    }
    for (name, secret) in &resources.secrets {
        for (key, value) in &secret.values {
            said.insert(format!("secret {name} {key}"), value.expose_secret().to_owned());
        }
    }
    for (name, project) in &resources.projects {
        let Project {
            destinations,
            source_repos,
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
        said.insert(
            format!("project {name}"),
            format!("{destinations:?} {source_repos:?} {resources:?} {roles:?}"),
        );
    }
    for (name, application) in &resources.applications {
        let Application {
            project,
            destination,
            labels,
            ..
        } = &**application;
        said.insert(
            format!("application {}", name.name),
            format!("{project} {destination:?} {labels:?}"),
        );
    }
    for (name, extension) in &resources.extensions {
        let url = extension.url.as_str();
        let url = url.replace(&resources.control_plane_namespace, "NAMESPACE");
        said.insert(format!("extension {name}"), url);
    }
    for (name, agent) in &resources.agents {
        said.insert(format!("agent {name}"), format!("{:?}", agent.binding));
    }
    for (server, config) in &resources.cluster_configs {
        let (labels, mut annotations) = (&config.labels, config.annotations.clone());
        // Only kubectl writes it, and its values are nobody's business.
        if let Some(applied) = annotations.remove(LAST_APPLIED) {
            assert_eq!(applied, "");
        }
        said.insert(format!("cluster {server}"), format!("{labels:?} {annotations:?}"));
    }
    said.insert("people".to_owned(), format!("{:?}", resources.people));
    said.insert("clusters".to_owned(), format!("{:?}", resources.clusters));
    said
}

/// Lets generators read everything there is here: clusters.
#[derive(Debug)]
struct Clusters;

impl InputAuthorizer for Clusters {
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

impl PluginGenerators for Clusters {
    fn generate(&self, _: GeneratorKind, _: &Value, _: &GenerationBudget) -> Result<Vec<Params>, InputError> {
        panic!("no plugin is asked for")
    }
}

impl Repositories for Clusters {
    fn open(&self, _: &str, _: &str, _: &GenerationBudget) -> Result<Box<dyn GitTree>, InputError> {
        panic!("no repository is asked for")
    }
}

/// Names of what a cluster generator makes of annotations.
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
        authorizer: &Clusters,
        repositories: &Clusters,
        plugin_generators: &Clusters,
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
        "an update would delete and make it anew"
    );
    // Places name the object.
    let guestbook = &of_cluster.applications[&app(&namespace, "guestbook")];
    let place = format!("kubernetes Application {}/guestbook", namespace.namespace());
    assert_eq!(guestbook.location.to_string(), place);
    assert!(!format!("{of_cluster:?}").contains("hunter"));
}

/// A change shows, and what did not change is the same pointers.
async fn changes_show(world: &impl World) {
    fill(world).await;
    let mut reader = Reader::of(&world.config()).await;
    let before = reader.good().await;
    reader.calm().await;
    assert!(Arc::ptr_eq(&before, &reader.good().await), "nothing changed");
    let (guestbook, web) = (app(world, "guestbook"), app(world, "web"));
    world.put(&application(world, "guestbook", "default")).await;
    let is_so = |resources: &Resources| resources.applications[&guestbook].project == "default";
    let after = reader
        .until("the project is another one", |loaded| {
            loaded.value.as_deref().is_some_and(is_so)
        })
        .await;
    let after = after.value.unwrap();
    assert!(Arc::ptr_eq(&before.applications[&web], &after.applications[&web]));
    assert!(Arc::ptr_eq(&before.projects["shop"], &after.projects["shop"]));
    assert!(Arc::ptr_eq(&before.secrets["one"], &after.secrets["one"]));
    assert!(Arc::ptr_eq(&before.people, &after.people));
    assert!(Arc::ptr_eq(&before.agents["edge"], &after.agents["edge"]));
    // Gone and new.
    world.delete(&application(world, "guestbook", "default")).await;
    world.put(&application(world, "fresh", "shop")).await;
    let fresh = app(world, "fresh");
    let is_so = |resources: &Resources| {
        !resources.applications.contains_key(&guestbook) && resources.applications.contains_key(&fresh)
    };
    reader
        .until("one is gone and one is there", |loaded| {
            loaded.value.as_deref().is_some_and(is_so)
        })
        .await;
    world.put(&project(world, "shop", &["ci"])).await;
    let is_so = |resources: &Resources| resources.projects["shop"].roles.len() == 1;
    reader
        .until("the project has one role", |loaded| {
            loaded.value.as_deref().is_some_and(is_so)
        })
        .await;
}

/// A set is made with its Applications, and when one of them cannot be, not at all.
async fn writes_belong_together(world: &impl World) {
    fill(world).await;
    let reader = Reader::of(&world.config()).await;
    reader.good().await;
    let writer = reader.source.writer().unwrap();
    let key = |kind: WritableKind, name: &str| ObjectKey {
        kind,
        name: app(world, name),
    };
    let set = object(
        world,
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
            object: application(world, name, "default"),
        });
        std::iter::once(first).chain(others).collect::<Vec<_>>()
    };
    // `web` is there already, and nobody's.
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
    let name = app(world, "several");
    let is_so = |resources: &Resources| resources.application_sets.contains_key(&name);
    reader
        .until("the set is there", |loaded| loaded.value.as_deref().is_some_and(is_so))
        .await;
}

#[tokio::test]
async fn writes_belong_together_in_a_folder() {
    writes_belong_together(&Folder::new()).await;
}

#[tokio::test]
async fn writes_belong_together_in_a_cluster() {
    writes_belong_together(&Namespace::new("several").await).await;
}

#[tokio::test]
async fn changes_show_in_a_folder() {
    changes_show(&Folder::new()).await;
}

#[tokio::test]
async fn changes_show_in_a_cluster() {
    changes_show(&Namespace::new("changes").await).await;
}

/// A secret that is renewed counts with the next load.
async fn secrets_rotate(world: &impl World) {
    fill(world).await;
    let mut reader = Reader::of(&world.config()).await;
    let before = reader.good().await;
    world
        .put(&cluster_secret(world, "one", ("https://one.example.org", "hunter4")))
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

/// What nobody can decide is not used until it is mended, and nothing else suffers.
async fn doubles_are_not_used(world: &impl World) {
    fill(world).await;
    let mut reader = Reader::of(&world.config()).await;
    reader.good().await;
    let double = cluster_secret(world, "double", ("https://one.example.org", "hunter5"));
    world.put(&double).await;
    let knows = |loaded: &Loaded<Arc<Resources>>| {
        let resources = loaded.value.as_ref().expect("the load is good");
        resources
            .clusters
            .iter()
            .any(|known| known.server == "https://one.example.org")
    };
    let doubtful = reader.until("the cluster is gone", |loaded| !knows(loaded)).await;
    let text = said(&doubtful.diagnostics);
    assert!(
        text.contains("two cluster secrets name the server `https://one.example.org`"),
        "{text}"
    );
    assert!(!text.contains("hunter"), "{text}");
    world.delete(&double).await;
    reader.until("the cluster is there again", knows).await;
}

#[tokio::test]
async fn doubles_are_not_used_in_a_folder() {
    doubles_are_not_used(&Folder::new()).await;
}

#[tokio::test]
async fn doubles_are_not_used_in_a_cluster() {
    doubles_are_not_used(&Namespace::new("doubles").await).await;
}

/// A tenant's mistake is named, and its object alone is set aside.
async fn mistakes_are_named(world: &impl World) {
    fill(world).await;
    let mut reader = Reader::of(&world.config()).await;
    reader.good().await;
    world.put(&project(world, "shop", &["ci", "ci"])).await;
    let told = reader
        .until("the mistake is told", |loaded| {
            said(&loaded.diagnostics).contains("role `ci` is defined twice")
        })
        .await;
    let text = said(&told.diagnostics);
    let resources = told.value.unwrap();
    assert!(!resources.projects.contains_key("shop"), "denied, not half there");
    assert!(resources.is_invalid_project("shop"), "{text}");
    assert_eq!(resources.applications.len(), 2);
    assert!(text.contains("warning: the object is set aside: "), "{text}");
    world.put(&project(world, "shop", &["ci"])).await;
    let is_so = |resources: &Resources| resources.projects.contains_key("shop");
    reader
        .until("the project is back", |loaded| {
            loaded.value.as_deref().is_some_and(is_so)
        })
        .await;
}

#[tokio::test]
async fn mistakes_are_named_in_a_folder() {
    mistakes_are_named(&Folder::new()).await;
}

#[tokio::test]
async fn mistakes_are_named_in_a_cluster() {
    mistakes_are_named(&Namespace::new("mistakes").await).await;
}

/// An extension that is an object, and one of the same name that is none.
async fn extensions_are_objects(world: &impl World) {
    fill(world).await;
    let mut reader = Reader::of(&world.config()).await;
    let parse = |resources: &Resources| tollgate_state::extensions::parse(resources);
    let specs = parse(&*reader.good().await).value.unwrap();
    assert_eq!(specs.len(), 1);
    assert_eq!(specs[0].name, "metrics");
    let double = json!({
        "extension.config": "extensions: [{name: metrics, backend: {services: [{url: 'http://m'}]}}]\n",
    });
    world.put(&config_map(world, "argocd-cm", double)).await;
    let twice = reader
        .until("the other one is there", |loaded| {
            loaded
                .value
                .as_deref()
                .is_some_and(|resources| !parse(resources).diagnostics.is_empty())
        })
        .await;
    // The one of `argocd-cm` counts; the object is left out, with a warning.
    let parsed = parse(&twice.value.unwrap());
    let found = said(&parsed.diagnostics);
    assert!(found.contains("metrics") && found.contains("argocd-cm"), "{found}");
    assert!(parsed.diagnostics.iter().all(|finding| !finding.is_error()), "{found}");
    assert_eq!(parsed.value.unwrap().len(), 1);
    // Without a backend an object is no extension.
    let other = object(
        world,
        (ARGO, "ArgoCDExtension", "metrics"),
        json!({"spec": {"sources": []}}),
    );
    world.put(&other).await;
    reader
        .until("the name is the other's alone", |loaded| {
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
    let world = Namespace::new("extensions").await;
    assert_eq!(sample(&world).len(), sample(&Folder::new()).len());
    extensions_are_objects(&world).await;
}
