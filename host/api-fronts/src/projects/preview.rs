//! Shows who would act for each Application of a project with other `destinationServiceAccounts`.
//! Nothing is written.
//!
//! Security: only Applications that the caller may see are shown.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::acting::{Acting, visible_applications};
use crate::projects::update::Error;
use tollgate_config::{ImpersonationMode, ServiceAccountSemantics};
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_front::caller::Caller;
use tollgate_front::policies::Policies;
use tollgate_objects::{DestinationServiceAccount, ObjectName};
use tollgate_policy::account_entries as change;
use tollgate_policy::applications::{ApplicationIndex, IndexedApplication};
use tollgate_policy::impersonate::service_account::DestinationServiceAccounts;

/// Most Applications of an answer. Those that change come first.
const MAX_APPLICATIONS: usize = 500;
/// Most entries that are shown as tried for one Application.
const MAX_TRIED: usize = 20;

/// What is asked: a list in place of the project's.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreviewRequest {
    destination_service_accounts: Vec<Value>,
}

/// Who would act, and what is suspicious.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preview {
    /// Whether accounts act: `off`, `audit` or `enforce`.
    mode: &'static str,
    /// Who acts if no entry matches.
    fallback: String,
    findings: Vec<Diagnostic>,
    applications: Vec<ApplicationPreview>,
    /// How many Applications that the caller may see change, and how many stay.
    changing: usize,
    unchanged: usize,
}

/// One Application, now and with the other list.
#[derive(Debug, Serialize)]
struct ApplicationPreview {
    #[serde(flatten)]
    name: ObjectName,
    /// API server of its destination; absent if it leads to no cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// Namespace of its destination.
    destination: String,
    changes: bool,
    now: Acting,
    then: Acting,
    /// The first entries that were tried with the other list, in order.
    tried: Vec<Tried>,
}

#[derive(Debug, Serialize)]
struct Tried {
    entry: usize,
    why: &'static str,
}

impl ApplicationPreview {
    fn of(now: &IndexedApplication, then: &IndexedApplication) -> Self {
        let (acting_now, acting_then) = (Acting::of(now), Acting::of(then));
        Self {
            name: then.application.name.clone(),
            server: then.destination.as_ref().ok().map(|cluster| cluster.server.clone()),
            destination: then.application.destination.namespace.clone(),
            // Another number for the same account is no change.
            changes: (&acting_now.account, &acting_now.error) != (&acting_then.account, &acting_then.error),
            now: acting_now,
            then: acting_then,
            tried: Vec::new(),
        }
    }

    /// Adds the entries that were tried, which takes longer than everything else.
    fn with_tried(self, then: &IndexedApplication) -> Self {
        let tried = then.evaluated_entries().into_iter().take(MAX_TRIED);
        let tried = tried.map(|tried| Tried {
            entry: tried.index,
            why: tried.why(),
        });
        Self {
            tried: tried.collect(),
            ..self
        }
    }
}

impl PreviewRequest {
    /// The entries, once they could be stored.
    ///
    /// # Errors
    /// [`Error::Change`] if an entry cannot be used.
    fn entries(self, semantics: ServiceAccountSemantics) -> Result<Vec<DestinationServiceAccount>, Error> {
        let object = json!({"spec": {"destinationServiceAccounts": self.destination_service_accounts}});
        change::validate(&object, semantics)?;
        Ok(change::entries(&object)?)
    }
}

/// The entries of a project as it is. Their positions are keys, as those of entries that are sent: no
/// caller learns a path of the gateway's machine.
fn stored_entries(policies: &Policies, project: &str) -> Result<Vec<DestinationServiceAccount>, Error> {
    let stored = policies.resources.projects.get(project);
    let stored = stored.ok_or_else(|| Error::UnknownProject(project.to_owned()))?;
    let entries = stored.destination_service_accounts.iter().enumerate();
    let at_key = |(number, entry): (usize, &DestinationServiceAccount)| DestinationServiceAccount {
        location: Location::new(format!("spec.destinationServiceAccounts[{number}]"), 0),
        ..entry.clone()
    };
    Ok(entries.map(at_key).collect())
}

impl Preview {
    /// - `asked`: `None` for the project's own list.
    /// - `project`: the name, of a project that the caller may see.
    ///
    /// # Errors
    /// [`Error::Change`] if an entry cannot be used, [`Error::NoApplications`] while the front of
    /// Applications is closed, and [`Error::UnknownProject`].
    pub(crate) fn of(
        asked: Option<PreviewRequest>,
        project: &str,
        policies: &Policies,
        caller: &Caller,
    ) -> Result<Self, Error> {
        let front = policies.applications.as_ref().ok_or(Error::NoApplications)?;
        let semantics = policies.config.applications.unwrap_or_default().semantics;
        let entries = match asked {
            Some(asked) => asked.entries(semantics)?,
            None => stored_entries(policies, project)?,
        };
        let compiled = DestinationServiceAccounts::compile(&entries, semantics);
        let mut findings = compiled.findings(entries.len());
        let index: &ApplicationIndex = &front.index;
        if index.mode == ImpersonationMode::Off && !entries.is_empty() {
            let message = "impersonation is off: nobody acts as these accounts yet";
            findings.push(Diagnostic::warning(None, message));
        }
        let then = index.with_entries(&policies.resources, &front.rules, project, entries);
        let then = then.ok_or_else(|| Error::UnknownProject(project.to_owned()))?;
        let all: Vec<_> = then.iter().collect();
        let of_all = all.iter().map(|indexed| &*indexed.application);
        let visible = visible_applications(policies, &caller.roles, of_all);
        let visible = all.into_iter().zip(visible).filter(|(_, is_visible)| *is_visible);
        let mut applications: Vec<ApplicationPreview> = visible
            .filter_map(|(then, _)| {
                let ObjectName { namespace, name } = &then.application.name;
                Some(ApplicationPreview::of(index.find(namespace, name)?, then))
            })
            .collect();
        applications.sort_by(|one, other| (!one.changes, &one.name).cmp(&(!other.changes, &other.name)));
        // Before the list is cut, because the numbers are about all that the caller may see.
        let changing = applications.iter().filter(|application| application.changes).count();
        let unchanged = applications.len().saturating_sub(changing);
        applications.truncate(MAX_APPLICATIONS);
        let with_tried = |application: ApplicationPreview| {
            let ObjectName { namespace, name } = &application.name;
            let indexed = then.find(namespace, name);
            indexed.map(|indexed| application.with_tried(indexed))
        };
        let applications = applications.into_iter().filter_map(with_tried).collect();
        Ok(Self {
            mode: index.mode.into(),
            fallback: index.fallback.as_ref().to_owned(),
            findings,
            applications,
            changing,
            unchanged,
        })
    }
}
