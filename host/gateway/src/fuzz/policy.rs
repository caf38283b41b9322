//! Fuzz targets of policies: `policy.csv`, globs, regular expressions, JSONPath, sync windows.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tollgate_config::RbacSemantics;
use tollgate_core::diagnostic::Location;
use tollgate_core::glob::{Negation, Pattern, matches_negatable, normalize_repository, quote_meta, source_permitted};
use tollgate_core::json_path::SingularPath;
use tollgate_fuzz::{Target, first_line, inputs, strings, text};
use tollgate_objects::{Application, Destination, ObjectName, SyncWindow, Text};
use tollgate_policy::rbac::{MatchMode, PolicySource, Rbac, RbacRequest};
use tollgate_policy::sync_windows::{Closed, SyncWindows};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "policy_csv",
        run: policy_csv,
        seeds: policies,
    },
    Target {
        name: "policy_regex",
        run: policy_regex,
        seeds: expressions,
    },
    Target {
        name: "glob",
        run: glob,
        seeds: globs,
    },
    Target {
        name: "json_path",
        run: json_path,
        seeds: json_paths,
    },
    Target {
        name: "sync_window",
        run: sync_window,
        seeds: sync_windows,
    },
];

fn policies() -> Vec<Vec<u8>> {
    let mut seeds = inputs(strings(
        &["tests/cases/rbac.yaml", "tests/cases/rbac_derived.yaml"],
        &["policy", "policy.csv", "builtin", "user_policy", "csv", "text", "line"],
    ));
    seeds.extend(inputs([
        "p, role:dev, applications, *, shop/*, allow\ng, alice, role:dev\n",
        "p, alice, \"applications\", get, \"a\"\"b/*\", deny\n# comment\n\n",
    ]));
    seeds
}

fn compiled(text: &str, match_mode: MatchMode, semantics: RbacSemantics) -> Option<Rbac> {
    let source = PolicySource {
        texts: vec![Text {
            value: text.into(),
            location: Location::new("policy.csv", 1),
        }],
        match_mode,
        semantics,
        ..PolicySource::default()
    };
    Rbac::compile(&source).value
}

/// A decision and its explanation agree, for tuples that the policy's own rows name.
fn explained(rbac: &Rbac) {
    let rows = rbac.rules().map(|(_, rule)| rule).take(8);
    for rule in rows {
        let tuple = RbacRequest {
            resource: &rule.resource,
            action: &rule.action,
            object: &rule.object,
        };
        let who = rbac.identify_subject(&rule.subject);
        assert_eq!(rbac.decide(&who, tuple), rbac.explain(&who, tuple).verdict);
    }
}

fn policy_csv(data: &[u8]) {
    let Some(policy) = text(data) else { return };
    for semantics in [RbacSemantics::Argocd, RbacSemantics::Strict] {
        let Some(rbac) = compiled(policy, MatchMode::Glob, semantics) else {
            continue;
        };
        explained(&rbac);
    }
}

fn expressions() -> Vec<Vec<u8>> {
    inputs([
        "^a+$",
        "a{1001}|.",
        "[[:alpha:]]\\d\\Q.*\\E",
        "(?i)x|(?P<n>y)",
        "\\<$",
        "[&&~~--]",
        "\\pL\\x{10FFFF}",
        ".*/.*",
    ])
}

fn policy_regex(data: &[u8]) {
    let Some(expression) = text(data) else { return };
    if expression.contains(['\n', '\r']) {
        return;
    }
    let quoted = expression.replace('"', "\"\"");
    let policy = format!("p, alice, applications, get, \"{quoted}\", allow\n");
    if let Some(rbac) = compiled(&policy, MatchMode::Regex, RbacSemantics::Argocd) {
        explained(&rbac);
    }
}

fn globs() -> Vec<Vec<u8>> {
    let patterns = strings(&["tests/cases/glob.yaml"], &["pattern"]);
    let mut seeds: Vec<Vec<u8>> = patterns
        .iter()
        .flat_map(|pattern| {
            [
                format!("{pattern}\nhello"),
                format!("{pattern}\n{pattern}"),
                format!("{pattern}\nhttps://a/b.git"),
            ]
        })
        .map(String::into_bytes)
        .collect();
    seeds.push(b"{a,b{c,d}}*[!x-z]?\nabcd".to_vec());
    seeds
}

/// What an index derives from a pattern holds for every match.
fn glob(data: &[u8]) {
    let Some(input) = text(data) else { return };
    let (pattern, candidate) = first_line(input);
    for separators in [&[][..], &['/'][..]] {
        let exact = Pattern::compile_exact(pattern, separators);
        let Ok(compiled) = Pattern::compile(pattern, separators) else {
            assert!(exact.is_err(), "{pattern:?}");
            continue;
        };
        let matches = compiled.matches(candidate);
        if matches {
            assert!(
                candidate.starts_with(compiled.literal_prefix()),
                "{pattern:?} {candidate:?}"
            );
            assert!(
                candidate.ends_with(compiled.literal_suffix()),
                "{pattern:?} {candidate:?}"
            );
        }
        if let Some(literal) = compiled.literal() {
            assert_eq!(matches, literal == candidate, "{pattern:?} {candidate:?}");
        }
        if compiled.is_everything() {
            assert!(matches);
        }
        if exact.is_ok_and(|exact| exact.matches(candidate)) {
            assert!(matches, "{pattern:?} {candidate:?}");
        }
        for witness in compiled.witnesses() {
            assert!(compiled.matches(&witness), "{pattern:?} {witness:?}");
        }
    }
    if let Ok(quoted) = Pattern::compile(&quote_meta(candidate), &[]) {
        assert!(quoted.matches(candidate), "{candidate:?}");
    }
    for negation in [Negation::Allowed, Negation::Literal] {
        let _ = matches_negatable(pattern, candidate, negation, &[]);
    }
    let _ = source_permitted(&[pattern.to_owned()], candidate);
    // Like Argo CD's, it is not idempotent: escapes it writes are lower-cased the next time.
    let _ = normalize_repository(candidate);
}

fn json_paths() -> Vec<Vec<u8>> {
    let mut seeds = inputs(strings(
        &["tests/cases/providers.yaml"],
        &["tokenPath", "token_path", "path", "json_path"],
    ));
    seeds.extend(inputs([
        "$.a.b[0]",
        "$['a'][\"b\"][-1]",
        "$..a",
        "$.store.book[?@.price < 10]",
    ]));
    seeds
}

/// A decoded path encodes to text that decodes to the same path, and selects the same value for
/// reading and for changing.
fn json_path(data: &[u8]) {
    let Some(input) = text(data) else { return };
    let Ok(path) = SingularPath::parse(input) else { return };
    let written = path.to_string();
    assert_eq!(
        SingularPath::parse(&written).as_ref(),
        Ok(&path),
        "{input:?} {written:?}"
    );
    let document = serde_json::json!({
        "a": {"b": [1, {"c": "d"}, null], "": 0}, "store": {"book": [{"price": 9}]}, "é": ["x"],
    });
    let _ = path.select(&document);
}

fn sync_windows() -> Vec<Vec<u8>> {
    inputs([
        "deny\n0 22 * * *\n8h\nEurope/Berlin\ncart-*\n1795780800",
        "allow\n*/5 1-3,7 ? jan-MAR mon\n1h30m\n\n*\n0",
        "deny\n0 0 29 2 */2\n2540400h\nAsia/Kathmandu\n[\n99999999999",
        "allow\n* * * * *\n24h\nUTC\n{a,b}\n1",
    ])
}

/// A window is either reported when it is loaded, or evaluated. What callers read is short.
fn sync_window(data: &[u8]) {
    let Some(lines) = text(data) else { return };
    let mut lines = lines.split('\n');
    let [kind, schedule, duration, time_zone, pattern, seconds] =
        std::array::from_fn(|_| lines.next().unwrap_or_default().to_owned());
    let written = SyncWindow {
        kind,
        schedule,
        duration,
        time_zone,
        namespaces: vec!["*".to_owned(), pattern],
        ..SyncWindow::default()
    };
    let windows = SyncWindows::compile(&[written]);
    let application = Application {
        name: ObjectName {
            namespace: String::new(),
            name: String::new(),
        },
        project: String::new(),
        destination: Destination::default(),
        repositories: Vec::new(),
        labels: BTreeMap::new(),
        application_set: None,
        location: Location::default(),
    };
    let seconds = seconds.parse::<u32>().unwrap_or(u32::MAX);
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into());
    let checked = windows.applicable_to(&application).check_manual_sync(now);
    let is_mistake = matches!(checked, Err(Closed::Mistake { .. }));
    assert_eq!(is_mistake, windows.findings(1).len() == 1);
    if let Err(closed) = checked {
        let shown = closed.to_string();
        assert!(shown.len() < 1024 && !shown.contains(char::is_control), "{shown:?}");
    }
}
