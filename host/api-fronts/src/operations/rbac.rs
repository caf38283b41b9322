//! Why RBAC permits or refuses something, and who may do it.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Asker;
use tollgate_front::Denial;
use tollgate_front::api::query::{PARAMETER_BYTES, bounded, for_each_parameter, wrong};
use tollgate_front::api::{Error, answer};
use tollgate_front::permission::GET_RBAC;
use tollgate_policy::rbac::{Explanation, Field, RbacRequest, TokenIssuer, VerdictReason, WhoCan};
use tollgate_proxy::forward::{Body, LimitPermit};

/// Groups in one question about somebody else.
const MAX_GROUPS: usize = 100;
/// Most callers that were seen lately and are judged.
const MAX_SEEN: usize = 1_000;

/// What is asked about.
#[derive(Debug, Default)]
pub(super) struct Asked {
    resource: String,
    action: String,
    object: String,
}

/// A question about one caller.
#[derive(Debug, Default)]
pub(super) struct Question {
    asked: Asked,
    /// `None` for the caller.
    user: Option<String>,
    groups: Vec<String>,
}

/// Who may do something.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    found: WhoCan,
    /// Callers whom this replica saw lately, and who may.
    seen: Vec<Seen>,
}

/// A caller who was seen lately, with all their names.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Seen {
    username: String,
    issuer: String,
    groups: Vec<String>,
}

impl Asked {
    pub(super) fn read(query: Option<&str>) -> Result<Self, Error> {
        let mut asked = Self::default();
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        for_each_parameter(pairs, &["resource", "action", "object"], |name, value| {
            asked.set(name, bounded(name, value, PARAMETER_BYTES)?);
            Ok(())
        })?;
        asked.complete()
    }

    fn set(&mut self, name: &str, value: String) {
        match name {
            "resource" => self.resource = value,
            "action" => self.action = value,
            _ => self.object = value,
        }
    }

    fn complete(self) -> Result<Self, Error> {
        match self.resource.is_empty() || self.action.is_empty() {
            true => Err(wrong("lacks `resource` or `action`, such as `applications` and `sync`")),
            false => Ok(self),
        }
    }

    fn request(&self) -> RbacRequest<'_> {
        RbacRequest {
            resource: &self.resource,
            action: &self.action,
            object: &self.object,
        }
    }
}

impl Question {
    pub(super) fn read(query: Option<&str>) -> Result<Self, Error> {
        let (mut asked, mut user) = (Asked::default(), None);
        // Groups may repeat.
        let (mut groups, mut others) = (Vec::new(), Vec::new());
        for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match name.as_ref() {
                "group" => groups.push(bounded("group", value, PARAMETER_BYTES)?),
                _ => others.push((name, value)),
            }
        }
        let names = &["resource", "action", "object", "user"];
        for_each_parameter(others.into_iter(), names, |name, value| {
            let value = bounded(name, value, PARAMETER_BYTES)?;
            match name {
                "user" => user = Some(value),
                _ => asked.set(name, value),
            }
            Ok(())
        })?;
        if groups.len() > MAX_GROUPS {
            return Err(wrong(format!("has more than {MAX_GROUPS} `group`s")));
        }
        if user.is_none() && !groups.is_empty() {
            return Err(wrong(
                "has a `group` but no `user`: about yourself, your own groups count",
            ));
        }
        let asked = asked.complete()?;
        Ok(Self { asked, user, groups })
    }
}

impl Asker<'_> {
    pub(super) async fn explain(&mut self, question: Question, held: LimitPermit) -> Result<Response<Body>, Denial> {
        let may_see_all = match question.user {
            // Everybody may ask about themselves. The right decides only how much is shown.
            None => self.may(GET_RBAC, "*"),
            Some(_) => {
                self.require(GET_RBAC, "*")?;
                true
            }
        };
        let (snapshot, caller) = (Arc::clone(self.snapshot), Arc::clone(&self.caller));
        let work = move || {
            let (rbac, request) = (&snapshot.policies.rbac, question.asked.request());
            let explanation = match &question.user {
                None => rbac.explain(&caller.roles, request),
                Some(user) => {
                    let who = rbac.identify_name(user, &question.groups, TokenIssuer::Assumed);
                    rbac.explain(&who, request)
                }
            };
            let user = question.user.unwrap_or_else(|| caller.principal.username().to_owned());
            (explanation, user)
        };
        let (explanation, user) = self.services.blocking.run(held, work).await?;
        let explanation = if may_see_all { explanation } else { own(explanation) };
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
            // `allowed` and `why` say it already.
            content.extend(rest.into_iter().filter(|(name, _)| name != "verdict"));
        }
        Ok(answer(StatusCode::OK, &content))
    }

    /// Every name of the policy that may, and the callers seen lately who may.
    pub(super) async fn who_can(&self, asked: Asked, held: LimitPermit) -> Result<Response<Body>, Denial> {
        let seen = self.services.recorder.callers(MAX_SEEN);
        let snapshot = Arc::clone(self.snapshot);
        let work = move || {
            let policies = &snapshot.policies;
            let found = policies.rbac.who_can(asked.request());
            let may = |principal: &Arc<_>| {
                // Not through the cache, from which so many would displace callers who make requests.
                let caller = policies.caller_once(principal);
                policies.rbac.decide(&caller.roles, asked.request()).is_allowed()
            };
            let mut seen: Vec<Seen> = seen
                .iter()
                .filter(|principal| may(principal))
                .map(|principal| Seen {
                    username: principal.username().to_owned(),
                    issuer: principal.issuer().to_owned(),
                    groups: principal.groups().to_vec(),
                })
                .collect();
            seen.sort();
            // A person is seen once for each of their tokens.
            seen.dedup();
            Answer { found, seen }
        };
        let answered = self.services.blocking.run(held, work).await?;
        Ok(answer(StatusCode::OK, &answered))
    }
}

/// What callers may know about their permissions: of the rows that nearly match, those of the
/// caller's principals, and of no row the file that it is in.
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
