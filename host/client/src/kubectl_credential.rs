//! `tollgate kubectl-credential`: what kubectl runs to get a token (client-go's exec plugins). The token
//! is for one agent, or for clusters by name and of Applications, lasts 15 minutes, and is kept until a
//! minute before its end.
//!
//! Security: the token is for one person, one gateway and one agent, in a file that only its owner may
//! read.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::json;
use zeroize::Zeroizing;

use super::api::Server;
use super::context::{Context, Contexts, private_folder, variable, write_private};
use super::exec_info;
use super::failure::Failure;
use super::format::print;

/// How long before its end a token is renewed.
const EARLY: SignedDuration = SignedDuration::from_secs(60);
/// Longest file that is read, in bytes.
const FILE_BYTES: u64 = 16 * 1024;

#[derive(Debug, Args)]
pub struct KubectlCredential {
    /// Context of `tollgate login`; if omitted, the current one
    #[arg(long, value_name = "NAME", env = "TOLLGATE_CONTEXT")]
    context: Option<String>,
    /// Agent that the token is for, by name or number; if omitted, clusters by name and of Applications
    #[arg(long, value_name = "NAME|ID")]
    agent: Option<String>,
    /// What kubectl says about the cluster, from which the API version is taken
    #[arg(long, env = "KUBERNETES_EXEC_INFO", hide = true)]
    exec_info: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct KeptToken {
    /// The login that it belongs to, as a hash.
    login: String,
    bearer: String,
    expires_at: Timestamp,
}

impl KubectlCredential {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let version = self.version()?;
        let contexts = Contexts::load()?;
        let context = contexts.choose(self.context.as_deref(), None)?;
        let context = context.ok_or_else(|| {
            Failure::new("context.unknown", "nobody is signed in here")
                .with_hint("sign in with `tollgate login --server URL`")
        })?;
        let token = self.token(context)?;
        let document = json!({
            "apiVersion": version,
            "kind": "ExecCredential",
            "status": {
                "token": token.bearer,
                "expirationTimestamp": whole_seconds(early(token.expires_at)),
            },
        });
        let text = Zeroizing::new(document.to_string());
        print(&text, out)
    }

    fn version(&self) -> Result<&'static str, Failure> {
        exec_info::version(self.exec_info.as_deref()).map(<&str>::from)
    }

    /// The token that is kept, or a new one. Processes that run at the same time make one.
    fn token(&self, context: &Context) -> Result<KeptToken, Failure> {
        let credential = context.credential()?;
        let login = fingerprint(&credential);
        let path = self.path(context);
        // Without a place to keep it, each call makes a token.
        let lock = path.as_deref().ok().and_then(|path| lock(path).ok());
        let kept = path.as_deref().ok().and_then(read).filter(|kept| kept.login == login);
        let now = Timestamp::now();
        let kept = match kept {
            Some(kept) if early(kept.expires_at) > now => return Ok(kept),
            other => other,
        };
        let made = self.make(context, credential, &login);
        match (made, kept) {
            (Ok(token), _) => {
                if let Ok(path) = &path {
                    let text = serde_json::to_vec(&token).map(Zeroizing::new).unwrap_or_default();
                    // The next call makes another one if this fails.
                    let _ = write_private(path, &text);
                }
                drop(lock);
                Ok(token)
            }
            // Offline, the last minute of the token is better than nothing.
            (Err(failure), Some(kept)) if failure.code == "gateway.unreachable" && kept.expires_at > now => Ok(kept),
            (Err(failure), _) => Err(failure),
        }
    }

    fn make(&self, context: &Context, credential: SecretString, login: &str) -> Result<KeptToken, Failure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Made {
            bearer: String,
            expires_at: Timestamp,
        }
        let gateway = Server::anonymous(context.server.clone(), context.certificate_authority.clone());
        let gateway = gateway.with_token(credential);
        let content = match &self.agent {
            Some(agent) => json!({ "agent": agent }),
            None => json!({}),
        };
        let request = gateway.request(Method::POST, &["login", "kubectl-tokens"], hint);
        let answer = request.content(content).send().map_err(|failure| {
            let is_over = matches!(
                &*failure.code,
                "invalid_token" | "token_expired" | "token_revoked" | "unknown_login"
            );
            match is_over {
                true => failure.with_hint(format!(
                    "sign in again with `tollgate login --context {}`",
                    context.name
                )),
                false => failure,
            }
        })?;
        let made: Made =
            serde_json::from_slice(&answer).map_err(|_| Failure::new("gateway.answer", "the answer has no token"))?;
        Ok(KeptToken {
            login: login.to_owned(),
            bearer: made.bearer,
            expires_at: made.expires_at,
        })
    }

    /// The file of a token: one for each context and agent.
    fn path(&self, context: &Context) -> std::io::Result<PathBuf> {
        let folder = variable("TOLLGATE_HOME")
            .map(|home| home.join("cache"))
            .or_else(|| Some(variable("XDG_RUNTIME_DIR")?.join("tollgate")))
            .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("tollgate")))
            .or_else(|| Some(variable("HOME")?.join(".cache/tollgate")))
            .ok_or_else(|| std::io::Error::other("`HOME` is not set"))?;
        private_folder(&folder)?;
        let agent = self.agent.as_deref().unwrap_or_default();
        let name = format!("{}\n{}\n{agent}", context.server, context.name);
        Ok(folder.join(format!("kubectl-{}", fingerprint(&SecretString::from(name)))))
    }
}

fn early(end: Timestamp) -> Timestamp {
    end.checked_sub(EARLY).unwrap_or(end)
}

/// Kubernetes reads whole seconds.
pub(crate) fn whole_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// The first half of a hash, in hex.
fn fingerprint(secret: &SecretString) -> String {
    use sha2::{Digest as _, Sha256};
    let hash = Sha256::digest(secret.expose_secret());
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn read(path: &Path) -> Option<KeptToken> {
    let mut text = Zeroizing::new(String::new());
    File::open(path).ok()?.take(FILE_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Holds others back who want the same token, until it is dropped.
fn lock(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path.with_extension("lock"))?;
    file.lock()?;
    Ok(file)
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "agent_not_found" => Some("`tollgate agent list` shows those that are"),
        "not_a_login" => Some("sign in with `tollgate login`"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{KubectlCredential, early, whole_seconds};

    fn command(info: Option<&str>) -> KubectlCredential {
        KubectlCredential {
            context: None,
            agent: None,
            exec_info: info.map(str::to_owned),
        }
    }

    #[test]
    fn the_version_is_the_one_that_kubectl_speaks() {
        let version = |info| command(info).version();
        assert_eq!(version(None).unwrap(), "client.authentication.k8s.io/v1");
        let beta = r#"{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential"}"#;
        assert_eq!(version(Some(beta)).unwrap(), "client.authentication.k8s.io/v1beta1");
        let error = version(Some(r#"{"apiVersion":"v9"}"#)).unwrap_err().to_string();
        assert!(error.contains("`v9` is not one of"), "{error}");
        version(Some("x")).unwrap_err();
    }

    #[test]
    fn a_token_is_renewed_a_minute_early() {
        let end: Timestamp = "2026-01-01T00:15:00.5Z".parse().unwrap();
        assert_eq!(whole_seconds(early(end)), "2026-01-01T00:14:00Z");
    }
}
