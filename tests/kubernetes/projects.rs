//! Writes of AppProjects to a real API server: resource versions, field ownership, and that nothing
//! else changes.

use std::path::PathBuf;

use serde_json::{Value, json};
use tollgate_config::raw;
use tollgate_objects::ObjectName;
use tollgate_policy::account_entries as change;
use tollgate_state::write::batch::{Propagation, Write};
use tollgate_state::write::{Error, ObjectKey, StoredObject, WritableKind, Writer};

use test_support::kubernetes::cluster::Cluster;

/// A namespace of a cluster, and settings that read the state from it.
struct State {
    cluster: &'static Cluster,
    namespace: String,
    folder: tempfile::TempDir,
}

impl State {
    async fn new() -> Self {
        let cluster = Cluster::shared().await.with_crds().await;
        let namespace = cluster.namespace("projects").await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("policies")).unwrap();
        let settings = json!({
            "listen": "127.0.0.1:0",
            "state": {"namespace": namespace, "kubernetes": {"kubeconfig": cluster.admin().kubeconfig()}},
            "policies": {"directory": "policies"},
            "authentication": {"argocdSessions": true},
        });
        std::fs::write(folder.path().join("tollgate.yaml"), settings.to_string()).unwrap();
        Self {
            cluster,
            namespace,
            folder,
        }
    }

    fn settings(&self) -> PathBuf {
        self.folder.path().join("tollgate.yaml")
    }

    /// Applies a project as the field manager `manager`.
    async fn apply(&self, name: &str, spec: Value, manager: &str) {
        let object = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec,
        });
        let manager = format!("--field-manager={manager}");
        let apply = ["apply", "--server-side", manager.as_str(), "--filename=-"];
        let run = self.cluster.admin().run_with(&apply, &object.to_string()).await;
        assert!(run.status.success(), "{run:?}");
    }

    async fn get(&self, name: &str) -> Value {
        let namespace = format!("--namespace={}", self.namespace);
        let get = [
            "get",
            "appproject",
            name,
            namespace.as_str(),
            "--show-managed-fields",
            "--output=json",
        ];
        self.cluster.admin().json(&get).await
    }

    /// Runs `tollgate project …`. Returns the exit code and standard error.
    async fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command
            .arg("project")
            .args(arguments)
            .arg("--config")
            .arg(self.settings());
        let output = command.output().await.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey {
            kind: WritableKind::AppProject,
            name: ObjectName {
                namespace: self.namespace.clone(),
                name: name.to_owned(),
            },
        }
    }
}

fn entry(account: &str) -> Value {
    json!({"server": format!("https://{account}"), "namespace": "guestbook", "defaultServiceAccount": account})
}

#[tokio::test]
async fn concurrent_commands_lose_nothing_and_change_nothing_else() {
    let state = State::new().await;
    let spec = json!({"description": "Shop", "destinations": [{"server": "*", "namespace": "*"}]});
    state.apply("shop", spec.clone(), "gitops").await;
    let runs = ["a", "b", "c"].map(|account| {
        let server = format!("https://{account}");
        let state = &state;
        async move {
            state
                .run(&["add-destination-service-account", "shop", &server, "guestbook", account])
                .await
        }
    });
    for (code, error) in futures_util::future::join_all(runs).await {
        assert_eq!(code, Some(0), "{error}");
    }
    let stored = state.get("shop").await;
    let mut entries = stored["spec"]["destinationServiceAccounts"].as_array().unwrap().clone();
    entries.sort_by_key(ToString::to_string);
    assert_eq!(entries, ["a", "b", "c"].map(entry));
    let mut rest = stored["spec"].clone();
    rest.as_object_mut().unwrap().remove("destinationServiceAccounts");
    assert_eq!(rest, spec);
    // The gateway owns the field it wrote, and the other manager the rest.
    let managers = stored["metadata"]["managedFields"].as_array().unwrap().clone();
    let of = |name: &str| managers.iter().find(|entry| entry["manager"] == name).unwrap().clone();
    let own = json!({"f:spec": {"f:destinationServiceAccounts": {}}});
    assert_eq!(of("tollgate")["fieldsV1"], own);
    assert!(of("gitops")["fieldsV1"]["f:spec"]["f:description"].is_object());

    let (code, error) = state
        .run(&[
            "remove-destination-service-account",
            "shop",
            "https://b",
            "guestbook",
            "b",
        ])
        .await;
    assert_eq!(code, Some(0), "{error}");
    let (code, error) = state
        .run(&[
            "remove-destination-service-account",
            "shop",
            "https://b",
            "guestbook",
            "b",
        ])
        .await;
    let text = "tollgate: project.absent: specified destination service account does not exist in project\n";
    assert_eq!((code, error.as_str()), (Some(1), text));
    let left = state.get("shop").await["spec"]["destinationServiceAccounts"]
        .as_array()
        .map(Vec::len);
    assert_eq!(left, Some(2));
}

#[tokio::test]
async fn the_api_server_accepts_one_of_two_writes_of_a_version() {
    let state = State::new().await;
    state.apply("shop", json!({}), "gitops").await;
    let config = raw::load(&state.settings()).value.unwrap();
    let writer = Writer::open(&config).await.unwrap();
    let key = state.key("shop");
    let stored = writer.read(&key).await.unwrap();
    let wanted = |account: &str| {
        let entry = change::Entry {
            server: "*".to_owned(),
            namespace: "*".to_owned(),
            account: account.to_owned(),
        };
        change::add(&stored.object, &entry).unwrap()
    };
    let (one, other) = tokio::join!(
        writer.replace(&key, wanted("a"), &stored.version),
        writer.replace(&key, wanted("b"), &stored.version),
    );
    let (won, lost) = match (one, other) {
        (Ok(won), Err(lost)) | (Err(lost), Ok(won)) => (won, lost),
        both => panic!("{both:?}"),
    };
    assert!(matches!(lost, Error::Conflict { .. }), "{lost}");
    assert_ne!(won.version, stored.version);
    assert_eq!(writer.read(&key).await.unwrap(), won);
    // A deletion checks the version too.
    let delete = |before: &StoredObject| Write::Delete {
        key: key.clone(),
        before: before.object.clone(),
        propagation: Propagation::default(),
    };
    let failed = writer.batch(vec![delete(&stored)]).await.unwrap_err();
    assert!(matches!(failed.error, Error::Conflict { .. }), "{failed}");
    let create = Write::Create {
        key: key.clone(),
        object: won.object.clone(),
    };
    let exists = writer.batch(vec![create]).await.unwrap_err();
    assert!(matches!(exists.error, Error::AlreadyExists(_)), "{exists}");
    // The cluster refuses what the definition does not allow.
    let mut wrong = won.object.clone();
    wrong["spec"]["destinationServiceAccounts"] = json!([{"server": 1}]);
    let error = writer.replace(&key, wrong, &won.version).await.unwrap_err();
    assert!(matches!(error, Error::Cluster { status: 422, .. }), "{error}");
    writer.batch(vec![delete(&won)]).await.unwrap();
    assert!(matches!(writer.read(&key).await, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn entries_of_another_field_manager_are_not_changed() {
    let state = State::new().await;
    let spec = json!({"destinationServiceAccounts": [entry("a")]});
    state.apply("shop", spec.clone(), "gitops").await;
    let (code, error) = state
        .run(&["add-destination-service-account", "shop", "*", "*", "b"])
        .await;
    let named = "tollgate: managed_elsewhere: AppProject `shop` is managed by somebody else: `gitops`\n";
    assert_eq!((code, error.as_str()), (Some(1), named));
    assert_eq!(state.get("shop").await["spec"], spec);
}
