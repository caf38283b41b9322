//! Tests of which files of a folder are read again.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{ChangeCheck, FileStamp, FolderCache};
use tollgate_core::diagnostic::Loaded;
use tollgate_objects::{ObjectName, Resources};

fn application(name: &str, project: &str) -> String {
    format!(
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {{name: {name}}}\nspec: {{project: {project}}}\n"
    )
}

fn name(name: &str) -> ObjectName {
    ObjectName {
        namespace: "argocd".to_owned(),
        name: name.to_owned(),
    }
}

fn load(cache: &mut FolderCache, folder: &Path) -> Loaded<Arc<Resources>> {
    cache.load(folder, "argocd", &[])
}

fn good(cache: &mut FolderCache, folder: &Path) -> Arc<Resources> {
    let loaded = load(cache, folder);
    loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

/// Marks the times of every file as trusted, as if it had been read later.
fn trust_stamps(cache: &mut FolderCache) {
    for file in cache.files.values_mut() {
        file.change_check = ChangeCheck::Metadata;
    }
}

#[test]
fn an_unchanged_folder_gives_the_same_pointer_and_findings() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.yaml"), application("a", "web")).unwrap();
    let mut cache = FolderCache::default();
    let first = load(&mut cache, folder.path());
    let again = load(&mut cache, folder.path());
    assert!(Arc::ptr_eq(&first.value.unwrap(), &again.value.unwrap()));
    assert_eq!(first.diagnostics, again.diagnostics);
    // There is no argocd-cm and no project; kept findings are reported again.
    assert_eq!(again.diagnostics.len(), 2);
}

#[test]
fn only_objects_of_changed_files_get_new_pointers() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["a", "b"] {
        let path = folder.path().join(format!("{file}.yaml"));
        fs::write(path, application(file, "web")).unwrap();
    }
    let mut cache = FolderCache::default();
    let before = good(&mut cache, folder.path());
    fs::write(folder.path().join("a.yaml"), application("a", "shop")).unwrap();
    let after = good(&mut cache, folder.path());
    assert_eq!(after.applications[&name("a")].project, "shop");
    let same = |of: &str| Arc::ptr_eq(&before.applications[&name(of)], &after.applications[&name(of)]);
    assert!(!same("a") && same("b"));
    fs::remove_file(folder.path().join("b.yaml")).unwrap();
    assert!(!good(&mut cache, folder.path()).applications.contains_key(&name("b")));
}

#[test]
fn unchanged_objects_of_a_changed_file_keep_their_pointers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.yaml");
    let text = |project: &str| format!("{}---\n{}", application("a", project), application("b", "web"));
    fs::write(&file, text("web")).unwrap();
    let mut cache = FolderCache::default();
    let before = good(&mut cache, folder.path());
    fs::write(&file, text("shop")).unwrap();
    let after = good(&mut cache, folder.path());
    let same = |of: &str| Arc::ptr_eq(&before.applications[&name(of)], &after.applications[&name(of)]);
    assert!(!same("a") && same("b"));
}

#[test]
fn modification_times_are_trusted_only_when_old_enough() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.yaml");
    fs::write(&file, application("a", "web")).unwrap();
    let stamp = FileStamp::of(&fs::metadata(&file).unwrap());
    let now = SystemTime::now();
    assert_eq!(
        stamp.change_check(now),
        ChangeCheck::Contents,
        "it may be written again within one tick"
    );
    assert_eq!(stamp.change_check(now + Duration::from_secs(10)), ChangeCheck::Metadata);
    assert_eq!(
        stamp.change_check(now - Duration::from_secs(3600)),
        ChangeCheck::Contents,
        "a clock that was set back"
    );
    assert_eq!(stamp.change_check(SystemTime::UNIX_EPOCH), ChangeCheck::Contents);
}

#[test]
fn a_file_is_not_read_while_its_trusted_times_are_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.yaml");
    fs::write(&file, application("a", "web")).unwrap();
    let mut cache = FolderCache::default();
    good(&mut cache, folder.path());
    // The length is the same, so only the times differ; they are as new as the file itself.
    fs::write(&file, application("a", "bew")).unwrap();
    assert_eq!(good(&mut cache, folder.path()).applications[&name("a")].project, "bew");
    // A file with trusted times is not opened, so it need not even be readable.
    trust_stamps(&mut cache);
    let digest = cache.files[&file].digest;
    cache.files.get_mut(&file).unwrap().digest = [0; 32];
    good(&mut cache, folder.path());
    assert_eq!(cache.files[&file].digest, [0; 32], "the file was read");
    // With any other time it is read again.
    fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(SystemTime::now() - Duration::from_secs(3600))
        .unwrap();
    good(&mut cache, folder.path());
    assert_eq!(cache.files[&file].digest, digest);
}

#[test]
fn an_invalid_file_refuses_every_load_until_fixed() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a.yaml"), folder.path().join("b.yaml"));
    fs::write(&a, application("a", "web")).unwrap();
    let mut cache = FolderCache::default();
    let before = good(&mut cache, folder.path());
    fs::write(&b, "").unwrap();
    for _ in 0..2 {
        let refused = load(&mut cache, folder.path());
        assert!(refused.value.is_none());
        assert!(
            refused
                .diagnostics
                .iter()
                .any(|finding| finding.message == "file is empty")
        );
    }
    fs::write(&b, application("b", "web")).unwrap();
    let after = good(&mut cache, folder.path());
    assert_eq!(after.applications.len(), 2);
    assert!(Arc::ptr_eq(
        &before.applications[&name("a")],
        &after.applications[&name("a")]
    ));
}
