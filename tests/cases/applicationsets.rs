//! Runs the cases of `applicationsets.yaml` and `applicationsets_derived.yaml`. Requests go through
//! a whole gateway; templates and validation are called directly.

use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_applicationset::template::{ApplicationTemplate, CompiledTemplate};
use tollgate_applicationset::{ApplicationSet, GenerationBudget, Params, TemplateEngine};
use tollgate_applicationset_rights::generated_errors;
use tollgate_config::GenerationLimits;
use tollgate_objects::{Cluster, Project, Resources};

use crate::suite::{Case, Suite, Table, same};

mod behavior;
mod cluster;
mod request;
mod scenario;

/// Kinds of the ApplicationSet tables.
pub(crate) struct ApplicationSets;

impl Suite for ApplicationSets {
    fn covers(&self, table: &Table, kind: &str) -> bool {
        match kind {
            "request" => table.subject == "Argo CD ApplicationSet API",
            kind => matches!(
                kind,
                "applicationset"
                    | "rbac_object_name"
                    | "unknown_generators"
                    | "generated_application_validation"
                    | "generator_template_merge"
                    | "template_patch_invalid"
                    | "render_fasttemplate"
            ),
        }
    }

    fn run(&self, table: &Table, case: &Case) -> Result<(), String> {
        match case.kind.as_str() {
            "request" => whole_gateway(request::run(table, case.read()?)),
            "applicationset" => whole_gateway(behavior::run(case.read()?, case.is_own)),
            "rbac_object_name" => whole_gateway(request::object_name(case.read()?)),
            "unknown_generators" => unknown_generators(&case.read()?),
            "generated_application_validation" => validation(&case.read()?),
            "generator_template_merge" => template_merge(&case.read()?),
            "template_patch_invalid" => template_patch(&case.read()?),
            "render_fasttemplate" => render(&case.read()?),
            other => Err(format!("no handler for `{other}`")),
        }
    }
}

fn whole_gateway(run: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    runtime.block_on(run)
}

/// A set with this spec, merged into a minimal valid one.
fn set(name: &str, namespace: &str, spec: Value) -> Result<ApplicationSet, String> {
    let mut whole = json!({"generators": [], "template": {"metadata": {}, "spec": {}}});
    scenario::merge(&mut whole, spec);
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": whole,
    });
    ApplicationSet::read(object).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unknown {
    applicationset: Decoded,
    expected_error_equals: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decoded {
    name: String,
    decoded_generators: Vec<Value>,
    #[serde(default)]
    last_applied_generators: Option<Vec<Value>>,
}

/// `unknown_generators`: the error for an entry without a known key.
fn unknown_generators(case: &Unknown) -> Result<(), String> {
    let Decoded {
        name,
        decoded_generators,
        last_applied_generators,
    } = &case.applicationset;
    let mut metadata = json!({"name": name, "namespace": "argocd"});
    if let Some(generators) = last_applied_generators {
        let applied = json!({"spec": {"generators": generators}}).to_string();
        metadata["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
    }
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": metadata,
        "spec": {"generators": decoded_generators, "template": {"metadata": {}, "spec": {}}},
    });
    match ApplicationSet::read(object) {
        Err(error) => same(&case.expected_error_equals, &error.to_string()),
        Ok(_) => Err("the set was accepted".to_owned()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Validation {
    existing_projects: Vec<String>,
    existing_clusters: Vec<String>,
    application: Generated,
    expected_error: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Generated {
    name: String,
    project: String,
    destination: Value,
}

/// `generated_application_validation`: the error for a generated Application.
fn validation(case: &Validation) -> Result<(), String> {
    let mut resources = Resources {
        control_plane_namespace: "argocd".to_owned(),
        ..Resources::default()
    };
    for name in &case.existing_projects {
        let project = Project {
            name: name.clone(),
            ..Project::default()
        };
        resources.projects.insert(name.clone(), project.into());
    }
    let cluster = |name: &String| Cluster {
        name: name.clone(),
        server: format!("https://{name}.example.com"),
        project: String::new(),
    };
    resources.clusters = case.existing_clusters.iter().map(cluster).collect();
    let Generated {
        name,
        project,
        destination,
    } = &case.application;
    let application = json!({
        "metadata": {"name": name, "namespace": "argocd"},
        "spec": {"project": project, "destination": destination},
    });
    let found = generated_errors("", &resources, &[application]);
    let first = found.into_iter().next().flatten();
    same(&case.expected_error, &first)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Merge {
    applicationset_namespace: String,
    spec_template: Value,
    generator_template: Value,
    expected_merged: Value,
}

/// `generator_template_merge`: an Application rendered from both templates.
fn template_merge(case: &Merge) -> Result<(), String> {
    let namespace = &case.applicationset_namespace;
    let set = set("set", namespace, json!({"template": case.spec_template}))?;
    let template = ApplicationTemplate::new(&set.spec, Some(&case.generator_template), namespace);
    let template = template.map_err(|error| error.to_string())?;
    let made = template.render(&Params::new(), &GenerationBudget::new(GenerationLimits::default()));
    let made = made.map_err(|error| error.to_string())?;
    for (part, wanted) in case.expected_merged.as_object().into_iter().flatten() {
        for (field, wanted) in wanted.as_object().into_iter().flatten() {
            same(
                &(field, Some(wanted)),
                &(field, made.pointer(&format!("/{part}/{field}"))),
            )?;
        }
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    template_patch: String,
    expected: Wanted,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    ok: bool,
}

/// `template_patch_invalid`: whether a patch can be applied to an Application.
fn template_patch(case: &Patch) -> Result<(), String> {
    let name = json!({"metadata": {"name": "app"}, "spec": {"project": "default"}});
    let set = set(
        "set",
        "argocd",
        json!({"template": name, "templatePatch": case.template_patch}),
    );
    let made = set.and_then(|set| {
        let template = ApplicationTemplate::new(&set.spec, None, "argocd").map_err(|error| error.to_string())?;
        let params = Params::from_iter([("one".to_owned(), json!("two"))]);
        let made = template.render(&params, &GenerationBudget::new(GenerationLimits::default()));
        made.map_err(|error| error.to_string())
    });
    match (case.expected.ok, made) {
        (true, Ok(_)) | (false, Err(_)) => Ok(()),
        (wanted, made) => Err(format!("expected ok: {wanted}, observed {made:?}")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Render {
    fields: Vec<String>,
    value: String,
    params: Params,
    expected: String,
}

/// `render_fasttemplate`: the rendered text, in each of the fields.
fn render(case: &Render) -> Result<(), String> {
    let mut spec = json!({});
    let path = |field: &str| format!("/{}", field.replace('.', "/"));
    for field in &case.fields {
        let leaf = field
            .rsplit('.')
            .fold(json!(case.value), |inner, part| json!({part: inner}));
        scenario::merge(&mut spec, leaf);
    }
    let compiled = CompiledTemplate::value(TemplateEngine::FastTemplate, &spec).map_err(|error| error.to_string())?;
    let made = compiled.render(&case.params, &GenerationBudget::new(GenerationLimits::default()));
    let made = made.map_err(|error| error.to_string())?;
    for field in &case.fields {
        same(
            &(field, Some(&json!(case.expected))),
            &(field, made.pointer(&path(field))),
        )?;
    }
    Ok(())
}
