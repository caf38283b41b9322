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

use super::client::{ApiRequest, Failure, Server, print, runtime};
use super::format::Format;
use super::list_output::{Table, print_items};

mod display;
mod file;

use display::{Colors, DiffStyle};
use file::Manifest;

/// Most attempts of a change that conflicts with those of other writers.
const MAX_ATTEMPTS: u32 = 5;

/// Reason code if the stored version is not the one that was read.
const CONFLICT: &str = "conflict";

/// Reason code if the set does not exist, or the caller may not see it.
const NOT_FOUND: &str = "applicationset_not_found";

/// Subcommands of `tollgate appset`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create ApplicationSets and the Applications that they generate
    ///
    /// A set that is stored with the same content stays unchanged. One that is stored with other content
    /// is refused, unless --upsert is given.
    #[command(after_help = "Example:\n  tollgate appset create --dry-run cluster-addons.yaml")]
    Create(Create),
    /// Create ApplicationSets, or replace existing ones
    Apply(Change),
    /// Replace existing ApplicationSets
    Update(Change),
    /// Delete ApplicationSets, after confirmation
    Delete(Delete),
    /// List ApplicationSets
    List(List),
    /// Show an ApplicationSet
    Get(Get),
    /// Preview the Applications that an ApplicationSet would generate
    ///
    /// Prints how they would differ from the stored Applications. Changes nothing.
    Generate(Generate),
}

/// Arguments of `tollgate appset create`.
#[derive(Debug, Args)]
pub struct Create {
    #[command(flatten)]
    change: Change,
    /// Update sets that exist: merge labels and annotations, replace the rest
    #[arg(long)]
    upsert: bool,
}

/// Arguments of `tollgate appset apply` and `update`.
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

/// Options of commands that send manifests.
#[derive(Debug, Args)]
struct RequestOptions {
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

    /// Prints a response: as `render` formats it for people, or as a document.
    fn show(
        &self,
        answer: &Value,
        render: impl FnOnce(&Value, DiffStyle) -> String,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        match self.output {
            Format::Table => print(&render(answer, self.colors.diff_style()), out),
            Format::Json | Format::Yaml => document(self.output, answer, out),
        }
    }
}

/// Arguments of `tollgate appset delete`.
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

/// Values of `--cascade`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Cascade {
    /// Delete them, and in the background the resources that they deployed
    #[default]
    Background,
    /// Keep them
    Orphan,
}

/// Arguments of `tollgate appset list`.
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

/// Output format of a list.
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

/// Arguments of `tollgate appset get`.
#[derive(Debug, Args)]
pub struct Get {
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
}

/// Arguments of `tollgate appset generate`.
#[derive(Debug, Args)]
pub struct Generate {
    /// YAML or JSON file with one ApplicationSet, at most 16 MiB; `-` is standard input
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

/// What to do with a manifest.
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
    fn run(&self, action: ManifestAction, out: &mut dyn Write) -> Result<(), Failure> {
        // Reads everything before it sends anything.
        let manifests = self.options.read(&self.files)?;
        let runtime = runtime()?;
        for manifest in &manifests {
            let done = runtime.block_on(async {
                match action {
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
                |answer, style| display::change(answer, self.dry_run, style),
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
        let request = ApiRequest {
            method: Method::POST,
            query: &query,
            content: Some(manifest.object.clone()),
            ..ApiRequest::get(&["applicationsets"], hint)
        };
        self.options.server.send_json(request).await
    }

    /// Replaces the stored set by the manifest, based on the version that the manifest names, or
    /// else on the version that is stored now.
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
                let request = ApiRequest {
                    query: &query,
                    ..ApiRequest::get(&path, hint)
                };
                let stored = self.options.server.send_json(request).await?;
                let version = stored.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
                if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.insert("resourceVersion".to_owned(), version);
                }
            }
            let request = ApiRequest {
                method: Method::PUT,
                query: &query,
                content: Some(object),
                ..ApiRequest::get(&path, hint)
            };
            tried += 1;
            match self.options.server.send_json(request).await {
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
            let request = ApiRequest {
                method: Method::DELETE,
                query: &query,
                ..ApiRequest::get(&path, hint)
            };
            let answer = runtime.block_on(self.server.send_json(request));
            let answer = answer.map_err(|failure| failure.about(name))?;
            print(&display::deleted(name, &answer), out)?;
        }
        Ok(())
    }

    async fn tree(&self, name: &str, namespace: Option<&str>) -> Result<Value, Failure> {
        let query = [("appsetNamespace", namespace.map(str::to_owned))];
        let path = ["applicationsets", name, "resource-tree"];
        let request = ApiRequest {
            query: &query,
            ..ApiRequest::get(&path, hint)
        };
        self.server.send_json(request).await
    }
}

impl List {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let projects = self.project.iter().map(|project| ("projects", Some(project.clone())));
        let mut query: Vec<_> = projects.collect();
        query.push(("selector", self.selector.clone()));
        query.push(("appsetNamespace", self.appset_namespace.clone()));
        let request = ApiRequest {
            query: &query,
            ..ApiRequest::get(&["applicationsets"], hint)
        };
        let answer = runtime()?.block_on(self.server.send_json(request))?;
        let table = Table {
            columns: &["NAME", "PROJECT", "GENERATORS", "SYNC", "REPO", "PATH", "TARGET"],
            row: &display::row,
            empty_message: "No ApplicationSets found.",
        };
        match self.output {
            ListFormat::Wide => print_items(&answer, Format::Table, &table, out),
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
        let request = ApiRequest {
            query: &query,
            ..ApiRequest::get(&path, hint)
        };
        let object = runtime()?.block_on(self.server.send_json(request))?;
        match self.output {
            Format::Table => print(&display::describe(&object), out),
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
        let request = ApiRequest {
            method: Method::POST,
            content: Some(json!({ "applicationSet": manifest.object })),
            ..ApiRequest::get(&["applicationsets", "generate"], hint)
        };
        let answer = runtime()?.block_on(self.options.server.send_json(request));
        let answer = answer.map_err(|failure| failure.about(&manifest.name))?;
        self.options.show(&answer, display::generated, out)
    }
}

/// Splits `namespace/name`; a name without namespace gets that of the option.
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
