//! Tests of a writer that dies between any two of its steps.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::super::persist::{FileChange, prepare};
use super::{NAME, lock_for_load, recover, write};
use crate::source::DirectorySource;
use crate::source::Source as _;
use crate::write::batch::Write;
use crate::write::{FolderWriter, ObjectKey, WritableKind};
use tollgate_objects::ObjectName;

fn application(name: &str, project: &str) -> String {
    format!(
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {{name: {name}}}\nspec: {{project: {project}, destination: {{name: in-cluster}}}}\n"
    )
}

fn file_change(root: &Path, name: &str, old: Option<&str>, new: Option<&str>) -> FileChange {
    let key = ObjectKey {
        kind: WritableKind::Application,
        name: ObjectName {
            namespace: "argocd".to_owned(),
            name: name.to_owned(),
        },
    };
    let text = |project: &str| application(name, project);
    FileChange {
        key,
        path: root.join(format!("{name}.yaml")),
        old: old.map(|project| Arc::from(text(project))),
        new: new.map(text),
    }
}

/// A folder with `changed` and `gone`, and a batch that creates a third file and deletes one.
fn batch(root: &Path) -> Vec<FileChange> {
    for change in ["changed", "gone"].map(|name| file_change(root, name, Some("old"), None)) {
        fs::write(&change.path, change.old.as_deref().unwrap()).unwrap();
    }
    fs::write(
        root.join("cm.yaml"),
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-cm}}\n",
    )
    .unwrap();
    vec![
        file_change(root, "changed", Some("old"), Some("new")),
        file_change(root, "gone", Some("old"), None),
        file_change(root, "made", None, Some("new")),
    ]
}

/// Runs `steps` steps of a batch after its journal was written, like a writer that is then killed.
fn killed_after(root: &Path, changes: &[FileChange], steps: usize) {
    let prepared: Vec<_> = changes
        .iter()
        .map(|change| {
            change
                .new
                .as_deref()
                .map(|text| prepare(root, &change.path, text).unwrap())
        })
        .collect();
    write(root, changes, &prepared).unwrap();
    for (number, (change, file)) in changes.iter().zip(prepared).enumerate() {
        // A killed writer cleans nothing up.
        let file = file.map(|file| file.keep().unwrap().1);
        match file {
            _ if number >= steps => {}
            Some(file) => fs::rename(file, &change.path).unwrap(),
            None => fs::remove_file(&change.path).unwrap(),
        }
    }
}

/// Applications and their projects, as a load sees them.
fn loaded(root: &Path) -> Vec<(String, String)> {
    let loaded = DirectorySource::new(root, "argocd").load();
    let resources = loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let all = resources.applications.values();
    all.map(|one| (one.name.name.clone(), one.project.clone())).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, project): &(&str, &str)| ((*name).to_owned(), (*project).to_owned());
    all.iter().map(owned).collect()
}

#[test]
fn the_next_load_completes_the_batch_of_a_killed_writer() {
    for steps in 0..=3 {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let changes = batch(root);
        assert_eq!(loaded(root), pairs(&[("changed", "old"), ("gone", "old")]));
        killed_after(root, &changes, steps);
        assert_eq!(loaded(root), pairs(&[("changed", "new"), ("made", "new")]), "{steps}");
        assert!(!root.join(NAME).exists());
        assert_eq!(fs::read_dir(root).unwrap().count(), 3, "nothing is left: {steps}");
    }
}

#[test]
fn the_next_write_completes_the_batch_too() {
    for steps in 0..=3 {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let changes = batch(root);
        killed_after(root, &changes, steps);
        let (key, object) = (changes[2].key.clone(), serde_json::json!({}));
        let found = FolderWriter::new(root, "argocd").write(Write::Create { key, object });
        assert!(found.is_err(), "it is there already: {steps}");
        assert!(!root.join(NAME).exists() && !root.join("gone.yaml").exists());
    }
}

/// Number of files, so that the batch can be killed in its middle.
const FILES: usize = 24;
/// The folder a child writes to.
const CHILD: &str = "TOLLGATE_TEST_JOURNAL_FOLDER";

/// All files change: the first is deleted, the last is created.
fn long_batch(root: &Path) -> Vec<FileChange> {
    let one = |number: usize| {
        let old = (number + 1 < FILES).then_some("old");
        let new = (number > 0).then_some("new");
        file_change(root, &format!("file-{number:02}"), old, new)
    };
    (0..FILES).map(one).collect()
}

fn is_in_place(change: &FileChange) -> bool {
    fs::read_to_string(&change.path).ok() == change.new
}

/// The test starts itself as a child that writes a batch, and kills it once a file of the batch is
/// in place, each time another file.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the environment identifies the child, since the test runner owns the arguments"
)]
fn a_writer_that_is_killed_leaves_all_or_nothing() {
    if let Ok(root) = std::env::var(CHILD) {
        let root = Path::new(&root);
        let folder = FolderWriter::new(root, "argocd");
        let _lock = folder.lock().unwrap();
        folder.persist_all(&long_batch(root)).unwrap();
        return;
    }
    let name = format!("{}::a_writer_that_is_killed_leaves_all_or_nothing", module_path!());
    let (_, name) = name.split_once("::").unwrap();
    let (mut rounds, mut halves) = (0, 0);
    while rounds < 8 || halves < 3 {
        assert!(rounds < 100, "only {halves} of {rounds} were killed in the middle");
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let changes = long_batch(root);
        for change in &changes {
            if let Some(old) = &change.old {
                fs::write(&change.path, &**old).unwrap();
            }
        }
        fs::write(
            root.join("cm.yaml"),
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-cm}}\n",
        )
        .unwrap();
        let old = loaded(root);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(CHILD, root)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The first child is killed once the journal is written, before or while the batch is put
        // in place.
        let reached = || match rounds {
            0 => root.join(NAME).exists(),
            _ => is_in_place(&changes[rounds * 5 % FILES]),
        };
        while !reached() {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let in_place = changes.iter().filter(|change| is_in_place(change)).count();
        halves += usize::from((1..FILES).contains(&in_place));
        let now = loaded(root);
        let is_new = now.len() == FILES - 1 && now.iter().all(|(_, project)| project == "new");
        assert!(is_new || now == old, "{in_place} files were in place: {now:?}");
        assert!(!root.join(NAME).exists());
        rounds += 1;
    }
}

/// Until the journal is written, a batch has no effect.
#[test]
fn a_writer_killed_before_the_journal_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for change in batch(root) {
        if let Some(text) = &change.new {
            prepare(root, &change.path, text).unwrap().keep().unwrap();
        }
    }
    assert_eq!(loaded(root), pairs(&[("changed", "old"), ("gone", "old")]));
}

#[test]
fn files_edited_after_the_crash_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let changes = batch(root);
    killed_after(root, &changes, 0);
    fs::write(&changes[0].path, application("changed", "edited")).unwrap();
    assert_eq!(loaded(root), pairs(&[("changed", "edited"), ("made", "new")]));
}

#[test]
fn a_load_waits_for_a_writer_and_not_for_another_load() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    batch(root);
    let (first, second) = (lock_for_load(root).unwrap(), lock_for_load(root).unwrap());
    assert!(first.is_some() && second.is_some());
    let writer = fs::File::open(root).unwrap();
    assert!(writer.try_lock().is_err());
    drop((first, second));
    writer.try_lock().unwrap();
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| lock_for_load(root).unwrap().is_some());
        writer.unlock().unwrap();
        assert!(loading.join().unwrap());
    });
}

#[test]
fn a_journal_with_a_path_outside_the_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("state");
    fs::create_dir(&root).unwrap();
    let outside = folder.path().join("outside.yaml");
    fs::write(&outside, "x").unwrap();
    let entry = serde_json::json!([{"path": "../outside.yaml", "new": null, "old": super::version(b"x").as_str()}]);
    fs::write(root.join(NAME), entry.to_string()).unwrap();
    assert!(recover(&root).is_err());
    let refused = lock_for_load(&root).unwrap_err();
    assert!(
        refused.is_error() && refused.message.contains("not all in place"),
        "{refused}"
    );
    assert!(outside.exists());
}
