//! `tollgate cluster`: has Argo CD reach a cluster through the gateway, and takes that back. It changes
//! Argo CD's Secret of the cluster and the gateway's own, at the API server that the settings or
//! `--kubeconfig` name, and needs no running gateway for the way back.
//!
//! Invariant: at every moment one of the two Secrets has a credential for the cluster, and a run that
//! broke off is completed by running the command again. In the cluster that Argo CD runs in, the account
//! of its pods takes the place of a credential in its Secret, and in one with a connector, the connector.
//! Security: no credential is printed; a diff shows `…` in its place.

use std::borrow::Cow;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use secrecy::SecretString;
use zeroize::Zeroizing;

use super::credential::local::require_loaded;
use tollgate_client::answer::SettingsArgs;
use tollgate_client::failure::Failure;
use tollgate_client::input::{confirm, read_file_or_stdin};
use tollgate_config::{Config, ControlPlane, KubernetesState, StateSource, raw};
use tollgate_objects::Resources;
use tollgate_policy::applications::ApplicationIndex;
use tollgate_policy::impersonate::service_account::ImpersonationRules;
use tollgate_state::write::cluster_secret::{self, ClusterSecret, ClusterSecrets, SecretOwner};

mod connectors;
mod destination;
mod diff;
mod enroll;
mod find;
mod gateway;
mod in_cluster;
mod join;
mod plan;
mod release;
#[cfg(test)]
mod tests;

pub(crate) use destination::{NAMES_NO_ACCOUNT, why_no_account};

/// Most bytes that are read from a token file.
const TOKEN_BYTES: u64 = 16 * 1024;

/// The page that describes what the commands do by themselves.
const PAGE: &str = "docs/behind-argocd.md";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Have Argo CD reach a cluster through the gateway
    ///
    /// Moves the cluster's credential from Argo CD's Secret into one of the gateway's, and puts the
    /// gateway into its place. The cluster's server and name stay the same, so Applications need no change.
    /// A cluster that joined by a connector gets a Secret of Argo CD.
    /// Checks everything first, and changes nothing if a check fails.
    #[command(
        after_help = "Example:\n  tollgate cluster enroll prod --proxy-url https://tollgate.tollgate.svc \
                            --ca ca.pem --token-file token --dry-run"
    )]
    Enroll(enroll::Enroll),
    /// Have Argo CD reach an enrolled cluster by itself again
    ///
    /// Puts the credential back into Argo CD's Secret and deletes the gateway's. Needs no running gateway.
    Release(release::Release),
    /// Have a cluster that the gateway cannot dial join it by a connector
    ///
    /// Prints the manifests of the connector, with a token that one connector can use once, and writes the
    /// gateway's Secret of the cluster, which has the token's hash.
    #[command(
        after_help = "Example:\n  tollgate cluster join prod --gateway https://tollgate.example.com \\\n    \
                            --user '*@corp.example' --group 'corp:*' --secret-file prod.yaml | kubectl apply -f -"
    )]
    Join(Box<join::Join>),
    /// Show the connectors of a cluster that are connected, and the keys by which the gateway knows them
    #[command(alias = "agents", after_help = "Example:\n  tollgate cluster connectors prod")]
    Connectors(connectors::Connectors),
    /// Revoke the key of a connector that joined
    ///
    /// Its connections end within a second, on every replica of the gateway. The key never becomes
    /// valid again: `tollgate cluster join` lets the connector join with another one.
    #[command(after_help = "Example:\n  tollgate cluster revoke-key prod 1f0c…")]
    RevokeKey(connectors::RevokeKey),
}

/// `--config`, `--kubeconfig` and `--context`.
#[derive(Args, Clone, Debug)]
pub(super) struct ArgocdClusterArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Kubeconfig of the cluster where Argo CD runs; if omitted, the one of the settings
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; if omitted, its current one
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
}

impl ArgocdClusterArgs {
    /// The settings; `None` if there is no such file.
    pub(super) fn load_if_present(&self) -> Result<Option<Config>, Failure> {
        match self.settings.config.exists() {
            true => self.load().map(Some),
            false => Ok(None),
        }
    }

    /// The settings, with the API server that the options name. They change nothing about a folder.
    pub(super) fn load(&self) -> Result<Config, Failure> {
        let mut config = require_loaded(raw::load(&self.settings.config))?;
        if let (StateSource::Kubernetes(state), Some(file)) = (&mut config.state, &self.kubeconfig) {
            state.kubeconfig = Some(file.clone());
            state.context.clone_from(&self.context);
        }
        Ok(config)
    }
}

/// What both commands take.
#[derive(Debug, Args)]
struct ChangeArgs {
    /// Cluster, by name or API server URL
    cluster: String,
    #[command(flatten)]
    argocd: ArgocdClusterArgs,
    /// Check and print the change without making it
    #[arg(long)]
    dry_run: bool,
    /// Change without confirmation
    #[arg(short, long)]
    yes: bool,
}

/// The Secrets of all clusters.
struct Secrets {
    store: ClusterSecrets,
    argocd: Vec<ClusterSecret>,
    gateway: Vec<ClusterSecret>,
}

impl Command {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Enroll(enroll) => enroll.run(out),
            Self::Release(release) => release.run(out),
            Self::Join(join) => join.run(out),
            Self::Connectors(connectors) => connectors.run(out),
            Self::RevokeKey(revoke) => revoke.run(out),
        }
    }
}

impl ChangeArgs {
    /// Asks for confirmation, unless `--yes` is given.
    ///
    /// - `question`: ends with a question mark.
    fn confirm(&self, question: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        confirm(question, "cluster.unconfirmed", "nothing was changed")
    }
}

/// The part of the settings that the commands need.
struct ControlPlaneSettings<'a> {
    settings: &'a ControlPlane,
    state: &'a KubernetesState,
    /// Namespace of the gateway's Secrets.
    namespace: &'a str,
}

impl Secrets {
    async fn read(config: &Config, control_plane: &ControlPlaneSettings<'_>) -> Result<Self, Failure> {
        let failed = |error| secret_failure(&error);
        let store = ClusterSecrets::open(control_plane.state).await.map_err(failed)?;
        let argocd = store.list(&config.control_plane_namespace, SecretOwner::ArgoCd).await;
        let gateway = store.list(control_plane.namespace, SecretOwner::Gateway).await;
        Ok(Self {
            argocd: argocd.map_err(failed)?,
            gateway: gateway.map_err(failed)?,
            store,
        })
    }

    /// As [`find::argocd_secret`].
    fn argocd_secret(&self, cluster: &str, namespace: &str) -> Result<Cow<'_, ClusterSecret>, Failure> {
        find::argocd_secret(&self.argocd, &self.gateway, cluster, namespace)
    }
}

fn control_plane(config: &Config) -> Result<ControlPlaneSettings<'_>, Failure> {
    let missing = |key: &str| {
        let failure = Failure::new("cluster.settings", format_args!("the settings have no `{key}`"));
        failure.with_hint(format!("add it first, as {PAGE} shows"))
    };
    let settings = config.control_plane.as_ref().ok_or_else(|| missing("controlPlane"))?;
    let StateSource::Kubernetes(state) = &config.state else {
        let message = "the state is a folder (`state.directory`), and this command changes Secrets of a cluster";
        let hint = format!("change the two files by hand, as {PAGE} shows");
        return Err(Failure::new("cluster.state", message).with_hint(hint));
    };
    let namespace = state.credentials_namespace.as_deref();
    Ok(ControlPlaneSettings {
        settings,
        state,
        namespace: namespace.ok_or_else(|| missing("controlPlane.credentialsNamespace"))?,
    })
}

/// The Applications, with the account that acts for each.
pub(crate) fn index_applications(config: &Config, resources: &Resources) -> Result<ApplicationIndex, Failure> {
    let settings = config.applications.unwrap_or_default();
    let folder = config.policies_directory.join("applications");
    let rules = require_loaded(ImpersonationRules::load(&folder, settings.semantics))?;
    Ok(ApplicationIndex::build(resources, &rules, settings.mode, None))
}

/// One failure for everything that stands in the way of a change.
fn refused(mut problems: Vec<Failure>) -> Failure {
    if problems.len() == 1 {
        return problems.remove(0);
    }
    let message = format!("{} checks failed, so nothing was changed", problems.len());
    let details = problems.iter().map(ToString::to_string).collect();
    Failure::new("cluster.checks", message).with_details(details)
}

fn secret_failure(error: &cluster_secret::Error) -> Failure {
    use cluster_secret::Error;
    let (code, hint) = match error {
        Error::Settings(_) => ("cluster.kubeconfig", "name a kubeconfig with `--kubeconfig`"),
        Error::Conflict(_) => ("conflict", "run the command again"),
        Error::AlreadyExists(_) => ("cluster.name_taken", "delete or rename that one"),
        Error::Cluster(_) => (
            "cluster.api",
            "the command needs the kubeconfig of an administrator of Argo CD",
        ),
    };
    Failure::new(code, error).with_hint(hint)
}

/// Reads the first line of a file, or of standard input if its name is `-`.
fn read_token(path: &Path, option: &str) -> Result<SecretString, Failure> {
    let wrong = |why: &str| Failure::new("cluster.token", format_args!("`{option} {}`: {why}", path.display()));
    let text = read_file_or_stdin(path, TOKEN_BYTES).map_err(|error| wrong(&error.to_string()))?;
    let text = Zeroizing::new(text);
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("its first line is no token"));
    }
    Ok(SecretString::from(token))
}

/// Prints something that does not keep a command from its change.
fn warn(text: &str) {
    tollgate_client::print_error(format_args!("warning: {text}"));
}
