//! Where the credential of a login is kept on this machine: the keyring of the desktop, or a file that
//! only its owner may read.
//!
//! A keyring is used only if it takes and gives back a value; else the file is used, and that is said.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap::ValueEnum;
use keyring_core::api::CredentialStoreApi as _;
use keyring_core::{Entry, Error as KeyringError};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{folder, private_folder, write_private};
use crate::failure::{Failure, root_cause};
use crate::print_error;

/// How long a keyring may take. One that is locked asks its user first.
const KEYRING_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest credential, in bytes.
const MAX_BYTES: u64 = 4096;
/// The name of this program's entries in a keyring.
const SERVICE: &str = "tollgate";

/// Where to keep a credential, as the person says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreChoice {
    /// The keyring if there is one, else a file
    #[default]
    Auto,
    /// The desktop's keyring (Secret Service)
    Keyring,
    /// A file that only you may read
    File,
}

/// Where a credential is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CredentialStore {
    Keyring,
    File,
}

impl StoreChoice {
    /// Keeps a credential. Returns where it is.
    pub(crate) fn save(self, context: &str, credential: &SecretString) -> Result<CredentialStore, Failure> {
        match self {
            Self::File => {}
            Self::Keyring => {
                CredentialStore::Keyring.save(context, credential)?;
                return Ok(CredentialStore::Keyring);
            }
            Self::Auto => match CredentialStore::Keyring.save(context, credential) {
                Ok(()) => return Ok(CredentialStore::Keyring),
                Err(failure) => print_error(format_args!("the credential is kept in a file: {}", failure.message)),
            },
        }
        CredentialStore::File.save(context, credential)?;
        Ok(CredentialStore::File)
    }
}

impl CredentialStore {
    fn save(self, context: &str, credential: &SecretString) -> Result<(), Failure> {
        match self {
            Self::File => {
                let path = file(context)?;
                let kept = path.parent().map_or(Ok(()), private_folder);
                let kept = kept.and_then(|()| write_private(&path, credential.expose_secret().as_bytes()));
                kept.map_err(|error| Failure::new("credential.file", format_args!("`{}`: {error}", path.display())))
            }
            Self::Keyring => {
                let secret = Zeroizing::new(credential.expose_secret().to_owned());
                with_keyring(context, move |entry| {
                    entry.set_password(&secret)?;
                    // A keyring may take what it does not keep.
                    match *Zeroizing::new(entry.get_password()?) == *secret {
                        true => Ok(()),
                        false => Err(KeyringError::NoEntry),
                    }
                })
            }
        }
    }

    pub(super) fn load(self, context: &str) -> Result<SecretString, Failure> {
        match self {
            Self::File => {
                let path = file(context)?;
                let wrong = |why: &dyn std::fmt::Display| {
                    Failure::new("credential.file", format_args!("`{}`: {why}", path.display()))
                        .with_hint(format!("sign in again with `tollgate login --context {context}`"))
                };
                let opened = fs::File::open(&path).map_err(|error| wrong(&error))?;
                let mode = opened.metadata().map_err(|error| wrong(&error))?.permissions().mode() & 0o777;
                if mode & 0o077 != 0 {
                    return Err(wrong(&format!(
                        "others may read it (mode {mode:o}), so it counts as known to them"
                    )));
                }
                let mut text = Zeroizing::new(String::new());
                let read = opened.take(MAX_BYTES).read_to_string(&mut text);
                read.map_err(|error| wrong(&error))?;
                Ok(SecretString::from(text.trim()))
            }
            Self::Keyring => with_keyring(context, |entry| entry.get_password().map(SecretString::from)),
        }
    }

    pub(super) fn delete(self, context: &str) -> Result<(), Failure> {
        match self {
            Self::File => {
                let path = file(context)?;
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        let message = format!("`{}`: {error}", path.display());
                        Err(Failure::new("credential.file", message))
                    }
                    Ok(()) | Err(_) => Ok(()),
                }
            }
            Self::Keyring => with_keyring(context, |entry| match entry.delete_credential() {
                Err(KeyringError::NoEntry) => Ok(()),
                deleted => deleted,
            }),
        }
    }

    /// Where people find it.
    pub(crate) fn describe(self, context: &str) -> String {
        match self {
            Self::Keyring => "in the keyring".to_owned(),
            Self::File => match file(context) {
                Ok(path) => format!("in `{}`, which only you may read", path.display()),
                Err(_) => "in a file".to_owned(),
            },
        }
    }
}

fn file(context: &str) -> Result<PathBuf, Failure> {
    // A name may have any character, a file name may not.
    let name: String = percent_encoding::utf8_percent_encode(context, percent_encoding::NON_ALPHANUMERIC).collect();
    Ok(folder()?.join("credentials").join(name))
}

/// Uses an entry of the keyring, for a limited time: one that is locked waits for its user.
fn with_keyring<T: Send + 'static>(
    context: &str,
    work: impl FnOnce(&Entry) -> Result<T, KeyringError> + Send + 'static,
) -> Result<T, Failure> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let user = context.to_owned();
    let work = move || {
        let store = zbus_secret_service_keyring_store::Store::new()?;
        work(&store.build(SERVICE, &user, None)?)
    };
    std::thread::spawn(move || {
        // Nobody waits any more after the time limit.
        let _ = sender.send(work());
    });
    let hint = format!("unlock it, or sign in again with `tollgate login --context {context} --store file`");
    match receiver.recv_timeout(KEYRING_TIMEOUT) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(KeyringError::NoEntry)) => {
            let message = format!("the keyring has no credential of context `{context}`");
            Err(Failure::new("credential.keyring", message)
                .with_hint(format!("sign in again with `tollgate login --context {context}`")))
        }
        Ok(Err(error)) => {
            // The libraries repeat each cause in those above it.
            let message = format!("the keyring cannot be used: {}", root_cause(&error));
            Err(Failure::new("credential.keyring", message).with_hint(hint))
        }
        Err(_) => {
            let message = format!("the keyring did not answer within {KEYRING_TIMEOUT:?}; it may be locked");
            Err(Failure::new("credential.keyring", message).with_hint(hint))
        }
    }
}
