//! Measures casbin-rs on the same policy and questions as Tollgate and the other peers, and
//! prints each result as a line of JSON. Decisions are not cached.

use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use casbin::{CoreApi, DefaultModel, Enforcer, StringAdapter};
use serde::Deserialize;

/// Argo CD's model with casbin's own cheapest matcher for `*` at the end.
const MODEL: &str = r#"
[request_definition]
r = sub, res, act, obj

[policy_definition]
p = sub, res, act, obj, eft

[role_definition]
g = _, _

[policy_effect]
e = some(where (p.eft == allow)) && !some(where (p.eft == deny))

[matchers]
m = g(r.sub, p.sub) && keyMatch(r.res, p.res) && keyMatch(r.act, p.act) && keyMatch(r.obj, p.obj)
"#;

/// About the least duration of a sample.
const SAMPLE: Duration = Duration::from_millis(2);

#[derive(Deserialize)]
struct Tuple {
    resource: String,
    action: String,
    object: String,
}

#[derive(Deserialize)]
struct Questions {
    rows: usize,
    policy: String,
    subject: String,
    groups: Vec<String>,
    hit: Tuple,
    miss: Tuple,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().context("usage: casbin-peer QUESTIONS MILLISECONDS")?;
    let budget = Duration::from_millis(arguments.next().context("no MILLISECONDS")?.parse()?);
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let asked: Questions = serde_json::from_str(&text).with_context(|| path.clone())?;
    let model = DefaultModel::from_str(MODEL).await?;
    let enforcer = Enforcer::new(model, StringAdapter::new(&asked.policy)).await?;
    let principals = principals(&asked);
    for (name, tuple, expected) in [("hit", &asked.hit, true), ("miss", &asked.miss, false)] {
        let (nanoseconds, samples) = measure(budget, || {
            let allowed = decide(&enforcer, &principals, tuple)?;
            if allowed != expected {
                bail!("{name}: allowed is `{allowed}`, expected `{expected}`");
            }
            Ok(())
        })?;
        let line = serde_json::json!({
            "name": format!("rbac/{name}/{}", asked.rows), "nanoseconds": nanoseconds, "samples": samples,
        });
        println!("{line}");
    }
    Ok(())
}

/// The principals in Argo CD's order: the user, groups that occur in a `g`
/// row, and the empty subject.
fn principals(asked: &Questions) -> Vec<&str> {
    let known = |group: &&String| asked.policy.contains(&format!("\ng, {group}, "));
    std::iter::once(asked.subject.as_str())
        .chain(asked.groups.iter().filter(known).map(String::as_str))
        .chain(std::iter::once(""))
        .collect()
}

/// Asks for each principal in turn; the first allow wins.
fn decide(enforcer: &Enforcer, principals: &[&str], tuple: &Tuple) -> Result<bool> {
    for principal in principals {
        if enforcer.enforce((*principal, &tuple.resource, &tuple.action, &tuple.object))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Times `once` for about `budget`. Returns the median in nanoseconds and the number of samples,
/// each of at least about [`SAMPLE`].
fn measure(budget: Duration, mut once: impl FnMut() -> Result<()>) -> Result<(f64, usize)> {
    let start = Instant::now();
    once()?;
    let one = start.elapsed().max(Duration::from_nanos(1));
    let mut repeat = 1 + u32::try_from(SAMPLE.as_nanos() / one.as_nanos())?;
    let mut samples = Vec::new();
    let end = Instant::now() + budget;
    while samples.len() < 3 || Instant::now() < end {
        let start = Instant::now();
        for _ in 0..repeat {
            once()?;
        }
        let took = start.elapsed();
        samples.push(took.as_secs_f64() * 1e9 / f64::from(repeat));
        if took < SAMPLE / 2 {
            repeat *= 2;
            samples.clear();
        }
    }
    samples.sort_by(f64::total_cmp);
    Ok((samples[samples.len() / 2], samples.len()))
}
