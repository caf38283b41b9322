//! A person has several names, and a lock by each of them means the person: on every front, for what is open and
//! for what comes. A replica that cannot tell who is locked serves nobody.

use serde_json::{Value, json};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use super::{Exchange, ExchangeKind, FRONTS, Front, TestEnvironment};
use test_support::client::{Answer, Client};

/// The names of one person.
#[derive(Clone, Copy)]
pub(super) struct Names {
    /// `sub` of the issuer.
    pub(super) subject: &'static str,
    /// What the issuer's claims are mapped to.
    username: &'static str,
    /// The user name in the directory.
    pub(super) entry: &'static str,
    /// The number there.
    pub(super) number: u32,
}

/// Who is locked, and their twin.
pub(super) const PEOPLE: [Names; 2] = [
    Names {
        subject: "u7-sub",
        username: "ul@corp.example",
        entry: "ulrich",
        number: 101,
    },
    Names {
        subject: "t7-sub",
        username: "tw@corp.example",
        entry: "tweety",
        number: 102,
    },
];

/// A person's credentials: an ID token of the issuer, and a token that they made with it.
struct Credentials {
    id_token: String,
    own_token: String,
}

impl Credentials {
    async fn of(environment: &TestEnvironment, person: Names) -> Self {
        let claims = json!({
            "sub": person.subject, "email": person.username, "email_verified": true, "login": person.entry,
        });
        let id_token = environment.issuer.token(&claims);
        let (_, own_token) = environment.token_of(&id_token, 1).await;
        Self { id_token, own_token }
    }

    fn at(&self, front: Front) -> &str {
        match front {
            Front::Kubernetes => &self.own_token,
            Front::Extensions | Front::Clusters | Front::Applications | Front::ApplicationSets | Front::Argocd => {
                &self.id_token
            }
        }
    }

    /// A watch on every front.
    async fn open(&self, environment: &TestEnvironment, round: &str) -> Vec<Exchange> {
        let mut open = Vec::new();
        for front in FRONTS {
            let name = format!("{front:?}-{round}").to_lowercase();
            let named = (name, self.at(front).to_owned());
            open.push(environment.open_as(named, front, None, ExchangeKind::Watch).await);
        }
        open
    }

    /// The answer to a new request on every front.
    async fn ask(&self, environment: &TestEnvironment) -> Vec<(Front, Answer)> {
        let mut statuses = Vec::new();
        for front in FRONTS {
            let path = match front {
                Front::Extensions => "/api/v1/extensions/echo/api",
                Front::Clusters => "/clusters/prod/k8s/api",
                Front::Kubernetes => "/k8s-proxy/api",
                Front::Applications => "/applications/argocd/cart/k8s/api",
                Front::ApplicationSets => "/api/v1/applicationsets",
                Front::Argocd => "/api/v1/applications",
            };
            let head = format!(
                "GET {path} HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {}\r\n\
                 argocd-application-name: argocd:cart\r\nargocd-project-name: shop\r\n\r\n",
                self.at(front)
            );
            let mut client = Client::connect(environment.world.address()).await;
            let answer = client.exchange(head.as_bytes()).await;
            assert_ne!(answer.status, 400, "{front:?}: {}", answer.head);
            statuses.push((front, answer));
        }
        statuses
    }
}

/// Whether the caller is refused for who they are: a token ends with a lock, and a person learns of it.
fn is_locked_out(answer: &Answer) -> bool {
    answer.status == 401 || String::from_utf8_lossy(&answer.content).contains("you are locked")
}

impl TestEnvironment {
    /// Locks a name, or unlocks it.
    async fn lock(&self, method: reqwest::Method, name: &str) {
        let answer = self.api(method, "root", &format!("people/{name}/lock"));
        let answer = answer.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, 200, "{name}: {text}");
    }

    async fn has_ended(&self, exchange: &Exchange) -> bool {
        let record: Value = self.record(exchange.decision.as_ref().unwrap()).await;
        record["ended"]["reason"].is_string()
    }

    async fn until_served(&self, credentials: &Credentials) {
        let served = || async {
            let statuses = credentials.ask(self).await;
            statuses
                .iter()
                .all(|(_, answer)| !is_locked_out(answer) && answer.status < 500)
        };
        self.world.until("everything to be served", served).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_by_any_name_means_the_person_on_every_front() {
    let environment = TestEnvironment::start().await;
    let [victim, twin] = PEOPLE;
    let number = victim.number.to_string();
    let (own, other) = (
        Credentials::of(&environment, victim).await,
        Credentials::of(&environment, twin).await,
    );
    environment.until_served(&own).await;
    let mut twins = other.open(&environment, "twin").await;
    for (name, means) in [
        (victim.subject, true),
        (victim.username, true),
        (victim.entry, true),
        // A number may be given to somebody else, and part of a name is none.
        (number.as_str(), false),
        ("ulric", false),
    ] {
        let mut open = own.open(&environment, name).await;
        environment.lock(reqwest::Method::PUT, name).await;
        let statuses = own.ask(&environment).await;
        for (front, answer) in statuses {
            // A token that somebody made has the names of the directory alone.
            let means = means && (front != Front::Kubernetes || name == victim.entry);
            let (is_locked_out, head) = (is_locked_out(&answer), &answer.head);
            assert_eq!(is_locked_out, means, "{front:?} after a lock of `{name}`: {head}");
        }
        for exchange in &mut open {
            let means = means && (exchange.front != Front::Kubernetes || name == victim.entry);
            if means {
                let exchange = &*exchange;
                let ended = || async { environment.has_ended(exchange).await };
                let what = format!("{} to end after a lock of `{name}`", exchange.name);
                environment.world.until(&what, ended).await;
            } else {
                assert!(
                    exchange.is_open(&environment),
                    "a lock of `{name}` ended {}",
                    exchange.name
                );
            }
        }
        for exchange in &mut twins {
            assert!(
                exchange.is_open(&environment),
                "a lock of `{name}` ended {}",
                exchange.name
            );
        }
        environment.until_served(&other).await;
        environment.lock(reqwest::Method::DELETE, name).await;
        environment.until_served(&own).await;
    }

    // Nobody knows who is locked: what was open ends, and nothing begins.
    let options = SqliteConnectOptions::new().filename(environment.world.path("tollgate.db"));
    let mut database = options.connect().await.unwrap();
    sqlx::raw_sql("ALTER TABLE revocations RENAME TO away; ALTER TABLE person_locks RENAME TO locks_away")
        .execute(&mut database)
        .await
        .unwrap();
    for exchange in &twins {
        let ended = || async { environment.has_ended(exchange).await };
        let what = format!("{} to end without the store", exchange.name);
        environment.world.until(&what, ended).await;
    }
    for (front, answer) in other.ask(&environment).await {
        // A token is looked up in the store itself, which answers with an error here.
        let expected = if front == Front::Kubernetes { 500 } else { 503 };
        assert_eq!(answer.status, expected, "{front:?} without the store");
    }
}
