//! Tests of ID tokens: their content, and how long they are cached.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};

use super::issuer_double::IssuerDouble;
use super::issuers::settings;
use super::{FAR, OTHER_RSA, RSA, hs256, part, with, without};
use crate::access::{AccessDenyReason, Error, IdToken};
use crate::authenticate::k8s_proxy::IdTokenVerifier;
use crate::clock::Clock;
use tollgate_config::{Authorizer, ClaimMapping, ClaimRule, KubernetesIssuer, SameSite};
use tollgate_core::session::SessionId;

const CLAIM: &str = "https://gitlab.org/claims/clusters/agents/k8s-proxy";

/// An issuer and settings that name it.
struct Fixture {
    issuer: IssuerDouble,
    config: tollgate_config::Kubernetes,
    clock: Clock,
}

impl Fixture {
    async fn start(is_mapped: bool) -> Self {
        let issuer = IssuerDouble::start().await;
        let trusted = settings(&issuer.url).issuers.remove(0);
        let config = tollgate_config::Kubernetes {
            issuers: vec![KubernetesIssuer {
                issuer: trusted,
                is_mapped,
            }],
            authorizer: Authorizer::Embedded,
            platform_secret: None,
            allowed_origins: Vec::new(),
            agent_claim: CLAIM.to_owned(),
            users: Vec::new(),
            memberships: Vec::new(),
            public_url: None,
            cookie_lifetime: Duration::from_secs(1),
            same_site: SameSite::Strict,
            success_ttl: Duration::from_secs(60),
            refusal_ttl: Duration::from_secs(10),
            longest_token: Duration::from_secs(1),
            max_groups: 200,
            audit_bucket: Duration::from_secs(1),
            audit_keep: Duration::from_secs(1),
            audit_export: None,
        };
        Self {
            issuer,
            config,
            clock: Clock::default(),
        }
    }

    fn verifier(&self) -> IdTokenVerifier {
        let loaded = IdTokenVerifier::build(&self.config, None, &self.clock);
        loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
    }

    fn trusted(&mut self) -> &mut tollgate_config::Issuer {
        &mut self.config.issuers[0].issuer
    }

    /// Good claims for agent 9999.
    fn claims(&self) -> Value {
        with(self.issuer.claims(), &[(CLAIM, json!(9999))])
    }

    fn signed(&self, changes: &[(&str, Value)]) -> String {
        RSA.sign(Some("k1"), &with(self.claims(), changes))
    }
}

async fn verify(verifier: &IdTokenVerifier, token: &str) -> Result<Arc<IdToken>, Error> {
    verifier.verify(&SecretString::from(token)).await
}

/// The reason of a refusal. Any other outcome panics.
async fn refusal(verifier: &IdTokenVerifier, token: &str) -> String {
    match verify(verifier, token).await {
        Err(Error::Refused { reason, .. }) => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_valid_token_names_its_agent_and_session() {
    let fixture = Fixture::start(false).await;
    let verifier = fixture.verifier();
    let token = verify(&verifier, &fixture.signed(&[])).await.unwrap();
    assert_eq!(
        (token.issuer.as_str(), token.agent.get()),
        (fixture.issuer.url.as_str(), 9999)
    );
    assert_eq!(token.expires_at.as_second(), FAR);
    assert_eq!(Value::Object(token.claims.clone()), fixture.claims());
    assert_eq!(token.mapped, None);
    let text = token.session.to_string();
    assert_eq!(SessionId::parse(&text).as_ref(), Some(&token.session));
    assert!(text.starts_with("oidc:token-") && text.len() == 11 + 64, "{text}");
    let of_issuer = verify(&verifier, &fixture.signed(&[("sid", json!("1"))]))
        .await
        .unwrap();
    let text = of_issuer.session.to_string();
    assert!(text.starts_with("oidc:") && text.len() == 5 + 64, "{text}");
}

#[tokio::test]
async fn invalid_tokens_are_refused_with_the_reason() {
    let fixture = Fixture::start(false).await;
    let verifier = fixture.verifier();
    let header = json!({ "alg": "none" });
    let unsigned = format!("{}.{}.", part(&header), part(&fixture.claims()));
    let symmetric = hs256(&json!({ "alg": "HS256", "kid": "k1" }), &fixture.claims(), b"guess");
    let now = fixture.clock.unix_seconds();
    let cases = [
        (unsigned, "`alg` is not one of `RS256`"),
        (symmetric, "`alg` is not one of `RS256`"),
        (
            OTHER_RSA.sign(Some("k1"), &fixture.claims()),
            "the signature does not verify",
        ),
        (RSA.sign(Some("k9"), &fixture.claims()), "no key of the issuer fits"),
        (
            fixture.signed(&[("iss", json!("https://evil.test"))]),
            "no configured issuer",
        ),
        (
            fixture.signed(&[("iss", json!(format!("{}/", fixture.issuer.url)))]),
            "no configured issuer",
        ),
        (fixture.signed(&[("aud", json!("other"))]), "`aud` holds none"),
        (fixture.signed(&[("exp", json!(now))]), "the credential has expired"),
        (
            RSA.sign(Some("k1"), &without(fixture.claims(), "exp")),
            "claim `exp` is missing",
        ),
        (
            fixture.signed(&[("nbf", json!(now + 90))]),
            "claim `nbf` is in the future",
        ),
        ("aaa.bbb.ccc".to_owned(), "not a signed JWT"),
    ];
    for (token, expected) in cases {
        let refused = refusal(&verifier, &token).await;
        assert!(refused.contains(expected), "{expected}: {refused}");
        assert!(!refused.contains(&token));
    }
    let early = [
        ("nbf", json!(now + 45)),
        ("aud", json!(["other", "gate"])),
        ("azp", json!("cli")),
    ];
    assert!(verify(&verifier, &fixture.signed(&early)).await.is_ok());
}

#[tokio::test]
async fn the_agent_claim_must_be_a_positive_integer() {
    let fixture = Fixture::start(false).await;
    let verifier = fixture.verifier();
    for claim in [
        json!("9999"),
        json!([9999]),
        json!(9999.5),
        json!(0),
        json!(-9999),
        json!(null),
        json!(true),
        json!(9_223_372_036_854_775_808_u64),
    ] {
        let refused = refusal(&verifier, &fixture.signed(&[(CLAIM, claim.clone())])).await;
        assert!(refused.contains(CLAIM), "{claim}: {refused}");
    }
    let none = RSA.sign(Some("k1"), &fixture.issuer.claims());
    assert!(refusal(&verifier, &none).await.contains("is missing"));
    let other = verify(&verifier, &fixture.signed(&[(CLAIM, json!(8))])).await.unwrap();
    assert_eq!(other.agent.get(), 8);
}

#[tokio::test]
async fn the_session_is_that_of_the_issuer_or_of_the_token() {
    let fixture = Fixture::start(false).await;
    let verifier = fixture.verifier();
    let session = async |changes: &[(&str, Value)]| {
        let token = verify(&verifier, &fixture.signed(changes)).await.unwrap();
        token.session.clone()
    };
    let (s1, j1, j2) = (("sid", json!("1")), ("jti", json!("1")), ("jti", json!("2")));
    let by_sid = session(&[s1.clone(), j1.clone()]).await;
    assert_eq!(by_sid, session(&[s1.clone(), j2.clone()]).await);
    assert_ne!(by_sid, session(&[("sid", json!("2")), j1.clone()]).await);
    let by_jti = session(std::slice::from_ref(&j1)).await;
    assert_ne!(by_jti, by_sid);
    assert_ne!(by_jti, session(&[j2]).await);
    assert_eq!(by_jti, session(&[("sid", json!("")), j1, ("x", json!(1))]).await);
    assert_ne!(session(&[]).await, session(&[("x", json!(1))]).await);
    for one_token in [by_jti, session(&[]).await] {
        assert!(one_token.is_single_token(), "{one_token}");
        assert_eq!(SessionId::parse(&one_token.to_string()), Some(one_token));
    }
    assert!(!by_sid.is_single_token());
}

#[tokio::test]
async fn a_refreshed_token_has_the_session_of_its_sign_in() {
    let fixture = Fixture::start(false).await;
    let verifier = fixture.verifier();
    let session = async |changes: &[(&str, Value)]| {
        let mut changes = changes.to_vec();
        changes.push(("x", json!(changes.len())));
        let token = verify(&verifier, &fixture.signed(&changes)).await.unwrap();
        token.session.clone()
    };
    let at = |time: Value| ("auth_time", time);
    let (one, two) = (("jti", json!("1")), ("jti", json!("2")));
    let first = session(&[at(json!(1_700_000_000)), one.clone()]).await;
    assert!(!first.is_single_token());
    assert_eq!(first, session(&[at(json!(1_700_000_000)), two.clone()]).await);
    assert_eq!(first, session(&[at(json!(1_700_000_000))]).await);
    let others: [&[(&str, Value)]; 4] = [
        &[at(json!(1_700_000_001)), one.clone()],
        &[at(json!(1_700_000_000)), ("sub", json!("other"))],
        &[at(json!(1_700_000_000)), ("azp", json!("other"))],
        &[at(json!(1_700_000_000)), ("sid", json!("s"))],
    ];
    for other in others {
        assert_ne!(first, session(other).await, "{other:?}");
    }
    // An `auth_time` that is not a number is ignored.
    for time in [json!("1700000000"), json!(null), json!(true)] {
        let by_jti = session(&[at(time.clone()), one.clone()]).await;
        assert!(by_jti.is_single_token(), "{time}");
        assert_ne!(by_jti, session(&[at(time), two.clone()]).await);
    }
}

#[tokio::test]
async fn claim_mappings_give_the_identity() {
    let mut fixture = Fixture::start(true).await;
    fixture.trusted().uid = Some(ClaimMapping::Claim {
        claim: "uuid".to_owned(),
        prefix: String::new(),
    });
    fixture.trusted().extra = vec![("corp.example/dept".to_owned(), "claims.dept".to_owned())];
    let verifier = fixture.verifier();
    let changes = [
        ("sub", json!("jürgen")),
        ("groups", json!(["dev", "ops", "dev"])),
        ("uuid", json!("7f3c")),
        ("dept", json!("sre")),
    ];
    let token = verify(&verifier, &fixture.signed(&changes)).await.unwrap();
    let identity = token.mapped.clone().unwrap();
    assert_eq!(identity.username, "oidc:jürgen");
    assert_eq!(identity.groups, ["corp:dev", "corp:ops"]);
    assert_eq!(identity.uid.as_deref(), Some("7f3c"));
    assert_eq!(
        identity.extra,
        [("corp.example/dept".to_owned(), vec!["sre".to_owned()])]
    );
}

#[tokio::test]
async fn reserved_names_of_kubernetes_are_refused_and_those_of_argocd_accepted() {
    let mut fixture = Fixture::start(true).await;
    fixture.trusted().username = ClaimMapping::Claim {
        claim: "sub".to_owned(),
        prefix: String::new(),
    };
    fixture.trusted().groups = Some(ClaimMapping::Claim {
        claim: "groups".to_owned(),
        prefix: String::new(),
    });
    let verifier = fixture.verifier();
    for name in ["admin", "role:x", "proj:web:ci"] {
        let token = verify(&verifier, &fixture.signed(&[("sub", json!(name))]))
            .await
            .unwrap();
        assert_eq!(token.mapped.as_ref().map(|mapped| mapped.username.as_str()), Some(name));
    }
    for changes in [
        ("sub", json!("system:serviceaccount:kube-system:default")),
        ("groups", json!(["dev", "system:masters"])),
    ] {
        let refused = refusal(&verifier, &fixture.signed(&[changes])).await;
        assert!(refused.contains("reserved"), "{refused}");
    }
}

#[tokio::test]
async fn claim_rules_apply_without_mappings() {
    let mut fixture = Fixture::start(false).await;
    fixture.trusted().claim_validation = vec![ClaimRule::Required {
        claim: "hd".to_owned(),
        value: "corp".to_owned(),
    }];
    let verifier = fixture.verifier();
    assert!(
        refusal(&verifier, &fixture.signed(&[]))
            .await
            .contains("`hd` must be `corp`")
    );
    assert!(
        verify(&verifier, &fixture.signed(&[("hd", json!("corp"))]))
            .await
            .is_ok()
    );
    // Without mappings there is no user for the rules to check.
    fixture.trusted().user_validation = vec![("true".to_owned(), String::new())];
    let loaded = IdTokenVerifier::build(&fixture.config, None, &fixture.clock);
    assert!(loaded.value.is_none());
    assert!(
        loaded.diagnostics[0]
            .to_string()
            .contains("`kubernetes.jwt[0].userValidationRules`")
    );
}

#[tokio::test]
async fn verified_tokens_are_cached_until_they_expire() {
    let fixture = Fixture::start(false).await;
    let verifier = fixture.verifier();
    let token = fixture.signed(&[("exp", json!(fixture.clock.unix_seconds() + 60))]);
    let first = verify(&verifier, &token).await.unwrap();
    assert!(Arc::ptr_eq(&first, &verify(&verifier, &token).await.unwrap()));
    fixture.clock.advance(Duration::from_secs(61));
    let refused = verify(&verifier, &token).await.unwrap_err();
    assert_eq!(refused, AccessDenyReason::Expired.into());
}

#[tokio::test]
async fn keys_survive_reloads_and_unknown_keys_cause_few_fetches() {
    let fixture = Fixture::start(false).await;
    let verifier = fixture.verifier();
    assert!(verify(&verifier, &fixture.signed(&[])).await.is_ok());
    let next = IdTokenVerifier::build(&fixture.config, Some(&verifier), &fixture.clock)
        .value
        .unwrap();
    assert!(verify(&next, &fixture.signed(&[])).await.is_ok());
    assert_eq!(fixture.issuer.key_fetches(), 1);
    // A rotation takes effect at once; unknown keys do not cause repeated fetches.
    fixture.issuer.change(|state| state.keys.push(OTHER_RSA.jwk("k2")));
    let rotated = OTHER_RSA.sign(Some("k2"), &fixture.claims());
    assert!(verify(&next, &rotated).await.is_ok());
    for kid in ["k8", "k9"] {
        let unknown = RSA.sign(Some(kid), &fixture.claims());
        assert!(refusal(&next, &unknown).await.contains("no key"));
    }
    assert_eq!(fixture.issuer.key_fetches(), 2);
}

#[tokio::test]
async fn an_unreachable_issuer_makes_verification_unavailable() {
    let fixture = Fixture::start(false).await;
    let verifier = fixture.verifier();
    fixture.issuer.change(|state| state.down = true);
    let error = verify(&verifier, &fixture.signed(&[])).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}
