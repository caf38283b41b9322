//! The secrets of personal access tokens and browser sessions: random text in a form that people
//! and scanners recognize. A checksum catches mistyped tokens before any look-up.
//!
//! Security: a secret has at least 256 random bits, and no copy of it stays in memory. The checksum
//! proves nothing; anyone who knows the format can compute it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use tollgate_runtime::secret::random_text;
pub use tollgate_runtime::secret::{RandomError, generate_session_secret, pkce_challenge, random_bytes};

/// Prefix of tokens, by which secret scanners find them.
pub const TOKEN_PREFIX: &str = "tgpat-";
/// Prefix of the logins of the command line.
pub const LOGIN_PREFIX: &str = "tglogin-";
/// Prefix of the tokens that a login makes for kubectl.
pub const KUBECTL_TOKEN_PREFIX: &str = "tgkube-";

/// The length of the random bytes in base64url, in characters.
const RANDOM_CHARACTERS: usize = 43;

/// Bytes of the checksum, enough for a scanner to trust a match.
const CHECKSUM_BYTES: usize = 3;

/// Whether a text has the form of a token's secret with a matching checksum.
pub fn is_token(text: &str) -> bool {
    is_secret(text, TOKEN_PREFIX)
}

/// Whether a text has the form of a secret that begins with `prefix`, with a matching checksum.
pub(crate) fn is_secret(text: &str, prefix: &str) -> bool {
    let tail = text.strip_prefix(prefix);
    let parts = tail.and_then(|tail| tail.split_at_checked(RANDOM_CHARACTERS));
    parts.is_some_and(|(random, sum)| checksum(random) == sum)
}

/// Whether a text has the prefix of tokens but cannot be one. Imported tokens have other
/// prefixes.
pub(super) fn is_malformed_token(text: &str) -> bool {
    let is_malformed = |prefix: &str| text.starts_with(prefix) && !is_secret(text, prefix);
    is_malformed(TOKEN_PREFIX) || is_malformed(KUBECTL_TOKEN_PREFIX)
}

fn checksum(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let bytes: Vec<u8> = digest.iter().copied().take(CHECKSUM_BYTES).collect();
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A secret of a personal access token: [`TOKEN_PREFIX`], 43 characters of 32
/// random bytes and 4 of a checksum over them, all base64url.
pub fn generate_token() -> Result<SecretString, RandomError> {
    generate(TOKEN_PREFIX)
}

/// As [`generate_token`], with another prefix.
pub fn generate(prefix: &str) -> Result<SecretString, RandomError> {
    let random = random_text()?;
    // With room for all of it: to grow would leave a copy of the secret in memory that is not wiped.
    let mut text = Zeroizing::new(String::with_capacity(64));
    text.push_str(prefix);
    text.push_str(&random);
    text.push_str(&checksum(&random));
    Ok(SecretString::from(text.as_str()))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::{generate_token, is_token};

    #[test]
    fn tokens_are_random_and_recognizable() {
        let [one, two] = [generate_token().unwrap(), generate_token().unwrap()];
        let [one, two] = [one.expose_secret(), two.expose_secret()];
        assert_ne!(one, two);
        for text in [one, two] {
            assert_eq!(text.len(), 6 + 43 + 4, "{text}");
            assert!(
                text.bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            );
            assert!(is_token(text));
        }
        let mut typo = one.to_owned();
        let last = typo.pop();
        typo.push(if last == Some('A') { 'B' } else { 'A' });
        assert!(!is_token(&typo) && !is_token("tgpat-") && !is_token("glpat-x") && !is_token("tgpat-ü"));
    }
}
