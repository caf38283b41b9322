//! `tollgate context`, and the file of contexts: the gateways that `tollgate login` signed in to, with
//! their certificate authority. Commands use the current one unless another one is given.
//!
//! Security: the file has no secret. The credential of each login is in [`CredentialStore`].

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::age::time_left;
use super::failure::Failure;
use super::format::{Format, print};
use super::list_output::{Table, print_items, text_at, time_at};

mod store;

pub(crate) use store::{CredentialStore, StoreChoice};

/// Longest file that is read, in bytes.
const FILE_BYTES: u64 = 4 << 20;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the gateways you signed in to
    List {
        /// Output format
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Make a context the current one
    Use {
        /// Name of the context
        name: String,
    },
    /// Remove a context and its credential from this machine
    ///
    /// The login at the gateway stays; `tollgate logout` ends it.
    Remove {
        /// Name of the context
        name: String,
    },
}

/// All contexts of a person on this machine.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Contexts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: Vec<Context>,
}

/// A gateway that somebody signed in to.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Context {
    pub(crate) name: String,
    pub(crate) server: String,
    /// PEM of the authorities to trust; the system's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_authority: Option<String>,
    pub(crate) user: String,
    pub(crate) issuer: String,
    pub(crate) expires_at: Timestamp,
    pub(crate) store: CredentialStore,
}

impl Command {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut contexts = Contexts::load()?;
        match self {
            Self::List { output } => {
                let current = contexts.current.clone();
                let items: Vec<Value> = contexts
                    .contexts
                    .iter()
                    .map(|context| {
                        json!({
                            "current": current.as_ref() == Some(&context.name),
                            "name": context.name,
                            "server": context.server,
                            "user": context.user,
                            "issuer": context.issuer,
                            "expiresAt": context.expires_at,
                            "store": context.store,
                        })
                    })
                    .collect();
                print_items(&json!({ "items": items }), *output, &TABLE, out)
            }
            Self::Use { name } => {
                contexts.named(name)?;
                contexts.current = Some(name.clone());
                contexts.save()?;
                print(&format!("context {name} is current"), out)
            }
            Self::Remove { name } => {
                contexts.named(name)?.forget()?;
                contexts.remove(name);
                contexts.save()?;
                print(&format!("context {name} removed"), out)
            }
        }
    }
}

impl Contexts {
    /// Reads the file; no contexts if there is none.
    pub(crate) fn load() -> Result<Self, Failure> {
        match folder() {
            Ok(folder) => Self::load_from(&folder.join(FILE)),
            // Without a home, nobody has signed in here.
            Err(_) => Ok(Self::default()),
        }
    }

    fn load_from(path: &Path) -> Result<Self, Failure> {
        let wrong = |why: &dyn std::fmt::Display| {
            Failure::new("context.file", format_args!("`{}`: {why}", path.display()))
                .with_hint("correct it, or remove it and sign in again with `tollgate login`")
        };
        let text = match fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Ok(file) if file.len() > FILE_BYTES => return Err(wrong(&format!("is longer than {FILE_BYTES} bytes"))),
            _ => fs::read_to_string(path).map_err(|error| wrong(&error))?,
        };
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(&text).map_err(|error| {
            let text = error.to_string();
            wrong(&text.lines().next().unwrap_or_default().trim())
        })
    }

    /// Writes the file, readable only by its owner.
    pub(crate) fn save(&self) -> Result<(), Failure> {
        let folder = folder()?;
        let path = folder.join(FILE);
        let written = private_folder(&folder).and_then(|()| {
            let text = Format::Yaml.document(self)?;
            write_private(&path, text.as_bytes())
        });
        written.map_err(|error| Failure::new("context.file", format_args!("`{}`: {error}", path.display())))
    }

    pub(crate) fn named(&self, name: &str) -> Result<&Context, Failure> {
        let found = self.contexts.iter().find(|context| context.name == name);
        found.ok_or_else(|| {
            let failure = Failure::new("context.unknown", format_args!("there is no context `{name}`"));
            failure.with_hint("`tollgate context list` shows those there are, `tollgate login` makes one")
        })
    }

    /// The context that a command uses: the one it names, the one for a server, or the current one.
    pub(crate) fn choose(&self, name: Option<&str>, server: Option<&str>) -> Result<Option<&Context>, Failure> {
        if let Some(name) = name {
            return self.named(name).map(Some);
        }
        let current = self.current.as_ref();
        let is_current = |context: &&Context| Some(&context.name) == current;
        let Some(server) = server else {
            return Ok(self.contexts.iter().find(is_current));
        };
        let trimmed = |text: &str| text.trim_end_matches('/').to_owned();
        let of_server = || {
            let all = self.contexts.iter();
            all.filter(|context| trimmed(&context.server) == trimmed(server))
        };
        Ok(of_server().find(is_current).or_else(|| of_server().next()))
    }

    /// Adds a context, or replaces the one of the same name.
    pub(crate) fn put(&mut self, context: Context) {
        match self.contexts.iter_mut().find(|one| one.name == context.name) {
            Some(before) => *before = context,
            None => self.contexts.push(context),
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.contexts.retain(|context| context.name != name);
        if self.current.as_deref() == Some(name) {
            self.current = None;
        }
    }
}

impl Context {
    /// The credential of the login.
    pub(crate) fn credential(&self) -> Result<SecretString, Failure> {
        self.store.load(&self.name)
    }

    /// Removes the credential from this machine.
    pub(crate) fn forget(&self) -> Result<(), Failure> {
        self.store.delete(&self.name)
    }
}

const FILE: &str = "config.yaml";

/// The folder of contexts and credentials: `$TOLLGATE_HOME`, else `tollgate` in the user's folder of
/// settings.
pub(crate) fn folder() -> Result<PathBuf, Failure> {
    let folder = variable("TOLLGATE_HOME")
        .or_else(|| Some(variable("XDG_CONFIG_HOME")?.join("tollgate")))
        .or_else(|| Some(variable("HOME")?.join(".config/tollgate")));
    folder.ok_or_else(|| {
        Failure::new("context.folder", "there is no folder for settings: `HOME` is not set")
            .with_hint("set `TOLLGATE_HOME`")
    })
}

/// The path in an environment variable, unless it is empty.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// Makes a folder that only its owner may enter.
pub(crate) fn private_folder(folder: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mode = fs::metadata(folder)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!(
            "others may enter it (mode {mode:o}); run `chmod 700 {}`",
            folder.display()
        );
        return Err(std::io::Error::other(why));
    }
    Ok(())
}

/// Writes a file that only its owner may read, whole or not at all.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // Source: tempfile; its files have mode 0600.
    let mut draft = tempfile::NamedTempFile::new_in(folder)?;
    draft.write_all(content)?;
    draft.as_file().sync_all()?;
    draft.persist(path).map(drop).map_err(|error| error.error)
}

const TABLE: Table = Table {
    columns: &["CURRENT", "NAME", "SERVER", "USER", "EXPIRES", "CREDENTIAL"],
    row,
    empty_message: "No contexts: sign in with `tollgate login --server URL`.",
};

fn row(item: &Value) -> Vec<String> {
    let is_current = item.get("current").and_then(Value::as_bool).unwrap_or_default();
    vec![
        if is_current { "*" } else { "" }.to_owned(),
        text_at(item, "/name"),
        text_at(item, "/server"),
        text_at(item, "/user"),
        time_at(item, "/expiresAt").map_or_else(String::new, |end| time_left(end, Timestamp::now())),
        text_at(item, "/store"),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Context, Contexts, CredentialStore};

    fn context(name: &str, server: &str) -> Context {
        Context {
            name: name.to_owned(),
            server: server.to_owned(),
            certificate_authority: None,
            user: "ann".to_owned(),
            issuer: "argocd".to_owned(),
            expires_at: jiff::Timestamp::UNIX_EPOCH,
            store: CredentialStore::File,
        }
    }

    #[test]
    fn a_command_uses_the_context_it_names_else_that_of_its_server_else_the_current_one() {
        let mut contexts = Contexts::default();
        contexts.put(context("a", "https://a.example"));
        contexts.put(context("b", "https://b.example/"));
        contexts.put(context("b2", "https://b.example"));
        contexts.current = Some("b2".to_owned());
        let chosen = |name, server| {
            let chosen = contexts.choose(name, server).unwrap();
            chosen.map(|context| context.name.as_str())
        };
        assert_eq!(chosen(None, None), Some("b2"));
        assert_eq!(chosen(Some("a"), None), Some("a"));
        assert_eq!(chosen(None, Some("https://a.example/")), Some("a"));
        assert_eq!(chosen(None, Some("https://b.example")), Some("b2"));
        assert_eq!(chosen(None, Some("https://c.example")), None);
        let error = contexts.choose(Some("c"), None).unwrap_err().to_string();
        assert!(
            error.starts_with("context.unknown: there is no context `c` ("),
            "{error}"
        );
        contexts.remove("b2");
        assert_eq!(contexts.choose(None, None).unwrap(), None);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        assert!(Contexts::load_from(&path).unwrap().contexts.is_empty());
        std::fs::write(&path, "contexts: [{nam: x}]").unwrap();
        let error = Contexts::load_from(&path).unwrap_err().to_string();
        assert!(
            error.contains(&path.display().to_string()) && error.contains("tollgate login"),
            "{error}"
        );
    }
}
