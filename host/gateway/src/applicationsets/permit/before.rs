//! Judges a request before anything is generated. The result is [`SetPermit`], which only this file
//! makes, or all reasons to refuse at once.
//!
//! Security: no generator runs for a caller who could have none of what it generates.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::applicationsets::permit::application::project_of;
use crate::applicationsets::permit::error::{Error, FindingKind, RefusalCollector};
use crate::applicationsets::permit::judge::{Finding, record_check};
use crate::applicationsets::permit::rights::{is_templated, needs, or_default, project_text, stored_projects};
use crate::applicationsets::permit::{Desk, Operation, SetPermit, SetRequest};
use tollgate_applicationset::{InputAuthorizer, Refusal, RefusedResource};
use tollgate_policy::applications::is_app_namespace_permitted;
use tollgate_policy::rbac::object_name;
use tollgate_policy::rego::ApplicationSetFacts;
use tollgate_proxy::record::CheckRecord;

/// A placeholder nobody reads: the gate replaces it with the kind.
const GUESTS: &str = "plugin";

/// What follows from the request.
struct RequestFacts<'a> {
    /// The set it is about: as sent, or else as stored.
    set: &'a Value,
    project: &'a str,
    /// Projects of the set as sent, if they are known.
    sent: BTreeSet<String>,
    stored: BTreeSet<String>,
    /// Whether the stored set is one the caller may not see.
    hidden: bool,
    facts: ApplicationSetFacts,
}

impl Desk<'_> {
    /// [`Desk::authorize_operation`] for [`tollgate_config::ApplicationSetChecks::Generated`].
    pub(super) fn authorize_natively(
        &self,
        asked: &SetRequest<'_>,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<SetPermit, Error> {
        let operation = match (asked.operation, asked.stored) {
            (Operation::Upsert | Operation::CreateUnchanged, None) => Operation::Create,
            (operation, _) => operation,
        };
        let ground = self.request_facts(operation, asked)?;
        let mut collected = RefusalCollector::default();
        let needed = needs(operation, &ground.sent, &ground.stored);
        let about = (asked.name, &ground.facts, ground.hidden);
        self.judge_set(about, &needed, checks, &mut collected)?;
        let is_refused = !collected.is_empty();
        match operation {
            // SECURITY: the answer is the same for a set that does not exist and one that the
            // caller may not see.
            Operation::Get | Operation::Update | Operation::Delete if is_refused && ground.hidden => {
                return Err(not_visible(asked));
            }
            Operation::Create if !is_refused && asked.stored.is_some() => return Err(Error::Exists),
            Operation::Get
            | Operation::CreateUnchanged
            | Operation::Update
            | Operation::Delete
            | Operation::Create
            | Operation::Upsert
            | Operation::Preview => {}
        }
        if !is_refused {
            self.project_takes(operation, asked, &ground, &mut collected)?;
        }
        if !ground.hidden {
            self.owned_rights(operation, asked, checks, &mut collected);
        }
        let mut cleared = self.cleared(operation, asked, &ground);
        let nondeterminism = self.nondeterminism(asked, checks);
        match operation {
            // A preview lists what would refuse the write.
            Operation::Preview => cleared.nondeterminism = nondeterminism,
            Operation::Create | Operation::Upsert | Operation::Update => {
                for finding in nondeterminism {
                    finding.put(
                        RefusedResource::Set(self.object(ground.project, asked.name)),
                        &mut collected,
                    );
                }
            }
            Operation::Get | Operation::CreateUnchanged | Operation::Delete => {}
        }
        self.reads(asked, &cleared, &mut collected);
        self.any_set(operation, asked, &ground, &mut collected);
        self.any_application(operation, asked, &ground, &mut collected);
        match collected.finish() {
            Some(refused) => Err(Error::Refused(refused)),
            None => Ok(cleared),
        }
    }

    fn request_facts<'b>(&self, operation: Operation, asked: &SetRequest<'b>) -> Result<RequestFacts<'b>, Error> {
        let sent = asked.sent.map(|sent| &sent.object);
        let set = match operation {
            Operation::Get | Operation::Delete => asked.stored,
            Operation::Update if asked.stored.is_none() => None,
            Operation::Update
            | Operation::Create
            | Operation::CreateUnchanged
            | Operation::Upsert
            | Operation::Preview => sent,
        };
        let set = set.ok_or_else(|| not_visible(asked))?;
        let owned = || asked.owned.iter().map(|application| project_of(application));
        let stored = asked.stored.map(|stored| stored_projects(stored, owned()));
        let hidden = asked
            .stored
            .is_some_and(|stored| !self.sees(asked.name, stored, owned()));
        let stored = stored.unwrap_or_default();
        let project = project_text(set);
        let sent = match (sent, is_templated(project)) {
            (Some(_), false) => BTreeSet::from([or_default(project).to_owned()]),
            (Some(_), true) | (None, _) => BTreeSet::new(),
        };
        let known = if sent.is_empty() { &stored } else { &sent };
        Ok(RequestFacts {
            facts: self.facts(operation, asked.name, set, known),
            set,
            project,
            sent,
            stored,
            hidden,
        })
    }

    /// Whether the set's project exists and accepts sets of the namespace.
    fn project_takes(
        &self,
        operation: Operation,
        asked: &SetRequest<'_>,
        ground: &RequestFacts<'_>,
        collected: &mut RefusalCollector,
    ) -> Result<(), Error> {
        match operation {
            Operation::Get | Operation::CreateUnchanged | Operation::Delete => return Ok(()),
            Operation::Create | Operation::Upsert | Operation::Update | Operation::Preview => {}
        }
        for name in &ground.sent {
            let Some(project) = self.resources.projects.get(name) else {
                return Err(Error::UnknownProject { project: name.clone() });
            };
            if !is_app_namespace_permitted(project, self.control_plane_namespace, &asked.name.namespace) {
                let rule = format!("sourceNamespaces of project `{name}`");
                let reason = format!(
                    "namespace '{}' is not permitted to use project '{name}'",
                    asked.name.namespace
                );
                let about = RefusedResource::Set(self.object(name, asked.name));
                Finding::new(FindingKind::Permission, Some(rule), reason).put(about, collected);
            }
        }
        Ok(())
    }

    /// The rights on every Application that the stored set owns.
    fn owned_rights(
        &self,
        operation: Operation,
        asked: &SetRequest<'_>,
        checks: &mut Vec<CheckRecord>,
        collected: &mut RefusalCollector,
    ) {
        let actions: &[&'static str] = match operation {
            Operation::Upsert | Operation::Update => &["create", "update", "delete"],
            Operation::Delete => &["delete"],
            Operation::Get | Operation::CreateUnchanged | Operation::Create | Operation::Preview => &[],
        };
        let objects: Vec<String> = asked
            .owned
            .iter()
            .map(|application| self.object_of(application))
            .collect();
        let mut missing: Vec<Vec<Finding>> = objects.iter().map(|_| Vec::new()).collect();
        for action in actions {
            let texts = objects.iter().map(String::as_str);
            let verdicts = self.rbac.decide_each(&self.caller.roles, "applications", action, texts);
            let judged = objects.iter().zip(&mut missing).zip(verdicts);
            for ((object, missing), _) in judged.filter(|(_, verdict)| !verdict.is_allowed()) {
                let lookup = self.lookup_permission("applications", action, object.clone());
                missing.push(Finding::missing(lookup.fact()));
                record_check(checks, || lookup.into_check());
            }
        }
        for (object, findings) in objects.iter().zip(missing) {
            for finding in findings {
                finding.put(RefusedResource::Application(object.clone()), collected);
            }
        }
    }

    fn object_of(&self, application: &Value) -> String {
        let text = |path: &str| application.pointer(path).and_then(Value::as_str).unwrap_or_default();
        object_name(
            self.control_plane_namespace,
            project_of(application),
            text("/metadata/namespace"),
            text("/metadata/name"),
        )
    }

    fn cleared(&self, operation: Operation, asked: &SetRequest<'_>, ground: &RequestFacts<'_>) -> SetPermit {
        let name_of = |application: &&Value| {
            let name = application.pointer("/metadata/name").and_then(Value::as_str);
            name.map(str::to_owned)
        };
        SetPermit {
            operation,
            name: asked.name.clone(),
            project: ground.project.to_owned(),
            stored_projects: ground.stored.clone(),
            owned: asked.owned.iter().filter_map(name_of).collect(),
            facts: ground.facts.clone(),
            guests: self.guests(operation, asked, ground),
            nondeterminism: Vec::new(),
        }
    }

    /// Generators in plugins use secrets of the control plane to query other systems, so a caller
    /// who may only look cannot run them.
    fn guests(&self, operation: Operation, asked: &SetRequest<'_>, ground: &RequestFacts<'_>) -> Result<(), Refusal> {
        match operation {
            Operation::Create | Operation::Upsert | Operation::Update => return Ok(()),
            Operation::Get | Operation::CreateUnchanged | Operation::Delete | Operation::Preview => {}
        }
        let object = self.object(ground.project, asked.name);
        let lookup = self.lookup_permission("applicationsets", "create", object);
        if lookup.is_allowed() {
            return Ok(());
        }
        Err(Finding::missing(lookup.fact()).refusal(RefusedResource::Generator(GUESTS)))
    }

    fn reads(&self, asked: &SetRequest<'_>, cleared: &SetPermit, collected: &mut RefusalCollector) {
        let gate = self.gate(cleared);
        let repositories = asked.reads.repositories.iter().map(|url| gate.repository(url));
        let clusters = asked.reads.clusters.iter().map(|cluster| gate.cluster(cluster));
        let guests = asked.reads.guests.iter().map(|kind| gate.guest(*kind));
        for refusal in repositories.chain(clusters).chain(guests).filter_map(Result::err) {
            collected.push(FindingKind::Permission, refusal);
        }
    }

    /// If the projects of a set are known only after generation: whether the caller may have any
    /// set at all.
    fn any_set(
        &self,
        operation: Operation,
        asked: &SetRequest<'_>,
        ground: &RequestFacts<'_>,
        collected: &mut RefusalCollector,
    ) {
        let actions: &[&str] = match operation {
            Operation::Preview => &["preview", "create"],
            Operation::Create | Operation::Upsert => &["create"],
            Operation::Update => &["update"],
            Operation::Get | Operation::CreateUnchanged | Operation::Delete => return,
        };
        if !is_templated(ground.project) {
            return;
        }
        let could = |action: &&str| self.rbac.could(&self.caller.roles, ["applicationsets", action], "");
        if !actions.iter().any(could) {
            let reason = format!(
                "`applicationsets, {}` is not permitted in any project",
                actions.join(" or ")
            );
            let about = RefusedResource::Set(self.object(ground.project, asked.name));
            Finding::new(FindingKind::Permission, None, reason).put(about, collected);
        }
    }

    /// Generators cost time and query other systems, so a caller who could have none of the
    /// Applications cannot run them.
    fn any_application(
        &self,
        operation: Operation,
        asked: &SetRequest<'_>,
        ground: &RequestFacts<'_>,
        collected: &mut RefusalCollector,
    ) {
        let actions: &[&str] = match operation {
            Operation::Create => &["create"],
            Operation::Upsert | Operation::Update => &["create", "update"],
            Operation::Get | Operation::CreateUnchanged | Operation::Delete | Operation::Preview => return,
        };
        let generators = ground.set.pointer("/spec/generators").and_then(Value::as_array);
        if generators.is_none_or(Vec::is_empty) {
            return;
        }
        let prefix = match (is_templated(ground.project), has_own_templates(ground.set)) {
            (false, false) => object_name(self.control_plane_namespace, ground.project, &asked.name.namespace, ""),
            (true, _) | (_, true) => String::new(),
        };
        let could = |action: &&str| self.rbac.could(&self.caller.roles, ["applications", action], &prefix);
        if !actions.iter().any(could) {
            let wanted = actions.join(" or ");
            let reason = format!("it could generate no Application that you may {wanted}");
            let about = RefusedResource::Set(self.object(ground.project, asked.name));
            Finding::new(FindingKind::Permission, None, reason).put(about, collected);
        }
    }
}

fn not_visible(asked: &SetRequest<'_>) -> Error {
    Error::NotVisible {
        name: asked.name.clone(),
    }
}

/// Whether a generator has a template of its own, which may name another project.
fn has_own_templates(set: &Value) -> bool {
    let mut left: Vec<&Value> = set.pointer("/spec/generators").into_iter().collect();
    // Generators nest two deep: list, entry, settings, three times.
    for _ in 0..9 {
        let mut below = Vec::new();
        for value in left {
            match value {
                Value::Array(items) => below.extend(items),
                Value::Object(fields) => {
                    if fields.contains_key("template") {
                        return true;
                    }
                    below.extend(fields.values());
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        left = below;
    }
    false
}
