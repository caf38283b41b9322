//! The ApplicationSets that a caller may see, page by page, from the state in force. No file is read,
//! and no call is made.
//!
//! Security: a set that was changed or deleted here a moment ago is judged and listed as it is now. A new one is
//! listed once the state in force has it.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use http::{Response, StatusCode, Uri, request};
use serde::Serialize;
use serde_json::Value;

use super::ApplicationSetsFrontState;
use super::read::{OwnedApplications, is_in_projects};
use tollgate_applicationset_rights::SetAuthorizer;
use tollgate_config::Config;
use tollgate_front::api::pages::visible_page;
use tollgate_front::api::query::{
    PARAMETER_BYTES, bounded, decode_name_cursor, encode_name_cursor, for_each_parameter, row_limit,
};
use tollgate_front::api::{Error, answer};
use tollgate_front::caller::Caller;
use tollgate_front::path::{Captures, Methods, Path};
use tollgate_front::policies::Policies;
use tollgate_front::set_list::project_text;
use tollgate_front::{Denial, Front, RequestContext, Services};
use tollgate_identity::authenticate::Safety;
use tollgate_objects::{ApplicationSetStatuses, ObjectName};
use tollgate_proxy::forward::Body;
use tollgate_proxy::target;

/// Sets of one answer if the caller does not say how many.
const DEFAULT_SETS: u16 = 100;
/// Longest message of a condition that is listed, in characters. The set itself has all of it.
const MAX_MESSAGE: usize = 300;

/// Which sets are asked for.
#[derive(Debug, Default)]
pub(crate) struct SetFilter {
    /// The project of its template, or of its Applications. At most one.
    projects: Vec<String>,
    /// Part of the name, in lower case.
    name: String,
    /// The set behind which the page begins.
    after: Option<ObjectName>,
    limit: Option<u16>,
}

/// A page of sets, in order of namespace and name.
#[derive(Debug, Serialize)]
pub(crate) struct SetPage {
    items: Vec<SetSummary>,
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct SetSummary {
    #[serde(flatten)]
    name: ObjectName,
    /// As its template has it.
    project: String,
    /// The kinds of its generators, such as `git`.
    generators: Vec<String>,
    /// How many Applications its status reports.
    applications: usize,
    /// The message of the condition `ErrorOccurred` of its status, if that is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The list of the ApplicationSets that a caller may see.
#[derive(Debug)]
pub struct SetSummariesFront(Arc<ApplicationSetsFrontState>);

impl Front for SetSummariesFront {
    const NAME: &'static str = "applicationsets";
    const PATHS: &'static [Path<()>] = &[Path::new(Methods::Read, &["/api/v1/tollgate/applicationsets"], &[], ())];

    type Endpoint = ();
    type Target = ();

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(services.states.of().map(Self))
    }

    fn is_open(config: &Config, (): ()) -> bool {
        config.application_sets.is_some()
    }

    fn target((): (), _: &Captures<'_>, _: &Uri) -> Result<Option<()>, target::Error> {
        Ok(Some(()))
    }

    async fn serve(
        self: &Arc<Self>,
        (): (),
        mut context: RequestContext<'_>,
        (head, _): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        let principal = &context.authenticate(&head, Safety::ByMethod).await?;
        let RequestContext { services, snapshot, .. } = context;
        let held = services.persons.acquire(principal.limit_key())?;
        let filter = SetFilter::read(head.uri.query())?;
        let front_state = Arc::clone(&self.0);
        let statuses = services.source.application_set_statuses();
        let statuses = statuses
            .map(|statuses| Arc::clone(&statuses.borrow()))
            .unwrap_or_default();
        let caller = snapshot.policies.caller(principal);
        let work = move || SetPage::of(&filter, &snapshot.policies, &caller, &front_state, &statuses);
        let page = services.blocking.run(held, work).await?;
        Ok(answer(StatusCode::OK, &page.ok_or_else(Denial::not_found)?))
    }
}

impl SetFilter {
    pub(crate) fn read(query: Option<&str>) -> Result<Self, Error> {
        let mut filter = Self::default();
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        for_each_parameter(pairs, &["project", "name", "limit", "continue"], |name, value| {
            let value = bounded(name, value, PARAMETER_BYTES)?;
            match name {
                "project" => filter.projects = vec![value],
                "name" => filter.name = value.to_lowercase(),
                "continue" => filter.after = Some(decode_name_cursor(&value)?),
                _ => filter.limit = Some(row_limit(&value)?),
            }
            Ok(())
        })?;
        Ok(filter)
    }
}

impl SetPage {
    /// `None` if the gateway does not serve ApplicationSets.
    pub(crate) fn of(
        filter: &SetFilter,
        policies: &Policies,
        caller: &Arc<Caller>,
        front_state: &ApplicationSetsFrontState,
        statuses: &ApplicationSetStatuses,
    ) -> Option<Self> {
        let authorizer = SetAuthorizer::new(policies, caller)?;
        let owned_applications = OwnedApplications::of(policies);
        let none = BTreeSet::new();
        let from = filter.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let sets = policies.resources.application_sets.range((from, Bound::Unbounded));
        let candidates = sets
            .filter(|(name, _)| name.name.to_lowercase().contains(&filter.name))
            .filter_map(|(name, set)| {
                let latest = front_state.recent_writes.latest_known(name, Some(set));
                Some((name, latest.set?, latest.applications))
            });
        let limit = filter.limit.unwrap_or(DEFAULT_SETS).into();
        let (page, is_more) = visible_page(candidates, limit, |rows| {
            let is_shown = |(name, set, written): &(&ObjectName, Arc<Value>, Option<Arc<_>>)| {
                let owned = written.as_deref().or_else(|| owned_applications.get(name));
                let owned = owned.unwrap_or(&none);
                authorizer.may_get(name, set, owned) && is_in_projects(set, owned, &filter.projects)
            };
            rows.iter().map(is_shown).collect()
        });
        let summary = |(name, set, _): (&ObjectName, Arc<Value>, _)| {
            let status = statuses.get(name).and_then(|status| status.of(&set));
            SetSummary::of(name, &set, status.or_else(|| set.get("status")))
        };
        let items: Vec<SetSummary> = page.into_iter().map(summary).collect();
        let last = items.last().filter(|_| is_more);
        Some(Self {
            next: last.map(|item| encode_name_cursor(&item.name)),
            items,
        })
    }
}

impl SetSummary {
    fn of(name: &ObjectName, set: &Value, status: Option<&Value>) -> Self {
        let kind = |generator: &Value| {
            let mut keys = generator.as_object()?.keys();
            keys.find(|key| *key != "selector").cloned()
        };
        let is_error = |condition: &&Value| {
            let text = |key: &str| condition.get(key).and_then(Value::as_str);
            text("type") == Some("ErrorOccurred") && text("status") == Some("True")
        };
        let error = array(status, "conditions").iter().find(is_error);
        let error = error.map(|condition| condition.get("message").and_then(Value::as_str).unwrap_or_default());
        Self {
            name: name.clone(),
            project: project_text(set).to_owned(),
            generators: array(set.get("spec"), "generators").iter().filter_map(kind).collect(),
            applications: array(status, "resources").len(),
            error: error.map(|message| message.chars().take(MAX_MESSAGE).collect()),
        }
    }
}

fn array<'v>(object: Option<&'v Value>, key: &str) -> &'v [Value] {
    let found = object.and_then(|object| object.get(key)?.as_array());
    found.map(Vec::as_slice).unwrap_or_default()
}
