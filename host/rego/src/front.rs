//! The fronts that bundles decide for.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// A front that a bundle decides for.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::AsRefStr,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Front {
    /// Requests to proxy extensions.
    Extensions,
    /// Requests to clusters below `/k8s-proxy/`.
    Kubernetes,
    /// Requests to clusters in the name of an Application.
    Applications,
    /// ApplicationSets, what they read and what they generate.
    ApplicationSets,
    /// Calls of Argo CD's own API.
    Argocd,
    /// Requests of Argo CD's own components to clusters.
    ControlPlane,
}

impl Front {
    /// Path of the rule that decides.
    pub(crate) fn entry_point(self) -> String {
        format!("data.tollgate.{}.decision", self.as_ref())
    }

    /// JSON Schema of the input.
    pub fn input_schema(self) -> &'static Json {
        schema(self)
    }
}

/// JSON Schema (2020-12) of the input of a front.
fn schema(front: Front) -> &'static Json {
    // If a file in the repository is broken, `false` refuses every input, and the tests fail.
    fn parse(text: &str) -> Json {
        serde_json::from_str(text).unwrap_or(Json::Bool(false))
    }
    static EXTENSIONS: LazyLock<Json> = LazyLock::new(|| parse(include_str!("input/extensions.schema.json")));
    static KUBERNETES: LazyLock<Json> = LazyLock::new(|| parse(include_str!("input/kubernetes.schema.json")));
    static APPLICATIONS: LazyLock<Json> = LazyLock::new(|| parse(include_str!("input/applications.schema.json")));
    static SETS: LazyLock<Json> = LazyLock::new(|| parse(include_str!("input/applicationsets.schema.json")));
    static CONTROL_PLANE: LazyLock<Json> = LazyLock::new(|| parse(include_str!("input/controlplane.schema.json")));
    static ARGOCD: LazyLock<Json> = LazyLock::new(|| parse(include_str!("input/argocd.schema.json")));
    match front {
        Front::Extensions => &EXTENSIONS,
        Front::Kubernetes => &KUBERNETES,
        Front::Applications => &APPLICATIONS,
        Front::ApplicationSets => &SETS,
        Front::Argocd => &ARGOCD,
        Front::ControlPlane => &CONTROL_PLANE,
    }
}
