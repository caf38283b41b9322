//! The form of secrets of personal access tokens.
//!
//! In: text. Out: whether it is one that was made, and not one that was mistyped.
//! Never: a proof; whoever knows the form can make a checksum.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// What tokens begin with, so that scanners of secrets find them.
pub const TOKEN_PREFIX: &str = "tgpat-";

/// Random bytes of each secret.
pub(crate) const RANDOM_BYTES: usize = 32;

/// Characters they are in base64url.
const RANDOM_CHARACTERS: usize = 43;

/// Bytes of the checksum: enough that a scanner believes what it found.
const CHECKSUM_BYTES: usize = 3;

/// Whether a text has the form of a token's secret and a checksum that fits.
pub fn is_token(text: &str) -> bool {
    let Some(tail) = text.strip_prefix(TOKEN_PREFIX) else {
        return false;
    };
    tail.split_at_checked(RANDOM_CHARACTERS)
        .is_some_and(|(random, sum)| checksum(random) == sum)
}

/// Whether a text begins as tokens do and cannot be one. Tokens that came from
/// elsewhere begin otherwise.
pub(super) fn is_no_token(text: &str) -> bool {
    text.starts_with(TOKEN_PREFIX) && !is_token(text)
}

/// The checksum of the random part.
pub(crate) fn checksum(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let bytes: Vec<u8> = digest.iter().copied().take(CHECKSUM_BYTES).collect();
    URL_SAFE_NO_PAD.encode(bytes)
}
