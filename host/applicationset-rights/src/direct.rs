//! Authorizes a single Application that is written past this API: by kubectl, or by Argo CD's
//! ApplicationSet controller for the author of a set.
//!
//! Writing it needs what the same write needs in Argo CD's API: `create`, `update` or `delete`, both
//! `create` and `update` in a project that it moves to, and `sync` to start or end an operation, also
//! `override` for one with its own sources or manifests. The project must permit what is new about it.
//!
//! Argo CD's controller also takes the content of a sync from `status.operationState`, and argocd-server
//! that of a rollback from `status.history`, so writing there needs the same as the operation.
//!
//! Security: only a caller with the permissions learns what a project permits.
//!
//! Source: Argo CD, `server/application`, `validateAndUpdateApp`, `Sync` and `resolveSourceRevisions`;
//! `controller`, `processRequestedAppOperation`.

use serde_json::Value;

use crate::SetAuthorizer;
use crate::application::{ApplicationFields, read};
use crate::error::{Error, RefusalList};
use crate::finding::{Finding, record_check};
use crate::placement::PlacementChecker;
use tollgate_applicationset::DeniedResource;
use tollgate_core::dns::is_subdomain;
use tollgate_front::set_list::project_of;
use tollgate_objects::ObjectName;
use tollgate_proxy::record::CheckRecord;

const RESOURCE: &str = "applications";

/// The parts of an operation that take manifests from elsewhere than the Application says.
pub const OVERRIDES: [&str; 3] = ["manifests", "source", "sources"];

/// Key of `argocd-cm`: whether a sync to another revision than the Application's needs `override`.
const REVISION_OVERRIDES: &str = "application.sync.requireOverridePrivilegeForRevisionSync";

/// Where sources of later operations are taken from.
const RECORDED_SOURCES: [&str; 2] = ["/status/history", "/status/sourceHydrator"];

const STATE: &str = "/status/operationState";

/// Whether a revision that the Application does not name needs `override`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OtherRevisions {
    Sync,
    Override,
}

/// An Application before and after a write. At least one of the two is there.
#[derive(Clone, Copy, Debug)]
pub struct WrittenApplication<'a> {
    /// Its name.
    pub name: &'a ObjectName,
    /// `None` if it is created.
    pub before: Option<&'a Value>,
    /// `None` if it is deleted.
    pub after: Option<&'a Value>,
    /// Whether it gets the tracking id of another Application, which may delete it from then on.
    pub is_given_away: bool,
}

impl WrittenApplication<'_> {
    /// Whether a field differs, by its JSON pointer. One that is null is absent.
    pub(crate) fn changes(&self, pointer: &str) -> bool {
        let [before, after] = [self.before, self.after].map(|object| {
            let field = object.and_then(|object| object.pointer(pointer));
            field.filter(|field| !field.is_null())
        });
        before != after
    }

    /// Whether anything differs that is not about an operation.
    fn changes_definition(&self) -> bool {
        // The rest of `metadata`, such as `managedFields` and `generation`, differs after every write: the API server
        // maintains it.
        [
            "/spec",
            "/status",
            "/metadata/labels",
            "/metadata/annotations",
            "/metadata/finalizers",
            "/metadata/ownerReferences",
        ]
        .iter()
        .any(|pointer| self.changes(pointer))
    }

    /// The actions that the write needs, and the project of each.
    fn actions(&self, revisions: OtherRevisions) -> Vec<(&'static str, String)> {
        let before = self.before.map(project_of).map(str::to_owned);
        let after = self.after.map(project_of).map(str::to_owned);
        let mut actions = Vec::new();
        match (before, &after) {
            (None, None) => {}
            (None, Some(project)) => actions.push(("create", project.clone())),
            (Some(project), None) => actions.push(("delete", project)),
            (Some(before), Some(after)) if before != *after => {
                actions.extend([("update", before), ("create", after.clone()), ("update", after.clone())]);
            }
            (Some(before), Some(_)) if self.changes_definition() => actions.push(("update", before)),
            (Some(_), Some(_)) => {}
        }
        let Some(project) = after else {
            return actions;
        };
        // Kubernetes deletes what belongs to an owner that is gone, and Argo CD what an Application tracks
        // that its repository does not have.
        if self.before.is_some() && (self.is_given_away || self.adds_owner()) {
            actions.push(("delete", project.clone()));
        }
        let records = RECORDED_SOURCES.iter().any(|pointer| self.changes(pointer));
        if self.changes("/operation") || self.changes(STATE) || records {
            actions.push(("sync", project.clone()));
        }
        let is_override = self.changes("/operation") && self.overrides("/operation/sync", revisions)
            // To end an operation, argocd-server asks for `sync` alone, even if that operation overrides sources.
            || self.changes(STATE) && !self.terminates() && self.overrides(OPERATION_OF_STATE, revisions);
        if records || is_override {
            actions.push(("override", project));
        }
        actions
    }

    fn adds_owner(&self) -> bool {
        let owners = |object: Option<&Value>| -> Vec<Value> {
            let listed = object.and_then(|object| object.pointer("/metadata/ownerReferences")?.as_array());
            listed.cloned().unwrap_or_default()
        };
        let before = owners(self.before);
        owners(self.after).iter().any(|owner| !before.contains(owner))
    }

    /// Whether the running operation only ends.
    fn terminates(&self) -> bool {
        let [before, after] = [self.before, self.after].map(|object| object.and_then(|object| object.pointer(STATE)));
        let (Some(Value::Object(before)), Some(Value::Object(after))) = (before, after) else {
            return false;
        };
        // The whole state is compared: a write that also replaces what is synced does more than end the operation.
        let mut ended = before.clone();
        ended.insert("phase".to_owned(), "Terminating".into());
        ended == *after
    }

    /// Whether the sync at this JSON pointer takes anything from elsewhere than the Application says.
    fn overrides(&self, sync: &str, revisions: OtherRevisions) -> bool {
        let Some((application, sync)) = self.after.and_then(|after| Some((after, after.pointer(sync)?))) else {
            return false;
        };
        let has = |part: &&str| sync.get(part).is_some_and(|part| !part.is_null());
        OVERRIDES.iter().any(has) || revisions == OtherRevisions::Override && has_other_revision(application, sync)
    }
}

/// Where the state of an operation has what is synced.
const OPERATION_OF_STATE: &str = "/status/operationState/operation/sync";

/// Whether a sync names a revision that is not the one of its source.
fn has_other_revision(application: &Value, sync: &Value) -> bool {
    let text = |pointer: &str| application.pointer(pointer).and_then(Value::as_str);
    let differs = |index: usize, revision: &Value| {
        let hydrated = text("/spec/sourceHydrator/syncSource/targetBranch");
        let listed = text(&format!("/spec/sources/{index}/targetRevision"));
        let single = text("/spec/source/targetRevision").filter(|_| index == 0);
        let target = hydrated.or(listed).or(single).filter(|target| !target.is_empty());
        let is_absent = revision.is_null() || revision == "";
        // Argo CD reads an empty `targetRevision` as `HEAD`.
        !is_absent && revision.as_str() != Some(target.unwrap_or("HEAD"))
    };
    let listed = sync.get("revisions").and_then(Value::as_array).into_iter().flatten();
    let mut listed = listed.enumerate();
    sync.get("revision").is_some_and(|revision| differs(0, revision))
        || listed.any(|(index, revision)| differs(index, revision))
}

impl SetAuthorizer<'_> {
    /// Authorizes the write of an Application. What was looked up goes into `checks`.
    ///
    /// # Errors
    /// `Error::Namespace`, or `Error::Refused` with every reason.
    pub fn authorize_application(
        &self,
        written: WrittenApplication<'_>,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<(), Error> {
        let mut refused = RefusalList::default();
        for (action, project) in written.actions(self.other_revisions()) {
            let object = self.object(&project, written.name);
            let lookup = self.lookup_permission(RESOURCE, action, object.clone());
            if !lookup.is_allowed() {
                Finding::missing(lookup.fact()).put(DeniedResource::Application(object), &mut refused);
            }
            record_check(checks, || lookup.into_check());
        }
        // An Application that its project permits no longer can still be labeled and refreshed.
        if let (Some(after), true) = (written.after, refused.is_empty() && written.changes("/spec")) {
            let object = self.object(project_of(after), written.name);
            for finding in self.definition_findings(written.name, after)? {
                finding.put(DeniedResource::Application(object.clone()), &mut refused);
            }
        }
        refused.finish().map_or(Ok(()), |refused| Err(Error::Refused(refused)))
    }

    /// Authorizes changes of an Application that are not known beforehand.
    ///
    /// # Errors
    /// `Error::Refused` with every reason.
    pub fn authorize_update(&self, name: &ObjectName, application: &Value) -> Result<(), Error> {
        let mut refused = RefusalList::default();
        let object = self.object(project_of(application), name);
        for action in ["update", "sync", "override"] {
            let lookup = self.lookup_permission(RESOURCE, action, object.clone());
            if !lookup.is_allowed() {
                Finding::missing(lookup.fact()).put(DeniedResource::Application(object.clone()), &mut refused);
            }
        }
        refused.finish().map_or(Ok(()), |refused| Err(Error::Refused(refused)))
    }

    /// What `argocd-cm` says, as Go reads booleans.
    fn other_revisions(&self) -> OtherRevisions {
        let setting = self.resources.argocd_cm.data.get(REVISION_OVERRIDES);
        match setting.map_or("", |setting| &*setting.value) {
            // A value that Go cannot parse counts as the stricter answer.
            "" | "0" | "f" | "F" | "false" | "False" | "FALSE" => OtherRevisions::Sync,
            _ => OtherRevisions::Override,
        }
    }

    fn definition_findings(&self, name: &ObjectName, application: &Value) -> Result<Vec<Finding>, Error> {
        self.namespace(&name.namespace)?;
        let fields = match check_shape(name, application) {
            Ok(fields) => fields,
            Err(wrong) => return Ok(vec![Finding::invalid(&wrong)]),
        };
        let verdict = PlacementChecker::new(self.resources, self.projects, &name.namespace).judge(&fields);
        Ok(verdict.findings.iter().map(|finding| (**finding).clone()).collect())
    }
}

fn check_shape<'a>(name: &ObjectName, application: &'a Value) -> Result<ApplicationFields<'a>, String> {
    let fields = read(application)?;
    match fields.name == name.name && is_subdomain(fields.name) {
        true => Ok(fields),
        false => Err("its name is not that of the object, or no name for an object".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{OtherRevisions, WrittenApplication};
    use tollgate_objects::ObjectName;

    fn actions(before: &Value, after: &Value) -> Vec<String> {
        actions_with(OtherRevisions::Sync, before, after)
    }

    fn actions_with(revisions: OtherRevisions, before: &Value, after: &Value) -> Vec<String> {
        let name = ObjectName {
            namespace: "argocd".to_owned(),
            name: "cart".to_owned(),
        };
        let written = WrittenApplication {
            name: &name,
            before: (!before.is_null()).then_some(before),
            after: (!after.is_null()).then_some(after),
            is_given_away: false,
        };
        let actions = written.actions(revisions).into_iter();
        actions.map(|(action, project)| format!("{action} {project}")).collect()
    }

    #[test]
    fn each_change_needs_the_permission_of_argocds_api() {
        let shop = json!({"spec": {"project": "shop"}});
        let other = json!({"spec": {"project": "other"}});
        let none = Value::Null;
        assert_eq!(actions(&none, &shop), ["create shop"]);
        assert_eq!(actions(&none, &json!({"spec": {}})), ["create default"]);
        assert_eq!(actions(&shop, &none), ["delete shop"]);
        assert_eq!(actions(&shop, &shop), [""; 0]);
        assert_eq!(actions(&shop, &other), ["update shop", "create other", "update other"]);
        for change in [
            json!({"spec": {"project": "shop", "source": {}}}),
            json!({"spec": {"project": "shop"}, "status": {"sync": {}}}),
            json!({"spec": {"project": "shop"}, "metadata": {"annotations": {"a": "b"}}}),
            json!({"spec": {"project": "shop"}, "metadata": {"finalizers": ["a"]}}),
        ] {
            assert_eq!(actions(&shop, &change), ["update shop"], "{change}");
        }
    }

    #[test]
    fn an_owner_that_may_be_gone_is_a_deletion() {
        let owned = |owners: Value| json!({"spec": {"project": "shop"}, "metadata": {"ownerReferences": owners}});
        let (one, none) = (owned(json!([{"uid": "1"}])), owned(json!([])));
        assert_eq!(actions(&none, &one), ["update shop", "delete shop"]);
        assert_eq!(actions(&one, &none), ["update shop"]);
        assert_eq!(actions(&Value::Null, &one), ["create shop"]);
    }

    #[test]
    fn what_a_sync_takes_its_content_from_is_an_operation() {
        let with = |status: Value| json!({"spec": {"project": "shop"}, "status": status});
        let state =
            |phase: &str, operation: Value| with(json!({"operationState": {"phase": phase, "operation": operation}}));
        let plain = state("Running", json!({"sync": {}}));
        let local = state("Running", json!({"sync": {"manifests": ["{}"]}}));
        assert_eq!(actions(&with(json!({})), &plain), ["update shop", "sync shop"]);
        assert_eq!(
            actions(&with(json!({})), &local),
            ["update shop", "sync shop", "override shop"]
        );
        assert_eq!(actions(&plain, &local), ["update shop", "sync shop", "override shop"]);
        // To end it is no more than argocd-server asks for.
        let ended = state("Terminating", json!({"sync": {"manifests": ["{}"]}}));
        assert_eq!(actions(&local, &ended), ["update shop", "sync shop"]);
        let again = state("Succeeded", json!({"sync": {"manifests": ["{}"]}}));
        assert_eq!(actions(&again, &local), ["update shop", "sync shop", "override shop"]);
        for recorded in [
            json!({"history": [{"source": {}}]}),
            json!({"sourceHydrator": {"currentOperation": {}}}),
        ] {
            assert_eq!(
                actions(&with(json!({})), &with(recorded.clone())),
                ["update shop", "sync shop", "override shop"],
                "{recorded}"
            );
        }
        assert_eq!(actions(&plain, &plain), [""; 0]);
        assert_eq!(
            actions(&with(json!({})), &with(json!({"sync": {"status": "Synced"}}))),
            ["update shop"]
        );
    }

    #[test]
    fn another_revision_is_an_override_if_argocd_says_so() {
        let sync = |spec: Value, sync: Value| {
            let [before, after] =
                [Value::Null, json!({"sync": sync})].map(|operation| json!({"spec": spec, "operation": operation}));
            actions_with(OtherRevisions::Override, &before, &after)
        };
        let single = |target: &str| json!({"project": "shop", "source": {"targetRevision": target}});
        let several = json!({"project": "shop", "sources": [{"targetRevision": "a"}, {}]});
        for (spec, revision) in [
            (single("v1"), json!({"revision": "v1"})),
            (single(""), json!({"revision": "HEAD"})),
            (single("v1"), json!({"revision": ""})),
            (several.clone(), json!({"revisions": ["a", "HEAD"]})),
            (several.clone(), json!({"revisions": ["", ""]})),
        ] {
            assert_eq!(sync(spec, revision.clone()), ["sync shop"], "{revision}");
        }
        for (spec, revision) in [
            (single("v1"), json!({"revision": "evil"})),
            (single(""), json!({"revision": "main"})),
            (several.clone(), json!({"revisions": ["a", "b"]})),
            (several, json!({"revisions": ["b"]})),
        ] {
            assert_eq!(
                sync(spec, revision.clone()),
                ["sync shop", "override shop"],
                "{revision}"
            );
        }
    }

    #[test]
    fn starting_or_ending_an_operation_is_a_sync() {
        let with = |operation: Value| json!({"spec": {"project": "shop"}, "operation": operation});
        let shop = json!({"spec": {"project": "shop"}});
        let sync = with(json!({"sync": {"revision": "HEAD"}}));
        assert_eq!(actions(&shop, &sync), ["sync shop"]);
        assert_eq!(actions(&Value::Null, &sync), ["create shop", "sync shop"]);
        assert_eq!(actions(&sync, &shop), ["sync shop"]);
        assert_eq!(actions(&sync, &sync), [""; 0]);
        assert_eq!(actions(&shop, &with(Value::Null)), [""; 0]);
        for part in ["manifests", "source", "sources"] {
            let operation = json!({"sync": {part: ["x"]}});
            assert_eq!(
                actions(&shop, &with(operation)),
                ["sync shop", "override shop"],
                "{part}"
            );
        }
    }
}
