//! Runs plugins, which are sandboxed WASM components. [`PluginSet`] holds the plugins of one folder,
//! each with its manifest and the operator's grants; a call of a plugin returns edits or a refusal.
//!
//! A plugin's capabilities are the intersection of manifest and grant. Every call gets a fresh
//! instance in a fresh store, so a call that fails affects no other call.
//!
//! Invariant: no call outlives its budget.
//!
//! Security: the host checks everything that a guest returns before using it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::plugin::{Import, World};

mod ambient;
mod bindings;
mod budget;
mod call_state;
mod clock;
mod compilation_cache;
pub mod credential_source;
mod edits;
pub mod egress;
mod egress_scope;
mod engine;
mod error;
mod filter;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod generator;
mod granted_imports;
mod guest;
mod host_state;
mod imports;
mod inspect;
mod load;
mod manifest;
mod memo;
mod permissions;
mod plan;
mod plugin_log;
mod provider;
mod redact;
pub mod replay;
mod sandbox;
mod wasi;
mod yaml;

pub use ambient::{Ambient, AmbientError, AwsCredentials, BearerToken};
pub use call_state::{EgressRecord, ProviderEnvironment, SecretValues};
pub use clock::WallClock;
pub use compilation_cache::CodeOrigin;
pub use engine::Allocation;
pub use error::{CallError, Error, InvalidOutput, TrapCause};
pub use filter::{FilterContext, HeaderFilter};
pub use generator::Generator;
pub use guest::Guest;
pub use inspect::{EgressScopeSummary, Inspection, ManifestSummary, ProviderSummary, inspect};
pub use manifest::{ContextPart, Direction};
pub use plan::HeaderPlan;
pub use provider::{CredentialProvider, ProviderCluster, ProviderMint, webapi_public_values};

/// The wasmtime engine, the compilation cache and the settings of plugins.
#[derive(Debug)]
pub struct Runtime {
    host: Arc<engine::PluginEngine>,
    cache: Result<compilation_cache::CompilationCache, Diagnostic>,
    config: tollgate_config::Plugins,
    environment: ProviderEnvironment,
}

impl Runtime {
    /// Starts the engine. A compilation cache that cannot be used is not an error: each
    /// [`Self::load`] warns about it.
    ///
    /// # Errors
    /// [`Error`]: the engine or its clock does not start.
    pub fn new(config: &tollgate_config::Plugins) -> Result<Self, Error> {
        let environment = ProviderEnvironment::of_pod(&config.ambient);
        Self::with_environment(config, Allocation::Pool, environment)
    }

    /// Like [`Self::new`], with a choice of allocation and of what surrounds credential providers.
    /// For tests and replays. [`Allocation::OnDemand`] never tries a pool. [`Allocation::Pool`]
    /// does without one where address space is limited.
    ///
    /// # Errors
    /// [`Error`]: the engine or its clock does not start.
    pub fn with_environment(
        config: &tollgate_config::Plugins,
        wanted: Allocation,
        environment: ProviderEnvironment,
    ) -> Result<Self, Error> {
        let host = engine::PluginEngine::start(wanted)?;
        let folder = config.cache.clone().unwrap_or_else(default_cache);
        let cache = compilation_cache::CompilationCache::open(&folder).map_err(|error| {
            let location = Location::new(folder.display().to_string(), 0);
            Diagnostic::warning(location, format!("compiled plugins are not kept: {error}"))
                .with_hint("name a private folder in `plugins.cache`")
        });
        Ok(Self {
            host,
            cache,
            config: config.clone(),
            environment,
        })
    }

    /// Loads the folder. Plugins whose files did not change are taken over from `previous`, a
    /// plugin that cannot be loaded keeps its previous version, and a plugin whose component was
    /// deleted is removed. Calls in flight on a replaced plugin finish on the version they started
    /// with.
    ///
    /// Blocks: it compiles, and runs each new guest's `plan`. In async code,
    /// call it on a blocking thread.
    pub fn load(&self, previous: Option<&PluginSet>) -> (PluginSet, Vec<Diagnostic>) {
        self.load_some(None, previous)
    }

    /// Like [`Self::load`], for the plugin `only`, or for all.
    pub(crate) fn load_some(&self, only: Option<&str>, previous: Option<&PluginSet>) -> (PluginSet, Vec<Diagnostic>) {
        // Another engine's guests cannot be taken over.
        let before = previous
            .filter(|set| Arc::ptr_eq(&set.host, &self.host))
            .map(|set| &set.entries);
        let nothing = BTreeMap::new();
        let before = before.unwrap_or(&nothing);
        let loaded = block_on_new_thread(|| self.load_entries(only, before));
        let (entries, mut diagnostics) = loaded.unwrap_or_else(|error| {
            let finding = Diagnostic::error(None, format!("plugins cannot be loaded: {error}"));
            (before.clone(), vec![finding])
        });
        // Without plugins, nobody misses the cache.
        if let (Err(finding), Some(_)) = (&self.cache, &self.config.directory) {
            diagnostics.push(finding.clone());
        }
        let missing = self.config.required.iter().filter(|name| !entries.contains_key(*name));
        let missing: Vec<String> = missing.cloned().collect();
        for name in &missing {
            let message = format!("the required plugin `{name}` is not loaded");
            diagnostics.push(Diagnostic::error(None, message).with_hint("nothing passes until it is"));
        }
        let set = PluginSet {
            host: self.host.clone(),
            entries,
            missing,
        };
        (set, diagnostics)
    }

    /// How instances get their memory.
    pub fn allocation(&self) -> Allocation {
        self.host.allocation
    }
}

/// The folder for compiled guests if the settings name none. Its name contains the user, so that
/// the gateways of two users do not share it.
fn default_cache() -> PathBuf {
    use std::os::unix::fs::MetadataExt as _;

    let user = std::fs::metadata("/proc/self").map(|own| own.uid());
    match user {
        Ok(0) => PathBuf::from("/var/cache/tollgate/plugins"),
        Ok(user) => std::env::temp_dir().join(format!("tollgate-plugins-{user}")),
        Err(_) => std::env::temp_dir().join("tollgate-plugins"),
    }
}

/// Runs async work to completion on its own thread, so it can be called inside or outside an async
/// runtime.
pub fn block_on_new_thread<F: Future<Output: Send>>(work: impl FnOnce() -> F + Send) -> std::io::Result<F::Output> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(runtime.block_on(work()))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("plugin-load".to_owned())
            .spawn_scoped(scope, run)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the loader panicked")))
    })
}

/// All loaded plugins. Cheap to keep, because guest instances exist only during calls.
#[derive(Debug)]
pub struct PluginSet {
    host: Arc<engine::PluginEngine>,
    entries: BTreeMap<String, load::LoadedPlugin>,
    missing: Vec<String>,
}

/// One loaded plugin as operators see it, an item of [`PluginSet::list`].
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginSummary {
    /// Plugin name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What kind it is.
    pub world: World,
    /// Digest of the component, lower-case hex.
    pub sha256: String,
    /// Directions in which it is called for each message.
    pub filters: Vec<Direction>,
    /// Host interfaces it may use.
    pub imports: Vec<Import>,
    /// Extensions it is applied to; empty for all.
    pub extensions: Vec<String>,
    /// What a credential provider asks for. `None` for other plugins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderSummary>,
    /// Whether its code was compiled for this load or came from the cache.
    pub origin: CodeOrigin,
}

impl PluginSet {
    /// The header filters of `extension`, in the order of their names, which is
    /// the order they are applied in.
    pub fn header_filters(&self, extension: &str) -> impl Iterator<Item = &Arc<HeaderFilter>> {
        self.entries
            .values()
            .filter_map(|entry| entry.plugin.header_filter())
            .filter(move |filter| filter.applies_to(extension))
    }

    /// The header filter of that name.
    pub fn header_filter(&self, name: &str) -> Option<&Arc<HeaderFilter>> {
        self.entries.get(name)?.plugin.header_filter()
    }

    /// The credential provider of that name.
    pub fn provider(&self, name: &str) -> Option<&Arc<CredentialProvider>> {
        match &self.entries.get(name)?.plugin {
            load::Plugin::CredentialProvider(provider) => Some(provider),
            load::Plugin::HeaderFilter(_) | load::Plugin::Generator(_) => None,
        }
    }

    /// The plugin that provides generators of `kind`. If there are several, the first by name.
    pub fn generator(&self, kind: tollgate_objects::GeneratorKind) -> Option<&Arc<Generator>> {
        self.entries.values().find_map(|entry| match &entry.plugin {
            load::Plugin::Generator(generator) if generator.kinds().contains(&kind) => Some(generator),
            load::Plugin::Generator(_) | load::Plugin::HeaderFilter(_) | load::Plugin::CredentialProvider(_) => None,
        })
    }

    /// Every plugin, by name.
    pub fn list(&self) -> impl Iterator<Item = PluginSummary> {
        self.entries.values().map(|entry| {
            let manifest = entry.plugin.manifest();
            PluginSummary {
                name: manifest.name.clone(),
                version: manifest.version.to_string(),
                world: manifest.world,
                sha256: manifest.sha256.clone(),
                filters: manifest.filters.iter().copied().collect(),
                imports: manifest.imports.iter().copied().collect(),
                extensions: entry
                    .plugin
                    .header_filter()
                    .map_or_else(Vec::new, |filter| filter.extensions().to_vec()),
                provider: ProviderSummary::new(manifest),
                origin: entry.plugin.origin(),
            }
        })
    }

    /// Required plugins that are not loaded. While there is one, every request is denied.
    pub fn missing_required(&self) -> &[String] {
        &self.missing
    }
}
