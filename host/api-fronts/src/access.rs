//! Runs the stages of the API for tokens, sessions, agents and audit after authentication.
//!
//! Invariant: every change has an audit event, which the store writes together with it.
//!
//! Security: other people's tokens, sessions and events need an RBAC permission. A secret is shown
//! only once.

use std::sync::Arc;

use http::{Response, StatusCode, Uri, request};
use jiff::Timestamp;
use serde::Serialize;

use crate::access::api::AgentRef;
use crate::access::api::content::{NewSession, NewToken};
use crate::access::api::cookie::TransportSecurity;
use crate::access::route::AccessRoute;
use tollgate_config::{Authorizer, Config, Kubernetes};
use tollgate_core::agent::AgentId;
use tollgate_core::principal::Kind;
use tollgate_core::user::User;
use tollgate_front::api::content::{CONTENT_BYTES, buffer, read};
use tollgate_front::api::query::{
    AGENT_PARAMETERS, AUDIT_PARAMETERS, OwnerFilter, Query, ROW_PARAMETERS, encode_cursor,
};
use tollgate_front::api::{Error, answer};
use tollgate_front::caller::Caller;
use tollgate_front::path::{Captures, Path};
use tollgate_front::permission::{Permission, check, check_each, may_allow_prefix, object};
use tollgate_front::snapshot::Snapshot;
use tollgate_front::{Arrival, CrossOrigin, Denial, Front, PathRules, RequestContext, Services};
use tollgate_identity::access::{Agents, Member};
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::{CheckRecord, OpenRecord};
use tollgate_proxy::server::Client;
use tollgate_proxy::target;
use tollgate_store::{self as store, Actor, CredentialFilter, Login};

use crate::directory::find_user;
use tollgate_front::access_services::AccessServices;
use tollgate_identity::access::endpoint;
use tollgate_proxy::forward::{self, BufferedBody};

mod agents;
pub(crate) mod api;
mod audit;
pub(crate) mod route;
mod sessions;
mod tokens;

pub(crate) struct AccessHandler<'a> {
    snapshot: &'a Snapshot,
    agents: &'a Agents,
    settings: &'a Kubernetes,
    front_state: &'a AccessServices,
    transport: TransportSecurity,
    now: Timestamp,
    caller: Arc<Caller>,
    /// `None` for a caller who is not in the directory. Such callers own nothing, but may have
    /// permissions.
    user: Option<User>,
}

struct ListRequest {
    query: Query,
    agent: Option<AgentId>,
    user: Option<User>,
    is_mine: bool,
}

/// The API of tokens, sessions, agents and audit.
#[derive(Debug)]
pub struct AccessFront(Arc<AccessServices>);

impl Front for AccessFront {
    const NAME: &'static str = "access";
    const PATHS: &'static [Path<route::Read>] = route::PATHS;

    type Endpoint = route::Read;
    type Target = AccessRoute;

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(services.states.of().map(Self))
    }

    fn is_open(config: &Config, _: route::Read) -> bool {
        config.kubernetes.is_some()
    }

    fn rules(arrival: &Arrival<'_>, _: &Snapshot) -> Option<PathRules> {
        route::allows_cors(arrival.path()).then_some(PathRules {
            error_format: None,
            cross_origin: CrossOrigin::Shared,
        })
    }

    fn check(path: &str) -> Result<(), target::Error> {
        route::check(path)
    }

    fn target(read: route::Read, captures: &Captures<'_>, _: &Uri) -> Result<Option<AccessRoute>, target::Error> {
        Ok(read(captures))
    }

    async fn serve(
        self: &Arc<Self>,
        target: AccessRoute,
        mut context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        let Self(front_state) = &**self;
        // Another gateway proves who it is by the shared secret, and has no credential of a caller.
        if target == AccessRoute::Authorize {
            return answer_gateway(front_state, head, body, &context.snapshot).await;
        }
        let principal = &context.authenticate(&head, Safety::ByMethod).await?;
        let _held = context.services.persons.acquire(principal.limit_key())?;
        let handler = AccessHandler::open(&context.snapshot, front_state, context.client, principal)?;
        handler.answer(&target, head, body, context.record).await
    }
}

/// Answers another gateway that uses this one as its authorizer.
async fn answer_gateway(
    services: &AccessServices,
    head: request::Parts,
    body: Body,
    snapshot: &Snapshot,
) -> Result<Response<Body>, Denial> {
    let (Some(endpoint), Some(front)) = (&services.endpoint, &snapshot.policies.kubernetes) else {
        return Err(Denial::not_found());
    };
    let mut proofs = head.headers.get_all(endpoint::AUTH_HEADER).iter();
    let proof = proofs.next().filter(|_| proofs.next().is_none());
    // SECURITY: before the body, which a stranger could send for as long as they like.
    let Some(gateway) = endpoint.admit(proof) else {
        return Ok(endpoint::not_admitted().map(Body::from));
    };
    let bound = u64::try_from(endpoint::MAX_BODY_BYTES).unwrap_or(u64::MAX);
    let BufferedBody::Whole(body) = body.buffer_if_short(bound).await? else {
        return Err(forward::Error::ContentTooLarge.into());
    };
    let id_tokens = Arc::clone(&front.id_tokens);
    let verify = async move |token| id_tokens.verify(&token).await;
    let answer = gateway.answer(&body, &services.authorizer, &front.agents, verify).await;
    Ok(answer.map(Body::from))
}

impl<'a> AccessHandler<'a> {
    pub(crate) fn open(
        snapshot: &'a Snapshot,
        front_state: &'a AccessServices,
        client: &Client,
        principal: &Arc<Principal>,
    ) -> Result<Self, Denial> {
        let policies = &snapshot.policies;
        let front = policies.kubernetes.as_ref().ok_or_else(Denial::not_found)?;
        let settings = policies.config.kubernetes.as_ref().ok_or_else(Denial::not_found)?;
        Ok(Self {
            snapshot,
            agents: &front.agents,
            settings,
            front_state,
            transport: TransportSecurity::of(client.uses_tls(), settings),
            now: front_state.clock.now(),
            caller: policies.caller(principal),
            user: find_user(principal, snapshot, settings, &front.agents)?,
        })
    }

    pub(crate) async fn answer(
        &self,
        route: &AccessRoute,
        head: request::Parts,
        body: Body,
        record: &mut OpenRecord,
    ) -> Result<Response<Body>, Denial> {
        let raw = head.uri.query();
        let mut checks = Vec::new();
        let list = |parameters| self.list_request(raw, parameters);
        let answered = match route {
            AccessRoute::Agents => self.list_agents(&Query::read(raw, AGENT_PARAMETERS)?, &mut checks),
            AccessRoute::Tokens => self.list_tokens(&list(ROW_PARAMETERS)?, &mut checks).await,
            // A person without a number shares 0 with others, so the store's lists cannot be narrowed to them.
            AccessRoute::Sessions => match (self.login_of_no_user(), Query::read(raw, ROW_PARAMETERS)?) {
                (Some(login), query) if query.owner == OwnerFilter::Mine => self.list_own_logins(login, &query).await,
                (Some(_) | None, _) => self.list_sessions(&list(ROW_PARAMETERS)?, &mut checks).await,
            },
            AccessRoute::Audit => self.list_audit(&list(AUDIT_PARAMETERS)?, &mut checks).await,
            AccessRoute::CreateToken => {
                let content = buffer(body, CONTENT_BYTES).await?;
                let new_token: NewToken = read(&head.headers, &content)?;
                self.create_token(&new_token, &mut checks).await
            }
            AccessRoute::CreateSession => {
                let content = buffer(body, CONTENT_BYTES).await?;
                NewSession::read(&head.headers, &content)?;
                self.create_session().await
            }
            AccessRoute::RevokeToken(id) => self.revoke_token(*id, &mut checks).await,
            AccessRoute::RevokeSession(id) => self.revoke_session(id, &mut checks).await,
            // Another gateway is no caller of the API.
            AccessRoute::Authorize => return Err(Denial::not_found()),
        };
        // Before the outcome is looked at, because a refusal needs its checks most.
        record.note(|record| record.checks = checks.into());
        Ok(answered?)
    }

    fn require_user(&self) -> Result<&User, Error> {
        let principal = &self.caller.principal;
        self.user.as_ref().ok_or_else(|| Error::NotLinked {
            user: principal.user_id().to_owned(),
            issuer: principal.issuer().to_owned(),
            hint: hint(principal.kind()),
        })
    }

    /// The caller's login, if only an issuer knows the caller.
    fn login_of_no_user(&self) -> Option<&Login> {
        let login = self.caller.principal.login().filter(|_| self.user.is_none())?;
        Some(&login.login)
    }

    /// Whether this person is the caller. A person whom only an issuer knows has no number, and
    /// may share a name with somebody. A person who had a number before has another name.
    fn is_mine(&self, user: &User) -> bool {
        self.user.as_ref().is_some_and(|me| me.id > 0 && me == user)
    }

    fn actor(&self) -> Actor {
        let user = self.user.as_ref();
        let name = user.map_or(self.caller.principal.username(), |user| &user.username);
        Actor {
            user_id: user.map(|user| user.id),
            name: name.to_owned(),
        }
    }

    /// Fails if another platform authorizes, because nothing accepts credentials made here then.
    fn require_embedded_authorizer(&self) -> Result<(), Error> {
        match self.settings.authorizer {
            Authorizer::Embedded => Ok(()),
            Authorizer::Remote { .. } => Err(Error::RemoteAuthorizer),
        }
    }

    fn may(&self, permission: Permission, object: String, checks: &mut Vec<CheckRecord>) -> bool {
        let check = check(&self.snapshot.policies.rbac, &self.caller, permission, object);
        let allowed = check.allowed;
        checks.push(check);
        allowed
    }

    fn agent(&self, id: AgentId) -> AgentRef {
        let name = self.agents.agent(id).map(|agent| agent.name.clone());
        AgentRef { id, name }
    }

    /// The RBAC object of a person's tokens, sessions and events at an agent. An agent that no
    /// longer exists is named by its number.
    fn object(&self, agent: Option<AgentId>, user: &str) -> String {
        let agent = agent.map(|id| self.agent(id).name.unwrap_or_else(|| id.to_string()));
        object(agent.as_deref(), Some(user))
    }

    fn list_request(&self, raw: Option<&str>, parameters: &'static [&'static str]) -> Result<ListRequest, Error> {
        let query = Query::read(raw, parameters)?;
        let (user, is_mine) = match &query.owner {
            OwnerFilter::Mine => (Some(self.require_user()?.clone()), true),
            OwnerFilter::All => (None, false),
            OwnerFilter::User(name) => match &self.user {
                // Their own rows need no right, however they are asked for.
                Some(me) if me.username == *name => (Some(me.clone()), true),
                Some(_) | None => (
                    self.agents
                        .people
                        .person_by_username(name)
                        .map(|found| found.user.clone()),
                    false,
                ),
            },
        };
        let agent = self.agent_of(&query);
        Ok(ListRequest {
            query,
            agent,
            user,
            is_mine,
        })
    }

    /// The agent that a query names. `None` if it names none, or nothing that could be one.
    fn agent_of(&self, query: &Query) -> Option<AgentId> {
        let text = query.agent.as_deref()?;
        match self.agents.find(text) {
            Some(agent) => Some(agent.id),
            None => AgentId::parse(text),
        }
    }

    /// The filter for the rows that a list reads from the store. Each row is then authorized by
    /// itself.
    fn row_filter(
        &self,
        permission: Permission,
        list: &ListRequest,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<CredentialFilter, Error> {
        let agents = match (&list.query.agent, list.agent) {
            (Some(_), agent) => {
                // An agent that does not exist and one that the caller may not see both select no row.
                let readable = agent.filter(|id| list.is_mine || self.could_see(permission, Some(*id), list));
                Some(Vec::from_iter(readable))
            }
            (None, _) if list.is_mine => None,
            (None, _) => {
                let all: Vec<AgentId> = self.agents.agents().map(|agent| agent.id).collect();
                let is_readable = |id: &AgentId| self.could_see(permission, Some(*id), list);
                let readable: Vec<AgentId> = all.iter().copied().filter(is_readable).collect();
                // Rows of agents that no longer exist are read only for callers who could see
                // something of every agent.
                (readable.len() < all.len()).then_some(readable)
            }
        };
        // The store is not asked for a caller who can see no row at all.
        if !list.is_mine && !may_allow_prefix(&self.snapshot.policies.rbac, &self.caller, permission, "") {
            self.require(permission, list.object(), checks)?;
        }
        Ok(CredentialFilter {
            user_id: list.user.as_ref().map(|user| user.id),
            username: self.username(list),
            agents,
        })
    }

    fn username(&self, list: &ListRequest) -> Option<String> {
        match (&list.query.owner, &self.user) {
            (OwnerFilter::Mine, Some(me)) => Some(me.username.clone()),
            (owner, _) => owner.user().map(str::to_owned),
        }
    }

    /// Whether the caller could see any of the requested rows at this agent; without an agent, any
    /// row that is for all agents.
    fn could_see(&self, permission: Permission, agent: Option<AgentId>, list: &ListRequest) -> bool {
        let name = list.query.owner.user().unwrap_or_default();
        let object = self.object(agent, name);
        may_allow_prefix(&self.snapshot.policies.rbac, &self.caller, permission, &object)
    }

    fn visible<'r>(
        &self,
        permission: Permission,
        list: &ListRequest,
        rows: impl Iterator<Item = (Option<AgentId>, &'r User)>,
    ) -> Vec<bool> {
        if list.is_mine {
            return rows.map(|(_, user)| self.is_mine(user)).collect();
        }
        let objects: Vec<String> = rows.map(|(agent, user)| self.object(agent, &user.username)).collect();
        check_each(&self.snapshot.policies.rbac, &self.caller, permission, &objects)
    }

    /// For each agent, whether the caller has the permission for everybody there, or for one person.
    fn check_agents(&self, permission: Permission, user: Option<&str>) -> Vec<bool> {
        let agents = self.agents.agents();
        let objects: Vec<String> = agents.map(|agent| object(Some(&agent.name), user)).collect();
        check_each(&self.snapshot.policies.rbac, &self.caller, permission, &objects)
    }

    /// Checks whether an empty list may be shown to the caller.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]: the caller may not see everything that the list requests. The
    /// response is the same whether rows exist or not.
    fn check_empty_list(
        &self,
        permission: Permission,
        list: &ListRequest,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<(), Error> {
        // A page after the first is empty if rows were deleted meanwhile.
        if list.is_mine || list.query.cursor.is_some() {
            return Ok(());
        }
        self.require(permission, list.object(), checks)
    }

    fn require(&self, permission: Permission, object: String, checks: &mut Vec<CheckRecord>) -> Result<(), Error> {
        if self.may(permission, object.clone(), checks) {
            return Ok(());
        }
        let [resource, action] = permission;
        Err(Error::NotPermitted {
            resource,
            action,
            object,
        })
    }
}

impl ListRequest {
    /// The RBAC object of everything that the list requests, as the caller wrote it.
    fn object(&self) -> String {
        object(self.query.agent.as_deref(), self.query.owner.user())
    }
}

/// A person of the directory, by their number alone.
fn by_number(user: &User) -> Member<'static> {
    Member {
        user_id: Some(user.id),
        groups: None,
    }
}

/// The error for a row that the store did not add, as its owner sees it.
fn too_many(error: store::Error, user: &User) -> Error {
    match error {
        store::Error::LimitReached {
            what,
            observed,
            allowed,
        } => Error::TooMany {
            user: user.username.clone(),
            what,
            found: observed,
            allowed,
        },
        other => Error::Store(other),
    }
}

fn hint(kind: Kind) -> &'static str {
    match kind {
        Kind::Local => {
            "link accounts with `kubernetes.users: [{issuer: argocd, is: username}]` and list the user in a `UserDirectory`"
        }
        Kind::Oidc => {
            "link the issuer's users with an entry of `kubernetes.users` and list the user in a `UserDirectory`"
        }
        Kind::Anonymous | Kind::ProjectToken | Kind::Kubernetes => "only people have agents, sign in as one",
    }
}

#[derive(Serialize)]
struct ListPage<'a, T> {
    items: &'a [T],
    /// Cursor of the next page, for the parameter of the same name.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn items<T: Serialize>(items: &[T]) -> Response<Body> {
    page(items, None::<&()>)
}

/// - `next`: position after which the next page begins.
fn page<T: Serialize>(items: &[T], next: Option<&impl Serialize>) -> Response<Body> {
    let next = next.map(encode_cursor);
    answer(StatusCode::OK, &ListPage { items, next })
}
