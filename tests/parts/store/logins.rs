//! Logins, the requests that lead to them, their tokens, and locked people.

use futures_util::future::join_all;
use serde_json::json;
use tollgate_core::user::Identity;
use tollgate_store::{AuditFilter, Error, Login, LoginKind, LoginRequest, LoginRequestState, LoginToken, bounds};
use uuid::Uuid;

use crate::store::support::{Backend, actor, agent, all_events, at, hash, on_both, user};

on_both!(
    is_found_by_its_secret_alone,
    is_listed_while_it_is_in_force,
    has_a_limit_for_each_person,
    has_a_limit_for_those_made_at_once,
    is_requested_answered_and_taken_once,
    cannot_be_requested_without_limit,
    of_people_is_not_kept_out_by_strangers,
    has_tokens_for_an_agent,
    ends_with_the_issuer_once,
    locks_are_kept_with_their_reason
);

/// A login of a person, with the time of its creation. It lasts 1,000 s.
fn login(id: i64, created: i64) -> Login {
    Login {
        id: Uuid::now_v7(),
        kind: LoginKind::CommandLine,
        issuer: "https://idp.example".to_owned(),
        subject: format!("sub-{id}"),
        sid: Some("session".to_owned()),
        user: user(id),
        claims: json!({"sub": format!("sub-{id}"), "groups": ["dev"]})
            .as_object()
            .cloned()
            .unwrap(),
        client: "ann@laptop".to_owned(),
        address: "192.0.2.1".to_owned(),
        created_at: at(created),
        used_at: at(created),
        expires_at: at(created + 1_000),
        revoked_at: None,
    }
}

fn request(address: &str, created: i64) -> LoginRequest {
    LoginRequest {
        id: Uuid::now_v7(),
        challenge: Some("challenge".to_owned()),
        client: "ann@laptop".to_owned(),
        address: address.to_owned(),
        login: None,
        state: LoginRequestState::Pending,
        created_at: at(created),
        expires_at: at(created + 600),
    }
}

async fn is_found_by_its_secret_alone(backend: Backend) {
    let store = backend.open().await;
    let made = login(7, 0);
    store.create_login(&made, hash("secret")).await.unwrap();
    assert_eq!(store.find_login(hash("secret")).await.unwrap(), Some(made.clone()));
    assert_eq!(store.login(made.id).await.unwrap(), Some(made.clone()));
    assert_eq!(store.find_login(hash("another")).await.unwrap(), None);
    // It is neither a token nor a browser session of the Kubernetes front.
    assert_eq!(store.find_token(hash("secret")).await.unwrap(), None);
    assert_eq!(store.find_session(hash("secret")).await.unwrap(), None);
    let twice = store.create_login(&made, hash("secret")).await;
    assert!(matches!(twice, Err(Error::Exists(_))), "{twice:?}");
    let events = all_events(&store, AuditFilter::default()).await;
    let actions: Vec<&str> = events.iter().map(|event| event.action.as_str()).collect();
    assert_eq!(actions, ["login.created"]);
}

async fn is_listed_while_it_is_in_force(backend: Backend) {
    let store = backend.open().await;
    let (mut over, mut revoked, mut other) = (login(7, 0), login(7, 1), login(8, 2));
    (over.expires_at, revoked.revoked_at) = (at(50), Some(at(10)));
    // Another person's username is this one's subject.
    other.subject = "user-7".to_owned();
    let kept = login(7, 3);
    for one in [&over, &revoked, &other, &kept] {
        store.create_login(one, hash(one.id.to_string())).await.unwrap();
    }
    let ids = |logins: Vec<Login>| logins.into_iter().map(|one| one.id).collect::<Vec<_>>();
    let issuer = &*kept.issuer;
    let open = store.open_logins(issuer, "sub-7", at(100)).await.unwrap();
    assert_eq!(ids(open), [kept.id]);
    let of_sid = store.logins_of_sid(issuer, "session", at(100)).await.unwrap();
    assert_eq!(ids(of_sid), [other.id, kept.id]);
    assert!(
        store
            .logins_of_sid("https://other", "session", at(100))
            .await
            .unwrap()
            .is_empty()
    );
}

async fn has_a_limit_for_each_person(backend: Backend) {
    let store = backend.open().await;
    for number in 0..100 {
        let one = login(7, number);
        store.create_login(&one, hash(one.id.to_string())).await.unwrap();
    }
    let refused = store.create_login(&login(7, 100), hash("one more")).await;
    assert!(
        matches!(
            refused,
            Err(Error::LimitReached {
                what: "login",
                observed: 100,
                allowed: 100
            })
        ),
        "{refused:?}"
    );
    // Those that are over do not count, and nobody else's.
    store.create_login(&login(8, 100), hash("other")).await.unwrap();
    store.create_login(&login(7, 1_050), hash("later")).await.unwrap();
}

async fn has_a_limit_for_those_made_at_once(backend: Backend) {
    let store = backend.open().await;
    let made = join_all((0..120).map(|_| async {
        let one = login(7, 0);
        store.create_login(&one, hash(one.id.to_string())).await.is_ok()
    }));
    assert_eq!(made.await.into_iter().filter(|made| *made).count(), 100);
}

async fn is_requested_answered_and_taken_once(backend: Backend) {
    let store = backend.open().await;
    let (made, denied) = (request("192.0.2.1", 0), request("192.0.2.1", 0));
    store
        .create_login_request(&made, hash("code"), Some(hash("BCDF")))
        .await
        .unwrap();
    store.create_login_request(&denied, hash("other"), None).await.unwrap();
    assert_eq!(
        store.login_request_of_user(hash("BCDF")).await.unwrap(),
        Some(made.clone())
    );
    assert_eq!(store.login_request_of_user(hash("code")).await.unwrap(), None);
    // Nothing can be taken before it is approved.
    assert!(!store.take_login_request(made.id).await.unwrap());
    let approver = Uuid::now_v7();
    assert!(
        store
            .answer_login_request(made.id, Some(approver), at(1))
            .await
            .unwrap()
    );
    assert!(!store.answer_login_request(made.id, None, at(2)).await.unwrap());
    assert!(store.answer_login_request(denied.id, None, at(1)).await.unwrap());
    let found = store.login_request(hash("code")).await.unwrap().unwrap();
    assert_eq!(
        (found.state, found.login),
        (LoginRequestState::Approved, Some(approver))
    );
    assert!(!store.take_login_request(denied.id).await.unwrap());
    assert!(store.take_login_request(made.id).await.unwrap());
    assert!(!store.take_login_request(made.id).await.unwrap());
    assert_eq!(store.login_request(hash("code")).await.unwrap(), None);
    // An answer after its time counts for nothing.
    let late = request("192.0.2.1", 0);
    store.create_login_request(&late, hash("late"), None).await.unwrap();
    assert!(
        !store
            .answer_login_request(late.id, Some(approver), at(600))
            .await
            .unwrap()
    );
}

async fn cannot_be_requested_without_limit(backend: Backend) {
    let store = backend.open().await;
    for number in 0..20 {
        let one = request("192.0.2.1", 0);
        store
            .create_login_request(&one, hash(format!("{number}")), None)
            .await
            .unwrap();
    }
    let refused = store
        .create_login_request(&request("192.0.2.1", 0), hash("x"), None)
        .await;
    assert!(
        matches!(
            refused,
            Err(Error::LimitReached {
                what: "login request",
                allowed: 20,
                ..
            })
        ),
        "{refused:?}"
    );
    store
        .create_login_request(&request("192.0.2.2", 0), hash("y"), None)
        .await
        .unwrap();
    // Those of earlier are over.
    store
        .create_login_request(&request("192.0.2.1", 601), hash("z"), None)
        .await
        .unwrap();
    // A network of IPv6 is one client, however many addresses it has.
    for number in 0..20 {
        let one = request(&format!("2001:db8:0:7:{number:x}::1"), 601);
        store
            .create_login_request(&one, hash(format!("v6 {number}")), None)
            .await
            .unwrap();
    }
    let neighbor = request("2001:db8:0:7:ffff::1", 601);
    let refused = store.create_login_request(&neighbor, hash("v6"), None).await;
    assert!(
        matches!(refused, Err(Error::LimitReached { allowed: 20, .. })),
        "{refused:?}"
    );
    let elsewhere = request("2001:db8:0:8::1", 601);
    store
        .create_login_request(&elsewhere, hash("v6 elsewhere"), None)
        .await
        .unwrap();
}

/// Strangers who ask for as many device codes as there may be keep out other strangers only, and not for
/// longer than a code is good.
async fn of_people_is_not_kept_out_by_strangers(backend: Backend) {
    let store = backend.open().await;
    for first in (0..10_000).step_by(100) {
        let codes = join_all((first..first + 100).map(|number: u32| {
            let one = request(&format!("10.{}.{}.1", number / 256, number % 256), 0);
            let store = &store;
            async move {
                let (code, typed) = (hash(format!("d{number}")), hash(format!("u{number}")));
                store.create_login_request(&one, code, Some(typed)).await
            }
        }));
        assert!(codes.await.into_iter().all(|made| made.is_ok()));
    }
    let refused = store
        .create_login_request(&request("192.0.2.1", 1), hash("one more"), Some(hash("typed")))
        .await;
    assert!(
        matches!(refused, Err(Error::LimitReached { allowed: 10_000, .. })),
        "{refused:?}"
    );
    let approved = |login| LoginRequest {
        login: Some(login),
        state: LoginRequestState::Approved,
        ..request("192.0.2.1", 1)
    };
    let own = Uuid::now_v7();
    for number in 0..20 {
        store
            .create_login_request(&approved(own), hash(format!("own {number}")), None)
            .await
            .unwrap();
    }
    let refused = store.create_login_request(&approved(own), hash("own"), None).await;
    assert!(
        matches!(refused, Err(Error::LimitReached { allowed: 20, .. })),
        "{refused:?}"
    );
    store
        .create_login_request(&approved(Uuid::now_v7()), hash("another's"), None)
        .await
        .unwrap();
    // Nothing has deleted those that are over.
    store
        .create_login_request(&request("192.0.2.1", 601), hash("later"), Some(hash("later")))
        .await
        .unwrap();
}

async fn has_tokens_for_an_agent(backend: Backend) {
    let store = backend.open().await;
    let by = login(7, 0);
    let token = LoginToken {
        login: by.id,
        agent: Some((agent(9), "prod/cluster".to_owned())),
        identity: Identity {
            username: "ann".to_owned(),
            groups: vec!["dev".to_owned()],
            ..Identity::default()
        },
        is_mapped: true,
        expires_at: at(900),
    };
    store
        .create_login_token(&token, hash("token"), &by, at(0))
        .await
        .unwrap();
    assert_eq!(
        store.find_login_token(hash("token")).await.unwrap(),
        Some(token.clone())
    );
    assert_eq!(store.find_login_token(hash("other")).await.unwrap(), None);
    assert_eq!(store.find_login(hash("token")).await.unwrap(), None);
    let by_name = LoginToken { agent: None, ..token };
    store
        .create_login_token(&by_name, hash("by name"), &by, at(0))
        .await
        .unwrap();
    assert_eq!(
        store.find_login_token(hash("by name")).await.unwrap(),
        Some(by_name.clone())
    );
    // Each is an event of the person, with the login as its session.
    let filter = AuditFilter {
        action: Some("token.created".to_owned()),
        limit: 10,
        ..AuditFilter::default()
    };
    let events = store.audit(&filter).await.unwrap();
    let session = by.session().to_string();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event.session.as_deref() == Some(&*session)));
    // One login has no more than a thousand that are in force.
    for number in 2..1_000 {
        store
            .create_login_token(&by_name, hash(format!("{number}")), &by, at(0))
            .await
            .unwrap();
    }
    let refused = store.create_login_token(&by_name, hash("more"), &by, at(0)).await;
    assert!(
        matches!(refused, Err(Error::LimitReached { allowed: 1_000, .. })),
        "{refused:?}"
    );
    let later = LoginToken {
        expires_at: at(1_800),
        ..by_name.clone()
    };
    store
        .create_login_token(&later, hash("later"), &by, at(900))
        .await
        .unwrap();
    let other = LoginToken {
        login: Uuid::now_v7(),
        ..by_name
    };
    let another = login(8, 0);
    store
        .create_login_token(&other, hash("other login"), &another, at(0))
        .await
        .unwrap();
}

async fn ends_with_the_issuer_once(backend: Backend) {
    let store = backend.open().await;
    assert!(store.use_logout_token(hash("jti"), at(600)).await.unwrap());
    assert!(!store.use_logout_token(hash("jti"), at(600)).await.unwrap());
    assert!(store.use_logout_token(hash("another"), at(600)).await.unwrap());
}

async fn locks_are_kept_with_their_reason(backend: Backend) {
    let store = backend.open().await;
    let by = actor(1);
    assert!(store.lock_person("ann", "laptop stolen", at(5), &by).await.unwrap());
    assert!(!store.lock_person("ann", "again", at(6), &by).await.unwrap());
    let locks = store.person_locks().await.unwrap();
    assert_eq!(locks.len(), 1);
    assert_eq!(
        (
            &*locks[0].name,
            &*locks[0].reason,
            &*locks[0].locked_by,
            locks[0].locked_at
        ),
        ("ann", "laptop stolen", "user-1", at(5))
    );
    assert!(store.unlock_person("ann", at(7), &by).await.unwrap());
    assert!(!store.unlock_person("ann", at(8), &by).await.unwrap());
    assert!(store.person_locks().await.unwrap().is_empty());
    let events = all_events(&store, AuditFilter::default()).await;
    let mut actions: Vec<&str> = events.iter().map(|event| event.action.as_str()).collect();
    actions.sort_unstable();
    assert_eq!(actions, ["person.locked", "person.unlocked"]);
    let long = store.lock_person(&"x".repeat(1_025), "", at(9), &by).await;
    assert!(matches!(long, Err(Error::TooLong { .. })), "{long:?}");

    // Whoever is locked is read, so there are no more than are read, however many are locked at once.
    let many = (0..bounds::LOCKS + 5).map(|number| {
        let (store, by) = (&store, &by);
        async move { store.lock_person(&format!("person-{number:04}"), "", at(9), by).await }
    });
    let results: Vec<_> = join_all(many).await;
    let refused = results
        .iter()
        .filter(|result| matches!(result, Err(Error::LimitReached { .. })));
    assert_eq!(refused.count(), 5);
    let locked = store.person_locks().await.unwrap();
    assert_eq!(u32::try_from(locked.len()), Ok(bounds::LOCKS));
    // Who is locked already needs no further place.
    assert!(!store.lock_person(&locked[0].name, "", at(9), &by).await.unwrap());
}
