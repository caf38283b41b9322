use std::sync::Arc;

use secrecy::SecretString;
use serde_json::json;

use crate::access::tests::world::{
    PEOPLE, Pat, World, agent, id, mapped, member, memberships, people_and, refusal, shared_as, with,
};
use crate::access::{AccessDenyReason, AccessKey, AccessQuery, Agents, Error};
use tollgate_config::{UserClaimMapping, UserLookupKey};
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::{AccessAs, Role};

async fn refused(pat: Pat) -> AccessDenyReason {
    let world = World::new().await;
    world.add(&pat).await;
    refusal(world.pat(9999, pat.secret).await)
}

#[tokio::test]
async fn a_token_lets_its_owner_in() {
    let world = World::new().await;
    let token = world.add(&Pat::default()).await;
    let access = world.pat(9999, "glpat-alice").await.unwrap();
    assert_eq!(access.user().username, "alice");
    assert_eq!(access.agent().name, "my-agent");
    assert_eq!(access.session().access_type(), AccessType::PersonalAccessToken);
    assert_eq!(access.session().to_string(), format!("pat:{token}"));
    assert_eq!(access.expires_at().unwrap().as_second(), world.at(3600).as_second());
    let project = member(1, "group-1/project-1", Role::Maintainer);
    assert_eq!(memberships(&access), (vec![project], vec![]));
}

#[tokio::test]
async fn tokens_are_refused_with_their_reason() {
    let pat = Pat::default;
    assert_eq!(refused(Pat { revoked: true, ..pat() }).await, AccessDenyReason::Revoked);
    assert_eq!(refused(Pat { lives: 0, ..pat() }).await, AccessDenyReason::Expired);
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
async fn an_unknown_token_and_an_unknown_agent_are_refused_and_the_owner_is_said() {
    let world = World::new().await;
    world.add(&Pat::default()).await;
    let unknown = world.pat(9999, "glpat-nope").await.unwrap_err();
    assert_eq!(unknown.credential_owner(), None);
    assert_eq!(refusal(Err(unknown)), AccessDenyReason::UnknownKey);
    let other = world.pat(424_242, "glpat-alice").await.unwrap_err();
    assert_eq!(other.credential_owner().unwrap().user.username, "alice");
    assert_eq!(refusal(Err(other)), AccessDenyReason::OtherAgent);
    // The credential is verified before the agent.
    assert_eq!(
        refusal(world.pat(424_242, "glpat-nope").await),
        AccessDenyReason::UnknownKey
    );
}

/// Credentials belong to an agent and a person, not to their numbers.
#[tokio::test]
async fn who_gets_a_number_gets_no_credential_of_who_had_it() {
    let mut world = World::new().await;
    world.add(&Pat::default()).await;
    world.add_cookie((101, "alice"), 3600).await;
    let shared = shared_as("user");
    let mine = agent(9999, "my-agent", &shared);
    let others = [
        (agent(9999, "their-agent", &shared), "another agent"),
        (mine.replace("in-cluster", "production"), "another cluster"),
    ];
    for (other, what) in others {
        world.agents = Agents::build(&people_and(&[other]), None);
        let refused = world.pat(9999, "glpat-alice").await.unwrap_err();
        assert_eq!(refused.credential_owner().unwrap().user.username, "alice");
        assert_eq!(refusal(Err(refused)), AccessDenyReason::FormerAgent, "{what}");
        // A cookie belongs to a person and is valid for all agents.
        world.cookie(9999, "sess-alice", "csrf-alice").await.unwrap();
    }
    let mallory = PEOPLE.replace("username: alice", "username: mallory");
    world.agents = Agents::build(&with(&format!("{mallory}{mine}")), None);
    assert_eq!(
        refusal(world.pat(9999, "glpat-alice").await),
        AccessDenyReason::FormerUser
    );
    let cookie = world.cookie(9999, "sess-alice", "csrf-alice").await;
    assert_eq!(refusal(cookie), AccessDenyReason::FormerUser);
    world
        .add(&Pat {
            secret: "glpat-mallory",
            user: (101, "mallory"),
            ..Pat::default()
        })
        .await;
    world.pat(9999, "glpat-mallory").await.unwrap();

    world.agents = Agents::build(&people_and(&[mine]), None);
    world.pat(9999, "glpat-alice").await.unwrap();
    assert_eq!(
        refusal(world.pat(9999, "glpat-mallory").await),
        AccessDenyReason::FormerUser
    );
}

#[tokio::test]
async fn a_token_without_an_agent_lets_nobody_in_before_it_is_bound() {
    let world = World::new().await;
    world.add(&Pat::default()).await;
    world.sql("UPDATE tokens SET agent = NULL").await;
    assert_eq!(
        refusal(world.pat(9999, "glpat-alice").await),
        AccessDenyReason::FormerAgent
    );
    let bound = world.store.bind_tokens(&world.agents.identities()).await.unwrap();
    assert_eq!(bound, (1, 0));
    world.clock.advance(std::time::Duration::from_secs(11));
    world.pat(9999, "glpat-alice").await.unwrap();
}

#[tokio::test]
async fn what_is_remembered_lets_nobody_in_while_the_store_is_cut_off() {
    let world = World::new().await;
    world.add(&Pat::default()).await;
    world.pat(9999, "glpat-alice").await.unwrap();
    world.sql("ALTER TABLE revocations RENAME TO away").await;
    world.clock.advance(std::time::Duration::from_secs(11));
    while !world.sessions.is_store_unavailable() {
        tokio::task::yield_now().await;
    }
    let refused = world.pat(9999, "glpat-alice").await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
    world.sql("ALTER TABLE away RENAME TO revocations").await;
    while world.sessions.is_store_unavailable() {
        tokio::task::yield_now().await;
    }
    world.pat(9999, "glpat-alice").await.unwrap();
}

#[tokio::test]
async fn a_cookie_lets_its_owner_in_with_its_csrf_token_alone() {
    let world = World::new().await;
    let bob = world.add_cookie((102, "bob"), 3600).await;
    world.add_cookie((101, "alice"), 3600).await;
    let access = world.cookie(9999, "sess-bob", "csrf-bob").await.unwrap();
    assert_eq!(access.user().id, 102);
    assert_eq!(
        access.session(),
        &SessionId::new(AccessType::SessionCookie, bob.to_string())
    );
    for csrf_token in ["csrf-alice", "wrong", "csrf-bo", "csrf-bobb"] {
        let answer = world.cookie(9999, "sess-bob", csrf_token).await;
        assert_eq!(refusal(answer), AccessDenyReason::Csrf, "{csrf_token}");
    }
    assert_eq!(
        refusal(world.cookie(9999, "sess-eve", "csrf-bob").await),
        AccessDenyReason::UnknownKey
    );
    assert_eq!(
        refusal(world.cookie(424_242, "sess-bob", "csrf-bob").await),
        AccessDenyReason::UnknownAgent
    );
    assert_eq!(
        refusal(world.cookie(8, "sess-bob", "csrf-bob").await),
        AccessDenyReason::NotMember
    );
    // A cookie is not accepted as a token.
    assert_eq!(refusal(world.pat(9999, "sess-bob").await), AccessDenyReason::UnknownKey);
}

#[tokio::test]
async fn cookies_of_the_blocked_and_ended_ones_are_refused() {
    let world = World::new().await;
    world.add_cookie((108, "heidi"), 3600).await;
    world.add_cookie((102, "bob"), 0).await;
    assert_eq!(
        refusal(world.cookie(7, "sess-heidi", "csrf-heidi").await),
        AccessDenyReason::Blocked
    );
    assert_eq!(
        refusal(world.cookie(9999, "sess-bob", "csrf-bob").await),
        AccessDenyReason::Expired
    );
}

#[tokio::test]
async fn an_id_token_lets_the_person_of_its_claims_in() {
    let world = World::new().await;
    let token = world.token_of(&json!("102"), 9999);
    let access = world.id_token(&token).await.unwrap();
    assert_eq!(access.user().username, "bob");
    assert_eq!(access.session().access_type(), AccessType::OidcIdToken);
    assert_eq!(access.session(), &token.session);
    assert_eq!(access.expires_at(), Some(token.expires_at));
    let unknown = world.token_of(&json!("0102"), 9999);
    assert_eq!(refusal(world.id_token(&unknown).await), AccessDenyReason::UnknownUser);
    let mut other = world.token_of(&json!("102"), 9999);
    other.issuer = "https://other.example.com".to_owned();
    other.token = SecretString::from("other");
    assert_eq!(refusal(world.id_token(&other).await), AccessDenyReason::UnknownUser);
    assert_eq!(
        refusal(world.id_token(&world.token_of(&json!("108"), 7)).await),
        AccessDenyReason::Blocked
    );
    assert_eq!(
        refusal(world.id_token(&world.token_of(&json!("102"), 8)).await),
        AccessDenyReason::NotMember
    );
}

#[tokio::test]
async fn an_id_token_is_for_the_agent_of_its_claim() {
    let world = World::new().await;
    let token = world.token_of(&json!("102"), 8);
    let query = AccessQuery {
        agent: id(9999),
        key: AccessKey::OidcIdToken(Arc::new(token)),
    };
    let answer = world.authorizer.authorize(&world.agents, &query).await;
    assert_eq!(refusal(answer), AccessDenyReason::OtherAgent);
}

#[tokio::test]
async fn a_mapped_agent_takes_mapped_tokens_alone() {
    let world = World::new().await;
    let mut token = world.token_of(&json!("102"), 6);
    assert!(matches!(
        refusal(world.id_token(&token).await),
        AccessDenyReason::NotShared(_)
    ));
    token.mapped = Some(mapped("oidc:102"));
    token.token = SecretString::from("another");
    let access = world.id_token(&token).await.unwrap();
    assert_eq!(access.facts().access_as, AccessAs::Mapped(mapped("oidc:102")));
    world
        .add(&Pat {
            agent: 6,
            ..Pat::default()
        })
        .await;
    assert!(matches!(
        refusal(world.pat(6, "glpat-alice").await),
        AccessDenyReason::NotShared(_)
    ));
}

#[tokio::test]
async fn ci_tokens_are_no_credential_here() {
    let world = World::new().await;
    assert!(world.authorizer.is_embedded());
    let query = AccessQuery {
        agent: id(9999),
        key: AccessKey::CiJobToken(SecretString::from("jobtoken")),
    };
    let answer = world.authorizer.authorize(&world.agents, &query).await;
    assert_eq!(refusal(answer), AccessDenyReason::UnknownKey);
}

#[tokio::test]
async fn a_link_by_name_finds_people_by_name() {
    let mut settings = crate::access::tests::world::settings();
    settings.users = vec![UserClaimMapping {
        issuer: crate::access::tests::world::ISSUER.to_owned(),
        claim: "sub".to_owned(),
        key: UserLookupKey::Username,
    }];
    let world = World::with(&settings).await;
    assert_eq!(
        world
            .id_token(&world.token_of(&json!("bob"), 9999))
            .await
            .unwrap()
            .user()
            .id,
        102
    );
    assert_eq!(
        refusal(world.id_token(&world.token_of(&json!("102"), 9999)).await),
        AccessDenyReason::UnknownUser
    );
}

#[tokio::test]
async fn the_use_of_a_token_is_written_down_beside_and_once_a_minute() {
    let world = World::new().await;
    let token = world.add(&Pat::default()).await;
    let used = async |after: Option<jiff::Timestamp>| {
        loop {
            let found = world.store.token(token).await.unwrap().unwrap().last_used_at;
            if found > after {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    world.pat(9999, "glpat-alice").await.unwrap();
    let first = used(None).await;
    // A new state queries the store again at once; the minute is not over.
    let agents = Agents::build(&crate::access::tests::world::resources(), None);
    let query = || AccessQuery {
        agent: id(9999),
        key: AccessKey::PersonalAccessToken(SecretString::from("glpat-alice")),
    };
    world.authorizer.authorize(&agents, &query()).await.unwrap();
    assert_eq!(world.store.token(token).await.unwrap().unwrap().last_used_at, first);
    world.clock.advance(std::time::Duration::from_secs(61));
    world.authorizer.authorize(&agents, &query()).await.unwrap();
    assert!(used(first).await > first);
}

#[tokio::test]
async fn a_store_that_is_gone_is_no_refusal_whatever_the_agent() {
    let world = World::new().await;
    world.add(&Pat::default()).await;
    let url = format!("sqlite:{}", world.folder.path().join("tollgate.db").display());
    let database = sqlx::SqlitePool::connect(&url).await.unwrap();
    sqlx::query("ALTER TABLE tokens RENAME TO gone")
        .execute(&database)
        .await
        .unwrap();
    for agent in [9999, 424_242] {
        let answer = world.pat(agent, "glpat-alice").await;
        assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    }
}
