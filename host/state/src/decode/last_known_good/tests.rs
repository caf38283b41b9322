use std::sync::Arc;

use tempfile::TempDir;

use super::{Completeness, DecodedInput, last_known_good};
use crate::Resources;
use crate::decode::read::ObjectDecoder;
use crate::decode::{LoadMemo, collect};
use crate::directory::DirectorySource;
use crate::fields::SourceMap;
use crate::people::PersonState;
use crate::source::Source as _;
use tollgate_core::yaml;

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
fn what_has_a_mistake_is_as_it_was_and_all_else_as_it_is() {
    let people = format!("{PEOPLE}[{{id: 1, username: bob}}]");
    let folder = Folder::new(&[("map.yaml", &map("{a: '1'}")), ("people.yaml", &people)]);
    folder.write("map.yaml", &map("{a: 2}\n  b: ["));
    folder.write("people.yaml", &people.replace("bob", "bob, state: blocked"));
    let last_known_good = folder.refused();
    assert_eq!(data(&last_known_good, "a").as_deref(), Some("1"));
    assert_eq!(state(&last_known_good, "bob"), Some(PersonState::Blocked));
    // Once the mistakes are fixed, the load is in force as a whole.
    folder.write("map.yaml", &map("{a: '3'}"));
    let loaded = folder.source.load().value.unwrap();
    assert_eq!(data(&loaded, "a").as_deref(), Some("3"));
    assert!(folder.source.last_known_good().is_none());
}

#[test]
fn what_was_withdrawn_stays_so_when_another_mistake_comes() {
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
fn what_is_gone_is_gone_unless_its_file_cannot_be_read() {
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
fn whom_an_object_with_a_mistake_blocks_is_blocked() {
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

/// Like an API server's objects: each stands alone, without a file.
#[test]
fn what_an_api_server_tells_no_more_is_gone() {
    let decoded = |text: &str| {
        let source = SourceMap::file(Arc::from("object"));
        let decoder = ObjectDecoder::new("argocd");
        for document in &yaml::parse(text).documents {
            decoder.document(document, &source);
        }
        DecodedInput {
            file: None,
            items: decoder.finish().into(),
        }
    };
    let secret = |name: &str| decoded(&format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\n"));
    let good = [decoded(&map("{a: '1'}")), secret("old"), secret("stays")];
    let now = [decoded(&map("{a: 5}")), secret("stays"), secret("new")];
    let last_known_good = last_known_good(&now, &good, Completeness::Complete);
    let (resources, _) = collect(&last_known_good, "argocd", &mut LoadMemo::default());
    assert_eq!(data(&resources, "a").as_deref(), Some("1"));
    assert_eq!(resources.secrets.keys().collect::<Vec<_>>(), ["new", "stays"]);
}
