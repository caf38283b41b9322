//! A hostile guest that attacks the sandbox. Each case states the class, code and message of the
//! error and how many requests the endpoint saw. Permitted actions are tested beside the attacks.
//!
//! Security: after each attack, no value of the cluster's Secret is in the error, in the transcript
//! or at a host that may not have it, and a good mint still works.

mod hosts;
mod lies;
mod limits;
mod phases;
mod secrets;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::{Value, json};
use tollgate_config::EgressEntry;
use tollgate_credential::{Credential, MintError, MintErrorClass, MintReason, MintRequest};
use tollgate_plugin::{CredentialProvider, EgressRecord, PluginSet, ProviderCluster, ProviderMint, SecretValues};

use test_support::providers::{Reply, Script, Seen, World, guests};

/// Values of the cluster's Secret. No guest may see any of these.
const BOUND: &str = "bound/secret+of&the=issuer";
const SHARED: &str = "shared-secret-of-the-issuer";
const ENDPOINT: &str = "secret-of-the-endpoint";
const DIGITS: &str = "867530912";
const PRIVATE: &str = "private-part-of-the-document";
const KEY: &str = include_str!("../../data/rfc7515-a2.pem");
/// The token that the issuer returns.
const MINTED: &str = "minted-token-0123456789";

/// The loaded guest.
struct Fixture {
    world: World,
    provider: Arc<CredentialProvider>,
    _set: PluginSet,
    _guests: tempfile::TempDir,
}

/// The outcome of one mint.
struct Outcome {
    minted: Result<Credential, MintError>,
    exchanges: Vec<EgressRecord>,
    seen: Vec<Seen>,
    connected: Vec<IpAddr>,
}

impl Fixture {
    async fn new() -> Self {
        let world = World::new().await;
        let folder = guests(&["hostile-provider"]);
        // `granted-only` is not in the manifest.
        let hosts = [
            "issuer.example",
            "other.example",
            "granted-only.example",
            "*.wild.example",
        ];
        let hosts: Vec<EgressEntry> = hosts.iter().map(|host| world.entry(host)).collect();
        let (set, findings) = world.load(folder.path(), &hosts, &["issuer".to_owned()]);
        // Tests that run at the same time share the cache of compiled guests, so a warning that the
        // cache could not be used is acceptable.
        assert!(
            !findings.iter().any(|finding| finding.contains("error")),
            "{findings:?}"
        );
        *world.pod.given.lock().unwrap() = json!({"sa-token": {"audience": "issuer", "token": "token-of-the-pod"}});
        Self {
            provider: set.provider("hostile-provider").unwrap().clone(),
            world,
            _set: set,
            _guests: folder,
        }
    }

    fn source(&self, cluster: &str, config: &Value) -> ProviderMint {
        let document = json!({"client_email": "robot@example.com", "private_key": PRIVATE}).to_string();
        let values = [
            ("bound", BOUND),
            ("shared", SHARED),
            ("endpoint", ENDPOINT),
            ("digits", DIGITS),
            ("key", KEY),
            ("document", &document),
            ("open", "anyone may read this"),
            ("not-in-the-manifest", "hidden-from-everybody"),
        ];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned().into()));
        let secret_values = SecretValues {
            values: values.into(),
            ..SecretValues::default()
        };
        let cluster = ProviderCluster {
            name: cluster.to_owned(),
            server: "https://cluster.example:6443".to_owned(),
        };
        self.provider.mint_for(cluster, config, secret_values)
    }

    /// Mints for the cluster `c`.
    async fn mint(&self, config: &Value, script: Script) -> Outcome {
        self.mint_for(&self.source("c", config), MintReason::Initial, script)
            .await
    }

    async fn mint_for(&self, source: &ProviderMint, reason: MintReason, script: Script) -> Outcome {
        self.world.endpoint.play(script);
        let request = MintRequest {
            reason,
            previous_expiry: None,
            budget: Duration::from_secs(10),
        };
        let patience = Duration::from_secs(30);
        let minted = tokio::time::timeout(patience, source.mint_traced(request)).await;
        let (minted, exchanges) = minted.expect("the mint did not end");
        let Script { seen, connected, .. } = self.world.endpoint.play(Script::default());
        let outcome = Outcome {
            minted,
            exchanges,
            seen,
            connected,
        };
        outcome.hides_secrets();
        outcome
    }

    /// Asserts that a good mint works on the same runtime.
    async fn still_mints(&self) {
        let outcome = self
            .mint(&json!({"attack": "good"}), always(&json!({"access_token": MINTED})))
            .await;
        let token = outcome.minted.unwrap().token.unwrap();
        assert_eq!(token.expose(), MINTED);
        assert_eq!(outcome.seen.len(), 1);
        let body = String::from_utf8(outcome.seen[0].body.clone()).unwrap();
        assert_eq!(body, "secret=bound%2Fsecret%2Bof%26the%3Dissuer");
    }
}

impl Outcome {
    /// Asserts that no secret is in the error or in the transcript, or was sent to a wrong host.
    fn hides_secrets(&self) {
        let error = self.minted.as_ref().err().map(|error| format!("{error:?}"));
        let visible = format!("{error:?} {}", serde_json::to_string(&self.exchanges).unwrap());
        for value in [
            BOUND,
            SHARED,
            ENDPOINT,
            DIGITS,
            PRIVATE,
            MINTED,
            "hidden-from-everybody",
        ] {
            for form in forms(value) {
                assert!(!visible.contains(&form), "`{form}` in {visible}");
            }
            for seen in &self.seen {
                let own = match value {
                    BOUND | SHARED | DIGITS | PRIVATE | MINTED => "https://issuer.example/",
                    ENDPOINT => "https://other.example/",
                    _ => "nowhere",
                };
                let sent = format!(
                    "{} {:?} {}",
                    seen.url,
                    seen.headers,
                    String::from_utf8_lossy(&seen.body)
                );
                let there = forms(value).iter().any(|form| sent.contains(form.as_str()));
                assert!(!there || seen.url.starts_with(own), "`{value}` in {sent}");
            }
        }
    }

    /// The message of the error.
    fn message(&self) -> &str {
        &self.minted.as_ref().unwrap_err().message
    }
}

/// A value in the encodings in which it could appear.
fn forms(value: &str) -> [String; 4] {
    let encoded = STANDARD_NO_PAD.encode(value);
    let cut = encoded.len() - 2;
    let form = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
    [
        value.to_owned(),
        form,
        encoded.get(..cut).unwrap().to_owned(),
        value.chars().rev().collect(),
    ]
}

/// An endpoint that responds to every request with 200 and this body.
fn always(body: &Value) -> Script {
    Script {
        forever: Some(Reply::json(200, body)),
        ..Script::default()
    }
}

/// An endpoint that gives every request this response.
fn answers(status: u16, headers: &[(&str, &str)], body: &str) -> Script {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Script {
        forever: Some(Reply::Answer {
            status,
            headers: headers.collect(),
            body: body.as_bytes().to_vec(),
        }),
        ..Script::default()
    }
}

/// An attack and its expected outcome.
struct Case {
    config: Value,
    class: MintErrorClass,
    code: &'static str,
    /// Part of the message.
    reason: &'static str,
    /// How many requests the endpoint saw.
    seen: usize,
}

fn case(config: Value, class: MintErrorClass, code: &'static str, reason: &'static str) -> Case {
    Case {
        config,
        class,
        code,
        reason,
        seen: 0,
    }
}

impl Case {
    fn seen(self, seen: usize) -> Self {
        Self { seen, ..self }
    }

    async fn check(self, fixture: &Fixture, script: Script) -> Outcome {
        let outcome = fixture.mint(&self.config, script).await;
        let config = &self.config;
        let error = outcome
            .minted
            .as_ref()
            .map(|_| "a credential")
            .expect_err(&config.to_string());
        let observed = (error.class, error.code.as_str(), outcome.seen.len());
        assert_eq!(observed, (self.class, self.code, self.seen), "{config}: {error}");
        assert!(error.message.contains(self.reason), "{config}: {error}");
        outcome
    }
}

/// Checks each case against an endpoint that responds to every request.
async fn check(fixture: &Fixture, cases: Vec<Case>) {
    for case in cases {
        case.check(fixture, always(&json!({"access_token": MINTED}))).await;
    }
    fixture.still_mints().await;
}

/// A case in which nothing is refused and the guest reports what it observed.
fn observed(config: Value, reason: &'static str) -> Case {
    case(config, MintErrorClass::Retryable, "hostile.observed", reason)
}
