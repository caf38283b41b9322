//! Decodes an ApplicationSet from JSON into [`ApplicationSet`], or reports what is wrong with it
//! and where.
//!
//! Invariant: a generator of an unknown kind is an error; it is never silently dropped.

use serde_json::{Map, Value};

use super::{
    ApplicationSet, ApplicationsSync, Generator, MissingKey, PreservedFields, Spec, SyncPolicy, TemplateEngine,
};
use crate::keys;
use tollgate_objects::ObjectName;

pub(super) mod entry;
pub(super) mod fields;
pub(super) mod settings;
#[cfg(test)]
mod tests;
mod unrecognized;

use entry::NestingLevel;
use fields::{flag, list, member, section, text, text_map, texts};

/// Why an object is not a valid ApplicationSet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A value has the wrong type.
    #[error("`{path}` is {observed}, expected {wanted}")]
    Type {
        /// Its path, from the root of the object.
        path: String,
        /// The type found.
        observed: &'static str,
        /// The type required.
        wanted: &'static str,
    },
    /// A value is not one of the allowed ones.
    #[error("`{path}` is `{observed}`, expected one of {allowed}")]
    Value {
        /// Its path.
        path: String,
        /// The value found.
        observed: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A key could be taken for another field.
    #[error(transparent)]
    Key(#[from] keys::Error),
    /// Entries of `generators` have no known kind. The message is Argo CD's, even if the names
    /// cannot be found.
    #[error("ApplicationSet {set} contains unrecognized generators{}", listed(names))]
    Unrecognized {
        /// The set's name.
        set: String,
        /// Their kinds, sorted, from the entries or from the annotation
        /// `kubectl.kubernetes.io/last-applied-configuration`.
        names: Vec<String>,
    },
}

fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!(": {}", names.join(", ")),
    }
}

impl ApplicationSet {
    /// Decodes an ApplicationSet that a client wants to store.
    ///
    /// - `object`: with `metadata` and `spec`; fields that generators and templates do not use are
    ///   kept in [`Self::object`].
    ///
    /// # Errors
    /// The first [`Error`] found. Names, namespaces and projects are not checked here. Neither is
    /// the number of children, which Argo CD's API accepts and [`super::generate()`] refuses.
    pub fn read(object: Value) -> Result<Self, Error> {
        let set = Self::read_stored(object)?;
        keys::check_application_set(&set.object)?;
        let unrecognized = unrecognized::positions(&set);
        if unrecognized.is_empty() {
            return Ok(set);
        }
        Err(Error::Unrecognized {
            names: unrecognized::names(&set, &unrecognized),
            set: set.name.name,
        })
    }

    /// Decodes a stored ApplicationSet. An entry of `generators` of no known kind has no
    /// [`Generator::kinds`]; such a set can still be shown and deleted.
    ///
    /// # Errors
    /// As [`Self::read`], without [`Error::Key`] and [`Error::Unrecognized`].
    pub fn read_stored(object: Value) -> Result<Self, Error> {
        let root = fields::object(&object, "")?;
        let metadata = section(root, "metadata", "metadata")?;
        let spec = section(root, "spec", "spec")?;
        text(metadata, "uid", "metadata")?;
        text_map(metadata, "labels", "metadata")?;
        text_map(metadata, "annotations", "metadata")?;
        Ok(Self {
            name: ObjectName {
                namespace: text(metadata, "namespace", "metadata")?.to_owned(),
                name: text(metadata, "name", "metadata")?.to_owned(),
            },
            spec: read_spec(spec)?,
            object,
        })
    }
}

fn read_spec(spec: &Map<String, Value>) -> Result<Spec, Error> {
    let mut generators = Vec::new();
    for (index, raw) in list(spec, "generators", "spec")?.iter().enumerate() {
        let raw = entry::checked(raw, NestingLevel::Top, &format!("spec.generators[{index}]"))?;
        generators.push(Generator { raw });
    }
    let template_patch = member(spec, "templatePatch").map(|_| text(spec, "templatePatch", "spec"));
    Ok(Spec {
        generators,
        template: Value::Object(section(spec, "template", "spec.template")?.clone()),
        template_patch: template_patch.transpose()?.map(str::to_owned),
        engine: engine(spec)?,
        sync_policy: sync_policy(spec)?,
        preserved_fields: preserved_fields(spec)?,
    })
}

fn wrong_value(path: String, observed: &str, allowed: &'static str) -> Error {
    Error::Value {
        path,
        observed: observed.to_owned(),
        allowed,
    }
}

/// Options have no effect without Go templates.
fn engine(spec: &Map<String, Value>) -> Result<TemplateEngine, Error> {
    // Read before `goTemplate`, so that a wrong type is an error in both modes.
    let options = texts(spec, "goTemplateOptions", "spec")?;
    if !flag(spec, "goTemplate", "spec")? {
        return Ok(TemplateEngine::FastTemplate);
    }
    let mut missing_key = MissingKey::default();
    let allowed = "`missingkey=default`, `missingkey=invalid`, `missingkey=zero`, `missingkey=error`";
    for (index, option) in options.into_iter().enumerate() {
        missing_key = match option {
            "missingkey=default" | "missingkey=invalid" => MissingKey::Default,
            "missingkey=zero" => MissingKey::Zero,
            "missingkey=error" => MissingKey::Error,
            other => return Err(wrong_value(format!("spec.goTemplateOptions[{index}]"), other, allowed)),
        };
    }
    Ok(TemplateEngine::GoTemplate { missing_key })
}

fn sync_policy(spec: &Map<String, Value>) -> Result<SyncPolicy, Error> {
    let path = "spec.syncPolicy";
    let policy = section(spec, "syncPolicy", path)?;
    let applications = match text(policy, "applicationsSync", path)? {
        "" | "sync" => ApplicationsSync::Sync,
        "create-only" => ApplicationsSync::CreateOnly,
        "create-update" => ApplicationsSync::CreateUpdate,
        "create-delete" => ApplicationsSync::CreateDelete,
        other => {
            let allowed = "`sync`, `create-only`, `create-update`, `create-delete`";
            return Err(wrong_value(format!("{path}.applicationsSync"), other, allowed));
        }
    };
    Ok(SyncPolicy {
        applications,
        preserve_resources: flag(policy, "preserveResourcesOnDeletion", path)?,
    })
}

fn preserved_fields(spec: &Map<String, Value>) -> Result<PreservedFields, Error> {
    let path = "spec.preservedFields";
    let preserved = section(spec, "preservedFields", path)?;
    let owned = |key: &str| -> Result<Vec<String>, Error> {
        Ok(texts(preserved, key, path)?.into_iter().map(str::to_owned).collect())
    };
    Ok(PreservedFields {
        annotations: owned("annotations")?,
        labels: owned("labels")?,
    })
}
