//! `tollgate credential`: gets a cluster's credential for programs, or explains why there is
//! none. The result goes to standard output, everything else to standard error in one line.
//!
//! Security: no secret appears in an error or in `explain`, and none is sent to a gateway without
//! TLS beyond loopback.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde_json::Value;
use zeroize::Zeroizing;

use tollgate_client::answer::SettingsArgs;
use tollgate_client::api::Server;
use tollgate_client::exec_info::version;
use tollgate_client::failure::Failure;
use tollgate_client::format::{Format, print};
use tollgate_credential::exec::{ExecCredentialVersion, erase};

mod explain;
pub(crate) mod local;
mod token_file;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the credential of a cluster
    Get(Get),
    /// Print the credential of a cluster as a client-go exec plugin
    ///
    /// For kubeconfigs and for `execProviderConfig` of Argo CD. Prints an `ExecCredential` of the version
    /// that the variable `KUBERNETES_EXEC_INFO` requests.
    Exec {
        /// Name of the cluster, or URL of its API server
        #[arg(required_unless_present = "token_file")]
        cluster: Option<String>,
        #[command(flatten)]
        source: SourceArgs,
        /// Print the token of a file that somebody renews, such as a projected ServiceAccount token
        ///
        /// No gateway is asked.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["cluster", "config"])]
        token_file: Option<PathBuf>,
        /// Cluster and protocol version, as client-go names them
        #[arg(long, hide = true, env = "KUBERNETES_EXEC_INFO", hide_env_values = true)]
        exec_info: Option<String>,
    },
    /// Mint a credential and show each request and its outcome
    ///
    /// Mints from the settings, without a running gateway. Prints no secret, and revokes the credential if
    /// its provider can.
    Explain(Explain),
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Name of the cluster, or URL of its API server
    cluster: String,
    #[command(flatten)]
    source: SourceArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: CredentialFormat,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Name of the cluster, or URL of its API server
    cluster: String,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Where the credential comes from: a running gateway, or settings to mint it with.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    server: Server,
    /// Mint in this process with a gateway's settings file, instead of calling a running gateway
    #[arg(short, long, value_name = "FILE", conflicts_with = "certificate_authority")]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum CredentialFormat {
    /// Only the token
    #[default]
    Token,
    /// `ExecCredential` as JSON
    Json,
    /// `ExecCredential` as YAML
    Yaml,
}

pub(crate) fn run(command: &Command, out: &mut dyn Write) -> ExitCode {
    let done = match command {
        Command::Get(get) => get.run(out),
        Command::Exec {
            cluster,
            source,
            token_file,
            exec_info,
        } => {
            let document = version(exec_info.as_deref()).and_then(|version| match (cluster, token_file) {
                (_, Some(file)) => token_file::read(file, Timestamp::now(), version),
                (Some(cluster), None) => source.fetch(cluster, version),
                (None, None) => Err(Failure::new("usage", "neither a cluster nor `--token-file` is named")),
            });
            document.and_then(|document| print(&document, out))
        }
        Command::Explain(explain) => {
            return explain
                .run(out)
                .unwrap_or_else(|failure| tollgate_client::to_exit_code(Err(failure)));
        }
    };
    tollgate_client::to_exit_code(done)
}

impl Get {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let document = self.source.fetch(&self.cluster, ExecCredentialVersion::V1)?;
        match self.output {
            CredentialFormat::Json => print(&document, out),
            CredentialFormat::Token => {
                let mut parsed = parse(&document)?;
                let token = parsed.pointer("/status/token").and_then(Value::as_str).ok_or_else(|| {
                    let failure = Failure::new("no_token", "the cluster's credential is a client certificate");
                    failure.with_hint("print it with `-o json`")
                });
                let printed = token.and_then(|token| print(token, out));
                erase(&mut parsed);
                printed
            }
            CredentialFormat::Yaml => {
                let mut parsed = parse(&document)?;
                let text = Format::Yaml.document(&parsed).map(Zeroizing::new);
                erase(&mut parsed);
                print(text?.trim_end(), out)
            }
        }
    }
}

impl SourceArgs {
    fn fetch(&self, cluster: &str, version: ExecCredentialVersion) -> Result<Zeroizing<String>, Failure> {
        match &self.config {
            Some(settings) => local::fetch(settings, cluster, version),
            None => fetch(&self.server, cluster, version),
        }
    }
}

/// Gets a credential from a running gateway, as an `ExecCredential` of the requested version. The
/// gateway answers in the latest, and the versions differ in nothing else.
fn fetch(server: &Server, cluster: &str, version: ExecCredentialVersion) -> Result<Zeroizing<String>, Failure> {
    let bytes = server
        .get(&["tollgate", "clusters", cluster, "credential"], hint)
        .send()?;
    let text = std::str::from_utf8(&bytes).map_err(|_| Failure::new("gateway.answer", "the response is not UTF-8"))?;
    let mut document = parse(text)?;
    if document.get("kind").and_then(Value::as_str) != Some("ExecCredential") {
        return Err(
            Failure::new("gateway.answer", "the response is not an `ExecCredential`")
                .with_hint("`--server` is the gateway's public listener"),
        );
    }
    if let Some(api) = document.get_mut("apiVersion") {
        *api = <&str>::from(version).into();
    }
    let written = serde_json::to_string(&document).map(Zeroizing::new);
    erase(&mut document);
    Ok(written.map_err(std::io::Error::from)?)
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        "permission_denied" => Some("it needs `clusters, get` and `credentials, get` on the cluster's server"),
        "credential_unavailable" => Some("an operator sees why with `tollgate credential explain`"),
        _ => None,
    }
}

fn parse(document: &str) -> Result<Value, Failure> {
    serde_json::from_str(document)
        .map_err(|_| Failure::new("gateway.answer", "the response is not an `ExecCredential`"))
}
