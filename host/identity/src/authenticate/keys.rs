//! An issuer's public keys, from its discovery document and JWKS (OpenID Connect Discovery, RFC
//! 7517), kept fresh.
//!
//! Invariant: keys are not fetched per request, and no lock is held while waiting.
//!
//! Security: symmetric keys are ignored.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use reqwest::Client;
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use url::Url;

use super::fetch::{self, FetchError, OwnHosts};
use crate::clock::Clock;
use crate::http_client::Authority;
use crate::metrics::KEY_FETCHES_SPARED;
use crate::sharded::lock;

const MAX_KEYS: usize = 100;
/// Most keys tried for a token without `kid`.
const MAX_TRIED: usize = 4;
/// Shortest time between two fetches caused by an unknown `kid`, and between two attempts after a
/// failed fetch.
const REFETCH_INTERVAL: Duration = Duration::from_secs(10);
/// How long keys past their maximum age are used while the issuer is unreachable.
const OUTAGE_GRACE: Duration = Duration::from_secs(60 * 60);
/// Time limit for discovery document and keys together.
const FETCH_TIMEOUT: Duration = Duration::from_secs(8);

/// Where keys come from. A reload keeps the cache if the source is equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeySource {
    pub(super) issuer: String,
    pub(super) discovery: Url,
    /// The only roots trusted.
    pub(super) authority: Option<Authority>,
    /// The server that serves the issuer's documents, if not the issuer's own address.
    pub(super) via: Option<ServerAddress>,
    /// File with the token that is sent. It is read for each fetch, because somebody may renew it.
    pub(super) token_file: Option<PathBuf>,
    pub(super) max_age: Duration,
}

/// A server that serves an issuer's documents under the issuer's paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    /// Without a path.
    pub(super) url: Url,
    /// The name its certificate must be for, if not the URL's host.
    pub(super) server_name: Option<String>,
}

impl KeySource {
    /// The document at this URL, verified with the system's authorities and fetched without a token.
    pub(super) fn of(issuer: &str, discovery: &str) -> Result<Self, FetchError> {
        fetch::parse_url(issuer)?;
        Ok(Self {
            issuer: issuer.to_owned(),
            discovery: fetch::parse_url(discovery)?,
            authority: None,
            via: None,
            token_file: None,
            max_age: tollgate_config::DEFAULT_JWKS_MAX_AGE,
        })
    }

    fn own_hosts(&self) -> OwnHosts {
        let issuer = fetch::parse_url(&self.issuer).ok();
        let urls: Vec<&Url> = issuer.iter().chain([&self.discovery]).collect();
        OwnHosts::of(&urls)
    }

    /// Where to fetch a document of the issuer. With a server in between, only documents at the
    /// issuer's own address are fetched, and only from that server.
    fn address_of(&self, document: &Url) -> Result<Url, FetchError> {
        let Some(server) = &self.via else {
            return Ok(document.clone());
        };
        let origin = self.discovery.origin();
        if document.origin() != origin {
            return Err(FetchError::Elsewhere {
                url: document.to_string(),
                expected: origin.ascii_serialization(),
            });
        }
        let mut address = server.url.clone();
        if let Some(name) = &server.server_name {
            let url = || FetchError::Url { url: name.clone() };
            // TLS takes the name to verify from the URL. `OneHost` resolves it to the server itself.
            address.set_host(Some(name)).map_err(|_| url())?;
        }
        address.set_path(document.path());
        address.set_query(document.query());
        Ok(address)
    }
}

#[derive(Debug)]
pub(super) struct KeyCache {
    pub(super) source: KeySource,
    client: Client,
    clock: Clock,
    state: Mutex<KeyCacheState>,
}

#[derive(Debug, Default)]
struct KeyCacheState {
    keys: Option<Arc<KeySet>>,
    /// Closed when the running fetch ends.
    in_flight: Option<watch::Receiver<()>>,
    failed_at: Option<Duration>,
    /// When an unknown `kid` last caused a fetch.
    forced_at: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct KeySet {
    /// What the discovery document says besides.
    pub(super) provider: ProviderMetadata,
    keys: Vec<VerificationKey>,
    fetched_at: Duration,
}

#[derive(Debug)]
struct VerificationKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyError {
    /// The issuer has no such key, as far as known.
    Unknown,
    /// The issuer cannot be reached.
    Unavailable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    Age,
    UnknownKey,
}

impl KeyCache {
    pub(super) fn new(source: KeySource, clock: Clock) -> Result<Self, FetchError> {
        let own = source.own_hosts();
        let client = fetch::client(&source.discovery, &own, source.authority.as_ref(), source.via.as_ref())?;
        Ok(Self {
            source,
            client,
            clock,
            state: Mutex::default(),
        })
    }

    /// Returns a set with a key for `kid` and `algorithm`.
    ///
    /// An unknown key causes one fetch per [`REFETCH_INTERVAL`], shared by all callers.
    pub(super) async fn find(
        self: &Arc<Self>,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<KeySet>, KeyError> {
        let keys = self.current().await?;
        if keys.candidates(kid, algorithm).next().is_some() {
            return Ok(keys);
        }
        let Some(in_flight) = self.start_fetch(Trigger::UnknownKey) else {
            KEY_FETCHES_SPARED.inc();
            return Err(KeyError::Unknown);
        };
        ended(in_flight).await;
        let fetched = lock(&self.state).keys.clone().ok_or(KeyError::Unavailable)?;
        if fetched.candidates(kid, algorithm).next().is_some() {
            return Ok(fetched);
        }
        // The same keys as before mean that the fetch failed, so the issuer may well have the key.
        Err(if Arc::ptr_eq(&keys, &fetched) {
            KeyError::Unavailable
        } else {
            KeyError::Unknown
        })
    }

    /// Returns the current keys. Fetches them if there are none or they are too old; if they soon
    /// will be, fetches them in the background.
    pub(super) async fn current(self: &Arc<Self>) -> Result<Arc<KeySet>, KeyError> {
        let known = lock(&self.state).keys.clone();
        let age = known.as_ref().map(|keys| self.age(keys));
        if let (Some(keys), Some(age)) = (&known, age)
            && age < self.source.max_age
        {
            if age >= self.source.max_age.mul_f32(0.75) {
                drop(self.start_fetch(Trigger::Age));
            }
            return Ok(keys.clone());
        }
        if let Some(in_flight) = self.start_fetch(Trigger::Age) {
            ended(in_flight).await;
        }
        let bound = self.source.max_age.saturating_add(OUTAGE_GRACE);
        let keys = lock(&self.state).keys.clone();
        keys.filter(|keys| self.age(keys) < bound).ok_or(KeyError::Unavailable)
    }

    /// Joins the running fetch, or starts one if it is due. The fetch is a separate task, so a
    /// caller who goes away does not stop it.
    fn start_fetch(self: &Arc<Self>, trigger: Trigger) -> Option<watch::Receiver<()>> {
        let now = self.clock.uptime();
        let too_soon = |last: Option<Duration>| last.is_some_and(|last| now.saturating_sub(last) < REFETCH_INTERVAL);
        let mut state = lock(&self.state);
        if let Some(in_flight) = &state.in_flight
            // An error means that the sender is gone, and so that the fetch has ended.
            && in_flight.has_changed().is_ok()
        {
            return Some(in_flight.clone());
        }
        match trigger {
            Trigger::Age if too_soon(state.failed_at) => return None,
            Trigger::UnknownKey if too_soon(state.forced_at) => return None,
            Trigger::Age => {}
            Trigger::UnknownKey => state.forced_at = Some(now),
        }
        let (done, in_flight) = watch::channel(());
        state.in_flight = Some(in_flight.clone());
        drop(state);
        let cache = self.clone();
        tokio::spawn(async move {
            cache.refresh().await;
            drop(done);
        });
        Some(in_flight)
    }

    async fn refresh(&self) {
        let outcome = tokio::time::timeout(FETCH_TIMEOUT, self.fetch()).await;
        let outcome = outcome.unwrap_or_else(|_| Err(FetchError::Timeout(FETCH_TIMEOUT)));
        let now = self.clock.uptime();
        let mut state = lock(&self.state);
        match outcome {
            Ok((keys, provider)) => {
                state.failed_at = None;
                let fetched_at = now;
                state.keys = Some(Arc::new(KeySet {
                    provider,
                    keys,
                    fetched_at,
                }));
            }
            Err(error) => {
                state.failed_at = Some(now);
                drop(state);
                tracing::warn!(issuer = %self.source.issuer, %error, "keys could not be fetched");
            }
        }
    }

    async fn fetch(&self) -> Result<(Vec<VerificationKey>, ProviderMetadata), FetchError> {
        let source = &self.source;
        let token = match &source.token_file {
            Some(file) => Some(fetch::read_token(file).await?),
            None => None,
        };
        let token = token.as_ref().map(ExposeSecret::expose_secret);
        let discovery = source.address_of(&source.discovery)?;
        let discovery: DiscoveryDocument = fetch::fetch_json(&self.client, &discovery, token).await?;
        if discovery.issuer != source.issuer {
            return Err(FetchError::Issuer {
                url: source.discovery.to_string(),
                observed: discovery.issuer,
                expected: source.issuer.clone(),
            });
        }
        let named = fetch::parse_url(&discovery.jwks_uri)?;
        let own = source.own_hosts();
        own.check(&named).await?;
        if token.is_some() {
            own.check_secret(&named)?;
        }
        let url = source.address_of(&named)?;
        let set: RawKeySet = fetch::fetch_json(&self.client, &url, token).await?;
        let keys = set.keys.into_iter().take(MAX_KEYS);
        let keys: Vec<_> = keys.filter_map(VerificationKey::read).collect();
        if keys.is_empty() {
            return Err(FetchError::NoKeys { url: url.to_string() });
        }
        Ok((keys, discovery.provider))
    }

    fn age(&self, keys: &KeySet) -> Duration {
        self.clock.uptime().saturating_sub(keys.fetched_at)
    }
}

/// Waits until a fetch has ended, successfully or not; it then drops its sender.
async fn ended(mut in_flight: watch::Receiver<()>) {
    while in_flight.changed().await.is_ok() {}
}

impl KeySet {
    /// Returns the keys to try. For a token with `kid`, only keys of that name; without, a few
    /// keys that fit its algorithm.
    pub(super) fn candidates(&self, kid: Option<&str>, algorithm: Algorithm) -> impl Iterator<Item = &DecodingKey> {
        let fits = move |key: &&VerificationKey| {
            key.algorithms.contains(&algorithm) && (kid.is_none() || key.id.as_deref() == kid)
        };
        self.keys.iter().filter(fits).take(MAX_TRIED).map(|key| &key.key)
    }
}

#[derive(Deserialize)]
struct DiscoveryDocument {
    issuer: String,
    jwks_uri: String,
    #[serde(flatten)]
    provider: ProviderMetadata,
}

/// Where people sign in at an issuer, and sign out. API servers, whose tokens are verified too, have
/// none of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProviderMetadata {
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: Option<String>,
    pub(super) end_session_endpoint: Option<String>,
    pub(super) token_endpoint_auth_methods_supported: Vec<String>,
    /// Whether every answer names the issuer (RFC 9207).
    pub(super) authorization_response_iss_parameter_supported: bool,
}

#[derive(Deserialize)]
struct RawKeySet {
    keys: Vec<Value>,
}

impl VerificationKey {
    /// Reads one key; `None` for keys of unknown kinds or uses, so that one of them does not
    /// invalidate the set (RFC 7517, section 5).
    fn read(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let common = &jwk.common;
        let (usage, operations) = (common.public_key_use.as_ref(), common.key_operations.as_ref());
        let is_for_signatures = usage.is_none_or(|usage| *usage == PublicKeyUse::Signature);
        if !is_for_signatures || operations.is_some_and(|list| !list.contains(&KeyOperations::Verify)) {
            return None;
        }
        let of_kind: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => {
                use Algorithm::{PS256, PS384, PS512, RS256, RS384, RS512};
                &[RS256, RS384, RS512, PS256, PS384, PS512]
            }
            AlgorithmParameters::EllipticCurve(parameters) => match parameters.curve {
                EllipticCurve::P256 => &[Algorithm::ES256],
                EllipticCurve::P384 => &[Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(parameters) if parameters.curve == EllipticCurve::Ed25519 => {
                &[Algorithm::EdDSA]
            }
            // SECURITY: this includes symmetric keys; a published one is no secret.
            _ => return None,
        };
        let is_bound_to = |known, bound| Algorithm::try_from(bound).is_ok_and(|bound| bound == known);
        let mut algorithms = of_kind.to_vec();
        algorithms.retain(|known| common.key_algorithm.is_none_or(|bound| is_bound_to(*known, bound)));
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        (!algorithms.is_empty()).then(|| Self {
            id: common.key_id.clone(),
            algorithms,
            key,
        })
    }
}
