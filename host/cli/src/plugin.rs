//! `tollgate plugin list | inspect | new | test`. The commands read the part `plugins` of the
//! settings and do not change a running gateway. The exit code is 0 for done, 1 for refused or
//! failed.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use tollgate_client::exit_code;
use tollgate_client::format::Format;
use tollgate_client::list_output::{join_or_dash, render, serialized_name};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::plugin::World;
use tollgate_plugin::Runtime;

mod filter_test;
mod inspect;
mod new;
mod replay;

/// `tollgate plugin`.
#[derive(Debug, Args)]
pub struct PluginArgs {
    #[command(subcommand)]
    command: Command,
    /// Folder with the plugins, instead of `plugins.directory` of the settings
    #[arg(long, global = true, value_name = "FOLDER")]
    plugins_dir: Option<PathBuf>,
    /// Output format
    #[arg(short, long, global = true, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load all plugins and list them
    ///
    /// Prints findings to standard error, and exits with 1 if there is an error among them.
    List,
    /// Show the imports, exports and manifest of a plugin, without running it
    Inspect {
        /// WebAssembly component, with its manifest in the same folder
        file: PathBuf,
    },
    /// Create a folder with a new plugin, ready to build
    #[command(after_help = "Example:\n  tollgate plugin new header-filter my-filter")]
    New {
        /// Kind of plugin
        #[arg(value_enum)]
        world: NewWorld,
        /// Name of the plugin: 1 to 63 lower-case letters, digits and `-`, a letter first
        name: String,
        /// Folder in which to create the plugin's folder
        #[arg(long, default_value = ".")]
        into: PathBuf,
    },
    /// Test a plugin with a message or a transcript
    ///
    /// Sends one message through a header filter, or replays a transcript against a credential provider.
    /// No backend is called. Exits with 1 if the filter refuses the message, or a case of the transcript
    /// fails.
    #[command(
        group(ArgGroup::new("input").required(true).args(["request", "transcript"])),
        after_help = "Examples:\n  \
                      tollgate plugin test my-filter --plugins-dir target/guests --request request.yaml\n  \
                      tollgate plugin test my-broker --plugins-dir target/guests --transcript transcript.yaml"
    )]
    Test {
        /// Name of the plugin
        name: String,
        /// YAML file with the message for a header filter
        #[arg(long, value_name = "FILE")]
        request: Option<PathBuf>,
        /// YAML file with requests and responses for a credential provider
        #[arg(long, value_name = "FILE")]
        transcript: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NewWorld {
    /// Edits headers of requests and responses
    HeaderFilter,
    /// Mints credentials of clusters
    #[value(alias = "credential-provider")]
    Provider,
    /// Generates parameters for ApplicationSets
    Generator,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("`{}`: {}", .0.display(), .1)]
    File(PathBuf, io::Error),
    /// The output is closed, or the format cannot represent the result.
    #[error("the result cannot be written: {0}")]
    Print(#[from] io::Error),
    /// The runtime does not start.
    #[error(transparent)]
    Runtime(#[from] tollgate_plugin::Error),
    /// An argument, or a file that it names, cannot be used.
    #[error("{0}")]
    Input(String),
    /// A transcript that cannot be replayed.
    #[error(transparent)]
    Replay(#[from] tollgate_plugin::replay::Error),
}

/// Runs `tollgate plugin …`. Results go to `out`, findings to `err`.
///
/// - `settings`: the part `plugins` of the settings file, or the default.
/// - Returns exit code 0 on success; 1 for refused, failed, or findings that are errors.
///
/// # Errors
/// [`Error`], which the caller prints and turns into exit code 1.
pub fn run(
    args: PluginArgs,
    settings: tollgate_config::Plugins,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<ExitCode, Error> {
    let output = args.output;
    let settings = tollgate_config::Plugins {
        directory: args.plugins_dir.or(settings.directory),
        ..settings
    };
    match args.command {
        Command::List => list(&settings, output, out, err),
        Command::Inspect { file } => inspect::run(&file, output, out, err),
        Command::New { world, name, into } => new::run(world, &name, &into, out),
        Command::Test {
            name,
            request,
            transcript,
        } => match (request, transcript) {
            (Some(request), _) => filter_test::run(&settings, &name, &request, output, out, err),
            (None, Some(transcript)) => replay::run(&settings, &name, &transcript, output, out),
            // clap requires one of them.
            (None, None) => Ok(ExitCode::FAILURE),
        },
    }
}

fn list(
    settings: &tollgate_config::Plugins,
    output: Format,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<ExitCode, Error> {
    let (set, diagnostics) = Runtime::new(settings)?.load(None);
    let summaries: Vec<tollgate_plugin::PluginSummary> = set.list().collect();
    match output {
        Format::Table => {
            let head = [
                "NAME",
                "VERSION",
                "WORLD",
                "FILTERS",
                "IMPORTS",
                "EXTENSIONS",
                "HOSTS",
                "SHA256",
            ];
            writeln!(out, "{}", render(&head, summaries.iter().map(row)))?;
        }
        Format::Json | Format::Yaml => output.print(&summaries, out)?,
    }
    findings(&diagnostics, err)
}

fn row(summary: &tollgate_plugin::PluginSummary) -> Vec<String> {
    let words = |words: Vec<String>| join_or_dash(&words, ",");
    let extensions = match (summary.world, summary.extensions.as_slice()) {
        (World::CredentialProvider | World::Generator, _) => "-".to_owned(),
        (World::HeaderFilter, []) => "all".to_owned(),
        (World::HeaderFilter, some) => some.join(","),
    };
    let hosts = summary.provider.as_ref().map(|provider| provider.hosts.clone());
    vec![
        summary.name.clone(),
        summary.version.clone(),
        serialized_name(&summary.world),
        words(summary.filters.iter().map(serialized_name).collect()),
        words(summary.imports.iter().map(serialized_name).collect()),
        extensions,
        words(hosts.unwrap_or_default()),
        summary.sha256.get(..12).unwrap_or_default().to_owned(),
    ]
}

/// Prints findings; an error among them is exit code 1.
fn findings(diagnostics: &[Diagnostic], err: &mut dyn Write) -> Result<ExitCode, Error> {
    for diagnostic in diagnostics {
        writeln!(err, "{diagnostic}")?;
    }
    Ok(exit_code(!diagnostics.iter().any(Diagnostic::is_error)))
}

/// The error of a file that cannot be read or written.
fn at(path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::File(path.to_owned(), source)
}
