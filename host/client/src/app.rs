//! `tollgate app`: shows which identity acts for an Application and why, from the settings, the
//! state folder and the rules of the Applications front. It sends nothing to a cluster, and gives no
//! answer from a configuration that the gateway would refuse.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::answer::{Error, SettingsArgs, require_loaded};
use super::format::Format;
use super::list_output::{aligned, render_flush};
use tollgate_config::{ImpersonationMode, raw};
use tollgate_core::diagnostic::{Diagnostic, one_line, with_causes};
use tollgate_core::glob::redact_credentials;
use tollgate_objects::ObjectName;
use tollgate_policy::applications::{ApplicationIndex, IndexedApplication};
use tollgate_policy::impersonate::service_account::{
    AccountSource, EvaluatedEntry, ImpersonationRules, ServiceAccountName,
};
use tollgate_state::source;

const EXIT_REFUSED: u8 = 1;
/// Longest text of a table cell, in bytes.
const MAX_CELL_BYTES: usize = 120;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show which service account acts for an Application
    ///
    /// Also prints the entries of `destinationServiceAccounts` that were tried, and which one decided.
    /// Exits with 1 if no identity acts, or the project does not permit a source of the Application:
    /// requests are refused then.
    Identity(Identity),
}

#[derive(Args, Clone, Debug)]
pub struct Identity {
    /// Application; without NAMESPACE, in the control plane's namespace
    #[arg(value_name = "NAMESPACE/NAME")]
    application: String,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Serialize)]
struct Answer {
    application: ObjectName,
    project: String,
    destination: Destination,
    mode: &'static str,
    /// Whether requests are refused because no identity acts, or because of a source.
    refused: bool,
    /// Why no account acts, or would not in mode `enforce`, or which source is refused.
    error: Option<Problem>,
    account: Option<ServiceAccountName>,
    decided_by: Option<AccountSource>,
    impersonates: ImpersonationView,
    tried: Vec<TriedEntry>,
}

#[derive(Debug, Serialize)]
struct Destination {
    name: Option<String>,
    server: Option<String>,
    namespace: String,
}

#[derive(Debug, Serialize)]
struct Problem {
    code: &'static str,
    message: String,
}

/// The impersonation that the cluster receives in the current mode.
#[derive(Debug, Serialize)]
struct ImpersonationView {
    user: Option<String>,
    groups: [String; 0],
    /// Keys of `extra` that describe the caller, if the cluster permits them.
    extra_keys: Vec<String>,
}

#[derive(Debug, Serialize)]
struct TriedEntry {
    #[serde(flatten)]
    tried: EvaluatedEntry,
    why: &'static str,
}

impl Command {
    pub(crate) fn run(&self, out: &mut dyn Write) -> ExitCode {
        match self {
            Self::Identity(identity) => identity.run_with(out, &mut super::stderr()),
        }
    }
}

impl Identity {
    fn run_with(&self, out: &mut dyn Write, stderr: &mut dyn Write) -> ExitCode {
        let answer = self.answer(stderr).and_then(|answer| {
            self.output.show(&answer, Answer::table, out)?;
            Ok(if answer.refused { EXIT_REFUSED } else { 0 })
        });
        ExitCode::from(answer.unwrap_or_else(|error| error.report(stderr)))
    }

    fn answer(&self, stderr: &mut dyn Write) -> Result<Answer, Error> {
        let config = require_loaded(raw::load(&self.settings.config))?;
        let name = self.name(&config.control_plane_namespace)?;
        let settings = config.applications.unwrap_or_else(|| {
            let _ = writeln!(
                stderr,
                "tollgate: the settings have no `applications`, so the front is closed; this is what it would do"
            );
            tollgate_config::Applications::default()
        });
        let folder = config.policies_directory.join("applications");
        let rules = require_loaded(ImpersonationRules::load(&folder, settings.semantics))?;
        let resources = require_loaded(source::load_once(&config))?;
        let index = ApplicationIndex::build(&resources, &rules, settings.mode, None);
        let errors: Vec<Diagnostic> = index.findings().into_iter().filter(Diagnostic::is_error).collect();
        if !errors.is_empty() {
            return Err(Error::Refused {
                what: "configuration",
                findings: errors,
            });
        }
        let ObjectName { namespace, name } = name;
        match index.find(&namespace, &name) {
            Some(indexed) => Ok(Answer::of(indexed, index.mode, &rules)),
            None => Err(Error::Failed(format!(
                "there is no application `{name}` in namespace `{namespace}`"
            ))),
        }
    }

    fn name(&self, control_plane_namespace: &str) -> Result<ObjectName, Error> {
        let text = self.application.as_str();
        let (namespace, name) = text.split_once('/').unwrap_or((control_plane_namespace, text));
        if namespace.is_empty() || name.is_empty() || name.contains('/') {
            return Err(Error::Usage(format!("`{text}` is not NAME or NAMESPACE/NAME")));
        }
        Ok(ObjectName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl Answer {
    fn of(indexed: &IndexedApplication, mode: ImpersonationMode, rules: &ImpersonationRules) -> Self {
        let application = &indexed.application;
        let cluster = indexed.destination.as_ref().ok();
        let derived = indexed.derived_account.as_ref();
        let account = derived.ok().and_then(|derived| derived.account.as_ref());
        let tried_entry = |tried: EvaluatedEntry| TriedEntry {
            why: tried.why(),
            tried,
        };
        let refused_source = indexed.refused_repository().map(|repository| Problem {
            code: "source_refused",
            message: format!(
                "the project does not permit the source repository `{}`: sourceRepos",
                redact_credentials(repository)
            ),
        });
        let refused = indexed.is_refused(mode);
        let acts = account.filter(|_| mode == ImpersonationMode::Enforce && !refused);
        let problem = derived.err().map(|error| Problem {
            code: error.code(),
            message: with_causes(error),
        });
        Self {
            application: application.name.clone(),
            project: application.project.clone(),
            destination: Destination {
                name: cluster.map(|cluster| cluster.name.clone()),
                server: cluster.map(|cluster| cluster.server.clone()),
                namespace: application.destination.namespace.clone(),
            },
            mode: mode.into(),
            refused,
            error: problem.or(refused_source),
            account: account.cloned(),
            decided_by: derived.ok().map(|derived| derived.by.clone()),
            impersonates: ImpersonationView {
                user: acts.map(ServiceAccountName::username),
                groups: [],
                extra_keys: acts
                    .into_iter()
                    .flat_map(|_| rules.extra_keys())
                    .map(str::to_owned)
                    .collect(),
            },
            tried: indexed.evaluated_entries().into_iter().map(tried_entry).collect(),
        }
    }

    fn table(&self) -> String {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let destination = match (&self.destination.name, &self.destination.server) {
            (Some(name), Some(server)) => format!("{name} ({server})"),
            (_, _) => "-".to_owned(),
        };
        let namespace = Some(self.destination.namespace.clone()).filter(|namespace| !namespace.is_empty());
        let account = self
            .account
            .as_ref()
            .map(|account| format!("{}:{}", account.namespace, account.name));
        let ObjectName { namespace: own, name } = &self.application;
        let acts_as = match (&self.impersonates.user, self.refused) {
            (Some(user), _) => user.clone(),
            (None, true) => "nobody: requests are refused".to_owned(),
            (None, false) => "the gateway's own identity in the cluster".to_owned(),
        };
        let mut lines = vec![
            ("Application", format!("{own}/{name}")),
            ("Project", self.project.clone()),
            ("Destination", destination),
            ("Namespace", or_dash(namespace)),
            ("Mode", self.mode.to_owned()),
            ("Account", or_dash(account)),
            ("Decided by", or_dash(self.decided_by.as_ref().map(decided_by))),
            ("Acts as", acts_as),
        ];
        if !self.impersonates.extra_keys.is_empty() {
            lines.push(("Extra", self.impersonates.extra_keys.join(", ")));
        }
        if let Some(problem) = &self.error {
            lines.push(("Error", problem.message.clone()));
        }
        for (_, value) in &mut lines {
            *value = one_line(value, 1024);
        }
        let mut text = aligned(13, &lines);
        if !self.tried.is_empty() {
            let head = ["ENTRY", "SERVER", "NAMESPACE", "ACCOUNT", "PLACE", "WHY"];
            text.push_str("\n\n");
            text.push_str(&render_flush(&head, self.tried.iter().map(TriedEntry::row)));
        }
        text
    }
}

fn decided_by(source: &AccountSource) -> String {
    match source {
        AccountSource::Entry { index, location } => format!("entry {index} at {location}"),
        AccountSource::Fallback(fallback) => format!("no entry: fallback {}", fallback.as_ref()),
    }
}

impl TriedEntry {
    fn row(&self) -> [String; 6] {
        let cell = |text: &str| match text {
            "" => "\"\"".to_owned(),
            text => one_line(text, MAX_CELL_BYTES),
        };
        [
            self.tried.index.to_string(),
            cell(&self.tried.server),
            cell(&self.tried.namespace),
            cell(&self.tried.account),
            self.tried.location.to_string(),
            self.why.to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests;
