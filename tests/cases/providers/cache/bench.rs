//! A cache with a clock that stands still and a provider that obeys.

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
use tollgate_plugin::credential::cache::backoff::Jitter;
use tollgate_plugin::credential::cache::clock::{Clock, Moment};
use tollgate_plugin::credential::cache::key::{CredentialKey, KeyInputs, Tenancy};
use tollgate_plugin::credential::cache::{CredentialCache, Settings, Slot};
use tollgate_plugin::credential::{Credential, Mint, MintError, MintErrorClass, MintRequest, Token};

/// What a provider does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Answer {
    /// A new token; seconds it lives, or nobody says.
    New(Option<f64>),
    /// The last token again, with so many seconds left.
    Same(f64),
    /// An error, and the seconds the provider asks to wait.
    Failure(MintErrorClass, Option<f64>),
}

/// `retryable`, `denied`, ...; `same token, remaining N s`; `new token`.
pub(super) fn answer(text: &str, lifetime: Option<f64>, retry_after: Option<f64>) -> Result<Answer, String> {
    let classes = [
        MintErrorClass::Retryable,
        MintErrorClass::Denied,
        MintErrorClass::Config,
        MintErrorClass::Permanent,
    ];
    if let Some(class) = classes.into_iter().find(|class| class.as_ref() == text) {
        return Ok(Answer::Failure(class, retry_after));
    }
    if let Some(rest) = text.strip_prefix("same token, remaining ") {
        let seconds = rest.strip_suffix('s').and_then(|number| number.trim().parse().ok());
        return seconds
            .map(Answer::Same)
            .ok_or(format!("`{text}`: no number of seconds"));
    }
    match text {
        "ok" | "new" | "new token" => Ok(Answer::New(lifetime)),
        _ => Err(format!("`{text}` is no result of a mint")),
    }
}

struct Hands {
    now: Mutex<Moment>,
    answer: Mutex<Answer>,
    mints: AtomicU64,
    tokens: AtomicU64,
    /// One permit a mint.
    gate: Semaphore,
}

struct HeldClock(Arc<Hands>);

impl Clock for HeldClock {
    fn now(&self) -> Moment {
        *self.0.now.lock().unwrap()
    }
}

struct Provider(Arc<Hands>);

impl Mint for Provider {
    fn mint(&self, _request: MintRequest) -> BoxFuture<'static, Result<Credential, MintError>> {
        let hands = Arc::clone(&self.0);
        async move {
            hands.mints.fetch_add(1, Ordering::Relaxed);
            hands.gate.acquire().await.expect("open").forget();
            let told = *hands.answer.lock().unwrap();
            let (new, lives) = match told {
                Answer::New(lives) => (1, lives),
                Answer::Same(lives) => (0, Some(lives)),
                Answer::Failure(class, retry_after) => {
                    let mut error = MintError::new(class, "case", "as the case says");
                    error.retry_after = retry_after.map(Duration::from_secs_f64);
                    return Err(error);
                }
            };
            let number = hands.tokens.fetch_add(new, Ordering::Relaxed) + new;
            let token = Token::parse(format!("token-{number}")).expect("visible ASCII");
            let wall = hands.now.lock().unwrap().wall;
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

/// One cache for one case.
pub(super) struct Bench {
    hands: Arc<Hands>,
    cache: CredentialCache,
}

impl Bench {
    pub(super) fn new(answer: Answer) -> Self {
        let start = Moment {
            monotonic: Duration::from_secs(1),
            wall: Timestamp::from_second(1_800_000_000).expect("in range"),
        };
        let hands = Arc::new(Hands {
            now: Mutex::new(start),
            answer: Mutex::new(answer),
            mints: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            gate: Semaphore::new(1_000_000),
        });
        let settings = Settings {
            jitter: Jitter::Off,
            ..Settings::default()
        };
        let clock = Arc::new(HeldClock(Arc::clone(&hands)));
        let cache = CredentialCache::new(settings, clock, tokio::runtime::Handle::current());
        Self { hands, cache }
    }

    /// The slot of a key.
    pub(super) fn slot_of(&self, key: CredentialKey) -> Arc<Slot> {
        self.cache.slot(key, Arc::new(Provider(Arc::clone(&self.hands))))
    }

    /// The one slot of cases with one.
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

    pub(super) fn answers(&self, answer: Answer) {
        *self.hands.answer.lock().unwrap() = answer;
    }

    pub(super) fn advance(&self, seconds: f64) {
        let mut now = self.hands.now.lock().unwrap();
        *now = now.plus(Duration::from_secs_f64(seconds));
    }

    pub(super) fn now(&self) -> Timestamp {
        self.hands.now.lock().unwrap().wall
    }

    /// Mints started.
    pub(super) fn mints(&self) -> u64 {
        self.hands.mints.load(Ordering::Relaxed)
    }

    /// Keeps mints from ending.
    pub(super) fn hold(&self) {
        self.hands.gate.forget_permits(1_000_000);
    }

    /// Lets them end.
    pub(super) fn release(&self) {
        self.hands.gate.add_permits(1_000_000);
    }
}

/// Lets tasks run until nothing is left to do: the runtime has one thread.
pub(super) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// A deadline that no case reaches.
pub(super) fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}
