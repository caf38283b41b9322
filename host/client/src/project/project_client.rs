//! Reads and writes AppProjects: in the state that the settings name, or on a running gateway. One
//! command uses only one of them.

use std::path::PathBuf;

use clap::Args;
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::api::{Server, runtime};
use crate::failure::Failure;
use crate::format::Format;
use crate::print_error;
use tollgate_config::{Config, raw};
use tollgate_objects::ObjectName;
use tollgate_policy::account_entries as change;
use tollgate_state::write::{self, ObjectKey, ResourceVersion, WritableKind, Writer};

/// Reason code of a write that is based on an older version.
pub(super) const CONFLICT: &str = "conflict";

#[derive(Debug, Args)]
pub struct ProjectClientArgs {
    /// Settings file of the gateway whose state to read and write, unless --server is given
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "tollgate.yaml",
        env = "TOLLGATE_CONFIG"
    )]
    config: PathBuf,
    /// URL of a running gateway, whose API to use instead of the state
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Token that authenticates you to the gateway
    #[arg(long, env = "TOLLGATE_AUTH_TOKEN", hide_env_values = true)]
    auth_token: Option<SecretString>,
    /// PEM file of the certificate authorities to trust instead of the system's
    #[arg(long, value_name = "FILE", requires = "server")]
    certificate_authority: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Format,
}

#[derive(Debug)]
pub(super) enum ProjectClient {
    State(Box<Config>),
    Gateway(Server),
}

impl ProjectClientArgs {
    /// Reads the settings, unless `--server` names a gateway. Prints mistakes in the settings.
    pub(super) fn open(&self) -> Result<ProjectClient, Failure> {
        if let Some(server) = &self.server {
            return Ok(ProjectClient::Gateway(Server {
                server: Some(server.clone()),
                auth_token: self.auth_token.clone(),
                certificate_authority: self.certificate_authority.clone(),
                ..Server::default()
            }));
        }
        let loaded = raw::load(&self.config);
        let Some(config) = loaded.value else {
            loaded.diagnostics.iter().for_each(print_error);
            let message = format!("`{}` cannot be used", self.config.display());
            return Err(Failure::new("settings", message).with_hint("or name a running gateway with `--server`"));
        };
        Ok(ProjectClient::State(Box::new(config)))
    }
}

impl ProjectClient {
    pub(super) fn list(&self) -> Result<Value, Failure> {
        match self {
            Self::State(config) => {
                let namespace = &config.control_plane_namespace;
                let listed = with_writer(config, async |writer| {
                    writer.list(WritableKind::AppProject, namespace).await
                })?;
                let items: Vec<Value> = listed.into_iter().map(|stored| stored.object).collect();
                Ok(json!({
                    "apiVersion": WritableKind::AppProject.api_version(), "kind": "AppProjectList",
                    "metadata": {}, "items": items,
                }))
            }
            Self::Gateway(server) => server.get(&["tollgate", "projects"], hint).json(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Result<Value, Failure> {
        match self {
            Self::State(config) => {
                let key = key(config, name);
                Ok(with_writer(config, async |writer| writer.read(&key).await)?.object)
            }
            Self::Gateway(server) => server.get(&["tollgate", "projects", name], hint).json(),
        }
    }

    /// Stores a project that was read and changed; returns it as it is now stored.
    ///
    /// # Errors
    /// [`CONFLICT`] if another version is stored by now.
    pub(super) fn put(&self, name: &str, wanted: Value) -> Result<Value, Failure> {
        match self {
            Self::State(config) => {
                let semantics = config.applications.unwrap_or_default().semantics;
                change::validate(&wanted, semantics).map_err(|error| change_failure(&error))?;
                let version = wanted.pointer("/metadata/resourceVersion").and_then(Value::as_str);
                let version = ResourceVersion::new(version.unwrap_or_default());
                let key = key(config, name);
                let stored = with_writer(config, async |writer| writer.replace(&key, wanted, &version).await)?;
                Ok(stored.object)
            }
            Self::Gateway(server) => {
                let request = server.request(Method::PUT, &["tollgate", "projects", name], hint);
                request.content(json!({ "project": wanted })).json()
            }
        }
    }
}

fn with_writer<T>(config: &Config, work: impl AsyncFnOnce(Writer) -> Result<T, write::Error>) -> Result<T, Failure> {
    let done = async { work(Writer::open(config).await?).await };
    runtime()?.block_on(done).map_err(|error| state_failure(&error))
}

fn key(config: &Config, name: &str) -> ObjectKey {
    ObjectKey {
        kind: WritableKind::AppProject,
        name: ObjectName {
            namespace: config.control_plane_namespace.clone(),
            name: name.to_owned(),
        },
    }
}

/// A failure of the state. Its message may have paths, which only operators see.
fn state_failure(error: &write::Error) -> Failure {
    let (_, code) = error.answer();
    let failure = Failure::new(code, tollgate_core::diagnostic::with_causes(error));
    match hint(code) {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

pub(super) fn change_failure(error: &change::Error) -> Failure {
    let code = match error {
        change::Error::Present => "project.present",
        change::Error::Absent => "project.absent",
        change::Error::Differs(_) | change::Error::Shape { .. } | change::Error::Invalid(_) => "project_invalid",
    };
    Failure::new(code, error)
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        CONFLICT => Some("others keep changing it, try again"),
        "permission_denied" => Some("changes need `projects, get` and `projects, update` on the project"),
        "project_not_found" => Some("`tollgate project list` shows those there are"),
        _ => None,
    }
}
