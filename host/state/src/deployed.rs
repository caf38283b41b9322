//! Reads which kinds of objects Applications have deployed, from the status that Argo CD writes.
//!
//! The gateway decides nothing by it and does not keep it; commands read it where the state is stored.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::write::{Error, WritableKind, Writer};
use tollgate_objects::ObjectName;

/// A kind of objects that an Application has deployed to a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct DeployedKind {
    /// Namespace of the objects; empty for objects of the cluster itself.
    pub namespace: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
}

/// The kinds that each Application of these namespaces has deployed. An Application that was never
/// synced has none; hooks are in no status.
///
/// # Errors
/// As [`Writer::list`].
pub async fn deployed_kinds(
    writer: &Writer,
    namespaces: &BTreeSet<&str>,
) -> Result<BTreeMap<ObjectName, BTreeSet<DeployedKind>>, Error> {
    let mut found = BTreeMap::new();
    for namespace in namespaces {
        let mut read = |object: &Value| {
            if let Some(name) = object.pointer("/metadata/name").and_then(Value::as_str) {
                let name = ObjectName {
                    namespace: (*namespace).to_owned(),
                    name: name.to_owned(),
                };
                found.insert(name, kinds(object));
            }
        };
        writer.visit(WritableKind::Application, namespace, &mut read).await?;
    }
    Ok(found)
}

/// Source: Argo CD, `ResourceStatus` of `status.resources`.
fn kinds(application: &Value) -> BTreeSet<DeployedKind> {
    let resources = application.pointer("/status/resources").and_then(Value::as_array);
    let text = |resource: &Value, key: &str| resource.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let kinds = resources.into_iter().flatten().map(|resource| DeployedKind {
        namespace: text(resource, "namespace"),
        group: text(resource, "group"),
        kind: text(resource, "kind"),
    });
    kinds.filter(|kind| !kind.kind.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{DeployedKind, deployed_kinds};
    use crate::write::{FolderWriter, Writer};
    use tollgate_objects::ObjectName;

    const APPLICATIONS: &str = "apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: cart, namespace: argocd}
spec: {}
status:
  resources:
  - {group: apps, version: v1, kind: Deployment, namespace: shop, name: a}
  - {group: apps, version: v1, kind: Deployment, namespace: shop, name: b}
  - {version: v1, kind: Namespace, name: shop}
  - {version: v1, name: of-no-kind}
  - 7
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: new, namespace: argocd}
spec: {}
---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: elsewhere, namespace: elsewhere}
spec: {}
status: {resources: [{version: v1, kind: Secret, namespace: a, name: b}]}
";

    #[tokio::test]
    async fn the_kinds_of_each_application_of_the_namespaces_are_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yaml"), APPLICATIONS).unwrap();
        let writer = Writer::Folder(FolderWriter::new(folder.path(), "argocd"));
        let found = deployed_kinds(&writer, &BTreeSet::from(["argocd"])).await.unwrap();
        let name = |name: &str| ObjectName {
            namespace: "argocd".to_owned(),
            name: name.to_owned(),
        };
        let kind = |namespace: &str, group: &str, kind: &str| DeployedKind {
            namespace: namespace.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
        };
        let cart = BTreeSet::from([kind("shop", "apps", "Deployment"), kind("", "", "Namespace")]);
        let expected = [(name("cart"), cart), (name("new"), BTreeSet::new())];
        assert_eq!(found, expected.into());
    }
}
