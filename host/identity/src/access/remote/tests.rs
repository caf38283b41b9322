use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::access::tests::platform_stub::Stub;
use crate::access::tests::world::{World, id, mapped, member, memberships, refusal, settings};
use crate::access::{AccessDenyReason, AccessGrant, AccessKey, AccessQuery, Error};
use crate::sessions::{EndReason, NewExchange};
use tollgate_core::attributes::Attributes;
use tollgate_core::session::AccessType;
use tollgate_core::user::{AccessAs, CiJob, Identity, Membership, Role};

/// A gateway whose platform is the stub.
async fn remote() -> (World, Stub) {
    let stub = Stub::start().await;
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, crate::access::tests::world::SECRET).unwrap();
    let mut settings = settings();
    settings.authorizer = tollgate_config::Authorizer::Remote {
        url: stub.url(),
        secret,
        certificate_authority: None,
        stream_lifetime: Duration::from_secs(600),
    };
    (World::with(&settings).await, stub)
}

fn answer(access_as: &Value) -> Value {
    json!({
        "agent": {"id": 9999, "config_project": {"id": 1234}},
        "user": {"id": 102, "username": "bob"},
        "access_as": access_as,
    })
}

async fn ask(access_as: Value) -> Result<Arc<AccessGrant>, Error> {
    let (world, stub) = remote().await;
    stub.answers(200, &answer(&access_as));
    world.pat(9999, "glpat-bob").await
}

#[track_caller]
fn unavailable(answer: Result<Arc<AccessGrant>, Error>) -> String {
    match answer {
        Err(Error::Unavailable(detail)) => detail,
        other => panic!("not unavailable: {other:?}"),
    }
}

#[tokio::test]
async fn the_question_is_what_the_platform_expects() {
    let (world, stub) = remote().await;
    stub.answers(200, &answer(&json!({"agent": {}})));
    let access = world.pat(9999, "glpat:bob").await.unwrap();
    assert_eq!(access.facts().access_as, AccessAs::Agent);
    assert_eq!(access.user().username, "bob");
    assert_eq!(access.agent().name, "my-agent");
    assert_eq!(access.session().access_type(), AccessType::PersonalAccessToken);
    let left = access.expires_at().unwrap().duration_since(world.clock.now());
    assert!((595..=600).contains(&left.as_secs()), "{left}");
    let seen = stub.seen();
    assert_eq!(
        seen[0].line,
        "POST /gitlab/api/v4/internal/kubernetes/authorize_proxy_user"
    );
    let expected = json!({"agent_id": 9999, "access_type": "personal_access_token", "access_key": "glpat:bob"});
    assert_eq!(seen[0].body, expected);
    let secret = super::SharedSecret::read(&world.secret_file()).unwrap();
    let proof = seen[0].headers.get("gitlab-kas-api-request").unwrap();
    assert!(secret.is_valid_token(proof, world.clock.unix_seconds()));
}

#[tokio::test]
async fn a_cookie_goes_with_its_csrf_token_and_both_are_in_the_key() {
    let (world, stub) = remote().await;
    stub.answers(200, &answer(&json!({"agent": {}})));
    let access = world.cookie(9999, "sess-bob", "csrf-bob").await.unwrap();
    assert_eq!(access.session().access_type(), AccessType::SessionCookie);
    let expected = json!({
        "agent_id": 9999, "access_type": "session_cookie", "access_key": "sess-bob", "csrf_token": "csrf-bob"
    });
    assert_eq!(stub.seen()[0].body, expected);
    stub.answers(401, "Invalid user access key");
    assert_eq!(
        refusal(world.cookie(9999, "sess-bob", "wrong").await),
        AccessDenyReason::Platform(401)
    );
    // The good answer is cached.
    world.cookie(9999, "sess-bob", "csrf-bob").await.unwrap();
    assert_eq!(stub.seen().len(), 2);
}

#[tokio::test]
async fn numbers_texts_and_known_paths_are_ids() {
    let access_as = json!({"user": {
        "projects": [
            {"id": 77, "roles": ["guest", "reporter", "developer"]},
            {"id": "2", "roles": ["developer", "reporter", "planner"]},
            {"id": "Group-1/Project-1", "roles": ["reporter", "developer", "maintainer"]},
        ],
        "groups": [{"id": "group-2", "roles": ["reporter", "developer"]}, {"id": 5, "roles": ["reporter"]}],
    }});
    let (projects, groups) = memberships(&ask(access_as).await.unwrap());
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
async fn memberships_that_are_not_enough_are_a_refusal() {
    for access_as in [
        json!({"user": {}}),
        json!({"user": {"projects": [], "groups": null}}),
        json!({"user": {"projects": [{"id": 1, "roles": ["reporter"]}]}}),
        json!({"user": {"projects": [{"id": 1, "roles": ["admin"]}]}}),
    ] {
        assert_eq!(
            refusal(ask(access_as.clone()).await),
            AccessDenyReason::NotMember,
            "{access_as}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_not_understood_whole_lets_nobody_in() {
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
        unavailable(ask(access_as).await);
    }
    let (world, stub) = remote().await;
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
        stub.answers(200, &response);
        unavailable(world.pat(9999, "glpat-bob").await);
    }
    for body in ["", "<html>", "{}", "null"] {
        stub.answers(200, body);
        unavailable(world.pat(9999, "glpat-bob").await);
    }
    // None of these answers is cached.
    stub.answers(200, &answer(&json!({"agent": {}})));
    world.pat(9999, "glpat-bob").await.unwrap();
}

#[tokio::test]
async fn refusals_of_the_platform_are_refusals_and_remembered() {
    for (status, body) in [
        (401, "Invalid user access key"),
        (401, r#"{"message":"401 Unauthorized - Invalid user access key"}"#),
        (400, r#"{"message":"400 Bad request"}"#),
        (403, ""),
        (404, ""),
    ] {
        let (world, stub) = remote().await;
        stub.answers(status, body);
        assert_eq!(
            refusal(world.pat(9999, "glpat-bob").await),
            AccessDenyReason::Platform(status)
        );
        stub.answers(200, &answer(&json!({"agent": {}})));
        assert_eq!(
            refusal(world.pat(9999, "glpat-bob").await),
            AccessDenyReason::Platform(status)
        );
        assert_eq!(stub.seen().len(), 1);
        world.clock.advance(Duration::from_secs(10));
        world.pat(9999, "glpat-bob").await.unwrap();
    }
}

#[tokio::test]
async fn other_answers_are_failures_never_remembered() {
    let (world, stub) = remote().await;
    for status in [201, 204, 301, 302, 307, 429, 500, 502, 503] {
        stub.answers(status, "");
        let detail = unavailable(world.pat(9999, "glpat-bob").await);
        assert_eq!(detail, format!("the platform answered {status}"));
    }
    // No redirect was followed.
    assert_eq!(stub.seen().len(), 9);
    stub.answers(401, r#"{"message":"401 Unauthorized"}"#);
    let detail = unavailable(world.pat(9999, "glpat-bob").await);
    assert!(detail.contains("authorizer.remote.secretFile"), "{detail}");
    stub.answers(200, &"x".repeat(super::MAX_RESPONSE_BYTES + 1));
    let detail = unavailable(world.pat(9999, "glpat-bob").await);
    assert_eq!(detail, "the platform answered more than 1048576 bytes");
    stub.answers(200, &answer(&json!({"agent": {}})));
    world.pat(9999, "glpat-bob").await.unwrap();
}

#[tokio::test]
async fn a_platform_that_is_away_is_a_failure_without_the_credential() {
    let (mut settings, folder) = (settings(), tempfile::tempdir().unwrap());
    let secret = folder.path().join("secret");
    std::fs::write(&secret, crate::access::tests::world::SECRET).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    settings.authorizer = tollgate_config::Authorizer::Remote {
        url: url.parse().unwrap(),
        secret,
        certificate_authority: None,
        stream_lifetime: Duration::from_secs(600),
    };
    let world = World::with(&settings).await;
    // The answer does not tell whether the agent exists.
    for agent in [9999, 424_242] {
        let detail = unavailable(world.pat(agent, "glpat-bob").await);
        assert!(detail.starts_with("the platform cannot be reached"), "{detail}");
        assert!(!detail.contains("glpat"), "{detail}");
    }
}

#[tokio::test]
async fn an_agent_the_state_does_not_have_is_refused_whatever_the_platform_says() {
    let (world, stub) = remote().await;
    let mut response = answer(&json!({"agent": {}}));
    response["agent"]["id"] = json!(424_242);
    stub.answers(200, &response);
    assert_eq!(
        refusal(world.pat(424_242, "glpat-bob").await),
        AccessDenyReason::UnknownAgent
    );
}

#[tokio::test]
async fn the_project_is_the_platform_s_to_say() {
    let (world, stub) = remote().await;
    let mut response = answer(&json!({"agent": {}}));
    response["agent"]["config_project"]["id"] = json!(77);
    stub.answers(200, &response);
    let access = world.pat(9999, "glpat-bob").await.unwrap();
    assert_eq!(
        (access.agent().config_project, access.agent().cluster.as_str()),
        (77, "in-cluster")
    );
}

#[tokio::test]
async fn an_id_token_is_passed_on_and_keeps_its_session_and_end() {
    let (world, stub) = remote().await;
    stub.answers(200, &answer(&json!({"agent": {}})));
    let token = world.token_of(&json!("102"), 9999);
    let access = world.id_token(&token).await.unwrap();
    assert_eq!(
        (access.session(), access.expires_at()),
        (&token.session, Some(token.expires_at))
    );
    assert_eq!(stub.seen()[0].body["access_type"], "oidc_id_token");
    assert_eq!(stub.seen()[0].body["access_key"], "header.\"102\"-9999.signature");
    let query = AccessQuery {
        agent: id(8),
        key: AccessKey::OidcIdToken(Arc::new(token)),
    };
    let answer = world.authorizer.authorize(&world.agents, &query).await;
    assert_eq!(refusal(answer), AccessDenyReason::OtherAgent);
    assert_eq!(stub.seen().len(), 1);
}

#[tokio::test]
async fn what_the_platform_let_in_ends_unless_it_says_yes_again() {
    let (world, stub) = remote().await;
    stub.answers(200, &answer(&json!({"agent": {}})));
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
    let first = world.pat(9999, "glpat-bob").await.unwrap();
    let begun = world.sessions.register(&*first, watch()).unwrap();
    world.clock.advance(Duration::from_secs(300));
    let second = world.pat(9999, "glpat-bob").await.unwrap();
    let later = world.sessions.register(&*second, watch()).unwrap();
    assert_eq!(stub.seen().len(), 2);
    world.clock.advance(Duration::from_secs(301));
    assert_eq!(begun.end_signal().ended().await, EndReason::Expired);
    assert_eq!(later.end_signal().end_reason(), None);
    // The platform is asked again for a further request.
    world.pat(9999, "glpat-bob").await.unwrap();
    world.clock.advance(Duration::from_secs(61));
    stub.answers(401, "Invalid user access key");
    assert_eq!(
        refusal(world.pat(9999, "glpat-bob").await),
        AccessDenyReason::Platform(401)
    );
    world.clock.advance(Duration::from_secs(300));
    assert_eq!(later.end_signal().ended().await, EndReason::Expired);
}

#[tokio::test]
async fn what_the_issuer_alone_grants_asks_no_platform() {
    let (world, stub) = remote().await;
    let mut token = world.token_of(&json!("102"), 6);
    token.mapped = Some(mapped("oidc:102"));
    let access = world.id_token(&token).await.unwrap();
    assert_eq!(access.facts().access_as, AccessAs::Mapped(mapped("oidc:102")));
    assert!(stub.seen().is_empty());
    // The platform decides about tokens of other kinds.
    stub.answers(403, "");
    assert_eq!(
        refusal(world.pat(6, "glpat-bob").await),
        AccessDenyReason::Platform(403)
    );
}

#[tokio::test]
async fn sessions_are_told_apart_without_the_credential() {
    let (world, stub) = remote().await;
    stub.answers(200, &answer(&json!({"agent": {}})));
    let first = world.pat(9999, "glpat-bob").await.unwrap().session().to_string();
    let second = world.pat(9999, "glpat-eve").await.unwrap().session().to_string();
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

async fn ci(world: &World, agent: i64, token: &str) -> Result<Arc<AccessGrant>, Error> {
    let query = AccessQuery {
        agent: id(agent),
        key: AccessKey::CiJobToken(SecretString::from(token)),
    };
    world.authorizer.authorize(&world.agents, &query).await
}

async fn ask_job(response: &Value) -> Result<Arc<AccessGrant>, Error> {
    let (world, stub) = remote().await;
    stub.answers(200, response);
    ci(&world, 9999, "jobtoken").await
}

#[tokio::test]
async fn a_job_acts_as_its_configuration_says() {
    let (world, stub) = remote().await;
    assert!(!world.authorizer.is_embedded());
    stub.answers(200, &job(&json!({"ci_job": {}})));
    let access = ci(&world, 9999, "jobtoken").await.unwrap();
    let seen = stub.seen();
    assert_eq!(seen[0].line, "GET /gitlab/api/v4/job/allowed_agents");
    assert_eq!(seen[0].headers.get("job-token").unwrap(), "jobtoken");
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
    let access = ask_job(&response).await.unwrap();
    assert_eq!(access.facts().access_as, AccessAs::CiJob(Box::new(with_environment)));
    for agent in [json!({"agent": {}}), Value::Null] {
        assert_eq!(ask_job(&job(&agent)).await.unwrap().facts().access_as, AccessAs::Agent);
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
    let access = ask_job(&job(&identity)).await.unwrap();
    assert_eq!(access.facts().access_as, AccessAs::Impersonate(expected));
    for broken in [
        json!({"impersonate": {"username": ""}}),
        json!({"impersonate": {"groups": ["g"]}}),
        json!({"impersonate": {}, "agent": {}}),
        json!({"cluster_admin": {}}),
        json!({}),
    ] {
        unavailable(ask_job(&job(&broken)).await);
    }
}

#[tokio::test]
async fn a_job_without_the_agent_is_forbidden_whether_or_not_there_is_one() {
    let (world, stub) = remote().await;
    stub.answers(200, &job(&Value::Null));
    for agent in [7, 15] {
        assert_eq!(ci(&world, agent, "jobtoken").await.unwrap_err(), Error::JobNotAllowed);
    }
    let mut response = job(&Value::Null);
    response["allowed_agents"][0]["id"] = json!(15);
    stub.answers(200, &response);
    assert_eq!(
        refusal(ci(&world, 15, "othertoken").await),
        AccessDenyReason::UnknownAgent
    );
}

#[tokio::test]
async fn the_platform_s_word_on_a_job_counts() {
    for (status, expected) in [
        (401, Error::from(AccessDenyReason::Platform(401))),
        (404, Error::from(AccessDenyReason::Platform(404))),
        (403, Error::JobNotAllowed),
    ] {
        let (world, stub) = remote().await;
        stub.answers(status, "");
        assert_eq!(ci(&world, 9999, "jobtoken").await.unwrap_err(), expected);
    }
    let (world, stub) = remote().await;
    stub.answers(503, "");
    unavailable(ci(&world, 9999, "jobtoken").await);
    assert_eq!(
        refusal(ci(&world, 9999, "job\ntoken").await),
        AccessDenyReason::UnknownKey
    );
}
