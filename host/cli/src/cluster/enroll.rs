//! `tollgate cluster enroll`: checks what would fail, shows the change, and makes it.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::runtime::Runtime;
use url::Url;

use super::destination::{ClusterQuestions, Deployments, check_impersonation};
use super::find::{check_managers, check_server, gateway_secrets, has_agent, management_warnings};
use super::gateway::{self, Route};
use super::in_cluster::{self, InCluster};
use super::plan::{Enrollment, OwnToken, agent_config, gateway_config, plan_enrollment};
use super::{
    ChangeArgs, ControlPlaneSettings, Secrets, control_plane, diff, index_applications, read_token, refused,
    secret_failure, warn,
};
use crate::credential::local::require_loaded;
use tollgate_client::api::runtime;
use tollgate_client::failure::Failure;
use tollgate_client::format::print;
use tollgate_cluster::access::ClusterEndpoint;
use tollgate_config::{Config, ControlPlane, ControlPlaneMode};
use tollgate_objects::{Cluster, ClusterConfig, Resources};
use tollgate_policy::applications::ENABLED_KEY;
use tollgate_state::source;
use tollgate_state::write::cluster_secret::ClusterSecret;

#[derive(Debug, Args)]
pub(crate) struct Enroll {
    #[command(flatten)]
    change: ChangeArgs,
    /// URL of the gateway's public listener, as Argo CD reaches it
    #[arg(long, value_name = "URL")]
    proxy_url: String,
    /// PEM file of the authority that signed the gateway's certificate; if omitted, the certificate of
    /// the settings, if it signed itself
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Name that the gateway's certificate is for; if omitted, the host of --proxy-url
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// File with the token of Argo CD's components for the gateway, or `-` for standard input
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Have Argo CD's pods send the projected ServiceAccount token of this file, and not the one of
    /// --token-file
    ///
    /// They have the file, and the program that reads it whenever a token expires, by the component
    /// `credential-helper` of deploy/kubernetes.
    #[arg(
        long, value_name = "PATH", num_args = 0..=1, require_equals = true,
        default_missing_value = "/tollgate-token/token"
    )]
    projected_token: Option<String>,
    /// File with a token of the gateway's own for the cluster, or `-` for standard input
    ///
    /// Without it the gateway gets the credential that Argo CD has now. With it that credential is kept
    /// nowhere, and `release` needs another one. The cluster that Argo CD runs in needs it: there Argo CD
    /// has no credential but the account of its pods.
    #[arg(long, value_name = "FILE")]
    credential_token_file: Option<PathBuf>,
    /// Do not connect to the gateway, for when only Argo CD can reach its address
    #[arg(long)]
    skip_gateway_check: bool,
}

/// What the options say, and what is wrong with them.
struct Options {
    proxy_url: Option<Url>,
    route: Option<Route>,
    credential_token: Option<SecretString>,
    problems: Vec<Failure>,
}

/// What passed every check.
struct Checked {
    route: Route,
    /// `config` of the gateway's Secret.
    own: SecretString,
}

impl Enroll {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let config = self.change.argocd.load()?;
        let control_plane = control_plane(&config)?;
        let runtime = runtime()?;
        let secrets = runtime.block_on(Secrets::read(&config, &control_plane))?;
        let secret = secrets.argocd_secret(&self.change.cluster, &config.control_plane_namespace)?;
        let secret = &*secret;
        let mut own = gateway_secrets(&secrets.gateway, secret.server()).into_iter();
        let joined = own.find(|own| has_agent(own));
        let Checked { route, own } = self.check(&config, &control_plane, secret, joined, &runtime)?;
        let for_gateway_only = self.credential_token_file.is_some();
        let plan = plan_enrollment(
            secret,
            &secrets.gateway,
            control_plane.namespace,
            &own,
            for_gateway_only,
            &route,
        )?;
        self.show(secret, joined, &plan, out)?;
        if self.change.dry_run {
            return print("Dry run: nothing was changed.", out);
        }
        let shown = &self.change.cluster;
        self.change
            .confirm(&format!("have Argo CD reach `{shown}` through the gateway?"))?;
        runtime.block_on(write(&secrets, secret, &plan))?;
        print(&format!("Cluster `{shown}` is enrolled."), out)
    }

    /// Makes every check that it can, and fails with all problems. Prints warnings.
    ///
    /// - `joined`: the gateway's Secret, if an agent serves the cluster.
    fn check(
        &self,
        config: &Config,
        control_plane: &ControlPlaneSettings<'_>,
        secret: &ClusterSecret,
        joined: Option<&ClusterSecret>,
        runtime: &Runtime,
    ) -> Result<Checked, Failure> {
        let settings = control_plane.settings;
        let Options {
            proxy_url,
            route,
            credential_token,
            mut problems,
        } = self.options(config, settings, secret);
        let server_problems = check_server(secret.server(), proxy_url.as_ref());
        let can_connect = server_problems.is_empty();
        problems.extend(server_problems);
        problems.extend(check_managers(secret));
        let in_cluster = match secret.is_in_cluster() {
            true => {
                let reading = InCluster::read(control_plane.state, &config.control_plane_namespace);
                Some(runtime.block_on(reading)?)
            }
            false => None,
        };
        if let (Some(in_cluster), Some(route)) = (&in_cluster, &route) {
            problems.extend(in_cluster.check_pods(&route.authority));
        }
        let own = match joined {
            Some(joined) => agent_config(secret, joined, credential_token.is_some(), &self.proxy_url),
            None => {
                let own_token = credential_token.as_ref().map(|token| OwnToken {
                    token,
                    authority: in_cluster.as_ref().map(|in_cluster| in_cluster.authority.as_str()),
                });
                gateway_config(secret, own_token, &self.proxy_url)
            }
        };
        let own = keep(own, &mut problems);

        // Blocks until everything was listed once, so it runs outside of the runtime.
        let resources = require_loaded(source::load_once(config))?;
        problems.extend(check_enabled(secret, &resources));
        let deployments = Deployments::of(&index_applications(config, &resources)?, secret.server());
        match (check_impersonation(&resources.argocd_cm), settings.mode) {
            (Some(problem), ControlPlaneMode::Enforce) => problems.push(problem),
            // The gateway sends what Argo CD writes as itself.
            (Some(_), ControlPlaneMode::Audit) => {
                warn(&format!(
                    "`{ENABLED_KEY}` is not `true` in argocd-cm: Argo CD writes as itself"
                ));
            }
            (None, _) => {}
        }
        if joined.is_some() {
            warn(
                "only the gateway reaches the cluster's connector, so nobody asked the cluster what its accounts may do",
            );
        } else if let (Some(own), true) = (&own, can_connect) {
            let questions = ClusterQuestions {
                reader: &settings.reader,
                accounts: &deployments.accounts,
                argocd_cm: &resources.argocd_cm,
                namespaces: namespaces(secret),
                credential_namespaces: match in_cluster::is_own_cluster(secret.server()) {
                    true => vec![
                        config.control_plane_namespace.clone(),
                        control_plane.namespace.to_owned(),
                    ],
                    false => Vec::new(),
                },
            };
            let (cluster, access) = (cluster(secret), ClusterConfig::parse(own.expose_secret()));
            let endpoint = match in_cluster {
                Some(in_cluster) => in_cluster.endpoint,
                None => ClusterEndpoint::of(&cluster, &access),
            };
            problems.extend(runtime.block_on(questions.ask(&cluster, access, &endpoint)));
        }
        if let (Some(route), false) = (&route, self.skip_gateway_check) {
            problems.extend(runtime.block_on(route.probe()).err());
        }
        management_warnings(secret).iter().for_each(|warning| warn(warning));
        if !secret.is_stored() && secret.is_in_cluster() {
            warn(in_cluster::NEW_SECRET);
        }
        deployments.warning().iter().for_each(|warning| warn(warning));
        match (problems.is_empty(), route, own) {
            (true, Some(route), Some(own)) => Ok(Checked { route, own }),
            (_, _, _) => Err(refused(problems)),
        }
    }

    fn options(&self, config: &Config, settings: &ControlPlane, secret: &ClusterSecret) -> Options {
        let mut problems = Vec::new();
        let (now, is_in_cluster) = (Timestamp::now(), secret.is_in_cluster());
        let proxy_url = keep(gateway::proxy_url(&self.proxy_url), &mut problems);
        let name = proxy_url
            .as_ref()
            .map(|url| gateway::server_name(self.server_name.as_deref(), url, is_in_cluster));
        let server_name = name.and_then(|name| keep(name, &mut problems));
        let authority = gateway::authority(self.ca.as_deref(), config.tls.as_ref(), now);
        let authority = keep(authority, &mut problems);
        let both = [Some(&self.token_file), self.credential_token_file.as_ref()];
        let stdin = both.iter().flatten().filter(|file| file.as_path() == Path::new("-"));
        if stdin.count() > 1 {
            let message = "`--token-file` and `--credential-token-file` cannot both be standard input";
            problems.push(Failure::new("cluster.token", message));
        }
        let token = keep(read_token(&self.token_file, "--token-file"), &mut problems);
        if let Some(token) = &token {
            let warning = keep(gateway::check_token(token, &settings.callers, now), &mut problems);
            let warning = warning.flatten().filter(|_| self.projected_token.is_none());
            warning.iter().for_each(|warning| warn(warning));
        }
        if let (Some(path), true) = (&self.projected_token, is_in_cluster) {
            let message = format!(
                "`--projected-token {path}` has no effect: for the cluster that it runs in, Argo CD sends only a token \
                 of the secret"
            );
            problems.push(Failure::new("cluster.token", message));
        }
        let credential_token = self.credential_token_file.as_deref();
        let credential_token = credential_token.map(|file| read_token(file, "--credential-token-file"));
        let credential_token = credential_token.and_then(|token| keep(token, &mut problems));
        let route = match (&proxy_url, server_name, authority, token) {
            (Some(proxy_url), Some(server_name), Some(authority), Some(token)) => Some(Route {
                proxy_url: proxy_url.clone(),
                server_name,
                is_in_cluster,
                authority,
                token,
                projected_token: self.projected_token.clone(),
            }),
            (_, _, _, _) => None,
        };
        Options {
            proxy_url,
            route,
            credential_token,
            problems,
        }
    }

    fn show(
        &self,
        secret: &ClusterSecret,
        joined: Option<&ClusterSecret>,
        plan: &Enrollment,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        if let Some(created) = &plan.created {
            write!(out, "{}", diff::change(None, Some(created)))?;
        }
        let after = secret.with_config(&plan.config);
        let before = secret.is_stored().then_some(secret);
        write!(out, "{}", diff::change(before, Some(&after)))?;
        let is_replaced = self.credential_token_file.is_some() || joined.is_some();
        if is_replaced && secret.is_stored() && !secret.is_in_cluster() {
            warn("the credential that Argo CD has now is kept nowhere");
        }
        Ok(())
    }
}

/// Creates the gateway's Secret first: without it the gateway could not serve the cluster.
async fn write(secrets: &Secrets, secret: &ClusterSecret, plan: &Enrollment) -> Result<(), Failure> {
    if let Some(created) = &plan.created {
        let done = secrets.store.create(created).await;
        done.map_err(|error| secret_failure(&error))?;
    }
    let done = match secret.is_stored() {
        true => secrets.store.replace_config(secret, &plan.config).await,
        false => secrets.store.create(&secret.with_config(&plan.config)).await,
    };
    done.map_err(|error| secret_failure(&error))
}

/// Argo CD may not use the cluster that it runs in at all.
fn check_enabled(secret: &ClusterSecret, resources: &Resources) -> Option<Failure> {
    let mut known = resources.clusters.iter();
    if !secret.is_in_cluster() || known.any(|cluster| cluster.server == secret.server()) {
        return None;
    }
    let message = format!("`{}` is switched off: Argo CD deploys nothing there", secret.server());
    let hint = "remove `cluster.inClusterEnabled: \"false\"` from argocd-cm first";
    Some(Failure::new("cluster.in_cluster", message).with_hint(hint))
}

fn cluster(secret: &ClusterSecret) -> Cluster {
    Cluster {
        name: secret.cluster_name().to_owned(),
        server: secret.server().to_owned(),
        project: secret.text("project").to_owned(),
    }
}

/// The namespaces that Argo CD is limited to.
///
/// Source: Argo CD, `SecretToCluster`: separated by commas, with blanks around them.
fn namespaces(secret: &ClusterSecret) -> Vec<String> {
    let names = secret.text("namespaces").split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The value, or `None` and one more problem.
fn keep<T>(result: Result<T, Failure>, problems: &mut Vec<Failure>) -> Option<T> {
    result.map_err(|problem| problems.push(problem)).ok()
}
