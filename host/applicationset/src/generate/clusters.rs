//! The cluster generator: one set of parameters for each cluster whose Secret matches a selector.
//!
//! A selector with label requirements never matches the control plane's own cluster if that has no
//! Secret.
//!
//! Security: clusters that the `InputAuthorizer` denies are left out.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::generator_run::GeneratorRun;
use super::type_ambiguity::TypeAmbiguity;
use super::values::CompiledValues;
use super::{Error, git};
use crate::decode::settings::ClusterSettings;
use crate::selector::{self, Selector};
use crate::transient_annotations::LAST_APPLIED;
use crate::{ClusterInput, Params, TemplateEngine, heap_size};

/// Annotations of Secrets that are internal state of Argo CD or kubectl and not parameters.
const HIDDEN: [&str; 5] = [
    "argocd.argoproj.io/refresh",
    "argocd.argoproj.io/hydrate",
    "argocd.argoproj.io/tracking-id",
    "argocd.argoproj.io/installation-id",
    LAST_APPLIED,
];

/// Label and value of every cluster Secret.
const SECRET_TYPE_LABEL: (&str, &str) = ("argocd.argoproj.io/secret-type", "cluster");

/// The selector of a cluster generator. As upstream, another value for the label that marks
/// cluster Secrets is ignored: every cluster Secret has that label.
pub(super) fn cluster_selector(settings: &ClusterSettings<'_>, path: &str) -> Result<Selector, Error> {
    let Some(selector) = settings.selector else {
        return Ok(Selector::default());
    };
    let mut selector = selector.clone();
    if let Some(value) = selector
        .get_mut("matchLabels")
        .and_then(|labels| labels.get_mut(SECRET_TYPE_LABEL.0))
    {
        *value = Value::String(SECRET_TYPE_LABEL.1.to_owned());
    }
    let read = Selector::read(&selector, selector::AllowedValues::Labels);
    read.map_err(|error| Error::selector(path, &error))
}

/// The clusters that a selector matches, sorted by name, with the control plane's own cluster
/// without a Secret last. Of several Secrets with the same name, the last one is used.
pub(super) fn selected<'c>(selector: &Selector, clusters: &'c [ClusterInput]) -> Vec<&'c ClusterInput> {
    let mut chosen = BTreeMap::new();
    let mut own = Vec::new();
    for cluster in clusters {
        match &cluster.secret {
            Some(secret) if selector.matches(&secret.labels) => {
                chosen.insert(cluster.name.as_str(), cluster);
            }
            None if selector.is_empty() => own.push(cluster),
            Some(_) | None => {}
        }
    }
    chosen.into_values().chain(own).collect()
}

pub(super) fn parameters(run: &GeneratorRun<'_>, settings: &Value, path: &str) -> Result<Vec<Params>, Error> {
    let settings = ClusterSettings::read(settings, path)?;
    let selector = cluster_selector(&settings, path)?;
    let values = CompiledValues::new(run, settings.values, path)?;
    let mut made = Vec::new();
    for cluster in selected(&selector, run.inputs.clusters) {
        // Goes on after a denial: the answer lists all that are denied, and `parameters` fails because of them.
        if !run.record_denial(run.inputs.authorizer.check_cluster(cluster)) {
            continue;
        }
        let mut params = one(run.engine, cluster);
        values.append(run, &mut params)?;
        run.charge(heap_size::of_members(&params))?;
        made.push(params);
    }
    if !settings.is_flat_list {
        return Ok(made);
    }
    // The list is one more set of parameters. Its clusters were charged above.
    run.charge(0)?;
    // A list of maps in Argo CD.
    run.record_type_ambiguity(TypeAmbiguity::Lists, path);
    let all = made.into_iter().map(Value::Object).collect();
    Ok(vec![Params::from_iter([("clusters".to_owned(), Value::Array(all))])])
}

fn one(engine: TemplateEngine, cluster: &ClusterInput) -> Params {
    let mut params = Params::new();
    let mut put = |key: &str, value: &str| params.insert(key.to_owned(), Value::String(value.to_owned()));
    put("name", &cluster.name);
    put("nameNormalized", &git::sanitize_name(&cluster.name));
    put("server", &cluster.server);
    put("project", &cluster.project);
    let Some(secret) = &cluster.secret else {
        return params;
    };
    let annotations = || {
        let all = secret.annotations.iter();
        all.filter(|(key, _)| !HIDDEN.contains(&key.as_str()))
    };
    match engine {
        TemplateEngine::GoTemplate { .. } => {
            let mut metadata = Map::new();
            // As upstream, the mapping is empty if all annotations are hidden.
            if !secret.annotations.is_empty() {
                let annotations: BTreeMap<&String, &String> = annotations().collect();
                metadata.insert("annotations".to_owned(), json!(annotations));
            }
            if !secret.labels.is_empty() {
                metadata.insert("labels".to_owned(), json!(secret.labels));
            }
            params.insert("metadata".to_owned(), Value::Object(metadata));
        }
        TemplateEngine::FastTemplate => {
            for (key, value) in annotations() {
                params.insert(format!("metadata.annotations.{key}"), Value::String(value.clone()));
            }
            for (key, value) in &secret.labels {
                params.insert(format!("metadata.labels.{key}"), Value::String(value.clone()));
            }
        }
    }
    params
}
