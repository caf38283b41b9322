//! Tells which live objects belong to an Application, from the tracking metadata that Argo CD
//! writes on what it applies.
//!
//! Security: only what the cluster has stored is looked at, never what a request carries.
//!
//! Source: Argo CD, `util/argo/resource_tracking.go` and `isSelfReferencedObj` of
//! `controller/state.go`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use tollgate_state::{ConfigMap, ObjectName};

/// Annotation with the Application and the object itself: `app:group/Kind:namespace/name`.
const TRACKING_ID: &str = "argocd.argoproj.io/tracking-id";
/// Annotation with the Argo CD installation that applied the object.
const INSTALLATION_ID: &str = "argocd.argoproj.io/installation-id";
/// Default label of the tracking method `label`; `argocd-cm` can name another.
const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// How Argo CD marks the objects of its Applications.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracking {
    method: Method,
    /// ID of this installation; empty when it has none.
    installation_id: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Method {
    /// By the annotation, with or without a label beside it.
    #[default]
    Annotation,
    /// By this label alone.
    Label(String),
}

/// The kind and the name of an object, as the cluster serves it.
#[derive(Clone, Copy, Debug)]
pub struct ResourceKey<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// None for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// Name.
    pub name: &'a str,
}

impl Tracking {
    /// What `argocd-cm` says. As in Argo CD, an unknown method means the annotation.
    pub(super) fn from_config_map(argocd_cm: &ConfigMap) -> Self {
        let text = |key: &str| {
            let text = argocd_cm.data.get(key).map(|text| &*text.value);
            text.filter(|text| !text.is_empty())
        };
        let method = match text("application.resourceTrackingMethod") {
            Some("label") => {
                let label = text("application.instanceLabelKey").unwrap_or(INSTANCE_LABEL);
                Method::Label(label.to_owned())
            }
            Some(_) | None => Method::Annotation,
        };
        Self {
            method,
            installation_id: text("installationID").unwrap_or_default().to_owned(),
        }
    }

    /// Whether a live object is tracked by the Application with this instance name.
    ///
    /// The annotation must also name the object itself, as controllers copy annotations to the
    /// objects they create. The label cannot be checked in this way.
    pub fn tracks(&self, instance: &str, object: ResourceKey<'_>, live: &ObjectMeta) -> bool {
        let annotation = |key: &str| live.annotations.as_ref()?.get(key).map(String::as_str);
        match &self.method {
            Method::Label(key) => {
                let label = live.labels.as_ref().and_then(|labels| labels.get(key));
                label.is_some_and(|label| label == instance)
            }
            Method::Annotation => {
                let installation = annotation(INSTALLATION_ID).unwrap_or_default();
                let names_object = |id| is_tracking_id_of(id, instance, object);
                installation == self.installation_id && annotation(TRACKING_ID).and_then(names_object) == Some(true)
            }
        }
    }
}

/// The name Argo CD tracks an Application by.
///
/// Source: Argo CD, `Application.InstanceName`.
pub(super) fn instance_name(application: &ObjectName, control_plane_namespace: &str) -> String {
    match application.namespace == control_plane_namespace {
        true => application.name.clone(),
        false => format!("{}_{}", application.namespace, application.name),
    }
}

/// Whether a tracking id names this Application and this object; `None` if it is malformed.
fn is_tracking_id_of(id: &str, instance: &str, object: ResourceKey<'_>) -> Option<bool> {
    let (application, rest) = id.split_once(':')?;
    let (group_kind, namespace_name) = rest.split_once(':')?;
    let (group, kind) = group_kind.split_once('/')?;
    let (namespace, name) = namespace_name.split_once('/')?;
    if kind.contains('/') || name.contains('/') {
        return None;
    }
    // The id of a cluster-scoped object contains the Application's destination namespace.
    let same_namespace = object.namespace.is_none_or(|of_object| of_object == namespace);
    let same_object = (group, kind, name) == (object.group, object.kind, object.name);
    Some(application == instance && same_object && same_namespace)
}

#[cfg(test)]
mod tests;
