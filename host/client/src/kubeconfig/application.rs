//! Makes the parts of a kubeconfig for an Application: its cluster's URL at the gateway, and the
//! user's entry. A name that would not be exactly one path segment is refused.
//!
//! Security: the user's entry refers to the file with the token and does not copy the token.

use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use url::Url;

use super::{content, first_line, wrong_file};
use crate::api::{base_url, wrong_url};
use crate::failure::Failure;
use tollgate_objects::ObjectName;

/// Characters to encode in a path segment: all but those of Kubernetes names. The gateway refuses
/// encoded dots.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) fn parse_name(text: &str) -> Result<ObjectName, &'static str> {
    let is_name = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('/');
    let named = text.split_once('/');
    let (namespace, name) = named
        .filter(|(namespace, name)| is_name(namespace) && is_name(name))
        .ok_or("is not NAMESPACE/NAME, such as `argocd/guestbook`")?;
    Ok(ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

pub(super) fn context_name(application: &ObjectName) -> String {
    format!("{}-{}", application.namespace, application.name)
}

/// The URL of its cluster at the gateway.
pub(super) fn cluster_url(application: &ObjectName, gateway: &str) -> Result<Url, Failure> {
    let base = base_url(gateway)?;
    if base.query().is_some() || base.fragment().is_some() {
        return Err(wrong_url(gateway, "has a query or a fragment"));
    }
    let ObjectName { namespace, name } = application;
    let [namespace, name] = [namespace, name].map(|text| utf8_percent_encode(text, SEGMENT));
    let base = base.as_str().trim_end_matches('/');
    let text = format!("{base}/applications/{namespace}/{name}/k8s");
    Url::parse(&text).map_err(|_| wrong_url(gateway, "is not a URL"))
}

/// A user entry that names the file: clients read it again when it changes, and the kubeconfig has
/// no secret in it.
///
/// Source: client-go, `tokenFile`, which takes blanks around the token away.
///
/// # Errors
/// The file cannot be read, or contains anything but a token of Argo CD or an ID token.
pub(super) fn token_file(path: &Path) -> Result<Value, Failure> {
    let text = content(path)?;
    let token = first_line(path, &text)?;
    if text.trim() != token {
        let why = "there is more in it than a token, and clients would send all of it";
        return Err(wrong_file(path, &why));
    }
    if token.split('.').count() != 3 {
        let why = "it contains neither a token of Argo CD nor an ID token";
        return Err(wrong_file(path, &why).with_hint(CREDENTIALS));
    }
    // Clients resolve a relative path against the folder of the kubeconfig.
    let absolute = std::path::absolute(path).map_err(|error| wrong_file(path, &error))?;
    let absolute = absolute
        .to_str()
        .ok_or_else(|| wrong_file(path, &"its path is not UTF-8"))?;
    Ok(json!({ "tokenFile": absolute }))
}

const CREDENTIALS: &str = "`argocd account session-token`, `argocd account generate-token` and \
                           `argocd proj role create-token` print one";

pub(super) fn no_credential() -> Failure {
    Failure::new(
        "kubeconfig.credential",
        "a kubeconfig for an Application needs a login (`tollgate login`), `--token-file`, or `--oidc-issuer` with \
         `--oidc-client-id`",
    )
    .with_hint(CREDENTIALS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{cluster_url, context_name, parse_name, token_file};

    #[test]
    fn the_cluster_url_is_built_from_the_application_name() {
        let url = |text: &str, gateway: &str| {
            let url = cluster_url(&parse_name(text).unwrap(), gateway);
            url.map(|url| url.to_string()).map_err(|error| error.to_string())
        };
        for (text, gateway, expected) in [
            (
                "argocd/guestbook",
                "https://t.example",
                "https://t.example/applications/argocd/guestbook/k8s",
            ),
            (
                "team-a/shop.v1",
                "https://t.example/base/",
                "https://t.example/base/applications/team-a/shop.v1/k8s",
            ),
            (
                "a?b/c d%",
                "http://127.0.0.1:1",
                "http://127.0.0.1:1/applications/a%3Fb/c%20d%25/k8s",
            ),
        ] {
            assert_eq!(url(text, gateway).unwrap(), expected);
        }
        for gateway in [
            "http://t.example",
            "ftp://t.example",
            "t.example",
            "https://t.example?a",
        ] {
            let error = url("a/b", gateway).unwrap_err();
            assert!(error.starts_with("gateway.url: "), "{error}");
        }
        for text in ["guestbook", "/guestbook", "argocd/", "a/b/c", "../a", "a/..", "./a", ""] {
            assert!(parse_name(text).is_err(), "{text}");
        }
        assert_eq!(context_name(&parse_name("argocd/cart").unwrap()), "argocd-cart");
    }

    #[test]
    fn the_kubeconfig_refers_to_the_token_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let entry = |text: &str| {
            std::fs::write(&path, text).unwrap();
            token_file(&path).map_err(|error| error.to_string())
        };
        let named = json!({ "tokenFile": path.to_str().unwrap() });
        assert_eq!(entry("a.b.c"), Ok(named.clone()));
        assert_eq!(entry("a.b.c\n"), Ok(named));
        for (text, why) in [
            ("a.b.c\nd.e.f\n", "more in it than a token"),
            ("tgpat-x", "`argocd account session-token`"),
            ("", "the first line is not a token"),
            ("a.b c", "the first line is not a token"),
        ] {
            let error = entry(text).unwrap_err();
            assert!(
                error.starts_with("kubeconfig.token: ") && error.contains(why),
                "{text}: {error}"
            );
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
        assert!(token_file(&folder.path().join("none")).is_err());
    }
}
