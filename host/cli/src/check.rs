//! `tollgate check`: checks a configuration and everything it names, and reports what is wrong. It
//! opens no listener and changes nothing.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use serde::Serialize;
use tabled::Tabled;
use tabled::settings::object::Columns;
use tabled::settings::{Padding, Style};

use super::format::Format;
use tollgate_config::raw;
use tollgate_core::diagnostic::{Diagnostic, Severity};
use tollgate_gateway::running::inputs;
use tollgate_gateway::snapshot::Loader;
use tollgate_identity::clock::Clock;
use tollgate_plugin::credential::cache::{self, CredentialCache};
use tollgate_policy::rego::Checker;
use tollgate_proxy::metrics::Metrics;

/// Arguments of `tollgate check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// Settings file of the gateway
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "tollgate.yaml",
        env = "TOLLGATE_CONFIG"
    )]
    pub config: PathBuf,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ReportFormat,
    /// Exit with 1 on warnings too
    #[arg(long)]
    pub deny_warnings: bool,
}

impl CheckArgs {
    /// Runs the command: loads everything once, and tries the files and the store that
    /// the settings name, as a starting gateway would.
    pub fn run(&self, out: &mut dyn Write) -> ExitCode {
        let found = self.findings();
        let written = found.and_then(|found| {
            let text = render(&found, self.output).map_err(|error| error.to_string())?;
            out.write_all(text.as_bytes()).map_err(|error| error.to_string())?;
            Ok(found)
        });
        match written {
            Ok(found) => exit_code(&found, self.deny_warnings),
            Err(error) => {
                super::print_error(error);
                ExitCode::FAILURE
            }
        }
    }

    fn findings(&self) -> Result<Vec<Diagnostic>, String> {
        let loaded = raw::load(&self.config);
        let mut found = loaded.diagnostics;
        let Some(config) = loaded.value else { return Ok(found) };
        let checker = Checker::current().map_err(|error| format!("this program cannot be found: {error}"))?;
        // A check requests no credential; the loader only needs a cache.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let clock = Arc::new(cache::clock::SystemClock::start());
        let cache = Arc::new(CredentialCache::new(
            cache::Settings::default(),
            clock,
            runtime.handle().clone(),
        ));
        let config = Arc::new(config);
        let locations = raw::SettingLocations::read(&self.config);
        found.extend(runtime.block_on(inputs::findings(&config, &locations, &Clock::default())));
        let loader = Loader::new(config, checker, Arc::new(Metrics::new()), (cache, Clock::default()))
            .map_err(|error| error.to_string())?;
        found.extend(loader.first().diagnostics);
        Ok(found)
    }
}

/// Output format of `tollgate check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// A format that every command has.
    Plain(Format),
    /// GitHub Actions workflow commands.
    Github,
}

impl Default for ReportFormat {
    fn default() -> Self {
        Self::Plain(Format::default())
    }
}

impl ValueEnum for ReportFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Plain(Format::Table),
            Self::Plain(Format::Json),
            Self::Plain(Format::Yaml),
            Self::Github,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Plain(format) => format.to_possible_value(),
            Self::Github => {
                Some(PossibleValue::new("github").help("GitHub Actions workflow commands, which annotate the lines"))
            }
        }
    }
}

/// The findings as a JSON or YAML document.
#[derive(Serialize)]
struct Report<'a> {
    errors: usize,
    warnings: usize,
    diagnostics: &'a [Diagnostic],
}

#[derive(Tabled)]
#[tabled(rename_all = "UPPERCASE")]
struct Row<'a> {
    severity: &'static str,
    place: String,
    message: &'a str,
    hint: &'a str,
}

/// Formats findings, ordered by file and line, errors before warnings of the same line. The text
/// ends with a line break unless it is empty.
///
/// # Errors
/// JSON or YAML cannot be written.
pub fn render(diagnostics: &[Diagnostic], report_format: ReportFormat) -> io::Result<String> {
    let mut sorted = diagnostics.to_vec();
    sorted.sort_by(|a, b| (&a.location, a.severity).cmp(&(&b.location, b.severity)));
    let errors = sorted.iter().filter(|finding| finding.is_error()).count();
    let warnings = sorted.len().saturating_sub(errors);
    let report = Report {
        errors,
        warnings,
        diagnostics: &sorted,
    };
    match report_format {
        ReportFormat::Plain(Format::Table) => Ok(table(&report)),
        ReportFormat::Plain(format) => Ok(format.document(&report)?.trim_end().to_owned() + "\n"),
        ReportFormat::Github => Ok(sorted.iter().map(github).collect()),
    }
}

/// 0 if the configuration can be used; 1 if it cannot, or if there are warnings and
/// `deny_warnings` is set.
pub fn exit_code(diagnostics: &[Diagnostic], deny_warnings: bool) -> ExitCode {
    let refused = diagnostics.iter().any(|finding| deny_warnings || finding.is_error());
    if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn table(report: &Report<'_>) -> String {
    let row = |finding: &'_ Diagnostic| finding.location.as_ref().map(ToString::to_string).unwrap_or_default();
    let rows = report.diagnostics.iter().map(|finding| Row {
        severity: severity(finding.severity),
        place: row(finding),
        message: &finding.message,
        hint: finding.hint.as_deref().unwrap_or_default(),
    });
    let mut text = String::new();
    if !report.diagnostics.is_empty() {
        let mut table = tabled::Table::new(rows);
        table
            .with(Style::blank())
            .modify(Columns::first(), Padding::new(0, 1, 0, 0));
        for line in table.to_string().lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let Report {
        errors,
        warnings,
        diagnostics: _,
    } = *report;
    // Writing to a String does not fail.
    let _ = writeln!(
        text,
        "{errors} error{}, {warnings} warning{}",
        plural(errors),
        plural(warnings)
    );
    text
}

/// One workflow command.
///
/// Source: GitHub Actions, workflow commands: `%`, CR and LF are escaped, in
/// properties also `:` and `,`.
fn github(finding: &Diagnostic) -> String {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let mut properties = Vec::new();
    if let Some(location) = &finding.location {
        properties.push(format!("file={}", property(&location.file)));
        for (name, number) in [("line", location.line), ("col", location.column)] {
            if number > 0 {
                properties.push(format!("{name}={number}"));
            }
        }
    }
    let space = if properties.is_empty() { "" } else { " " };
    let hint = finding
        .hint
        .as_ref()
        .map(|hint| format!(" ({hint})"))
        .unwrap_or_default();
    let message = data(&format!("{}{hint}", finding.message));
    format!(
        "::{}{space}{}::{message}\n",
        severity(finding.severity),
        properties.join(",")
    )
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::{Format, ReportFormat, exit_code, render};
    use tollgate_core::diagnostic::{Diagnostic, Location};

    fn findings() -> Vec<Diagnostic> {
        let location = Location {
            file: "state/b,1.yaml".into(),
            line: 7,
            column: 3,
        };
        vec![
            Diagnostic::error(location, "`a` is 100%\nwrong").with_hint("write b"),
            Diagnostic::warning(Location::new("a.yaml", 2), "odd"),
            Diagnostic::warning(None, "no `argocd-cm`"),
        ]
    }

    #[test]
    fn github_commands_are_escaped() {
        let text = render(&findings(), ReportFormat::Github).unwrap();
        let expected = "::warning::no `argocd-cm`\n::warning file=a.yaml,line=2::odd\n\
                        ::error file=state/b%2C1.yaml,line=7,col=3::`a` is 100%25%0Awrong (write b)\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_table_names_places_and_counts() {
        let text = render(&findings(), ReportFormat::Plain(Format::Table)).unwrap();
        assert!(text.starts_with("SEVERITY"), "{text}");
        assert!(text.contains("state/b,1.yaml:7:3"), "{text}");
        assert!(text.ends_with("1 error, 2 warnings\n"), "{text}");
        assert_eq!(
            render(&[], ReportFormat::Plain(Format::Table)).unwrap(),
            "0 errors, 0 warnings\n"
        );
    }

    #[test]
    fn json_and_yaml_say_the_same() {
        let json: serde_json::Value =
            serde_json::from_str(&render(&findings(), ReportFormat::Plain(Format::Json)).unwrap()).unwrap();
        let yaml: serde_json::Value =
            serde_saphyr::from_str(&render(&findings(), ReportFormat::Plain(Format::Yaml)).unwrap()).unwrap();
        assert_eq!(json, yaml);
        assert_eq!(
            (&json["errors"], &json["diagnostics"][2]["location"]["line"]),
            (&1.into(), &7.into())
        );
        assert_eq!(json["diagnostics"][2]["severity"], "error");
    }

    #[test]
    fn errors_fail_and_warnings_only_when_denied() {
        let all = findings();
        assert_eq!(exit_code(&all, false), ExitCode::FAILURE);
        assert_eq!(exit_code(&all[1..], false), ExitCode::SUCCESS);
        assert_eq!(exit_code(&all[1..], true), ExitCode::FAILURE);
        assert_eq!(exit_code(&[], true), ExitCode::SUCCESS);
    }
}
