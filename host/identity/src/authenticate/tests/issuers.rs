//! Tests of OpenID Connect issuers' tokens: signature, audience, times.

use std::time::Duration;

use serde_json::{Value, json};

use super::issuer_double::IssuerDouble;
use super::{
    EC, FAR, OTHER_RSA, RSA, alice, bearer, build, findings, groups_scope, hs256, part, refusal, resources, with,
    without,
};
use crate::authenticate::error::{IdentityField, MalformedCredential};
use crate::authenticate::{Authenticator, Error, InvalidTokenReason};
use tollgate_config::ClaimMapping;
use tollgate_core::principal::Kind;

/// Settings with one issuer: audience `gate`, `sub` with prefix `oidc:`.
pub(super) fn settings(url: &str) -> tollgate_config::Authentication {
    let claim = |claim: &str, prefix: &str| ClaimMapping::Claim {
        claim: claim.to_owned(),
        prefix: prefix.to_owned(),
    };
    let issuer = tollgate_config::Issuer {
        url: url.to_owned(),
        discovery_url: None,
        audiences: vec!["gate".to_owned()],
        certificate_authority: None,
        algorithms: vec!["RS256".to_owned()],
        jwks_max_age: Duration::from_secs(3600),
        jwks_token_file: None,
        client: None,
        claim_validation: Vec::new(),
        username: claim("sub", "oidc:"),
        groups: Some(claim("groups", "corp:")),
        uid: None,
        extra: Vec::new(),
        user_validation: Vec::new(),
        allowed_reserved_names: Vec::new(),
    };
    tollgate_config::Authentication {
        issuers: vec![issuer],
        ..tollgate_config::Authentication::default()
    }
}

async fn started() -> (IssuerDouble, Authenticator) {
    let issuer = IssuerDouble::start().await;
    let authenticator = build(&settings(&issuer.url), &resources());
    (issuer, authenticator)
}

#[tokio::test]
async fn claims_of_a_valid_token_are_mapped() {
    let (issuer, authenticator) = started().await;
    let principal = bearer(&authenticator, &issuer.token(&[])).await.unwrap();
    assert_eq!((principal.user_id(), principal.username()), ("oidc:u-1", "oidc:u-1"));
    assert_eq!(principal.groups(), ["corp:dev", "corp:ops"]);
    assert_eq!(
        (principal.kind(), principal.issuer()),
        (Kind::Oidc, issuer.url.as_str())
    );
    assert_eq!(principal.expires_at().unwrap().as_second(), FAR);
    // Policies see the mapped names, and the token's own claims below `token`.
    let expected = json!({
        "iss": issuer.url, "aud": "gate", "iat": super::ISSUED_AT, "exp": FAR,
        "sub": "oidc:u-1", "groups": ["corp:dev", "corp:ops"], "token": issuer.claims(),
    });
    assert_eq!(Value::Object(principal.claims().clone()), expected);
}

#[tokio::test]
async fn the_first_scope_holds_the_groups_if_groups_is_not_a_scope() {
    let issuer = IssuerDouble::start().await;
    let scopes = ["cognito:groups".to_owned(), "email".to_owned()];
    let loaded = Authenticator::build(&settings(&issuer.url), &resources(), &scopes, None);
    let principal = bearer(&loaded.value.unwrap(), &issuer.token(&[])).await.unwrap();
    assert_eq!(principal.claims()["cognito:groups"], json!(["corp:dev", "corp:ops"]));
    assert!(!principal.claims().contains_key("email") && !principal.claims().contains_key("groups"));
}

#[tokio::test]
async fn a_scope_called_sub_does_not_replace_the_subject() {
    let issuer = IssuerDouble::start().await;
    let scopes = ["sub".to_owned()];
    let loaded = Authenticator::build(&settings(&issuer.url), &resources(), &scopes, None);
    let principal = bearer(&loaded.value.unwrap(), &issuer.token(&[])).await.unwrap();
    assert_eq!(principal.claims()["sub"], "oidc:u-1");
    assert_eq!(principal.claims()["groups"], json!(["corp:dev", "corp:ops"]));
}

#[tokio::test]
async fn an_issuer_cannot_choose_the_name_of_a_local_account() {
    let issuer = IssuerDouble::start().await;
    let mut settings = settings(&issuer.url);
    let username = |settings: &mut tollgate_config::Authentication, mapping| settings.issuers[0].username = mapping;
    let plain = ClaimMapping::Claim {
        claim: "sub".to_owned(),
        prefix: String::new(),
    };
    username(&mut settings, plain);
    let reserved = Error::Invalid(InvalidTokenReason::ReservedName(IdentityField::Username));
    let authenticator = build(&settings, &resources());
    for name in ["admin", "alice", "robot"] {
        let token = issuer.token(&[("sub", json!(name))]);
        assert_eq!(refusal(&authenticator, &token).await, reserved, "{name}");
    }
    let token = issuer.token(&[("sub", json!("alice2"))]);
    assert_eq!(bearer(&authenticator, &token).await.unwrap().user_id(), "alice2");
    // A literal in the expression does not allow a reserved name.
    let spelled_out = "claims.sub == 'u-7' ? 'alice' : claims.sub";
    username(&mut settings, ClaimMapping::Expression(spelled_out.to_owned()));
    let authenticator = build(&settings, &resources());
    for name in ["u-7", "alice", "admin"] {
        let token = issuer.token(&[("sub", json!(name))]);
        assert_eq!(refusal(&authenticator, &token).await, reserved, "{name}");
    }
    // The operator can allow a reserved name.
    settings.issuers[0].allowed_reserved_names = vec!["alice".to_owned()];
    let authenticator = build(&settings, &resources());
    let token = issuer.token(&[("sub", json!("u-7"))]);
    assert_eq!(bearer(&authenticator, &token).await.unwrap().user_id(), "alice");
    for name in ["admin", "robot"] {
        let token = issuer.token(&[("sub", json!(name))]);
        assert_eq!(refusal(&authenticator, &token).await, reserved, "{name}");
    }
}

#[tokio::test]
async fn issuers_that_share_usernames_are_warned_about() {
    let mut settings = settings("https://a.example");
    let mut second = settings.issuers[0].clone();
    second.url = "https://b.example".to_owned();
    settings.issuers.push(second);
    let expected = "warning: issuers `https://a.example` and `https://b.example` can give two people the same username \
        (give each its own `claimMappings.username.prefix`)";
    assert_eq!(findings(&settings, &resources()), [expected]);
    settings.issuers[1].username = ClaimMapping::Claim {
        claim: "sub".to_owned(),
        prefix: "b:".to_owned(),
    };
    assert!(findings(&settings, &resources()).is_empty());
    for (expression, is_warned) in [
        ("claims.sub", true),
        ("'b:' + claims.sub", false),
        ("\"b:\" + claims.sub", false),
        // Its texts begin with anything.
        ("'b:' + claims.sub == 'b:x' ? claims.sub : 'b:'", true),
        ("claims.sub + 'b:'", true),
        ("'' + claims.sub", true),
    ] {
        settings.issuers[1].username = ClaimMapping::Expression(expression.to_owned());
        let found = findings(&settings, &resources());
        assert_eq!(
            found.iter().any(|text| text == expected),
            is_warned,
            "{expression}: {found:?}"
        );
    }
}

#[tokio::test]
async fn forgeries_are_refused() {
    let (issuer, authenticator) = started().await;
    let claims = issuer.claims();
    let algorithm = || Error::Invalid(InvalidTokenReason::Algorithm("`RS256`".to_owned()));
    let header = |alg: &str| json!({ "alg": alg, "kid": "k1" });
    let jwk = RSA.jwk("k1");
    let modulus = jwk["n"].as_str().unwrap().as_bytes();
    let public = serde_json::to_vec(&jwk).unwrap();
    let cases = [
        (
            "alg none",
            format!("{}.{}.", part(&header("none")), part(&claims)),
            algorithm(),
        ),
        (
            "HS256 with the modulus",
            hs256(&header("HS256"), &claims, modulus),
            algorithm(),
        ),
        (
            "HS256 with the JWK",
            hs256(&header("HS256"), &claims, &public),
            algorithm(),
        ),
        (
            "HMAC with an RS256 header",
            hs256(&header("RS256"), &claims, modulus),
            Error::Invalid(InvalidTokenReason::Signature),
        ),
        (
            "no signature",
            format!("{}.{}.", part(&header("RS256")), part(&claims)),
            Error::Invalid(InvalidTokenReason::Signature),
        ),
        (
            "another key, same kid",
            OTHER_RSA.sign(Some("k1"), &claims),
            Error::Invalid(InvalidTokenReason::Signature),
        ),
        (
            "another key, no kid",
            OTHER_RSA.sign(None, &claims),
            Error::Invalid(InvalidTokenReason::Signature),
        ),
        (
            "an unknown kid",
            RSA.sign(Some("k9"), &claims),
            Error::Invalid(InvalidTokenReason::UnknownKey),
        ),
        ("ES256", EC.sign(Some("k1"), &claims), algorithm()),
        (
            "an empty kid",
            RSA.sign(Some(""), &claims),
            Error::Invalid(InvalidTokenReason::UnknownKey),
        ),
    ];
    for (name, token, expected) in cases {
        assert_eq!(refusal(&authenticator, &token).await, expected, "{name}");
    }
    assert!(
        bearer(&authenticator, &RSA.sign(None, &claims)).await.is_ok(),
        "one key, no kid"
    );
}

#[tokio::test]
async fn a_key_in_the_header_is_not_used() {
    let (issuer, authenticator) = started().await;
    let mut header = jsonwebtoken::Header::new(OTHER_RSA.algorithm);
    header.jwk = serde_json::from_value(OTHER_RSA.jwk("k1")).unwrap();
    header.jku = Some(format!("{}/evil", issuer.url));
    let token = jsonwebtoken::encode(&header, &issuer.claims(), &OTHER_RSA.private).unwrap();
    assert_eq!(
        refusal(&authenticator, &token).await,
        Error::Invalid(InvalidTokenReason::Signature)
    );
    assert!(!issuer.state.lock().unwrap().requests.iter().any(|path| path == "/evil"));
}

#[tokio::test]
async fn keys_are_used_only_for_their_purpose() {
    let (issuer, authenticator) = started().await;
    let key = |changes: &[(&str, Value)]| with(RSA.jwk("k1"), changes);
    let refused = [
        ("for encryption", key(&[("use", json!("enc"))])),
        ("bound to PS256", key(&[("alg", json!("PS256"))])),
        (
            "only signs",
            with(without(RSA.jwk("k1"), "use"), &[("key_ops", json!(["sign"]))]),
        ),
        ("symmetric", json!({ "kty": "oct", "kid": "k1", "k": "c2VjcmV0" })),
        ("of an unknown kind", json!({ "kty": "X", "kid": "k1" })),
        ("elliptic", EC.jwk("k1")),
    ];
    for (name, key) in refused {
        let authenticator = build(&settings(&issuer.url), &resources());
        issuer.change(|state| state.keys = vec![key, RSA.jwk("k2")]);
        let token = issuer.token(&[]);
        assert_eq!(
            refusal(&authenticator, &token).await,
            Error::Invalid(InvalidTokenReason::UnknownKey),
            "{name}"
        );
    }
    // A key of another kind under the same name does not hide the right one.
    issuer.change(|state| state.keys = vec![EC.jwk("k1"), json!({ "kty": "X" }), RSA.jwk("k1")]);
    assert!(bearer(&authenticator, &issuer.token(&[])).await.is_ok());
}

#[tokio::test]
async fn other_algorithms_are_accepted_if_listed() {
    let issuer = IssuerDouble::start().await;
    issuer.change(|state| state.keys = vec![EC.jwk("e1")]);
    let mut settings = settings(&issuer.url);
    settings.issuers[0].algorithms = vec!["RS256".to_owned(), "ES256".to_owned()];
    let authenticator = build(&settings, &resources());
    assert!(
        bearer(&authenticator, &EC.sign(Some("e1"), &issuer.claims()))
            .await
            .is_ok()
    );
    settings.issuers[0].algorithms = vec!["HS256".to_owned(), "none".to_owned()];
    let all = "[RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA]";
    let expected = ["HS256", "none"]
        .map(|name| format!("error: `authentication.jwt[0].algorithms`: `{name}` is not one of {all}"));
    assert_eq!(findings(&settings, &resources())[..2], expected);
}

#[tokio::test]
async fn claims_are_checked() {
    let (issuer, authenticator) = started().await;
    let now = jiff::Timestamp::now().as_second();
    let invalid = |reason| Some(Error::Invalid(reason));
    let later = |claim| invalid(InvalidTokenReason::NotYetValid(claim));
    let elsewhere = format!("{}/", issuer.url);
    let cases = [
        (vec![("exp", json!(now - 1))], Some(Error::Expired)),
        (vec![("exp", json!(now + 60))], None),
        (vec![("nbf", json!(now + 300))], later("nbf")),
        (vec![("nbf", json!(now - 300))], None),
        (vec![("iat", json!(now + 300))], later("iat")),
        (
            vec![("iss", json!(elsewhere))],
            invalid(InvalidTokenReason::UnknownIssuer),
        ),
        (
            vec![("iss", json!("argocd"))],
            invalid(InvalidTokenReason::UnknownIssuer),
        ),
        (vec![("aud", json!("other"))], invalid(InvalidTokenReason::Audience)),
        (vec![("aud", json!("Gate"))], invalid(InvalidTokenReason::Audience)),
        (vec![("aud", json!([]))], invalid(InvalidTokenReason::Audience)),
        (vec![("aud", json!([1, null]))], invalid(InvalidTokenReason::Audience)),
        (
            vec![("aud", json!({ "gate": true }))],
            Some(Error::Malformed(MalformedCredential::Claim("aud"))),
        ),
        (vec![("aud", json!(["other", "gate"]))], None),
        (vec![("aud", json!(["other", "gate"])), ("azp", json!("gate"))], None),
        // Argo CD and Kubernetes do not look at it.
        (vec![("aud", json!(["other", "gate"])), ("azp", json!("other"))], None),
        (vec![("aud", json!(["other", "gate"])), ("azp", json!(7))], None),
        (vec![("aud", json!("gate")), ("azp", json!("other"))], None),
        (
            vec![("sub", json!(""))],
            invalid(InvalidTokenReason::MissingClaim("sub".to_owned())),
        ),
    ];
    for (changes, expected) in cases {
        assert_eq!(
            bearer(&authenticator, &issuer.token(&changes)).await.err(),
            expected,
            "{changes:?}"
        );
    }
    for (claim, expected) in [
        ("exp", InvalidTokenReason::MissingClaim("exp".to_owned())),
        ("aud", InvalidTokenReason::Audience),
        ("sub", InvalidTokenReason::MissingClaim("sub".to_owned())),
    ] {
        let token = RSA.sign(Some("k1"), &without(issuer.claims(), claim));
        assert_eq!(
            refusal(&authenticator, &token).await,
            Error::Invalid(expected),
            "{claim}"
        );
    }
}

#[tokio::test]
async fn the_signature_is_checked_before_the_expiry() {
    let (issuer, authenticator) = started().await;
    let token = OTHER_RSA.sign(Some("k1"), &with(issuer.claims(), &[("exp", json!(1))]));
    assert_eq!(
        refusal(&authenticator, &token).await,
        Error::Invalid(InvalidTokenReason::Signature)
    );
}

#[tokio::test]
async fn an_issuer_cannot_sign_tokens_of_another() {
    let (issuer, other) = (IssuerDouble::start().await, IssuerDouble::start().await);
    other.change(|state| state.keys = vec![OTHER_RSA.jwk("k1")]);
    let mut both = settings(&issuer.url);
    both.issuers.extend(settings(&other.url).issuers);
    let authenticator = build(&both, &resources());
    assert!(
        bearer(&authenticator, &OTHER_RSA.sign(Some("k1"), &other.claims()))
            .await
            .is_ok()
    );
    let crossed = OTHER_RSA.sign(Some("k1"), &issuer.claims());
    assert_eq!(
        refusal(&authenticator, &crossed).await,
        Error::Invalid(InvalidTokenReason::Signature)
    );
    // It cannot sign sessions of Argo CD either.
    let mut settings = settings(&issuer.url);
    settings.argocd_sessions = true;
    let token = RSA.sign(Some("k1"), &alice());
    let refused = refusal(&build(&settings, &resources()), &token).await;
    assert_eq!(
        refused,
        Error::Invalid(InvalidTokenReason::Algorithm("`HS256`".to_owned()))
    );
}

#[tokio::test]
async fn bad_settings_are_reported_with_their_key() {
    let mut settings = settings("https://login.example");
    settings.issuers.push(settings.issuers[0].clone());
    settings.issuers.push(tollgate_config::Issuer {
        url: "http://login.example".to_owned(),
        ..settings.issuers[0].clone()
    });
    settings.issuers.push(tollgate_config::Issuer {
        url: "https://b.example".to_owned(),
        certificate_authority: Some("no PEM".to_owned()),
        ..settings.issuers[0].clone()
    });
    let expected = [
        "error: `authentication.jwt[1].issuer.url`: `https://login.example` is listed twice",
        "error: `authentication.jwt[2].issuer`: `http://login.example` must be https, or http to a loopback address, \
            without user and fragment",
        "error: `authentication.jwt[3].issuer`: the certificate authority cannot be used: no certificate in it",
    ];
    assert_eq!(findings(&settings, &resources()), expected);
    let loaded = Authenticator::build(&settings, &resources(), &groups_scope(), None);
    assert!(loaded.value.is_none());
}

#[tokio::test]
async fn only_the_configured_certificate_authority_is_trusted() {
    let (issuer, authority) = IssuerDouble::start_tls().await;
    let (_, other) = IssuerDouble::start_tls().await;
    let with_authority = |authority: Option<&str>| {
        let mut settings = settings(&issuer.url);
        settings.issuers[0].certificate_authority = authority.map(str::to_owned);
        build(&settings, &resources())
    };
    let unavailable = Error::IssuerUnavailable(issuer.url.clone());
    for authority in [None, Some(other.as_str())] {
        assert_eq!(
            refusal(&with_authority(authority), &issuer.token(&[])).await,
            unavailable
        );
    }
    assert_eq!(issuer.key_fetches(), 0);
    assert!(
        bearer(&with_authority(Some(&authority)), &issuer.token(&[]))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn the_discovery_document_can_have_another_url() {
    let (issuer, elsewhere) = (IssuerDouble::start().await, IssuerDouble::start().await);
    elsewhere.change(|state| state.claimed_issuer = Some(issuer.url.clone()));
    let mut settings = settings(&issuer.url);
    settings.issuers[0].discovery_url = Some(format!("{}/.well-known/openid-configuration", elsewhere.url));
    assert!(
        bearer(&build(&settings, &resources()), &issuer.token(&[]))
            .await
            .is_ok()
    );
    assert!(issuer.state.lock().unwrap().requests.is_empty());
    assert_eq!(elsewhere.key_fetches(), 1);
}
