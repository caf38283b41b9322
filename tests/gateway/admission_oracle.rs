//! Property test: nothing is stored, started or deleted in the control plane's cluster that those may
//! not do who answer for it, however it is written.
//!
//! Random sequences of writes by people, Argo CD's components and Kubernetes' collector go to a model
//! of an API server. It evaluates the `matchConditions` of the shipped webhooks, and asks a whole
//! gateway by HTTP about what they let through. What is accepted is judged by an oracle, which knows
//! who is behind each write (`actors`), and shares no code with the gateway (`rights`, `oracle`).
//!
//! `TOLLGATE_ORACLE_SEED` (a number) and `TOLLGATE_ORACLE_SEQUENCES` (how many of them) select what is
//! run. Sequences with the fewest writes are printed for each kind of violation.

use std::collections::BTreeMap;

use actors::{Run, Violation};
use world::{Installation, Settings};
use writes::{Dice, Write};

mod actors;
mod known;
mod objects;
mod oracle;
mod rights;
mod shrink;
mod webhooks;
mod world;
mod writes;

const WRITES: usize = 12;

/// Settings, and the writes of one sequence.
#[derive(Clone, Debug)]
struct Sequence {
    settings: Settings,
    writes: Vec<Write>,
}

/// What came of a sequence.
struct Outcome {
    /// The index of the write, and what was wrong with it.
    violations: Vec<(usize, Violation)>,
    tried: Vec<(&'static str, Result<(), String>)>,
}

async fn run(installation: &mut Installation, sequence: &Sequence) -> Outcome {
    let world = installation.begin(sequence.settings).await;
    let mut run = Run {
        installation,
        world,
        violations: Vec::new(),
        tried: Vec::new(),
    };
    let mut violations = Vec::new();
    for (at, write) in sequence.writes.iter().enumerate() {
        run.perform(*write).await;
        violations.extend(run.violations.drain(..).map(|violation| (at, violation)));
    }
    Outcome {
        violations,
        tried: run.tried,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test reads its own seed from the environment"
)]
fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_by_a_known_attack_what_they_may_not() {
    let mut installation = Installation::start(true).await;
    let mut found = Vec::new();
    for (what, settings, writes) in known::attacks() {
        let outcome = run(&mut installation, &Sequence { settings, writes }).await;
        for (at, violation) in outcome.violations {
            found.push(format!(
                "{what}, write {at}: {}\n  {}",
                violation.rule, violation.detail
            ));
        }
    }
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_can_do_what_they_may() {
    let mut installation = Installation::start(true).await;
    for (what, settings, writes) in known::ordinary() {
        let sequence = Sequence { settings, writes };
        let outcome = run(&mut installation, &sequence).await;
        let rules: Vec<&str> = outcome.violations.iter().map(|(_, found)| &*found.rule).collect();
        assert!(rules.is_empty(), "{what}: {rules:?}");
        let refused: Vec<_> = outcome.tried.iter().filter(|(_, outcome)| outcome.is_err()).collect();
        assert!(refused.is_empty(), "{what}: {refused:?} of {:?}", outcome.tried);
        // Some of the writes are several: each is at least one.
        assert!(
            outcome.tried.len() >= sequence.writes.len(),
            "{what}: {:?}",
            outcome.tried
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_stores_starts_or_deletes_what_they_may_not() {
    let seed = number("TOLLGATE_ORACLE_SEED", 13);
    let sequences = number("TOLLGATE_ORACLE_SEQUENCES", 300);
    println!("TOLLGATE_ORACLE_SEED={seed} TOLLGATE_ORACLE_SEQUENCES={sequences}");
    let mut installations = [Installation::start(false).await, Installation::start(true).await];
    let mut found: BTreeMap<String, (Sequence, Violation)> = BTreeMap::new();
    let mut tried: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for at in 0..sequences {
        // Each sequence has its own numbers, so that it is the same in a run of any length.
        let mut dice = Dice::new(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(at));
        let settings = dice.settings();
        let writes = (0..WRITES).map(|_| dice.write()).collect();
        let sequence = Sequence { settings, writes };
        let installation = &mut installations[usize::from(settings.children)];
        let outcome = run(installation, &sequence).await;
        for (actor, result) in outcome.tried {
            tried.entry(actor).or_default()[usize::from(result.is_ok())] += 1;
        }
        for (last, violation) in outcome.violations {
            let writes = &sequence.writes[..=last];
            if found
                .get(&violation.rule)
                .is_none_or(|(best, _)| writes.len() < best.writes.len())
            {
                let sequence = Sequence {
                    settings,
                    writes: writes.to_vec(),
                };
                found.insert(violation.rule.clone(), (sequence, violation));
            }
        }
    }
    for (actor, [refused, stored]) in &tried {
        println!("{actor}: {stored} stored, {refused} refused");
    }
    let count = found.len();
    for (rule, (sequence, violation)) in found {
        let installation = &mut installations[usize::from(sequence.settings.children)];
        let sequence = shrink::minimal(installation, &sequence, &rule).await;
        println!("\n{rule}\n  {}\n  {:?}", violation.detail, sequence.settings);
        for write in &sequence.writes {
            println!("  - {write:?}");
        }
    }
    assert_eq!(count, 0, "kinds of violations with seed {seed}; each is printed above");
    // The test proves something only if everybody has some writes stored.
    for actor in ACTORS {
        let [_, stored] = tried.get(actor).copied().unwrap_or_default();
        assert!(stored > 0, "{actor} has stored nothing");
    }
}

const ACTORS: [&str; 9] = [
    "argocd-server",
    "collector",
    "controller",
    "git",
    "kubectl",
    "local",
    "prune",
    "reconcile",
    "tollgate",
];
