use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use bytes::Bytes;
use http::{HeaderValue, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::{INVALID_KEY, PATH, PlatformEndpoint, not_admitted};
use crate::access::tests::fixture::{Fixture, Pat, SECRET, mapped, settings};
use crate::access::{AccessDenyReason, AccessGrant, Error, IdToken, SetupError};

/// A gateway that serves the platform's endpoint.
struct Platform {
    fixture: Fixture,
    endpoint: PlatformEndpoint,
}

impl Platform {
    async fn new() -> Self {
        let fixture = Fixture::new().await;
        let settings = tollgate_config::Kubernetes {
            platform_secret: Some(fixture.secret_file()),
            ..settings()
        };
        let endpoint = PlatformEndpoint::new(&settings, fixture.clock.clone())
            .unwrap()
            .unwrap();
        Self { fixture, endpoint }
    }

    fn gateway_token(&self) -> HeaderValue {
        self.endpoint.secret.token(self.fixture.clock.unix_seconds()).unwrap()
    }

    /// Verifies ID tokens. Only some tokens of [`Fixture::token_of`] are valid.
    fn verify(&self, token: &SecretString) -> Result<Arc<IdToken>, Error> {
        let known = [("102", 9999), ("102", 7), ("102", 6), ("103", 9999)];
        let mut tokens = known
            .into_iter()
            .map(|(sub, agent)| self.fixture.token_of(&json!(sub), agent));
        let token = tokens.find(|known| known.token.expose_secret() == token.expose_secret());
        let mut token = token.ok_or(AccessDenyReason::IdToken("not ours".to_owned()))?;
        token.mapped = Some(mapped("oidc:102"));
        Ok(Arc::new(token))
    }

    async fn answer(&self, field: Option<&HeaderValue>, body: &[u8]) -> Response<Bytes> {
        let verify = |token: SecretString| async move { self.verify(&token) };
        match self.endpoint.admit(field) {
            Some(gateway) => {
                let (authorizer, agents) = (&self.fixture.authorizer, &self.fixture.agents);
                gateway.answer(body, authorizer, agents, verify).await
            }
            None => not_admitted(),
        }
    }

    async fn post(&self, query: &Value) -> (u16, String) {
        let response = self
            .answer(Some(&self.gateway_token()), query.to_string().as_bytes())
            .await;
        assert_eq!(response.headers()["cache-control"], "no-store");
        let body = String::from_utf8(response.body().to_vec()).unwrap();
        (response.status().as_u16(), body)
    }
}

fn pat(agent: i64, token: &str) -> Value {
    json!({"agent_id": agent, "access_type": "personal_access_token", "access_key": token})
}

#[tokio::test]
async fn responses_have_the_format_of_the_design() {
    let platform = Platform::new().await;
    platform.fixture.add(&Pat::default()).await;
    let plain = Pat {
        secret: "glpat-bob",
        user: (102, "bob"),
        agent: 7,
        ..Pat::default()
    };
    platform.fixture.add(&plain).await;
    let (status, body) = platform.post(&pat(9999, "glpat-alice")).await;
    let expected = json!({
        "agent": {"id": 9999, "config_project": {"id": 1234}},
        "user": {"id": 101, "username": "alice"},
        "access_as": {"user": {
            "projects": [{"id": 1, "roles": ["reporter", "developer", "maintainer"]}],
            "groups": [],
        }},
    });
    assert_eq!((status, serde_json::from_str(&body).unwrap()), (200, expected));
    let (status, body) = platform.post(&pat(7, "glpat-bob")).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["access_as"]), (200, &json!({"agent": {}})));
}

#[tokio::test]
async fn requests_without_a_valid_gateway_token_are_refused() {
    let platform = Platform::new().await;
    platform.fixture.add(&Pat::default()).await;
    let body = pat(9999, "glpat-alice").to_string();
    let forged = HeaderValue::from_static("a.b.c");
    for field in [None, Some(&forged)] {
        let response = platform.answer(field, body.as_bytes()).await;
        assert_eq!(response.status(), 401);
        assert!(memchr::memmem::find(response.body(), INVALID_KEY.as_bytes()).is_none());
        // The response does not reveal that the body is not JSON.
        assert_eq!(platform.answer(field, b"{").await.status(), 401);
    }
    assert_eq!(platform.post(&pat(9999, "glpat-alice")).await.0, 200);
}

#[tokio::test]
async fn refusals_have_the_statuses_of_the_design() {
    let platform = Platform::new().await;
    let fixture = &platform.fixture;
    fixture.add(&Pat::default()).await;
    fixture.add_cookie(102, "bob", 3600).await;
    fixture.add_cookie(105, "erin", 3600).await;
    let carol = Pat {
        secret: "glpat-carol",
        user: (103, "carol"),
        ..Pat::default()
    };
    fixture.add(&carol).await;
    let api = Pat {
        secret: "glpat-api",
        scopes: &["api"],
        ..Pat::default()
    };
    fixture.add(&api).await;
    let key = (401, "Invalid user access key".to_owned());
    assert_eq!(platform.post(&pat(9999, "glpat-nope")).await, key);
    assert_eq!(platform.post(&pat(424_242, "glpat-nope")).await, key);
    let cookie = |agent: i64, name: &str, csrf_token: &str| {
        json!({
            "agent_id": agent, "access_type": "session_cookie",
            "access_key": format!("sess-{name}"), "csrf_token": csrf_token,
        })
    };
    assert_eq!(platform.post(&cookie(9999, "bob", "csrf-erin")).await, key);
    let token = json!({"agent_id": 9999, "access_type": "oidc_id_token", "access_key": "forged"});
    assert_eq!(platform.post(&token).await, key);
    assert_eq!(platform.post(&cookie(9999, "bob", "csrf-bob")).await.0, 200);
    assert_eq!(platform.post(&cookie(9999, "erin", "csrf-erin")).await.0, 403);
    assert_eq!(platform.post(&cookie(424_242, "erin", "csrf-erin")).await.0, 404);
    assert_eq!(platform.post(&pat(9999, "glpat-carol")).await.0, 403);
    assert_eq!(platform.post(&pat(9999, "glpat-api")).await.0, 403);
    assert_eq!(platform.post(&pat(8, "glpat-alice")).await.0, 403);
}

#[tokio::test]
async fn invalid_queries_are_bad_requests() {
    let platform = Platform::new().await;
    for query in [
        json!({}),
        json!({"agent_id": 0, "access_type": "personal_access_token", "access_key": "t"}),
        json!({"agent_id": "x", "access_type": "personal_access_token", "access_key": "t"}),
        json!({"agent_id": 1, "access_type": "ci_job_token", "access_key": "t"}),
        json!({"agent_id": 1, "access_type": "personal_access_token"}),
        json!({"agent_id": 1, "access_type": "session_cookie", "access_key": "c"}),
    ] {
        assert_eq!(platform.post(&query).await.0, 400, "{query}");
    }
}

#[tokio::test]
async fn a_gateway_with_a_remote_authorizer_cannot_be_a_platform() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let clock = crate::clock::Clock::default();
    let mut settings = settings();
    assert!(PlatformEndpoint::new(&settings, clock.clone()).unwrap().is_none());
    settings.platform_secret = Some(secret.clone());
    settings.authorizer = tollgate_config::Authorizer::Remote {
        url: "https://gitlab.example.com".parse().unwrap(),
        secret,
        certificate_authority: None,
        stream_lifetime: Duration::from_secs(600),
    };
    assert!(matches!(
        PlatformEndpoint::new(&settings, clock),
        Err(SetupError::RemoteAuthorizer)
    ));
}

/// Serves a platform. Returns it with a gateway that sends it queries.
async fn platform_and_gateway() -> (Arc<Platform>, Fixture) {
    let platform = Arc::new(Platform::new().await);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = Arc::clone(&platform);
    let handler = move |request: Request| {
        let platform = Arc::clone(&served);
        async move {
            assert_eq!(request.uri().path(), PATH);
            let field = request.headers().get("gitlab-kas-api-request").cloned();
            let body = to_bytes(request.into_body(), super::MAX_BODY_BYTES).await.unwrap();
            platform.answer(field.as_ref(), &body).await.map(Body::from)
        }
    };
    let router = Router::new().fallback(handler);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let settings = tollgate_config::Kubernetes {
        authorizer: tollgate_config::Authorizer::Remote {
            url: url.parse().unwrap(),
            secret: platform.fixture.secret_file(),
            certificate_authority: None,
            stream_lifetime: Duration::from_secs(600),
        },
        ..settings()
    };
    (platform, Fixture::with(&settings).await)
}

/// Compares the results of the platform itself and of the gateway that sends it queries.
#[track_caller]
fn assert_same_result(own: Result<Arc<AccessGrant>, Error>, remote: Result<Arc<AccessGrant>, Error>) {
    match (own, remote) {
        (Ok(own), Ok(remote)) => {
            assert_eq!(own.agent(), remote.agent());
            assert_eq!(own.user(), remote.user());
            assert_eq!(own.facts().access_as, remote.facts().access_as);
            assert_eq!(own.session().access_type(), remote.session().access_type());
        }
        (Err(Error::Refused { .. }), Err(Error::Refused { .. })) => {}
        (own, remote) => panic!("{own:?}\n{remote:?}"),
    }
}

#[tokio::test]
async fn a_remote_authorizer_gives_the_results_of_the_platform() {
    let (platform, gateway) = platform_and_gateway().await;
    let people = [
        (101, "alice"),
        (102, "bob"),
        (103, "carol"),
        (104, "dave"),
        (107, "grace"),
        (108, "heidi"),
        (109, "ivan"),
    ];
    for (number, name) in people {
        platform.fixture.add_cookie(number, name, 3600).await;
        for agent in [9999, 8, 7, 6, 424_242] {
            let (cookie, csrf_token) = (format!("sess-{name}"), format!("csrf-{name}"));
            let own = platform.fixture.cookie(agent, &cookie, &csrf_token).await;
            let remote = gateway.cookie(agent, &cookie, &csrf_token).await;
            assert_same_result(own, remote);
        }
    }
    platform.fixture.add(&Pat::default()).await;
    for token in ["glpat-alice", "glpat-nope"] {
        for agent in [9999, 8] {
            assert_same_result(
                platform.fixture.pat(agent, token).await,
                gateway.pat(agent, token).await,
            );
        }
    }
    for (sub, agent) in [("102", 9999), ("102", 7), ("102", 6), ("103", 9999)] {
        let mut token = platform.fixture.token_of(&json!(sub), agent);
        token.mapped = Some(mapped("oidc:102"));
        assert_same_result(platform.fixture.id_token(&token).await, gateway.id_token(&token).await);
    }
}

#[tokio::test]
async fn an_invalid_gateway_token_is_reported_as_unavailable() {
    let (platform, gateway) = platform_and_gateway().await;
    platform.fixture.add(&Pat::default()).await;
    gateway.pat(9999, "glpat-alice").await.unwrap();
    // The clocks differ by more than the lifetime of a token.
    platform.fixture.clock.advance(std::time::Duration::from_secs(3600));
    gateway.clock.advance(std::time::Duration::from_secs(61));
    let answer = gateway.pat(9999, "glpat-alice").await;
    assert!(matches!(answer, Err(Error::Unavailable(detail)) if detail.contains("secretFile")));
}
