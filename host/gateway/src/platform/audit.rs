//! Answers queries of the audit log, newest events first.
//!
//! Security: callers see their own events, and those of agents whose audit log they may read.

use http::Response;

use crate::platform::api::query::OwnerFilter;
use crate::platform::api::{AuditView, Error};
use crate::platform::permit::{PlatformPermission, each, object};
use crate::platform::{Desk, ListRequest, items};
use tollgate_core::agent::AgentId;
use tollgate_identity::store::{AuditEvent, AuditFilter};
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::CheckRecord;

impl Desk<'_> {
    pub(super) async fn list_audit(
        &self,
        wish: &ListRequest,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<Response<Body>, Error> {
        let agents = self.readable(wish, checks)?;
        let named = match &wish.query.owner {
            // A person who is not in the directory has no number to search for.
            OwnerFilter::User(name) if wish.user.is_none() => return Err(Error::UnknownUser { user: name.clone() }),
            OwnerFilter::User(_) | OwnerFilter::Mine | OwnerFilter::All => wish.user,
        };
        let filter = AuditFilter {
            user_id: named,
            agents,
            action: wish.query.action.clone(),
            before: wish.query.before,
            limit: wish.query.event_limit(),
        };
        let events = self.services.store.audit(&filter).await?;
        let views: Vec<AuditView> = events.into_iter().map(|event| self.event(event)).collect();
        Ok(items(&views))
    }

    /// The agents whose events are shown. `None` means that agents make no difference.
    fn readable(&self, wish: &ListRequest, checks: &mut Vec<CheckRecord>) -> Result<Option<Vec<AgentId>>, Error> {
        let asked = wish.query.agent.is_some().then(|| Vec::from_iter(wish.agent));
        if wish.is_mine {
            return Ok(asked);
        }
        let user = match &wish.query.owner {
            OwnerFilter::User(name) => Some(name.as_str()),
            OwnerFilter::Mine | OwnerFilter::All => None,
        };
        if asked.is_some() {
            let agent = wish.agent.and_then(|id| self.agent(id).name);
            let agent = agent.as_deref().or(wish.query.agent.as_deref());
            self.require(PlatformPermission::GetAudit, object(agent, user), checks)?;
            return Ok(asked);
        }
        let objects: Vec<String> = self
            .agents
            .agents()
            .map(|agent| object(Some(&agent.name), user))
            .collect();
        let everywhere = self.require(PlatformPermission::GetAudit, object(None, user), checks);
        if everywhere.is_ok() {
            return Ok(None);
        }
        let allowed = each(self.snapshot, &self.caller, PlatformPermission::GetAudit, &objects);
        let readable: Vec<AgentId> = self
            .agents
            .agents()
            .zip(allowed)
            .filter(|(_, allowed)| *allowed)
            .map(|(agent, _)| agent.id)
            .collect();
        if readable.is_empty() {
            everywhere?;
        }
        Ok(Some(readable))
    }

    fn event(&self, event: AuditEvent) -> AuditView {
        let agent = event.agent_id.map(|id| self.agent(id));
        AuditView::of(event, agent)
    }
}
