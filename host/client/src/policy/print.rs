//! Prints the reports of `tollgate policy` as text, JSON or YAML, and determines the exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::{CheckedBundle, Format};
use crate::exit_code;
use crate::list_output::render;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_rego::{BundleSource, CaseOutcome, CheckReport, FileCoverage, UntrueCondition};

fn refused(report: &CheckReport) -> bool {
    report.diagnostics.iter().any(Diagnostic::is_error)
}

fn is_decided(report: &CheckReport) -> bool {
    let decision = report.evaluation.as_ref();
    decision.is_some_and(|value| value.get("error").is_none())
}

/// Percentage of covered lines, rounded down; 100 if there are no lines.
fn percent(files: &[FileCoverage]) -> usize {
    let covered: usize = files.iter().map(|file| file.covered.len()).sum();
    let missed: usize = files.iter().map(|file| file.not_covered.len()).sum();
    (covered * 100).checked_div(covered + missed).unwrap_or(100)
}

/// `1-3, 7`.
fn ranges(lines: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &line in lines {
        match ranges.last_mut() {
            Some((_, end)) if end.saturating_add(1) == line => *end = line,
            _ => ranges.push((line, line)),
        }
    }
    let texts = ranges.iter().map(|(from, to)| {
        if from == to {
            from.to_string()
        } else {
            format!("{from}-{to}")
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

pub(super) fn tests(out: &mut dyn Write, checked: &[CheckedBundle], threshold: Option<u8>, output: Format) -> ExitCode {
    let enough = |report: &CheckReport| threshold.is_none_or(|least| percent(&report.coverage) >= usize::from(least));
    let good = checked
        .iter()
        .all(|bundle| !refused(&bundle.report) && enough(&bundle.report));
    // A closed output is not a failure of the policy.
    drop(match output {
        Format::Json | Format::Yaml => {
            let bundles: Vec<Value> = checked.iter().map(test_value).collect();
            output.print(&json!({"bundles": bundles, "passed": good}), out)
        }
        Format::Table => checked.iter().try_for_each(|bundle| test_text(out, bundle, threshold)),
    });
    exit_code(good)
}

fn test_value(bundle: &CheckedBundle) -> Value {
    let mut value = json!({
        "bundle": bundle.directory.display().to_string(),
        "cases": bundle.report.cases,
        "findings": bundle.report.diagnostics,
    });
    if let (Some(object), false) = (value.as_object_mut(), bundle.report.coverage.is_empty()) {
        object.insert("coverage".into(), json!(bundle.report.coverage));
        object.insert("coverage_percent".into(), percent(&bundle.report.coverage).into());
    }
    value
}

fn time(micros: u64) -> String {
    match micros {
        ..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        _ => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
    }
}

fn test_text(out: &mut dyn Write, bundle: &CheckedBundle, threshold: Option<u8>) -> io::Result<()> {
    let cases = &bundle.report.cases;
    writeln!(out, "{}:", bundle.directory.display())?;
    for case in cases {
        let word = if case.outcome == CaseOutcome::Pass {
            "PASS"
        } else {
            "FAIL"
        };
        writeln!(out, "{}: {word} ({})", case.note, time(case.micros))?;
        if let CaseOutcome::Fail(how) = &case.outcome {
            writeln!(out, "  {}:{}: {how}", case.file, case.line)?;
        }
    }
    // Failing cases are findings too, and were printed.
    let others = bundle.report.diagnostics.iter();
    let others: Vec<_> = others
        .filter(|finding| !finding.message.starts_with("case `"))
        .collect();
    for finding in &others {
        writeln!(out, "{finding}")?;
    }
    writeln!(out, "{}", "-".repeat(80))?;
    let passed = cases.iter().filter(|case| case.outcome == CaseOutcome::Pass).count();
    writeln!(out, "PASS: {passed}/{}", cases.len())?;
    if others.iter().any(|finding| finding.is_error()) {
        writeln!(out, "FAIL: the bundle would not be used, regardless of its cases")?;
    }
    if passed < cases.len() {
        writeln!(out, "FAIL: {}/{}", cases.len() - passed, cases.len())?;
    }
    for file in &bundle.report.coverage {
        let one = std::slice::from_ref(file);
        write!(out, "COVERAGE: {}% {}", percent(one), file.file)?;
        match file.not_covered.as_slice() {
            [] => writeln!(out)?,
            missed => writeln!(out, ", not reached: {}", ranges(missed))?,
        }
    }
    let reached = percent(&bundle.report.coverage);
    match threshold {
        Some(least) if reached < usize::from(least) => {
            writeln!(out, "FAIL: {reached}% of the lines are reached, {least}% are required")
        }
        _ => Ok(()),
    }
}

pub(super) fn checks(out: &mut dyn Write, checked: &[CheckedBundle], output: Format) -> ExitCode {
    let good = checked.iter().all(|bundle| !refused(&bundle.report));
    drop(match output {
        Format::Json | Format::Yaml => {
            let one = |bundle: &CheckedBundle| {
                json!({
                    "bundle": bundle.directory.display().to_string(),
                    "accepted": !refused(&bundle.report),
                    "cases": bundle.report.cases.len(),
                    "findings": bundle.report.diagnostics,
                })
            };
            output.print(&checked.iter().map(one).collect::<Vec<_>>(), out)
        }
        Format::Table => checked.iter().try_for_each(|bundle| {
            let CheckedBundle { directory, report } = bundle;
            print_findings(out, report)?;
            let word = if refused(report) { "refused" } else { "accepted" };
            writeln!(out, "{}: {word}, {} cases", directory.display(), report.cases.len())
        }),
    });
    exit_code(good)
}

fn print_findings(out: &mut dyn Write, report: &CheckReport) -> io::Result<()> {
    let mut findings = report.diagnostics.iter();
    findings.try_for_each(|finding| writeln!(out, "{finding}"))
}

/// `policy explain`: the decision, what was not true for a denial, the lines that were reached, and the input. Exit code as
/// `policy eval`.
pub(super) fn explanation(
    out: &mut dyn Write,
    report: &CheckReport,
    source: Option<&BundleSource>,
    output: Format,
) -> ExitCode {
    drop(explain(out, report, source, output));
    exit_code(is_decided(report))
}

fn explain(out: &mut dyn Write, report: &CheckReport, source: Option<&BundleSource>, output: Format) -> io::Result<()> {
    let text = |file: &str, line: u32| source.and_then(|source| source.line(file, line)).unwrap_or_default();
    if output != Format::Table {
        let reached = report.coverage.iter().map(|file| {
            let lines = file.covered.iter();
            let lines = lines.map(|line| json!({"line": line, "text": text(&file.file, *line)}));
            json!({"file": file.file, "lines": lines.collect::<Vec<_>>()})
        });
        let explained = json!({
            "decision": report.evaluation,
            "input": report.input,
            "untrue": report.untrue,
            "reached": reached.collect::<Vec<_>>(),
            "findings": report.diagnostics,
        });
        return output.print(&explained, out);
    }
    print_decision(out, report)?;
    if !is_decided(report) {
        return Ok(());
    }
    if let Some((file, line, rule)) = refusing_line(report, text) {
        writeln!(out, "refused by {file}:{line}  {rule}\n")?;
    }
    if !report.untrue.is_empty() {
        let row = |untrue: &UntrueCondition| {
            let UntrueCondition { file, line, rule, text } = untrue;
            [format!("{file}:{line}"), rule.clone(), text.clone()]
        };
        writeln!(
            out,
            "{}",
            render(&["NOT TRUE", "RULE", "CONDITION"], report.untrue.iter().map(row))
        )?;
    }
    for file in &report.coverage {
        writeln!(out, "{}", file.file)?;
        for line in &file.covered {
            writeln!(out, "{line:>5}  {}", text(&file.file, *line))?;
        }
    }
    let input = report.input.as_ref();
    for part in ["identity", "request"] {
        if let Some(value) = input.and_then(|input| input.get(part)) {
            writeln!(out, "{part}  {value}")?;
        }
    }
    Ok(())
}

/// The only line that was reached and has the reason of a denial as its text: that of the rule that
/// denied.
fn refusing_line<'r>(report: &'r CheckReport, text: impl Fn(&str, u32) -> &'r str) -> Option<(&'r str, u32, &'r str)> {
    let decision = report.evaluation.as_ref()?;
    let denies = decision.get("allow") == Some(&Value::Bool(false));
    let reason = decision.get("reason").and_then(Value::as_str).filter(|_| denies)?;
    let literal = Value::from(reason).to_string();
    let lines = report
        .coverage
        .iter()
        .flat_map(|file| file.covered.iter().map(|line| (file.file.as_str(), *line)));
    let mut found = lines
        .map(|(file, line)| (file, line, text(file, line).trim()))
        .filter(|(_, _, text)| text.contains(&literal) && !text.starts_with("default "));
    found.next().filter(|_| found.next().is_none())
}

fn print_decision(out: &mut dyn Write, report: &CheckReport) -> io::Result<()> {
    print_findings(out, report)?;
    let Some(Value::Object(decision)) = &report.evaluation else {
        return Ok(());
    };
    let row = |(key, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        [key.clone(), text]
    };
    writeln!(out, "{}", render(&[], decision.iter().map(row)))
}

/// `policy eval`: exits with 0 for a denial too, and with 1 if there is no decision.
pub(super) fn evaluation(out: &mut dyn Write, report: &CheckReport, output: Format) -> ExitCode {
    drop(match (&report.evaluation, output) {
        (_, Format::Table) => print_decision(out, report),
        (Some(decision), _) => output.print(decision, out),
        (None, _) => output.print(&json!({"findings": report.diagnostics}), out),
    });
    exit_code(is_decided(report))
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn durations_are_printed_in_a_readable_unit() {
        for (micros, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_000, "1.0 ms"),
            (12_345, "12.3 ms"),
            (999_999, "999.9 ms"),
            (1_050_000, "1.0 s"),
            (61_234_567, "61.2 s"),
        ] {
            assert_eq!(time(micros), text);
        }
    }
}
