//! Decides, when a cluster is loaded, where its credential comes from. The result is a [`CredentialSource`].
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

use super::cache::key::{CredentialKey, KeyInputs, SecretVersion, Tenancy};
use super::cache::{Cache, Lease, Slot};
use super::pod::PodToken;
use super::{Basic, ClientCertificate, Credential, Metrics, Mint, MintError, MintErrorClass, MintRequest, Token};
use crate::{ProviderCluster, SecretValues};
use tollgate_config::Ambient;
use tollgate_state::{Cluster, ClusterAuth, ClusterConfig};

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
    Minted(Minted),
    /// There is none, for this reason.
    Unusable(MintError),
}

/// A cluster whose credential is minted.
#[derive(Clone, Debug)]
pub struct Minted {
    /// Its place in the cache.
    pub slot: Arc<Slot>,
    /// The plugin's source of it. `None` for the pod's own token.
    pub source: Option<crate::ProviderMint>,
    /// Warnings of the plugin's `check` for the operator.
    pub warnings: Vec<String>,
}

/// What is needed to make supplies.
#[derive(Clone, Copy, Debug)]
pub struct CredentialSourceFactory<'a> {
    /// The one cache of the process.
    pub cache: &'a Cache,
    /// Loaded plugins.
    pub plugins: &'a crate::PluginSet,
    /// The pod's own identities.
    pub ambient: &'a Ambient,
    /// Counts mints.
    pub metrics: &'a Arc<Metrics>,
}

/// A supply, or a source whose configuration the plugin must still check.
#[derive(Debug)]
pub enum SourceResolution {
    /// Nothing is left to check.
    Resolved(CredentialSource),
    /// The plugin must check `source`, whose credentials are kept under `key`.
    NeedsCheck {
        /// The key in the cache.
        key: CredentialKey,
        /// The source.
        source: crate::ProviderMint,
    },
}

impl CredentialSourceFactory<'_> {
    /// Decides the supply of a cluster from its settings.
    pub fn resolve(&self, cluster: &Cluster, config: &ClusterConfig, label: &Arc<str>) -> SourceResolution {
        match &config.auth {
            ClusterAuth::Anonymous => SourceResolution::Resolved(static_source(Credential::anonymous())),
            ClusterAuth::InCluster => SourceResolution::Resolved(self.pod(cluster, label)),
            ClusterAuth::Bearer(token) => SourceResolution::Resolved(bearer(token)),
            ClusterAuth::Basic { username, password } => SourceResolution::Resolved(static_source(Credential {
                basic: Some(Basic {
                    username: username.expose_secret().to_owned(),
                    password: password.clone(),
                }),
                ..Credential::anonymous()
            })),
            ClusterAuth::ClientCertificate { chain_pem, key_pem } => {
                SourceResolution::Resolved(static_source(Credential {
                    certificate: Some(ClientCertificate {
                        chain_pem: chain_pem.clone(),
                        key_pem: key_pem.clone(),
                    }),
                    ..Credential::anonymous()
                }))
            }
            ClusterAuth::Provider {
                name,
                config: settings,
                public,
            } => self.provider(cluster, (name, settings, public), config),
            ClusterAuth::Unusable { reason } => SourceResolution::Resolved(unusable("config.cluster", reason)),
        }
    }

    /// The slot of a checked source.
    pub fn minted(
        &self,
        key: CredentialKey,
        source: crate::ProviderMint,
        warnings: Vec<String>,
        label: &Arc<str>,
    ) -> CredentialSource {
        let mint = self.instrumented(Arc::new(source.clone()), label);
        CredentialSource::Minted(Minted {
            slot: self.cache.slot(key, mint),
            source: Some(source),
            warnings,
        })
    }

    fn pod(&self, cluster: &Cluster, label: &Arc<str>) -> CredentialSource {
        let Some(api) = &self.ambient.kubernetes else {
            let reason = "the gateway runs in no pod, so the control plane's own cluster needs a cluster Secret";
            return unusable("ambient.unavailable", reason);
        };
        let key = CredentialKey::of(&KeyInputs {
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
        CredentialSource::Minted(Minted {
            slot: self.cache.slot(key, self.instrumented(Arc::new(mint), label)),
            source: None,
            warnings: Vec::new(),
        })
    }

    fn provider(
        &self,
        cluster: &Cluster,
        (name, settings, public): (&str, &Value, &BTreeSet<String>),
        config: &ClusterConfig,
    ) -> SourceResolution {
        let Some(provider) = self.plugins.provider(name) else {
            let reason = format!("no credential provider `{name}` is loaded");
            return SourceResolution::Resolved(unusable("config.provider", &reason));
        };
        let public = if name == WEB_API {
            // What the templates look at, or put where a secret cannot be.
            crate::webapi_public_values(settings)
        } else {
            public.clone()
        };
        let secrets: Vec<_> = config.values.iter().map(secret_version).collect();
        let key = CredentialKey::of(&KeyInputs {
            abi: ABI,
            plugin: &provider.manifest().sha256,
            config: &json!({ "config": settings, "public": public }),
            secrets: &secrets,
            tenancy: Tenancy::Cluster(&cluster.server),
            policy: provider.grant_digest(),
        });
        let named = ProviderCluster {
            name: cluster.name.clone(),
            server: cluster.server.clone(),
        };
        let material = SecretValues {
            values: config.values.clone(),
            public,
        };
        SourceResolution::NeedsCheck {
            key,
            source: provider.source(named, settings, material),
        }
    }

    fn instrumented(&self, mint: Arc<dyn Mint>, label: &Arc<str>) -> Arc<dyn Mint> {
        Arc::new(InstrumentedMint {
            mint,
            label: Arc::clone(label),
            metrics: Arc::clone(self.metrics),
        })
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

fn static_source(credential: Credential) -> CredentialSource {
    CredentialSource::Static(Lease {
        credential: Arc::new(credential),
        generation: 1,
    })
}

fn bearer(token: &SecretString) -> CredentialSource {
    match Token::parse(token.expose_secret().to_owned()) {
        Ok(token) => static_source(Credential::from_token(token)),
        Err(error) => unusable("config.cluster", &error.to_string()),
    }
}

/// A supply without a credential.
pub fn unusable(code: &str, reason: &str) -> CredentialSource {
    CredentialSource::Unusable(MintError::new(MintErrorClass::Config, code, reason))
}

/// A mint that is counted and timed, even if it is cut off.
struct InstrumentedMint {
    mint: Arc<dyn Mint>,
    label: Arc<str>,
    metrics: Arc<Metrics>,
}

/// Counts a mint when it is dropped.
struct MintRecorder {
    label: Arc<str>,
    metrics: Arc<Metrics>,
    started: Instant,
    result: &'static str,
}

impl Drop for MintRecorder {
    fn drop(&mut self) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.metrics.minted(&self.label, self.result, seconds);
    }
}

impl Mint for InstrumentedMint {
    fn mint(&self, request: MintRequest) -> BoxFuture<'static, Result<Credential, MintError>> {
        let minting = self.mint.mint(request);
        let (label, metrics) = (Arc::clone(&self.label), Arc::clone(&self.metrics));
        async move {
            let mut count = MintRecorder {
                label,
                metrics,
                started: Instant::now(),
                result: "cut-off",
            };
            let minted = minting.await;
            count.result = match &minted {
                Ok(_) => "ok",
                Err(error) => error.class.as_str(),
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
