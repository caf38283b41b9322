//! One plugin's code, checked against its manifest, and the sandbox that runs it.
//!
//! Invariant: nothing is kept between two calls, and no call holds a worker thread longer than a
//! tick.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Instance, InstancePre, Linker};
use wasmtime::{PoolConcurrencyLimitError, Store, Trap};

use super::bindings::provider::tollgate::plugin::provider_types as wit;
use super::budget::{Budget, ExceededLimit};
use super::call_state::CallState;
use super::engine::PluginEngine;
use super::error::{CallError, TrapCause};
use super::granted_imports::GrantedImports;
use super::host_state::{self, HostState};
use super::imports;
use super::manifest::Manifest;
use super::plugin_log::PluginLog;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::plugin::{Import, World};
use tollgate_credential::MintError;

pub(super) struct Sandbox {
    host: Arc<PluginEngine>,
    instance: InstancePre<HostState>,
    pub(super) budget: Budget,
    granted: GrantedImports,
    log: Arc<PluginLog>,
    /// Slots of this plugin. The engine's slots are shared by all plugins.
    plugin_slots: Semaphore,
}

impl Sandbox {
    /// Links the granted imports. Every difference between component and manifest is a finding.
    pub(super) fn new(
        host: &Arc<PluginEngine>,
        component: &Component,
        manifest: &Manifest,
        granted: GrantedImports,
        budget: Budget,
    ) -> Result<Self, Vec<Diagnostic>> {
        let wasi = check_interfaces(host, component, manifest, granted)?;
        let location = &manifest.locations.world;
        let refuse = |error| vec![Diagnostic::error(location.clone(), misfit(&error))];
        let mut linker = Linker::new(&host.engine);
        imports::link(&mut linker, manifest.world, granted).map_err(refuse)?;
        if wasi {
            wasmtime_wasi::p2::add_to_linker_async(&mut linker).map_err(refuse)?;
        }
        let instance = linker.instantiate_pre(component).map_err(refuse)?;
        Ok(Self {
            host: host.clone(),
            instance,
            budget,
            granted,
            log: PluginLog::new(&manifest.name),
            plugin_slots: Semaphore::new(host.plugin_slots),
        })
    }

    /// Looks up the exports of the component's world.
    pub(super) fn exports<G>(
        &self,
        find: impl FnOnce(&InstancePre<HostState>) -> wasmtime::Result<G>,
    ) -> Result<G, String> {
        find(&self.instance).map_err(|error| misfit(&error))
    }

    /// Runs one export in a fresh instance. Returns what the guest returned and the host's state of
    /// the call.
    pub(super) async fn call<T>(
        &self,
        budget: Budget,
        call: Option<Box<CallState>>,
        export: impl AsyncFnOnce(&mut Store<HostState>, Instance) -> wasmtime::Result<T>,
    ) -> Result<(T, HostState), CallError> {
        let work = async {
            // Dropped at the end of the call, even after a trap.
            let mut store = host_state::store(&self.host.engine, budget, self.granted, &self.log, call);
            let answer = match self.instance.instantiate_async(&mut store).await {
                Ok(instance) => export(&mut store, instance).await,
                Err(error) => Err(error),
            };
            let answer = answer.map_err(|error| self.classify(&error, store.data(), budget))?;
            Ok((answer, store.into_data()))
        };
        self.run_with_limits(budget, work).await
    }

    /// Like [`Self::call`], for providers and generators, whose errors have the same form.
    pub(super) async fn call_provider<T>(
        &self,
        budget: Budget,
        call: Box<CallState>,
        export: impl AsyncFnOnce(&mut Store<HostState>, Instance) -> wasmtime::Result<Result<T, wit::MintError>>,
    ) -> Result<(T, Box<CallState>), MintError> {
        let called = self.call(budget, Some(call), export).await;
        let (answer, state) = called.map_err(|error| MintError::from(&error))?;
        let call = state.provider.ok_or_else(|| {
            let (plugin, cause) = (self.log.plugin.clone(), TrapCause::Guest);
            MintError::from(&CallError::Trap { plugin, cause })
        })?;
        match answer {
            Ok(answer) => Ok((answer, call)),
            Err(error) => Err(call.mint_error(error)),
        }
    }

    /// Runs `work` when a slot is free, for no longer than the budget. Epochs interrupt guest code;
    /// this limit also ends waits inside a host function.
    async fn run_with_limits<T>(
        &self,
        budget: Budget,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let busy = || CallError::Busy {
            plugin: self.log.plugin.clone(),
        };
        // The plugin's own slot first: a plugin that waits for one takes no common slot from others.
        let slots = async { (self.plugin_slots.acquire().await, self.host.slots.acquire().await) };
        // One deadline for both, since a request waits for the sum.
        let deadline = Instant::now() + budget.time;
        let (Ok(_own), Ok(_common)) = timeout_at(deadline, slots).await.map_err(|_| busy())? else {
            return Err(busy());
        };
        let done = timeout_at(deadline, work).await;
        done.unwrap_or_else(|_| Err(self.timeout(budget)))
    }

    fn timeout(&self, budget: Budget) -> CallError {
        CallError::Timeout {
            plugin: self.log.plugin.clone(),
            allowed_ms: budget.time.as_millis(),
        }
    }

    /// The exceeded limit or the fault behind an error of the engine.
    fn classify(&self, error: &wasmtime::Error, state: &HostState, budget: Budget) -> CallError {
        let plugin = self.log.plugin.clone();
        tracing::debug!(target: "tollgate::plugin", plugin, error = %format!("{error:#}"), "call failed");
        for line in state.error_lines() {
            if self.log.admits_line() {
                tracing::warn!(target: "tollgate::plugin", plugin, "the guest printed before it failed: {line}");
            }
        }
        let cause = match (state.exceeded, error.downcast_ref::<Trap>()) {
            (Some(ExceededLimit::Time), _) => return self.timeout(budget),
            (Some(ExceededLimit::Memory), _) => {
                let allowed_bytes = budget.memory_bytes;
                return CallError::Memory { plugin, allowed_bytes };
            }
            (Some(ExceededLimit::HostCalls), _) => TrapCause::HostCalls,
            (None, _) if error.is::<PoolConcurrencyLimitError>() => return CallError::Busy { plugin },
            (None, Some(Trap::StackOverflow)) => TrapCause::Stack,
            (None, Some(_)) => TrapCause::Guest,
            // The error's type is private, so only its text identifies it. An unrecognized text is
            // still a trap.
            (None, None) if error.root_cause().to_string().contains("fuel") => TrapCause::HostData,
            (None, None) => TrapCause::Guest,
        };
        CallError::Trap { plugin, cause }
    }
}

fn misfit(error: &wasmtime::Error) -> String {
    format!("the component does not fit its world: {error:#}")
}

/// Finds imports and exports of the component that the manifest does not declare. Returns whether
/// the component imports WASI.
fn check_interfaces(
    host: &PluginEngine,
    component: &Component,
    manifest: &Manifest,
    granted: GrantedImports,
) -> Result<bool, Vec<Diagnostic>> {
    let kind = component.component_type();
    let mut findings = Vec::new();
    let mut wasi = false;
    for (name, _) in kind.imports(&host.engine) {
        let interface = unversioned(name);
        match interface.strip_prefix("tollgate:plugin/") {
            Some(short) if base_interfaces(manifest.world).contains(&short) => {}
            Some(short) => findings.extend(import(Import::try_from(short).ok(), name, manifest, granted)),
            None if interface.starts_with("wasi:") && !interface.starts_with("wasi:http/") => wasi = true,
            None => {
                let message = format!("the component imports `{name}`");
                let hint = "a plugin gets the interfaces of `tollgate:plugin` and an inert WASI 0.2";
                findings.push(Diagnostic::error(manifest.locations.imports.clone(), message).with_hint(hint));
            }
        }
    }
    let wanted = manifest.world.export();
    let mut exports = kind.exports(&host.engine);
    // A function or type of that name is no interface.
    let is_wanted = |item: &ComponentItem| matches!(item, ComponentItem::ComponentInstance(_));
    if !exports.any(|(name, item)| unversioned(name) == wanted && is_wanted(&item.ty)) {
        let message = format!("the component does not export `{wanted}`, which its world demands");
        let names: Vec<&str> = kind.exports(&host.engine).map(|(name, _)| unversioned(name)).collect();
        let hint = match names.as_slice() {
            [] => "it exports: nothing".to_owned(),
            names => format!("it exports: {}", names.join(", ")),
        };
        findings.push(Diagnostic::error(manifest.locations.world.clone(), message).with_hint(hint));
    }
    if findings.is_empty() { Ok(wasi) } else { Err(findings) }
}

/// Interfaces that every guest of a world may import without a grant.
fn base_interfaces(world: World) -> &'static [&'static str] {
    match world {
        World::HeaderFilter => &["header-types"],
        World::CredentialProvider | World::Generator => &["provider-types", "secrets", "egress", "json-path"],
    }
}

/// What is wrong with one import of `tollgate:plugin`, if anything.
fn import(import: Option<Import>, name: &str, manifest: &Manifest, granted: GrantedImports) -> Option<Diagnostic> {
    let (message, hint) = match import.map(|import| (import, <&str>::from(import))) {
        None => (
            format!("the component imports `{name}`, which does not exist"),
            "the plugin was built for another version of the gateway".to_owned(),
        ),
        Some((import, short)) if !manifest.imports.contains(&import) => (
            format!("the component imports `{short}`, which its manifest does not list"),
            format!("`imports: [{short}]`, if that is intended"),
        ),
        Some((import, short)) if !granted.has(import) => (
            format!("the component imports `{short}`, which is not granted"),
            format!(
                "`plugins.grants.{}.imports: [{short}]` in the gateway's settings",
                manifest.name
            ),
        ),
        Some(_) => return None,
    };
    Some(Diagnostic::error(manifest.locations.imports.clone(), message).with_hint(hint))
}

/// `a:b/c` of `a:b/c@1.2.3`.
fn unversioned(name: &str) -> &str {
    name.split_once('@').map_or(name, |(interface, _)| interface)
}
