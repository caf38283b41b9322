use std::path::Path;

use serde_json::{Value, json};

use super::super::batch::{Propagation, Write};
use super::super::{Error, ObjectKey, ResourceVersion, StoredObject, WritableKind};
use super::FolderWriter;
use super::persist::{PREFIX, SUFFIX, prepare};
use crate::directory;
use tollgate_objects::ObjectName;

const CM: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\n";
const SHOP: &str = "# of the shop\napiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: shop}\nspec:\n  description:   odd   # kept\n";

struct StateFolder(tempfile::TempDir);

impl StateFolder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [("cm.yaml", CM)].iter().chain(files) {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        Self(folder)
    }

    fn writer(&self) -> FolderWriter {
        FolderWriter::new(self.0.path(), "argocd")
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).expect("a file")
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        kind: WritableKind::AppProject,
        name: ObjectName {
            namespace: "argocd".to_owned(),
            name: name.to_owned(),
        },
    }
}

/// The object with one more entry of `spec.destinationServiceAccounts`.
fn with_entry(object: &Value, account: &str) -> Value {
    let mut object = object.clone();
    let members = object.as_object_mut().expect("an object");
    let spec = members.entry("spec").or_insert_with(|| json!({}));
    let spec = spec.as_object_mut().expect("a spec");
    let entries = spec.entry("destinationServiceAccounts").or_insert_with(|| json!([]));
    entries.as_array_mut().expect("a list").push(json!({
        "server": format!("https://{account}"), "namespace": "guestbook", "defaultServiceAccount": account,
    }));
    object
}

/// Reads, adds an entry and writes.
fn add(writer: &FolderWriter, account: &str) -> Result<Value, Error> {
    let stored = writer.read(&key("shop"))?;
    let wanted = with_entry(&stored.object, account);
    Ok(writer.replace(&key("shop"), &wanted, &stored.version)?.object)
}

fn create(writer: &FolderWriter, name: &str, object: &Value) -> Result<StoredObject, Error> {
    let (key, object) = (key(name), object.clone());
    let stored = writer.write(Write::Create { key, object })?;
    Ok(stored.expect("it is stored"))
}

fn delete(writer: &FolderWriter, name: &str, version: &ResourceVersion) -> Result<(), Error> {
    let write = Write::Delete {
        key: key(name),
        before: json!({"metadata": {"resourceVersion": version.as_str()}}),
        propagation: Propagation::default(),
    };
    writer.write(write).map(drop)
}

#[test]
fn a_write_changes_the_object_and_its_version() {
    let state = StateFolder::new(&[("shop.yaml", SHOP)]);
    let writer = state.writer();
    let before = writer.read(&key("shop")).expect("a project");
    let after = add(&writer, "a").expect("it is written");
    let text = state.text("shop.yaml");
    assert!(text.starts_with(SHOP), "{text}");
    assert_eq!(after["spec"]["destinationServiceAccounts"][0]["server"], "https://a");
    // The file leaves its namespace to the gateway, and still does.
    assert_eq!(after["metadata"]["namespace"], "argocd");
    assert!(!text.contains("namespace: argocd"), "{text}");
    assert_ne!(after["metadata"]["resourceVersion"], before.version.as_str());
    assert_eq!(before.object["metadata"]["resourceVersion"], before.version.as_str());
    assert_eq!(state.names(), ["cm.yaml", "shop.yaml"]);
    let loaded = directory::load(state.0.path(), "argocd").value.expect("it loads");
    assert_eq!(loaded.projects["shop"].destination_service_accounts.len(), 1);
    // Without a change nothing is written.
    let stored = writer.read(&key("shop")).expect("a project");
    let same = writer
        .replace(&key("shop"), &stored.object, &stored.version)
        .expect("no change");
    assert_eq!(same, stored);
}

#[test]
fn an_older_version_is_a_conflict() {
    let state = StateFolder::new(&[("shop.yaml", SHOP)]);
    let writer = state.writer();
    let old = writer.read(&key("shop")).expect("a project");
    add(&writer, "a").expect("it is written");
    let text = state.text("shop.yaml");
    for version in [old.version.clone(), ResourceVersion::new("")] {
        let error = writer
            .replace(&key("shop"), &old.object, &version)
            .expect_err("a conflict");
        assert!(matches!(error, Error::Conflict { .. }), "{error}");
        let error = delete(&writer, "shop", &version).expect_err("a conflict");
        assert!(matches!(error, Error::Conflict { .. }), "{error}");
    }
    assert_eq!(state.text("shop.yaml"), text);
}

#[test]
fn concurrent_writers_lose_no_update() {
    let state = StateFolder::new(&[("shop.yaml", SHOP)]);
    let conflicts = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (state, conflicts) = (&state, &conflicts);
            scope.spawn(move || {
                for number in 0..5 {
                    let account = format!("w{writer}-{number}");
                    loop {
                        match add(&state.writer(), &account) {
                            Ok(_) => break,
                            Err(Error::Conflict { .. }) => {
                                conflicts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            });
        }
    });
    let stored = state.writer().read(&key("shop")).expect("a project");
    let entries = stored.object["spec"]["destinationServiceAccounts"]
        .as_array()
        .expect("entries");
    let mut accounts: Vec<&Value> = entries.iter().map(|entry| &entry["defaultServiceAccount"]).collect();
    accounts.sort_by_key(|account| account.as_str());
    accounts.dedup();
    assert_eq!(accounts.len(), 20, "{accounts:?}");
    assert!(state.text("shop.yaml").starts_with(SHOP));
}

#[test]
fn a_writer_that_is_killed_leaves_the_old_file() {
    let state = StateFolder::new(&[("shop.yaml", SHOP)]);
    let path = state.0.path().join("shop.yaml");
    // The new file is complete, and the writer dies before the rename.
    let prepared = prepare(state.0.path(), &path, "half").expect("a file");
    prepared.keep().expect("it stays");
    let left = state.names();
    assert!(
        left.iter()
            .any(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX)),
        "{left:?}"
    );
    assert_eq!(state.text("shop.yaml"), SHOP);
    let loaded = directory::load(state.0.path(), "argocd");
    assert!(loaded.value.is_some(), "{:?}", loaded.diagnostics);
    // The next writer continues and cleans up.
    add(&state.writer(), "a").expect("it is written");
    assert_eq!(state.names(), ["cm.yaml", "shop.yaml"]);
}

#[test]
fn a_change_that_would_not_load_is_not_written() {
    let state = StateFolder::new(&[("shop.yaml", SHOP)]);
    let writer = state.writer();
    let stored = writer.read(&key("shop")).expect("a project");
    let mut wanted = stored.object.clone();
    wanted["spec"]["destinationServiceAccounts"] = json!([{"server": 7}]);
    let error = writer
        .replace(&key("shop"), &wanted, &stored.version)
        .expect_err("it would not load");
    assert!(matches!(&error, Error::InvalidState(_)), "{error}");
    assert!(error.to_string().starts_with("the state would not load: "), "{error}");
    assert_eq!(state.text("shop.yaml"), SHOP);
    // An existing mistake does not stop a good change.
    std::fs::write(state.0.path().join("bad.yaml"), "a: [\n").expect("a file");
    add(&writer, "a").expect("it is written");
}

#[cfg(unix)]
#[test]
fn symbolic_links_are_refused() {
    use std::os::unix::fs::symlink;
    // Mounted like a ConfigMap.
    let mount = StateFolder::new(&[]);
    let data = mount.0.path().join("..2030_01_01");
    std::fs::create_dir(&data).expect("a folder");
    std::fs::write(data.join("shop.yaml"), SHOP).expect("a file");
    symlink("..2030_01_01", mount.0.path().join("..data")).expect("a link");
    symlink("..data/shop.yaml", mount.0.path().join("shop.yaml")).expect("a link");
    let error = add(&mount.writer(), "a").expect_err("a link");
    let shown = error.to_string();
    assert!(
        matches!(error, Error::SymbolicLink(_)) && shown.contains("change it at its source"),
        "{shown}"
    );
    assert_eq!(mount.text("..2030_01_01/shop.yaml"), SHOP);
    // Like a checkout of git-sync: the folder is the link, or lies below one.
    let outer = tempfile::tempdir().expect("a folder");
    let commit = format!(".worktrees/{}", "0a".repeat(20));
    let checkout = outer.path().join(&commit);
    std::fs::create_dir_all(&checkout).expect("a folder");
    std::fs::write(checkout.join("shop.yaml"), SHOP).expect("a file");
    symlink(&commit, outer.path().join("current")).expect("a link");
    for root in [outer.path().join("current"), checkout] {
        let error = add(&FolderWriter::new(&root, "argocd"), "a").expect_err("a link");
        assert!(matches!(error, Error::SymbolicLink(_)), "{error}");
    }
}

#[test]
fn objects_are_created_listed_and_deleted() {
    let state = StateFolder::new(&[("shop.yaml", SHOP)]);
    let writer = state.writer();
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
        "metadata": {"name": "new"}, "spec": {"destinations": [{"server": "*", "namespace": "*"}]},
    });
    let made = create(&writer, "new", &object).expect("it is new");
    assert!(
        state
            .text("appproject-argocd-new.yaml")
            .starts_with("apiVersion: argoproj.io/v1alpha1\nkind: ")
    );
    for name in ["new", "shop"] {
        let error = create(&writer, name, &object).expect_err(name);
        assert!(matches!(error, Error::AlreadyExists(_)), "{error}");
    }
    let all = writer.list(WritableKind::AppProject, "argocd").expect("a list");
    let names: Vec<_> = all
        .iter()
        .map(|stored| stored.object["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["new", "shop"]);
    delete(&writer, "new", &made.version).expect("it goes");
    assert_eq!(state.names(), ["cm.yaml", "shop.yaml"]);
    assert!(matches!(writer.read(&key("new")), Err(Error::NotFound(_))));
}

#[test]
fn list_items_are_found_and_duplicates_refused() {
    let list = "kind: AppProjectList\napiVersion: argoproj.io/v1alpha1\nitems:\n- metadata: {name: inner, namespace: argocd}\n- metadata: {name: other, namespace: else}\n";
    let twice = format!("{SHOP}---\n{SHOP}");
    let state = StateFolder::new(&[("list.yml", list), ("twice.yaml", &twice)]);
    let writer = state.writer();
    let inner = writer.read(&key("inner")).expect("an item");
    assert_eq!(inner.object["kind"], "AppProject");
    assert!(matches!(writer.read(&key("other")), Err(Error::NotFound(_))));
    let error = writer.read(&key("shop")).expect_err("two of them");
    assert!(matches!(error, Error::DefinedTwice { .. }), "{error}");
    // The written item still omits the kind, which its list states.
    let state = StateFolder::new(&[("list.yml", list)]);
    let wanted = with_entry(&inner.object, "a");
    state
        .writer()
        .replace(&key("inner"), &wanted, &inner.version)
        .expect("it is written");
    let text = state.text("list.yml");
    assert!(
        !text.contains("resourceVersion") && text.matches("kind").count() == 1,
        "{text}"
    );
    assert!(text.contains("- metadata: {name: other, namespace: else}\n"), "{text}");
}

#[cfg(unix)]
#[test]
fn the_file_mode_is_kept() {
    use std::os::unix::fs::PermissionsExt as _;
    let state = StateFolder::new(&[("shop.yaml", SHOP)]);
    let path: &Path = &state.0.path().join("shop.yaml");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o640)).expect("a mode");
    add(&state.writer(), "a").expect("it is written");
    let mode = std::fs::metadata(path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}
