//! Borrowed, typed views of the settings of each generator kind.
//!
//! Invariant: a value of the wrong type is an error, never replaced by a default.

use serde_json::Value;

use super::Error;
use super::fields::{flag, list, member, object, section, text, text_map, texts};
use crate::GeneratorKind;

#[derive(Debug)]
pub(crate) struct ListSettings<'v> {
    pub(crate) elements: &'v [Value],
    pub(crate) elements_yaml: &'v str,
}

impl<'v> ListSettings<'v> {
    pub(crate) fn read(settings: &'v Value, path: &str) -> Result<Self, Error> {
        let settings = object(settings, path)?;
        Ok(Self {
            elements: list(settings, "elements", path)?,
            elements_yaml: text(settings, "elementsYaml", path)?,
        })
    }
}

/// The keys and templates of `values`.
pub(crate) type ValueTemplates<'v> = Vec<(&'v str, &'v str)>;

#[derive(Debug)]
pub(crate) struct ClusterSettings<'v> {
    pub(crate) selector: Option<&'v Value>,
    pub(crate) values: ValueTemplates<'v>,
    /// `flatList`: one set of parameters has all clusters as `clusters`.
    pub(crate) is_flat_list: bool,
}

impl<'v> ClusterSettings<'v> {
    pub(crate) fn read(settings: &'v Value, path: &str) -> Result<Self, Error> {
        let settings = object(settings, path)?;
        section(settings, "selector", &format!("{path}.selector"))?;
        Ok(Self {
            selector: member(settings, "selector"),
            values: text_map(settings, "values", path)?,
            is_flat_list: flag(settings, "flatList", path)?,
        })
    }
}

#[derive(Debug)]
pub(crate) struct GitSettings<'v> {
    pub(crate) url: &'v str,
    pub(crate) revision: &'v str,
    pub(crate) directories: Vec<PathItem<'v>>,
    pub(crate) files: Vec<PathItem<'v>>,
    pub(crate) prefix: &'v str,
    pub(crate) values: ValueTemplates<'v>,
}

/// An item of `directories` or `files`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathItem<'v> {
    pub(crate) path: &'v str,
    /// `exclude`: matching paths are left out, regardless of other items.
    pub(crate) is_excluded: bool,
}

impl<'v> GitSettings<'v> {
    pub(crate) fn read(settings: &'v Value, path: &str) -> Result<Self, Error> {
        let settings = object(settings, path)?;
        let items = |key: &str| -> Result<Vec<PathItem<'v>>, Error> {
            let items = list(settings, key, path)?.iter().enumerate();
            let item = |(index, item): (usize, &'v Value)| {
                let path = format!("{path}.{key}[{index}]");
                let item = object(item, &path)?;
                Ok(PathItem {
                    path: text(item, "path", &path)?,
                    is_excluded: flag(item, "exclude", &path)?,
                })
            };
            items.map(item).collect()
        };
        Ok(Self {
            url: text(settings, "repoURL", path)?,
            revision: text(settings, "revision", path)?,
            directories: items("directories")?,
            files: items("files")?,
            prefix: text(settings, "pathParamPrefix", path)?,
            values: text_map(settings, "values", path)?,
        })
    }
}

/// `matrix` and `merge`; only `merge` has keys.
#[derive(Debug)]
pub(crate) struct CombinationSettings<'v> {
    pub(crate) generators: &'v [Value],
    pub(crate) keys: Vec<&'v str>,
}

impl<'v> CombinationSettings<'v> {
    pub(crate) fn read(settings: &'v Value, path: &str) -> Result<Self, Error> {
        let settings = object(settings, path)?;
        Ok(Self {
            generators: list(settings, "generators", path)?,
            keys: texts(settings, "mergeKeys", path)?,
        })
    }
}

/// The `values` of a generator that a plugin provides; the plugin checks the other settings.
pub(crate) fn plugin_values<'v>(settings: &'v Value, path: &str) -> Result<ValueTemplates<'v>, Error> {
    text_map(object(settings, path)?, "values", path)
}

/// Checks the types of settings; those of children are checked with their entry.
pub(super) fn check(name: GeneratorKind, settings: &Value, path: &str) -> Result<(), Error> {
    match name {
        GeneratorKind::List => ListSettings::read(settings, path).map(drop),
        GeneratorKind::Clusters => ClusterSettings::read(settings, path).map(drop),
        GeneratorKind::Git => GitSettings::read(settings, path).map(drop),
        GeneratorKind::Matrix | GeneratorKind::Merge => CombinationSettings::read(settings, path).map(drop),
        GeneratorKind::ScmProvider
        | GeneratorKind::PullRequest
        | GeneratorKind::ClusterDecisionResource
        | GeneratorKind::Plugin => plugin_values(settings, path).map(drop),
    }?;
    section(object(settings, path)?, "template", &format!("{path}.template")).map(drop)
}
