//! `tollgate plugin test NAME --transcript FILE`: runs a provider against the cases of a
//! transcript, without a network, and shows what differs.
//!
//! Security: the output contains no secret of the transcript.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::{Error, Format, at};
use tollgate_client::exit_code;
use tollgate_plugin::replay::{self, CaseReport, ReplayGrant, ReplayOutcome, Report};

#[derive(Serialize)]
struct Counted<'a> {
    passed: usize,
    failed: usize,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs it. Exit code 1 when a case fails.
pub(super) fn run(
    settings: &tollgate_config::Plugins,
    name: &str,
    transcript: &Path,
    output: Format,
    out: &mut dyn Write,
) -> Result<ExitCode, Error> {
    let text = fs::read_to_string(transcript).map_err(at(transcript))?;
    let path = transcript.display();
    let cases = replay::parse(&text).map_err(|error| Error::Input(format!("{path}: {error}")))?;
    let report = replay::run(settings, name, &cases)?;
    let passed = report.cases.iter().filter(|case| case.passed()).count();
    let failed = report.cases.len() - passed;
    match output {
        Format::Table => {
            print(&report, out)?;
            writeln!(out, "\n{passed} passed, {failed} failed")?;
        }
        Format::Json | Format::Yaml => {
            let report = &report;
            let counted = Counted { passed, failed, report };
            output.print(&counted, out)?;
        }
    }
    Ok(exit_code(report.passed()))
}

fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let (plugin, version) = (&report.plugin, &report.version);
    writeln!(
        out,
        "{plugin} {version}, with all that its manifest asks for; in a gateway this grant"
    )?;
    writeln!(out, "is the operator's to give:\n")?;
    grant(plugin, &report.granted, out)?;
    writeln!(out)?;
    report.cases.iter().try_for_each(|case| print_case(case, out))
}

/// Prints a grant as the settings write it.
fn grant(plugin: &str, granted: &ReplayGrant, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "    plugins:\n      grants:\n        {plugin}:")?;
    for (key, values) in [
        ("hosts", &granted.hosts),
        ("imports", &granted.imports),
        ("audiences", &granted.audiences),
    ] {
        if !values.is_empty() {
            let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
            writeln!(out, "          {key}: [{}]", values.join(", "))?;
        }
    }
    Ok(())
}

/// Quotes a text for a YAML list, if it needs quotes.
fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if text.bytes().all(plain) {
        text.to_owned()
    } else {
        format!("{text:?}")
    }
}

fn print_case(case: &CaseReport, out: &mut dyn Write) -> io::Result<()> {
    let word = if case.passed() { "passed" } else { "failed" };
    writeln!(out, "{word}  {}: {}", case.case, outcome(&case.outcome))?;
    for request in &case.requests {
        let end = match (request.status, &request.error) {
            (Some(status), _) => status.to_string(),
            (None, Some(error)) => error.clone(),
            (None, None) => "no answer".to_owned(),
        };
        writeln!(out, "        {} {}{} {end}", request.method, request.host, request.path)?;
    }
    for warning in &case.warnings {
        writeln!(out, "        warning: {warning}")?;
    }
    for difference in &case.differences {
        writeln!(out, "      - {difference}")?;
    }
    Ok(())
}

fn outcome(outcome: &ReplayOutcome) -> String {
    match outcome {
        ReplayOutcome::Credential {
            of,
            expires_at,
            cacheable,
            revocable,
        } => {
            let until = match (expires_at, cacheable) {
                (_, false) => ", for one request".to_owned(),
                (Some(end), true) => format!(" until {end}"),
                (None, true) => ", end unknown".to_owned(),
            };
            let revocable = if *revocable { ", revocable" } else { "" };
            format!("{}{until}{revocable}", of.join(" and "))
        }
        ReplayOutcome::Error {
            class,
            code,
            message,
            http_status: _,
            retry_after_seconds,
            correlation,
        } => {
            let wait = retry_after_seconds.map_or(String::new(), |seconds| format!(", again after {seconds} s"));
            let id = correlation
                .as_ref()
                .map_or(String::new(), |id| format!(", request {id}"));
            format!("{class} {code} ({message}{wait}{id})")
        }
    }
}
