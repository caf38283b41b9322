//! Runs the real guests in the real plugin host, with access to the hosts of a table and an
//! endpoint that answers by script.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use tollgate_config::EgressEntry;
use tollgate_credential::{Credential, MintError, MintReason, MintRequest};
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
/// Time limit of a case.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Loaded plugins with one allow-list.
pub(crate) struct PluginHost {
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

impl PluginHost {
    /// The plugin host with these hosts and audiences allowed, created once in each thread: its
    /// endpoint plays the script of one case at a time.
    pub(crate) fn of(hosts: &BTreeSet<String>, audiences: &BTreeSet<String>) -> Rc<Self> {
        type PluginHosts = BTreeMap<(BTreeSet<String>, BTreeSet<String>), Rc<PluginHost>>;
        thread_local! {
            static PLUGIN_HOSTS: RefCell<PluginHosts> = RefCell::default();
        }
        PLUGIN_HOSTS.with_borrow_mut(|plugin_hosts| {
            let plugin_host = plugin_hosts
                .entry((hosts.clone(), audiences.clone()))
                .or_insert_with(|| {
                    let world = RUNTIME.block_on(World::new());
                    let entries: Vec<EgressEntry> = hosts.iter().map(|host| world.entry(host)).collect();
                    Rc::new(Self::load(world, &GUESTS, &entries, audiences).expect("the guests load"))
                });
            Rc::clone(plugin_host)
        })
    }

    /// Loads the plugins `names` with these entries.
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

    /// Checks the configuration and mints, as loading and a first request do. Returns the script
    /// with the requests that the endpoint received.
    pub(crate) fn mint(
        &self,
        input: &MintInput,
        script: Script,
    ) -> (Result<Credential, MintError>, Vec<EgressRecord>, Script) {
        self.world.endpoint.play(script);
        let provider = self.set.provider(&input.plugin).expect("the plugin is loaded");
        let public = match input.plugin.as_str() {
            "webapi" => webapi_public_values(&input.config),
            _ => BTreeSet::new(),
        };
        let values = input
            .secret
            .iter()
            .map(|(name, value)| (name.clone(), value.clone().into()));
        let secret_values = SecretValues {
            values: values.collect(),
            public,
        };
        let source = provider.mint_for(input.cluster.clone(), &input.config, secret_values);
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
            .block_on(async { tokio::time::timeout(TIMEOUT, work).await })
            .expect("the mint ends in time");
        (minted, exchanges, self.world.endpoint.play(Script::default()))
    }
}

/// Inputs of a mint.
pub(crate) struct MintInput {
    pub(crate) plugin: String,
    pub(crate) config: Value,
    pub(crate) secret: BTreeMap<String, String>,
    pub(crate) cluster: ProviderCluster,
}

impl MintInput {
    /// Inputs for the plugin `webapi`.
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
