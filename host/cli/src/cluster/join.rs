//! `tollgate cluster join`: makes a join token, prints the manifests of the agent with it, and writes the
//! gateway's Secret of the cluster with its hash.
//!
//! Security: the token is only in the manifests. The gateway's Secret has its hash, which may be in Git.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};
use url::Url;

use super::find::{ambiguous, gateway_secrets};
use super::{ArgocdClusterArgs, secret_failure};
use tollgate_agent::token;
use tollgate_client::api::runtime;
use tollgate_client::failure::Failure;
use tollgate_client::format::print;
use tollgate_client::input::confirm;
use tollgate_config::{Config, StateSource};
use tollgate_core::dns::is_label;
use tollgate_objects::ObjectName;
use tollgate_state::write::cluster_secret::{ClusterSecret, ClusterSecrets, SecretOwner, own_secret};

mod manifests;

use manifests::AgentManifests;

/// Longest life of a token.
const MAX_LIFETIME: Duration = Duration::from_hours(24 * 7);

#[derive(Args, Debug)]
pub(crate) struct Join {
    /// Name of the cluster
    name: String,
    /// URL of the gateway's public listener, as the agent reaches it
    #[arg(long, value_name = "URL")]
    gateway: Url,
    /// PEM file of the authorities that the agent trusts for the gateway; if omitted, the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// HTTP proxy between the agent and the gateway
    #[arg(long, value_name = "URL")]
    proxy: Option<Url>,
    /// Server of the cluster, as destinations of Applications name it; nothing dials it
    ///
    /// If omitted, `https://<NAME>.clusters.invalid`.
    #[arg(long, value_name = "URL")]
    cluster_server: Option<Url>,
    /// User that the gateway may act as, a glob; may be repeated
    #[arg(long = "user", value_name = "PATTERN")]
    users: Vec<String>,
    /// Group that the gateway may act as, a glob; may be repeated
    #[arg(long = "group", value_name = "PATTERN")]
    groups: Vec<String>,
    /// Service account that the gateway may act as, a glob; may be repeated
    #[arg(long = "service-account", value_name = "NAMESPACE:NAME")]
    service_accounts: Vec<String>,
    /// How many processes the agent has, 1 to 8
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    processes: u8,
    /// How long an agent may join with the token
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = lifetime)]
    token_lifetime: Duration,
    /// Namespace of the agent
    #[arg(long, value_name = "NAMESPACE", default_value = "tollgate-agent")]
    namespace: String,
    /// Image of the connector; that of the gateway serves too
    #[arg(long, value_name = "IMAGE", default_value = concat!("tollgate-connector:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// Write the gateway's Secret of the cluster into this file, to be applied or committed; if omitted, it is
    /// written to the cluster that the settings name
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    argocd: ArgocdClusterArgs,
    /// Write without confirmation
    #[arg(short, long)]
    yes: bool,
}

fn lifetime(text: &str) -> Result<Duration, String> {
    match tollgate_config::duration::parse(text) {
        Ok(lifetime) if lifetime > Duration::ZERO && lifetime <= MAX_LIFETIME => Ok(lifetime),
        Ok(_) => Err(format!(
            "must be more than zero and at most {} h",
            MAX_LIFETIME.as_secs() / 3600
        )),
        Err(error) => Err(error.to_string()),
    }
}

impl Join {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        self.check()?;
        let ca = self.ca.as_deref().map(read_ca).transpose()?;
        let token = token::generate().map_err(|error| Failure::new("cluster.token", error))?;
        let lifetime = SignedDuration::try_from(self.token_lifetime).unwrap_or(SignedDuration::ZERO);
        let expires_at = Timestamp::now().checked_add(lifetime).unwrap_or(Timestamp::MAX);
        // Whole seconds are enough for people.
        let expires_at = Timestamp::from_second(expires_at.as_second()).unwrap_or(expires_at);
        let join_token = json!({ "sha256": hex(&token::hash(&token)), "expiresAt": expires_at.to_string() });
        let written = match &self.secret_file {
            Some(file) => self.write_file(file, &join_token)?,
            None => self.write_secret(&join_token)?,
        };
        let manifests = AgentManifests {
            name: &self.name,
            gateway: &self.gateway,
            proxy: self.proxy.as_ref(),
            ca: ca.as_deref(),
            namespace: &self.namespace,
            image: &self.image,
            processes: self.processes,
            users: &self.users,
            groups: &self.groups,
            service_accounts: &self.service_accounts,
        };
        print(manifests.to_yaml(&token)?.trim_end(), out)?;
        tollgate_client::print_error(format_args!(
            "{written}; a connector can join until {expires_at}, with the manifests on standard output"
        ));
        Ok(())
    }

    fn check(&self) -> Result<(), Failure> {
        let wrong = |option: &str, why: &str| Err(Failure::new("cluster.option", format_args!("`{option}` {why}")));
        if !is_label(&self.name) {
            return wrong("NAME", "must be a DNS label: lower-case letters, digits and hyphens");
        }
        if !is_label(&self.namespace) {
            return wrong("--namespace", "is no name of a namespace");
        }
        if self.gateway.scheme() != "https" || !self.gateway.has_host() {
            return wrong("--gateway", "must be a URL of `https`");
        }
        if let Some(server) = &self.cluster_server
            && (server.scheme() != "https" || !server.has_host())
        {
            return wrong("--cluster-server", "must be a URL of `https`");
        }
        if let Some(wrong_one) = self.service_accounts.iter().find(|account| !account.contains(':')) {
            return wrong(
                "--service-account",
                &format!("is `{wrong_one}`; it must be NAMESPACE:NAME"),
            );
        }
        if self.users.is_empty() && self.groups.is_empty() && self.service_accounts.is_empty() {
            super::warn(
                "no `--user`, `--group` or `--service-account` is given: the connector lets the gateway act as nobody",
            );
        }
        Ok(())
    }

    fn server(&self) -> String {
        match &self.cluster_server {
            Some(server) => server.as_str().trim_end_matches('/').to_owned(),
            None => format!("https://{}.clusters.invalid", self.name),
        }
    }

    /// Writes a new Secret into a file.
    fn write_file(&self, file: &Path, join_token: &Value) -> Result<String, Failure> {
        let config = self.config(Map::new(), join_token);
        let failed = |error: std::io::Error| {
            Failure::new(
                "cluster.secret_file",
                format_args!("`{}` cannot be written: {error}", file.display()),
            )
        };
        let (namespace, owner) = match self.argocd.load_if_present()? {
            Some(config) => place(&config),
            None => ("argocd".to_owned(), SecretOwner::ArgoCd),
        };
        let secret = self.new_secret(&namespace, owner, &config);
        let values = secret.values.iter();
        let values: BTreeMap<&String, &str> = values.map(|(key, value)| (key, value.expose_secret())).collect();
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": secret.name.name, "namespace": secret.name.namespace, "labels": secret.labels },
            "stringData": values,
        });
        let text = serde_saphyr::to_string(&secret).map_err(|error| Failure::new("cluster.secret_file", error))?;
        let mut opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(file)
            .map_err(failed)?;
        opened.write_all(text.as_bytes()).map_err(failed)?;
        Ok(format!(
            "the gateway's Secret of the cluster is in `{}`",
            file.display()
        ))
    }

    /// Creates the Secret, or puts the token into the one that is there.
    fn write_secret(&self, join_token: &Value) -> Result<String, Failure> {
        let config = self.argocd.load()?;
        let StateSource::Kubernetes(state) = &config.state else {
            let message = "the state is a folder (`state.directory`), and no Secret of a cluster can be written there";
            let hint = "name a file in that folder with `--secret-file`";
            return Err(Failure::new("cluster.state", message).with_hint(hint));
        };
        let (namespace, owner) = place(&config);
        let server = self.server();
        let failed = |error| secret_failure(&error);
        let runtime = runtime()?;
        let secrets = runtime.block_on(ClusterSecrets::open(state)).map_err(failed)?;
        let all = runtime.block_on(secrets.list(&namespace, owner)).map_err(failed)?;
        let what = match gateway_secrets(&all, &server).as_slice() {
            [] => {
                self.confirm(&format!("create the Secret `{namespace}/cluster-{}`?", self.name))?;
                let secret = self.new_secret(&namespace, owner, &self.config(Map::new(), join_token));
                runtime.block_on(secrets.create(&secret)).map_err(failed)?;
                "created"
            }
            [there] => {
                let agent = agent_of(there)?;
                let name = &there.name.name;
                self.confirm(&format!("put another join token into the Secret `{namespace}/{name}`?"))?;
                let config = self.config(agent, join_token);
                runtime
                    .block_on(secrets.replace_config(there, &config))
                    .map_err(failed)?;
                "changed"
            }
            several => return Err(ambiguous(several)),
        };
        Ok(format!("the gateway's Secret of the cluster is {what}"))
    }

    fn confirm(&self, question: &str) -> Result<(), Failure> {
        match self.yes {
            true => Ok(()),
            false => confirm(question, "cluster.unconfirmed", "nothing was changed"),
        }
    }

    /// `config` of the Secret.
    ///
    /// - `agent`: what `config.agent` has now.
    fn config(&self, mut agent: Map<String, Value>, join_token: &Value) -> SecretString {
        agent.insert("joinToken".to_owned(), join_token.clone());
        if self.processes > 1 {
            agent.insert("processes".to_owned(), self.processes.into());
        }
        SecretString::from(json!({ "agent": agent }).to_string())
    }

    fn new_secret(&self, namespace: &str, owner: SecretOwner, config: &SecretString) -> ClusterSecret {
        let name = ObjectName {
            namespace: namespace.to_owned(),
            name: format!("cluster-{}", self.name),
        };
        let values = BTreeMap::from([
            ("name".to_owned(), SecretString::from(self.name.as_str())),
            ("server".to_owned(), SecretString::from(self.server())),
            ("config".to_owned(), config.clone()),
        ]);
        let (label, value) = owner.label();
        ClusterSecret {
            labels: BTreeMap::from([(label.to_owned(), value.to_owned())]),
            ..own_secret(name, values, BTreeMap::new())
        }
    }
}

/// Where the gateway's Secrets of clusters are: its own, or Argo CD's if Argo CD does not go through it.
fn place(config: &Config) -> (String, SecretOwner) {
    let own = match &config.state {
        StateSource::Kubernetes(state) => state.credentials_namespace.clone(),
        // Any namespace but Argo CD's will do in a folder.
        StateSource::Directory(_) => config.control_plane.as_ref().map(|_| "tollgate".to_owned()),
    };
    match own {
        Some(namespace) => (namespace, SecretOwner::Gateway),
        None => (config.control_plane_namespace.clone(), SecretOwner::ArgoCd),
    }
}

/// What `config.agent` of a Secret has. A Secret with a credential of another kind stays as it is.
fn agent_of(secret: &ClusterSecret) -> Result<Map<String, Value>, Failure> {
    let config: Value = serde_json::from_str(secret.config()).unwrap_or_default();
    match config.get("agent").and_then(Value::as_object) {
        Some(agent) => Ok(agent.clone()),
        None => {
            let message = format!("the Secret `{}` has a credential for the cluster", secret.name.name);
            let hint = "a cluster with a connector needs none: delete the Secret first";
            Err(Failure::new("cluster.credential_exists", message).with_hint(hint))
        }
    }
}

fn read_ca(file: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::new("cluster.ca", format_args!("`--ca {}`: {error}", file.display()));
    let pem = std::fs::read_to_string(file).map_err(failed)?;
    match pem.contains("-----BEGIN CERTIFICATE-----") {
        true => Ok(pem),
        false => Err(Failure::new(
            "cluster.ca",
            format_args!("`--ca {}` has no certificate", file.display()),
        )),
    }
}

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
