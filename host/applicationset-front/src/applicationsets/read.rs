//! Gets and lists the ApplicationSets the caller may see.
//!
//! Security: sets of namespaces that are not permitted are never read.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::applicationsets::request::{Error, Query};
use crate::applicationsets::{ApplicationSetHandler, ReadScope, checks};
use tollgate_applicationset::plan::StoredState;
use tollgate_applicationset::selector::Selector;
use tollgate_applicationset_rights::{Operation, SetOperation, annotated_projects, labels};
use tollgate_config::ApplicationSetChecks;
use tollgate_front::Denial;
use tollgate_front::api::object_list;
use tollgate_front::policies::Policies;
use tollgate_front::set_list::{OwnedApplication, SetEntry, SetList, is_templated, project_text};
use tollgate_objects::ObjectName;
use tollgate_proxy::record::Stage;
use tollgate_state::write::WritableKind;

impl ApplicationSetHandler<'_, '_> {
    pub(super) async fn list(&mut self, query: &Query) -> Result<Value, Denial> {
        let selector = Selector::parse(&query.selector).map_err(Error::Selector)?;
        let mut found: Vec<(ObjectName, Value)> = Vec::new();
        let owned_applications = OwnedApplications::of(&self.snapshot.policies);
        let none = BTreeSet::new();
        for namespace in self.namespaces(&query.namespace)? {
            // SECURITY: nothing is read from a namespace for a caller who may see no set in it.
            if !self.sees_any(&namespace, owned_applications)? {
                continue;
            }
            self.ensure_reader()?;
            let _permit = self.front_state.acquire_bulk_read(self.patience()).await?;
            let authorizer = self.authorizer()?;
            let is_shown = |set: &Value| {
                let name = name_of(set, &namespace);
                let cached = self.cached(&name);
                let written = cached.applications.as_deref();
                let owned = written.or_else(|| owned_applications.get(&name)).unwrap_or(&none);
                authorizer.may_get(&name, set, owned)
                    && selector.matches(&labels(set))
                    && is_in_projects(set, owned, &query.projects)
            };
            let shown = self.writer.select(WritableKind::ApplicationSet, &namespace, &is_shown);
            let shown = shown.await.map_err(Error::State)?.into_iter();
            found.extend(shown.map(|one| (name_of(&one.object, &namespace), one.object)));
        }
        self.record.finish_stage(Stage::Authorize);
        found.sort_by(|(a, _), (b, _)| (&a.name, &a.namespace).cmp(&(&b.name, &b.namespace)));
        let sets = found.into_iter().map(|(_, set)| set).collect();
        Ok(argocd_list(sets))
    }

    pub(super) async fn get(&mut self, query: &Query) -> Result<Value, Denial> {
        let (name, existing) = self.read_visible(query, ReadScope::Projects).await?;
        existing.set.ok_or_else(|| Error::not_found(&name).into())
    }

    /// Reads a set, if the caller may see it. Whether it exists is left to check.
    pub(super) async fn read_visible(
        &mut self,
        query: &Query,
        scope: ReadScope,
    ) -> Result<(ObjectName, StoredState), Denial> {
        let name = self.object_name(query);
        let set_operation = SetOperation {
            operation: Operation::Get,
            name: &name,
            sent: None,
        };
        let existing = self.read_existing(set_operation, scope).await?;
        self.authorize_operation(Operation::Get, &name, None, &existing)?;
        Ok((name, existing))
    }

    /// Returns its Applications.
    ///
    /// Argo CD's controller records them in the set's status. If it does not run, or has not seen
    /// an Application yet, the Applications themselves name their owner.
    pub(super) async fn tree(&mut self, query: &Query) -> Result<Value, Denial> {
        let (name, existing) = self.read_visible(query, ReadScope::Owned).await?;
        let set = existing.set.as_ref().ok_or_else(|| Error::not_found(&name))?;
        let parent = json!([{
            "group": "argoproj.io", "version": "v1alpha1", "kind": "ApplicationSet",
            "namespace": name.namespace, "name": name.name,
            "uid": set.pointer("/metadata/uid").cloned().unwrap_or_else(|| json!("")),
        }]);
        let node = |[group, version, kind]: [&str; 3], own: &str| {
            json!({
                "group": group, "version": version, "kind": kind,
                "namespace": name.namespace, "name": own, "parentRefs": parent,
            })
        };
        let mut nodes: BTreeMap<String, Value> = BTreeMap::new();
        let recorded = set.pointer("/status/resources").and_then(Value::as_array);
        for resource in recorded.into_iter().flatten() {
            let text = |key: &str| resource.get(key).and_then(Value::as_str).unwrap_or_default();
            let mut node = node([text("group"), text("version"), text("kind")], text("name"));
            put(&mut node, "health", resource.get("health"));
            nodes.insert(text("name").to_owned(), node);
        }
        for application in existing.owned(&name) {
            let own = application.pointer("/metadata/name").and_then(Value::as_str);
            let own = own.unwrap_or_default();
            let mut node = node(["argoproj.io", "v1alpha1", "Application"], own);
            put(&mut node, "uid", application.pointer("/metadata/uid"));
            put(&mut node, "health", application.pointer("/status/health"));
            nodes.insert(own.to_owned(), node);
        }
        Ok(json!({ "nodes": nodes.into_values().collect::<Vec<_>>() }))
    }

    /// The namespaces in which to look for sets: the requested one, or else all.
    fn namespaces(&self, namespace: &str) -> Result<BTreeSet<String>, Denial> {
        let authorizer = self.authorizer()?;
        if !namespace.is_empty() {
            // As in Argo CD, the list of a namespace that is not permitted is empty.
            let permitted = authorizer.namespace(namespace).is_ok();
            return Ok(permitted.then(|| namespace.to_owned()).into_iter().collect());
        }
        let control_plane = self.snapshot.policies.config.control_plane_namespace.clone();
        let sets = self.snapshot.policies.resources.application_sets.keys();
        let others = sets
            .map(|name| &name.namespace)
            .filter(|one| authorizer.namespace(one).is_ok());
        let mut all: BTreeSet<String> = others.cloned().collect();
        all.insert(control_plane);
        Ok(all)
    }

    /// Whether the namespace could have a set that the caller may see, by what the snapshot knows.
    fn sees_any(&self, namespace: &str, owned: OwnedApplications<'_>) -> Result<bool, Denial> {
        // The snapshot has no sets of this namespace, so only what is stored can tell.
        if !self.is_watched(namespace) {
            return Ok(true);
        }
        let authorizer = self.authorizer()?;
        let sets = &self.snapshot.policies.resources.application_sets;
        let mut here = sets.iter().filter(|(name, _)| name.namespace == namespace);
        let none = BTreeSet::new();
        let sees = here.any(|(name, set)| authorizer.may_get(name, set, owned.get(name).unwrap_or(&none)));
        Ok(sees || self.front_state.recent_writes.has_written(namespace))
    }
}

/// The list as argocd-server has it: a version from which a watch goes on, and items without
/// `apiVersion` and `kind`.
///
/// The version is that of the newest set in it. What changes later has a newer one.
fn argocd_list(mut sets: Vec<Value>) -> Value {
    let version = |set: &Value| set.pointer("/metadata/resourceVersion")?.as_str()?.parse::<u64>().ok();
    let newest = sets.iter().filter_map(version).max().unwrap_or_default();
    for members in sets.iter_mut().filter_map(Value::as_object_mut) {
        members.remove("apiVersion");
        members.remove("kind");
    }
    let mut list = object_list(WritableKind::ApplicationSet, sets);
    put(
        &mut list,
        "metadata",
        Some(&json!({ "resourceVersion": newest.to_string() })),
    );
    list
}

/// The Applications of sets whose permissions depend on them, in the state in force.
#[derive(Clone, Copy)]
pub(super) struct OwnedApplications<'a>(Option<&'a SetList>);

impl<'a> OwnedApplications<'a> {
    pub(super) fn of(policies: &'a Policies) -> Self {
        Self(match checks(policies) {
            ApplicationSetChecks::Generated => Some(&policies.sets),
            ApplicationSetChecks::Argocd => None,
        })
    }

    pub(super) fn get(self, name: &ObjectName) -> Option<&'a BTreeSet<OwnedApplication>> {
        self.0?.find(name).map(SetEntry::owned)
    }
}

pub(super) fn name_of(set: &Value, namespace: &str) -> ObjectName {
    let text = |pointer: &str| set.pointer(pointer).and_then(Value::as_str);
    let own = text("/metadata/namespace").filter(|own| !own.is_empty());
    ObjectName {
        namespace: own.unwrap_or(namespace).to_owned(),
        name: text("/metadata/name").unwrap_or_default().to_owned(),
    }
}

/// Whether a set is in one of the projects. With no projects, every set is.
///
/// - `owned`: its Applications, where they are known.
pub(super) fn is_in_projects(set: &Value, owned: &BTreeSet<OwnedApplication>, projects: &[String]) -> bool {
    let project = project_text(set);
    let requested = |project: &str| projects.iter().any(|requested| requested == project);
    let mut rendered = annotated_projects(set).chain(owned.iter().map(|one| one.project.as_str()));
    projects.is_empty() || requested(project) || (is_templated(project) && rendered.any(requested))
}

pub(super) fn put(node: &mut Value, key: &str, value: Option<&Value>) {
    if let (Some(members), Some(value)) = (node.as_object_mut(), value) {
        members.insert(key.to_owned(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::{argocd_list, is_in_projects, labels, name_of};
    use tollgate_front::set_list::OwnedApplication;

    use tollgate_applicationset::plan::PROJECTS_ANNOTATION;

    #[test]
    fn sets_are_filtered_by_the_projects_of_template_or_applications() {
        let none = BTreeSet::new();
        let owned = |project: &str| {
            let (project, name) = (project.to_owned(), "a".to_owned());
            BTreeSet::from([OwnedApplication { project, name }])
        };
        let plain = json!({"spec": {"template": {"spec": {"project": "dev"}}}});
        let dev = vec!["dev".to_owned(), "qa".to_owned()];
        assert!(is_in_projects(&plain, &none, &[]));
        assert!(is_in_projects(&plain, &none, &dev));
        assert!(!is_in_projects(&plain, &owned("prod"), &["prod".to_owned()]));
        let templated = json!({
            "metadata": {"annotations": {PROJECTS_ANNOTATION: "prod,qa"}},
            "spec": {"template": {"spec": {"project": "{{p}}"}}},
        });
        assert!(is_in_projects(&templated, &none, &dev));
        assert!(!is_in_projects(&templated, &none, &["dev".to_owned()]));
        assert!(is_in_projects(&templated, &owned("dev"), &["dev".to_owned()]));
    }

    #[test]
    fn lists_have_the_version_of_their_newest_set() {
        let set = |version: &str| {
            json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
                "metadata": {"name": "a", "resourceVersion": version}, "spec": {},
            })
        };
        let list = argocd_list(vec![set("9"), set("10"), set("7")]);
        assert_eq!(list["metadata"], json!({"resourceVersion": "10"}));
        assert_eq!(
            list["items"][0],
            json!({"metadata": {"name": "a", "resourceVersion": "9"}, "spec": {}})
        );
        // A folder has no versions in order; a watch from `0` has every event.
        assert_eq!(
            argocd_list(vec![set("d41d8cd9")])["metadata"],
            json!({"resourceVersion": "0"})
        );
        assert_eq!(argocd_list(Vec::new())["items"], json!([]));
    }

    #[test]
    fn names_and_labels_are_read() {
        let set = json!({"metadata": {"name": "a", "labels": {"x": "1", "y": 2}}});
        let name = name_of(&set, "argocd");
        assert_eq!((name.namespace.as_str(), name.name.as_str()), ("argocd", "a"));
        assert_eq!(
            labels(&set).into_iter().collect::<Vec<_>>(),
            [("x".to_owned(), "1".to_owned())]
        );
    }
}
