//! A cache with a manual clock and a provider that returns what a case says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tollgate_credential::cache::backoff::Jitter;
use tollgate_credential::cache::clock::{Clock, Moment};
use tollgate_credential::cache::key::{CredentialKey, KeyInputs, Tenancy};
use tollgate_credential::cache::{CredentialCache, Settings, Slot};
use tollgate_credential::{Credential, Mint, MintError, MintErrorClass, MintRequest, Token};

/// Result of the provider's next mint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MintResult {
    /// A new token, with its lifetime in seconds if known.
    New(Option<f64>),
    /// The last token again, with its remaining seconds.
    Same(f64),
    /// An error, with the provider's `retry_after` in seconds.
    Failure(MintErrorClass, Option<f64>),
}

/// Parses a result: the class of an error such as `retryable`, `same token, remaining N s`, or
/// `new token`.
pub(super) fn parse_result(text: &str, lifetime: Option<f64>, retry_after: Option<f64>) -> Result<MintResult, String> {
    let classes = [
        MintErrorClass::Retryable,
        MintErrorClass::Denied,
        MintErrorClass::Config,
        MintErrorClass::Permanent,
    ];
    if let Some(class) = classes.into_iter().find(|class| class.as_ref() == text) {
        return Ok(MintResult::Failure(class, retry_after));
    }
    if let Some(rest) = text.strip_prefix("same token, remaining ") {
        let seconds = rest.strip_suffix('s').and_then(|number| number.trim().parse().ok());
        return seconds
            .map(MintResult::Same)
            .ok_or(format!("`{text}`: no number of seconds"));
    }
    match text {
        "ok" | "new" | "new token" => Ok(MintResult::New(lifetime)),
        _ => Err(format!("`{text}` is not a result of a mint")),
    }
}

struct Controls {
    now: Mutex<Moment>,
    result: Mutex<MintResult>,
    mints: AtomicU64,
    tokens: AtomicU64,
    /// Each mint takes a permit; without permits, mints wait.
    gate: Semaphore,
}

struct ManualClock(Arc<Controls>);

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        *self.0.now.lock().unwrap()
    }
}

struct Provider(Arc<Controls>);

impl Mint for Provider {
    fn mint(&self, _request: MintRequest) -> BoxFuture<'static, Result<Credential, MintError>> {
        let controls = Arc::clone(&self.0);
        async move {
            controls.mints.fetch_add(1, Ordering::Relaxed);
            controls.gate.acquire().await.expect("open").forget();
            let result = *controls.result.lock().unwrap();
            let (new, lives) = match result {
                MintResult::New(lives) => (1, lives),
                MintResult::Same(lives) => (0, Some(lives)),
                MintResult::Failure(class, retry_after) => {
                    let mut error = MintError::new(class, "case", "as the case says");
                    error.retry_after = retry_after.map(Duration::from_secs_f64);
                    return Err(error);
                }
            };
            let number = controls.tokens.fetch_add(new, Ordering::Relaxed) + new;
            let token = Token::parse(format!("token-{number}")).expect("visible ASCII");
            let wall = controls.now.lock().unwrap().wall;
            let mut credential = Credential::from_token(token);
            credential.expires_at = lives.map(|lives| wall + SignedDuration::from_secs_f64(lives));
            Ok(credential)
        }
        .boxed()
    }

    fn revoke(&self, _revocation: SecretString) -> BoxFuture<'static, Result<(), MintError>> {
        async { Ok(()) }.boxed()
    }
}

/// The cache of one case.
pub(super) struct Harness {
    controls: Arc<Controls>,
    cache: CredentialCache,
}

impl Harness {
    pub(super) fn new(result: MintResult) -> Self {
        let start = Moment {
            monotonic: Duration::from_secs(1),
            wall: Timestamp::from_second(1_800_000_000).expect("in range"),
        };
        let controls = Arc::new(Controls {
            now: Mutex::new(start),
            result: Mutex::new(result),
            mints: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            gate: Semaphore::new(1_000_000),
        });
        let settings = Settings {
            jitter: Jitter::Off,
            ..Settings::default()
        };
        let clock = Arc::new(ManualClock(Arc::clone(&controls)));
        let cache = CredentialCache::new(settings, clock, tokio::runtime::Handle::current());
        Self { controls, cache }
    }

    /// The slot of a key.
    pub(super) fn slot_of(&self, key: CredentialKey) -> Arc<Slot> {
        self.cache.slot(key, Arc::new(Provider(Arc::clone(&self.controls))))
    }

    /// The slot of cases that have only one.
    pub(super) fn slot(&self) -> Arc<Slot> {
        self.slot_of(CredentialKey::from_inputs(&KeyInputs {
            abi: "1",
            plugin: "case",
            config: &json!({}),
            secrets: &[],
            tenancy: Tenancy::Cluster("case"),
            policy: "",
        }))
    }

    pub(super) fn set_result(&self, result: MintResult) {
        *self.controls.result.lock().unwrap() = result;
    }

    pub(super) fn advance(&self, seconds: f64) {
        let mut now = self.controls.now.lock().unwrap();
        *now = now.plus(Duration::from_secs_f64(seconds));
    }

    pub(super) fn now(&self) -> Timestamp {
        self.controls.now.lock().unwrap().wall
    }

    /// Number of mints started.
    pub(super) fn mints(&self) -> u64 {
        self.controls.mints.load(Ordering::Relaxed)
    }

    /// Makes mints wait.
    pub(super) fn hold(&self) {
        self.controls.gate.forget_permits(1_000_000);
    }

    /// Lets waiting mints finish.
    pub(super) fn release(&self) {
        self.controls.gate.add_permits(1_000_000);
    }
}

/// Yields until all tasks have finished or wait. The runtime has one thread.
pub(super) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// A deadline later than the end of any case.
pub(super) fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}
