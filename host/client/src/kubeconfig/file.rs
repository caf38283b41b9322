//! Writes a kubeconfig to standard output, or to a file that only its owner may read. A file that
//! holds anything but an earlier kubeconfig of the same context is not overwritten.
//!
//! Invariant: a file is never half written.

use std::fs::File;
use std::io::{Read as _, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::merge::MergedKubeconfig;
use super::{items, text_at};
use crate::api::Server;
use crate::failure::Failure;
use crate::format::{Format, print};
use crate::{print_error, token};

/// Name of the extension of a user entry that has the id of its token.
///
/// Source: client-go, `AuthInfo.Extensions`, which clients keep and do not read.
pub(super) const EXTENSION: &str = "tollgate.dev/token";
/// Longest kubeconfig that is replaced, in bytes.
const FILE_BYTES: u64 = 1024 * 1024;

pub(super) enum KubeconfigOutput<'a> {
    Stdout,
    /// A file, the draft that replaces it, and the ids of the tokens in the kubeconfig being replaced.
    File {
        path: &'a Path,
        draft: NamedTempFile,
        replaced_tokens: Vec<Uuid>,
    },
    /// The kubeconfig that kubectl uses.
    Merged(MergedKubeconfig),
}

pub(super) fn user(bearer: &str, id: Option<&Value>) -> Value {
    let extension = json!({ "name": EXTENSION, "extension": { "id": id } });
    json!({ "token": bearer, "extensions": [extension] })
}

impl<'a> KubeconfigOutput<'a> {
    /// Opens standard output or a file, without changing it.
    ///
    /// - `context`: name of the context to write.
    ///
    /// # Errors
    /// The file has something else that would be lost, or it cannot be written.
    pub(super) fn open(path: Option<&'a Path>, context: &str) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self::Stdout);
        };
        let failed =
            |why: &dyn std::fmt::Display| Failure::new("kubeconfig.file", format_args!("`{}`: {why}", path.display()));
        let mut before = Zeroizing::new(String::new());
        let read = File::open(path).and_then(|file| file.take(FILE_BYTES).read_to_string(&mut before));
        if let Err(error) = read
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(failed(&error));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let Some(replaced_tokens) = replaced_tokens(&before, context) else {
            let why = format!("has something else than the context `{context}`, which would be lost");
            return Err(failed(&why).with_hint("name another file; `KUBECONFIG` may list several"));
        };
        Ok(Self::File {
            path,
            // Source: tempfile; its files have mode 0600.
            draft: NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).map_err(|error| failed(&error))?,
            replaced_tokens,
        })
    }

    /// Opens the kubeconfig that kubectl uses, without changing it.
    ///
    /// - `use_context`: whether the context becomes the current one.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn merged(use_context: bool) -> Result<Self, Failure> {
        MergedKubeconfig::open(use_context).map(Self::Merged)
    }

    /// Writes a kubeconfig with the context `name`; returns the ids of the tokens that it replaced.
    pub(super) fn write(
        self,
        format: Format,
        document: &Value,
        name: &str,
        out: &mut dyn Write,
    ) -> Result<Vec<Uuid>, Failure> {
        match self {
            Self::Stdout => {
                if document.pointer("/users/0/user/token").is_some() && others_read_output() {
                    print_error(
                        "the kubeconfig has a token, and others may read the file it is written to: use `--file`",
                    );
                }
                format.print(document, out)?;
                Ok(Vec::new())
            }
            Self::File {
                path,
                draft,
                replaced_tokens,
            } => {
                let text = Zeroizing::new(format.document(document)?);
                put(draft, path, text.as_bytes())
                    .map_err(|error| Failure::new("kubeconfig.file", format_args!("`{}`: {error}", path.display())))?;
                print(&format!("context {name} written to {}", path.display()), out)?;
                Ok(replaced_tokens)
            }
            Self::Merged(merged) => merged.write(document, name, out),
        }
    }
}

/// Revokes a token that is no longer in any file.
pub(super) fn revoke(server: &Server, id: Uuid) -> Result<(), Failure> {
    match token::revoke(server, id) {
        Err(error) if error.code != "token_not_found" => {
            let hint = format!("the new token is in place; `tollgate token revoke {id}` ends the one before");
            Err(error.with_hint(hint))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The ids of the tokens in a kubeconfig whose only context is `name`; `None` if the text has
/// anything else.
fn replaced_tokens(before: &str, name: &str) -> Option<Vec<Uuid>> {
    if before.trim().is_empty() {
        return Some(Vec::new());
    }
    let before: Value = serde_saphyr::from_str(before).ok()?;
    let is_one = |key: &str| matches!(items(&before, key), [only] if text_at(only, "/name") == name);
    if !["/contexts", "/clusters", "/users"].into_iter().all(is_one) {
        return None;
    }
    let extensions = items(&before, "/users/0/user/extensions").iter();
    let ours = extensions.filter(|extension| text_at(extension, "/name") == EXTENSION);
    let ids = ours.filter_map(|one| text_at(one, "/extension/id").parse().ok());
    Some(ids.collect())
}

fn put(mut draft: NamedTempFile, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    draft.write_all(bytes)?;
    draft.as_file().sync_all()?;
    draft.persist(path).map(drop).map_err(|error| error.error)
}

/// Whether standard output is a file that others than its owner may read.
fn others_read_output() -> bool {
    let Ok(output) = std::io::stdout().as_fd().try_clone_to_owned() else {
        return false;
    };
    let metadata = File::from(output).metadata();
    metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o077 != 0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Format, KubeconfigOutput, replaced_tokens, user};

    fn kubeconfig(name: &str, user: &Value) -> Value {
        json!({
            "clusters": [{"name": name, "cluster": {}}], "contexts": [{"name": name, "context": {}}],
            "users": [{"name": name, "user": user}],
        })
    }

    #[test]
    fn only_an_earlier_kubeconfig_of_the_context_is_replaced() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let made = kubeconfig("prod", &user("pat:9:tgpat-x", Some(&json!(id))));
        assert_eq!(
            replaced_tokens(&made.to_string(), "prod"),
            Some(vec![id.parse().unwrap()])
        );
        let without = kubeconfig("prod", &json!({"token": "x"}));
        assert_eq!(replaced_tokens(&without.to_string(), "prod"), Some(Vec::new()));
        assert_eq!(replaced_tokens("", "prod"), Some(Vec::new()));
        let mut two = made;
        two["contexts"].as_array_mut().unwrap().push(json!({"name": "mine"}));
        for other in [
            two.to_string(),
            kubeconfig("stage", &json!({})).to_string(),
            "notes".to_owned(),
            "{}".to_owned(),
            "a: [".to_owned(),
        ] {
            assert_eq!(replaced_tokens(&other, "prod"), None, "{other}");
        }
    }

    #[test]
    fn an_unwritable_path_is_reported_before_a_token_is_created() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("none/config"), folder.path().to_owned()] {
            let error = KubeconfigOutput::open(Some(&path), "prod").err().unwrap().to_string();
            assert!(error.starts_with("kubeconfig.file: "), "{error}");
        }
    }

    #[test]
    fn a_kubeconfig_file_is_private_and_complete() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        for (before, kept) in [(None, false), (Some(""), false), (Some("mine"), true)] {
            if let Some(text) = before {
                std::fs::write(&path, text).unwrap();
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
            }
            let opened = KubeconfigOutput::open(Some(&path), "prod");
            if kept {
                let error = opened.err().unwrap().to_string();
                assert!(error.contains("which would be lost"), "{error}");
                assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
                continue;
            }
            let document = kubeconfig("prod", &json!({"token": "x"}));
            let mut out = Vec::new();
            opened
                .unwrap()
                .write(Format::Yaml, &document, "prod", &mut out)
                .unwrap();
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let written: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            assert_eq!(written, document);
            assert!(!String::from_utf8(out).unwrap().contains("token"));
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
