//! Which tokens are valid, and where no secret may appear.

use std::time::Duration;

use http::HeaderName;
use secrecy::SecretString;

use super::{
    BasicAuth, ClientCertificate, Credential, MAX_MESSAGE_BYTES, MAX_TOKEN_BYTES, MintError, MintErrorClass, Token,
    TokenError,
};

fn check(text: &str, expected: Option<&TokenError>) {
    assert_eq!(
        Token::parse(text.to_owned()).err().as_ref(),
        expected,
        "{} bytes",
        text.len()
    );
}

#[test]
fn a_token_is_visible_ascii_of_bounded_length() {
    check("!~azAZ09-._~+/=", None);
    check(&"a".repeat(MAX_TOKEN_BYTES), None);
    check("", Some(&TokenError::Empty));
    check(
        &"a".repeat(MAX_TOKEN_BYTES + 1),
        Some(&TokenError::TooLong(MAX_TOKEN_BYTES + 1)),
    );
    for (text, position) in [
        ("a b", 1),
        (" a", 0),
        ("a\r\nx: y", 1),
        ("a\0", 1),
        ("\u{e9}", 0),
        ("ab\u{7f}", 2),
    ] {
        check(text, Some(&TokenError::InvalidByte(position)));
    }
}

fn full() -> Credential {
    let secret = || SecretString::from("hidden".to_owned());
    Credential {
        certificate: Some(ClientCertificate {
            chain_pem: "hidden".to_owned(),
            key_pem: secret(),
        }),
        headers: vec![(HeaderName::from_static("x-token"), secret())],
        basic: Some(BasicAuth {
            username: "hidden".to_owned(),
            password: secret(),
        }),
        revocation: Some(secret()),
        ..Credential::from_token(Token::parse("hidden".to_owned()).unwrap())
    }
}

#[test]
fn debug_output_shows_no_secret() {
    let credential = full();
    assert!(!format!("{credential:?}").contains("hidden"));
    assert!(
        !format!(
            "{:?}{:?}{:?}",
            credential.token, credential.certificate, credential.basic
        )
        .contains("hidden")
    );
    let value = credential.token.and_then(|token| token.to_authorization()).unwrap();
    assert!(value.is_sensitive());
    assert_eq!(value.as_bytes(), b"Bearer hidden");
    assert!(!format!("{value:?}").contains("hidden"));
}

#[test]
fn only_what_a_credential_presents_is_compared() {
    let check = |change: fn(&mut Credential), same: bool| {
        let mut other = full();
        change(&mut other);
        assert_eq!(full().authenticates_like(&other), same);
    };
    check(|_| {}, true);
    check(|it| it.expires_at = Some(jiff::Timestamp::UNIX_EPOCH), true);
    check(|it| it.revocation = None, true);
    check(|it| it.token = None, false);
    check(|it| it.certificate = None, false);
    check(|it| it.basic = None, false);
    check(|it| it.headers.clear(), false);
    check(|it| it.headers[0].1 = SecretString::from("other".to_owned()), false);
}

#[test]
fn error_texts_are_bounded() {
    let error = MintError::new(MintErrorClass::Denied, "a\nb", &"\u{e9}".repeat(MAX_MESSAGE_BYTES));
    assert_eq!(error.code, "a b");
    assert_eq!(error.message.len(), MAX_MESSAGE_BYTES);
    assert_eq!(error.retry_after, None::<Duration>);
}
