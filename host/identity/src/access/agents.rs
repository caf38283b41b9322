//! The agents of one state, and what access each gives to a person.
//!
//! When an agent's configuration has mistakes, its last good one stays in force for the life of the
//! process, as in GitLab's agent server: people who had access keep it. After a start there is no
//! last good one, and the agent is closed.
//!
//! Security: a mistake in a configuration never opens an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};

use super::AccessDenyReason;
use super::membership::{ListedNamespaces, Member};
use crate::person::linked_person;
use tollgate_config::{GroupMembership, UserClaimMapping};
use tollgate_core::access::AccessFacts;
use tollgate_core::agent::{Agent, AgentId, ConfigurationStatus};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::session::SessionId;
use tollgate_core::user::{AccessAs, Identity, Membership, User};
use tollgate_objects::Resources;
use tollgate_objects::agent::{AccessMode, AgentBinding, AgentObject, MappedAuthorization, Sharing, UserAccess};
use tollgate_objects::people::{Person, PersonState, UserDirectory};

const NO_USER_ACCESS: &str = "it has no `user_access`";
const BROKEN: &str = "its configuration has mistakes";
const NOT_MAPPED: &str = "`access_as: mapped` takes ID tokens of issuers with `claimMappings`";

static NEXT_GENERATION: AtomicU64 = AtomicU64::new(0);

/// The agents by number, with the user directory. Immutable.
#[derive(Debug)]
pub struct Agents {
    /// Distinguishes this value from all others of the process.
    pub(super) generation: u64,
    agents: BTreeMap<AgentId, AgentEntry>,
    /// The user directory.
    pub people: Arc<UserDirectory>,
    memberships: Arc<[GroupMembership]>,
    /// Returns findings about agents, in addition to those of the load itself.
    pub findings: Vec<Diagnostic>,
}

#[derive(Debug)]
struct AgentEntry {
    agent: Arc<Agent>,
    /// The last good `user_access`, which the next state may need.
    last_good: Option<Arc<UserAccess>>,
    configuration: ConfigurationStatus,
    /// The configuration that a remote platform receives; `None` while it has mistakes.
    document: Option<Arc<Value>>,
    shared: SharingState,
}

#[derive(Debug)]
enum SharingState {
    Closed(&'static str),
    Open {
        access_mode: AccessMode,
        lists: ListedNamespaces,
    },
}

/// How an agent is shared with a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentShare {
    /// The identity the cluster sees.
    pub access_mode: AccessMode,
    /// Listed projects in which they are at least a developer.
    pub projects: Vec<Membership>,
    /// Listed groups in which they are at least a developer.
    pub groups: Vec<Membership>,
}

/// Whom a credential stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct CredentialSubject<'a> {
    pub(super) person: Option<&'a Person>,
    /// The identity from the issuer's `claimMappings`, for ID tokens and logins.
    pub(super) mapped: Option<&'a Identity>,
    /// The issuer and the identity that it vouches for, by whose groups people have roles.
    pub(super) vouched: Option<(&'a str, &'a Identity)>,
}

impl<'a> CredentialSubject<'a> {
    fn member(self) -> Member<'a> {
        Member {
            user_id: self.person.map(|person| person.user.id),
            groups: self
                .vouched
                .map(|(issuer, identity)| (issuer, identity.groups.as_slice())),
        }
    }
}

impl Agents {
    /// Builds the agents of a state.
    ///
    /// An agent whose configuration has mistakes keeps the configuration it has in `previous`;
    /// without one it is closed. A missing `user_access` is no mistake, and closes the agent at
    /// once.
    pub fn build(resources: &Resources, previous: Option<&Self>) -> Arc<Self> {
        let memberships = previous.map_or_else(|| Arc::from([]), |previous| Arc::clone(&previous.memberships));
        Self::build_with(resources, memberships, previous)
    }

    /// As [`Agents::build`], with roles by groups of issuers.
    pub fn build_with(
        resources: &Resources,
        memberships: Arc<[GroupMembership]>,
        previous: Option<&Self>,
    ) -> Arc<Self> {
        let mut made = Self {
            generation: NEXT_GENERATION.fetch_add(1, Ordering::Relaxed),
            agents: BTreeMap::new(),
            people: Arc::clone(&resources.people),
            memberships,
            findings: Vec::new(),
        };
        let objects = || resources.agents.values();
        let taken: BTreeSet<AgentId> = objects()
            .filter_map(|object| Some(object.binding.as_ref()?.id))
            .collect();
        for object in objects() {
            let before = previous.and_then(|agents| agents.named(&object.name));
            // An object whose binding cannot be read keeps the number that it had, unless another object has it now.
            let kept = || {
                let agent = before.map(|entry| &entry.agent);
                let agent = agent.filter(|agent| !taken.contains(&agent.id))?;
                Some(AgentBinding {
                    id: agent.id,
                    config_project: agent.config_project,
                    cluster: agent.cluster.clone(),
                })
            };
            if let Some(binding) = object.binding.clone().or_else(kept) {
                made.add(object, binding, before);
            }
        }
        Arc::new(made)
    }

    fn add(&mut self, object: &AgentObject, binding: AgentBinding, before: Option<&AgentEntry>) {
        let id = binding.id;
        let name = object.name.as_str();
        // With another number it is another agent: what was good for the former one does not count.
        let same = before.filter(|entry| entry.agent.id == id);
        let last_good = match &object.sharing {
            Sharing::Nobody => None,
            Sharing::People(access) => Some(Arc::clone(access)),
            Sharing::Invalid => same.and_then(|entry| entry.last_good.clone()),
        };
        if object.sharing == Sharing::Invalid {
            let follows = match last_good {
                Some(_) => "its last good configuration stays in force",
                None => "it is closed",
            };
            let message = format!("the configuration of agent `{name}` has mistakes; {follows}");
            let finding = Diagnostic::warning(object.location.clone(), message);
            self.findings.push(finding);
        }
        let shared = match (&last_good, &object.sharing) {
            (Some(access), _) => SharingState::Open {
                access_mode: access.access_mode,
                lists: ListedNamespaces::resolve(access, name, &self.people, &self.memberships, &mut self.findings),
            },
            (None, Sharing::Invalid) => SharingState::Closed(BROKEN),
            (None, Sharing::Nobody | Sharing::People(_)) => SharingState::Closed(NO_USER_ACCESS),
        };
        let configuration = match (&object.sharing, &object.binding) {
            (Sharing::Invalid, _) | (_, None) => ConfigurationStatus::Broken,
            (Sharing::Nobody | Sharing::People(_), Some(_)) => ConfigurationStatus::Good,
        };
        let entry = AgentEntry {
            agent: Arc::new(Agent {
                id,
                name: name.to_owned(),
                config_project: binding.config_project,
                cluster: binding.cluster,
            }),
            last_good,
            configuration,
            document: object.configuration.clone(),
            shared,
        };
        self.agents.insert(id, entry);
    }

    /// Returns the state of each agent's configuration, by number.
    pub fn configurations(&self) -> impl Iterator<Item = (AgentId, ConfigurationStatus)> {
        self.agents.iter().map(|(id, entry)| (*id, entry.configuration))
    }

    /// Returns the configurations without mistakes, with their agents.
    pub(super) fn documents(&self) -> impl Iterator<Item = (&Arc<Agent>, &Arc<Value>)> {
        let entries = self.agents.values();
        entries.filter_map(|entry| Some((&entry.agent, entry.document.as_ref()?)))
    }

    /// Returns the state of an agent's configuration; good if there is none.
    pub fn configuration(&self, id: AgentId) -> ConfigurationStatus {
        self.agents
            .get(&id)
            .map_or(ConfigurationStatus::Good, |entry| entry.configuration)
    }

    /// Returns an agent by number, whether shared or closed.
    pub fn agent(&self, id: AgentId) -> Option<&Arc<Agent>> {
        self.agents.get(&id).map(|entry| &entry.agent)
    }

    /// Finds an agent by number if the text is one, or else by name.
    ///
    /// SECURITY: a number is never looked up as a name, so that an agent whose name is a number
    /// cannot be mistaken for the agent of that number.
    pub fn find(&self, text: &str) -> Option<&Arc<Agent>> {
        match text.parse::<i64>() {
            Ok(_) => self.agent(AgentId::parse(text)?),
            Err(_) => self.named(text).map(|entry| &entry.agent),
        }
    }

    /// Returns every agent, ordered by number.
    pub fn agents(&self) -> impl Iterator<Item = &Arc<Agent>> {
        self.agents.values().map(|entry| &entry.agent)
    }

    /// Returns the identity of every agent, by number.
    pub fn identities(&self) -> BTreeMap<AgentId, String> {
        let agents = self.agents.iter();
        agents.map(|(id, entry)| (*id, entry.agent.identity())).collect()
    }

    /// Returns how an agent is shared with a person, who may be blocked; `None` if it is not.
    pub fn share(&self, id: AgentId, person: Member<'_>) -> Option<AgentShare> {
        let SharingState::Open { access_mode, lists } = &self.agents.get(&id)?.shared else {
            return None;
        };
        let (projects, groups) = lists.memberships_of(person);
        let is_member = !projects.is_empty() || !groups.is_empty();
        is_member.then_some(AgentShare {
            access_mode: *access_mode,
            projects,
            groups,
        })
    }

    /// Returns the identity under which an agent's cluster is entered; `None` if it is closed or not there.
    pub fn access_mode(&self, id: AgentId) -> Option<AccessMode> {
        match &self.agents.get(&id)?.shared {
            SharingState::Open { access_mode, .. } => Some(*access_mode),
            SharingState::Closed(_) => None,
        }
    }

    /// Returns the person an issuer's claims stand for, as [`linked_person`].
    pub fn user_of(&self, links: &[UserClaimMapping], issuer: &str, claims: &Map<String, Value>) -> Option<&Person> {
        linked_person(&self.people, links, issuer, claims)
    }

    /// Whether the issuer's agent claim alone grants this agent.
    pub(super) fn is_granted_by_claim(&self, id: AgentId) -> bool {
        let open = self.agents.get(&id).map(|entry| &entry.shared);
        matches!(open, Some(SharingState::Open { access_mode, .. }) if *access_mode == AccessMode::Mapped(MappedAuthorization::Claim))
    }

    /// Decides what access an agent grants a subject, who need not be in the directory.
    pub(super) fn grant(
        &self,
        id: AgentId,
        subject: CredentialSubject<'_>,
        session: SessionId,
    ) -> Result<AccessFacts, AccessDenyReason> {
        let CredentialSubject {
            person,
            mapped,
            vouched,
        } = subject;
        if person.is_some_and(|person| person.state == PersonState::Blocked) {
            return Err(AccessDenyReason::Blocked);
        }
        let entry = self.agents.get(&id).ok_or(AccessDenyReason::UnknownAgent)?;
        let (access_mode, lists) = match &entry.shared {
            SharingState::Closed(why) => return Err(AccessDenyReason::NotShared(why)),
            SharingState::Open { access_mode, lists } => (*access_mode, lists),
        };
        let member = || {
            let user = match (person, vouched) {
                (Some(person), _) => person.user.clone(),
                (None, Some((_, identity))) => self.outsider(identity)?,
                (None, None) => return Err(AccessDenyReason::UnknownUser),
            };
            let (projects, groups) = lists.memberships_of(subject.member());
            match (projects.is_empty() && groups.is_empty(), person) {
                (false, _) => Ok((user, projects, groups)),
                (true, Some(_)) => Err(AccessDenyReason::NotMember),
                // Without a role, an issuer's word alone makes nobody known.
                (true, None) => Err(AccessDenyReason::UnknownUser),
            }
        };
        let (user, access_as) = match access_mode {
            AccessMode::Agent => (member()?.0, AccessAs::Agent),
            AccessMode::User => {
                let (user, projects, groups) = member()?;
                (user, AccessAs::User { projects, groups })
            }
            AccessMode::Mapped(grant) => {
                let identity = mapped.ok_or(AccessDenyReason::NotShared(NOT_MAPPED))?;
                let user = match grant {
                    MappedAuthorization::Membership => member()?.0,
                    MappedAuthorization::Claim => {
                        person.map_or_else(|| issuer_only_user(identity), |person| person.user.clone())
                    }
                };
                (user, AccessAs::Mapped(identity.clone()))
            }
        };
        Ok(AccessFacts {
            agent: Arc::clone(&entry.agent),
            user,
            // SECURITY: no group may mean that the token or the mapping names none, so it counts as not known. A rule
            // that refuses a group can then refuse anyone who may be in it.
            issuer_groups: vouched
                .map(|(_, identity)| identity.groups.as_slice())
                .filter(|groups| !groups.is_empty())
                .map(Into::into),
            access_as,
            session,
        })
    }

    /// Somebody whom only an issuer knows.
    // SECURITY: clusters would take them for the person of the directory who has that name.
    fn outsider(&self, identity: &Identity) -> Result<User, AccessDenyReason> {
        match self.people.person_by_username(&identity.username) {
            Some(_) => Err(AccessDenyReason::NameTaken),
            None => Ok(issuer_only_user(identity)),
        }
    }

    fn named(&self, name: &str) -> Option<&AgentEntry> {
        self.agents.values().find(|entry| entry.agent.name == name)
    }
}

/// A person whom only an issuer knows, as a user who is in no directory.
pub fn issuer_only_user(identity: &Identity) -> User {
    User {
        id: 0,
        username: identity.username.clone(),
    }
}

#[cfg(test)]
mod tests;
