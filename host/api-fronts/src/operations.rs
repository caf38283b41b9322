//! The API about the gateway itself: decisions that this replica remembers, why RBAC permits or
//! refuses something, policies, extensions, who acts for Applications, plugins, and the state of the
//! process.
//!
//! Security: callers see their own decisions and their own permissions without a right, as
//! [`Record::for_caller`] leaves them, the extensions that they may invoke, and the Applications that
//! they may see. Everything else needs one of the resources `decisions`, `rbac`, `policies`, `plugins`
//! and `system`.

use std::sync::Arc;

use http::{Response, StatusCode, Uri, request};
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use crate::directory;
use tollgate_core::principal::Kind;
use tollgate_core::user::User;
use tollgate_front::access_services::AccessServices;
use tollgate_front::api::query::{
    OwnerFilter, PARAMETER_BYTES, bounded, decode_cursor, encode_cursor, flag, for_each_parameter, row_limit,
};
use tollgate_front::api::{Error, answer, json};
use tollgate_front::caller::Caller;
use tollgate_front::path::{Captures, Path};
use tollgate_front::permission::{GET_DECISIONS, GET_PLUGINS, GET_RBAC, GET_SYSTEM, Permission, check};
use tollgate_front::policies::Policies;
use tollgate_front::snapshot::Snapshot;
use tollgate_front::{Denial, Front, RequestContext, Services};
use tollgate_identity::authenticate::Safety;
use tollgate_identity::person::is_same_entry;
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::{CheckRecord, Record};
use tollgate_proxy::target;

mod extensions;
mod identities;
mod policies;
mod rbac;
pub(crate) mod route;

use identities::IdentityFilter;
use rbac::{Asked, Question};
use route::OperationsRoute;

/// Decisions of one answer if the caller does not say how many.
const DEFAULT_DECISIONS: u16 = 100;

/// A list of decisions, newest first.
#[derive(Serialize)]
struct Decisions<'a> {
    items: &'a [Arc<Record>],
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Default)]
struct DecisionFilter {
    owner: OwnerFilter,
    outcome: Option<String>,
    front: Option<String>,
    reason: Option<String>,
    /// Those of the console's pages: only them, or all others.
    of_pages: Option<bool>,
    /// The decision from before which the page is.
    before: Option<Uuid>,
    limit: Option<u16>,
}

impl DecisionFilter {
    fn read(query: Option<&str>) -> Result<Self, Error> {
        let mut filter = Self::default();
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let names = &["user", "outcome", "front", "reason", "pages", "continue", "limit"];
        for_each_parameter(pairs, names, |name, value| {
            let value = bounded(name, value, PARAMETER_BYTES)?;
            match name {
                "user" if value == "*" => filter.owner = OwnerFilter::All,
                "user" => filter.owner = OwnerFilter::User(value),
                "outcome" => filter.outcome = Some(value),
                // Its name in 0.1.0.
                "front" if value == "platform" => filter.front = Some("access".to_owned()),
                "front" => filter.front = Some(value),
                "reason" => filter.reason = Some(value),
                "pages" => filter.of_pages = Some(flag(name, &value)?),
                "continue" => filter.before = Some(decode_cursor(&value)?),
                _ => filter.limit = Some(row_limit(&value)?),
            }
            Ok(())
        })?;
        Ok(filter)
    }

    fn selects(&self, record: &Record) -> bool {
        self.outcome
            .as_deref()
            .is_none_or(|wanted| wanted == record.outcome.as_ref())
            && self.front.as_deref().is_none_or(|wanted| wanted == record.front)
            && self.reason.as_deref().is_none_or(|wanted| wanted == record.reason)
            && self.of_pages.is_none_or(|wanted| wanted == record.is_of_page)
    }
}

/// The API about the gateway itself.
#[derive(Debug)]
pub struct OperationsFront {
    kubernetes: Option<Arc<AccessServices>>,
}

impl Front for OperationsFront {
    const NAME: &'static str = "operations";
    const PATHS: &'static [Path<route::Read>] = route::PATHS;

    type Endpoint = route::Read;
    type Target = OperationsRoute;

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(Some(Self {
            kubernetes: services.states.of(),
        }))
    }

    fn target(read: route::Read, captures: &Captures<'_>, _: &Uri) -> Result<Option<OperationsRoute>, target::Error> {
        Ok(read(captures))
    }

    async fn serve(
        self: &Arc<Self>,
        target: OperationsRoute,
        mut context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        use OperationsRoute as Route;
        let principal = &context.authenticate(&head, Safety::ByMethod).await?;
        let services = context.services;
        let held = services.persons.acquire(principal.limit_key())?;
        let kubernetes = self.kubernetes.as_deref();
        let mut asker = Asker {
            services,
            snapshot: &context.snapshot,
            caller: context.snapshot.policies.caller(principal),
            person: directory::person_of(kubernetes, &context.snapshot, principal),
            checks: Vec::new(),
        };
        let query = head.uri.query();
        let answered: Result<Response<Body>, Denial> = match target {
            Route::Decisions => DecisionFilter::read(query)
                .and_then(|filter| {
                    let user = match &filter.owner {
                        OwnerFilter::Mine => None,
                        OwnerFilter::All => Some(None),
                        OwnerFilter::User(name) => Some(Some(name.as_str())),
                    };
                    if let Some(user) = user {
                        asker.require(GET_DECISIONS, user.unwrap_or("*"))?;
                    }
                    let limit: usize = filter.limit.unwrap_or(DEFAULT_DECISIONS).into();
                    let is_listed = |record: &Record| {
                        let is_asked = match user {
                            None => asker.owns(record),
                            Some(None) => true,
                            Some(Some(name)) => record.is_about(name),
                        };
                        is_asked && filter.selects(record)
                    };
                    let recorder = &services.recorder;
                    // One more than fits says that another page follows.
                    let mut records = match filter.before {
                        Some(before) => recorder.latest_before(before, limit.saturating_add(1), is_listed),
                        None => recorder.latest(limit.saturating_add(1), is_listed),
                    };
                    let is_more = records.len() > limit;
                    records.truncate(limit);
                    let next = records.last().filter(|_| is_more).map(|last| encode_cursor(&last.id));
                    if user.is_none() {
                        records = records.iter().map(|record| Arc::new(record.for_caller())).collect();
                    }
                    let items = records.as_slice();
                    Ok(answer(StatusCode::OK, &Decisions { items, next }))
                })
                .map_err(Denial::from),
            Route::Decision(id) => {
                // Somebody else's decision gets 404, as one that is not remembered.
                let found = services.recorder.find(id);
                let record = found.as_deref().and_then(|record| match asker.owns(record) {
                    true => Some(record.for_caller()),
                    false => asker.may_see(record).then(|| record.clone()),
                });
                record
                    .map(|record| answer(StatusCode::OK, &record))
                    .ok_or_else(Denial::not_found)
            }
            Route::DecisionInput(id) => asker.decision_input(id).map(|input| answer(StatusCode::OK, &input)),
            Route::Explain => match Question::read(query) {
                Ok(question) => asker.explain(question, held).await,
                Err(error) => Err(error.into()),
            },
            Route::WhoCan => match Asked::read(query).and_then(|asked| asker.require(GET_RBAC, "*").map(|()| asked)) {
                Ok(asked) => asker.who_can(asked, held).await,
                Err(error) => Err(error.into()),
            },
            Route::Extensions => asker.extensions(query).map_err(Denial::from),
            Route::Identities => match IdentityFilter::read(query) {
                Ok(filter) => asker.identities(filter, held).await,
                Err(error) => Err(error.into()),
            },
            Route::Policies => asker.list_policies(),
            Route::Policy(front) => asker.policy(front, held).await,
            Route::TestPolicy(front) => asker.test_policy(front, head, body, held).await,
            Route::EvaluatePolicy(front) => asker.evaluate_policy(front, head, body, held).await,
            Route::Plugins => asker
                .require(GET_PLUGINS, "*")
                .map(|()| {
                    let plugins: Vec<_> = context.snapshot.plugins.list().collect();
                    answer(StatusCode::OK, &json!({ "items": plugins }))
                })
                .map_err(Denial::from),
            Route::System => asker
                .require(GET_SYSTEM, "*")
                .map(|()| json(services.system.report()))
                .map_err(Denial::from),
        };
        context.record.note(|record| {
            if !asker.checks.is_empty() {
                record.checks = asker.checks.into();
            }
        });
        answered
    }
}

/// The caller, and the permissions that were checked.
struct Asker<'a> {
    services: &'a Services,
    snapshot: &'a Arc<Snapshot>,
    caller: Arc<Caller>,
    /// The person of the directory; `None` for somebody whom only an issuer knows.
    person: Option<User>,
    checks: Vec<CheckRecord>,
}

impl<'a> Asker<'a> {
    fn policies(&self) -> &'a Policies {
        &self.snapshot.policies
    }

    /// Whether a decision is about the caller.
    // SECURITY: anonymous callers are many people under one name.
    fn owns(&self, record: &Record) -> bool {
        let caller = &self.caller.principal;
        if caller.kind() == Kind::Anonymous {
            return false;
        }
        let is_caller = record.principal.as_ref().is_some_and(|owner| {
            owner.kind() == caller.kind() && owner.issuer() == caller.issuer() && owner.user_id() == caller.user_id()
        });
        let of_agent = record
            .kubernetes
            .as_ref()
            .and_then(|note| Some((note.user.as_ref()?, note)));
        let is_person = of_agent.is_some_and(|(user, note)| match &self.person {
            Some(person) => is_same_entry(user, person),
            // Whom only an issuer knows, that issuer names.
            None => {
                user.id == 0
                    && note.issuer.as_deref() == Some(caller.issuer())
                    && user.username == caller.names().username
            }
        });
        is_caller || is_person
    }

    /// Whether a decision may be shown to the caller.
    fn may_see(&mut self, record: &Record) -> bool {
        // `*` as well, because a record may name nobody.
        let mut names = record.names().chain(["*"]);
        self.owns(record) || names.any(|name| self.may(GET_DECISIONS, name))
    }

    fn may(&mut self, permission: Permission, object: &str) -> bool {
        let check = check(&self.policies().rbac, &self.caller, permission, object.to_owned());
        let allowed = check.allowed;
        self.checks.push(check);
        allowed
    }

    fn require(&mut self, permission: Permission, object: &str) -> Result<(), Error> {
        let [resource, action] = permission;
        match self.may(permission, object) {
            true => Ok(()),
            false => Err(Error::NotPermitted {
                resource,
                action,
                object: object.to_owned(),
            }),
        }
    }
}
