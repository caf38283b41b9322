//! The API about the gateway itself: decisions that this replica remembers, why RBAC permits or
//! refuses something, plugins, and the state of the process.
//!
//! Security: callers see their own decisions and their own permissions without a right, as
//! [`Record::for_caller`] leaves them. Everything else needs one of the resources `decisions`, `rbac`,
//! `plugins` and `system`.

use std::sync::Arc;

use http::{Response, StatusCode, request};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::caller::Caller;
use crate::front::{RequestContext, RouteHandler};
use crate::platform::api::Error;
use crate::platform::api::query::{OwnerFilter, for_each_parameter, wrong};
use crate::platform::permit::{GET_DECISIONS, GET_PLUGINS, GET_RBAC, GET_SYSTEM, Permission, check};
use crate::platform::{self, answer};
use crate::policies::Policies;
use crate::rejection::Rejection;
use tollgate_core::principal::Kind;
use tollgate_core::user::User;
use tollgate_policy::rbac::{Explanation, Field, RbacRequest, TokenIssuer, VerdictReason};
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::{CheckRecord, Record};

pub(crate) mod route;

use route::OperationsRoute;

/// Most decisions of one answer, and how many it has if the caller does not say.
const MAX_DECISIONS: usize = 1_000;
const DEFAULT_DECISIONS: usize = 100;
/// Longest value of a parameter, in bytes.
const PARAMETER_BYTES: usize = 1_024;
/// Groups in one question about somebody else.
const MAX_GROUPS: usize = 100;

/// A list of decisions, newest first.
#[derive(Serialize)]
struct Decisions<'a> {
    items: &'a [Arc<Record>],
}

/// Which decisions are asked for.
#[derive(Debug, Default)]
struct DecisionFilter {
    owner: OwnerFilter,
    outcome: Option<String>,
    front: Option<String>,
    reason: Option<String>,
    /// Those of the console's pages: only them, or all others.
    of_pages: Option<bool>,
    limit: Option<usize>,
}

/// A question about RBAC.
#[derive(Debug, Default)]
struct Question {
    resource: String,
    action: String,
    object: String,
    /// `None` for the caller.
    user: Option<String>,
    groups: Vec<String>,
}

impl DecisionFilter {
    fn read(query: Option<&str>) -> Result<Self, Error> {
        let mut filter = Self::default();
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let names = &["user", "outcome", "front", "reason", "pages", "limit"];
        for_each_parameter(pairs, names, |name, value| {
            let value = bounded(name, &value)?;
            match name {
                "user" if value == "*" => filter.owner = OwnerFilter::All,
                "user" => filter.owner = OwnerFilter::User(value),
                "outcome" => filter.outcome = Some(value),
                "front" => filter.front = Some(value),
                "reason" => filter.reason = Some(value),
                "pages" => {
                    let only = value
                        .parse()
                        .map_err(|_| wrong("has a `pages` that is neither `true` nor `false`"));
                    filter.of_pages = Some(only?);
                }
                _ => {
                    let limit = value.parse().ok().filter(|limit| (1..=MAX_DECISIONS).contains(limit));
                    let text = || wrong(format!("has a `limit` outside of 1 to {MAX_DECISIONS}"));
                    filter.limit = Some(limit.ok_or_else(text)?);
                }
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

impl Question {
    fn read(query: Option<&str>) -> Result<Self, Error> {
        let mut question = Self::default();
        // Groups may repeat.
        let mut others = Vec::new();
        for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "group" => question.groups.push(bounded("group", &value)?),
                _ => others.push((name, value)),
            }
        }
        for_each_parameter(
            others.into_iter(),
            &["resource", "action", "object", "user"],
            |name, value| {
                let value = bounded(name, &value)?;
                match name {
                    "resource" => question.resource = value,
                    "action" => question.action = value,
                    "object" => question.object = value,
                    _ => question.user = Some(value),
                }
                Ok(())
            },
        )?;
        if question.resource.is_empty() || question.action.is_empty() {
            return Err(wrong("lacks `resource` or `action`, such as `applications` and `sync`"));
        }
        if question.groups.len() > MAX_GROUPS {
            return Err(wrong(format!("has more than {MAX_GROUPS} `group`s")));
        }
        if question.user.is_none() && !question.groups.is_empty() {
            return Err(wrong(
                "has a `group` but no `user`: about yourself, your own groups count",
            ));
        }
        Ok(question)
    }

    fn request(&self) -> RbacRequest<'_> {
        RbacRequest {
            resource: &self.resource,
            action: &self.action,
            object: &self.object,
        }
    }
}

fn bounded(name: &str, value: &str) -> Result<String, Error> {
    let bytes = value.len();
    if bytes == 0 || bytes > PARAMETER_BYTES {
        return Err(wrong(format!(
            "has a `{name}` of {bytes} bytes, allowed are 1 to {PARAMETER_BYTES}"
        )));
    }
    if value.contains(char::is_control) {
        return Err(wrong(format!("has a `{name}` with a control character")));
    }
    Ok(value.to_owned())
}

impl RouteHandler for OperationsRoute {
    async fn serve(
        &self,
        context: RequestContext<'_>,
        (head, _): (request::Parts, Body),
    ) -> Result<Response<Body>, Rejection> {
        let (gateway, principal) = (context.gateway, context.principal);
        let _held = gateway.persons.acquire(principal.limit_key())?;
        context.record.note(|record| record.front = "operations");
        let policies = &context.snapshot.policies;
        let mut asker = Asker {
            policies,
            caller: policies.caller(principal),
            person: platform::person_of(gateway, context.snapshot, principal),
            checks: Vec::new(),
        };
        let query = head.uri.query();
        let answered = match self {
            Self::Decisions => DecisionFilter::read(query).and_then(|filter| {
                let user = match &filter.owner {
                    OwnerFilter::Mine => None,
                    OwnerFilter::All => Some(None),
                    OwnerFilter::User(name) => Some(Some(name.as_str())),
                };
                if let Some(user) = user {
                    asker.require(GET_DECISIONS, user.unwrap_or("*"))?;
                }
                let limit = filter.limit.unwrap_or(DEFAULT_DECISIONS);
                let records = gateway.status.recorder.latest(limit, |record| {
                    let is_asked = match user {
                        None => asker.owns(record),
                        Some(None) => true,
                        Some(Some(name)) => is_about(record, name),
                    };
                    is_asked && filter.selects(record)
                });
                let records: Vec<Arc<Record>> = match user {
                    Some(_) => records,
                    None => records.iter().map(|record| Arc::new(record.for_caller())).collect(),
                };
                Ok(answer(StatusCode::OK, &Decisions { items: &records }))
            }),
            Self::Decision(id) => {
                let found = gateway.status.recorder.find(*id);
                let record = found.as_deref().and_then(|record| {
                    if asker.owns(record) {
                        return Some(record.for_caller());
                    }
                    let mut names = names(record).chain(["*"]);
                    names.any(|name| asker.may(GET_DECISIONS, name)).then(|| record.clone())
                });
                context
                    .record
                    .note(|record| record.checks = std::mem::take(&mut asker.checks).into());
                let record = record.ok_or(Rejection::NotFound)?;
                Ok(answer(StatusCode::OK, &record))
            }
            Self::Explain => Question::read(query).and_then(|question| asker.explain(&question)),
            Self::Plugins => asker.require(GET_PLUGINS, "*").map(|()| {
                let plugins: Vec<_> = context.snapshot.plugins.list().collect();
                answer(StatusCode::OK, &json!({ "items": plugins }))
            }),
            Self::System => asker
                .require(GET_SYSTEM, "*")
                .map(|()| answer(StatusCode::OK, &gateway.status.report())),
        };
        context.record.note(|record| {
            if !asker.checks.is_empty() {
                record.checks = asker.checks.into();
            }
        });
        Ok(answered?)
    }
}

/// The caller, and the permissions that were checked.
struct Asker<'a> {
    policies: &'a Policies,
    caller: Arc<Caller>,
    /// The person of the directory; `None` for somebody whom only an issuer knows.
    person: Option<User>,
    checks: Vec<CheckRecord>,
}

impl Asker<'_> {
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
            Some(person) => user.id == person.id,
            // Whom only an issuer knows, that issuer names.
            None => {
                user.id == 0
                    && note.issuer.as_deref() == Some(caller.issuer())
                    && user.username == caller.names().username
            }
        });
        is_caller || is_person
    }

    fn may(&mut self, permission: Permission, object: &str) -> bool {
        let check = check(self.policies, &self.caller, permission, object.to_owned());
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

    fn explain(&mut self, question: &Question) -> Result<Response<Body>, Error> {
        let rbac = &self.policies.rbac;
        let (explanation, user) = match &question.user {
            None => {
                let explanation = rbac.explain(&self.caller.roles, question.request());
                let may_see_all = self.may(GET_RBAC, "*");
                let explanation = if may_see_all { explanation } else { own(explanation) };
                (explanation, self.caller.principal.username().to_owned())
            }
            Some(user) => {
                self.require(GET_RBAC, "*")?;
                let who = rbac.identify_name(user, &question.groups, TokenIssuer::Assumed);
                (rbac.explain(&who, question.request()), user.clone())
            }
        };
        let mut content = Map::new();
        content.insert("user".to_owned(), user.into());
        content.insert("allowed".to_owned(), explanation.verdict.is_allowed().into());
        let why = match explanation.verdict.why {
            VerdictReason::Allowed => "allowed",
            VerdictReason::DeniedByRule => "denied_by_rule",
            VerdictReason::NoRule => "no_rule",
            VerdictReason::EvaluationError => "evaluation_error",
        };
        content.insert("why".to_owned(), why.into());
        if let Ok(Value::Object(rest)) = serde_json::to_value(&explanation) {
            content.extend(rest.into_iter().filter(|(name, _)| name != "verdict"));
        }
        Ok(answer(StatusCode::OK, &content))
    }
}

/// What callers may know of their own permissions: of the rows that nearly match, those of their own
/// principals, and of no row the file that it is in.
fn own(explanation: Explanation) -> Explanation {
    let mut shown = explanation;
    shown.near_misses.retain(|miss| miss.field != Field::Subject);
    let of_principals = shown
        .principals
        .iter_mut()
        .filter_map(|principal| principal.rule.as_mut());
    let of_misses = shown.near_misses.iter_mut().map(|miss| &mut miss.rule);
    for rule in shown.rule.iter_mut().chain(of_principals).chain(of_misses) {
        rule.location.clear();
    }
    shown
}

/// The names of whom a decision is about.
fn names(record: &Record) -> impl Iterator<Item = &str> {
    let callers = record
        .principal
        .iter()
        .flat_map(|caller| [caller.user_id(), caller.username()]);
    let of_agent = record.kubernetes.iter().filter_map(|note| note.user.as_ref());
    callers.chain(of_agent.map(|person| person.username.as_str()))
}

fn is_about(record: &Record, name: &str) -> bool {
    names(record).any(|one| one == name)
}
