//! Tests of what a watch holds: unchanged objects keep their pointers, everything stays until a new
//! list is complete, and broken objects are left out.

use std::sync::Arc;

use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::{StoreChange, WatchState, WatchStore};
use crate::decode::read::{Content, DecodedItem, Kind};
use crate::kubernetes::kinds::{WatchRequirement, WatchSpec, watched};
use crate::kubernetes::object::{Object, UnprunedObject};
use crate::kubernetes::problem::WatchFailure;
use tollgate_config::{ApplicationNamespaces, KubernetesState};
use tollgate_core::diagnostic::Diagnostic;

fn held(kind: Kind) -> WatchStore {
    let all = watched(&KubernetesState::default(), "argocd");
    WatchStore::new(all.into_iter().find(|watched| watched.kind == kind).unwrap())
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

fn apply(held: &mut WatchStore, event: Event<Object>) -> StoreChange {
    held.apply(event, "argocd")
}

fn listed(kind: Kind, objects: Vec<Object>) -> WatchStore {
    let mut held = held(kind);
    assert_eq!(list(&mut held, objects), StoreChange::Changed);
    held
}

fn list(held: &mut WatchStore, objects: Vec<Object>) -> StoreChange {
    assert_eq!(apply(held, Event::Init), StoreChange::Nothing);
    for object in objects {
        assert_eq!(apply(held, Event::InitApply(object)), StoreChange::Nothing);
    }
    apply(held, Event::InitDone)
}

fn names(held: &WatchStore) -> Vec<String> {
    let name = |items: Arc<[DecodedItem]>| match &items[..] {
        [DecodedItem::Object(decoded)] => decoded.name.name.clone(),
        other => panic!("{other:?}"),
    };
    held.decoded_items().map(name).collect()
}

fn findings(held: &WatchStore) -> Vec<String> {
    let said: Vec<Arc<[DecodedItem]>> = held.decoded_items().collect();
    let of = |piece: &DecodedItem| match piece {
        DecodedItem::Object(decoded) => decoded.findings.clone(),
        DecodedItem::Finding(finding) => vec![finding.clone()],
        DecodedItem::Configuration(_) => Vec::new(),
    };
    let all = said.iter().flat_map(|items| items.iter()).flat_map(of);
    all.map(|finding: Diagnostic| finding.to_string()).collect()
}

fn other() -> WatchFailure {
    WatchFailure::other("the line is dead".to_owned())
}

#[test]
fn what_is_not_used_is_not_kept() {
    let kept = application("a", "1", &json!("web")).value;
    let expected = json!({
        "metadata": {"name": "a", "namespace": "argocd", "resourceVersion": "1", "uid": "uid-a"},
        "spec": {"project": "web", "destination": {"server": "https://s"}},
        "status": {},
    });
    assert_eq!(kept, expected);
}

#[test]
fn a_part_of_another_type_is_kept_for_a_finding_to_name() {
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
fn a_status_that_changes_is_no_change() {
    let mut held = listed(Kind::Application, vec![application("a", "1", &json!("web"))]);
    let before: Vec<_> = held.decoded_items().collect();
    let same = Event::Apply(application("a", "2", &json!("web")));
    assert_eq!(apply(&mut held, same), StoreChange::Nothing);
    assert!(Arc::ptr_eq(&before[0], &held.decoded_items().next().unwrap()));
    let other = Event::Apply(application("a", "3", &json!("shop")));
    assert_eq!(apply(&mut held, other), StoreChange::Changed);
    assert!(!Arc::ptr_eq(&before[0], &held.decoded_items().next().unwrap()));
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
    serde_json::from_value::<UnprunedObject>(set).unwrap().into()
}

#[test]
fn sets_are_kept_whole() {
    let spec = json!({"template": {"spec": {"source": {"path": "{{ a }}"}}}, "n": [1, 1.5, true, null, "1"]});
    let held = listed(Kind::ApplicationSet, vec![set("1", &spec, "ok")]);
    let said = held.decoded_items().next().unwrap();
    let [DecodedItem::Object(decoded)] = &said[..] else {
        panic!()
    };
    let Content::ApplicationSet(kept) = &decoded.content else {
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
    let mut held = listed(Kind::ApplicationSet, vec![set("1", &json!({}), "ok")]);
    let before = held.decoded_items().next().unwrap();
    for (version, health) in [("2", "bad"), ("3", "ok"), ("4", "bad")] {
        let written = Event::Apply(set(version, &json!({}), health));
        assert_eq!(apply(&mut held, written), StoreChange::Nothing, "{version}");
    }
    assert!(Arc::ptr_eq(&before, &held.decoded_items().next().unwrap()));
    // A new list also says the same.
    assert_eq!(list(&mut held, vec![set("5", &json!({}), "ok")]), StoreChange::Nothing);
    let other = Event::Apply(set("6", &json!({"goTemplate": true}), "ok"));
    assert_eq!(apply(&mut held, other), StoreChange::Changed);
    assert!(!Arc::ptr_eq(&before, &held.decoded_items().next().unwrap()));
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
fn a_set_without_a_spec_is_left_out() {
    let held = listed(Kind::ApplicationSet, vec![set("1", &json!("text"), "ok")]);
    assert_eq!(
        findings(&held),
        [
            "kubernetes ApplicationSet argocd/web: warning: the object is left out: ApplicationSet `web` has no `spec` (a file cut short looks like this)"
        ]
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
    let mut held = listed(Kind::Application, all());
    let before: Vec<_> = held.decoded_items().collect();
    assert_eq!(apply(&mut held, Event::Init), StoreChange::Nothing);
    assert_eq!(names(&held), ["a", "b"]);
    let first = Event::InitApply(application("a", "1", &json!("web")));
    assert_eq!(apply(&mut held, first), StoreChange::Nothing);
    assert_eq!(names(&held), ["a", "b"]);
    // A list that breaks leaves the objects.
    assert_eq!(held.fail(other()), StoreChange::Changed);
    assert_eq!(names(&held), ["a", "b"]);
    assert_eq!(held.state, WatchState::Stale(other()));
    assert_eq!(held.fail(other()), StoreChange::Nothing);
    // The same list again: only the state of the watch differs.
    assert_eq!(list(&mut held, all()), StoreChange::Changed);
    assert_eq!(held.state, WatchState::Current);
    assert!(
        before
            .iter()
            .zip(held.decoded_items())
            .all(|(old, new)| Arc::ptr_eq(old, &new))
    );
    assert_eq!(list(&mut held, all()), StoreChange::Nothing);
    // Objects that the list lacks are removed.
    let only = vec![application("b", "1", &json!("web"))];
    assert_eq!(list(&mut held, only), StoreChange::Changed);
    assert_eq!(names(&held), ["b"]);
}

#[test]
fn an_object_is_deleted_and_comes_back_as_another() {
    let mut held = listed(Kind::Application, vec![application("a", "1", &json!("web"))]);
    let gone = || Event::Delete(application("a", "2", &json!("web")));
    assert_eq!(apply(&mut held, gone()), StoreChange::Changed);
    assert_eq!(apply(&mut held, gone()), StoreChange::Nothing);
    assert_eq!(names(&held), [""; 0]);
    assert_eq!(
        apply(&mut held, Event::Apply(application("a", "3", &json!("web")))),
        StoreChange::Changed
    );
}

#[test]
fn a_broken_application_is_left_out_by_name_and_a_broken_secret_is_not() {
    let broken = application("a", "1", &json!({"name": "web"}));
    let held_applications = listed(Kind::Application, vec![broken, application("b", "1", &json!("web"))]);
    assert_eq!(
        findings(&held_applications),
        [
            "kubernetes Application argocd/a: warning: the object is set aside: `spec.project` must be text, found a mapping"
        ]
    );
    let usable = |items: &Arc<[DecodedItem]>| matches!(&items[..], [DecodedItem::Object(decoded)] if matches!(decoded.content, Content::Application(_)));
    let usable: Vec<bool> = held_applications.decoded_items().map(|items| usable(&items)).collect();
    assert_eq!(usable, [false, true]);
    let secret = object(&json!({
        "metadata": {"name": "s", "namespace": "argocd", "resourceVersion": "1"},
        "data": {"key": "%%%hunter2"},
    }));
    let said = findings(&listed(Kind::Secret, vec![secret]));
    assert_eq!(
        said,
        ["kubernetes Secret argocd/s: error: `data.key` is not base64 (put plain text under `stringData`)"]
    );
}

#[test]
fn a_line_counts_within_its_text() {
    let map = object(&json!({
        "metadata": {"name": "argocd-rbac-cm", "namespace": "argocd", "resourceVersion": "1"},
        "data": {"policy.csv": "p, a, b\np, c, d\n", "policy.default": "role:readonly"},
    }));
    let held = listed(Kind::ConfigMap, vec![map]);
    let said = held.decoded_items().next().unwrap();
    let [DecodedItem::Object(decoded)] = &said[..] else {
        panic!("{said:?}")
    };
    let Content::RbacCm(map) = &decoded.content else {
        panic!("{decoded:?}")
    };
    let place = |key: &str| map.data[key].location.to_string();
    assert_eq!(place("policy.csv"), "kubernetes ConfigMap argocd/argocd-rbac-cm:1");
    assert_eq!(place("policy.default"), "kubernetes ConfigMap argocd/argocd-rbac-cm");
}

#[test]
fn only_optional_kinds_can_be_absent() {
    let missing = |held: &WatchStore| {
        let status = kube::core::Status {
            code: 404,
            ..kube::core::Status::default()
        };
        let error = kube::runtime::watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        WatchFailure::of(&held.watched, &error)
    };
    let mut agents = held(Kind::Agent);
    assert_eq!(agents.watched.need, WatchRequirement::Optional);
    let problem = missing(&agents);
    assert_eq!(agents.fail(problem.clone()), StoreChange::Changed);
    assert_eq!(agents.state, WatchState::Absent(problem));
    let mut applications = held(Kind::Application);
    let problem = missing(&applications);
    assert_eq!(applications.fail(problem.clone()), StoreChange::Changed);
    assert_eq!(applications.state, WatchState::Waiting(Some(problem)));
    // A server that is down says nothing about kinds.
    let mut agents = held(Kind::Agent);
    assert_eq!(agents.fail(other()), StoreChange::Changed);
    assert_eq!(agents.state, WatchState::Waiting(Some(other())));
}

#[test]
fn one_of_several_namespaces_without_rights_stops_nothing() {
    let settings = KubernetesState {
        applications: ApplicationNamespaces::Listed(["argocd", "team"].map(str::to_owned).into()),
        ..KubernetesState::default()
    };
    let of = |namespace: &str| {
        let mut all = watched(&settings, "argocd").into_iter();
        let is =
            |watched: &WatchSpec| watched.kind == Kind::Application && watched.namespace.as_deref() == Some(namespace);
        WatchStore::new(all.find(is).unwrap())
    };
    let refused = |held: &WatchStore, code| {
        let status = kube::core::Status {
            code,
            ..kube::core::Status::default()
        };
        let error = kube::runtime::watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        WatchFailure::of(&held.watched, &error)
    };
    let mut team = of("team");
    let forbidden = refused(&team, 403);
    assert_eq!(team.fail(forbidden.clone()), StoreChange::Changed);
    assert_eq!(team.state, WatchState::Absent(forbidden));
    assert_eq!(
        list(&mut team, vec![application("a", "1", &json!("web"))]),
        StoreChange::Changed
    );
    assert_eq!(team.state, WatchState::Current);
    // Neither the control plane's own namespace nor another reason counts.
    let mut own = of("argocd");
    let forbidden = refused(&own, 403);
    own.fail(forbidden.clone());
    assert_eq!(own.state, WatchState::Waiting(Some(forbidden)));
    let mut team = of("team");
    let missing = refused(&team, 404);
    team.fail(missing.clone());
    assert_eq!(team.state, WatchState::Waiting(Some(missing)));
}
