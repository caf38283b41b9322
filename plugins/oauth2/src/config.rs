//! The provider's configuration. It refuses combinations that the RFCs forbid.

use core::ops::Deref;

use serde::Deserialize;
use tollgate_provider::Error;

/// The OAuth grant.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Grant {
    /// RFC 6749, section 4.4.
    ClientCredentials,
    /// RFC 8693.
    TokenExchange,
}

/// How the client authenticates.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// `client_secret_basic`.
    #[default]
    Basic,
    /// `client_secret_post`.
    Post,
    /// RFC 7523.
    PrivateKeyJwt,
    /// The client does not authenticate.
    None,
}

/// The algorithm that signs client assertions.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5.
    #[default]
    Rs256,
    /// RSASSA-PSS.
    Ps256,
    /// ECDSA on P-256.
    Es256,
}

/// One string or a list of strings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "OneOrMany")]
pub struct Texts(Vec<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for Texts {
    fn from(texts: OneOrMany) -> Self {
        match texts {
            OneOrMany::One(text) => Self(vec![text]),
            OneOrMany::Many(texts) => Self(texts),
        }
    }
}

impl Deref for Texts {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

/// A client, a token endpoint and the requested token. Fields that end in `_ref` name values of the
/// cluster's Secret.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    pub grant: Grant,
    /// URL of the token endpoint. It may have a query.
    pub endpoint: String,
    #[serde(default)]
    pub client_auth: ClientAuth,
    pub client_id: Option<String>,
    pub client_secret_ref: Option<String>,
    pub key_ref: Option<String>,
    /// `kid` of the assertion.
    pub kid: Option<String>,
    #[serde(default)]
    pub algorithm: Algorithm,
    /// `aud` of the assertion. The default is the endpoint.
    pub assertion_audience: Option<String>,
    #[serde(default)]
    pub resource: Texts,
    #[serde(default)]
    pub audience: Texts,
    #[serde(default)]
    pub scope: Texts,
    /// `ambient:sa-token`: exchanges a ServiceAccount token of the gateway's pod.
    pub subject_token: Option<String>,
    /// Audience of that token.
    pub subject_audience: Option<String>,
    pub subject_token_ref: Option<String>,
    pub subject_token_type: Option<String>,
    pub requested_token_type: Option<String>,
    pub actor_token_ref: Option<String>,
    pub actor_token_type: Option<String>,
}

impl Config {
    /// Name of the client secret.
    pub fn client_secret_ref(&self) -> &str {
        self.client_secret_ref.as_deref().unwrap_or("clientSecret")
    }

    /// Name of the private key.
    pub fn key_ref(&self) -> &str {
        self.key_ref.as_deref().unwrap_or("privateKey")
    }

    /// Name of the subject token.
    pub fn subject_token_ref(&self) -> &str {
        self.subject_token_ref.as_deref().unwrap_or("subjectToken")
    }

    /// Checks what a schema cannot express, and returns warnings.
    ///
    /// # Errors
    /// `config`: a combination that no endpoint accepts.
    pub fn validate(&self) -> Result<Vec<String>, Error> {
        let refuse = |text: &str| Err(Error::config("oauth2.config", text));
        if self.client_auth != ClientAuth::None && self.client_id.is_none() {
            return refuse("`clientId` is missing; `clientAuth: none` needs none");
        }
        if let Some(resource) = self.resource.iter().find(|text| !is_resource(text)) {
            let text = format!("`resource` must be an absolute URI without a fragment, not `{resource}`");
            return refuse(&text);
        }
        match self.grant {
            Grant::TokenExchange => self.validate_exchange(),
            Grant::ClientCredentials if self.has_exchange_settings() => {
                refuse("subject and actor tokens belong to `grant: token-exchange`")
            }
            Grant::ClientCredentials if self.client_auth == ClientAuth::None => {
                refuse("`grant: client-credentials` needs a client authentication (RFC 6749, section 4.4)")
            }
            Grant::ClientCredentials => Ok(Vec::new()),
        }
    }

    fn validate_exchange(&self) -> Result<Vec<String>, Error> {
        let refuse = |text: &str| Err(Error::config("oauth2.config", text));
        if self.subject_token_type.is_none() {
            return refuse("`subjectTokenType` is missing");
        }
        match (&self.actor_token_ref, &self.actor_token_type) {
            (Some(_), None) => return refuse("`actorTokenRef` needs `actorTokenType` (RFC 8693, section 2.1)"),
            (None, Some(_)) => return refuse("`actorTokenType` needs `actorTokenRef` (RFC 8693, section 2.1)"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        match (&self.subject_token, &self.subject_audience, &self.subject_token_ref) {
            (Some(_), Some(_), None) | (None, None, _) => Ok(Vec::new()),
            (Some(_), None, _) => refuse("`subjectToken: ambient:sa-token` needs `subjectAudience`"),
            (None, Some(_), _) => refuse("`subjectAudience` needs `subjectToken: ambient:sa-token`"),
            (Some(_), Some(_), Some(_)) => refuse("`subjectToken` and `subjectTokenRef` exclude each other"),
        }
    }

    /// Whether a setting for token exchange is configured.
    fn has_exchange_settings(&self) -> bool {
        [
            &self.subject_token,
            &self.subject_audience,
            &self.subject_token_ref,
            &self.subject_token_type,
            &self.actor_token_ref,
            &self.actor_token_type,
        ]
        .iter()
        .any(|text| text.is_some())
    }
}

/// Whether `text` is an absolute URI without a fragment (RFC 8707, section 2).
fn is_resource(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let letter = scheme.starts_with(|letter: char| letter.is_ascii_alphabetic());
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let clean = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    letter && scheme.bytes().all(good) && !rest.is_empty() && rest.bytes().all(clean)
}
