//! `tollgate rbac manifest --applications`: prints the roles the gateway's identity needs to act
//! as the service accounts of Applications in one cluster, as YAML for `kubectl apply` in a fixed
//! order. It reads the settings, the state folder and the rules of `policies/applications`.
//!
//! Security: no rule covers all service accounts, and the output has the roles of one cluster.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use super::{ManifestArgs, ModeArg, print_parts};
use crate::answer::{Error, require_loaded};
use tollgate_config::raw;
use tollgate_objects::Cluster;
use tollgate_policy::applications::ApplicationIndex;
use tollgate_policy::gateway_rights::accounts::{NeededAccounts, by_cluster};
use tollgate_policy::gateway_rights::manifest::Subject;
use tollgate_policy::gateway_rights::manifest::applications::{
    AccountsByNamespace, ExistenceCheck, classic, constrained,
};
use tollgate_policy::impersonate::service_account::{ImpersonationRules, RESERVED_NAMESPACES, ServiceAccountName};
use tollgate_state::source;

const HEADER: &str = "\
# Each account is named, on purpose. `impersonate` on all service accounts would let anyone who
# has the gateway's credential act as those of kube-system, and so take over the cluster.
# A namespace must be there before its roles are applied. Applying this deletes nothing that is needed no
# longer; all objects have the label tollgate.dev/roles=applications.
";

pub(super) fn run(args: &ManifestArgs, out: &mut dyn Write, stderr: &mut dyn Write) -> Result<u8, Error> {
    let (needs, keys) = args.of_applications()?;
    let cluster = name(&needs.cluster);
    let accounts: AccountsByNamespace = needs.accounts.keys().collect();
    warn_about_accounts(&accounts, &args.subject, stderr)?;
    if accounts.namespaces.is_empty() {
        writeln!(
            out,
            "# Cluster {cluster}: Applications act as no service account there, so no role is needed."
        )?;
        return Ok(0);
    }
    let check = match args.with_account_check {
        true => ExistenceCheck::With,
        false => ExistenceCheck::Without,
    };
    let mut parts = Vec::new();
    if args.mode != ModeArg::Constrained {
        parts.push((
            "Every Kubernetes. A subject with these roles can do what the accounts can do.",
            classic(&accounts, &keys, &args.subject, check),
        ));
    }
    if args.mode != ModeArg::Classic {
        if !keys.is_empty() {
            let said = match args.mode {
                ModeArg::Constrained => "so nothing says in the cluster who acts through an Application",
                ModeArg::Both | ModeArg::Classic => "so requests with them need the classic roles",
            };
            writeln!(
                stderr,
                "tollgate: constrained impersonation of service accounts takes no `extra`, {said}"
            )?;
        }
        parts.push((
            "Kubernetes 1.36 and later. A subject with these roles can act as the accounts with these verbs only.",
            constrained(&accounts, &args.permissions(), &args.subject, check),
        ));
    }
    writeln!(
        out,
        "# Cluster {cluster}: lets the gateway act as the service accounts of Applications.\n{}",
        HEADER.trim_end()
    )?;
    print_parts(parts, out)
}

/// Warns about accounts that the roles leave out, and about accounts that need a second look.
fn warn_about_accounts(accounts: &AccountsByNamespace, subject: &Subject, stderr: &mut dyn Write) -> Result<(), Error> {
    for ServiceAccountName { namespace, name } in &accounts.impossible {
        writeln!(
            stderr,
            "tollgate: no cluster can have a service account `{namespace}:{name}`, so no role names it"
        )?;
    }
    for (namespace, names) in &accounts.namespaces {
        for name in names {
            let why = match subject {
                Subject::ServiceAccount {
                    namespace: own,
                    name: itself,
                } if (own, itself) == (namespace, name) => "is the gateway's own",
                _ if RESERVED_NAMESPACES.contains(&namespace.as_str()) => "is of a namespace of Kubernetes' own",
                Subject::ServiceAccount { .. } | Subject::User(_) | Subject::Group(_) => continue,
            };
            writeln!(stderr, "tollgate: the service account `{namespace}:{name}` {why}")?;
        }
    }
    Ok(())
}

impl ManifestArgs {
    fn of_applications(&self) -> Result<(NeededAccounts, Vec<String>), Error> {
        let config = require_loaded(raw::load(&self.settings.config))?;
        let Some(settings) = config.applications else {
            return Err(Error::Failed("the settings have no `applications`".to_owned()));
        };
        let resources = require_loaded(source::load_once(&config))?;
        let folder = config.policies_directory.join("applications");
        let rules = require_loaded(ImpersonationRules::load(&folder, settings.semantics))?;
        let applications = ApplicationIndex::build(&resources, &rules, settings.mode, None);
        let keys = rules.extra_keys().map(str::to_owned).collect();
        let needed = by_cluster(&applications).into_values().collect();
        Ok((self.one_cluster(needed, &resources.clusters)?, keys))
    }

    fn one_cluster(&self, needed: Vec<NeededAccounts>, clusters: &[Cluster]) -> Result<NeededAccounts, Error> {
        let Some(wanted) = &self.cluster else {
            let needed = match <[NeededAccounts; 1]>::try_from(needed) {
                Ok([only]) => return Ok(only),
                Err(needed) => needed,
            };
            if needed.is_empty() {
                return Err(Error::Failed("no Application acts as a service account".to_owned()));
            }
            let names: Vec<&str> = needed.iter().map(|needs| name(&needs.cluster)).collect();
            let names = names.join(", ");
            return Err(Error::Usage(format!(
                "Applications act in several clusters: name one with --cluster, of {names}"
            )));
        };
        let server = wanted.trim_end_matches('/');
        let is_match = |cluster: &&Cluster| cluster.name == *wanted || cluster.server.trim_end_matches('/') == server;
        let matching: Vec<&Cluster> = clusters.iter().filter(is_match).collect();
        match (matching.as_slice(), matching.len()) {
            ([], _) => Err(Error::Failed(format!("there is no cluster `{wanted}`"))),
            ([only], _) => {
                let found = needed.into_iter().find(|needs| needs.cluster.server == only.server);
                Ok(found.unwrap_or_else(|| NeededAccounts {
                    cluster: Arc::new((*only).clone()),
                    accounts: BTreeMap::new(),
                }))
            }
            (_, count) => Err(Error::Usage(format!(
                "{count} clusters have the name `{wanted}`: name one by its server"
            ))),
        }
    }
}

fn name(cluster: &Cluster) -> &str {
    if cluster.name.is_empty() {
        &cluster.server
    } else {
        &cluster.name
    }
}

#[cfg(test)]
mod tests;
