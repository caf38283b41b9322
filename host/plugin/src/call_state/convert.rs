//! Converts what a guest's `mint` returned into a [`Credential`] or a [`MintError`], checked and
//! redacted.
//!
//! Security: a credential cannot set a field that only the gateway may write, and cannot contain
//! a secret that may not go to the cluster.

use std::time::Duration;

use http::HeaderName;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroize as _;

use super::{CallState, HostRefusal};
use crate::bindings::provider::exports::tollgate::plugin::credentials as exports;
use crate::bindings::provider::tollgate::plugin::provider_types as wit;
use crate::bindings::secret::{Handle, Secret};
use tollgate_core::header_names::is_host_owned;
use tollgate_credential::{
    ClientCertificate, Credential, MAX_CODE_BYTES, MAX_MESSAGE_BYTES, MAX_RETRY_AFTER, MintError, MintErrorClass, Token,
};

const MAX_WARNINGS: usize = 8;
/// Fields of one credential, and bytes of all their values.
const MAX_FIELDS: usize = 16;
const MAX_FIELDS_BYTES: usize = 32 << 10;
const MAX_CHAIN_BYTES: usize = 64 << 10;
/// Reason reported when a guest exceeded its requests, regardless of the reason that it gives.
const OVER_BUDGET: &str = "more requests than a call may send";

impl CallState {
    /// The credential that a guest made, checked against the permissions.
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
        let token = token.map(|handle| self.token(handle)).transpose()?;
        let (token, jwt_end) = token.map_or((None, None), |(token, end)| (Some(token), end));
        let certificate = certificate
            .map(|exports::ClientCertificate { chain_pem, key_pem }| {
                let key_pem = self.credential_secret(key_pem, "the key of the certificate")?;
                if chain_pem.len() > MAX_CHAIN_BYTES {
                    let observed = chain_pem.len();
                    return Err(invalid_output(&format!(
                        "a certificate of `{observed}` bytes; at most `{MAX_CHAIN_BYTES}` are allowed"
                    )));
                }
                Ok::<_, MintError>(ClientCertificate { chain_pem, key_pem })
            })
            .transpose()?;
        if token.is_none() && certificate.is_none() {
            return Err(invalid_output("neither a token nor a certificate"));
        }
        let fields = self.credential_headers(headers)?;
        let revocation = revocation.map(|handle| self.revocation(handle)).transpose()?;
        let reported = expires_at.and_then(timestamp);
        Ok(Credential {
            token,
            certificate,
            headers: fields,
            basic: None,
            // A token's own claims are unverified, so they may only shorten its lifetime.
            expires_at: match (reported, jwt_end) {
                (Some(reported), Some(jwt)) => Some(reported.min(jwt)),
                (reported, jwt) => reported.or(jwt),
            },
            cacheable,
            revocation,
            warnings: self.warnings(&warnings),
        })
    }

    fn credential_headers(
        &mut self,
        headers: Vec<(String, Handle)>,
    ) -> Result<Vec<(HeaderName, SecretString)>, MintError> {
        let observed = headers.len();
        if observed > MAX_FIELDS {
            return Err(invalid_output(&format!(
                "`{observed}` fields; at most `{MAX_FIELDS}` are allowed"
            )));
        }
        let mut bytes: usize = 0;
        let mut fields = Vec::with_capacity(observed);
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| invalid_output("a name no header field can have"))?;
            // The first half holds even if the manifest's reader let such a name through.
            if is_host_owned(&name) || !self.permissions.output_headers.contains(&name) {
                return Err(invalid_output(&format!(
                    "the field `{name}`, which is not among its `outputHeaders`"
                )));
            }
            let value = self.credential_secret(value, "the value of a field")?;
            let text = value.expose_secret();
            bytes = bytes.saturating_add(text.len());
            if bytes > MAX_FIELDS_BYTES {
                return Err(invalid_output(&format!(
                    "fields of `{bytes}` bytes; at most `{MAX_FIELDS_BYTES}` are allowed"
                )));
            }
            // Refused once, and not by each request that the credential is for.
            if text.bytes().any(|byte| byte.is_ascii_control()) {
                return Err(invalid_output(&format!("a control character in the field `{name}`")));
            }
            fields.push((name, value));
        }
        Ok(fields)
    }

    /// The secret for `revoke`, with the hosts it may be sent to. `revoke` is a separate call, and
    /// must not send the secret further than this call could.
    fn revocation(&mut self, handle: Handle) -> Result<SecretString, MintError> {
        let secret = self.take_secret(handle)?;
        let value = text(&secret)?;
        let egress_scope = secret.egress_scope().to_line();
        // Of the exact size, because a string that grows leaves a copy of the secret behind.
        let mut kept = String::with_capacity(egress_scope.len() + 1 + value.len());
        kept.push_str(&egress_scope);
        kept.push('\n');
        kept.push_str(value);
        Ok(SecretString::from(kept))
    }

    pub(crate) fn warnings(&self, warnings: &[String]) -> Vec<String> {
        let kept = warnings.iter().take(MAX_WARNINGS);
        kept.map(|warning| self.redactor.redact_line(warning, MAX_MESSAGE_BYTES))
            .collect()
    }

    /// A guest's error, redacted. What the host itself refused decides the class.
    pub(crate) fn mint_error(&self, error: wit::MintError) -> MintError {
        let (class, info) = match error {
            wit::MintError::Retryable(info) => (MintErrorClass::Retryable, info),
            wit::MintError::Denied(info) => (MintErrorClass::Denied, info),
            wit::MintError::Config(info) => (MintErrorClass::Config, info),
            wit::MintError::Permanent(info) => (MintErrorClass::Permanent, info),
        };
        let wit::ErrorInfo {
            code,
            message,
            http_status,
            retry_after_ms,
            correlation,
        } = info;
        let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let good = !code.is_empty() && code.len() <= MAX_CODE_BYTES && code.bytes().all(word);
        let code = if good {
            self.redactor.redact_line(&code, MAX_CODE_BYTES)
        } else {
            "plugin.code".to_owned()
        };
        let message = self.redactor.redact_line(&message, MAX_MESSAGE_BYTES);
        let wait = retry_after_ms.map(|wait| Duration::from_millis(wait.into()).min(MAX_RETRY_AFTER));
        let (error, retry_after) = match &self.host_refusal {
            HostRefusal::Nothing => (MintError::new(class, &code, &message), wait),
            HostRefusal::Refused(reason) => {
                let (code, reason) = reason.split_once(": ").unwrap_or(("egress.denied", reason));
                let text = with_guest_message(reason, &message);
                // The same request would be refused again, so the guest's class and delay do not count.
                (MintError::new(MintErrorClass::Config, code, &text), None)
            }
            HostRefusal::OverBudget => {
                let text = with_guest_message(OVER_BUDGET, &message);
                (MintError::new(MintErrorClass::Permanent, "plugin.budget", &text), None)
            }
        };
        MintError {
            http_status: http_status.filter(|status| (100..=599).contains(status)),
            retry_after,
            correlation: correlation.map(|text| self.redactor.redact_line(&text, 128)),
            ..error
        }
    }

    fn token(&mut self, handle: Handle) -> Result<(Token, Option<Timestamp>), MintError> {
        let secret = self.take_cluster_secret(handle, "the token")?;
        let end = secret.jwt_times().and_then(|times| timestamp(times.expires_at?));
        let text = String::from_utf8(secret.bytes().to_vec()).map_err(|refused| {
            // The error owns the bytes, which would be freed as they are.
            refused.into_bytes().zeroize();
            invalid_output("a token that is not text")
        })?;
        let token = Token::parse(text)
            .map_err(|error| MintError::new(MintErrorClass::Permanent, "token.bytes", &error.to_string()))?;
        Ok((token, end))
    }

    fn credential_secret(&mut self, handle: Handle, what: &str) -> Result<SecretString, MintError> {
        let secret = self.take_cluster_secret(handle, what)?;
        Ok(SecretString::from(text(&secret)?))
    }

    /// Takes a secret that may become part of the credential.
    fn take_cluster_secret(&mut self, handle: Handle, what: &str) -> Result<Secret, MintError> {
        let secret = self.take_secret(handle)?;
        if secret.egress_scope().allows_cluster() {
            return Ok(secret);
        }
        let message =
            format!("{what} is made of a secret that may not become a credential: `cluster: true` in the manifest");
        Err(MintError::new(MintErrorClass::Permanent, "plugin.reach", &message))
    }

    fn take_secret(&mut self, handle: Handle) -> Result<Secret, MintError> {
        self.take(handle)
            .map_err(|_| invalid_output("a handle that is no secret"))
    }
}

/// The host's reason, followed by the guest's message if that is different.
fn with_guest_message(reason: &str, message: &str) -> String {
    if message.is_empty() || message.contains(reason) || reason.contains(message) {
        reason.to_owned()
    } else {
        format!("{reason}; the plugin says: {message}")
    }
}

fn text(secret: &Secret) -> Result<&str, MintError> {
    secret.text().map_err(|_| invalid_output("a secret that is not text"))
}

fn timestamp(milliseconds: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(milliseconds).ok()?).ok()
}

fn invalid_output(what: &str) -> MintError {
    MintError::new(
        MintErrorClass::Permanent,
        "plugin.invalid_output",
        &format!("the plugin returned {what}"),
    )
}
