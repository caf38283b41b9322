//! Tests of the cache with a fake provider and a manual clock.

mod ending;
mod failing;
mod serving;
mod stress;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::super::{Credential, Mint, MintError, MintErrorClass, MintReason, MintRequest, Token};
use super::backoff::Jitter;
use super::clock::{Clock, Moment};
use super::health::SlotStatus;
use super::key::{CredentialKey, KeyInputs, Tenancy};
use super::{CredentialCache, Error, Lease, Settings, Slot};

/// A clock that only [`Self::advance`] and [`Self::sleep`] move.
#[derive(Debug)]
struct ManualClock(Mutex<Moment>);

impl ManualClock {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Moment {
            monotonic: Duration::from_secs(1000),
            wall: Timestamp::from_second(1_800_000_000).unwrap(),
        })))
    }

    fn advance(&self, seconds: f64) {
        let mut now = self.0.lock().unwrap();
        *now = now.plus(Duration::from_secs_f64(seconds));
    }

    /// The machine sleeps, so the monotonic clock does not advance.
    fn sleep(&self, seconds: i64) {
        self.0.lock().unwrap().wall += SignedDuration::from_secs(seconds);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        *self.0.lock().unwrap()
    }
}

type Script = Box<dyn Fn(u64, MintRequest) -> Result<Credential, MintError> + Send + Sync>;

/// A provider that answers as a test's script says.
struct Fake {
    script: Script,
    /// One permit for each mint. `None`: mints do not wait.
    gate: Option<Semaphore>,
    calls: AtomicU64,
    concurrent: AtomicU64,
    max_concurrent: AtomicU64,
    requests: Mutex<Vec<MintRequest>>,
    revoked: Mutex<Vec<String>>,
}

/// A provider by itself, so that its futures may own it.
#[derive(Clone)]
struct Provider(Arc<Fake>);

impl Provider {
    fn new(script: impl Fn(u64, MintRequest) -> Result<Credential, MintError> + Send + Sync + 'static) -> Self {
        Self::build(Box::new(script), None)
    }

    fn gated(script: impl Fn(u64, MintRequest) -> Result<Credential, MintError> + Send + Sync + 'static) -> Self {
        Self::build(Box::new(script), Some(Semaphore::new(0)))
    }

    fn build(script: Script, gate: Option<Semaphore>) -> Self {
        Self(Arc::new(Fake {
            script,
            gate,
            calls: AtomicU64::new(0),
            concurrent: AtomicU64::new(0),
            max_concurrent: AtomicU64::new(0),
            requests: Mutex::default(),
            revoked: Mutex::default(),
        }))
    }

    fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::Relaxed)
    }

    fn open(&self, mints: usize) {
        self.0.gate.as_ref().unwrap().add_permits(mints);
    }

    fn revoked(&self) -> Vec<String> {
        self.0.revoked.lock().unwrap().clone()
    }

    fn reasons(&self) -> Vec<MintReason> {
        self.0.requests.lock().unwrap().iter().map(|it| it.reason).collect()
    }
}

impl Mint for Provider {
    fn mint(&self, request: MintRequest) -> BoxFuture<'static, Result<Credential, MintError>> {
        let fake = Arc::clone(&self.0);
        async move {
            let nth = fake.calls.fetch_add(1, Ordering::Relaxed) + 1;
            fake.requests.lock().unwrap().push(request);
            let now = fake.concurrent.fetch_add(1, Ordering::Relaxed) + 1;
            fake.max_concurrent.fetch_max(now, Ordering::Relaxed);
            if let Some(gate) = &fake.gate {
                gate.acquire().await.unwrap().forget();
            }
            fake.concurrent.fetch_sub(1, Ordering::Relaxed);
            (fake.script)(nth, request)
        }
        .boxed()
    }

    fn revoke(&self, revocation: SecretString) -> BoxFuture<'static, Result<(), MintError>> {
        let fake = Arc::clone(&self.0);
        async move {
            fake.revoked.lock().unwrap().push(revocation.expose_secret().to_owned());
            Ok(())
        }
        .boxed()
    }

    fn label(&self) -> &'static str {
        "production"
    }
}

/// A cache, its clock, and one provider.
struct Fixture {
    clock: Arc<ManualClock>,
    cache: CredentialCache,
    provider: Provider,
}

impl Fixture {
    fn new(provider: Provider, clock: Arc<ManualClock>) -> Self {
        Self::with(provider, clock, |_| {})
    }

    fn with(provider: Provider, clock: Arc<ManualClock>, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            jitter: Jitter::Off,
            ..Settings::default()
        };
        change(&mut settings);
        let cache = CredentialCache::new(settings, Arc::clone(&clock) as Arc<dyn Clock>, Handle::current());
        Self { clock, cache, provider }
    }

    fn slot(&self, cluster: &str) -> Arc<Slot> {
        self.cache.slot(key(cluster), Arc::new(self.provider.clone()))
    }
}

fn key(cluster: &str) -> CredentialKey {
    CredentialKey::from_inputs(&KeyInputs {
        abi: "1",
        plugin: "p",
        config: &json!({}),
        secrets: &[],
        tenancy: Tenancy::Cluster(cluster),
        policy: "",
    })
}

/// Token `t<nth>`, which expires after `seconds` and can be revoked.
fn token(clock: &Arc<ManualClock>, seconds: i64) -> impl Fn(u64, MintRequest) -> Result<Credential, MintError> + use<> {
    let clock = Arc::clone(clock);
    move |nth, _| Ok(minted(&clock, &format!("t{nth}"), seconds))
}

fn minted(clock: &ManualClock, text: &str, seconds: i64) -> Credential {
    Credential {
        expires_at: Some(clock.now().wall + SignedDuration::from_secs(seconds)),
        revocation: Some(SecretString::from(format!("r-{text}"))),
        ..Credential::from_token(Token::parse(text.to_owned()).unwrap())
    }
}

fn error(class: MintErrorClass) -> MintError {
    MintError::new(class, "test", "from the test")
}

/// A deadline that no test reaches.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn text(lease: &Lease) -> &str {
    lease.credential.token.as_ref().unwrap().expose()
}

/// Lets tasks run until `condition` returns true.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "timed out waiting for {what}"
        );
        tokio::task::yield_now().await;
    }
}

/// Lets tasks run until nothing is left to do.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
