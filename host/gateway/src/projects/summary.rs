//! The projects that a caller may see, page by page, from the state in force. No file is read, and no
//! call is made.

use std::ops::Bound;

use serde::Serialize;

use crate::caller::Caller;
use crate::platform::api::Error;
use crate::platform::api::query::{decode_cursor, encode_cursor, for_each_parameter, wrong};
use crate::policies::Policies;
use crate::projects::permit::visible;

/// Most projects of one answer, and how many it has if the caller does not say.
const MAX_PROJECTS: usize = 1_000;
const DEFAULT_PROJECTS: usize = 100;
/// Projects for which RBAC is asked at once.
const CHUNK: usize = 256;
/// Longest value of a parameter, in bytes.
const PARAMETER_BYTES: usize = 1_024;

/// Which projects are asked for.
#[derive(Debug, Default)]
pub(super) struct SummaryFilter {
    /// Part of the name, in lower case.
    name: String,
    /// The name behind which the page begins.
    after: Option<String>,
    limit: Option<usize>,
}

/// A page of projects, by name.
#[derive(Debug, Serialize)]
pub(super) struct SummaryPage {
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
            if value.len() > PARAMETER_BYTES {
                return Err(wrong(format!("has a `{name}` of more than {PARAMETER_BYTES} bytes")));
            }
            match name {
                "summary" if value == "true" => {}
                "summary" => return Err(wrong("has a `summary` other than `true`")),
                "name" => filter.name = value.to_lowercase(),
                "continue" => filter.after = Some(decode_cursor(&value)?),
                _ => {
                    let limit = value.parse().ok().filter(|limit| (1..=MAX_PROJECTS).contains(limit));
                    let text = || wrong(format!("has a `limit` outside of 1 to {MAX_PROJECTS}"));
                    filter.limit = Some(limit.ok_or_else(text)?);
                }
            }
            Ok(())
        })?;
        Ok(Some(filter))
    }
}

impl SummaryPage {
    pub(super) fn of(filter: &SummaryFilter, policies: &Policies, caller: &Caller) -> Self {
        let limit = filter.limit.unwrap_or(DEFAULT_PROJECTS);
        let from = filter.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let projects = policies.resources.projects.range((from, Bound::Unbounded));
        let mut candidates = projects.filter(|(name, _)| name.to_lowercase().contains(&filter.name));
        let mut items: Vec<ProjectSummary> = Vec::new();
        loop {
            let chunk: Vec<_> = candidates.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                return Self { items, next: None };
            }
            let names = chunk.iter().map(|(name, _)| name.as_str());
            let shown = visible(policies, caller, names);
            for ((name, project), is_shown) in chunk.into_iter().zip(shown) {
                if is_shown && items.len() == limit {
                    // There is at least one more.
                    let next = items.last().map(|item| encode_cursor(&item.name));
                    return Self { items, next };
                }
                if is_shown {
                    items.push(ProjectSummary {
                        name: name.clone(),
                        accounts: project.destination_service_accounts.len(),
                    });
                }
            }
        }
    }
}
