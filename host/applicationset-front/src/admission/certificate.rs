//! The certificate of the webhook that the gateway makes and renews itself. Replicas share it in a
//! Secret, and write its authority into `caBundle` of the webhook configurations.
//!
//! A renewal changes nothing that API servers do not trust yet:
//!
//! 1. [`RENEWAL`] before the current pair ends, one replica puts the next pair into the Secret.
//! 2. `caBundle` gets the authorities of both.
//! 3. [`OVERLAP`] later, a replica makes the next pair the current one, and each replica serves it once it
//!    has read the Secret again.
//! 4. The former authority stays in `caBundle` until the next renewal.
//!
//! Invariant: a pair is served only while `caBundle` has its authority, or no webhook calls the gateway.
//!
//! Security: anyone who has the key of an authority could answer API servers in the gateway's place. So
//! each pair has a separate authority, whose key is dropped when it has signed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use pair::{Pair, Stored};
use secret::SharedSecret;
use tollgate_config::ManagedCertificate;
use tollgate_identity::clock::Clock;
use tollgate_proxy::server::{Certificates, TlsError};
use tollgate_runtime::followed;
use tollgate_state::source::Source;
use tollgate_state::write::{self, Writer};
use webhooks::Webhooks;

mod pair;
mod secret;
mod webhooks;

/// How long a pair is valid.
const LIFETIME: Duration = Duration::from_hours(90 * 24);

/// Time left of the current pair when the next one is made.
const RENEWAL: Duration = Duration::from_hours(30 * 24);

/// Time that API servers have to learn the authority of the next pair before it is served.
const OVERLAP: Duration = Duration::from_hours(1);

/// By how much the clock of an API server may be behind.
const CLOCK_SKEW: Duration = Duration::from_hours(1);

/// How often Secret and webhook configurations are read.
const INTERVAL: Duration = Duration::from_secs(10);

const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// How often a replica starts over because another one wrote first.
const ATTEMPTS: usize = 5;

/// The gateway, as it stands in `metadata.managedFields`.
const MANAGER: &str = "tollgate";

/// Why there is no certificate to serve.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("Secret `{0}` does not exist: apply the component `admission` of the manifests, which has it without data")]
    NoSecret(String),
    #[error("{what} may not be {done}: {message}; grant it by {role} with the rule `{rule}`")]
    Forbidden {
        what: String,
        /// `read` or `changed`.
        done: &'static str,
        /// What the API server answered.
        message: String,
        /// `a Role in namespace …` or `a ClusterRole`.
        role: String,
        rule: String,
    },
    #[error("{what} cannot be {done}: {message}")]
    Refused {
        what: String,
        done: &'static str,
        message: String,
    },
    #[error("{0} was changed by somebody else each time: try again")]
    Contended(String),
    #[error("no certificate can be made: {0}")]
    Issue(#[from] rcgen::Error),
    #[error("it needs `state.kubernetes`: the Secret is in that cluster")]
    NoCluster,
    #[error(transparent)]
    State(#[from] write::Error),
    #[error("the certificate in the Secret cannot be served: {0}")]
    Tls(#[from] TlsError),
}

/// Keeps a certificate of one Service.
struct Keeper {
    /// It has the client, which is another one after its kubeconfig was renewed.
    source: Arc<dyn Source>,
    settings: ManagedCertificate,
    namespace: String,
    adds_authors: bool,
    /// The name by which API servers call the webhook.
    server_name: String,
    clock: Clock,
}

/// Reads or makes the certificate, makes it known to API servers, and does so again every [`INTERVAL`].
///
/// - `clients`: the file with the authority of API servers. With it, the webhook that adds authors is
///   looked after as well.
///
/// # Errors
/// [`Error`]: nothing is served.
pub(super) async fn start(
    settings: &ManagedCertificate,
    source: &Arc<dyn Source>,
    namespace: &str,
    clients: Option<&Path>,
    clock: Clock,
    helpers: &mut JoinSet<()>,
) -> Result<Arc<Certificates>, Error> {
    let keeper = Keeper {
        source: Arc::clone(source),
        settings: settings.clone(),
        namespace: namespace.to_owned(),
        adds_authors: clients.is_some(),
        server_name: format!("{}.{namespace}.svc", settings.service),
        clock,
    };
    let pair = keeper.reconcile().await?;
    let certificates = Arc::new(Certificates::from_pem(&pair.certificate, &pair.key, clients)?);
    followed::register("admission.clientCertificateAuthority", &certificates);
    helpers.spawn(keeper.run(Arc::clone(&certificates)));
    Ok(certificates)
}

impl Keeper {
    async fn run(self, certificates: Arc<Certificates>) {
        let mut last_error = None;
        loop {
            self.clock.sleep(INTERVAL).await;
            let replaced = self.reconcile().await.and_then(|pair| {
                let replaced = certificates.replace(&pair.certificate, &pair.key);
                replaced.map_err(Error::from)
            });
            followed::report("admission.tls.secret", replaced.is_err());
            match replaced {
                Ok(is_other) => {
                    if is_other {
                        tracing::info!("the admission webhook has another certificate, new connections use it");
                    }
                    last_error = None;
                }
                Err(error) => {
                    let text = error.to_string();
                    // Once for each error, not at every `INTERVAL`.
                    if last_error.as_ref() != Some(&text) {
                        tracing::error!(%error, "the certificate of the admission webhook cannot be renewed, the last good one stays");
                    }
                    last_error = Some(text);
                }
            }
        }
    }

    /// Does what is due, and returns the pair to serve.
    async fn reconcile(&self) -> Result<Pair, Error> {
        let Writer::Cluster(cluster) = self.source.writer()? else {
            return Err(Error::NoCluster);
        };
        let namespace = &*self.namespace;
        let secret = SharedSecret::new(cluster.client.clone(), namespace, &self.settings.secret);
        let webhooks = Webhooks::new(&cluster.client, namespace, &self.settings, self.adds_authors);
        for _ in 0..ATTEMPTS {
            // In this order: a replica writes them in the other one, so what is read here of the Secret is
            // not older than what a patch of the configurations replaces.
            let configurations = webhooks.read().await?;
            let found = secret.read().await?;
            let next_is_trusted = found
                .stored
                .next
                .as_ref()
                .is_some_and(|next| configurations.trust(&next.authorities));
            let now = self.clock.now();
            let due = found.stored.due(&self.server_name, next_is_trusted, now)?;
            let stored = match due {
                None => found.stored.clone(),
                Some((stored, why)) => {
                    if !secret.replace(&found, &stored).await? {
                        continue;
                    }
                    tracing::info!(%secret, why, "wrote the certificate of the admission webhook");
                    stored
                }
            };
            if !webhooks.write(&configurations, &stored.bundle()).await? {
                continue;
            }
            if let Stored {
                current: Some(pair), ..
            } = stored
            {
                return Ok(pair);
            }
        }
        Err(Error::Contended(secret.to_string()))
    }
}

/// Where a right is missing.
enum Scope<'a> {
    Namespace(&'a str),
    Cluster,
}

/// An object that the gateway reads and writes with rights to it alone.
struct Target<'a> {
    kind: &'a str,
    name: &'a str,
    scope: Scope<'a>,
    group: &'static str,
    plural: &'a str,
    verbs: &'static str,
}

impl Target<'_> {
    fn display(&self) -> String {
        match self.scope {
            Scope::Namespace(namespace) => format!("{} `{namespace}/{}`", self.kind, self.name),
            Scope::Cluster => format!("{} `{}`", self.kind, self.name),
        }
    }

    /// Waits for an answer, at most [`REQUEST_TIMEOUT`]. `None` if somebody else changed the object, or
    /// it is gone.
    async fn answer<T>(
        &self,
        done: &'static str,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Option<T>, Error> {
        let what = self.display();
        let Ok(answer) = timeout(REQUEST_TIMEOUT, request).await else {
            let message = format!("no answer within {} s", REQUEST_TIMEOUT.as_secs());
            return Err(Error::Refused { what, done, message });
        };
        let error = match answer {
            Ok(answer) => return Ok(Some(answer)),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(None),
            Err(error) => write::cluster_error(&error),
        };
        Err(match error {
            write::Error::Cluster { status: 403, message } => Error::Forbidden {
                what,
                done,
                message,
                role: match self.scope {
                    Scope::Namespace(namespace) => format!("a Role in namespace `{namespace}`"),
                    Scope::Cluster => "a ClusterRole".to_owned(),
                },
                rule: format!(
                    "{{apiGroups: [{:?}], resources: [{}], resourceNames: [{}], verbs: [{}]}}",
                    self.group, self.plural, self.name, self.verbs
                ),
            },
            write::Error::Cluster { message, .. } => Error::Refused { what, done, message },
            other => Error::State(other),
        })
    }
}
