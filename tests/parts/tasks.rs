//! Where tasks are started: the code that starts one that lives long also notices its end.

use std::collections::BTreeMap;
use std::path::Path;

use test_support::world::checkout;

/// Where `tokio::spawn` may stand, how often, and why its end needs no owner.
const WITHOUT_OWNER: [(&str, usize, &str); 23] = [
    ("agent/src/health.rs", 1, "it lives as long as a probe, at most 5 s"),
    ("agent/src/peer_listener.rs", 1, "it lives as long as a connection"),
    ("agent/src/peers/link.rs", 1, "it begins again after a panic"),
    ("agent/src/serve.rs", 1, "it lives as long as an upgraded connection"),
    (
        "cluster/src/discovery/cluster_discovery.rs",
        1,
        "one fetch; who waits notices its end",
    ),
    (
        "applicationset-front/src/admission/stored_sets.rs",
        1,
        "one read; who waits notices its end",
    ),
    (
        "applicationset-front/src/applicationsets/change.rs",
        1,
        "one change, which is awaited",
    ),
    ("front/src/open_exchanges.rs", 1, "one delayed end"),
    (
        "gateway/src/running.rs",
        2,
        "the two listeners, which `RunningGateway::ended` awaits",
    ),
    ("identity/src/access/cache.rs", 1, "one question, which is awaited"),
    ("identity/src/access/embedded.rs", 1, "one write"),
    (
        "identity/src/authenticate/keys.rs",
        1,
        "one fetch; who waits notices its end",
    ),
    ("identity/src/logins.rs", 1, "one write"),
    ("plugin/src/egress/client.rs", 1, "it lives as long as a connection"),
    ("plugin/src/memo.rs", 1, "one call, which is awaited"),
    ("proxy/src/agents.rs", 1, "it lives as long as a connection"),
    (
        "proxy/src/forward/upgrade.rs",
        1,
        "it lives as long as an upgraded connection",
    ),
    ("proxy/src/server.rs", 1, "it lives as long as a connection"),
    ("repository/src/wire.rs", 1, "it lives as long as a connection"),
    ("runtime/src/tasks.rs", 1, "it reports its end"),
    ("state/src/watch.rs", 2, "who waits for changes notices the end"),
    ("state/src/write/batch.rs", 1, "one write, which is awaited"),
    ("store/src/database.rs", 1, "one bounded return of a connection"),
];

/// What starts a task that nobody owns.
const STARTS: [&str; 3] = ["tokio::spawn(", "tokio::task::spawn(", "runtime.spawn("];

/// How often a text starts a task that nobody owns, besides its unit tests.
fn starts(text: &str) -> usize {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = product
        .lines()
        .map(str::trim_start)
        .filter(|line| !line.starts_with("//"));
    lines
        .map(|line| STARTS.iter().map(|start| line.matches(start).count()).sum::<usize>())
        .sum()
}

#[test]
fn long_lived_ones_have_an_owner() {
    let host = checkout().join("host");
    let mut files = xtask::figures::files(&host).unwrap();
    files.retain(|path| {
        let mut inside = path.strip_prefix(&host).unwrap().iter();
        !inside.any(|part| part == "tests" || part == "tests.rs")
    });
    let name = |path: &Path| path.strip_prefix(&host).unwrap().to_string_lossy().into_owned();
    let counted = files
        .iter()
        .map(|path| (name(path), starts(&std::fs::read_to_string(path).unwrap())));
    let found: BTreeMap<_, _> = counted.filter(|(_, count)| *count > 0).collect();
    let allowed = WITHOUT_OWNER.map(|(file, count, _)| (file.to_owned(), count));
    assert_eq!(
        found,
        BTreeMap::from(allowed),
        "a task that lives long is started by `Tasks::spawn`, or in a `JoinSet` that somebody awaits; one that \
         does not is listed with its reason"
    );
}

#[test]
fn starts_are_counted_besides_tests_and_comments() {
    let text = "fn a() {\n    tokio::spawn(b());\n    // tokio::spawn(c());\n}\n#[cfg(test)]\nmod tests {\n    fn d() {\n        \
                tokio::spawn(e());\n    }\n}\n";
    assert_eq!(starts(text), 1);
    assert_eq!(starts("let launch = |task| tokio::spawn(f(task));\n"), 1);
}
