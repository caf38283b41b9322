//! Tests where a request may carry the token.

use super::{alice, argocd_sessions, build, head, resources, session};
use crate::authenticate::error::MalformedCredential;
use crate::authenticate::request_token::{MAX_TOKEN_BYTES, read};
use crate::authenticate::{CredentialTransport, Error, Safety};

type Found = Result<Option<(String, CredentialTransport)>, Error>;

fn found(fields: &[(&str, &str)]) -> Found {
    let head = head(fields);
    Ok(read(&head.headers)?.map(|credential| (credential.token.into_owned(), credential.transport)))
}

fn cookie(token: &str) -> Found {
    Ok(Some((token.to_owned(), CredentialTransport::Cookie)))
}

fn malformed(malformed: MalformedCredential) -> Found {
    Err(Error::Malformed(malformed))
}

fn duplicate(name: &str) -> Found {
    malformed(MalformedCredential::DuplicateCookie(name.to_owned()))
}

#[test]
fn cookies() {
    let count = || malformed(MalformedCredential::ChunkCount(20));
    let cases: &[(&[&str], Found)] = &[
        (&["other=1"], Ok(None)),
        (&["argocd.tokenx=1; xargocd.token=2; argocd.token-1=3"], Ok(None)),
        (&["argocd.token=abc"], cookie("abc")),
        (&["a=1;argocd.token=abc ; b=2"], cookie("abc")),
        (&["a=1", "argocd.token=abc"], cookie("abc")),
        (&["argocd.token=1:abc"], cookie("abc")),
        (
            &["argocd.token=3:ab; argocd.token-1=cd; argocd.token-2=ef"],
            cookie("abcdef"),
        ),
        (
            &["argocd.token-2=ef; argocd.token-1=cd; argocd.token=3:ab"],
            cookie("abcdef"),
        ),
        (&["argocd.token=2:ab", "argocd.token-1=cd"], cookie("abcd")),
        // A leftover chunk of a longer token.
        (
            &["argocd.token=2:ab; argocd.token-1=cd; argocd.token-2=ef"],
            cookie("abcd"),
        ),
        (&["argocd.token=abc; argocd.token-1=x"], cookie("abc")),
        (&["argocd.token=abc; argocd.token=def"], duplicate("argocd.token")),
        (&["argocd.token=abc", "argocd.token=abc"], duplicate("argocd.token")),
        (
            &["argocd.token=2:ab; argocd.token-1=c; argocd.token-1=d"],
            duplicate("argocd.token-1"),
        ),
        (
            &["argocd.token=3:ab; argocd.token-2=ef"],
            malformed(MalformedCredential::MissingChunk(1)),
        ),
        (&["argocd.token=21:ab"], count()),
        (&["argocd.token=99999999999999999999:ab"], count()),
        (&["argocd.token=0:ab"], count()),
        (&["argocd.token=-1:ab"], count()),
        (&["argocd.token=+2:ab; argocd.token-1=cd"], count()),
        (&["argocd.token=02:ab; argocd.token-1=cd"], count()),
        (&["argocd.token=:ab"], count()),
        (&["argocd.token=x:ab"], count()),
    ];
    for (cookies, expected) in cases {
        let fields: Vec<_> = cookies.iter().map(|cookie| ("cookie", *cookie)).collect();
        assert_eq!(found(&fields), *expected, "{cookies:?}");
    }
}

#[test]
fn only_the_first_colon_ends_the_chunk_count() {
    assert_eq!(found(&[("cookie", "argocd.token=1:a:b")]), cookie("a:b"));
}

#[test]
fn bearer_tokens() {
    let found_bearer: Found = Ok(Some(("abc".to_owned(), CredentialTransport::Bearer)));
    let found_bearer_again = found_bearer.clone();
    let cases: &[(&[&str], Found)] = &[
        (&["Bearer abc"], found_bearer.clone()),
        (&["bearer abc"], found_bearer.clone()),
        (&["BEARER   abc"], found_bearer),
        // Credentials of another scheme are for a proxy in between.
        (&["abc"], Ok(None)),
        (&["Basic YTpi", "Bearer abc"], found_bearer_again),
        (&["Bearer"], malformed(MalformedCredential::NotBearer)),
        (&["Bearer "], malformed(MalformedCredential::NotBearer)),
        (&["Basic YTpi"], Ok(None)),
        // A single token, which is not a JWT.
        (
            &["Bearer abc, Bearer def"],
            Ok(Some(("abc, Bearer def".to_owned(), CredentialTransport::Bearer))),
        ),
        (
            &["Bearer abc", "Bearer abc"],
            malformed(MalformedCredential::SeveralAuthorizations(2)),
        ),
    ];
    for (values, expected) in cases {
        let fields: Vec<_> = values.iter().map(|value| ("authorization", *value)).collect();
        assert_eq!(found(&fields), *expected, "{values:?}");
    }
}

#[test]
fn header_and_cookie_must_agree() {
    let both = |bearer, cookie| found(&[("authorization", bearer), ("cookie", cookie)]);
    assert_eq!(
        both("Bearer abc", "argocd.token=abc"),
        Ok(Some(("abc".to_owned(), CredentialTransport::Bearer)))
    );
    assert_eq!(
        both("Bearer abc", "argocd.token=abd"),
        malformed(MalformedCredential::Conflict)
    );
    assert_eq!(
        both("Basic abc", "argocd.token=abc"),
        cookie("abc"),
        "a password for a proxy in between"
    );
    assert_eq!(
        both("Bearer ", "argocd.token=abc"),
        malformed(MalformedCredential::NotBearer)
    );
}

/// Argo CD leaves the cookie with an empty value when somebody signs out.
#[test]
fn an_empty_cookie_is_none() {
    assert_eq!(found(&[("cookie", "argocd.token=")]), Ok(None));
    assert_eq!(found(&[("cookie", "argocd.token=; argocd.token-1=x")]), Ok(None));
    let bearer = found(&[("authorization", "Bearer abc"), ("cookie", "argocd.token=")]);
    assert_eq!(bearer, Ok(Some(("abc".to_owned(), CredentialTransport::Bearer))));
}

/// Browsers cannot set `Authorization` on a WebSocket.
#[test]
fn a_websocket_has_the_token_among_its_subprotocols() {
    let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
    let offer = (
        "sec-websocket-protocol",
        "base64url.bearer.authorization.k8s.io.YWJj, chat",
    );
    let with = |more: &[(&str, &str)]| found(&[&upgrade[..], &[offer], more].concat());
    let bearer = || Ok(Some(("abc".to_owned(), CredentialTransport::Bearer)));
    assert_eq!(with(&[]), bearer());
    assert_eq!(with(&[("authorization", "Bearer abc")]), bearer());
    assert_eq!(with(&[("authorization", "Basic abc")]), bearer());
    for other in [("authorization", "Bearer abd"), ("cookie", "argocd.token=abd")] {
        assert_eq!(with(&[other]), malformed(MalformedCredential::Conflict), "{other:?}");
    }
    assert_eq!(found(&[offer]), Ok(None), "only a WebSocket has subprotocols");
    let alone = ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.YWJj");
    let refused = found(&[&upgrade[..], &[alone]].concat());
    assert!(matches!(
        refused,
        Err(Error::Malformed(MalformedCredential::Subprotocol(_)))
    ));
}

#[test]
fn tokens_are_bounded() {
    let long = "a".repeat(MAX_TOKEN_BYTES + 1);
    let observed = long.len();
    let too_long = malformed(MalformedCredential::TooLong(observed));
    assert_eq!(found(&[("authorization", &format!("Bearer {long}"))]), too_long);
    assert_eq!(found(&[("cookie", &format!("argocd.token={long}"))]), too_long);
    let chunks = format!("argocd.token=2:{}; argocd.token-1=ab", "a".repeat(MAX_TOKEN_BYTES - 1));
    assert_eq!(found(&[("cookie", &chunks)]), too_long);
    assert!(found(&[("authorization", &format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES)))]).is_ok());
}

/// Cases `ext-auth-001` to `ext-auth-004` of Argo CD's middleware: requests that Argo CD answers
/// with 400 and those it answers with 401 have different codes.
#[tokio::test]
async fn missing_and_invalid_credentials_have_different_codes() {
    let authenticator = build(&argocd_sessions(), &resources());
    let good = session(&alice());
    assert!(
        authenticator
            .authenticate(&head(&[("cookie", &format!("argocd.token={good}"))]), Safety::ByMethod)
            .await
            .is_ok()
    );
    let absent = authenticator
        .authenticate(&head(&[]), Safety::ByMethod)
        .await
        .unwrap_err();
    assert_eq!((absent.code(), &absent), ("no_credential", &Error::NoCredential));
    let bad = authenticator
        .authenticate(&head(&[("cookie", "argocd.token=123456")]), Safety::ByMethod)
        .await
        .unwrap_err();
    assert_eq!(bad, Error::Malformed(MalformedCredential::NotJwt));
    let forged = authenticator
        .authenticate(&head(&[("cookie", &format!("argocd.token={good}A"))]), Safety::ByMethod)
        .await
        .unwrap_err();
    assert_eq!(forged.code(), "bad_signature");
}
