//! The agents of one state, and what each gives a person.
//!
//! In: the state's objects, the agents before them. Out: [`Agents`]. Refuses:
//! unknown and closed agents, blocked people, those who are no developer. Never:
//! an agent that opens because its configuration got mistakes.
//!
//! A configuration with mistakes leaves the last good one in force for as long as
//! the process lives, as GitLab's agent server does: who was let in before stays
//! in. After a start there is none, and the agent is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::membership::Lists;
use super::{Access, Refusal};
use tollgate_config::{PersonKey, UserLink};
use tollgate_core::access::AccessFacts;
use tollgate_core::agent::{Agent, AgentId};
use tollgate_core::claims::{EMAIL, email_may_count};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::session::SessionId;
use tollgate_core::user::{AccessAs, Identity, Membership, User};
use tollgate_state::Resources;
use tollgate_state::agent::{AgentObject, Binding, Grant, ShareAs, Sharing, UserAccess};
use tollgate_state::people::{Directory, Person, PersonState};

const NO_USER_ACCESS: &str = "it has no `user_access`";
const BROKEN: &str = "its configuration has mistakes";
const NOT_MAPPED: &str = "`access_as: mapped` takes ID tokens of issuers with `claimMappings`";

/// Values made so far: their number tells one from another.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Agents by number, with the user directory they are judged by. Immutable.
#[derive(Debug)]
pub struct Agents {
    number: u64,
    agents: BTreeMap<AgentId, Entry>,
    people: Arc<Directory>,
    findings: Vec<Diagnostic>,
}

#[derive(Debug)]
struct Entry {
    agent: Arc<Agent>,
    /// The last good `user_access`, for the next state.
    good: Option<Arc<UserAccess>>,
    configuration: Configuration,
    shared: Shared,
}

/// Whether what an agent is judged by is what its files say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Configuration {
    /// It is.
    Good,
    /// They have mistakes: it is judged by its last good ones, or closed.
    Broken,
}

#[derive(Debug)]
enum Shared {
    Closed(&'static str),
    Open { share_as: ShareAs, lists: Lists },
}

/// How an agent is shared with a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Whom the cluster sees.
    pub share_as: ShareAs,
    /// Listed projects in which they are at least a developer.
    pub projects: Vec<Membership>,
    /// Listed groups in which they are.
    pub groups: Vec<Membership>,
}

/// Who a credential stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant<'a> {
    /// Of the directory.
    pub(super) person: Option<&'a Person>,
    /// What the issuer's `claimMappings` say, for ID tokens.
    pub(super) mapped: Option<&'a Identity>,
}

/// What an agent gives.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) agent: Arc<Agent>,
    pub(super) user: User,
    pub(super) access_as: AccessAs,
}

impl Agents {
    /// Of a state. An agent whose configuration has mistakes keeps the one of
    /// `previous`; without one it is closed. `user_access` that is not there at all
    /// is no mistake, and closes at once.
    pub fn build(resources: &Resources, previous: Option<&Self>) -> Arc<Self> {
        let mut made = Self {
            number: MADE.fetch_add(1, Ordering::Relaxed),
            agents: BTreeMap::new(),
            people: Arc::clone(&resources.people),
            findings: Vec::new(),
        };
        let objects = || resources.agents.values();
        let taken: BTreeSet<AgentId> = objects()
            .filter_map(|object| Some(object.binding.as_ref()?.id))
            .collect();
        for object in objects() {
            let before = previous.and_then(|agents| agents.named(&object.name));
            let kept = || {
                before
                    .map(Entry::binding)
                    .filter(|binding| !taken.contains(&binding.id))
            };
            if let Some(binding) = object.binding.clone().or_else(kept) {
                made.add(object, binding, before);
            }
        }
        Arc::new(made)
    }

    fn add(&mut self, object: &AgentObject, binding: Binding, before: Option<&Entry>) {
        let Binding {
            id,
            config_project,
            cluster,
        } = binding;
        let name = object.name.as_str();
        let good = match &object.sharing {
            Sharing::Nobody => None,
            Sharing::People(access) => Some(Arc::clone(access)),
            Sharing::Broken => before
                .filter(|entry| entry.agent.id == id)
                .and_then(|entry| entry.good.clone()),
        };
        if object.sharing == Sharing::Broken {
            let follows = match good {
                Some(_) => "its last good configuration stays in force",
                None => "it is closed",
            };
            let message = format!("the configuration of agent `{name}` has mistakes; {follows}");
            self.findings
                .push(Diagnostic::warning(object.location.clone(), message));
        }
        let shared = match (&good, &object.sharing) {
            (Some(access), _) => Shared::Open {
                share_as: access.share_as,
                lists: Lists::resolve(access, (name, &self.people), &mut self.findings),
            },
            (None, Sharing::Broken) => Shared::Closed(BROKEN),
            (None, Sharing::Nobody | Sharing::People(_)) => Shared::Closed(NO_USER_ACCESS),
        };
        let agent = Arc::new(Agent {
            id,
            name: name.to_owned(),
            config_project,
            cluster,
        });
        let configuration = match (&object.sharing, &object.binding) {
            (Sharing::Broken, _) | (_, None) => Configuration::Broken,
            (Sharing::Nobody | Sharing::People(_), Some(_)) => Configuration::Good,
        };
        let entry = Entry {
            agent,
            good,
            configuration,
            shared,
        };
        self.agents.insert(id, entry);
    }

    /// How the configuration of each agent is, by number.
    pub fn configurations(&self) -> impl Iterator<Item = (AgentId, Configuration)> {
        self.agents.iter().map(|(id, entry)| (*id, entry.configuration))
    }

    /// How the configuration of one agent is; good where there is none.
    pub fn configuration(&self, id: AgentId) -> Configuration {
        self.agents
            .get(&id)
            .map_or(Configuration::Good, |entry| entry.configuration)
    }

    /// What operators should know of agents besides the load's own findings.
    pub fn findings(&self) -> Vec<Diagnostic> {
        self.findings.clone()
    }

    /// An agent by number, be it shared or closed.
    pub fn agent(&self, id: AgentId) -> Option<&Arc<Agent>> {
        self.agents.get(&id).map(|entry| &entry.agent)
    }

    /// Every agent, by number.
    pub fn agents(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.agents.values().map(|entry| &entry.agent)
    }

    /// Every agent's identity, by number.
    pub fn identities(&self) -> BTreeMap<AgentId, String> {
        let agents = self.agents.iter();
        agents.map(|(id, entry)| (*id, entry.agent.identity())).collect()
    }

    /// Agents a person may use with a token of their own: none for unknown and
    /// blocked people. Those an issuer alone grants are not among them.
    pub fn shared_with(&self, user_id: i64) -> Vec<&Arc<Agent>> {
        let person = self.user(user_id).filter(|person| person.state == PersonState::Active);
        let Some(person) = person else { return Vec::new() };
        let shared = self.agents.values().filter(|entry| match &entry.shared {
            Shared::Closed(_) => false,
            Shared::Open { share_as, lists } => match share_as {
                ShareAs::Agent | ShareAs::User | ShareAs::Mapped(Grant::Membership) => lists.has(person.user.id),
                ShareAs::Mapped(Grant::Claim) => false,
            },
        });
        shared.map(|entry| &entry.agent).collect()
    }

    /// How an agent is shared with a person; nothing where it is not. Unlike
    /// [`Agents::shared_with`], whatever their state is.
    pub fn share(&self, id: AgentId, user_id: i64) -> Option<Share> {
        let Shared::Open { share_as, lists } = &self.agents.get(&id)?.shared else {
            return None;
        };
        let (projects, groups) = lists.of(user_id);
        let member = !projects.is_empty() || !groups.is_empty();
        member.then_some(Share {
            share_as: *share_as,
            projects,
            groups,
        })
    }

    /// The user directory.
    pub fn people(&self) -> &Arc<Directory> {
        &self.people
    }

    /// A person by number; blocked ones are found too.
    pub fn user(&self, id: i64) -> Option<&Person> {
        self.people.person(id)
    }

    /// A person by name, byte for byte; blocked ones are found too.
    pub fn user_named(&self, username: &str) -> Option<&Person> {
        self.people.person_named(username)
    }

    /// The person an issuer's claims mean: by the first of the issuer's links
    /// that finds somebody. Numbers are whole, or text in canonical decimal; an
    /// `email` that the issuer says is not verified finds nobody.
    pub fn user_of(&self, links: &[UserLink], issuer: &str, claims: &Map<String, Value>) -> Option<&Person> {
        let mut links = links.iter().filter(|link| link.issuer == issuer);
        links.find_map(|link| {
            let claim = claims.get(&link.claim)?;
            // SECURITY: whoever can sign up may write somebody else's address.
            if link.claim == EMAIL && !email_may_count(claims) {
                return None;
            }
            match link.key {
                PersonKey::Username => self.user_named(claim.as_str()?),
                PersonKey::Id => {
                    // Agents' numbers are written the same way.
                    let read = |text: &str| AgentId::parse(text).map(AgentId::get);
                    self.user(claim.as_i64().or_else(|| read(claim.as_str()?))?)
                }
            }
        })
    }

    /// Tells one value from another within the process.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the issuer's agent claim alone grants this agent.
    pub(super) fn is_granted_by_claim(&self, id: AgentId) -> bool {
        let open = self.agents.get(&id).map(|entry| &entry.shared);
        matches!(open, Some(Shared::Open { share_as, .. }) if *share_as == ShareAs::Mapped(Grant::Claim))
    }

    /// Judges a known person, who may be nobody the directory has.
    pub(super) fn grant(&self, id: AgentId, claimant: Claimant<'_>) -> Result<Granted, Refusal> {
        let Claimant { person, mapped } = claimant;
        if person.is_some_and(|person| person.state == PersonState::Blocked) {
            return Err(Refusal::Blocked);
        }
        let entry = self.agents.get(&id).ok_or(Refusal::UnknownAgent)?;
        let (share_as, lists) = match &entry.shared {
            Shared::Closed(why) => return Err(Refusal::NotShared(why)),
            Shared::Open { share_as, lists } => (*share_as, lists),
        };
        let member = || {
            let person = person.ok_or(Refusal::UnknownUser)?;
            let (projects, groups) = lists.of(person.user.id);
            let none = projects.is_empty() && groups.is_empty();
            if none {
                return Err(Refusal::NotMember);
            }
            Ok((person.user.clone(), projects, groups))
        };
        let (user, access_as) = match share_as {
            ShareAs::Agent => (member()?.0, AccessAs::Agent),
            ShareAs::User => {
                let (user, projects, groups) = member()?;
                (user, AccessAs::User { projects, groups })
            }
            ShareAs::Mapped(grant) => {
                let identity = mapped.ok_or(Refusal::NotShared(NOT_MAPPED))?;
                let user = match grant {
                    Grant::Membership => member()?.0,
                    Grant::Claim => person.map_or_else(|| stranger(identity), |person| person.user.clone()),
                };
                (user, AccessAs::Mapped(identity.clone()))
            }
        };
        Ok(Granted {
            agent: Arc::clone(&entry.agent),
            user,
            access_as,
        })
    }

    fn named(&self, name: &str) -> Option<&Entry> {
        self.agents.values().find(|entry| entry.agent.name == name)
    }
}

impl Granted {
    fn facts(self, session: SessionId) -> AccessFacts {
        AccessFacts {
            agent: self.agent,
            user: self.user,
            access_as: self.access_as,
            session,
        }
    }

    /// With the credential it was granted to.
    pub(super) fn access(self, session: SessionId, expires_at: Timestamp) -> Access {
        Access {
            facts: self.facts(session),
            expires_at: Some(expires_at),
            linked: None,
        }
    }

    /// As somebody who was let in as `before`, if it is to the same agent and as the same
    /// person; what they are there may be different.
    pub(super) fn again(self, before: &Arc<Access>) -> Option<Arc<Access>> {
        if *self.agent != **before.agent() || self.user != *before.user() {
            return None;
        }
        if self.access_as == *before.access_as() {
            return Some(Arc::clone(before));
        }
        Some(Arc::new(Access {
            facts: self.facts(before.session().clone()),
            expires_at: before.expires_at,
            linked: before.linked.clone(),
        }))
    }
}

impl Entry {
    fn binding(&self) -> Binding {
        Binding {
            id: self.agent.id,
            config_project: self.agent.config_project,
            cluster: self.agent.cluster.clone(),
        }
    }
}

/// Somebody only the issuer knows.
pub(super) fn stranger(identity: &Identity) -> User {
    User {
        id: 0,
        username: identity.username.clone(),
    }
}

#[cfg(test)]
mod tests;
