//! Providers in other languages than Rust: `token-broker` in JavaScript and `session-broker` in
//! Python. The tests compare what they send and what they make of a broker's responses.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tollgate_credential::{Credential, Mint as _, MintError, MintErrorClass, MintReason, MintRequest};
use tollgate_plugin::{Allocation, PluginSet, ProviderCluster, ProviderMint, SecretValues};

use test_support::providers::{Reply, Script, Seen, World, guests};

mod answers;
mod surroundings;

/// The address of both brokers.
const ENDPOINT: &str = "https://broker.example.com/v1/tokens";
/// Both guests.
const BOTH: [&str; 2] = ["token-broker", "session-broker"];
/// The key of one and the password of the other, with characters that need encoding.
const KEY: &str = "k3y-ä+/\"&=%";

/// The guests with one granted host, in an instance pool as in a gateway.
struct Fixture {
    world: World,
    set: PluginSet,
    _guests: tempfile::TempDir,
}

impl Fixture {
    async fn new(names: &[&str]) -> Self {
        // Tests share a cache of compiled guests: one compiles them, the others wait.
        static LOADING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _loading = LOADING.lock().await;
        let world = World::new().await;
        let folder = guests(names);
        let hosts = [world.entry("broker.example.com")];
        let (set, findings) = world.load_into(Allocation::Pool, folder.path(), (&hosts, &[]));
        assert_eq!(findings, Vec::<String>::new());
        Self {
            world,
            set,
            _guests: folder,
        }
    }

    /// The source of a cluster's credentials, from the guest `name`.
    fn cluster(&self, name: &str, config: &Value) -> ProviderMint {
        let values = match name {
            "token-broker" => vec![("brokerKey", KEY)],
            "session-broker" => vec![("brokerUser", "gateway"), ("brokerPassword", KEY)],
            _ => Vec::new(),
        };
        self.cluster_with(name, config, &values)
    }

    fn cluster_with(&self, name: &str, config: &Value, values: &[(&str, &str)]) -> ProviderMint {
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), SecretString::from(*value)));
        let secret_values = SecretValues {
            values: values.collect(),
            ..SecretValues::default()
        };
        let cluster = ProviderCluster {
            name: "prod \"eu\"".to_owned(),
            server: "https://prod.example.com:6443".to_owned(),
        };
        self.set
            .provider(name)
            .unwrap()
            .mint_for(cluster, config, secret_values)
    }

    /// Mints with the guest `name` against one reply.
    async fn mint(&self, name: &str, reply: Reply) -> Result<Credential, MintError> {
        self.replies([reply]);
        mint(&self.cluster(name, &json!({"endpoint": ENDPOINT}))).await
    }

    fn replies(&self, replies: impl IntoIterator<Item = Reply>) {
        self.world.endpoint.play(Script {
            replies: replies.into_iter().collect(),
            ..Script::default()
        });
    }

    fn seen(&self) -> Vec<Seen> {
        self.world.endpoint.seen()
    }
}

async fn mint(source: &ProviderMint) -> Result<Credential, MintError> {
    let request = MintRequest {
        reason: MintReason::Initial,
        previous_expiry: None,
        budget: Duration::from_secs(10),
    };
    source.mint_traced(request).await.0
}

fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Reply {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Reply::Answer {
        status,
        headers: headers.collect(),
        body: body.as_bytes().to_vec(),
    }
}

fn json_answer(status: u16, body: &Value) -> Reply {
    Reply::json(status, body)
}

/// The response of the broker of the guest `name` that grants a token for an hour.
fn granted(name: &str) -> Value {
    match name {
        "token-broker" => json!({"token": "tok.en-1", "expiresAt": "2026-01-02T05:04:05.000+01:00", "id": "S"}),
        _ => json!({"access_token": "tok.en-1", "expires_in": 3600, "refresh_token": "S"}),
    }
}

/// The names of a request's header fields, sorted.
fn names(seen: &Seen) -> Vec<&str> {
    let mut names: Vec<&str> = seen.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

/// The header fields that the guests and the host send.
const FIELDS: [&str; 6] = [
    "accept",
    "authorization",
    "content-length",
    "content-type",
    "host",
    "user-agent",
];

#[tokio::test]
async fn a_good_configuration_passes_and_a_doubtful_one_warns() {
    let fixture = Fixture::new(&BOTH).await;
    for (name, config, warning) in [
        ("token-broker", json!({"endpoint": ENDPOINT}), None),
        ("token-broker", json!({"endpoint": ENDPOINT, "ttlSeconds": 300}), None),
        (
            "token-broker",
            json!({"endpoint": ENDPOINT, "ttlSeconds": 60}),
            Some("ttlSeconds is 60"),
        ),
        (
            "session-broker",
            json!({"endpoint": ENDPOINT, "lifetimeSeconds": 900}),
            None,
        ),
        (
            "session-broker",
            json!({"endpoint": ENDPOINT}),
            Some("lifetimeSeconds is not set"),
        ),
    ] {
        let warnings = fixture.cluster(name, &config).check().await.unwrap();
        let expected = warning
            .iter()
            .zip(&warnings)
            .all(|(wanted, observed)| observed.starts_with(wanted));
        assert!(
            warnings.len() == warning.iter().len() && expected,
            "{name} {config}: {warnings:?}"
        );
    }
    assert!(fixture.seen().is_empty());
}

#[tokio::test]
async fn a_bad_configuration_is_refused() {
    let fixture = Fixture::new(&BOTH).await;
    for name in BOTH {
        for (config, code) in [
            (json!({}), "config.schema"),
            (json!({"endpoint": "http://broker.example.com"}), "config.schema"),
            (json!({"endpoint": ENDPOINT, "ttl": 1}), "config.schema"),
            (json!({"endpoint": "https://"}), "config.endpoint"),
            (
                json!({"endpoint": "https://broker.example.com:65536/"}),
                "config.endpoint",
            ),
            (json!({"endpoint": "https://u@broker.example.com/"}), "config.endpoint"),
            (
                json!({"endpoint": "https://broker.example.com/?a=b"}),
                "config.endpoint",
            ),
            (json!({"endpoint": "https://broker.example.com/#a"}), "config.endpoint"),
        ] {
            let source = fixture.cluster(name, &config);
            let checked = source.check().await.unwrap_err();
            assert_eq!(
                (checked.class, checked.code.as_str()),
                (MintErrorClass::Config, code),
                "{name} {config}"
            );
            let minted = mint(&source).await.unwrap_err();
            assert_eq!(
                (minted.class, minted.code.as_str()),
                (MintErrorClass::Config, code),
                "{name} {config}"
            );
        }
    }
    assert!(fixture.seen().is_empty());
}

#[tokio::test]
async fn the_javascript_guest_sends_json_and_mints() {
    let fixture = Fixture::new(&["token-broker"]).await;
    fixture.replies([json_answer(201, &granted("token-broker"))]);
    let source = fixture.cluster("token-broker", &json!({"endpoint": ENDPOINT, "ttlSeconds": 900}));
    let credential = mint(&source).await.unwrap();
    assert_eq!(credential.token.unwrap().expose(), "tok.en-1");
    assert_eq!(credential.expires_at.unwrap().to_string(), "2026-01-02T04:04:05Z");
    assert_eq!((credential.cacheable, credential.warnings.len()), (true, 0));
    assert!(credential.revocation.is_none() && credential.certificate.is_none() && credential.headers.is_empty());

    let [seen] = <[Seen; 1]>::try_from(fixture.seen()).unwrap();
    assert_eq!((seen.method.as_str(), seen.url.as_str()), ("POST", ENDPOINT));
    let body = r#"{"cluster":"prod \"eu\"","server":"https://prod.example.com:6443","ttlSeconds":900}"#;
    assert_eq!(String::from_utf8(seen.body.clone()).unwrap(), body);
    assert_eq!(names(&seen), FIELDS);
    let authorization = seen.headers["authorization"].as_bytes();
    assert_eq!(authorization, format!("Bearer {KEY}").as_bytes());
    assert_eq!(seen.headers["accept"], "application/json");
    assert_eq!(seen.headers["content-type"], "application/json");
}

#[tokio::test]
async fn the_python_guest_sends_a_form_and_revokes_the_session() {
    let fixture = Fixture::new(&["session-broker"]).await;
    fixture.replies([json_answer(200, &granted("session-broker")), answer(204, &[], "")]);
    let source = fixture.cluster("session-broker", &json!({"endpoint": ENDPOINT, "lifetimeSeconds": 900}));
    let credential = mint(&source).await.unwrap();
    assert_eq!(credential.token.unwrap().expose(), "tok.en-1");
    assert_eq!(credential.expires_at.unwrap().to_string(), "2026-01-02T04:04:05Z");
    assert_eq!((credential.cacheable, credential.warnings.len()), (true, 0));
    let revocation = credential.revocation.unwrap();
    let again = SecretString::from(revocation.expose_secret().to_owned());
    source.revoke(revocation).await.unwrap();

    let [asked, given] = <[Seen; 2]>::try_from(fixture.seen()).unwrap();
    assert_eq!((asked.method.as_str(), asked.url.as_str()), ("POST", ENDPOINT));
    let body = "cluster=prod+%22eu%22&server=https%3A%2F%2Fprod.example.com%3A6443&lifetime=900";
    assert_eq!(String::from_utf8(asked.body.clone()).unwrap(), body);
    let basic = format!("Basic {}", STANDARD.encode(format!("gateway:{KEY}")));
    assert_eq!((names(&asked), names(&given)), (FIELDS.to_vec(), FIELDS.to_vec()));
    assert_eq!(asked.headers["authorization"], basic);
    assert_eq!(asked.headers["content-type"], "application/x-www-form-urlencoded");
    assert_eq!(
        (given.method.as_str(), given.url),
        ("POST", format!("{ENDPOINT}/revoke"))
    );
    assert_eq!(
        (given.body.as_slice(), &given.headers["authorization"]),
        (b"token=tok.en-1".as_slice(), &asked.headers["authorization"])
    );

    fixture.replies([answer(403, &[], "")]);
    let refused = source.revoke(again).await.unwrap_err();
    assert_eq!(
        (refused.class, refused.code.as_str()),
        (MintErrorClass::Denied, "http.403")
    );
}

#[tokio::test]
async fn errors_show_no_secrets_and_name_missing_ones() {
    let fixture = Fixture::new(&BOTH).await;
    for name in BOTH {
        let body = json!({"message": format!("{KEY} is unknown"), "error_description": format!("{KEY} is unknown")});
        let error = fixture.mint(name, json_answer(401, &body)).await.unwrap_err();
        assert_eq!(error.class, MintErrorClass::Denied);
        assert!(
            error.message.contains("is unknown") && !error.message.contains("k3y"),
            "{error:?}"
        );

        fixture.replies([]);
        let source = fixture.cluster_with(name, &json!({"endpoint": ENDPOINT}), &[("other", "x")]);
        let error = mint(&source).await.unwrap_err();
        assert_eq!(
            (error.class, error.code.as_str()),
            (MintErrorClass::Config, "secret.not-found"),
            "{error:?}"
        );
        assert!(error.message.contains("`broker"), "{error:?}");
        assert!(fixture.seen().is_empty());
    }
}

#[tokio::test]
async fn no_host_beyond_the_grant_is_reached() {
    let fixture = Fixture::new(&BOTH).await;
    for name in BOTH {
        for (endpoint, code) in [
            ("https://broker.example.com.evil.example/", "egress.host"),
            ("https://broker.example.com:8443/", "egress.port"),
            ("https://127.0.0.1/", "egress.ip-literal"),
        ] {
            fixture.replies([json_answer(200, &granted(name))]);
            let error = mint(&fixture.cluster(name, &json!({"endpoint": endpoint})))
                .await
                .unwrap_err();
            assert_eq!(
                (error.class, error.code.as_str()),
                (MintErrorClass::Config, code),
                "{name} {endpoint}: {error:?}"
            );
            assert!(fixture.seen().is_empty(), "{name} {endpoint}");
        }
    }
}

/// The pool bounds instances, memories and tables, and a guest with a language runtime has many
/// core instances.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pool_has_room_for_many_concurrent_calls() {
    let fixture = Fixture::new(&BOTH).await;
    for name in BOTH {
        let doubtful = json!({"endpoint": ENDPOINT, "ttlSeconds": 60});
        let config = if name == "token-broker" {
            doubtful
        } else {
            json!({"endpoint": ENDPOINT})
        };
        let source = fixture.cluster(name, &config);
        let calls = (0..48).map(|_| {
            let source = source.clone();
            tokio::spawn(async move { source.check().await })
        });
        for call in futures_util::future::join_all(calls).await {
            assert_eq!(call.unwrap().unwrap().len(), 1, "{name}");
        }
    }
}
