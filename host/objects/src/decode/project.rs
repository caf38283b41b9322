//! Decodes AppProjects and Applications into [`Project`] and [`Application`]. A field that does not
//! have Argo CD's type is a mistake.
//!
//! Security: no destination and no role exists unless somebody wrote it.

use std::collections::BTreeMap;

use super::{Object, application_set};
use crate::destination::is_valid_pattern;
use crate::fields::Fields;
use crate::{
    Application, Destination, DestinationServiceAccount, Project, ProjectRole, ResourceRule, ResourceRules, RoleToken,
    SyncWindow, Text,
};
use tollgate_core::diagnostic::{Diagnostic, Location};

pub(super) fn project(object: &Object<'_>) -> Option<Project> {
    let spec = spec(object, "AppProject")?;
    let destinations = spec.children("destinations");
    let destinations: Vec<Destination> = destinations.iter().map(destination_rule).collect();
    let source_repos = plain(spec.texts("sourceRepos"));
    let excludes = |rule: &Destination| {
        [&rule.name, &rule.server, &rule.namespace]
            .iter()
            .any(|part| is_exclusion(part))
    };
    if !destinations.is_empty() && destinations.iter().all(excludes) {
        warn_of_exclusions(object, "destinations");
    }
    if !source_repos.is_empty() && source_repos.iter().all(|url| is_exclusion(url)) {
        warn_of_exclusions(object, "sourceRepos");
    }
    let issued = status_tokens(&object.fields);
    Some(Project {
        name: object.name.name.clone(),
        labels: object.labels.clone(),
        destinations,
        source_repos,
        source_namespaces: plain(spec.texts("sourceNamespaces")),
        permit_only_project_scoped_clusters: spec.boolean("permitOnlyProjectScopedClusters"),
        destination_service_accounts: service_accounts(&spec),
        sync_windows: sync_windows(&spec),
        resources: resources(&spec),
        roles: roles(&spec, issued),
        location: object.fields.location(),
    })
}

fn is_exclusion(pattern: &str) -> bool {
    pattern.starts_with('!')
}

/// Argo CD's documentation says that such a list permits nothing; its code permits the rest.
fn warn_of_exclusions(object: &Object<'_>, key: &str) {
    let name = &object.name.name;
    let message = format!("`{key}` of project `{name}` are only exclusions, so everything else is permitted");
    let finding = Diagnostic::warning(object.fields.location(), message);
    let hint = "Argo CD permits it, too; add entries without `!` for what is meant to be permitted";
    object.fields.report(finding.with_hint(hint));
}

pub(super) fn application(object: &Object<'_>) -> Option<Application> {
    let spec = spec(object, "Application")?;
    let project = spec.text("project").filter(|project| !project.is_empty());
    let target = spec.child("destination").map(|fields| target(object, &fields));
    let metadata = object.fields.node("metadata");
    Some(Application {
        name: object.name.clone(),
        // Argo CD: without a project, an Application is in `default`.
        project: project.unwrap_or_else(|| "default".to_owned()),
        destination: target.unwrap_or_default(),
        repositories: repositories(&spec),
        labels: object.labels.clone(),
        application_set: metadata.and_then(|node| application_set::controller(node)),
        location: object.fields.location(),
    })
}

fn spec<'a>(object: &Object<'a>, kind: &str) -> Option<Fields<'a>> {
    let fields = &object.fields;
    if fields.node("spec").is_none() {
        let message = format!("{kind} `{}` has no `spec`", object.name.name);
        fields.error_with_hint(message, "a file cut short looks like this");
    }
    fields.child("spec")
}

/// The destination of an Application, which has a name or a server.
fn target(object: &Object<'_>, fields: &Fields<'_>) -> Destination {
    let target = destination(fields);
    let what = match (target.name.is_empty(), target.server.is_empty()) {
        (false, false) => "both `name` and `server`",
        (true, true) => "neither `name` nor `server`",
        (true, false) | (false, true) => return target,
    };
    let message = format!("the destination of Application `{}` has {what}", object.name.name);
    let finding = Diagnostic::warning(fields.location(), message);
    fields.report(finding.with_hint("every request about it is refused until it has one of them"));
    target
}

/// Source: Argo CD, `ValidatePermissions` and `ApplicationSpec.GetSources`.
fn repositories(spec: &Fields<'_>) -> Vec<String> {
    let url = |source: Fields<'_>| source.text_or_empty("repoURL");
    if let Some(hydrator) = spec.child("sourceHydrator") {
        let dry = hydrator.child("drySource").map(url).unwrap_or_default();
        // Without an own repository, the dry source's is written to.
        let written = hydrator.child("syncSource").map(url).filter(|url| !url.is_empty());
        return std::iter::once(dry).chain(written).collect();
    }
    let sources = spec.children("sources");
    match sources.is_empty() {
        false => sources.into_iter().map(url).collect(),
        true => spec.child("source").map(url).into_iter().collect(),
    }
}

fn destination(fields: &Fields<'_>) -> Destination {
    Destination {
        name: fields.text_or_empty("name"),
        server: fields.text_or_empty("server"),
        namespace: fields.text_or_empty("namespace"),
    }
}

/// Reads a destination of a project, whose parts are patterns.
fn destination_rule(fields: &Fields<'_>) -> Destination {
    let rule = destination(fields);
    for (key, pattern) in [
        ("name", &rule.name),
        ("server", &rule.server),
        ("namespace", &rule.namespace),
    ] {
        if !is_valid_pattern(pattern) {
            let message = format!("`{}` is `{pattern}`, which is not a pattern", fields.path_of(key));
            let hint = "it never permits, and refuses everything when it begins with `!`";
            fields.report(Diagnostic::warning(fields.location(), message).with_hint(hint));
        }
    }
    rule
}

fn service_accounts(spec: &Fields<'_>) -> Vec<DestinationServiceAccount> {
    let entries = spec.children("destinationServiceAccounts").into_iter();
    let read = |fields: Fields<'_>| DestinationServiceAccount {
        server: fields.text_or_empty("server"),
        namespace: fields.text_or_empty("namespace"),
        default_service_account: fields.text_or_empty("defaultServiceAccount"),
        location: fields.location(),
    };
    entries.map(read).collect()
}

fn sync_windows(spec: &Fields<'_>) -> Vec<SyncWindow> {
    let read = |fields: Fields<'_>| SyncWindow {
        kind: fields.text_or_empty("kind"),
        schedule: fields.text_or_empty("schedule"),
        duration: fields.text_or_empty("duration"),
        time_zone: fields.text_or_empty("timeZone"),
        applications: plain(fields.texts("applications")),
        namespaces: plain(fields.texts("namespaces")),
        clusters: plain(fields.texts("clusters")),
        use_and_operator: fields.boolean("andOperator"),
        manual_sync: fields.boolean("manualSync"),
        location: fields.location(),
    };
    spec.children("syncWindows").into_iter().map(read).collect()
}

fn resources(spec: &Fields<'_>) -> ResourceRules {
    let list = |key: &str| {
        let rule = |fields: Fields<'_>| ResourceRule {
            group: fields.text_or_empty("group"),
            kind: fields.text_or_empty("kind"),
            name: fields.text_or_empty("name"),
        };
        spec.children(key).into_iter().map(rule).collect()
    };
    let namespaced_allowed = "namespaceResourceWhitelist";
    ResourceRules {
        cluster_allowed: list("clusterResourceWhitelist"),
        cluster_denied: list("clusterResourceBlacklist"),
        // Argo CD: without the list every kind is permitted, with an empty one none.
        namespaced_allowed: spec.node(namespaced_allowed).map(|_| list(namespaced_allowed)),
        namespaced_denied: list("namespaceResourceBlacklist"),
    }
}

fn plain(texts: Vec<Text>) -> Vec<String> {
    texts.into_iter().map(|text| text.value.as_ref().to_owned()).collect()
}

fn roles(spec: &Fields<'_>, mut issued: BTreeMap<String, Vec<RoleToken>>) -> Vec<ProjectRole> {
    let mut roles: Vec<ProjectRole> = Vec::new();
    let mut seen: BTreeMap<String, Location> = BTreeMap::new();
    for fields in spec.children("roles") {
        let Some(name) = fields.required("name") else {
            continue;
        };
        let location = fields.location();
        if let Some(first) = seen.insert(name.clone(), location.clone()) {
            fields.error(format!("role `{name}` is defined twice, first at {first}"));
        }
        let mut tokens: Vec<RoleToken> = Vec::new();
        for token in read_tokens(&fields, "jwtTokens").chain(issued.remove(&name).unwrap_or_default()) {
            if !tokens.contains(&token) {
                tokens.push(token);
            }
        }
        roles.push(ProjectRole {
            policies: fields.texts("policies"),
            groups: fields.texts("groups"),
            tokens,
            name,
            location,
        });
    }
    roles
}

/// Argo CD keeps issued tokens in the status and in the spec; both count.
fn status_tokens(object: &Fields<'_>) -> BTreeMap<String, Vec<RoleToken>> {
    let status = object.child("status");
    let Some(by_role) = status.and_then(|status| status.child("jwtTokensByRole")) else {
        return BTreeMap::new();
    };
    let keys = by_role.entries().iter().map(|entry| &*entry.key);
    let tokens = keys.filter_map(|key| {
        let role = by_role.child(key)?;
        Some((key.to_owned(), read_tokens(&role, "items").collect()))
    });
    tokens.collect()
}

fn read_tokens(fields: &Fields<'_>, key: &str) -> impl Iterator<Item = RoleToken> {
    fields.children(key).into_iter().map(|token| RoleToken {
        id: token.text_or_empty("id"),
        issued_at: token.integer("iat"),
        expires_at: token.integer("exp"),
    })
}
