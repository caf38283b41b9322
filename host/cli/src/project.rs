//! `tollgate project`: shows AppProjects, and changes the service accounts that act for their
//! Applications. It refuses to add an entry that exists, to remove one that does not, and to add
//! one that could not act.
//!
//! Invariant: nothing else in a project changes, and no other writer's change is undone.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::client::{Failure, print, runtime};
use super::format::Format;
use super::list_output::{Table, print_items, render_table, text_at};
use tollgate_gateway::projects::update::change;
use tollgate_gateway::projects::update::change::Entry;

mod project_client;

use project_client::{ProjectClient, ProjectClientArgs};

/// Most attempts of a change that conflicts with those of other writers.
const MAX_ATTEMPTS: u32 = 5;

/// Subcommands of `tollgate project`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List projects
    List(List),
    /// Show a project
    Get(Get),
    /// Add a service account that acts for a project's Applications at a destination
    ///
    /// Appends an entry to `destinationServiceAccounts`. The first entry that matches is used, so add
    /// specific entries before general ones.
    #[command(after_help = "Example:\n  tollgate project add-destination-service-account shop \
                            https://kubernetes.default.svc guestbook guestbook-deployer")]
    AddDestinationServiceAccount(Add),
    /// Remove an entry from a project's `destinationServiceAccounts`
    RemoveDestinationServiceAccount(Remove),
}

/// Arguments of `tollgate project list`.
#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    client: ProjectClientArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Arguments of `tollgate project get`.
#[derive(Debug, Args)]
pub struct Get {
    /// Name of the project
    project: String,
    #[command(flatten)]
    client: ProjectClientArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// An entry of `destinationServiceAccounts`.
#[derive(Debug, Args)]
struct EntryArgs {
    /// Name of the project
    project: String,
    /// URL of the destination's API server, or a pattern such as `*`
    #[arg(value_name = "SERVER")]
    destination: String,
    /// Namespace of the destination, or a pattern such as `team-*`
    namespace: String,
    /// Name of the service account, or NAMESPACE:NAME
    service_account: String,
    /// Namespace of the service account, if it is not the destination's
    #[arg(long, value_name = "NAMESPACE")]
    service_account_namespace: Option<String>,
}

/// Arguments of `tollgate project add-destination-service-account`.
#[derive(Debug, Args)]
pub struct Add {
    #[command(flatten)]
    entry: EntryArgs,
    #[command(flatten)]
    client: ProjectClientArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Arguments of `tollgate project remove-destination-service-account`.
#[derive(Debug, Args)]
pub struct Remove {
    #[command(flatten)]
    entry: EntryArgs,
    #[command(flatten)]
    client: ProjectClientArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Command {
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::List(list) => list.run(out),
            Self::Get(get) => get.run(out),
            Self::AddDestinationServiceAccount(add) => add.run(out),
            Self::RemoveDestinationServiceAccount(remove) => remove.run(out),
        }
    }
}

impl List {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let client = self.client.open()?;
        let answer = runtime()?.block_on(client.list())?;
        let table = Table {
            columns: &["NAME", "DESCRIPTION", "DESTINATIONS", "SERVICE-ACCOUNTS"],
            row: &row,
            empty_message: "No projects found.",
        };
        print_items(&answer, self.output, &table, out)
    }
}

impl Get {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let client = self.client.open()?;
        let object = runtime()?.block_on(client.get(&self.project))?;
        match self.output {
            Format::Table => print(&describe(&object), out),
            Format::Json | Format::Yaml => document(self.output, &object, out),
        }
    }
}

impl Add {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let entry = self.entry.read()?;
        for (what, value) in [
            (
                "service-account-namespace",
                self.entry.service_account_namespace.as_ref(),
            ),
            ("service account", Some(&self.entry.service_account)),
        ] {
            if value.is_some_and(|value| value.contains('*')) {
                let message = format!("{what} of a destination service account must not contain wildcards");
                return Err(Failure::new("project.wildcard", message));
            }
        }
        let client = self.client.open()?;
        let changed = change(&client, &self.entry.project, |object| change::add(object, &entry))?;
        match self.output {
            Format::Table => print(&change_message(&self.entry.project, "added", &entry), out),
            Format::Json | Format::Yaml => document(self.output, &changed, out),
        }
    }
}

impl Remove {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let entry = self.entry.read()?;
        let client = self.client.open()?;
        let changed = change(&client, &self.entry.project, |object| change::remove(object, &entry))?;
        match self.output {
            Format::Table => print(&change_message(&self.entry.project, "removed", &entry), out),
            Format::Json | Format::Yaml => document(self.output, &changed, out),
        }
    }
}

impl EntryArgs {
    fn read(&self) -> Result<Entry, Failure> {
        let account = match self.service_account_namespace.as_deref() {
            None | Some("") => self.service_account.clone(),
            Some(_) if self.service_account.contains(':') => {
                let message = "the service account names a namespace already";
                return Err(Failure::new("project.account", message).with_hint("leave one of both out"));
            }
            Some(namespace) => format!("{namespace}:{}", self.service_account),
        };
        Ok(Entry {
            server: self.destination.clone(),
            namespace: self.namespace.clone(),
            account,
        })
    }
}

/// Reads, changes and writes a project; repeats this if somebody else wrote in between.
fn change(
    client: &ProjectClient,
    name: &str,
    change: impl Fn(&Value) -> Result<Value, change::Error>,
) -> Result<Value, Failure> {
    let runtime = runtime()?;
    let mut tried = 0;
    loop {
        let object = runtime.block_on(client.get(name))?;
        let wanted = change(&object).map_err(|error| project_client::change_failure(&error))?;
        tried += 1;
        match runtime.block_on(client.put(name, wanted)) {
            Err(failure) if failure.code() == project_client::CONFLICT && tried < MAX_ATTEMPTS => {}
            done => return done,
        }
    }
}

fn document(format: Format, object: &Value, out: &mut dyn Write) -> Result<(), Failure> {
    format
        .print(object, out)
        .map_err(|error| Failure::new("host.output", error))
}

fn change_message(name: &str, done: &str, entry: &Entry) -> String {
    let Entry {
        server,
        namespace,
        account,
    } = entry;
    format!("project {name}: {done} service account {account} for server {server}, namespace {namespace}")
}

fn list_at<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    let list = object.pointer(pointer).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn row(item: &Value) -> Vec<String> {
    let one = |pointer: &str, keys: &[&str], many: &str| match list_at(item, pointer) {
        [] => "<none>".to_owned(),
        [one] => {
            let parts = keys
                .iter()
                .map(|key| one.get(*key).and_then(Value::as_str).unwrap_or_default());
            parts.collect::<Vec<_>>().join(",")
        }
        several => format!("{} {many}", several.len()),
    };
    vec![
        text_at(item, "/metadata/name"),
        text_at(item, "/spec/description"),
        one("/spec/destinations", &["server", "namespace"], "destinations"),
        one(
            "/spec/destinationServiceAccounts",
            &["server", "namespace", "defaultServiceAccount"],
            "service accounts",
        ),
    ]
}

/// Describes a project for people.
fn describe(object: &Value) -> String {
    let facts = [
        ("Name", text_at(object, "/metadata/name")),
        ("Description", text_at(object, "/spec/description")),
        ("Version", text_at(object, "/metadata/resourceVersion")),
    ];
    let facts = facts.map(|(key, value)| json!({"key": format!("{key}:"), "value": value}));
    let table = Table {
        columns: &[],
        row: &|item| vec![text_at(item, "/key"), text_at(item, "/value")],
        empty_message: "",
    };
    let head = render_table(&facts, &table);
    let part = |title: &str, pointer: &str, columns: &[&str], keys: &[&str]| {
        let items = list_at(object, pointer);
        if items.is_empty() {
            return format!("\n\n {title}: <none>");
        }
        let row = |item: &Value| keys.iter().map(|key| text_at(item, &format!("/{key}"))).collect();
        let table = Table {
            columns,
            row: &row,
            empty_message: "",
        };
        format!("\n\n {title}:\n{}", render_table(items, &table))
    };
    let destinations = part(
        "Destinations",
        "/spec/destinations",
        &["SERVER", "NAME", "NAMESPACE"],
        &["server", "name", "namespace"],
    );
    let accounts = part(
        "Destination service accounts, the first that matches acts",
        "/spec/destinationServiceAccounts",
        &["SERVER", "NAMESPACE", "SERVICE-ACCOUNT"],
        &["server", "namespace", "defaultServiceAccount"],
    );
    format!("{}{destinations}{accounts}", head.trim_start_matches('\n'))
}

#[cfg(test)]
mod tests;
