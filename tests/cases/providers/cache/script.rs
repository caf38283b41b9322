//! Sequences of requests, and concurrent requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use tollgate_credential::cache::Slot;

use super::harness::{Harness, MintResult, later, parse_result, settle};
use crate::suite::same;

/// Lifetime of credentials in seconds, unless the case has one.
const LIFETIME: f64 = 3600.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Steps {
    steps: Vec<String>,
    lifetime_s: Option<f64>,
    expect: StepsExpected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepsExpected {
    mints_total: Option<u64>,
    current: Option<String>,
}

/// One line of a script: `get g1`, `refresh g2`, `401 g1` or `403 g1`, each optionally with
/// `(after N s)` to advance the clock first; or `wait N s`.
struct Step<'a> {
    word: &'a str,
    generation: u64,
    after: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('s').and_then(|it| it.trim().parse().ok());
    number.ok_or(format!("`{text}` is not a number of seconds"))
}

fn generation(text: &str) -> Result<u64, String> {
    let number = text.trim().strip_prefix('g').and_then(|it| it.parse().ok());
    number.ok_or(format!("`{text}` is not a generation"))
}

fn step(text: &str) -> Result<Step<'_>, String> {
    let (line, after) = match text.split_once('(') {
        None => (text.trim(), 0.0),
        Some((line, rest)) => {
            let rest = rest.trim().strip_suffix(')').and_then(|it| it.strip_prefix("after"));
            (
                line.trim(),
                seconds(rest.ok_or(format!("`{text}`: not `(after N s)`"))?)?,
            )
        }
    };
    let (word, rest) = line.split_once(' ').ok_or(format!("`{text}` is not a step"))?;
    let (generation, after) = match word {
        "wait" | "advance" => (0, after + seconds(rest)?),
        _ => (generation(rest)?, after),
    };
    Ok(Step {
        word,
        generation,
        after,
    })
}

async fn run_step(harness: &Harness, slot: &Arc<Slot>, step: &Step<'_>) -> Result<(), String> {
    harness.advance(step.after);
    match step.word {
        "wait" | "advance" => {}
        "get" => {
            let lease = slot.get(later()).await.map_err(|error| error.to_string())?;
            same(&step.generation, &lease.generation)?;
        }
        "refresh" => {
            let due = slot.health().refresh_at.ok_or("nothing to renew")?;
            harness.advance(due.duration_since(harness.now()).as_secs_f64().max(0.0));
            slot.get(later()).await.map_err(|error| error.to_string())?;
            settle().await;
            same(&Some(step.generation), &slot.cached().map(|lease| lease.generation))?;
        }
        status => {
            let status = http::StatusCode::from_bytes(status.as_bytes()).map_err(|_| "no such step")?;
            if status == http::StatusCode::UNAUTHORIZED {
                let again = slot.lease_after_unauthorized(step.generation, later()).await;
                again.map_err(|error| error.to_string())?;
            }
        }
    }
    settle().await;
    Ok(())
}

pub(super) async fn steps(case: Steps) -> Result<(), String> {
    let harness = Harness::new(MintResult::New(Some(case.lifetime_s.unwrap_or(LIFETIME))));
    let slot = harness.slot();
    for line in &case.steps {
        let done = run_step(&harness, &slot, &step(line)?).await;
        done.map_err(|error| format!("`{line}`: {error}"))?;
    }
    let StepsExpected { mints_total, current } = case.expect;
    if mints_total.is_none() && current.is_none() {
        return Err("the case expects nothing".to_owned());
    }
    if let Some(total) = mints_total {
        same(&total, &harness.mints()).map_err(|error| format!("mints: {error}"))?;
    }
    if let Some(current) = current {
        let now = slot.cached().map(|lease| lease.generation);
        same(&Some(generation(&current)?), &now).map_err(|error| format!("current: {error}"))?;
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConcurrentGets {
    concurrent_gets: usize,
    cancel: Option<Cancelled>,
    mint_result: Option<String>,
    expect: ConcurrentGetsExpected,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Cancelled {
    /// The first request, which started the mint.
    Leader,
    /// Every other request.
    Followers,
    /// Every request.
    All,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConcurrentGetsExpected {
    mints_total: u64,
    #[serde(default)]
    failures: usize,
}

pub(super) async fn concurrent_gets(case: ConcurrentGets) -> Result<(), String> {
    let result = case.mint_result.as_deref().unwrap_or("new token");
    let harness = Harness::new(parse_result(result, Some(LIFETIME), None)?);
    harness.hold();
    let slot = harness.slot();
    let mut requests = Vec::new();
    for _ in 0..case.concurrent_gets {
        let slot = Arc::clone(&slot);
        requests.push(tokio::spawn(async move { slot.get(later()).await }));
        // Each request waits before the next one starts.
        settle().await;
    }
    let waiting = requests.iter().filter(|request| !request.is_finished()).count();
    same(&case.concurrent_gets, &waiting).map_err(|error| format!("waiting at once: {error}"))?;
    let cancelled_range = match case.cancel {
        None => 0..0,
        Some(Cancelled::Leader) => 0..1,
        Some(Cancelled::Followers) => 1..requests.len(),
        Some(Cancelled::All) => 0..requests.len(),
    };
    for request in requests.drain(cancelled_range) {
        request.abort();
        let cancelled = request.await.is_err_and(|error| error.is_cancelled());
        same(&true, &cancelled).map_err(|error| format!("cancelled: {error}"))?;
    }
    harness.release();
    let (mut failures, mut served) = (0, BTreeSet::new());
    for request in requests {
        match request.await.map_err(|error| error.to_string())? {
            Ok(lease) => drop(served.insert(lease.generation)),
            Err(_) => failures += 1,
        }
    }
    settle().await;
    let ConcurrentGetsExpected {
        mints_total,
        failures: allowed,
    } = case.expect;
    same(&mints_total, &harness.mints()).map_err(|error| format!("mints: {error}"))?;
    same(&allowed, &failures).map_err(|error| format!("failures: {error}"))?;
    same(&true, &(served.len() <= 1)).map_err(|error| format!("one credential for all: {error}"))
}
