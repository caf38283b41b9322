use std::sync::Arc;

use tempfile::TempDir;

use crate::source::{DirectorySource, Source as _};
use tollgate_objects::Resources;
use tollgate_objects::people::PersonState;

struct Folder {
    folder: TempDir,
    source: DirectorySource,
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata: ";
const PEOPLE: &str =
    "apiVersion: tollgate.dev/v1alpha1\nkind: UserDirectory\nmetadata: {name: people}\nspec:\n  users: ";

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = DirectorySource::new(folder.path(), "argocd");
        let made = Self { folder, source };
        for (name, text) in files {
            made.write(name, text);
        }
        assert!(made.source.load().value.is_some());
        assert!(made.source.last_known_good().is_none());
        made
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), format!("{text}\n")).unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.folder.path().join(name)).unwrap();
    }

    /// Loads, expects a refusal and returns the last known good resources.
    fn refused(&self) -> Arc<Resources> {
        assert!(self.source.load().value.is_none());
        self.source.last_known_good().unwrap()
    }
}

fn map(data: &str) -> String {
    format!("{MAP}{data}")
}

fn data(resources: &Resources, key: &str) -> Option<String> {
    resources
        .argocd_cm
        .data
        .get(key)
        .map(|text| text.value.as_ref().to_owned())
}

fn state(resources: &Resources, name: &str) -> Option<PersonState> {
    resources.people.person_by_username(name).map(|person| person.state)
}

#[test]
fn invalid_objects_keep_their_last_valid_content_and_others_are_current() {
    let people = format!("{PEOPLE}[{{id: 1, username: bob}}]");
    let folder = Folder::new(&[("map.yaml", &map("{a: '1'}")), ("people.yaml", &people)]);
    folder.write("map.yaml", &map("{a: 2}\n  b: ["));
    folder.write("people.yaml", &people.replace("bob", "bob, state: blocked"));
    let last_known_good = folder.refused();
    assert_eq!(data(&last_known_good, "a").as_deref(), Some("1"));
    assert_eq!(state(&last_known_good, "bob"), Some(PersonState::Blocked));
    // Once the mistakes are fixed, the whole load takes effect.
    folder.write("map.yaml", &map("{a: '3'}"));
    let loaded = folder.source.load().value.unwrap();
    assert_eq!(data(&loaded, "a").as_deref(), Some("3"));
    assert!(folder.source.last_known_good().is_none());
}

#[test]
fn removed_keys_stay_removed_when_the_object_becomes_invalid() {
    let folder = Folder::new(&[
        ("map.yaml", &map("{a: '1'}")),
        ("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}"),
    ]);
    folder.write(
        "secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: 5",
    );
    folder.write("map.yaml", &map("{b: '2'}"));
    assert_eq!(data(&folder.refused(), "a"), None);
    folder.write("map.yaml", "- [");
    let last_known_good = folder.refused();
    assert_eq!(
        (data(&last_known_good, "a"), data(&last_known_good, "b").as_deref()),
        (None, Some("2"))
    );
}

#[test]
fn removed_objects_are_gone_unless_their_file_cannot_be_read() {
    let project = |name: &str| {
        format!("apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {{name: {name}}}\nspec: {{}}\n---\n")
    };
    let both = project("one") + &project("two");
    let folder = Folder::new(&[
        ("map.yaml", &map("{}")),
        ("projects.yaml", &both),
        ("three.yaml", &project("three")),
    ]);
    let names = |resources: &Resources| resources.projects.keys().cloned().collect::<Vec<_>>();
    folder.write("map.yaml", &map("5"));
    folder.write("projects.yaml", &project("one"));
    folder.remove("three.yaml");
    assert_eq!(names(&folder.refused()), ["one"]);
    folder.write("projects.yaml", "kind: [");
    assert_eq!(names(&folder.refused()), ["one"]);
}

#[test]
fn users_blocked_in_an_invalid_object_are_blocked() {
    let people = |users: &str| format!("{PEOPLE}[{users}]");
    let good = people("{id: 1, username: bob}, {id: 2, username: eve}");
    let folder = Folder::new(&[("people.yaml", &good)]);
    folder.write(
        "people.yaml",
        &people("{id: 1, username: bob, state: blocked}, {id: two, username: eve}"),
    );
    let last_known_good = folder.refused();
    assert_eq!(state(&last_known_good, "bob"), Some(PersonState::Blocked));
    assert_eq!(state(&last_known_good, "eve"), Some(PersonState::Active));
}
