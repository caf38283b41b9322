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
    report_about(&source, action)
}

fn report_about(source: &BundleSource, action: &Action) -> CheckReport {
    let job = serde_json::to_vec(&(source, action)).unwrap();
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

/// The differences of the cases of a bundle that denies outside of 2026, with a base that has the time or not.
fn differences(rule: &str, base: &str) -> Vec<String> {
    let rules = format!(
        "package tollgate.extensions\n\ndefault decision := {{\"allow\": false, \"reason\": \"closed\"}}\n\n\
         decision := {{\"allow\": true, \"reason\": \"open\"}} if {{\n\tinput.request.method == \"GET\"\n\t{rule}\n}}\n"
    );
    let cases = format!(
        "base:\n  principal: {{id: a, username: a, groups: [], issuer: a, kind: oidc}}\n  request: {{method: GET, path: /}}\n  \
         extension: {{name: e, scope: global}}\n  rbac: {{extensions_invoke: {{allow: true, why: a}}, candidates: []}}\n{base}\
         cases:\n- {{note: reads, want: {{allow: true}}}}\n- {{note: writes, input: {{request: {{method: PUT}}}}, want: {{allow: false}}}}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("policy.rego"), rules).unwrap();
    std::fs::write(folder.path().join("cases.yaml"), cases).unwrap();
    let source = BundleSource::read(folder.path(), Front::Extensions).value.unwrap();
    let found = report_about(&source, &Action::Check(Coverage::Off));
    assert_eq!(found.diagnostics, []);
    let cases = found.cases.into_iter().filter_map(|case| match case.outcome {
        CaseOutcome::Fail(difference) => Some(difference),
        CaseOutcome::Pass => None,
    });
    cases.collect()
}

#[test]
fn a_case_without_the_time_that_its_rules_read_says_so() {
    let this_year = "startswith(input.time, \"2026\")";
    assert_eq!(
        differences(this_year, ""),
        ["wanted allowed, got denied (`closed`); the rules read `input.time`, which the case lacks: set it in `base`"]
    );
    assert_eq!(differences(this_year, "  time: \"2026-11-27T17:30:00Z\"\n"), [""; 0]);
    // Another reason than the time.
    for (rule, base) in [
        (this_year, "  time: \"2027-11-27T17:30:00Z\"\n"),
        ("input.request.query == \"a\"", ""),
    ] {
        assert_eq!(differences(rule, base), ["wanted allowed, got denied (`closed`)"]);
    }
}
