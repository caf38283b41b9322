//! Discovery documents of clusters, valid and invalid.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use serde_json::json;
use tokio::runtime::Handle;

use super::super::{CLUSTER_WEIGHT, Discovery, LIMITS, Limits};
use super::fake_cluster::{AGGREGATED_APPS, AGGREGATED_CORE, Answer, FakeCluster};
use super::{find, unavailable, unknown};
use tollgate_credential::cache::clock::SystemClock;
use tollgate_credential::cache::key::{CredentialKey, KeyInputs, Tenancy};
use tollgate_credential::cache::{CredentialCache, Settings};
use tollgate_credential::{Credential, Mint, MintError, MintRequest, Token};
use tollgate_identity::clock::Clock;
use tollgate_plugin::credential_source::{CredentialSource, MintedCredential};

const GROUPS: &str = r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[
  {"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}},
  {"name":"batch","versions":[{"groupVersion":"batch/v1","version":"v1"}]}]}"#;
const CORE: &str = r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#;
const APPS_V1: &str = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[
  {"name":"deployments/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get"]},
  {"name":"deployments","singularName":"deployment","namespaced":true,"kind":"Deployment","verbs":["get"]},
  {"name":"kindless","singularName":"","namespaced":true,"kind":"","verbs":[]}]}"#;
const CORE_V1: &str = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[
  {"name":"namespaces","singularName":"namespace","namespaced":false,"kind":"Namespace","verbs":["get"]},
  {"name":"pods/exec","singularName":"","namespaced":true,"kind":"PodExecOptions","verbs":["get"]}]}"#;

#[tokio::test]
async fn aggregated_discovery_lists_every_kind() {
    let fake = FakeCluster::start(&[("/api", AGGREGATED_CORE), ("/apis", AGGREGATED_APPS)]).await;
    let (discovery, access) = (Discovery::new(Clock::default()), fake.access());
    for (gvr, expected) in [
        ("v1/pods", "/Pod"),
        ("v1/namespaces", "/Namespace*"),
        ("apps/v1/deployments", "apps/Deployment"),
        ("example.com/v2/things", "example.com/Thing*"),
        ("example.com/v1/things", "example.com/OldThing"),
    ] {
        assert_eq!(find(&discovery, &access, gvr).await, expected);
    }
    assert_eq!(fake.take_requests(), ["GET /api+", "GET /apis+"]);
    for (gvr, shown) in [
        ("apps/v2/deployments", "deployments.apps/v2"),
        ("apps/v1/Deployments", "Deployments.apps/v1"),
        ("apps/v1/scale", "scale.apps/v1"),
        ("apps/v1/deployments/scale", "scale.apps/v1/deployments"),
        ("example.com/v1/parents", "parents.example.com/v1"),
        ("example.com/v1/kindless", "kindless.example.com/v1"),
        ("example.com/v1/placeless", "placeless.example.com/v1"),
        ("example.com/v1/odd", "odd.example.com/v1"),
        ("other.io/v1/things", "things.other.io/v1"),
        ("v1/nothing", "nothing/v1"),
    ] {
        assert_eq!(find(&discovery, &access, gvr).await, unknown(shown));
    }
    // The documents were fetched a moment ago.
    assert_eq!(fake.take_requests(), [""; 0]);
}

#[tokio::test]
async fn without_aggregated_discovery_only_needed_documents_are_fetched() {
    let fake = FakeCluster::start(&[
        ("/api", CORE),
        ("/api/v1", CORE_V1),
        ("/apis", GROUPS),
        ("/apis/apps/v1", APPS_V1),
    ])
    .await;
    let (discovery, access) = (Discovery::new(Clock::default()), fake.access());
    assert_eq!(
        find(&discovery, &access, "apps/v1/deployments").await,
        "apps/Deployment"
    );
    assert_eq!(fake.take_requests(), ["GET /apis+", "GET /apis/apps/v1"]);
    assert_eq!(find(&discovery, &access, "v1/namespaces").await, "/Namespace*");
    assert_eq!(fake.take_requests(), ["GET /api+", "GET /api/v1"]);
    for (gvr, expected) in [
        ("apps/v1/scale", unknown("scale.apps/v1")),
        ("apps/v1/kindless", unknown("kindless.apps/v1")),
        ("v1/pods", unknown("pods/v1")),
        ("apps/v2/deployments", unknown("deployments.apps/v2")),
        ("made.up/v1/things", unknown("things.made.up/v1")),
    ] {
        assert_eq!(find(&discovery, &access, gvr).await, expected);
    }
    assert_eq!(fake.take_requests(), [""; 0]);
    // The list names the version, but the cluster does not serve it.
    assert_eq!(
        find(&discovery, &access, "batch/v1/jobs").await,
        unavailable("it answered 404 Not Found")
    );
}

#[tokio::test]
async fn invalid_responses_are_errors() {
    for (answer, why) in [
        (
            Answer::Content(500, String::new()),
            "it answered 500 Internal Server Error",
        ),
        (
            Answer::Content(403, AGGREGATED_APPS.to_owned()),
            "it answered 403 Forbidden",
        ),
        (
            Answer::Content(302, AGGREGATED_APPS.to_owned()),
            "it answered 302 Found",
        ),
        (
            Answer::Content(401, AGGREGATED_APPS.to_owned()),
            "it answered 401 Unauthorized",
        ),
        (
            Answer::Content(200, String::new()),
            "its answer is not a list of resources",
        ),
        (
            Answer::Content(200, "<html>".to_owned()),
            "its answer is not a list of resources",
        ),
        (
            Answer::Content(200, "{\"kind\":\"Status\"}".to_owned()),
            "its answer is not a list of resources",
        ),
        (
            Answer::Content(200, CORE.to_owned()),
            "its answer is not a list of resources",
        ),
        (
            Answer::Content(
                200,
                format!("{{\"kind\":\"APIGroupDiscoveryList\",\"items\":{}", "[".repeat(9000)),
            ),
            "its answer is not a list of resources",
        ),
    ] {
        let fake = FakeCluster::start(&[]).await;
        fake.set_answer("/apis", answer);
        let found = find(&Discovery::new(Clock::default()), &fake.access(), "apps/v1/deployments").await;
        assert_eq!(found, unavailable(why));
    }
}

#[tokio::test]
async fn the_cache_of_all_clusters_is_bounded_by_its_kinds() {
    let answers = [("/api", AGGREGATED_CORE), ("/apis", AGGREGATED_APPS)];
    let (one, other) = (FakeCluster::start(&answers).await, FakeCluster::start(&answers).await);
    let gvr = "apps/v1/deployments";
    let cached = |discovery: &Discovery| {
        discovery.clusters.run_pending_tasks();
        (discovery.clusters.entry_count(), discovery.clusters.weighted_size())
    };
    let discovery = Discovery::new(Clock::default());
    find(&discovery, &one.access(), gvr).await;
    let (_, weight) = cached(&discovery);
    assert!(weight > u64::from(CLUSTER_WEIGHT), "{weight}");
    find(&discovery, &other.access(), gvr).await;
    assert_eq!(cached(&discovery), (2, 2 * weight));
    // With one kind less, only the cluster that was looked up last stays.
    let limits = Limits {
        max_kinds: 2 * weight - 1,
        ..LIMITS
    };
    let narrow = Discovery::with(Clock::default(), limits);
    for fake in [&one, &other] {
        assert_eq!(find(&narrow, &fake.access(), gvr).await, "apps/Deployment");
    }
    assert_eq!(cached(&narrow), (1, weight));
    assert!(narrow.clusters.contains_key(&other.access().connection));
}

#[tokio::test]
async fn responses_are_bounded() {
    let fake = FakeCluster::start(&[("/api", AGGREGATED_CORE), ("/apis", AGGREGATED_APPS)]).await;
    fake.set_answer("/apis/silent", Answer::Silence);
    let with = |limits| Discovery::with(Clock::default(), limits);
    let gvr = "apps/v1/deployments";
    let bytes = AGGREGATED_APPS.len();
    for (limits, expected) in [
        (
            Limits {
                bytes,
                kinds: 7,
                ..LIMITS
            },
            "apps/Deployment".to_owned(),
        ),
        (
            Limits {
                bytes: bytes - 1,
                ..LIMITS
            },
            unavailable(&format!("it answered more than {} bytes", bytes - 1)),
        ),
        (
            Limits { kinds: 6, ..LIMITS },
            unavailable("it serves 7 resources, at most 6 are remembered"),
        ),
    ] {
        assert_eq!(find(&with(limits), &fake.access(), gvr).await, expected);
    }
    fake.set_answer("/apis", Answer::Silence);
    let limits = Limits {
        timeout: Duration::from_millis(20),
        ..LIMITS
    };
    let found = find(&with(limits), &fake.access(), gvr).await;
    assert_eq!(found, unavailable("it did not answer within 0 s"));
}

#[tokio::test]
async fn an_unreachable_cluster_or_missing_credential_is_an_error() {
    let fake = FakeCluster::start(&[]).await;
    let access = crate::access::ClusterAccess::at(
        "http://127.0.0.1:1",
        match fake.access().credential_source() {
            CredentialSource::Static(lease) => CredentialSource::Static(lease.clone()),
            CredentialSource::Minted(_) | CredentialSource::Unusable(_) => panic!("another credential source"),
        },
    );
    let found = find(&Discovery::new(Clock::default()), &access, "v1/pods").await;
    assert!(found.starts_with(&unavailable("it cannot be reached: ")), "{found}");
    let error = MintError::new(tollgate_credential::MintErrorClass::Denied, "a", "b");
    let access = fake.access_with(CredentialSource::Unusable(error));
    let found = find(&Discovery::new(Clock::default()), &access, "v1/pods").await;
    assert!(
        found.starts_with(&unavailable("no credential is available for it: ")),
        "{found}"
    );
}

#[derive(Default)]
struct CountingMint(AtomicU64);

impl Mint for CountingMint {
    fn mint(&self, _: MintRequest) -> BoxFuture<'static, Result<Credential, MintError>> {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        let token = Token::parse(format!("token-{number}")).unwrap();
        async { Ok(Credential::from_token(token)) }.boxed()
    }

    fn revoke(&self, _: SecretString) -> BoxFuture<'static, Result<(), MintError>> {
        async { Ok(()) }.boxed()
    }
}

#[tokio::test]
async fn a_rejected_credential_is_replaced_once() {
    let cache = CredentialCache::new(Settings::default(), Arc::new(SystemClock::start()), Handle::current());
    for (accepted, expected) in [
        ("Bearer token-2", "apps/Deployment".to_owned()),
        ("Bearer token-9", unavailable("it answered 401 Unauthorized")),
    ] {
        let fake = FakeCluster::accepting(Some(accepted), &[("/apis", AGGREGATED_APPS)]).await;
        let key = CredentialKey::from_inputs(&KeyInputs {
            abi: "test",
            plugin: accepted,
            config: &json!({}),
            secrets: &[],
            tenancy: Tenancy::Cluster(&fake.server),
            policy: "",
        });
        let access = fake.access_with(CredentialSource::Minted(MintedCredential {
            slot: cache.slot(key, Arc::new(CountingMint::default())),
            mint: None,
            warnings: Vec::new(),
        }));
        let found = find(&Discovery::new(Clock::default()), &access, "apps/v1/deployments").await;
        assert_eq!(found, expected);
        assert_eq!(fake.take_requests(), ["GET /apis+", "GET /apis+"]);
    }
}
