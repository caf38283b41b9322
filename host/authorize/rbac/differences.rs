//! Which requests two policies, or two semantics, judge differently.
//!
//! In: two compiled policies. Out: callers and requests with both verdicts.
//! Never: a random sample.
//!
//! Requests are derived from the rows: for every pattern texts that match it
//! shortest, with a filled star, across a `/`, and with overlapping ends; for
//! every deny and every allow that can meet, a text both match. Callers are
//! every name by itself, as user and as group, and for every such pair a
//! caller who holds both. Two globs that can meet are found exactly; regular
//! expressions are tried with the texts of all rows and the shortest texts
//! their own letters give.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::matcher::{Match, Matcher, PatternId};
use super::{Effect, Rbac, Rule, Tuple, Verdict};

/// Pairs of rows looked at; beyond it the result says it is cut off.
const PAIRS: usize = 2_000_000;

/// A request and both verdicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `sub` of the caller; empty when only groups matter.
    pub user: String,
    /// Groups of the caller, in token order.
    pub groups: Vec<String>,
    /// Resource.
    pub resource: String,
    /// Action.
    pub action: String,
    /// Object.
    pub object: String,
    /// Verdict of the left policy.
    pub left: Verdict,
    /// Row that made it, `file:line`.
    pub left_rule: Option<String>,
    /// Verdict of the right policy.
    pub right: Verdict,
    /// Row that made it, `file:line`.
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
}

/// Every representative request whose outcome differs, sorted by caller. The
/// second part is false when the policies have more pairs of rows than are
/// looked at.
pub fn differences(left: &Rbac, right: &Rbac) -> (Vec<Difference>, bool) {
    let mut work = Work {
        left,
        right,
        asked: BTreeSet::new(),
        complete: true,
        scope: "groups".to_owned(),
    };
    if let Some(scope) = left.scopes().iter().find(|scope| right.scopes().contains(scope)) {
        work.scope.clone_from(scope);
    }
    work.collect();
    let found = work
        .asked
        .iter()
        .filter_map(|(caller, request)| work.compare(caller, request));
    (found.collect(), work.complete)
}

struct Work<'a> {
    left: &'a Rbac,
    right: &'a Rbac,
    asked: BTreeSet<(Caller, Request)>,
    complete: bool,
    scope: String,
}

impl Work<'_> {
    fn collect(&mut self) {
        let texts = [self.left, self.right]
            .into_iter()
            .flat_map(Rbac::rules)
            .map(|(_, rule)| rule);
        let words: Vec<String> = texts.map(|rule| rule.object.to_string()).take(1000).collect();
        for rbac in [self.left, self.right] {
            let holders = holders(rbac);
            for (_, rule) in rbac.rules() {
                let requests = single(rbac, rule, &words);
                for name in holders.get(&*rule.subject).into_iter().flatten() {
                    for request in &requests {
                        self.ask_as(name, request);
                    }
                }
                for request in requests {
                    self.ask_as(&rule.subject, &request);
                }
            }
            self.pairs(rbac, &holders, &words);
        }
    }

    /// Asks as user and as group.
    fn ask_as(&mut self, name: &str, request: &Request) {
        let user = Caller {
            user: name.to_owned(),
            groups: Vec::new(),
        };
        let group = Caller {
            user: String::new(),
            groups: vec![name.to_owned()],
        };
        self.asked.insert((user, request.clone()));
        self.asked.insert((group, request.clone()));
    }

    /// A caller who holds a deny and an allow that meet, in each order.
    fn pairs(&mut self, rbac: &Rbac, holders: &BTreeMap<&str, BTreeSet<&str>>, words: &[String]) {
        let of = |effect| {
            rbac.rules()
                .map(|(_, rule)| rule)
                .filter(move |rule| rule.effect == effect)
        };
        let allows: Vec<&Rule> = of(Effect::Allow).collect();
        let mut looked = 0;
        for deny in of(Effect::Deny) {
            for allow in &allows {
                looked += 1;
                if looked > PAIRS {
                    self.complete = false;
                    return;
                }
                let Some(request) = meeting(rbac, deny, allow, words) else {
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
                    self.asked.insert((
                        Caller {
                            user: user.to_owned(),
                            groups,
                        },
                        request.clone(),
                    ));
                }
            }
        }
    }

    fn compare(&self, caller: &Caller, request: &Request) -> Option<Difference> {
        let Request {
            resource,
            action,
            object,
        } = request;
        let tuple = Tuple {
            resource,
            action,
            object,
        };
        let verdict = |rbac: &Rbac| rbac.decide(&rbac.identify(&claims(caller, &self.scope)), tuple);
        let (left, right) = (verdict(self.left), verdict(self.right));
        let place = |rbac: &Rbac, verdict: Verdict| {
            verdict
                .rule
                .and_then(|id| rbac.rule(id))
                .map(|rule| rule.location.to_string())
        };
        (left.outcome != right.outcome).then(|| Difference {
            user: caller.user.clone(),
            groups: caller.groups.clone(),
            resource: resource.clone(),
            action: action.clone(),
            object: object.clone(),
            left,
            left_rule: place(self.left, left),
            right,
            right_rule: place(self.right, right),
        })
    }
}

/// Claims of a representative caller. A project token is Argo CD's own.
fn claims(caller: &Caller, scope: &str) -> Map<String, Value> {
    let mut claims = Map::new();
    claims.insert("sub".to_owned(), json!(caller.user));
    claims.insert(scope.to_owned(), json!(caller.groups));
    if super::project_of_subject(&caller.user).is_some() {
        claims.insert("iss".to_owned(), json!("argocd"));
    }
    claims
}

/// Names that are no roles, by the subject they inherit.
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
            let grants = rbac
                .roles_of
                .iter()
                .filter(|((_, from), _)| from == id)
                .flat_map(|(_, roles)| roles);
            pending.extend(grants.filter_map(name).filter(|role| seen.insert(role)));
        }
    }
    holders
}

/// The first name that holds a subject, or the subject.
fn holder<'a>(holders: &BTreeMap<&'a str, BTreeSet<&'a str>>, subject: &'a str) -> &'a str {
    holders
        .get(subject)
        .and_then(|names| names.first())
        .copied()
        .unwrap_or(subject)
}

/// Requests one row is about.
fn single(rbac: &Rbac, rule: &Rule, words: &[String]) -> Vec<Request> {
    let [resources, actions, objects] = rule.patterns.map(|id| texts(rbac, id, words));
    let (Some(resource), Some(action)) = (known_resource(rbac, rule, &resources), actions.first()) else {
        return Vec::new();
    };
    let request = |object: String| Request {
        resource: resource.clone(),
        action: action.clone(),
        object,
    };
    objects.into_iter().map(request).collect()
}

/// A resource that exists and matches, else any that matches.
fn known_resource(rbac: &Rbac, rule: &Rule, texts: &[String]) -> Option<String> {
    let [resource, _, _] = rule.patterns;
    let known = super::names::RESOURCES
        .into_iter()
        .find(|name| rbac.pool.judge(resource, name) == Match::Yes);
    known.map(str::to_owned).or_else(|| texts.first().cloned())
}

/// A request both rows are about.
fn meeting(rbac: &Rbac, one: &Rule, two: &Rule, words: &[String]) -> Option<Request> {
    if one.project.is_some() && two.project.is_some() && one.project != two.project {
        return None;
    }
    let [resource, action, object] = [0, 1, 2].map(|field| {
        let (left, right) = (one.patterns.get(field)?, two.patterns.get(field)?);
        if field == 0 {
            let both =
                |name: &&str| rbac.pool.judge(*left, name) == Match::Yes && rbac.pool.judge(*right, name) == Match::Yes;
            if let Some(known) = super::names::RESOURCES.into_iter().find(|name| both(name)) {
                return Some(known.to_owned());
            }
        }
        common(rbac, *left, *right, words)
    });
    Some(Request {
        resource: resource?,
        action: action?,
        object: object?,
    })
}

fn common(rbac: &Rbac, left: PatternId, right: PatternId, words: &[String]) -> Option<String> {
    if left == right {
        return texts(rbac, left, words).into_iter().next();
    }
    if let (Some(Matcher::Glob(one)), Some(Matcher::Glob(two))) = (rbac.pool.matcher(left), rbac.pool.matcher(right)) {
        return match (one.literal(), two.literal()) {
            (Some(text), _) => two.matches(text).then(|| text.to_owned()),
            (_, Some(text)) => one.matches(text).then(|| text.to_owned()),
            (None, None) => one.common_witness(two),
        };
    }
    let both = |text: &String| rbac.pool.judge(left, text) == Match::Yes && rbac.pool.judge(right, text) == Match::Yes;
    texts(rbac, left, words)
        .into_iter()
        .chain(texts(rbac, right, words))
        .find(both)
}

/// Texts a pattern matches.
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
        Some(Matcher::Broken { .. } | Matcher::OutOfBounds { .. }) | None => Vec::new(),
    }
}
