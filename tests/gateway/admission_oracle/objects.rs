//! The objects of the model: how they look, what they claim, and what they generate.

use serde_json::{Value, json};

use test_support::world::merge;

pub(super) const NAMESPACE: &str = "argocd";
pub(super) const IN_CLUSTER: &str = "https://kubernetes.default.svc";
pub(super) const PROD: &str = "https://prod.example";
const TRACKING_ID: &str = "argocd.argoproj.io/tracking-id";
const INSTANCE: &str = "app.kubernetes.io/instance";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Application,
    ApplicationSet,
    AppProject,
}

impl Kind {
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Application => "applications",
            Self::ApplicationSet => "applicationsets",
            Self::AppProject => "appprojects",
        }
    }

    pub(super) fn plural_in_rbac(self) -> &'static str {
        match self {
            Self::AppProject => "projects",
            other => other.plural(),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Application => "Application",
            Self::ApplicationSet => "ApplicationSet",
            Self::AppProject => "AppProject",
        }
    }
}

pub(super) fn object(kind: Kind, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": kind.name(),
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    })
}

pub(super) fn application(name: &str, project: &str, server: &str) -> Value {
    object(Kind::Application, name, &application_spec(project, server))
}

fn application_spec(project: &str, server: &str) -> Value {
    json!({
        "project": project,
        "source": {"repoURL": "https://git.invalid/apps", "path": ".", "targetRevision": "main"},
        "destination": {"server": server, "namespace": NAMESPACE},
        "syncPolicy": {"automated": {}},
    })
}

/// A project; Applications of `platform` and `shop` deploy as service accounts.
pub(super) fn project(name: &str) -> Value {
    let account =
        |server: &str, account: &str| json!({"server": server, "namespace": "*", "defaultServiceAccount": account});
    let accounts = match name {
        "platform" => vec![account(IN_CLUSTER, "argocd:root-sync"), account(PROD, "team:deployer")],
        "shop" => vec![account(IN_CLUSTER, "argocd:shop-sync")],
        _ => Vec::new(),
    };
    let spec = json!({
        "sourceRepos": ["*"],
        "destinations": [{"server": "*", "namespace": "*"}],
        "destinationServiceAccounts": accounts,
        "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
    });
    object(Kind::AppProject, name, &spec)
}

/// How the specification of a set looks. Each generates `<name of the set>-one`, unless it says
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetSpec {
    /// In this project.
    Literal(&'static str),
    /// In this project, by a parameter.
    Templated(&'static str),
    /// In `shop`, with a revision that differs.
    Revised,
    /// Nothing.
    Empty,
    /// `shop` in the template, and this project in the template of the generator.
    Overridden(&'static str),
    /// `shop` in the template, and this project in the `templatePatch`.
    Patched(&'static str),
    /// With an operation with manifests in the `templatePatch`.
    Operation,
    /// With an annotation and a label that track the Applications for this one.
    Claim(&'static str),
    /// With an annotation that stops reconciliation.
    Skip,
    /// With an Application of this name.
    Named(&'static str),
}

pub(super) fn set_spec(set: &str, wanted: SetSpec) -> Value {
    let mut project = "shop";
    let mut element = json!({"name": format!("{set}-one")});
    let mut metadata = json!({"name": "{{.name}}"});
    let mut template_patch = None;
    let mut generator_template = None;
    let mut revision = "main";
    match wanted {
        SetSpec::Literal(own) => project = own,
        SetSpec::Templated(own) => {
            project = "{{.project}}";
            element["project"] = json!(own);
        }
        SetSpec::Revised => revision = "v2",
        SetSpec::Empty => element = Value::Null,
        SetSpec::Overridden(own) => generator_template = Some(json!({"metadata": {}, "spec": {"project": own}})),
        SetSpec::Patched(own) => template_patch = Some(json!({"spec": {"project": own}})),
        SetSpec::Operation => {
            template_patch = Some(json!({"operation": {"sync": {"manifests": ["{\"kind\": \"Secret\"}"]}}}));
        }
        SetSpec::Claim(parent) => {
            metadata["annotations"] =
                json!({TRACKING_ID: tracking_id(parent, Kind::Application, &format!("{set}-one"))});
            metadata["labels"] = json!({INSTANCE: parent});
        }
        SetSpec::Skip => metadata["annotations"] = json!({"argocd.argoproj.io/skip-reconcile": "true"}),
        SetSpec::Named(name) => element["name"] = json!(name),
    }
    let mut application = application_spec(project, IN_CLUSTER);
    application["source"]["targetRevision"] = json!(revision);
    let elements: Vec<Value> = Some(element).filter(|element| !element.is_null()).into_iter().collect();
    let mut list = json!({"elements": elements});
    if let Some(template) = generator_template {
        list["template"] = template;
    }
    let mut spec = json!({
        "goTemplate": true,
        "generators": [{"list": list}],
        "template": {"metadata": metadata, "spec": application},
    });
    if let Some(patch) = template_patch {
        spec["templatePatch"] = json!(patch.to_string());
    }
    spec
}

/// The Applications that Argo CD's controller makes of a set of this model.
pub(super) fn generate(set: &Value) -> Vec<Value> {
    let spec = &set["spec"];
    let generator = &spec["generators"][0]["list"];
    let mut generated = Vec::new();
    for element in generator["elements"].as_array().into_iter().flatten() {
        let mut template = spec["template"].clone();
        if let Some(own) = generator.get("template") {
            merge(&mut template, own);
        }
        let mut text = template.to_string();
        for (key, value) in element.as_object().into_iter().flatten() {
            text = text.replace(&format!("{{{{.{key}}}}}"), value.as_str().unwrap());
        }
        let template: Value = serde_json::from_str(&text).unwrap();
        let mut application = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": template["metadata"], "spec": template["spec"],
        });
        if let Some(patch) = spec["templatePatch"].as_str() {
            merge(&mut application, &serde_json::from_str(patch).unwrap());
        }
        application["metadata"]["namespace"] = json!(NAMESPACE);
        application["metadata"]["ownerReferences"] = json!([owner(set)]);
        generated.push(application);
    }
    generated
}

/// The reference by which an Application belongs to a set.
pub(super) fn owner(set: &Value) -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "name": set["metadata"]["name"], "uid": set["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}

pub(super) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// The project of an Application.
pub(super) fn project_of(application: &Value) -> &str {
    application["spec"]["project"]
        .as_str()
        .filter(|project| !project.is_empty())
        .unwrap_or("default")
}

/// The text of the project in the template of a set.
pub(super) fn template_project(set: &Value) -> &str {
    set["spec"]["template"]["spec"]["project"].as_str().unwrap_or_default()
}

fn tracking_id(parent: &str, kind: Kind, name: &str) -> String {
    format!("{parent}:argoproj.io/{}:{NAMESPACE}/{name}", kind.name())
}

/// The Application that an object says it belongs to.
pub(super) fn claim(by_label: bool, object: &Value) -> Option<&str> {
    match by_label {
        true => object["metadata"]["labels"][INSTANCE].as_str(),
        false => object["metadata"]["annotations"][TRACKING_ID]
            .as_str()?
            .split(':')
            .next(),
    }
}

/// Has an object say that it belongs to an Application.
pub(super) fn set_claim(by_label: bool, object: &mut Value, parent: &str) {
    let kind = match object["kind"].as_str() {
        Some("ApplicationSet") => Kind::ApplicationSet,
        Some("AppProject") => Kind::AppProject,
        _ => Kind::Application,
    };
    let (field, key, value) = match by_label {
        true => ("labels", INSTANCE, parent.to_owned()),
        false => ("annotations", TRACKING_ID, tracking_id(parent, kind, name_of(object))),
    };
    object["metadata"][field][key] = json!(value);
}

/// The uids of the owners of an object.
pub(super) fn owner_uids(object: &Value) -> Vec<&str> {
    let references = object["metadata"]["ownerReferences"].as_array();
    references
        .into_iter()
        .flatten()
        .filter_map(|one| one["uid"].as_str())
        .collect()
}

/// A field as it counts: null and the empty object are absent, except of an operation.
pub(super) fn field<'o>(object: Option<&'o Value>, pointer: &str) -> Option<&'o Value> {
    let found = object?.pointer(pointer).filter(|value| !value.is_null())?;
    let is_empty =
        found.as_object().is_some_and(serde_json::Map::is_empty) || found.as_array().is_some_and(Vec::is_empty);
    (pointer == "/operation" || !is_empty).then_some(found)
}
