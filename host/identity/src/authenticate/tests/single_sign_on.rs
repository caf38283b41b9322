//! Tests of Argo CD's `oidc.config` and the userinfo endpoint.

use std::time::Duration;

use serde_json::{Value, json};

use super::issuer_double::IssuerDouble;
use super::issuers::settings;
use super::{
    EC, alice, argocd_sessions, bearer, build, findings, groups_scope, refusal, resources_with, session, with,
};
use crate::authenticate::error::{IdentityField, UserinfoError};
use crate::authenticate::{Authenticator, Error, InvalidTokenReason};
use tollgate_core::principal::Kind;

fn config(issuer: &IssuerDouble, more: &str) -> String {
    format!(
        "name: Corp\nissuer: {}\nclientID: gate\nclientSecret: $oidc.secret\n{more}",
        issuer.url
    )
}

fn started(issuer: &IssuerDouble, more: &str) -> Authenticator {
    build(
        &argocd_sessions(),
        &resources_with(&[("oidc.config", &config(issuer, more))], &[]),
    )
}

#[tokio::test]
async fn claims_are_read_as_argo_cd_reads_them() {
    let issuer = IssuerDouble::start().await;
    let authenticator = started(&issuer, "");
    let principal = bearer(&authenticator, &issuer.token(&[])).await.unwrap();
    assert_eq!((principal.user_id(), principal.username()), ("u-1", "ann@corp.example"));
    assert_eq!(principal.groups(), ["dev", "ops"]);
    assert_eq!(principal.kind(), Kind::Oidc);
    assert_eq!(Value::Object(principal.claims().clone()), issuer.claims());
    let federated = issuer.token(&[("federated_claims", json!({ "user_id": "f-1" })), ("email", json!(""))]);
    let principal = bearer(&authenticator, &federated).await.unwrap();
    assert_eq!((principal.user_id(), principal.username()), ("f-1", "f-1"));
    assert!(
        bearer(&authenticator, &session(&alice())).await.is_ok(),
        "local sessions are still accepted"
    );
}

#[tokio::test]
async fn invalid_tokens_are_refused() {
    let issuer = IssuerDouble::start().await;
    let authenticator = started(&issuer, "");
    let reserved = |field| InvalidTokenReason::ReservedName(field);
    let cases = [
        (vec![("aud", json!("other"))], InvalidTokenReason::Audience),
        (
            vec![("sub", json!(""))],
            InvalidTokenReason::MissingClaim("sub".to_owned()),
        ),
        (vec![("sub", json!("system:admin"))], reserved(IdentityField::Username)),
        (vec![("sub", json!("proj:web:ci"))], reserved(IdentityField::Username)),
        (
            vec![("federated_claims", json!({ "user_id": "role:admin" }))],
            reserved(IdentityField::Username),
        ),
        (
            vec![("email", json!("system:admin"))],
            reserved(IdentityField::Username),
        ),
        (
            vec![("groups", json!(["dev", "system:masters"]))],
            reserved(IdentityField::Groups),
        ),
        (
            vec![("groups", json!(["dev\n"]))],
            InvalidTokenReason::Name(IdentityField::Groups),
        ),
    ];
    for (changes, expected) in cases {
        assert_eq!(
            refusal(&authenticator, &issuer.token(&changes)).await,
            Error::Invalid(expected),
            "{changes:?}"
        );
    }
}

#[tokio::test]
async fn an_unverified_e_mail_is_not_used_as_a_name() {
    let issuer = IssuerDouble::start().await;
    let token = issuer.token(&[("email_verified", json!(false))]);
    let principal = bearer(&started(&issuer, ""), &token).await.unwrap();
    assert_eq!(principal.username(), "u-1");
    let resources = resources_with(&[("oidc.config", &config(&issuer, ""))], &[]);
    let scopes = ["groups".to_owned(), "email".to_owned()];
    let authenticator = Authenticator::build(&argocd_sessions(), &resources, &scopes, None)
        .value
        .unwrap();
    assert_eq!(
        refusal(&authenticator, &token).await,
        Error::Invalid(InvalidTokenReason::EmailNotVerified)
    );
    let principal = bearer(&authenticator, &issuer.token(&[])).await.unwrap();
    assert_eq!(principal.groups(), ["dev", "ops", "ann@corp.example"]);
}

#[tokio::test]
async fn audiences_are_those_of_argo_cd() {
    let issuer = IssuerDouble::start().await;
    let token = |audience: &str| issuer.token(&[("aud", json!(audience))]);
    let with_cli = started(&issuer, "cliClientID: cli\n");
    for audience in ["gate", "cli"] {
        assert!(bearer(&with_cli, &token(audience)).await.is_ok(), "{audience}");
    }
    let listed = started(&issuer, "cliClientID: cli\nallowedAudiences: [third]\n");
    assert!(bearer(&listed, &token("third")).await.is_ok());
    for audience in ["gate", "cli"] {
        assert_eq!(
            refusal(&listed, &token(audience)).await,
            Error::Invalid(InvalidTokenReason::Audience),
            "{audience}"
        );
    }
}

#[tokio::test]
async fn a_token_without_audience_is_accepted_only_where_argo_cd_is_told_so() {
    let issuer = IssuerDouble::start().await;
    let Value::Object(mut claims) = issuer.claims() else {
        panic!("no object");
    };
    claims.remove("aud");
    let token = super::RSA.sign(Some("k1"), &Value::Object(claims));
    let audience = Error::Invalid(InvalidTokenReason::Audience);
    for more in ["", "skipAudienceCheckWhenTokenHasNoAudience: false\n"] {
        assert_eq!(refusal(&started(&issuer, more), &token).await, audience, "{more}");
    }
    let skipping = started(&issuer, "skipAudienceCheckWhenTokenHasNoAudience: true\n");
    assert!(bearer(&skipping, &token).await.is_ok());
    let other = issuer.token(&[("aud", json!("other"))]);
    assert_eq!(refusal(&skipping, &other).await, audience);
    let none = issuer.token(&[("aud", json!([]))]);
    assert_eq!(refusal(&skipping, &none).await, audience);
}

#[tokio::test]
async fn asymmetric_algorithms_are_accepted() {
    let issuer = IssuerDouble::start().await;
    issuer.change(|state| state.keys.push(EC.jwk("e1")));
    let authenticator = started(&issuer, "");
    assert!(
        bearer(&authenticator, &EC.sign(Some("e1"), &issuer.claims()))
            .await
            .is_ok()
    );
    assert!(bearer(&authenticator, &issuer.token(&[])).await.is_ok());
}

#[tokio::test]
async fn references_to_secrets_are_resolved() {
    let issuer = IssuerDouble::start().await;
    let text = "issuer: $sso.issuer\nclientID: $corp:client\n";
    let mut resources = resources_with(
        &[("oidc.config", text)],
        &[("sso.issuer", &format!("{}\n", issuer.url))],
    );
    let mut corp = super::secret(&[("client", "gate")]);
    resources.secrets.insert("corp".to_owned(), corp.clone().into());
    let expected = "argocd-cm.yaml:1: error: `oidc.config`: `clientID` refers to `$corp:client`, which does not exist";
    assert_eq!(findings(&argocd_sessions(), &resources), [expected]);
    corp.labels
        .insert("app.kubernetes.io/part-of".to_owned(), "argocd".to_owned());
    resources.secrets.insert("corp".to_owned(), corp.into());
    assert!(
        bearer(&build(&argocd_sessions(), &resources), &issuer.token(&[]))
            .await
            .is_ok()
    );
}

#[test]
fn mistakes_are_reported() {
    let at = "argocd-cm.yaml:1: error: `oidc.config`";
    let cases = [
        ("issuer: [a", format!("{at} is not the YAML expected")),
        ("clientID: gate", format!("{at} has no `issuer`")),
        (
            "issuer: https://a.example",
            format!("{at} has neither `clientID` nor `allowedAudiences`"),
        ),
        (
            "{issuer: http://a.example, clientID: gate}",
            format!("{at}: `http://a.example` must be https, or http to a loopback address, without user and fragment"),
        ),
        (
            "{issuer: https://a.example, clientID: gate, enableUserInfoGroups: true, userInfoPath: .evil.example}",
            format!("{at}: `userInfoPath` must start with `/` to look groups up"),
        ),
        (
            "{issuer: https://a.example, clientID: gate, userInfoCacheExpiration: soon}",
            format!("{at}: `userInfoCacheExpiration` is not a duration such as `5m`"),
        ),
    ];
    for (text, expected) in cases {
        let findings = findings(&argocd_sessions(), &resources_with(&[("oidc.config", text)], &[]));
        assert_eq!(findings, [expected], "{text}");
    }
}

#[tokio::test]
async fn a_configured_issuer_takes_precedence_over_oidc_config() {
    let issuer = IssuerDouble::start().await;
    let mut settings = settings(&issuer.url);
    settings.argocd_sessions = true;
    let resources = resources_with(&[("oidc.config", &config(&issuer, ""))], &[]);
    let expected = format!(
        "argocd-cm.yaml:1: warning: `oidc.config` is not used: `{}` is listed under `authentication.jwt`",
        issuer.url
    );
    assert_eq!(findings(&settings, &resources), [expected]);
    let principal = bearer(&build(&settings, &resources), &issuer.token(&[])).await.unwrap();
    assert_eq!(principal.user_id(), "oidc:u-1");
}

const LOOKUP: &str = "enableUserInfoGroups: true\nuserInfoPath: /userinfo\nuserInfoCacheExpiration: 1m\n";

#[tokio::test]
async fn groups_come_from_userinfo() {
    let issuer = IssuerDouble::start().await;
    issuer.change(|state| state.userinfo = Some(json!({ "sub": "u-1", "groups": ["looked-up"] })));
    let authenticator = started(&issuer, LOOKUP);
    let token = issuer.token(&[]);
    let principal = bearer(&authenticator, &token).await.unwrap();
    assert_eq!(principal.groups(), ["looked-up"]);
    assert_eq!(principal.claims()["groups"], json!(["looked-up"]));
    assert_eq!(issuer.state.lock().unwrap().userinfo_bearer, format!("Bearer {token}"));

    issuer.change(|state| state.userinfo = Some(json!({ "sub": "u-1" })));
    assert_eq!(
        bearer(&authenticator, &token).await.unwrap().groups(),
        ["looked-up"],
        "cached"
    );
    authenticator.clock.advance(Duration::from_secs(61));
    assert_eq!(
        bearer(&authenticator, &token).await.unwrap().groups(),
        ["dev", "ops"],
        "the groups of the token"
    );
    assert!(
        bearer(&authenticator, &session(&alice())).await.is_ok(),
        "no userinfo request for local accounts"
    );
}

#[tokio::test]
async fn answers_of_userinfo_outlive_a_reload_and_their_age_does_not() {
    let issuer = IssuerDouble::start().await;
    issuer.change(|state| state.userinfo = Some(json!({ "sub": "u-1", "groups": ["looked-up"] })));
    let first = started(&issuer, LOOKUP);
    let token = issuer.token(&[]);
    let groups = async |authenticator: &Authenticator| bearer(authenticator, &token).await.unwrap().groups().to_vec();
    assert_eq!(groups(&first).await, ["looked-up"]);
    issuer.change(|state| state.userinfo = Some(json!({ "sub": "u-1", "groups": ["later"] })));
    let reloaded = |before: &Authenticator, extra: &str| {
        let resources = resources_with(&[("oidc.config", &config(&issuer, extra))], &[]);
        let loaded = Authenticator::build(&argocd_sessions(), &resources, &groups_scope(), Some(before));
        loaded.value.unwrap()
    };
    let second = reloaded(&first, LOOKUP);
    second.clock.advance(Duration::from_secs(40));
    assert_eq!(groups(&second).await, ["looked-up"], "nobody is looked up again");
    // Neither reload begins a new minute.
    let third = reloaded(&second, LOOKUP);
    assert_eq!(groups(&third).await, ["looked-up"]);
    third.clock.advance(Duration::from_secs(21));
    assert_eq!(groups(&third).await, ["later"]);

    // Other settings have separate answers.
    issuer.change(|state| state.userinfo = Some(json!({ "sub": "u-1", "groups": ["other"] })));
    let other = reloaded(&third, &LOOKUP.replace("1m", "2m"));
    assert_eq!(groups(&other).await, ["other"]);
}

/// Case `ext-auth-006` of Argo CD's middleware ("Invalid session").
#[tokio::test]
async fn a_session_without_userinfo_is_unusable() {
    let issuer = IssuerDouble::start().await;
    let authenticator = started(&issuer, LOOKUP);
    let refused = refusal(&authenticator, &issuer.token(&[])).await;
    assert_eq!(
        (refused.code(), &refused),
        ("session_unusable", &Error::SessionUnusable(UserinfoError::Unreachable))
    );
    issuer.change(|state| state.userinfo = Some(json!({ "sub": "u-2", "groups": ["admins"] })));
    assert_eq!(
        refusal(&authenticator, &issuer.token(&[])).await,
        Error::SessionUnusable(UserinfoError::OtherSubject)
    );
    issuer.change(|state| state.userinfo = Some(json!({ "groups": ["admins"] })));
    assert_eq!(
        refusal(&authenticator, &with_no_subject(&issuer)).await,
        Error::SessionUnusable(UserinfoError::OtherSubject)
    );
}

/// A token whose user id does not come from `sub`.
fn with_no_subject(issuer: &IssuerDouble) -> String {
    let claims = with(
        issuer.claims(),
        &[("sub", json!("")), ("federated_claims", json!({ "user_id": "f" }))],
    );
    super::RSA.sign(Some("k1"), &claims)
}

#[tokio::test]
async fn a_reload_keeps_the_keys() {
    let issuer = IssuerDouble::start().await;
    let resources = resources_with(&[("oidc.config", &config(&issuer, ""))], &[]);
    let first = build(&argocd_sessions(), &resources);
    assert!(bearer(&first, &issuer.token(&[])).await.is_ok());
    let second = Authenticator::build(&argocd_sessions(), &resources, &groups_scope(), Some(&first))
        .value
        .unwrap();
    assert!(bearer(&second, &issuer.token(&[])).await.is_ok());
    assert_eq!(issuer.key_fetches(), 1);
}
