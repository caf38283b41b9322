//! `tollgate kubeconfig`: makes a kubeconfig with one context, with which kubectl and helm reach
//! the cluster of an agent or of an Application.
//!
//! Security: a token is printed to a terminal only on request, and the context reaches only the
//! named agent or Application.

use std::io::Write;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use url::Url;
use zeroize::Zeroizing;

use super::agent;
use super::client::{Failure, Server, runtime};
use super::format::Format;
use super::list_output::text;
use super::token::{self, CreateTokenRequest};
use application::ApplicationName;
use file::KubeconfigOutput;
use tollgate_core::agent::AgentId;
use tollgate_gateway::clusters::exec::erase;

mod application;
mod file;

/// Where the Kubernetes front is below a gateway's URL.
const FRONT: &str = "k8s-proxy/";

/// Longest file of a token, in bytes.
const TOKEN_BYTES: u64 = 16 * 1024;

/// Prints a kubeconfig.
#[derive(Debug, Args)]
pub struct Kubeconfig {
    /// The agent, by name or number.
    #[arg(long, required_unless_present = "application")]
    agent: Option<String>,
    /// The Application whose cluster is meant; what is done there is done as its service account.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        conflicts_with_all = ["agent", "front", "token_name", "lifetime"]
    )]
    application: Option<ApplicationName>,
    /// Name of the context; the agent's, or NAMESPACE-NAME of the Application, when left out.
    #[arg(long)]
    context: Option<String>,
    /// Namespace of the context.
    #[arg(long)]
    namespace: Option<String>,
    /// URL of the Kubernetes front; what the gateway says, else `--server` with
    /// `/k8s-proxy/`.
    #[arg(long, value_name = "URL")]
    front: Option<String>,
    /// File with a token. For an agent it is copied, and a new one is made when left out; for an Application
    /// it is a token of Argo CD, and clients read the file themselves.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lifetime", "token_name", "oidc_issuer"])]
    token_file: Option<PathBuf>,
    /// Name of the new token.
    #[arg(long, default_value = "kubeconfig")]
    token_name: String,
    /// How long the new token lives, such as `720h`; 30 days when left out.
    #[arg(long, value_name = "DURATION", conflicts_with = "oidc_issuer")]
    lifetime: Option<String>,
    /// Sign in at this issuer, by `kubectl oidc-login`, and keep no token.
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    oidc_issuer: Option<String>,
    /// Client the issuer knows kubectl as.
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    oidc_client_id: Option<String>,
    /// Scope to ask the issuer for besides `openid`; repeatable.
    #[arg(long, value_name = "SCOPE", requires = "oidc_issuer")]
    oidc_scope: Vec<String>,
    /// Write to this file, which only its owner may read, instead of standard output. The token that an
    /// earlier run wrote there is revoked.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: KubeconfigFormat,
}

/// How a kubeconfig is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum KubeconfigFormat {
    /// YAML, as kubectl writes it
    #[default]
    Yaml,
    /// JSON
    Json,
}

/// The agent as far as a kubeconfig needs it.
struct Target {
    name: String,
    /// As the API takes it.
    agent: String,
    front: Option<String>,
}

impl Kubeconfig {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        if let Some(application) = &self.application {
            let server = application.url(self.server.url())?;
            let name = self.context.clone().unwrap_or_else(|| application.context());
            let destination = KubeconfigOutput::open(self.file.as_deref(), &name)?;
            let user = self.user_of_application()?;
            return self.write(&server, (&name, user), (destination, out));
        }
        let target = self.target()?;
        let front = self.front_url(&target)?;
        let name = self.context.as_ref().unwrap_or(&target.name);
        // Before a token is made that nobody would get.
        let destination = KubeconfigOutput::open(self.file.as_deref(), name)?;
        let user = self.user(&target)?;
        self.write(&front, (name, user), (destination, out))
    }

    fn write(
        &self,
        front: &Url,
        (name, user): (&str, Value),
        (destination, out): (KubeconfigOutput<'_>, &mut dyn Write),
    ) -> Result<(), Failure> {
        let mut cluster = json!({ "server": front.as_str() });
        if let (Some(pem), Some(cluster)) = (self.server.authorities()?, cluster.as_object_mut()) {
            cluster.insert("certificate-authority-data".to_owned(), STANDARD.encode(pem).into());
        }
        let mut context = json!({ "cluster": name, "user": name });
        if let (Some(namespace), Some(context)) = (&self.namespace, context.as_object_mut()) {
            context.insert("namespace".to_owned(), namespace.clone().into());
        }
        let mut document = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": name, "cluster": cluster }],
            "contexts": [{ "name": name, "context": context }],
            "current-context": name,
            "users": [{ "name": name, "user": user }],
        });
        let format = match self.output {
            KubeconfigFormat::Yaml => Format::Yaml,
            KubeconfigFormat::Json => Format::Json,
        };
        let written = destination.write(format, &document, (name, out));
        erase(&mut document);
        for replaced in written? {
            file::revoke(&self.server, replaced)?;
        }
        Ok(())
    }

    /// How clients say who they are to the Applications front: as to the control plane.
    fn user_of_application(&self) -> Result<Value, Failure> {
        if let (Some(issuer), Some(client)) = (&self.oidc_issuer, &self.oidc_client_id) {
            return Ok(exec(issuer, client, &self.oidc_scope));
        }
        match &self.token_file {
            Some(path) => application::token_file(path),
            None => Err(application::no_credential()),
        }
    }

    /// How kubectl says who it is.
    fn user(&self, target: &Target) -> Result<Value, Failure> {
        if let (Some(issuer), Some(client)) = (&self.oidc_issuer, &self.oidc_client_id) {
            return Ok(exec(issuer, client, &self.oidc_scope));
        }
        if let Some(path) = &self.token_file {
            let token = read(path)?;
            return Ok(json!({ "token": bearer(&token, &target.agent)?.as_str() }));
        }
        let wanted = CreateTokenRequest {
            name: &self.token_name,
            agent: &target.agent,
            lifetime: self.lifetime.as_deref(),
            expires_at: None,
            user: None,
        };
        let mut made = runtime()?.block_on(token::create(&self.server, &wanted))?;
        let user = token::bearer(&made).map(|bearer| file::user(bearer, made.pointer("/token/id")));
        erase(&mut made);
        user
    }

    /// The agent, as the gateway knows it; as it was named where nobody asks.
    fn target(&self) -> Result<Target, Failure> {
        let named = self.agent.as_deref().unwrap_or_default();
        let needs_none = self.token_file.is_some() || self.oidc_issuer.is_some();
        if needs_none && !self.server.has_token() {
            return Ok(Target {
                name: named.to_owned(),
                agent: named.to_owned(),
                front: None,
            });
        }
        let answer = runtime()?.block_on(agent::fetch(&self.server, &[]))?;
        let items = answer.get("items").and_then(Value::as_array);
        let items = items.map(Vec::as_slice).unwrap_or_default();
        let found = find(items, named).ok_or_else(|| {
            Failure::new(
                "agent_not_found",
                format_args!("there is no agent `{named}` that is shared with you"),
            )
            .with_hint("`tollgate agent list` shows those that are")
        })?;
        let front = found.pointer("/kubeconfig/server").and_then(Value::as_str);
        Ok(Target {
            name: text(found, "/name"),
            agent: text(found, "/id"),
            front: front.map(str::to_owned),
        })
    }

    fn front_url(&self, target: &Target) -> Result<Url, Failure> {
        let named = self.front.as_ref().or(target.front.as_ref());
        let text = match named {
            Some(front) => front.clone(),
            None => format!("{}/{FRONT}", self.server.url().trim_end_matches('/')),
        };
        let url = Url::parse(&text).ok();
        let url = url.filter(|url| matches!(url.scheme(), "https" | "http") && url.path().ends_with(FRONT));
        url.ok_or_else(|| {
            Failure::new(
                "kubeconfig.front",
                format_args!("`{text}` is not a URL that ends with `/{FRONT}`"),
            )
            .with_hint("name it with `--front`")
        })
    }
}

/// An agent by number where the text is one, else by name; never one for the
/// other.
fn find<'a>(items: &'a [Value], agent: &str) -> Option<&'a Value> {
    let pointer = match agent.parse::<i64>() {
        Ok(_) => "/id",
        Err(_) => "/name",
    };
    items.iter().find(|item| text(item, pointer) == agent)
}

/// A user entry that signs in by the kubectl plugin `oidc-login`.
///
/// Source: client-go exec plugins; kubelogin, `oidc-login get-token`.
fn exec(issuer: &str, client: &str, scopes: &[String]) -> Value {
    let mut arguments = vec![
        "oidc-login".to_owned(),
        "get-token".to_owned(),
        format!("--oidc-issuer-url={issuer}"),
        format!("--oidc-client-id={client}"),
    ];
    arguments.extend(scopes.iter().map(|scope| format!("--oidc-extra-scope={scope}")));
    json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "kubectl",
        "args": arguments,
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": false,
    }})
}

/// The first line of a token file.
fn read(path: &Path) -> Result<Zeroizing<String>, Failure> {
    first_line(path, &content(path)?).map(|line| Zeroizing::new(line.to_owned()))
}

/// The start of a file, at most [`TOKEN_BYTES`].
fn content(path: &Path) -> Result<Zeroizing<String>, Failure> {
    use std::io::Read as _;

    let file = std::fs::File::open(path).map_err(|error| wrong_file(path, &error))?;
    let mut text = Zeroizing::new(String::new());
    file.take(TOKEN_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| wrong_file(path, &error))?;
    Ok(text)
}

fn first_line<'a>(path: &Path, text: &'a str) -> Result<&'a str, Failure> {
    let line = text.lines().next().unwrap_or_default().trim();
    if !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(line)
    } else {
        Err(wrong_file(path, &"the first line is not a token"))
    }
}

fn wrong_file(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new("kubeconfig.token", format_args!("`{}`: {why}", path.display()))
}

/// A token as it goes behind `Authorization: Bearer`: bearer tokens and ID
/// tokens as they are, a secret alone with the agent's number before it.
fn bearer(token: &str, agent: &str) -> Result<Zeroizing<String>, Failure> {
    if token.contains(':') {
        let of = token.strip_prefix("pat:").and_then(|rest| rest.split_once(':'));
        let other = of.is_some_and(|(id, _)| AgentId::parse(agent).is_some() && id != agent);
        if other {
            return Err(Failure::new("kubeconfig.token", "the token is for another agent"));
        }
        return Ok(Zeroizing::new(token.to_owned()));
    }
    let is_jwt = token.split('.').count() == 3;
    match AgentId::parse(agent) {
        _ if is_jwt => Ok(Zeroizing::new(token.to_owned())),
        Some(id) => Ok(Zeroizing::new(format!("pat:{id}:{token}"))),
        None => Err(Failure::new(
            "kubeconfig.token",
            "the agent's number is not known, and the token needs it",
        )
        .with_hint("name the agent by number, or set `TOLLGATE_AUTH_TOKEN`")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{bearer, exec, find};

    #[test]
    fn a_token_file_has_either_form() {
        for (token, agent, expected) in [
            ("tgpat-x", "9", Some("pat:9:tgpat-x")),
            ("pat:9:tgpat-x", "9", Some("pat:9:tgpat-x")),
            ("pat:9:tgpat-x", "prod", Some("pat:9:tgpat-x")),
            ("a.b.c", "prod", Some("a.b.c")),
            ("pat:8:tgpat-x", "9", None),
            ("tgpat-x", "prod", None),
        ] {
            let found = bearer(token, agent).ok().map(|text| text.as_str().to_owned());
            assert_eq!(found.as_deref(), expected, "{token} {agent}");
        }
    }

    #[test]
    fn a_number_is_no_name() {
        let items = [json!({"id": 1, "name": "9999"}), json!({"id": 9999, "name": "prod"})];
        let found = |agent| find(&items, agent).map(|item| item["id"].clone());
        assert_eq!(found("9999"), Some(json!(9999)));
        assert_eq!(found("prod"), Some(json!(9999)));
        assert_eq!(found("1"), Some(json!(1)));
        for none in ["2", "09999", "+9999", "-1", "stage"] {
            assert_eq!(found(none), None, "{none}");
        }
    }

    #[test]
    fn sign_in_is_a_plugin_of_kubectl() {
        let user = exec("https://i.example", "kubectl", &["groups".to_owned()]);
        assert_eq!(
            user["exec"]["args"],
            json!([
                "oidc-login",
                "get-token",
                "--oidc-issuer-url=https://i.example",
                "--oidc-client-id=kubectl",
                "--oidc-extra-scope=groups"
            ])
        );
        assert_eq!(user["exec"]["interactiveMode"], "IfAvailable");
    }
}
