//! ApplicationSets: decodes them, generates their Applications and plans what that would change.
//!
//! Invariant: all work is bounded by a budget.
//!
//! Security: this crate makes no decision about a caller; the gateway does.

use serde_json::Value;

use strum::VariantArray;
use tollgate_objects::ObjectName;

pub mod budget;
pub mod decode;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod generate;
mod heap_size;
pub mod inputs;
mod json;
mod keys;
mod message;
pub mod patch;
pub mod plan;
pub mod schema;
pub mod selector;
pub mod template;
mod transient_annotations;
pub mod yaml;

pub use budget::{Exceeded, GenerationBudget};
pub use generate::generate;
pub use inputs::{
    ClusterInput, Denial, DeniedResource, GitTree, InputAuthorizer, InputError, Inputs, PluginGenerators, Repositories,
    RepositoryFile,
};
pub use plan::Plan;
pub use tollgate_objects::GeneratorKind;

/// One set of parameters, made by a generator.
pub type Params = serde_json::Map<String, Value>;

/// A decoded ApplicationSet.
#[derive(Clone, Debug)]
pub struct ApplicationSet {
    /// Its namespace and name.
    pub name: ObjectName,
    /// `spec`.
    pub spec: Spec,
    /// The whole object as it was sent or stored, without loss.
    pub object: Value,
}

/// The `spec` of an ApplicationSet.
#[derive(Clone, Debug)]
pub struct Spec {
    /// `generators`, in order.
    pub generators: Vec<Generator>,
    /// `template`: `metadata` and `spec` of the Applications.
    pub template: Value,
    /// `templatePatch`, applied to the rendered template.
    pub template_patch: Option<String>,
    /// `goTemplate` and `goTemplateOptions`.
    pub engine: TemplateEngine,
    /// `syncPolicy`.
    pub sync_policy: SyncPolicy,
    /// `preservedFields`: keys of the Applications' annotations and labels that are
    /// kept as they are.
    pub preserved_fields: PreservedFields,
}

/// An entry of `generators`.
#[derive(Clone, Debug)]
pub struct Generator {
    /// The entry without unknown keys, with `{{…}}` as written.
    pub raw: Value,
}

impl Generator {
    /// The kinds with their settings (`{"elements": […]}`), in the order of
    /// [`GeneratorKind`]. Argo CD runs all of them; usually there is one.
    pub fn kinds(&self) -> impl Iterator<Item = (GeneratorKind, &Value)> {
        let all = GeneratorKind::VARIANTS.iter().copied();
        all.filter_map(|kind| Some((kind, self.raw.get(kind.as_ref())?)))
    }
}

/// How `{{…}}` is interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateEngine {
    /// `{{ key }}` only; a tag with an unknown key stays as it is.
    FastTemplate,
    /// Go's `text/template` with the functions Argo CD allows.
    GoTemplate {
        /// The effect of a missing key.
        missing_key: MissingKey,
    },
}

/// `missingkey=` of `goTemplateOptions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// `default` or `invalid`: `<no value>`.
    #[default]
    Default,
    /// `zero`.
    Zero,
    /// `error`.
    Error,
}

/// `spec.syncPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncPolicy {
    /// `applicationsSync`.
    pub applications: ApplicationsSync,
    /// `preserveResourcesOnDeletion`: Applications get no cascade finalizer.
    pub preserve_resources: bool,
}

/// What may be done to the Applications of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplicationsSync {
    /// `sync`: created, updated and deleted.
    #[default]
    Sync,
    /// `create-only`: created.
    CreateOnly,
    /// `create-update`: created and updated.
    CreateUpdate,
    /// `create-delete`: created and deleted.
    CreateDelete,
}

/// `spec.preservedFields`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreservedFields {
    /// `annotations`.
    pub annotations: Vec<String>,
    /// `labels`.
    pub labels: Vec<String>,
}
