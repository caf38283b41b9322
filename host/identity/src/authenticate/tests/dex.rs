//! Tests of Argo CD's `dex.config`: the issuer is reached through argocd-server alone.

use serde_json::{Value, json};
use url::Url;

use super::issuer_double::IssuerDouble;
use super::{
    FAR, ISSUED_AT, RSA, alice, argocd_sessions, bearer, build, findings, refusal, resources_with, session, with,
};
use crate::authenticate::{Authenticator, Error, InvalidTokenReason};
use tollgate_config::{ArgocdServer, Authentication};

/// People's URL of Argo CD. Nothing is there in these tests.
const PUBLIC: &str = "https://argocd.invalid";
const CONFIG: &str = "connectors: [{type: github, id: github, config: {clientSecret: $dex.github}}]";

/// argocd-server, in front of a Dex.
async fn argocd_server() -> IssuerDouble {
    let server = IssuerDouble::start().await;
    server.change(|state| state.dex = Some(format!("{PUBLIC}/api/dex")));
    server
}

fn settings(server: &IssuerDouble) -> Authentication {
    Authentication {
        argocd_server: Some(ArgocdServer {
            server: Url::parse(&server.url).unwrap(),
            root_path: None,
            ca: None,
            server_name: None,
        }),
        ..argocd_sessions()
    }
}

fn started(settings: &Authentication) -> Authenticator {
    build(
        settings,
        &resources_with(&[("dex.config", CONFIG), ("url", PUBLIC)], &[]),
    )
}

/// Claims as Dex writes them.
fn claims() -> Value {
    json!({
        "iss": format!("{PUBLIC}/api/dex"), "sub": "CgVhbGljZRIGZ2l0aHVi", "aud": "argo-cd",
        "iat": ISSUED_AT, "exp": FAR, "at_hash": "h", "groups": ["corp:dev"], "email": "ann@corp.example",
        "email_verified": true, "federated_claims": {"connector_id": "github", "user_id": "4711"},
    })
}

fn token(changes: &[(&str, Value)]) -> String {
    RSA.sign(Some("k1"), &with(claims(), changes))
}

#[tokio::test]
async fn its_tokens_are_verified_with_the_keys_that_argocd_server_serves() {
    let server = argocd_server().await;
    let authenticator = started(&settings(&server));
    let principal = bearer(&authenticator, &token(&[])).await.unwrap();
    assert_eq!(
        (principal.user_id(), principal.username()),
        ("4711", "ann@corp.example")
    );
    assert_eq!(principal.groups(), ["corp:dev"]);
    let requests = server.state.lock().unwrap().requests.clone();
    assert_eq!(requests, ["/api/dex/.well-known/openid-configuration", "/api/dex/keys"]);
    let bare = token(&[("federated_claims", Value::Null)]);
    let principal = bearer(&authenticator, &bare).await.unwrap();
    assert_eq!(principal.user_id(), "CgVhbGljZRIGZ2l0aHVi");
    assert!(
        bearer(&authenticator, &session(&alice())).await.is_ok(),
        "local sessions are still accepted"
    );
}

#[tokio::test]
async fn only_the_clients_that_argo_cd_accepts_are_audiences() {
    let server = argocd_server().await;
    let authenticator = started(&settings(&server));
    for audience in [json!("argo-cd"), json!("argo-cd-cli"), json!(["argo-cd"])] {
        let token = token(&[("aud", audience.clone())]);
        assert!(bearer(&authenticator, &token).await.is_ok(), "{audience}");
    }
    for audience in [json!("argo-cd-pkce"), json!("other"), json!([])] {
        assert_eq!(
            refusal(&authenticator, &token(&[("aud", audience.clone())])).await,
            Error::Invalid(InvalidTokenReason::Audience),
            "{audience}"
        );
    }
    let other = token(&[("iss", json!(format!("{PUBLIC}/api/dex/")))]);
    assert_eq!(
        refusal(&authenticator, &other).await,
        Error::Invalid(InvalidTokenReason::UnknownIssuer)
    );
}

#[tokio::test]
async fn argocd_servers_certificate_must_be_for_its_own_name() {
    let (server, pem) = IssuerDouble::start_tls_for("argocd-server").await;
    server.change(|state| state.dex = Some(format!("{PUBLIC}/api/dex")));
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, pem).unwrap();
    let with_name = |server_name: Option<&str>| {
        let mut settings = settings(&server);
        let argocd = settings.argocd_server.as_mut().unwrap();
        argocd.ca = Some(ca.clone());
        argocd.server_name = server_name.map(str::to_owned);
        settings
    };
    assert!(
        bearer(&started(&with_name(Some("argocd-server"))), &token(&[]))
            .await
            .is_ok()
    );
    for name in [None, Some("other")] {
        assert!(
            matches!(
                refusal(&started(&with_name(name)), &token(&[])).await,
                Error::IssuerUnavailable(_)
            ),
            "{name:?}"
        );
    }
    let mut untrusting = with_name(Some("argocd-server"));
    untrusting.argocd_server.as_mut().unwrap().ca = None;
    assert!(matches!(
        refusal(&started(&untrusting), &token(&[])).await,
        Error::IssuerUnavailable(_)
    ));
}

#[tokio::test]
async fn keys_elsewhere_are_not_fetched() {
    let server = argocd_server().await;
    let elsewhere = IssuerDouble::start().await;
    server.change(|state| {
        state.claimed_issuer = state.dex.clone();
        state.dex = Some(elsewhere.url.clone());
    });
    let authenticator = started(&settings(&server));
    assert!(matches!(
        refusal(&authenticator, &token(&[])).await,
        Error::IssuerUnavailable(_)
    ));
    assert_eq!(elsewhere.key_fetches(), 0);
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let server = argocd_server().await;
    let settings = settings(&server);
    let refused = "argocd-cm.yaml:1: warning: sign-ins through Dex are refused:";
    let url = ("url", PUBLIC);
    for (settings, config, expected) in [
        (&settings, vec![("dex.config", CONFIG), url], None),
        (&settings, vec![("dex.config", "{}"), url], None),
        (
            &argocd_sessions(),
            vec![("dex.config", CONFIG), url],
            Some(format!(
                "{refused} the gateway does not know argocd-server (set `argocd.server`)"
            )),
        ),
        (
            &settings,
            vec![("dex.config", CONFIG)],
            Some(format!(
                "{refused} `argocd-cm` has no `url` (set it to the URL that people use)"
            )),
        ),
        (
            &settings,
            vec![("dex.config", CONFIG), ("url", "http://argocd.invalid")],
            Some(format!(
                "{refused} `http://argocd.invalid/api/dex` must be https, or http to a loopback address, without user \
                 and fragment (correct `url` of `argocd-cm`)"
            )),
        ),
        (
            &settings,
            vec![("dex.config", "[secret"), url],
            Some(format!("{refused} `dex.config` is not a mapping in YAML (correct it)")),
        ),
        (
            &settings,
            vec![
                ("dex.config", CONFIG),
                url,
                ("oidc.config", "{issuer: https://a.example, clientID: gate}"),
            ],
            Some(
                "argocd-cm.yaml:1: warning: `dex.config` is not used: `oidc.config` takes precedence, as in Argo CD"
                    .to_owned(),
            ),
        ),
    ] {
        let found = findings(settings, &resources_with(&config, &[]));
        assert_eq!(found, Vec::from_iter(expected), "{config:?}");
    }
}
