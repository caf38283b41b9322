//! One guest at work on one cluster.
//!
//! In: its configuration, values, what its issuers answer. Out: what it made and
//! what it sent.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::SecretString;
use serde_json::{Value, json};
use tollgate_config::EgressEntry;
use tollgate_plugin::credential::{Credential, MintError, MintReason, MintRequest};
use tollgate_plugin::{PluginSet, ProviderCluster, ProviderMint, SecretValues};

use test_support::providers::{Reply, Script, Seen, World, guests};

/// The private key of RFC 7515, appendix A.2.
pub(crate) const RSA_KEY: &str = include_str!("../../data/rfc7515-a2.pem");
/// When it is.
pub(crate) const NOW: &str = "2026-01-02T03:04:05Z";

const GUESTS: [&str; 7] = [
    "oauth2",
    "upbound",
    "aws-eks",
    "gcp-gke",
    "azure-aks",
    "kubernetes-token-request",
    "vault",
];
const HOSTS: [&str; 9] = [
    "as.example.com",
    "auth.upbound.io",
    "sts.us-west-2.amazonaws.com",
    "oauth2.googleapis.com",
    "sts.googleapis.com",
    "iamcredentials.googleapis.com",
    "login.microsoftonline.com",
    "hub.example.com",
    "vault.example.com",
];

/// The guests, loaded.
pub(crate) struct Stage {
    pub(crate) world: World,
    set: PluginSet,
    _guests: tempfile::TempDir,
}

impl Stage {
    /// Every guest, granted every host of the tests.
    pub(crate) async fn new() -> Self {
        // The worlds of one run share compiled guests: one makes them, the others wait.
        static LOADING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _loading = LOADING.lock().await;
        let world = World::new().await;
        let folder = guests(&GUESTS);
        let hosts: Vec<EgressEntry> = HOSTS.iter().map(|host| world.entry(host)).collect();
        let audiences = ["sts.amazonaws.com", "vault", "//iam.googleapis.com/p"].map(str::to_owned);
        let (set, findings) = world.load(folder.path(), &hosts, &audiences);
        assert_eq!(findings, Vec::<String>::new());
        Self {
            world,
            set,
            _guests: folder,
        }
    }

    /// A cluster of `provider`.
    pub(crate) fn cluster(&self, provider: &str, config: &Value, values: &[(&str, &str)]) -> ProviderMint {
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), SecretString::from(*value)));
        let secret_values = SecretValues {
            values: values.collect(),
            ..SecretValues::default()
        };
        let name = ProviderCluster {
            name: "prod".to_owned(),
            server: "https://prod.example.com".to_owned(),
        };
        self.set
            .provider(provider)
            .unwrap()
            .mint_for(name, config, secret_values)
    }

    /// Says what the next requests are answered.
    pub(crate) fn answers(&self, replies: impl IntoIterator<Item = (u16, Value)>) {
        let replies = replies.into_iter().map(|(status, body)| Reply::json(status, &body));
        self.replies(replies);
    }

    /// The same, in any form.
    pub(crate) fn replies(&self, replies: impl IntoIterator<Item = Reply>) {
        self.world.endpoint.play(Script {
            replies: replies.into_iter().collect(),
            ..Script::default()
        });
    }

    /// The pod has tokens for `audience`, read one after the other.
    pub(crate) fn pod_tokens(&self, audience: &str, tokens: &[&str]) {
        *self.world.pod.given.lock().unwrap() = json!({"sa-token": {"audience": audience, "token": tokens}});
    }

    /// What was sent since the last answers were given.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.world.endpoint.seen()
    }

    /// Lets time pass.
    pub(crate) fn at(&self, now: &str) {
        self.world.clock.set(now.parse().unwrap());
    }
}

/// Mints.
pub(crate) async fn mint(source: &ProviderMint, reason: MintReason) -> Result<Credential, MintError> {
    let request = MintRequest {
        reason,
        previous_expiry: None,
        budget: Duration::from_secs(10),
    };
    source.mint_traced(request).await.0
}

/// The token of a credential.
pub(crate) fn token(credential: &Credential) -> &str {
    credential.token.as_ref().unwrap().expose()
}

/// When a credential ends.
pub(crate) fn end(credential: &Credential) -> String {
    credential.expires_at.unwrap().to_string()
}

/// The values of `name` in a form.
pub(crate) fn form(seen: &Seen, name: &str) -> Vec<String> {
    let pairs = url::form_urlencoded::parse(&seen.body);
    let values = pairs
        .filter(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned());
    values.collect()
}

/// The field `name` of a request.
pub(crate) fn field<'a>(seen: &'a Seen, name: &str) -> Option<&'a str> {
    seen.headers.get(name).map(|value| value.to_str().unwrap())
}

/// base64url without padding, undone.
pub(crate) fn unbase64url(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}
