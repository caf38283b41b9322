//! Tests of the index of Applications.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ApplicationIndex, IndexedApplication};
use crate::impersonate::service_account::{Error, Fallback, ImpersonationRules};
use tollgate_config::ImpersonationMode;
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_objects::{
    Application, Cluster, Destination, DestinationServiceAccount, InvalidObject, ObjectName, Project, ResourceRule,
    Resources, Text,
};

mod accounts;
mod changes;

fn entry(server: &str, namespace: &str, account: &str) -> DestinationServiceAccount {
    DestinationServiceAccount {
        server: server.to_owned(),
        namespace: namespace.to_owned(),
        default_service_account: account.to_owned(),
        location: Location::new("project.yaml", 7),
    }
}

fn project(name: &str, accounts: Vec<DestinationServiceAccount>) -> Project {
    Project {
        name: name.to_owned(),
        destination_service_accounts: accounts,
        location: Location::new("project.yaml", 1),
        ..Project::default()
    }
}

fn application(namespace: &str, name: &str, project: &str) -> Application {
    Application {
        name: ObjectName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        },
        project: project.to_owned(),
        destination: Destination {
            name: "prod".to_owned(),
            server: String::new(),
            namespace: "guestbook".to_owned(),
        },
        application_set: None,
        repositories: Vec::new(),
        labels: BTreeMap::new(),
        location: Location::new("application.yaml", 1),
    }
}

fn resources(projects: Vec<Project>, applications: Vec<Application>) -> Resources {
    Resources {
        control_plane_namespace: "argocd".to_owned(),
        argocd_cm_location: Some(Location::new("argocd-cm.yaml", 1)),
        projects: projects
            .into_iter()
            .map(|project| (project.name.clone(), Arc::new(project)))
            .collect(),
        applications: applications
            .into_iter()
            .map(|application| (application.name.clone(), Arc::new(application)))
            .collect(),
        clusters: vec![Cluster {
            name: "prod".to_owned(),
            server: "https://k".to_owned(),
            project: String::new(),
        }],
        ..Resources::default()
    }
}

fn set(resources: &mut Resources, key: &str, value: &str) {
    let text = Text {
        value: Arc::from(value),
        location: Location::new("argocd-cm.yaml", 10),
    };
    resources.argocd_cm.data.insert(key.to_owned(), text);
}

fn build(resources: &Resources) -> ApplicationIndex {
    ApplicationIndex::build(resources, &ImpersonationRules::default(), None, None)
}

fn user(indexed: &IndexedApplication) -> Result<String, &'static str> {
    let derived = indexed.derived_account.as_ref().map_err(Error::code)?;
    Ok(derived
        .account
        .as_ref()
        .map(|account| account.username())
        .unwrap_or_default())
}

fn found<'a>(index: &'a ApplicationIndex, name: &str) -> &'a Arc<IndexedApplication> {
    index.find("argocd", name).unwrap()
}

fn findings(index: &ApplicationIndex) -> Vec<String> {
    index.findings().iter().map(ToString::to_string).collect()
}

#[test]
fn an_application_is_found_with_its_destination_project_and_account() {
    let resources = resources(
        vec![project("team", vec![entry("https://k", "guestbook", "deployer")])],
        vec![application("argocd", "guestbook", "team")],
    );
    let index = build(&resources);
    let indexed = found(&index, "guestbook");
    assert_eq!(user(indexed), Ok("system:serviceaccount:guestbook:deployer".to_owned()));
    assert_eq!(indexed.destination.as_ref().unwrap().server, "https://k");
    assert_eq!(indexed.project.as_ref().unwrap().name, "team");
    assert_eq!(indexed.evaluated_entries().len(), 1);
    assert_eq!(index.iter().count(), 1);
    assert!(index.find("argocd", "other").is_none());
    assert!(index.find("team", "guestbook").is_none());
}

#[test]
fn a_project_accepts_applications_only_from_its_source_namespaces() {
    let mut open = project("open", vec![entry("*", "*", "sa")]);
    open.source_namespaces = vec!["team-*".to_owned()];
    let resources = resources(
        vec![open, project("closed", vec![entry("*", "*", "sa")])],
        vec![
            application("team-a", "good", "open"),
            application("other", "bad", "open"),
            application("team-a", "bad", "closed"),
            application("argocd", "good", "closed"),
            application("argocd", "lost", "missing"),
        ],
    );
    let index = build(&resources);
    let of = |namespace: &str, name: &str| index.find(namespace, name).unwrap();
    let sa = Ok("system:serviceaccount:guestbook:sa".to_owned());
    assert_eq!(user(of("team-a", "good")), sa);
    assert_eq!(user(of("argocd", "good")), sa);
    for (namespace, name) in [("other", "bad"), ("team-a", "bad"), ("argocd", "lost")] {
        let indexed = of(namespace, name);
        assert_eq!(user(indexed), Err("no-project"), "{namespace}/{name}");
        assert!(indexed.project.is_none() && indexed.evaluated_entries().is_empty());
    }
}

#[test]
fn an_invalid_destination_has_no_account() {
    let mut lost = application("argocd", "lost", "team");
    lost.destination.name = "nowhere".to_owned();
    let mut both = application("argocd", "both", "team");
    both.destination.server = "https://k".to_owned();
    let resources = resources(vec![project("team", vec![entry("*", "*", "sa")])], vec![lost, both]);
    let index = build(&resources);
    assert_eq!(user(found(&index, "lost")), Err("no-destination"));
    assert_eq!(user(found(&index, "both")), Err("no-destination"));
}

#[test]
fn impersonation_modes_match_exactly_and_can_be_overridden() {
    let of = |value: Option<&str>, mode_override| {
        let mut resources = resources(Vec::new(), Vec::new());
        if let Some(value) = value {
            set(&mut resources, super::ENABLED_KEY, value);
        }
        ApplicationIndex::build(&resources, &ImpersonationRules::default(), mode_override, None).mode
    };
    assert_eq!(of(None, None), ImpersonationMode::Off);
    assert_eq!(of(Some("true"), None), ImpersonationMode::Enforce);
    assert_eq!(of(Some("audit"), None), ImpersonationMode::Audit);
    for value in ["True", "TRUE", "1", "yes", " true", "Audit", "false", ""] {
        assert_eq!(of(Some(value), None), ImpersonationMode::Off, "{value}");
    }
    assert_eq!(of(Some("true"), Some(ImpersonationMode::Off)), ImpersonationMode::Off);
    assert_eq!(
        of(Some("false"), Some(ImpersonationMode::Enforce)),
        ImpersonationMode::Enforce
    );
}

#[test]
fn only_enforced_false_lets_the_gateway_act_without_an_account() {
    let of = |enforced: Option<&str>| {
        let mut resources = resources(
            vec![project("team", Vec::new())],
            vec![application("argocd", "guestbook", "team")],
        );
        if let Some(enforced) = enforced {
            set(&mut resources, super::ENFORCED_KEY, enforced);
        }
        let index = ApplicationIndex::build(
            &resources,
            &ImpersonationRules::new(ServiceAccountSemantics::Argocd),
            None,
            None,
        );
        (index.fallback, user(found(&index, "guestbook")))
    };
    assert_eq!(of(Some("false")), (Fallback::Controller, Ok(String::new())));
    for enforced in [None, Some("False"), Some("true"), Some("0")] {
        assert_eq!(
            of(enforced),
            (Fallback::Deny, Err("no-service-account")),
            "{enforced:?}"
        );
    }
}

fn rule(kind: &str) -> ResourceRule {
    ResourceRule {
        group: "*".to_owned(),
        kind: kind.to_owned(),
        name: String::new(),
    }
}

fn global() -> Project {
    let mut global = project("global", vec![entry("*", "*", "default")]);
    global.resources.cluster_allowed = vec![rule("Namespace")];
    global.resources.cluster_denied = vec![rule("Node")];
    global.resources.namespaced_allowed = Some(vec![rule("Deployment")]);
    global.resources.namespaced_denied = vec![rule("Secret")];
    global.source_repos = vec!["https://global".to_owned()];
    global.source_namespaces = vec!["*".to_owned()];
    global.destinations = vec![Destination {
        server: "https://global".to_owned(),
        ..Destination::default()
    }];
    global
}

#[test]
fn entries_of_global_projects_follow_those_of_the_project() {
    let mut own = project("team", vec![entry("https://k", "guestbook", "own")]);
    own.labels.insert("tier".to_owned(), "gold".to_owned());
    own.resources.namespaced_denied = vec![rule("Job")];
    let other = project("other", Vec::new());
    let mut resources = resources(
        vec![own, other, global()],
        vec![
            application("argocd", "a", "team"),
            application("argocd", "b", "other"),
            application("argocd", "c", "global"),
        ],
    );
    let selector = "- projectName: global\n  labelSelector:\n    matchLabels:\n      tier: gold\n";
    set(&mut resources, "globalProjects", selector);
    let index = build(&resources);
    let merged = found(&index, "a").project.clone().unwrap();
    let accounts: Vec<_> = merged
        .destination_service_accounts
        .iter()
        .map(|entry| entry.default_service_account.as_str())
        .collect();
    assert_eq!(accounts, ["own", "default"]);
    assert_eq!(merged.resources.cluster_allowed, [rule("Namespace")]);
    assert_eq!(merged.resources.cluster_denied, [rule("Node")]);
    assert_eq!(merged.resources.namespaced_allowed, Some(vec![rule("Deployment")]));
    assert_eq!(merged.resources.namespaced_denied, [rule("Job"), rule("Secret")]);
    assert_eq!(merged.source_repos, ["https://global"]);
    assert_eq!(merged.destinations.len(), 1);
    // `sourceNamespaces` stays the project's own.
    assert_eq!(merged.source_namespaces, Vec::<String>::new());
    assert_eq!(merged.name, "team");
    assert_eq!(
        user(found(&index, "a")),
        Ok("system:serviceaccount:guestbook:own".to_owned())
    );
    // A project whose label selector does not match, and the global project itself.
    assert_eq!(
        found(&index, "b")
            .project
            .as_ref()
            .unwrap()
            .destination_service_accounts,
        []
    );
    let own = found(&index, "c").project.clone().unwrap();
    assert_eq!(own.destination_service_accounts.len(), 1);
    assert_eq!(index.project("team").unwrap().destination_service_accounts.len(), 2);
}

#[test]
fn lists_of_allowed_kinds_merge_as_in_argocd() {
    let merged = |own: Option<Vec<ResourceRule>>, global: Option<Vec<ResourceRule>>| {
        let with = |name: &str, list| {
            let mut project = project(name, Vec::new());
            project.resources.namespaced_allowed = list;
            Arc::new(project)
        };
        let merged = super::merge::merge(&with("own", own), &[with("global", global)]);
        merged.resources.namespaced_allowed.clone()
    };
    let (one, two) = (vec![rule("A")], vec![rule("B")]);
    assert_eq!(merged(None, None), None);
    assert_eq!(merged(None, Some(Vec::new())), None);
    assert_eq!(merged(Some(Vec::new()), None), Some(Vec::new()));
    assert_eq!(merged(Some(Vec::new()), Some(one.clone())), Some(one.clone()));
    assert_eq!(merged(None, Some(one.clone())), Some(one.clone()));
    assert_eq!(merged(Some(one.clone()), None), Some(one.clone()));
    assert_eq!(merged(Some(one.clone()), Some(two.clone())), Some([one, two].concat()));
}

#[test]
fn label_selectors_match_as_in_kubernetes() {
    let chosen = |selector: &str| {
        let mut own = project("team", Vec::new());
        own.labels.insert("tier".to_owned(), "gold".to_owned());
        let mut resources = resources(vec![own, global()], Vec::new());
        set(
            &mut resources,
            "globalProjects",
            &format!("- projectName: global\n  labelSelector: {selector}\n"),
        );
        let index = build(&resources);
        assert_eq!(index.findings().iter().filter(|finding| finding.is_error()).count(), 0);
        index.project("team").unwrap().destination_service_accounts.len() == 1
    };
    assert!(chosen("{}"));
    assert!(chosen("{matchLabels: {tier: gold}}"));
    assert!(!chosen("{matchLabels: {tier: silver}}"));
    assert!(!chosen("{matchLabels: {tier: gold, other: x}}"));
    let by = |key: &str, rest: &str| chosen(&format!("{{matchExpressions: [{{key: {key}, {rest}}}]}}"));
    assert!(by("tier", "operator: In, values: [gold, silver]"));
    assert!(!by("tier", "operator: In, values: [silver]"));
    assert!(!by("other", "operator: In, values: [gold]"));
    assert!(by("tier", "operator: NotIn, values: [silver]"));
    assert!(!by("tier", "operator: NotIn, values: [gold]"));
    assert!(by("other", "operator: NotIn, values: [gold]"));
    assert!(by("tier", "operator: Exists"));
    assert!(!by("other", "operator: Exists"));
    assert!(by("other", "operator: DoesNotExist"));
    assert!(!by("tier", "operator: DoesNotExist"));
    assert!(!chosen(
        "{matchLabels: {tier: gold}, matchExpressions: [{key: tier, operator: DoesNotExist}]}"
    ));
}

#[test]
fn a_malformed_global_projects_setting_fails_the_load() {
    let check = |value: &str, expected: &str| {
        let mut resources = resources(vec![project("team", Vec::new()), global()], Vec::new());
        set(&mut resources, "globalProjects", value);
        let found = build(&resources).findings();
        let error = found.iter().find(|finding| finding.is_error()).expect("an error");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.location.as_ref().unwrap().file.as_ref(), "argocd-cm.yaml");
    };
    check("projectName: global", "argocd-cm.yaml:10: error: `globalProjects`");
    check(
        "- projectName: global\n  labelSelecter: {}\n",
        "argocd-cm.yaml:11: error: `globalProjects`",
    );
    check("- labelSelector: {}", "`projectName` is missing");
    let by =
        |rest: &str| format!("- projectName: global\n  labelSelector: {{matchExpressions: [{{key: tier, {rest}}}]}}\n");
    check(&by("operator: In"), "`In` of no values");
    check(&by("operator: Exists, values: [x]"), "`Exists` takes none");
    check(&by("operator: Equals, values: [x]"), "Equals");
}

/// Without the deny lists of the global project, other projects would permit more.
#[test]
fn an_invalid_global_project_fails_the_load() {
    let mut resources = resources(vec![project("team", Vec::new())], Vec::new());
    set(&mut resources, "globalProjects", "- projectName: global\n");
    let is_refused = |resources: &Resources| {
        let rules = ImpersonationRules::new(ServiceAccountSemantics::Argocd);
        let found = ApplicationIndex::build(resources, &rules, None, None).findings();
        found.iter().any(Diagnostic::is_error)
    };
    assert!(!is_refused(&resources));
    resources.invalid_objects.push(InvalidObject {
        kind: "AppProject",
        name: ObjectName {
            namespace: "argocd".to_owned(),
            name: "global".to_owned(),
        },
        location: Location::default(),
        mistake: "`spec` is missing".to_owned(),
    });
    assert!(is_refused(&resources));
}

#[test]
fn a_missing_global_project_fails_the_load_or_ends_the_list_as_in_argocd() {
    let mut resources = resources(vec![project("team", Vec::new()), global()], Vec::new());
    let entries = "- projectName: global\n- projectName: gone\n- projectName: global\n";
    set(&mut resources, "globalProjects", entries);
    let build = |semantics| ApplicationIndex::build(&resources, &ImpersonationRules::new(semantics), None, None);
    let strict = findings(&build(ServiceAccountSemantics::Strict));
    assert!(
        strict[0].contains("error: `globalProjects[1]`: there is no project `gone`"),
        "{strict:?}"
    );
    let argocd = build(ServiceAccountSemantics::Argocd);
    let found = findings(&argocd);
    assert!(
        found[0].contains("warning: `globalProjects[1]`: there is no project `gone`"),
        "{found:?}"
    );
    assert!(!argocd.findings().iter().any(Diagnostic::is_error));
    assert_eq!(argocd.project("team").unwrap().destination_service_accounts.len(), 1);
}

#[test]
fn a_missing_argocd_cm_fails_the_load() {
    let mut resources = resources(vec![project("team", Vec::new())], Vec::new());
    assert_eq!(findings(&build(&resources)), Vec::<String>::new());
    resources.argocd_cm_location = None;
    let index = build(&resources);
    assert!(index.findings().iter().any(Diagnostic::is_error));
    assert!(findings(&index)[0].contains("there is no ConfigMap `argocd-cm`"));
    // An explicit mode needs no `argocd-cm`.
    let explicit = ApplicationIndex::build(
        &resources,
        &ImpersonationRules::default(),
        Some(ImpersonationMode::Off),
        None,
    );
    assert_eq!(findings(&explicit), Vec::<String>::new());
}

#[test]
fn an_unrecognized_mode_is_reported() {
    let mut resources = resources(vec![project("team", Vec::new())], Vec::new());
    for (value, is_reported) in [
        ("true", false),
        ("false", false),
        ("audit", false),
        ("", false),
        ("True", true),
        ("enforce", true),
        (" true", true),
    ] {
        set(&mut resources, super::ENABLED_KEY, value);
        let index = build(&resources);
        let found = findings(&index);
        assert_eq!(found.len(), usize::from(is_reported), "{value}: {found:?}");
        if is_reported {
            let expected = format!(
                "argocd-cm.yaml:10: warning: `{}` is `{value}`, which means off",
                super::ENABLED_KEY
            );
            assert!(found[0].starts_with(&expected), "{found:?}");
            assert_eq!(index.mode, ImpersonationMode::Off);
        }
        let explicit = ApplicationIndex::build(
            &resources,
            &ImpersonationRules::default(),
            Some(ImpersonationMode::Audit),
            None,
        );
        assert_eq!(findings(&explicit), Vec::<String>::new());
    }
}

#[test]
fn accounts_are_reported_once_per_project_if_impersonation_is_off() {
    let accounts = vec![entry("https://k", "a", "sa"), entry("https://k", "b", "sa")];
    let mut resources = resources(vec![project("team", accounts), project("bare", Vec::new())], Vec::new());
    let found = findings(&build(&resources));
    assert_eq!(found.len(), 1, "{found:?}");
    let expected = "project.yaml:7: warning: project `team` has `destinationServiceAccounts`, but impersonation is off";
    assert!(found[0].starts_with(expected), "{found:?}");
    for value in ["true", "audit"] {
        set(&mut resources, super::ENABLED_KEY, value);
        assert_eq!(findings(&build(&resources)), Vec::<String>::new());
    }
}

#[test]
fn unreachable_entries_are_reported_only_for_the_project_that_has_them() {
    let mut resources = resources(
        vec![
            project("team", vec![entry("*", "*", "a"), entry("https://k", "ns", "b")]),
            project("global", vec![entry("*", "*", "c")]),
        ],
        Vec::new(),
    );
    set(&mut resources, super::ENABLED_KEY, "true");
    set(&mut resources, "globalProjects", "- projectName: global\n");
    let found = findings(&build(&resources));
    // The global project's own entry is not reported as unreachable behind the catch-all.
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("`destinationServiceAccounts[1]` is never reached"),
        "{found:?}"
    );
}

/// Whether each Application was reused, by name.
fn kept(before: &ApplicationIndex, after: &ApplicationIndex) -> Vec<(String, bool)> {
    let mut kept: Vec<_> = after
        .iter()
        .map(|now| {
            let name = &now.application.name;
            let was = before.find(&name.namespace, &name.name);
            (name.name.clone(), was.is_some_and(|was| Arc::ptr_eq(was, now)))
        })
        .collect();
    kept.sort();
    kept
}

fn two_applications() -> Resources {
    resources(
        vec![
            project("one", vec![entry("*", "*", "sa")]),
            project("two", vec![entry("*", "*", "sa")]),
            project("spare", Vec::new()),
        ],
        vec![application("argocd", "a", "one"), application("argocd", "b", "two")],
    )
}

#[test]
fn only_affected_applications_are_derived_again() {
    let check = |change: &dyn Fn(&mut Resources), expected: [bool; 2]| {
        let mut resources = two_applications();
        let before = build(&resources);
        change(&mut resources);
        let after = ApplicationIndex::build(&resources, &ImpersonationRules::default(), None, Some(&before));
        let kept: Vec<bool> = kept(&before, &after).into_iter().map(|(_, kept)| kept).collect();
        assert_eq!(kept, expected);
        // A reused entry equals a freshly built one.
        let fresh = build(&resources);
        for now in after.iter() {
            let name = &now.application.name;
            assert_eq!(user(now), user(fresh.find(&name.namespace, &name.name).unwrap()));
        }
    };
    check(&|_| {}, [true, true]);
    check(
        &|resources| {
            let mut changed = application("argocd", "a", "one");
            changed.destination.namespace = "elsewhere".to_owned();
            resources.applications.insert(changed.name.clone(), Arc::new(changed));
        },
        [false, true],
    );
    check(
        &|resources| {
            let changed = project("two", vec![entry("*", "*", "other")]);
            resources.projects.insert("two".to_owned(), Arc::new(changed));
        },
        [true, false],
    );
    check(&|resources| drop(resources.projects.remove("two")), [true, false]);
    check(
        &|resources| resources.clusters[0].server = "https://moved".to_owned(),
        [false, false],
    );
    check(
        &|resources| set(resources, super::ENFORCED_KEY, "false"),
        [false, false],
    );
    check(
        &|resources| {
            set(
                resources,
                "globalProjects",
                "- projectName: one\n  labelSelector: {matchLabels: {x: y}}",
            )
        },
        [true, true],
    );
    check(
        &|resources| set(resources, "globalProjects", "- projectName: one\n"),
        [true, false],
    );
    check(&|resources| set(resources, super::ENABLED_KEY, "true"), [true, true]);
    check(
        &|resources| resources.control_plane_namespace = "other".to_owned(),
        [false, false],
    );
}

#[test]
fn other_semantics_derive_everything_again() {
    let resources = two_applications();
    let before = build(&resources);
    let after = ApplicationIndex::build(
        &resources,
        &ImpersonationRules::new(ServiceAccountSemantics::Argocd),
        None,
        Some(&before),
    );
    assert!(kept(&before, &after).iter().all(|(_, kept)| !kept));
}

#[test]
fn deleted_applications_are_not_found() {
    let mut resources = two_applications();
    let before = build(&resources);
    resources.applications.retain(|name, _| name.name != "a");
    let after = ApplicationIndex::build(&resources, &ImpersonationRules::default(), None, Some(&before));
    assert!(after.find("argocd", "a").is_none());
    assert!(after.find("argocd", "b").is_some());
}
