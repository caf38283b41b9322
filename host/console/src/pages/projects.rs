//! Projects: which service accounts act for their Applications. The editor shows who would act for
//! which Application before anything is saved, and works without JavaScript: each button sends the
//! whole form.

use std::collections::BTreeMap;

use askama::Template;
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, View, redirect};
use crate::ask::{self, Items, Refusal};
use crate::finding::Finding;
use crate::form::{Fields, Query};
use crate::frame::Frame;
use crate::text::{Text, encode};

const API: &str = "/api/v1/tollgate/projects";

/// An entry of `destinationServiceAccounts`, as it is typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    server: String,
    namespace: String,
    account: String,
}

impl Entry {
    fn of(value: &Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            server: text("server"),
            namespace: text("namespace"),
            account: text("defaultServiceAccount"),
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn value(&self) -> Value {
        json!({"server": self.server, "namespace": self.namespace, "defaultServiceAccount": self.account})
    }

    /// As one line, for people.
    fn line(&self) -> Text {
        Text::from(format!("{}, {} → {}", self.server, self.namespace, self.account))
    }
}

/// A project, as the API lists it.
#[derive(Debug, Deserialize)]
struct Summary {
    name: Text,
    accounts: usize,
}

impl Summary {
    fn path(&self) -> String {
        project_path(self.name.raw())
    }
}

/// A project, as far as pages show it.
struct Project {
    name: Text,
    description: Text,
    entries: Vec<Entry>,
}

impl Project {
    fn of(object: &Value) -> Self {
        let text = |pointer: &str| Text::from(object.pointer(pointer).and_then(Value::as_str).unwrap_or_default());
        Self {
            name: text("/metadata/name"),
            description: text("/spec/description"),
            entries: entries_of(object),
        }
    }

    fn path(&self) -> String {
        project_path(self.name.raw())
    }

    /// Where a page that is open asks whether the object changed since it had this version.
    fn moved_path(&self, version: &str) -> String {
        Query::new().with("since", version).at(&self.path())
    }
}

fn project_path(name: &str) -> String {
    format!("/console/projects/{}", encode(name))
}

fn entries_of(object: &Value) -> Vec<Entry> {
    let listed = object
        .pointer("/spec/destinationServiceAccounts")
        .and_then(Value::as_array);
    listed.map_or_else(Vec::new, |listed| listed.iter().map(Entry::of).collect())
}

fn version_of(object: &Value) -> String {
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    version.unwrap_or_default().to_owned()
}

/// What the API says about a list before it is saved.
#[derive(Debug, Deserialize)]
struct Preview {
    mode: Text,
    fallback: Text,
    findings: Vec<Finding>,
    applications: Vec<Application>,
    changing: usize,
    unchanged: usize,
}

#[derive(Debug, Deserialize)]
struct Application {
    namespace: Text,
    name: Text,
    #[serde(default)]
    server: Option<Text>,
    destination: Text,
    changes: bool,
    now: Acting,
    then: Acting,
    tried: Vec<Tried>,
}

#[derive(Debug, Deserialize)]
struct Acting {
    #[serde(default)]
    account: Option<Text>,
    #[serde(default)]
    entry: Option<usize>,
    #[serde(default)]
    error: Option<Text>,
}

#[derive(Debug, Deserialize)]
struct Tried {
    entry: usize,
    why: Text,
}

impl Preview {
    /// Who acts for what no entry matches.
    fn fallback_text(&self) -> &'static str {
        match self.fallback.raw() {
            "default-service-account" => "the account default of the destination namespace",
            "deny" => "nobody: requests are refused",
            "controller" => "the gateway's own identity in the cluster",
            _ => "a fallback of another version of Tollgate",
        }
    }

    /// What a finding is about.
    fn place_of(&self, finding: &Finding) -> Option<Text> {
        finding.location.as_ref().map(|location| place(location.file.raw()))
    }

    fn mode_text(&self) -> &'static str {
        match self.mode.raw() {
            "enforce" => "Accounts act: this is in force.",
            "audit" => "Accounts are only audited: the gateway acts, and notes who would have.",
            _ => "Impersonation is off: no account acts yet, not even those listed here.",
        }
    }
}

impl Acting {
    fn text(&self) -> Text {
        match (&self.account, &self.error) {
            (Some(account), _) => account.clone(),
            (None, Some(error)) => error.clone(),
            (None, None) => Text::from("the gateway itself"),
        }
    }
}

/// The number of an entry that a message of the API names, from 0.
fn entry_number(text: &str) -> Option<usize> {
    let (_, rest) = text.split_once("destinationServiceAccounts[")?;
    rest.split_once(']')?.0.parse().ok()
}

/// What a message of the API is about, as the form counts.
fn place(text: &str) -> Text {
    match entry_number(text) {
        Some(number) => Text::from(format!("entry {}", number.saturating_add(1))),
        None => Text::from(text),
    }
}

/// What is typed, and what came of it. Only the last entry may be empty, so that the API counts as the
/// form does.
#[derive(Default)]
struct Edit {
    entries: Vec<Entry>,
    version: String,
    refusal: Option<Refusal>,
    /// What the refusal says of each entry.
    problems: BTreeMap<usize, Text>,
    /// Whether somebody else stored something meanwhile, so that nothing could be saved.
    is_conflict: bool,
    /// Whether the object changed since the form began, and nothing was to be saved yet.
    is_moved: bool,
    is_changed: bool,
}

impl Edit {
    fn refuse(&mut self, refusal: Refusal) {
        self.problems = problems(refusal.message.raw());
        self.refusal = Some(refusal);
    }

    /// The refusal of one entry, by its index.
    fn problem_of(&self, index: &usize) -> Option<&Text> {
        self.problems.get(index)
    }

    /// Whether the refusal is shown nowhere else: neither beside an entry nor as a conflict.
    fn is_general(&self) -> bool {
        let is_shown = self.is_conflict || self.problems.keys().any(|index| *index < self.entries.len());
        self.refusal.is_some() && !is_shown
    }

    /// What an entry is called, by its index. Those of global projects follow the project's own.
    fn name_of(&self, index: &usize) -> Text {
        let is_last_empty = self.entries.last().is_some_and(Entry::is_empty);
        let own = self.entries.len().saturating_sub(usize::from(is_last_empty));
        let number = index.saturating_add(1);
        Text::from(match index.checked_sub(own) {
            None => format!("entry {number}"),
            Some(of_global) => format!("entry {} of the global projects", of_global.saturating_add(1)),
        })
    }

    fn is_last(&self, index: &usize) -> bool {
        index.saturating_add(1) == self.entries.len()
    }
}

/// What a message of the API says of each entry, by its index.
fn problems(message: &str) -> BTreeMap<usize, Text> {
    let mut found = BTreeMap::new();
    for part in message.split("; ") {
        if let Some(number) = entry_number(part) {
            let text = part.split_once(": ").map_or(part, |(_, text)| text);
            found.entry(number).or_insert_with(|| Text::from(text));
        }
    }
    found
}

#[derive(Template)]
#[template(path = "projects.html")]
struct ProjectsPage<'a> {
    frame: &'a Frame,
    projects: &'a [Summary],
    query: &'a Fields,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "project.html")]
struct ProjectPage<'a> {
    frame: &'a Frame,
    project: &'a Project,
    edit: &'a Edit,
    preview: Option<&'a Preview>,
    /// Why there is no preview.
    no_preview: Option<&'a Refusal>,
    is_saved: bool,
}

/// Projects of one page.
const ROWS: &str = "100";

impl View<'_> {
    pub(super) async fn projects(&self) -> Answer {
        let query = Query::new().with("summary", "true").with("limit", ROWS);
        let query = query.with_fields(&self.query, &["name", "continue"]);
        let list: Items<Summary> = ask::get(self.api, &query.at(API)).await?;
        self.page(&ProjectsPage {
            frame: &self.frame,
            projects: &list.items,
            query: &self.query,
            next: self.next("/console/projects", &["name"], "continue", list.next.as_deref()),
        })
    }

    pub(super) async fn project(&self, name: &str) -> Answer {
        let stored: Value = ask::get(self.api, &format!("{API}/{}", encode(name))).await?;
        let version = version_of(&stored);
        // A page that is open asks whether its form is still about what is stored.
        let is_moved = self.query.get("since").is_some_and(|since| since != version);
        let edit = Edit {
            entries: entries_of(&stored),
            is_moved,
            version,
            ..Edit::default()
        };
        self.project_page(&stored, edit).await
    }

    /// Carries out one button of the editor.
    pub(super) async fn edit_project(&self, name: &str) -> Answer {
        let target = format!("{API}/{}", encode(name));
        let mut stored: Value = ask::get(self.api, &target).await?;
        let mut edit = Edit {
            entries: self.typed_entries(),
            version: self.form.text("version").to_owned(),
            ..Edit::default()
        };
        let (operation, index) = self
            .form
            .text("op")
            .split_once(':')
            .unwrap_or((self.form.text("op"), ""));
        let index: usize = index.parse().unwrap_or(usize::MAX);
        let count = edit.entries.len();
        // Before empty rows are removed, because the buttons number the rows as they were sent.
        match operation {
            "up" if (1..count).contains(&index) => edit.entries.swap(index, index.saturating_sub(1)),
            "down" if index.saturating_add(1) < count => edit.entries.swap(index, index.saturating_add(1)),
            "remove" if index < count => drop(edit.entries.remove(index)),
            _ => {}
        }
        edit.entries.retain(|entry| !entry.is_empty());
        match operation {
            "add" => edit.entries.push(Entry::default()),
            "save" => match self.save(&target, &stored, &edit).await {
                Ok(()) => return Ok(saved(name)),
                Err(refusal) if refusal.reason == "conflict" => {
                    stored = ask::get(self.api, &target).await?;
                    edit.is_conflict = true;
                    // Saving again is based on what the page shows now.
                    edit.version = version_of(&stored);
                    edit.refuse(refusal);
                }
                Err(refusal) => edit.refuse(refusal),
            },
            _ => {}
        }
        edit.is_moved = edit.version != version_of(&stored);
        self.project_page(&stored, edit).await
    }

    async fn save(&self, target: &str, stored: &Value, edit: &Edit) -> Result<(), Refusal> {
        let mut project = stored.clone();
        let entries = Value::Array(edit.entries.iter().map(Entry::value).collect());
        if let Some(spec) = project.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("destinationServiceAccounts".to_owned(), entries);
        }
        if let Some(metadata) = project.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), edit.version.clone().into());
        }
        let content = json!({ "project": project });
        ask::put::<Value>(self.api, target, &content).await.map(drop)
    }

    /// The rows of the form, in order.
    fn typed_entries(&self) -> Vec<Entry> {
        let form = &self.form;
        // Browsers send empty fields too, and all in the order of the page, so the lists run in step.
        let rows = form.all("server").zip(form.all("namespace")).zip(form.all("account"));
        rows.map(|((server, namespace), account)| Entry {
            server: server.trim().to_owned(),
            namespace: namespace.trim().to_owned(),
            account: account.trim().to_owned(),
        })
        .collect()
    }

    async fn project_page(&self, stored: &Value, mut edit: Edit) -> Answer {
        let project = Project::of(stored);
        edit.is_changed = edit.entries != project.entries;
        let typed: Vec<Value> = edit
            .entries
            .iter()
            .filter(|entry| !entry.is_empty())
            .map(Entry::value)
            .collect();
        let target = format!("{API}/{}/preview", project.name.encoded());
        // A person who follows a link from elsewhere only reads.
        let preview = match self.head.method == Method::POST {
            true => {
                let content = json!({ "destinationServiceAccounts": typed });
                ask::post::<Preview>(self.api, &target, &content).await
            }
            false => ask::get(self.api, &target).await,
        };
        let (preview, no_preview) = match preview {
            Ok(preview) => (Some(preview), None),
            Err(refusal) => (None, Some(refusal)),
        };
        // A mistake is shown beside its entry, also before saving.
        if edit.refusal.is_none()
            && let Some(refusal) = no_preview
                .as_ref()
                .filter(|refusal| refusal.reason == "project_invalid")
        {
            edit.refuse(refusal.clone());
        }
        let page = ProjectPage {
            frame: &self.frame,
            project: &project,
            edit: &edit,
            preview: preview.as_ref(),
            no_preview: no_preview
                .as_ref()
                .filter(|refusal| refusal.reason != "project_invalid"),
            is_saved: self.query.get("saved").is_some(),
        };
        match &edit.refusal {
            Some(_) => {
                let mut response = self.page_with_problem(&page)?;
                if edit.is_conflict {
                    *response.status_mut() = StatusCode::CONFLICT;
                }
                Ok(response)
            }
            None => self.page(&page),
        }
    }
}

fn saved(name: &str) -> Response<Bytes> {
    redirect(&format!("{}?saved=1", project_path(name)))
}

#[cfg(test)]
mod tests {
    use super::{Edit, Entry, entry_number, place, problems};

    #[test]
    fn messages_are_about_the_row_that_people_see() {
        let text = "`spec.destinationServiceAccounts[2]`: the account is empty";
        assert_eq!(entry_number(text), Some(2));
        assert_eq!(place(text).raw(), "entry 3");
        assert_eq!(entry_number("`spec.roles` differs"), None);
        let text = "`spec.destinationServiceAccounts[2]`: it is empty; `spec.destinationServiceAccounts[0]`: one; \
                    `spec.destinationServiceAccounts[0]`: two";
        let found: Vec<_> = problems(text)
            .into_iter()
            .map(|(index, text)| (index, text.raw().to_owned()))
            .collect();
        assert_eq!(found, [(0, "one".to_owned()), (2, "it is empty".to_owned())]);
    }

    #[test]
    fn entries_of_global_projects_have_numbers_of_their_own() {
        let filled = Entry {
            server: "*".to_owned(),
            ..Entry::default()
        };
        let edit = Edit {
            entries: vec![filled.clone(), filled, Entry::default()],
            ..Edit::default()
        };
        let names = [0, 1, 2, 3].map(|index| edit.name_of(&index).raw().to_owned());
        assert_eq!(
            names,
            [
                "entry 1",
                "entry 2",
                "entry 1 of the global projects",
                "entry 2 of the global projects"
            ]
        );
    }
}
