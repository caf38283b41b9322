//! Reads `impersonation.cel.yaml`, which says which names people and jobs have in clusters, and
//! applies it to an access.
//!
//! Invariant: expressions are compiled at load, never per request.
//!
//! Security: every identity passes the checks of `impersonate/checks.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::checks::{self, AllowedSystemNames, SYSTEM};
use super::{AccessInput, Error, Impersonation, compile, failed, load_file};
use crate::cel::{Expression, ResultLiteral, Variables};
use tollgate_core::access::AccessFacts;
use tollgate_core::diagnostic::{Diagnostic, Loaded, Location};
use tollgate_core::user::{AccessAs, Identity};
use tollgate_core::yaml;

const VARIABLES: [&str; 6] = ["agent", "user", "access", "job", "project_roles", "group_roles"];
/// Maximum number of expressions that give groups, or keys of `extra`, for one kind of access.
const MAX_EXPRESSIONS: usize = 64;

/// The compiled expressions that map people and jobs to cluster identities.
#[derive(Debug)]
pub struct ImpersonationMapping {
    user: IdentityRules,
    ci_job: IdentityRules,
    max_groups: usize,
}

/// The names that a mapping can give, as far as its text tells. They allow writing RBAC that lets a
/// gateway impersonate only these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PossibleNames {
    /// Keys of `extra`, sorted.
    pub extra_keys: BTreeSet<String>,
    /// Whether it gives a uid.
    pub uid: bool,
    /// Usernames, or prefixes of usernames.
    pub usernames: BTreeSet<ResultLiteral>,
    /// Groups, or prefixes of groups.
    pub groups: BTreeSet<ResultLiteral>,
}

#[derive(Debug)]
struct IdentityRules {
    username: IdentityRule,
    groups: Vec<IdentityRule>,
    uid: Option<IdentityRule>,
    extra: Vec<(String, IdentityRule)>,
}

#[derive(Debug)]
struct IdentityRule {
    part: String,
    expression: Expression,
    system_names: Vec<SystemName>,
}

/// A `system:` name that an expression contains as a literal.
#[derive(Debug)]
struct SystemName {
    name: String,
    /// The expression with another text in place of the name.
    masked: Expression,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMapping {
    user: RawRules,
    ci_job: RawRules,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRules {
    username: Spanned<String>,
    #[serde(default)]
    groups: Vec<Spanned<String>>,
    uid: Option<Spanned<String>>,
    #[serde(default)]
    extra: BTreeMap<String, Spanned<String>>,
}

impl ImpersonationMapping {
    /// Reads `impersonation.cel.yaml` of `folder`. Blocks for some milliseconds.
    ///
    /// - `max_groups`: groups one identity may have.
    pub fn load(folder: &Path, max_groups: usize) -> Loaded<Self> {
        load_file(folder, None, |path, text| Self::parse(path, text, max_groups))
    }

    /// Reads and compiles the text of the file at `path`.
    ///
    /// - `max_groups`: groups one identity may have.
    pub fn parse(path: &str, text: &str, max_groups: usize) -> Loaded<Self> {
        let raw: RawMapping = match yaml::deserialize(path, text) {
            Ok(raw) => raw,
            Err(finding) => return Loaded::refused(vec![finding]),
        };
        let mut found = Vec::new();
        let user = raw.user.compile(path, "user", &mut found);
        let ci_job = raw.ci_job.compile(path, "ci_job", &mut found);
        let Some((user, ci_job)) = user.zip(ci_job) else {
            return Loaded::refused(found);
        };
        let mapping = Self {
            user,
            ci_job,
            max_groups,
        };
        Loaded::new(mapping, found)
    }

    /// The identity to impersonate in a cluster for the requests of `access`.
    ///
    /// Takes some 10 µs: call it once per access, not once per request.
    ///
    /// - `input`: that of `access`.
    ///
    /// # Errors
    /// Each [`Error`] denies.
    pub fn apply(&self, access: &AccessFacts, input: &AccessInput) -> Result<Impersonation, Error> {
        let identity = match &access.access_as {
            AccessAs::Agent => return Ok(Impersonation::Nobody),
            AccessAs::User { .. } => self.user.identity(input, self.max_groups)?,
            AccessAs::CiJob(_) => self.ci_job.identity(input, self.max_groups)?,
            AccessAs::Mapped(identity) | AccessAs::Impersonate(identity) => {
                checks::check(identity.clone(), AllowedSystemNames::default(), self.max_groups)?
            }
        };
        Ok(Impersonation::As(identity))
    }

    /// The identity for the input of a test case; `None` if no rule of the file applies.
    pub fn apply_case(&self, input: &AccessInput) -> Option<Result<Identity, Error>> {
        let rules = match input.access_as()? {
            "user" => &self.user,
            "ci_job" => &self.ci_job,
            _ => return None,
        };
        Some(rules.identity(input, self.max_groups))
    }

    /// The names that it can give to people and jobs.
    pub fn names(&self) -> PossibleNames {
        let mut names = self.names_for_users();
        names.add(&self.ci_job);
        names
    }

    /// The names that it can give to people.
    pub fn names_for_users(&self) -> PossibleNames {
        let mut names = PossibleNames::default();
        names.add(&self.user);
        names
    }
}

impl PossibleNames {
    fn add(&mut self, rules: &IdentityRules) {
        self.uid |= rules.uid.is_some();
        self.extra_keys.extend(rules.extra.iter().map(|(key, _)| key.clone()));
        self.usernames.extend(rules.username.expression.result_literals());
        let groups = rules.groups.iter().flat_map(|rule| rule.expression.result_literals());
        self.groups.extend(groups);
    }
}

impl RawRules {
    fn compile(self, path: &str, kind: &str, found: &mut Vec<Diagnostic>) -> Option<IdentityRules> {
        for (what, observed) in [("groups", self.groups.len()), ("extra", self.extra.len())] {
            if observed > MAX_EXPRESSIONS {
                let message = format!("`{kind}.{what}` has {observed} entries, {MAX_EXPRESSIONS} are allowed");
                found.push(Diagnostic::error(Location::new(path, 0), message));
                return None;
            }
        }
        let before = found.len();
        let bad_keys = self.extra.keys().filter_map(|key| checks::check_key(key).err());
        let bad_keys: Vec<Diagnostic> = bad_keys
            .map(|error| Diagnostic::error(Location::new(path, 0), error.to_string()))
            .collect();
        // Compiles every expression before failing, so that one load reports all mistakes.
        let mut compile = |part: String, source: &Spanned<String>| {
            let expression = compile(path, &part, source, &VARIABLES, found)?;
            Some(IdentityRule {
                part,
                system_names: system_names(&expression, &source.value),
                expression,
            })
        };
        let username = compile(format!("{kind}.username"), &self.username);
        let numbered = self.groups.iter().enumerate();
        let groups = numbered
            .filter_map(|(at, source)| compile(format!("{kind}.groups[{at}]"), source))
            .collect();
        let uid = self.uid.and_then(|source| compile(format!("{kind}.uid"), &source));
        let extra = self.extra.into_iter();
        let extra = extra
            .filter_map(|(key, source)| compile(format!("{kind}.extra.{key}"), &source).map(|rule| (key, rule)))
            .collect();
        found.extend(bad_keys);
        if found.len() > before {
            return None;
        }
        Some(IdentityRules {
            username: username?,
            groups,
            uid,
            extra,
        })
    }
}

fn system_names(expression: &Expression, source: &str) -> Vec<SystemName> {
    let whole = |literal| match literal {
        ResultLiteral::Exact(text) => Some(text),
        ResultLiteral::Prefix(_) => None,
    };
    let names: BTreeSet<String> = expression.result_literals().into_iter().filter_map(whole).collect();
    let literals = names
        .into_iter()
        // A name that is written with escapes cannot be replaced in the source, so it is not allowed.
        .filter(|name| name.starts_with(SYSTEM) && source.contains(name.as_str()));
    let masked = |name: String| {
        let masked = Expression::compile(&source.replace(&name, "_"), &VARIABLES).ok()?;
        Some(SystemName { name, masked })
    };
    literals.filter_map(masked).collect()
}

impl IdentityRule {
    /// Those `system:` names in `given` that the expression gave as literals.
    ///
    /// Security: an expression can give a name as a literal to one caller and compute the same name
    /// for another caller, who may choose its parts. A name that the expression still gives after
    /// its literal is replaced was computed.
    fn literal_system_names(&self, given: &[String], variables: &Variables) -> Vec<String> {
        let is_computed = |name: &SystemName| {
            let masked = name.masked.eval_flattened_strings_in(variables);
            // If it fails without the literal, what it would give is unknown.
            masked.map_or(true, |others| others.contains(&name.name))
        };
        let candidates = self.system_names.iter().filter(|name| given.contains(&name.name));
        candidates
            .filter(|name| !is_computed(name))
            .map(|name| name.name.clone())
            .collect()
    }
}

impl IdentityRules {
    fn identity(&self, input: &AccessInput, max_groups: usize) -> Result<Identity, Error> {
        let (projects, groups) = (input.roles("projects"), input.roles("groups"));
        let variables = Variables::new([
            ("agent", &input.agent),
            ("user", &input.user),
            ("access", &input.access),
            ("job", &input.job),
            ("project_roles", &projects),
            ("group_roles", &groups),
        ]);
        let variables = variables.map_err(failed("variables"))?;
        let texts = |rule: &IdentityRule| {
            let texts = rule.expression.eval_flattened_strings_in(&variables);
            texts.map_err(failed(&rule.part))
        };
        let one = |rule: &IdentityRule| {
            let text = rule.expression.eval_string_in(&variables);
            text.map_err(failed(&rule.part))
        };
        let username = one(&self.username)?;
        let system_users = self
            .username
            .literal_system_names(std::slice::from_ref(&username), &variables);
        let (mut groups, mut system_groups) = (Vec::new(), Vec::new());
        for rule in &self.groups {
            let given = texts(rule)?;
            system_groups.extend(rule.literal_system_names(&given, &variables));
            groups.extend(given);
        }
        let mut extra = Vec::with_capacity(self.extra.len());
        for (key, rule) in &self.extra {
            extra.push((key.clone(), texts(rule)?));
        }
        let identity = Identity {
            username,
            groups,
            uid: self.uid.as_ref().map(one).transpose()?,
            extra,
        };
        let allowed = AllowedSystemNames {
            users: &system_users,
            groups: &system_groups,
        };
        checks::check(identity, allowed, max_groups)
    }
}
