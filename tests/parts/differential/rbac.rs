//! Compares RBAC verdicts with those of Argo CD's enforcer: `util/rbac`, and how
//! `server/rbacpolicy` evaluates claims, groups, project roles and project tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tollgate_core::diagnostic::Location;
use tollgate_core::glob::Pattern;
use tollgate_objects::{Project, ProjectRole, Resources};
use tollgate_policy::rbac::{MatchMode, Rbac, RbacRequest};

use crate::differential::exception::Exception;
use crate::differential::glob::explain;
use crate::differential::harness::{Kind, Outcome, Verdict, ask, run};
use crate::differential::policy_csv::{compile, is_bound, resources, text_at};
use crate::differential::random::Random;
use test_support::judge::Judge;

mod draw;

/// A policy and requests to decide by it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Case {
    data: BTreeMap<String, String>,
    /// Whether the built-in policy applies. Always true, as in Argo CD's server.
    #[serde(skip_deserializing, default = "built_in")]
    builtin: bool,
    projects: Vec<CaseProject>,
    requests: Vec<Request>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct CaseProject {
    name: String,
    roles: Vec<CaseRole>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct CaseRole {
    name: String,
    policies: Vec<String>,
    groups: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Request {
    #[serde(skip_serializing_if = "Option::is_none")]
    claims: Option<Map<String, Value>>,
    subject: String,
    resource: String,
    action: String,
    object: String,
}

fn built_in() -> bool {
    true
}

struct Verdicts;

impl Kind for Verdicts {
    type Case = Case;
    const NAME: &'static str = "rbac";
    const FEWEST: [u64; 3] = [1000, 1000, 20];

    fn draw(random: &mut Random) -> Case {
        draw::case(random)
    }

    fn compare(case: &Case, theirs: Result<&Value, &str>, judge: &Judge) -> Vec<Outcome> {
        let loaded = compile(&case.resources(), case.builtin);
        let messages = loaded.diagnostics.iter().map(ToString::to_string);
        let is_refused_project = messages
            .filter(|message| message.starts_with("project"))
            .any(|message| is_bound(&message));
        let (rbac, theirs) = match (loaded.value, theirs) {
            (Some(rbac), Ok(theirs)) => (rbac, theirs),
            (None, Err(_)) => return vec![Outcome::Same(Verdict::Refused)],
            (ours, theirs) => {
                let messages: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
                if ours.is_none() && messages.iter().any(|message| is_bound(message)) {
                    return vec![Outcome::Exception(Exception::RbacPatternBounds)];
                }
                if ours.is_none() && messages.iter().any(|message| message.contains("`scopes` is no list")) {
                    return vec![Outcome::Exception(Exception::RbacScopes)];
                }
                let answers = format!("ours {} {messages:?}, theirs {theirs:?}", ours.is_some());
                return vec![Outcome::Unexplained(answers)];
            }
        };
        let allowed: Vec<bool> = serde_json::from_value(theirs["allowed"].clone()).unwrap();
        let pairs = case.requests.iter().zip(allowed);
        pairs
            .map(|(request, theirs)| match (request.ours(&rbac), theirs) {
                (true, true) => Outcome::Same(Verdict::Allow),
                (false, false) => Outcome::Same(Verdict::Deny),
                (false, true) if is_refused_project => Outcome::Exception(Exception::RbacPatternBounds),
                (ours, theirs) if is_glob(&rbac, case, request, judge) => {
                    debug_assert_ne!(ours, theirs);
                    Outcome::Exception(Exception::RbacGlob)
                }
                (ours, theirs) => Outcome::Unexplained(format!("ours {ours}, theirs {theirs}: {request:?}")),
            })
            .collect()
    }
}

impl Case {
    fn resources(&self) -> Resources {
        let mut resources = resources(&self.data);
        for project in &self.projects {
            let role = |role: &CaseRole| ProjectRole {
                name: role.name.clone(),
                policies: role.policies.iter().map(|line| text_at("project", line)).collect(),
                groups: role.groups.iter().map(|group| text_at("project", group)).collect(),
                tokens: Vec::new(),
                location: Location::new("project", 1),
            };
            let made = Project {
                name: project.name.clone(),
                roles: project.roles.iter().map(role).collect(),
                ..Project::default()
            };
            resources.projects.insert(project.name.clone(), Arc::new(made));
        }
        resources
    }
}

impl Request {
    fn ours(&self, rbac: &Rbac) -> bool {
        let tuple = RbacRequest {
            resource: &self.resource,
            action: &self.action,
            object: &self.object,
        };
        match &self.claims {
            Some(claims) => {
                let who = rbac.identify(claims);
                let verdict = rbac.decide(&who, tuple);
                let listed = rbac.decide_each(
                    &who,
                    &self.resource,
                    &self.action,
                    std::iter::once(self.object.as_str()),
                );
                assert_eq!(listed, [verdict], "{self:?}: `decide_each` differs from `decide`");
                verdict.is_allowed()
            }
            None => rbac.decide(&rbac.identify_subject(&self.subject), tuple).is_allowed(),
        }
    }
}

/// Whether a glob of some row and the text of the request are an exception for globs.
fn is_glob(rbac: &Rbac, case: &Case, request: &Request, judge: &Judge) -> bool {
    let mode = case
        .data
        .get("policy.matchMode")
        .map(String::as_str)
        .unwrap_or_default();
    if MatchMode::from_setting(mode) == MatchMode::Regex {
        return false;
    }
    let asked: Vec<(String, String, bool)> = rbac
        .rules()
        .flat_map(|(_, rule)| {
            [
                (&rule.resource, &request.resource),
                (&rule.action, &request.action),
                (&rule.object, &request.object),
            ]
        })
        .filter_map(|(pattern, text)| {
            let ours = Pattern::compile(pattern, &[]).ok()?.matches(text);
            Some((pattern.to_string(), text.clone(), ours))
        })
        .collect();
    let questions: Vec<Value> = asked
        .iter()
        .map(|(pattern, text, _)| json!({"pattern": pattern, "texts": [text]}))
        .collect();
    let answers = ask(judge, "glob", &Value::Array(questions));
    asked.iter().zip(answers).any(|((pattern, text, ours), theirs)| {
        let theirs = theirs.ok().and_then(|theirs| theirs["matched"][0].as_bool());
        theirs != Some(*ours) && explain(pattern, &[], text, *ours).is_some()
    })
}

#[test]
fn verdicts_are_those_of_argo_cd() {
    run::<Verdicts>();
}
