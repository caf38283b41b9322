//! The text format of personal access token secrets.
//!
//! The checksum catches mistyped tokens before any look-up.
//!
//! Security: the checksum proves nothing; anyone who knows the format can compute it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// Prefix of tokens, by which secret scanners find them.
pub const TOKEN_PREFIX: &str = "tgpat-";

/// Random bytes of each secret.
pub(crate) const RANDOM_BYTES: usize = 32;

/// The length of the random bytes in base64url, in characters.
const RANDOM_CHARACTERS: usize = 43;

/// Bytes of the checksum, enough for a scanner to trust a match.
const CHECKSUM_BYTES: usize = 3;

/// Whether a text has the form of a token's secret with a matching checksum.
pub fn is_token(text: &str) -> bool {
    let Some(tail) = text.strip_prefix(TOKEN_PREFIX) else {
        return false;
    };
    tail.split_at_checked(RANDOM_CHARACTERS)
        .is_some_and(|(random, sum)| checksum(random) == sum)
}

/// Whether a text has the prefix of tokens but cannot be one. Imported tokens have other
/// prefixes.
pub(super) fn is_no_token(text: &str) -> bool {
    text.starts_with(TOKEN_PREFIX) && !is_token(text)
}

/// The checksum of the random part.
pub(crate) fn checksum(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let bytes: Vec<u8> = digest.iter().copied().take(CHECKSUM_BYTES).collect();
    URL_SAFE_NO_PAD.encode(bytes)
}
