//! The parameters of requests, and how the query of a REST request is decoded into them.
//!
//! Security: parameters that the path does not have are refused with 400, because ignoring one
//! could do more than the caller meant.

use serde::Deserialize;
use serde_json::Value;

use crate::applicationsets::request::{ApplicationSetRef, Create, Delete, Error, Filter, Update, Watch, WriteMode};
use tollgate_applicationset::plan::Cascade;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameters {
    List,
    Watch,
    One,
    Create,
    Update,
    Delete,
    Generate,
}

impl Parameters {
    fn names(self) -> &'static [&'static str] {
        match self {
            // Argo CD's pages send `fields`, the fields that they read. They get all fields.
            Self::List => &["projects", "selector", "appsetNamespace", "fields"],
            Self::Watch => &[
                "name",
                "projects",
                "selector",
                "appsetNamespace",
                "resourceVersion",
                "fields",
            ],
            Self::One => &["appsetNamespace", "fields"],
            Self::Create => &["upsert", "dryRun", "deletions"],
            Self::Update => &["appsetNamespace", "dryRun", "deletions"],
            Self::Delete => &["appsetNamespace", "cascade", "deletions"],
            Self::Generate => &[],
        }
    }
}

/// The parameters of a request, from a query or the message of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Query {
    name: String,
    projects: Vec<String>,
    selector: String,
    /// For a watch, Argo CD spells it differently.
    #[serde(rename = "appsetNamespace", alias = "appSetNamespace")]
    namespace: String,
    resource_version: String,
    upsert: bool,
    dry_run: bool,
    #[serde(skip)]
    cascade: Option<Cascade>,
    #[serde(skip)]
    deletions: Option<u64>,
}

impl Query {
    pub(crate) fn read(raw: Option<&str>, parameters: Parameters) -> Result<Self, Error> {
        let mut query = Self::default();
        let mut seen: Vec<&'static str> = Vec::new();
        for (name, value) in url::form_urlencoded::parse(raw.unwrap_or_default().as_bytes()) {
            // For a watch, Argo CD spells the namespace parameter differently.
            let name = if name == "appSetNamespace" {
                "appsetNamespace".into()
            } else {
                name
            };
            let known = parameters.names().iter().find(|known| **known == name);
            let Some(known) = known else {
                let why = match parameters.names() {
                    [] => "has parameters, and none are known here".to_owned(),
                    names => format!("has a parameter other than `{}`", names.join("`, `")),
                };
                return Err(Error::Query { why });
            };
            if seen.contains(known) && *known != "projects" {
                return Err(wrong(format!("has `{known}` twice")));
            }
            seen.push(known);
            query.set(known, &value)?;
        }
        Ok(query)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        match name {
            "name" => value.clone_into(&mut self.name),
            "projects" => self.projects.push(value.to_owned()),
            "selector" => value.clone_into(&mut self.selector),
            "appsetNamespace" => value.clone_into(&mut self.namespace),
            "resourceVersion" => value.clone_into(&mut self.resource_version),
            "upsert" => self.upsert = boolean(name, value)?,
            "dryRun" => self.dry_run = boolean(name, value)?,
            "cascade" => self.cascade = Some(cascade(value)?),
            "deletions" => {
                let number = value.parse();
                let number = number.map_err(|_| wrong("has `deletions` that is no whole number".to_owned()))?;
                self.deletions = Some(number);
            }
            // `fields`
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn filter(self) -> Filter {
        Filter {
            projects: self.projects,
            selector: self.selector,
            namespace: self.namespace,
        }
    }

    pub(crate) fn target(self) -> ApplicationSetRef {
        ApplicationSetRef {
            name: self.name,
            namespace: self.namespace,
        }
    }

    /// The same parameters about the set that a path names.
    pub(crate) fn about(self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self
        }
    }

    pub(crate) fn watch(mut self) -> Watch {
        Watch {
            name: std::mem::take(&mut self.name),
            resource_version: std::mem::take(&mut self.resource_version),
            filter: self.filter(),
        }
    }

    pub(crate) fn create(self, set: Value) -> Create {
        Create {
            set,
            upsert: self.upsert,
            mode: self.mode(),
            deletions: self.deletions,
        }
    }

    pub(crate) fn update(self, set: Value) -> Update {
        Update {
            set,
            mode: self.mode(),
            deletions: self.deletions,
            target: self.target(),
        }
    }

    pub(crate) fn delete(self) -> Delete {
        Delete {
            cascade: self.cascade,
            deletions: self.deletions,
            target: self.target(),
        }
    }

    fn mode(&self) -> WriteMode {
        match self.dry_run {
            true => WriteMode::DryRun,
            false => WriteMode::Commit,
        }
    }
}

fn boolean(name: &str, value: &str) -> Result<bool, Error> {
    match value {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(wrong(format!("has `{name}` that is neither `true` nor `false`"))),
    }
}

/// `true` and `false` are Argo CD's values for Applications.
fn cascade(value: &str) -> Result<Cascade, Error> {
    match value {
        "true" | "background" => Ok(Cascade::Background),
        "false" | "orphan" => Ok(Cascade::Orphan),
        _ => Err(wrong(
            "has `cascade` that is neither `background` nor `orphan`".to_owned(),
        )),
    }
}

fn wrong(why: String) -> Error {
    Error::Query { why }
}

#[cfg(test)]
mod tests {
    use super::{Parameters, Query};
    use crate::applicationsets::request::{Filter, WriteMode};
    use tollgate_applicationset::plan::Cascade;

    #[test]
    fn lists_and_changes() {
        let query = Query::read(
            Some("projects=a&projects=b&selector=x%3Dy&appsetNamespace=n"),
            Parameters::List,
        );
        let filter = Filter {
            projects: vec!["a".to_owned(), "b".to_owned()],
            selector: "x=y".to_owned(),
            namespace: "n".to_owned(),
        };
        assert_eq!(query.expect("a query").filter(), filter);
        let query = Query::read(Some("upsert=true&dryRun=1&deletions=7"), Parameters::Create).expect("a query");
        assert_eq!(
            (query.upsert, query.mode(), query.deletions),
            (true, WriteMode::DryRun, Some(7))
        );
        let query = Query::read(Some("upsert=false&dryRun=false"), Parameters::Create).expect("a query");
        assert_eq!(
            (query.upsert, query.mode(), query.deletions),
            (false, WriteMode::Commit, None)
        );
        let query = Query::read(Some("cascade=orphan&appSetNamespace=n"), Parameters::Delete).expect("a query");
        let delete = query.about("a").delete();
        assert_eq!(
            (delete.cascade, delete.target.namespace.as_str()),
            (Some(Cascade::Orphan), "n")
        );
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (query, parameters, why) in [
            (
                "dryrun=true",
                Parameters::Create,
                "has a parameter other than `upsert`, `dryRun`, `deletions`",
            ),
            ("upsert=true&upsert=false", Parameters::Create, "has `upsert` twice"),
            (
                "dryRun=yes",
                Parameters::Create,
                "has `dryRun` that is neither `true` nor `false`",
            ),
            (
                "deletions=-1",
                Parameters::Delete,
                "has `deletions` that is no whole number",
            ),
            (
                "cascade=maybe",
                Parameters::Delete,
                "has `cascade` that is neither `background` nor `orphan`",
            ),
            ("a", Parameters::Generate, "has parameters, and none are known here"),
        ] {
            let error = Query::read(Some(query), parameters).expect_err(query);
            assert_eq!(error.to_string(), format!("the query {why}"));
        }
    }
}
