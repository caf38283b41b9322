//! Makes the secrets of tokens and browser sessions: random text in a form that people and
//! scanners recognize.
//!
//! Security: a secret has at least 256 random bits, and no copy of it stays in memory.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::SecretString;
use zeroize::Zeroizing;

use super::Error;
use crate::access::token_text::{RANDOM_BYTES, checksum};

pub use crate::access::token_text::{TOKEN_PREFIX, is_token};

/// A secret of a personal access token: [`TOKEN_PREFIX`], 43 characters of 32
/// random bytes and 4 of a checksum over them, all base64url.
///
/// # Errors
/// [`Error::Random`].
pub fn token() -> Result<SecretString, Error> {
    let random = random()?;
    let mut text = Zeroizing::new(String::with_capacity(64));
    text.push_str(TOKEN_PREFIX);
    text.push_str(&random);
    text.push_str(&checksum(&random));
    Ok(SecretString::from(text.as_str()))
}

/// The value of a cookie, or a CSRF token: 32 random bytes in base64url. Form decoding does not
/// change it.
///
/// # Errors
/// [`Error::Random`].
pub fn session() -> Result<SecretString, Error> {
    Ok(SecretString::from(random()?.as_str()))
}

fn random() -> Result<Zeroizing<String>, Error> {
    let mut bytes = Zeroizing::new([0_u8; RANDOM_BYTES]);
    rand::fill(&mut *bytes).map_err(|_| Error::Random)?;
    Ok(Zeroizing::new(URL_SAFE_NO_PAD.encode(*bytes)))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::{is_token, session, token};

    #[test]
    fn tokens_are_random_and_can_be_found() {
        let [one, two] = [token().unwrap(), token().unwrap()];
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

    #[test]
    fn cookies_are_random() {
        let [one, two] = [session().unwrap(), session().unwrap()];
        assert_ne!(one.expose_secret(), two.expose_secret());
        assert_eq!(one.expose_secret().len(), 43);
    }
}
