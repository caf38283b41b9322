//! From a guest's words to the host's.
//!
//! In: what `mint` returned. Out: a [`Credential`] or [`MintError`], checked and
//! redacted. Never: a field only the gateway may write; a secret that was not
//! meant for the cluster.

use std::time::Duration;

use http::HeaderName;
use jiff::Timestamp;
use secrecy::SecretString;
use wasmtime::component::Resource;
use zeroize::Zeroize as _;

use super::call::{Call, Verdict};
use super::redact::MESSAGE_BYTES;
use super::secret::Secret;
use crate::credential::{Class, ClientCertificate, Credential, LONGEST_CODE, LONGEST_RETRY_AFTER, MintError, Token};
use crate::headers::is_host_owned;
use crate::plugin::bindings::provider::exports::tollgate::plugin::credentials as exports;
use crate::plugin::bindings::provider::tollgate::plugin::provider_types as wit;

/// Warnings of one mint that are kept.
const WARNINGS_MOST: usize = 8;

impl Call {
    /// The credential a guest made, held against the rules.
    pub(crate) fn credential(&mut self, made: exports::Credential) -> Result<Credential, MintError> {
        let exports::Credential {
            token,
            certificate,
            headers,
            expires_at,
            cacheable,
            revocation,
            warnings,
        } = made;
        let token = token.map(|handle| self.token(&handle)).transpose()?;
        let (token, jwt_end) = token.map_or((None, None), |(token, end)| (Some(token), end));
        let certificate = certificate
            .map(|exports::ClientCertificate { chain_pem, key_pem }| {
                let key_pem = self.for_cluster(&key_pem, "the key of the certificate")?;
                Ok::<_, MintError>(ClientCertificate { chain_pem, key_pem })
            })
            .transpose()?;
        if token.is_none() && certificate.is_none() {
            return Err(lie("neither a token nor a certificate"));
        }
        let mut fields = Vec::with_capacity(headers.len());
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| lie("a name no header field can have"))?;
            if is_host_owned(&name) || !self.terms.may_carry(&name) {
                return Err(lie(&format!(
                    "the field `{name}`, which is not among its `outputHeaders`"
                )));
            }
            fields.push((name, self.for_cluster(&value, "the value of a field")?));
        }
        let revocation = revocation
            .map(|handle| self.taken(&handle).and_then(|secret| text(&secret)))
            .transpose()?;
        let told = expires_at.and_then(timestamp);
        Ok(Credential {
            token,
            certificate,
            headers: fields,
            basic: None,
            // What a token says of itself is unverified: fit to shorten only.
            expires_at: match (told, jwt_end) {
                (Some(told), Some(jwt)) => Some(told.min(jwt)),
                (told, jwt) => told.or(jwt),
            },
            cacheable,
            revocation,
            warnings: self.warnings(&warnings),
        })
    }

    /// Warnings of a guest, fit to be shown.
    pub(crate) fn warnings(&self, warnings: &[String]) -> Vec<String> {
        let kept = warnings.iter().take(WARNINGS_MOST);
        kept.map(|warning| self.redactor.line(warning, MESSAGE_BYTES)).collect()
    }

    /// A guest's error, redacted. What the host itself refused decides the class.
    pub(crate) fn mint_error(&self, error: wit::MintError) -> MintError {
        let (class, info) = match error {
            wit::MintError::Retryable(info) => (Class::Retryable, info),
            wit::MintError::Denied(info) => (Class::Denied, info),
            wit::MintError::Config(info) => (Class::Config, info),
            wit::MintError::Permanent(info) => (Class::Permanent, info),
        };
        let wit::ErrorInfo {
            code,
            message,
            http_status,
            retry_after_ms,
            correlation,
        } = info;
        let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let good = !code.is_empty() && code.len() <= LONGEST_CODE && code.bytes().all(word);
        let code = if good {
            self.redactor.line(&code, LONGEST_CODE)
        } else {
            "plugin.code".to_owned()
        };
        let class = match self.verdict {
            Verdict::Nothing => class,
            Verdict::Refused => Class::Config,
            Verdict::OverBudget => Class::Permanent,
        };
        MintError {
            http_status: http_status.filter(|status| (100..=599).contains(status)),
            retry_after: retry_after_ms.map(|wait| Duration::from_millis(wait.into()).min(LONGEST_RETRY_AFTER)),
            correlation: correlation.map(|text| self.redactor.line(&text, 128)),
            ..MintError::new(class, &code, &self.redactor.line(&message, MESSAGE_BYTES))
        }
    }

    fn token(&mut self, handle: &Resource<Secret>) -> Result<(Token, Option<Timestamp>), MintError> {
        let secret = self.taken(handle)?;
        if !secret.reach().cluster() {
            return Err(reach("the token"));
        }
        let end = secret
            .jwt_times()
            .and_then(|times| times.expires_at)
            .and_then(timestamp);
        let text = String::from_utf8(secret.bytes().to_vec()).map_err(|refused| {
            refused.into_bytes().zeroize();
            lie("a token that is not text")
        })?;
        let token =
            Token::parse(text).map_err(|error| MintError::new(Class::Permanent, "token.bytes", &error.to_string()))?;
        Ok((token, end))
    }

    fn for_cluster(&mut self, handle: &Resource<Secret>, what: &str) -> Result<SecretString, MintError> {
        let secret = self.taken(handle)?;
        if !secret.reach().cluster() {
            return Err(reach(what));
        }
        text(&secret)
    }

    fn taken(&mut self, handle: &Resource<Secret>) -> Result<Secret, MintError> {
        self.take(Resource::new_own(handle.rep()))
            .map_err(|_| lie("a handle that is no secret"))
    }
}

fn text(secret: &Secret) -> Result<SecretString, MintError> {
    let text = secret.text().map_err(|_| lie("a secret that is not text"))?;
    Ok(SecretString::from(text))
}

fn timestamp(milliseconds: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(milliseconds).ok()?).ok()
}

fn lie(what: &str) -> MintError {
    MintError::new(Class::Permanent, "plugin.lie", &format!("the plugin returned {what}"))
}

fn reach(what: &str) -> MintError {
    let message =
        format!("{what} is made of a secret that may not become a credential: `cluster: true` in the manifest");
    MintError::new(Class::Permanent, "plugin.reach", &message)
}
