//! `tollgate appset`: reads and changes ApplicationSets on a running gateway, and previews what
//! they would generate. Nothing is sent unless every file holds only ApplicationSets, and
//! deleting needs the user's confirmation.
//!
//! Invariant: a change never undoes another writer's change.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{ApiRequest, Server};
use super::failure::Failure;
use super::format::{Format, print};
use super::input::confirm;
use super::list_output::{Table, items, print_items};
use tollgate_state::write::WritableKind;

mod display;
mod file;

use display::Colors;
use file::Manifest;

/// Most attempts of a change that conflicts with those of other writers.
const MAX_ATTEMPTS: u32 = 5;

/// Reason code if the stored version is not the one that was read.
const CONFLICT: &str = "conflict";

/// Reason code if the set does not exist, or the caller may not see it.
const NOT_FOUND: &str = "applicationset_not_found";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create ApplicationSets and the Applications that they generate
    ///
    /// A set that is stored with the same content stays unchanged. One that is stored with other content
    /// is refused, unless --upsert is given.
    #[command(after_help = "Example:\n  tollgate appset create --dry-run cluster-addons.yaml")]
    Create {
        #[command(flatten)]
        change: Change,
        /// Update sets that exist: merge labels and annotations, replace the rest
        #[arg(long)]
        upsert: bool,
    },
    /// Create ApplicationSets, or replace existing ones
    Apply(Change),
    /// Replace existing ApplicationSets
    Update(Change),
    /// Delete ApplicationSets, after confirmation
    Delete(Delete),
    /// List ApplicationSets
    List(List),
    /// Show an ApplicationSet
    Get {
        /// Name of the set, as `name` or `namespace/name`
        name: String,
        /// Namespace of the set, if its name has none
        #[arg(short = 'N', long, value_name = "NAMESPACE")]
        appset_namespace: Option<String>,
        #[command(flatten)]
        server: Server,
        /// Output format
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Preview the Applications that an ApplicationSet would generate
    ///
    /// Prints how they would differ from the stored Applications. Changes nothing.
    Generate {
        /// YAML or JSON file with one ApplicationSet, at most 16 MiB; `-` is standard input
        file: PathBuf,
        #[command(flatten)]
        options: RequestOptions,
    },
}

#[derive(Debug, Args)]
pub struct Change {
    /// YAML or JSON files with ApplicationSets, at most 16 MiB each; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Confirm the deletion of exactly this many Applications
    ///
    /// Required above the limit `applicationSets.maxDeletions` of the gateway, 50 by default.
    #[arg(long, value_name = "NUMBER")]
    deletions: Option<u64>,
    #[command(flatten)]
    options: RequestOptions,
}

#[derive(Debug, Args)]
pub struct RequestOptions {
    /// Namespace of sets that name none
    #[arg(short = 'N', long, value_name = "NAMESPACE")]
    appset_namespace: Option<String>,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    colors: Colors,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl RequestOptions {
    fn read(&self, files: &[PathBuf]) -> Result<Vec<Manifest>, Failure> {
        file::read(files, self.appset_namespace.as_deref())
    }

    fn generate(&self, file: &PathBuf, out: &mut dyn Write) -> Result<(), Failure> {
        let manifests = self.read(std::slice::from_ref(file))?;
        let [manifest] = manifests.as_slice() else {
            let found = manifests.len();
            let message = format!("`{}` has {found} ApplicationSets, exactly 1 is allowed", file.display());
            return Err(Failure::new("appset.file", message));
        };
        let request = self
            .server
            .request(Method::POST, &["applicationsets", "generate"], hint);
        let answer = request.content(json!({ "applicationSet": manifest.object })).json();
        let answer = answer.map_err(|failure| failure.about(&manifest.name))?;
        let style = self.colors.diff_style();
        Ok(self
            .output
            .show(&answer, |answer| display::generated(answer, style), out)?)
    }
}

#[derive(Debug, Args)]
pub struct Delete {
    /// Names of the sets, as `name` or `namespace/name`
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Delete without confirmation
    #[arg(short, long)]
    yes: bool,
    /// What to do with the Applications of the sets
    #[arg(long, value_enum, default_value_t)]
    cascade: Cascade,
    /// Confirm the deletion of exactly this many Applications
    ///
    /// Required above the limit `applicationSets.maxDeletions` of the gateway, 50 by default.
    #[arg(long, value_name = "NUMBER")]
    deletions: Option<u64>,
    /// Namespace of sets whose names have none
    #[arg(short = 'N', long, value_name = "NAMESPACE")]
    appset_namespace: Option<String>,
    #[command(flatten)]
    server: Server,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Cascade {
    /// Delete them, and in the background the resources that they deployed
    #[default]
    Background,
    /// Keep them
    Orphan,
}

#[derive(Debug, Args)]
pub struct List {
    /// List only sets of this project; may be repeated
    #[arg(short, long, value_name = "PROJECT")]
    project: Vec<String>,
    /// List only sets that match this label selector, such as `team=shop,tier!=test`
    #[arg(short = 'l', long)]
    selector: Option<String>,
    /// List only sets in this namespace
    #[arg(short = 'N', long, value_name = "NAMESPACE")]
    appset_namespace: Option<String>,
    #[command(flatten)]
    server: Server,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: ListFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ListFormat {
    /// Human-readable table
    #[default]
    Wide,
    /// Only names, as `namespace/name`
    Name,
    /// JSON document
    Json,
    /// YAML document
    Yaml,
}

impl Command {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Create { change, upsert } => change.run(ManifestAction::Create { upsert: *upsert }, out),
            Self::Apply(change) => change.run(ManifestAction::Apply, out),
            Self::Update(change) => change.run(ManifestAction::Update, out),
            Self::Delete(delete) => delete.run(out),
            Self::List(list) => list.run(out),
            Self::Get {
                name,
                appset_namespace,
                server,
                output,
            } => {
                let (namespace, name) = qualified(name, appset_namespace.as_deref());
                let request = server.get(&["applicationsets", name], hint);
                let object = request
                    .query([("appsetNamespace", namespace.map(str::to_owned))])
                    .json()?;
                Ok(output.show(&object, display::describe, out)?)
            }
            Self::Generate { file, options } => options.generate(file, out),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ManifestAction {
    Create { upsert: bool },
    Apply,
    Update,
}

impl Change {
    fn run(&self, action: ManifestAction, out: &mut dyn Write) -> Result<(), Failure> {
        // Reads everything before it sends anything.
        let manifests = self.options.read(&self.files)?;
        let style = self.options.colors.diff_style();
        for manifest in &manifests {
            let done = match action {
                ManifestAction::Create { upsert } => self.create(manifest, upsert),
                ManifestAction::Update => self.replace(manifest),
                ManifestAction::Apply => match self.replace(manifest) {
                    Err(failure) if failure.code == NOT_FOUND => self.create(manifest, false),
                    done => done,
                },
            };
            let answer = done.map_err(|failure| failure.about(&manifest.name))?;
            let text = |answer: &Value| display::change(answer, self.dry_run, style);
            self.options.output.show(&answer, text, out)?;
        }
        Ok(())
    }

    fn send(&self, request: ApiRequest<'_>, object: Value) -> Result<Value, Failure> {
        let query = [
            ("dryRun", self.dry_run.then(|| "true".to_owned())),
            ("deletions", self.deletions.map(|number| number.to_string())),
        ];
        request.query(query).content(object).json()
    }

    fn create(&self, manifest: &Manifest, upsert: bool) -> Result<Value, Failure> {
        let request = self.options.server.request(Method::POST, &["applicationsets"], hint);
        let request = request.query([("upsert", upsert.then(|| "true".to_owned()))]);
        self.send(request, manifest.object.clone())
    }

    /// Replaces the stored set by the manifest, based on the version that the manifest names, or
    /// else on the version that is stored now.
    fn replace(&self, manifest: &Manifest) -> Result<Value, Failure> {
        let path = ["applicationsets", manifest.name.as_str()];
        let namespace = || [("appsetNamespace", manifest.namespace.clone())];
        let server = &self.options.server;
        let mut tried = 0;
        loop {
            let mut object = manifest.object.clone();
            if !manifest.has_version {
                let stored = server.get(&path, hint).query(namespace()).json()?;
                let version = stored.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
                if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.insert("resourceVersion".to_owned(), version);
                }
            }
            let request = server.request(Method::PUT, &path, hint).query(namespace());
            tried += 1;
            match self.send(request, object) {
                Err(failure) if failure.code == CONFLICT && !manifest.has_version && tried < MAX_ATTEMPTS => {}
                done => return done,
            }
        }
    }
}

impl Delete {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        for name in &self.names {
            let (namespace, name) = qualified(name, self.appset_namespace.as_deref());
            let namespace = || [("appsetNamespace", namespace.map(str::to_owned))];
            if !self.yes {
                let tree = self.server.get(&["applicationsets", name, "resource-tree"], hint);
                let tree = tree.query(namespace()).json()?;
                let question = display::question(name, &tree, self.cascade == Cascade::Orphan);
                confirm(&question, "appset.unconfirmed", "nothing was deleted")?;
            }
            let cascade = match self.cascade {
                Cascade::Background => "background",
                Cascade::Orphan => "orphan",
            };
            let options = [
                ("cascade", Some(cascade.to_owned())),
                ("deletions", self.deletions.map(|number| number.to_string())),
            ];
            let request = self.server.request(Method::DELETE, &["applicationsets", name], hint);
            let answer = request.query(namespace()).query(options).json();
            let answer = answer.map_err(|failure| failure.about(name))?;
            print(&display::deleted(name, &answer), out)?;
        }
        Ok(())
    }
}

impl List {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let projects = self.project.iter().map(|project| ("projects", Some(project.clone())));
        let request = self.server.get(&["applicationsets"], hint).query(projects);
        let answer = request
            .query([
                ("selector", self.selector.clone()),
                ("appsetNamespace", self.appset_namespace.clone()),
            ])
            .json()?;
        let answer = with_kinds(answer);
        let format = match self.output {
            ListFormat::Wide => Format::Table,
            ListFormat::Json => Format::Json,
            ListFormat::Yaml => Format::Yaml,
            ListFormat::Name => {
                let mut names = items(&answer, "/items").iter().map(display::qualified);
                return names.try_for_each(|name| print(&name, out));
            }
        };
        let table = Table {
            columns: &["NAME", "PROJECT", "GENERATORS", "SYNC", "REPO", "PATH", "TARGET"],
            row: display::row,
            empty_message: "No ApplicationSets found.",
        };
        print_items(&answer, format, &table, out)
    }
}

/// The list with `apiVersion` and `kind` of each item, which the API leaves out, so that an item can
/// be written to a file and applied.
fn with_kinds(mut list: Value) -> Value {
    let kind = WritableKind::ApplicationSet;
    let items = list.get_mut("items").and_then(Value::as_array_mut);
    for members in items.into_iter().flatten().filter_map(Value::as_object_mut) {
        members.insert("apiVersion".to_owned(), kind.api_version().into());
        members.insert("kind".to_owned(), kind.as_str().into());
    }
    list
}

/// Splits `namespace/name`; a name without namespace gets that of the option.
fn qualified<'a>(name: &'a str, namespace: Option<&'a str>) -> (Option<&'a str>, &'a str) {
    match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (namespace, name),
    }
}

fn hint(reason: &str) -> Option<&'static str> {
    match reason {
        CONFLICT => Some("somebody else changed it; get it again"),
        NOT_FOUND => Some("`tollgate appset list` shows those you may see"),
        "not_found" => Some("is `applicationSets` in the gateway's settings?"),
        "exists_differently" => Some("`--upsert` merges, `tollgate appset apply` replaces"),
        "too_many_deletions" => Some("`--deletions` agrees to a number"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
