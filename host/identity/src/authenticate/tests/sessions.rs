//! Tests of tokens Argo CD signed: who passes, and each reason for refusal.

use serde_json::{Value, json};

use super::{
    FAR, ISSUED_AT, Signer, alice, argocd_sessions, bearer, build, findings, head, hs256, part, refusal, resources,
    resources_with, session, with, without,
};
use crate::authenticate::error::{MalformedCredential, RevocationReason};
use crate::authenticate::{CredentialTransport, Error, InvalidTokenReason, Safety};
use crate::revoked_tokens::TokenIds;
use tollgate_core::principal::Kind;

#[tokio::test]
async fn a_session_names_its_account() {
    let principal = bearer(&build(&argocd_sessions(), &resources()), &session(&alice()))
        .await
        .unwrap();
    assert_eq!((principal.user_id(), principal.username()), ("alice", "alice"));
    assert_eq!((principal.kind(), principal.issuer()), (Kind::Local, "argocd"));
    assert_eq!(principal.transport(), CredentialTransport::Bearer);
    assert_eq!(principal.claims()["sub"], "alice");
    assert_eq!(principal.expires_at().unwrap().as_second(), FAR);
    assert_eq!(principal.groups(), &[] as &[String]);
}

#[tokio::test]
async fn every_form_of_subject() {
    let authenticator = build(&argocd_sessions(), &resources());
    let robot = |sub: &str, id: &str| with(without(alice(), "exp"), &[("sub", json!(sub)), ("jti", json!(id))]);
    let refused = |revocation| Some(Error::Revoked(revocation));
    let cases = [
        ("alice:login", "a-1", None),
        ("robot:apiKey", "r-1", None),
        ("robot", "r-1", None),
        ("robot:login", "any", None),
        ("admin:login", "any", None),
        ("robot:apiKey", "r-2", refused(RevocationReason::NotListed)),
        ("robot", "a-1", refused(RevocationReason::NotListed)),
        ("alice:apiKey", "a-1", refused(RevocationReason::NoCapability)),
        ("admin:apiKey", "a-1", refused(RevocationReason::NoCapability)),
        ("mallory:login", "a-1", refused(RevocationReason::NoAccount)),
        ("alice:root", "a-1", Some(Error::Invalid(InvalidTokenReason::Subject))),
        (
            "alice:login:x",
            "a-1",
            Some(Error::Invalid(InvalidTokenReason::Subject)),
        ),
        (":login", "a-1", Some(Error::Invalid(InvalidTokenReason::Subject))),
        ("", "a-1", Some(Error::Invalid(InvalidTokenReason::Subject))),
    ];
    for (sub, id, expected) in cases {
        let outcome = bearer(&authenticator, &session(&robot(sub, id))).await.err();
        assert_eq!(outcome, expected, "sub `{sub}`, jti `{id}`");
    }
}

#[tokio::test]
async fn forgeries_are_refused() {
    let authenticator = build(&argocd_sessions(), &resources());
    let algorithm = || Error::Invalid(InvalidTokenReason::Algorithm("`HS256`".to_owned()));
    let signed = |header: Value| hs256(&header, &alice(), super::SIGNING_KEY.as_bytes());
    let unsigned = |alg: &str| format!("{}.{}.", part(&json!({ "alg": alg })), part(&alice()));
    let good = session(&alice());
    let cut = good.rsplit_once('.').unwrap().0;
    let other_claims = format!(
        "{}.{}.{}",
        good.split('.').next().unwrap(),
        part(&with(alice(), &[("sub", json!("admin:login"))])),
        good.split('.').nth(2).unwrap(),
    );
    let cases = [
        ("none", unsigned("none"), algorithm()),
        ("None", unsigned("None"), algorithm()),
        (
            "no signature",
            unsigned("HS256"),
            Error::Invalid(InvalidTokenReason::Signature),
        ),
        ("HS512 header", signed(json!({ "alg": "HS512" })), algorithm()),
        ("RS256 header", signed(json!({ "alg": "RS256" })), algorithm()),
        (
            "another key",
            hs256(&json!({ "alg": "HS256" }), &alice(), b"wrong"),
            Error::Invalid(InvalidTokenReason::Signature),
        ),
        (
            "an empty key",
            hs256(&json!({ "alg": "HS256" }), &alice(), b""),
            Error::Invalid(InvalidTokenReason::Signature),
        ),
        (
            "other claims",
            other_claims,
            Error::Invalid(InvalidTokenReason::Signature),
        ),
        (
            "two parts",
            cut.to_owned(),
            Error::Malformed(MalformedCredential::NotJwt),
        ),
        (
            "five parts",
            format!("{good}.x.y"),
            Error::Malformed(MalformedCredential::NotJwt),
        ),
        (
            "padding",
            format!("{good}="),
            Error::Invalid(InvalidTokenReason::Signature),
        ),
        (
            "crit",
            signed(json!({ "alg": "HS256", "crit": ["exp"] })),
            Error::Invalid(InvalidTokenReason::HeaderField("crit")),
        ),
        (
            "zip",
            signed(json!({ "alg": "HS256", "zip": "DEF" })),
            Error::Invalid(InvalidTokenReason::HeaderField("zip")),
        ),
        (
            "typ",
            signed(json!({ "alg": "HS256", "typ": "logout+jwt" })),
            Error::Invalid(InvalidTokenReason::Type("`JWT`, `at+jwt`".to_owned())),
        ),
    ];
    for (name, token, expected) in cases {
        assert_eq!(refusal(&authenticator, &token).await, expected, "{name}");
    }
    assert!(bearer(&authenticator, &signed(json!({ "alg": "HS256" }))).await.is_ok());
}

#[tokio::test]
async fn asymmetric_signatures_are_refused() {
    let signer: &Signer = &super::RSA;
    let refused = refusal(&build(&argocd_sessions(), &resources()), &signer.sign(None, &alice())).await;
    assert_eq!(
        refused,
        Error::Invalid(InvalidTokenReason::Algorithm("`HS256`".to_owned()))
    );
}

#[tokio::test]
async fn times_are_checked() {
    let authenticator = build(&argocd_sessions(), &resources());
    let now = jiff::Timestamp::now().as_second();
    let later = |claim| Error::Invalid(InvalidTokenReason::NotYetValid(claim));
    let wrong = |claim| Error::Malformed(MalformedCredential::Claim(claim));
    let cases = [
        ("exp", json!(now - 1), Some(Error::Expired)),
        ("exp", json!(now), Some(Error::Expired)),
        ("exp", json!(now + 60), None),
        ("exp", json!("2100"), Some(wrong("exp"))),
        ("exp", json!(1e300), Some(wrong("exp"))),
        ("nbf", json!(now + 300), Some(later("nbf"))),
        ("nbf", json!(now + 10), None),
        ("iat", json!(now + 300), Some(later("iat"))),
        ("iat", json!(now as f64 - 0.5), None),
        ("iat", json!(true), Some(wrong("iat"))),
    ];
    for (claim, value, expected) in cases {
        let token = session(&with(alice(), &[(claim, value.clone())]));
        assert_eq!(
            bearer(&authenticator, &token).await.err(),
            expected,
            "{claim} = {value}"
        );
    }
    for claim in ["iat", "jti"] {
        let refused = refusal(&authenticator, &session(&without(alice(), claim))).await;
        assert_eq!(
            refused,
            Error::Invalid(InvalidTokenReason::MissingClaim(claim.to_owned()))
        );
    }
}

/// Keys of `argocd-cm`, keys of `argocd-secret`, and the expected error.
type Settings<'a> = (&'a [(&'a str, &'a str)], &'a [(&'a str, &'a str)], Option<Error>);

#[tokio::test]
async fn accounts_can_be_locked() {
    let changed = |seconds: i64| jiff::Timestamp::from_second(ISSUED_AT + seconds).unwrap().to_string();
    let (before, same, after) = (changed(-1), changed(0), changed(1));
    let mtime = "accounts.alice.passwordMtime";
    let refused = |revocation| Some(Error::Revoked(revocation));
    let cases: [Settings<'_>; 12] = [
        (&[("accounts.alice.enabled", "true")], &[], None),
        (
            &[("accounts.alice.enabled", "false")],
            &[],
            refused(RevocationReason::AccountDisabled),
        ),
        (
            &[("accounts.alice.enabled", "F")],
            &[],
            refused(RevocationReason::AccountDisabled),
        ),
        (
            &[("accounts.alice.enabled", "flase")],
            &[],
            refused(RevocationReason::NoAccount),
        ),
        (
            &[("accounts.alice", "apiKey")],
            &[],
            refused(RevocationReason::NoCapability),
        ),
        (&[("accounts.alice", "")], &[], refused(RevocationReason::NoCapability)),
        (&[], &[(mtime, &before)], None),
        (&[], &[(mtime, &same)], None),
        (&[], &[(mtime, &after)], refused(RevocationReason::PasswordChanged)),
        (&[], &[(mtime, "yesterday")], refused(RevocationReason::NoAccount)),
        (
            &[],
            &[("accounts.alice.tokens", "{")],
            refused(RevocationReason::NoAccount),
        ),
        (&[], &[("accounts.alice.tokens", "null")], None),
    ];
    for (config, secrets, expected) in cases {
        let authenticator = build(&argocd_sessions(), &resources_with(config, secrets));
        let outcome = bearer(&authenticator, &session(&alice())).await.err();
        assert_eq!(outcome, expected, "{config:?} {secrets:?}");
    }
}

#[tokio::test]
async fn admin_can_be_locked() {
    let admin = session(&with(alice(), &[("sub", json!("admin:login"))]));
    let refused = |revocation| Some(Error::Revoked(revocation));
    let after = jiff::Timestamp::from_second(ISSUED_AT + 1).unwrap().to_string();
    let cases: [Settings<'_>; 6] = [
        (&[], &[], None),
        (&[("admin.enabled", "true")], &[], None),
        (
            &[("admin.enabled", "false")],
            &[],
            refused(RevocationReason::AccountDisabled),
        ),
        (
            &[("accounts.admin.enabled", "false"), ("admin.enabled", "true")],
            &[],
            refused(RevocationReason::AccountDisabled),
        ),
        (&[("admin.enabled", "no")], &[], refused(RevocationReason::NoAccount)),
        (
            &[],
            &[("admin.passwordMtime", &after)],
            refused(RevocationReason::PasswordChanged),
        ),
    ];
    for (config, secrets, expected) in cases {
        let authenticator = build(&argocd_sessions(), &resources_with(config, secrets));
        assert_eq!(
            bearer(&authenticator, &admin).await.err(),
            expected,
            "{config:?} {secrets:?}"
        );
    }
}

#[test]
fn unreadable_settings_are_reported_without_values() {
    let resources = resources_with(
        &[
            ("accounts.alice.enabled", "flase"),
            ("accounts.bob", "login, sudo"),
            ("accounts.a.b.c", "x"),
        ],
        &[("accounts.robot.tokens", "hunter2"), ("admin.passwordMtime", "hunter2")],
    );
    let findings = findings(&argocd_sessions(), &resources);
    let expected = [
        "argocd-cm.yaml:1: warning: `accounts.a.b.c` is no account setting, the account is locked",
        "argocd-cm.yaml:1: warning: `accounts.alice.enabled` is neither `true` nor `false`, the account is locked",
        "argocd-cm.yaml:1: warning: `accounts.bob`: capability `sudo` is unknown, known are `login` and `apiKey`",
        "argocd-secret.yaml:1: warning: `admin.passwordMtime` is not a time in RFC 3339, the account is locked",
        "argocd-secret.yaml:1: warning: `accounts.robot.tokens` is not a JSON list of tokens, the account is locked",
    ];
    assert_eq!(findings, expected);
}

#[tokio::test]
async fn sessions_and_keys_may_be_on_argo_cds_list_and_project_tokens_may_not() {
    let authenticator = build(&argocd_sessions(), &resources());
    for (sub, id, is_listed) in [
        ("alice:login", "s-1", true),
        ("robot:apiKey", "r-1", true),
        ("proj:web:ci", "p-1", false),
    ] {
        let claims = json!({ "iss": "argocd", "sub": sub, "jti": id, "iat": ISSUED_AT });
        let principal = bearer(&authenticator, &session(&claims)).await.unwrap();
        let expected = match is_listed {
            true => TokenIds::of(claims.as_object().unwrap()),
            false => TokenIds::default(),
        };
        assert_eq!(*principal.token_ids(), expected, "{sub}");
    }
}

#[tokio::test]
async fn project_tokens_must_be_listed() {
    let authenticator = build(&argocd_sessions(), &resources());
    let token = |sub: &str, id: &str, issued_at: i64| {
        session(&json!({ "iss": "argocd", "sub": sub, "jti": id, "iat": issued_at }))
    };
    let refused = |revocation| Some(Error::Revoked(revocation));
    let cases = [
        ("proj:web:ci", "p-1", ISSUED_AT, None),
        ("proj:web:ci", "p-1", ISSUED_AT + 9, None),
        ("proj:web:ci", "", ISSUED_AT - 5, None),
        // The list has `jti` p-1 for this second: another one is revoked.
        ("proj:web:ci", "p-2", ISSUED_AT, refused(RevocationReason::NotListed)),
        ("proj:web:ci", "", ISSUED_AT, refused(RevocationReason::NotListed)),
        ("proj:web:ops", "p-1", ISSUED_AT, refused(RevocationReason::NoRole)),
        ("proj:api:ci", "p-1", ISSUED_AT, refused(RevocationReason::NoRole)),
        (
            "proj::ci",
            "p-1",
            ISSUED_AT,
            Some(Error::Invalid(InvalidTokenReason::Subject)),
        ),
        (
            "proj:web:ci:x",
            "p-1",
            ISSUED_AT,
            Some(Error::Invalid(InvalidTokenReason::Subject)),
        ),
    ];
    for (sub, id, issued_at, expected) in cases {
        let outcome = bearer(&authenticator, &token(sub, id, issued_at)).await;
        assert_eq!(outcome.as_ref().err(), expected.as_ref(), "{sub} {id} {issued_at}");
        if let Ok(principal) = outcome {
            assert_eq!(
                (principal.user_id(), principal.kind()),
                ("proj:web:ci", Kind::ProjectToken)
            );
        }
    }
    let expired = session(&json!({ "iss": "argocd", "sub": "proj:web:ci", "jti": "p-1", "iat": 1, "exp": 2 }));
    assert_eq!(refusal(&authenticator, &expired).await, Error::Expired);
}

#[tokio::test]
async fn federated_claims_do_not_change_the_user() {
    let token = session(&with(alice(), &[("federated_claims", json!({ "user_id": "admin" }))]));
    let principal = bearer(&build(&argocd_sessions(), &resources()), &token).await.unwrap();
    assert_eq!(principal.user_id(), "alice");
    assert!(!principal.claims().contains_key("federated_claims"));
}

#[tokio::test]
async fn sessions_are_accepted_only_if_enabled() {
    let nobody = build(&tollgate_config::Authentication::default(), &resources());
    assert_eq!(
        refusal(&nobody, &session(&alice())).await,
        Error::Invalid(InvalidTokenReason::UnknownIssuer)
    );
    let elsewhere = session(&with(alice(), &[("iss", json!("https://login.example"))]));
    let authenticator = build(&argocd_sessions(), &resources());
    assert_eq!(
        refusal(&authenticator, &elsewhere).await,
        Error::Invalid(InvalidTokenReason::UnknownIssuer)
    );
    assert_eq!(
        refusal(&authenticator, &session(&without(alice(), "iss"))).await,
        Error::Invalid(InvalidTokenReason::UnknownIssuer)
    );
}

#[test]
fn a_signing_key_is_needed() {
    let mut resources = resources();
    resources.secrets.insert(
        "argocd-secret".to_owned(),
        super::secret(&[("server.secretkey", "")]).into(),
    );
    let expected = "argocd-secret.yaml:1: error: Secret `argocd-secret` has no `server.secretkey` \
        (set `authentication.argocdSessions: false` if Argo CD's sessions are not wanted)";
    assert_eq!(findings(&argocd_sessions(), &resources), [expected]);
    resources.secrets.insert(
        "argocd-secret".to_owned(),
        super::secret(&[("server.secretkey", "short")]).into(),
    );
    let expected = "argocd-secret.yaml:1: warning: `server.secretkey` has 5 bytes, \
        at least 16 are needed to resist guessing";
    assert_eq!(findings(&argocd_sessions(), &resources), [expected]);
    assert_eq!(
        findings(&tollgate_config::Authentication::default(), &resources),
        ["warning: `authentication` lets nobody in \
            (set `authentication.argocdSessions: true` or list issuers under `authentication.jwt`)"]
    );
}

#[tokio::test]
async fn debug_output_and_errors_contain_no_secret() {
    let token = session(&alice());
    let authenticator = build(&argocd_sessions(), &resources());
    let principal = bearer(&authenticator, &token).await.unwrap();
    let refused = refusal(&authenticator, &format!("{token}x")).await;
    let shown = format!("{authenticator:?} {principal:?} {refused:?} {refused}");
    let signature = token.rsplit_once('.').unwrap().1;
    assert!(
        !shown.contains(signature) && !shown.contains(SIGNING_KEY_SHOWN),
        "{shown}"
    );
    let broken = authenticator
        .authenticate(&head(&[("authorization", "hunter2")]), Safety::ByMethod)
        .await
        .unwrap_err();
    assert!(!format!("{broken:?} {broken}").contains("hunter2"));
}

const SIGNING_KEY_SHOWN: &str = super::SIGNING_KEY;
