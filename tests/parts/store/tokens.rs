//! Tokens: creation, lookup, lists and use.

use tollgate_store::{AuditFilter, CredentialFilter, Error, Page, Store, Token};
use uuid::Uuid;

use crate::store::support::{Backend, actor, agent, all_events, at, create, event, hash, on_both, session_of, token};

on_both!(
    is_found_by_secret_and_by_id,
    is_listed_by_person_and_agent_newest_first,
    at_most_a_thousand_are_listed,
    are_filtered_before_they_are_counted,
    one_person_has_at_most_a_thousand,
    is_made_once,
    is_made_with_its_audit_event,
    is_imported_as_it_is_without_an_event,
    its_last_use_only_moves_forward,
    stays_when_the_store_is_opened_again,
    takes_names_that_look_like_sql,
    of_an_earlier_version_is_bound_once,
);

async fn is_found_by_secret_and_by_id(backend: Backend) {
    let store = backend.open().await;
    let made = token(7, 1, 0);
    create(&store, &made).await;
    let secret = made.id.to_string();
    assert_eq!(store.find_token(hash(secret)).await.unwrap(), Some(made.clone()));
    assert_eq!(store.token(made.id).await.unwrap(), Some(made));
    assert_eq!(store.find_token(hash("another secret")).await.unwrap(), None);
    assert_eq!(store.token(Uuid::now_v7()).await.unwrap(), None);
}

async fn is_listed_by_person_and_agent_newest_first(backend: Backend) {
    let store = backend.open().await;
    let (first, second, third) = (token(7, 1, 0), token(7, 2, 10), token(8, 1, 5));
    for made in [&first, &second, &third] {
        create(&store, made).await;
    }
    let listed = async |user_id: Option<i64>, agent_id: Option<i64>| {
        let filter = CredentialFilter {
            user_id,
            agents: agent_id.map(|id| vec![agent(id)]),
            ..CredentialFilter::default()
        };
        let tokens = store.tokens(&filter, &Page::default()).await.unwrap();
        tokens.into_iter().map(|token| token.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, None).await, [second.id, third.id, first.id]);
    assert_eq!(listed(Some(7), None).await, [second.id, first.id]);
    assert_eq!(listed(None, Some(1)).await, [third.id, first.id]);
    assert_eq!(listed(Some(7), Some(2)).await, [second.id]);
    assert_eq!(listed(Some(8), Some(2)).await, [] as [Uuid; 0]);
}

async fn at_most_a_thousand_are_listed(backend: Backend) {
    let store = backend.open().await;
    let made: Vec<_> = (0..1_001).map(|second| token(7, 1, second)).collect();
    import(&store, &made).await;
    let listed = store
        .tokens(&CredentialFilter::default(), &Page::default())
        .await
        .unwrap();
    assert_eq!(listed.len(), 1_000);
    assert_eq!(listed[0], made[1_000]);
    assert!(!listed.contains(&made[0]));
    // The next page begins after the last token, even if others were created meanwhile.
    import(&store, &[token(7, 1, 2_000)]).await;
    let last = listed.last().unwrap();
    let next = Page {
        after: Some((last.created_at, last.id)),
        ..Page::default()
    };
    assert_eq!(
        store.tokens(&CredentialFilter::default(), &next).await.unwrap(),
        made[..1]
    );
}

/// The filter applies before the limit of a page.
async fn are_filtered_before_they_are_counted(backend: Backend) {
    let store = backend.open().await;
    let mine = [token(7, 2, 0), token(8, 2, 1)];
    let others: Vec<_> = (0..1_001).map(|second| token(9, 1, 10 + second)).collect();
    import(&store, &mine).await;
    import(&store, &others[..1_000]).await;
    let listed = async |username: Option<&str>, agents: Option<&[i64]>| {
        let filter = CredentialFilter {
            username: username.map(str::to_owned),
            agents: agents.map(|ids| ids.iter().copied().map(agent).collect()),
            ..CredentialFilter::default()
        };
        let tokens = store.tokens(&filter, &Page::default()).await.unwrap();
        tokens.into_iter().map(|token| token.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, Some(&[2])).await, [mine[1].id, mine[0].id]);
    assert_eq!(listed(None, Some(&[2, 3])).await, [mine[1].id, mine[0].id]);
    assert_eq!(listed(Some(&mine[0].user.username), None).await, [mine[0].id]);
    assert_eq!(listed(Some(&mine[0].user.username), Some(&[1])).await, [] as [Uuid; 0]);
    assert_eq!(listed(None, Some(&[])).await, [] as [Uuid; 0]);
    assert_eq!(listed(None, Some(&[1, 2])).await.len(), 1_000);
}

async fn import(store: &Store, tokens: &[Token]) {
    let imports = tokens.iter().map(async |token| {
        let secret = hash(token.id.to_string());
        store.import_token(token, secret).await.unwrap();
    });
    futures_util::future::join_all(imports).await;
}

async fn one_person_has_at_most_a_thousand(backend: Backend) {
    let (store, replica) = (backend.open().await, backend.open().await);
    // Two more tokens are allowed. Revoked tokens count, and those of others do not.
    let mut made: Vec<_> = (0..998).map(|_| token(7, 1, 0)).collect();
    made[0].revoked_at = Some(at(5));
    made.extend((0..10).map(|_| token(8, 1, 0)));
    import(&store, &made).await;
    let by = actor(7);
    let more: Vec<_> = (0..6).map(|_| token(7, 2, 10)).collect();
    let attempts = more.iter().enumerate().map(|(index, token)| {
        let store = if index % 2 == 0 { &store } else { &replica };
        store.create_token(token, hash(token.id.to_string()), &by)
    });
    let outcomes = futures_util::future::join_all(attempts).await;
    let full = Error::LimitReached {
        what: "token",
        observed: 1_000,
        allowed: 1_000,
    };
    assert_eq!(outcomes.iter().filter(|one| one.is_ok()).count(), 2, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|one| **one == Err(full.clone())).count(), 4);
    let filter = AuditFilter {
        action: Some("token.created".to_owned()),
        ..AuditFilter::default()
    };
    assert_eq!(all_events(&store, filter).await.len(), 2);
    // Another person may create tokens, and so may the same person when the others have expired.
    create(&store, &token(8, 1, 10)).await;
    create(&store, &token(7, 1, 1_005)).await;
}

async fn is_made_once(backend: Backend) {
    let store = backend.open().await;
    let made = token(7, 1, 0);
    create(&store, &made).await;
    let by = actor(7);
    let exists = Error::Exists("token");
    // First with the id of an existing token, then with its secret.
    let again = store.create_token(&made, hash("new"), &by).await;
    assert_eq!(again, Err(exists.clone()));
    let secret = made.id.to_string();
    let again = store.create_token(&token(7, 1, 0), hash(secret.clone()), &by).await;
    assert_eq!(again, Err(exists.clone()));
    assert_eq!(store.import_token(&token(7, 1, 0), hash(secret)).await, Err(exists));
    assert_eq!(
        store
            .tokens(&CredentialFilter::default(), &Page::default())
            .await
            .unwrap(),
        [made]
    );
    assert_eq!(all_events(&store, AuditFilter::default()).await.len(), 1);
}

async fn is_made_with_its_audit_event(backend: Backend) {
    let store = backend.open().await;
    let made = token(7, 3, 0);
    store.create_token(&made, hash("secret"), &actor(9)).await.unwrap();
    let events = all_events(&store, AuditFilter::default()).await;
    let [created] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(created.action, "token.created");
    assert_eq!((created.user.as_str(), created.user_id), ("user-9", Some(9)));
    assert_eq!((created.first_at, created.last_at, created.count), (at(0), at(0), 1));
    assert_eq!(created.agent_id, Some(agent(3)));
    assert_eq!(created.session, Some(session_of(&made).to_string()));
    assert_eq!(created.details["owner"], "user-7");
    assert_eq!(created.details["owner_id"], 7);
    assert_eq!(created.details["name"], "made at 0");
}

async fn is_imported_as_it_is_without_an_event(backend: Backend) {
    let store = backend.open().await;
    let mut other = token(7, 1, 0);
    other.scopes = vec!["api".to_owned(), "k8s_proxy".to_owned()];
    other.revoked_at = Some(at(3));
    other.last_used_at = Some(at(2));
    let mut none = token(7, 1, 1);
    none.scopes.clear();
    store.import_token(&other, hash("a")).await.unwrap();
    store.import_token(&none, hash("b")).await.unwrap();
    assert_eq!(store.find_token(hash("a")).await.unwrap(), Some(other));
    assert_eq!(store.find_token(hash("b")).await.unwrap(), Some(none));
    assert!(all_events(&store, AuditFilter::default()).await.is_empty());
}

async fn its_last_use_only_moves_forward(backend: Backend) {
    let store = backend.open().await;
    let made = token(7, 1, 0);
    create(&store, &made).await;
    for (used, expected) in [(5, 5), (9, 9), (7, 9)] {
        store.record_token_use(made.id, at(used)).await.unwrap();
        let last = store.token(made.id).await.unwrap().unwrap().last_used_at;
        assert_eq!(last, Some(at(expected)), "used at {used}");
    }
    // An absent token is no error, because it may have been deleted meanwhile.
    store.record_token_use(Uuid::now_v7(), at(1)).await.unwrap();
}

async fn stays_when_the_store_is_opened_again(backend: Backend) {
    let made = token(7, 1, 0);
    create(&backend.open().await, &made).await;
    let store = backend.open().await;
    assert_eq!(store.token(made.id).await.unwrap(), Some(made));
}

async fn takes_names_that_look_like_sql(backend: Backend) {
    let store = backend.open().await;
    let name = "'); DROP TABLE tokens; -- $1 ? %s \u{202e}🦀\\";
    let mut made = token(7, 1, 0);
    made.name = name.to_owned();
    made.user.username = name.to_owned();
    store.create_token(&made, hash("x"), &actor(7)).await.unwrap();
    assert_eq!(store.token(made.id).await.unwrap(), Some(made));
    let mut odd = event("access.denied", 7, 0);
    odd.details = serde_json::from_str(r#"{"a\u0000\"'": "\u0000$1\n", "n": [1.5, null, {}]}"#).unwrap();
    store.record(std::slice::from_ref(&odd)).await.unwrap();
    let filter = AuditFilter {
        action: Some("access.denied".to_owned()),
        ..AuditFilter::default()
    };
    assert_eq!(all_events(&store, filter).await, [odd]);
}

/// Earlier versions stored only the id of a token's agent.
async fn of_an_earlier_version_is_bound_once(backend: Backend) {
    let store = backend.open().await;
    let mut old: Vec<_> = (0..2_100).map(|second| token(7, 1, second)).collect();
    old.push(token(7, 2, 0));
    for token in &mut old {
        token.agent = None;
    }
    let new = token(7, 2, 1);
    import(&store, &old).await;
    import(&store, std::slice::from_ref(&new)).await;
    let agents = [(agent(1), "one/cluster".to_owned())].into_iter().collect();
    assert_eq!(store.bind_tokens(&agents).await.unwrap(), (2_100, 1));
    let of = async |token: &Token| store.token(token.id).await.unwrap().unwrap().agent;
    assert_eq!(of(&old[0]).await.as_deref(), Some("one/cluster"));
    assert_eq!(of(&old[2_099]).await.as_deref(), Some("one/cluster"));
    assert_eq!(of(&new).await, new.agent);
    // No agent had this id then. An agent that gets it later gets no token with it.
    assert_eq!(of(&old[2_100]).await.as_deref(), Some(""));
    let later = [
        (agent(1), "other/cluster".to_owned()),
        (agent(2), "late/cluster".to_owned()),
    ];
    assert_eq!(store.bind_tokens(&later.into_iter().collect()).await.unwrap(), (0, 0));
    assert_eq!(of(&old[0]).await.as_deref(), Some("one/cluster"));
    assert_eq!(of(&old[2_100]).await.as_deref(), Some(""));
}
