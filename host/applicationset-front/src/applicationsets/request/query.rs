//! The parameters of requests, and how the query of a REST request is decoded into them.
//!
//! Reads ignore parameters that they do not have, as Argo CD does: its pages send some that no server
//! reads. Of a parameter that occurs twice, the first counts.
//!
//! Security: changes and previews refuse such parameters with 400, because ignoring one could do
//! more than the caller meant.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Deserialize;

use crate::applicationsets::request::RequestKind;
use tollgate_front::api::Error;
use tollgate_front::api::query::{for_each_parameter, wrong};
use tollgate_state::write::batch::Propagation;

/// The parameters of a request, from a query or the message of a call. A parameter that the
/// request does not have is at its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Query {
    /// The set's name. For a watch, empty for all.
    pub(crate) name: String,
    /// Empty for all.
    pub(crate) projects: Vec<String>,
    pub(crate) selector: String,
    /// Empty for the control plane's. For a list or a watch, empty for all.
    ///
    /// For a watch, Argo CD spells it differently.
    #[serde(rename = "appsetNamespace", alias = "appSetNamespace")]
    pub(crate) namespace: String,
    /// For a watch: skips sets older than this version, if versions are numbers. Empty for all.
    pub(crate) resource_version: String,
    pub(crate) upsert: bool,
    pub(crate) dry_run: bool,
    /// For a watch: whether a browser shows its events, and nobody waits for a certain one.
    #[serde(skip)]
    pub(crate) is_for_page: bool,
    /// What happens to the Applications of a deleted set. If absent, the set itself decides.
    #[serde(skip)]
    pub(crate) cascade: Option<Propagation>,
    /// Number of Applications the caller expects to be deleted. Without it, no more are deleted
    /// than the settings allow unasked.
    #[serde(skip)]
    pub(crate) deletions: Option<u64>,
}

/// The parameters that a REST request of a kind may have.
fn parameters(kind: RequestKind) -> &'static [&'static str] {
    match kind {
        RequestKind::List => &["projects", "selector", "appsetNamespace"],
        RequestKind::Watch => &["name", "projects", "selector", "appsetNamespace", "resourceVersion"],
        RequestKind::Get | RequestKind::ResourceTree | RequestKind::Events => &["appsetNamespace"],
        RequestKind::Create => &["upsert", "dryRun", "deletions"],
        RequestKind::Update => &["appsetNamespace", "dryRun", "deletions"],
        RequestKind::Delete => &["appsetNamespace", "cascade", "deletions"],
        RequestKind::Generate => &[],
    }
}

impl Query {
    pub(crate) fn read(raw: Option<&str>, kind: RequestKind) -> Result<Self, Error> {
        let pairs = url::form_urlencoded::parse(raw.unwrap_or_default().as_bytes());
        let pairs = pairs.map(|(name, value)| match &*name {
            // For a watch, Argo CD spells the namespace parameter differently.
            "appSetNamespace" => ("appsetNamespace".into(), value),
            _ => (name, value),
        });
        let known = parameters(kind);
        if kind.is_read() {
            let mut pairs: Vec<_> = pairs.filter(|(name, _)| known.contains(&&**name)).collect();
            let mut seen = BTreeSet::new();
            pairs.retain(|(name, _)| name == "projects" || seen.insert(name.clone()));
            return Self::set_all(pairs.into_iter(), known);
        }
        Self::set_all(pairs, known)
    }

    fn set_all<'a>(
        pairs: impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)>,
        known: &'static [&'static str],
    ) -> Result<Self, Error> {
        let mut query = Self::default();
        for_each_parameter(pairs, known, |name, value| query.set(name, &value))?;
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
                self.deletions = Some(number.map_err(|_| wrong("has `deletions` that is no whole number"))?);
            }
            // Not reached: these are all names of `parameters`.
            _ => {}
        }
        Ok(())
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
fn cascade(value: &str) -> Result<Propagation, Error> {
    match value {
        "true" | "background" => Ok(Propagation::Background),
        "false" | "orphan" => Ok(Propagation::Orphan),
        _ => Err(wrong("has `cascade` that is neither `background` nor `orphan`")),
    }
}

#[cfg(test)]
mod tests {
    use super::Query;
    use crate::applicationsets::request::RequestKind;
    use tollgate_state::write::batch::Propagation;

    #[test]
    fn parameters_of_lists_and_changes_are_parsed() {
        let query = Query::read(
            Some("projects=a&projects=b&selector=x%3Dy&appsetNamespace=n"),
            RequestKind::List,
        );
        let expected = Query {
            projects: vec!["a".to_owned(), "b".to_owned()],
            selector: "x=y".to_owned(),
            namespace: "n".to_owned(),
            ..Query::default()
        };
        assert_eq!(query.expect("a query"), expected);
        let query = Query::read(Some("upsert=true&dryRun=1&deletions=7"), RequestKind::Create).expect("a query");
        assert_eq!((query.upsert, query.dry_run, query.deletions), (true, true, Some(7)));
        let query = Query::read(Some("upsert=false&dryRun=false"), RequestKind::Create).expect("a query");
        assert_eq!((query.upsert, query.dry_run, query.deletions), (false, false, None));
        let query = Query::read(Some("cascade=orphan&appSetNamespace=n"), RequestKind::Delete).expect("a query");
        assert_eq!((query.cascade, &*query.namespace), (Some(Propagation::Orphan), "n"));
    }

    /// The queries of Argo CD's pages.
    #[test]
    fn reads_ignore_parameters_that_they_do_not_have() {
        for (query, kind, namespace, selector) in [
            (
                "selector=a%3Db&appNamespace=&fields=metadata.resourceVersion,items.spec",
                RequestKind::List,
                "",
                "a=b",
            ),
            ("appsetNamespace=team&refresh=normal", RequestKind::Get, "team", ""),
            ("appsetNamespace=team&x=1&x=2", RequestKind::ResourceTree, "team", ""),
            ("appsetNamespace=team&limit=5", RequestKind::Events, "team", ""),
            (
                "selector=a&selector=b&appSetNamespace=team&appsetNamespace=other",
                RequestKind::List,
                "team",
                "a",
            ),
            (
                "name=a&appSetNamespace=team&fields=result.type&other",
                RequestKind::Watch,
                "team",
                "",
            ),
        ] {
            let read = Query::read(Some(query), kind).expect(query);
            assert_eq!((&*read.namespace, &*read.selector), (namespace, selector), "{query}");
        }
    }

    #[test]
    fn unknown_and_invalid_parameters_are_refused() {
        for (query, kind, why) in [
            (
                "refresh=normal",
                RequestKind::Delete,
                "has a parameter other than `appsetNamespace`, `cascade`, `deletions`",
            ),
            (
                "dryrun=true",
                RequestKind::Create,
                "has a parameter other than `upsert`, `dryRun`, `deletions`",
            ),
            ("upsert=true&upsert=false", RequestKind::Create, "has `upsert` twice"),
            (
                "dryRun=yes",
                RequestKind::Create,
                "has `dryRun` that is neither `true` nor `false`",
            ),
            (
                "deletions=-1",
                RequestKind::Delete,
                "has `deletions` that is no whole number",
            ),
            (
                "cascade=maybe",
                RequestKind::Delete,
                "has `cascade` that is neither `background` nor `orphan`",
            ),
            ("a", RequestKind::Generate, "has parameters, and none are known here"),
        ] {
            let error = Query::read(Some(query), kind).expect_err(query);
            assert_eq!(error.to_string(), format!("the query {why}"));
        }
    }
}
