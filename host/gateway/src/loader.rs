//! All configuration as one immutable [`Snapshot`] behind an atomic pointer, and how the next
//! one is made from settings, objects, policies and plugins.
//!
//! Invariant: a change applies whole or not at all; if it fails, the last good snapshot stays.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use strum::VariantArray as _;

use crate::bypasses;
use tollgate_agent::Connections;
use tollgate_cluster::access::Clusters;
use tollgate_config::{Config, GroupMembership};
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_credential::cache::CredentialCache;
use tollgate_front::load_findings::LoadFindings;
use tollgate_front::policies::{ApplicationPolicies, Bundles, KubernetesPolicies, Policies, PolicyBundle, PolicyParts};
use tollgate_front::snapshot::{CurrentSnapshot, Snapshot};
use tollgate_identity::access::Agents;
use tollgate_identity::authenticate::Registries;
use tollgate_identity::authenticate::k8s_proxy::IdTokenVerifier;
use tollgate_identity::clock::Clock;
use tollgate_objects::Resources;
use tollgate_plugin::credential_source::CredentialSourceFactory;
use tollgate_policy::applications::{ApplicationIndex, Projects};
use tollgate_policy::impersonate::ImpersonationMapping;
use tollgate_policy::impersonate::service_account::ImpersonationRules;
use tollgate_proxy::metrics::{ConfigPart, Counted, Metrics};
use tollgate_rego::{Bundle, Checker, Front};
use tollgate_state::source::{self, Source};

mod checked;
mod state;

pub(crate) use checked::CheckedConfiguration;
use state::{StateLoad, StateLoader, StateParts, narrowed_rbac, same_pointers};

/// Loads configuration and makes snapshots of it.
#[derive(Debug)]
pub struct Loader {
    config: Arc<Config>,
    state: StateLoader,
    runtime: tollgate_plugin::Runtime,
    checker: Checker,
    metrics: Arc<Metrics>,
    /// Outlives every snapshot.
    credentials: Arc<CredentialCache>,
    agents: Arc<Connections>,
    clock: Clock,
    /// The findings last logged for each part, so that many reloads log them once.
    reported: Mutex<HashMap<ConfigPart, BTreeSet<String>>>,
}

struct OtherParts {
    policies: PolicyParts,
    plugins: Arc<tollgate_plugin::PluginSet>,
    clusters: Arc<Clusters>,
}

impl OtherParts {
    fn of(snapshot: &Snapshot) -> Self {
        Self {
            policies: snapshot.policies.parts(),
            plugins: Arc::clone(&snapshot.plugins),
            clusters: Arc::clone(&snapshot.clusters),
        }
    }
}

impl Loader {
    /// Makes a loader for `config`.
    ///
    /// - `credentials`: the only cache of the process.
    /// - `clock`: the clock by which ID tokens are verified.
    ///
    /// # Errors
    /// [`tollgate_plugin::Error`] when the WASM engine cannot start on this machine.
    pub fn new(
        config: Arc<Config>,
        checker: Checker,
        metrics: Arc<Metrics>,
        credentials: Arc<CredentialCache>,
        clock: Clock,
    ) -> Result<Self, tollgate_plugin::Error> {
        let runtime = tollgate_plugin::Runtime::new(&config.plugins)?;
        let state = StateLoader::new(source::open(&config));
        Ok(Self {
            config,
            state,
            runtime,
            checker,
            metrics,
            credentials,
            agents: Arc::default(),
            clock,
            reported: Mutex::default(),
        })
    }

    /// Lets the snapshots made from now on ask these about callers' credentials.
    #[must_use]
    pub fn with_registries(mut self, registries: Registries) -> Self {
        self.state.registries = registries;
        self
    }

    /// Has clusters reached through these agents.
    #[must_use]
    pub(crate) fn with_agents(mut self, agents: Arc<Connections>) -> Self {
        self.agents = agents;
        self
    }

    /// The agents that are connected to this process.
    pub(crate) fn agents(&self) -> &Arc<Connections> {
        &self.agents
    }

    /// The source of the objects. A change there requires a reload of [`ConfigPart::State`].
    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.state.source
    }

    fn memberships(&self) -> Arc<[GroupMembership]> {
        let settings = self.config.kubernetes.as_ref();
        settings.map_or_else(|| Arc::from([]), |settings| settings.memberships.as_slice().into())
    }

    /// Returns the folders to watch. A change in one requires a reload of its part.
    pub(crate) fn watched(&self) -> Vec<(ConfigPart, PathBuf)> {
        let policies = (ConfigPart::Policies, self.config.policies_directory.clone());
        let plugins = self.config.plugins.directory.clone();
        let plugins = plugins.map(|folder| (ConfigPart::Plugins, folder));
        let own_cluster = self.config.plugins.ambient.kubernetes.as_ref();
        let authority = own_cluster.map(|api| (ConfigPart::State, api.ca_file.clone()));
        std::iter::once(policies).chain(plugins).chain(authority).collect()
    }

    /// Loads everything for the first time. Blocks: call it off the runtime.
    pub fn first(&self) -> Loaded<Snapshot> {
        self.first_with(&LoadFindings::default())
    }

    /// The same, and keeps the findings of each part, apart from those that the snapshot itself has.
    pub(crate) fn first_with(&self, kept: &LoadFindings) -> Loaded<Snapshot> {
        let begun = Instant::now();
        let mut of_objects = Vec::new();
        // Every part is loaded before any of them refuses the start, so that one run reports all mistakes.
        let state = match self.state.load(&self.config, None, None, &mut of_objects) {
            StateLoad::Good(state) => Some(state),
            StateLoad::Refused(_) => None,
        };
        let mut of_policies = Vec::new();
        let bundles = self.bundles(&mut of_policies);
        let id_tokens = self.id_tokens(&mut of_policies);
        kept.set(ConfigPart::Policies, of_policies.clone());
        let (plugins, of_plugins) = self.runtime.load(None);
        kept.set(ConfigPart::Plugins, of_plugins.clone());
        let (Some(state), Some(bundles)) = (state, bundles) else {
            return Loaded::refused([of_objects, of_policies, of_plugins].concat());
        };
        let mut findings = Vec::new();
        findings.extend(self.unknown_extensions(&state));
        findings.extend(bypasses::findings(&self.config, &state.resources, &state.rbac));
        let kubernetes = bundles.mapping.as_ref().zip(id_tokens);
        let kubernetes = kubernetes.map(|(mapping, id_tokens)| KubernetesPolicies {
            agents: Agents::build_with(&state.resources, self.memberships(), None),
            id_tokens,
            mapping: Arc::clone(mapping),
        });
        let applications = match &bundles.rules {
            None => usable_projects(&state.resources, &mut findings).then_some(None),
            Some(rules) => self
                .applications(&state.resources, rules, None, &mut findings)
                .map(Some),
        };
        kept.set(ConfigPart::State, [of_objects.as_slice(), &findings].concat());
        let mut findings = [of_objects, of_policies, of_plugins, findings].concat();
        let Some(applications) = applications else {
            return Loaded::refused(findings);
        };
        let clusters = self.clusters(&state.resources, &plugins, None);
        let agents = kubernetes.iter().flat_map(|front| front.agents.configurations());
        self.metrics.identity.configurations(agents);
        self.metrics.invalid_objects(&state.resources.invalid_objects);
        let parts = OtherParts {
            policies: PolicyParts {
                bundles: Arc::new(bundles),
                kubernetes,
                applications,
                sets_before: None,
            },
            plugins: Arc::new(plugins),
            clusters,
        };
        let first = self.snapshot(1, begun, state, parts);
        self.link_directory(&first);
        findings.extend(first.findings());
        Loaded::new(first, findings)
    }

    /// Lets locks know whom the claims of a caller mean in the directory.
    fn link_directory(&self, snapshot: &Snapshot) {
        let sessions = self.state.registries.sessions.as_ref();
        let front = snapshot.policies.kubernetes.as_ref();
        if let (Some(sessions), Some(front), Some(settings)) = (sessions, front, &self.config.kubernetes) {
            sessions.set_directory(Arc::clone(&front.agents.people), &settings.users);
        }
    }

    /// Findings about grants for extensions that do not exist.
    fn unknown_extensions(&self, state: &StateParts) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        for (plugin, grant) in &self.config.plugins.grants {
            let is_unknown = |name: &&String| state.extensions.find(name).is_none();
            for name in grant.extensions.iter().filter(is_unknown) {
                let message =
                    format!("`plugins.grants.{plugin}.extensions` names `{name}`, and there is no such extension");
                let finding = Diagnostic::warning(grant.location.clone(), message);
                found.push(finding.with_hint("the plugin is called for no request until it is there"));
            }
        }
        found
    }

    /// Loads only the clusters. Blocks.
    ///
    /// # Errors
    /// The objects cannot be used.
    pub fn load_clusters(&self) -> Loaded<Arc<Clusters>> {
        let mut findings = Vec::new();
        let Some(resources) = take(self.state.source.load(), &mut findings) else {
            return Loaded::refused(findings);
        };
        let (plugins, found) = self.runtime.load(None);
        findings.extend(found);
        let clusters = self.clusters(&resources, &plugins, None);
        findings.extend(clusters.findings());
        // Errors are findings only: a plugin that no cluster needs may be broken.
        Loaded {
            value: Some(clusters),
            diagnostics: findings,
        }
    }

    fn clusters(
        &self,
        resources: &Resources,
        plugins: &tollgate_plugin::PluginSet,
        previous: Option<&Clusters>,
    ) -> Arc<Clusters> {
        let factory = CredentialSourceFactory {
            cache: &self.credentials,
            plugins,
            ambient: &self.config.plugins.ambient,
            metrics: &self.metrics.credentials,
        };
        Arc::new(Clusters::build(resources, factory, &self.agents, previous))
    }

    /// Builds the configuration of the Applications front. If that fails, nothing of the load may
    /// be used.
    fn applications(
        &self,
        resources: &Resources,
        rules: &Arc<ImpersonationRules>,
        previous: Option<&ApplicationPolicies>,
        findings: &mut Vec<Diagnostic>,
    ) -> Option<ApplicationPolicies> {
        let mode = self.config.applications.and_then(|settings| settings.mode);
        let previous = previous.map(|front| &*front.index);
        let index = ApplicationIndex::build(resources, rules, mode, previous);
        let found = index.findings();
        let usable = !found.iter().any(Diagnostic::is_error);
        findings.extend(found);
        let identity = self.config.applications.unwrap_or_default().gateway_identity;
        findings.extend(index.gateway_finding(identity));
        usable.then(|| ApplicationPolicies {
            index: Arc::new(index),
            rules: Arc::clone(rules),
        })
    }

    /// Loads `part` again, and publishes the result if it is good and differs. Blocks. Returns
    /// every finding, including those of a part that stays as it was.
    pub fn reload(&self, current: &CurrentSnapshot, part: ConfigPart) -> Vec<Diagnostic> {
        let begun = Instant::now();
        // Reloads come one after the other (`reload_on`), so nothing is published in between.
        let old = current.load_full();
        let mut findings = Vec::new();
        let old_state = StateParts::of(&old);
        let mut parts = OtherParts::of(&old);
        let generation = old.generation.saturating_add(1);
        let next = match part {
            ConfigPart::State => {
                let narrower = old.narrowed_by.as_deref().map(StateParts::of);
                let loaded = self
                    .state
                    .load(&self.config, Some(&old_state), narrower.as_ref(), &mut findings);
                if let StateLoad::Good(state) = &loaded {
                    findings.extend(bypasses::findings(&self.config, &state.resources, &state.rbac));
                }
                self.next_state(&old, old_state, loaded, begun, &mut findings)
            }
            // What refused objects took away stays away, although these are good: hence `narrowed`, here and below.
            ConfigPart::Policies => self.bundles(&mut findings).and_then(|bundles| {
                if let (Some(kubernetes), Some(mapping)) = (&mut parts.policies.kubernetes, &bundles.mapping) {
                    kubernetes.mapping = Arc::clone(mapping);
                }
                if let (Some(applications), Some(rules)) = (&mut parts.policies.applications, &bundles.rules) {
                    let resources = &old_state.resources;
                    // What is refused here keeps the other bundles out as well: a part applies whole.
                    *applications = self.applications(resources, rules, Some(applications), &mut findings)?;
                }
                parts.policies.bundles = Arc::new(bundles);
                Some(self.narrowed(
                    self.snapshot(generation, begun, old_state, parts),
                    old.narrowed_by.as_deref(),
                ))
            }),
            ConfigPart::Plugins => {
                let (set, found) = self.runtime.load(Some(&old.plugins));
                findings.extend(found);
                // Plugins mint the credentials of clusters: with another one, a cluster may work again, or no longer.
                parts.clusters = self.clusters(&old_state.resources, &set, Some(&old.clusters));
                parts.plugins = Arc::new(set);
                Some(self.narrowed(
                    self.snapshot(generation, begun, old_state, parts),
                    old.narrowed_by.as_deref(),
                ))
            }
        };
        self.report(part, &findings);
        if let Some(next) = next {
            let is_whole = !findings.iter().any(Diagnostic::is_error);
            self.publish(current, &old, next, part, is_whole);
        }
        self.metrics.load.observe_reload(part, begun.elapsed());
        findings
    }

    /// Returns the next snapshot after a load of objects; `None` if nothing changes.
    ///
    /// Invariant: a refused load only takes permissions away. Its objects are not in force, but
    /// nothing passes that they would not permit.
    fn next_state(
        &self,
        old: &Snapshot,
        old_state: StateParts,
        loaded: StateLoad,
        begun: Instant,
        findings: &mut Vec<Diagnostic>,
    ) -> Option<Snapshot> {
        let generation = old.generation.saturating_add(1);
        let was_narrowed = old.narrowed_by.as_ref();
        let refused = match loaded {
            StateLoad::Good(state)
                if Arc::ptr_eq(&state.resources, &old_state.resources)
                    && was_narrowed.is_none()
                    && !old.clusters.is_outdated(&self.config.plugins.ambient) =>
            {
                return None;
            }
            StateLoad::Good(state) => {
                let (parts, is_good) = self.parts_from(old, &state.resources, findings);
                if is_good {
                    return Some(self.snapshot(generation, begun, state, parts));
                }
                state
            }
            StateLoad::Refused(state) => state?,
        };
        // The refused load that is in force already: what it takes away took effect then.
        if was_narrowed.is_some_and(|narrower| Arc::ptr_eq(&narrower.policies.resources, &refused.resources)) {
            return None;
        }
        // Its findings are reported already, or follow from those that are.
        let (parts, _) = self.parts_from(old, &refused.resources, &mut Vec::new());
        let narrower = self.snapshot(generation, begun, refused, parts);
        // The mistakes are in objects that decide nothing, so there is nothing to take away.
        if was_narrowed.is_none() && is_same(old, &narrower) {
            return None;
        }
        let next = self.snapshot(generation, begun, old_state, OtherParts::of(old));
        Some(self.narrowed(next, Some(&narrower)))
    }

    /// Makes the other parts of a snapshot from new objects. Also returns whether all are made from
    /// them; otherwise the index of Applications is the previous one.
    fn parts_from(&self, old: &Snapshot, resources: &Resources, findings: &mut Vec<Diagnostic>) -> (OtherParts, bool) {
        let mut parts = OtherParts::of(old);
        self.rebuild_changed(&old.policies.resources, resources, &mut parts);
        let Some(front) = &mut parts.policies.applications else {
            return (parts, usable_projects(resources, findings));
        };
        let index = self.applications(resources, &front.rules, Some(front), findings);
        let is_good = index.is_some();
        *front = index.unwrap_or_else(|| front.clone());
        (parts, is_good)
    }

    /// Restricts `snapshot` to what the objects of `narrower` permit as well. Both have the same
    /// policies and plugins.
    fn narrowed(&self, mut snapshot: Snapshot, narrower: Option<&Snapshot>) -> Snapshot {
        let Some(narrower) = narrower else { return snapshot };
        let state = StateParts::of(narrower);
        // Anew, because policies or plugins may be other ones than when the load was refused.
        let (parts, _) = self.parts_from(&snapshot, &state.resources, &mut Vec::new());
        let narrower = self.snapshot(snapshot.generation, snapshot.begun, state, parts);
        // Compiling it succeeded before, so it succeeds again.
        if let Some(rbac) = narrowed_rbac(&self.config, &snapshot.policies.resources, &narrower.policies.rbac) {
            snapshot.policies.rbac = rbac;
        }
        snapshot.narrowed_by = Some(Arc::new(narrower));
        snapshot
    }

    fn rebuild_changed(&self, old: &Resources, new: &Resources, parts: &mut OtherParts) {
        // Unchanged parts keep their pointers, by which `Change` finds what need not be asked again.
        let same = old.clusters == new.clusters && same_pointers(&old.cluster_configs, &new.cluster_configs);
        if !same {
            parts.clusters = self.clusters(new, &parts.plugins, Some(&parts.clusters));
        }
        let same = Arc::ptr_eq(&old.people, &new.people) && same_pointers(&old.agents, &new.agents);
        if let Some(front) = parts.policies.kubernetes.as_mut().filter(|_| !same) {
            front.agents = Agents::build(new, Some(&front.agents));
        }
    }

    /// Puts a snapshot into force.
    ///
    /// - `is_whole`: whether it contains all of the loaded part.
    fn publish(&self, current: &CurrentSnapshot, old: &Snapshot, next: Snapshot, part: ConfigPart, is_whole: bool) {
        self.metrics.generation(next.generation);
        self.metrics.invalid_objects(&next.policies.resources.invalid_objects);
        let (part, generation): (&str, _) = (part.into(), next.generation);
        match (next.narrowed_by.is_some(), is_whole) {
            (true, _) => tracing::warn!(
                part,
                generation,
                "objects with mistakes are not in force; what they take away took effect"
            ),
            (false, true) => tracing::info!(part, generation, "configuration took effect"),
            (false, false) => tracing::warn!(part, generation, "configuration took effect without what was refused"),
        }
        // Before the first request uses the snapshot, so that locks already cover the people whom it links.
        self.link_directory(&next);
        let agents = next.agents();
        let configurations = agents.into_iter().flat_map(|agents| agents.configurations());
        self.metrics.identity.configurations(configurations);
        let mut found = Vec::new();
        // What was not built anew has been logged before.
        if !Arc::ptr_eq(&old.clusters, &next.clusters) {
            found.extend(next.clusters.findings());
        }
        if old.agents().map(Arc::as_ptr) != agents.map(Arc::as_ptr) {
            found.extend(agents.into_iter().flat_map(|agents| agents.findings.iter().cloned()));
        }
        for finding in found {
            tracing::warn!(part, "{finding}");
        }
        let keys = next.clusters.keys();
        current.store(Arc::new(next));
        // Only after the swap: until then, new requests take the old snapshot and need its credentials.
        self.credentials.retain(&keys);
    }

    /// Logs findings that are new and sets the metric that says whether the files on
    /// disk are in force.
    pub(crate) fn report(&self, part: ConfigPart, findings: &[Diagnostic]) {
        let texts: BTreeSet<String> = findings.iter().map(ToString::to_string).collect();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let before = reported.insert(part, texts).unwrap_or_default();
        drop(reported);
        let mut errors = 0_usize;
        for finding in findings.iter().filter(|finding| !before.contains(&finding.to_string())) {
            if finding.is_error() {
                errors = errors.saturating_add(1);
                tracing::error!(part = <&str>::from(part), "{finding}");
            } else {
                tracing::warn!(part = <&str>::from(part), "{finding}");
            }
        }
        if errors > 0 {
            tracing::error!(
                part = <&str>::from(part),
                errors,
                "what was loaded is refused: what was in force before stays in force, less what was taken away"
            );
        }
        self.metrics
            .count_load(part, !findings.iter().any(Diagnostic::is_error));
    }

    /// - `begun`: when the load began that makes it.
    fn snapshot(&self, generation: u64, begun: Instant, state: StateParts, parts: OtherParts) -> Snapshot {
        Snapshot {
            generation,
            policies: Policies::new(&self.config, state.resources, state.rbac, parts.policies),
            authenticator: state.authenticator,
            extensions: state.extensions,
            plugins: parts.plugins,
            clusters: parts.clusters,
            begun,
            counted: Counted::in_gauge(&self.metrics.load.snapshots),
            narrowed_by: None,
        }
    }

    /// Loads all bundles or none: if one fails, all stay as they were.
    fn bundles(&self, findings: &mut Vec<Diagnostic>) -> Option<Bundles> {
        let mut bundles = Bundles::default();
        let mut is_whole = true;
        for front in Front::VARIANTS {
            let folder = self.config.policies_directory.join(front.as_ref());
            let loaded = match front {
                Front::Kubernetes => self.config.kubernetes.as_ref().map(|settings| {
                    let parse =
                        |path: &str, text: &str| ImpersonationMapping::parse(path, text, settings.max_groups).value;
                    let loaded = Bundle::load_with(&folder, *front, &self.checker, "the mapping", parse);
                    loaded.map(|(bundle, mapping)| {
                        bundles.mapping = Some(Arc::new(mapping));
                        bundle
                    })
                }),
                Front::Applications => self.config.applications.as_ref().map(|settings| {
                    let parse =
                        |path: &str, text: &str| ImpersonationRules::parse(path, text, settings.semantics).value;
                    let loaded = Bundle::load_with(&folder, *front, &self.checker, "the rules of impersonation", parse);
                    loaded.map(|(bundle, rules)| {
                        bundles.rules = Some(Arc::new(rules));
                        bundle
                    })
                }),
                Front::Extensions | Front::ApplicationSets | Front::Argocd | Front::ControlPlane => {
                    has_policies(&self.config, *front).then(|| Bundle::load(&folder, *front, &self.checker))
                }
            };
            if let Some(loaded) = loaded {
                let bundle = take(loaded, findings);
                // The next bundle is loaded all the same, so that one load reports every mistake.
                is_whole &= bundle.is_some();
                bundles
                    .bundles
                    .extend(bundle.map(|bundle| Arc::new(PolicyBundle::new(bundle))));
            }
        }
        is_whole.then_some(bundles)
    }

    fn id_tokens(&self, findings: &mut Vec<Diagnostic>) -> Option<Arc<IdTokenVerifier>> {
        let settings = self.config.kubernetes.as_ref()?;
        take(IdTokenVerifier::build(settings, None, &self.clock), findings).map(Arc::new)
    }
}

/// Whether the settings open a front, so that its policy files are read.
fn has_policies(config: &Config, front: Front) -> bool {
    match front {
        Front::Extensions => true,
        Front::Kubernetes => config.kubernetes.is_some(),
        Front::Applications => config.applications.is_some(),
        Front::ApplicationSets => config.application_sets.is_some(),
        Front::Argocd => config.argocd.is_some(),
        Front::ControlPlane => config.control_plane.is_some(),
    }
}

/// Whether projects can be put together, without an index of Applications that would say it.
fn usable_projects(resources: &Resources, findings: &mut Vec<Diagnostic>) -> bool {
    let (_, found) = Projects::build(resources);
    let usable = !found.iter().any(Diagnostic::is_error);
    findings.extend(found);
    usable
}

/// Whether two snapshots with the same policies and plugins are made of the same objects, as far
/// as decisions depend on them.
fn is_same(one: &Snapshot, other: &Snapshot) -> bool {
    Arc::ptr_eq(&one.policies.rbac, &other.policies.rbac)
        && Arc::ptr_eq(&one.authenticator, &other.authenticator)
        && Arc::ptr_eq(&one.extensions, &other.extensions)
        && Arc::ptr_eq(&one.clusters, &other.clusters)
        && one.agents().map(Arc::as_ptr) == other.agents().map(Arc::as_ptr)
        && one.policies.resources.argocd_cm == other.policies.resources.argocd_cm
        && one.policies.resources.clusters == other.policies.resources.clusters
        && same_pointers(&one.policies.resources.projects, &other.policies.resources.projects)
        && one.policies.projects.is_same(&other.policies.projects)
        && same_pointers(
            &one.policies.resources.applications,
            &other.policies.resources.applications,
        )
}

fn take<T>(loaded: Loaded<T>, findings: &mut Vec<Diagnostic>) -> Option<T> {
    findings.extend(loaded.diagnostics);
    loaded.value
}
