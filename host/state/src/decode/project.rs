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
    Text,
};
use tollgate_core::diagnostic::{Diagnostic, Location};

/// Decodes an AppProject.
pub(super) fn project(object: &Object<'_>, findings: &mut Vec<Diagnostic>) -> Option<Project> {
    let spec = spec(object, "AppProject", findings)?;
    let destinations = spec.children("destinations", findings);
    let destinations: Vec<Destination> = destinations.iter().map(|fields| rule(fields, findings)).collect();
    let issued = status_tokens(&object.fields, findings);
    Some(Project {
        name: object.name.name.clone(),
        labels: object.labels.clone(),
        destinations,
        source_repos: plain(spec.texts("sourceRepos", findings)),
        source_namespaces: plain(spec.texts("sourceNamespaces", findings)),
        permit_only_project_scoped_clusters: spec.boolean("permitOnlyProjectScopedClusters", findings),
        destination_service_accounts: service_accounts(&spec, findings),
        resources: resources(&spec, findings),
        roles: roles(&spec, issued, findings),
        location: object.fields.location(),
    })
}

/// Decodes an Application.
pub(super) fn application(object: &Object<'_>, findings: &mut Vec<Diagnostic>) -> Option<Application> {
    let spec = spec(object, "Application", findings)?;
    let project = spec.text("project", findings).filter(|project| !project.is_empty());
    let target = spec.child("destination", findings);
    Some(Application {
        name: object.name.clone(),
        project: project.unwrap_or_else(|| "default".to_owned()),
        destination: target
            .map(|fields| target_of(object, &fields, findings))
            .unwrap_or_default(),
        labels: object.labels.clone(),
        application_set: object
            .fields
            .node("metadata")
            .and_then(|node| application_set::controller(node)),
        location: object.fields.location(),
    })
}

fn spec<'a>(object: &Object<'a>, kind: &str, findings: &mut Vec<Diagnostic>) -> Option<Fields<'a>> {
    if object.fields.node("spec").is_none() {
        let message = format!("{kind} `{}` has no `spec`", object.name.name);
        let finding = Diagnostic::error(object.fields.location(), message);
        findings.push(finding.with_hint("a file cut short looks like this"));
    }
    object.fields.child("spec", findings)
}

/// The destination of an Application, which has a name or a server.
fn target_of(object: &Object<'_>, fields: &Fields<'_>, findings: &mut Vec<Diagnostic>) -> Destination {
    let target = destination(fields, findings);
    let what = match (target.name.is_empty(), target.server.is_empty()) {
        (false, false) => "both `name` and `server`",
        (true, true) => "neither `name` nor `server`",
        (true, false) | (false, true) => return target,
    };
    let message = format!("the destination of Application `{}` has {what}", object.name.name);
    let finding = Diagnostic::warning(fields.location(), message);
    findings.push(finding.with_hint("every request about it is refused until it has one of them"));
    target
}

fn destination(fields: &Fields<'_>, findings: &mut Vec<Diagnostic>) -> Destination {
    Destination {
        name: fields.text("name", findings).unwrap_or_default(),
        server: fields.text("server", findings).unwrap_or_default(),
        namespace: fields.text("namespace", findings).unwrap_or_default(),
    }
}

/// Reads a destination of a project, whose parts are patterns.
fn rule(fields: &Fields<'_>, findings: &mut Vec<Diagnostic>) -> Destination {
    let rule = destination(fields, findings);
    for (key, pattern) in [
        ("name", &rule.name),
        ("server", &rule.server),
        ("namespace", &rule.namespace),
    ] {
        if !is_valid_pattern(pattern) {
            let message = format!("`{}` is `{pattern}`, which is not a pattern", fields.path_of(key));
            let hint = "it never permits, and refuses everything when it begins with `!`";
            findings.push(Diagnostic::warning(fields.location(), message).with_hint(hint));
        }
    }
    rule
}

fn service_accounts(spec: &Fields<'_>, findings: &mut Vec<Diagnostic>) -> Vec<DestinationServiceAccount> {
    let entries = spec.children("destinationServiceAccounts", findings);
    let entry = |fields: &Fields<'_>, findings: &mut Vec<Diagnostic>| DestinationServiceAccount {
        server: fields.text("server", findings).unwrap_or_default(),
        namespace: fields.text("namespace", findings).unwrap_or_default(),
        default_service_account: fields.text("defaultServiceAccount", findings).unwrap_or_default(),
        location: fields.location(),
    };
    entries.iter().map(|fields| entry(fields, findings)).collect()
}

fn resources(spec: &Fields<'_>, findings: &mut Vec<Diagnostic>) -> ResourceRules {
    let mut list = |key: &str| {
        let rules = spec.children(key, findings);
        let rule = |fields: &Fields<'_>, findings: &mut Vec<Diagnostic>| ResourceRule {
            group: fields.text("group", findings).unwrap_or_default(),
            kind: fields.text("kind", findings).unwrap_or_default(),
            name: fields.text("name", findings).unwrap_or_default(),
        };
        let rules: Vec<ResourceRule> = rules.iter().map(|fields| rule(fields, findings)).collect();
        rules
    };
    ResourceRules {
        cluster_allowed: list("clusterResourceWhitelist"),
        cluster_denied: list("clusterResourceBlacklist"),
        namespaced_allowed: spec
            .node("namespaceResourceWhitelist")
            .is_some()
            .then(|| list("namespaceResourceWhitelist")),
        namespaced_denied: list("namespaceResourceBlacklist"),
    }
}

fn plain(texts: Vec<Text>) -> Vec<String> {
    texts.into_iter().map(|text| text.value.as_ref().to_owned()).collect()
}

fn roles(
    spec: &Fields<'_>,
    mut issued: BTreeMap<String, Vec<RoleToken>>,
    findings: &mut Vec<Diagnostic>,
) -> Vec<ProjectRole> {
    let mut roles: Vec<ProjectRole> = Vec::new();
    let mut seen: BTreeMap<String, Location> = BTreeMap::new();
    for fields in spec.children("roles", findings) {
        let Some(name) = fields.required("name", findings) else {
            continue;
        };
        let location = fields.location();
        if let Some(first) = seen.insert(name.clone(), location.clone()) {
            let message = format!("role `{name}` is defined twice, first at {first}");
            findings.push(Diagnostic::error(location.clone(), message));
        }
        let mut tokens = tokens(&fields, "jwtTokens", findings);
        tokens.extend(issued.remove(&name).unwrap_or_default());
        roles.push(ProjectRole {
            policies: fields.texts("policies", findings),
            groups: fields.texts("groups", findings),
            tokens: distinct(tokens),
            name,
            location,
        });
    }
    roles
}

/// Argo CD keeps issued tokens in the status and in the spec; both count.
fn status_tokens(object: &Fields<'_>, findings: &mut Vec<Diagnostic>) -> BTreeMap<String, Vec<RoleToken>> {
    let Some(by_role) = object
        .child("status", findings)
        .and_then(|status| status.child("jwtTokensByRole", findings))
    else {
        return BTreeMap::new();
    };
    let mut issued = BTreeMap::new();
    for entry in by_role.entries() {
        if let Some(role) = by_role.child(&entry.key, findings) {
            issued.insert(entry.key.as_ref().to_owned(), tokens(&role, "items", findings));
        }
    }
    issued
}

fn tokens(fields: &Fields<'_>, key: &str, findings: &mut Vec<Diagnostic>) -> Vec<RoleToken> {
    let items = fields.children(key, findings);
    let token = |token: &Fields<'_>, findings: &mut Vec<Diagnostic>| RoleToken {
        id: token.text("id", findings).unwrap_or_default(),
        issued_at: token.integer("iat", findings),
        expires_at: token.integer("exp", findings),
    };
    items.iter().map(|fields| token(fields, findings)).collect()
}

fn distinct(tokens: Vec<RoleToken>) -> Vec<RoleToken> {
    let mut kept: Vec<RoleToken> = Vec::new();
    for token in tokens {
        if !kept.contains(&token) {
            kept.push(token);
        }
    }
    kept
}
