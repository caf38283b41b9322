//! Random secrets, and the challenges of PKCE.
//!
//! Security: a secret has 256 random bits, and no copy of it stays in memory.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// The operating system gave no random bytes.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("cannot generate a random secret")]
pub struct RandomError;

const RANDOM_BYTES: usize = 32;

/// 32 random bytes.
///
/// # Errors
/// The operating system gives none.
pub fn random_bytes() -> Result<Zeroizing<[u8; RANDOM_BYTES]>, RandomError> {
    let mut bytes = Zeroizing::new([0_u8; RANDOM_BYTES]);
    rand::fill(&mut *bytes).map_err(|_| RandomError)?;
    Ok(bytes)
}

/// 32 random bytes as 43 characters of base64url.
///
/// # Errors
/// The operating system gives none.
pub fn random_text() -> Result<Zeroizing<String>, RandomError> {
    Ok(Zeroizing::new(URL_SAFE_NO_PAD.encode(*random_bytes()?)))
}

/// The value of a cookie, a CSRF token or a verifier of PKCE: [`random_text`], which form decoding does
/// not change.
///
/// # Errors
/// The operating system gives no random bytes.
pub fn generate_session_secret() -> Result<SecretString, RandomError> {
    Ok(SecretString::from(random_text()?.as_str()))
}

/// The PKCE challenge of a verifier (RFC 7636, section 4.2, method `S256`).
pub fn pkce_challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::generate_session_secret;

    #[test]
    fn secrets_are_random() {
        let [one, two] = [generate_session_secret().unwrap(), generate_session_secret().unwrap()];
        assert_ne!(one.expose_secret(), two.expose_secret());
        assert_eq!(one.expose_secret().len(), 43);
    }
}
