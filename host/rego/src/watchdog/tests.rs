use std::path::Path;
use std::time::Instant;

use regorus::Value;
use serde_json::json;

use super::STUCK_AFTER;
use super::Watchdog;
use crate::bundle::Bundle;
use crate::compile;
use crate::dependencies::InputDependencies;
use crate::error::Error;
use crate::front::Front;
use crate::source::{BundleSource, File, FileKind};

/// A policy that compares two trees of `2^levels` nodes for every request but DELETE. The memory
/// limit does not notice them, as their parts are shared.
fn doubling(levels: usize) -> BundleSource {
    let doubled = |name: &str| {
        let rows = (0..levels).map(|at| format!("{name}{} := [{name}{at}, {name}{at}]\n", at + 1));
        format!("{name}0 := [input.request.path]\n") + &rows.collect::<String>()
    };
    let text = format!(
        "package tollgate.extensions\n\ndefault decision := {{\"allow\": false, \"reason\": \"no\"}}\n\n\
         decision := {{\"allow\": true, \"reason\": \"yes\"}} if {{\n\tinput.request.method != \"DELETE\"\n\tx{levels} <= y{levels}\n}}\n\n{}{}",
        doubled("x"),
        doubled("y"),
    );
    let file = File {
        kind: FileKind::Policy,
        path: "policy.rego".into(),
        stem: "policy".into(),
        text,
    };
    BundleSource::new(Front::Extensions, vec![file])
}

fn bundle(levels: usize) -> Bundle {
    let source = doubling(levels);
    let entry_point = source.front.entry_point();
    let compiled = compile::Compiled {
        front: source.front,
        engine: compile::build(&source, &entry_point, "{}").unwrap(),
        entry_point,
        data: "{}".into(),
        conditions: Vec::new(),
        dependencies: InputDependencies::default(),
    };
    Bundle::new(compiled, &source).unwrap()
}

fn input(method: &str) -> Value {
    Value::from(json!({"request": {"method": method, "path": "/"}}))
}

#[test]
fn a_stuck_decision_occupies_one_thread_and_blocks_only_its_bundle() {
    let other = bundle(4);
    let stuck = std::sync::Arc::new(bundle(28));
    assert_eq!(stuck.decide(input("DELETE")).map(|decision| decision.allow), Ok(false));

    let started = Instant::now();
    let stuck_in_thread = std::sync::Arc::clone(&stuck);
    std::thread::spawn(move || stuck_in_thread.decide(input("GET")));
    while !stuck.is_stuck() {
        assert!(started.elapsed() < STUCK_AFTER * 20, "the watchdog did not report it");
        // Other decisions of the same bundle get these results in the meantime.
        assert!(matches!(stuck.decide(input("DELETE")), Ok(_) | Err(Error::Stuck)));
        std::thread::yield_now();
    }
    assert!(started.elapsed() >= STUCK_AFTER);

    let blocked_at = Instant::now();
    for method in ["GET", "DELETE"] {
        assert_eq!(stuck.decide(input(method)), Err(Error::Stuck));
    }
    assert!(blocked_at.elapsed() < STUCK_AFTER);
    // Another bundle is not affected.
    assert!(other.decide(input("GET")).unwrap().allow);
    assert!(!other.is_stuck());

    // The comparison ends eventually, and the bundle decides again.
    while stuck.is_stuck() {
        assert!(started.elapsed() < STUCK_AFTER * 200, "the bundle does not recover");
        std::thread::yield_now();
    }
    assert_eq!(stuck.decide(input("DELETE")).map(|decision| decision.allow), Ok(false));
}

#[test]
fn a_decision_that_waits_is_not_stuck_and_one_that_computes_is() {
    let watchdog = Watchdog::start(u64::MAX, "of a test".to_owned()).unwrap();
    watchdog.run(|| {
        let started = Instant::now();
        while started.elapsed() < STUCK_AFTER * 3 {
            assert!(!watchdog.is_stuck());
            std::thread::sleep(STUCK_AFTER / 50);
        }
    });
    watchdog.run(|| {
        let started = Instant::now();
        while !watchdog.is_stuck() {
            assert!(started.elapsed() < STUCK_AFTER * 20, "the watchdog did not report it");
        }
    });
}

#[test]
fn many_short_decisions_do_not_count_as_stuck() {
    let bundle = bundle(4);
    let started = Instant::now();
    let mut decisions = 0_u32;
    while started.elapsed() < STUCK_AFTER * 2 {
        match bundle.decide(input("GET")) {
            Ok(decision) => {
                assert!(decision.allow);
                decisions += 1;
            }
            // A busy machine may hold this thread up for longer than a decision may take.
            Err(error) => assert_eq!(error, Error::Time),
        }
    }
    assert!(decisions > 10);
    assert!(!bundle.is_stuck());
}

#[test]
fn the_compiler_refuses_policies_that_would_get_stuck() {
    let found = compile::compile_on_large_stack(&doubling(29)).unwrap_err();
    assert!(found[0].message.contains("nodes"), "{found:?}");
    assert!(compile::compile_on_large_stack(&doubling(4)).is_ok());
    assert_eq!(
        found[0].location.as_ref().map(|location| Path::new(&*location.file)),
        Some(Path::new("policy.rego"))
    );
}
