//! Authentication with tokens of a real OpenID provider: sign-in, key rotation, outage and reload.
//!
//! Runs `tests/oidc/provider.mjs` with Node.js. `npm ci` in `tests/oidc` installs what it needs.

use std::path::Path;
use std::sync::Arc;

use test_support::oidc::Provider;
use tollgate_config::{Authentication, raw};
use tollgate_core::diagnostic::Location;
use tollgate_core::principal::Kind;
use tollgate_identity::authenticate::{Authenticator, Error, InvalidTokenReason, Principal, Safety};
use tollgate_objects::{Resources, Secret, Text};

fn settings_of(provider: &Provider, audiences: &str) -> Authentication {
    let yaml = format!(
        r#"
state: {{directory: s}}
policies: {{directory: p}}
authentication:
  jwt:
  - issuer:
      url: {}
      audiences: {audiences}
      audienceMatchPolicy: MatchAny
    claimValidationRules:
    - expression: "!has(claims.email) || claims.email_verified == true"
      message: verify your e-mail
    claimMappings:
      username:
        expression: "has(claims.email) ? claims.email : 'client:' + claims.sub"
      groups:
        expression: "has(claims.groups) ? claims.groups.map(g, 'corp:' + g) : []"
    userValidationRules:
    - expression: "!user.username.startsWith('mallory')"
      message: not her
"#,
        provider.issuer
    );
    let loaded = raw::parse(&yaml, "tollgate.yaml", Path::new(""));
    let config = loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    config.authentication
}

fn build(settings: &Authentication, resources: &Resources, previous: Option<&Authenticator>) -> Authenticator {
    let loaded = Authenticator::build(settings, resources, &["groups".to_owned()], previous);
    loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

async fn bearer(authenticator: &Authenticator, token: &str) -> Result<Arc<Principal>, Error> {
    let request = http::Request::get("/")
        .header("authorization", format!("Bearer {token}"))
        .body(())
        .unwrap();
    authenticator
        .authenticate(&request.into_parts().0, Safety::ByMethod)
        .await
}

#[tokio::test]
async fn users_and_clients_sign_in() {
    let mut provider = Provider::start();
    let (ann, program) = (provider.token("id-token ann"), provider.token("access-token"));
    let both = build(
        &settings_of(&provider, "[gate, 'urn:tollgate']"),
        &Resources::default(),
        None,
    );

    let principal = bearer(&both, &ann).await.unwrap();
    assert_eq!(
        (principal.user_id(), principal.kind()),
        ("ann@corp.example", Kind::Oidc)
    );
    assert_eq!(principal.groups(), ["corp:dev", "corp:ops"]);
    assert_eq!(principal.issuer(), provider.issuer);
    assert!(principal.expires_at().unwrap() > jiff::Timestamp::now());
    let principal = bearer(&both, &program).await.unwrap();
    assert_eq!(
        (principal.user_id(), principal.groups()),
        ("client:gate", &[] as &[String])
    );

    let people = build(&settings_of(&provider, "[gate]"), &Resources::default(), None);
    assert!(bearer(&people, &ann).await.is_ok());
    assert_eq!(
        bearer(&people, &program).await.unwrap_err(),
        Error::Invalid(InvalidTokenReason::Audience)
    );
    let mallory = provider.token("id-token mallory");
    assert_eq!(bearer(&people, &mallory).await.unwrap_err().code(), "user_rule_refused");

    let (signed, signature) = ann.rsplit_once('.').unwrap();
    let (_, other) = mallory.rsplit_once('.').unwrap();
    assert_ne!(signature, other);
    let forged = bearer(&people, &format!("{signed}.{other}")).await.unwrap_err();
    assert_eq!(forged, Error::Invalid(InvalidTokenReason::Signature));
}

#[tokio::test]
async fn keys_are_rotated() {
    let mut provider = Provider::start();
    let settings = settings_of(&provider, "[gate]");
    let authenticator = build(&settings, &Resources::default(), None);
    let (first, late) = (provider.token("id-token ann"), provider.token("id-token late"));
    assert!(bearer(&authenticator, &first).await.is_ok());
    assert_eq!(provider.ask("rotate"), 2);
    let second = provider.token("id-token bob");
    assert_eq!(
        bearer(&authenticator, &second).await.unwrap().user_id(),
        "bob@corp.example"
    );
    assert!(
        bearer(&authenticator, &late).await.is_ok(),
        "the old key is still published"
    );

    assert_eq!(provider.ask("retire"), 1);
    let fresh = build(&settings, &Resources::default(), None);
    assert!(bearer(&fresh, &second).await.is_ok());
    assert_eq!(
        bearer(&fresh, &late).await.unwrap_err(),
        Error::Invalid(InvalidTokenReason::UnknownKey)
    );
}

#[tokio::test]
async fn cached_keys_survive_an_outage_and_a_reload() {
    let mut provider = Provider::start();
    let settings = settings_of(&provider, "[gate]");
    let authenticator = build(&settings, &Resources::default(), None);
    assert!(bearer(&authenticator, &provider.token("id-token ann")).await.is_ok());
    let (bob, carol) = (provider.token("id-token bob"), provider.token("id-token carol"));
    provider.stop();
    assert!(bearer(&authenticator, &bob).await.is_ok(), "the keys are cached");
    let reloaded = build(&settings, &Resources::default(), Some(&authenticator));
    assert!(bearer(&reloaded, &carol).await.is_ok(), "a reload keeps the keys");
    let fresh = build(&settings, &Resources::default(), None);
    let expected = Error::IssuerUnavailable(provider.issuer.clone());
    assert_eq!(bearer(&fresh, &carol).await.unwrap_err(), expected);
}

#[tokio::test]
async fn argo_cd_settings_are_used() {
    let mut provider = Provider::start();
    let mut resources = Resources::default();
    let text = format!(
        "name: Corp\nissuer: {}\nclientID: gate\nclientSecret: $oidc.secret\n",
        provider.issuer
    );
    let text = Text {
        value: text.into(),
        location: Location::new("argocd-cm.yaml", 1),
    };
    resources.argocd_cm.data.insert("oidc.config".to_owned(), text);
    let secret = Secret {
        labels: std::collections::BTreeMap::new(),
        values: [("server.secretkey".to_owned(), "0123456789abcdef".into())].into(),
        location: Location::new("argocd-secret.yaml", 1),
    };
    resources.secrets.insert("argocd-secret".to_owned(), secret.into());
    let settings = Authentication {
        argocd_sessions: true,
        ..Authentication::default()
    };
    let authenticator = build(&settings, &resources, None);
    let principal = bearer(&authenticator, &provider.token("id-token ann")).await.unwrap();
    assert_eq!((principal.user_id(), principal.username()), ("ann", "ann@corp.example"));
    assert_eq!(principal.groups(), ["dev", "ops"]);
    let program = provider.token("access-token");
    assert_eq!(
        bearer(&authenticator, &program).await.unwrap_err(),
        Error::Invalid(InvalidTokenReason::Audience)
    );
}
