use std::sync::Arc;

use secrecy::SecretString;
use serde_json::json;

use crate::access::tests::fixture::{
    Fixture, PEOPLE, Pat, agent, id, mapped, member, memberships, people_and, refusal, shared_as, with,
};
use crate::access::{AccessDenyReason, AccessKey, AccessQuery, Agents, Error};
use tollgate_config::{UserClaimMapping, UserLookupKey};
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::{AccessAs, Role};

async fn refused(pat: Pat) -> AccessDenyReason {
    let fixture = Fixture::new().await;
    fixture.add(&pat).await;
    refusal(fixture.pat(9999, pat.secret).await)
}

#[tokio::test]
async fn a_token_gives_its_owner_access() {
    let fixture = Fixture::new().await;
    let token = fixture.add(&Pat::default()).await;
    let access = fixture.pat(9999, "glpat-alice").await.unwrap();
    assert_eq!(access.user().username, "alice");
    assert_eq!(access.agent().name, "my-agent");
    assert_eq!(access.session().access_type(), AccessType::PersonalAccessToken);
    assert_eq!(access.session().to_string(), format!("pat:{token}"));
    assert_eq!(access.expires_at().unwrap().as_second(), fixture.at(3600).as_second());
    let project = member(1, "group-1/project-1", Role::Maintainer);
    assert_eq!(memberships(&access), (vec![project], vec![]));
}

#[tokio::test]
async fn tokens_are_refused_with_their_reason() {
    let pat = Pat::default;
    assert_eq!(refused(Pat { revoked: true, ..pat() }).await, AccessDenyReason::Revoked);
    assert_eq!(
        refused(Pat {
            lifetime_seconds: 0,
            ..pat()
        })
        .await,
        AccessDenyReason::Expired
    );
    assert_eq!(refused(Pat { agent: 8, ..pat() }).await, AccessDenyReason::OtherAgent);
    for scopes in [
        &["read_api"][..],
        &["k8s_proxy", "api"],
        &[],
        &["K8S_PROXY"],
        &["k8s_proxy", "k8s_proxy"],
    ] {
        assert_eq!(
            refused(Pat { scopes, ..pat() }).await,
            AccessDenyReason::Scope,
            "{scopes:?}"
        );
    }
    let user = |user| Pat { user, ..pat() };
    assert_eq!(refused(user((108, "heidi"))).await, AccessDenyReason::Blocked);
    assert_eq!(refused(user((103, "carol"))).await, AccessDenyReason::NotMember);
    assert_eq!(refused(user((0, "alice"))).await, AccessDenyReason::UnknownUser);
    assert_eq!(refused(user((999, "alice"))).await, AccessDenyReason::UnknownUser);
}

#[tokio::test]
async fn unknown_tokens_and_agents_are_refused_and_errors_name_the_owner() {
    let fixture = Fixture::new().await;
    fixture.add(&Pat::default()).await;
    let unknown = fixture.pat(9999, "glpat-nope").await.unwrap_err();
    assert_eq!(unknown.credential_owner(), None);
    assert_eq!(refusal(Err(unknown)), AccessDenyReason::UnknownKey);
    let other = fixture.pat(424_242, "glpat-alice").await.unwrap_err();
    assert_eq!(other.credential_owner().unwrap().user.username, "alice");
    assert_eq!(refusal(Err(other)), AccessDenyReason::OtherAgent);
    // The credential is verified before the agent.
    assert_eq!(
        refusal(fixture.pat(424_242, "glpat-nope").await),
        AccessDenyReason::UnknownKey
    );
}

/// Credentials belong to an agent and a person, not to their numbers.
#[tokio::test]
async fn who_gets_a_number_gets_no_credential_of_who_had_it() {
    let mut fixture = Fixture::new().await;
    fixture.add(&Pat::default()).await;
    fixture.add_cookie(101, "alice", 3600).await;
    let shared = shared_as("user");
    let mine = agent(9999, "my-agent", &shared);
    let others = [
        (agent(9999, "their-agent", &shared), "another agent"),
        (mine.replace("in-cluster", "production"), "another cluster"),
    ];
    for (other, what) in others {
        fixture.agents = Agents::build(&people_and(&[other]), None);
        let refused = fixture.pat(9999, "glpat-alice").await.unwrap_err();
        assert_eq!(refused.credential_owner().unwrap().user.username, "alice");
        assert_eq!(refusal(Err(refused)), AccessDenyReason::FormerAgent, "{what}");
        // A cookie belongs to a person and is valid for all agents.
        fixture.cookie(9999, "sess-alice", "csrf-alice").await.unwrap();
    }
    let mallory = PEOPLE.replace("username: alice", "username: mallory");
    fixture.agents = Agents::build(&with(&format!("{mallory}{mine}")), None);
    assert_eq!(
        refusal(fixture.pat(9999, "glpat-alice").await),
        AccessDenyReason::FormerUser
    );
    let cookie = fixture.cookie(9999, "sess-alice", "csrf-alice").await;
    assert_eq!(refusal(cookie), AccessDenyReason::FormerUser);
    fixture
        .add(&Pat {
            secret: "glpat-mallory",
            user: (101, "mallory"),
            ..Pat::default()
        })
        .await;
    fixture.pat(9999, "glpat-mallory").await.unwrap();

    fixture.agents = Agents::build(&people_and(&[mine]), None);
    fixture.pat(9999, "glpat-alice").await.unwrap();
    assert_eq!(
        refusal(fixture.pat(9999, "glpat-mallory").await),
        AccessDenyReason::FormerUser
    );
}

#[tokio::test]
async fn a_token_without_an_agent_lets_nobody_in_before_it_is_bound() {
    let fixture = Fixture::new().await;
    fixture.add(&Pat::default()).await;
    fixture.sql("UPDATE tokens SET agent = NULL").await;
    assert_eq!(
        refusal(fixture.pat(9999, "glpat-alice").await),
        AccessDenyReason::FormerAgent
    );
    let bound = fixture.store.bind_tokens(&fixture.agents.identities()).await.unwrap();
    assert_eq!(bound, (1, 0));
    fixture.clock.advance(std::time::Duration::from_secs(11));
    fixture.pat(9999, "glpat-alice").await.unwrap();
}

#[tokio::test]
async fn what_is_remembered_lets_nobody_in_while_the_store_is_cut_off() {
    let fixture = Fixture::new().await;
    fixture.add(&Pat::default()).await;
    fixture.pat(9999, "glpat-alice").await.unwrap();
    fixture.sql("ALTER TABLE revocations RENAME TO away").await;
    fixture.clock.advance(std::time::Duration::from_secs(11));
    while !fixture.sessions.is_store_unavailable() {
        tokio::task::yield_now().await;
    }
    let refused = fixture.pat(9999, "glpat-alice").await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
    fixture.sql("ALTER TABLE away RENAME TO revocations").await;
    while fixture.sessions.is_store_unavailable() {
        tokio::task::yield_now().await;
    }
    fixture.pat(9999, "glpat-alice").await.unwrap();
}

#[tokio::test]
async fn a_cookie_gives_access_only_with_its_csrf_token() {
    let fixture = Fixture::new().await;
    let bob = fixture.add_cookie(102, "bob", 3600).await;
    fixture.add_cookie(101, "alice", 3600).await;
    let access = fixture.cookie(9999, "sess-bob", "csrf-bob").await.unwrap();
    assert_eq!(access.user().id, 102);
    assert_eq!(
        access.session(),
        &SessionId::new(AccessType::SessionCookie, bob.to_string())
    );
    for csrf_token in ["csrf-alice", "wrong", "csrf-bo", "csrf-bobb"] {
        let answer = fixture.cookie(9999, "sess-bob", csrf_token).await;
        assert_eq!(refusal(answer), AccessDenyReason::Csrf, "{csrf_token}");
    }
    assert_eq!(
        refusal(fixture.cookie(9999, "sess-eve", "csrf-bob").await),
        AccessDenyReason::UnknownKey
    );
    assert_eq!(
        refusal(fixture.cookie(424_242, "sess-bob", "csrf-bob").await),
        AccessDenyReason::UnknownAgent
    );
    assert_eq!(
        refusal(fixture.cookie(8, "sess-bob", "csrf-bob").await),
        AccessDenyReason::NotMember
    );
    // A cookie is not accepted as a token.
    assert_eq!(
        refusal(fixture.pat(9999, "sess-bob").await),
        AccessDenyReason::UnknownKey
    );
}

#[tokio::test]
async fn cookies_of_blocked_users_and_expired_cookies_are_refused() {
    let fixture = Fixture::new().await;
    fixture.add_cookie(108, "heidi", 3600).await;
    fixture.add_cookie(102, "bob", 0).await;
    assert_eq!(
        refusal(fixture.cookie(7, "sess-heidi", "csrf-heidi").await),
        AccessDenyReason::Blocked
    );
    assert_eq!(
        refusal(fixture.cookie(9999, "sess-bob", "csrf-bob").await),
        AccessDenyReason::Expired
    );
}

#[tokio::test]
async fn an_id_token_gives_the_user_of_its_claims_access() {
    let fixture = Fixture::new().await;
    let token = fixture.token_of(&json!("102"), 9999);
    let access = fixture.id_token(&token).await.unwrap();
    assert_eq!(access.user().username, "bob");
    assert_eq!(access.session().access_type(), AccessType::OidcIdToken);
    assert_eq!(access.session(), &token.session);
    assert_eq!(access.expires_at(), Some(token.expires_at));
    let unknown = fixture.token_of(&json!("0102"), 9999);
    assert_eq!(refusal(fixture.id_token(&unknown).await), AccessDenyReason::UnknownUser);
    let mut other = fixture.token_of(&json!("102"), 9999);
    other.issuer = "https://other.example.com".to_owned();
    other.token = SecretString::from("other");
    assert_eq!(refusal(fixture.id_token(&other).await), AccessDenyReason::UnknownUser);
    assert_eq!(
        refusal(fixture.id_token(&fixture.token_of(&json!("108"), 7)).await),
        AccessDenyReason::Blocked
    );
    assert_eq!(
        refusal(fixture.id_token(&fixture.token_of(&json!("102"), 8)).await),
        AccessDenyReason::NotMember
    );
}

#[tokio::test]
async fn an_id_token_is_valid_only_for_the_agent_of_its_claim() {
    let fixture = Fixture::new().await;
    let token = fixture.token_of(&json!("102"), 8);
    let query = AccessQuery {
        agent: id(9999),
        key: AccessKey::OidcIdToken(Arc::new(token)),
    };
    let answer = fixture.authorizer.authorize(&fixture.agents, &query).await;
    assert_eq!(refusal(answer), AccessDenyReason::OtherAgent);
}

#[tokio::test]
async fn a_mapped_agent_accepts_only_mapped_tokens() {
    let fixture = Fixture::new().await;
    let mut token = fixture.token_of(&json!("102"), 6);
    assert!(matches!(
        refusal(fixture.id_token(&token).await),
        AccessDenyReason::NotShared(_)
    ));
    token.mapped = Some(mapped("oidc:102"));
    token.token = SecretString::from("another");
    let access = fixture.id_token(&token).await.unwrap();
    assert_eq!(access.facts().access_as, AccessAs::Mapped(mapped("oidc:102")));
    fixture
        .add(&Pat {
            agent: 6,
            ..Pat::default()
        })
        .await;
    assert!(matches!(
        refusal(fixture.pat(6, "glpat-alice").await),
        AccessDenyReason::NotShared(_)
    ));
}

#[tokio::test]
async fn ci_tokens_are_refused() {
    let fixture = Fixture::new().await;
    assert!(fixture.authorizer.is_embedded());
    let query = AccessQuery {
        agent: id(9999),
        key: AccessKey::CiJobToken(SecretString::from("jobtoken")),
    };
    let answer = fixture.authorizer.authorize(&fixture.agents, &query).await;
    assert_eq!(refusal(answer), AccessDenyReason::UnknownKey);
}

#[tokio::test]
async fn a_mapping_by_username_finds_users_by_username() {
    let mut settings = crate::access::tests::fixture::settings();
    settings.users = vec![UserClaimMapping {
        issuer: crate::access::tests::fixture::ISSUER.to_owned(),
        claim: "sub".to_owned(),
        key: UserLookupKey::Username,
    }];
    let fixture = Fixture::with(&settings).await;
    assert_eq!(
        fixture
            .id_token(&fixture.token_of(&json!("bob"), 9999))
            .await
            .unwrap()
            .user()
            .id,
        102
    );
    assert_eq!(
        refusal(fixture.id_token(&fixture.token_of(&json!("102"), 9999)).await),
        AccessDenyReason::UnknownUser
    );
}

#[tokio::test]
async fn the_last_use_of_a_token_is_written_once_a_minute_in_the_background() {
    let fixture = Fixture::new().await;
    let token = fixture.add(&Pat::default()).await;
    let last_use_after = async |after: Option<jiff::Timestamp>| {
        loop {
            let found = fixture.store.token(token).await.unwrap().unwrap().last_used_at;
            if found > after {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    fixture.pat(9999, "glpat-alice").await.unwrap();
    let first = last_use_after(None).await;
    // A new state queries the store again at once; the minute is not over.
    let agents = Agents::build(&crate::access::tests::fixture::resources(), None);
    let query = || AccessQuery {
        agent: id(9999),
        key: AccessKey::PersonalAccessToken(SecretString::from("glpat-alice")),
    };
    fixture.authorizer.authorize(&agents, &query()).await.unwrap();
    assert_eq!(fixture.store.token(token).await.unwrap().unwrap().last_used_at, first);
    fixture.clock.advance(std::time::Duration::from_secs(61));
    fixture.authorizer.authorize(&agents, &query()).await.unwrap();
    assert!(last_use_after(first).await > first);
}

#[tokio::test]
async fn a_store_failure_is_not_a_refusal_for_any_agent() {
    let fixture = Fixture::new().await;
    fixture.add(&Pat::default()).await;
    let url = format!("sqlite:{}", fixture.folder.path().join("tollgate.db").display());
    let database = sqlx::SqlitePool::connect(&url).await.unwrap();
    sqlx::query("ALTER TABLE tokens RENAME TO gone")
        .execute(&database)
        .await
        .unwrap();
    for agent in [9999, 424_242] {
        let answer = fixture.pat(agent, "glpat-alice").await;
        assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    }
}
