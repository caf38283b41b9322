//! Tests of the reports that the worker process sends.

use std::path::Path;

use serde_json::json;

use super::{Action, CaseOutcome, CheckReport, Coverage, run_job};
use crate::compile::STACK_BYTES;
use crate::front::Front;
use crate::source::BundleSource;

/// What the child reports about the shipped bundle of the extension front.
fn report(action: &Action) -> CheckReport {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/extensions");
    let source = BundleSource::read(&folder, Front::Extensions).value.unwrap();
    let job = serde_json::to_vec(&(&source, action)).unwrap();
    let child = std::thread::Builder::new().stack_size(STACK_BYTES);
    let bytes = child.spawn(move || run_job(&job)).unwrap().join().unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn a_check_reports_cases_and_coverage() {
    let found = report(&Action::Check(Coverage::On));
    assert_eq!(found.diagnostics, []);
    assert!(!found.cases.is_empty() && !found.coverage.is_empty());
    assert!(found.cases.iter().all(|case| case.outcome == CaseOutcome::Pass));
    assert!(report(&Action::Check(Coverage::Off)).coverage.is_empty());
}

#[test]
fn findings_keep_their_severity() {
    for action in [Action::Evaluate(json!({})), Action::Explain(json!({}))] {
        let found = report(&action);
        assert!(found.diagnostics.iter().all(|finding| finding.is_error()));
        assert!(found.diagnostics[0].message.contains("does not fit the schema"));
        assert_eq!(found.evaluation, None);
    }
    let found: CheckReport = serde_json::from_slice(&run_job(b"{}")).unwrap();
    assert!(found.diagnostics[0].message.contains("the job cannot be read"));
}
