//! Tests of a disk that refuses one of several files.

use std::path::Path;
use std::sync::Arc;

use super::{FileChange, prepare};
use crate::ObjectName;
use crate::write::{Folder, Kind, ObjectKey};

fn landing(folder: &Path, file: &str, (old, new): (Option<&str>, Option<&str>)) -> FileChange {
    FileChange {
        key: ObjectKey {
            kind: Kind::Application,
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
fn what_was_put_in_place_before_a_failure_is_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("changed"), "old").unwrap();
    std::fs::write(path.join("gone"), "old").unwrap();
    // A file cannot replace a folder.
    std::fs::create_dir(path.join("refused")).unwrap();
    let landings = [
        landing(path, "changed", (Some("old"), Some("new"))),
        landing(path, "gone", (Some("old"), None)),
        landing(path, "made", (None, Some("new"))),
        landing(path, "refused", (None, Some("new"))),
    ];
    let prepared = landings.iter().map(|landing| {
        let text = landing.new.as_deref();
        text.map(|text| prepare(path, &landing.path, text).unwrap())
    });
    let prepared = prepared.collect();
    let failed = Folder::new(path, "argocd").put_all(&landings, prepared).unwrap_err();
    assert_eq!(failed.key.name.name, "refused");
    let undone: Vec<&str> = failed.undone.iter().map(|key| key.name.name.as_str()).collect();
    assert_eq!(undone, ["made", "gone", "changed"]);
    assert!(failed.left.is_empty());
    let text = |file: &str| std::fs::read_to_string(path.join(file)).ok();
    assert_eq!(text("changed").as_deref(), Some("old"));
    assert_eq!(text("gone").as_deref(), Some("old"));
    assert_eq!(text("made"), None);
}
