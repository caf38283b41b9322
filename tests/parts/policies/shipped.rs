//! Tests the shipped bundles: their cases, and their decisions about inputs that the host builds.

use std::path::{Path, PathBuf};

use tollgate_rego::{Bundle, BundleSource, CaseOutcome, Coverage, Error, Front};

use crate::policies::checker;
use test_support::policy_input::{ROW, input, prepared, principal, verdicts};

/// The bundles that are shipped, and those of the documentation.
fn bundles() -> Vec<(PathBuf, Front)> {
    let folders = ["policies", "docs/examples/policies"].map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let entries = entries.map(|entry| entry.unwrap().path());
    let found: Vec<_> = entries
        .filter(|path| path.join("cases.yaml").is_file())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (
                path,
                Front::try_from(name.as_str()).unwrap_or_else(|_| panic!("`{name}` is no front")),
            )
        })
        .collect();
    assert!(!found.is_empty());
    found
}

#[test]
fn every_shipped_case_passes() {
    for (directory, front) in bundles() {
        let source = BundleSource::read(&directory, front).value.unwrap();
        let report = checker().check(&source, Coverage::On);
        assert_eq!(report.diagnostics, vec![], "{}", directory.display());
        assert!(report.cases.len() > 10);
        assert!(report.cases.iter().all(|case| case.outcome == CaseOutcome::Pass));
        let bundle = Bundle::load(&directory, front, &checker());
        assert!(bundle.value.is_some(), "{:?}", bundle.diagnostics);
        assert_eq!(bundle.value.unwrap().digest.len(), 64);
    }
}

#[test]
fn the_input_the_host_builds_fits_the_schema_and_is_decided() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/extensions");
    let bundle = Bundle::load(&directory, Front::Extensions, &checker()).value.unwrap();
    let (principal, allowed, forbidden) = (principal(&["developers".into()]), prepared(true), prepared(false));
    let rows = vec![ROW; 200];
    let yes = input(&principal, &allowed, &verdicts(true, &rows)).to_value();
    let json = serde_json::to_value(&yes).unwrap();
    jsonschema::validate(Front::Extensions.input_schema(), &json).unwrap();
    assert_eq!(json["rbac"]["candidates"].as_array().unwrap().len(), 64);
    let decision = bundle.decide(yes).unwrap();
    assert!(decision.allow);
    assert_eq!(decision.reason, "allowed");
    let no = bundle
        .decide(input(&principal, &forbidden, &verdicts(true, &[])).to_value())
        .unwrap();
    assert!(!no.allow);
    assert_eq!(no.reason, "the project does not permit the destination");
    // An empty input is not allowed.
    for nothing in [
        regorus::Value::Undefined,
        regorus::Value::Null,
        regorus::Value::new_object(),
    ] {
        let decision = bundle.decide(nothing);
        assert!(
            matches!(&decision, Ok(decision) if !decision.allow) || matches!(decision, Err(Error::Undefined)),
            "{decision:?}"
        );
    }
}

#[test]
fn many_threads_decide_at_once_on_small_stacks() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/extensions");
    let bundle = Bundle::load(&directory, Front::Extensions, &checker()).value.unwrap();
    let (principal, allowed) = (principal(&["developers".into()]), prepared(true));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let work = || {
                (0..200).all(|_| {
                    bundle
                        .decide(input(&principal, &allowed, &verdicts(true, &[ROW])).to_value())
                        .unwrap()
                        .allow
                })
            };
            let stack = tollgate_rego::MAX_STACK_BYTES;
            let thread = std::thread::Builder::new()
                .stack_size(stack)
                .spawn_scoped(scope, work)
                .unwrap();
            scope.spawn(move || assert!(thread.join().unwrap()));
        }
    });
}
