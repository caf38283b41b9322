//! A guest that tries every way out. Each attack: its class, its code, words of
//! its reason, and what the endpoint saw of it; beside it what is allowed.
//!
//! After each one: no value of the cluster's Secret in the error, the transcript
//! or at a host it may not go to; and a decent mint works as before.

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
use tollgate_plugin::credential::{Credential, MintError, MintErrorClass, MintReason, MintRequest};
use tollgate_plugin::{CredentialProvider, EgressRecord, PluginSet, ProviderCluster, ProviderMint, SecretValues};

use test_support::providers::{Reply, Script, Seen, World, guests};

/// Of the cluster's Secret; none of these may be seen by a guest.
const BOUND: &str = "bound/secret+of&the=issuer";
const SHARED: &str = "shared-secret-of-the-issuer";
const ENDPOINT: &str = "secret-of-the-endpoint";
const DIGITS: &str = "867530912";
const PRIVATE: &str = "private-part-of-the-document";
const KEY: &str = include_str!("../../data/rfc7515-a2.pem");
/// What the issuer hands out.
const MINTED: &str = "minted-token-0123456789";

/// The guest, loaded in a world of its own.
struct Stage {
    world: World,
    provider: Arc<CredentialProvider>,
    _set: PluginSet,
    _guests: tempfile::TempDir,
}

/// What one attempt came to.
struct Outcome {
    minted: Result<Credential, MintError>,
    exchanges: Vec<EgressRecord>,
    seen: Vec<Seen>,
    connected: Vec<IpAddr>,
}

impl Stage {
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
        // Worlds that start at once share the cache of compiled guests, and one
        // of them may have to do without.
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

    /// A mint for the cluster `c`.
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
        let (minted, exchanges) = minted.expect("a mint ends");
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

    /// What a decent mint gives, on the same runtime.
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
    /// Whatever was tried: nothing secret where people read, or at a wrong host.
    fn hides_secrets(&self) {
        let error = self.minted.as_ref().err().map(|error| format!("{error:?}"));
        let told = format!("{error:?} {}", serde_json::to_string(&self.exchanges).unwrap());
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
                assert!(!told.contains(&form), "`{form}` in {told}");
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

/// A value as it may be written.
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

/// An endpoint that answers 200 with this, as often as it is asked.
fn always(body: &Value) -> Script {
    Script {
        forever: Some(Reply::json(200, body)),
        ..Script::default()
    }
}

/// One that answers this.
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

/// What an attack comes to.
struct Case {
    config: Value,
    class: MintErrorClass,
    code: &'static str,
    /// Part of the message.
    reason: &'static str,
    /// Requests the endpoint saw.
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

    async fn check(self, stage: &Stage, script: Script) -> Outcome {
        let outcome = stage.mint(&self.config, script).await;
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

/// Each of them with an endpoint that always answers.
async fn check(stage: &Stage, cases: Vec<Case>) {
    for case in cases {
        case.check(stage, always(&json!({"access_token": MINTED}))).await;
    }
    stage.still_mints().await;
}

/// An observation of the guest's, with nothing refused.
fn observed(config: Value, reason: &'static str) -> Case {
    case(config, MintErrorClass::Retryable, "hostile.observed", reason)
}
