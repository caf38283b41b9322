//! Indexes every Application of a snapshot by namespace and name, with its project, its destination
//! cluster, and the service account that acts for it under the rules of `policies/applications`.
//!
//! The index holds facts about Applications and decides nothing about a caller. Building it reuses
//! what has not changed since the previous snapshot.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{HashMap, HashTable};
use rustc_hash::FxBuildHasher;

use crate::impersonate::service_account::{
    self, DeployTarget, DerivedAccount, DestinationServiceAccounts, EvaluatedEntry, Fallback,
};
use crate::sync_windows::{ApplicableWindows, SyncWindows};
use tollgate_config::{GatewayIdentity, ImpersonationMode, ServiceAccountSemantics};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::glob::source_permitted;
use tollgate_objects::destination::{self, CompiledDestinations};
use tollgate_objects::{Application, Cluster, ObjectName, Project, ScopedObjects};

mod accounts;
mod build;
mod global;
mod merge;
mod preview;
mod projects;
mod settings;
#[cfg(test)]
mod tests;
mod tracking;

pub use accounts::ActingAccount;
pub use projects::Projects;
pub use settings::{ENABLED_KEY, ENFORCED_KEY, Inheritance, OWN_ENABLED_KEY};
pub use tracking::{ResourceKey, TrackedBy, Tracking};

use accounts::AccountsByServer;

/// The index of every Application of a snapshot.
#[derive(Debug, Default)]
pub struct ApplicationIndex {
    /// Whether service accounts act for Applications.
    pub mode: ImpersonationMode,
    /// Who acts when no entry matches. `argocd-cm` takes precedence over the rules.
    pub fallback: Fallback,
    /// Whether a permission on an Application extends to its objects.
    pub inheritance: Inheritance,
    /// How live objects are marked as belonging to an Application.
    pub tracking: Arc<Tracking>,
    semantics: ServiceAccountSemantics,
    control_plane_namespace: Arc<str>,
    clusters: Arc<[Cluster]>,
    projects: BTreeMap<String, Arc<MergedProject>>,
    by_namespace: HashMap<String, ApplicationsByName, FxBuildHasher>,
    /// What is wrong with settings in `argocd-cm`.
    findings: Vec<Diagnostic>,
    /// The accounts that act in each cluster, by server and username.
    acting: Arc<AccountsByServer>,
}

/// An Application with its project, its destination cluster and its account.
#[derive(Debug)]
pub struct IndexedApplication {
    /// The Application.
    pub application: Arc<Application>,
    /// Its project, as [`Projects`] has it. `None` if the project does not exist or does
    /// not take Applications of that namespace.
    pub project: Option<Arc<Project>>,
    /// The destination cluster.
    pub destination: Result<Arc<Cluster>, destination::Error>,
    /// Whether its project permits its destination. False if there is no project or no cluster.
    pub is_destination_permitted: bool,
    /// The account that acts for it when service accounts act.
    pub derived_account: Result<DerivedAccount, service_account::Error>,
    accounts: Option<Arc<DestinationServiceAccounts>>,
    sync_windows: Option<Arc<SyncWindows>>,
}

#[derive(Debug)]
struct MergedProject {
    own: Arc<Project>,
    globals: Vec<Arc<Project>>,
    scoped: ScopedObjects,
    merged: Arc<Project>,
    /// The destinations of `merged`.
    destinations: CompiledDestinations,
    accounts: Arc<DestinationServiceAccounts>,
    sync_windows: Arc<SyncWindows>,
    /// Warnings about its own service accounts and sync windows.
    findings: Vec<Diagnostic>,
}

/// The Applications of one namespace, by the name that each of them holds: a map would copy it.
#[derive(Debug)]
struct ApplicationsByName(HashTable<Arc<IndexedApplication>>);

impl ApplicationsByName {
    /// An empty table with room for as many Applications as `before` has.
    fn with_room_of(before: Option<&Self>) -> Self {
        Self(HashTable::with_capacity(before.map_or(0, |before| before.0.len())))
    }

    fn find(&self, name: &str) -> Option<&Arc<IndexedApplication>> {
        self.0.find(hash(name), |indexed| indexed.application.name.name == name)
    }

    /// Adds an Application. The caller adds each name once.
    fn insert(&mut self, indexed: Arc<IndexedApplication>) {
        let own_hash = |indexed: &Arc<IndexedApplication>| hash(&indexed.application.name.name);
        self.0.insert_unique(own_hash(&indexed), indexed, own_hash);
    }
}

fn hash(name: &str) -> u64 {
    FxBuildHasher.hash_one(name)
}

impl ApplicationIndex {
    /// The Application of this name, if it exists. Allocates nothing.
    pub fn find(&self, namespace: &str, name: &str) -> Option<&Arc<IndexedApplication>> {
        self.by_namespace.get(namespace)?.find(name)
    }

    /// The instance name by which live objects refer to an Application.
    pub fn instance_name(&self, application: &ObjectName) -> String {
        tracking::instance_name(application, &self.control_plane_namespace)
    }

    /// Every Application, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<IndexedApplication>> {
        self.by_namespace.values().flat_map(|members| &members.0)
    }

    /// The Application that objects with this instance name belong to, if it exists.
    pub fn find_instance(&self, instance: &str) -> Option<&Arc<IndexedApplication>> {
        let (namespace, name) = tracking::application_of(instance, &self.control_plane_namespace);
        self.find(namespace, name)
    }

    /// A service account, if it acts in the cluster of this server for an Application whose project
    /// permits the destination.
    ///
    /// - `server`: as the cluster's Secret spells it.
    /// - `username`: the account's, such as `system:serviceaccount:shop:deployer`.
    pub fn acting_in(&self, server: &str, username: &str) -> Option<&Arc<ActingAccount>> {
        self.acting.get(server)?.get(username)
    }

    /// The service account that acts for an Application in the cluster of this server, if its
    /// project names one and permits the destination.
    pub fn acting_for(&self, indexed: &IndexedApplication, server: &str) -> Option<&Arc<ActingAccount>> {
        let account = indexed.derived_account.as_ref().ok()?.account.as_ref()?;
        let acting = self.acting_in(server, &account.username())?;
        acting.find(&indexed.application.name).map(|_| acting)
    }

    fn len(&self) -> usize {
        self.by_namespace.values().map(|members| members.0.len()).sum()
    }

    /// The project of this name, as [`Projects`] has it.
    pub fn project(&self, name: &str) -> Option<&Arc<Project>> {
        self.projects.get(name).map(|merged_project| &merged_project.merged)
    }

    /// All projects, as they are in the index.
    pub fn projects(&self) -> Projects {
        let merged = |(name, project): (&String, &Arc<MergedProject>)| (name.clone(), Arc::clone(&project.merged));
        self.projects.iter().map(merged).collect()
    }

    /// Findings about `argocd-cm`, service accounts and sync windows, with locations.
    ///
    /// Errors, after which nothing of the load may be used: `argocd-cm` is missing, or
    /// `globalProjects` is broken. Warnings: a value that means nothing, suspicious lists of
    /// service accounts, sync windows that cannot be used, and projects that have service accounts
    /// while impersonation is off.
    pub fn findings(&self) -> Vec<Diagnostic> {
        let mut found = self.findings.clone();
        for merged_project in self.projects.values() {
            found.extend(merged_project.findings.iter().cloned());
            let accounts = merged_project.own.destination_service_accounts.first();
            if let (ImpersonationMode::Off, Some(first)) = (self.mode, accounts) {
                let message = format!(
                    "project `{}` has `destinationServiceAccounts`, but impersonation is off: nobody acts as them",
                    merged_project.own.name
                );
                let hint = format!(
                    "set `{OWN_ENABLED_KEY}` of argocd-cm to `true`, or to `audit` to try it; `{ENABLED_KEY}` also \
                     turns on Argo CD's own impersonation"
                );
                found.push(Diagnostic::warning(first.location.clone(), message).with_hint(hint));
            }
        }
        found
    }

    /// A warning if the gateway acts in its own name, or refuses to, where no service account acts.
    pub fn gateway_finding(&self, identity: GatewayIdentity) -> Option<Diagnostic> {
        let every_request = "every request into the cluster of an Application";
        let (because, which) = match (self.mode, self.fallback) {
            (ImpersonationMode::Off, _) => ("impersonation is off", every_request),
            (ImpersonationMode::Audit, _) => ("impersonation is only audited", every_request),
            (ImpersonationMode::Enforce, Fallback::Controller) => (
                "the fallback is the controller",
                "every request for an Application whose project names no account for it",
            ),
            (ImpersonationMode::Enforce, Fallback::DefaultServiceAccount | Fallback::Deny) => return None,
        };
        let (message, hint) = match identity {
            GatewayIdentity::Allowed => (
                format!("{because}: {which} is made with the gateway's own rights there, which are more than its own"),
                format!("name accounts in projects, and set `{OWN_ENABLED_KEY}` of argocd-cm to `true`"),
            ),
            GatewayIdentity::Refused => (
                format!("{because}, and the gateway does not act in its own name: {which} is refused"),
                format!(
                    "set `{OWN_ENABLED_KEY}` of argocd-cm to `true`, or `applications.gatewayIdentity` to `allowed`"
                ),
            ),
        };
        Some(Diagnostic::warning(None, message).with_hint(hint))
    }
}

impl IndexedApplication {
    /// The sync windows of its project that apply to it.
    pub fn applicable_windows(&self) -> ApplicableWindows {
        let windows = self.sync_windows.as_ref();
        windows.map_or_else(ApplicableWindows::default, |windows| {
            windows.applicable_to(&self.application)
        })
    }

    /// The first repository of its sources that its project does not permit. An Application without
    /// sources counts as one whose repository has an empty name. `None` if there is no project.
    ///
    /// Source: Argo CD, `ValidatePermissions`.
    pub fn refused_repository(&self) -> Option<&str> {
        let project = self.project.as_ref()?;
        let permitted = |repository: &str| source_permitted(&project.source_repos, repository);
        if self.application.repositories.is_empty() {
            return (!permitted("")).then_some("");
        }
        let mut repositories = self.application.repositories.iter().map(String::as_str);
        repositories.find(|repository| !permitted(repository))
    }

    /// Whether requests about it are refused in this mode, regardless of the caller: because nobody
    /// acts, or because of a source that its project does not permit.
    pub fn is_refused(&self, mode: ImpersonationMode) -> bool {
        // In the modes off and audit the gateway acts as itself, but needs a project and a cluster.
        let lacks_identity = match mode {
            ImpersonationMode::Enforce => self.derived_account.is_err(),
            ImpersonationMode::Off | ImpersonationMode::Audit => self.project.is_none() || self.destination.is_err(),
        };
        lacks_identity || self.refused_repository().is_some()
    }

    /// How each entry of the project's list matched on the way to the account; the entry that
    /// decided is last. Empty if there is no project or no cluster. Allocates: meant for people and
    /// load time.
    pub fn evaluated_entries(&self) -> Vec<EvaluatedEntry> {
        match (&self.accounts, &self.destination) {
            // An empty control plane namespace is enough: matching patterns does not use it.
            (Some(accounts), Ok(cluster)) => accounts.explain(&target(&self.application, cluster, "")),
            (None, _) | (Some(_), Err(_)) => Vec::new(),
        }
    }
}

fn target<'a>(
    application: &'a Application,
    cluster: &'a Cluster,
    control_plane_namespace: &'a str,
) -> DeployTarget<'a> {
    DeployTarget {
        control_plane_namespace,
        cluster,
        namespace: &application.destination.namespace,
        application_namespace: &application.name.namespace,
    }
}

/// Whether a project takes Applications of `namespace`: always for the control plane's own
/// namespace, for others if `sourceNamespaces` says so.
///
/// Source: Argo CD, `AppProject.IsAppNamespacePermitted`.
pub fn is_app_namespace_permitted(project: &Project, control_plane_namespace: &str, namespace: &str) -> bool {
    tollgate_core::glob::namespace_enabled(namespace, control_plane_namespace, &project.source_namespaces)
}
