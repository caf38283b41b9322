//! Turns a caller's claims into an identity: its principals, and where their rows are. An identity
//! has one plan for each group of requests that is judged alike.
//!
//! Security: under strict semantics a principal for whom the identity provider may not speak does
//! not count. An identity is only valid for the policy that made it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::{ProjectId, Rbac, SubjectId};
use tollgate_config::RbacSemantics;
use tollgate_core::claims::{project_of_subject, scope_values, user_identifier};

const MAX_CACHED_IDENTITIES: u64 = 10_000;
/// Maximum number of grants followed from a member to a role, as in Argo CD.
const MAX_GRANT_DEPTH: usize = 10;
/// Issuer of Argo CD's own tokens, which are for local accounts and project roles.
const LOCAL_ISSUER: &str = "argocd";

/// Why a principal is one of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrincipalKind {
    /// The role that everyone holds.
    DefaultRole,
    /// The user, or a subject given by name.
    User,
    /// A value of a scope claim.
    Group,
    /// The empty subject, which everyone has.
    Everyone,
}

/// Who issued the token of a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenIssuer {
    /// Argo CD for its local accounts and project tokens, an identity provider for everyone else.
    #[default]
    Assumed,
    /// Argo CD itself.
    Argocd,
    /// An identity provider.
    Provider,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eligibility {
    Eligible,
    /// A role, project or local account name that an identity provider gave.
    Reserved,
    /// A group without a grant; Argo CD does not evaluate it.
    Ungranted,
    /// The token of a project, and an object of another project.
    ForeignProject,
    /// In its own project, a project token is judged by its role alone.
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
pub(super) struct PlanStep {
    pub(super) principal: usize,
    pub(super) eligibility: Eligibility,
    pub(super) roles: Vec<SubjectId>,
    pub(super) tables: Box<[u32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenProject {
    Absent,
    Unknown,
    Known(ProjectId),
}

/// A caller, prepared for decisions.
#[derive(Debug)]
pub struct RbacIdentity {
    policy: u64,
    pub(super) principals: Vec<Principal>,
    token: TokenProject,
    /// For requests without a project, or in a project that adds nothing.
    base: Box<[PlanStep]>,
    /// For a project token and objects of another project.
    foreign: Box<[PlanStep]>,
    projects: FxHashMap<ProjectId, Box<[PlanStep]>>,
    /// The same caller's identity in the policy that narrows this one.
    pub(super) narrowed: Option<Arc<Self>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CacheKey {
    local: bool,
    user: String,
    groups: Vec<String>,
}

pub(super) struct Cache {
    policy: u64,
    identities: moka::sync::Cache<CacheKey, Arc<RbacIdentity>>,
}

impl Default for Cache {
    fn default() -> Self {
        static POLICIES: AtomicU64 = AtomicU64::new(1);
        Self {
            policy: POLICIES.fetch_add(1, Ordering::Relaxed),
            identities: moka::sync::Cache::new(MAX_CACHED_IDENTITIES),
        }
    }
}

impl RbacIdentity {
    pub(super) fn plan(&self, project: Option<ProjectId>) -> &[PlanStep] {
        match (project, self.token) {
            (None, _) => &self.base,
            (Some(_), TokenProject::Unknown) => &self.foreign,
            (Some(project), TokenProject::Known(own)) if own != project => &self.foreign,
            (Some(project), _) => self.projects.get(&project).unwrap_or(&self.base),
        }
    }

    pub(super) fn has_single_plan(&self) -> bool {
        self.token == TokenProject::Absent && self.projects.is_empty()
    }

    pub(super) fn belongs_to(&self, rbac: &Rbac) -> bool {
        self.policy == rbac.identities.policy
    }
}

impl Rbac {
    /// The identity for the claims of a verified token. Cached; at most 10,000 are kept.
    pub fn identify(&self, claims: &Map<String, Value>) -> Arc<RbacIdentity> {
        let key = self.key_of(claims);
        if let Some(cached) = self.identities.identities.get(&key) {
            return cached;
        }
        // Threads that resolve the same caller at once get equal results, so none needs to wait for another.
        let identity = Arc::new(self.resolve(claims, &key));
        self.identities.identities.insert(key, identity.clone());
        identity
    }

    /// As [`Rbac::identify`], for claims that no caller has: callers would be pushed out of the cache.
    pub(super) fn identify_uncached(&self, claims: &Map<String, Value>) -> RbacIdentity {
        self.resolve(claims, &self.key_of(claims))
    }

    fn key_of(&self, claims: &Map<String, Value>) -> CacheKey {
        CacheKey {
            local: claims.get("iss").and_then(Value::as_str) == Some(LOCAL_ISSUER),
            user: user_identifier(claims).to_owned(),
            groups: scope_values(claims, &self.scopes),
        }
    }

    fn resolve(&self, claims: &Map<String, Value>, key: &CacheKey) -> RbacIdentity {
        let narrower = self.narrowed_by.as_ref();
        RbacIdentity {
            // Not cached there, because the identity that holds it is cached here.
            narrowed: narrower.map(|narrower| Arc::new(narrower.identify_uncached(claims))),
            ..self.resolve_claims(key)
        }
    }

    /// The identity for a name on a command line: that of a caller who signs in by that name. A
    /// role, with which nobody signs in, is judged by itself.
    pub fn identify_name(&self, name: &str, groups: &[String], issuer: TokenIssuer) -> Arc<RbacIdentity> {
        if name.starts_with("role:") && groups.is_empty() && issuer == TokenIssuer::Assumed {
            return Arc::new(self.identify_subject(name));
        }
        self.identify(&self.claims_of(name, groups, issuer))
    }

    /// Claims of the token that such a caller has. The groups are in the policy's first scope.
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

    /// Whether Argo CD's own tokens have this name: local accounts and roles of projects.
    pub(super) fn is_local(&self, name: &str) -> bool {
        self.accounts.contains(name) || project_of_subject(name).is_some()
    }

    /// The identity of a role, user or group by its name alone, as in
    /// `argocd admin settings rbac can`: the default role, then the subject; no project roles.
    pub fn identify_subject(&self, subject: &str) -> RbacIdentity {
        let mut principals = self.default_principal();
        principals.push(self.principal(PrincipalKind::User, subject, false));
        self.plain(principals)
    }

    /// The identity of a caller without claims: the default role, then the empty subject.
    pub fn identify_anonymous(&self) -> RbacIdentity {
        let mut principals = self.default_principal();
        principals.push(self.principal(PrincipalKind::Everyone, "", false));
        self.plain(principals)
    }

    pub(super) fn identify_without_default_role(&self, subject: &str) -> RbacIdentity {
        self.plain(vec![self.principal(PrincipalKind::User, subject, false)])
    }

    fn plain(&self, principals: Vec<Principal>) -> RbacIdentity {
        let base = (0..)
            .zip(&principals)
            .map(|(at, principal)| self.step(at, principal, None))
            .collect();
        RbacIdentity {
            policy: self.identities.policy,
            principals,
            token: TokenProject::Absent,
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
            reserved: reserved && self.semantics == RbacSemantics::Strict && foreign,
        }
    }

    fn resolve_claims(&self, key: &CacheKey) -> RbacIdentity {
        let mut principals = self.default_principal();
        let mut user = self.principal(PrincipalKind::User, &key.user, !key.local);
        // Argo CD's own tokens speak for accounts and roles of projects, but not for a global role either.
        user.reserved |= self.semantics == RbacSemantics::Strict && key.user.starts_with("role:");
        principals.push(user);
        let groups = key.groups.iter();
        principals.extend(groups.map(|group| self.principal(PrincipalKind::Group, group, true)));
        principals.push(self.principal(PrincipalKind::Everyone, "", false));

        let token = project_of_subject(&key.user).map_or(TokenProject::Absent, |(project, _)| {
            let known = self.projects.get(project);
            known.map_or(TokenProject::Unknown, |id| TokenProject::Known(*id))
        });
        let mut mentioned = BTreeSet::new();
        if let TokenProject::Known(project) = token {
            mentioned.insert(project);
        }
        for principal in principals.iter().filter(|principal| !principal.reserved) {
            for role in self.closure(&principal.name, None) {
                mentioned.extend(self.mentions.get(&role).into_iter().flatten());
            }
        }
        let projects = mentioned
            .into_iter()
            .map(|id| (id, self.steps(&principals, token, Some(id))))
            .collect();
        RbacIdentity {
            policy: self.identities.policy,
            base: self.steps(&principals, token, None),
            foreign: match token {
                TokenProject::Unknown | TokenProject::Known(_) => self.foreign_steps(&principals),
                TokenProject::Absent => Box::default(),
            },
            token,
            projects,
            principals,
            narrowed: None,
        }
    }

    /// The steps for requests in a project, or without a project.
    fn steps(&self, principals: &[Principal], token: TokenProject, project: Option<ProjectId>) -> Box<[PlanStep]> {
        let mut steps = Vec::new();
        let own_token = token != TokenProject::Absent && project.is_some();
        for (at, principal) in principals.iter().enumerate() {
            let mut step = self.step(at, principal, project);
            match (principal.kind, self.semantics) {
                // Argo CD judges the default role by the global policy first.
                (PrincipalKind::DefaultRole, RbacSemantics::Argocd) if project.is_some() => {
                    steps.push(self.step(at, principal, None));
                }
                // Argo CD judges the empty subject by the global policy alone.
                (PrincipalKind::Everyone, RbacSemantics::Argocd) => step = self.step(at, principal, None),
                (PrincipalKind::Group, RbacSemantics::Argocd) if own_token => step.eligibility = Eligibility::TokenOnly,
                (PrincipalKind::Group, RbacSemantics::Argocd) if !self.is_granted(&principal.name, project) => {
                    step.eligibility = Eligibility::Ungranted;
                }
                _ => {}
            }
            steps.push(step);
        }
        steps.into()
    }

    /// The steps of a project token for objects of another project.
    fn foreign_steps(&self, principals: &[Principal]) -> Box<[PlanStep]> {
        let steps = principals.iter().enumerate().map(|(at, principal)| {
            let mut step = self.step(at, principal, None);
            if matches!(principal.kind, PrincipalKind::User | PrincipalKind::Group) {
                step.eligibility = Eligibility::ForeignProject;
            }
            step
        });
        steps.collect()
    }

    fn step(&self, at: usize, principal: &Principal, project: Option<ProjectId>) -> PlanStep {
        let roles = self.closure(&principal.name, project);
        let mut tables = Vec::new();
        for role in &roles {
            tables.extend(self.table_of.get(&(None, *role)));
            tables.extend(project.and_then(|project| self.table_of.get(&(Some(project), *role))));
        }
        let eligibility = if principal.reserved {
            Eligibility::Reserved
        } else {
            Eligibility::Eligible
        };
        PlanStep {
            principal: at,
            eligibility,
            roles,
            tables: tables.into(),
        }
    }

    pub(super) fn is_granted(&self, name: &str, project: Option<ProjectId>) -> bool {
        self.subjects.get(name).is_some_and(|id| {
            self.roles_of.contains_key(&(None, *id))
                || project.is_some_and(|project| self.roles_of.contains_key(&(Some(project), *id)))
        })
    }

    /// A subject and every role it inherits: over at most 10 grants, as in Argo CD. Strict
    /// semantics follow all grants, so that no deny is missed.
    fn closure(&self, name: &str, project: Option<ProjectId>) -> Vec<SubjectId> {
        let Some(start) = self.subjects.get(name) else {
            return Vec::new();
        };
        let hops = match self.semantics {
            RbacSemantics::Argocd => MAX_GRANT_DEPTH,
            RbacSemantics::Strict => usize::MAX,
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
