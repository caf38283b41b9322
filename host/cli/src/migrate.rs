//! `tollgate migrate`: reads a running Argo CD and says what keeps it from reaching its clusters without
//! its own credentials. It changes nothing, and connects to no cluster but Argo CD's own.
//!
//! Security: it reads Secrets of clusters, and prints nothing of them but names and servers.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::cluster::{ArgocdClusterArgs, index_applications};
use super::credential::local::require_loaded;
use tollgate_client::api::runtime;
use tollgate_client::failure::Failure;
use tollgate_client::format::Format;
use tollgate_client::parse_subject;
use tollgate_config::{Config, StateSource};
use tollgate_policy::gateway_rights::manifest::Subject;
use tollgate_state::deployed::deployed_kinds;
use tollgate_state::source;
use tollgate_state::write::{self, Writer};

mod audit;
mod deployers;
mod print;
mod report;
mod steps;
#[cfg(test)]
mod tests;

use report::{Report, Sources};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what each cluster needs before Argo CD holds no credential of it
    ///
    /// For each cluster: the service accounts that projects name, what these accounts need, the Applications
    /// that have none, what mode audit recorded, and the steps and the way back, in order. Changes nothing.
    #[command(
        after_help = "Examples:\n  tollgate migrate argocd --cluster prod --admin http://127.0.0.1:8081\n  \
                            tollgate migrate argocd --cluster prod --roles accounts | kubectl --context prod apply -f -"
    )]
    Argocd(Argocd),
}

#[derive(Debug, Args)]
pub(crate) struct Argocd {
    #[command(flatten)]
    argocd: ArgocdClusterArgs,
    /// Show only this cluster, by name or API server URL
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<String>,
    /// URL of the gateway's admin listener, to show what mode audit recorded among its latest decisions
    #[arg(long, value_name = "URL", conflicts_with = "decisions")]
    admin: Option<String>,
    /// File of decision records (`decisions.file` of the settings), to show what mode audit recorded
    #[arg(long, value_name = "FILE")]
    decisions: Option<PathBuf>,
    /// Print roles as YAML for `kubectl apply` in the cluster, and nothing else
    #[arg(long, value_enum, value_name = "WHOSE", requires = "cluster", conflicts_with_all = ["output", "admin", "decisions"])]
    roles: Option<RolesOf>,
    /// Identity of the gateway in the cluster: serviceaccount:NAMESPACE:NAME, user:NAME or group:NAME
    #[arg(long, default_value = "serviceaccount:tollgate:gateway", value_parser = parse_subject)]
    subject: Subject,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Whose roles are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RolesOf {
    /// The accounts of projects, to deploy what their Applications have deployed; and the accounts
    /// themselves
    Accounts,
    /// The gateway, to act as these accounts and as the reader of the settings, and nothing else
    Gateway,
}

impl Command {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Argocd(argocd) => argocd.run(out),
        }
    }
}

impl Argocd {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let config = self.load()?;
        let report = self.report(&config)?;
        let Some(whose) = self.roles else {
            return Ok(self.output.show(&report, print::table, out)?);
        };
        let reader = config.control_plane.as_ref().map(|settings| &settings.reader);
        let objects = report.clusters.iter().flat_map(|cluster| match whose {
            RolesOf::Accounts => cluster.roles_of_accounts(),
            RolesOf::Gateway => cluster.roles_of_gateway(reader, &self.subject),
        });
        for object in objects {
            writeln!(out, "---")?;
            Format::Yaml.print(&object, out)?;
        }
        Ok(())
    }

    fn report(&self, config: &Config) -> Result<Report, Failure> {
        // Blocks until everything was listed once, so it runs outside of the runtime.
        let resources = require_loaded(source::load_once(config))?;
        let index = index_applications(config, &resources)?;
        let runtime = runtime()?;
        let refused = runtime.block_on(audit::read(self.admin.as_deref(), self.decisions.as_deref()))?;
        let namespaces: BTreeSet<&str> = resources.applications.keys().map(|name| &*name.namespace).collect();
        let deployed = runtime.block_on(async {
            let writer = Writer::open(config).await?;
            deployed_kinds(&writer, &namespaces).await
        });
        let mut report = Report::of(&Sources {
            config,
            resources: &resources,
            index: &index,
            deployed: &deployed.map_err(|error| unreadable(&error))?,
            refused: refused.as_deref(),
        });
        if let Some(wanted) = &self.cluster {
            report.select(wanted)?;
        }
        Ok(report)
    }

    /// The settings, with the API server that the options name.
    fn load(&self) -> Result<Config, Failure> {
        let config = self.argocd.load()?;
        if let (StateSource::Directory(_), Some(_)) = (&config.state, &self.argocd.kubeconfig) {
            let message = "the state is a folder (`state.directory`), so `--kubeconfig` means nothing";
            return Err(Failure::new("migrate.kubeconfig", message).with_hint("leave it out"));
        }
        Ok(config)
    }
}

fn unreadable(error: &write::Error) -> Failure {
    let failure = Failure::new(
        "migrate.applications",
        format_args!("the Applications cannot be read: {error}"),
    );
    failure.with_hint("the command needs `list` on `applications`, as the gateway does")
}
