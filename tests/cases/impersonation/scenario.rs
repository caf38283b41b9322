//! The Application of a case, with its project and the cluster it deploys to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::Location;
use tollgate_objects::{Application, Cluster, DestinationServiceAccount, ObjectName, Project, Resources, Text};
use tollgate_policy::applications::{ApplicationIndex, IndexedApplication};
use tollgate_policy::impersonate::service_account::{
    DeployTarget, DestinationServiceAccounts, Error, Fallback, ImpersonationRules, PatternMatch,
};

/// The project of every Application.
pub(super) const PROJECT: &str = "case";
/// The Application of every case.
pub(super) const APPLICATION: &str = "app";
/// A server that no pattern of a case matches.
const UNMATCHED_SERVER: &str = "https://nowhere.invalid";

/// An entry of `destinationServiceAccounts`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    #[serde(default)]
    pub(super) server: String,
    #[serde(default)]
    namespace: String,
    #[serde(default, rename = "defaultServiceAccount")]
    account: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct App {
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) destination: Destination,
}

/// A destination of an Application, or one of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Destination {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) server: String,
    #[serde(default)]
    pub(super) namespace: String,
}

/// The cluster to which the destination resolves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    pub(super) server: String,
    #[serde(default)]
    pub(super) name: String,
}

/// Everything that a case describes.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) settings: BTreeMap<String, String>,
    pub(super) accounts: Vec<Entry>,
    pub(super) app: App,
    /// None if the destination does not resolve to a cluster.
    pub(super) cluster: Option<Known>,
    /// `spec.destinations` of the project.
    pub(super) destinations: Vec<Destination>,
    /// Its `spec.destinations` after a change.
    pub(super) patched: Option<Vec<Destination>>,
    /// Accounts that exist in the cluster, as `namespace/name`. If none, all accounts exist.
    pub(super) existing: Option<BTreeSet<String>>,
}

impl Entry {
    pub(super) fn of(entry: &DestinationServiceAccount) -> Self {
        Self {
            server: entry.server.clone(),
            namespace: entry.namespace.clone(),
            account: entry.default_service_account.clone(),
        }
    }

    pub(super) fn written(&self) -> DestinationServiceAccount {
        DestinationServiceAccount {
            server: self.server.clone(),
            namespace: self.namespace.clone(),
            default_service_account: self.account.clone(),
            location: Location::new("case", 1),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({"server": self.server, "namespace": self.namespace, "defaultServiceAccount": self.account})
    }
}

impl Destination {
    pub(super) fn json(&self) -> Value {
        let mut json = json!({});
        for (key, value) in [
            ("name", &self.name),
            ("server", &self.server),
            ("namespace", &self.namespace),
        ] {
            if !value.is_empty() {
                json[key] = value.as_str().into();
            }
        }
        json
    }

    fn state(&self) -> tollgate_objects::Destination {
        tollgate_objects::Destination {
            name: self.name.clone(),
            server: self.server.clone(),
            namespace: self.namespace.clone(),
        }
    }
}

/// The error class of cases for an error of the derivation.
pub(super) fn class(error: &Error) -> &'static str {
    match error {
        Error::ServerPattern { .. } => "invalid_server_glob",
        Error::NamespacePattern { .. } => "invalid_namespace_glob",
        Error::InvalidAccount { .. } => "invalid_service_account",
        Error::InvalidNamespace { .. } | Error::Reserved { .. } => "invalid_service_account_namespace",
        Error::NoMatch { .. } => "no_matching_service_account",
        Error::Project { .. } => "no_project",
        Error::Destination(_) => "no_destination",
    }
}

impl Scenario {
    pub(super) fn new(accounts: Vec<Entry>, app: App, cluster: Option<Known>) -> Self {
        let mut scenario = Self {
            settings: BTreeMap::new(),
            accounts,
            app,
            cluster,
            destinations: vec![Destination {
                name: String::new(),
                server: "*".to_owned(),
                namespace: "*".to_owned(),
            }],
            patched: None,
            existing: None,
        };
        scenario.align_destination();
        scenario
    }

    /// Makes the destination and the resolved cluster consistent. Cases give both independently,
    /// but the index resolves one from the other.
    fn align_destination(&mut self) {
        let Some(cluster) = &mut self.cluster else {
            return;
        };
        let Destination { name, server, .. } = &mut self.app.destination;
        match (name.is_empty(), server.is_empty()) {
            (true, false) => server.clone_from(&cluster.server),
            (false, true) if cluster.name.is_empty() => cluster.name.clone_from(name),
            (false, true) => name.clone_from(&cluster.name),
            (true, true) | (false, false) => {}
        }
    }

    /// The user that acts, empty if no entry matches.
    pub(super) fn derived(&self, semantics: ServiceAccountSemantics) -> Result<String, Error> {
        let mut rules = ImpersonationRules::new(semantics);
        rules.fallback = Fallback::Deny;
        let governed = self.governed(&rules);
        match &governed.derived_account {
            Ok(derived) => Ok(derived
                .account
                .as_ref()
                .map(|account| account.username())
                .unwrap_or_default()),
            Err(Error::NoMatch { .. }) => Ok(String::new()),
            Err(error) => Err(error.clone()),
        }
    }

    /// The Application in the index.
    pub(super) fn governed(&self, rules: &ImpersonationRules) -> Arc<IndexedApplication> {
        let index = self.index(rules);
        let found = index.find(&self.app.namespace, APPLICATION);
        Arc::clone(found.expect("the index has the Application"))
    }

    pub(super) fn index(&self, rules: &ImpersonationRules) -> ApplicationIndex {
        let project = project(PROJECT, &self.accounts, &self.destinations);
        let application = Application {
            name: ObjectName {
                namespace: self.app.namespace.clone(),
                name: APPLICATION.to_owned(),
            },
            project: PROJECT.to_owned(),
            destination: self.app.destination.state(),
            application_set: None,
            repositories: Vec::new(),
            labels: BTreeMap::new(),
            location: Location::new("case", 1),
        };
        let mut resources = Resources {
            control_plane_namespace: self.app.namespace.clone(),
            projects: BTreeMap::from([(PROJECT.to_owned(), Arc::new(project))]),
            applications: BTreeMap::from([(application.name.clone(), Arc::new(application))]),
            clusters: self.cluster.iter().map(Known::state).collect(),
            ..Resources::default()
        };
        for (key, value) in &self.settings {
            set(&mut resources, key, value);
        }
        ApplicationIndex::build(&resources, rules, None, None)
    }

    /// The same scenario with the cluster at another server. Patterns are changed so that each one
    /// matches the new server exactly if it matched the case's.
    pub(super) fn moved_to(&self, server: &str, semantics: ServiceAccountSemantics) -> Self {
        let mut moved = self.clone();
        let (Some(own), Some(there)) = (&self.cluster, &mut moved.cluster) else {
            return moved;
        };
        server.clone_into(&mut there.server);
        for entry in &mut moved.accounts {
            let before = server_match(entry, &own.state(), semantics);
            let mut written = entry.clone();
            written.server = entry.server.replace(&own.server, server);
            if server_match(&written, &there.state(), semantics) != before {
                written.server = match before {
                    PatternMatch::Yes => server.to_owned(),
                    PatternMatch::No | PatternMatch::Broken => UNMATCHED_SERVER.to_owned(),
                };
            }
            *entry = written;
        }
        moved.align_destination();
        moved
    }
}

/// Whether the server pattern of an entry matches a cluster.
fn server_match(entry: &Entry, cluster: &Cluster, semantics: ServiceAccountSemantics) -> PatternMatch {
    let target = DeployTarget {
        cluster,
        namespace: "",
        application_namespace: "",
        control_plane_namespace: "",
    };
    let tried = DestinationServiceAccounts::compile(&[entry.written()], semantics).explain(&target);
    tried.first().map_or(PatternMatch::No, |tried| tried.server_matched)
}

impl Known {
    fn state(&self) -> Cluster {
        Cluster {
            name: self.name.clone(),
            server: self.server.clone(),
            project: String::new(),
        }
    }
}

fn project(name: &str, accounts: &[Entry], destinations: &[Destination]) -> Project {
    Project {
        name: name.to_owned(),
        destinations: destinations.iter().map(Destination::state).collect(),
        destination_service_accounts: accounts.iter().map(Entry::written).collect(),
        location: Location::new("case", 1),
        ..Project::default()
    }
}

fn set(resources: &mut Resources, key: &str, value: &str) {
    let text = Text {
        value: Arc::from(value),
        location: Location::new("argocd-cm", 1),
    };
    resources.argocd_cm.data.insert(key.to_owned(), text);
}

/// The effective entries of a project with a global project.
pub(super) fn merged(
    own: &[Entry],
    global: &[Entry],
    semantics: ServiceAccountSemantics,
) -> Result<Vec<Entry>, String> {
    let projects = [project("own", own, &[]), project("global", global, &[])];
    let mut resources = Resources {
        projects: projects
            .into_iter()
            .map(|project| (project.name.clone(), Arc::new(project)))
            .collect(),
        ..Resources::default()
    };
    set(&mut resources, "globalProjects", "- projectName: global\n");
    let index = ApplicationIndex::build(&resources, &ImpersonationRules::new(semantics), None, None);
    let merged = index.project("own").ok_or("the project is gone")?;
    Ok(merged.destination_service_accounts.iter().map(Entry::of).collect())
}
