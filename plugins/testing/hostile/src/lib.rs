//! A filter that misbehaves as its configuration says. For tests only.

use serde::Deserialize;
use tollgate_plugin::{
    Edit, HeaderFilter, Plan, Plans, Refusal, Request, Response, empty_plan, empty_plans, field, header_filter, refuse,
};

/// The behavior of each function.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    /// Behavior of `plan`.
    plan: Behavior,
    /// Behavior of `filter-request`.
    request: Behavior,
    /// Behavior of `filter-response`.
    response: Behavior,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Behavior {
    #[default]
    Good,
    Loop,
    Trap,
    Panic,
    Recurse,
    MemoryBomb,
    ForbiddenHeader,
    ForbiddenRemoval,
    BadHeaderName,
    BadHeaderValue,
    TooManyEdits,
    TooManyBytes,
    Gigabyte,
    Refuse,
    RefuseWithOk,
    Error,
}

/// Counts calls. It is above 0 at the start of a call only if calls share an instance, which the
/// tests check.
static CALLS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

#[derive(Debug)]
struct Hostile;

impl HeaderFilter for Hostile {
    type Config = Config;

    fn plan(config: &Config) -> Result<Plans, String> {
        match config.plan {
            Behavior::Error => Err("this configuration is not to my taste".to_owned()),
            behavior => {
                let set = behave(behavior).map_err(|refusal| refusal.reason)?;
                let set = set.into_iter().filter_map(|edit| match edit {
                    Edit::Set(field) => Some(field),
                    Edit::Remove(_) | Edit::Append(_) => None,
                });
                Ok(Plans {
                    request: Plan {
                        set: set.collect(),
                        ..empty_plan()
                    },
                    ..empty_plans()
                })
            }
        }
    }

    fn filter_request(config: &Config, _request: &Request) -> Result<Vec<Edit>, Refusal> {
        behave(config.request)
    }

    fn filter_response(config: &Config, _response: &Response) -> Result<Vec<Edit>, Refusal> {
        behave(config.response)
    }
}

fn behave(behavior: Behavior) -> Result<Vec<Edit>, Refusal> {
    let calls = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let good = vec![Edit::Set(field("x-calls-before", &calls.to_string()))];
    match behavior {
        Behavior::Good => Ok(good),
        Behavior::Loop => loop {
            std::hint::black_box(());
        },
        Behavior::Trap => core::arch::wasm32::unreachable(),
        Behavior::Panic => panic!("on purpose"),
        Behavior::Recurse => Ok(vec![Edit::Set(field("x-depth", &recurse(1).to_string()))]),
        Behavior::MemoryBomb => {
            let mut hoard: Vec<Vec<u8>> = Vec::new();
            loop {
                hoard.push(std::hint::black_box(vec![1; 1 << 20]));
            }
        }
        Behavior::ForbiddenHeader => Ok(vec![Edit::Set(field("argocd-username", "admin"))]),
        Behavior::ForbiddenRemoval => Ok(vec![Edit::Remove("Authorization".to_owned())]),
        Behavior::BadHeaderName => Ok(vec![Edit::Set(field("x y\r\n", "z"))]),
        Behavior::BadHeaderValue => Ok(vec![Edit::Set(field("x-good", "a\r\nargocd-username: admin"))]),
        Behavior::TooManyEdits => Ok((0..1000).map(|_| Edit::Remove("x".to_owned())).collect()),
        Behavior::TooManyBytes => Ok(vec![Edit::Set(field("x-long", &"a".repeat(100_000)))]),
        Behavior::Gigabyte => Ok(vec![Edit::Set(field("x-long", &"a".repeat(3 << 20)))]),
        Behavior::Refuse => Err(refuse(451, "for \u{7}legal\r\nreasons")),
        Behavior::RefuseWithOk => Err(refuse(200, "fine")),
        Behavior::Error => Ok(good),
    }
}

#[expect(unconditional_recursion, reason = "the test exhausts the stack")]
fn recurse(depth: u64) -> u64 {
    std::hint::black_box(recurse(std::hint::black_box(depth + 1)) + depth)
}

header_filter!(Hostile);
