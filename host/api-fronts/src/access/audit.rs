//! Answers queries of the audit log, newest events first.
//!
//! Security: callers see their own events, and those of agents whose audit log they may read.

use http::Response;

use crate::access::api::AuditView;
use crate::access::{AccessHandler, ListRequest, items};
use tollgate_core::agent::AgentId;
use tollgate_front::api::Error;
use tollgate_front::api::query::OwnerFilter;
use tollgate_front::permission::{GET_AUDIT, object};
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::CheckRecord;
use tollgate_store::AuditFilter;

impl AccessHandler<'_> {
    pub(super) async fn list_audit(
        &self,
        list: &ListRequest,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<Response<Body>, Error> {
        let agents = self.readable(list, checks)?;
        let user = match &list.query.owner {
            // A person who is not in the directory has no number to search for.
            OwnerFilter::User(name) if list.user.is_none() => return Err(Error::UnknownUser { user: name.clone() }),
            OwnerFilter::User(_) | OwnerFilter::Mine | OwnerFilter::All => list.user.as_ref(),
        };
        let filter = AuditFilter {
            user_id: user.map(|user| user.id),
            username: user.map(|user| user.username.clone()),
            agents,
            action: list.query.action.clone(),
            session: list.query.session.clone(),
            verb: list.query.verb.clone(),
            resource: list.query.resource.clone(),
            subresource: list.query.subresource.clone(),
            namespace: list.query.namespace.clone(),
            name: list.query.name.clone(),
            since: list.query.since,
            until: list.query.until,
            before: list.query.before,
            limit: list.query.event_limit(),
        };
        let events = self.front_state.store.audit(&filter).await?;
        let views = events.into_iter().map(|event| {
            let agent = event.agent_id.map(|id| self.agent(id));
            AuditView::of(event, agent)
        });
        Ok(items(&views.collect::<Vec<_>>()))
    }

    /// The agents whose events are shown. `None` means that agents make no difference.
    fn readable(&self, list: &ListRequest, checks: &mut Vec<CheckRecord>) -> Result<Option<Vec<AgentId>>, Error> {
        let requested = list.query.agent.is_some().then(|| Vec::from_iter(list.agent));
        if list.is_mine {
            return Ok(requested);
        }
        let user = list.query.owner.user();
        if requested.is_some() {
            let agent = list.agent.and_then(|id| self.agent(id).name);
            let agent = agent.as_deref().or(list.query.agent.as_deref());
            self.require(GET_AUDIT, object(agent, user), checks)?;
            return Ok(requested);
        }
        let everywhere = self.require(GET_AUDIT, object(None, user), checks);
        if everywhere.is_ok() {
            return Ok(None);
        }
        let allowed = self.check_agents(GET_AUDIT, user);
        let agents = self.agents.agents().zip(allowed);
        let readable = agents.filter_map(|(agent, allowed)| allowed.then_some(agent.id));
        let readable: Vec<AgentId> = readable.collect();
        if readable.is_empty() {
            // The refusal is about all agents, because it must not name one that the caller cannot see.
            everywhere?;
        }
        Ok(Some(readable))
    }
}
