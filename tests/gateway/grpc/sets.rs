//! The gRPC API for ApplicationSets: reads, writes and refusals.

use prost::Message;
use serde_json::json;

use super::client::{ListQuery, call, frame};
use super::{GET, LIST, get, session, setup};
use test_support::world::{CONTROL_PLANE, World, map, object};

/// `ApplicationSet`, in part.
#[derive(Clone, PartialEq, Message)]
struct Set {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    spec: Option<Spec>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct Spec {
    #[prost(bool, tag = "1")]
    go_template: bool,
    #[prost(message, repeated, tag = "2")]
    generators: Vec<Generator>,
    #[prost(message, optional, tag = "3")]
    template: Option<Template>,
}

#[derive(Clone, PartialEq, Message)]
struct Generator {
    #[prost(message, optional, tag = "1")]
    list: Option<Elements>,
}

#[derive(Clone, PartialEq, Message)]
struct Elements {
    #[prost(message, repeated, tag = "1")]
    elements: Vec<Raw>,
}

#[derive(Clone, PartialEq, Message)]
struct Raw {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Template {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    spec: Option<ApplicationSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct ApplicationSpec {
    #[prost(message, optional, tag = "1")]
    source: Option<Source>,
    #[prost(message, optional, tag = "2")]
    destination: Option<Destination>,
    #[prost(string, tag = "3")]
    project: String,
}

#[derive(Clone, PartialEq, Message)]
struct Source {
    #[prost(string, tag = "1")]
    repository: String,
    #[prost(string, tag = "2")]
    path: String,
}

#[derive(Clone, PartialEq, Message)]
struct Destination {
    #[prost(string, tag = "1")]
    server: String,
    #[prost(string, tag = "2")]
    namespace: String,
}

/// `ApplicationSetCreateRequest`.
#[derive(Clone, PartialEq, Message)]
struct Create {
    #[prost(message, optional, tag = "1")]
    set: Option<Set>,
    #[prost(bool, tag = "2")]
    upsert: bool,
    #[prost(bool, tag = "3")]
    dry_run: bool,
}

/// `ApplicationSetGenerateRequest`.
#[derive(Clone, PartialEq, Message)]
struct Generate {
    #[prost(message, optional, tag = "1")]
    set: Option<Set>,
}

/// `ApplicationSetGenerateResponse`; an Application has the fields of a template.
#[derive(Clone, PartialEq, Message)]
struct Generated {
    #[prost(message, repeated, tag = "1")]
    applications: Vec<Template>,
}

/// `ApplicationSetList`, in part.
#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, repeated, tag = "2")]
    items: Vec<Set>,
}

async fn start() -> World {
    let mut setup = setup();
    for (name, project) in [("ours", "shop"), ("theirs", "other")] {
        setup.objects.push(json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "ApplicationSet",
            "metadata": {"name": name, "namespace": CONTROL_PLANE},
            "spec": {
                "goTemplate": true,
                "generators": [{"list": {"elements": [{"cluster": "a", "n": 1}]}}],
                "template": {
                    "metadata": {"name": "{{.cluster}}"},
                    "spec": {
                        "project": project,
                        "source": {"repoURL": "https://example.org/apps.git", "path": "a"},
                        "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"},
                    },
                },
            },
        }));
    }
    setup.start().await
}

fn name(set: &Set) -> &str {
    set.metadata.as_ref().map_or("", |metadata| &metadata.name)
}

#[tokio::test]
async fn stored_sets_are_read() {
    let world = start().await;
    let alice = session("alice");
    let fields = [("token", &*alice)];
    let set: Set = call(world.address(), GET, &fields, frame(&get("ours"))).await.message();
    assert_eq!(name(&set), "ours");
    let spec = set.spec.unwrap();
    assert!(spec.go_template);
    let template = spec.template.unwrap().metadata.unwrap();
    assert_eq!(template.name, "{{.cluster}}");
    let elements = &spec.generators[0].list.as_ref().unwrap().elements;
    let element: serde_json::Value = serde_json::from_slice(&elements[0].raw).unwrap();
    assert_eq!(element, json!({"cluster": "a", "n": 1}));
    let list: List = call(world.address(), LIST, &fields, frame(&ListQuery::default()))
        .await
        .message();
    assert_eq!(list.items.iter().map(name).collect::<Vec<_>>(), ["ours"]);
}

#[tokio::test]
async fn a_set_that_the_caller_may_not_see_is_answered_as_an_absent_one() {
    let world = start().await;
    let bob = session("bob");
    for (user, set) in [("alice", "theirs"), ("alice", "none"), ("bob", "ours")] {
        let token = if user == "bob" { bob.clone() } else { session(user) };
        let response = call(world.address(), GET, &[("token", &token)], frame(&get(set))).await;
        let text = format!("applicationsets.argoproj.io \"{set}\" not found");
        assert_eq!(response.status(), (5, &*text), "{user}");
    }
    let list: List = call(world.address(), LIST, &[("token", &bob)], frame(&ListQuery::default()))
        .await
        .message();
    assert!(list.items.is_empty());
}

const CREATE: &str = "/applicationset.ApplicationSetService/Create";
const GENERATE: &str = "/applicationset.ApplicationSetService/Generate";
const DELETE: &str = "/applicationset.ApplicationSetService/Delete";

/// In `dev`, alice may do everything; bob may write sets, and of their Applications create only
/// `one`.
const WRITERS: &str = "\
p, alice, applicationsets, *, dev/*, allow
p, alice, applications, *, dev/*, allow
p, bob, applicationsets, *, dev/*, allow
p, bob, applications, create, dev/one, allow
";

async fn writers() -> World {
    let mut setup = setup();
    setup.rbac_cm = map(&[("policy.csv", WRITERS)]);
    let open = json!({"spec": {"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}]}});
    setup
        .objects
        .push(object("argoproj.io/v1alpha1", "AppProject", "dev", CONTROL_PLANE, open));
    setup.start().await
}

/// A set `made` that generates the Applications `one` and `two`.
fn made() -> Set {
    let elements = ["one", "two"].map(|name| Raw {
        raw: json!({"name": name}).to_string().into_bytes(),
    });
    let named = |name: &str| Metadata {
        name: name.to_owned(),
        namespace: String::new(),
    };
    let spec = ApplicationSpec {
        source: Some(Source {
            repository: "https://git.example.com/apps.git".to_owned(),
            path: "{{name}}".to_owned(),
        }),
        destination: Some(Destination {
            server: "https://kubernetes.default.svc".to_owned(),
            namespace: "{{name}}".to_owned(),
        }),
        project: "dev".to_owned(),
    };
    Set {
        metadata: Some(named("made")),
        spec: Some(Spec {
            go_template: false,
            generators: vec![Generator {
                list: Some(Elements {
                    elements: elements.to_vec(),
                }),
            }],
            template: Some(Template {
                metadata: Some(named("{{name}}")),
                spec: Some(spec),
            }),
        }),
    }
}

fn create(dry_run: bool) -> Create {
    Create {
        set: Some(made()),
        upsert: false,
        dry_run,
    }
}

#[tokio::test]
async fn a_set_is_created_read_and_deleted() {
    let world = writers().await;
    let alice = session("alice");
    let fields = [("token", &*alice)];
    let generate = Generate { set: Some(made()) };
    let generated: Generated = call(world.address(), GENERATE, &fields, frame(&generate))
        .await
        .message();
    let names = generated.applications.iter().map(|one| one.metadata.as_ref().unwrap());
    assert_eq!(names.map(|one| &*one.name).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(generated.applications[1].spec.as_ref().unwrap().project, "dev");
    // A dry run stores nothing.
    let shown: Set = call(world.address(), CREATE, &fields, frame(&create(true)))
        .await
        .message();
    assert_eq!(name(&shown), "made");
    let response = call(world.address(), GET, &fields, frame(&get("made"))).await;
    assert_eq!(response.status().0, 5);
    // Creating the same set again succeeds and changes nothing.
    for _ in 0..2 {
        let stored: Set = call(world.address(), CREATE, &fields, frame(&create(false)))
            .await
            .message();
        assert_eq!(stored.spec.unwrap().template, made().spec.unwrap().template);
    }
    let response = call(world.address(), DELETE, &fields, frame(&get("made"))).await;
    assert_eq!(response.status(), (0, ""));
    let response = call(world.address(), GET, &fields, frame(&get("made"))).await;
    assert_eq!(response.status().0, 5);
}

#[tokio::test]
async fn a_refusal_names_the_applications_that_may_not_be_created() {
    let world = writers().await;
    let bob = session("bob");
    let fields = [("token", &*bob)];
    let response = call(world.address(), CREATE, &fields, frame(&create(false))).await;
    let (code, text) = response.status();
    assert_eq!(code, 7, "{text}");
    assert!(text.contains("dev/two") && !text.contains("dev/one"), "{text}");
    let response = call(world.address(), GET, &fields, frame(&get("made"))).await;
    assert_eq!(response.status().0, 5);
}
