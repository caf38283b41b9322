//! Costs of credentials: a cluster's cached credential, one mint of `aws-eks` (ten host calls, no
//! network), a cold start of 500 clusters, and the assertion that an extension gets with each
//! request.
//!
//! Needs the built guests: `cargo xtask plugins`. No issuer's response time is included, because
//! `aws-eks` signs its tokens itself.

#![expect(clippy::expect_used, reason = "a bench that cannot run panics")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tollgate_config::EgressEntry;
use tollgate_config::{PluginGrant, Plugins};
use tollgate_credential::cache::clock::SystemClock;
use tollgate_credential::cache::key::{CredentialKey, KeyInputs, SecretVersion, Tenancy};
use tollgate_credential::cache::{CredentialCache, Settings};
use tollgate_credential::{Mint as _, MintReason, MintRequest};
use tollgate_objects::extensions::AssertionSpec;
use tollgate_plugin::{PluginSet, ProviderCluster, ProviderMint, SecretValues};
use tollgate_proxy::assertion::{AssertionClaims, Signer};

/// Number of clusters in the cold start.
const CLUSTERS: usize = 500;

fn guests() -> PathBuf {
    let folder = std::env::var_os("TOLLGATE_GUESTS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/guests"),
        PathBuf::from,
    );
    assert!(
        folder.join("aws-eks.wasm").exists(),
        "no guests in {}: run `cargo xtask plugins`",
        folder.display()
    );
    folder
}

/// Loads only the plugin `aws-eks`, with the grants it needs.
fn load(root: &Path) -> PluginSet {
    let directory = root.join("plugins");
    std::fs::create_dir(&directory).expect("a folder");
    for file in ["aws-eks.wasm", "aws-eks.yaml"] {
        std::fs::copy(guests().join(file), directory.join(file)).expect("a guest");
    }
    let grant = PluginGrant {
        imports: ["clock", "crypto", "ambient", "memo"].map(str::to_owned).to_vec(),
        hosts: vec![EgressEntry {
            host: "sts.us-west-2.amazonaws.com".to_owned(),
            ..EgressEntry::default()
        }],
        ..PluginGrant::default()
    };
    let settings = Plugins {
        directory: Some(directory),
        cache: Some(root.join("cache")),
        grants: BTreeMap::from([("aws-eks".to_owned(), grant)]),
        ..Plugins::default()
    };
    let (set, findings) = tollgate_plugin::Runtime::new(&settings).expect("an engine").load(None);
    assert!(set.provider("aws-eks").is_some(), "{findings:?}");
    set
}

fn config(cluster: &str) -> Value {
    json!({"region": "us-west-2", "clusterName": cluster})
}

fn source(set: &PluginSet, cluster: &str) -> ProviderMint {
    let values = [
        ("accessKeyId", "AKIDEXAMPLE"),
        ("secretAccessKey", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
    ];
    let values = values.map(|(name, value)| (name.to_owned(), value.to_owned().into()));
    let secret_values = SecretValues {
        values: values.into_iter().collect(),
        ..SecretValues::default()
    };
    let name = ProviderCluster {
        name: cluster.to_owned(),
        server: format!("https://{cluster}.example:6443"),
    };
    let provider = set.provider("aws-eks").expect("loaded");
    provider.mint_for(name, &config(cluster), secret_values)
}

fn key(cluster: &str) -> CredentialKey {
    CredentialKey::from_inputs(&KeyInputs {
        abi: "tollgate:plugin@0.1.0",
        plugin: "aws-eks",
        config: &config(cluster),
        secrets: &[SecretVersion::Bytes {
            name: "secretAccessKey",
            bytes: b"wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        }],
        tenancy: Tenancy::Cluster(cluster),
        policy: "",
    })
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn credential(criterion: &mut Criterion) {
    let root = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(root.path().join("cache")).expect("a folder");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(root.path().join("cache"), private).expect("its mode");
    let set = load(root.path());
    let runtime = Runtime::new().expect("a runtime");
    let clock = Arc::new(SystemClock::start());
    let mut group = criterion.benchmark_group("credential");

    let cache = CredentialCache::new(Settings::default(), clock.clone(), runtime.handle().clone());
    let slot = cache.slot(key("one"), Arc::new(source(&set, "one")));
    runtime.block_on(slot.get(later())).expect("a credential");
    group.bench_function("cached", |bencher| {
        bencher.iter(|| black_box(slot.cached()).is_some());
    });

    let one = source(&set, "one");
    let request = MintRequest {
        reason: MintReason::Initial,
        previous_expiry: None,
        budget: Duration::from_secs(10),
    };
    group.bench_function("aws-eks mint", |bencher| {
        bencher
            .to_async(&runtime)
            .iter(async || one.mint(request).await.expect("a credential"));
    });

    group.sample_size(10);
    let sources: Vec<(String, Arc<ProviderMint>)> = (0..CLUSTERS)
        .map(|at| format!("cluster-{at}"))
        .map(|name| (name.clone(), Arc::new(source(&set, &name))))
        .collect();
    group.bench_function(format!("{CLUSTERS} clusters, cold"), |bencher| {
        bencher.to_async(&runtime).iter_custom(async |rounds| {
            let mut taken = Duration::ZERO;
            for _ in 0..rounds {
                let handle = tokio::runtime::Handle::current();
                let cache = CredentialCache::new(Settings::default(), clock.clone(), handle);
                let slots: Vec<_> = sources
                    .iter()
                    .map(|(name, source)| cache.slot(key(name), Arc::clone(source) as _))
                    .collect();
                let started = Instant::now();
                let waiting = slots.iter().map(|slot| slot.get(later()));
                let minted = futures_util::future::join_all(waiting).await;
                taken += started.elapsed();
                assert!(minted.iter().all(Result::is_ok), "a cluster has no credential");
                cache.shutdown().await;
            }
            taken
        });
    });
    group.finish();
}

fn assertion(criterion: &mut Criterion) {
    let signer = Signer::generate("https://gateway.example".to_owned()).expect("a key");
    let spec = AssertionSpec {
        audience: "metrics".to_owned(),
        lifetime: Duration::from_secs(60),
    };
    let groups = ["dev", "ops", "on-call", "everyone"].map(str::to_owned);
    let claims = AssertionClaims {
        subject: "7f3a",
        username: "ada",
        groups: &groups,
        application: Some(("argocd", "shop")),
        project: Some("shop"),
        caller_expires_at: None,
    };
    criterion.bench_function("assertion/ES256", |bencher| {
        bencher.iter(|| signer.sign(&spec, black_box(&claims)).expect("an assertion"));
    });
}

criterion_group!(benches, credential, assertion);
criterion_main!(benches);
