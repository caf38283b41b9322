//! Checks what would happen to the Applications of a cluster, and whether the cluster lets the gateway
//! serve them: which accounts it may impersonate, and what the reader may read.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::warn;
use tollgate_client::failure::Failure;
use tollgate_cluster::access::{ClusterAccess, ClusterEndpoint};
use tollgate_cluster::self_check::enrollment::check_accounts;
use tollgate_cluster::self_check::reader::{WatchFilter, readers_of_secrets, unreadable_kinds};
use tollgate_config::ReaderAccount;
use tollgate_core::diagnostic::with_causes;
use tollgate_objects::{Cluster, ClusterConfig, ConfigMap};
use tollgate_policy::applications::{ApplicationIndex, ENABLED_KEY, IndexedApplication};
use tollgate_policy::gateway_rights::accounts::{ActingApplications, by_cluster};
use tollgate_policy::impersonate::service_account::ServiceAccountName;

/// Most names that a message lists. The others are counted.
const MAX_NAMED: usize = 5;

/// With one of these values Argo CD leaves out the kinds that it may not list.
const RESPECTS_RBAC: [&str; 2] = ["normal", "strict"];

/// Why no account acts for an Application that no entry of its project matches.
pub(crate) const NAMES_NO_ACCOUNT: &str = "its project names no account for its destination";

/// The Applications whose destination is one cluster.
#[derive(Debug, Default)]
pub(super) struct Deployments {
    pub(super) accounts: BTreeMap<ServiceAccountName, ActingApplications>,
    /// Applications that no account acts for, and why, in order.
    pub(super) without_account: Vec<(String, String)>,
}

impl Deployments {
    pub(super) fn of(index: &ApplicationIndex, server: &str) -> Self {
        let needed = by_cluster(index).remove(server);
        let here = |indexed: &&Arc<IndexedApplication>| {
            let destination = indexed.destination.as_ref();
            destination.is_ok_and(|cluster| cluster.server == server)
        };
        let mut without_account: Vec<(String, String)> = index
            .iter()
            .filter(here)
            .filter_map(|indexed| {
                let name = &indexed.application.name;
                let name = format!("{}/{}", name.namespace, name.name);
                Some((name, why_no_account(index, indexed, server)?))
            })
            .collect();
        without_account.sort_unstable();
        Self {
            accounts: needed.map(|needed| needed.accounts).unwrap_or_default(),
            without_account,
        }
    }

    /// The Applications that will not sync.
    pub(super) fn warning(&self) -> Option<String> {
        let (_, why) = self.without_account.first()?;
        let names = self.without_account.iter().map(|(name, _)| name.as_str());
        Some(format!(
            "no account acts for {}, which will not sync: {} (the first: {why}); add one with `tollgate project \
             add-destination-service-account`",
            count(self.without_account.len(), "Application"),
            listed(names),
        ))
    }
}

/// Why no account acts for an Application; `None` if one does.
pub(crate) fn why_no_account(index: &ApplicationIndex, indexed: &IndexedApplication, server: &str) -> Option<String> {
    match &indexed.derived_account {
        Err(error) => Some(with_causes(error)),
        Ok(derived) => match &derived.account {
            None => Some(NAMES_NO_ACCOUNT.to_owned()),
            Some(account) if index.acting_in(server, &account.username()).is_none() => {
                Some("its project does not permit its destination".to_owned())
            }
            Some(_) => None,
        },
    }
}

/// Argo CD must act as the accounts, or it could only read.
pub(super) fn check_impersonation(argocd_cm: &ConfigMap) -> Option<Failure> {
    let value = argocd_cm.data.get(ENABLED_KEY).map(|text| &*text.value);
    if value == Some("true") {
        return None;
    }
    let message = format!(
        "argocd-cm has `{ENABLED_KEY}: {:?}`: Argo CD would write as itself, which the gateway refuses",
        value.unwrap_or_default()
    );
    Some(Failure::new("cluster.impersonation", message).with_hint(format!("set `{ENABLED_KEY}: \"true\"` first")))
}

/// What is asked of a cluster.
pub(super) struct ClusterQuestions<'a> {
    pub(super) reader: &'a ReaderAccount,
    pub(super) accounts: &'a BTreeMap<ServiceAccountName, ActingApplications>,
    pub(super) argocd_cm: &'a ConfigMap,
    /// The namespaces that Argo CD is limited to; empty for all.
    pub(super) namespaces: Vec<String>,
    /// The namespaces of this cluster whose Secrets are credentials of Argo CD and of the gateway.
    pub(super) credential_namespaces: Vec<String>,
}

impl ClusterQuestions<'_> {
    /// Asks the cluster with the credential that the gateway would have. Prints warnings.
    ///
    /// - `endpoint`: where the cluster is reached from here.
    pub(super) async fn ask(
        &self,
        cluster: &Cluster,
        config: ClusterConfig,
        endpoint: &ClusterEndpoint,
    ) -> Vec<Failure> {
        let server = &cluster.server;
        let unusable = |why: &str| {
            let message = format!("the credential cannot be used at `{server}`: {why}");
            vec![Failure::new("cluster.access", message).with_hint("try it with kubectl")]
        };
        let Some(access) = ClusterAccess::with_credential_in_secret(cluster, &Arc::new(config), endpoint) else {
            return unusable("it is no token, password or certificate");
        };
        let reader = ServiceAccountName::from(self.reader);
        let mut all: Vec<ServiceAccountName> = vec![reader.clone()];
        all.extend(self.accounts.keys().filter(|account| **account != reader).cloned());
        let findings = match check_accounts(&access, &all).await {
            Ok(findings) => findings,
            Err(problem) => return unusable(&problem),
        };
        let mut problems = Vec::new();
        let mut refuse = |accounts: Vec<String>, what: &str, hint: &str| {
            if !accounts.is_empty() {
                let named = listed(accounts.iter().map(String::as_str));
                let message = format!("{what} {} in `{server}`: {named}", count(accounts.len(), "account"));
                problems.push(Failure::new("cluster.accounts", message).with_hint(hint));
            }
        };
        let names = |accounts: &[ServiceAccountName]| accounts.iter().map(shown).collect::<Vec<_>>();
        let print_roles = "`tollgate rbac manifest --applications` prints the roles for Applications; the reader \
                           needs the verb `impersonate` on it too";
        refuse(
            names(&findings.not_granted),
            "the credential may not impersonate",
            print_roles,
        );
        refuse(
            names(&findings.impossible),
            "no cluster can have, and so nobody can act as,",
            "correct the projects",
        );
        let unknown = findings.unknown.iter();
        let unknown: Vec<String> = unknown
            .map(|(account, why)| format!("{} ({why})", shown(account)))
            .collect();
        refuse(
            unknown,
            "the cluster does not say whether the credential may impersonate",
            "try again",
        );
        if !findings.absent.is_empty() {
            let absent = names(&findings.absent);
            let named = listed(absent.iter().map(String::as_str));
            warn(&format!(
                "{} missing in `{server}`: {named}",
                count(absent.len(), "account")
            ));
        }
        if !findings.not_granted.contains(&reader) {
            problems.extend(self.check_reader(&access, &reader).await);
        }
        if problems.is_empty() {
            problems.extend(self.check_secrets(&access, &reader, &all).await);
        }
        problems
    }

    /// Anyone with Argo CD's token acts as these accounts, and must not get other credentials by
    /// it.
    async fn check_secrets(
        &self,
        access: &ClusterAccess,
        reader: &ServiceAccountName,
        all: &[ServiceAccountName],
    ) -> Option<Failure> {
        let namespaces = &self.credential_namespaces;
        let there = listed(namespaces.iter().map(String::as_str));
        let found = match readers_of_secrets(access, all, namespaces).await {
            Ok(found) => found,
            Err(problem) => {
                let message = format!("who may read Secrets in the namespaces {there} is not known: {problem}");
                return Some(Failure::new("cluster.reader", message).with_hint("try again"));
            }
        };
        if found.contains(reader) {
            let reader = shown(reader);
            let message = format!(
                "the reader {reader} may read Secrets in one of the namespaces {there}, and with it everybody who has \
                 Argo CD's token"
            );
            let hint = "they are the credentials of Argo CD and of the gateway; bind the reader's role in other \
                        namespaces only, or leave out Secrets";
            return Some(Failure::new("cluster.reader", message).with_hint(hint));
        }
        if !found.is_empty() {
            let accounts: Vec<String> = found.iter().map(shown).collect();
            warn(&format!(
                "{} of projects may read Secrets in one of the namespaces {there}, which are the credentials of Argo CD \
                 and of the gateway: {}",
                count(accounts.len(), "account"),
                listed(accounts.iter().map(String::as_str))
            ));
        }
        None
    }

    async fn check_reader(&self, access: &ClusterAccess, reader: &ServiceAccountName) -> Option<Failure> {
        let respects = self.argocd_cm.data.get("resource.respectRBAC");
        if respects.is_some_and(|text| RESPECTS_RBAC.contains(&&*text.value)) {
            return None;
        }
        let filter = WatchFilter::of(self.argocd_cm);
        let found = unreadable_kinds(access, reader, &filter, &self.namespaces).await;
        let (reader, server) = (shown(reader), &access.cluster().server);
        match found {
            Ok(kinds) if kinds.is_empty() => None,
            Ok(kinds) => {
                let named = listed(kinds.iter().map(String::as_str));
                let message = format!(
                    "the reader {reader} may not list and watch {} that Argo CD reads in `{server}`: {named}",
                    count(kinds.len(), "kind")
                );
                let hint = "grant them, or set `resource.respectRBAC: normal` or `resource.exclusions` in argocd-cm";
                Some(Failure::new("cluster.reader", message).with_hint(hint))
            }
            Err(problem) => {
                let message = format!("what the reader {reader} may read in `{server}` is not known: {problem}");
                Some(Failure::new("cluster.reader", message).with_hint("may the reader do what discovery needs?"))
            }
        }
    }
}

fn shown(account: &ServiceAccountName) -> String {
    format!("{}:{}", account.namespace, account.name)
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let first: Vec<&str> = names.iter().take(MAX_NAMED).copied().collect();
    let more = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", first.join(", "))
}

#[cfg(test)]
mod tests;
