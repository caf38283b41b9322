//! `tollgate kubeconfig`: creates a kubeconfig with one context, with which kubectl and helm reach
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
use super::api::{Gateway, Server};
use super::failure::Failure;
use super::format::Format;
use super::list_output::{items, text_at};
use super::token::{self, NewToken};
use file::KubeconfigOutput;
use tollgate_core::agent::AgentId;
use tollgate_credential::exec::erase;
use tollgate_objects::ObjectName;

mod application;
mod file;
mod merge;

pub use merge::path as kubeconfig_path;

/// Path of the Kubernetes front below the gateway's URL.
const KUBERNETES_PATH: &str = "k8s-proxy/";

/// Most bytes that are read from a token file.
const TOKEN_BYTES: u64 = 16 * 1024;

#[derive(Debug, Args)]
pub struct Kubeconfig {
    /// Agent whose cluster to access, by name or number
    #[arg(long, required_unless_present = "application")]
    agent: Option<String>,
    /// Application whose cluster to access, as its service account
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        value_parser = application::parse_name,
        conflicts_with_all = ["agent", "front", "token_name", "lifetime"]
    )]
    application: Option<ObjectName>,
    /// Name of the context; if omitted, the agent's name, or NAMESPACE-NAME of the Application
    #[arg(long)]
    context: Option<String>,
    /// Namespace of the context
    #[arg(long)]
    namespace: Option<String>,
    /// URL of the Kubernetes front; if omitted, the one that the gateway reports, else `/k8s-proxy/` of
    /// --server
    #[arg(long, value_name = "URL")]
    front: Option<String>,
    /// File with a token to use instead of creating one
    ///
    /// For an agent, the first line of the file is copied into the kubeconfig. For an Application, the
    /// file has a token of Argo CD or an ID token, and the kubeconfig refers to the file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lifetime", "token_name", "oidc_issuer"])]
    token_file: Option<PathBuf>,
    /// Name of the new token
    #[arg(long, default_value = "kubeconfig")]
    token_name: String,
    /// Lifetime of the new token, such as `8h` or `30d`, at most a year; 30 days if omitted
    #[arg(long, value_name = "DURATION", conflicts_with = "oidc_issuer")]
    lifetime: Option<String>,
    /// Sign in at this OIDC issuer with `kubectl oidc-login`, and store no token
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    oidc_issuer: Option<String>,
    /// Client ID of kubectl at the issuer
    #[arg(long, value_name = "ID", requires = "oidc_issuer")]
    oidc_client_id: Option<String>,
    /// Scope to request besides `openid`; may be repeated
    #[arg(long, value_name = "SCOPE", requires = "oidc_issuer")]
    oidc_scope: Vec<String>,
    /// Write to this file, readable only by its owner, instead of standard output
    ///
    /// Revokes the token that an earlier run wrote to the file. A file with other contexts is not
    /// overwritten.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Add the context to the kubeconfig that kubectl uses: the first file of `KUBECONFIG`, else
    /// `~/.kube/config`
    ///
    /// Keeps everything else in it, and the current context.
    #[arg(long, conflicts_with = "file")]
    write: bool,
    /// Make the context the current one; with --write
    #[arg(long, requires = "write")]
    use_context: bool,
    #[command(flatten)]
    server: Server,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: KubeconfigFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum KubeconfigFormat {
    /// YAML document, as kubectl writes it
    #[default]
    Yaml,
    /// JSON document
    Json,
}

struct Target {
    name: String,
    /// Number or name, as the API accepts it.
    agent: String,
    front: Option<String>,
}

impl Kubeconfig {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let gateway = self.server.resolve()?;
        let (front, default_name, agent) = match &self.application {
            Some(application) => {
                let url = application::cluster_url(application, &gateway.url)?;
                (url, application::context_name(application), None)
            }
            None => {
                let target = self.target(&gateway)?;
                (self.front_url(&target, &gateway)?, target.name, Some(target.agent))
            }
        };
        let name = self.context.as_ref().unwrap_or(&default_name);
        // Opened before a token is created, which would be lost if this failed.
        let kubeconfig_output = match self.write {
            true => KubeconfigOutput::merged(self.use_context)?,
            false => KubeconfigOutput::open(self.file.as_deref(), name)?,
        };
        let helper = self.helper(&gateway);
        let user = match (&self.oidc_issuer, &self.oidc_client_id, agent) {
            (Some(issuer), Some(client), _) => exec(issuer, client, &self.oidc_scope),
            (_, _, agent) if helper.is_some() => helper_user(&helper.unwrap_or_default(), agent.as_deref()),
            (_, _, Some(agent)) => self.user(agent)?,
            // The Applications front accepts credentials of the control plane.
            (_, _, None) => {
                let path = self.token_file.as_deref();
                application::token_file(path.ok_or_else(application::no_credential)?)?
            }
        };
        self.finish(&front, &gateway, name, &user, kubeconfig_output, out)
    }

    /// The context of the login by which kubectl's helper gets tokens; `None` if the kubeconfig gets a
    /// token or refers to one.
    fn helper(&self, gateway: &Gateway) -> Option<String> {
        let is_named = self.token_file.is_some() || self.lifetime.is_some() || self.server.auth_token.is_some();
        let context = gateway.context.as_ref().filter(|_| !is_named)?;
        Some(context.name.clone())
    }

    fn finish(
        &self,
        front: &Url,
        gateway: &Gateway,
        name: &str,
        user: &Value,
        kubeconfig_output: KubeconfigOutput<'_>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let mut cluster = json!({ "server": front.as_str() });
        if let (Some(pem), Some(cluster)) = (&gateway.authority, cluster.as_object_mut()) {
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
        let written = kubeconfig_output.write(format, &document, name, out);
        erase(&mut document);
        for replaced in written? {
            file::revoke(&self.server, replaced)?;
        }
        Ok(())
    }

    fn user(&self, agent: String) -> Result<Value, Failure> {
        if let Some(path) = &self.token_file {
            let text = content(path)?;
            return Ok(json!({ "token": *bearer(first_line(path, &text)?, &agent)? }));
        }
        let new_token = NewToken {
            name: self.token_name.clone(),
            agent,
            lifetime: self.lifetime.clone(),
            expires_at: None,
            user: None,
        };
        let mut made = token::create(&self.server, &new_token)?;
        let user = token::bearer(&made).map(|bearer| file::user(bearer, made.pointer("/token/id")));
        erase(&mut made);
        user
    }

    /// The agent as the gateway reports it, or as `--agent` names it if the gateway is not called.
    fn target(&self, gateway: &Gateway) -> Result<Target, Failure> {
        let named = self.agent.as_deref().unwrap_or_default();
        let needs_none = self.token_file.is_some() || self.oidc_issuer.is_some();
        if needs_none && gateway.token.is_none() {
            return Ok(Target {
                name: named.to_owned(),
                agent: named.to_owned(),
                front: None,
            });
        }
        let answer = agent::fetch(&self.server, None)?;
        let found = find(items(&answer, "/items"), named).ok_or_else(|| {
            let message = format!("there is no agent `{named}` that is shared with you");
            Failure::new("agent_not_found", message).with_hint("`tollgate agent list` shows those that are")
        })?;
        let front = found.pointer("/kubeconfig/server").and_then(Value::as_str);
        Ok(Target {
            name: text_at(found, "/name"),
            agent: text_at(found, "/id"),
            front: front.map(str::to_owned),
        })
    }

    fn front_url(&self, target: &Target, gateway: &Gateway) -> Result<Url, Failure> {
        let named = self.front.as_ref().or(target.front.as_ref());
        let text = match named {
            Some(front) => front.clone(),
            None => format!("{}/{KUBERNETES_PATH}", gateway.url.trim_end_matches('/')),
        };
        let url = Url::parse(&text).ok();
        let url = url.filter(|url| matches!(url.scheme(), "https" | "http") && url.path().ends_with(KUBERNETES_PATH));
        url.ok_or_else(|| {
            let message = format!("`{text}` is not a URL that ends with `/{KUBERNETES_PATH}`");
            Failure::new("kubeconfig.front", message).with_hint("name it with `--front`")
        })
    }
}

/// Finds an agent by number if the text is a number, else by name.
fn find<'a>(items: &'a [Value], agent: &str) -> Option<&'a Value> {
    let pointer = match agent.parse::<i64>() {
        Ok(_) => "/id",
        Err(_) => "/name",
    };
    items.iter().find(|item| text_at(item, pointer) == agent)
}

/// A user entry that gets short tokens from this program, by the login of a context. It has no secret.
///
/// Source: client-go exec plugins.
fn helper_user(context: &str, agent: Option<&str>) -> Value {
    let mut arguments = vec!["kubectl-credential", "--context", context];
    if let Some(agent) = agent {
        arguments.extend(["--agent", agent]);
    }
    json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "tollgate",
        "args": arguments,
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": false,
        "installHint": "This context gets its tokens from `tollgate`, which is not on the PATH: install it, then run \
                        `tollgate login`.",
    }})
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

/// The start of a file, at most [`TOKEN_BYTES`].
fn content(path: &Path) -> Result<Zeroizing<String>, Failure> {
    use std::io::Read as _;

    let mut text = Zeroizing::new(String::new());
    std::fs::File::open(path)
        .and_then(|file| file.take(TOKEN_BYTES).read_to_string(&mut text))
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

/// The bearer token of a token file: bearer tokens and ID tokens as they are, a secret alone with
/// the prefix `pat:<agent number>:`.
fn bearer(token: &str, agent: &str) -> Result<Zeroizing<String>, Failure> {
    let number = AgentId::parse(agent);
    let of = token.strip_prefix("pat:").and_then(|rest| rest.split_once(':'));
    if number.is_some() && of.is_some_and(|(id, _)| id != agent) {
        return Err(Failure::new("kubeconfig.token", "the token is for another agent"));
    }
    let is_jwt = token.split('.').count() == 3;
    match number {
        _ if is_jwt || token.contains(':') => Ok(Zeroizing::new(token.to_owned())),
        Some(id) => Ok(Zeroizing::new(format!("pat:{id}:{token}"))),
        None => {
            let message = "the agent's number is not known, and the token needs it";
            let hint = "name the agent by number, or set `TOLLGATE_AUTH_TOKEN`";
            Err(Failure::new("kubeconfig.token", message).with_hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{bearer, exec, find};

    #[test]
    fn a_token_is_read_with_or_without_its_agent() {
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
    fn a_number_selects_an_agent_by_id() {
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
    fn sign_in_uses_the_kubectl_plugin_oidc_login() {
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
