//! Prints a token that somebody else renews in a file, such as the kubelet a projected ServiceAccount token.
//!
//! Security: the token is not verified here; its recipient does that.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::ExecCredentialVersion;
use tollgate_client::failure::Failure;
use tollgate_client::input::read_file_or_stdin;
use tollgate_credential::exec::exec_credential;
use tollgate_credential::{Credential, Token};

/// Most bytes that are read.
const MAX_BYTES: u64 = 16 * 1024;

/// How long before it expires the token is read again. The kubelet renews it when a fifth of its lifetime
/// is left, two minutes at least.
const MARGIN: SignedDuration = SignedDuration::from_secs(60);

/// The claims of a JSON Web Token that are needed.
#[derive(Deserialize)]
struct Claims {
    exp: Option<i64>,
}

/// An `ExecCredential` with the token of a file. A token without `exp` never expires.
///
/// # Errors
/// The file cannot be read, or its token has expired.
pub(super) fn read(file: &Path, now: Timestamp, version: ExecCredentialVersion) -> Result<Zeroizing<String>, Failure> {
    let shown = file.display();
    let wrong = |why: &str| Failure::new("token_file", format_args!("`--token-file {shown}`: {why}"));
    let text = read_file_or_stdin(file, MAX_BYTES).map_err(|error| wrong(&error.to_string()))?;
    let text = Zeroizing::new(text);
    let expires_at = expiry(text.trim());
    if let Some(expiry) = expires_at.filter(|expiry| *expiry <= now) {
        return Err(wrong(&format!("its token expired on {expiry}")).with_hint("does somebody renew the file?"));
    }
    let token = Token::parse(text.trim().to_owned()).map_err(|error| wrong(&format!("it holds no token: {error}")))?;
    let until = expires_at.map(|expiry| expiry.checked_sub(MARGIN).unwrap_or(expiry));
    exec_credential(&Credential::from_token(token), until, version).ok_or_else(|| wrong("it holds no token"))
}

fn expiry(token: &str) -> Option<Timestamp> {
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Claims = serde_json::from_slice(&payload).ok()?;
    Timestamp::from_second(claims.exp?).ok()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{ExecCredentialVersion, read};

    fn printed(text: &str) -> Result<Value, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, text).unwrap();
        let now = Timestamp::from_second(1000).unwrap();
        let document = read(&file, now, ExecCredentialVersion::V1).map_err(|failure| failure.to_string())?;
        let document: Value = serde_json::from_str(&document).unwrap();
        Ok(document["status"].clone())
    }

    fn token(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn a_token_is_used_until_shortly_before_it_expires() {
        let expiring = token(&json!({"exp": 4600}));
        let expected = json!({"token": expiring, "expirationTimestamp": "1970-01-01T01:15:40Z"});
        assert_eq!(printed(&format!("{expiring}\n")), Ok(expected));
        let endless = token(&json!({"sub": "a"}));
        assert_eq!(printed(&endless), Ok(json!({"token": endless})));
        assert_eq!(printed("opaque"), Ok(json!({"token": "opaque"})));
    }

    #[test]
    fn what_is_no_token_or_has_expired_is_refused() {
        let expired = token(&json!({"exp": 1000}));
        for (text, expected) in [
            (expired.as_str(), "its token expired on 1970-01-01T00:16:40Z"),
            ("", "it holds no token"),
            ("two words", "it holds no token"),
        ] {
            let refused = printed(text).unwrap_err();
            assert!(
                refused.starts_with("token_file: ") && refused.contains(expected),
                "{refused}"
            );
            assert!(!refused.contains("e30"), "{refused}");
        }
        let missing = read(
            std::path::Path::new("/nowhere"),
            Timestamp::UNIX_EPOCH,
            ExecCredentialVersion::V1,
        );
        assert!(missing.unwrap_err().to_string().contains("`--token-file /nowhere`"));
    }
}
