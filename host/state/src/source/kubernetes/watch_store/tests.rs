//! Tests of watch stores: unchanged objects keep their pointers, everything stays until a new
//! list is complete, and broken objects are left out.

use std::sync::Arc;

use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::{WatchState, WatchStore};
use crate::source::kubernetes::kinds::{WatchRequirement, WatchSpec, watch_specs};
use crate::source::kubernetes::object::Object;
use crate::source::kubernetes::watch_failure::WatchFailure;
use tollgate_config::{ApplicationNamespaces, KubernetesState};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_objects::decode::read::{DecodedItem, DecodedObject, ObjectContent, ObjectKind};

fn empty_store(kind: ObjectKind) -> WatchStore {
    let all = watch_specs(&KubernetesState::default(), "argocd");
    WatchStore::new(all.into_iter().find(|spec| spec.kind == kind).unwrap())
}

fn object(value: &Value) -> Object {
    serde_json::from_str(&value.to_string()).unwrap()
}

fn application(name: &str, version: &str, project: &Value) -> Object {
    object(&json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {
            "name": name, "namespace": "argocd", "resourceVersion": version, "uid": format!("uid-{name}"),
            "managedFields": [{"manager": "m"}],
        },
        "spec": {"project": project, "source": {"repoURL": "r"}, "destination": {"server": "https://s"}},
        "status": {"sync": {"revision": version}},
    }))
}

fn apply(store: &mut WatchStore, event: Event<Object>) -> bool {
    store.apply(event, "argocd")
}

fn listed(kind: ObjectKind, objects: Vec<Object>) -> WatchStore {
    let mut store = empty_store(kind);
    assert!(list(&mut store, objects));
    store
}

fn list(store: &mut WatchStore, objects: Vec<Object>) -> bool {
    assert!(!apply(store, Event::Init));
    for object in objects {
        assert!(!apply(store, Event::InitApply(object)));
    }
    apply(store, Event::InitDone)
}

fn names(store: &WatchStore) -> Vec<String> {
    let name = |items: Arc<[DecodedItem]>| match &items[..] {
        [DecodedItem::Object(decoded)] => decoded.name.name.clone(),
        other => panic!("{other:?}"),
    };
    store.decoded_items().map(name).collect()
}

fn findings(store: &WatchStore) -> Vec<String> {
    let items: Vec<Arc<[DecodedItem]>> = store.decoded_items().collect();
    let of = |item: &DecodedItem| match item {
        DecodedItem::Object(decoded) => decoded.findings.clone(),
        DecodedItem::Finding(finding) => vec![finding.clone()],
        DecodedItem::AgentConfiguration(_) => Vec::new(),
    };
    let all = items.iter().flat_map(|items| items.iter()).flat_map(of);
    all.map(|finding: Diagnostic| finding.to_string()).collect()
}

fn other() -> WatchFailure {
    WatchFailure::other("the connection is closed".to_owned())
}

#[test]
fn unused_fields_are_dropped() {
    let kept = application("a", "1", &json!("web")).value;
    let expected = json!({
        "metadata": {"name": "a", "namespace": "argocd", "resourceVersion": "1", "uid": "uid-a"},
        "spec": {"project": "web", "source": {"repoURL": "r"}, "destination": {"server": "https://s"}},
        "status": {},
    });
    assert_eq!(kept, expected);
}

#[test]
fn of_sources_the_repositories_are_kept() {
    let source = json!({"repoURL": "r", "path": "p", "helm": {"values": "v"}});
    let object = object(&json!({"metadata": {"name": "a"}, "spec": {
        "source": source, "sources": [source, {"ref": "values"}, "odd", [[1]]], "syncPolicy": {},
        "sourceHydrator": {"drySource": source, "syncSource": source, "hydrateTo": source},
    }}));
    let kept = json!({"repoURL": "r"});
    let expected = json!({
        "source": kept, "sources": [kept, {}, "odd", [[1]]],
        "sourceHydrator": {"drySource": kept, "syncSource": kept},
    });
    assert_eq!(object.value["spec"], expected);
    // Nesting is no reason to fail, because one bad object would block the whole list.
    let deep = format!("{}1{}", "[".repeat(110), "]".repeat(110));
    let text = format!(r#"{{"metadata": {{"name": "a"}}, "spec": {{"sources": {deep}}}}}"#);
    assert!(serde_json::from_str::<Object>(&text).unwrap().is_truncated);
}

#[test]
fn a_spec_of_a_wrong_type_is_kept_for_a_finding_to_name() {
    for odd in [
        json!(1),
        json!(-1),
        json!(1.5),
        json!(true),
        json!(null),
        json!("text"),
        json!([]),
    ] {
        let object = object(&json!({"metadata": {"name": "a"}, "spec": odd, "status": odd}));
        assert_eq!(object.value["spec"], odd);
        assert_eq!(object.metadata.name.as_deref(), Some("a"));
    }
}

#[test]
fn a_changed_status_of_an_application_is_no_change() {
    let mut store = listed(ObjectKind::Application, vec![application("a", "1", &json!("web"))]);
    let before: Vec<_> = store.decoded_items().collect();
    let same = Event::Apply(application("a", "2", &json!("web")));
    assert!(!apply(&mut store, same));
    assert!(Arc::ptr_eq(&before[0], &store.decoded_items().next().unwrap()));
    let other = Event::Apply(application("a", "3", &json!("shop")));
    assert!(apply(&mut store, other));
    assert!(!Arc::ptr_eq(&before[0], &store.decoded_items().next().unwrap()));
}

fn set(version: &str, spec: &Value, health: &str) -> Object {
    let set = json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {
            "name": "web", "namespace": "argocd", "resourceVersion": version, "uid": "u",
            "annotations": {"a": "b"}, "managedFields": [{"manager": "m"}],
        },
        "spec": spec,
        "status": {"health": health},
    });
    unmarked(serde_json::from_value(set).unwrap())
}

fn unmarked(set: Object<true>) -> Object {
    let Object {
        metadata,
        value,
        is_truncated,
    } = set;
    Object {
        metadata,
        value,
        is_truncated,
    }
}

#[test]
fn application_sets_are_kept_whole() {
    let spec = json!({"template": {"spec": {"source": {"path": "{{ a }}"}}}, "n": [1, 1.5, true, null, "1"]});
    let store = listed(ObjectKind::ApplicationSet, vec![set("1", &spec, "ok")]);
    let items = store.decoded_items().next().unwrap();
    let [DecodedItem::Object(decoded)] = &items[..] else {
        panic!()
    };
    let ObjectContent::ApplicationSet(kept) = &decoded.content else {
        panic!("{decoded:?}")
    };
    let expected = json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {
            "name": "web", "namespace": "argocd", "resourceVersion": "1", "uid": "u", "annotations": {"a": "b"},
        },
        "spec": spec,
        "status": {"health": "ok"},
    });
    assert_eq!(**kept, expected);
}

#[test]
fn a_status_of_a_set_is_no_change() {
    let mut store = listed(ObjectKind::ApplicationSet, vec![set("1", &json!({}), "ok")]);
    let before = store.decoded_items().next().unwrap();
    for (version, health) in [("2", "bad"), ("3", "ok"), ("4", "bad")] {
        let written = Event::Apply(set(version, &json!({}), health));
        assert!(!apply(&mut store, written), "{version}");
    }
    assert!(Arc::ptr_eq(&before, &store.decoded_items().next().unwrap()));
    // A new list changes nothing either.
    assert!(!list(&mut store, vec![set("5", &json!({}), "ok")]));
    let other = Event::Apply(set("6", &json!({"goTemplate": true}), "ok"));
    assert!(apply(&mut store, other));
    assert!(!Arc::ptr_eq(&before, &store.decoded_items().next().unwrap()));
}

#[test]
fn annotations_are_kept_without_what_kubectl_applied() {
    let kept = object(&json!({
        "metadata": {"name": "a", "annotations": {
            "team": "shop", "kubectl.kubernetes.io/last-applied-configuration": "{\"token\":\"hunter2\"}",
        }},
    }));
    let expected = json!({
        "team": "shop", "kubectl.kubernetes.io/last-applied-configuration": "",
    });
    assert_eq!(kept.value["metadata"]["annotations"], expected);
}

#[test]
fn an_application_set_without_a_spec_is_left_out() {
    let store = listed(ObjectKind::ApplicationSet, vec![set("1", &json!("text"), "ok")]);
    assert_eq!(
        findings(&store),
        [
            "kubernetes ApplicationSet argocd/web: warning: the object is left out: ApplicationSet `web` has no `spec` (a file cut short looks like this)"
        ]
    );
}

#[test]
fn a_deeply_nested_object_is_set_aside_and_the_rest_of_the_list_is_used() {
    // The object, `spec` and `n` are three levels themselves.
    let set = |name: &str, depth: usize| {
        let (open, close) = ("[".repeat(depth - 3), "]".repeat(depth - 3));
        format!(
            r#"{{"metadata": {{"name": "{name}", "namespace": "argocd"}}, "spec": {{"n": {{"m": {open}{close}}}}}}}"#
        )
    };
    let list = format!(
        r#"{{"apiVersion": "v1", "kind": "List", "metadata": {{}}, "items": [{}, {}, {}]}}"#,
        set("a", 9_990),
        set("b", 101),
        set("c", 100),
    );
    let list: kube::core::ObjectList<Object<true>> = serde_json::from_str(&list).unwrap();
    let store = listed(
        ObjectKind::ApplicationSet,
        list.items.into_iter().map(unmarked).collect(),
    );
    let refused = |name: &str| {
        format!(
            "kubernetes ApplicationSet argocd/{name}: warning: the object is set aside: it is nested too deeply, at most 100 levels are read"
        )
    };
    assert_eq!(findings(&store), [refused("a"), refused("b")]);
    let is_used = |items: Arc<[DecodedItem]>| matches!(&items[..], [DecodedItem::Object(decoded)] if matches!(decoded.content, ObjectContent::ApplicationSet(_)));
    let used: Vec<bool> = store.decoded_items().map(is_used).collect();
    assert_eq!(used, [false, false, true]);

    let application = r#"{"metadata": {"name": "d", "namespace": "argocd"}, "spec": {"source": DEEP, "destination": DEEP, "project": "web"}}"#;
    let application = application.replace("DEEP", &format!("{}{}", "[".repeat(500), "]".repeat(500)));
    let store = listed(
        ObjectKind::Application,
        vec![serde_json::from_str(&application).unwrap()],
    );
    assert!(
        findings(&store)[0].contains("nested too deeply"),
        "{:?}",
        findings(&store)
    );
}

#[test]
fn objects_stay_until_the_next_list_is_complete() {
    let all = || {
        vec![
            application("a", "1", &json!("web")),
            application("b", "1", &json!("web")),
        ]
    };
    let mut store = listed(ObjectKind::Application, all());
    let before: Vec<_> = store.decoded_items().collect();
    assert!(!apply(&mut store, Event::Init));
    assert_eq!(names(&store), ["a", "b"]);
    let first = Event::InitApply(application("a", "1", &json!("web")));
    assert!(!apply(&mut store, first));
    assert_eq!(names(&store), ["a", "b"]);
    // A list that breaks leaves the objects.
    assert!(store.fail(other()));
    assert_eq!(names(&store), ["a", "b"]);
    assert_eq!(store.state, WatchState::Stale(other()));
    assert!(!store.fail(other()));
    // The same list again: only the state of the watch differs.
    assert!(list(&mut store, all()));
    assert_eq!(store.state, WatchState::Synced);
    assert!(
        before
            .iter()
            .zip(store.decoded_items())
            .all(|(old, new)| Arc::ptr_eq(old, &new))
    );
    assert!(!list(&mut store, all()));
    // Objects that the list lacks are removed.
    let only = vec![application("b", "1", &json!("web"))];
    assert!(list(&mut store, only));
    assert_eq!(names(&store), ["b"]);
}

#[test]
fn an_object_can_be_deleted_and_created_again() {
    let mut store = listed(ObjectKind::Application, vec![application("a", "1", &json!("web"))]);
    let gone = || Event::Delete(application("a", "2", &json!("web")));
    assert!(apply(&mut store, gone()));
    assert!(!apply(&mut store, gone()));
    assert_eq!(names(&store), [""; 0]);
    assert!(apply(&mut store, Event::Apply(application("a", "3", &json!("web")))));
}

#[test]
fn an_invalid_application_is_left_out_and_an_invalid_secret_is_an_error() {
    let broken = application("a", "1", &json!({"name": "web"}));
    let held_applications = listed(
        ObjectKind::Application,
        vec![broken, application("b", "1", &json!("web"))],
    );
    assert_eq!(
        findings(&held_applications),
        [
            "kubernetes Application argocd/a: warning: the object is set aside: `spec.project` must be text, found a mapping"
        ]
    );
    let usable = |items: &Arc<[DecodedItem]>| matches!(&items[..], [DecodedItem::Object(decoded)] if matches!(decoded.content, ObjectContent::Application(_)));
    let usable: Vec<bool> = held_applications.decoded_items().map(|items| usable(&items)).collect();
    assert_eq!(usable, [false, true]);
    let secret = object(&json!({
        "metadata": {"name": "s", "namespace": "argocd", "resourceVersion": "1"},
        "data": {"key": "%%%hunter2"},
    }));
    let items = findings(&listed(ObjectKind::Secret, vec![secret]));
    assert_eq!(
        items,
        ["kubernetes Secret argocd/s: error: `data.key` is not base64 (put plain text under `stringData`)"]
    );
}

#[test]
fn locations_count_lines_only_within_values_of_several_lines() {
    let map = object(&json!({
        "metadata": {"name": "argocd-rbac-cm", "namespace": "argocd", "resourceVersion": "1"},
        "data": {"policy.csv": "p, a, b\np, c, d\n", "policy.default": "role:readonly"},
    }));
    let store = listed(ObjectKind::ConfigMap, vec![map]);
    let items = store.decoded_items().next().unwrap();
    let [DecodedItem::Object(decoded)] = &items[..] else {
        panic!("{items:?}")
    };
    let ObjectContent::RbacCm(map) = &decoded.content else {
        panic!("{decoded:?}")
    };
    let location = |key: &str| map.data[key].location.to_string();
    assert_eq!(location("policy.csv"), "kubernetes ConfigMap argocd/argocd-rbac-cm:1");
    assert_eq!(location("policy.default"), "kubernetes ConfigMap argocd/argocd-rbac-cm");
}

#[test]
fn only_optional_kinds_can_be_absent() {
    let missing = |store: &WatchStore| {
        let status = kube::core::Status {
            code: 404,
            ..kube::core::Status::default()
        };
        let error = kube::runtime::watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        WatchFailure::of(&store.spec, &error)
    };
    let mut agents = empty_store(ObjectKind::Agent);
    assert_eq!(agents.spec.requirement, WatchRequirement::Optional);
    let failure = missing(&agents);
    assert!(agents.fail(failure.clone()));
    assert_eq!(agents.state, WatchState::Unavailable(failure));
    let mut applications = empty_store(ObjectKind::Application);
    let failure = missing(&applications);
    assert!(applications.fail(failure.clone()));
    assert_eq!(applications.state, WatchState::Syncing(Some(failure)));
    // A server that is down says nothing about kinds.
    let mut agents = empty_store(ObjectKind::Agent);
    assert!(agents.fail(other()));
    assert_eq!(agents.state, WatchState::Syncing(Some(other())));
}

#[test]
fn a_forbidden_namespace_makes_only_its_own_watch_unavailable() {
    let settings = KubernetesState {
        applications: ApplicationNamespaces::Listed(["argocd", "team"].map(str::to_owned).into()),
        ..KubernetesState::default()
    };
    let of = |namespace: &str| {
        let mut all = watch_specs(&settings, "argocd").into_iter();
        let is =
            |spec: &WatchSpec| spec.kind == ObjectKind::Application && spec.namespace.as_deref() == Some(namespace);
        WatchStore::new(all.find(is).unwrap())
    };
    let refused = |store: &WatchStore, code| {
        let status = kube::core::Status {
            code,
            ..kube::core::Status::default()
        };
        let error = kube::runtime::watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        WatchFailure::of(&store.spec, &error)
    };
    let mut team = of("team");
    let forbidden = refused(&team, 403);
    assert!(team.fail(forbidden.clone()));
    assert_eq!(team.state, WatchState::Unavailable(forbidden));
    assert!(list(&mut team, vec![application("a", "1", &json!("web"))]));
    assert_eq!(team.state, WatchState::Synced);
    // In the control plane's own namespace, or with another status, the watch keeps syncing.
    let mut own = of("argocd");
    let forbidden = refused(&own, 403);
    own.fail(forbidden.clone());
    assert_eq!(own.state, WatchState::Syncing(Some(forbidden)));
    let mut team = of("team");
    let missing = refused(&team, 404);
    team.fail(missing.clone());
    assert_eq!(team.state, WatchState::Syncing(Some(missing)));
}

/// Every write of a Secret would else make everybody sign in again.
#[test]
fn a_write_of_a_secret_that_changes_no_value_is_no_change() {
    let secret = |version: &str, note: &str, kind: &str, value: &str| {
        object(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "s", "namespace": "argocd", "uid": "s", "resourceVersion": version,
                "labels": {"argocd.argoproj.io/secret-type": kind}, "annotations": {"note": note},
            },
            // `prod`, `https://prod.example` and `{}`.
            "data": {
                "name": "cHJvZA==", "server": "aHR0cHM6Ly9wcm9kLmV4YW1wbGU=", "config": "e30=", "token": value,
            },
        }))
    };
    let pointer = |store: &WatchStore| {
        let items: Vec<_> = store.decoded_items().collect();
        match &items[0][0] {
            DecodedItem::Object(DecodedObject {
                content: ObjectContent::Secret { secret, .. },
                ..
            }) => Arc::clone(secret),
            _ => panic!("no Secret"),
        }
    };
    for (kind, is_plain) in [("other", true), ("cluster", false)] {
        let mut store = listed(ObjectKind::Secret, vec![secret("1", "a", kind, "eA==")]);
        let before = pointer(&store);
        // What a Secret says of a cluster includes its annotations, and nobody signs in by it.
        let changed = apply(&mut store, Event::Apply(secret("2", "b", kind, "eA==")));
        assert_eq!(changed, !is_plain, "{kind}");
        assert!(Arc::ptr_eq(&pointer(&store), &before), "{kind}");
        assert!(
            apply(&mut store, Event::Apply(secret("3", "b", kind, "eQ=="))),
            "{kind}"
        );
        assert!(!Arc::ptr_eq(&pointer(&store), &before), "{kind}");
        let labeled = secret("4", "b", "third", "eQ==");
        assert!(apply(&mut store, Event::Apply(labeled)), "{kind}");
    }
}
