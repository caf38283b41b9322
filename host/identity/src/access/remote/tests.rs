use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::access::tests::fixture::{Fixture, id, mapped, member, memberships, refusal, settings};
use crate::access::tests::platform_stub::Stub;
use crate::access::{AccessDenyReason, AccessGrant, AccessKey, AccessQuery, Error};
use crate::sessions::{EndReason, NewExchange};
use tollgate_core::attributes::Attributes;
use tollgate_core::session::AccessType;
use tollgate_core::user::{AccessAs, CiJob, Identity, Membership, Role};

/// A gateway whose platform is the stub.
pub(super) async fn remote() -> (Fixture, Stub) {
    let stub = Stub::start().await;
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, crate::access::tests::fixture::SECRET).unwrap();
    let mut settings = settings();
    settings.authorizer = tollgate_config::Authorizer::Remote {
        url: stub.url(),
        secret,
        certificate_authority: None,
        stream_lifetime: Duration::from_secs(600),
    };
    (Fixture::with(&settings).await, stub)
}

fn answer(access_as: &Value) -> Value {
    json!({
        "agent": {"id": 9999, "config_project": {"id": 1234}},
        "user": {"id": 102, "username": "bob"},
        "access_as": access_as,
    })
}

async fn authorize_with(access_as: Value) -> Result<Arc<AccessGrant>, Error> {
    let (fixture, stub) = remote().await;
    stub.respond_with(200, &answer(&access_as));
    fixture.pat(9999, "glpat-bob").await
}

#[track_caller]
fn unavailable(answer: Result<Arc<AccessGrant>, Error>) -> String {
    match answer {
        Err(Error::Unavailable(detail)) => detail,
        other => panic!("not unavailable: {other:?}"),
    }
}

#[tokio::test]
async fn the_query_has_the_format_the_platform_expects() {
    let (fixture, stub) = remote().await;
    stub.respond_with(200, &answer(&json!({"agent": {}})));
    let access = fixture.pat(9999, "glpat:bob").await.unwrap();
    assert_eq!(access.facts().access_as, AccessAs::Agent);
    assert_eq!(access.user().username, "bob");
    assert_eq!(access.agent().name, "my-agent");
    assert_eq!(access.session().access_type(), AccessType::PersonalAccessToken);
    let left = access.expires_at().unwrap().duration_since(fixture.clock.now());
    assert!((595..=600).contains(&left.as_secs()), "{left}");
    let requests = stub.requests();
    assert_eq!(
        requests[0].line,
        "POST /gitlab/api/v4/internal/kubernetes/authorize_proxy_user"
    );
    let expected = json!({"agent_id": 9999, "access_type": "personal_access_token", "access_key": "glpat:bob"});
    assert_eq!(requests[0].body, expected);
    let secret = super::SharedSecret::read(&fixture.secret_file()).unwrap();
    let gateway_token = requests[0].headers.get("gitlab-kas-api-request").unwrap();
    assert!(secret.is_valid_token(gateway_token, fixture.clock.unix_seconds()));
}

#[tokio::test]
async fn a_cookie_is_sent_and_cached_with_its_csrf_token() {
    let (fixture, stub) = remote().await;
    stub.respond_with(200, &answer(&json!({"agent": {}})));
    let access = fixture.cookie(9999, "sess-bob", "csrf-bob").await.unwrap();
    assert_eq!(access.session().access_type(), AccessType::SessionCookie);
    let expected = json!({
        "agent_id": 9999, "access_type": "session_cookie", "access_key": "sess-bob", "csrf_token": "csrf-bob"
    });
    assert_eq!(stub.requests()[0].body, expected);
    stub.respond_with(401, "Invalid user access key");
    assert_eq!(
        refusal(fixture.cookie(9999, "sess-bob", "wrong").await),
        AccessDenyReason::Platform(401)
    );
    // The good answer is cached.
    fixture.cookie(9999, "sess-bob", "csrf-bob").await.unwrap();
    assert_eq!(stub.requests().len(), 2);
}

#[tokio::test]
async fn ids_can_be_numbers_numeric_strings_or_known_paths() {
    let access_as = json!({"user": {
        "projects": [
            {"id": 77, "roles": ["guest", "reporter", "developer"]},
            {"id": "2", "roles": ["developer", "reporter", "planner"]},
            {"id": "Group-1/Project-1", "roles": ["reporter", "developer", "maintainer"]},
        ],
        "groups": [{"id": "group-2", "roles": ["reporter", "developer"]}, {"id": 5, "roles": ["reporter"]}],
    }});
    let (projects, groups) = memberships(&authorize_with(access_as).await.unwrap());
    let elsewhere = Membership {
        id: 77,
        path: String::new(),
        roles: vec![Role::Reporter, Role::Developer],
    };
    let expected = [
        elsewhere,
        member(2, "group-2/project-2", Role::Developer),
        member(1, "group-1/project-1", Role::Maintainer),
    ];
    assert_eq!(projects, expected);
    // Roles below developer give no access, even if the platform lists them.
    assert_eq!(groups, [member(2, "group-2", Role::Developer)]);
}

#[tokio::test]
async fn insufficient_memberships_are_refused() {
    for access_as in [
        json!({"user": {}}),
        json!({"user": {"projects": [], "groups": null}}),
        json!({"user": {"projects": [{"id": 1, "roles": ["reporter"]}]}}),
        json!({"user": {"projects": [{"id": 1, "roles": ["admin"]}]}}),
    ] {
        assert_eq!(
            refusal(authorize_with(access_as.clone()).await),
            AccessDenyReason::NotMember,
            "{access_as}"
        );
    }
}

#[tokio::test]
async fn a_response_that_is_not_fully_understood_grants_nothing() {
    for access_as in [
        json!({"root": {}}),
        json!({}),
        json!({"agent": {}, "user": {}}),
        json!({"agent": {}, "root": {}}),
        json!({"agent": null}),
        json!({"agent": true}),
        json!([]),
        json!({"user": {"projects": [{"id": "no/such", "roles": ["developer"]}]}}),
        json!({"user": {"projects": [{"id": 0, "roles": ["developer"]}]}}),
        json!({"user": {"projects": [{"id": -1, "roles": ["developer"]}]}}),
        json!({"user": {"projects": [{"roles": ["developer"]}]}}),
        json!({"user": {"groups": [{"id": 1, "roles": "developer"}]}}),
        json!({"mapped": {}}),
    ] {
        unavailable(authorize_with(access_as).await);
    }
    let (fixture, stub) = remote().await;
    for (pointer, value) in [
        ("/agent/id", json!(8)),
        ("/agent/id", json!("my-agent")),
        ("/agent/config_project/id", json!(null)),
        ("/user/id", json!(0)),
        ("/user/username", json!("")),
        ("/user", json!(null)),
    ] {
        let mut response = answer(&json!({"agent": {}}));
        *response.pointer_mut(pointer).unwrap() = value;
        stub.respond_with(200, &response);
        unavailable(fixture.pat(9999, "glpat-bob").await);
    }
    for body in ["", "<html>", "{}", "null"] {
        stub.respond_with(200, body);
        unavailable(fixture.pat(9999, "glpat-bob").await);
    }
    // None of these answers is cached.
    stub.respond_with(200, &answer(&json!({"agent": {}})));
    fixture.pat(9999, "glpat-bob").await.unwrap();
}

#[tokio::test]
async fn refusals_of_the_platform_are_cached() {
    for (status, body) in [
        (401, "Invalid user access key"),
        (401, r#"{"message":"401 Unauthorized - Invalid user access key"}"#),
        (400, r#"{"message":"400 Bad request"}"#),
        (403, ""),
        (404, ""),
    ] {
        let (fixture, stub) = remote().await;
        stub.respond_with(status, body);
        assert_eq!(
            refusal(fixture.pat(9999, "glpat-bob").await),
            AccessDenyReason::Platform(status)
        );
        stub.respond_with(200, &answer(&json!({"agent": {}})));
        assert_eq!(
            refusal(fixture.pat(9999, "glpat-bob").await),
            AccessDenyReason::Platform(status)
        );
        assert_eq!(stub.requests().len(), 1);
        fixture.clock.advance(Duration::from_secs(10));
        fixture.pat(9999, "glpat-bob").await.unwrap();
    }
}

#[tokio::test]
async fn other_responses_are_errors_that_are_not_cached() {
    let (fixture, stub) = remote().await;
    for status in [201, 204, 301, 302, 307, 429, 500, 502, 503] {
        stub.respond_with(status, "");
        let detail = unavailable(fixture.pat(9999, "glpat-bob").await);
        assert_eq!(detail, format!("the platform answered {status}"));
    }
    // No redirect was followed.
    assert_eq!(stub.requests().len(), 9);
    stub.respond_with(401, r#"{"message":"401 Unauthorized"}"#);
    let detail = unavailable(fixture.pat(9999, "glpat-bob").await);
    assert!(detail.contains("authorizer.remote.secretFile"), "{detail}");
    stub.respond_with(200, &"x".repeat(super::MAX_RESPONSE_BYTES + 1));
    let detail = unavailable(fixture.pat(9999, "glpat-bob").await);
    assert_eq!(detail, "the platform answered more than 1048576 bytes");
    stub.respond_with(200, &answer(&json!({"agent": {}})));
    fixture.pat(9999, "glpat-bob").await.unwrap();
}

#[tokio::test]
async fn the_error_for_an_unreachable_platform_omits_the_credential() {
    let (mut settings, folder) = (settings(), tempfile::tempdir().unwrap());
    let secret = folder.path().join("secret");
    std::fs::write(&secret, crate::access::tests::fixture::SECRET).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    settings.authorizer = tollgate_config::Authorizer::Remote {
        url: url.parse().unwrap(),
        secret,
        certificate_authority: None,
        stream_lifetime: Duration::from_secs(600),
    };
    let fixture = Fixture::with(&settings).await;
    // The error does not reveal whether the agent exists.
    for agent in [9999, 424_242] {
        let detail = unavailable(fixture.pat(agent, "glpat-bob").await);
        assert!(detail.starts_with("the platform cannot be reached"), "{detail}");
        assert!(!detail.contains("glpat"), "{detail}");
    }
}

#[tokio::test]
async fn an_agent_missing_from_the_state_is_refused_whatever_the_platform_returns() {
    let (fixture, stub) = remote().await;
    let mut response = answer(&json!({"agent": {}}));
    response["agent"]["id"] = json!(424_242);
    stub.respond_with(200, &response);
    assert_eq!(
        refusal(fixture.pat(424_242, "glpat-bob").await),
        AccessDenyReason::UnknownAgent
    );
}

#[tokio::test]
async fn the_platform_determines_the_configuration_project() {
    let (fixture, stub) = remote().await;
    let mut response = answer(&json!({"agent": {}}));
    response["agent"]["config_project"]["id"] = json!(77);
    stub.respond_with(200, &response);
    let access = fixture.pat(9999, "glpat-bob").await.unwrap();
    assert_eq!(
        (access.agent().config_project, access.agent().cluster.as_str()),
        (77, "in-cluster")
    );
}

#[tokio::test]
async fn an_id_token_is_passed_on_and_keeps_its_session_and_expiry() {
    let (fixture, stub) = remote().await;
    stub.respond_with(200, &answer(&json!({"agent": {}})));
    let token = fixture.token_of(&json!("102"), 9999);
    let access = fixture.id_token(&token).await.unwrap();
    assert_eq!(
        (access.session(), access.expires_at()),
        (&token.session, Some(token.expires_at))
    );
    assert_eq!(stub.requests()[0].body["access_type"], "oidc_id_token");
    assert_eq!(stub.requests()[0].body["access_key"], "header.\"102\"-9999.signature");
    let query = AccessQuery {
        agent: id(8),
        key: AccessKey::OidcIdToken(Arc::new(token)),
    };
    let answer = fixture.authorizer.authorize(&fixture.agents, &query).await;
    assert_eq!(refusal(answer), AccessDenyReason::OtherAgent);
    assert_eq!(stub.requests().len(), 1);
}

#[tokio::test]
async fn streams_end_when_the_grant_of_the_platform_expires() {
    let (fixture, stub) = remote().await;
    stub.respond_with(200, &answer(&json!({"agent": {}})));
    let watch = || {
        let attributes = Attributes {
            verb: "watch".to_owned(),
            resource_request: true,
            ..Attributes::default()
        };
        NewExchange::new(
            Arc::new(attributes),
            Uuid::now_v7(),
            std::net::Ipv4Addr::LOCALHOST.into(),
        )
    };
    let first = fixture.pat(9999, "glpat-bob").await.unwrap();
    let first_watch = fixture.sessions.register(&*first, watch()).unwrap();
    fixture.clock.advance(Duration::from_secs(300));
    let second = fixture.pat(9999, "glpat-bob").await.unwrap();
    let second_watch = fixture.sessions.register(&*second, watch()).unwrap();
    assert_eq!(stub.requests().len(), 2);
    fixture.clock.advance(Duration::from_secs(301));
    assert_eq!(first_watch.end_signal().ended().await, EndReason::Expired);
    assert_eq!(second_watch.end_signal().end_reason(), None);
    // A further request causes another query to the platform.
    fixture.pat(9999, "glpat-bob").await.unwrap();
    fixture.clock.advance(Duration::from_secs(61));
    stub.respond_with(401, "Invalid user access key");
    assert_eq!(
        refusal(fixture.pat(9999, "glpat-bob").await),
        AccessDenyReason::Platform(401)
    );
    fixture.clock.advance(Duration::from_secs(300));
    assert_eq!(second_watch.end_signal().ended().await, EndReason::Expired);
}

#[tokio::test]
async fn access_granted_by_the_issuer_alone_causes_no_query() {
    let (fixture, stub) = remote().await;
    let mut token = fixture.token_of(&json!("102"), 6);
    token.mapped = Some(mapped("oidc:102"));
    let access = fixture.id_token(&token).await.unwrap();
    assert_eq!(access.facts().access_as, AccessAs::Mapped(mapped("oidc:102")));
    assert!(stub.requests().is_empty());
    // The platform decides about tokens of other kinds.
    stub.respond_with(403, "");
    assert_eq!(
        refusal(fixture.pat(6, "glpat-bob").await),
        AccessDenyReason::Platform(403)
    );
}

#[tokio::test]
async fn session_ids_differ_by_credential_and_do_not_contain_it() {
    let (fixture, stub) = remote().await;
    stub.respond_with(200, &answer(&json!({"agent": {}})));
    let first = fixture.pat(9999, "glpat-bob").await.unwrap().session().to_string();
    let second = fixture.pat(9999, "glpat-eve").await.unwrap().session().to_string();
    assert_ne!(first, second);
    assert!(
        first.starts_with("pat:") && first.len() == 36 && !first.contains("glpat"),
        "{first}"
    );
}

fn job(access_as: &Value) -> Value {
    json!({
        "allowed_agents": [
            {"id": 8, "config_project": {"id": 80}},
            {"id": 9999, "config_project": {"id": 5}, "configuration": {"id": "group-6", "access_as": access_as}},
        ],
        "job": {"id": 1}, "pipeline": {"id": 2}, "project": {"id": 3, "groups": [{"id": 6}]},
        "user": {"id": 123, "username": "testuser"},
    })
}

async fn ci(fixture: &Fixture, agent: i64, token: &str) -> Result<Arc<AccessGrant>, Error> {
    let query = AccessQuery {
        agent: id(agent),
        key: AccessKey::CiJobToken(SecretString::from(token)),
    };
    fixture.authorizer.authorize(&fixture.agents, &query).await
}

async fn authorize_job(response: &Value) -> Result<Arc<AccessGrant>, Error> {
    let (fixture, stub) = remote().await;
    stub.respond_with(200, response);
    ci(&fixture, 9999, "jobtoken").await
}

#[tokio::test]
async fn a_job_acts_as_its_configuration_says() {
    let (fixture, stub) = remote().await;
    assert!(!fixture.authorizer.is_embedded());
    stub.respond_with(200, &job(&json!({"ci_job": {}})));
    let access = ci(&fixture, 9999, "jobtoken").await.unwrap();
    let requests = stub.requests();
    assert_eq!(requests[0].line, "GET /gitlab/api/v4/job/allowed_agents");
    assert_eq!(requests[0].headers.get("job-token").unwrap(), "jobtoken");
    assert_eq!(access.user().username, "testuser");
    assert_eq!(access.agent().config_project, 5);
    assert_eq!(access.session().access_type(), AccessType::CiJobToken);
    let expected = CiJob {
        id: 1,
        pipeline: 2,
        project: 3,
        groups: vec![6],
        environment: None,
    };
    assert_eq!(access.facts().access_as, AccessAs::CiJob(Box::new(expected.clone())));
    let mut response = job(&json!({"ci_job": {}}));
    response["environment"] = json!({"slug": "prod", "tier": "production"});
    let with_environment = CiJob {
        environment: Some(("prod".to_owned(), "production".to_owned())),
        ..expected
    };
    let access = authorize_job(&response).await.unwrap();
    assert_eq!(access.facts().access_as, AccessAs::CiJob(Box::new(with_environment)));
    for agent in [json!({"agent": {}}), Value::Null] {
        assert_eq!(
            authorize_job(&job(&agent)).await.unwrap().facts().access_as,
            AccessAs::Agent
        );
    }
}

#[tokio::test]
async fn a_job_acts_as_a_fixed_identity() {
    let identity = json!({"impersonate": {
        "username": "user1", "uid": "uid", "groups": ["g1", "g2", "g1"],
        "extra": [{"key": "K1", "val": ["v1"]}, {"key": "k1", "val": ["v2"]}],
    }});
    let expected = Identity {
        username: "user1".to_owned(),
        uid: Some("uid".to_owned()),
        groups: vec!["g1".to_owned(), "g2".to_owned()],
        extra: vec![("k1".to_owned(), vec!["v1".to_owned(), "v2".to_owned()])],
    };
    let access = authorize_job(&job(&identity)).await.unwrap();
    assert_eq!(access.facts().access_as, AccessAs::Impersonate(expected));
    for broken in [
        json!({"impersonate": {"username": ""}}),
        json!({"impersonate": {"groups": ["g"]}}),
        json!({"impersonate": {}, "agent": {}}),
        json!({"cluster_admin": {}}),
        json!({}),
    ] {
        unavailable(authorize_job(&job(&broken)).await);
    }
}

#[tokio::test]
async fn a_job_not_allowed_at_an_agent_is_forbidden_whether_or_not_the_agent_exists() {
    let (fixture, stub) = remote().await;
    stub.respond_with(200, &job(&Value::Null));
    for agent in [7, 15] {
        assert_eq!(ci(&fixture, agent, "jobtoken").await.unwrap_err(), Error::JobNotAllowed);
    }
    let mut response = job(&Value::Null);
    response["allowed_agents"][0]["id"] = json!(15);
    stub.respond_with(200, &response);
    assert_eq!(
        refusal(ci(&fixture, 15, "othertoken").await),
        AccessDenyReason::UnknownAgent
    );
}

#[tokio::test]
async fn the_status_of_the_platform_decides_about_a_job() {
    for (status, expected) in [
        (401, Error::from(AccessDenyReason::Platform(401))),
        (404, Error::from(AccessDenyReason::Platform(404))),
        (403, Error::JobNotAllowed),
    ] {
        let (fixture, stub) = remote().await;
        stub.respond_with(status, "");
        assert_eq!(ci(&fixture, 9999, "jobtoken").await.unwrap_err(), expected);
    }
    let (fixture, stub) = remote().await;
    stub.respond_with(503, "");
    unavailable(ci(&fixture, 9999, "jobtoken").await);
    assert_eq!(
        refusal(ci(&fixture, 9999, "job\ntoken").await),
        AccessDenyReason::UnknownKey
    );
}
