//! `tollgate cluster release`: puts a cluster's credential back into Argo CD's Secret, and deletes the
//! gateway's.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::find::{check_managers, management_warnings};
use super::plan::{ArgocdChange, Return, plan_return};
use super::{ChangeArgs, Secrets, control_plane, diff, read_token, secret_failure, warn};
use tollgate_client::api::runtime;
use tollgate_client::failure::Failure;
use tollgate_client::format::print;
use tollgate_state::write::cluster_secret::ClusterSecret;

#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    change: ChangeArgs,
    /// File with a token for the cluster that Argo CD gets instead of the gateway's credential, or `-`
    /// for standard input
    #[arg(long, value_name = "FILE")]
    credential_token_file: Option<PathBuf>,
    /// Keep the gateway's Secret
    #[arg(long)]
    keep: bool,
}

impl Release {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let config = self.change.argocd.load()?;
        let control_plane = control_plane(&config)?;
        let token = self.credential_token_file.as_deref();
        let token = token
            .map(|file| read_token(file, "--credential-token-file"))
            .transpose()?;
        let runtime = runtime()?;
        let secrets = runtime.block_on(Secrets::read(&config, &control_plane))?;
        let secret = secrets.argocd_secret(&self.change.cluster, &config.control_plane_namespace)?;
        let secret = &*secret;
        let plan = plan_return(secret, &secrets.gateway, token.as_ref())?;
        if plan.change.is_some() {
            check_managers(secret).map_or(Ok(()), Err)?;
            management_warnings(secret).iter().for_each(|warning| warn(warning));
        }
        let shown = &self.change.cluster;
        if plan.change.is_none() && self.keep {
            return print(&format!("Cluster `{shown}` is released already."), out);
        }
        self.show(secret, &plan, out)?;
        if self.change.dry_run {
            return print("Dry run: nothing was changed.", out);
        }
        self.change
            .confirm(&format!("have Argo CD reach `{shown}` by itself?"))?;
        runtime.block_on(self.write(&secrets, secret, &plan))?;
        print(&format!("Cluster `{shown}` is released."), out)
    }

    fn show(&self, secret: &ClusterSecret, plan: &Return<'_>, out: &mut dyn Write) -> Result<(), Failure> {
        if let Some(change) = &plan.change {
            let after = match change {
                ArgocdChange::Config(config) => Some(secret.with_config(config)),
                ArgocdChange::Deletion => None,
            };
            write!(out, "{}", diff::change(Some(secret), after.as_ref()))?;
        }
        if !self.keep {
            write!(out, "{}", diff::change(Some(plan.gateway_secret), None))?;
        }
        Ok(())
    }

    /// Puts the credential back first: the gateway's Secret may be the only one that has it.
    async fn write(&self, secrets: &Secrets, secret: &ClusterSecret, plan: &Return<'_>) -> Result<(), Failure> {
        let done = match &plan.change {
            Some(ArgocdChange::Config(config)) => secrets.store.replace_config(secret, config).await,
            Some(ArgocdChange::Deletion) => secrets.store.delete(secret).await,
            None => Ok(()),
        };
        done.map_err(|error| secret_failure(&error))?;
        if !self.keep {
            let done = secrets.store.delete(plan.gateway_secret).await;
            done.map_err(|error| secret_failure(&error))?;
        }
        Ok(())
    }
}
