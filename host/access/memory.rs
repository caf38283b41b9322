//! What was judged lately, and judgments under way.
//!
//! In: the key of a question, how to ask it. Out: an answer. Never: the answer of
//! another agent, credential or CSRF token; two questions of one key at once; an
//! answer nobody could give, remembered; a credential, kept.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use moka::ops::compute::{CompResult, Op};
use moka::sync::Cache;
use rustc_hash::FxBuildHasher;
use secrecy::ExposeSecret as _;
use tokio::sync::{Semaphore, watch};

use super::{Access, AccessKey, Error, Question};
use crate::clock::Clock;
use tollgate_core::session::AccessType;

/// Answers remembered at once.
const ANSWERS: u64 = 20_000;
/// Questions asked at once; more wait.
const ASKED_AT_ONCE: usize = 256;
/// Time of one question, waiting for its turn included.
const BUDGET: Duration = Duration::from_secs(15);
/// An answer nobody asks for is dropped; longer than any is good for.
const IDLE: Duration = Duration::from_secs(600);

/// What is answered.
pub(super) type Verdict = Result<Arc<Access>, Error>;

/// Names a question without holding its credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

/// Answers by key.
#[derive(Debug)]
pub(super) struct Memory {
    slots: Cache<Key, Slot, FxBuildHasher>,
    /// Random for each process, so that keys say nothing of credentials.
    secret: hmac::Key,
    turns: Arc<Semaphore>,
    clock: Clock,
    success: Duration,
    refusal: Duration,
    /// Of one question.
    budget: Duration,
}

/// An answer, or the promise of one. The task that asks holds the other end.
type Slot = watch::Receiver<Option<Answer>>;

#[derive(Clone, Debug)]
struct Answer {
    verdict: Verdict,
    /// Time the process has run when it stops to count.
    until: Duration,
}

impl Memory {
    /// Nothing remembered.
    ///
    /// - `success`, `refusal`: how long each is.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(super) fn new(
        clock: Clock,
        (success, refusal): (Duration, Duration),
    ) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let slots = Cache::builder()
            .max_capacity(ANSWERS)
            .time_to_idle(IDLE)
            .build_with_hasher(FxBuildHasher);
        Ok(Self {
            slots,
            secret: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?,
            turns: Arc::new(Semaphore::new(ASKED_AT_ONCE)),
            clock,
            success,
            refusal,
            budget: BUDGET,
        })
    }

    /// The key of a question: agent, kind, whole credential, CSRF token, and
    /// `world`, which is what the answer depends on besides.
    pub(super) fn key(&self, question: &Question<'_>, world: &[&[u8]]) -> Key {
        let (kind, credential, csrf_token) = match &question.key {
            AccessKey::PersonalAccessToken(token) => (AccessType::PersonalAccessToken, *token, None),
            AccessKey::OidcIdToken(token) => (AccessType::OidcIdToken, &token.token, None),
            AccessKey::SessionCookie { cookie, csrf_token } => (AccessType::SessionCookie, *cookie, Some(*csrf_token)),
            AccessKey::CiJobToken(token) => (AccessType::CiJobToken, *token, None),
        };
        let mut context = hmac::Context::with_key(&self.secret);
        // With its length before each part, parts cannot run together.
        let mut part = |bytes: &[u8]| {
            context.update(&bytes.len().to_le_bytes());
            context.update(bytes);
        };
        part(&question.agent.get().to_le_bytes());
        part(kind.as_str().as_bytes());
        part(credential.expose_secret().as_bytes());
        part(csrf_token.map_or("", |token| token.expose_secret()).as_bytes());
        for bytes in world {
            part(bytes);
        }
        let mut key = [0; 32];
        key.copy_from_slice(context.sign().as_ref());
        Key(key)
    }

    /// The answer under `key`, asked for when there is none that is good. All
    /// who come meanwhile wait for the same one; it is asked for in a task, which
    /// goes on when they go away. Cancel safe.
    pub(super) async fn answer<F, A>(&self, key: Key, ask: F) -> Verdict
    where
        F: FnOnce() -> A,
        A: Future<Output = Verdict> + Send + 'static,
    {
        let remembered = self.slots.get(&key).filter(|slot| self.is_good(slot));
        let mut slot = match remembered {
            Some(slot) => slot,
            None => self.begin(key, ask),
        };
        let answer = slot.wait_for(Option::is_some).await;
        // The task is gone without an answer: it panicked, or the gateway stops.
        let answer = answer.ok().and_then(|answer| answer.clone());
        answer.map_or_else(
            || Err(unavailable("the question was given up")),
            |answer| answer.verdict,
        )
    }

    fn begin<F, A>(&self, key: Key, ask: F) -> Slot
    where
        F: FnOnce() -> A,
        A: Future<Output = Verdict> + Send + 'static,
    {
        let slot = self.slots.entry(key).and_compute_with(|entry| match entry {
            Some(entry) if self.is_good(entry.value()) => Op::Nop,
            Some(_) | None => Op::Put(self.fly(ask())),
        });
        match slot {
            CompResult::Inserted(entry)
            | CompResult::ReplacedWith(entry)
            | CompResult::Unchanged(entry)
            | CompResult::Removed(entry) => entry.into_value(),
            // Cannot be: nothing is only where nothing was put.
            CompResult::StillNone(_) => watch::channel(None).1,
        }
    }

    fn fly<A>(&self, asked: A) -> Slot
    where
        A: Future<Output = Verdict> + Send + 'static,
    {
        let (sender, receiver) = watch::channel(None);
        let (turns, clock) = (Arc::clone(&self.turns), self.clock.clone());
        let (success, refusal, budget) = (self.success, self.refusal, self.budget);
        tokio::spawn(async move {
            let turn = async {
                let _turn = turns.acquire_owned().await;
                asked.await
            };
            let verdict = tokio::time::timeout(budget, turn).await;
            let verdict = verdict.unwrap_or_else(|_| Err(unavailable("no answer in time")));
            let good_for = match &verdict {
                Ok(access) => access.expires_at.map_or(success, |end| {
                    let left = end.duration_since(clock.now());
                    Duration::try_from(left).unwrap_or_default().min(success)
                }),
                Err(Error::Refused { .. } | Error::JobNotAllowed) => refusal,
                Err(Error::Unavailable { .. }) => Duration::ZERO,
            };
            let until = clock.running().saturating_add(good_for);
            sender.send_replace(Some(Answer { verdict, until }));
        });
        receiver
    }

    /// Whether there is an answer that counts, or one will come.
    fn is_good(&self, slot: &Slot) -> bool {
        match &*slot.borrow() {
            Some(answer) => self.clock.running() < answer.until,
            None => slot.has_changed().is_ok(),
        }
    }
}

fn unavailable(detail: &str) -> Error {
    Error::Unavailable {
        detail: detail.to_owned(),
    }
}

#[cfg(test)]
mod tests;
