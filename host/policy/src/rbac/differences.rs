//! Finds requests that two policies, or two semantics, judge differently. Callers and requests are
//! derived from the rows, not sampled at random.
//!
//! - Requests: for every pattern, texts that match it: the shortest, one with a filled star, one
//!   across a `/`, and one with overlapping ends. For every deny and every allow that can meet, a
//!   text that both match. Actions and objects that exist are preferred where a pattern matches
//!   some.
//! - Callers: every name by itself, as user and as group, and for every such pair of rows a caller
//!   who holds both. Local accounts and project tokens have Argo CD's own token.
//! - Patterns: two globs that can meet are found exactly. Regular expressions are tried with the
//!   texts of all rows and with the shortest texts that their own letters give.
//!
//! Of a caller's requests that differ because of the same row, one is reported. A caller to whom an
//! identity provider gives a name that it may not give (a role, a project's role, a local account)
//! is reported once.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::Serialize;

use super::matcher::{Matcher, PatternId};
use super::names::{RESOURCES, actions, is_project_scoped};
use super::{Effect, Rbac, RbacRequest, Rule, TokenIssuer, Verdict};

/// Maximum number of pairs of rows that are compared. Beyond it the result is marked as incomplete.
const MAX_PAIRS: usize = 2_000_000;

/// A request that is judged differently, with both verdicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The caller's `sub`; empty when only groups matter.
    pub user: String,
    /// Groups of the caller, in token order.
    pub groups: Vec<String>,
    /// Issuer of the caller's token: `argocd` or `provider`.
    pub issuer: TokenIssuer,
    /// Resource.
    pub resource: String,
    /// Action.
    pub action: String,
    /// Object.
    pub object: String,
    /// Verdict of the left policy.
    pub left: Verdict,
    /// Row that decided it, `file:line`.
    pub left_rule: Option<String>,
    /// Verdict of the right policy.
    pub right: Verdict,
    /// Row that decided it, `file:line`.
    pub right_rule: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Request {
    resource: String,
    action: String,
    object: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Caller {
    user: String,
    groups: Vec<String>,
    issuer: TokenIssuer,
}

/// Every representative request whose outcome differs, sorted by caller. The second part is false
/// if the policies have more pairs of rows than are compared.
pub fn differences(left: &Rbac, right: &Rbac) -> (Vec<Difference>, bool) {
    let mut comparison = Comparison {
        left,
        right,
        probes: BTreeSet::new(),
        complete: true,
    };
    comparison.collect();
    let mut reported = HashSet::new();
    let found = comparison.probes.iter().filter_map(|(caller, request)| {
        let found = comparison.compare(caller, request)?;
        let by = found.refusal().filter(|_| !comparison.is_impostor(caller));
        reported.insert((caller, found.left.outcome, by)).then_some(found)
    });
    (found.collect(), comparison.complete)
}

impl Difference {
    /// The row that denies what the other side allows; if no row denies it, the row that allows it.
    fn refusal(&self) -> Option<String> {
        let sides = [(self.left, &self.left_rule), (self.right, &self.right_rule)];
        let of = |is_allowed| sides.iter().find(|(verdict, _)| verdict.is_allowed() == is_allowed);
        let [denied, allowed] = [false, true].map(|side| of(side).and_then(|(_, rule)| rule.as_ref()));
        denied.or(allowed).cloned()
    }
}

struct Comparison<'a> {
    left: &'a Rbac,
    right: &'a Rbac,
    probes: BTreeSet<(Caller, Request)>,
    complete: bool,
}

impl Comparison<'_> {
    fn collect(&mut self) {
        let rules = self.left.rules.iter().chain(&self.right.rules);
        let words: Vec<String> = rules.map(|rule| rule.object.to_string()).take(1000).collect();
        for rbac in [self.left, self.right] {
            let holders = holders(rbac);
            for rule in &rbac.rules {
                let requests = requests_for_rule(rbac, rule, &words).unwrap_or_default();
                for name in holders.get(&*rule.subject).into_iter().flatten() {
                    for request in &requests {
                        self.add_probes(name, request);
                    }
                }
                for request in requests {
                    self.add_probes(&rule.subject, &request);
                }
            }
            self.pairs(rbac, &holders, &words);
        }
    }

    fn add_probes(&mut self, name: &str, request: &Request) {
        let user = |issuer| Caller {
            user: name.to_owned(),
            groups: Vec::new(),
            issuer,
        };
        if self.is_local(name) {
            self.probes.insert((user(TokenIssuer::Argocd), request.clone()));
        }
        self.probes.insert((user(TokenIssuer::Provider), request.clone()));
        let group = Caller {
            user: String::new(),
            groups: vec![name.to_owned()],
            issuer: TokenIssuer::Provider,
        };
        self.probes.insert((group, request.clone()));
    }

    fn is_local(&self, name: &str) -> bool {
        self.left.is_local(name) || self.right.is_local(name)
    }

    /// Whether an identity provider gives the caller a name that it may not give.
    fn is_impostor(&self, caller: &Caller) -> bool {
        let mut names = caller.groups.iter().chain([&caller.user]);
        caller.issuer == TokenIssuer::Provider && names.any(|name| name.starts_with("role:") || self.is_local(name))
    }

    /// Adds callers who hold both a deny and an allow that meet, in each order.
    fn pairs(&mut self, rbac: &Rbac, holders: &BTreeMap<&str, BTreeSet<&str>>, words: &[String]) {
        let of = |effect| rbac.rules.iter().filter(move |rule| rule.effect == effect);
        let allows: Vec<&Rule> = of(Effect::Allow).collect();
        let mut compared = 0;
        for deny in of(Effect::Deny) {
            for allow in &allows {
                compared += 1;
                if compared > MAX_PAIRS {
                    self.complete = false;
                    return;
                }
                let Some(request) = request_matching_both(rbac, deny, allow, words) else {
                    continue;
                };
                let (one, two) = (holder(holders, &deny.subject), holder(holders, &allow.subject));
                for (user, groups) in [
                    (one, vec![two]),
                    (two, vec![one]),
                    ("", vec![one, two]),
                    ("", vec![two, one]),
                ] {
                    let groups = groups.into_iter().map(str::to_owned).collect();
                    let issuer = if self.is_local(user) {
                        TokenIssuer::Argocd
                    } else {
                        TokenIssuer::Provider
                    };
                    let caller = Caller {
                        user: user.to_owned(),
                        groups,
                        issuer,
                    };
                    self.probes.insert((caller, request.clone()));
                }
            }
        }
    }

    fn compare(&self, caller: &Caller, request: &Request) -> Option<Difference> {
        let asked = RbacRequest {
            resource: &request.resource,
            action: &request.action,
            object: &request.object,
        };
        let verdict = |rbac: &Rbac| {
            let who = rbac.identify_name(&caller.user, &caller.groups, caller.issuer);
            rbac.decide(&who, asked)
        };
        let (left, right) = (verdict(self.left), verdict(self.right));
        let location = |rbac: &Rbac, verdict: Verdict| Some(rbac.rule(verdict.rule?)?.location.to_string());
        (left.outcome != right.outcome).then(|| Difference {
            user: caller.user.clone(),
            groups: caller.groups.clone(),
            issuer: caller.issuer,
            resource: request.resource.clone(),
            action: request.action.clone(),
            object: request.object.clone(),
            left,
            left_rule: location(self.left, left),
            right,
            right_rule: location(self.right, right),
        })
    }
}

/// Names that are not roles, by each subject that they are or inherit.
fn holders(rbac: &Rbac) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut holders: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let name = |id: &super::SubjectId| rbac.names.get(id.0 as usize).map(|name| &**name);
    let members: HashSet<&str> = rbac.roles_of.keys().filter_map(|(_, id)| name(id)).collect();
    for member in members.into_iter().filter(|name| !name.starts_with("role:")) {
        let mut pending: Vec<&str> = vec![member];
        let mut seen = HashSet::from([member]);
        while let Some(subject) = pending.pop() {
            holders.entry(subject).or_default().insert(member);
            let Some(id) = rbac.subjects.get(subject) else { continue };
            let grants = rbac.roles_of.iter().filter(|((_, from), _)| from == id);
            let roles = grants.flat_map(|(_, roles)| roles).filter_map(name);
            pending.extend(roles.filter(|role| seen.insert(role)));
        }
    }
    holders
}

/// The first name that holds a subject, or the subject itself.
fn holder<'a>(holders: &BTreeMap<&'a str, BTreeSet<&'a str>>, subject: &'a str) -> &'a str {
    let first = holders.get(subject).and_then(BTreeSet::first);
    first.copied().unwrap_or(subject)
}

fn requests_for_rule(rbac: &Rbac, rule: &Rule, words: &[String]) -> Option<Vec<Request>> {
    let [resources, actions, objects] = rule.patterns.map(|id| texts(rbac, id, words));
    let [of_resource, of_action, _] = rule.patterns;
    let resource =
        known(rbac, &[of_resource], RESOURCES.map(|(name, _)| name)).or_else(|| resources.into_iter().next())?;
    let action =
        known_action(rbac, &resource, &[of_action]).or_else(|| preferred(actions, is_named).into_iter().next())?;
    let request = |object: String| Request {
        resource: resource.clone(),
        action: action.clone(),
        object,
    };
    let objects = preferred(objects, |object| is_object(&resource, object));
    Some(objects.into_iter().map(request).collect())
}

/// The preferred texts, or all if none is preferred.
fn preferred(texts: Vec<String>, is_preferred: impl Fn(&str) -> bool) -> Vec<String> {
    if texts.iter().any(|text| is_preferred(text)) {
        texts.into_iter().filter(|text| is_preferred(text)).collect()
    } else {
        texts
    }
}

/// Whether no part of a text between slashes is empty.
fn is_named(text: &str) -> bool {
    text.split('/').all(|part| !part.is_empty())
}

fn is_object(resource: &str, text: &str) -> bool {
    is_named(text) && (!is_project_scoped(resource) || text.contains('/'))
}

/// The first of these names that all the patterns match.
fn known<'n>(rbac: &Rbac, patterns: &[PatternId], names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let is_matched = |name: &&str| patterns.iter().all(|id| rbac.pool.matches(*id, name));
    names.into_iter().find(is_matched).map(str::to_owned)
}

fn known_action(rbac: &Rbac, resource: &str, patterns: &[PatternId]) -> Option<String> {
    known(rbac, patterns, actions(resource)?.iter().copied())
}

fn request_matching_both(rbac: &Rbac, one: &Rule, two: &Rule, words: &[String]) -> Option<Request> {
    if one.project.is_some() && two.project.is_some() && one.project != two.project {
        return None;
    }
    let ([resources, actions, objects], [other_resources, other_actions, other_objects]) = (one.patterns, two.patterns);
    let (resources, actions) = ([resources, other_resources], [actions, other_actions]);
    let resource = known(rbac, &resources, RESOURCES.map(|(name, _)| name))
        .or_else(|| text_matching_both(rbac, resources, words, is_named))?;
    let action =
        known_action(rbac, &resource, &actions).or_else(|| text_matching_both(rbac, actions, words, is_named))?;
    let is_preferred = |text: &str| is_object(&resource, text);
    let object = text_matching_both(rbac, [objects, other_objects], words, is_preferred)?;
    Some(Request {
        resource,
        action,
        object,
    })
}

/// A text that both patterns match, preferably one for which `is_preferred` holds.
fn text_matching_both(
    rbac: &Rbac,
    [left, right]: [PatternId; 2],
    words: &[String],
    is_preferred: impl Fn(&str) -> bool,
) -> Option<String> {
    let is_matched = |text: &String| [left, right].iter().all(|id| rbac.pool.matches(*id, text));
    let mut found: Vec<String> = texts(rbac, left, words);
    found.extend(texts(rbac, right, words));
    found.retain(is_matched);
    if let Some(preferred) = preferred(found, is_preferred).into_iter().next() {
        return Some(preferred);
    }
    if let (Some(Matcher::Glob(one)), Some(Matcher::Glob(two))) = (rbac.pool.matcher(left), rbac.pool.matcher(right)) {
        return match (one.literal(), two.literal()) {
            (Some(text), _) => two.matches(text).then(|| text.to_owned()),
            (_, Some(text)) => one.matches(text).then(|| text.to_owned()),
            (None, None) => one.common_witness(two),
        };
    }
    None
}

fn texts(rbac: &Rbac, id: PatternId, words: &[String]) -> Vec<String> {
    match rbac.pool.matcher(id) {
        Some(Matcher::Glob(pattern)) => match pattern.literal() {
            Some(literal) => vec![literal.to_owned()],
            None => pattern.witnesses(),
        },
        Some(Matcher::Regex(regex)) => {
            let letters: String = regex
                .as_str()
                .chars()
                .filter(|c| c.is_alphanumeric() || "/-_:.".contains(*c))
                .collect();
            let own = ["", "x", "x/y"].map(|star| regex.as_str().replace(".*", star).replace(".+", "x"));
            let bare = own.map(|text| text.replace(['^', '$', '\\', '(', ')'], ""));
            let tried = bare
                .into_iter()
                .chain([letters, "x/y".to_owned()])
                .chain(words.iter().cloned());
            let mut texts: Vec<String> = tried.filter(|text| regex.is_match(text)).take(4).collect();
            texts.dedup();
            texts
        }
        Some(Matcher::BrokenGlob(_) | Matcher::BrokenRegex(_) | Matcher::OutOfBounds(_)) | None => Vec::new(),
    }
}
