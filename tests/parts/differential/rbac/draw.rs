//! Draws policies, and requests that match their rows or nearly do.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Case, CaseProject, CaseRole, Request};
use crate::differential::corpus;
use crate::differential::glob::draw::Glob;
use crate::differential::policy_csv::SCOPES;
use crate::differential::random::Random;

/// Requests per policy.
const REQUESTS: usize = 24;

const USERS: &[&str] = &[
    "alice",
    "bob",
    "admin",
    "alice@x.org",
    "",
    "role:dev",
    "proj:p:dev",
    "proj:q:ops",
    "proj:none:dev",
    "proj:p",
    "proj:p:dev:x",
];
const GROUPS: &[&str] = &[
    "team",
    "org:team",
    "my,group",
    "t eam",
    "role:ops",
    "admin",
    "alice",
    "",
    "proj:p:dev",
    "team ",
    "Team",
];
const ROLES: &[&str] = &[
    "role:dev",
    "role:ops",
    "role:readonly",
    "role:admin",
    "role:a",
    "role:b",
    "team",
];
const RESOURCES: &[&str] = &[
    "applications",
    "applications",
    "applicationsets",
    "logs",
    "exec",
    "clusters",
    "repositories",
    "projects",
    "extensions",
    "write-repositories",
    "accounts",
    "certificates",
    "",
    "Applications",
];
const ACTIONS: &[&str] = &[
    "get",
    "get",
    "sync",
    "create",
    "delete",
    "update",
    "override",
    "action/apps/Deployment/restart",
    "update/apps/Deployment/p/x",
    "delete/*",
    "invoke",
    "",
    "GET",
];
const PROJECTS: &[&str] = &["p", "q", "prod", "p", "none"];
const OBJECTS: &[&str] = &[
    "p/app",
    "p/ns/app",
    "p/x",
    "q/app",
    "q/x",
    "p/app-db",
    "prod/app",
    "prod/x",
    "p",
    "q",
    "prod",
    "none/app",
    "/app",
    "p/",
    "*/*",
    "*",
    "https://k8s.example",
    "p/https://k8s.example",
    "",
    "P/app",
    "p/app/",
    "p//app",
    "p/\u{e9}",
    "p/a\nb",
];
const PATTERNS: &[&str] = &[
    "*",
    "*/*",
    "p/*",
    "p/*",
    "p/app",
    "p/a*",
    "*/app",
    "p/*/app",
    "q/*",
    "prod*",
    "*-db",
    "p/?pp",
    "p/[a-c]*",
    "p/[!a]*",
    "{p,q}/*",
    "p/{app,x}",
    "p/**",
    "p*p",
    "p/*/x",
    "[",
    "p",
    "**",
    "?",
    "",
    "p/\\*",
    "{*,q}/x",
    "p/[a-zA-Z]*",
    "{p/*,q/x}",
];
const EXPRESSIONS: &[&str] = &[
    ".*",
    "^p/.*$",
    "p/.+",
    "p/(app|x)",
    "^[a-z]+/app$",
    "app",
    "^(p|q)/",
    r"p/\w+",
    r"^\d*$",
    "*",
    "*/*",
    "",
    "(?i)APP",
    "p{1}",
    "p{1,2}/",
    "p/.{0,3}$",
    "[^/]+/[^/]+",
    r"^p\/app$",
    r"\bapp\b",
    r"^\Qp/app\E$",
    "^p/[[:alpha:]]+$",
    "(",
    "[",
    "a{1001}",
    "(?P<n>p)/",
    "(?<n>p)/",
    r"\pL",
    r"\p{Greek}|app",
    "(?s)a.b",
    "(?m)^b$",
    "a.b",
    "(?:p|q)/x$",
    "p/(?:a)pp",
    "^",
    "$",
    "a**",
    "a??",
    "x*?",
    "(?=p)",
    r"\1",
    r"[\d-]",
    "[a-]",
    "[]a]",
    "[^]a]",
    r"\x70/",
    r"\x{70}/",
    "(?U)p+",
    "p||q",
    "()",
    "a{,2}",
    "a{2",
    "{",
    "}",
    "]",
    ")",
    r"\z",
    r"\Z",
    r"\A",
    r"p/app\z",
    "[[:word:]]",
    "[[:^alpha:]]",
    r"\C",
    "é",
    "(?i)k",
    "[a-é]",
    r"[\Q]\E]",
    "p/a(?i)PP",
    "(?i-s:APP)",
    r"\07",
    r"\a",
    r"[\b]",
    "(?P=n)",
    "a{0}",
    "a{1,0}",
    "^*",
    "(?x)p",
];
const MATCHED: &[&str] = &[
    "^get$",
    "get|sync",
    ".*",
    "^applications$",
    "applications",
    "logs",
    "app",
    "^action/.*",
    "*",
    "(get|update)",
    "[a-z]+",
    "get",
];

pub(super) fn case(random: &mut Random) -> Case {
    let regex = random.chance(25);
    let odd = random.chance(12);
    let mut policy = Policy {
        regex,
        odd,
        rows: Vec::new(),
    };
    let mut data = BTreeMap::new();
    let text = policy.text(random, 9);
    data.insert("policy.csv".to_owned(), text);
    if random.chance(20) {
        let key = random.pick(&["policy.a.csv", "policy.z.csv", "policy..csv", "policy.x", "xpolicy.csv"]);
        let text = policy.text(random, 3);
        data.insert(key.to_owned(), text);
    }
    if random.chance(25) {
        data.insert(
            "policy.default".to_owned(),
            random
                .pick(&["role:readonly", "role:dev", "role:a", "role:none", "team", ""])
                .to_owned(),
        );
    }
    if regex {
        data.insert("policy.matchMode".to_owned(), "regex".to_owned());
    } else if random.chance(5) {
        data.insert(
            "policy.matchMode".to_owned(),
            random.pick(&["glob", "Regex", "", "regexp", "regex "]).to_owned(),
        );
    }
    if random.chance(20) {
        let scopes = if random.chance(60) {
            random.pick(&["[groups]", "[groups, email]", "[email, groups]", "[]"])
        } else {
            random.pick(SCOPES)
        };
        data.insert("scopes".to_owned(), scopes.to_owned());
    }
    let mut projects = Vec::new();
    if random.chance(60) {
        for name in ["p", "q", "prod"] {
            if random.chance(60) {
                projects.push(policy.project(random, name));
            }
        }
    }
    let requests = (0..REQUESTS).map(|_| policy.request(random)).collect();
    Case {
        data,
        builtin: true,
        projects,
        requests,
    }
}

/// Draws the rows of one policy and the requests to it.
struct Policy {
    regex: bool,
    odd: bool,
    /// Texts that each row's patterns are likely to match: subject, resource, action, object.
    rows: Vec<[String; 4]>,
}

impl Policy {
    fn text(&mut self, random: &mut Random, most: usize) -> String {
        let lines: Vec<String> = (0..=random.below(most)).map(|_| self.line(random)).collect();
        lines.join(random.pick(&["\n", "\n", "\r\n"]))
    }

    fn line(&mut self, random: &mut Random) -> String {
        if random.chance(30) {
            let (member, role) = self.grant(random);
            return format!("g, {}, {role}", quoted(&member));
        }
        if self.odd && random.chance(12) {
            return random
                .pick(&[
                    "p, a",
                    "nonsense",
                    "g, a",
                    "# p, x",
                    "",
                    "e, a",
                    "m",
                    "r, a, b",
                    "p, \"a, b, c, d, allow",
                    "p,,,,,allow",
                ])
                .to_owned();
        }
        if self.odd && random.chance(10) {
            return random.one(&corpus::LINES).clone();
        }
        let subject = match random.below(10) {
            0..4 => random.pick(ROLES),
            4..7 => random.pick(USERS),
            _ => random.pick(GROUPS),
        };
        self.row(random, subject)
    }

    /// The member and the role of a grant. Odd policies sometimes chain roles.
    fn grant(&self, random: &mut Random) -> (String, String) {
        let member = match random.below(4) {
            0 => random.pick(USERS),
            1 => random.pick(ROLES),
            _ => random.pick(GROUPS),
        };
        let role = random.pick(ROLES);
        if self.odd && random.chance(20) {
            // A chain of eleven links is one too long.
            let (from, to) = (random.below(13), random.below(13));
            return (format!("role:{from}"), format!("role:{to}"));
        }
        (member.to_owned(), role.to_owned())
    }

    fn row(&mut self, random: &mut Random, subject: &str) -> String {
        let (resource, resource_text) = self.resource(random);
        let (action, action_text) = self.action(random);
        let (object, object_text) = self.object(random);
        let effect = if self.odd && random.chance(8) {
            random.pick(&["Allow", "DENY", "", "allow # x", "dney"])
        } else if random.chance(22) {
            "deny"
        } else {
            "allow"
        };
        self.rows
            .push([subject.to_owned(), resource_text, action_text, object_text]);
        let [subject, resource, action, object] = [subject, &resource, &action, &object].map(quoted);
        format!("p, {subject}, {resource}, {action}, {object}, {effect}")
    }

    fn resource(&self, random: &mut Random) -> (String, String) {
        let text = random.pick(RESOURCES);
        let pattern = match random.below(10) {
            0..6 => text,
            _ if self.regex => random.pick(MATCHED),
            6 | 7 => "*",
            8 => random.pick(&["app*", "*s", "applications*", "{logs,exec}", "?*"]),
            _ => text,
        };
        (pattern.to_owned(), text.to_owned())
    }

    fn action(&self, random: &mut Random) -> (String, String) {
        let text = random.pick(ACTIONS);
        let pattern = match random.below(10) {
            0..6 => text,
            _ if self.regex => random.pick(MATCHED),
            6 | 7 => "*",
            8 => random.pick(&[
                "action/*",
                "update/*",
                "delete/*",
                "{get,sync}",
                "g*",
                "*t",
                "action/apps/*/restart",
                "[gs]*",
            ]),
            _ => text,
        };
        (pattern.to_owned(), text.to_owned())
    }

    fn object(&self, random: &mut Random) -> (String, String) {
        let text = random.pick(OBJECTS);
        if self.regex {
            let expression = random.pick(EXPRESSIONS);
            let expression = if random.chance(15) {
                random.mutate(expression, REGEX)
            } else {
                expression.to_owned()
            };
            return (expression, text.to_owned());
        }
        match random.below(10) {
            0..7 => (random.pick(PATTERNS).to_owned(), text.to_owned()),
            7 => (text.to_owned(), text.to_owned()),
            _ => {
                let drawn = Glob::new(random);
                let text = drawn.text(random);
                (drawn.pattern(), text)
            }
        }
    }

    fn project(&mut self, random: &mut Random, name: &str) -> CaseProject {
        let roles = ["dev", "ops", "dev"];
        let roles = roles.iter().take(random.below(3)).map(|role| {
            let subject = format!("proj:{name}:{role}");
            let policies = (0..random.below(3)).map(|_| {
                if self.odd && random.chance(25) {
                    return random
                        .pick(&[
                            "nonsense",
                            "g, alice, role:admin",
                            "p, alice, applications, get, */*, allow",
                            "",
                            "# x",
                            "m, a",
                        ])
                        .to_owned();
                }
                if random.chance(30) {
                    return self.row(random, &subject);
                }
                let (action, action_text) = self.action(random);
                let object = format!("{name}/{}", random.pick(&["*", "app", "a*", "x", "*/app"]));
                let effect = random.pick(&["allow", "allow", "allow", "deny"]);
                self.rows.push([
                    subject.clone(),
                    "applications".to_owned(),
                    action_text,
                    format!("{name}/app"),
                ]);
                let object = if self.regex { object.replace('*', ".*") } else { object };
                format!("p, {subject}, applications, {action}, {object}, {effect}")
            });
            let policies = policies.collect();
            let groups = (0..random.below(3)).map(|_| {
                let group = random.pick(GROUPS);
                if random.chance(50) {
                    quoted(group)
                } else {
                    group.to_owned()
                }
            });
            CaseRole {
                name: (*role).to_owned(),
                policies,
                groups: groups.collect(),
            }
        });
        CaseProject {
            name: name.to_owned(),
            roles: roles.collect(),
        }
    }

    fn request(&self, random: &mut Random) -> Request {
        let near = (!self.rows.is_empty() && random.chance(70)).then(|| random.one(&self.rows).clone());
        let [subject, mut resource, mut action, mut object] = near.unwrap_or_else(|| {
            let subject = if random.chance(50) {
                random.pick(USERS)
            } else {
                random.pick(GROUPS)
            };
            [
                subject,
                random.pick(RESOURCES),
                random.pick(ACTIONS),
                random.pick(OBJECTS),
            ]
            .map(str::to_owned)
        });
        if random.chance(15) {
            object = random.pick(OBJECTS).to_owned();
        }
        if random.chance(5) {
            object = random.mutate(&object, &["/", "a", "p", "*", "\n", "é", "-"]);
        }
        if random.chance(8) {
            object = format!("{}/{object}", random.pick(PROJECTS));
        }
        if random.chance(5) {
            resource = random.pick(RESOURCES).to_owned();
        }
        if random.chance(5) {
            action = random.pick(ACTIONS).to_owned();
        }
        let claims = (!random.chance(12)).then(|| claims(random, &subject));
        Request {
            claims,
            subject,
            resource,
            action,
            object,
        }
    }
}

/// What mutations insert into regular expressions.
const REGEX: &[&str] = &[
    "(", ")", "[", "]", "*", "+", "?", "{", "}", "|", "\\", "^", "$", ".", "-", "(?i)", "é", "\\d", "\\pN", ",", "&&",
    "~~", "--", "#",
];

/// The field, in CSV quotes if it needs them.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) || text.starts_with(' ') {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Claims with the subject as user or as group, in several valid and invalid forms.
fn claims(random: &mut Random, subject: &str) -> Map<String, Value> {
    let mut claims = Map::new();
    let as_user = random.chance(50) || subject.starts_with("proj:");
    let user = if as_user { subject } else { random.pick(USERS) };
    match random.below(20) {
        0 => drop(claims.insert(
            "federated_claims".to_owned(),
            json!({"user_id": user, "connector_id": "x"}),
        )),
        1 => {
            claims.insert("sub".to_owned(), json!(user));
            let odd = [
                json!(null),
                json!({}),
                json!({"user_id": ""}),
                json!({"user_id": 5}),
                json!("x"),
                json!({"user_id": "bob"}),
                json!([]),
            ];
            claims.insert("federated_claims".to_owned(), random.one(&odd).clone());
        }
        2 => {
            let odd = [json!(null), json!(5), json!([user]), json!(""), json!({"a": user})];
            claims.insert("sub".to_owned(), random.one(&odd).clone());
        }
        3 => {}
        _ => drop(claims.insert("sub".to_owned(), json!(user))),
    }
    let mut groups: Vec<Value> = (0..random.below(3)).map(|_| json!(random.pick(GROUPS))).collect();
    if !as_user {
        let at = random.below(groups.len() + 1);
        groups.insert(at, json!(subject));
    }
    if random.chance(5) {
        groups.push(
            random
                .one(&[
                    json!(1),
                    json!(null),
                    json!(["team"]),
                    json!({"a": "team"}),
                    json!(true),
                ])
                .clone(),
        );
    }
    let key = random.pick(&["groups", "groups", "groups", "groups", "groups", "email", "Groups"]);
    let value = match random.below(20) {
        0 => groups.first().cloned().unwrap_or_default(),
        1 => json!({"team": "team"}),
        _ => json!(groups),
    };
    claims.insert(key.to_owned(), value);
    if random.chance(10) {
        claims.insert("email".to_owned(), json!(random.pick(GROUPS)));
    }
    if random.chance(30) {
        claims.insert("iss".to_owned(), json!(random.pick(&["argocd", "https://idp.example"])));
    }
    claims
}
