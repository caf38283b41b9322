//! Tests of logout tokens (OpenID Connect Back-Channel Logout, section 2.6): each rule is broken alone.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;
use tempfile::TempDir;
use url::Url;

use super::sign_in::{FORGED, Fixture, METHOD, changed, signed, with_type};
use super::with;
use crate::authenticate::sign_in::LogoutTokenError;
use crate::logins::{Logins, NewLogin};
use crate::metrics::Metrics;
use crate::sessions::SessionRegistry;
use tollgate_config::{Console, ConsoleHost, DeviceLogin};
use tollgate_core::user::User;
use tollgate_store::{Login, LoginKind, Store};

const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

impl Fixture {
    fn now(&self) -> i64 {
        self.authenticator.clock.unix_seconds()
    }

    /// Good claims of a logout token.
    fn logout_claims(&self) -> Value {
        let (now, events) = (self.now(), json!({ EVENT: {} }));
        json!({
            "iss": self.issuer.url, "aud": "gate", "iat": now, "exp": now + 3600, "jti": "l-1",
            "sub": "u-1", "sid": "s-1", "events": events,
        })
    }

    /// As [`Fixture::logout_claims`], with one claim changed, or without it.
    fn logout_token(&self, claim: &str, value: Option<Value>) -> String {
        signed(&changed(self.logout_claims(), claim, value))
    }

    /// The whole reason why a logout token is refused; `None` if it is not.
    async fn refusal(&self, token: &str) -> Option<String> {
        let verified = self.authenticator.verify_logout_token(METHOD, token).await;
        verified.err().map(|error| error.to_string())
    }
}

#[tokio::test]
async fn a_claim_that_is_wrong_is_refused() {
    let fixture = Fixture::start().await;
    let now = fixture.now();
    let issuer = fixture.issuer.url.clone();
    let refused = |reason: &str| format!("the logout token is refused: {reason}");
    let other_issuer = refused("invalid token: no configured issuer matches `iss`");
    let other_audience = refused("invalid token: `aud` holds none of the configured audiences");
    let wrong = |claim: &str| refused(&format!("malformed credential: claim `{claim}` has the wrong type"));
    let early = |claim: &str| refused(&format!("invalid token: claim `{claim}` is in the future"));
    let expired = refused("the token has expired");
    let content = |reason: &str| format!("the logout token {reason}");
    let (no_event, no_id) = (content("has no logout event in `events`"), content("has no `jti`"));
    let old = content("is more than 5 minutes old");
    let id_token = content("has a `nonce`: it is an ID token");
    let other_event = json!({ "http://schemas.openid.net/event/other": {} });
    let cases = [
        ("iss", None, &other_issuer),
        ("iss", Some(json!("https://idp.example")), &other_issuer),
        ("iss", Some(json!(format!("{issuer}/"))), &other_issuer),
        ("aud", None, &other_audience),
        ("aud", Some(json!("other")), &other_audience),
        ("aud", Some(json!("cli")), &other_audience),
        ("aud", Some(json!([])), &other_audience),
        ("aud", Some(json!(7)), &other_audience),
        ("iat", None, &content("has no `iat`")),
        ("iat", Some(json!(now - 330)), &old),
        ("iat", Some(json!(0)), &old),
        ("iat", Some(json!(now + 3600)), &early("iat")),
        ("iat", Some(json!("now")), &wrong("iat")),
        ("exp", Some(json!(now)), &expired),
        ("exp", Some(json!(now - 60)), &expired),
        ("exp", Some(json!(1_704_067_200.5)), &expired),
        ("exp", Some(json!("soon")), &wrong("exp")),
        ("nbf", Some(json!(now + 3600)), &early("nbf")),
        ("jti", None, &no_id),
        ("jti", Some(json!("")), &no_id),
        ("jti", Some(json!(7)), &no_id),
        ("events", None, &no_event),
        ("events", Some(json!(EVENT)), &no_event),
        ("events", Some(json!([EVENT])), &no_event),
        ("events", Some(json!({})), &no_event),
        ("events", Some(other_event), &no_event),
        ("events", Some(json!({ EVENT: true })), &no_event),
        ("nonce", Some(json!("n")), &id_token),
        ("nonce", Some(json!(null)), &id_token),
    ];
    for (claim, value, expected) in cases {
        let refused = fixture.refusal(&fixture.logout_token(claim, value.clone())).await;
        assert_eq!(refused.as_ref(), Some(expected), "`{claim}`: {value:?}");
    }
    for nobody in [json!(null), json!(""), json!(7)] {
        let changes = [("sub", nobody.clone()), ("sid", nobody.clone())];
        let refused = fixture.refusal(&signed(&with(fixture.logout_claims(), &changes))).await;
        assert_eq!(refused, Some(content("has neither `sid` nor `sub`")), "{nobody}");
    }
    let good = fixture.logout_token("x", None);
    let unknown = fixture.authenticator.verify_logout_token("other", &good).await;
    assert_eq!(unknown.unwrap_err().to_string(), "`other` is not an issuer for sign-in");
}

/// The twins of the refusals.
#[tokio::test]
async fn a_claim_that_is_as_it_may_be_is_accepted() {
    let fixture = Fixture::start().await;
    let now = fixture.now();
    let cases: [(&str, Option<Value>); 12] = [
        ("x", None),
        ("aud", Some(json!(["gate"]))),
        ("aud", Some(json!(["other", "gate"]))),
        ("iat", Some(json!(now - 60))),
        ("iat", Some(json!(now + 10))),
        ("iat", Some(json!(f64::from(u32::try_from(now).unwrap()) - 0.5))),
        ("exp", Some(json!(now + 600))),
        // Drafts of the specification do not have it.
        ("exp", None),
        ("nbf", Some(json!(now))),
        ("sub", None),
        ("sid", None),
        ("events", Some(json!({ EVENT: { "x": 1 }, "urn:other": {} }))),
    ];
    for (claim, value) in cases {
        let refused = fixture.refusal(&fixture.logout_token(claim, value.clone())).await;
        assert_eq!(refused, None, "`{claim}`: {value:?}");
    }
}

#[tokio::test]
async fn a_token_that_the_issuer_did_not_sign_for_this_is_refused() {
    let fixture = Fixture::start().await;
    for (name, make, expected) in FORGED {
        let refused = fixture.refusal(&make(&fixture.logout_claims())).await;
        assert_eq!(
            refused,
            Some(format!("the logout token is refused: {expected}")),
            "{name}"
        );
    }
    for kind in ["at+jwt", "secevent+jwt"] {
        let refused = fixture.refusal(&with_type(&fixture.logout_claims(), kind)).await;
        let expected = "the logout token is refused: invalid token: `typ` is not one of `JWT`, `logout+jwt`";
        assert_eq!(refused.as_deref(), Some(expected), "{kind}");
    }
    for kind in ["logout+jwt", "application/logout+jwt", "JWT"] {
        assert_eq!(
            fixture.refusal(&with_type(&fixture.logout_claims(), kind)).await,
            None,
            "{kind}"
        );
    }
}

/// Logins of `u-1` and `u-2`, in a separate store.
struct People {
    logins: Logins,
    folder: TempDir,
}

impl People {
    async fn start(fixture: &Fixture) -> Self {
        let (folder, clock) = (tempfile::tempdir().unwrap(), fixture.authenticator.clock.clone());
        let url = format!("sqlite:{}", folder.path().join("tollgate.db").display());
        let store = Arc::new(Store::open(&SecretString::from(url)).await.unwrap());
        let sessions = SessionRegistry::start(
            Arc::clone(&store),
            clock.clone(),
            Duration::from_secs(10),
            Arc::new(Metrics::default()),
        );
        let hour = Duration::from_secs(3600);
        let console = Console {
            url: Url::parse("https://tollgate.example").unwrap(),
            host: ConsoleHost::Own,
            idle: hour,
            lifetime: hour,
            login_lifetime: hour,
            device_login: DeviceLogin::Allowed,
            contact: None,
        };
        Self {
            logins: Logins::new(store, sessions.await.unwrap(), clock, console),
            folder,
        }
    }

    async fn log_in(&self, issuer: &str, subject: &str, sid: &str) -> Arc<Login> {
        let new = NewLogin {
            kind: LoginKind::Browser,
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            sid: Some(sid.to_owned()),
            user: User {
                id: 0,
                username: format!("oidc:{subject}"),
            },
            claims: serde_json::Map::new(),
            latest_end: None,
            client: "browser".to_owned(),
            address: "192.0.2.1".to_owned(),
        };
        self.logins.create(new).await.unwrap().1
    }

    /// Changes the database without the store.
    async fn sql(&self, text: &'static str) {
        let options = SqliteConnectOptions::new().filename(self.folder.path().join("tollgate.db"));
        let mut connection = options.connect().await.unwrap();
        sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
    }

    /// Takes a logout token; returns how many logins ended.
    async fn end(&self, fixture: &Fixture, token: &str) -> Result<usize, LogoutTokenError> {
        let ended = fixture.authenticator.verify_logout_token(METHOD, token).await?;
        self.logins.end_with_issuer(&ended).await
    }
}

#[tokio::test]
async fn a_logout_token_counts_once_and_for_whom_it_names() {
    let fixture = Fixture::start().await;
    let people = People::start(&fixture).await;
    let issuer = fixture.issuer.url.as_str();
    let one = people.log_in(issuer, "u-1", "s-1").await;
    let two = people.log_in(issuer, "u-1", "s-2").await;
    let other = people.log_in(issuer, "u-2", "s-3").await;
    let elsewhere = people.log_in("https://idp.example", "u-1", "s-1").await;
    let state = |logins: [&Arc<Login>; 4]| logins.map(|login| people.logins.is_ended(login));
    let all = [&one, &two, &other, &elsewhere];

    // A session of somebody else's.
    let changes = [("sid", json!("s-3")), ("jti", json!("l-0"))];
    let foreign = signed(&with(fixture.logout_claims(), &changes));
    assert_eq!(people.end(&fixture, &foreign).await.unwrap(), 0);
    assert_eq!(state(all), [false; 4]);

    let token = fixture.logout_token("x", None);
    assert_eq!(people.end(&fixture, &token).await.unwrap(), 1);
    assert_eq!(state(all), [true, false, false, false]);

    // Again, byte for byte and as another token of the same `jti`.
    for token in [token, fixture.logout_token("sid", None)] {
        let again = people.end(&fixture, &token).await.unwrap_err();
        assert_eq!(again.to_string(), "the logout token was used before");
    }
    assert_eq!(state(all), [true, false, false, false]);

    // Another `jti`, for all sessions of the person.
    let claims = changed(fixture.logout_claims(), "sid", None);
    let whole = signed(&with(claims, &[("jti", json!("l-2"))]));
    assert_eq!(people.end(&fixture, &whole).await.unwrap(), 1);
    assert_eq!(state(all), [true, true, false, false]);
}

/// The store is cut after some of the logins have ended, and the issuer sends the token again.
#[tokio::test]
async fn a_logout_that_the_store_cut_short_is_finished_by_a_second_attempt() {
    let fixture = Fixture::start().await;
    let people = People::start(&fixture).await;
    let issuer = fixture.issuer.url.as_str();
    let first = people.log_in(issuer, "u-1", "s-1").await;
    let second = people.log_in(issuer, "u-1", "s-2").await;
    let claims = changed(fixture.logout_claims(), "sid", None);
    let token = signed(&with(claims, &[("jti", json!("l-cut"))]));

    // From now on it takes the end of one login and no more.
    let cut = "CREATE TABLE cut AS SELECT COUNT(*) AS ended FROM revocations; \
               CREATE TRIGGER cut BEFORE INSERT ON revocations \
               WHEN (SELECT COUNT(*) FROM revocations) > (SELECT ended FROM cut) \
               BEGIN SELECT RAISE(ABORT, 'cut'); END";
    people.sql(cut).await;
    let failed = people.end(&fixture, &token).await.unwrap_err();
    assert!(matches!(failed, LogoutTokenError::Store(_)), "{failed}");
    let ended = [&first, &second].map(|login| people.logins.is_ended(login));
    assert_eq!(
        ended.iter().filter(|ended| **ended).count(),
        1,
        "the store was cut in between"
    );

    people.sql("DROP TRIGGER cut").await;
    people.end(&fixture, &token).await.unwrap();
    assert!(people.logins.is_ended(&first) && people.logins.is_ended(&second));
    // Its twin: a token whose work is done is used up.
    let again = people.end(&fixture, &token).await.unwrap_err();
    assert!(matches!(again, LogoutTokenError::Replayed), "{again}");
}
