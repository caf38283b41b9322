//! Which account acts for each Application that a caller may see, page by page.

use std::ops::Bound;
use std::sync::Arc;

use http::{Response, StatusCode};
use serde::Serialize;

use super::Asker;
use crate::acting::{Acting, visible_applications};
use tollgate_config::ImpersonationMode;
use tollgate_front::Denial;
use tollgate_front::api::pages::visible_page;
use tollgate_front::api::query::{
    PARAMETER_BYTES, bounded, decode_name_cursor, encode_name_cursor, flag, for_each_parameter, row_limit,
};
use tollgate_front::api::{Error, answer};
use tollgate_front::snapshot::Snapshot;
use tollgate_objects::ObjectName;
use tollgate_policy::applications::IndexedApplication;
use tollgate_policy::rbac::RbacIdentity;
use tollgate_proxy::forward::{Body, LimitPermit};

/// Applications of one answer if the caller does not say how many.
const DEFAULT_APPLICATIONS: u16 = 100;

/// Which Applications are asked for.
#[derive(Debug, Default)]
pub(super) struct IdentityFilter {
    project: Option<String>,
    /// Part of the name, in lower case.
    name: Option<String>,
    /// Only those whose requests are refused, or only others.
    refused: Option<bool>,
    /// The Application behind which the page begins.
    after: Option<ObjectName>,
    limit: Option<u16>,
}

/// A page, in order of namespace and name.
#[derive(Serialize)]
struct Page {
    /// Whether accounts act: `off`, `audit` or `enforce`.
    mode: &'static str,
    items: Vec<IdentityView>,
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
struct IdentityView {
    #[serde(flatten)]
    name: ObjectName,
    project: String,
    /// Name and API server of its cluster; absent if it leads to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// Namespace of its destination.
    destination: String,
    #[serde(flatten)]
    acting: Acting,
    /// Whether requests are refused, because nobody acts or because of a source.
    refused: bool,
}

impl IdentityFilter {
    pub(super) fn read(query: Option<&str>) -> Result<Self, Error> {
        let mut filter = Self::default();
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let names = &["project", "name", "refused", "continue", "limit"];
        for_each_parameter(pairs, names, |name, value| {
            let value = bounded(name, value, PARAMETER_BYTES)?;
            match name {
                "project" => filter.project = Some(value),
                "name" => filter.name = Some(value.to_lowercase()),
                "refused" => filter.refused = Some(flag(name, &value)?),
                "continue" => filter.after = Some(decode_name_cursor(&value)?),
                _ => filter.limit = Some(row_limit(&value)?),
            }
            Ok(())
        })?;
        Ok(filter)
    }

    fn selects(&self, indexed: &IndexedApplication, mode: ImpersonationMode) -> bool {
        let application = &indexed.application;
        self.project
            .as_ref()
            .is_none_or(|wanted| *wanted == application.project)
            && self
                .name
                .as_ref()
                .is_none_or(|wanted| application.name.name.to_lowercase().contains(wanted))
            && self.refused.is_none_or(|wanted| wanted == indexed.is_refused(mode))
    }
}

impl Asker<'_> {
    pub(super) async fn identities(&self, filter: IdentityFilter, held: LimitPermit) -> Result<Response<Body>, Denial> {
        if self.policies().applications.is_none() {
            return Err(Denial::not_found());
        }
        let (snapshot, caller) = (Arc::clone(self.snapshot), Arc::clone(&self.caller));
        let work = move || page(&snapshot, &caller.roles, &filter);
        // Away from the threads that serve: it takes longer the more Applications there are.
        let page = self.services.blocking.run(held, work).await?;
        Ok(answer(StatusCode::OK, &page.ok_or_else(Denial::not_found)?))
    }
}

fn page(snapshot: &Snapshot, roles: &RbacIdentity, filter: &IdentityFilter) -> Option<Page> {
    let policies = &snapshot.policies;
    let index = &policies.applications.as_ref()?.index;
    let from = filter.after.clone().map_or(Bound::Unbounded, Bound::Excluded);
    // The objects, because the index is not in the order of the cursor.
    let names = policies.resources.applications.range((from, Bound::Unbounded));
    let candidates = names
        .filter_map(|(name, _)| index.find(&name.namespace, &name.name))
        .filter(|indexed| filter.selects(indexed, index.mode));
    let limit = filter.limit.unwrap_or(DEFAULT_APPLICATIONS).into();
    let (page, is_more) = visible_page(candidates, limit, |rows| {
        let applications = rows.iter().map(|indexed| &*indexed.application);
        visible_applications(policies, roles, applications)
    });
    let items: Vec<IdentityView> = page
        .into_iter()
        .map(|indexed| IdentityView::of(indexed, index.mode))
        .collect();
    let last = items.last().filter(|_| is_more);
    Some(Page {
        mode: index.mode.into(),
        next: last.map(|item| encode_name_cursor(&item.name)),
        items,
    })
}

impl IdentityView {
    fn of(indexed: &IndexedApplication, mode: ImpersonationMode) -> Self {
        let application = &indexed.application;
        let cluster = indexed.destination.as_ref().ok();
        Self {
            name: application.name.clone(),
            project: application.project.clone(),
            cluster: cluster.map(|cluster| cluster.name.clone()),
            server: cluster.map(|cluster| cluster.server.clone()),
            destination: application.destination.namespace.clone(),
            acting: Acting::of(indexed),
            refused: indexed.is_refused(mode),
        }
    }
}
