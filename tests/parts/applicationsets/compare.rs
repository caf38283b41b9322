//! One set, both ways.
//!
//! In: an ApplicationSet, clusters, repositories. Out: how the outcomes differ, if
//! they do. Never: a difference forgiven other than orders Argo CD does not have.

use serde_json::{Value, json};
use tollgate_applicationset::generate::generate;
use tollgate_applicationset::inputs::{InputError, Metadata};
use tollgate_applicationset::{
    ApplicationSet, ClusterInput, Denial, GenerationBudget, GeneratorKind, InputAuthorizer, Inputs, Params,
    PluginGenerators,
};
use tollgate_config::GenerationLimits;

use crate::applicationsets::repositories::Local;
use test_support::judge::Judge;

/// How often Argo CD generates a set whose order it leaves to chance.
const ATTEMPTS: u32 = 60;

/// What both sides read, and the judge.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) judge: Judge,
    pub(crate) repositories: Local,
    pub(crate) clusters: Vec<ClusterInput>,
}

/// The caller may read everything.
#[derive(Debug)]
struct Open;

impl InputAuthorizer for Open {
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

/// No generator is a plugin's.
#[derive(Debug)]
struct Nobody;

impl PluginGenerators for Nobody {
    fn generate(&self, kind: GeneratorKind, _: &Value, _: &GenerationBudget) -> Result<Vec<Params>, InputError> {
        Err(InputError(format!("no plugin provides `{}`", kind.as_ref())))
    }
}

/// What became of one set that both sides agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agreed {
    /// So many Applications.
    Applications(usize),
    /// An error.
    Error,
}

impl World {
    /// Both sides' outcome, when it is one.
    ///
    /// # Errors
    /// How they differ.
    pub(crate) fn compare(&self, set: &Value) -> Result<Agreed, String> {
        let (ours, mut theirs) = match (self.ours(set), self.theirs(set, 1)) {
            (Ok(ours), Ok(theirs)) => (ours, theirs),
            (Err(_), Err(_)) => return Ok(Agreed::Error),
            // It crashes where maps of two types meet (a list's `values` and another
            // generator's): that is no outcome to have.
            (Ok(_), Err(theirs)) if theirs.starts_with("panic: ") => return Ok(Agreed::Error),
            (Ok(ours), Err(theirs)) => return Err(format!("Argo CD says {theirs}, we make {}", show(&ours))),
            (Err(ours), Ok(theirs)) => return Err(format!("we say {ours}, Argo CD makes {}", show(&theirs[0]))),
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
            authorizer: &Open,
            repositories: &self.repositories,
            plugin_generators: &Nobody,
        };
        generate(&set, &inputs, &GenerationBudget::new(GenerationLimits::default())).map_err(|error| error.to_string())
    }

    /// Every outcome that Argo CD had at least once; sorted when it has no order.
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

/// Where the control plane is, for both.
fn in_namespace(set: &Value) -> Value {
    let mut set = set.clone();
    set["metadata"]["namespace"] = json!("argocd");
    set
}

/// Whether Argo CD has an order for it: it walks clusters and what is merged as maps.
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
