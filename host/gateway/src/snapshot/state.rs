//! The parts of a snapshot that come from objects, rebuilt only where the objects changed.
//!
//! Invariant: a part is reused only if every object it is made of is still the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Snapshot, take};
use crate::extensions::registry::Registry;
use tollgate_config::Config;
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_identity::authenticate::Authenticator;
use tollgate_policy::rbac::{PolicySource, Rbac};
use tollgate_state::source::Source;
use tollgate_state::{Resources, extensions};

/// The parts of a snapshot made from objects, all together or not at all.
#[derive(Clone, Debug)]
pub(super) struct StateParts {
    pub(super) resources: Arc<Resources>,
    pub(super) rbac: Arc<Rbac>,
    pub(super) authenticator: Arc<Authenticator>,
    pub(super) extensions: Arc<Registry>,
}

impl StateParts {
    /// Takes the parts from a snapshot.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Self {
            resources: Arc::clone(&snapshot.policies.resources),
            rbac: Arc::clone(&snapshot.policies.rbac),
            authenticator: Arc::clone(&snapshot.authenticator),
            extensions: Arc::clone(&snapshot.extensions),
        }
    }
}

/// The result of a load.
#[derive(Debug)]
pub(super) enum StateLoad {
    /// It may take effect.
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
    last_good: Mutex<Option<LastGood>>,
}

/// The last good parts with the findings about each.
#[derive(Debug)]
struct LastGood {
    parts: StateParts,
    rbac: Vec<Diagnostic>,
    authenticator: Vec<Diagnostic>,
    extensions: Vec<Diagnostic>,
}

/// Which objects are unchanged since the last good load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one answer for each kind of object")]
struct Unchanged {
    argocd_cm: bool,
    rbac_cm: bool,
    secrets: bool,
    projects: bool,
    extensions: bool,
    clusters: bool,
}

impl StateLoader {
    pub(super) fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            last_good: Mutex::default(),
        }
    }

    /// Loads the objects and makes the parts that depend on them. Blocks.
    pub(super) fn load(
        &self,
        config: &Config,
        (earlier, narrower): (Option<&StateParts>, Option<&StateParts>),
        findings: &mut Vec<Diagnostic>,
    ) -> StateLoad {
        let loaded = take(self.source.load(), findings);
        // A broken watch is reported, and the known objects stay in force.
        findings.extend(self.source.health());
        let mut last_good = self.last_good.lock().unwrap_or_else(PoisonError::into_inner);
        let replacement = narrower.or(earlier);
        let Some(resources) = loaded else {
            let parts = self.source.last_known_good().map(|resources| {
                let known = (last_good.as_ref(), earlier);
                // Only the findings of the load itself are reported.
                make((config, &resources), known, &mut Vec::new()).or_earlier(replacement, resources)
            });
            return StateLoad::Refused(parts.flatten());
        };
        let parts = make((config, &resources), (last_good.as_ref(), earlier), findings);
        match parts.complete(resources) {
            Ok(complete) => StateLoad::Good(last_good.insert(*complete).parts.clone()),
            Err((parts, resources)) => StateLoad::Refused(parts.or_earlier(replacement, resources)),
        }
    }
}

/// The parts made from objects, each with its own result.
struct PartResults {
    rbac: PartResult<Rbac>,
    authenticator: PartResult<Authenticator>,
    extensions: PartResult<Registry>,
}

impl PartResults {
    /// Returns all parts if every one could be made.
    fn complete(self, resources: Arc<Resources>) -> Result<Box<LastGood>, (Self, Arc<Resources>)> {
        let all = (&self.rbac.value, &self.authenticator.value, &self.extensions.value);
        let (Some(rbac), Some(authenticator), Some(extensions)) = all else {
            return Err((self, resources));
        };
        Ok(Box::new(LastGood {
            parts: StateParts {
                resources,
                rbac: Arc::clone(rbac),
                authenticator: Arc::clone(authenticator),
                extensions: Arc::clone(extensions),
            },
            rbac: self.rbac.findings,
            authenticator: self.authenticator.findings,
            extensions: self.extensions.findings,
        }))
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
    (config, resources): (&Config, &Arc<Resources>),
    (last_good, earlier): (Option<&LastGood>, Option<&StateParts>),
    findings: &mut Vec<Diagnostic>,
) -> PartResults {
    let unchanged = last_good.map(|last| Unchanged::of(&last.parts.resources, resources));
    let reusable = |is: fn(&Unchanged) -> bool| last_good.filter(|_| unchanged.as_ref().is_some_and(is));
    let rbac = match reusable(|same| same.argocd_cm && same.rbac_cm && same.projects) {
        Some(last) => PartResult::reused(&last.parts.rbac, &last.rbac),
        None => PartResult::new(rbac(config, resources)),
    };
    let extensions = match reusable(|same| same.argocd_cm && same.secrets && same.extensions && same.clusters) {
        Some(last) => PartResult::reused(&last.parts.extensions, &last.extensions),
        None => PartResult::new(extensions(config, resources, earlier)),
    };
    findings.extend_from_slice(&rbac.findings);
    findings.extend_from_slice(&extensions.findings);
    let compiled = rbac.value.as_ref().or(earlier.map(|earlier| &earlier.rbac));
    let scopes = compiled.map_or(&[][..], |compiled| compiled.scopes());
    let same_scopes = last_good.is_some_and(|last| last.parts.rbac.scopes() == scopes);
    let authenticator = match reusable(|same| same.argocd_cm && same.secrets && same.projects) {
        Some(last) if same_scopes => PartResult::reused(&last.parts.authenticator, &last.authenticator),
        Some(_) | None => {
            let earlier = earlier.map(|earlier| &*earlier.authenticator);
            PartResult::new(Authenticator::build(&config.authentication, resources, scopes, earlier))
        }
    };
    // Without a policy, it is unknown which claims hold groups.
    let authenticator = match (&rbac.value, earlier) {
        (None, None) => PartResult {
            value: None,
            findings: Vec::new(),
        },
        (Some(_), _) | (None, Some(_)) => authenticator,
    };
    findings.extend_from_slice(&authenticator.findings);
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

/// One part, if it could be made, with its findings.
struct PartResult<T> {
    value: Option<Arc<T>>,
    findings: Vec<Diagnostic>,
}

impl<T> PartResult<T> {
    fn new(loaded: Loaded<T>) -> Self {
        Self {
            value: loaded.value.map(Arc::new),
            findings: loaded.diagnostics,
        }
    }

    fn reused(value: &Arc<T>, findings: &[Diagnostic]) -> Self {
        Self {
            value: Some(Arc::clone(value)),
            findings: findings.to_vec(),
        }
    }
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

impl Unchanged {
    fn of(old: &Resources, new: &Resources) -> Self {
        Self {
            argocd_cm: old.argocd_cm == new.argocd_cm,
            rbac_cm: old.rbac_cm == new.rbac_cm,
            secrets: same_pointers(&old.secrets, &new.secrets),
            projects: same_pointers(&old.projects, &new.projects),
            extensions: same_pointers(&old.extensions, &new.extensions),
            clusters: old.clusters == new.clusters,
        }
    }
}

/// Whether two maps hold the same pointers under the same keys.
pub(super) fn same_pointers<K: Ord, V>(old: &BTreeMap<K, Arc<V>>, new: &BTreeMap<K, Arc<V>>) -> bool {
    let mut pairs = old.iter().zip(new);
    old.len() == new.len() && pairs.all(|((a, old), (b, new))| a == b && Arc::ptr_eq(old, new))
}
