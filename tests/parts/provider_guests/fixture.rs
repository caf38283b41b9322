//! Mints credentials with a shipped guest for one cluster, against scripted responses of issuers,
//! and shows what the guest sent.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::SecretString;
use serde_json::{Value, json};
use tollgate_config::EgressEntry;
use tollgate_credential::{Credential, MintError, MintReason, MintRequest};
use tollgate_plugin::{PluginSet, ProviderCluster, ProviderMint, SecretValues};

use test_support::providers::{Reply, Script, Seen, World, guests};

/// The private key of RFC 7515, appendix A.2.
pub(crate) const RSA_KEY: &str = include_str!("../../data/rfc7515-a2.pem");
/// The time of the tests.
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

/// The loaded guests, and an endpoint that responds for all issuers.
pub(crate) struct Fixture {
    pub(crate) world: World,
    set: PluginSet,
    _guests: tempfile::TempDir,
}

impl Fixture {
    /// Loads every guest, with every host of the tests granted.
    pub(crate) async fn new() -> Self {
        // Tests share a cache of compiled guests: one compiles them, the others wait.
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

    /// The source of a cluster's credentials, from `provider`.
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

    /// Sets the responses to the next requests, in JSON.
    pub(crate) fn answers(&self, replies: impl IntoIterator<Item = (u16, Value)>) {
        let replies = replies.into_iter().map(|(status, body)| Reply::json(status, &body));
        self.replies(replies);
    }

    /// Sets the responses to the next requests.
    pub(crate) fn replies(&self, replies: impl IntoIterator<Item = Reply>) {
        self.world.endpoint.play(Script {
            replies: replies.into_iter().collect(),
            ..Script::default()
        });
    }

    /// Gives the pod tokens for `audience`, which are read one after the other.
    pub(crate) fn pod_tokens(&self, audience: &str, tokens: &[&str]) {
        *self.world.pod.given.lock().unwrap() = json!({"sa-token": {"audience": audience, "token": tokens}});
    }

    /// The requests since the last responses were set.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.world.endpoint.seen()
    }

    /// Sets the time.
    pub(crate) fn at(&self, now: &str) {
        self.world.clock.set(now.parse().unwrap());
    }
}

/// Mints a credential.
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

/// Decodes base64url without padding.
pub(crate) fn unbase64url(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}
