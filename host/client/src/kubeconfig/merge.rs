//! Adds a context to the kubeconfig that kubectl uses, as `kubectl config set-context` does.
//!
//! Invariant: nothing else in the file changes, and the current context only if that is asked for. A file
//! is never half written, and two programs do not write it at once.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::file::EXTENSION;
use super::{items, text_at};
use crate::context::write_private;
use crate::failure::Failure;
use crate::format::{Format, print};

/// Longest kubeconfig that is changed, in bytes.
const FILE_BYTES: u64 = 8 << 20;
/// The lists of a kubeconfig, whose items have names.
const LISTS: [&str; 3] = ["clusters", "contexts", "users"];

pub(super) struct MergedKubeconfig {
    path: PathBuf,
    before: Map<String, Value>,
    use_context: bool,
    /// Removed when this is dropped.
    _lock: LockFile,
}

/// The file by which clients of Kubernetes keep each other from writing (client-go, `lockFile`).
struct LockFile(PathBuf);

impl LockFile {
    fn take(path: &Path) -> Result<Self, Failure> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
        match OpenOptions::new().write(true).create_new(true).open(&lock) {
            Ok(_) => Ok(Self(lock)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let message = format!("`{}` exists: another program writes the kubeconfig", lock.display());
                Err(Failure::new("kubeconfig.file", message)
                    .with_hint("try again; remove it if no program runs any more"))
            }
            Err(error) => Err(wrong(path, &error)),
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // The next one says that it is there.
        let _ = fs::remove_file(&self.0);
    }
}

impl MergedKubeconfig {
    pub(super) fn open(use_context: bool) -> Result<Self, Failure> {
        Self::open_at(&path()?, use_context)
    }

    fn open_at(path: &Path, use_context: bool) -> Result<Self, Failure> {
        // A link stays one: its target is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            fs::create_dir_all(folder).map_err(|error| wrong(&path, &error))?;
        }
        let lock = LockFile::take(&path)?;
        let text = match fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Zeroizing::new(String::new()),
            Ok(file) if file.len() > FILE_BYTES => {
                return Err(wrong(&path, &format!("is longer than {FILE_BYTES} bytes")));
            }
            _ => Zeroizing::new(fs::read_to_string(&path).map_err(|error| wrong(&path, &error))?),
        };
        let before = match text.trim().is_empty() {
            true => Map::new(),
            false => match serde_saphyr::from_str(&text) {
                Ok(Value::Object(before)) => before,
                Ok(_) | Err(_) => return Err(wrong(&path, &"is not a kubeconfig")),
            },
        };
        if LISTS.iter().any(|list| {
            before
                .get(*list)
                .is_some_and(|value| !value.is_array() && !value.is_null())
        }) {
            return Err(wrong(&path, &"is not a kubeconfig"));
        }
        Ok(Self {
            path,
            before,
            use_context,
            _lock: lock,
        })
    }

    /// Returns the ids of the tokens that were replaced.
    pub(super) fn write(self, document: &Value, name: &str, out: &mut dyn Write) -> Result<Vec<Uuid>, Failure> {
        let (merged, replaced) = merge(&self.before, document, name, self.use_context);
        let text = Zeroizing::new(Format::Yaml.document(&merged)?);
        write_private(&self.path, text.as_bytes()).map_err(|error| wrong(&self.path, &error))?;
        print(&format!("context {name} added to {}", self.path.display()), out)?;
        let current = merged
            .get("current-context")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if current != name {
            print(
                &format!("use it with `kubectl --context {name}`, or `kubectl config use-context {name}`"),
                out,
            )?;
        }
        Ok(replaced)
    }
}

/// The kubeconfig with the items of another in the place of those of the same name.
fn merge(
    before: &Map<String, Value>,
    document: &Value,
    name: &str,
    use_context: bool,
) -> (Map<String, Value>, Vec<Uuid>) {
    let mut merged = before.clone();
    let mut replaced = Vec::new();
    for (key, value) in [("apiVersion", json!("v1")), ("kind", json!("Config"))] {
        merged.entry(key).or_insert(value);
    }
    for list in LISTS {
        let new = items(document, &format!("/{list}"));
        let mut all: Vec<Value> = match merged.remove(list) {
            Some(Value::Array(all)) => all,
            Some(_) | None => Vec::new(),
        };
        for item in new {
            match all
                .iter_mut()
                .find(|one| text_at(one, "/name") == text_at(item, "/name"))
            {
                Some(one) => {
                    let extensions = items(one, "/user/extensions").iter();
                    let ours = extensions.filter(|extension| text_at(extension, "/name") == EXTENSION);
                    replaced.extend(ours.filter_map(|one| text_at(one, "/extension/id").parse::<Uuid>().ok()));
                    *one = item.clone();
                }
                None => all.push(item.clone()),
            }
        }
        merged.insert(list.to_owned(), all.into());
    }
    let has_current = merged
        .get("current-context")
        .and_then(Value::as_str)
        .is_some_and(|current| !current.is_empty());
    if use_context || !has_current {
        merged.insert("current-context".to_owned(), name.into());
    }
    (merged, replaced)
}

/// The file that kubectl writes: the first of `KUBECONFIG` that exists, else its first, else
/// `~/.kube/config`.
pub fn path() -> Result<PathBuf, Failure> {
    if let Some(list) = std::env::var_os("KUBECONFIG") {
        let files: Vec<PathBuf> = std::env::split_paths(&list)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        let existing = files.iter().find(|path| path.exists());
        if let Some(path) = existing.or(files.first()) {
            return Ok(path.clone());
        }
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.ok_or_else(|| {
        Failure::new("kubeconfig.file", "there is no kubeconfig: `HOME` is not set").with_hint("name one with `--file`")
    })?;
    Ok(PathBuf::from(home).join(".kube/config"))
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new("kubeconfig.file", format_args!("`{}`: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{MergedKubeconfig, merge};

    fn ours(name: &str) -> Value {
        json!({
            "clusters": [{"name": name, "cluster": {"server": "https://t.example/k8s-proxy/"}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "users": [{"name": name, "user": {"exec": {}}}],
            "current-context": name,
        })
    }

    #[test]
    fn everything_else_stays_and_the_current_context_too() {
        let before = json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {"colors": true},
            "clusters": [{"name": "mine", "cluster": {"server": "https://mine"}}, {"name": "prod", "cluster": {"server": "old"}}],
            "contexts": [{"name": "mine", "context": {}}], "users": null, "current-context": "mine",
        });
        let before = before.as_object().unwrap();
        let (merged, replaced) = merge(before, &ours("prod"), "prod", false);
        assert!(replaced.is_empty());
        assert_eq!(merged["current-context"], "mine");
        assert_eq!(merged["preferences"]["colors"], true);
        let servers: Vec<&Value> = merged["clusters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["cluster"]["server"])
            .collect();
        assert_eq!(servers, ["https://mine", "https://t.example/k8s-proxy/"]);
        let (merged, _) = merge(&merged, &ours("prod"), "prod", true);
        assert_eq!(merged["current-context"], "prod");
        assert_eq!(merged["users"].as_array().unwrap().len(), 1);
        let (merged, _) = merge(&Map::new(), &ours("prod"), "prod", false);
        assert_eq!(
            (&merged["kind"], &merged["current-context"]),
            (&json!("Config"), &json!("prod"))
        );
    }

    #[test]
    fn a_token_that_is_replaced_is_named() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let mut before = ours("prod");
        before["users"][0]["user"] = super::super::file::user("pat:9:x", Some(&json!(id)));
        let before = before.as_object().unwrap();
        let (_, replaced) = merge(before, &ours("prod"), "prod", false);
        assert_eq!(replaced, [id.parse::<uuid::Uuid>().unwrap()]);
    }

    #[test]
    fn a_file_of_another_kind_or_in_use_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, "notes").unwrap();
        let open = || {
            MergedKubeconfig::open_at(&path, false)
                .map(|_| ())
                .unwrap_err()
                .to_string()
        };
        assert!(open().ends_with("is not a kubeconfig"), "{}", open());
        std::fs::write(&path, "").unwrap();
        let held = MergedKubeconfig::open_at(&path, false).unwrap();
        assert!(open().contains("another program writes the kubeconfig"), "{}", open());
        drop(held);
        MergedKubeconfig::open_at(&path, false).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    }
}
