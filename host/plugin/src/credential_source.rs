//! Decides, when a cluster is loaded, where its credential comes from. The result is a
//! [`CredentialSource`].
//!
//! Loading asks no plugin for a credential.
//!
//! Security: a finding contains no value of the Secret.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{ProviderCluster, SecretValues};
use tollgate_config::Ambient;
use tollgate_credential::cache::key::{CredentialKey, KeyInputs, SecretVersion, Tenancy};
use tollgate_credential::cache::{CredentialCache, Lease, Slot};
use tollgate_credential::{
    BasicAuth, ClientCertificate, Credential, Metrics, Mint, MintError, MintErrorClass, MintRequest, Token,
};
use tollgate_objects::{Cluster, ClusterAuth, ClusterConfig};

mod pod;

use pod::PodToken;

/// Version of the interface between host and credential providers, in keys.
const ABI: &str = "tollgate:plugin@0.1.0";

/// The plugin behind `webAPIProviderConfig`, whose configuration are templates.
const WEB_API: &str = "webapi";

/// Where the credential of a cluster comes from.
#[derive(Clone, Debug)]
pub enum CredentialSource {
    /// Its Secret. The credential is the same for every request.
    Static(Lease),
    /// A provider, through the cache.
    Minted(MintedCredential),
    /// There is none, for this reason.
    Unusable(MintError),
}

/// The minted credential of a cluster.
#[derive(Clone, Debug)]
pub struct MintedCredential {
    /// Its slot in the cache.
    pub slot: Arc<Slot>,
    /// Mints it through a plugin. `None` for the pod's own token.
    pub mint: Option<crate::ProviderMint>,
    /// Warnings of the plugin's `check` for the operator.
    pub warnings: Vec<String>,
}

/// Builds the credential sources of clusters.
#[derive(Clone, Copy, Debug)]
pub struct CredentialSourceFactory<'a> {
    /// The one cache of the process.
    pub cache: &'a CredentialCache,
    /// Loaded plugins.
    pub plugins: &'a crate::PluginSet,
    /// The pod's own identities.
    pub ambient: &'a Ambient,
    /// Counts mints.
    pub metrics: &'a Arc<Metrics>,
}

/// A credential source, or a mint whose configuration the plugin must still check.
#[derive(Debug)]
pub enum SourceResolution {
    /// Nothing is left to check.
    Resolved(CredentialSource),
    /// The plugin must check `mint`, whose credentials are cached under `key`.
    NeedsCheck {
        /// The key in the cache.
        key: CredentialKey,
        /// The mint.
        mint: crate::ProviderMint,
    },
}

impl CredentialSourceFactory<'_> {
    /// Chooses the credential source of a cluster from its settings.
    pub fn resolve(&self, cluster: &Cluster, config: &ClusterConfig, label: &Arc<str>) -> SourceResolution {
        let source = match &config.auth {
            // The agent authenticates itself.
            ClusterAuth::Anonymous | ClusterAuth::Agent(_) => static_source(Credential::anonymous()),
            ClusterAuth::InCluster => self.pod_token_source(cluster, label),
            ClusterAuth::Bearer(token) => bearer_source(token),
            ClusterAuth::Basic { username, password } => basic_source(username, password),
            ClusterAuth::ClientCertificate { chain_pem, key_pem } => certificate_source(chain_pem, key_pem),
            ClusterAuth::Provider {
                name,
                config: settings,
                public,
            } => return self.resolve_provider(cluster, name, settings, public, config),
            ClusterAuth::Unusable { reason } => unusable_source("config.cluster", reason),
        };
        SourceResolution::Resolved(source)
    }

    /// The credential source of a cluster whose mint passed its check.
    pub fn provider_source(
        &self,
        key: CredentialKey,
        mint: crate::ProviderMint,
        warnings: Vec<String>,
        label: &Arc<str>,
    ) -> CredentialSource {
        CredentialSource::Minted(MintedCredential {
            slot: self.slot(key, Arc::new(mint.clone()), label),
            mint: Some(mint),
            warnings,
        })
    }

    fn pod_token_source(&self, cluster: &Cluster, label: &Arc<str>) -> CredentialSource {
        let Some(api) = &self.ambient.kubernetes else {
            let reason = "the gateway runs in no pod, so the control plane's own cluster needs a cluster Secret";
            return unusable_source("ambient.unavailable", reason);
        };
        let key = CredentialKey::from_inputs(&KeyInputs {
            abi: "pod",
            plugin: "in-cluster",
            config: &json!({ "file": api.token_file.display().to_string() }),
            secrets: &[],
            tenancy: Tenancy::Cluster(&cluster.server),
            policy: "",
        });
        let mint = PodToken {
            file: api.token_file.clone(),
        };
        CredentialSource::Minted(MintedCredential {
            slot: self.slot(key, Arc::new(mint), label),
            mint: None,
            warnings: Vec::new(),
        })
    }

    fn resolve_provider(
        &self,
        cluster: &Cluster,
        name: &str,
        settings: &Value,
        public: &BTreeSet<String>,
        config: &ClusterConfig,
    ) -> SourceResolution {
        let Some(provider) = self.plugins.provider(name) else {
            let reason = format!("no credential provider `{name}` is loaded");
            return SourceResolution::Resolved(unusable_source("config.provider", &reason));
        };
        let public = if name == WEB_API {
            // Values that templates use in conditions or where a secret cannot be.
            crate::webapi_public_values(settings)
        } else {
            public.clone()
        };
        let secrets: Vec<_> = config.values.iter().map(secret_version).collect();
        let key = CredentialKey::from_inputs(&KeyInputs {
            abi: ABI,
            plugin: &provider.manifest.sha256,
            config: &json!({ "config": settings, "public": public }),
            secrets: &secrets,
            tenancy: Tenancy::Cluster(&cluster.server),
            // A credential that another grant allowed is not used.
            policy: provider.grant_digest(),
        });
        let provider_cluster = ProviderCluster {
            name: cluster.name.clone(),
            server: cluster.server.clone(),
        };
        let secret_values = SecretValues {
            values: config.values.clone(),
            public,
        };
        SourceResolution::NeedsCheck {
            key,
            mint: provider.mint_for(provider_cluster, settings, secret_values),
        }
    }

    /// The slot of a key, whose mints are counted.
    fn slot(&self, key: CredentialKey, mint: Arc<dyn Mint>, label: &Arc<str>) -> Arc<Slot> {
        let mint = InstrumentedMint {
            mint,
            label: Arc::clone(label),
            metrics: Arc::clone(self.metrics),
        };
        self.cache.slot(key, Arc::new(mint))
    }
}

/// Identifies a value by its bytes. A `resourceVersion` would not do: in a file, it stays when a
/// person edits the value, and in Kubernetes it changes when a label does.
fn secret_version<'a>((name, value): (&'a String, &'a SecretString)) -> SecretVersion<'a> {
    SecretVersion::Bytes {
        name,
        bytes: value.expose_secret().as_bytes(),
    }
}

/// The source of a credential that the Secret itself holds. `None` if the Secret holds none.
pub fn source_in_secret(auth: &ClusterAuth) -> Option<CredentialSource> {
    match auth {
        ClusterAuth::Bearer(token) => Some(bearer_source(token)),
        ClusterAuth::Basic { username, password } => Some(basic_source(username, password)),
        ClusterAuth::ClientCertificate { chain_pem, key_pem } => Some(certificate_source(chain_pem, key_pem)),
        ClusterAuth::Anonymous
        | ClusterAuth::InCluster
        | ClusterAuth::Agent(_)
        | ClusterAuth::Provider { .. }
        | ClusterAuth::Unusable { .. } => None,
    }
}

fn bearer_source(token: &SecretString) -> CredentialSource {
    match Token::parse(token.expose_secret().to_owned()) {
        Ok(token) => static_source(Credential::from_token(token)),
        Err(error) => unusable_source("config.cluster", &error.to_string()),
    }
}

fn basic_source(username: &SecretString, password: &SecretString) -> CredentialSource {
    static_source(Credential {
        basic: Some(BasicAuth {
            username: username.expose_secret().to_owned(),
            password: password.clone(),
        }),
        ..Credential::anonymous()
    })
}

fn certificate_source(chain_pem: &str, key_pem: &SecretString) -> CredentialSource {
    static_source(Credential {
        certificate: Some(ClientCertificate {
            chain_pem: chain_pem.to_owned(),
            key_pem: key_pem.clone(),
        }),
        ..Credential::anonymous()
    })
}

fn static_source(credential: Credential) -> CredentialSource {
    CredentialSource::Static(Lease {
        credential: Arc::new(credential),
        generation: 1,
    })
}

/// A credential source without a credential.
pub fn unusable_source(code: &str, reason: &str) -> CredentialSource {
    CredentialSource::Unusable(MintError::new(MintErrorClass::Config, code, reason))
}

/// A mint that records metrics, even if it is cut off.
struct InstrumentedMint {
    mint: Arc<dyn Mint>,
    label: Arc<str>,
    metrics: Arc<Metrics>,
}

struct MintRecorder {
    label: Arc<str>,
    metrics: Arc<Metrics>,
    started: Instant,
    result: &'static str,
}

impl Drop for MintRecorder {
    fn drop(&mut self) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.metrics.record_mint(&self.label, self.result, seconds);
    }
}

impl Mint for InstrumentedMint {
    fn mint(&self, request: MintRequest) -> BoxFuture<'static, Result<Credential, MintError>> {
        let minting = self.mint.mint(request);
        let (label, metrics) = (Arc::clone(&self.label), Arc::clone(&self.metrics));
        async move {
            // In the future and not before it: a mint that is never polled is not counted.
            let mut recorder = MintRecorder {
                label,
                metrics,
                started: Instant::now(),
                result: "cut-off",
            };
            let minted = minting.await;
            recorder.result = match &minted {
                Ok(_) => "ok",
                Err(error) => error.class.into(),
            };
            minted
        }
        .boxed()
    }

    fn revoke(&self, revocation: SecretString) -> BoxFuture<'static, Result<(), MintError>> {
        self.mint.revoke(revocation)
    }

    fn label(&self) -> &str {
        &self.label
    }
}
