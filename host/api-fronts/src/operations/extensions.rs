//! The extensions that a caller may invoke, and for operators where they run.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use http::{Response, StatusCode};
use jiff::Timestamp;
use serde::Serialize;

use super::Asker;
use tollgate_front::api::query::{PARAMETER_BYTES, bounded, for_each_parameter};
use tollgate_front::api::{Error, answer};
use tollgate_front::permission::GET_SYSTEM;
use tollgate_objects::extensions::{ExtensionSpec, ServiceSpec};
use tollgate_policy::rbac::RbacRequest;
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::{Outcome, Record};

/// Failures that are counted.
const MAX_FAILURES: usize = 1_000;

#[derive(Serialize)]
struct Extensions {
    items: Vec<ExtensionView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExtensionView {
    name: String,
    /// `application`, `project` or `global`.
    scope: String,
    /// Whether RBAC lets the caller invoke it. The policy still decides about each request.
    may_invoke: bool,
    /// Absent for callers without `system, get`.
    #[serde(skip_serializing_if = "Option::is_none")]
    operations: Option<OperationsView>,
}

/// What only operators see.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OperationsView {
    /// Where it is configured.
    location: String,
    services: Vec<ServiceView>,
    limits: LimitsView,
    timeouts: TimeoutsView,
    /// Requests to it among the latest decisions that failed.
    failures: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<FailureView>,
}

#[derive(Serialize)]
struct ServiceView {
    url: String,
    /// Name and server of the cluster that it is for; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    cluster: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    server: String,
    /// Names of the headers that are set. No value.
    headers: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LimitsView {
    concurrency: Option<NonZeroU32>,
    requests_per_second: Option<NonZeroU32>,
    concurrency_per_person: Option<NonZeroU32>,
    requests_per_second_per_person: Option<NonZeroU32>,
}

/// In seconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TimeoutsView {
    idle: Option<u64>,
    total: Option<u64>,
    upgrade_lifetime: Option<u64>,
}

#[derive(Serialize)]
struct FailureView {
    decision: uuid::Uuid,
    at: Timestamp,
    reason: &'static str,
}

impl ServiceView {
    fn of(service: &ServiceSpec) -> Self {
        let cluster = service.cluster.as_ref();
        Self {
            url: service.url.to_string(),
            cluster: cluster.map(|cluster| cluster.name.clone()).unwrap_or_default(),
            server: cluster.map(|cluster| cluster.server.clone()).unwrap_or_default(),
            headers: service.headers.iter().map(|(name, _)| name.to_string()).collect(),
        }
    }
}

impl OperationsView {
    /// - `failures`: of this extension, the latest first.
    fn of(spec: &ExtensionSpec, failures: &[&Arc<Record>]) -> Self {
        let (limits, person) = (spec.limits, spec.limits.per_person);
        let timeouts = spec.timeouts;
        let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs());
        Self {
            location: spec.location.to_string(),
            services: spec.services.iter().map(ServiceView::of).collect(),
            limits: LimitsView {
                concurrency: limits.concurrency,
                requests_per_second: limits.requests_per_second,
                concurrency_per_person: person.concurrency,
                requests_per_second_per_person: person.requests_per_second,
            },
            timeouts: TimeoutsView {
                idle: seconds(timeouts.idle),
                total: seconds(timeouts.total),
                upgrade_lifetime: seconds(timeouts.upgrade_lifetime),
            },
            failures: failures.len(),
            last_failure: failures.first().map(|record| FailureView {
                decision: record.id,
                at: record.at,
                reason: record.reason,
            }),
        }
    }
}

impl Asker<'_> {
    /// - `query`: `project` asks whether the rows of this project's roles let the caller invoke them.
    pub(super) fn extensions(&mut self, query: Option<&str>) -> Result<Response<Body>, Error> {
        let mut project = None;
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        for_each_parameter(pairs, &["project"], |name, value| {
            project = Some(bounded(name, value, PARAMETER_BYTES)?);
            Ok(())
        })?;
        let operates = self.may(GET_SYSTEM, "*");
        let mut failures: BTreeMap<String, Vec<&Arc<Record>>> = BTreeMap::new();
        let is_failure = |record: &Record| record.outcome == Outcome::Failed && record.extension.is_some();
        // Only for those who see the result, because the search goes through all decisions in memory.
        let failed = match operates {
            true => self.services.recorder.latest(MAX_FAILURES, is_failure),
            false => Vec::new(),
        };
        for record in &failed {
            if let Some(name) = &record.extension {
                failures.entry(name.to_string()).or_default().push(record);
            }
        }
        let rbac = &self.policies().rbac;
        let registry = &self.snapshot.extensions;
        let all = registry.names().into_iter().filter_map(|name| registry.find(name));
        let views = all.filter_map(|extension| {
            let spec = extension.spec();
            let request = RbacRequest {
                resource: "extensions",
                action: "invoke",
                object: &spec.name,
            };
            let roles = &self.caller.roles;
            let verdict = match &project {
                Some(project) => rbac.decide_in_project(roles, request, project),
                None => rbac.decide(roles, request),
            };
            // SECURITY: as in Argo CD, nobody else learns which extensions there are.
            (operates || verdict.is_allowed()).then(|| ExtensionView {
                name: spec.name.clone(),
                scope: spec.scope.as_ref().to_owned(),
                may_invoke: verdict.is_allowed(),
                operations: operates.then(|| {
                    let failures = failures.get(&spec.name);
                    OperationsView::of(spec, failures.map(Vec::as_slice).unwrap_or_default())
                }),
            })
        });
        let items = views.collect();
        Ok(answer(StatusCode::OK, &Extensions { items }))
    }
}
