//! Tests of plans: what they write, what they keep, and which problems they report.

use serde_json::{Value, json};

use super::{Action, PROJECTS_ANNOTATION, Plan, StoredState, is_equivalent, replaced, upserted};
use crate::{ApplicationSet, ApplicationsSync, PreservedFields, Spec, SyncPolicy, TemplateEngine};
use tollgate_objects::ObjectName;
use tollgate_state::write::batch::Propagation;

mod generated;
mod references;
mod shapes;

fn set(object: &Value, sync: ApplicationsSync) -> ApplicationSet {
    let texts = |pointer: &str| -> Vec<String> {
        let listed = object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        listed.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    ApplicationSet {
        name: ObjectName {
            namespace: "argocd".to_owned(),
            name: "web".to_owned(),
        },
        spec: Spec {
            generators: Vec::new(),
            template: Value::Null,
            template_patch: None,
            engine: TemplateEngine::FastTemplate,
            sync_policy: SyncPolicy {
                applications: sync,
                preserve_resources: false,
            },
            preserved_fields: PreservedFields {
                annotations: texts("/spec/preservedFields/annotations"),
                labels: texts("/spec/preservedFields/labels"),
            },
        },
        object: object.clone(),
    }
}

fn changes_nothing(plan: &Plan) -> bool {
    let all = plan.changes.iter().chain([&plan.set]);
    all.map(|change| change.action).all(|action| action == Action::Keep)
}

fn sent() -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": "web", "annotations": {PROJECTS_ANNOTATION: "mine"}},
        "spec": {"generators": [], "template": {}},
    })
}

fn stored() -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {
            "name": "web", "namespace": "argocd", "uid": "u1", "resourceVersion": "7", "generation": 2,
            "annotations": {PROJECTS_ANNOTATION: "shop"},
        },
        "spec": {"generators": [], "template": {}},
        "status": {"resources": []},
    })
}

fn reference(uid: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": "web", "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn generated(name: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {
            "name": name, "namespace": "argocd", "labels": {"team": "a"},
            "finalizers": ["resources-finalizer.argocd.argoproj.io"],
        },
        "spec": {
            "project": "shop",
            "source": {"repoURL": "https://git.example/shop", "path": name, "targetRevision": "HEAD"},
            "destination": {"server": "https://s", "namespace": "shop"},
        },
    })
}

fn owned(name: &str) -> Value {
    let mut object = generated(name);
    object["metadata"]["ownerReferences"] = json!([reference("u1")]);
    object["metadata"]["resourceVersion"] = json!("40");
    object["metadata"]["uid"] = json!(format!("uid-{name}"));
    object["metadata"]["managedFields"] = json!([{"manager": "m"}]);
    object["status"] = json!({"health": {"status": "Healthy"}});
    object
}

fn existing(applications: Vec<Value>) -> StoredState {
    StoredState {
        set: Some(stored()),
        applications,
    }
}

fn plan(existing: StoredState, generated: Vec<Value>) -> Plan {
    Plan::new(&set(&sent(), ApplicationsSync::Sync), existing, generated)
}

fn actions(plan: &Plan) -> Vec<(&str, Action, Option<Action>)> {
    let of = |change: &'_ super::PlannedChange| (change.action, change.held_back);
    let all = plan.changes.iter();
    all.map(|change| (change.name.name.as_str(), of(change).0, of(change).1))
        .collect()
}

/// The change of the only Application, `a`, which is stored as `before`.
fn change(before: Value, after: Value) -> super::PlannedChange {
    let mut plan = plan(existing(vec![before]), vec![after]);
    assert_eq!(plan.problems, []);
    plan.changes.remove(0)
}

#[test]
fn a_new_set_has_owner_references_and_the_projects_annotation() {
    let plan = plan(StoredState::default(), vec![generated("b"), generated("a")]);
    assert_eq!(
        actions(&plan),
        [("a", Action::Create, None), ("b", Action::Create, None)]
    );
    let after = plan.changes[0].after.as_ref().unwrap();
    let owner = &after["metadata"]["ownerReferences"][0];
    assert_eq!(
        (
            &owner["name"],
            &owner["controller"],
            &owner["blockOwnerDeletion"],
            owner.get("uid")
        ),
        (&json!("web"), &json!(true), &json!(true), None)
    );
    let set = plan.set.after.as_ref().unwrap();
    assert_eq!(plan.set.action, Action::Create);
    assert_eq!(set["metadata"]["annotations"], json!({PROJECTS_ANNOTATION: "shop"}));
    assert_eq!(set["metadata"]["namespace"], json!("argocd"));
    assert!(!changes_nothing(&plan));
}

#[test]
fn server_fields_and_empty_values_are_no_differences() {
    let mut wanted = generated("a");
    wanted["spec"]["source"]["directory"] = json!({"recurse": false, "jsonnet": {}});
    wanted["spec"]["source"]["helm"] = json!({"values": "", "parameters": []});
    wanted["spec"]["syncPolicy"] = json!({"syncOptions": []});
    wanted["metadata"]["annotations"] = json!({});
    let found = change(owned("a"), wanted);
    assert_eq!((found.action, found.after, found.held_back), (Action::Keep, None, None));

    let mut before = owned("a");
    before["spec"]["project"] = json!("");
    let mut wanted = generated("a");
    wanted["spec"].as_object_mut().unwrap().remove("project");
    assert_eq!(change(before, wanted).action, Action::Keep);

    let plan = plan(existing(vec![owned("a")]), vec![generated("a")]);
    assert_eq!(plan.set.action, Action::Keep);
    assert!(changes_nothing(&plan));
}

#[test]
fn empty_values_that_differ_from_absent_ones_are_differences() {
    for (pointer, value) in [
        ("syncPolicy", json!({"automated": {}})),
        ("revisionHistoryLimit", json!(0)),
        ("project", json!("other")),
        ("info", json!([{"name": "a", "value": ""}])),
    ] {
        let mut wanted = generated("a");
        wanted["spec"][pointer] = value;
        assert_eq!(change(owned("a"), wanted).action, Action::Update, "{pointer}");
    }
    let mut wanted = generated("a");
    wanted["spec"]["source"]["helm"] = json!({"valuesObject": {"debug": false}});
    assert_eq!(change(owned("a"), wanted).action, Action::Update);
    let mut wanted = generated("a");
    wanted["metadata"]["labels"]["empty"] = json!("");
    assert_eq!(change(owned("a"), wanted).action, Action::Update);
}

#[test]
fn an_update_keeps_fields_the_set_does_not_own() {
    let mut before = owned("a");
    before["operation"] = json!({"sync": {}});
    before["metadata"]["annotations"] = json!({
        "argocd.argoproj.io/refresh": "hard", "notified.notifications.argoproj.io": "x", "mine": "1", "gone": "1",
    });
    before["metadata"]["labels"]["cost"] = json!("12");
    before["metadata"]["labels"]["gone"] = json!("12");
    before["metadata"]["finalizers"] = json!(["post-delete-finalizer.argocd.argoproj.io/cleanup", "gone"]);
    before["metadata"]["ownerReferences"] = json!([{"kind": "Other", "name": "x", "uid": "o"}, reference("u1")]);
    let mut wanted = generated("a");
    wanted["spec"]["source"]["targetRevision"] = json!("v2");
    wanted["metadata"]["annotations"] = json!({"mine": "generated"});
    let mut object = sent();
    object["spec"]["preservedFields"] = json!({"annotations": ["mine"], "labels": ["cost"]});
    let set = set(&object, ApplicationsSync::Sync);
    let plan = Plan::new(&set, existing(vec![before.clone()]), vec![wanted]);
    let after = plan.changes[0].after.as_ref().unwrap();
    assert_eq!(plan.changes[0].action, Action::Update);
    assert_eq!(
        (&after["status"], &after["operation"]),
        (&before["status"], &before["operation"])
    );
    assert_eq!(after["metadata"]["resourceVersion"], json!("40"));
    assert_eq!(after["metadata"]["labels"], json!({"team": "a", "cost": "12"}));
    assert_eq!(
        after["metadata"]["annotations"],
        json!({"argocd.argoproj.io/refresh": "hard", "notified.notifications.argoproj.io": "x", "mine": "1"})
    );
    assert_eq!(
        after["metadata"]["finalizers"],
        json!([
            "resources-finalizer.argocd.argoproj.io",
            "post-delete-finalizer.argocd.argoproj.io/cleanup"
        ])
    );
    assert_eq!(
        after["metadata"]["ownerReferences"],
        before["metadata"]["ownerReferences"]
    );
    assert_eq!(after["spec"]["source"]["targetRevision"], json!("v2"));
}

#[test]
fn missing_and_duplicate_names_are_problems() {
    let nameless = json!({"metadata": {}, "spec": {}});
    let plan = plan(StoredState::default(), vec![generated("a"), nameless, generated("a")]);
    let messages: Vec<String> = plan.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "application 2 that the set generates has no name",
            "the set generates more than one application with the name `a`"
        ]
    );
}

#[test]
fn sync_policies_hold_back_the_actions_they_exclude() {
    let mut changed = generated("a");
    changed["spec"]["project"] = json!("other");
    for (sync, update, delete) in [
        (ApplicationsSync::Sync, true, true),
        (ApplicationsSync::CreateOnly, false, false),
        (ApplicationsSync::CreateUpdate, true, false),
        (ApplicationsSync::CreateDelete, false, true),
    ] {
        let existing = existing(vec![owned("a"), owned("b")]);
        let plan = Plan::new(&set(&sent(), sync), existing, vec![changed.clone(), generated("c")]);
        let of = |is_allowed: bool, action| match is_allowed {
            true => (action, None),
            false => (Action::Keep, Some(action)),
        };
        let (update, delete) = (of(update, Action::Update), of(delete, Action::Delete));
        assert_eq!(
            actions(&plan),
            [
                ("a", update.0, update.1),
                ("b", delete.0, delete.1),
                ("c", Action::Create, None)
            ],
            "{sync:?}"
        );
        assert_eq!(plan.deletions(), u64::from(delete.1.is_none()));
        // An Application that is held back counts with its stored project.
        let projects = plan.set.after.as_ref().map_or(json!("shop"), |set| {
            set["metadata"]["annotations"][PROJECTS_ANNOTATION].clone()
        });
        let expected = if update.1.is_none() { "other,shop" } else { "shop" };
        assert_eq!(projects, json!(expected), "{sync:?}");
    }
}

#[test]
fn ignored_fields_keep_their_stored_values() {
    let mut before = owned("a");
    before["spec"]["source"]["targetRevision"] = json!("tuned");
    before["metadata"]["annotations"] = json!({"a/b": "tuned"});
    let with = |rules: Value| {
        let mut object = sent();
        object["spec"]["ignoreApplicationDifferences"] = rules;
        let set = set(&object, ApplicationsSync::Sync);
        let mut plan = Plan::new(&set, existing(vec![before.clone()]), vec![generated("a")]);
        assert_eq!(plan.problems, []);
        plan.changes.remove(0)
    };
    let both = json!(["/spec/source/targetRevision", "/metadata/annotations/a~1b"]);
    assert_eq!(with(json!([{"jsonPointers": both}])).action, Action::Keep);
    assert_eq!(with(json!([{"name": "a", "jsonPointers": both}])).action, Action::Keep);
    assert_eq!(
        with(json!([{"name": "b", "jsonPointers": both}])).action,
        Action::Update
    );
    let one = with(json!([{"jsonPointers": ["/spec/source/targetRevision"]}]));
    let after = one.after.unwrap();
    assert_eq!(after["spec"]["source"]["targetRevision"], json!("tuned"));
    assert_eq!(after["metadata"].get("annotations"), None);
}

#[test]
fn unsupported_ignore_rules_are_problems() {
    let mut object = sent();
    object["spec"]["ignoreApplicationDifferences"] =
        json!([{"jqPathExpressions": [".spec"], "jsonPointers": ["spec"]}]);
    let plan = Plan::new(
        &set(&object, ApplicationsSync::Sync),
        StoredState::default(),
        Vec::new(),
    );
    let messages: Vec<String> = plan.problems.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 2);
    assert!(
        messages[0].contains("`spec.ignoreApplicationDifferences[0]`: `jqPathExpressions` has `.spec`"),
        "{messages:?}"
    );
    assert!(messages[1].contains("`spec` is no JSON pointer"), "{messages:?}");
}

#[test]
fn deleting_a_set_deletes_or_orphans_its_applications() {
    let all = || existing(vec![owned("a"), generated("b")]);
    let deletion = |sync, cascade| Plan::deletion(&set(&stored(), sync), all(), cascade);
    let plan = deletion(ApplicationsSync::Sync, Propagation::Background);
    assert_eq!(actions(&plan), [("a", Action::Delete, None)]);
    assert_eq!((plan.set.action, plan.deletions()), (Action::Delete, 1));
    for plan in [
        deletion(ApplicationsSync::Sync, Propagation::Orphan),
        deletion(ApplicationsSync::CreateOnly, Propagation::Background),
        deletion(ApplicationsSync::CreateUpdate, Propagation::Background),
    ] {
        assert_eq!((plan.cascade, plan.deletions()), (Propagation::Orphan, 0));
        assert_eq!(actions(&plan), [("a", Action::Update, None)]);
        let after = plan.changes[0].after.as_ref().unwrap();
        assert_eq!(after["metadata"].get("ownerReferences"), None);
        assert_eq!(after["metadata"]["finalizers"], owned("a")["metadata"]["finalizers"]);
    }
    let plan = deletion(ApplicationsSync::CreateDelete, Propagation::Background);
    assert_eq!(plan.cascade, Propagation::Background);
}

#[test]
fn an_upsert_adds_labels_and_a_put_replaces_them() {
    let mut before = stored();
    before["metadata"]["labels"] = json!({"a": "1", "b": "1"});
    before["metadata"]["finalizers"] = json!(["f"]);
    let mut sent = sent();
    sent["metadata"]["labels"] = json!({"b": "2"});
    sent["metadata"]["uid"] = json!("forged");
    sent["spec"]["goTemplate"] = json!(true);
    let upserted = upserted(&before, &sent);
    assert_eq!(upserted["metadata"]["labels"], json!({"a": "1", "b": "2"}));
    assert_eq!(upserted["metadata"].get("finalizers"), None);
    assert_eq!(upserted["metadata"]["uid"], json!("u1"));
    assert_eq!(upserted["status"], before["status"]);
    let put = replaced(&before, &sent);
    assert_eq!(put["metadata"]["labels"], json!({"b": "2"}));
    assert_eq!(
        (&put["metadata"]["uid"], &put["metadata"]["resourceVersion"]),
        (&json!("u1"), &json!("7"))
    );
    assert_eq!(put["status"], before["status"]);
    for after in [upserted, put] {
        assert!(!is_equivalent(&before, &after));
        assert_eq!(after["spec"], sent["spec"]);
    }
    sent["metadata"]["resourceVersion"] = json!("5");
    assert_eq!(replaced(&before, &sent)["metadata"]["resourceVersion"], json!("5"));
    // The gateway's own annotation is ignored in what is sent.
    assert!(is_equivalent(&stored(), &self::sent()));
}

#[test]
fn a_diff_shows_user_fields_without_passwords() {
    let mut wanted = generated("a");
    wanted["spec"]["source"]["targetRevision"] = json!("v2");
    wanted["spec"]["source"]["repoURL"] = json!("https://me:hunter2@git.example/shop");
    let diff = change(owned("a"), wanted).diff();
    assert!(diff.starts_with("--- argocd/a\n+++ argocd/a\n@@"), "{diff}");
    assert!(diff.contains("\n-    targetRevision: HEAD\n"), "{diff}");
    assert!(diff.contains("\n+    targetRevision: v2\n"), "{diff}");
    assert!(diff.contains("me:****@git.example/shop"), "{diff}");
    for hidden in ["hunter2", "status", "resourceVersion", "managedFields", "uid-a"] {
        assert!(!diff.contains(hidden), "{hidden}: {diff}");
    }
    let plan = plan(
        existing(vec![owned("a"), owned("b")]),
        vec![generated("a"), generated("c")],
    );
    let [kept, gone, made] = &plan.changes[..] else {
        panic!()
    };
    assert_eq!(kept.diff(), "");
    assert!(
        gone.diff().starts_with("--- argocd/b\n+++ /dev/null\n"),
        "{}",
        gone.diff()
    );
    assert!(
        made.diff().starts_with("--- /dev/null\n+++ argocd/c\n"),
        "{}",
        made.diff()
    );
    assert!(
        made.diff().lines().skip(3).all(|line| line.starts_with('+')),
        "{}",
        made.diff()
    );
}
