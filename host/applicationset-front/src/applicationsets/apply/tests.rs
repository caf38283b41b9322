//! Plans applied in a folder: completely, or not at all.

use std::path::Path;

use serde_json::{Value, json};

use crate::applicationsets::apply::{ApplyOutcome, Error, Options, carry_out};
use tollgate_applicationset::plan::{
    Action, Owner, Plan, PlanProblem, PlannedChange, StoredState, with_owner_reference, without_owner_reference,
};
use tollgate_identity::clock::Clock;
use tollgate_objects::ObjectName;
use tollgate_state::directory;
use tollgate_state::write::batch::Propagation;
use tollgate_state::write::{self, FolderWriter, WritableKind, Writer};

const CM: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\n";

struct Fixture(tempfile::TempDir);

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cm.yaml"), CM).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn writer(&self) -> Writer {
        Writer::Folder(FolderWriter::new(self.path(), "argocd"))
    }

    async fn existing(&self) -> StoredState {
        StoredState::read(&self.writer(), &name("web")).await.unwrap()
    }

    async fn apply(&self, plan: Plan) -> Result<ApplyOutcome, Error> {
        carry_out(&self.writer(), plan, &options(10, None)).await
    }

    /// Every file with its text.
    fn files(&self) -> Vec<(String, String)> {
        let entries = std::fs::read_dir(self.path()).unwrap().map(Result::unwrap);
        let mut files: Vec<_> = entries
            .map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                (name, std::fs::read_to_string(entry.path()).unwrap_or_default())
            })
            .collect();
        files.sort();
        files
    }

    /// The set and the Applications `a` and `b` of it, written.
    async fn with_two(&self) {
        let plan = plan(StoredState::default(), &[("a", Action::Create), ("b", Action::Create)]);
        self.apply(plan).await.unwrap();
    }
}

fn name(name: &str) -> ObjectName {
    ObjectName {
        namespace: "argocd".to_owned(),
        name: name.to_owned(),
    }
}

fn options(max_deletions: u64, confirmed: Option<u64>) -> Options {
    Options {
        max_deletions,
        confirmed,
        clock: Clock::default(),
    }
}

fn application(name: &str, revision: &str) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": name, "namespace": "argocd", "finalizers": ["resources-finalizer.argocd.argoproj.io"]},
        "spec": {
            "project": "shop", "source": {"repoURL": "https://git.example/shop", "targetRevision": revision},
            "destination": {"server": "https://s", "namespace": "shop"},
        },
    })
}

/// A plan that does these things to Applications, and stores the set.
fn plan(existing: StoredState, actions: &[(&str, Action)]) -> Plan {
    let owner = existing.set.as_ref().map(|set| Owner::of("web", set));
    let find = |name: &str| {
        let found = existing
            .applications
            .iter()
            .find(|object| object["metadata"]["name"] == name);
        found.cloned()
    };
    let change = |(of, action): &(&str, Action)| {
        let before = find(of);
        let after = match action {
            Action::Create => Some(application(of, "v1")),
            Action::Update => before.clone().map(|mut before| {
                before["spec"]["source"]["targetRevision"] = json!("v2");
                with_owner_reference(before, owner.as_ref().unwrap())
            }),
            Action::Delete | Action::Keep => None,
        };
        PlannedChange {
            name: name(of),
            action: *action,
            before,
            after,
            held_back: None,
            generated: None,
        }
    };
    let changes = actions.iter().map(change).collect();
    let mut set = existing.set.clone().unwrap_or_else(|| {
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
            "metadata": {"name": "web", "namespace": "argocd"},
            "spec": {"generators": []},
        })
    });
    set["spec"]["goTemplate"] = json!(existing.set.is_some());
    Plan {
        set: PlannedChange {
            name: name("web"),
            action: if existing.set.is_some() {
                Action::Update
            } else {
                Action::Create
            },
            before: existing.set,
            after: Some(set),
            held_back: None,
            generated: None,
        },
        changes,
        problems: Vec::new(),
        cascade: Propagation::Background,
    }
}

fn deletion(existing: StoredState, cascade: Propagation) -> Plan {
    let mut made = plan(existing, &[]);
    made.set.action = Action::Delete;
    made.set.after = None;
    made.cascade = cascade;
    made
}

#[tokio::test]
async fn a_set_is_created_with_applications_that_refer_to_it() {
    let fixture = Fixture::new();
    fixture.with_two().await;
    let existing = fixture.existing().await;
    let set = existing.set.as_ref().unwrap();
    let uid = set["metadata"]["uid"].as_str().unwrap();
    assert_eq!(set["metadata"]["generation"], 1);
    assert!(set["metadata"]["creationTimestamp"].as_str().unwrap().ends_with('Z'));
    let web = name("web");
    let owned: Vec<_> = existing.owned(&web).collect();
    assert_eq!(owned.len(), 2);
    for application in owned {
        let reference = &application["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&reference["uid"], &reference["controller"]),
            (&json!(uid), &json!(true))
        );
        assert_ne!(application["metadata"]["uid"], json!(uid));
    }
    let loaded = directory::load(fixture.path(), "argocd").value.unwrap();
    assert_eq!(loaded.application_sets.len(), 1);
    let version = &loaded.application_sets[&web]["metadata"]["resourceVersion"];
    assert_eq!(
        version, &set["metadata"]["resourceVersion"],
        "the returned version can be sent in an update"
    );
    let applications: Vec<_> = loaded.applications.values().collect();
    let owner = applications[0].application_set.as_ref();
    assert_eq!(owner.map(|owner| owner.name.as_str()), Some("web"));
}

#[tokio::test]
async fn creations_updates_and_deletions_are_applied_together() {
    let fixture = Fixture::new();
    fixture.with_two().await;
    let plan = plan(
        fixture.existing().await,
        &[("a", Action::Update), ("b", Action::Delete), ("c", Action::Create)],
    );
    let outcome = fixture.apply(plan).await.unwrap();
    let set = outcome.set.unwrap();
    assert_eq!(
        (&set["metadata"]["generation"], &set["spec"]["goTemplate"]),
        (&json!(2), &json!(true))
    );
    let names: Vec<String> = fixture.files().into_iter().map(|file| file.0).collect();
    assert_eq!(
        names,
        [
            "application-argocd-a.yaml",
            "application-argocd-c.yaml",
            "applicationset-argocd-web.yaml",
            "cm.yaml"
        ]
    );
    let text = &fixture.files()[0].1;
    assert!(text.contains("targetRevision: v2"), "{text}");
}

#[tokio::test]
async fn a_conflict_leaves_every_file_as_it_was() {
    let fixture = Fixture::new();
    fixture.with_two().await;
    let plan = plan(
        fixture.existing().await,
        &[("a", Action::Update), ("b", Action::Update), ("c", Action::Create)],
    );
    let file = fixture.path().join("application-argocd-b.yaml");
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("targetRevision: v1", "targetRevision: v9");
    std::fs::write(&file, text).unwrap();
    let before = fixture.files();
    let error = fixture.apply(plan).await.unwrap_err();
    assert!(matches!(error.write(), Some(write::Error::Conflict { .. })), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("Application `b` was not written: "), "{text}");
    assert!(text.ends_with("nothing was changed"), "{text}");
    assert_eq!(fixture.files(), before);
}

#[tokio::test]
async fn an_application_that_appeared_meanwhile_is_not_overwritten() {
    let fixture = Fixture::new();
    let plan = plan(StoredState::default(), &[("a", Action::Create), ("b", Action::Create)]);
    let other = format!("{:#}\n", application("b", "theirs"));
    std::fs::write(fixture.path().join("theirs.json"), other).unwrap();
    let before = fixture.files();
    let error = fixture.apply(plan).await.unwrap_err();
    assert!(matches!(error.write(), Some(write::Error::AlreadyExists(_))), "{error}");
    assert_eq!(fixture.files(), before);
}

#[tokio::test]
async fn a_symbolic_link_in_place_of_a_file_stops_the_plan() {
    let fixture = Fixture::new();
    fixture.with_two().await;
    let before = fixture.files();
    let plan = plan(
        fixture.existing().await,
        &[("a", Action::Update), ("z", Action::Create)],
    );
    let blocked = fixture.path().join("application-argocd-z.yaml");
    std::os::unix::fs::symlink("/nowhere/at/all", &blocked).unwrap();
    let error = fixture.apply(plan).await.unwrap_err();
    assert!(matches!(error.write(), Some(write::Error::SymbolicLink(_))), "{error}");
    assert!(error.to_string().contains("`z` was not written"), "{error}");
    std::fs::remove_file(blocked).unwrap();
    assert_eq!(fixture.files(), before);
}

#[tokio::test]
async fn deletions_above_the_limit_need_their_exact_number() {
    let fixture = Fixture::new();
    fixture.with_two().await;
    let before = fixture.files();
    let plan = || async {
        plan(
            fixture.existing().await,
            &[("a", Action::Delete), ("b", Action::Delete)],
        )
    };
    for (allowed, confirmed, expected) in [
        (1, None, "deletes 2 applications, at most 1 are deleted without"),
        (10, Some(3), "deletes 2 applications, and 3 were named"),
        (0, Some(0), "deletes 2 applications, and 0 were named"),
    ] {
        let options = options(allowed, confirmed);
        let error = carry_out(&fixture.writer(), plan().await, &options).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(fixture.files(), before);
    }
    let options = options(1, Some(2));
    carry_out(&fixture.writer(), plan().await, &options).await.unwrap();
    assert!(fixture.existing().await.applications.is_empty());
}

#[tokio::test]
async fn a_plan_with_problems_is_not_applied() {
    let fixture = Fixture::new();
    let mut plan = plan(StoredState::default(), &[("a", Action::Create)]);
    plan.problems = (0..7).map(PlanProblem::Unnamed).collect();
    let error = fixture.apply(plan).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("application 0 that") && text.ends_with("; and 2 more"),
        "{text}"
    );
    assert_eq!(fixture.files().len(), 1);
}

#[tokio::test]
async fn a_set_is_deleted_with_or_without_its_applications() {
    let fixture = Fixture::new();
    fixture.with_two().await;
    let existing = fixture.existing().await;
    let owner = Owner::of("web", existing.set.as_ref().unwrap());
    let mut plan = deletion(existing.clone(), Propagation::Orphan);
    plan.changes = existing
        .applications
        .iter()
        .map(|before| PlannedChange {
            name: name(before["metadata"]["name"].as_str().unwrap()),
            action: Action::Update,
            before: Some(before.clone()),
            after: Some(without_owner_reference(before, &owner)),
            held_back: None,
            generated: None,
        })
        .collect();
    let outcome = fixture.apply(plan).await.unwrap();
    assert!(outcome.set.is_none() && outcome.left.is_empty());
    let left = fixture.existing().await;
    assert_eq!((left.set, left.applications.len()), (None, 2));
    // They no longer have an owner, so `left` has only their names.
    for stored in fixture
        .writer()
        .list(WritableKind::Application, "argocd")
        .await
        .unwrap()
    {
        assert_eq!(stored.object["metadata"].get("ownerReferences"), None);
        assert_eq!(stored.object["metadata"]["finalizers"].as_array().unwrap().len(), 1);
    }

    let fixture = Fixture::new();
    fixture.with_two().await;
    let existing = fixture.existing().await;
    let mut plan = deletion(existing.clone(), Propagation::Background);
    plan.changes = existing
        .applications
        .iter()
        .map(|before| PlannedChange {
            name: name(before["metadata"]["name"].as_str().unwrap()),
            action: Action::Delete,
            before: Some(before.clone()),
            after: None,
            held_back: None,
            generated: None,
        })
        .collect();
    fixture.apply(plan).await.unwrap();
    assert_eq!(fixture.files().len(), 1);
}

#[tokio::test]
async fn objects_of_one_file_change_together() {
    let fixture = Fixture::new();
    fixture.with_two().await;
    let mut all = String::new();
    for file in ["application-argocd-a.yaml", "application-argocd-b.yaml"] {
        let path = fixture.path().join(file);
        all = format!("{all}---\n{}", std::fs::read_to_string(&path).unwrap());
        std::fs::remove_file(path).unwrap();
    }
    std::fs::write(fixture.path().join("all.yaml"), format!("{all}# kept\n")).unwrap();
    let plan = plan(
        fixture.existing().await,
        &[("a", Action::Update), ("b", Action::Update)],
    );
    fixture.apply(plan).await.unwrap();
    let text = std::fs::read_to_string(fixture.path().join("all.yaml")).unwrap();
    assert_eq!(text.matches("targetRevision: v2").count(), 2, "{text}");
    assert!(text.ends_with("# kept\n"), "{text}");
    let plan = self::plan(
        fixture.existing().await,
        &[("a", Action::Delete), ("b", Action::Update)],
    );
    fixture.apply(plan).await.unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<_> = fixture.existing().await.applications;
    assert_eq!(names.len(), 1);
}
