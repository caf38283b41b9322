//! Who is judged: the principals of one caller, and where their rows stand.
//!
//! In: claims. Out: plans, one per group of requests that is judged alike.
//! Never: a principal an identity provider may not speak for (strict); a plan
//! used with another policy than the one it was made from.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::{ProjectId, Rbac, SubjectId};
use tollgate_config::Semantics;
use tollgate_core::claims::{project_of_subject, scope_values, user_identifier};

/// Identities kept per policy.
const CACHED: u64 = 10_000;
/// Grants followed from a member upwards, as in Argo CD.
const HOPS: usize = 10;
/// Issuer of Argo CD's own tokens: local accounts and project roles.
const LOCAL_ISSUER: &str = "argocd";

/// Why a principal takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrincipalKind {
    /// The role everyone holds.
    DefaultRole,
    /// The user, or a subject given as such.
    User,
    /// A value of a scope claim.
    Group,
    /// The empty subject, which everyone is.
    Everyone,
}

/// Who vouches for a caller that is known by name only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenIssuer {
    /// Argo CD for its local accounts and project tokens, an identity provider for
    /// everybody else.
    #[default]
    Assumed,
    /// Argo CD itself.
    Argocd,
    /// An identity provider.
    Provider,
}

/// Whether a principal counts for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Counts,
    /// A role, project or local account name from an identity provider.
    Reserved,
    /// A group no grant starts with; Argo CD does not look at it.
    Ungranted,
    /// A project token and an object of another project.
    ForeignProject,
    /// A project token is judged by its role alone in its own project.
    TokenOnly,
}

#[derive(Clone, Debug)]
pub(super) struct Principal {
    pub(super) kind: PrincipalKind,
    pub(super) name: String,
    reserved: bool,
}

/// A principal in one plan, with the tables of every role it holds.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) principal: usize,
    pub(super) standing: Standing,
    pub(super) roles: Vec<SubjectId>,
    pub(super) tables: Box<[u32]>,
}

/// Which plan a request is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PlanKey {
    Base,
    Foreign,
    Project(ProjectId),
}

/// Whether the caller is a project token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// It is none.
    Absent,
    /// Its project is not known.
    Unknown,
    /// It is one of this project.
    Of(ProjectId),
}

/// A caller, ready to be judged.
#[derive(Debug)]
pub struct Identity {
    policy: u64,
    pub(super) principals: Vec<Principal>,
    token: Token,
    /// For requests of no project, or of one that adds nothing.
    base: Box<[Step]>,
    /// For a project token and another project.
    foreign: Box<[Step]>,
    projects: FxHashMap<ProjectId, Box<[Step]>>,
    /// The same caller to the policy that narrows this one.
    narrowed: Option<Arc<Self>>,
}

/// Which claims give the same identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    local: bool,
    user: String,
    groups: Vec<String>,
}

/// Identities of one policy.
pub(super) struct Cache {
    policy: u64,
    identities: moka::sync::Cache<Key, Arc<Identity>>,
}

impl Cache {
    pub(super) fn new() -> Self {
        static POLICIES: AtomicU64 = AtomicU64::new(1);
        Self {
            policy: POLICIES.fetch_add(1, Ordering::Relaxed),
            identities: moka::sync::Cache::new(CACHED),
        }
    }
}

impl Identity {
    /// The steps of a plan.
    pub(super) fn plan(&self, key: PlanKey) -> &[Step] {
        match key {
            PlanKey::Base => &self.base,
            PlanKey::Foreign => &self.foreign,
            PlanKey::Project(project) => self.projects.get(&project).unwrap_or(&self.base),
        }
    }

    /// The same caller to the policy that narrows this one.
    pub(super) fn narrowed(&self) -> Option<&Self> {
        self.narrowed.as_deref()
    }

    /// The plan for a request of this project.
    pub(super) fn plan_key(&self, project: Option<ProjectId>) -> PlanKey {
        match (project, self.token) {
            (None, _) => PlanKey::Base,
            (Some(_), Token::Unknown) => PlanKey::Foreign,
            (Some(project), Token::Of(own)) if own != project => PlanKey::Foreign,
            (Some(project), _) if self.projects.contains_key(&project) => PlanKey::Project(project),
            (Some(_), _) => PlanKey::Base,
        }
    }

    /// Whether every request has the same plan.
    pub(super) fn is_plain(&self) -> bool {
        self.token == Token::Absent && self.projects.is_empty()
    }

    /// Whether it was made by this policy.
    pub(super) fn belongs_to(&self, rbac: &Rbac) -> bool {
        self.policy == rbac.identities.policy
    }
}

impl Rbac {
    /// The caller of a checked token. Cached; at most 10,000 are kept.
    pub fn identify(&self, claims: &Map<String, Value>) -> Arc<Identity> {
        let key = Key {
            local: claims.get("iss").and_then(Value::as_str) == Some(LOCAL_ISSUER),
            user: user_identifier(claims).to_owned(),
            groups: scope_values(claims, &self.scopes),
        };
        if let Some(known) = self.identities.identities.get(&key) {
            return known;
        }
        let narrowed = self.narrowed_by.as_ref().map(|narrower| narrower.identify(claims));
        let identity = Arc::new(Identity {
            narrowed,
            ..self.judge_claims(&key)
        });
        self.identities.identities.insert(key, identity.clone());
        identity
    }

    /// The caller a name stands for on a command line: as the gateway takes whoever
    /// signs in by that name. A role, which nobody signs in as, is judged by itself.
    pub fn identify_name(&self, name: &str, groups: &[String], issuer: TokenIssuer) -> Arc<Identity> {
        if name.starts_with("role:") && groups.is_empty() && issuer == TokenIssuer::Assumed {
            return Arc::new(self.identify_subject(name));
        }
        self.identify(&self.claims_of(name, groups, issuer))
    }

    /// Claims of the token such a caller has. Groups stand in the policy's first scope.
    pub(super) fn claims_of(&self, name: &str, groups: &[String], issuer: TokenIssuer) -> Map<String, Value> {
        let is_local = match issuer {
            TokenIssuer::Assumed => self.is_local(name),
            TokenIssuer::Argocd => true,
            TokenIssuer::Provider => false,
        };
        let mut claims = Map::new();
        claims.insert("sub".to_owned(), json!(name));
        if is_local {
            claims.insert("iss".to_owned(), json!(LOCAL_ISSUER));
        }
        if let Some(scope) = self.scopes.first() {
            claims.insert(scope.clone(), json!(groups));
        }
        claims
    }

    /// Whether Argo CD's own tokens bear this name: accounts and roles of projects.
    pub(super) fn is_local(&self, name: &str) -> bool {
        self.accounts.contains(name) || project_of_subject(name).is_some()
    }

    /// A role, user or group by its name alone, as `argocd admin settings rbac
    /// can` judges it: the default role, then the subject; no project roles.
    pub fn identify_subject(&self, subject: &str) -> Identity {
        let mut principals = self.default_principal();
        principals.push(self.principal(PrincipalKind::User, subject, false));
        self.plain(principals)
    }

    /// A caller without claims: the default role, then the empty subject.
    pub fn identify_nobody(&self) -> Identity {
        let mut principals = self.default_principal();
        principals.push(self.principal(PrincipalKind::Everyone, "", false));
        self.plain(principals)
    }

    /// A subject without the default role.
    pub(super) fn identify_alone(&self, subject: &str) -> Identity {
        self.plain(vec![self.principal(PrincipalKind::User, subject, false)])
    }

    fn plain(&self, principals: Vec<Principal>) -> Identity {
        let base = (0..)
            .zip(&principals)
            .map(|(at, principal)| self.step(at, principal, None))
            .collect();
        Identity {
            policy: self.identities.policy,
            principals,
            token: Token::Absent,
            base,
            foreign: Box::default(),
            projects: FxHashMap::default(),
            narrowed: None,
        }
    }

    fn default_principal(&self) -> Vec<Principal> {
        let role = (!self.default_role.is_empty()).then_some(&self.default_role);
        role.into_iter()
            .map(|role| self.principal(PrincipalKind::DefaultRole, role, false))
            .collect()
    }

    fn principal(&self, kind: PrincipalKind, name: &str, foreign: bool) -> Principal {
        let role = name.starts_with("role:");
        let local = name.starts_with("proj:") || self.accounts.contains(name);
        let reserved = match kind {
            PrincipalKind::User => role || (foreign && local),
            PrincipalKind::Group => role || local,
            PrincipalKind::DefaultRole | PrincipalKind::Everyone => false,
        };
        Principal {
            kind,
            name: name.to_owned(),
            reserved: reserved && self.semantics == Semantics::Strict && foreign,
        }
    }

    fn judge_claims(&self, key: &Key) -> Identity {
        let mut principals = self.default_principal();
        let mut user = self.principal(PrincipalKind::User, &key.user, !key.local);
        user.reserved |= self.semantics == Semantics::Strict && key.user.starts_with("role:");
        principals.push(user);
        principals.extend(
            key.groups
                .iter()
                .map(|group| self.principal(PrincipalKind::Group, group, true)),
        );
        principals.push(self.principal(PrincipalKind::Everyone, "", false));

        let token = match project_of_subject(&key.user) {
            None => Token::Absent,
            Some((project, _)) => self.projects.get(project).map_or(Token::Unknown, |id| Token::Of(*id)),
        };
        let mut mentioned = BTreeSet::new();
        if let Token::Of(project) = token {
            mentioned.insert(project);
        }
        for principal in principals.iter().filter(|principal| !principal.reserved) {
            for role in self.closure(&principal.name, None) {
                mentioned.extend(self.mentions.get(&role).into_iter().flatten());
            }
            if let Some(id) = self.subjects.get(principal.name.as_str()) {
                mentioned.extend(self.mentions.get(id).into_iter().flatten());
            }
        }
        let projects = mentioned
            .into_iter()
            .map(|id| (id, self.steps(&principals, token, Some(id))))
            .collect();
        Identity {
            policy: self.identities.policy,
            base: self.steps(&principals, token, None),
            foreign: match token {
                Token::Unknown | Token::Of(_) => self.foreign_steps(&principals),
                Token::Absent => Box::default(),
            },
            token,
            projects,
            principals,
            narrowed: None,
        }
    }

    /// The steps for requests of a project, or of none.
    fn steps(&self, principals: &[Principal], token: Token, project: Option<ProjectId>) -> Box<[Step]> {
        let mut steps = Vec::new();
        let own_token = token != Token::Absent && project.is_some();
        for (at, principal) in principals.iter().enumerate() {
            let mut step = self.step(at, principal, project);
            match (principal.kind, self.semantics) {
                // The default role is judged by the global policy first.
                (PrincipalKind::DefaultRole, Semantics::Argocd) if project.is_some() => {
                    steps.push(self.step(at, principal, None));
                }
                (PrincipalKind::Everyone, Semantics::Argocd) => step = self.step(at, principal, None),
                (PrincipalKind::Group, Semantics::Argocd) if own_token => step.standing = Standing::TokenOnly,
                (PrincipalKind::Group, Semantics::Argocd) if !self.is_granted(&principal.name, project) => {
                    step.standing = Standing::Ungranted;
                }
                _ => {}
            }
            steps.push(step);
        }
        steps.into()
    }

    /// The steps of a project token for objects of another project.
    fn foreign_steps(&self, principals: &[Principal]) -> Box<[Step]> {
        let steps = principals.iter().enumerate().map(|(at, principal)| {
            let mut step = self.step(at, principal, None);
            if matches!(principal.kind, PrincipalKind::User | PrincipalKind::Group) {
                step.standing = Standing::ForeignProject;
            }
            step
        });
        steps.collect()
    }

    fn step(&self, at: usize, principal: &Principal, project: Option<ProjectId>) -> Step {
        let roles = self.closure(&principal.name, project);
        let mut tables = Vec::new();
        for role in &roles {
            tables.extend(self.table_of.get(&(None, *role)));
            tables.extend(project.and_then(|project| self.table_of.get(&(Some(project), *role))));
        }
        let standing = if principal.reserved {
            Standing::Reserved
        } else {
            Standing::Counts
        };
        Step {
            principal: at,
            standing,
            roles,
            tables: tables.into(),
        }
    }

    /// Whether some grant starts with this name.
    fn is_granted(&self, name: &str, project: Option<ProjectId>) -> bool {
        self.subjects.get(name).is_some_and(|id| {
            self.roles_of.contains_key(&(None, *id))
                || project.is_some_and(|project| self.roles_of.contains_key(&(Some(project), *id)))
        })
    }

    /// A subject and every role it inherits: within 10 grants as in Argo CD, all
    /// of them under strict semantics, so that no deny is lost in the distance.
    fn closure(&self, name: &str, project: Option<ProjectId>) -> Vec<SubjectId> {
        let Some(start) = self.subjects.get(name) else {
            return Vec::new();
        };
        let hops = match self.semantics {
            Semantics::Argocd => HOPS,
            Semantics::Strict => usize::MAX,
        };
        let (mut all, mut seen) = (vec![*start], HashSet::from([*start]));
        let mut from = 0;
        for _ in 0..hops {
            let level: Vec<SubjectId> = all.iter().skip(from).copied().collect();
            if level.is_empty() {
                break;
            }
            from = all.len();
            for subject in level {
                let global = self.roles_of.get(&(None, subject));
                let local = project.and_then(|project| self.roles_of.get(&(Some(project), subject)));
                let roles = global.into_iter().chain(local).flatten();
                all.extend(roles.filter(|role| seen.insert(**role)));
            }
        }
        all
    }
}
