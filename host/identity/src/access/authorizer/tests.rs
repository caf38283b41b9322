use std::time::Duration;

use secrecy::ExposeSecret as _;
use serde_json::json;
use sqlx::Connection as _;

use crate::access::secret::generate_token;
use crate::access::tests::world::{Pat, World, agent, mapped, people_and, refusal, shared_as};
use crate::access::{AccessDenyReason, Agents, Error};
use crate::store::{Actor, SessionOwner};
use tollgate_core::user::AccessAs;

fn admin() -> Actor {
    Actor {
        user_id: None,
        name: "admin".to_owned(),
    }
}

#[tokio::test]
async fn one_token_at_another_agent_is_another_question() {
    let world = World::new().await;
    world.add(&Pat::default()).await;
    world.pat(9999, "glpat-alice").await.unwrap();
    assert_eq!(refusal(world.pat(8, "glpat-alice").await), AccessDenyReason::OtherAgent);
}

#[tokio::test]
async fn a_mistyped_token_is_refused_without_the_store() {
    let world = World::new().await;
    let secret = generate_token().unwrap();
    let good = secret.expose_secret();
    let mut mistyped = good.to_owned();
    let last = mistyped.pop();
    mistyped.push(if last == Some('A') { 'B' } else { 'A' });
    let url = format!("sqlite:{}", world.folder.path().join("tollgate.db").display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("ALTER TABLE tokens RENAME TO away")
        .execute(&mut connection)
        .await
        .unwrap();
    for wrong in [mistyped.as_str(), "tgpat-", "tgpat-x"] {
        assert_eq!(refusal(world.pat(9999, wrong).await), AccessDenyReason::UnknownKey);
    }
    // Every secret that may be a token is looked up, and the store fails.
    for other in [good, "glpat-x", "x"] {
        let answer = world.pat(9999, other).await;
        assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    }
    sqlx::raw_sql("ALTER TABLE away RENAME TO tokens")
        .execute(&mut connection)
        .await
        .unwrap();
    // The same refusal as for a token that does not exist.
    assert_eq!(refusal(world.pat(9999, good).await), AccessDenyReason::UnknownKey);
}

#[tokio::test]
async fn one_cookie_with_another_csrf_token_is_another_question() {
    let world = World::new().await;
    world.add_cookie((102, "bob"), 3600).await;
    world.cookie(9999, "sess-bob", "csrf-bob").await.unwrap();
    assert_eq!(
        refusal(world.cookie(9999, "sess-bob", "wrong").await),
        AccessDenyReason::Csrf
    );
    world.cookie(9999, "sess-bob", "csrf-bob").await.unwrap();
}

#[tokio::test]
async fn a_reload_counts_at_once_both_ways() {
    let mut world = World::new().await;
    let pat = Pat {
        user: (102, "bob"),
        ..Pat::default()
    };
    world.add(&pat).await;
    let before = std::sync::Arc::clone(&world.agents);
    world.pat(9999, pat.secret).await.unwrap();
    world.agents = Agents::build(&people_and(&[agent(9999, "my-agent", "")]), None);
    assert!(matches!(
        refusal(world.pat(9999, pat.secret).await),
        AccessDenyReason::NotShared(_)
    ));
    world.agents = Agents::build(&people_and(&[agent(9999, "my-agent", &shared_as("agent"))]), None);
    assert_eq!(
        world.pat(9999, pat.secret).await.unwrap().facts().access_as,
        AccessAs::Agent
    );
    // Requests with the previous snapshot are decided by it.
    world.agents = before;
    assert_ne!(
        world.pat(9999, pat.secret).await.unwrap().facts().access_as,
        AccessAs::Agent
    );
}

#[tokio::test]
async fn a_revoked_session_is_refused_at_the_next_request() {
    let world = World::new().await;
    world.add(&Pat::default()).await;
    let access = world.pat(9999, "glpat-alice").await.unwrap();
    let owner = SessionOwner {
        user: access.user().clone(),
        agent_id: Some(access.agent().id),
    };
    world.sessions.revoke(access.session(), &owner, &admin()).await.unwrap();
    let answer = world.pat(9999, "glpat-alice").await;
    assert_eq!(
        answer.as_ref().unwrap_err().credential_owner().unwrap().user.username,
        "alice"
    );
    assert_eq!(refusal(answer), AccessDenyReason::Revoked);
    assert_eq!(refusal(world.pat(9999, "glpat-alice").await), AccessDenyReason::Revoked);
}

#[tokio::test]
async fn a_revoked_id_token_is_refused_and_another_session_is_not() {
    let world = World::new().await;
    let token = world.token_of(&json!("102"), 9999);
    let access = world.id_token(&token).await.unwrap();
    let owner = SessionOwner {
        user: access.user().clone(),
        agent_id: None,
    };
    world.sessions.revoke(&token.session, &owner, &admin()).await.unwrap();
    assert_eq!(refusal(world.id_token(&token).await), AccessDenyReason::Revoked);
    world.id_token(&world.token_of(&json!("102"), 7)).await.unwrap();
}

#[tokio::test]
async fn a_credential_that_ends_is_refused_from_then_on() {
    let world = World::new().await;
    world
        .add(&Pat {
            lives: 20,
            ..Pat::default()
        })
        .await;
    world.pat(9999, "glpat-alice").await.unwrap();
    world.clock.advance(Duration::from_secs(21));
    assert_eq!(refusal(world.pat(9999, "glpat-alice").await), AccessDenyReason::Expired);
}

#[tokio::test]
async fn tokens_of_one_person_are_judged_each_for_itself() {
    let world = World::new().await;
    let mut token = world.token_of(&json!("102"), 6);
    for groups in ["platform-admins", "viewers"] {
        let mut identity = mapped("oidc:102");
        identity.groups = vec![groups.to_owned()];
        token.token = secrecy::SecretString::from(format!("h.{groups}.s"));
        token.mapped = Some(identity.clone());
        assert_eq!(
            world.id_token(&token).await.unwrap().facts().access_as,
            AccessAs::Mapped(identity)
        );
    }
}

#[tokio::test]
async fn a_refusal_is_over_after_ten_seconds() {
    let world = World::new().await;
    assert_eq!(
        refusal(world.pat(9999, "glpat-alice").await),
        AccessDenyReason::UnknownKey
    );
    world.add(&Pat::default()).await;
    assert_eq!(
        refusal(world.pat(9999, "glpat-alice").await),
        AccessDenyReason::UnknownKey
    );
    world.clock.advance(Duration::from_secs(10));
    world.pat(9999, "glpat-alice").await.unwrap();
}
