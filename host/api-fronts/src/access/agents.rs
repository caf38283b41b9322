//! Lists the agents a person may use, from the directory and the agents of the snapshot.
//!
//! Security: the list holds only agents that are shared with the caller or that the caller may
//! administer.

use http::Response;

use crate::access::api::AgentView;
use crate::access::{AccessHandler, by_number, items};
use tollgate_core::principal::Kind;
use tollgate_front::api::Error;
use tollgate_front::api::query::{OwnerFilter, Query};
use tollgate_front::permission::{GET_AUDIT, GET_SESSIONS, GET_TOKENS, Permission, object};
use tollgate_identity::access::Member;
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::CheckRecord;

/// A caller who has one of these permissions for all users of an agent administers it.
const ADMINISTERS: [Permission; 3] = [GET_TOKENS, GET_SESSIONS, GET_AUDIT];

impl AccessHandler<'_> {
    /// Lists the agents shared with the caller, or also all that the caller administers. Of the
    /// agents shared with somebody else, lists those the caller administers for that person.
    pub(super) fn list_agents(&self, query: &Query, checks: &mut Vec<CheckRecord>) -> Result<Response<Body>, Error> {
        let url = self.settings.public_url.as_ref();
        let me = self.user.as_ref();
        let owner = match &query.owner {
            OwnerFilter::User(name) if me.is_some_and(|me| me.username == *name) => &OwnerFilter::Mine,
            owner => owner,
        };
        let user = match owner {
            OwnerFilter::Mine if self.user.is_none() && self.has_groups() => None,
            OwnerFilter::Mine => Some(self.require_user()?),
            OwnerFilter::All => me,
            OwnerFilter::User(name) => self.agents.people.person_by_username(name).map(|found| &found.user),
        };
        let is_own = !matches!(owner, OwnerFilter::User(_));
        let administered = self.administered(owner.user());
        let agents = self.agents.agents().zip(administered);
        let views = agents.filter_map(|(agent, administered)| {
            let share = user.and_then(|user| self.agents.share(agent.id, by_number(user)));
            let by_groups = || self.agents.share(agent.id, self.as_member());
            // The caller's groups say nothing about another person.
            let share = share.or_else(|| by_groups().filter(|_| is_own));
            let is_shown = match owner {
                OwnerFilter::Mine => share.is_some(),
                OwnerFilter::All => share.is_some() || administered,
                OwnerFilter::User(_) => share.is_some() && administered,
            };
            is_shown.then(|| AgentView::of(agent, share.as_ref(), url))
        });
        let views: Vec<AgentView> = views.collect();
        // The same answer whether the person is unknown, or known and not the caller's to see.
        if views.is_empty() && *owner != OwnerFilter::Mine {
            self.require(GET_TOKENS, object(None, owner.user()), checks)?;
        }
        Ok(items(&views))
    }

    /// The caller, with the groups that an issuer vouches for.
    fn as_member(&self) -> Member<'_> {
        let principal = &self.caller.principal;
        let is_oidc = principal.kind() == Kind::Oidc;
        Member {
            user_id: self.user.as_ref().map(|user| user.id),
            groups: is_oidc.then(|| (principal.issuer(), principal.groups())),
        }
    }

    /// Whether the caller can have roles without being in the directory.
    fn has_groups(&self) -> bool {
        !self.settings.memberships.is_empty() && self.as_member().groups.is_some()
    }

    /// Whether the caller administers each agent, for everybody or for one person.
    fn administered(&self, user: Option<&str>) -> Vec<bool> {
        let each = ADMINISTERS.map(|permission| self.check_agents(permission, user));
        let either = |any: Vec<bool>, more| any.into_iter().zip(more).map(|(one, other)| one || other).collect();
        each.into_iter().reduce(either).unwrap_or_default()
    }
}
