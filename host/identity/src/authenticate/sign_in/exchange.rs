//! The two requests that turn what a person proved into a token: a code into an ID token, and a
//! password into a session of Argo CD.

use reqwest::{RequestBuilder, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::{ArgocdSignIn, Attempt, OidcIssuer, ProviderMetadata, RelyingParty, SignInError, endpoint_url};
use crate::authenticate::fetch;
use crate::http_client;

const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// Longest text of an issuer that is shown, in characters.
const MAX_TEXT: usize = 300;

/// What an issuer gives for a code.
#[derive(Debug, Deserialize)]
pub(super) struct Tokens {
    pub(super) id_token: SecretString,
    pub(super) access_token: Option<SecretString>,
}

#[derive(Deserialize)]
struct TokenError {
    error: String,
    error_description: Option<String>,
}

/// Redeems a code (OpenID Connect Core, section 3.1.3; RFC 7636, section 4.5).
pub(super) async fn redeem(
    issuer: &OidcIssuer,
    client: &RelyingParty,
    provider: &ProviderMetadata,
    code: &SecretString,
    attempt: &Attempt,
    callback: &Url,
) -> Result<Tokens, SignInError> {
    let wrong = |reason: String| SignInError::Issuer {
        issuer: issuer.verifier.name.clone(),
        reason,
    };
    let url = endpoint_url(issuer, "token_endpoint", provider.token_endpoint.as_deref())?;
    let secret = match &client.settings.secret_file {
        Some(file) => Some(
            fetch::read_client_secret(file)
                .await
                .map_err(|error| wrong(error.to_string()))?,
        ),
        None => None,
    };
    let failed = |error: fetch::FetchError| wrong(format!("its `token_endpoint`: {error}"));
    client.own.check(&url).await.map_err(failed)?;
    // The code is worth a login, too.
    client.own.check_secret(&url).map_err(failed)?;
    let mut form = vec![
        ("grant_type", "authorization_code"),
        ("code", code.expose_secret()),
        ("redirect_uri", callback.as_str()),
        ("code_verifier", &attempt.verifier),
    ];
    let methods = &provider.token_endpoint_auth_methods_supported;
    // Without a list, `client_secret_basic` is the method (OpenID Connect Discovery, section 3).
    let is_basic = methods.is_empty() || methods.iter().any(|method| method == "client_secret_basic");
    let mut request = client.http.post(url);
    match &secret {
        Some(secret) if is_basic => {
            // RFC 6749, section 2.3.1: both are form-encoded first.
            let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let password = encoded(secret.expose_secret());
            request = request.basic_auth(encoded(&client.settings.id), Some(password));
        }
        Some(secret) => {
            form.push(("client_id", &client.settings.id));
            form.push(("client_secret", secret.expose_secret()));
        }
        None => form.push(("client_id", &client.settings.id)),
    }
    let content = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(form)
        .finish();
    let request = request
        .header(http::header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(http::header::ACCEPT, "application/json")
        .body(content);
    let (status, body) = answer(request).await.map_err(wrong)?;
    if status != 200 {
        return Err(match serde_json::from_slice::<TokenError>(&body) {
            Ok(refused) => SignInError::Refused {
                code: shortened(&refused.error),
                description: refused.error_description.as_deref().map(shortened),
            },
            Err(_) => wrong(format!("its token endpoint answered {status}")),
        });
    }
    serde_json::from_slice(&body).map_err(|_| wrong("its token endpoint gave no ID token".to_owned()))
}

/// The session that argocd-server makes for an account.
pub(super) async fn argocd_session(
    server: &ArgocdSignIn,
    username: &str,
    password: &SecretString,
) -> Result<SecretString, SignInError> {
    #[derive(Deserialize)]
    struct Session {
        token: SecretString,
    }
    let wrong = |reason: String| SignInError::Issuer {
        issuer: server.url.origin().ascii_serialization(),
        reason,
    };
    let content = json!({ "username": username, "password": password.expose_secret() });
    let request = server.http.post(server.url.clone()).json(&content);
    let (status, body) = answer(request).await.map_err(wrong)?;
    match status {
        200 => {
            let session: Result<Session, _> = serde_json::from_slice(&body);
            session
                .map(|session| session.token)
                .map_err(|_| wrong("it gave no session".to_owned()))
        }
        400 | 401 | 403 => Err(SignInError::Password),
        status => Err(wrong(format!("it answered {status}"))),
    }
}

async fn answer(request: RequestBuilder) -> Result<(u16, Vec<u8>), String> {
    let failed = |error: reqwest::Error| fetch::cause(&error.without_url());
    let response: Response = request.send().await.map_err(failed)?;
    let status = response.status().as_u16();
    let body = http_client::bounded_body(response, MAX_ANSWER_BYTES)
        .await
        .map_err(failed)?;
    Ok((status, body.ok_or("its answer is too long")?))
}

/// A text of an issuer, for people.
fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}
