//! The client of the control plane's API server follows the files that it is made of.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use test_support::api_server::{Answer, Api, Seen};
use test_support::authority::{Authority, Pair};
use test_support::client::PATIENCE;
use tollgate_config::KubernetesState;
use tollgate_state::source::{KubernetesSource, Source as _};

/// Empty lists, and watches without events.
fn empty(_: &Seen) -> Answer {
    let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
    (
        200,
        vec![("content-type", "application/json".to_owned())],
        list.to_string(),
    )
}

fn write(folder: &Path, name: &str, text: &str) {
    // As Kubernetes and cert-manager do: a reader sees the old file or the new one.
    let new = folder.join(format!("{name}.new"));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, folder.join(name)).unwrap();
}

fn write_pair(folder: &Path, pair: &Pair) {
    write(folder, "client.crt", &pair.certificate);
    write(folder, "client.key", &pair.key);
}

fn kubeconfig(server: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": "ca.crt"}}],
        "users": [{"name": "u", "user": {"client-certificate": "client.crt", "client-key": "client.key"}}],
    })
    .to_string()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_presented_and_a_broken_file_changes_nothing() {
    let (expired, trusted) = (Authority::new("expired"), Authority::new("trusted"));
    let api = Api::with_clients(Some(&trusted), empty).await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, "ca.crt", &api.ca_pem);
    write_pair(folder, &expired.client("tollgate", None));
    write(folder, "kubeconfig", &kubeconfig(&api.url()));
    let settings = KubernetesState {
        kubeconfig: Some(folder.join("kubeconfig")),
        ..KubernetesState::default()
    };
    let source = KubernetesSource::start(settings, "argocd", PATIENCE);
    until("the server refuses the certificate", || {
        let missing = source.missing();
        source.certificate_end().is_some() && missing.iter().any(|one| one.message.contains("cannot be"))
    })
    .await;
    assert_eq!(api.seen().len(), 0);

    write_pair(folder, &trusted.client("tollgate", None));
    until("the new certificate is presented", || source.missing().is_empty()).await;
    assert!(api.seen().iter().all(|seen| seen.certified));

    write(folder, "kubeconfig", "broken");
    until("the file is reported", || {
        let health = source.health();
        health
            .iter()
            .any(|one| one.message.contains("the client that was made before stays"))
    })
    .await;
    assert!(source.missing().is_empty() && source.writer().is_ok());

    // Another server: what is watched there counts.
    let other = Api::with_clients(Some(&trusted), empty).await;
    write(folder, "ca.crt", &other.ca_pem);
    write(folder, "kubeconfig", &kubeconfig(&other.url()));
    until("the other server is watched", || !other.seen().is_empty()).await;
    until("the file is good", || {
        let health = source.health();
        !health
            .iter()
            .any(|one| one.message.contains("the client that was made before stays"))
    })
    .await;
}
