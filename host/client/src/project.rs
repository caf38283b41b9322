//! `tollgate project`: shows AppProjects, and changes the service accounts that act for their
//! Applications. It refuses to add an entry that exists, to remove one that does not, and to add
//! one that could not act.
//!
//! Invariant: nothing else in a project changes, and no other writer's change is undone.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::failure::Failure;
use super::list_output::{Table, clean, items, print_items, render, render_facts, text_at};
use tollgate_objects::DestinationServiceAccount;
use tollgate_policy::account_entries as change;
use tollgate_policy::account_entries::Entry;

mod project_client;

use project_client::ProjectClientArgs;

/// Most attempts of a change that conflicts with those of other writers.
const MAX_ATTEMPTS: u32 = 5;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List projects
    List {
        #[command(flatten)]
        client: ProjectClientArgs,
    },
    /// Show a project
    Get {
        /// Name of the project
        project: String,
        #[command(flatten)]
        client: ProjectClientArgs,
    },
    /// Add a service account that acts for a project's Applications at a destination
    ///
    /// Appends an entry to `destinationServiceAccounts`. The first entry that matches is used, so add
    /// specific entries before general ones.
    #[command(after_help = "Example:\n  tollgate project add-destination-service-account shop \
                            https://kubernetes.default.svc guestbook guestbook-deployer")]
    AddDestinationServiceAccount(EntryArgs),
    /// Remove an entry from a project's `destinationServiceAccounts`
    RemoveDestinationServiceAccount(EntryArgs),
    /// Replace the service accounts that act for a project's Applications
    #[command(after_help = "Example:\n  tollgate project set shop \
                            --dest-service-accounts https://kubernetes.default.svc,guestbook,guestbook-deployer \
                            --dest-service-accounts '*,*,infra:deployer'")]
    Set(SetArgs),
}

#[derive(Debug, Args)]
pub struct SetArgs {
    /// Name of the project
    project: String,
    /// Destination's API server and namespace, and the service account; repeat it for more entries
    #[arg(long, value_name = "SERVER,NAMESPACE,ACCOUNT", required = true)]
    dest_service_accounts: Vec<DestinationServiceAccount>,
    #[command(flatten)]
    client: ProjectClientArgs,
}

#[derive(Debug, Args)]
pub struct EntryArgs {
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
    #[command(flatten)]
    client: ProjectClientArgs,
}

impl Command {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::List { client } => print_items(&client.open()?.list()?, client.output, &TABLE, out),
            Self::Get { project, client } => Ok(client.output.show(&client.open()?.get(project)?, describe, out)?),
            Self::AddDestinationServiceAccount(args) => {
                let entry = args.read()?;
                args.refuse_wildcards()?;
                args.change("added", &entry, change::add, out)
            }
            Self::RemoveDestinationServiceAccount(args) => args.change("removed", &args.read()?, change::remove, out),
            Self::Set(args) => args.run(out),
        }
    }
}

impl SetArgs {
    fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let entry = |account: &DestinationServiceAccount| Entry {
            server: account.server.clone(),
            namespace: account.namespace.clone(),
            account: account.default_service_account.clone(),
        };
        let entries: Vec<Entry> = self.dest_service_accounts.iter().map(entry).collect();
        let changed = change_project(&self.client, &self.project, |stored| change::replace(stored, &entries))?;
        let message = format!(
            "project {}: set {} destination service accounts",
            self.project,
            entries.len()
        );
        Ok(self.client.output.show(&changed, |_| message, out)?)
    }
}

/// Reads, changes and writes a project; repeats this if somebody else wrote in between. Returns it
/// as it is now stored.
fn change_project(
    client: &ProjectClientArgs,
    name: &str,
    change: impl Fn(&Value) -> Result<Value, change::Error>,
) -> Result<Value, Failure> {
    let client = client.open()?;
    let mut tried = 0;
    loop {
        let wanted = change(&client.get(name)?).map_err(|error| project_client::change_failure(&error))?;
        tried += 1;
        match client.put(name, wanted) {
            Err(failure) if failure.code == project_client::CONFLICT && tried < MAX_ATTEMPTS => {}
            done => return done,
        }
    }
}

impl EntryArgs {
    fn refuse_wildcards(&self) -> Result<(), Failure> {
        let account_namespace = self.service_account_namespace.as_deref().unwrap_or_default();
        for (what, value) in [
            ("service-account-namespace", account_namespace),
            ("service account", &self.service_account),
        ] {
            if value.contains('*') {
                let message = format!("{what} of a destination service account must not contain wildcards");
                return Err(Failure::new("project.wildcard", message));
            }
        }
        Ok(())
    }

    fn change(
        &self,
        done: &str,
        entry: &Entry,
        change: fn(&Value, &Entry) -> Result<Value, change::Error>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let name = &self.project;
        let changed = change_project(&self.client, name, |stored| change(stored, entry))?;
        let Entry {
            server,
            namespace,
            account,
        } = entry;
        let message =
            format!("project {name}: {done} service account {account} for server {server}, namespace {namespace}");
        Ok(self.client.output.show(&changed, |_| message, out)?)
    }

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

const TABLE: Table = Table {
    columns: &["NAME", "DESCRIPTION", "DESTINATIONS", "SERVICE-ACCOUNTS"],
    row,
    empty_message: "No projects found.",
};

fn row(item: &Value) -> Vec<String> {
    let one = |pointer: &str, keys: &[&str], many: &str| match items(item, pointer) {
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

fn describe(object: &Value) -> String {
    let facts = render_facts([
        ("Name", text_at(object, "/metadata/name")),
        ("Description", text_at(object, "/spec/description")),
        ("Version", text_at(object, "/metadata/resourceVersion")),
    ]);
    let part = |title: &str, pointer: &str, columns: &[&str], keys: &[&str]| {
        let items = items(object, pointer);
        if items.is_empty() {
            return format!("\n\n {title}: <none>");
        }
        let row = |item| keys.iter().map(move |key| clean(&text_at(item, &format!("/{key}"))));
        format!("\n\n {title}:\n{}", render(columns, items.iter().map(row)))
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
    format!("{facts}{destinations}{accounts}")
}

#[cfg(test)]
mod tests;
