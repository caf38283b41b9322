//! Compares how the lines of `policy.csv` and `policy.*.csv` are read with Argo CD's loader.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_config::RbacSemantics;
use tollgate_core::diagnostic::{Loaded, Location};
use tollgate_objects::{Resources, Text};
use tollgate_policy::rbac::{Builtin, Effect, PolicySource, Rbac, RbacRequest};

use crate::differential::corpus;
use crate::differential::exception::Exception;
use crate::differential::harness::{Kind, Outcome, Verdict, run};
use crate::differential::random::Random;
use test_support::judge::Judge;

/// The data of `argocd-rbac-cm`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Case {
    data: BTreeMap<String, String>,
}

/// The rows and grants that the judge read.
#[derive(Debug, Deserialize)]
struct Theirs {
    rows: Option<Vec<Vec<String>>>,
    grants: Option<Vec<Vec<String>>>,
}

struct PolicyLines;

/// The verdicts mean: a policy with rows or grants, one without, and an invalid one.
impl Kind for PolicyLines {
    type Case = Case;
    const NAME: &'static str = "policy";
    const FEWEST: [u64; 3] = [1000, 1000, 1000];

    fn draw(random: &mut Random) -> Case {
        let keys = [
            "policy.csv",
            "policy.csv",
            "policy.csv",
            "policy.csv",
            "policy.csv",
            "policy.csv",
            "policy.b.csv",
            "policy.a.csv",
            "policy..csv",
            "policy.csv.csv",
            "policy.x",
            "Policy.csv",
            "policycsv",
            "policy.default",
            "xpolicy.a.csv",
            "policy.a.csv ",
        ];
        let bare = random.chance(15);
        let data = (0..=random.below(2)).map(|_| {
            let text = if bare { blank_lines(random) } else { text(random) };
            (random.pick(&keys).to_owned(), text)
        });
        let mut data: BTreeMap<String, String> = data.collect();
        if random.chance(10) {
            data.insert("scopes".to_owned(), random.pick(SCOPES).to_owned());
        }
        Case { data }
    }

    fn compare(case: &Case, theirs: Result<&Value, &str>, _: &Judge) -> Vec<Outcome> {
        vec![compare(case, theirs)]
    }
}

/// Values of the key `scopes`.
pub(crate) const SCOPES: &[&str] = &[
    "",
    "[groups]",
    "[groups, email]",
    "[email, groups]",
    "groups",
    "[1]",
    "[true]",
    "[null]",
    "[~]",
    "{}",
    "{a: b}",
    "- groups\n- email",
    "[]",
    "null",
    "~",
    "[[a]]",
    "[groups, ]",
    "\"[groups]\"",
    "[",
    "[cognito:groups]",
    "['groups']",
    "[groups, groups]",
    "[1.0, 0x10]",
    "[a: b]",
    "# nothing",
    " ",
    "[2001-01-01]",
    "---\n[groups]",
    "[groups]\n---\n[email]",
    "!!str groups",
    "[&a groups, *a]",
    "- groups\n-",
];

/// A ConfigMap's data as the gateway reads it from Kubernetes.
pub(crate) fn resources(data: &BTreeMap<String, String>) -> Resources {
    let mut resources = Resources::default();
    resources.rbac_cm.data = data
        .iter()
        .map(|(key, value)| (key.clone(), text_at(key, value)))
        .collect();
    resources
}

pub(crate) fn text_at(file: &str, value: &str) -> Text {
    Text {
        value: value.into(),
        location: Location::new(file, 1),
    }
}

/// Compiles as the gateway does.
pub(crate) fn compile(resources: &Resources, builtin: bool) -> Loaded<Rbac> {
    let Loaded { value, mut diagnostics } = PolicySource::from_resources(resources, RbacSemantics::Argocd);
    let Some(mut source) = value else {
        return Loaded::refused(diagnostics);
    };
    if !builtin {
        source.builtin = Builtin::None;
    }
    let loaded = Rbac::compile(&source);
    diagnostics.extend(loaded.diagnostics);
    Loaded {
        value: loaded.value,
        diagnostics,
    }
}

fn compare(case: &Case, theirs: Result<&Value, &str>) -> Outcome {
    let loaded = compile(&resources(&case.data), false);
    let theirs: Result<Theirs, &str> = theirs.map(|value| serde_json::from_value(value.clone()).unwrap());
    let (rbac, theirs) = match (loaded.value, theirs) {
        (Some(rbac), Ok(theirs)) => (rbac, theirs),
        (None, Err(_)) => return Outcome::Same(Verdict::Refused),
        (ours, theirs) => {
            let messages: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
            if ours.is_none() && messages.iter().any(|message| is_bound(message)) {
                return Outcome::Exception(Exception::PolicyPatternBounds);
            }
            if ours.is_none() && messages.iter().any(|message| message.contains("`scopes` is no list")) {
                return Outcome::Exception(Exception::PolicyScopes);
            }
            return Outcome::Unexplained(format!("ours {} {messages:?}, theirs {theirs:?}", ours.is_some()));
        }
    };
    let (rows, grants) = (theirs.rows.unwrap_or_default(), theirs.grants.unwrap_or_default());
    let ours: Vec<Vec<String>> = rbac
        .rules()
        .map(|(_, rule)| {
            let effect = match rule.effect {
                Effect::Allow => "allow",
                Effect::Deny => "deny",
                Effect::Inert => "",
            };
            let fields = [&*rule.subject, &*rule.resource, &*rule.action, &*rule.object, effect];
            fields.map(str::to_owned).to_vec()
        })
        .collect();
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|mut row| {
            for effect in row
                .iter_mut()
                .skip(4)
                .filter(|effect| !matches!(effect.as_str(), "allow" | "deny"))
            {
                effect.clear();
            }
            row
        })
        .collect();
    if ours != rows {
        return Outcome::Unexplained(format!("rows: ours {ours:?}, theirs {rows:?}"));
    }
    for name in grants.iter().flatten().collect::<BTreeSet<_>>() {
        let (ours, theirs) = (our_roles(&rbac, name), their_roles(&grants, name));
        if ours != theirs {
            return Outcome::Unexplained(format!("roles of {name:?}: ours {ours:?}, theirs {theirs:?}"));
        }
    }
    Outcome::Same(if ours.is_empty() && grants.is_empty() {
        Verdict::Deny
    } else {
        Verdict::Allow
    })
}

/// Whether a diagnostic is about our bounds on patterns.
pub(crate) fn is_bound(message: &str) -> bool {
    message.contains("are allowed") && message.contains("pattern has")
        || message.contains("nests groups deeper")
        || message.contains("has a NUL")
}

/// Every role that a name inherits, according to [`Rbac::explain`].
fn our_roles(rbac: &Rbac, name: &str) -> BTreeSet<String> {
    let explanation = rbac.explain(
        &rbac.identify_subject(name),
        RbacRequest {
            resource: "",
            action: "",
            object: "",
        },
    );
    let user = explanation.principals.into_iter().find(|tried| tried.name == name);
    user.map(|tried| tried.roles.into_iter().collect()).unwrap_or_default()
}

fn their_roles(grants: &[Vec<String>], name: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::from([name.to_owned()]);
    let mut level = found.clone();
    for _ in 0..10 {
        let next = grants
            .iter()
            .filter(|grant| level.contains(&grant[0]))
            .map(|grant| grant[1].clone());
        level = next.filter(|role| !found.contains(role)).collect();
        found.extend(level.iter().cloned());
    }
    found.remove(name);
    found
}

const ODD: &[&str] = &[
    "\"", "\"\"", ",", ", ", " ", "\t", "\r", "\n", "#", "p", "g", "\u{a0}", "\u{85}", "\u{2028}", "\u{feff}", "é",
    "\\", "'", "\u{0}", "\u{b}", ";",
];

/// Blank lines and comments.
fn blank_lines(random: &mut Random) -> String {
    let lines: Vec<&str> = (0..random.below(3))
        .map(|_| random.pick(&["", " ", "# p, a", "\t", "\r", "  # x", "#", "\u{a0}"]))
        .collect();
    lines.join("\n")
}

fn text(random: &mut Random) -> String {
    let odd = if random.chance(50) { 0 } else { 25 };
    let lines: Vec<String> = (0..=random.below(4)).map(|_| line(random, odd)).collect();
    lines.join(random.pick(&["\n", "\n", "\n", "\r\n", "\n\n", "\n \n"]))
}

fn line(random: &mut Random, odd: usize) -> String {
    if random.chance(10) {
        return random.pick(&["", "# comment", "   ", " #p, x"]).to_owned();
    }
    if random.chance(12) {
        let line = random.one(&corpus::LINES).clone();
        return if random.chance(odd) {
            random.mutate(&line, ODD)
        } else {
            line
        };
    }
    let kind = if random.chance(odd / 4) {
        random.pick(&[
            "p2", "P", "", "\"p\"", " p", "e", "m", "r", "g2", "policy", "\"g\"", "x", "p ", "'p'", "pp", "é",
        ])
    } else {
        random.pick(&["p", "p", "p", "g"])
    };
    let mut count = if kind.contains('g') { 2 } else { 5 };
    if random.chance(odd / 4) {
        count = random.below(8);
    }
    let fields: Vec<String> = (0..count).map(|at| field(random, at, odd)).collect();
    let mut line = kind.to_owned();
    for field in fields {
        line.push_str(random.pick(&[", ", ", ", ", ", ",", ",  ", ",\t", " ,"]));
        line.push_str(&field);
    }
    if random.chance(odd / 3) {
        line.push_str(random.pick(&[" # note", ",", "\r", " ", "\"", "\u{a0}"]));
    }
    if random.chance(odd / 2) {
        random.mutate(&line, ODD)
    } else {
        line
    }
}

fn field(random: &mut Random, at: usize, odd: usize) -> String {
    let plain = match at {
        0 => random.pick(&["alice", "role:dev", "role:ops", "my-org:team", "proj:p:r", "role:admin"]),
        1 => random.pick(&["applications", "role:dev", "role:ops", "projects", "*", "logs"]),
        2 => random.pick(&["get", "sync", "*", "action/*"]),
        3 => random.pick(&["p/*", "*/*", "p/app", "*"]),
        _ => random.pick(&["allow", "deny", "allow", "Allow", "deny ", ""]),
    };
    if !random.chance(odd / 3) {
        return plain.to_owned();
    }
    match random.below(8) {
        0 => format!("\"{plain}\""),
        1 => format!("\"a,{plain}\""),
        2 => format!("\"{plain}\"\"x\""),
        3 => format!("\"{plain}"),
        4 => format!("{plain}\""),
        5 => format!("\"{plain}\" "),
        6 => random
            .pick(&[
                "", "\"\"", " ", "\"\"\"\"", "a b", "\"a\nb\"", "\u{a0}x", "x\u{a0}", "#x",
            ])
            .to_owned(),
        _ => random.mutate(plain, ODD),
    }
}

#[test]
fn policies_are_read_as_argo_cd_reads_them() {
    run::<PolicyLines>();
}
