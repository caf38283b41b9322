//! Join tokens: anyone who has one can have an agent join a cluster, once.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::key::NoKey;

/// Prefix of tokens, by which secret scanners find them.
const PREFIX: &str = "tgjoin-";

/// Makes a token: the prefix, and 256 random bits in base64url.
///
/// # Errors
/// [`NoKey`]: the system has no random bytes.
pub fn generate() -> Result<SecretString, NoKey> {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    rand::fill(&mut *bytes).map_err(|_| NoKey)?;
    let random = Zeroizing::new(URL_SAFE_NO_PAD.encode(*bytes));
    Ok(SecretString::from(format!("{PREFIX}{}", *random)))
}

/// SHA-256 of a token, by which the gateway knows it.
pub fn hash(token: &SecretString) -> [u8; 32] {
    Sha256::digest(token.expose_secret().as_bytes()).into()
}
