//! The real guests in the real host, for the cases about providers.
//!
//! In: the hosts a table talks to. Out: plugins that may talk to those, and an
//! endpoint that answers by script.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use serde_json::Value;
use tollgate_config::EgressEntry;
use tollgate_plugin::credential::{Credential, MintError, MintReason, MintRequest};
use tollgate_plugin::{EgressRecord, PluginSet, ProviderCluster, SecretValues, webapi_public_values};

use test_support::providers::{Script, World, guests};

/// Every provider of the repository.
const GUESTS: [&str; 9] = [
    "webapi",
    "oauth2",
    "upbound",
    "aws-eks",
    "gcp-gke",
    "azure-aks",
    "kubernetes-token-request",
    "vault",
    "exec-credential",
];
/// A case that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Plugins with one allow-list.
pub(crate) struct Stage {
    pub(crate) world: World,
    set: PluginSet,
    _guests: tempfile::TempDir,
}

/// A runtime for all cases.
pub(crate) static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
});

impl Stage {
    /// The stage of these hosts and audiences; made once.
    pub(crate) fn of(hosts: &BTreeSet<String>, audiences: &BTreeSet<String>) -> Arc<Self> {
        type Stages = BTreeMap<(BTreeSet<String>, BTreeSet<String>), Arc<Stage>>;
        static STAGES: LazyLock<Mutex<Stages>> = LazyLock::new(Mutex::default);
        let mut stages = STAGES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let stage = stages.entry((hosts.clone(), audiences.clone())).or_insert_with(|| {
            let world = RUNTIME.block_on(World::new());
            let entries: Vec<EgressEntry> = hosts.iter().map(|host| world.entry(host)).collect();
            Arc::new(Self::load(world, &GUESTS, &entries, audiences).expect("the guests load"))
        });
        Arc::clone(stage)
    }

    /// One with these entries.
    pub(crate) fn load(
        world: World,
        names: &[&str],
        entries: &[EgressEntry],
        audiences: &BTreeSet<String>,
    ) -> Result<Self, String> {
        let folder = guests(names);
        let audiences: Vec<String> = audiences.iter().cloned().collect();
        let (set, findings) = world.load(folder.path(), entries, &audiences);
        let errors: Vec<&String> = findings.iter().filter(|finding| finding.contains("error")).collect();
        if errors.is_empty() {
            Ok(Self {
                world,
                set,
                _guests: folder,
            })
        } else {
            Err(format!("{errors:#?}"))
        }
    }

    /// Checks and mints, as a load and a first request do. Gives the script back
    /// with what was seen.
    pub(crate) fn mint(
        &self,
        asked: &Asked,
        script: Script,
    ) -> (Result<Credential, MintError>, Vec<EgressRecord>, Script) {
        self.world.endpoint.play(script);
        let provider = self.set.provider(&asked.plugin).expect("the plugin is loaded");
        let public = match asked.plugin.as_str() {
            "webapi" => webapi_public_values(&asked.config),
            _ => BTreeSet::new(),
        };
        let values = asked
            .secret
            .iter()
            .map(|(name, value)| (name.clone(), value.clone().into()));
        let secret_values = SecretValues {
            values: values.collect(),
            public,
        };
        let source = provider.mint_for(asked.cluster.clone(), &asked.config, secret_values);
        let request = MintRequest {
            reason: MintReason::Initial,
            previous_expiry: None,
            budget: Duration::from_secs(10),
        };
        let work = async {
            if let Err(error) = source.check().await {
                return (Err(error), Vec::new());
            }
            source.mint_traced(request).await
        };
        let (minted, exchanges) = RUNTIME
            .block_on(async { tokio::time::timeout(PATIENCE, work).await })
            .expect("a mint ends");
        (minted, exchanges, self.world.endpoint.play(Script::default()))
    }
}

/// What a case asks for.
pub(crate) struct Asked {
    pub(crate) plugin: String,
    pub(crate) config: Value,
    pub(crate) secret: BTreeMap<String, String>,
    pub(crate) cluster: ProviderCluster,
}

impl Asked {
    /// The plugin `webapi`.
    pub(crate) fn webapi(config: Value, secret: BTreeMap<String, String>) -> Self {
        Self {
            plugin: "webapi".to_owned(),
            config,
            secret,
            cluster: ProviderCluster {
                name: "c1".to_owned(),
                server: "https://cluster.example:6443".to_owned(),
            },
        }
    }
}
