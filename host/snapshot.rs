//! All configuration as one immutable value, and how the next one is made.
//!
//! In: settings, the state folder, policies, plugins. Out: [`Snapshot`] behind an
//! atomic pointer. Never: a half-applied change; the last good one stays.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::access::Agents;
use crate::authenticate::Authenticator;
use crate::authenticate::agent::IdTokens;
use crate::authorize::kubernetes::KubernetesPolicy;
use crate::authorize::rbac::{PolicySource, Rbac};
use crate::authorize::rego::{Bundle, Checker, Front};
use crate::authorize::{Judgments, Target};
use crate::caller::Callers;
use crate::clock::Clock;
use crate::config::{Compatibility, Config};
use crate::credential::cache::Cache;
use crate::credential::clusters::Clusters;
use crate::credential::source::Makers;
use crate::diagnostic::{Diagnostic, Loaded};
use crate::front::extensions::{Asked, Registry, config};
use crate::metrics::{Metrics, Part};
use crate::plugin;
use crate::state::{Resources, directory};

/// Everything a request is decided by. A request takes one and keeps it.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts up from 1 with every change that took effect.
    pub generation: u64,
    /// Settings of the process.
    pub config: Arc<Config>,
    /// Kubernetes objects.
    pub resources: Arc<Resources>,
    /// Argo CD's policy, compiled.
    pub rbac: Arc<Rbac>,
    /// Who is who.
    pub authenticator: Arc<Authenticator>,
    /// Extensions and their backends.
    pub extensions: Arc<Registry>,
    /// Bundle of the extension front.
    pub policy: Arc<Bundle>,
    /// Its digest, for records.
    pub policy_digest: Arc<str>,
    /// Loaded plugins.
    pub plugins: Arc<plugin::Set>,
    /// Clusters, and how each is entered.
    pub clusters: Arc<Clusters>,
    /// The Kubernetes front, where it is open.
    pub kubernetes: Option<KubernetesFront>,
    /// Callers seen, with their roles.
    pub callers: Callers,
    /// Applications and projects asked for.
    pub targets: moka::sync::Cache<Asked, Arc<Target>>,
    /// What was judged of callers and what they ask for.
    pub judgments: Judgments,
}

/// What the Kubernetes front decides by.
#[derive(Clone, Debug)]
pub struct KubernetesFront {
    /// Agents, people, and who of them may use which.
    pub agents: Arc<Agents>,
    /// Whose ID tokens count.
    pub id_tokens: Arc<IdTokens>,
    /// Bundle and identity mapping.
    pub policy: Arc<KubernetesPolicy>,
}

/// Weight of the targets remembered at once: some 300 bytes each. Callers
/// choose what they ask for, so a bound in targets alone would let them fill the
/// memory with copies of one large project.
const TARGETS: u64 = 200_000;

/// Makes snapshots and keeps the one in force.
#[derive(Debug)]
pub struct Loader {
    config: Arc<Config>,
    runtime: plugin::Runtime,
    checker: Checker,
    metrics: Arc<Metrics>,
    /// Outlives every snapshot.
    credentials: Arc<Cache>,
    clock: Clock,
}

/// The pointer requests read. Cloning it shares it.
pub type Current = Arc<ArcSwap<Snapshot>>;

/// What a snapshot is made of besides.
struct Parts {
    policy: Arc<Bundle>,
    kubernetes: Option<KubernetesFront>,
    plugins: Arc<plugin::Set>,
    clusters: Arc<Clusters>,
}

/// Bundles, made together or not at all.
struct Policies {
    extensions: Arc<Bundle>,
    kubernetes: Option<Arc<KubernetesPolicy>>,
}

/// What the state folder decides, made together or not at all.
struct FromState {
    resources: Arc<Resources>,
    rbac: Arc<Rbac>,
    authenticator: Arc<Authenticator>,
    extensions: Arc<Registry>,
}

impl Loader {
    /// A loader for `config`.
    ///
    /// - `credentials`: the one cache of the process.
    /// - `clock`: what ID tokens are judged by.
    ///
    /// # Errors
    /// [`plugin::Error`] when the WASM engine cannot start on this machine.
    pub fn new(
        config: Arc<Config>,
        checker: Checker,
        metrics: Arc<Metrics>,
        (credentials, clock): (Arc<Cache>, Clock),
    ) -> Result<Self, plugin::Error> {
        let runtime = plugin::Runtime::new(&config.plugins)?;
        Ok(Self {
            config,
            runtime,
            checker,
            metrics,
            credentials,
            clock,
        })
    }

    /// The folders a change in which asks for a reload of the part.
    pub fn watched(&self) -> Vec<(Part, PathBuf)> {
        let mut watched = vec![
            (Part::State, self.config.state_directory.clone()),
            (Part::Policies, self.config.policies_directory.clone()),
        ];
        watched.extend(
            self.config
                .plugins
                .directory
                .clone()
                .map(|folder| (Part::Plugins, folder)),
        );
        watched
    }

    /// Loads everything for the first time. Blocks: call it off the runtime.
    pub fn first(&self) -> Loaded<Snapshot> {
        let mut findings = Vec::new();
        let state = self.state(None, &mut findings);
        let policies = self.policies(&mut findings);
        let id_tokens = self.id_tokens(&mut findings);
        let (plugins, mut found) = self.runtime.load(None);
        findings.append(&mut found);
        let (Some(state), Some(policies)) = (state, policies) else {
            return Loaded::refused(findings);
        };
        let kubernetes = match (policies.kubernetes, id_tokens) {
            (Some(policy), Some(id_tokens)) => Some(KubernetesFront {
                agents: Agents::build(&state.resources, None),
                id_tokens,
                policy,
            }),
            (None, _) | (_, None) => None,
        };
        let clusters = self.clusters(&state.resources, &plugins, None);
        findings.extend(clusters.findings());
        findings.extend(kubernetes.iter().flat_map(|front| front.agents.findings()));
        let agents = kubernetes.iter().flat_map(|front| front.agents.configurations());
        self.metrics.access.configurations(agents);
        let parts = Parts {
            policy: policies.extensions,
            kubernetes,
            plugins: Arc::new(plugins),
            clusters,
        };
        Loaded::new(self.snapshot(1, state, parts), findings)
    }

    /// Clusters alone, without what a request needs besides. Blocks.
    ///
    /// # Errors
    /// The state folder cannot be used.
    pub fn clusters_alone(&self) -> Loaded<Arc<Clusters>> {
        let mut findings = Vec::new();
        let config = &self.config;
        let state = directory::load(&config.state_directory, &config.control_plane_namespace);
        let Some(resources) = take(state, &mut findings) else {
            return Loaded::refused(findings);
        };
        let (plugins, mut found) = self.runtime.load(None);
        findings.append(&mut found);
        let clusters = self.clusters(&resources, &plugins, None);
        findings.extend(clusters.findings());
        // A plugin that is not needed here may be broken.
        let mut loaded = Loaded::new(clusters, Vec::new());
        loaded.diagnostics = findings;
        loaded
    }

    fn clusters(&self, resources: &Resources, plugins: &plugin::Set, previous: Option<&Clusters>) -> Arc<Clusters> {
        let makers = Makers {
            cache: &self.credentials,
            plugins,
            ambient: &self.config.plugins.ambient,
            metrics: &self.metrics,
        };
        Arc::new(Clusters::build(resources, makers, previous))
    }

    /// Loads `part` again and puts the result into force when it is good. Blocks.
    /// Gives every finding, also those of a part that stays as it was.
    pub fn reload(&self, current: &Current, part: Part) -> Vec<Diagnostic> {
        let old = current.load_full();
        let mut findings = Vec::new();
        let kept = FromState {
            resources: Arc::clone(&old.resources),
            rbac: Arc::clone(&old.rbac),
            authenticator: Arc::clone(&old.authenticator),
            extensions: Arc::clone(&old.extensions),
        };
        let mut parts = Parts {
            policy: Arc::clone(&old.policy),
            kubernetes: old.kubernetes.clone(),
            plugins: Arc::clone(&old.plugins),
            clusters: Arc::clone(&old.clusters),
        };
        let generation = old.generation.saturating_add(1);
        let entered = Some(&*old.clusters);
        let next = match part {
            Part::State => self.state(Some(&old), &mut findings).map(|state| {
                parts.clusters = self.clusters(&state.resources, &parts.plugins, entered);
                if let Some(front) = &mut parts.kubernetes {
                    front.agents = Agents::build(&state.resources, Some(&front.agents));
                }
                self.snapshot(generation, state, parts)
            }),
            Part::Policies => self.policies(&mut findings).map(|policies| {
                parts.policy = policies.extensions;
                if let (Some(front), Some(policy)) = (&mut parts.kubernetes, policies.kubernetes) {
                    front.policy = policy;
                }
                self.snapshot(generation, kept, parts)
            }),
            Part::Plugins => {
                let (set, mut found) = self.runtime.load(Some(&old.plugins));
                findings.append(&mut found);
                parts.clusters = self.clusters(&kept.resources, &set, entered);
                parts.plugins = Arc::new(set);
                Some(self.snapshot(generation, kept, parts))
            }
        };
        self.report(part, &findings);
        if let Some(next) = next {
            self.metrics.generation(next.generation);
            tracing::info!(
                part = part.as_str(),
                generation = next.generation,
                "configuration took effect"
            );
            let agents = next.kubernetes.iter().flat_map(|front| front.agents.configurations());
            self.metrics.access.configurations(agents);
            let agents = next.kubernetes.iter().flat_map(|front| front.agents.findings());
            for finding in next.clusters.findings().into_iter().chain(agents) {
                tracing::warn!(part = part.as_str(), "{finding}");
            }
            let wanted = next.clusters.keys();
            current.store(Arc::new(next));
            self.credentials.retain(&wanted);
        }
        findings
    }

    /// Logs findings and sets the metric that says whether the files on disk
    /// are in force.
    pub fn report(&self, part: Part, findings: &[Diagnostic]) {
        for finding in findings {
            if finding.is_error() {
                tracing::error!(part = part.as_str(), "{finding}");
            } else {
                tracing::warn!(part = part.as_str(), "{finding}");
            }
        }
        self.metrics.loaded(part, !findings.iter().any(Diagnostic::is_error));
    }

    fn snapshot(&self, generation: u64, state: FromState, parts: Parts) -> Snapshot {
        let Parts {
            policy,
            kubernetes,
            plugins,
            clusters,
        } = parts;
        let FromState {
            resources,
            rbac,
            authenticator,
            extensions,
        } = state;
        Snapshot {
            generation,
            config: Arc::clone(&self.config),
            resources,
            rbac,
            authenticator,
            extensions,
            policy_digest: Arc::from(policy.digest()),
            policy,
            plugins,
            clusters,
            kubernetes,
            callers: Callers::default(),
            targets: targets(),
            judgments: Judgments::default(),
        }
    }

    fn state(&self, previous: Option<&Snapshot>, findings: &mut Vec<Diagnostic>) -> Option<FromState> {
        let config = &self.config;
        let resources = take(
            directory::load(&config.state_directory, &config.control_plane_namespace),
            findings,
        )?;
        // Every part is tried, so that one load reports all mistakes.
        let rbac = take(
            PolicySource::from_resources(&resources, config.rbac_semantics),
            findings,
        )
        .and_then(|source| take(Rbac::compile(&source), findings));
        let specs = take(config::parse_with(&resources, options(config)).specs, findings);
        let extensions =
            specs.and_then(|specs| take(Registry::build(specs, previous.map(|old| &*old.extensions)), findings));
        let rbac = rbac?;
        let earlier = previous.map(|old| &*old.authenticator);
        let authenticator = take(
            Authenticator::build(&config.authentication, &resources, rbac.scopes(), earlier),
            findings,
        )?;
        Some(FromState {
            resources: Arc::new(resources),
            rbac: Arc::new(rbac),
            authenticator: Arc::new(authenticator),
            extensions: Arc::new(extensions?),
        })
    }

    /// Every bundle, or none: one that fails leaves all as they were.
    fn policies(&self, findings: &mut Vec<Diagnostic>) -> Option<Policies> {
        let folder = &self.config.policies_directory;
        let extensions = take(
            Bundle::load(&folder.join("extensions"), Front::Extensions, &self.checker),
            findings,
        );
        let kubernetes = match &self.config.kubernetes {
            None => None,
            Some(settings) => {
                let folder = folder.join("kubernetes");
                let loaded = KubernetesPolicy::load(&folder, &self.checker, settings.max_groups);
                Some(Arc::new(take(loaded, findings)?))
            }
        };
        Some(Policies {
            extensions: Arc::new(extensions?),
            kubernetes,
        })
    }

    fn id_tokens(&self, findings: &mut Vec<Diagnostic>) -> Option<Arc<IdTokens>> {
        let settings = self.config.kubernetes.as_ref()?;
        take(IdTokens::build(settings, None, &self.clock), findings).map(Arc::new)
    }
}

fn targets() -> moka::sync::Cache<Asked, Arc<Target>> {
    moka::sync::Cache::builder()
        .weigher(|_, target: &Arc<Target>| target.weight())
        .max_capacity(TARGETS)
        .build()
}

/// How much of what Argo CD shrugs at is accepted in `extension.config`.
fn options(config: &Config) -> config::Options {
    match config.extensions.compatibility {
        Compatibility::None => config::Options::default(),
        Compatibility::Argocd => config::Options::ARGOCD,
    }
}

fn take<T>(loaded: Loaded<T>, findings: &mut Vec<Diagnostic>) -> Option<T> {
    findings.extend(loaded.diagnostics);
    loaded.value
}
