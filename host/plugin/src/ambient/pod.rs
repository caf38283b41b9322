//! Fetches the pod's identities from cloud metadata services and from Kubernetes, as the setting
//! `plugins.ambient` says. The operator writes that setting, or the pod's environment provides it.
//!
//! These link-local services speak plain HTTP, so the host asks them and guests cannot.
//!
//! Security: requests use no proxy, follow no redirect and go only to the addresses fixed here.
//! No token is kept.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Collected, Limited};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroize as _;

use super::{Ambient, AmbientError, AwsCredentials, BearerToken};

/// Time limit of one response of a service on the same machine.
const TIMEOUT: Duration = Duration::from_secs(3);
const MAX_TOKEN_FILE_BYTES: u64 = 64 << 10;
/// Longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 256 << 10;
/// Lifetime in seconds that the TokenRequest asks for.
const TOKEN_SECONDS: u32 = 3600;
/// GCE's metadata server, by address because its name could resolve elsewhere.
const GCE: &str = "http://169.254.169.254/computeMetadata/v1/instance/service-accounts/default/token";
const IMDS: &str = "http://169.254.169.254/metadata/identity/oauth2/token";

#[derive(Debug)]
pub(crate) struct PodIdentities {
    config: tollgate_config::Ambient,
    http: Result<reqwest::Client, String>,
}

impl PodIdentities {
    /// Reads nothing yet.
    pub(crate) fn new(config: &tollgate_config::Ambient) -> Self {
        Self {
            config: config.clone(),
            http: client().build().map_err(|error| error.to_string()),
        }
    }

    async fn token(&self, audience: &str) -> Result<BearerToken, AmbientError> {
        if let Some(file) = self.config.service_account_tokens.get(audience) {
            return Ok(BearerToken {
                token: read(file).await?,
                // The host uses the token's own `exp`.
                expires_at: None,
            });
        }
        let Some(api) = &self.config.kubernetes else {
            return Err(AmbientError::Unavailable(format!(
                "no token for audience `{audience}`: project one and name its file in \
                 `plugins.ambient.serviceAccountTokens`, or run in a pod that may create tokens for its own account"
            )));
        };
        self.request_token(api, audience).await
    }

    /// Requests a token of the pod's own account, for an audience without a projected token.
    /// Source: Kubernetes, `TokenRequest`.
    async fn request_token(
        &self,
        api: &tollgate_config::KubernetesApi,
        audience: &str,
    ) -> Result<BearerToken, AmbientError> {
        let own = read(&api.token_file).await?;
        let (namespace, account) = account(own.expose_secret())
            .ok_or_else(|| AmbientError::Unavailable("the pod's own token is no ServiceAccount token".to_owned()))?;
        let authority = tokio::fs::read(&api.ca_file)
            .await
            .map_err(|error| file(&api.ca_file, &error))?;
        let authority = reqwest::Certificate::from_pem(&authority)
            .map_err(|_| AmbientError::Unavailable(format!("`{}` is no certificate", api.ca_file.display())))?;
        let client = client()
            .tls_certs_only([authority])
            .build()
            .map_err(|error| unreachable("the API server", &error))?;
        let url = format!(
            "{}/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
            api.server
        );
        let body = serde_json::json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [audience], "expirationSeconds": TOKEN_SECONDS},
        });
        let request = client.post(url).bearer_auth(own.expose_secret()).json(&body);
        let mut answer = json("the API server", request.send().await).await?;
        let token = take(&mut answer, "/status/token").ok_or_else(|| no_token("the API server"))?;
        let end = answer.pointer("/status/expirationTimestamp").and_then(Value::as_str);
        Ok(BearerToken {
            token,
            expires_at: end.and_then(|end| end.parse().ok()),
        })
    }

    async fn get(&self, what: &str, url: &str, name: &str, value: &str) -> Result<Value, AmbientError> {
        let client = self.http.as_ref();
        let client = client.map_err(|error| AmbientError::Unavailable(error.clone()))?;
        json(what, client.get(url).header(name, value).send().await).await
    }

    /// An access token of a metadata server, which wants to see one header field.
    async fn bearer(
        &self,
        what: &str,
        url: &str,
        query: &[(&str, &str)],
        name: &str,
        value: &str,
    ) -> Result<BearerToken, AmbientError> {
        // Before the request, because the lifetime in the answer began at the latest when it was sent.
        let before = Timestamp::now();
        let mut url = url::Url::parse(url).map_err(|error| AmbientError::Unavailable(error.to_string()))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut answer = self.get(what, url.as_str(), name, value).await?;
        let token = take(&mut answer, "/access_token").ok_or_else(|| no_token(what))?;
        Ok(BearerToken::expiring(token, &answer, before))
    }
}

impl Ambient for PodIdentities {
    fn service_account_token(&self, audience: String) -> BoxFuture<'_, Result<BearerToken, AmbientError>> {
        Box::pin(async move { self.token(&audience).await })
    }

    fn eks_pod_identity(&self) -> BoxFuture<'_, Result<AwsCredentials, AmbientError>> {
        Box::pin(async move {
            let Some(agent) = &self.config.eks_pod_identity else {
                return Err(AmbientError::Unavailable(
                    "no EKS Pod Identity here: `AWS_CONTAINER_CREDENTIALS_FULL_URI` and \
                     `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE` are not set"
                        .to_owned(),
                ));
            };
            let token = read(&agent.token_file).await?;
            let what = "the EKS Pod Identity agent";
            let authorization = token.expose_secret();
            let mut answer = self.get(what, &agent.url, "authorization", authorization).await?;
            let missing = || no_token(what);
            let text = |name| answer.get(name).and_then(Value::as_str);
            let (id, end) = (text("AccessKeyId").map(str::to_owned), text("Expiration"));
            Ok(AwsCredentials {
                expires_at: end.and_then(|end| end.parse().ok()),
                access_key_id: id.ok_or_else(missing)?,
                secret_access_key: take(&mut answer, "/SecretAccessKey").ok_or_else(missing)?,
                session_token: take(&mut answer, "/Token"),
            })
        })
    }

    fn gce_metadata_token(&self, scopes: Vec<String>) -> BoxFuture<'_, Result<BearerToken, AmbientError>> {
        Box::pin(async move {
            let joined = scopes.join(",");
            let query: Vec<_> = scopes
                .first()
                .map(|_| ("scopes", joined.as_str()))
                .into_iter()
                .collect();
            let what = "the GCE metadata server";
            self.bearer(what, GCE, &query, "metadata-flavor", "Google").await
        })
    }

    fn azure_imds_token(
        &self,
        application: String,
        client_id: Option<String>,
    ) -> BoxFuture<'_, Result<BearerToken, AmbientError>> {
        Box::pin(async move {
            let mut query = vec![("api-version", "2018-02-01"), ("resource", application.as_str())];
            query.extend(client_id.as_deref().map(|client| ("client_id", client)));
            let what = "Azure's metadata service";
            self.bearer(what, IMDS, &query, "metadata", "true").await
        })
    }
}

/// Takes a string out of a response, so that no copy stays behind.
fn take(answer: &mut Value, pointer: &str) -> Option<SecretString> {
    match answer.pointer_mut(pointer)?.take() {
        Value::String(text) if !text.is_empty() => Some(SecretString::from(text)),
        _ => None,
    }
}

async fn json(what: &str, sent: reqwest::Result<reqwest::Response>) -> Result<Value, AmbientError> {
    let response = sent.map_err(|error| unreachable(what, &error))?;
    let status = response.status();
    if status.is_success() {
        let answer = serde_json::from_slice(&content(response).await);
        return answer.map_err(|_| {
            AmbientError::Unavailable(format!("{what} answered no JSON of at most {MAX_ANSWER_BYTES} bytes"))
        });
    }
    let code = code(&content(response).await).unwrap_or_default();
    let text = format!("{what} answered {}{code}", status.as_u16());
    // The EKS agent refuses with 400.
    let refused = matches!(status.as_u16(), 400 | 401 | 403 | 404);
    Err(if refused {
        AmbientError::Denied(text)
    } else {
        AmbientError::Unavailable(text)
    })
}

/// A whole answer; empty if it is cut off or too long.
async fn content(response: reqwest::Response) -> Bytes {
    let body = Limited::new(reqwest::Body::from(response), MAX_ANSWER_BYTES);
    body.collect().await.map(Collected::to_bytes).unwrap_or_default()
}

/// The service's short error code. The rest of the body may contain secrets.
fn code(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Refused {
        #[serde(alias = "error", alias = "reason", alias = "Code")]
        code: String,
    }
    let refused: Refused = serde_json::from_slice(body).ok()?;
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_short_word = refused.code.len() <= 64 && refused.code.bytes().all(word);
    is_short_word.then(|| format!(" ({})", refused.code))
}

fn client() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(TIMEOUT)
}

/// The current content of a token file, without a trailing line break.
pub(crate) async fn read(path: &Path) -> Result<SecretString, AmbientError> {
    let metadata = tokio::fs::metadata(path).await.map_err(|error| file(path, &error))?;
    if metadata.len() > MAX_TOKEN_FILE_BYTES {
        let text = format!(
            "`{}` has `{}` bytes; at most `{MAX_TOKEN_FILE_BYTES}` are allowed",
            path.display(),
            metadata.len()
        );
        return Err(AmbientError::Unavailable(text));
    }
    let mut text = tokio::fs::read_to_string(path)
        .await
        .map_err(|error| file(path, &error))?;
    let token = SecretString::from(text.trim());
    text.zeroize();
    Ok(token)
}

/// Namespace and name in a ServiceAccount token's `sub`.
fn account(token: &str) -> Option<(String, String)> {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    let subject = claims.get("sub")?.as_str()?.strip_prefix("system:serviceaccount:")?;
    let (namespace, name) = subject.split_once(':')?;
    // Both become parts of a URL. Nobody has checked the token that names them.
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let good = |part: &str| !part.is_empty() && part.bytes().all(is_name_byte);
    (good(namespace) && good(name)).then(|| (namespace.to_owned(), name.to_owned()))
}

fn file(path: &Path, error: &std::io::Error) -> AmbientError {
    AmbientError::Unavailable(format!("cannot read `{}`: {error}", path.display()))
}

fn unreachable(what: &str, error: &reqwest::Error) -> AmbientError {
    let cause = if error.is_timeout() {
        "no answer in time"
    } else {
        "no connection"
    };
    AmbientError::Unavailable(format!("{what} cannot be reached: {cause}"))
}

fn no_token(what: &str) -> AmbientError {
    AmbientError::Unavailable(format!("{what} answered without a credential"))
}
