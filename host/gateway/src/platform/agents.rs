//! Lists the agents a person may use, from the directory and the agents of the snapshot.
//!
//! Security: the list holds only agents that are shared with the caller or that the caller may
//! administer.

use http::Response;

use crate::platform::api::query::{OwnerFilter, Query};
use crate::platform::api::{AgentView, Error};
use crate::platform::permit::{PlatformPermission, object};
use crate::platform::{PlatformHandler, items};
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::CheckRecord;

/// A caller who has one of these permissions for all users of an agent administers it.
const ADMINISTERS: [PlatformPermission; 3] = [
    PlatformPermission::GetTokens,
    PlatformPermission::GetSessions,
    PlatformPermission::GetAudit,
];

impl PlatformHandler<'_> {
    /// Lists the agents shared with the caller or with somebody else, or all that the caller
    /// administers.
    pub(super) fn list_agents(&self, query: &Query, checks: &mut Vec<CheckRecord>) -> Result<Response<Body>, Error> {
        let url = self.settings.public_url.as_ref();
        let (person, is_mine) = match &query.owner {
            OwnerFilter::Mine => (Some(self.require_user()?), true),
            OwnerFilter::All => (self.require_user().ok(), false),
            OwnerFilter::User(name) if self.require_user().is_ok_and(|me| me.username == *name) => {
                (self.require_user().ok(), true)
            }
            OwnerFilter::User(name) => return self.list_agents_of(name, checks),
        };
        let shared = |id| person.and_then(|user| self.agents.share(id, user.id));
        let administered = self.administered(None);
        let views: Vec<AgentView> = self
            .agents
            .agents()
            .zip(administered)
            .filter_map(|(agent, administered)| {
                let share = shared(agent.id);
                let seen = share.is_some() || (administered && !is_mine);
                seen.then(|| AgentView::of(agent, share.as_ref(), url))
            })
            .collect();
        if views.is_empty() && !is_mine {
            self.require(PlatformPermission::GetTokens, object(None, None), checks)?;
        }
        Ok(items(&views))
    }

    /// Of the agents shared with somebody else, lists those the caller administers for that
    /// person.
    fn list_agents_of(&self, name: &str, checks: &mut Vec<CheckRecord>) -> Result<Response<Body>, Error> {
        let url = self.settings.public_url.as_ref();
        let user = self.agents.people().person_by_username(name);
        let administered = self.administered(Some(name));
        let views: Vec<AgentView> = self
            .agents
            .agents()
            .zip(administered)
            .filter(|(_, administered)| *administered)
            .filter_map(|(agent, _)| {
                let share = self.agents.share(agent.id, user?.user.id)?;
                Some(AgentView::of(agent, Some(&share), url))
            })
            .collect();
        if views.is_empty() {
            self.require(PlatformPermission::GetTokens, object(None, Some(name)), checks)?;
        }
        Ok(items(&views))
    }

    /// Whether the caller administers each agent, for everybody or for one person.
    fn administered(&self, user: Option<&str>) -> Vec<bool> {
        let each = ADMINISTERS.map(|permission| self.check_agents(permission, user));
        let either = |any: Vec<bool>, more| any.into_iter().zip(more).map(|(one, other)| one || other).collect();
        each.into_iter().reduce(either).unwrap_or_default()
    }
}
