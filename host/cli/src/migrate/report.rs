//! What keeps Argo CD from reaching each cluster without a credential, out of everything that is known
//! about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::audit::WouldRefuse;
use super::deployers::{deployer, grants_rights};
use super::steps::{Step, WayBack, steps, way_back};
use crate::cluster::{NAMES_NO_ACCOUNT, why_no_account};
use tollgate_client::failure::Failure;
use tollgate_config::{Config, ControlPlaneMode, ReaderAccount};
use tollgate_objects::destination::IN_CLUSTER_SERVER;
use tollgate_objects::{Cluster, ObjectName, Resources};
use tollgate_policy::applications::{ApplicationIndex, ENABLED_KEY, ENFORCED_KEY, IndexedApplication};
use tollgate_policy::gateway_rights::manifest::Subject;
use tollgate_policy::gateway_rights::manifest::applications::{ExistenceCheck, classic};
use tollgate_policy::impersonate::service_account::{AccountSource, ServiceAccountName};
use tollgate_state::deployed::DeployedKind;

/// Everything that a report is made of.
pub(super) struct Sources<'a> {
    pub(super) config: &'a Config,
    pub(super) resources: &'a Resources,
    pub(super) index: &'a ApplicationIndex,
    /// What each Application has deployed.
    pub(super) deployed: &'a BTreeMap<ObjectName, BTreeSet<DeployedKind>>,
    /// What mode audit recorded; `None` if nobody was asked.
    pub(super) refused: Option<&'a [WouldRefuse]>,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) impersonation: ImpersonationState,
    /// `controlPlane.mode` of the settings; `None` while the front is closed.
    pub(super) mode: Option<&'static str>,
    pub(super) clusters: Vec<ClusterReport>,
}

/// What `argocd-cm` says about sync impersonation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ImpersonationState {
    /// Argo CD writes as itself.
    Off,
    /// It does so for Applications whose project names no account.
    NotEnforced,
    Enforced,
}

/// How Argo CD reaches a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Route {
    /// With the account of its pods: it runs there.
    InCluster,
    /// With its own credential.
    Direct,
    /// Through Tollgate.
    Enrolled,
}

#[derive(Debug, Serialize)]
pub(super) struct ClusterReport {
    pub(super) name: String,
    pub(super) server: String,
    pub(super) route: Route,
    /// The accounts that act for Applications there, in order.
    pub(super) accounts: Vec<AccountReport>,
    /// Applications that no account acts for, in order: mode enforce refuses what they write.
    pub(super) without_account: Vec<Unassigned>,
    /// What mode audit recorded; `None` if nobody was asked.
    pub(super) would_refuse: Option<Vec<WouldRefuse>>,
    pub(super) steps: Vec<Step>,
    pub(super) way_back: Vec<WayBack>,
}

#[derive(Debug, Serialize)]
pub(super) struct AccountReport {
    #[serde(flatten)]
    pub(super) account: ServiceAccountName,
    pub(super) projects: BTreeSet<String>,
    /// As `NAMESPACE/NAME`.
    pub(super) applications: BTreeSet<String>,
    /// The kinds that these Applications have deployed.
    pub(super) needs: BTreeSet<DeployedKind>,
    /// Whether they have deployed roles or bindings, for which rights on these kinds do not suffice.
    pub(super) grants_rights: bool,
}

/// An Application that no account acts for.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Unassigned {
    /// As `NAMESPACE/NAME`.
    pub(super) application: String,
    pub(super) project: String,
    /// Namespace of its destination.
    pub(super) namespace: String,
    pub(super) reason: String,
}

impl Report {
    pub(super) fn of(sources: &Sources<'_>) -> Self {
        let mode = sources.config.control_plane.as_ref().map(|settings| settings.mode);
        let impersonation = impersonation(sources.resources);
        let reports = sources.resources.clusters.iter().map(|cluster| {
            let mut report = ClusterReport::of(cluster, sources);
            report.steps = steps(&report, impersonation, mode);
            report.way_back = way_back(&report);
            report
        });
        Self {
            impersonation,
            mode: mode.map(|mode| match mode {
                ControlPlaneMode::Enforce => "enforce",
                ControlPlaneMode::Audit => "audit",
            }),
            clusters: reports.collect(),
        }
    }

    /// Keeps one cluster.
    ///
    /// # Errors
    /// There is none of this name or server, or several have the name.
    pub(super) fn select(&mut self, wanted: &str) -> Result<(), Failure> {
        let server = wanted.trim_end_matches('/');
        let is_wanted = |report: &ClusterReport| report.name == wanted || report.server.trim_end_matches('/') == server;
        let names: Vec<String> = self.clusters.iter().map(|report| report.name.clone()).collect();
        self.clusters.retain(is_wanted);
        match self.clusters.as_slice() {
            [_] => Ok(()),
            [] => {
                let message = format!("Argo CD has no cluster `{wanted}`");
                Err(Failure::new("cluster_not_found", message).with_hint(format!("there are {}", names.join(", "))))
            }
            several => {
                let servers: Vec<&str> = several.iter().map(|report| report.server.as_str()).collect();
                let message = format!("{} clusters have the name `{wanted}`", several.len());
                let hint = format!("name one by its server: {}", servers.join(", "));
                Err(Failure::new("cluster_ambiguous", message).with_hint(hint))
            }
        }
    }
}

impl ClusterReport {
    fn of(cluster: &Cluster, sources: &Sources<'_>) -> Self {
        let server = cluster.server.as_str();
        let of_cluster = |refused: &[WouldRefuse]| {
            let here = refused.iter().filter(|entry| entry.server == server);
            here.cloned().collect()
        };
        let mut report = Self {
            name: match cluster.name.as_str() {
                "" => server.to_owned(),
                name => name.to_owned(),
            },
            server: server.to_owned(),
            route: route(cluster, sources.resources),
            accounts: Vec::new(),
            without_account: Vec::new(),
            would_refuse: sources.refused.map(of_cluster),
            steps: Vec::new(),
            way_back: Vec::new(),
        };
        let mut accounts: BTreeMap<ServiceAccountName, AccountReport> = BTreeMap::new();
        let here = |indexed: &&Arc<IndexedApplication>| {
            let destination = indexed.destination.as_ref();
            destination.is_ok_and(|destination| destination.server == server)
        };
        for indexed in sources.index.iter().filter(here) {
            let application = &indexed.application;
            let name = format!("{}/{}", application.name.namespace, application.name.name);
            // What acts where no entry matches is Tollgate's own rule. Argo CD does not know it.
            let derived = indexed.derived_account.as_ref().ok();
            let derived = derived.filter(|derived| matches!(derived.by, AccountSource::Entry { .. }));
            let named = derived.and_then(|derived| derived.account.as_ref());
            match (why_no_account(sources.index, indexed, server), named) {
                (None, Some(account)) => {
                    let entry = accounts.entry(account.clone());
                    let entry = entry.or_insert_with_key(AccountReport::new);
                    entry.add(name, &application.project, sources.deployed.get(&application.name));
                }
                (reason, _) => report.without_account.push(Unassigned {
                    application: name,
                    project: application.project.clone(),
                    namespace: application.destination.namespace.clone(),
                    reason: reason.unwrap_or_else(|| NAMES_NO_ACCOUNT.to_owned()),
                }),
            }
        }
        report.accounts = accounts.into_values().collect();
        report.without_account.sort();
        report
    }

    /// Every account, and the roles that it needs to deploy.
    pub(super) fn roles_of_accounts(&self) -> Vec<Value> {
        let accounts = self.accounts.iter();
        accounts
            .flat_map(|report| deployer(&report.account, &report.needs))
            .collect()
    }

    /// The roles that let the gateway act as the accounts and as the reader, and nothing else.
    pub(super) fn roles_of_gateway(&self, reader: Option<&ReaderAccount>, subject: &Subject) -> Vec<Value> {
        let reader = reader.map(ServiceAccountName::from);
        let accounts = self.accounts.iter().map(|report| &report.account).chain(&reader);
        classic(&accounts.collect(), &[], subject, ExistenceCheck::Without)
    }
}

impl AccountReport {
    fn new(account: &ServiceAccountName) -> Self {
        Self {
            account: account.clone(),
            projects: BTreeSet::new(),
            applications: BTreeSet::new(),
            needs: BTreeSet::new(),
            grants_rights: false,
        }
    }

    fn add(&mut self, application: String, project: &str, kinds: Option<&BTreeSet<DeployedKind>>) {
        self.applications.insert(application);
        self.projects.insert(project.to_owned());
        for kind in kinds.into_iter().flatten() {
            self.grants_rights |= grants_rights(kind);
            self.needs.insert(kind.clone());
        }
    }

    /// As settings of projects write it.
    pub(super) fn shown(&self) -> String {
        format!("{}:{}", self.account.namespace, self.account.name)
    }
}

fn route(cluster: &Cluster, resources: &Resources) -> Route {
    let config = resources.cluster_configs.get(&cluster.server);
    match config {
        Some(config) if config.is_enrolled => Route::Enrolled,
        _ if cluster.server == IN_CLUSTER_SERVER => Route::InCluster,
        Some(_) | None => Route::Direct,
    }
}

fn impersonation(resources: &Resources) -> ImpersonationState {
    let is = |key: &str, expected: &str| {
        let text = resources.argocd_cm.data.get(key);
        text.is_some_and(|text| &*text.value == expected)
    };
    match (is(ENABLED_KEY, "true"), is(ENFORCED_KEY, "false")) {
        (false, _) => ImpersonationState::Off,
        (true, true) => ImpersonationState::NotEnforced,
        (true, false) => ImpersonationState::Enforced,
    }
}
