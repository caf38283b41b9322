use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use bytes::Bytes;
use http::{HeaderValue, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::{INVALID_KEY, PATH, PlatformEndpoint};
use crate::access::tests::world::{Pat, SECRET, World, mapped, settings};
use crate::access::{AccessDenyReason, AccessGrant, Error, IdToken, SetupError};

/// A gateway that is a platform.
struct Platform {
    world: World,
    endpoint: PlatformEndpoint,
}

impl Platform {
    async fn new() -> Self {
        let world = World::new().await;
        let settings = tollgate_config::Kubernetes {
            platform_secret: Some(world.secret_file()),
            ..settings()
        };
        let endpoint = PlatformEndpoint::new(&settings, world.clock.clone()).unwrap().unwrap();
        Self { world, endpoint }
    }

    fn proof(&self) -> HeaderValue {
        self.endpoint.secret.token(self.world.clock.unix_seconds()).unwrap()
    }

    /// The tokens this platform's issuer made, as the gateway would prove them.
    fn verify(&self, token: &SecretString) -> Result<Arc<IdToken>, Error> {
        let known = [("102", 9999), ("102", 7), ("102", 6), ("103", 9999)];
        let mut tokens = known
            .into_iter()
            .map(|(sub, agent)| self.world.token_of(&json!(sub), agent));
        let token = tokens.find(|known| known.token.expose_secret() == token.expose_secret());
        let mut token = token.ok_or(AccessDenyReason::IdToken("not ours".to_owned()))?;
        token.mapped = Some(mapped("oidc:102"));
        Ok(Arc::new(token))
    }

    async fn answer(&self, field: Option<&HeaderValue>, body: &[u8]) -> Response<Bytes> {
        let judges = (&self.world.authorizer, &self.world.agents);
        let verify = |token: SecretString| async move { self.verify(&token) };
        self.endpoint.answer((field, body), judges, verify).await
    }

    async fn ask(&self, query: &Value) -> (u16, String) {
        let response = self.answer(Some(&self.proof()), query.to_string().as_bytes()).await;
        assert_eq!(response.headers()["cache-control"], "no-store");
        let body = String::from_utf8(response.body().to_vec()).unwrap();
        (response.status().as_u16(), body)
    }
}

fn pat(agent: i64, token: &str) -> Value {
    json!({"agent_id": agent, "access_type": "personal_access_token", "access_key": token})
}

#[tokio::test]
async fn answers_have_the_form_of_the_design() {
    let platform = Platform::new().await;
    platform.world.add(&Pat::default()).await;
    let plain = Pat {
        secret: "glpat-bob",
        user: (102, "bob"),
        agent: 7,
        ..Pat::default()
    };
    platform.world.add(&plain).await;
    let (status, body) = platform.ask(&pat(9999, "glpat-alice")).await;
    let expected = json!({
        "agent": {"id": 9999, "config_project": {"id": 1234}},
        "user": {"id": 101, "username": "alice"},
        "access_as": {"user": {
            "projects": [{"id": 1, "roles": ["reporter", "developer", "maintainer"]}],
            "groups": [],
        }},
    });
    assert_eq!((status, serde_json::from_str(&body).unwrap()), (200, expected));
    let (status, body) = platform.ask(&pat(7, "glpat-bob")).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["access_as"]), (200, &json!({"agent": {}})));
}

#[tokio::test]
async fn without_the_secret_nothing_is_answered() {
    let platform = Platform::new().await;
    platform.world.add(&Pat::default()).await;
    let body = pat(9999, "glpat-alice").to_string();
    let forged = HeaderValue::from_static("a.b.c");
    for field in [None, Some(&forged)] {
        let response = platform.answer(field, body.as_bytes()).await;
        assert_eq!(response.status(), 401);
        assert!(memchr::memmem::find(response.body(), INVALID_KEY.as_bytes()).is_none());
        // Nor does the answer tell that the body is not JSON.
        assert_eq!(platform.answer(field, b"{").await.status(), 401);
    }
    assert_eq!(platform.ask(&pat(9999, "glpat-alice")).await.0, 200);
}

#[tokio::test]
async fn refusals_have_the_statuses_of_the_design() {
    let platform = Platform::new().await;
    let world = &platform.world;
    world.add(&Pat::default()).await;
    world.add_cookie((102, "bob"), 3600).await;
    world.add_cookie((105, "erin"), 3600).await;
    let carol = Pat {
        secret: "glpat-carol",
        user: (103, "carol"),
        ..Pat::default()
    };
    world.add(&carol).await;
    let api = Pat {
        secret: "glpat-api",
        scopes: &["api"],
        ..Pat::default()
    };
    world.add(&api).await;
    let key = (401, "Invalid user access key".to_owned());
    assert_eq!(platform.ask(&pat(9999, "glpat-nope")).await, key);
    assert_eq!(platform.ask(&pat(424_242, "glpat-nope")).await, key);
    let cookie = |agent: i64, name: &str, csrf_token: &str| {
        json!({
            "agent_id": agent, "access_type": "session_cookie",
            "access_key": format!("sess-{name}"), "csrf_token": csrf_token,
        })
    };
    assert_eq!(platform.ask(&cookie(9999, "bob", "csrf-erin")).await, key);
    let token = json!({"agent_id": 9999, "access_type": "oidc_id_token", "access_key": "forged"});
    assert_eq!(platform.ask(&token).await, key);
    assert_eq!(platform.ask(&cookie(9999, "bob", "csrf-bob")).await.0, 200);
    assert_eq!(platform.ask(&cookie(9999, "erin", "csrf-erin")).await.0, 403);
    assert_eq!(platform.ask(&cookie(424_242, "erin", "csrf-erin")).await.0, 404);
    assert_eq!(platform.ask(&pat(9999, "glpat-carol")).await.0, 403);
    assert_eq!(platform.ask(&pat(9999, "glpat-api")).await.0, 403);
    assert_eq!(platform.ask(&pat(8, "glpat-alice")).await.0, 403);
}

#[tokio::test]
async fn what_is_no_question_is_said_so() {
    let platform = Platform::new().await;
    for query in [
        json!({}),
        json!({"agent_id": 0, "access_type": "personal_access_token", "access_key": "t"}),
        json!({"agent_id": "x", "access_type": "personal_access_token", "access_key": "t"}),
        json!({"agent_id": 1, "access_type": "ci_job_token", "access_key": "t"}),
        json!({"agent_id": 1, "access_type": "personal_access_token"}),
        json!({"agent_id": 1, "access_type": "session_cookie", "access_key": "c"}),
    ] {
        assert_eq!(platform.ask(&query).await.0, 400, "{query}");
    }
}

#[tokio::test]
async fn a_gateway_whose_platform_is_elsewhere_is_none() {
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

/// Serves a platform, and gives a gateway that asks it.
async fn pair() -> (Arc<Platform>, World) {
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
            secret: platform.world.secret_file(),
            certificate_authority: None,
            stream_lifetime: Duration::from_secs(600),
        },
        ..settings()
    };
    (platform, World::with(&settings).await)
}

/// Compares the answers of the platform itself and of the gateway that asks it.
#[track_caller]
fn equal(own: Result<Arc<AccessGrant>, Error>, remote: Result<Arc<AccessGrant>, Error>) {
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
async fn a_gateway_that_asks_another_says_what_that_one_says() {
    let (platform, gateway) = pair().await;
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
        platform.world.add_cookie((number, name), 3600).await;
        for agent in [9999, 8, 7, 6, 424_242] {
            let (cookie, csrf_token) = (format!("sess-{name}"), format!("csrf-{name}"));
            let own = platform.world.cookie(agent, &cookie, &csrf_token).await;
            let remote = gateway.cookie(agent, &cookie, &csrf_token).await;
            equal(own, remote);
        }
    }
    platform.world.add(&Pat::default()).await;
    for token in ["glpat-alice", "glpat-nope"] {
        for agent in [9999, 8] {
            equal(platform.world.pat(agent, token).await, gateway.pat(agent, token).await);
        }
    }
    for (sub, agent) in [("102", 9999), ("102", 7), ("102", 6), ("103", 9999)] {
        let mut token = platform.world.token_of(&json!(sub), agent);
        token.mapped = Some(mapped("oidc:102"));
        equal(platform.world.id_token(&token).await, gateway.id_token(&token).await);
    }
}

#[tokio::test]
async fn a_gateway_with_another_secret_is_told_so_itself() {
    let (platform, gateway) = pair().await;
    platform.world.add(&Pat::default()).await;
    gateway.pat(9999, "glpat-alice").await.unwrap();
    // The clocks differ by more than the lifetime of a token.
    platform.world.clock.advance(std::time::Duration::from_secs(3600));
    gateway.clock.advance(std::time::Duration::from_secs(61));
    let answer = gateway.pat(9999, "glpat-alice").await;
    assert!(matches!(answer, Err(Error::Unavailable(detail)) if detail.contains("secretFile")));
}
