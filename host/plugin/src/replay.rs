//! Replays cases of a credential provider without a network, for tests of the provider. A
//! transcript lists the requests that a provider should send, the answers it gets and the result;
//! a replay returns for each case the actual result and every difference.
//!
//! Only the network is replaced, by the recorded answers. Everything above it is the gateway's own:
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
mod outcome;

pub use case::{Case, parse};
pub use outcome::ReplayOutcome;

use super::call_state::{EgressRecord, ProviderEnvironment};
use super::egress::{EgressClient, address_of};
use super::provider::{CredentialProvider, webapi_public_values};
use super::{Allocation, Ambient, Runtime, SecretValues, WallClock};
use super::{manifest, manifest::Manifest};
use fakes::CaseEnvironment;
use labels::SecretLabels;
use tollgate_config::EgressEntry;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::plugin::World as Kind;
use tollgate_credential::MintRequest;

/// Why cases cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not YAML.
    #[error("{0}")]
    Yaml(String),
    /// A case in the file is not valid: which, and why.
    #[error("case `{0}`: {1}")]
    Case(String, String),
    /// Nothing to replay.
    #[error("there is no case: write `now`, `config`, `requests` and `expect`, or several such under `cases`")]
    Empty,
    /// No folder of plugins.
    #[error("there is no plugins folder: name one with `--plugins-dir`")]
    NoFolder,
    /// The manifest cannot be read.
    #[error("cannot read the manifest `{}`", .0.display())]
    Manifest(PathBuf, #[source] io::Error),
    /// Another kind of plugin.
    #[error("`{0}` is not a credential provider; test a header filter with `--request`")]
    World(String),
    /// The plugin does not load: its name, and why.
    #[error("`{0}` is not loaded:{findings}", findings = lines(.1))]
    Load(String, Vec<Diagnostic>),
    /// The engine does not start.
    #[error(transparent)]
    Engine(#[from] super::Error),
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
            None => ReplayEnvironment::load(settings, &manifest, &granted)?,
        };
        let replayed = super::block_on_new_thread(|| environment.run_case(case))?;
        report.cases.push(replayed);
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
    let text = fs::read_to_string(&path).map_err(|error| Error::Manifest(path.clone(), error))?;
    let read = manifest::parse(&text, &path.display().to_string(), name);
    let manifest = read
        .value
        .ok_or_else(|| Error::Load(name.to_owned(), read.diagnostics))?;
    match manifest.world {
        Kind::CredentialProvider => Ok(manifest),
        Kind::HeaderFilter | Kind::Generator => Err(Error::World(name.to_owned())),
    }
}

/// The grant that the manifest asks for, with the configuration of `case`.
fn requested_grant(manifest: &Manifest, case: &Case) -> ReplayGrant {
    let permissions = &manifest.provider;
    let mut hosts = BTreeSet::new();
    let patterns = permissions.hosts.iter();
    for host in patterns.filter_map(|host| host.expand_text(&case.config)) {
        if host == "*" {
            hosts.extend(case.expected_hosts());
        } else {
            hosts.insert(host);
        }
    }
    let audiences = permissions.audiences.iter();
    ReplayGrant {
        hosts,
        imports: manifest
            .imports
            .iter()
            .map(|import| import.as_ref().to_owned())
            .collect(),
        audiences: audiences
            .filter_map(|permission| permission.audience.expand(&case.config))
            .collect(),
    }
}

/// A provider with one grant, and what surrounds it.
struct ReplayEnvironment {
    provider: Arc<CredentialProvider>,
    surroundings: Arc<CaseEnvironment>,
}

impl ReplayEnvironment {
    fn load(settings: &tollgate_config::Plugins, manifest: &Manifest, granted: &ReplayGrant) -> Result<Self, Error> {
        let name = &manifest.name;
        let grant = tollgate_config::PluginGrant {
            hosts: granted.hosts.iter().map(|host| entry(host)).collect(),
            imports: granted.imports.iter().cloned().collect(),
            audiences: granted.audiences.iter().cloned().collect(),
            // Budget and pinned digest are those that the operator grants.
            ..settings.grants.get(name).cloned().unwrap_or_default()
        };
        let settings = tollgate_config::Plugins {
            directory: settings.directory.clone(),
            cache: settings.cache.clone(),
            grants: [(name.clone(), grant)].into(),
            ..tollgate_config::Plugins::default()
        };
        let surroundings = Arc::<CaseEnvironment>::default();
        let environment = ProviderEnvironment {
            egress_client: Arc::new(EgressClient::with_recorded(surroundings.clone())),
            ambient: Arc::clone(&surroundings) as Arc<dyn Ambient>,
            clock: Arc::clone(&surroundings) as Arc<dyn WallClock>,
        };
        // One instance runs at a time, so a pool would only reserve address space.
        let runtime = Runtime::with_environment(&settings, Allocation::OnDemand, environment)?;
        let (set, findings) = runtime.load_some(Some(name), None);
        let provider = set.provider(name).cloned();
        Ok(Self {
            provider: provider.ok_or_else(|| Error::Load(name.clone(), findings))?,
            surroundings,
        })
    }

    async fn run_case(&self, case: &Case) -> CaseReport {
        self.surroundings.set(case);
        let secret_values = SecretValues {
            values: case.secret.clone(),
            public: match self.provider.name() {
                // As `CredentialSourceFactory` does for a cluster.
                "webapi" => webapi_public_values(&case.config),
                _ => case.public.clone(),
            },
        };
        let source = self
            .provider
            .mint_for(case.cluster.clone(), &case.config, secret_values);
        let request = MintRequest {
            reason: case.reason,
            previous_expiry: case.previous_expiry,
            budget: case.budget(),
        };
        let (mut warnings, (minted, records)) = match source.check().await {
            Ok(warnings) => (warnings, source.mint_traced(request).await),
            Err(error) => (Vec::new(), (Err(error), Vec::new())),
        };
        let credential = minted.as_ref().ok();
        warnings.extend(
            credential
                .iter()
                .flat_map(|credential| credential.warnings.iter().cloned()),
        );
        let revoked = match credential.and_then(|credential| credential.revocation.as_ref()) {
            _ if !case.expects_revocation => None,
            None => Some("revoke: there is no credential with something to revoke".to_owned()),
            Some(held) => {
                let error = source.revoke_now(held).await.err();
                error.map(|error| format!("revoke: {}: {error}", error.class.as_ref()))
            }
        };
        let labels = SecretLabels::for_case(case);
        let mut differences = compare::requests(case, &self.surroundings.attempts(), &labels);
        differences.extend(outcome::differences(&case.expect, &minted, &warnings, &labels));
        differences.extend(revoked);
        CaseReport {
            case: case.id.clone(),
            outcome: ReplayOutcome::from_result(&minted),
            requests: records,
            warnings,
            differences,
        }
    }
}

/// An entry of the grant that lets an address be private.
fn entry(host: &str) -> EgressEntry {
    let url = url::Url::parse(&format!("https://{host}")).ok();
    let address = url.and_then(|url| address_of(&url.host()?));
    EgressEntry {
        host: host.to_owned(),
        private: address.is_some_and(|address| !address.is_loopback()),
        loopback: address.is_some_and(|address| address.is_loopback()),
        ..EgressEntry::default()
    }
}

const TIMEOUT_CASE_BUDGET: Duration = Duration::from_secs(2);
const DEFAULT_CASE_BUDGET: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
