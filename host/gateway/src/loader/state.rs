//! The parts of a snapshot that come from objects, rebuilt only where the objects changed.
//!
//! Invariant: a part is reused only if every object it is made of is still the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::take;
use tollgate_config::Config;
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_front::extension_registry::Registry;
use tollgate_front::snapshot::Snapshot;
use tollgate_identity::authenticate::{Authenticator, Registries};
use tollgate_objects::extensions::secrets::is_referable;
use tollgate_objects::{Project, Resources, RoleToken, Secret, extensions};
use tollgate_policy::rbac::{PolicySource, Rbac};
use tollgate_state::source::Source;

/// The parts of a snapshot made from objects, all together or not at all.
#[derive(Clone, Debug)]
pub(super) struct StateParts {
    pub(super) resources: Arc<Resources>,
    pub(super) rbac: Arc<Rbac>,
    pub(super) authenticator: Arc<Authenticator>,
    pub(super) extensions: Arc<Registry>,
}

impl StateParts {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Self {
            resources: Arc::clone(&snapshot.policies.resources),
            rbac: Arc::clone(&snapshot.policies.rbac),
            authenticator: Arc::clone(&snapshot.authenticator),
            extensions: Arc::clone(&snapshot.extensions),
        }
    }
}

#[derive(Debug)]
pub(super) enum StateLoad {
    Good(StateParts),
    /// It has mistakes. Contains its parts, with earlier versions in place of faulty ones, if there
    /// are any: these say which permissions are withdrawn.
    Refused(Option<StateParts>),
}

/// Loads the objects, makes [`StateParts`] of them, and keeps the last good ones with their
/// findings.
#[derive(Debug)]
pub(super) struct StateLoader {
    pub(super) source: Arc<dyn Source>,
    /// What every authenticator asks.
    pub(super) registries: Registries,
    last_good: Mutex<Option<LastGood>>,
}

/// The last good parts, and the same parts with the findings about each.
#[derive(Debug)]
struct LastGood {
    parts: StateParts,
    results: PartResults,
}

impl StateLoader {
    pub(super) fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            registries: Registries::default(),
            last_good: Mutex::default(),
        }
    }

    /// Loads the objects and makes the parts that depend on them. Blocks.
    pub(super) fn load(
        &self,
        config: &Config,
        earlier: Option<&StateParts>,
        narrower: Option<&StateParts>,
        findings: &mut Vec<Diagnostic>,
    ) -> StateLoad {
        let loaded = take(self.source.load(), findings);
        // A broken watch is reported, and the known objects stay in force.
        findings.extend(self.source.health());
        let mut last_good = self.last_good.lock().unwrap_or_else(PoisonError::into_inner);
        // After a refused load, its parts are in force as `narrower`: what they took away stays away.
        let replacement = narrower.or(earlier);
        let registries = &self.registries;
        let Some(resources) = loaded else {
            let parts = self.source.last_known_good().map(|resources| {
                // Only the findings of the load itself are reported.
                let unreported = &mut Vec::new();
                let results = make(config, &resources, registries, last_good.as_ref(), earlier, unreported);
                results.or_earlier(replacement, resources)
            });
            return StateLoad::Refused(parts.flatten());
        };
        let results = make(config, &resources, registries, last_good.as_ref(), earlier, findings);
        match results.complete(&resources) {
            Some(parts) => {
                let good = LastGood { parts, results };
                StateLoad::Good(last_good.insert(good).parts.clone())
            }
            None => StateLoad::Refused(results.or_earlier(replacement, resources)),
        }
    }
}

#[derive(Debug)]
struct PartResults {
    rbac: Loaded<Arc<Rbac>>,
    authenticator: Loaded<Arc<Authenticator>>,
    extensions: Loaded<Arc<Registry>>,
}

impl PartResults {
    /// Returns all parts if every one could be made.
    fn complete(&self, resources: &Arc<Resources>) -> Option<StateParts> {
        Some(StateParts {
            resources: Arc::clone(resources),
            rbac: self.rbac.value.clone()?,
            authenticator: self.authenticator.value.clone()?,
            extensions: self.extensions.value.clone()?,
        })
    }

    /// Replaces the parts that could not be made by their earlier versions.
    fn or_earlier(self, earlier: Option<&StateParts>, resources: Arc<Resources>) -> Option<StateParts> {
        let earlier = earlier?.clone();
        Some(StateParts {
            resources,
            rbac: self.rbac.value.unwrap_or(earlier.rbac),
            authenticator: self.authenticator.value.unwrap_or(earlier.authenticator),
            extensions: self.extensions.value.unwrap_or(earlier.extensions),
        })
    }
}

/// Makes every part, even after a mistake, so that one load reports all mistakes.
fn make(
    config: &Config,
    resources: &Arc<Resources>,
    registries: &Registries,
    last_good: Option<&LastGood>,
    earlier: Option<&StateParts>,
    findings: &mut Vec<Diagnostic>,
) -> PartResults {
    // Every part is made of `argocd-cm`, among others.
    let same_cm = last_good.filter(|last| last.parts.resources.argocd_cm == resources.argocd_cm);
    let reusable =
        |is_same: fn(&Resources, &Resources) -> bool| same_cm.filter(|last| is_same(&last.parts.resources, resources));
    let rbac = match reusable(|old, new| old.rbac_cm == new.rbac_cm && same_pointers(&old.projects, &new.projects)) {
        Some(last) => last.results.rbac.clone(),
        None => rbac(config, resources).map(Arc::new),
    };
    let same_extensions = |old: &Resources, new: &Resources| {
        same_referable_secrets(old, new)
            && same_pointers(&old.extensions, &new.extensions)
            && old.clusters == new.clusters
    };
    let extensions = match reusable(same_extensions) {
        Some(last) => last.results.extensions.clone(),
        // With the earlier ones, whose backends and counts of open requests go on where nothing changed.
        None => extensions(config, resources, earlier).map(Arc::new),
    };
    // Also of the parts that are reused: what a load finds replaces all that earlier ones found.
    findings.extend_from_slice(&rbac.diagnostics);
    findings.extend_from_slice(&extensions.diagnostics);
    // A refused policy must not refuse every caller: the one in force says which claims hold groups.
    let compiled = rbac.value.as_ref().or(earlier.map(|earlier| &earlier.rbac));
    let scopes = compiled.map_or(&[][..], |compiled| &compiled.scopes);
    let same_scopes = last_good.is_some_and(|last| last.parts.rbac.scopes == scopes);
    let same_callers = |old: &Resources, new: &Resources| {
        same_referable_secrets(old, new) && same_role_tokens(&old.projects, &new.projects)
    };
    let authenticator = match reusable(same_callers) {
        // Without a policy, it is unknown which claims hold groups.
        _ if compiled.is_none() => Loaded::refused(Vec::new()),
        Some(last) if same_scopes => last.results.authenticator.clone(),
        Some(_) | None => {
            let earlier = earlier.map(|earlier| &*earlier.authenticator);
            Authenticator::build(&config.authentication, resources, scopes, earlier)
                .map(|authenticator| Arc::new(authenticator.with_registries(registries.clone())))
        }
    };
    findings.extend_from_slice(&authenticator.diagnostics);
    PartResults {
        rbac,
        authenticator,
        extensions,
    }
}

/// Returns the policy in force, restricted to what `narrower` allows as well; `None` if it is not a
/// valid policy.
pub(super) fn narrowed_rbac(config: &Config, resources: &Resources, narrower: &Arc<Rbac>) -> Option<Arc<Rbac>> {
    let compiled = rbac(config, resources).value?;
    Some(Arc::new(compiled.narrowed_by(narrower)))
}

fn rbac(config: &Config, resources: &Resources) -> Loaded<Rbac> {
    let mut findings = Vec::new();
    let source = take(
        PolicySource::from_resources(resources, config.rbac_semantics),
        &mut findings,
    );
    match source.and_then(|source| take(Rbac::compile(&source), &mut findings)) {
        Some(rbac) => Loaded::new(rbac, findings),
        None => Loaded::refused(findings),
    }
}

fn extensions(config: &Config, resources: &Resources, earlier: Option<&StateParts>) -> Loaded<Registry> {
    let mut findings = Vec::new();
    let parsed = extensions::parse_with(resources, config.extensions.compatibility);
    let specs = take(parsed.specs, &mut findings);
    let earlier = earlier.map(|earlier| &*earlier.extensions);
    match specs.and_then(|specs| take(Registry::build(specs, earlier), &mut findings)) {
        Some(registry) => Loaded::new(registry, findings),
        None => Loaded::refused(findings),
    }
}

/// Whether the Secrets are the same that the settings of Argo CD may refer to. Those of clusters and
/// repositories change far more often, and nobody signs in by them.
fn same_referable_secrets(old: &Resources, new: &Resources) -> bool {
    fn referable(resources: &Resources) -> impl Iterator<Item = (&String, *const Secret)> {
        let all = resources.secrets.iter();
        let referable = all.filter(|(name, secret)| is_referable(name, secret));
        referable.map(|(name, secret)| (name, Arc::as_ptr(secret)))
    }
    referable(old).eq(referable(new))
}

/// Whether the roles of two states of the projects have the same tokens, which is all of a project that
/// authentication depends on.
fn same_role_tokens(old: &BTreeMap<String, Arc<Project>>, new: &BTreeMap<String, Arc<Project>>) -> bool {
    fn tokens(project: &Project) -> impl Iterator<Item = (&str, &[RoleToken])> {
        project.roles.iter().map(|role| (&*role.name, &*role.tokens))
    }
    let mut pairs = old.iter().zip(new);
    old.len() == new.len()
        && pairs.all(|((a, old), (b, new))| a == b && (Arc::ptr_eq(old, new) || tokens(old).eq(tokens(new))))
}

/// Whether two maps hold the same pointers under the same keys.
pub(super) fn same_pointers<K: Ord, V>(old: &BTreeMap<K, Arc<V>>, new: &BTreeMap<K, Arc<V>>) -> bool {
    let mut pairs = old.iter().zip(new);
    old.len() == new.len() && pairs.all(|((a, old), (b, new))| a == b && Arc::ptr_eq(old, new))
}
