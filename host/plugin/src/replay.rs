//! Replays cases of a credential provider without a network, for tests of the provider. A
//! transcript lists the requests that a provider should send, the answers it gets and the result;
//! a replay returns for each case the actual result and every difference.
//!
//! Only the network is replaced, by one in memory. Everything above it is the gateway's own: TLS,
//! allow-list, address checks, hosts of secrets, redaction and budgets.
//!
//! Security: no packet leaves the process, and no report contains a secret.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

mod case;
mod compare;
mod fakes;
mod jwt;
mod labels;
mod network;
mod outcome;

pub use case::{Case, parse};
pub use outcome::ReplayOutcome;

use super::provider::{CredentialProvider, EgressRecord, ProviderEnvironment, webapi_public_values};
use super::{Allocation, Ambient, PluginSet, Runtime, SecretValues, WallClock};
use super::{egress::EgressClient, egress::Network};
use super::{manifest, manifest::Manifest};
use crate::credential::{Credential, MintError, MintRequest};
use fakes::{CaseAmbient, ManualClock};
use labels::SecretLabels;
use network::{Attempt, ReplayNetwork};
use tollgate_config::EgressEntry;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::plugin::Import;
use tollgate_core::plugin::World as Kind;

/// Why cases cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not YAML.
    #[error("{0}")]
    Yaml(String),
    /// A case in the file is not valid.
    #[error("case `{case}`: {reason}")]
    Case {
        /// Which.
        case: String,
        /// What is wrong.
        reason: String,
    },
    /// Nothing to replay.
    #[error("there is no case: write `now`, `config`, `requests` and `expect`, or several such under `cases`")]
    Empty,
    /// No folder of plugins.
    #[error("there is no plugins folder: name one with `--plugins-dir`")]
    NoFolder,
    /// The manifest cannot be read.
    #[error("cannot read the manifest `{}`", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another kind of plugin.
    #[error("`{0}` is no credential provider; a header filter is tested with `--request`")]
    World(String),
    /// The plugin does not load.
    #[error("`{name}` is not loaded:{}", lines(findings))]
    Load {
        /// Its name.
        name: String,
        /// Why.
        findings: Vec<Diagnostic>,
    },
    /// The engine or the authority does not start.
    #[error(transparent)]
    Engine(#[from] super::Error),
    /// The authority of the replay cannot be made.
    #[error("cannot make certificates for the replay")]
    Authority(#[from] rcgen::Error),
    /// No thread or no runtime.
    #[error("cannot run the replay")]
    Run(#[from] io::Error),
}

fn lines(findings: &[Diagnostic]) -> String {
    findings.iter().map(|finding| format!("\n{finding}")).collect()
}

/// The results of a transcript.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Plugin name.
    pub plugin: String,
    /// Its version.
    pub version: String,
    /// Digest of the component, lower-case hex.
    pub sha256: String,
    /// What the replay granted, which in a gateway the operator decides.
    pub granted: ReplayGrant,
    /// The cases, in the order of the file.
    pub cases: Vec<CaseReport>,
}

impl Report {
    /// Whether no case has a difference.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.cases.iter().all(CaseReport::passed)
    }
}

/// What the replay granted, in the form of `plugins.grants.<name>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayGrant {
    /// Hosts, with a port other than 443.
    pub hosts: BTreeSet<String>,
    /// Host interfaces.
    pub imports: BTreeSet<String>,
    /// Audiences of the pod's tokens.
    pub audiences: BTreeSet<String>,
}

/// The report of one replayed case.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CaseReport {
    /// The case.
    pub case: String,
    /// A credential or an error.
    pub outcome: ReplayOutcome,
    /// Requests of `mint`, as an operator would see them.
    pub requests: Vec<EgressRecord>,
    /// Warnings of `check` and `mint` for the operator.
    pub warnings: Vec<String>,
    /// Differences from what was expected; empty if the case passed.
    pub differences: Vec<String>,
}

impl CaseReport {
    /// Whether everything is as expected.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.differences.is_empty()
    }
}

/// Replays `cases` against the provider `name` of the folder in `settings`. The provider is granted
/// what its manifest asks for, where `*` means the hosts to which the case expects requests. Cases
/// are independent: nothing is kept between them.
///
/// Blocks; compiles the component once.
///
/// # Errors
/// [`Error`]: nothing was replayed. A case that fails is no error.
pub fn run(settings: &tollgate_config::Plugins, name: &str, cases: &[Case]) -> Result<Report, Error> {
    let manifest = read_manifest(settings, name)?;
    let network = Arc::new(ReplayNetwork::new()?);
    let mut report = Report {
        plugin: name.to_owned(),
        version: manifest.version.to_string(),
        sha256: manifest.sha256.clone(),
        granted: ReplayGrant::default(),
        cases: Vec::with_capacity(cases.len()),
    };
    let mut loaded: Option<(ReplayGrant, ReplayEnvironment)> = None;
    for case in cases {
        let granted = requested_grant(&manifest, case);
        // Cases of one file mostly talk to the same hosts.
        let environment = match loaded.take().filter(|(known, _)| *known == granted) {
            Some((_, environment)) => environment,
            None => ReplayEnvironment::load(settings, &manifest, &granted, &network)?,
        };
        report.cases.push(environment.run_case(name, case)?);
        report.granted.hosts.extend(granted.hosts.iter().cloned());
        report.granted.imports.extend(granted.imports.iter().cloned());
        report.granted.audiences.extend(granted.audiences.iter().cloned());
        loaded = Some((granted, environment));
    }
    Ok(report)
}

fn read_manifest(settings: &tollgate_config::Plugins, name: &str) -> Result<Manifest, Error> {
    let folder = settings.directory.as_deref().ok_or(Error::NoFolder)?;
    let path = folder.join(format!("{name}.yaml"));
    let text = fs::read_to_string(&path).map_err(|source| Error::Manifest {
        path: path.clone(),
        source,
    })?;
    let read = manifest::parse(&text, &path.display().to_string(), name);
    let manifest = read.value.ok_or_else(|| Error::Load {
        name: name.to_owned(),
        findings: read.diagnostics,
    })?;
    match manifest.world {
        Kind::CredentialProvider => Ok(manifest),
        Kind::HeaderFilter | Kind::Generator => Err(Error::World(name.to_owned())),
    }
}

/// The grant that the manifest asks for, with the configuration of `case`.
fn requested_grant(manifest: &Manifest, case: &Case) -> ReplayGrant {
    let permissions = &manifest.provider;
    let mut hosts = BTreeSet::new();
    for host in permissions
        .hosts
        .iter()
        .filter_map(|host| host.expand_text(&case.config))
    {
        match host.as_str() {
            "*" => hosts.extend(case.expected_hosts()),
            _ => {
                hosts.insert(host);
            }
        }
    }
    let audiences = permissions.audiences.iter();
    ReplayGrant {
        hosts,
        imports: manifest
            .imports
            .iter()
            .copied()
            .map(Import::name)
            .map(str::to_owned)
            .collect(),
        audiences: audiences
            .filter_map(|permission| permission.audience.expand(&case.config))
            .collect(),
    }
}

/// A provider with one grant, and its network, pod identities and clock.
struct ReplayEnvironment {
    set: PluginSet,
    network: Arc<ReplayNetwork>,
    ambient: Arc<CaseAmbient>,
    clock: Arc<ManualClock>,
}

impl ReplayEnvironment {
    fn load(
        settings: &tollgate_config::Plugins,
        manifest: &Manifest,
        granted: &ReplayGrant,
        network: &Arc<ReplayNetwork>,
    ) -> Result<Self, Error> {
        let name = &manifest.name;
        let grant = tollgate_config::PluginGrant {
            hosts: granted.hosts.iter().map(|host| entry(host, network)).collect(),
            imports: granted.imports.iter().cloned().collect(),
            audiences: granted.audiences.iter().cloned().collect(),
            ..settings.grants.get(name).cloned().unwrap_or_default()
        };
        let settings = tollgate_config::Plugins {
            directory: settings.directory.clone(),
            cache: settings.cache.clone(),
            grants: [(name.clone(), grant)].into(),
            ..tollgate_config::Plugins::default()
        };
        let (ambient, clock) = (Arc::<CaseAmbient>::default(), Arc::<ManualClock>::default());
        let environment = ProviderEnvironment {
            egress_client: Arc::new(EgressClient::with_network(Arc::clone(network) as Arc<dyn Network>)),
            ambient: Arc::clone(&ambient) as Arc<dyn Ambient>,
            clock: Arc::clone(&clock) as Arc<dyn WallClock>,
        };
        let runtime = Runtime::with_environment(&settings, Allocation::OnDemand, environment)?;
        let (set, findings) = runtime.load_only(name);
        if set.provider(name).is_none() {
            return Err(Error::Load {
                name: name.clone(),
                findings,
            });
        }
        Ok(Self {
            set,
            network: Arc::clone(network),
            ambient,
            clock,
        })
    }

    /// Runs one case to its end.
    fn run_case(&self, name: &str, case: &Case) -> Result<CaseReport, Error> {
        let provider = self.set.provider(name).ok_or_else(|| Error::World(name.to_owned()))?;
        self.clock.set(case.now);
        self.ambient.set(case.ambient.clone(), case.now);
        self.network
            .set_responses(case.exchanges.iter().map(|exchange| exchange.answer.clone()));
        let results = super::block_on_new_thread(|| run_calls(provider, case))?;
        let attempts = self.network.attempts();
        let labels = SecretLabels::for_case(case);
        Ok(report(case, results, &attempts, &labels))
    }
}

/// The results of one case's calls.
struct CaseResults {
    minted: Result<Credential, MintError>,
    records: Vec<EgressRecord>,
    checked: Vec<String>,
    revoked: Option<Result<(), MintError>>,
}

/// `check`, `mint`, and `revoke` where the case wants it.
async fn run_calls(provider: &Arc<CredentialProvider>, case: &Case) -> CaseResults {
    let secret_values = match provider.name() {
        "webapi" => SecretValues {
            public: webapi_public_values(&case.config),
            ..case.secret_values.clone()
        },
        _ => case.secret_values.clone(),
    };
    let source = provider.mint_for(case.cluster.clone(), &case.config, secret_values);
    let checked = match source.check().await {
        Ok(warnings) => warnings,
        Err(error) => {
            return CaseResults {
                minted: Err(error),
                records: Vec::new(),
                checked: Vec::new(),
                revoked: None,
            };
        }
    };
    let request = MintRequest {
        reason: case.reason,
        previous_expiry: case.previous_expiry,
        budget: case.budget,
    };
    let (minted, records) = source.mint_traced(request).await;
    let held = minted
        .as_ref()
        .ok()
        .and_then(|credential| credential.revocation.as_ref());
    let revoked = match held.filter(|_| case.expects_revocation) {
        Some(held) => Some(source.revoke_now(held).await),
        None => None,
    };
    CaseResults {
        minted,
        records,
        checked,
        revoked,
    }
}

fn report(case: &Case, results: CaseResults, attempts: &[Attempt], labels: &SecretLabels) -> CaseReport {
    let CaseResults {
        minted,
        records,
        checked,
        revoked,
    } = results;
    let mut warnings = checked;
    if let Ok(credential) = &minted {
        warnings.extend(credential.warnings.iter().cloned());
    }
    let mut differences = compare::requests(case, attempts, labels);
    differences.extend(outcome::differences(&case.expect, &minted, &warnings, labels));
    match (case.expects_revocation, revoked) {
        (true, None) => differences.push("revoke: there is no credential with something to revoke".to_owned()),
        (true, Some(Err(error))) => differences.push(format!("revoke: {}: {error}", error.class.as_str())),
        (true, Some(Ok(()))) | (false, _) => {}
    }
    CaseReport {
        case: case.id.clone(),
        outcome: ReplayOutcome::from_result(&minted),
        requests: records,
        warnings,
        differences,
    }
}

/// An entry of the grant that trusts only the authority of the replay.
fn entry(host: &str, network: &ReplayNetwork) -> EgressEntry {
    let address = url::Url::parse(&format!("https://{host}"));
    let address = address.ok().and_then(|url| match url.host()? {
        url::Host::Ipv4(address) => Some(std::net::IpAddr::from(address)),
        url::Host::Ipv6(address) => Some(std::net::IpAddr::from(address)),
        url::Host::Domain(_) => None,
    });
    EgressEntry {
        host: host.to_owned(),
        private: address.is_some_and(|address| !address.is_loopback()),
        loopback: address.is_some_and(|address| address.is_loopback()),
        ca: Some(network.authority_pem().to_owned()),
        ..EgressEntry::default()
    }
}

/// Time limit of a mint that should time out.
const TIMEOUT_CASE_BUDGET: Duration = Duration::from_secs(2);
/// Time limit of any other mint.
const DEFAULT_CASE_BUDGET: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
