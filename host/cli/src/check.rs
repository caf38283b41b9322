//! `tollgate check`: checks a configuration and everything it names, and reports the mistakes and
//! the inventory. It opens no listener and changes nothing.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::credential::local;
use tollgate_client::answer::SettingsArgs;
use tollgate_client::api::runtime;
use tollgate_client::failure::Failure;
use tollgate_client::format::Format;
use tollgate_client::list_output::{aligned, render_flush, serialized_name};
use tollgate_config::raw;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_gateway::running::inputs;
use tollgate_gateway::running::inventory::{InventoryItem, inventory};
use tollgate_gateway::{RouteLine, routes};
use tollgate_identity::clock::Clock;

#[derive(Args, Clone, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportFormat,
    /// Exit with 1 on warnings too
    #[arg(long)]
    deny_warnings: bool,
    /// Check nothing, and print the JSON Schema of the settings file, for editors
    #[arg(long)]
    schema: bool,
    /// Check nothing, and print which front serves which path, in the order in which a request is compared
    #[arg(long, conflicts_with = "schema")]
    routes: bool,
}

impl CheckArgs {
    /// Runs the command: loads everything once, and tries the files and the store that
    /// the settings name, as a starting gateway would.
    pub(crate) fn run(&self, out: &mut dyn Write) -> ExitCode {
        self.write(out)
            .unwrap_or_else(|failure| tollgate_client::to_exit_code(Err(failure)))
    }

    fn write(&self, out: &mut dyn Write) -> Result<ExitCode, Failure> {
        if self.schema {
            writeln!(out, "{:#}", raw::schema().as_value())?;
            return Ok(ExitCode::SUCCESS);
        }
        if self.routes {
            let loaded = raw::load(&self.settings.config);
            let Some(config) = loaded.value else {
                out.write_all(render(&loaded.diagnostics, &[], self.output)?.as_bytes())?;
                return Ok(exit_code(&loaded.diagnostics, self.deny_warnings));
            };
            out.write_all(render_routes(&routes(&config), self.output)?.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let (found, inventory) = self.checked()?;
        out.write_all(render(&found, &inventory, self.output)?.as_bytes())?;
        Ok(exit_code(&found, self.deny_warnings))
    }

    /// The findings, and what the configuration has if it can be used.
    fn checked(&self) -> Result<(Vec<Diagnostic>, Vec<InventoryItem>), Failure> {
        let loaded = raw::load(&self.settings.config);
        let mut found = loaded.diagnostics;
        let Some(config) = loaded.value else {
            return Ok((found, Vec::new()));
        };
        let runtime = runtime()?;
        let config = Arc::new(config);
        let locations = raw::SettingLocations::read(&self.settings.config);
        found.extend(runtime.block_on(inputs::findings(&config, &locations, &Clock::default())));
        // A check requests no credential; the loader only needs a cache.
        let (loader, _cache) = local::loader(Arc::clone(&config), &runtime)?;
        let loaded = loader.first();
        found.extend(loaded.diagnostics);
        let inventory = loaded.value.map(|snapshot| inventory(&config, &snapshot));
        Ok((found, inventory.unwrap_or_default()))
    }
}

/// Checks these settings as `tollgate check --config` does.
pub(crate) fn run_on(settings: &Path, out: &mut dyn Write) -> Result<ExitCode, Failure> {
    let check = CheckArgs {
        settings: SettingsArgs {
            config: settings.to_owned(),
        },
        output: ReportFormat::Table,
        deny_warnings: false,
        schema: false,
        routes: false,
    };
    check.write(out)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// Human-readable text
    #[default]
    Table,
    /// JSON document
    Json,
    /// YAML document
    Yaml,
    /// GitHub Actions workflow commands, which annotate the lines
    Github,
}

#[derive(Serialize)]
struct Report<'a> {
    errors: usize,
    warnings: usize,
    diagnostics: &'a [Diagnostic],
    /// Empty if the configuration cannot be used.
    inventory: &'a [InventoryItem],
}

/// Formats findings, ordered by file and line, errors before warnings of the same line. The text
/// ends with a line break unless it is empty.
fn render(diagnostics: &[Diagnostic], inventory: &[InventoryItem], report_format: ReportFormat) -> io::Result<String> {
    let mut sorted = diagnostics.to_vec();
    sorted.sort_by(|a, b| (&a.location, a.severity).cmp(&(&b.location, b.severity)));
    let errors = sorted.iter().filter(|finding| finding.is_error()).count();
    let warnings = sorted.len().saturating_sub(errors);
    let report = Report {
        errors,
        warnings,
        diagnostics: &sorted,
        inventory,
    };
    let format = match report_format {
        ReportFormat::Table => return Ok(table(&report)),
        ReportFormat::Github => return Ok(sorted.iter().map(github).collect()),
        ReportFormat::Json => Format::Json,
        ReportFormat::Yaml => Format::Yaml,
    };
    Ok(format.document(&report)?.trim_end().to_owned() + "\n")
}

fn render_routes(routes: &[RouteLine], report_format: ReportFormat) -> io::Result<String> {
    let format = match report_format {
        ReportFormat::Table | ReportFormat::Github => {
            let head = ["METHODS", "PATH", "FRONT", "ANSWERED BY", "OPEN"];
            let rows = routes.iter().map(|route| {
                let open = match route.open {
                    true => "yes",
                    false => "no: 404",
                };
                [
                    route.methods.clone(),
                    route.path.clone(),
                    route.front.to_owned(),
                    route.answered_by.clone(),
                    open.to_owned(),
                ]
            });
            return Ok(render_flush(&head, rows) + "\n");
        }
        ReportFormat::Json => Format::Json,
        ReportFormat::Yaml => Format::Yaml,
    };
    Ok(format.document(&routes)?.trim_end().to_owned() + "\n")
}

/// 0 if the configuration can be used; 1 if it cannot, or if there are warnings and
/// `deny_warnings` is set.
pub(crate) fn exit_code(diagnostics: &[Diagnostic], deny_warnings: bool) -> ExitCode {
    tollgate_client::exit_code(!diagnostics.iter().any(|finding| deny_warnings || finding.is_error()))
}

fn table(report: &Report<'_>) -> String {
    let row = |finding: &Diagnostic| {
        [
            serialized_name(&finding.severity),
            finding.location.as_ref().map(ToString::to_string).unwrap_or_default(),
            finding.message.clone(),
            finding.hint.clone().unwrap_or_default(),
        ]
    };
    let mut text = String::new();
    if !report.diagnostics.is_empty() {
        let head = ["SEVERITY", "PLACE", "MESSAGE", "HINT"];
        text = render_flush(&head, report.diagnostics.iter().map(row)) + "\n";
    }
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let (errors, warnings) = (count(report.errors, "error"), count(report.warnings, "warning"));
    let lines: Vec<(&str, String)> = report
        .inventory
        .iter()
        .map(|item| (item.subject, item.content.clone()))
        .collect();
    let inventory = match lines.is_empty() {
        true => String::new(),
        false => aligned(10, &lines) + "\n\n",
    };
    format!("{inventory}{text}{errors}, {warnings}\n")
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
    let hint = finding.hint.as_ref();
    let hint = hint.map_or_else(String::new, |hint| format!(" ({hint})"));
    let message = data(&format!("{}{hint}", finding.message));
    let severity = serialized_name(&finding.severity);
    format!("::{severity}{space}{}::{message}\n", properties.join(","))
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::{ReportFormat, exit_code, render};
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
        let text = render(&findings(), &[], ReportFormat::Github).unwrap();
        let expected = "::warning::no `argocd-cm`\n::warning file=a.yaml,line=2::odd\n\
                        ::error file=state/b%2C1.yaml,line=7,col=3::`a` is 100%25%0Awrong (write b)\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_table_lists_locations_and_counts() {
        let text = render(&findings(), &[], ReportFormat::Table).unwrap();
        assert!(text.starts_with("SEVERITY"), "{text}");
        assert!(text.contains("state/b,1.yaml:7:3"), "{text}");
        assert!(text.ends_with("1 error, 2 warnings\n"), "{text}");
        assert_eq!(render(&[], &[], ReportFormat::Table).unwrap(), "0 errors, 0 warnings\n");
    }

    #[test]
    fn json_and_yaml_have_the_same_content() {
        let json: serde_json::Value =
            serde_json::from_str(&render(&findings(), &[], ReportFormat::Json).unwrap()).unwrap();
        let yaml: serde_json::Value =
            serde_saphyr::from_str(&render(&findings(), &[], ReportFormat::Yaml).unwrap()).unwrap();
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
