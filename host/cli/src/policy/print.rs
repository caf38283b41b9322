//! Prints the reports of `tollgate policy` as text, JSON or YAML, and determines the exit code.

use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};
use tabled::builder::Builder;
use tabled::settings::Style;

use super::{CheckedBundle, EXIT_FAILED, Format};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_policy::rego::{BundleSource, CaseOutcome, CheckReport, FileCoverage};

fn exit(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_FAILED)
    }
}

/// Prints a value as JSON or YAML. A closed output is not a failure of the policy.
fn structured(out: &mut dyn Write, value: &Value, output: Format) {
    drop(output.print(value, out));
}

fn refused(report: &CheckReport) -> bool {
    report.diagnostics.iter().any(Diagnostic::is_error)
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

/// `policy test`.
pub(super) fn tests(out: &mut dyn Write, checked: &[CheckedBundle], threshold: Option<u8>, output: Format) -> ExitCode {
    let enough = |report: &CheckReport| threshold.is_none_or(|least| percent(&report.coverage) >= usize::from(least));
    let good = checked
        .iter()
        .all(|bundle| !refused(&bundle.report) && enough(&bundle.report));
    match output {
        Format::Json | Format::Yaml => {
            let bundles: Vec<Value> = checked.iter().map(test_value).collect();
            structured(out, &json!({"bundles": bundles, "passed": good}), output);
        }
        Format::Table => {
            for bundle in checked {
                drop(test_text(out, bundle, threshold));
            }
        }
    }
    exit(good)
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

/// A duration in a readable unit.
fn time(micros: u64) -> String {
    match micros {
        ..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        _ => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
    }
}

fn test_text(out: &mut dyn Write, bundle: &CheckedBundle, threshold: Option<u8>) -> std::io::Result<()> {
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
    for finding in bundle
        .report
        .diagnostics
        .iter()
        .filter(|finding| !finding.message.starts_with("case `"))
    {
        writeln!(out, "{finding}")?;
    }
    writeln!(out, "{}", "-".repeat(80))?;
    let passed = cases.iter().filter(|case| case.outcome == CaseOutcome::Pass).count();
    writeln!(out, "PASS: {passed}/{}", cases.len())?;
    let is_broken = |finding: &&Diagnostic| finding.is_error() && !finding.message.starts_with("case `");
    if bundle.report.diagnostics.iter().any(|finding| is_broken(&finding)) {
        writeln!(out, "FAIL: the bundle would not be used, whatever its cases say")?;
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
    match threshold {
        Some(least) if percent(&bundle.report.coverage) < usize::from(least) => {
            writeln!(
                out,
                "FAIL: {}% of the lines are reached, {least}% are wanted",
                percent(&bundle.report.coverage)
            )
        }
        _ => Ok(()),
    }
}

/// `policy check`.
pub(super) fn checks(out: &mut dyn Write, checked: &[CheckedBundle], output: Format) -> ExitCode {
    let good = checked.iter().all(|bundle| !refused(&bundle.report));
    match output {
        Format::Json | Format::Yaml => {
            let one = |bundle: &CheckedBundle| {
                json!({
                    "bundle": bundle.directory.display().to_string(),
                    "accepted": !refused(&bundle.report),
                    "cases": bundle.report.cases.len(),
                    "findings": bundle.report.diagnostics,
                })
            };
            structured(out, &Value::from(checked.iter().map(one).collect::<Vec<_>>()), output);
        }
        Format::Table => {
            for bundle in checked {
                for finding in &bundle.report.diagnostics {
                    drop(writeln!(out, "{finding}"));
                }
                let word = if refused(&bundle.report) { "refused" } else { "accepted" };
                let (directory, cases) = (bundle.directory.display(), bundle.report.cases.len());
                drop(writeln!(out, "{directory}: {word}, {cases} cases"));
            }
        }
    }
    exit(good)
}

/// `policy explain`: the decision, its input, and the lines that decided. Exit code as
/// `policy eval`.
pub(super) fn explanation(
    out: &mut dyn Write,
    (report, source): (&CheckReport, Option<&BundleSource>),
    output: Format,
) -> ExitCode {
    let decided = report
        .evaluation
        .as_ref()
        .is_some_and(|value| value.get("error").is_none());
    let text = |file: &str, line: u32| source.and_then(|source| source.line(file, line)).unwrap_or_default();
    match output {
        Format::Json | Format::Yaml => {
            let reached = report.coverage.iter().map(|file| {
                let lines = file.covered.iter();
                let lines = lines.map(|line| json!({"line": line, "text": text(&file.file, *line)}));
                json!({"file": file.file, "lines": lines.collect::<Vec<_>>()})
            });
            let explained = json!({
                "decision": report.evaluation,
                "input": report.input,
                "reached": reached.collect::<Vec<_>>(),
                "findings": report.diagnostics,
            });
            structured(out, &explained, output);
        }
        Format::Table => {
            let code = evaluation(out, report, output);
            if !decided {
                return code;
            }
            for file in &report.coverage {
                drop(writeln!(out, "{}", file.file));
                for line in &file.covered {
                    drop(writeln!(out, "{line:>5}  {}", text(&file.file, *line)));
                }
            }
            if let Some(input) = &report.input {
                for part in ["identity", "request"] {
                    if let Some(value) = input.get(part) {
                        drop(writeln!(out, "{part}  {value}"));
                    }
                }
            }
        }
    }
    exit(decided)
}

/// `policy eval`: exits with 0 for a denial too, and with 1 if there is no decision.
pub(super) fn evaluation(out: &mut dyn Write, report: &CheckReport, output: Format) -> ExitCode {
    let decided = report
        .evaluation
        .as_ref()
        .is_some_and(|value| value.get("error").is_none());
    match (&report.evaluation, output) {
        (Some(decision), Format::Json | Format::Yaml) => structured(out, decision, output),
        (None, Format::Json | Format::Yaml) => structured(out, &json!({"findings": report.diagnostics}), output),
        (decision, Format::Table) => {
            for finding in &report.diagnostics {
                drop(writeln!(out, "{finding}"));
            }
            if let Some(Value::Object(decision)) = decision {
                let mut table = Builder::default();
                for (key, value) in decision {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    table.push_record([key.as_str(), &text]);
                }
                let mut table = table.build();
                drop(writeln!(out, "{}", table.with(Style::blank())));
            }
        }
    }
    exit(decided)
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_have_the_unit_people_read_them_in() {
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
