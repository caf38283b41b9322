//! The oracle: after each write that an API server has accepted, may everybody who answers for it do
//! what it does?
//!
//! - Storing or deleting an object takes the right that the same write takes in Argo CD's API.
//! - An operation that can start takes `sync` of who started it, and `override` of who wrote it if it
//!   does more than the Application says.
//! - Who changes or deletes a set with a templated project answers for the Applications that it owns.

use std::collections::BTreeMap;

use serde_json::Value;

use super::objects::{Kind, claim, field, owner_uids, project_of, template_project};
use super::rights::{Entity, Excess, Responsible, Right, check, is_account_of_parent};
use super::world::{CLAIM, PARTS, Stored, World};

/// A write as the oracle sees it, and who answers for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect<'a> {
    pub(super) kind: Kind,
    pub(super) name: &'a str,
    /// The object as it is to be stored. `None` if it is deleted.
    pub(super) after: Option<&'a Value>,
    pub(super) responsible: &'a Responsible,
}

/// Who answers for each part of the object once it is stored. `Err` says who may not do what.
pub(super) fn judge(world: &World, effect: Effect<'_>) -> Result<BTreeMap<&'static str, Responsible>, Excess> {
    let stored = world.stored(effect.kind, effect.name);
    let rights = rights(world, effect, stored.map(|stored| &stored.object));
    if !is_own_set(effect, stored) {
        check(world, effect.responsible, &rights)?;
    }
    let origins = origins(world, effect, stored);
    if let (Kind::Application, Some(after)) = (effect.kind, effect.after) {
        let before = stored.map(|stored| &stored.object);
        let changes = |pointer: &str| field(before, pointer) != field(Some(after), pointer);
        // The controller starts what has been judged when it was written.
        let is_new = !effect.responsible.is_system();
        if is_new && (changes("/operation") || changes("/status/operationState")) {
            check_operation(world, after, &origins)?;
        }
    }
    Ok(origins)
}

/// Whether a parent writes a set with a templated project that nobody but itself has deployed.
fn is_own_set(effect: Effect<'_>, stored: Option<&Stored>) -> bool {
    let Some(stored) = stored.filter(|_| effect.kind == Kind::ApplicationSet) else {
        return false;
    };
    let is_parent = matches!(&effect.responsible.0[..], [party] if matches!(&party[..], [Entity::Parent(_)]));
    is_parent && is_templated(&stored.object) && stored.origins[CLAIM] == *effect.responsible
}

/// The rights that a write takes.
fn rights(world: &World, effect: Effect<'_>, before: Option<&Value>) -> Vec<Right> {
    let right = |action: &'static str, project: &str| Right::new(effect.kind, action, project);
    let after = effect.after;
    match effect.kind {
        Kind::Application => application_rights(effect, before),
        Kind::AppProject => match (before, after) {
            (None, _) => vec![right("create", effect.name)],
            (Some(_), None) => vec![right("delete", effect.name)],
            (Some(before), Some(after)) if before == after => Vec::new(),
            (Some(_), Some(_)) => vec![right("update", effect.name)],
        },
        Kind::ApplicationSet => {
            let literal = |set: Option<&Value>| {
                let project = template_project(set?);
                (!project.contains("{{")).then(|| project.to_owned())
            };
            let mut rights = Vec::new();
            let action = if after.is_some() { "update" } else { "delete" };
            match (before, literal(before)) {
                (None, _) => {}
                (Some(_), Some(project)) => rights.push(right(action, &project)),
                (Some(set), None) => {
                    rights.extend(owned_projects(world, set).iter().map(|project| right(action, project)))
                }
            }
            match literal(after) {
                Some(project) if before.is_none() => rights.push(right("create", &project)),
                Some(project) if literal(before).as_ref() != Some(&project) => {
                    rights.extend([right("create", &project), right("update", &project)]);
                }
                Some(_) | None => {}
            }
            if is_nobodys(world, before)
                && matches!(effect.responsible.0[..], [ref party] if matches!(party[..], [Entity::Parent(_)]))
            {
                // A parent may not take what it has not deployed and what shows no project.
                rights.push(right(action, ""));
            }
            rights
        }
    }
}

/// Whether nothing says in whose project a stored set is.
fn is_nobodys(world: &World, set: Option<&Value>) -> bool {
    set.is_some_and(|set| is_templated(set) && owned_projects(world, set).is_empty())
}

fn is_templated(set: &Value) -> bool {
    template_project(set).contains("{{")
}

/// The projects of the Applications that a set owns.
fn owned_projects(world: &World, set: &Value) -> Vec<String> {
    let uid = set["metadata"]["uid"].as_str().unwrap_or_default();
    let all = world.objects_of(Kind::Application).into_iter();
    let owned = all.filter(|(_, application)| owner_uids(application).contains(&uid));
    owned
        .map(|(_, application)| project_of(application).to_owned())
        .collect()
}

fn application_rights(effect: Effect<'_>, before: Option<&Value>) -> Vec<Right> {
    let right = |action: &'static str, project: &str| Right::new(Kind::Application, action, project);
    let Some(after) = effect.after else {
        return before
            .map(|before| right("delete", project_of(before)))
            .into_iter()
            .collect();
    };
    let project = project_of(after);
    let changes = |pointer: &str| field(before, pointer) != field(Some(after), pointer);
    let mut rights = Vec::new();
    match before.map(project_of) {
        None => rights.push(right("create", project)),
        Some(earlier) if earlier != project => {
            rights.extend([
                right("update", earlier),
                right("create", project),
                right("update", project),
            ]);
        }
        Some(earlier) => {
            let metadata = ["labels", "annotations", "finalizers", "ownerReferences"];
            let mut pointers = metadata
                .iter()
                .map(|field| format!("/metadata/{field}"))
                .chain(["/spec".to_owned()]);
            if pointers.any(|pointer| changes(&pointer)) || other_status(before) != other_status(Some(after)) {
                rights.push(right("update", earlier));
            }
        }
    }
    if changes("/operation") || changes("/status/operationState") {
        rights.push(right("sync", project));
    }
    rights
}

/// The status without what is about operations.
fn other_status(application: Option<&Value>) -> Value {
    let mut status = application
        .map(|application| application["status"].clone())
        .unwrap_or_default();
    if let Some(members) = status.as_object_mut() {
        members.remove("operationState");
    }
    status
}

/// Who answers for each part after a write.
fn origins(world: &World, effect: Effect<'_>, stored: Option<&Stored>) -> BTreeMap<&'static str, Responsible> {
    let before = stored.map(|stored| &stored.object);
    let mut origins = BTreeMap::new();
    for (part, pointer) in PARTS {
        let kept = stored.filter(|_| field(before, pointer) == field(effect.after, pointer));
        let origin = match (kept, stored) {
            (Some(kept), _) => kept.origins[part].clone(),
            // The controller copies the operation to where it says what it does.
            (None, Some(stored)) if part == "operationState" && effect.responsible.is_system() => {
                stored.origins["operation"].clone()
            }
            (None, _) => effect.responsible.clone(),
        };
        origins.insert(part, origin);
    }
    let by_label = world.settings.by_label;
    let [earlier, later] = [before, effect.after].map(|object| claim(by_label, object?));
    let origin = match stored {
        Some(stored) if earlier == later => stored.origins[CLAIM].clone(),
        _ => effect.responsible.clone(),
    };
    origins.insert(CLAIM, origin);
    origins
}

/// Whether the operation that can start is one that those may start who answer for it.
///
/// Source: Argo CD, `processRequestedAppOperation`: while an operation runs, the one in the status
/// counts, regardless of `operation`.
fn check_operation(world: &World, application: &Value, origins: &BTreeMap<&str, Responsible>) -> Result<(), Excess> {
    let Some(started) = field(Some(application), "/operation") else {
        return Ok(());
    };
    let project = project_of(application);
    let sync = Right::new(Kind::Application, "sync", project);
    check(world, &origins["operation"], std::slice::from_ref(&sync))?;
    let state = &application["status"]["operationState"];
    let (content, origin) = match state["phase"] == "Running" {
        true => (&state["operation"], &origins["operationState"]),
        false => (started, &origins["operation"]),
    };
    if overrides(world, application, content) {
        let needed = [sync.clone(), Right::new(Kind::Application, "override", project)];
        check(world, origin, &needed)?;
    }
    for party in &origin.0 {
        // What is done as an Application is the Application's, also by its account itself.
        let [Entity::Person(user)] = &party[..] else { continue };
        if is_account_of_parent(world, user, &sync) {
            continue;
        }
        let by = &content["initiatedBy"];
        let name = by["username"].as_str().unwrap_or_default();
        if by["automated"] == true || !(name.is_empty() || name == *user) {
            return Err(Excess {
                who: (*user).to_owned(),
                missing: "start an operation as somebody else".to_owned(),
                in_projects: by.to_string(),
            });
        }
    }
    Ok(())
}

/// Whether an operation does more than its Application says.
fn overrides(world: &World, application: &Value, operation: &Value) -> bool {
    let sync = &operation["sync"];
    let brings = ["manifests", "source", "sources"]
        .iter()
        .any(|part| !sync[part].is_null());
    let target = &application["spec"]["source"]["targetRevision"];
    let revision = &sync["revision"];
    let other_revision = !revision.is_null() && revision != "" && revision != target;
    brings || (world.settings.strict_revisions && other_revision)
}
