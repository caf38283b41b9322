//! The projects that a caller may see, page by page, from the state in force. No file is read, and no
//! call is made.

use std::ops::Bound;
use std::sync::Arc;

use serde::Serialize;

use crate::projects::permit::visible;
use tollgate_front::api::Error;
use tollgate_front::api::pages::visible_page;
use tollgate_front::api::query::{
    PARAMETER_BYTES, bounded, decode_cursor, encode_cursor, for_each_parameter, row_limit, wrong,
};
use tollgate_front::caller::Caller;
use tollgate_front::policies::Policies;
use tollgate_objects::Project;

/// Projects of one answer if the caller does not say how many.
const DEFAULT_PROJECTS: u16 = 100;

/// Which projects are asked for.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct SummaryFilter {
    /// Part of the name, in lower case.
    name: String,
    /// The name behind which the page begins.
    after: Option<String>,
    limit: Option<u16>,
}

/// A page of projects, by name.
#[derive(Debug, Serialize)]
pub struct SummaryPage {
    items: Vec<ProjectSummary>,
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProjectSummary {
    name: String,
    /// How many `destinationServiceAccounts` it has.
    accounts: usize,
}

impl SummaryFilter {
    /// `None` if whole projects are asked for.
    pub(super) fn read(query: Option<&str>) -> Result<Option<Self>, Error> {
        let pairs = || url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        if !pairs().any(|(name, _)| name == "summary") {
            return Ok(None);
        }
        let mut filter = Self::default();
        for_each_parameter(pairs(), &["summary", "name", "limit", "continue"], |name, value| {
            let value = bounded(name, value, PARAMETER_BYTES)?;
            match name {
                "summary" if value == "true" => {}
                "summary" => return Err(wrong("has a `summary` other than `true`")),
                "name" => filter.name = value.to_lowercase(),
                "continue" => filter.after = Some(decode_cursor(&value)?),
                _ => filter.limit = Some(row_limit(&value)?),
            }
            Ok(())
        })?;
        Ok(Some(filter))
    }
}

impl SummaryPage {
    pub(crate) fn of(filter: &SummaryFilter, policies: &Policies, caller: &Caller) -> Self {
        let from = filter.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let projects = policies.resources.projects.range((from, Bound::Unbounded));
        let candidates = projects.filter(|(name, _)| name.to_lowercase().contains(&filter.name));
        let limit = filter.limit.unwrap_or(DEFAULT_PROJECTS).into();
        let (page, is_more) = visible_page(candidates, limit, |rows| {
            visible(policies, caller, rows.iter().map(|(name, _)| name.as_str()))
        });
        let summary = |(name, project): (&String, &Arc<Project>)| ProjectSummary {
            name: name.clone(),
            accounts: project.destination_service_accounts.len(),
        };
        let items: Vec<ProjectSummary> = page.into_iter().map(summary).collect();
        let last = items.last().filter(|_| is_more);
        Self {
            next: last.map(|item| encode_cursor(&item.name)),
            items,
        }
    }
}
