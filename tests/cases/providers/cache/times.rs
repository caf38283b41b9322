//! When a credential is renewed, put away, and asked for again.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::json;
use tollgate_plugin::credential::MintErrorClass;
use tollgate_plugin::credential::cache::{Error, Slot};

use super::bench::{Answer, Bench, answer, later, settle};
use super::keys::Inputs;
use crate::suite::same;

/// A moment before a time, in seconds.
const BEFORE: f64 = 0.001;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Window {
    lifetime_s: Option<f64>,
    expect: WindowExpected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowExpected {
    #[serde(default)]
    refresh_after_s: Time,
    #[serde(default)]
    unusable_after_s: Time,
    /// Whether a second request is served what the first was.
    #[serde(alias = "cache", alias = "cacheable")]
    cached: Option<bool>,
    use_once: Option<bool>,
}

/// What a case says of a time.
#[derive(Clone, Copy, Default, PartialEq)]
enum Time {
    /// Nothing.
    #[default]
    Untold,
    /// That there is none: `null`, or no time at all.
    Never,
    After(f64),
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = Option::<f64>::deserialize(deserializer)?;
        Ok(seconds.filter(|it| *it > 0.0).map_or(Self::Never, Self::After))
    }
}

/// What a request sees some time after the first.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    /// Whether it is served the first credential.
    first: bool,
    /// Whether a second mint ran.
    minted: bool,
}

async fn look(lifetime: Option<f64>, after: f64) -> Result<Seen, String> {
    let bench = Bench::new(Answer::New(lifetime));
    let slot = bench.slot();
    slot.get(later()).await.map_err(|error| error.to_string())?;
    bench.advance(after);
    let lease = slot.get(later()).await.map_err(|error| error.to_string())?;
    settle().await;
    Ok(Seen {
        first: lease.generation == 1,
        minted: bench.mints() == 2,
    })
}

pub(super) async fn window(case: Window) -> Result<(), String> {
    let Window { lifetime_s, expect } = case;
    let WindowExpected {
        refresh_after_s: refresh,
        unusable_after_s: unusable,
        cached,
        use_once,
    } = expect;
    if [refresh, unusable] == [Time::Untold; 2] && cached.is_none() && use_once.is_none() {
        return Err("the case expects nothing".to_owned());
    }
    let at = |after: f64, first: bool, minted: bool| async move {
        let seen = look(lifetime_s, after).await?;
        same(&Seen { first, minted }, &seen).map_err(|error| format!("after {after} s: {error}"))
    };
    let gone = [refresh, unusable].contains(&Time::Never) || cached == Some(false) || use_once == Some(true);
    if gone {
        return at(0.0, false, true).await;
    }
    at(0.0, true, false).await?;
    if let Time::After(refresh) = refresh {
        at(refresh - BEFORE, true, false).await?;
        at(refresh, unusable != Time::After(refresh), true).await?;
    }
    if let Time::After(unusable) = unusable {
        if refresh != Time::Untold {
            at(unusable - BEFORE, true, refresh != Time::After(unusable)).await?;
        }
        at(unusable, false, true).await?;
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Renewal {
    lifetime_s: Option<f64>,
    at_s: f64,
    mint_result: String,
    retry_after_s: Option<f64>,
    expect: RenewalExpected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewalExpected {
    serve: Serve,
    next_attempt_backoff: Option<bool>,
    min_next_attempt_s: Option<f64>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Serve {
    /// The credential that was there.
    Current,
    /// The one the mint made.
    New,
    /// None.
    Error,
}

/// What is served once the mint has ended.
async fn served(slot: &Arc<Slot>) -> Serve {
    match slot.get(later()).await {
        Ok(lease) if lease.generation == 1 => Serve::Current,
        Ok(_) => Serve::New,
        Err(_) => Serve::Error,
    }
}

/// Seconds from now until a request makes the provider work again; requests
/// come all the time.
async fn next_attempt(bench: &Bench, slot: &Arc<Slot>) -> Result<f64, String> {
    const STEP: f64 = 0.25;
    const LONGEST: f64 = 4000.0;
    let before = bench.mints();
    let mut passed = 0.0;
    while passed <= LONGEST {
        // Served or refused: only whether a mint starts counts here.
        drop(slot.get(later()).await);
        settle().await;
        if bench.mints() > before {
            return Ok(passed);
        }
        bench.advance(STEP);
        passed += STEP;
    }
    Err(format!("no further attempt in {LONGEST} s"))
}

pub(super) async fn renewal(case: Renewal) -> Result<(), String> {
    let Renewal {
        lifetime_s,
        at_s,
        mint_result,
        retry_after_s,
        expect,
    } = case;
    let bench = Bench::new(Answer::New(lifetime_s));
    let slot = bench.slot();
    slot.get(later()).await.map_err(|error| error.to_string())?;
    bench.answers(answer(&mint_result, lifetime_s, retry_after_s)?);
    bench.advance(at_s);
    // What the request itself gets is looked at once the mint has ended.
    drop(slot.get(later()).await);
    settle().await;
    same(&2, &bench.mints()).map_err(|error| format!("mints at {at_s} s: {error}"))?;
    same(&expect.serve, &served(&slot).await).map_err(|error| format!("served: {error}"))?;
    if expect.next_attempt_backoff.is_none() && expect.min_next_attempt_s.is_none() {
        return Ok(());
    }
    let next = next_attempt(&bench, &slot).await?;
    if let Some(backoff) = expect.next_attempt_backoff {
        same(&backoff, &(next > 0.0)).map_err(|error| format!("a wait before the next attempt: {error}"))?;
    }
    match expect.min_next_attempt_s {
        Some(least) if next < least => Err(format!("next attempt after {next} s, expected at least {least} s")),
        _ => Ok(()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Failures {
    mint_result: String,
    retry_after_s: Option<f64>,
    expect: FailuresExpected,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailuresExpected {
    first_backoff_s: f64,
    max_backoff_s: Option<f64>,
    #[serde(default)]
    reset_on: Vec<String>,
}

/// One failing request, and how long the next mint then waits; that it waits so
/// long is tried.
async fn failure(bench: &Bench, slot: &Arc<Slot>, class: MintErrorClass) -> Result<f64, String> {
    let before = bench.mints();
    let wait = match slot.get(later()).await {
        Err(Error::Mint(error)) => {
            same(&class, &error.class)?;
            error.retry_after.ok_or("no time of the next attempt")?.as_secs_f64()
        }
        other => return Err(format!("expected `{}`, observed {other:?}", class.as_ref())),
    };
    same(&(before + 1), &bench.mints()).map_err(|error| format!("mints: {error}"))?;
    bench.advance(wait - BEFORE);
    let early = slot.get(later()).await.is_err();
    same(&(true, before + 1), &(early, bench.mints())).map_err(|error| format!("before its time: {error}"))?;
    bench.advance(BEFORE);
    Ok(wait)
}

pub(super) async fn failures(case: Failures) -> Result<(), String> {
    let told = answer(&case.mint_result, None, case.retry_after_s)?;
    let Answer::Failure(class, _) = told else {
        return Err(format!("`{}` is no failure", case.mint_result));
    };
    let expected = case.expect;
    let bench = Bench::new(told);
    let inputs = Inputs::some();
    let slot = bench.slot_of(inputs.key());
    let first = failure(&bench, &slot, class).await?;
    same(&expected.first_backoff_s, &first).map_err(|error| format!("first wait: {error}"))?;
    let mut longest = first;
    for _ in 0..16 {
        longest = failure(&bench, &slot, class).await?.max(longest);
    }
    if let Some(seconds) = expected.max_backoff_s {
        same(&seconds, &longest).map_err(|error| format!("longest wait: {error}"))?;
    }
    for change in &expected.reset_on {
        let reset = reset(&bench, &inputs, change).await;
        reset.map_err(|error| format!("{change}: {error}"))?;
    }
    Ok(())
}

/// A slot that waits, then a change of what it is made of: the next request
/// mints at once.
async fn reset(bench: &Bench, inputs: &Inputs, change: &str) -> Result<(), String> {
    let ask = |inputs: &Inputs| {
        let slot = bench.slot_of(inputs.key());
        async move { slot.get(later()).await.is_err() }
    };
    let failing = ask(inputs).await;
    let before = bench.mints();
    same(&(true, true), &(failing, ask(inputs).await))?;
    same(&before, &bench.mints()).map_err(|error| format!("mints without a change: {error}"))?;
    let mut changed = inputs.clone();
    match change {
        "config change" => changed.config = json!({"field": change}),
        "secret change" => drop(changed.secret.insert("token".to_owned(), change.to_owned())),
        "policy change" | "grant change" => changed.policy = json!(change),
        "plugin change" => changed.plugin.push_str(change),
        other => return Err(format!("no change `{other}`")),
    }
    same(&true, &ask(&changed).await)?;
    same(&(before + 1), &bench.mints()).map_err(|error| format!("mints after it: {error}"))
}
