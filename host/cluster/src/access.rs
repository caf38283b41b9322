//! The access to each cluster of a snapshot: a [`ClusterAccess`], found by the cluster's name and
//! by its server.
//!
//! Invariant: a name that several clusters share selects none of them, and a cluster whose
//! configuration its plugin refused gets no credential.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use tollgate_agent::{AgentClient, Connections};
use tollgate_config::Ambient;
use tollgate_core::agent::ClusterAgent;
use tollgate_core::diagnostic::{Diagnostic, with_causes};
use tollgate_credential::cache::health::Health;
use tollgate_credential::cache::key::{CredentialKey, KeyInputs, SecretVersion, Tenancy};
use tollgate_credential::cache::lifetime::RenewalWindow;
use tollgate_credential::cache::{self, Lease};
use tollgate_credential::{MintError, MintErrorClass};
use tollgate_objects::{Cluster, ClusterAuth, ClusterConfig, ClusterTls, Resources, TlsVerification};
use tollgate_plugin::credential_source::{
    CredentialSource, CredentialSourceFactory, MintedCredential, SourceResolution, unusable_source,
};
use tollgate_plugin::{ProviderMint, block_on_new_thread};
use tollgate_proxy::forward::ClusterBackend;
use tollgate_runtime::certificates;

mod in_secret;

/// Longest wait of a request for a credential.
pub const MAX_CREDENTIAL_WAIT: Duration = Duration::from_secs(15);

/// Why there is no credential for a permitted request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The cluster's settings cannot be used.
    #[error("the cluster's settings cannot be used")]
    Unusable(#[source] MintError),
    /// The credential cache has none.
    #[error(transparent)]
    Cache(#[from] cache::Error),
}

impl Error {
    /// The kind of failure.
    pub fn class(&self) -> MintErrorClass {
        match self {
            Self::Unusable(error) | Self::Cache(cache::Error::Mint(error)) => error.class,
            Self::Cache(cache::Error::Timeout | cache::Error::Stopped) => MintErrorClass::Retryable,
        }
    }

    /// The stable code, for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Unusable(error) | Self::Cache(cache::Error::Mint(error)) => &error.code,
            Self::Cache(cache::Error::Timeout) => "host.timeout",
            Self::Cache(cache::Error::Stopped) => "host.stopped",
        }
    }

    /// How long to wait before another attempt. `None` if another attempt makes no sense.
    pub fn retry_after(&self) -> Option<Duration> {
        let least = Duration::from_secs(1);
        match self {
            Self::Cache(cache::Error::Mint(error)) if error.class == MintErrorClass::Retryable => {
                Some(error.retry_after.unwrap_or(least).max(least))
            }
            Self::Cache(cache::Error::Timeout | cache::Error::Stopped) => Some(least),
            Self::Unusable(_) | Self::Cache(cache::Error::Mint(_)) => None,
        }
    }
}

/// A cluster and how to access it.
#[derive(Clone, Debug)]
pub struct ClusterAccess {
    cluster: Arc<Cluster>,
    config: Arc<ClusterConfig>,
    /// Its name in metrics: the cluster's name, or the server if the name is empty or shared by
    /// several clusters.
    pub label: Arc<str>,
    /// What makes its credential: `name@sha256:digest` of a plugin, or the kind of its Secret, such
    /// as `bearer`.
    pub provider: Arc<str>,
    credential_source: CredentialSource,
    backend: Option<Arc<ClusterBackend>>,
    /// The key of everything its connections depend on, except the credential. Equal keys for one
    /// server mean the same cluster, reached in the same way.
    pub connection: CredentialKey,
    /// The last second of validity of the client certificate that the cluster's Secret has, since the Unix
    /// epoch.
    pub certificate_end: Option<u64>,
}

/// Where a cluster's API server is reached, and how it is verified.
#[derive(Clone, Debug)]
pub struct ClusterEndpoint {
    /// URL of the API server.
    pub server: String,
    /// How it is verified.
    pub tls: ClusterTls,
}

impl ClusterEndpoint {
    /// The one that the cluster's Secret names.
    pub fn of(cluster: &Cluster, config: &ClusterConfig) -> Self {
        Self {
            server: cluster.server.clone(),
            tls: config.tls.clone(),
        }
    }
}

/// Result of looking up a name or server.
#[derive(Debug)]
pub enum ClusterLookup<'a> {
    /// One cluster.
    One(&'a Arc<ClusterAccess>),
    /// Several clusters with the same name. None of them may be chosen.
    Several(&'a [Arc<ClusterAccess>]),
    /// No cluster.
    None,
}

/// Every cluster of a snapshot.
#[derive(Debug, Default)]
pub struct Clusters {
    by_server: BTreeMap<String, Arc<ClusterAccess>>,
    by_name: BTreeMap<String, Vec<Arc<ClusterAccess>>>,
    /// Those that Argo CD reaches through the gateway, by host and port of the server.
    enrolled: BTreeMap<String, Vec<EnrolledCluster>>,
}

#[derive(Debug)]
struct EnrolledCluster {
    /// Path of the server, without a slash at its end.
    path: String,
    access: Arc<ClusterAccess>,
}

impl Clusters {
    /// Decides for every cluster how to access it. Credentials and connections that did not change
    /// since `previous` are taken over.
    ///
    /// Blocks: it runs the `check` of plugins. Sends nothing.
    ///
    /// - `agents`: those that are connected.
    pub fn build(
        resources: &Resources,
        factory: CredentialSourceFactory<'_>,
        agents: &Arc<Connections>,
        previous: Option<&Self>,
    ) -> Self {
        let mut clusters = Self::default();
        let mut unchecked = Vec::new();
        let mut name_counts = HashMap::<&str, usize>::new();
        for cluster in &resources.clusters {
            *name_counts.entry(&cluster.name).or_default() += 1;
        }
        for cluster in &resources.clusters {
            let Some(config) = resources.cluster_configs.get(&cluster.server) else {
                continue;
            };
            // Metrics name a cluster as people do, unless two have that name: their series would be one.
            let is_unique = !cluster.name.is_empty() && name_counts.get(&*cluster.name) == Some(&1);
            let label: Arc<str> = Arc::from(if is_unique { &*cluster.name } else { &*cluster.server });
            let before = previous.and_then(|previous| previous.by_server.get(&cluster.server));
            let endpoint = endpoint(cluster, config, factory.ambient);
            let access = ClusterAccess::new(
                cluster,
                config,
                label,
                before.map(|before| &**before),
                &endpoint,
                agents,
            );
            match factory.resolve(cluster, config, &access.label) {
                SourceResolution::Resolved(credential_source) => clusters.add(access.with_source(credential_source)),
                SourceResolution::NeedsCheck { key, mint } => {
                    let access = ClusterAccess {
                        provider: Arc::clone(&mint.provider.label),
                        ..access
                    };
                    match before.and_then(|before| before.reusable_source(key, &access.label, &mint)) {
                        Some(reused) => clusters.add(access.with_source(reused)),
                        None => unchecked.push((access, key, mint)),
                    }
                }
            }
        }
        // After the loop, because a check runs plugins: one thread and one runtime are made for all of them.
        for ((access, key, mint), checked) in check(unchecked) {
            let credential_source = match checked {
                Ok(warnings) => factory.provider_source(key, mint, warnings, &access.label),
                Err(error) => CredentialSource::Unusable(error),
            };
            clusters.add(access.with_source(credential_source));
        }
        clusters
    }

    fn add(&mut self, access: ClusterAccess) {
        let access = Arc::new(access);
        let cluster = &access.cluster;
        self.by_name
            .entry(cluster.name.clone())
            .or_default()
            .push(Arc::clone(&access));
        if access.config.is_enrolled
            && let Some((authority, path)) = authority_and_path(&cluster.server)
        {
            self.enrolled.entry(authority).or_default().push(EnrolledCluster {
                path,
                access: Arc::clone(&access),
            });
        }
        self.by_server.insert(cluster.server.clone(), access);
    }

    /// The cluster with this name, or with this server if `text` is a URL. Trailing slashes of a
    /// server are ignored.
    pub fn find(&self, text: &str) -> ClusterLookup<'_> {
        if text.contains("://") {
            let server = text.trim_end_matches('/');
            return self
                .by_server
                .get(server)
                .map_or(ClusterLookup::None, ClusterLookup::One);
        }
        match self.by_name.get(text).map_or(&[][..], Vec::as_slice) {
            [] => ClusterLookup::None,
            [only] => ClusterLookup::One(only),
            several => ClusterLookup::Several(several),
        }
    }

    /// The cluster of a server, as its Secret spells it. Trailing slashes are ignored. Unlike
    /// [`Clusters::find`], it never takes the text for a name.
    pub fn find_by_server(&self, server: &str) -> Option<&Arc<ClusterAccess>> {
        self.by_server
            .get(server)
            .or_else(|| self.by_server.get(server.trim_end_matches('/')))
    }

    /// The cluster that Argo CD reaches through the gateway at this host and port, and the part of
    /// `path` below its server. Of several there, the one with the longest path decides, among
    /// those that have a Secret of the gateway's if there are any.
    ///
    /// SECURITY: a project's owners may add clusters to Argo CD by themselves, at any server. Such a
    /// cluster takes no request that is for one that an operator enrolled.
    ///
    /// - `authority`: host and port, the host in lower case.
    /// - `path`: encoded, beginning with `/`. It is compared byte for byte.
    pub fn find_enrolled<'p>(&self, authority: &str, path: &'p str) -> Option<(&Arc<ClusterAccess>, &'p str)> {
        let rest_of = |cluster: &EnrolledCluster| {
            let rest = path.strip_prefix(cluster.path.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then_some(rest)
        };
        let at_authority = self.enrolled.get(authority).map_or(&[][..], Vec::as_slice).iter();
        let matching = at_authority.filter_map(|cluster| Some((cluster, rest_of(cluster)?)));
        let (cluster, rest) =
            matching.max_by_key(|(cluster, _)| (cluster.access.config.has_own_secret, cluster.path.len()))?;
        Some((&cluster.access, rest))
    }

    /// Every cluster, in the order of servers.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ClusterAccess>> {
        self.by_server.values()
    }

    /// Whether the file with the authorities of the pod's own API server says something else than when
    /// this was built. Blocks.
    pub fn is_outdated(&self, ambient: &Ambient) -> bool {
        let own = self
            .iter()
            .find(|access| matches!(access.config.auth, ClusterAuth::InCluster));
        own.is_some_and(|access| {
            let now = endpoint(&access.cluster, &access.config, ambient);
            access.connection != connection_key(&now.server, &now.tls, &access.config.auth)
        })
    }

    /// The agents that connect to the gateway, by the server of their cluster.
    pub fn agents(&self) -> HashMap<Arc<str>, ClusterAgent> {
        let agent = |access: &Arc<ClusterAccess>| match &access.config.auth {
            ClusterAuth::Agent(agent) => Some((Arc::from(access.cluster.server.as_str()), agent.clone())),
            _ => None,
        };
        self.iter().filter_map(agent).collect()
    }

    /// The keys of the credentials in use, for [`cache::CredentialCache::retain`].
    pub fn keys(&self) -> HashSet<CredentialKey> {
        self.iter()
            .filter_map(|access| Some(access.minted()?.slot.key))
            .collect()
    }

    /// A warning for each cluster that cannot be used, with the position of its Secret. Findings
    /// from reading the Secret are not repeated.
    pub fn findings(&self) -> Vec<Diagnostic> {
        let mut findings = Vec::new();
        for access in self.iter() {
            let label = &access.label;
            let warnings = match (&access.credential_source, &access.config.auth) {
                (CredentialSource::Static(_), _) | (_, ClusterAuth::Unusable { .. }) => continue,
                // Most gateways outside a pod never need the control plane's own cluster.
                (CredentialSource::Unusable(_), ClusterAuth::InCluster) if access.config.location.is_none() => continue,
                (CredentialSource::Unusable(error), _) => {
                    vec![format!("the cluster `{label}` cannot be used: {error}")]
                }
                (CredentialSource::Minted(minted), _) => {
                    let labeled = |warning: &String| format!("the cluster `{label}`: {warning}");
                    minted.warnings.iter().map(labeled).collect()
                }
            };
            let located = |warning| Diagnostic::warning(access.config.location.clone(), warning);
            findings.extend(warnings.into_iter().map(located));
        }
        findings
    }
}

type Unchecked = (ClusterAccess, CredentialKey, ProviderMint);

/// Runs the plugins' `check` of new configurations, on one new thread.
fn check(unchecked: Vec<Unchecked>) -> Vec<(Unchecked, Result<Vec<String>, MintError>)> {
    if unchecked.is_empty() {
        return Vec::new();
    }
    let mints = unchecked.iter().map(|(_, _, mint)| mint.clone()).collect::<Vec<_>>();
    let checking = block_on_new_thread(|| async move {
        let mut verdicts = Vec::with_capacity(mints.len());
        for mint in mints {
            verdicts.push(mint.check().await);
        }
        verdicts
    });
    let failed = |error: &std::io::Error| {
        let message = format!("the configuration could not be checked: {error}");
        Err(MintError::new(MintErrorClass::Permanent, "host.check", &message))
    };
    match checking {
        Ok(verdicts) => unchecked.into_iter().zip(verdicts).collect(),
        Err(error) => unchecked.into_iter().map(|one| (one, failed(&error))).collect(),
    }
}

impl ClusterAccess {
    /// A cluster at `server`, without any other settings.
    #[cfg(test)]
    pub(crate) fn at(server: &str, credential_source: CredentialSource) -> Arc<Self> {
        let (tls, auth) = (ClusterTls::default(), ClusterAuth::Anonymous);
        let connection = connection_key(server, &tls, &auth);
        let backend = Some(Arc::new(ClusterBackend::build(server, &tls).unwrap()));
        let cluster = Arc::new(Cluster {
            name: "prod".to_owned(),
            server: server.to_owned(),
            project: String::new(),
        });
        Arc::new(Self {
            cluster,
            config: Arc::new(ClusterConfig {
                auth,
                tls,
                values: BTreeMap::new(),
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                secret_name: None,
                resource_version: None,
                location: None,
                is_enrolled: false,
                has_own_secret: false,
            }),
            label: "prod".into(),
            provider: "anonymous".into(),
            credential_source,
            backend,
            connection,
            certificate_end: None,
        })
    }

    /// The access with connections, but without a credential yet.
    fn new(
        cluster: &Cluster,
        config: &Arc<ClusterConfig>,
        label: Arc<str>,
        before: Option<&Self>,
        endpoint: &ClusterEndpoint,
        agents: &Arc<Connections>,
    ) -> Self {
        let ClusterEndpoint { server, tls } = endpoint;
        let connection = connection_key(server, tls, &config.auth);
        let unchanged = before.filter(|before| before.connection == connection);
        let unusable = |why: &str| unusable_source("config.cluster", why);
        let sends_credential = !matches!(
            config.auth,
            ClusterAuth::Anonymous | ClusterAuth::Agent(_) | ClusterAuth::Unusable { .. }
        );
        // What did not change keeps its connections. A reload must not cost each of thousands of clusters a handshake.
        let backend = match (unchanged.and_then(|unchanged| unchanged.backend.clone()), &config.auth) {
            (Some(backend), _) => Ok(backend),
            (None, ClusterAuth::Agent(_)) => {
                let agent = AgentClient::new(Arc::clone(agents), cluster.server.as_str());
                ClusterBackend::through_agent(server, agent).map(Arc::new)
            }
            (None, _) => ClusterBackend::build(server, tls).map(Arc::new),
        };
        let (backend, credential_source) = match backend {
            Err(error) => (None, unusable(&with_causes(&error))),
            // SECURITY: everybody on the way could read the credential, and use it.
            Ok(backend) if backend.is_plain_text() && sends_credential => {
                (None, unusable("no credential is sent to a server without https"))
            }
            Ok(backend) => (Some(backend), unusable_source("host.unfinished", "not loaded yet")),
        };
        let certificate_end = match (unchanged, &config.auth) {
            (Some(unchanged), _) => unchanged.certificate_end,
            (None, ClusterAuth::ClientCertificate { chain_pem, .. }) => certificates::end_of_pem(chain_pem.as_bytes()),
            (None, _) => None,
        };
        Self {
            cluster: Arc::new(cluster.clone()),
            config: Arc::clone(config),
            label,
            provider: Arc::from(config.auth.as_ref()),
            backend,
            credential_source,
            connection,
            certificate_end,
        }
    }

    /// Sets the source of the credential, unless the connection is unusable.
    fn with_source(mut self, credential_source: CredentialSource) -> Self {
        let Some(backend) = &self.backend else { return self };
        self.credential_source = credential_source;
        if let CredentialSource::Static(lease) = &self.credential_source
            && let Err(error) = backend.for_credential(lease)
        {
            self.credential_source = unusable_source("config.cluster", &with_causes(&error));
        }
        self
    }

    /// The credential's source, if its inputs and the cluster's name in metrics are the same. A
    /// plugin whose files changed counts as another one, because its manifest may allow less.
    fn reusable_source(&self, key: CredentialKey, label: &Arc<str>, mint: &ProviderMint) -> Option<CredentialSource> {
        let minted = self.minted()?;
        let before = minted.mint.as_ref()?;
        let is_same_plugin = Arc::ptr_eq(&before.provider, &mint.provider);
        let is_same = minted.slot.key == key && self.label == *label && is_same_plugin;
        is_same.then(|| CredentialSource::Minted(minted.clone()))
    }

    fn minted(&self) -> Option<&MintedCredential> {
        match &self.credential_source {
            CredentialSource::Minted(minted) => Some(minted),
            CredentialSource::Static(_) | CredentialSource::Unusable(_) => None,
        }
    }

    /// Name, server, project.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The credential that its Secret has, or how one is made.
    pub fn auth(&self) -> &ClusterAuth {
        &self.config.auth
    }

    /// When the gateway itself would stop using a credential: never after it expires, and now for
    /// one that serves a single request. `None` if no expiry is known.
    pub fn usable_until(&self, lease: &Lease) -> Option<Timestamp> {
        if !lease.credential.cacheable {
            // It is for one request: client-go uses it once and runs the plugin again.
            return Some(Timestamp::now());
        }
        let expires_at = lease.credential.expires_at;
        let health = self.health().filter(|health| health.generation == lease.generation);
        let Some(minted_at) = health.and_then(|health| health.minted_at) else {
            return expires_at;
        };
        let lifetime = expires_at.map(|end| end.duration_since(minted_at));
        let window = RenewalWindow::for_lifetime(lifetime, 0.0)?;
        let served = SignedDuration::try_from(window.unusable).ok()?;
        minted_at.checked_add(served).ok()
    }

    /// Whether requests may still use the connections made for `connection`.
    pub fn is_reached_by(&self, connection: CredentialKey) -> bool {
        self.usable_connection() == Some(connection)
    }

    /// Its connection, as [`Self::connection`] has it; `None` if no request can be sent over it.
    pub fn usable_connection(&self) -> Option<CredentialKey> {
        let is_usable = self.backend.is_some() && !matches!(self.credential_source, CredentialSource::Unusable(_));
        is_usable.then_some(self.connection)
    }

    /// The source of its credential.
    pub fn credential_source(&self) -> &CredentialSource {
        &self.credential_source
    }

    /// The state of its credential. `None` if it is not minted.
    pub fn health(&self) -> Option<Health> {
        Some(self.minted()?.slot.health())
    }

    /// Returns a credential that may be used now, waiting at most [`MAX_CREDENTIAL_WAIT`].
    ///
    /// # Errors
    /// [`Error`]; the request must not be forwarded.
    ///
    /// Cancel safe: a mint continues.
    pub async fn lease(&self) -> Result<Lease, Error> {
        match &self.credential_source {
            CredentialSource::Static(lease) => Ok(lease.clone()),
            CredentialSource::Minted(minted) => Ok(minted.slot.get(after(MAX_CREDENTIAL_WAIT)).await?),
            CredentialSource::Unusable(error) => Err(Error::Unusable(error.clone())),
        }
    }

    /// Returns the credential for one more attempt after a 401. `None` if another attempt makes no
    /// sense. Waits at most [`MAX_CREDENTIAL_WAIT`] for a mint.
    pub async fn lease_after_unauthorized(&self, generation: u64) -> Option<Lease> {
        let slot = &self.minted()?.slot;
        let lease = slot.lease_after_unauthorized(generation, after(MAX_CREDENTIAL_WAIT));
        lease.await.ok().flatten()
    }

    /// Reports a 401 for a request that cannot be sent again, so that the next request gets another
    /// credential. Does not wait.
    pub async fn report_unauthorized(&self, generation: u64) {
        if let Some(minted) = self.minted() {
            // The next request gets the result, or its error.
            drop(minted.slot.lease_after_unauthorized(generation, Instant::now()).await);
        }
    }

    /// Its connections. `None` if the cluster cannot be used.
    pub fn backend(&self) -> Option<&Arc<ClusterBackend>> {
        self.backend.as_ref()
    }
}

/// Host and port of a server, the host in lower case, and its path without a slash at the end.
/// `None` if it is no URL of `https` or `http`.
pub fn authority_and_path(server: &str) -> Option<(String, String)> {
    let uri: Uri = server.parse().ok()?;
    let port = match (uri.port_u16(), uri.scheme_str()?) {
        (Some(port), _) => port,
        (None, "https") => 443,
        (None, "http") => 80,
        (None, _) => return None,
    };
    let authority = format!("{}:{port}", uri.host()?.to_ascii_lowercase());
    Some((authority, uri.path().trim_end_matches('/').to_owned()))
}

pub(crate) fn after(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait).unwrap_or(now)
}

/// The control plane's own cluster is reached as pods reach it.
fn endpoint(cluster: &Cluster, config: &ClusterConfig, ambient: &Ambient) -> ClusterEndpoint {
    match (&config.auth, &ambient.kubernetes) {
        (ClusterAuth::InCluster, Some(api)) => {
            let ca_pem = std::fs::read_to_string(&api.ca_file).ok();
            let tls = ClusterTls {
                // If the file cannot be read, no other authority is trusted instead.
                ca_pem: Some(ca_pem.unwrap_or_default()),
                ..ClusterTls::default()
            };
            ClusterEndpoint {
                server: api.server.clone(),
                tls,
            }
        }
        (_, _) => ClusterEndpoint::of(cluster, config),
    }
}

/// The key of everything that connections depend on. While it is the same, they are reused.
fn connection_key(server: &str, tls: &ClusterTls, auth: &ClusterAuth) -> CredentialKey {
    let ClusterTls {
        verification,
        server_name,
        ca_pem,
    } = tls;
    let certificate = match auth {
        ClusterAuth::ClientCertificate { chain_pem, key_pem } => Some((chain_pem, key_pem)),
        ClusterAuth::Anonymous
        | ClusterAuth::InCluster
        | ClusterAuth::Bearer(_)
        | ClusterAuth::Basic { .. }
        | ClusterAuth::Agent(_)
        | ClusterAuth::Provider { .. }
        | ClusterAuth::Unusable { .. } => None,
    };
    let key = certificate.map(|(_, key)| SecretVersion::Bytes {
        name: "key",
        bytes: secrecy::ExposeSecret::expose_secret(key).as_bytes(),
    });
    CredentialKey::from_inputs(&KeyInputs {
        abi: "connection",
        plugin: auth.as_ref(),
        config: &serde_json::json!({
            "verified": *verification == TlsVerification::On,
            "serverName": server_name,
            "ca": ca_pem,
            "chain": certificate.map(|(chain, _)| chain),
        }),
        secrets: key.as_slice(),
        tenancy: Tenancy::Cluster(server),
        policy: "",
    })
}

#[cfg(test)]
mod tests;
