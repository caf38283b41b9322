//! Tests of the generators with fake inputs.

#![expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::{Error, parameters};
use crate::inputs::{InputError, Metadata};
use crate::{
    ApplicationSet, ClusterInput, Denial, DeniedResource, GenerationBudget, GeneratorKind, GitTree, InputAuthorizer,
    Inputs, Params, PluginGenerators, Repositories, RepositoryFile,
};
use tollgate_config::GenerationLimits;

mod bounds;
mod clusters;
mod combined;
mod git;
mod guests;
mod list;
mod portable;
mod refused;
mod whole;

/// Inputs for generators: one repository, some clusters, a plugin.
#[derive(Default, Debug)]
struct Fixture {
    clusters: Vec<ClusterInput>,
    files: Vec<(&'static str, &'static str)>,
    plugin_params: Vec<Params>,
    forbidden: Vec<DeniedResource>,
    /// The repositories opened and plugins run, in order.
    accesses: Mutex<Vec<String>>,
    limits: GenerationLimits,
}

impl Fixture {
    fn set(spec: Value) -> ApplicationSet {
        ApplicationSet::read(json!({"metadata": {"name": "s", "namespace": "argocd"}, "spec": spec})).unwrap()
    }

    /// The parameters of all generators of the set, in order.
    fn params(&self, spec: Value) -> Result<Vec<Value>, Error> {
        let inputs = self.inputs();
        let made = parameters(&Self::set(spec).spec, &inputs, &GenerationBudget::new(self.limits))?;
        Ok(made.into_iter().flatten().map(Value::Object).collect())
    }

    /// The parameters of one generator with the engine that replaces `{{ key }}` only.
    fn fast(&self, generator: Value) -> Result<Vec<Value>, Error> {
        self.params(json!({"generators": [generator]}))
    }

    /// The parameters of one generator with Go templates that refuse missing keys.
    fn go(&self, generator: Value) -> Result<Vec<Value>, Error> {
        self.params(json!({"generators": [generator], "goTemplate": true, "goTemplateOptions": ["missingkey=error"]}))
    }

    fn inputs(&self) -> Inputs<'_> {
        Inputs {
            clusters: &self.clusters,
            authorizer: self,
            repositories: self,
            plugin_generators: self,
        }
    }

    fn allows(&self, about: DeniedResource) -> Result<(), Denial> {
        if !self.forbidden.contains(&about) {
            return Ok(());
        }
        Err(Denial {
            about,
            rule: None,
            reason: "is forbidden".to_owned(),
        })
    }

    fn record(&self, access: String) {
        self.accesses.lock().unwrap().push(access);
    }
}

impl InputAuthorizer for Fixture {
    fn check_cluster(&self, cluster: &ClusterInput) -> Result<(), Denial> {
        self.allows(DeniedResource::Cluster(cluster.name.clone()))
    }

    fn check_repository(&self, url: &str) -> Result<(), Denial> {
        self.allows(DeniedResource::Repository(url.to_owned()))
    }

    fn check_plugin(&self, kind: GeneratorKind) -> Result<(), Denial> {
        self.allows(DeniedResource::Generator(kind.into()))
    }
}

impl Repositories for Fixture {
    fn open(&self, url: &str, revision: &str, _: &GenerationBudget) -> Result<Box<dyn GitTree>, InputError> {
        self.record(format!("{url}@{revision}"));
        if url.contains("missing") {
            return Err(InputError(format!("there is no repository `{url}`")));
        }
        let files = self.files.iter().map(|(path, content)| RepositoryFile {
            path: (*path).to_owned(),
            content: content.as_bytes().into(),
        });
        let files: Vec<RepositoryFile> = files.collect();
        Ok(Box::new(Files(RefCell::new(files))))
    }
}

#[derive(Debug)]
struct Files(RefCell<Vec<RepositoryFile>>);

impl GitTree for Files {
    fn directories(&self, _: &GenerationBudget) -> Result<Vec<String>, InputError> {
        let mut found = std::collections::BTreeSet::new();
        for file in self.0.borrow().iter() {
            let parts: Vec<&str> = file.path.split('/').collect();
            for depth in 1..parts.len() {
                found.insert(parts[..depth].join("/"));
            }
        }
        Ok(found.into_iter().collect())
    }

    /// The directories with a file of this name.
    fn submodules(&self, _: &GenerationBudget) -> Result<Vec<String>, InputError> {
        let files = self.0.borrow();
        let parents = files.iter().filter_map(|file| file.path.strip_suffix("/SUBMODULE"));
        Ok(parents.map(str::to_owned).collect())
    }

    fn files(&self, matches: &dyn Fn(&str) -> bool, _: &GenerationBudget) -> Result<Vec<RepositoryFile>, InputError> {
        let files = self.0.borrow();
        let mut found: Vec<RepositoryFile> = files.iter().filter(|file| matches(&file.path)).cloned().collect();
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }
}

impl PluginGenerators for Fixture {
    fn generate(&self, kind: GeneratorKind, _: &Value, _: &GenerationBudget) -> Result<Vec<Params>, InputError> {
        self.record(kind.as_ref().to_owned());
        if self.plugin_params.is_empty() {
            return Err(InputError(format!("no plugin provides `{}`", kind.as_ref())));
        }
        Ok(self.plugin_params.clone())
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    pairs.collect()
}

fn cluster(name: &str, labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> ClusterInput {
    let mut labels = map(labels);
    labels.insert("argocd.argoproj.io/secret-type".to_owned(), "cluster".to_owned());
    ClusterInput {
        name: name.to_owned(),
        server: format!("https://{}.example", name.to_lowercase()),
        project: String::new(),
        secret: Some(Metadata {
            labels,
            annotations: map(annotations),
        }),
    }
}

fn own_cluster() -> ClusterInput {
    ClusterInput {
        name: "in-cluster".to_owned(),
        server: "https://kubernetes.default.svc".to_owned(),
        project: String::new(),
        secret: None,
    }
}

fn list(elements: Value) -> Value {
    json!({"list": {"elements": elements}})
}

fn matrix(children: Value) -> Value {
    json!({"matrix": {"generators": children}})
}

fn merge(keys: Value, children: Value) -> Value {
    json!({"merge": {"mergeKeys": keys, "generators": children}})
}
