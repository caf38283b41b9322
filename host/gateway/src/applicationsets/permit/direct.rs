//! Authorizes a single Application that is written past this API: by kubectl, or by Argo CD's
//! ApplicationSet controller for the author of a set.
//!
//! Writing it needs what the same write needs in Argo CD's API: `create`, `update` or `delete`, both
//! `create` and `update` in a project that it moves to, and `sync` to start or end an operation, also
//! `override` for one with sources or manifests of its own. The project must permit what is new about it.
//!
//! Security: only a caller with the permissions learns what a project permits.
//!
//! Source: Argo CD, `server/application`, `validateAndUpdateApp` and `Sync`.

use serde_json::Value;

use crate::applicationsets::permit::SetAuthorizer;
use crate::applicationsets::permit::application::{ApplicationFields, project_of, read};
use crate::applicationsets::permit::error::{Error, RefusalList};
use crate::applicationsets::permit::finding::{Finding, record_check};
use crate::applicationsets::permit::placement::PlacementChecker;
use tollgate_applicationset::DeniedResource;
use tollgate_core::dns::is_subdomain;
use tollgate_proxy::record::CheckRecord;
use tollgate_state::ObjectName;

const RESOURCE: &str = "applications";

/// The parts of an operation that take manifests from elsewhere than the Application says.
const OVERRIDES: [&str; 3] = ["manifests", "source", "sources"];

/// An Application before and after a write. One of the two is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenApplication<'a> {
    pub(crate) name: &'a ObjectName,
    /// `None` if it is created.
    pub(crate) before: Option<&'a Value>,
    /// `None` if it is deleted.
    pub(crate) after: Option<&'a Value>,
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
    fn actions(&self) -> Vec<(&'static str, String)> {
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
        if let Some(project) = after.filter(|_| self.changes("/operation")) {
            actions.push(("sync", project.clone()));
            let started = self.after.and_then(|after| after.pointer("/operation/sync"));
            let overrides = |part: &&str| {
                started
                    .and_then(|sync| sync.get(part))
                    .is_some_and(|part| !part.is_null())
            };
            if OVERRIDES.iter().any(overrides) {
                actions.push(("override", project));
            }
        }
        actions
    }
}

impl SetAuthorizer<'_> {
    /// Authorizes the write of an Application. What was looked up goes into `checks`.
    ///
    /// # Errors
    /// `Error::Namespace`, or `Error::Refused` with every reason.
    pub(crate) fn authorize_application(
        &self,
        written: WrittenApplication<'_>,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<(), Error> {
        let mut refused = RefusalList::default();
        for (action, project) in written.actions() {
            let object = self.object(&project, written.name);
            let lookup = self.lookup_permission(RESOURCE, action, object.clone());
            if !lookup.is_allowed() {
                Finding::missing(lookup.fact()).put(DeniedResource::Application(object), &mut refused);
            }
            record_check(checks, || lookup.into_check());
        }
        if let (Some(after), true) = (written.after, refused.is_empty() && written.changes("/spec")) {
            let object = self.object(project_of(after), written.name);
            for finding in self.definition_findings(written.name, after)? {
                finding.put(DeniedResource::Application(object.clone()), &mut refused);
            }
        }
        refused.finish().map_or(Ok(()), |refused| Err(Error::Refused(refused)))
    }

    /// What is wrong with the definition of an Application.
    fn definition_findings(&self, name: &ObjectName, application: &Value) -> Result<Vec<Finding>, Error> {
        self.namespace(&name.namespace)?;
        let fields = match check_shape(name, application) {
            Ok(fields) => fields,
            Err(wrong) => return Ok(vec![Finding::invalid(&wrong)]),
        };
        let verdict = PlacementChecker::new((self.resources, self.projects), &name.namespace).judge(&fields);
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

    use super::WrittenApplication;
    use tollgate_state::ObjectName;

    fn actions(before: &Value, after: &Value) -> Vec<String> {
        let name = ObjectName {
            namespace: "argocd".to_owned(),
            name: "cart".to_owned(),
        };
        let written = WrittenApplication {
            name: &name,
            before: (!before.is_null()).then_some(before),
            after: (!after.is_null()).then_some(after),
        };
        let actions = written.actions().into_iter();
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
            json!({"spec": {"project": "shop"}, "metadata": {"ownerReferences": [{}]}}),
        ] {
            assert_eq!(actions(&shop, &change), ["update shop"], "{change}");
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
