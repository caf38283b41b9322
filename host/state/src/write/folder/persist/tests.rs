//! Tests of a batch in which one of several files cannot be written.

use std::path::Path;
use std::sync::Arc;

use super::{FileChange, prepare};
use crate::write::{FolderWriter, ObjectKey, WritableKind};
use tollgate_objects::ObjectName;

fn file_change(folder: &Path, file: &str, old: Option<&str>, new: Option<&str>) -> FileChange {
    FileChange {
        key: ObjectKey {
            kind: WritableKind::Application,
            name: ObjectName {
                namespace: "argocd".to_owned(),
                name: file.to_owned(),
            },
        },
        path: folder.join(file),
        old: old.map(Arc::from),
        new: new.map(str::to_owned),
    }
}

#[test]
fn a_failure_restores_files_that_were_already_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("changed"), "old").unwrap();
    std::fs::write(path.join("gone"), "old").unwrap();
    // A file cannot replace a folder.
    std::fs::create_dir(path.join("refused")).unwrap();
    let changes = [
        file_change(path, "changed", Some("old"), Some("new")),
        file_change(path, "gone", Some("old"), None),
        file_change(path, "made", None, Some("new")),
        file_change(path, "refused", None, Some("new")),
    ];
    let prepared = changes.iter().map(|change| {
        let text = change.new.as_deref();
        text.map(|text| prepare(path, &change.path, text).unwrap())
    });
    let prepared = prepared.collect();
    let failed = FolderWriter::new(path, "argocd")
        .put_all(&changes, prepared)
        .unwrap_err();
    assert_eq!(failed.key.name.name, "refused");
    let undone: Vec<&str> = failed.undone.iter().map(|key| key.name.name.as_str()).collect();
    assert_eq!(undone, ["made", "gone", "changed"]);
    assert!(failed.not_undone.is_empty());
    let text = |file: &str| std::fs::read_to_string(path.join(file)).ok();
    assert_eq!(text("changed").as_deref(), Some("old"));
    assert_eq!(text("gone").as_deref(), Some("old"));
    assert_eq!(text("made"), None);
}
