//! Tells which Application an object belongs to, from the tracking metadata that Argo CD writes on
//! what it applies.
//!
//! Security: what the cluster has stored proves who applied it. What a request carries is a claim of
//! its sender.
//!
//! Source: Argo CD, `util/argo/resource_tracking.go` and `isSelfReferencedObj` of
//! `controller/state.go`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use tollgate_objects::{ConfigMap, ObjectName};

/// Annotation with the Application and the object itself: `app:group/Kind:namespace/name`.
const TRACKING_ID: &str = "argocd.argoproj.io/tracking-id";
/// Annotation with the Argo CD installation that applied the object.
const INSTALLATION_ID: &str = "argocd.argoproj.io/installation-id";
/// Default label of the tracking method `label`; `argocd-cm` can name another.
const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// How Argo CD marks the objects of its Applications.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tracking {
    method: Method,
    /// ID of this installation; empty when it has none.
    installation_id: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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

/// What an object is tracked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackedBy<'m> {
    /// The Application with this instance name, of this installation of Argo CD.
    Instance(&'m str),
    /// Another installation of Argo CD, or an annotation that cannot be read.
    Unknown,
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
        self.tracked_by(object, live) == Some(TrackedBy::Instance(instance))
    }

    /// What a live object is tracked by. `None` if nothing tracks it, or if its annotation names
    /// another object.
    pub fn tracked_by<'m>(&self, object: ResourceKey<'_>, live: &'m ObjectMeta) -> Option<TrackedBy<'m>> {
        let tracked = self.claim(live)?;
        let names_object = |id| TrackingId::parse(id).is_some_and(|id| id.names(object));
        match &self.method {
            Method::Label(_) => Some(tracked),
            Method::Annotation => annotation(live, TRACKING_ID)
                .is_some_and(names_object)
                .then_some(tracked),
        }
    }

    /// The label that tracks. `None` if an annotation does.
    pub fn label(&self) -> Option<&str> {
        match &self.method {
            Method::Label(key) => Some(key),
            Method::Annotation => None,
        }
    }

    /// What an object says that it is tracked by, whichever object its annotation names. `None` if
    /// it says nothing.
    pub fn claim<'m>(&self, metadata: &'m ObjectMeta) -> Option<TrackedBy<'m>> {
        let text = match &self.method {
            Method::Label(key) => metadata.labels.as_ref()?.get(key)?,
            Method::Annotation => annotation(metadata, TRACKING_ID)?,
        };
        let instance = match &self.method {
            Method::Label(_) => Some(text),
            Method::Annotation => {
                let installation = annotation(metadata, INSTALLATION_ID).unwrap_or_default();
                let id = TrackingId::parse(text).filter(|_| installation == self.installation_id);
                id.map(|id| id.instance)
            }
        };
        (!text.is_empty()).then(|| instance.map_or(TrackedBy::Unknown, TrackedBy::Instance))
    }
}

fn annotation<'m>(metadata: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
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

/// Finds the name of an Application from its instance name. The inverse of [`instance_name`].
///
/// Source: Argo CD, `ParseInstanceName`: names in Kubernetes have no `_`.
pub(super) fn application_of<'n>(instance: &'n str, control_plane_namespace: &'n str) -> (&'n str, &'n str) {
    instance.split_once('_').unwrap_or((control_plane_namespace, instance))
}

/// The value of the annotation.
#[derive(Clone, Copy, Debug)]
struct TrackingId<'t> {
    instance: &'t str,
    group: &'t str,
    kind: &'t str,
    namespace: &'t str,
    name: &'t str,
}

impl<'t> TrackingId<'t> {
    fn parse(text: &'t str) -> Option<Self> {
        let (instance, rest) = text.split_once(':')?;
        let (group_kind, namespace_name) = rest.split_once(':')?;
        let (group, kind) = group_kind.split_once('/')?;
        let (namespace, name) = namespace_name.split_once('/')?;
        let id = Self {
            instance,
            group,
            kind,
            namespace,
            name,
        };
        // Argo CD splits both parts at every `/`, and ignores an id in which one is not made of exactly two.
        (!kind.contains('/') && !name.contains('/')).then_some(id)
    }

    fn names(&self, object: ResourceKey<'_>) -> bool {
        // The id of a cluster-scoped object contains the Application's destination namespace.
        let same_namespace = object.namespace.is_none_or(|namespace| namespace == self.namespace);
        same_namespace && (self.group, self.kind, self.name) == (object.group, object.kind, object.name)
    }
}

#[cfg(test)]
mod tests;
