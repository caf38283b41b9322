//! CustomResourceDefinitions: Argo CD's, of the release the tests pin, and Tollgate's.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::built;
use super::cluster::Cluster;
use crate::programs;

/// Files of all definitions a gateway reads objects of.
///
/// # Panics
/// Argo CD's are not there; the text has the command that fetches them.
pub fn files() -> Vec<PathBuf> {
    let root = crate::checkout();
    let folder = programs::crds(root).unwrap();
    let mut files: Vec<PathBuf> = programs::CRDS.iter().map(|name| built(folder.join(name))).collect();
    let own = root.join("deploy/kubernetes/crds");
    let entries = std::fs::read_dir(&own).map(|entries| entries.map(|entry| entry.unwrap().path()));
    let mut own: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .filter(|path| is_definition(path))
        .collect();
    own.sort();
    files.extend(own);
    files
}

/// A kustomization lies beside Tollgate's own.
fn is_definition(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".yaml") && name != "kustomization.yaml"
}

/// Installs all definitions and waits until their objects can be made.
///
/// Server-side: Argo CD's are longer than an annotation may be.
pub async fn install(cluster: &Cluster) {
    let files: Vec<String> = files()
        .iter()
        .map(|file| format!("--filename={}", file.display()))
        .collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let apply = [&["apply", "--server-side"][..], &files].concat();
    cluster.admin().succeed(&apply).await;
    let get = [&["get", "--output=json"][..], &files].concat();
    super::eventually("the definitions are established", async || {
        let said = cluster.admin().run(&get).await.stdout;
        let said: Value = serde_json::from_str(&said).ok()?;
        let established = |item: &Value| {
            let conditions = item["status"]["conditions"].as_array();
            let is = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
            conditions.is_some_and(|conditions| conditions.iter().any(is))
        };
        said["items"].as_array()?.iter().all(established).then_some(())
    })
    .await;
}
