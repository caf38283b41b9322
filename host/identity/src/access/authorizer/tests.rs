use std::time::Duration;

use secrecy::ExposeSecret as _;
use serde_json::json;
use sqlx::Connection as _;

use crate::access::secret::generate_token;
use crate::access::tests::fixture::{Fixture, Pat, agent, mapped, people_and, refusal, shared_as};
use crate::access::{AccessDenyReason, Agents, Error};
use tollgate_core::user::AccessAs;
use tollgate_store::{Actor, SessionOwner};

fn admin() -> Actor {
    Actor {
        user_id: None,
        name: "admin".to_owned(),
    }
}

#[tokio::test]
async fn results_are_cached_per_agent() {
    let fixture = Fixture::new().await;
    fixture.add(&Pat::default()).await;
    fixture.pat(9999, "glpat-alice").await.unwrap();
    assert_eq!(
        refusal(fixture.pat(8, "glpat-alice").await),
        AccessDenyReason::OtherAgent
    );
}

#[tokio::test]
async fn a_mistyped_token_is_refused_without_the_store() {
    let fixture = Fixture::new().await;
    let secret = generate_token().unwrap();
    let good = secret.expose_secret();
    let mut mistyped = good.to_owned();
    let last = mistyped.pop();
    mistyped.push(if last == Some('A') { 'B' } else { 'A' });
    let url = format!("sqlite:{}", fixture.folder.path().join("tollgate.db").display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("ALTER TABLE tokens RENAME TO away")
        .execute(&mut connection)
        .await
        .unwrap();
    for wrong in [mistyped.as_str(), "tgpat-", "tgpat-x"] {
        assert_eq!(refusal(fixture.pat(9999, wrong).await), AccessDenyReason::UnknownKey);
    }
    // Every secret that may be a token is looked up, and the store fails.
    for other in [good, "glpat-x", "x"] {
        let answer = fixture.pat(9999, other).await;
        assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    }
    sqlx::raw_sql("ALTER TABLE away RENAME TO tokens")
        .execute(&mut connection)
        .await
        .unwrap();
    // The same refusal as for a token that does not exist.
    assert_eq!(refusal(fixture.pat(9999, good).await), AccessDenyReason::UnknownKey);
}

#[tokio::test]
async fn results_are_cached_per_csrf_token() {
    let fixture = Fixture::new().await;
    fixture.add_cookie(102, "bob", 3600).await;
    fixture.cookie(9999, "sess-bob", "csrf-bob").await.unwrap();
    assert_eq!(
        refusal(fixture.cookie(9999, "sess-bob", "wrong").await),
        AccessDenyReason::Csrf
    );
    fixture.cookie(9999, "sess-bob", "csrf-bob").await.unwrap();
}

#[tokio::test]
async fn a_reload_grants_and_withdraws_access_at_once() {
    let mut fixture = Fixture::new().await;
    let pat = Pat {
        user: (102, "bob"),
        ..Pat::default()
    };
    fixture.add(&pat).await;
    let before = std::sync::Arc::clone(&fixture.agents);
    fixture.pat(9999, pat.secret).await.unwrap();
    fixture.agents = Agents::build(&people_and(&[agent(9999, "my-agent", "")]), None);
    assert!(matches!(
        refusal(fixture.pat(9999, pat.secret).await),
        AccessDenyReason::NotShared(_)
    ));
    fixture.agents = Agents::build(&people_and(&[agent(9999, "my-agent", &shared_as("agent"))]), None);
    assert_eq!(
        fixture.pat(9999, pat.secret).await.unwrap().facts().access_as,
        AccessAs::Agent
    );
    // Requests with the previous snapshot are decided by it.
    fixture.agents = before;
    assert_ne!(
        fixture.pat(9999, pat.secret).await.unwrap().facts().access_as,
        AccessAs::Agent
    );
}

#[tokio::test]
async fn a_revoked_session_is_refused_at_the_next_request() {
    let fixture = Fixture::new().await;
    fixture.add(&Pat::default()).await;
    let access = fixture.pat(9999, "glpat-alice").await.unwrap();
    let owner = SessionOwner {
        user: access.user().clone(),
        agent_id: Some(access.agent().id),
    };
    fixture
        .sessions
        .revoke(access.session(), &owner, &admin())
        .await
        .unwrap();
    let answer = fixture.pat(9999, "glpat-alice").await;
    assert_eq!(
        answer.as_ref().unwrap_err().credential_owner().unwrap().user.username,
        "alice"
    );
    assert_eq!(refusal(answer), AccessDenyReason::Revoked);
    assert_eq!(
        refusal(fixture.pat(9999, "glpat-alice").await),
        AccessDenyReason::Revoked
    );
}

#[tokio::test]
async fn a_revoked_id_token_is_refused_and_another_session_is_not() {
    let fixture = Fixture::new().await;
    let token = fixture.token_of(&json!("102"), 9999);
    let access = fixture.id_token(&token).await.unwrap();
    let owner = SessionOwner {
        user: access.user().clone(),
        agent_id: None,
    };
    fixture.sessions.revoke(&token.session, &owner, &admin()).await.unwrap();
    assert_eq!(refusal(fixture.id_token(&token).await), AccessDenyReason::Revoked);
    fixture.id_token(&fixture.token_of(&json!("102"), 7)).await.unwrap();
}

#[tokio::test]
async fn an_expired_credential_is_refused_despite_the_cache() {
    let fixture = Fixture::new().await;
    fixture
        .add(&Pat {
            lifetime_seconds: 20,
            ..Pat::default()
        })
        .await;
    fixture.pat(9999, "glpat-alice").await.unwrap();
    fixture.clock.advance(Duration::from_secs(21));
    assert_eq!(
        refusal(fixture.pat(9999, "glpat-alice").await),
        AccessDenyReason::Expired
    );
}

#[tokio::test]
async fn results_are_cached_per_token() {
    let fixture = Fixture::new().await;
    let mut token = fixture.token_of(&json!("102"), 6);
    for groups in ["platform-admins", "viewers"] {
        let mut identity = mapped("oidc:102");
        identity.groups = vec![groups.to_owned()];
        token.token = secrecy::SecretString::from(format!("h.{groups}.s"));
        token.mapped = Some(identity.clone());
        assert_eq!(
            fixture.id_token(&token).await.unwrap().facts().access_as,
            AccessAs::Mapped(identity)
        );
    }
}

#[tokio::test]
async fn a_refusal_is_cached_for_ten_seconds() {
    let fixture = Fixture::new().await;
    assert_eq!(
        refusal(fixture.pat(9999, "glpat-alice").await),
        AccessDenyReason::UnknownKey
    );
    fixture.add(&Pat::default()).await;
    assert_eq!(
        refusal(fixture.pat(9999, "glpat-alice").await),
        AccessDenyReason::UnknownKey
    );
    fixture.clock.advance(Duration::from_secs(10));
    fixture.pat(9999, "glpat-alice").await.unwrap();
}
