//! Authorizes a request before anything is generated. The result is a [`SetPermit`], which only
//! this file and `argocd` make, or all reasons to refuse at once.
//!
//! Security: no generator runs for a caller who could have none of what it generates.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::{Error, FindingKind, RefusalList};
use crate::finding::{Finding, record_check};
use crate::inherited::has_own_templates;
use crate::permissions::{JudgedSet, required_permissions, stored_projects};
use crate::placement::refused_namespace;
use crate::{Operation, SetAuthorizer, SetPermit, SetRequest};
use tollgate_applicationset::{Denial, DeniedResource, InputAuthorizer};
use tollgate_config::ApplicationSetPermissions;
use tollgate_front::set_list::{OwnedApplication, is_templated, or_default, project_of, project_text};
use tollgate_policy::rbac::object_name;
use tollgate_proxy::record::CheckRecord;
use tollgate_rego::ApplicationSetFacts;

/// A placeholder: `CallerInputAuthorizer` replaces it with the kind.
const PLUGIN: &str = "plugin";

struct RequestFacts<'a> {
    request: SetRequest<'a>,
    /// That of the request; a creation if there is nothing to change.
    operation: Operation,
    /// The set as it was sent, or else as it is stored.
    set: &'a Value,
    project: &'a str,
    /// Projects of the set as sent, if they are known.
    sent: BTreeSet<String>,
    stored: BTreeSet<String>,
    /// The stored set's Applications.
    owned: BTreeSet<OwnedApplication>,
    /// Whether the stored set is one the caller may not see.
    hidden: bool,
    facts: ApplicationSetFacts,
}

impl SetAuthorizer<'_> {
    /// [`SetAuthorizer::authorize_operation`] for [`tollgate_config::ApplicationSetChecks::Generated`].
    pub(super) fn authorize_natively(
        &self,
        request: &SetRequest<'_>,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<SetPermit, Error> {
        let operation = match (request.operation, request.stored) {
            (Operation::Upsert | Operation::CreateUnchanged, None) => Operation::Create,
            (operation, _) => operation,
        };
        let facts = self.request_facts(operation, *request)?;
        let mut collector = RefusalList::default();
        self.check_set(&facts, checks, &mut collector)?;
        // Taken now: only the rights on the set itself choose between 404 and the reasons that are found below.
        let is_refused = !collector.is_empty();
        match operation {
            // SECURITY: the error is the same for a set that does not exist and one that the
            // caller may not see.
            Operation::Get | Operation::Update | Operation::Delete if is_refused && facts.hidden => {
                return Err(not_visible(request));
            }
            // After the permissions, so that only a caller who may create a set of this name learns that it is taken.
            Operation::Create if !is_refused && request.stored.is_some() => return Err(Error::Exists),
            Operation::Get
            | Operation::CreateUnchanged
            | Operation::Update
            | Operation::Delete
            | Operation::Create
            | Operation::Upsert
            | Operation::Preview => {}
        }
        // SECURITY: only a caller with the rights on the set learns which projects exist.
        if !is_refused {
            self.check_project(&facts, &mut collector)?;
        }
        // SECURITY: these refusals name the stored set's Applications. `judge_plan` checks the same rights in any case.
        if !facts.hidden {
            self.check_owned(&facts, checks, &mut collector);
        }
        let mut permit = self.permit(&facts);
        let nondeterminism = self.nondeterminism(request, checks);
        match operation {
            // A preview lists what would refuse the write.
            Operation::Preview => {
                permit.nondeterminism = nondeterminism;
                permit.nondeterminism.extend(self.doubt(&facts));
            }
            Operation::Create | Operation::Upsert | Operation::Update => {
                for finding in nondeterminism.into_iter().chain(self.doubt(&facts)) {
                    finding.put(self.about_set(&facts), &mut collector);
                }
            }
            Operation::Get | Operation::CreateUnchanged | Operation::Delete => {}
        }
        self.check_inputs(request, &permit, &mut collector);
        if self.settings.permissions == ApplicationSetPermissions::Own {
            self.check_any_set(&facts, &mut collector);
        }
        // With inherited permissions `check_set` made this check already. The list drops equal refusals.
        self.check_any_application(&facts, &mut collector);
        match collector.finish() {
            Some(refused) => Err(Error::Refused(refused)),
            None => Ok(permit),
        }
    }

    fn check_set(
        &self,
        facts: &RequestFacts<'_>,
        checks: &mut Vec<CheckRecord>,
        collector: &mut RefusalList,
    ) -> Result<(), Error> {
        let set = JudgedSet {
            name: facts.request.name,
            facts: &facts.facts,
            hidden: facts.hidden,
        };
        match self.settings.permissions {
            ApplicationSetPermissions::Own => {
                let required = required_permissions(facts.operation, &facts.sent, &facts.stored);
                self.judge_set(set, &required, checks, collector)
            }
            ApplicationSetPermissions::Inherited => {
                // SECURITY: a caller who could create nothing does not learn which names are taken.
                self.check_any_application(facts, collector);
                let stored = facts.request.stored.map(|stored| (stored, &facts.owned));
                self.judge_inherited(facts.operation, set, stored, checks, collector)
            }
        }
    }

    /// The finding for a set with inherited permissions whose Applications can become others.
    fn doubt(&self, facts: &RequestFacts<'_>) -> Option<Finding> {
        match self.settings.permissions {
            ApplicationSetPermissions::Own => None,
            ApplicationSetPermissions::Inherited => self.changing_applications(facts.request.name, facts.set),
        }
    }

    fn request_facts<'b>(&self, operation: Operation, request: SetRequest<'b>) -> Result<RequestFacts<'b>, Error> {
        let sent = request.sent.map(|sent| &sent.object);
        let set = match operation {
            Operation::Get | Operation::Delete => request.stored,
            // A `PUT` has nothing to replace then. The answer is that of a hidden set.
            Operation::Update if request.stored.is_none() => None,
            Operation::Update
            | Operation::Create
            | Operation::CreateUnchanged
            | Operation::Upsert
            | Operation::Preview => sent,
        };
        let set = set.ok_or_else(|| not_visible(&request))?;
        let owned = || request.owned.iter().map(|application| project_of(application));
        let stored = request.stored.map(|stored| stored_projects(stored, owned()));
        let owned_applications = request
            .owned
            .iter()
            .map(|one| OwnedApplication::of_stored(one))
            .collect();
        let hidden = request
            .stored
            .is_some_and(|stored| !self.sees(request.name, stored, &owned_applications));
        let stored = stored.unwrap_or_default();
        let project = project_text(set);
        let sent = match (sent, is_templated(project)) {
            (Some(_), false) => BTreeSet::from([or_default(project).to_owned()]),
            (Some(_), true) | (None, _) => BTreeSet::new(),
        };
        let projects = if sent.is_empty() { &stored } else { &sent };
        Ok(RequestFacts {
            request,
            operation,
            facts: self.facts(operation, request.name, set, projects),
            set,
            project,
            sent,
            stored,
            owned: owned_applications,
            hidden,
        })
    }

    /// Checks whether the set's project exists and accepts sets of the namespace.
    fn check_project(&self, facts: &RequestFacts<'_>, collector: &mut RefusalList) -> Result<(), Error> {
        let namespace = &facts.request.name.namespace;
        match facts.operation {
            // A set whose project is gone can still be read and deleted.
            Operation::Get | Operation::CreateUnchanged | Operation::Delete => return Ok(()),
            Operation::Create | Operation::Upsert | Operation::Update | Operation::Preview => {}
        }
        for name in &facts.sent {
            let Some(project) = self.projects.find(name) else {
                return Err(Error::UnknownProject(name.clone()));
            };
            if let Some(finding) = refused_namespace(project, self.control_plane_namespace, namespace) {
                let about = DeniedResource::Set(self.object(name, facts.request.name));
                finding.put(about, collector);
            }
        }
        Ok(())
    }

    /// Checks the permissions on the stored set's Applications, unless those on the set were them.
    fn check_owned(&self, facts: &RequestFacts<'_>, checks: &mut Vec<CheckRecord>, collector: &mut RefusalList) {
        if self.settings.permissions == ApplicationSetPermissions::Inherited {
            return;
        }
        let actions: &[&'static str] = match facts.operation {
            Operation::Upsert | Operation::Update => &["create", "update", "delete"],
            Operation::Delete => &["delete"],
            Operation::Get | Operation::CreateUnchanged | Operation::Create | Operation::Preview => &[],
        };
        let owned = facts.request.owned.iter();
        let objects: Vec<String> = owned.map(|application| self.object_of(application)).collect();
        let mut missing: Vec<Vec<Finding>> = objects.iter().map(|_| Vec::new()).collect();
        for action in actions {
            let texts = objects.iter().map(String::as_str);
            // All verdicts at once, which is cheap. Only the denied ones are looked up again, for the texts of their
            // rows.
            let verdicts = self.rbac.decide_each(&self.caller.roles, "applications", action, texts);
            let checked = objects.iter().zip(&mut missing).zip(verdicts);
            for ((object, missing), _) in checked.filter(|(_, verdict)| !verdict.is_allowed()) {
                let lookup = self.lookup_permission("applications", action, object.clone());
                missing.push(Finding::missing(lookup.fact()));
                record_check(checks, || lookup.into_check());
            }
        }
        // The lookups were by action. The answer lists the refusals by Application.
        for (object, findings) in objects.iter().zip(missing) {
            for finding in findings {
                finding.put(DeniedResource::Application(object.clone()), collector);
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

    fn permit(&self, facts: &RequestFacts<'_>) -> SetPermit {
        let name_of = |application: &&Value| {
            let name = application.pointer("/metadata/name").and_then(Value::as_str);
            name.map(str::to_owned)
        };
        SetPermit {
            operation: facts.operation,
            name: facts.request.name.clone(),
            project: facts.project.to_owned(),
            stored_projects: facts.stored.clone(),
            owned: facts.request.owned.iter().filter_map(name_of).collect(),
            facts: facts.facts.clone(),
            plugin_access: self.plugin_access(facts),
            nondeterminism: Vec::new(),
            possible_applications: self.possible_applications(facts.request.name, facts.set),
        }
    }

    /// Generators in plugins use secrets of the control plane to query other systems, so a caller
    /// who may only look cannot run them.
    fn plugin_access(&self, facts: &RequestFacts<'_>) -> Result<(), Denial> {
        match facts.operation {
            // Argo CD's controller runs the same generator once the set is written.
            Operation::Create | Operation::Upsert | Operation::Update => return Ok(()),
            Operation::Get | Operation::CreateUnchanged | Operation::Delete | Operation::Preview => {}
        }
        let lookup = match self.settings.permissions {
            ApplicationSetPermissions::Own => {
                let object = self.object(facts.project, facts.request.name);
                self.lookup_permission("applicationsets", "create", object)
            }
            ApplicationSetPermissions::Inherited => {
                let possible = self.possible_applications(facts.request.name, facts.set);
                let missing = self.denied_objects("create", &possible);
                let object = missing
                    .first()
                    .copied()
                    .or_else(|| possible.first().map(String::as_str));
                self.lookup_permission("applications", "create", object.unwrap_or_default().to_owned())
            }
        };
        if lookup.is_allowed() {
            return Ok(());
        }
        Err(Finding::missing(lookup.fact()).into_denial(DeniedResource::Generator(PLUGIN)))
    }

    fn check_inputs(&self, request: &SetRequest<'_>, permit: &SetPermit, collector: &mut RefusalList) {
        let authorizer = self.input_authorizer(permit);
        let reads = &request.reads;
        let repositories = reads.repositories.iter().map(|url| authorizer.check_repository(url));
        let clusters = reads.clusters.iter().map(|cluster| authorizer.check_cluster(cluster));
        let plugins = reads.plugin_kinds.iter().map(|kind| authorizer.check_plugin(*kind));
        for refusal in repositories.chain(clusters).chain(plugins).filter_map(Result::err) {
            collector.push(FindingKind::Permission, refusal);
        }
    }

    /// Checks whether the caller may have any set at all, if the projects of this one are known
    /// only after generation.
    fn check_any_set(&self, facts: &RequestFacts<'_>, collector: &mut RefusalList) {
        let actions: &[&str] = match facts.operation {
            Operation::Preview => &["preview", "create"],
            Operation::Create | Operation::Upsert => &["create"],
            Operation::Update => &["update"],
            Operation::Get | Operation::CreateUnchanged | Operation::Delete => return,
        };
        if is_templated(facts.project) && !self.may_any(actions, "applicationsets", "") {
            let any_action = actions.join(" or ");
            let reason = format!("`applicationsets, {any_action}` is not permitted in any project");
            Finding::denied(&reason).put(self.about_set(facts), collector);
        }
    }

    /// Generators cost time and query other systems, so a caller who could have none of the
    /// Applications cannot run them.
    fn check_any_application(&self, facts: &RequestFacts<'_>, collector: &mut RefusalList) {
        let is_inherited = self.settings.permissions == ApplicationSetPermissions::Inherited;
        let actions: &[&str] = match facts.operation {
            Operation::Create => &["create"],
            Operation::Preview if is_inherited => &["create"],
            Operation::Upsert | Operation::Update => &["create", "update"],
            Operation::Get | Operation::CreateUnchanged | Operation::Delete | Operation::Preview => return,
        };
        let generators = facts.set.pointer("/spec/generators").and_then(Value::as_array);
        // Nothing runs then. A set with inherited permissions still needs a right that stands for all that it could have.
        if generators.is_none_or(Vec::is_empty) && !is_inherited {
            return;
        }
        let namespace = &facts.request.name.namespace;
        let prefix = match (is_templated(facts.project), has_own_templates(facts.set)) {
            (false, false) => object_name(self.control_plane_namespace, facts.project, namespace, ""),
            (true, _) | (_, true) => String::new(),
        };
        if !self.may_any(actions, "applications", &prefix) {
            let any_action = actions.join(" or ");
            let reason = format!("it could generate no Application that you may {any_action}");
            Finding::denied(&reason).put(self.about_set(facts), collector);
        }
    }

    /// Whether the caller could have one of the actions on any object with a prefix.
    fn may_any(&self, actions: &[&str], resource: &str, prefix: &str) -> bool {
        let roles = &self.caller.roles;
        let mut actions = actions.iter();
        actions.any(|action| self.rbac.may_allow_prefix(roles, [resource, action], prefix))
    }

    fn about_set(&self, facts: &RequestFacts<'_>) -> DeniedResource {
        DeniedResource::Set(self.object(facts.project, facts.request.name))
    }
}

pub(super) fn not_visible(request: &SetRequest<'_>) -> Error {
    Error::NotVisible(request.name.clone())
}
