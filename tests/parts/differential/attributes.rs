//! Compares the attributes of requests to Kubernetes with kube-apiserver's `RequestInfoFactory`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use http::uri::PathAndQuery;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_core::attributes::Attributes;
use tollgate_proxy::target::check_path;

use crate::differential::corpus;
use crate::differential::exception::Exception;
use crate::differential::harness::{Kind, Outcome, Verdict, run};
use crate::differential::random::Random;
use test_support::judge::Judge;

/// The method and target of a request line.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Case {
    method: String,
    target: String,
}

struct RequestInfo;

/// The verdicts mean: a resource request, a non-resource request, and an invalid request.
impl Kind for RequestInfo {
    type Case = Case;
    const NAME: &'static str = "attributes";
    const FEWEST: [u64; 3] = [1000, 1000, 50];

    fn draw(random: &mut Random) -> Case {
        let mut path = if random.chance(15) {
            random.one(&corpus::PATHS).clone()
        } else {
            path(random)
        };
        if random.chance(20) {
            path = encode_one(random, &path);
        }
        if random.chance(12) {
            path = random.mutate(&path, ODD);
        }
        let mut target = path;
        if random.chance(60) {
            target.push('?');
            target.push_str(&query(random));
        }
        if random.chance(4) {
            target = random.mutate(&target, ODD);
        }
        Case {
            method: method(random).to_owned(),
            target,
        }
    }

    fn compare(case: &Case, theirs: Result<&Value, &str>, _: &Judge) -> Vec<Outcome> {
        vec![compare(case, theirs)]
    }
}

fn compare(case: &Case, theirs: Result<&Value, &str>) -> Outcome {
    // Parsed as our server parses a request line.
    let ours = Method::from_bytes(case.method.as_bytes())
        .ok()
        .zip(case.target.parse::<PathAndQuery>().ok())
        .filter(|(_, target)| target.as_str() == case.target);
    let theirs: Result<Theirs, &str> = theirs.map(|value| serde_json::from_value(value.clone()).unwrap());
    let Some((method, target)) = ours else {
        return match theirs {
            Err(_) => Outcome::Same(Verdict::Refused),
            Ok(_) => Outcome::Exception(Exception::AttributesRefusedPath),
        };
    };
    let is_refused = check_path(target.path()).is_err();
    let theirs = match theirs {
        Ok(theirs) => theirs,
        Err(_) if is_refused => return Outcome::Same(Verdict::Refused),
        Err(_) => return Outcome::Exception(Exception::AttributesRefusedByKubernetes),
    };
    let read = Attributes::read(&method, target.path(), target.query(), None);
    let mut ours = ComparedFields::ours(&read);
    let runs_program = read.also_verb.is_some();
    if let Some(also) = &read.also_verb {
        ours.verb.clone_from(also);
    }
    let compared = theirs.compared_fields();
    if ours != compared {
        // The gateway refuses it before it reads attributes, so they do not matter.
        if is_refused {
            return Outcome::Exception(Exception::AttributesRefusedPath);
        }
        // kube-apiserver cannot parse the options of the list or watch. It authorizes the request
        // without a name and answers 400.
        let reads = |fields: &ComparedFields| matches!(fields.verb.as_str(), "list" | "watch");
        if !theirs.unreadable.is_empty() && reads(&ours) && reads(&compared) && ours.unnamed() == compared.unnamed() {
            return Outcome::Exception(Exception::AttributesRefusedByKubernetes);
        }
        return Outcome::Unexplained(format!("ours {ours:?}, theirs {compared:?} {}", theirs.refused));
    }
    if runs_program {
        return Outcome::Exception(Exception::AttributesRunsProgram);
    }
    if !theirs.refused.is_empty() {
        return Outcome::Exception(Exception::AttributesRefusedByKubernetes);
    }
    Outcome::Same(if ours.is_resource {
        Verdict::Allow
    } else {
        Verdict::Deny
    })
}

/// The judge's answer. Texts are in base64.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Theirs {
    refused: String,
    unreadable: String,
    is_resource: bool,
    path: Option<String>,
    verb: Option<String>,
    #[serde(rename = "apiGroup")]
    group: Option<String>,
    #[serde(rename = "apiVersion")]
    version: Option<String>,
    namespace: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    name: Option<String>,
}

/// The attributes of either side, in a form that can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ComparedFields {
    is_resource: bool,
    path: String,
    verb: String,
    group: String,
    version: String,
    namespace: String,
    resource: String,
    subresource: String,
    name: String,
}

impl Theirs {
    fn compared_fields(&self) -> ComparedFields {
        // We read bytes that are not UTF-8 as U+FFFD.
        let text = |given: &Option<String>| {
            let bytes = BASE64_STANDARD.decode(given.as_deref().unwrap_or_default()).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        ComparedFields {
            is_resource: self.is_resource,
            path: text(&self.path),
            verb: text(&self.verb),
            group: text(&self.group),
            version: text(&self.version),
            namespace: text(&self.namespace),
            resource: text(&self.resource),
            subresource: text(&self.subresource),
            name: text(&self.name),
        }
    }
}

impl ComparedFields {
    /// Without the fields that the options of a list determine.
    fn unnamed(&self) -> Self {
        Self {
            verb: String::new(),
            name: String::new(),
            ..self.clone()
        }
    }

    fn ours(read: &Attributes) -> Self {
        let text = |given: &Option<String>| given.clone().unwrap_or_default();
        Self {
            is_resource: read.resource_request,
            path: read.path.clone(),
            verb: read.verb.clone(),
            group: read.api_group.clone(),
            version: read.api_version.clone(),
            namespace: text(&read.namespace),
            resource: text(&read.resource),
            subresource: text(&read.subresource),
            name: text(&read.name),
        }
    }
}

const ODD: &[&str] = &[
    "/", "//", "%", "%2F", "%2f", "%zz", "%C3%A9", "%ff", "%00", "%25", ";", "?", "&", "=", "#", ".", "..", "%2e",
    "\\", "+", "é", " ", "a",
];

fn method(random: &mut Random) -> &'static str {
    match random.below(20) {
        0..11 => "GET",
        11 => "HEAD",
        12 => "POST",
        13 => "PUT",
        14 => "PATCH",
        15..18 => "DELETE",
        18 => "OPTIONS",
        _ => random.pick(&[
            "get",
            "Get",
            "WATCH",
            "LIST",
            "TRACE",
            "PROPFIND",
            "delete",
            "G T",
            "DELETEcollection",
        ]),
    }
}

fn path(random: &mut Random) -> String {
    let mut parts: Vec<&str> = Vec::new();
    match random.below(20) {
        0..8 => parts.extend(["api", random.pick(&["v1", "v1", "v1", "v2", "watch"])]),
        8..14 => {
            parts.push("apis");
            let group = [
                "apps",
                "apps",
                "rbac.authorization.k8s.io",
                "g",
                "watch",
                "namespaces",
                "metrics.k8s.io",
            ];
            parts.push(random.pick(&group));
            parts.push(random.pick(&["v1", "v1", "v1beta1", "watch"]));
        }
        14 => parts.push(random.pick(&[
            "version", "healthz", "livez", "readyz", "openapi", "logs", "metrics", "",
        ])),
        15 => parts.push(random.pick(&["API", "apis", "api", "apiss", "Apis"])),
        16 => parts.extend(["openapi", "v3"]),
        _ => parts.push(random.pick(&["logs", "healthz", "version", ".well-known", "apis", "api"])),
    }
    if random.chance(15) {
        parts.push(random.pick(&["watch", "proxy", "redirect", "Watch"]));
    }
    if random.chance(55) {
        parts.push("namespaces");
        if random.chance(92) {
            parts.push(random.pick(&["n", "default", "kube-system", "status", "watch", "namespaces", ""]));
        }
    }
    let resources = [
        "pods",
        "pods",
        "secrets",
        "nodes",
        "services",
        "namespaces",
        "deployments",
        "status",
        "finalize",
        "events",
        "serviceaccounts",
        "watch",
        "proxy",
        "api",
        "clusterroles",
    ];
    if random.chance(85) {
        parts.push(random.pick(&resources));
        if random.chance(60) {
            parts.push(random.pick(&[
                "p",
                "web-0",
                "a:80",
                "https:a:443",
                "status",
                "watch",
                "p.q",
                "pods",
                "x%20y",
                "%C3%A9",
            ]));
            if random.chance(50) {
                let subresources = [
                    "status",
                    "log",
                    "exec",
                    "attach",
                    "portforward",
                    "proxy",
                    "scale",
                    "finalize",
                    "binding",
                    "token",
                    "eviction",
                    "ephemeralcontainers",
                ];
                parts.push(random.pick(&subresources));
                if random.chance(25) {
                    parts.extend([
                        random.pick(&["metrics", "a", "shutdown"]),
                        random.pick(&["b", "", "watch"]),
                    ]);
                }
            }
        }
    }
    format!("/{}{}", parts.join("/"), if random.chance(6) { "/" } else { "" })
}

/// The path with one byte after its first slash as `%XX`.
fn encode_one(random: &mut Random, path: &str) -> String {
    if path.len() < 2 {
        return path.to_owned();
    }
    let at = 1 + random.below(path.len() - 1);
    let upper = random.chance(50);
    let encoded = path
        .bytes()
        .enumerate()
        .map(|(index, byte)| match (index == at, upper) {
            (true, true) => format!("%{byte:02X}"),
            (true, false) => format!("%{byte:02x}"),
            // The path is still ASCII.
            (false, _) => char::from(byte).to_string(),
        });
    encoded.collect()
}

fn query(random: &mut Random) -> String {
    if random.below(4000) == 0 {
        // Go refuses a query of more than 10,000 pairs.
        let count = *random.one(&[9_998, 9_999, 10_000, 10_001]);
        return format!("watch=1{}", "&".repeat(count));
    }
    let pairs: Vec<String> = (0..=random.below(4)).map(|_| pair(random)).collect();
    pairs.join(random.pick(&["&", "&", "&", "&", "&", "&&", ";"]))
}

fn pair(random: &mut Random) -> String {
    let (key, value) = match random.below(20) {
        0..6 => {
            let spellings = [
                "true",
                "1",
                "false",
                "0",
                "",
                "FALSE",
                "False",
                "fal%C5%BFe",
                "no",
                "t",
                "00",
                "+0",
                "%30",
                "fals%65",
                "%zz",
                "0%20",
                "f",
            ];
            ("watch", random.pick(&spellings).to_owned())
        }
        6..13 => ("fieldSelector", selector(random)),
        13 => {
            let selectors = [
                "a",
                "a=b",
                "a in (b,c)",
                "!a",
                "a,",
                "in (",
                "a==b",
                "a=b,c!=d",
                "=",
                "a>1",
                "-",
                "a%3Db",
                "a in ()",
                "é",
            ];
            (
                "labelSelector",
                random.pick(&selectors).replace(' ', random.pick(&["%20", "+"])),
            )
        }
        14 | 15 => {
            let numbers = [
                "0",
                "1",
                "500",
                "-1",
                "%2B5",
                "+5",
                "",
                "x",
                "1.0",
                "0x1",
                "1_000",
                "9223372036854775807",
                "9223372036854775808",
                "007",
                "-0",
                "%31",
                "1%20",
                "-9223372036854775809",
            ];
            (
                random.pick(&["limit", "timeoutSeconds"]),
                random.pick(&numbers).to_owned(),
            )
        }
        16 => (
            random.pick(&["allowWatchBookmarks", "sendInitialEvents"]),
            random.pick(&["true", "x", "", "0"]).to_owned(),
        ),
        17 => (
            random.pick(&[
                "resourceVersion",
                "resourceVersionMatch",
                "continue",
                "shardSelector",
                "pretty",
                "dryRun",
            ]),
            random.pick(&["", "0", "Exact", "abc", "%00", "%ff"]).to_owned(),
        ),
        18 => (
            random.pick(&[
                "Watch",
                "WATCH",
                "wat%63h",
                "%77atch",
                "watch%20",
                " watch",
                "field%53elector",
            ]),
            "1".to_owned(),
        ),
        _ => (
            random.pick(&["", "a", "=", "a;b", "%", "%zz", "watch;", "&"]),
            random.pick(&["", "1", "%", ";"]).to_owned(),
        ),
    };
    if value.is_empty() && random.chance(50) {
        key.to_owned()
    } else {
        format!("{key}={value}")
    }
}

fn selector(random: &mut Random) -> String {
    let terms: Vec<String> = (0..=random.below(3))
        .map(|_| {
            let field = random.pick(&[
                "metadata.name",
                "metadata.name",
                "metadata.name",
                "metadata.name",
                "metadata.namespace",
                "status.phase",
                "spec.nodeName",
                "Metadata.name",
                "metadata.name ",
                "",
                "a!",
            ]);
            let operator = random.pick(&["=", "=", "=", "==", "!=", "===", "!", "", "%3D", "%3D%3D", "!%3D"]);
            let value = random.pick(&[
                "p", "q", "a", "z", "", "..", ".", "a/b", "a%2Fb", "a%25b", "a%5C,b", "a%5C%5C", "a%5Cb", "%C3%A9",
                "P", "p%20", "+p", "a=b", "a%5C%3Db", "%ff", "web-0", "a%5C",
            ]);
            format!("{field}{operator}{value}")
        })
        .collect();
    terms
        .join(random.pick(&[",", ",", "%2C", ",,", ", ", ",+"]))
        .replace(' ', "%20")
}

#[test]
fn attributes_are_those_of_kube_apiserver() {
    run::<RequestInfo>();
}
