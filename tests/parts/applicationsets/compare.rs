//! Generates one ApplicationSet with our code and with Argo CD's, and compares the Applications.
//! Their order is ignored only where Argo CD defines none.

use serde_json::{Value, json};
use tollgate_applicationset::generate::generate;
use tollgate_applicationset::inputs::{InputError, Metadata};
use tollgate_applicationset::{
    ApplicationSet, ClusterInput, Denial, GenerationBudget, GeneratorKind, InputAuthorizer, Inputs, Params,
    PluginGenerators,
};
use tollgate_config::GenerationLimits;

use crate::applicationsets::repositories::LocalRepositories;
use test_support::judge::Judge;

/// How often Argo CD generates a set whose outcome depends on the random order of a Go map.
const ATTEMPTS: u32 = 60;

/// The judge, and the clusters and repositories that both sides read.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) judge: Judge,
    pub(crate) repositories: LocalRepositories,
    pub(crate) clusters: Vec<ClusterInput>,
}

/// Permits every read.
#[derive(Debug)]
struct AllowAll;

impl InputAuthorizer for AllowAll {
    fn check_cluster(&self, _: &ClusterInput) -> Result<(), Denial> {
        Ok(())
    }

    fn check_repository(&self, _: &str) -> Result<(), Denial> {
        Ok(())
    }

    fn check_plugin(&self, _: GeneratorKind) -> Result<(), Denial> {
        Ok(())
    }
}

/// No plugin provides a generator.
#[derive(Debug)]
struct NoPlugins;

impl PluginGenerators for NoPlugins {
    fn generate(&self, kind: GeneratorKind, _: &Value, _: &GenerationBudget) -> Result<Vec<Params>, InputError> {
        Err(InputError(format!("no plugin provides `{}`", kind.as_ref())))
    }
}

/// An outcome that both sides agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreed {
    /// The same Applications; this is how many.
    Applications(usize),
    /// Both sides fail, or Argo CD crashes.
    Error,
}

impl World {
    /// The outcome that both sides agree on.
    ///
    /// # Errors
    /// A description of how the two outcomes differ.
    pub(crate) fn compare(&self, set: &Value) -> Result<Agreed, String> {
        let (ours, mut theirs) = match (self.ours(set), self.theirs(set, 1)) {
            (Ok(ours), Ok(theirs)) => (ours, theirs),
            (Err(_), Err(_)) => return Ok(Agreed::Error),
            // Argo CD panics if it merges maps of two types (a list's `values` and another
            // generator's). There is no outcome to compare.
            (Ok(_), Err(theirs)) if theirs.starts_with("panic: ") => return Ok(Agreed::Error),
            (Ok(ours), Err(theirs)) => return Err(format!("Argo CD fails: {theirs}; we make {}", show(&ours))),
            (Err(ours), Ok(theirs)) => return Err(format!("we fail: {ours}; Argo CD makes {}", show(&theirs[0]))),
        };
        let mut ours = self.judge.normalize(&ours);
        let ordered = is_ordered(set);
        if !ordered {
            sort(&mut ours);
            if !theirs.contains(&ours) {
                theirs = self.theirs(set, ATTEMPTS)?;
            }
        }
        if theirs.contains(&ours) {
            return Ok(Agreed::Applications(ours.len()));
        }
        let ours = show(&ours);
        Err(format!("we make {ours}, Argo CD makes {}", show(&theirs[0])))
    }

    fn ours(&self, set: &Value) -> Result<Vec<Value>, String> {
        let set = ApplicationSet::read(in_namespace(set)).map_err(|error| error.to_string())?;
        let inputs = Inputs {
            clusters: &self.clusters,
            authorizer: &AllowAll,
            repositories: &self.repositories,
            plugin_generators: &NoPlugins,
        };
        generate(&set, &inputs, &GenerationBudget::new(GenerationLimits::default())).map_err(|error| error.to_string())
    }

    /// The distinct outcomes of Argo CD, sorted if it defines no order.
    fn theirs(&self, set: &Value, attempts: u32) -> Result<Vec<Vec<Value>>, String> {
        let clusters = self.clusters.iter().filter_map(|cluster| {
            let secret: &Metadata = cluster.secret.as_ref()?;
            Some(json!({
                "name": cluster.name, "server": cluster.server, "project": cluster.project,
                "labels": secret.labels, "annotations": secret.annotations,
            }))
        });
        let question = json!({
            "kind": "generate",
            "applicationset": in_namespace(set),
            "clusters": clusters.collect::<Vec<_>>(),
            "repositories": self.repositories.folders(),
            "attempts": attempts,
        });
        let mut answer = self.judge.ask(&question)?;
        let mut outcomes: Vec<Vec<Value>> = serde_json::from_value(answer["outcomes"].take()).unwrap();
        if !is_ordered(set) {
            outcomes.iter_mut().for_each(|outcome| sort(outcome));
        }
        Ok(outcomes)
    }
}

/// The set in the namespace of the control plane, for both sides.
fn in_namespace(set: &Value) -> Value {
    let mut set = set.clone();
    set["metadata"]["namespace"] = json!("argocd");
    set
}

/// Whether Argo CD defines an order for the Applications of the set. It iterates over Go maps for
/// `clusters` and `merge`, so these have none.
fn is_ordered(set: &Value) -> bool {
    fn walk(value: &Value) -> bool {
        match value {
            Value::Object(members) => members
                .iter()
                .all(|(key, value)| key != "clusters" && key != "merge" && walk(value)),
            Value::Array(values) => values.iter().all(walk),
            _ => true,
        }
    }
    walk(&set["spec"]["generators"])
}

fn sort(applications: &mut [Value]) {
    applications.sort_by_cached_key(Value::to_string);
}

fn show(applications: &[Value]) -> String {
    let mut shown = applications.to_vec();
    for application in &mut shown {
        application.as_object_mut().unwrap().remove("status");
    }
    serde_json::to_string_pretty(&shown).unwrap()
}
