//! Tests of ID tokens at sign-in (OpenID Connect Core, sections 2 and 3.1.3.7): each rule is broken alone.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::issuer_double::IssuerDouble;
use super::issuers::settings;
use super::{EC, ISSUED_AT, OTHER_RSA, RSA, build, hs256, part, resources, with, without};
use crate::authenticate::Authenticator;
use crate::authenticate::sign_in::{Attempt, SignInAnswer, SignInError, SignedIn};
use tollgate_config::OidcClient;

pub(super) const METHOD: &str = "corp";
const ACCESS_TOKEN: &str = "an-access-token";

/// An issuer at which the gateway is client `gate`. Requests may bring tokens for `cli`, too.
pub(super) struct Fixture {
    pub(super) issuer: IssuerDouble,
    pub(super) authenticator: Authenticator,
}

impl Fixture {
    pub(super) async fn start() -> Self {
        let issuer = IssuerDouble::start().await;
        let mut config = settings(&issuer.url);
        config.issuers[0].audiences.push("cli".to_owned());
        config.issuers[0].client = Some(OidcClient {
            id: "gate".to_owned(),
            secret_file: None,
            scopes: vec!["openid".to_owned()],
            name: METHOD.to_owned(),
        });
        let authenticator = build(&config, &resources());
        Self { issuer, authenticator }
    }

    /// Begins an attempt; returns it with the nonce that the issuer receives.
    async fn begin(&self) -> (Attempt, Value) {
        let (callback, return_to) = (callback(), "/console/".to_owned());
        let begun = self.authenticator.begin_sign_in(METHOD, &callback, return_to).await;
        let (url, attempt) = begun.unwrap();
        let nonce = url.query_pairs().find(|(name, _)| name == "nonce").unwrap().1;
        (attempt, json!(nonce))
    }

    /// Ends an attempt with these tokens.
    async fn complete(&self, attempt: &Attempt, tokens: Value) -> Result<SignedIn, SignInError> {
        self.issuer.change(|state| state.tokens = Some(tokens));
        let answer = SignInAnswer {
            code: Some("a-code".to_owned()),
            state: Some(attempt.state.clone()),
            ..SignInAnswer::default()
        };
        self.authenticator
            .complete_sign_in(METHOD, attempt, answer, &callback())
            .await
    }

    /// Signs somebody in with the ID token that `token` makes of good claims, and an access token.
    async fn sign_in(&self, token: impl FnOnce(Value) -> String) -> Result<SignedIn, SignInError> {
        let (attempt, nonce) = self.begin().await;
        let claims = with(self.issuer.claims(), &[("nonce", nonce)]);
        let tokens = json!({ "id_token": token(claims), "access_token": ACCESS_TOKEN });
        self.complete(&attempt, tokens).await
    }

    /// As [`Fixture::sign_in`], with one claim changed, or without it.
    async fn sign_in_with(&self, claim: &str, value: Option<Value>) -> Result<SignedIn, SignInError> {
        self.sign_in(|claims| signed(&changed(claims, claim, value))).await
    }
}

fn callback() -> Url {
    Url::parse("https://tollgate.example/console/callback/corp").unwrap()
}

pub(super) fn signed(claims: &Value) -> String {
    RSA.sign(Some("k1"), claims)
}

/// Claims with one of them changed, or without it.
pub(super) fn changed(claims: Value, claim: &str, value: Option<Value>) -> Value {
    match value {
        Some(value) => with(claims, &[(claim, value)]),
        None => without(claims, claim),
    }
}

/// The whole reason of a refusal.
fn reason(outcome: Result<SignedIn, SignInError>) -> String {
    match outcome.expect_err("the token was accepted") {
        SignInError::Token(error) => error.to_string(),
        SignInError::NotForAttempt(reason) => reason.to_owned(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_good_id_token_signs_its_subject_in() {
    let fixture = Fixture::start().await;
    let signed_in = fixture.sign_in_with("sid", Some(json!("s-1"))).await.unwrap();
    assert_eq!(
        (
            signed_in.issuer.as_str(),
            signed_in.subject.as_str(),
            signed_in.sid.as_deref()
        ),
        (fixture.issuer.url.as_str(), "u-1", Some("s-1"))
    );
    assert_eq!(signed_in.principal.username(), "oidc:u-1");
}

#[tokio::test]
async fn a_claim_that_is_wrong_is_refused() {
    let fixture = Fixture::start().await;
    let now = fixture.authenticator.clock.unix_seconds();
    let (issuer, nonce) = (fixture.issuer.url.clone(), "another-nonce-of-this-issuer");
    let other_issuer = "invalid token: no configured issuer matches `iss`";
    let other_audience = "invalid token: `aud` holds none of the configured audiences";
    let wrong = |claim: &str| format!("malformed credential: claim `{claim}` has the wrong type");
    let missing = |claim: &str| format!("invalid token: claim `{claim}` is missing");
    let early = |claim: &str| format!("invalid token: claim `{claim}` is in the future");
    let expired = "the token has expired";
    let cases = [
        ("iss", None, other_issuer.to_owned()),
        ("iss", Some(json!("https://idp.example")), other_issuer.to_owned()),
        ("iss", Some(json!(format!("{issuer}/"))), other_issuer.to_owned()),
        ("iss", Some(json!([issuer])), other_issuer.to_owned()),
        ("sub", None, missing("sub")),
        ("sub", Some(json!("")), missing("sub")),
        ("sub", Some(json!(7)), missing("sub")),
        (
            "sub",
            Some(json!("x".repeat(256))),
            "invalid token: claim `sub` has more than 255 bytes".to_owned(),
        ),
        ("aud", None, other_audience.to_owned()),
        ("aud", Some(json!("other")), other_audience.to_owned()),
        ("aud", Some(json!("GATE")), other_audience.to_owned()),
        ("aud", Some(json!([])), other_audience.to_owned()),
        ("aud", Some(json!(["other"])), other_audience.to_owned()),
        ("aud", Some(json!({ "gate": true })), wrong("aud")),
        // Requests may bring it, but it is another client's.
        ("aud", Some(json!("cli")), "`aud` is not this client".to_owned()),
        (
            "aud",
            Some(json!(["gate", "other"])),
            "`aud` has an audience that is not accepted, and there is no `azp`".to_owned(),
        ),
        ("azp", Some(json!("other")), "`azp` is not this client".to_owned()),
        ("azp", Some(json!("cli")), "`azp` is not this client".to_owned()),
        ("azp", Some(json!(["gate"])), "`azp` is not this client".to_owned()),
        ("azp", Some(json!(null)), "`azp` is not this client".to_owned()),
        ("exp", None, missing("exp")),
        ("exp", Some(json!(now)), expired.to_owned()),
        ("exp", Some(json!(ISSUED_AT)), expired.to_owned()),
        ("exp", Some(json!("2100-01-01T00:00:00Z")), wrong("exp")),
        ("iat", None, missing("iat")),
        ("iat", Some(json!(now + 3600)), early("iat")),
        ("iat", Some(json!("now")), wrong("iat")),
        ("nbf", Some(json!(now + 3600)), early("nbf")),
        ("nbf", Some(json!(true)), wrong("nbf")),
        ("nonce", None, "`nonce` is another".to_owned()),
        ("nonce", Some(json!("")), "`nonce` is another".to_owned()),
        ("nonce", Some(json!(nonce)), "`nonce` is another".to_owned()),
        (
            "at_hash",
            Some(json!(at_hash("another-token"))),
            "`at_hash` is of another access token".to_owned(),
        ),
        (
            "at_hash",
            Some(json!(7)),
            "`at_hash` is of another access token".to_owned(),
        ),
    ];
    for (claim, value, expected) in cases {
        let refused = reason(fixture.sign_in_with(claim, value.clone()).await);
        assert_eq!(refused, expected, "`{claim}`: {value:?}");
    }
    for party in ["other", "cli"] {
        let changes = [("aud", json!(["gate", "other"])), ("azp", json!(party))];
        let refused = reason(fixture.sign_in(|claims| signed(&with(claims, &changes))).await);
        assert_eq!(refused, "`azp` is not this client", "several audiences, `azp` {party}");
    }
}

/// The twins of the refusals.
#[tokio::test]
async fn a_claim_that_is_as_it_may_be_is_accepted() {
    let fixture = Fixture::start().await;
    let now = fixture.authenticator.clock.unix_seconds();
    let cases: [(&str, Option<Value>); 13] = [
        ("sub", Some(json!("x".repeat(255)))),
        ("aud", Some(json!(["gate"]))),
        ("aud", Some(json!(["cli", "gate"]))),
        ("azp", Some(json!("gate"))),
        ("exp", Some(json!(now + 600))),
        ("exp", Some(json!(4_102_444_800.5))),
        ("iat", Some(json!(now))),
        // Clocks differ.
        ("iat", Some(json!(now + 10))),
        ("nbf", Some(json!(now + 10))),
        ("nbf", None),
        ("at_hash", Some(json!(at_hash(ACCESS_TOKEN)))),
        ("at_hash", None),
        ("acr", Some(json!("another-claim"))),
    ];
    for (claim, value) in cases {
        let outcome = fixture.sign_in_with(claim, value.clone()).await;
        assert!(outcome.is_ok(), "`{claim}` {value:?}: {}", reason(outcome));
    }
    let changes = [("aud", json!(["gate", "other"])), ("azp", json!("gate"))];
    let outcome = fixture.sign_in(|claims| signed(&with(claims, &changes))).await;
    assert_eq!(outcome.unwrap().subject, "u-1");
    // Without an access token there is nothing that `at_hash` could be of.
    let (attempt, nonce) = fixture.begin().await;
    let changes = [("nonce", nonce), ("at_hash", json!("x"))];
    let token = signed(&with(fixture.issuer.claims(), &changes));
    let outcome = fixture.complete(&attempt, json!({ "id_token": token })).await;
    assert_eq!(outcome.unwrap().subject, "u-1");
}

fn at_hash(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(&Sha256::digest(token)[..16])
}

/// A claim that is there twice has its last value (RFC 7519, section 4).
#[tokio::test]
async fn a_nonce_that_is_there_twice_has_its_last_value() {
    let fixture = Fixture::start().await;
    let header = json!({ "alg": "RS256", "kid": "k1" });
    let twice = |claims: &Value, first: &str, last: &str| {
        let claims = without(claims.clone(), "nonce").to_string();
        let rest = claims.strip_prefix('{').unwrap();
        let rest = rest.strip_suffix('}').unwrap();
        RSA.sign_text(&header, &format!(r#"{{"nonce":"{first}",{rest},"nonce":"{last}"}}"#))
    };
    let good = |claims: &Value| claims["nonce"].as_str().unwrap().to_owned();
    let refused = fixture.sign_in(|claims| twice(&claims, &good(&claims), "other")).await;
    assert_eq!(reason(refused), "`nonce` is another");
    let accepted = fixture.sign_in(|claims| twice(&claims, "other", &good(&claims))).await;
    assert_eq!(accepted.unwrap().subject, "u-1");
}

#[tokio::test]
async fn an_id_token_counts_for_its_own_attempt() {
    let fixture = Fixture::start().await;
    let (one, nonce) = fixture.begin().await;
    let (two, _) = fixture.begin().await;
    let token = signed(&with(fixture.issuer.claims(), &[("nonce", nonce)]));
    let tokens = json!({ "id_token": token });
    assert_eq!(
        reason(fixture.complete(&two, tokens.clone()).await),
        "`nonce` is another"
    );
    assert_eq!(fixture.complete(&one, tokens).await.unwrap().subject, "u-1");
}

/// Makes a token of good claims.
pub(super) type Make = fn(&Value) -> String;

/// Tokens that the issuer did not sign as it should, and why they are refused.
pub(super) const FORGED: [(&str, Make, &str); 10] = [
    (
        "alg none",
        |claims| format!("{}.{}.", part(&json!({ "alg": "none" })), part(claims)),
        "invalid token: `alg` is not one of `RS256`",
    ),
    (
        "alg none with the signature of another algorithm",
        |claims| RSA.sign_text(&json!({ "alg": "none", "kid": "k1" }), &claims.to_string()),
        "invalid token: `alg` is not one of `RS256`",
    ),
    (
        "HS256 with the public key",
        |claims| {
            let key = RSA.jwk("k1").to_string();
            hs256(&json!({ "alg": "HS256", "kid": "k1" }), claims, key.as_bytes())
        },
        "invalid token: `alg` is not one of `RS256`",
    ),
    (
        "RS256 in name, HMAC with the public key in truth",
        |claims| {
            let key = RSA.jwk("k1").to_string();
            hs256(&json!({ "alg": "RS256", "kid": "k1" }), claims, key.as_bytes())
        },
        "invalid token: the signature does not verify",
    ),
    (
        "an algorithm that the settings do not list",
        |claims| EC.sign(Some("k1"), claims),
        "invalid token: `alg` is not one of `RS256`",
    ),
    (
        "unknown kid",
        |claims| RSA.sign(Some("k9"), claims),
        "invalid token: no key of the issuer fits `kid` and `alg`",
    ),
    (
        "another key under the known kid",
        |claims| OTHER_RSA.sign(Some("k1"), claims),
        "invalid token: the signature does not verify",
    ),
    (
        "no signature",
        |claims| format!("{}.{}.", part(&json!({ "alg": "RS256", "kid": "k1" })), part(claims)),
        "invalid token: the signature does not verify",
    ),
    (
        "a header field that is not supported",
        |claims| {
            RSA.sign_text(
                &json!({ "alg": "RS256", "kid": "k1", "crit": ["b64"] }),
                &claims.to_string(),
            )
        },
        "invalid token: header field `crit` is not supported",
    ),
    (
        "no token",
        |_| "id-token".to_owned(),
        "malformed credential: the token is not a signed JWT in compact form",
    ),
];

pub(super) fn with_type(claims: &Value, kind: &str) -> String {
    RSA.sign_text(
        &json!({ "alg": "RS256", "kid": "k1", "typ": kind }),
        &claims.to_string(),
    )
}

#[tokio::test]
async fn a_token_that_the_issuer_did_not_sign_for_this_is_refused() {
    let fixture = Fixture::start().await;
    for (name, make, expected) in FORGED {
        let refused = fixture.sign_in(|claims| make(&claims)).await;
        assert_eq!(reason(refused), expected, "{name}");
    }
    for kind in ["at+jwt", "application/at+jwt", "logout+jwt", "JWE"] {
        let refused = fixture.sign_in(|claims| with_type(&claims, kind)).await;
        assert_eq!(reason(refused), "invalid token: `typ` is not one of `JWT`", "{kind}");
    }
    for kind in ["JWT", "jwt", "application/jwt"] {
        let accepted = fixture.sign_in(|claims| with_type(&claims, kind)).await;
        assert!(accepted.is_ok(), "{kind}: {}", reason(accepted));
    }
    let no_type_and_kid = |claims: Value| RSA.sign_text(&json!({ "alg": "RS256" }), &claims.to_string());
    assert_eq!(fixture.sign_in(no_type_and_kid).await.unwrap().subject, "u-1");
}
