//! A credential from a running gateway.
//!
//! In: its URL, the caller's token. Out: an `ExecCredential`. Refuses: to send
//! the token where others can read it. Never: a redirect followed.

use std::time::Duration;

use secrecy::ExposeSecret as _;
use serde_json::Value;
use url::Url;

use crate::config::is_loopback;
use zeroize::Zeroizing;

use super::{Failure, Version, Via, runtime};

/// Longest wait for the whole answer: the gateway itself waits up to 15 s for a
/// mint.
const WITHIN: Duration = Duration::from_secs(30);

/// Longest answer read, in bytes.
const ANSWER_BYTES: usize = 1 << 20;

/// Asks the gateway.
pub(super) fn fetch(from: &Via, cluster: &str, version: Version) -> Result<Zeroizing<String>, Failure> {
    runtime()?.block_on(ask(from, cluster, version))
}

async fn ask(from: &Via, cluster: &str, version: Version) -> Result<Zeroizing<String>, Failure> {
    let url = url(&from.server, cluster)?;
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(WITHIN);
    if let Some(path) = &from.certificate_authority {
        let named = |error: &dyn std::fmt::Display| {
            Failure::new("gateway.authority", format_args!("`{}`: {error}", path.display()))
        };
        let pem = std::fs::read(path).map_err(|error| named(&error))?;
        let roots = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| named(&error))?;
        builder = builder.tls_certs_only(roots);
    }
    if url.scheme() == "http" {
        // Loopback; a proxy of the environment would read the token.
        builder = builder.no_proxy();
    }
    let client = builder.build().map_err(|error| Failure::new("gateway.tls", error))?;
    let mut request = client.get(url);
    if let Some(token) = &from.auth_token {
        request = request.bearer_auth(token.expose_secret());
    }
    let mut answer = request.send().await.map_err(|error| {
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        Failure::new(
            "gateway.unreachable",
            format_args!("the gateway at `{}` does not answer: {cause}", from.server),
        )
        .with_hint("name it with `--server`, or mint here with `--config FILE`")
    })?;
    let status = answer.status();
    let mut bytes = Zeroizing::new(Vec::with_capacity(16 << 10));
    let broken = |error| Failure::new("gateway.answer", error);
    while let Some(chunk) = answer.chunk().await.map_err(broken)? {
        if bytes.len().saturating_add(chunk.len()) > ANSWER_BYTES {
            return Err(Failure::new("gateway.answer", "the answer is too long"));
        }
        bytes.extend_from_slice(&chunk);
    }
    if !status.is_success() {
        return Err(refused(status, &bytes));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| Failure::new("gateway.answer", "the answer is no text"))?;
    spoken(text, version)
}

/// The gateway answers in the latest version; another one says the same.
fn spoken(text: &str, version: Version) -> Result<Zeroizing<String>, Failure> {
    let mut document = super::parse(text)?;
    if document.get("kind").and_then(Value::as_str) != Some("ExecCredential") {
        return Err(Failure::new("gateway.answer", "the answer is no ExecCredential")
            .with_hint("`--server` is the gateway's public listener"));
    }
    if let Some(api) = document.get_mut("apiVersion") {
        *api = version.as_str().into();
    }
    let written = serde_json::to_string(&document).map(Zeroizing::new);
    super::erase(&mut document);
    written.map_err(|error| Failure::new("host.output", error))
}

fn url(server: &str, cluster: &str) -> Result<Url, Failure> {
    let wrong = |why: &str| {
        Failure::new("gateway.url", format_args!("`{server}` {why}")).with_hint("such as `https://tollgate.example`")
    };
    let base = Url::parse(server).map_err(|_| wrong("is not a URL"))?;
    match base.scheme() {
        "https" => {}
        "http" if is_loopback(&base) => {}
        "http" => return Err(wrong("is not https, and others could read the token")),
        _ => return Err(wrong("is neither https nor http")),
    }
    let encoded = percent_encoding::utf8_percent_encode(cluster, percent_encoding::NON_ALPHANUMERIC);
    let path = format!(
        "{}/api/v1/clusters/{encoded}/credential",
        base.as_str().trim_end_matches('/')
    );
    Url::parse(&path).map_err(|_| wrong("is not a URL"))
}

/// What the gateway said, with what may help.
fn refused(status: reqwest::StatusCode, bytes: &[u8]) -> Failure {
    let document: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let text = |key: &str| document.get(key).and_then(Value::as_str).map(str::to_owned);
    let reason = text("reason").unwrap_or_else(|| format!("http.{}", status.as_u16()));
    let message = text("error").unwrap_or_else(|| format!("the gateway answered {status}"));
    let decision = text("decision").map_or_else(String::new, |id| format!("; decision {id}"));
    let hint = match reason.as_str() {
        "no_credential" => "set `TOLLGATE_AUTH_TOKEN`",
        "invalid_token" | "expired" | "token_expired" | "revoked" => "set `TOLLGATE_AUTH_TOKEN` to a fresh token",
        "permission_denied" => "it needs `clusters, get` and `credentials, get` on the cluster's server",
        "credential_unavailable" => "an operator sees why with `tollgate credential explain`",
        _ => "the gateway's log has more",
    };
    Failure::new(&text("code").unwrap_or(reason), message).with_hint(format!("{hint}{decision}"))
}

#[cfg(test)]
mod tests {
    use super::{Version, refused, spoken, url};

    #[test]
    fn tokens_go_to_https_or_to_this_machine() {
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
            assert_eq!(url(server, "a/b").unwrap().as_str(), expected);
        }
        for server in [
            "http://t.example",
            "http://localhost.example",
            "ftp://t.example",
            "t.example",
            "",
        ] {
            let failure = url(server, "a").unwrap_err().to_string();
            assert!(failure.starts_with("gateway.url: "), "{failure}");
        }
    }

    #[test]
    fn an_answer_is_said_in_the_version_asked_for() {
        let text = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}"#;
        let said = spoken(text, Version::V1Beta1).unwrap();
        assert!(said.contains(r#""client.authentication.k8s.io/v1beta1""#) && said.contains(r#""token":"t""#));
        for other in ["{}", "<html>", r#"{"kind":"Status"}"#] {
            assert!(spoken(other, Version::V1).is_err(), "{other}");
        }
    }

    #[test]
    fn refusals_keep_the_code_of_the_provider() {
        let body = br#"{"error":"no","reason":"credential_unavailable","code":"invalid_grant","decision":"d"}"#;
        let line = refused(reqwest::StatusCode::BAD_GATEWAY, body).to_string();
        assert!(
            line.starts_with("invalid_grant: no (") && line.ends_with("decision d)"),
            "{line}"
        );
        let line = refused(reqwest::StatusCode::BAD_GATEWAY, b"<html>").to_string();
        assert!(line.starts_with("http.502: "), "{line}");
    }
}
