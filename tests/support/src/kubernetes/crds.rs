//! The CustomResourceDefinitions of Tollgate, and of the Argo CD release that the tests pin.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::built;
use super::cluster::Cluster;
use crate::programs;

/// The files of all definitions whose objects a gateway reads.
///
/// # Panics
/// If those of Argo CD are missing. The text has the command that fetches them.
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

/// Whether a file is a definition. Their folder also has a kustomization.
fn is_definition(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.ends_with(".yaml") && name != "kustomization.yaml"
}

/// Installs all definitions and waits until they are established.
///
/// It applies them on the server side, because those of Argo CD exceed the size limit of the
/// annotation that client-side apply writes.
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
        let output = cluster.admin().run(&get).await.stdout;
        let list: Value = serde_json::from_str(&output).ok()?;
        let established = |item: &Value| {
            let conditions = item["status"]["conditions"].as_array();
            let is = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
            conditions.is_some_and(|conditions| conditions.iter().any(is))
        };
        list["items"].as_array()?.iter().all(established).then_some(())
    })
    .await;
}
