//! The HTTP client that commands use to call a running gateway. Failures are reported in one line.
//! Responses are bounded, and redirects are not followed.
//!
//! Security: the token is sent only over TLS, or to loopback.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;
use zeroize::Zeroizing;

use crate::context::{Context, Contexts};
use crate::failure::Failure;
use crate::terminal;
use tollgate_config::is_loopback;

mod unreachable;

pub use unreachable::unreachable;

/// Longest wait for the complete response. The gateway waits up to 15 s for a new credential, and
/// generates for up to 30 s by default.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

const MAX_RESPONSE_BYTES: usize = 8 << 20;

/// The gateway without any that a command or a context names.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// The gateway that a command calls, and the caller's token.
#[derive(Debug, Default, Args)]
pub struct Server {
    /// URL of the gateway; if omitted, that of the context, else `http://127.0.0.1:8080`
    #[arg(long, env = "TOLLGATE_SERVER")]
    pub(crate) server: Option<String>,
    /// Token that authenticates you to the gateway, instead of the login of the context
    #[arg(long, env = "TOLLGATE_AUTH_TOKEN", hide_env_values = true)]
    pub(crate) auth_token: Option<SecretString>,
    /// PEM file of the certificate authorities to trust instead of the system's
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CERTIFICATE_AUTHORITY")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// Context of `tollgate login`; if omitted, that of --server, else the current one
    #[arg(long = "login-context", value_name = "NAME", env = "TOLLGATE_CONTEXT")]
    pub(crate) login_context: Option<String>,
    /// Authorities in PEM form, for callers that have them already.
    #[arg(skip)]
    pub(crate) authority: Option<String>,
    /// Whether no context is used.
    #[arg(skip)]
    pub(crate) is_anonymous: bool,
}

/// A gateway with everything that a request to it needs.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) url: String,
    pub(crate) token: Option<SecretString>,
    /// PEM of the authorities to trust; the system's if absent.
    pub(crate) authority: Option<Vec<u8>>,
    /// The context that it comes from.
    pub(crate) context: Option<Context>,
}

/// A hint for a refusal with this reason code.
pub type Hint = fn(&str) -> Option<&'static str>;

/// A request to the API of a gateway.
#[derive(Debug)]
pub struct ApiRequest<'a> {
    server: &'a Server,
    method: Method,
    /// Path segments below `/api/v1/`; they are encoded when it is sent.
    path: Vec<&'a str>,
    query: Vec<(&'a str, Option<String>)>,
    content: Option<Value>,
    hint: Hint,
}

impl<'a> ApiRequest<'a> {
    /// Adds query parameters; those without a value are left out.
    pub(crate) fn query(mut self, query: impl IntoIterator<Item = (&'a str, Option<String>)>) -> Self {
        self.query.extend(query);
        self
    }

    pub(crate) fn content(mut self, content: Value) -> Self {
        self.content = Some(content);
        self
    }

    /// Sends the request and reads the response.
    ///
    /// # Errors
    /// [`Failure`] with the gateway's own reason code, or with one that begins with `gateway.`.
    pub fn send(self) -> Result<Zeroizing<Vec<u8>>, Failure> {
        runtime()?.block_on(self.exchange())
    }

    async fn exchange(self) -> Result<Zeroizing<Vec<u8>>, Failure> {
        let gateway = self.server.resolve()?;
        let url = url(&gateway.url, &self.path, &self.query)?;
        let mut request = gateway.client(&url)?.request(self.method, url);
        if let Some(token) = &gateway.token {
            request = request.bearer_auth(token.expose_secret());
        }
        if let Some(content) = &self.content {
            request = request.json(content);
        }
        let mut answer = request.send().await.map_err(|error| {
            let server = format!("the gateway at `{}`", gateway.url);
            let failure = unreachable(&server, &error, "--server", Some("--certificate-authority"));
            match self.server.server.is_none() && gateway.context.is_none() {
                true => failure.with_hint(
                    "nobody is signed in here: sign in with `tollgate login --server URL`, or name the gateway with \
                     `--server`",
                ),
                false => failure,
            }
        })?;
        let status = answer.status();
        let decision = answer.headers().get("tollgate-decision-id").cloned();
        let mut bytes = Zeroizing::new(Vec::with_capacity(16 << 10));
        let broken = |error| Failure::new("gateway.answer", error);
        while let Some(chunk) = answer.chunk().await.map_err(broken)? {
            if bytes.len().saturating_add(chunk.len()) > MAX_RESPONSE_BYTES {
                return Err(Failure::new("gateway.answer", "the answer is too long"));
            }
            bytes.extend_from_slice(&chunk);
        }
        if !status.is_success() {
            let decision = decision.as_ref().and_then(|value| value.to_str().ok());
            return Err(failure_of_response(status, decision, &bytes, self.hint));
        }
        Ok(bytes)
    }

    /// Sends the request and reads the response as JSON.
    ///
    /// # Errors
    /// As [`ApiRequest::send`], and if the response is not JSON.
    pub fn json(self) -> Result<Value, Failure> {
        serde_json::from_slice(&self.send()?).map_err(|_| {
            Failure::new("gateway.answer", "the response is not JSON")
                .with_hint("`--server` is the gateway's public listener")
        })
    }
}

impl Server {
    /// A request with a method.
    ///
    /// - `path`: segments below `/api/v1/`, which need no encoding.
    /// - `hint`: what to do about refusals.
    pub fn request<'a>(&'a self, method: Method, path: &[&'a str], hint: Hint) -> ApiRequest<'a> {
        ApiRequest {
            server: self,
            method,
            path: path.to_vec(),
            query: Vec::new(),
            content: None,
            hint,
        }
    }

    /// A `GET` request, as [`Server::request`].
    pub fn get<'a>(&'a self, path: &[&'a str], hint: Hint) -> ApiRequest<'a> {
        self.request(Method::GET, path, hint)
    }

    /// A gateway that no context is about.
    pub(crate) fn anonymous(server: String, authority: Option<String>) -> Self {
        Self {
            server: Some(server),
            authority,
            is_anonymous: true,
            ..Self::default()
        }
    }

    /// The same gateway with a token.
    pub(crate) fn with_token(self, token: SecretString) -> Self {
        Self {
            auth_token: Some(token),
            ..self
        }
    }

    /// The gateway, from the options, the environment and the contexts.
    ///
    /// # Errors
    /// A file or the context cannot be read.
    pub(crate) fn resolve(&self) -> Result<Gateway, Failure> {
        let contexts = match self.is_anonymous {
            true => Contexts::default(),
            false => Contexts::load()?,
        };
        let context = contexts.choose(self.login_context.as_deref(), self.server.as_deref())?;
        let url = self.server.clone().or_else(|| Some(context?.server.clone()));
        let authority = match (&self.certificate_authority, &self.authority) {
            (Some(path), _) => {
                let failed = |error| Failure::new("gateway.authority", format_args!("`{}`: {error}", path.display()));
                Some(std::fs::read(path).map_err(failed)?)
            }
            (None, Some(pem)) => Some(pem.clone().into_bytes()),
            (None, None) => context
                .and_then(|context| context.certificate_authority.clone())
                .map(String::into_bytes),
        };
        let token = match (&self.auth_token, context) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(context)) => Some(context.credential()?),
            (None, None) => None,
        };
        Ok(Gateway {
            url: url.unwrap_or_else(|| DEFAULT_SERVER.to_owned()),
            token,
            authority,
            context: context.cloned(),
        })
    }
}

impl Gateway {
    fn client(&self, url: &Url) -> Result<reqwest::Client, Failure> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(REQUEST_TIMEOUT);
        if let Some(pem) = &self.authority {
            let roots =
                reqwest::Certificate::from_pem_bundle(pem).map_err(|error| Failure::new("gateway.authority", error))?;
            if roots.is_empty() {
                let failure = Failure::new("gateway.authority", "there is no certificate among the authorities");
                return Err(failure.with_hint("give a PEM file, with `--certificate-authority`"));
            }
            builder = builder.tls_certs_only(roots);
        }
        if url.scheme() == "http" {
            // This is loopback; a proxy from the environment could read the token.
            builder = builder.no_proxy();
        }
        builder.build().map_err(|error| Failure::new("gateway.tls", error))
    }
}

/// A runtime of Tokio on this thread.
///
/// # Errors
/// The operating system gives none.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("host.runtime", error))
}

/// Characters to encode in a path segment. Ids, with their dashes, stay readable; dots are encoded,
/// because `..` would name the parent.
const SEGMENT: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// The URL of a gateway.
///
/// # Errors
/// `server` is not a URL, or one that would let others read the token.
pub(crate) fn base_url(server: &str) -> Result<Url, Failure> {
    let base = Url::parse(server).map_err(|_| wrong_url(server, "is not a URL"))?;
    match base.scheme() {
        "https" => Ok(base),
        "http" if is_loopback(&base) => Ok(base),
        "http" => Err(wrong_url(server, "is not https, and others could read the token")),
        _ => Err(wrong_url(server, "is neither https nor http")),
    }
}

pub(crate) fn wrong_url(server: &str, why: &str) -> Failure {
    Failure::new("gateway.url", format_args!("`{server}` {why}"))
        .with_hint("name the gateway with `--server`, such as `https://tollgate.example`")
}

fn url(server: &str, path: &[&str], query: &[(&str, Option<String>)]) -> Result<Url, Failure> {
    let base = base_url(server)?;
    let mut text = format!("{}/api/v1", base.as_str().trim_end_matches('/'));
    for segment in path {
        text.push('/');
        text.extend(percent_encoding::utf8_percent_encode(segment, SEGMENT));
    }
    let mut url = Url::parse(&text).map_err(|_| wrong_url(server, "is not a URL"))?;
    let values = query.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    for (name, value) in values {
        url.query_pairs_mut().append_pair(name, value);
    }
    Ok(url)
}

/// The failure that a response reports, with a hint.
///
/// - `decision`: id in the response header, for a body that has none.
fn failure_of_response(status: StatusCode, decision: Option<&str>, bytes: &[u8], hint: Hint) -> Failure {
    let document: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let text = |key: &str| document.get(key).and_then(Value::as_str).map(str::to_owned);
    let reason = text("reason").unwrap_or_else(|| format!("http.{}", status.as_u16()));
    let message = text("error").unwrap_or_else(|| format!("the gateway answered {status}"));
    let decision = text("decision").or_else(|| decision.map(str::to_owned));
    let decision = decision.map_or_else(String::new, |id| format!("; decision {id}"));
    let hint = hint(&reason).unwrap_or(match reason.as_str() {
        "no_credential" => "sign in with `tollgate login`, or set `TOLLGATE_AUTH_TOKEN`",
        "invalid_token" | "expired" | "token_expired" | "token_revoked" | "revoked" => {
            "sign in again with `tollgate login`, or set `TOLLGATE_AUTH_TOKEN` to a fresh token"
        }
        _ => "the gateway's log has more",
    });
    Failure::new(&text("code").unwrap_or(reason), message)
        .with_hint(format!("{hint}{decision}"))
        .with_details(refusals(&document))
}

/// A line for each thing the caller may not do, where the answer lists them.
fn refusals(document: &Value) -> Vec<String> {
    let listed = document.get("refusals").and_then(Value::as_array);
    let line = |refusal: &Value| {
        let text = |key: &str| refusal.get(key).and_then(Value::as_str).unwrap_or_default();
        let rule = match text("rule") {
            "" => String::new(),
            rule => format!(" ({rule})"),
        };
        let line = format!("  {}: {}{rule}", text("about"), text("reason"));
        terminal::escape_line(&line).into_owned()
    };
    listed.into_iter().flatten().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{Failure, failure_of_response, url};

    #[test]
    fn tokens_are_sent_only_over_https_or_to_loopback() {
        let path = ["clusters", "a/b", "credential"];
        for (server, expected) in [
            (
                "https://t.example",
                "https://t.example/api/v1/clusters/a%2Fb/credential",
            ),
            (
                "https://t.example/base/",
                "https://t.example/base/api/v1/clusters/a%2Fb/credential",
            ),
            (
                "http://127.0.0.1:1",
                "http://127.0.0.1:1/api/v1/clusters/a%2Fb/credential",
            ),
            ("http://[::1]:1", "http://[::1]:1/api/v1/clusters/a%2Fb/credential"),
        ] {
            assert_eq!(url(server, &path, &[]).unwrap().as_str(), expected);
        }
        for server in [
            "http://t.example",
            "http://localhost.example",
            "ftp://t.example",
            "t.example",
            "",
        ] {
            let failure = url(server, &path, &[]).unwrap_err().to_string();
            assert!(failure.starts_with("gateway.url: "), "{failure}");
        }
        let query = [("user", Some("a&b".to_owned())), ("agent", None)];
        let tokens_url = url("https://t.example", &["tokens"], &query).unwrap();
        assert_eq!(tokens_url.as_str(), "https://t.example/api/v1/tokens?user=a%26b");
    }

    #[test]
    fn refusals_keep_the_code_of_the_provider() {
        let body = br#"{"error":"no","reason":"credential_unavailable","code":"invalid_grant","decision":"d"}"#;
        let line = failure_of_response(reqwest::StatusCode::BAD_GATEWAY, None, body, |_| None).to_string();
        assert!(
            line.starts_with("invalid_grant: no (") && line.ends_with("decision d)"),
            "{line}"
        );
        let line =
            failure_of_response(reqwest::StatusCode::BAD_GATEWAY, Some("d"), b"<html>", |_| Some("look")).to_string();
        assert!(
            line.starts_with("http.502: ") && line.ends_with("(look; decision d)"),
            "{line}"
        );
    }

    #[test]
    fn every_refusal_is_listed() {
        let body = br#"{"error":"a; and 1 more","code":7,"reason":"permission_denied","refusals":[
            {"about":"application `dev/a`","rule":"policy.csv:2: p, u","reason":"no"},
            {"about":"cluster `b`","rule":null,"reason":"not\u001b yours"}]}"#;
        let failure = failure_of_response(reqwest::StatusCode::FORBIDDEN, None, body, |_| None);
        assert_eq!(failure.code, "permission_denied");
        let expected = [
            "  application `dev/a`: no (policy.csv:2: p, u)",
            "  cluster `b`: not? yours",
        ];
        assert_eq!(failure.details, expected);
    }

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::new("invalid_grant", "it\nsays no").with_hint("ask\r\nagain");
        assert_eq!(failure.to_string(), "invalid_grant: it says no (ask again)");
    }
}
