//! Times at which a credential is renewed, becomes unusable, or is minted again after a failure.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::json;
use tollgate_credential::MintErrorClass;
use tollgate_credential::cache::{Error, Slot};

use super::harness::{Harness, MintResult, later, parse_result, settle};
use super::keys::Inputs;
use crate::suite::same;

/// How long before a time "just before" is, in seconds.
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
    /// Whether a second request gets the same credential as the first.
    #[serde(alias = "cache", alias = "cacheable")]
    cached: Option<bool>,
    use_once: Option<bool>,
}

/// A time in a case.
#[derive(Clone, Copy, Default, PartialEq)]
enum Time {
    /// The field is absent.
    #[default]
    Unspecified,
    /// `null`, or not greater than zero: there is no such time.
    Never,
    After(f64),
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = Option::<f64>::deserialize(deserializer)?;
        Ok(seconds.filter(|it| *it > 0.0).map_or(Self::Never, Self::After))
    }
}

/// What a request observes some time after the first.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    /// Whether it gets the first credential.
    first: bool,
    /// Whether a second mint ran.
    minted: bool,
}

async fn observe(lifetime: Option<f64>, after: f64) -> Result<Seen, String> {
    let harness = Harness::new(MintResult::New(lifetime));
    let slot = harness.slot();
    slot.get(later()).await.map_err(|error| error.to_string())?;
    harness.advance(after);
    let lease = slot.get(later()).await.map_err(|error| error.to_string())?;
    settle().await;
    Ok(Seen {
        first: lease.generation == 1,
        minted: harness.mints() == 2,
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
    if [refresh, unusable] == [Time::Unspecified; 2] && cached.is_none() && use_once.is_none() {
        return Err("the case expects nothing".to_owned());
    }
    let at = |after: f64, first: bool, minted: bool| async move {
        let seen = observe(lifetime_s, after).await?;
        same(&Seen { first, minted }, &seen).map_err(|error| format!("after {after} s: {error}"))
    };
    let is_uncached = [refresh, unusable].contains(&Time::Never) || cached == Some(false) || use_once == Some(true);
    if is_uncached {
        return at(0.0, false, true).await;
    }
    at(0.0, true, false).await?;
    if let Time::After(refresh) = refresh {
        at(refresh - BEFORE, true, false).await?;
        at(refresh, unusable != Time::After(refresh), true).await?;
    }
    if let Time::After(unusable) = unusable {
        if refresh != Time::Unspecified {
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
    /// The previous credential.
    Current,
    /// The new credential.
    New,
    /// No credential.
    Error,
}

/// What a request gets after the mint has ended.
async fn served(slot: &Arc<Slot>) -> Serve {
    match slot.get(later()).await {
        Ok(lease) if lease.generation == 1 => Serve::Current,
        Ok(_) => Serve::New,
        Err(_) => Serve::Error,
    }
}

/// Seconds until a request starts another mint, with requests at short intervals.
async fn next_attempt(harness: &Harness, slot: &Arc<Slot>) -> Result<f64, String> {
    const STEP: f64 = 0.25;
    const LONGEST: f64 = 4000.0;
    let before = harness.mints();
    let mut passed = 0.0;
    while passed <= LONGEST {
        // The result does not matter here, only whether a mint starts.
        drop(slot.get(later()).await);
        settle().await;
        if harness.mints() > before {
            return Ok(passed);
        }
        harness.advance(STEP);
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
    let harness = Harness::new(MintResult::New(lifetime_s));
    let slot = harness.slot();
    slot.get(later()).await.map_err(|error| error.to_string())?;
    harness.set_result(parse_result(&mint_result, lifetime_s, retry_after_s)?);
    harness.advance(at_s);
    // The result is checked below, after the mint has ended.
    drop(slot.get(later()).await);
    settle().await;
    same(&2, &harness.mints()).map_err(|error| format!("mints at {at_s} s: {error}"))?;
    same(&expect.serve, &served(&slot).await).map_err(|error| format!("served: {error}"))?;
    if expect.next_attempt_backoff.is_none() && expect.min_next_attempt_s.is_none() {
        return Ok(());
    }
    let next = next_attempt(&harness, &slot).await?;
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

/// Sends a request that fails. Returns how long the next mint waits, and checks that a request just
/// before that time does not mint.
async fn failure(harness: &Harness, slot: &Arc<Slot>, class: MintErrorClass) -> Result<f64, String> {
    let before = harness.mints();
    let wait = match slot.get(later()).await {
        Err(Error::Mint(error)) => {
            same(&class, &error.class)?;
            error.retry_after.ok_or("no time of the next attempt")?.as_secs_f64()
        }
        other => return Err(format!("expected `{}`, observed {other:?}", class.as_ref())),
    };
    same(&(before + 1), &harness.mints()).map_err(|error| format!("mints: {error}"))?;
    harness.advance(wait - BEFORE);
    let early = slot.get(later()).await.is_err();
    same(&(true, before + 1), &(early, harness.mints())).map_err(|error| format!("before its time: {error}"))?;
    harness.advance(BEFORE);
    Ok(wait)
}

pub(super) async fn failures(case: Failures) -> Result<(), String> {
    let result = parse_result(&case.mint_result, None, case.retry_after_s)?;
    let MintResult::Failure(class, _) = result else {
        return Err(format!("`{}` is not a failure", case.mint_result));
    };
    let expected = case.expect;
    let harness = Harness::new(result);
    let inputs = Inputs::some();
    let slot = harness.slot_of(inputs.key());
    let first = failure(&harness, &slot, class).await?;
    same(&expected.first_backoff_s, &first).map_err(|error| format!("first wait: {error}"))?;
    let mut longest = first;
    for _ in 0..16 {
        longest = failure(&harness, &slot, class).await?.max(longest);
    }
    if let Some(seconds) = expected.max_backoff_s {
        same(&seconds, &longest).map_err(|error| format!("longest wait: {error}"))?;
    }
    for change in &expected.reset_on {
        let reset = reset(&harness, &inputs, change).await;
        reset.map_err(|error| format!("{change}: {error}"))?;
    }
    Ok(())
}

/// Checks that a change of the inputs makes the next request mint at once, while requests with the
/// old inputs still wait.
async fn reset(harness: &Harness, inputs: &Inputs, change: &str) -> Result<(), String> {
    let fails = |inputs: &Inputs| {
        let slot = harness.slot_of(inputs.key());
        async move { slot.get(later()).await.is_err() }
    };
    let failing = fails(inputs).await;
    let before = harness.mints();
    same(&(true, true), &(failing, fails(inputs).await))?;
    same(&before, &harness.mints()).map_err(|error| format!("mints without a change: {error}"))?;
    let mut changed = inputs.clone();
    match change {
        "config change" => changed.config = json!({"field": change}),
        "secret change" => drop(changed.secret.insert("token".to_owned(), change.to_owned())),
        "policy change" | "grant change" => changed.policy = json!(change),
        "plugin change" => changed.plugin.push_str(change),
        other => return Err(format!("no change `{other}`")),
    }
    same(&true, &fails(&changed).await)?;
    same(&(before + 1), &harness.mints()).map_err(|error| format!("mints after it: {error}"))
}
