//! ApplicationSets: those that the person may see, and an editor that shows what a set would do, and
//! who refuses it, before it is stored.

use askama::Template;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Stop, View, redirect};
use crate::ask::{self, Denial, Items, Refusal};
use crate::form::{Fields, Query};
use crate::frame::Frame;
use crate::text::{Text, encode};

const API: &str = "/api/v1/applicationsets";
/// Sets of one page.
const ROWS: &str = "100";
/// The fields of the filter.
const PARAMETERS: [&str; 2] = ["name", "project"];
/// Longest diff that a page shows, in characters.
const DIFF: usize = 4_000;
/// Changes that a page shows.
const CHANGES: usize = 100;

/// What the editor of a new set begins with.
const EXAMPLE: &str = "apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata:
  name: shop
spec:
  goTemplate: true
  generators:
    - list:
        elements:
          - {stage: test}
          - {stage: production}
  template:
    metadata:
      name: 'shop-{{ .stage }}'
    spec:
      project: shop
      source:
        repoURL: https://git.example.com/shop.git
        path: 'deploy/{{ .stage }}'
        targetRevision: main
      destination:
        server: https://kubernetes.default.svc
        namespace: 'shop-{{ .stage }}'
";

/// A set, as the API lists it.
#[derive(Debug, Deserialize)]
struct Set {
    namespace: Text,
    name: Text,
    project: Text,
    generators: Vec<Text>,
    applications: usize,
    /// The message of a condition that reports an error.
    #[serde(default)]
    error: Option<Text>,
}

impl Set {
    fn path(&self) -> String {
        set_path(self.namespace.raw(), self.name.raw())
    }
}

fn set_path(namespace: &str, name: &str) -> String {
    format!("/console/applicationsets/{}/{}", encode(namespace), encode(name))
}

/// What storing a set would do.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    #[serde(default)]
    action: Text,
    #[serde(default)]
    diff: String,
    #[serde(default)]
    changes: Vec<Change>,
    #[serde(default)]
    refusals: Vec<Denial>,
    #[serde(default)]
    more_refusals: usize,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    application: Text,
    #[serde(default)]
    namespace: Text,
    #[serde(default)]
    project: Text,
    action: Text,
    #[serde(default)]
    held_back: Option<Text>,
    /// Absent if the person may not see the Application.
    #[serde(default)]
    diff: Option<String>,
}

impl Plan {
    fn count(&self, action: &str) -> usize {
        self.changes.iter().filter(|change| change.action == *action).count()
    }

    fn own_diff(&self) -> Vec<Line> {
        lines(&self.diff)
    }

    fn shown(&self) -> &[Change] {
        self.changes.get(..CHANGES).unwrap_or(&self.changes)
    }

    fn hidden(&self) -> usize {
        self.changes.len().saturating_sub(CHANGES)
    }
}

impl Change {
    fn mark(&self) -> &'static str {
        match self.action.raw() {
            "create" => "good",
            "delete" => "bad",
            "update" => "warn",
            _ => "plain",
        }
    }

    fn lines(&self) -> Vec<Line> {
        self.diff.as_deref().map(lines).unwrap_or_default()
    }
}

/// A line of a diff.
struct Line {
    /// `add`, `remove` or `same`.
    kind: &'static str,
    text: Text,
}

fn lines(diff: &str) -> Vec<Line> {
    let shown: String = diff.chars().take(DIFF).collect();
    let line = |text: &str| Line {
        kind: match text.chars().next() {
            Some('+') => "add",
            Some('-') => "remove",
            _ => "same",
        },
        text: Text::from(text),
    };
    let mut lines: Vec<Line> = shown.lines().map(line).collect();
    if shown.len() < diff.len() {
        lines.push(line(" …"));
    }
    lines
}

/// What is typed, and what came of it.
#[derive(Default)]
struct Edit {
    text: String,
    deletions: String,
    refusal: Option<Refusal>,
    plan: Option<Plan>,
}

#[derive(Template)]
#[template(path = "applicationsets.html")]
struct SetsPage<'a> {
    frame: &'a Frame,
    sets: &'a [Set],
    query: &'a Fields,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "applicationset.html")]
struct SetPage<'a> {
    frame: &'a Frame,
    /// Absent for one that does not exist yet.
    name: Option<(Text, Text)>,
    path: &'a str,
    edit: &'a Edit,
    is_saved: bool,
}

impl View<'_> {
    pub(super) async fn application_sets(&self) -> Answer {
        let query = Query::new()
            .with_fields(&self.query, &PARAMETERS)
            .with_fields(&self.query, &["continue"])
            .with("limit", ROWS);
        let list: Items<Set> = ask::get(self.api, &query.at("/api/v1/tollgate/applicationsets")).await?;
        self.page(&SetsPage {
            frame: &self.frame,
            query: &self.query,
            next: self.next(
                "/console/applicationsets",
                &PARAMETERS,
                "continue",
                list.next.as_deref(),
            ),
            sets: &list.items,
        })
    }

    pub(super) async fn new_set(&self) -> Answer {
        let edit = Edit {
            text: EXAMPLE.to_owned(),
            ..Edit::default()
        };
        self.set_page(None, &edit)
    }

    pub(super) async fn application_set(&self, namespace: &str, name: &str) -> Answer {
        let edit = Edit {
            text: self.stored_text(namespace, name).await?,
            ..Edit::default()
        };
        self.set_page(Some((namespace, name)), &edit)
    }

    /// Carries out a button of the editor.
    ///
    /// - `name`: namespace and name; `None` for a set that does not exist yet.
    pub(super) async fn edit_set(&self, name: Option<(&str, &str)>) -> Answer {
        let mut edit = Edit {
            // Browsers send the line breaks of a text area as CRLF (HTML standard).
            text: self.form.raw("text").replace("\r\n", "\n"),
            deletions: self.form.text("deletions").to_owned(),
            ..Edit::default()
        };
        let (method, target) = match name {
            Some((_, name)) => (Method::PUT, format!("{API}/{}", encode(name))),
            None => (Method::POST, API.to_owned()),
        };
        let namespace = name.map(|(namespace, _)| namespace);
        let query = || {
            Query::new()
                .with_some("appsetNamespace", namespace)
                .with_some("deletions", self.form.get("deletions"))
        };
        match self.form.text("op") {
            "save" => {
                let stored = ask::send_yaml::<Value>(self.api, method, &query().at(&target), &edit.text).await;
                match stored {
                    Ok(stored) => {
                        // A new set has its name in the text, and perhaps no namespace.
                        let text = |pointer: &str| stored.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                        let path = set_path(text("/metadata/namespace"), text("/metadata/name"));
                        return Ok(redirect(&format!("{path}?saved=1")));
                    }
                    Err(refusal) => edit.refusal = Some(refusal),
                }
            }
            "delete" => {
                let Some(_) = name else { return Err(Stop::NotFound) };
                match ask::delete(self.api, &query().at(&target)).await {
                    Ok(()) => return Ok(redirect("/console/applicationsets")),
                    Err(refusal) => edit.refusal = Some(refusal),
                }
            }
            _ => {
                let target = query().with("dryRun", "true").at(&target);
                match ask::send_yaml::<Plan>(self.api, method, &target, &edit.text).await {
                    Ok(plan) => edit.plan = Some(plan),
                    Err(refusal) => edit.refusal = Some(refusal),
                }
            }
        }
        self.set_page(name, &edit)
    }

    fn set_page(&self, name: Option<(&str, &str)>, edit: &Edit) -> Answer {
        let path = name.map_or_else(
            || "/console/applicationsets/new".to_owned(),
            |(namespace, name)| set_path(namespace, name),
        );
        let page = SetPage {
            frame: &self.frame,
            name: name.map(|(namespace, name)| (Text::from(namespace), Text::from(name))),
            path: &path,
            edit,
            is_saved: self.query.get("saved").is_some(),
        };
        match &edit.refusal {
            Some(refusal) => {
                let mut response = self.page_with_problem(&page)?;
                if refusal.status == StatusCode::CONFLICT {
                    *response.status_mut() = StatusCode::CONFLICT;
                }
                Ok(response)
            }
            None => self.page(&page),
        }
    }

    /// A stored set as YAML, without what only controllers write.
    async fn stored_text(&self, namespace: &str, name: &str) -> Result<String, Stop> {
        let query = Query::new().with("appsetNamespace", namespace);
        let stored: Value = ask::get(self.api, &query.at(&format!("{API}/{}", encode(name)))).await?;
        let metadata = |key: &str| stored.pointer(&format!("/metadata/{key}")).cloned();
        // `PUT` demands the version, by which it finds a change that somebody made meanwhile.
        let kept = [
            "name",
            "namespace",
            "labels",
            "annotations",
            "finalizers",
            "resourceVersion",
        ];
        let metadata = kept
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), metadata(key)?)));
        let object = json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "ApplicationSet",
            "metadata": Value::Object(metadata.collect()),
            "spec": stored.get("spec"),
        });
        serde_saphyr::to_string(&object).map_err(|error| {
            tracing::error!(%error, "an ApplicationSet cannot be written as YAML");
            Stop::Template
        })
    }
}
