//! `tollgate appset`: reads and changes ApplicationSets on a running gateway, and previews what
//! they would generate. Nothing is sent unless every file holds only ApplicationSets, and
//! deleting needs the user's agreement.
//!
//! Invariant: a change never undoes another writer's change.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use super::client::{ApiRequest, Failure, Server, print, runtime};
use super::format::Format;
use super::list_output::{Table, show};

mod display;
mod file;

use display::{Colors, DiffStyle};
use file::Manifest;

/// How often a change is tried that others come in between.
const MAX_ATTEMPTS: u32 = 5;

/// The gateway's word for another version than the one that was read.
const CONFLICT: &str = "conflict";

/// The gateway's word for a set that is not there, or not the caller's to see.
const NOT_FOUND: &str = "applicationset_not_found";

/// Commands about ApplicationSets.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create ApplicationSets with all they generate.
    #[command(after_help = "Example:\n  tollgate appset create --dry-run cluster-addons.yaml")]
    Create(Create),
    /// Create ApplicationSets, or replace those that exist.
    Apply(Change),
    /// Replace ApplicationSets that exist.
    Update(Change),
    /// Delete ApplicationSets.
    Delete(Delete),
    /// List ApplicationSets.
    List(List),
    /// Show an ApplicationSet.
    Get(Get),
    /// Show what an ApplicationSet would generate, and what that would change.
    Generate(Generate),
}

/// Creates ApplicationSets.
#[derive(Debug, Args)]
pub struct Create {
    #[command(flatten)]
    change: Change,
    /// Change one that exists: labels and annotations are merged, the rest is replaced.
    #[arg(long)]
    upsert: bool,
}

/// Files that say how ApplicationSets shall be.
#[derive(Debug, Args)]
pub struct Change {
    /// YAML or JSON files with ApplicationSets; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only show what would change.
    #[arg(long)]
    dry_run: bool,
    /// How many Applications you expect to be deleted, when they are more than the
    /// gateway takes unasked.
    #[arg(long, value_name = "NUMBER")]
    deletions: Option<u64>,
    #[command(flatten)]
    options: RequestOptions,
}

/// Where manifests go, and how the answer is shown.
#[derive(Debug, Args)]
struct RequestOptions {
    /// Namespace of sets that name none.
    #[arg(short = 'N', long, value_name = "NAMESPACE")]
    appset_namespace: Option<String>,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    colors: Colors,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl RequestOptions {
    fn read(&self, files: &[PathBuf]) -> Result<Vec<Manifest>, Failure> {
        file::read(files, self.appset_namespace.as_deref())
    }

    /// Shows an answer, as `page` for people.
    fn show(
        &self,
        answer: &Value,
        page: impl FnOnce(&Value, DiffStyle) -> String,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        match self.output {
            Format::Table => print(&page(answer, self.colors.diff_style()), out),
            Format::Json | Format::Yaml => document(self.output, answer, out),
        }
    }
}

/// Deletes ApplicationSets.
#[derive(Debug, Args)]
pub struct Delete {
    /// Their names, or `namespace/name`.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// What becomes of their Applications.
    #[arg(long, value_enum, default_value_t)]
    cascade: Cascade,
    /// How many Applications you expect to be deleted, when they are more than the
    /// gateway takes unasked.
    #[arg(long, value_name = "NUMBER")]
    deletions: Option<u64>,
    /// Namespace of names without one.
    #[arg(short = 'N', long, value_name = "NAMESPACE")]
    appset_namespace: Option<String>,
    #[command(flatten)]
    server: Server,
}

/// What becomes of the Applications of a set that is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Cascade {
    /// They are deleted, and what they deployed in the background
    #[default]
    Background,
    /// They stay
    Orphan,
}

/// Lists ApplicationSets.
#[derive(Debug, Args)]
pub struct List {
    /// Those of this project; may be repeated.
    #[arg(short, long, value_name = "PROJECT")]
    project: Vec<String>,
    /// Those with these labels, such as `team=shop,tier!=test`.
    #[arg(short = 'l', long)]
    selector: Option<String>,
    /// Those in this namespace.
    #[arg(short = 'N', long, value_name = "NAMESPACE")]
    appset_namespace: Option<String>,
    #[command(flatten)]
    server: Server,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: ListFormat,
}

/// How a list is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ListFormat {
    /// Text for people
    #[default]
    Wide,
    /// Names alone, `namespace/name`
    Name,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// Shows an ApplicationSet.
#[derive(Debug, Args)]
pub struct Get {
    /// Its name, or `namespace/name`.
    name: String,
    /// Its namespace, where the name has none.
    #[arg(short = 'N', long, value_name = "NAMESPACE")]
    appset_namespace: Option<String>,
    #[command(flatten)]
    server: Server,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Shows what an ApplicationSet would generate.
#[derive(Debug, Args)]
pub struct Generate {
    /// YAML or JSON file with one ApplicationSet; `-` is standard input.
    file: PathBuf,
    #[command(flatten)]
    options: RequestOptions,
}

impl Command {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Create(create) => create.run(out),
            Self::Apply(change) => change.run(ManifestAction::Apply, out),
            Self::Update(change) => change.run(ManifestAction::Update, out),
            Self::Delete(delete) => delete.run(out),
            Self::List(list) => list.run(out),
            Self::Get(get) => get.run(out),
            Self::Generate(generate) => generate.run(out),
        }
    }
}

/// How a manifest reaches the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ManifestAction {
    Create { upsert: bool },
    Apply,
    Update,
}

impl Create {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        self.change.run(ManifestAction::Create { upsert: self.upsert }, out)
    }
}

impl Change {
    fn run(&self, mode: ManifestAction, out: &mut dyn Write) -> Result<(), Failure> {
        // Everything is read before anything is sent.
        let manifests = self.options.read(&self.files)?;
        let runtime = runtime()?;
        for manifest in &manifests {
            let done = runtime.block_on(async {
                match mode {
                    ManifestAction::Create { upsert } => self.create(manifest, upsert).await,
                    ManifestAction::Update => self.replace(manifest).await,
                    ManifestAction::Apply => match self.replace(manifest).await {
                        Err(failure) if failure.code() == NOT_FOUND => self.create(manifest, false).await,
                        done => done,
                    },
                }
            });
            let answer = done.map_err(|failure| failure.about(&manifest.name))?;
            self.options.show(
                &answer,
                |answer, paint| display::change(answer, self.dry_run, paint),
                out,
            )?;
        }
        Ok(())
    }

    async fn create(&self, manifest: &Manifest, upsert: bool) -> Result<Value, Failure> {
        let query = [
            ("upsert", upsert.then(|| "true".to_owned())),
            ("dryRun", self.dry_run.then(|| "true".to_owned())),
            ("deletions", self.deletions.map(|number| number.to_string())),
        ];
        let ask = ApiRequest {
            method: Method::POST,
            query: &query,
            content: Some(manifest.object.clone()),
            ..ApiRequest::get(&["applicationsets"], hint)
        };
        self.options.server.json(ask).await
    }

    /// Puts the manifest in place of what is stored, based on the version it names
    /// itself, or else on the one that is stored now.
    async fn replace(&self, manifest: &Manifest) -> Result<Value, Failure> {
        let path = ["applicationsets", manifest.name.as_str()];
        let query = [
            ("appsetNamespace", manifest.namespace.clone()),
            ("dryRun", self.dry_run.then(|| "true".to_owned())),
            ("deletions", self.deletions.map(|number| number.to_string())),
        ];
        let mut tried = 0;
        loop {
            let mut object = manifest.object.clone();
            if !manifest.has_version {
                let query = [("appsetNamespace", manifest.namespace.clone())];
                let ask = ApiRequest {
                    query: &query,
                    ..ApiRequest::get(&path, hint)
                };
                let stored = self.options.server.json(ask).await?;
                let version = stored.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
                if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.insert("resourceVersion".to_owned(), version);
                }
            }
            let ask = ApiRequest {
                method: Method::PUT,
                query: &query,
                content: Some(object),
                ..ApiRequest::get(&path, hint)
            };
            tried += 1;
            match self.options.server.json(ask).await {
                Err(failure) if failure.code() == CONFLICT && !manifest.has_version && tried < MAX_ATTEMPTS => {}
                done => return done,
            }
        }
    }
}

impl Delete {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let runtime = runtime()?;
        for name in &self.names {
            let (namespace, name) = qualified(name, self.appset_namespace.as_deref());
            if !self.yes {
                let tree = runtime.block_on(self.tree(name, namespace))?;
                file::confirm(&display::question(name, &tree, self.cascade == Cascade::Orphan))?;
            }
            let query = [
                ("appsetNamespace", namespace.map(str::to_owned)),
                (
                    "cascade",
                    Some(match self.cascade {
                        Cascade::Background => "background".to_owned(),
                        Cascade::Orphan => "orphan".to_owned(),
                    }),
                ),
                ("deletions", self.deletions.map(|number| number.to_string())),
            ];
            let path = ["applicationsets", name];
            let ask = ApiRequest {
                method: Method::DELETE,
                query: &query,
                ..ApiRequest::get(&path, hint)
            };
            let answer = runtime.block_on(self.server.json(ask));
            let answer = answer.map_err(|failure| failure.about(name))?;
            print(&display::deleted(name, &answer), out)?;
        }
        Ok(())
    }

    async fn tree(&self, name: &str, namespace: Option<&str>) -> Result<Value, Failure> {
        let query = [("appsetNamespace", namespace.map(str::to_owned))];
        let path = ["applicationsets", name, "resource-tree"];
        let ask = ApiRequest {
            query: &query,
            ..ApiRequest::get(&path, hint)
        };
        self.server.json(ask).await
    }
}

impl List {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let projects = self.project.iter().map(|project| ("projects", Some(project.clone())));
        let mut query: Vec<_> = projects.collect();
        query.push(("selector", self.selector.clone()));
        query.push(("appsetNamespace", self.appset_namespace.clone()));
        let ask = ApiRequest {
            query: &query,
            ..ApiRequest::get(&["applicationsets"], hint)
        };
        let answer = runtime()?.block_on(self.server.json(ask))?;
        let table = Table {
            columns: &["NAME", "PROJECT", "GENERATORS", "SYNC", "REPO", "PATH", "TARGET"],
            row: &display::row,
            empty_message: "No ApplicationSets found.",
        };
        match self.output {
            ListFormat::Wide => show(&answer, Format::Table, &table, out),
            ListFormat::Json => document(Format::Json, &answer, out),
            ListFormat::Yaml => document(Format::Yaml, &answer, out),
            ListFormat::Name => {
                let items = answer.get("items").and_then(Value::as_array);
                for item in items.map(Vec::as_slice).unwrap_or_default() {
                    print(&display::qualified(item), out)?;
                }
                Ok(())
            }
        }
    }
}

impl Get {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let (namespace, name) = qualified(&self.name, self.appset_namespace.as_deref());
        let query = [("appsetNamespace", namespace.map(str::to_owned))];
        let path = ["applicationsets", name];
        let ask = ApiRequest {
            query: &query,
            ..ApiRequest::get(&path, hint)
        };
        let object = runtime()?.block_on(self.server.json(ask))?;
        match self.output {
            Format::Table => print(&display::page(&object), out),
            Format::Json | Format::Yaml => document(self.output, &object, out),
        }
    }
}

impl Generate {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let manifests = self.options.read(std::slice::from_ref(&self.file))?;
        let [manifest] = manifests.as_slice() else {
            let found = manifests.len();
            let message = format!("`{}` has {found} ApplicationSets, one is wanted", self.file.display());
            return Err(Failure::new("appset.file", message));
        };
        let ask = ApiRequest {
            method: Method::POST,
            content: Some(json!({ "applicationSet": manifest.object })),
            ..ApiRequest::get(&["applicationsets", "generate"], hint)
        };
        let answer = runtime()?.block_on(self.options.server.json(ask));
        let answer = answer.map_err(|failure| failure.about(&manifest.name))?;
        self.options.show(&answer, display::generated, out)
    }
}

/// `namespace/name`, or a name and the namespace of an option; the name's own wins.
fn qualified<'a>(name: &'a str, namespace: Option<&'a str>) -> (Option<&'a str>, &'a str) {
    match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (namespace, name),
    }
}

fn document(format: Format, object: &Value, out: &mut dyn Write) -> Result<(), Failure> {
    format
        .print(object, out)
        .map_err(|error| Failure::new("host.output", error))
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
