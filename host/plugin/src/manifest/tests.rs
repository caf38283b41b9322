use super::*;
use tollgate_core::plugin::World;

const GOOD: &str = "\
name: tag
version: 1.2.3
sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
world: header-filter
minimumHostVersion: 0.1.0
imports: [log, clock]
requestFields: [X-Tenant]
context: [user]
filters: [request]
configSchema: { type: object }
";

/// One line replaced or added, and the finding it must give.
fn check(from: &str, to: &str, location: &str, message: &str) {
    let text = if from.is_empty() {
        format!("{GOOD}{to}\n")
    } else {
        GOOD.replace(from, to)
    };
    let loaded = parse(&text, "tag.yaml", "tag");
    assert!(loaded.value.is_none(), "{text}");
    let findings: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    let found = findings
        .iter()
        .any(|finding| finding.starts_with(location) && finding.contains(message));
    assert!(found, "{findings:#?} has no `{location}…{message}`");
}

#[test]
fn a_valid_manifest_is_parsed() {
    let loaded = parse(GOOD, "tag.yaml", "tag");
    assert_eq!(loaded.diagnostics, []);
    let manifest = loaded.value.unwrap();
    assert_eq!(manifest.name, "tag");
    assert_eq!(manifest.world, World::HeaderFilter);
    assert_eq!(manifest.request_fields, ["x-tenant"]);
    assert_eq!(manifest.imports, BTreeSet::from([Import::Clock, Import::Log]));
    assert_eq!(manifest.context, BTreeSet::from([ContextPart::User]));
    assert_eq!(manifest.filters, BTreeSet::from([Direction::Request]));
}

#[test]
fn mistakes_are_reported_by_line() {
    check(
        "name: tag",
        "name: tog",
        "tag.yaml:1:7: error",
        "named `tog`, its files `tag`",
    );
    check(
        "version: 1.2.3",
        "version: one",
        "tag.yaml:2:10: error",
        "`one` is not a version",
    );
    check("sha256: 0123", "sha256: 012", "tag.yaml:3:9: error", "not a digest");
    check(
        "world: header-filter",
        "world: kubewarden",
        "tag.yaml:4:8: error",
        "no world `kubewarden`",
    );
    check("0.1.0", "99.0.0", "tag.yaml:5:21: error", "needs version `99.0.0`");
    check(
        "clock]",
        "sockets]",
        "tag.yaml:6:16: error",
        "no host interface `sockets`",
    );
    check("X-Tenant", "x tenant", "tag.yaml:7", "`x tenant` is not a field name");
    check(
        "[user]",
        "[password]",
        "tag.yaml:8:11: error",
        "no part of the context `password`",
    );
    check(
        "[request]",
        "[sideways]",
        "tag.yaml:9:11: error",
        "no direction `sideways`",
    );
    check("{ type: object }", "{ type: 7 }", "tag.yaml:10", "not a JSON Schema");
    check("", "hosts: [example.com]", "tag.yaml:11", "hosts");
    check("world: header-filter\n", "", "tag.yaml", "world");
    check("imports: [log, clock]", "imports: log", "tag.yaml:6", "");
}

#[test]
fn fields_hidden_from_plugins_cannot_be_requested() {
    for name in [
        "Authorization",
        "cookie",
        "argocd-username",
        "set-cookie",
        "X-Forwarded-For",
    ] {
        check("X-Tenant", name, "tag.yaml:7", "no plugin may see");
    }
}

#[test]
fn every_mistake_is_reported_at_once() {
    let text = GOOD
        .replace("1.2.3", "one")
        .replace("[user]", "[password]")
        .replace("[request]", "[sideways]");
    assert_eq!(parse(&text, "tag.yaml", "tag").diagnostics.len(), 3);
}
