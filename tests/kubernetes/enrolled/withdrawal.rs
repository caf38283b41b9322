//! What Argo CD's components have open ends when a change takes away what permits it, and nothing
//! else does.

use serde_json::{Value, json};

use super::{COMPONENT, OWN, Scene, credential, project};
use test_support::kubernetes::eventually;
use test_support::kubernetes::kubectl::Running;

/// What is open, in the order of [`Open`].
const KINDS: [&str; 3] = ["a watch as the reader", "a watch as an account", "a terminal"];

struct Open([Running; 3]);

impl Scene {
    async fn open(&self) -> Open {
        let namespace = format!("--namespace={}", self.home);
        let deployer = format!("--as={}", Self::account(&self.home, "deployer"));
        let component = self.kubectl(COMPONENT);
        let watch = ["get", "configmaps", "--watch-only", "--output=name", &namespace];
        let reader = component.start(&watch);
        let account = component.start(&[&watch[..], &[&deployer]].concat());
        let mut terminal = component.start(&["exec", "-i", &namespace, "pod", "--", "sh", "-c", "echo begun; cat"]);
        assert!(terminal.line("begun").await.is_some());
        self.until_watches(2).await;
        Open([reader, account, terminal])
    }

    /// An object that the gateway started with, by kind and name, changed.
    pub(super) fn changed(&self, kind: &str, name: &str, change: impl FnOnce(&mut Value)) -> Value {
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        let mut object = self.objects.iter().find(is_it).unwrap().clone();
        change(&mut object);
        object
    }
}

/// Applies a change, and checks which of [`KINDS`] end.
async fn check(change: impl AsyncFnOnce(&Scene), ends: [bool; 3]) {
    check_in(&Scene::start().await, change, ends).await;
}

/// The same in a scene that began already.
pub(super) async fn check_in(scene: &Scene, change: impl AsyncFnOnce(&Scene), ends: [bool; 3]) {
    check_ends(scene, change, ends).await;
    let expected = ends.iter().filter(|ends| **ends).count();
    eventually("the records of what ended", async || {
        let records = scene.gateway.decisions();
        let ended = records
            .iter()
            .filter(|record| record["ended"]["reason"] == "access_withdrawn");
        (ended.count() == expected).then_some(())
    })
    .await;
}

/// The same, regardless of the records.
pub(super) async fn check_ends(scene: &Scene, change: impl AsyncFnOnce(&Scene), ends: [bool; 3]) {
    scene.pod_of_application().await;
    let namespace = format!("--namespace={}", scene.home);
    let Open(mut open) = scene.open().await;
    change(scene).await;
    for ((running, ends), kind) in open.iter_mut().zip(ends).zip(KINDS) {
        if ends {
            assert!(running.line("no such line").await.is_none(), "{kind} goes on");
        }
    }
    // What goes on still carries something.
    let create = ["create", "configmap", "later", &namespace];
    scene.cluster.admin().succeed(&create).await;
    let [reader, account, terminal] = &mut open;
    for (running, index) in [(reader, 0), (account, 1)] {
        if !ends[index] {
            assert!(running.line("later").await.is_some(), "{} ended", KINDS[index]);
        }
    }
    if !ends[2] {
        terminal.say("still there\n").await;
        assert!(terminal.line("still there").await.is_some(), "{} ended", KINDS[2]);
    }
}

pub(super) const ALL: [bool; 3] = [true; 3];
/// All but the watch as the reader.
pub(super) const OF_ACCOUNT: [bool; 3] = [false, true, true];

#[tokio::test]
async fn everything_ends_with_the_session_of_the_component() {
    let disable = async |scene: &Scene| {
        scene.gateway.rewrite(&scene.changed("ConfigMap", "argocd-cm", |map| {
            map["data"][format!("accounts.{COMPONENT}.enabled")] = "false".into();
        }));
    };
    let rotate = async |scene: &Scene| {
        scene
            .gateway
            .rewrite(&scene.changed("Secret", "argocd-secret", |secret| {
                secret["stringData"]["server.secretkey"] = "another-key-only-tests-know-0123456789".into();
            }));
    };
    tokio::join!(check(disable, ALL), check(rotate, ALL));
}

#[tokio::test]
async fn everything_ends_when_the_cluster_is_enrolled_no_more() {
    let release = async |scene: &Scene| {
        scene
            .gateway
            .rewrite(&scene.changed("Secret", "cluster-destination", |secret| {
                secret["stringData"]["config"] = json!({"bearerToken": "unused"}).to_string().into();
            }));
    };
    let take_credential = async |scene: &Scene| {
        let mut own = credential(OWN, scene.cluster.url(), "unused", scene.cluster.authority());
        own["metadata"]["labels"] = json!({});
        scene.gateway.rewrite(&own);
    };
    tokio::join!(check(release, ALL), check(take_credential, ALL));
}

#[tokio::test]
async fn what_acts_as_an_account_ends_when_the_account_acts_no_more() {
    let rename = async |scene: &Scene| {
        scene
            .gateway
            .rewrite(&project("shop", scene.cluster.url(), &scene.home, "another"));
    };
    let narrow = async |scene: &Scene| {
        scene.gateway.rewrite(&scene.changed("AppProject", "shop", |project| {
            project["spec"]["destinations"] = json!([{"server": "*", "namespace": "elsewhere"}]);
        }));
    };
    let move_away = async |scene: &Scene| {
        scene
            .gateway
            .rewrite(&scene.changed("Application", "shop", |application| {
                application["spec"]["destination"]["server"] = "https://elsewhere.invalid".into();
            }));
    };
    tokio::join!(
        check(rename, OF_ACCOUNT),
        check(narrow, OF_ACCOUNT),
        check(move_away, OF_ACCOUNT),
    );
}

/// The terminal is of one Application, and the account of another one may go on.
#[tokio::test]
async fn a_terminal_ends_when_its_project_permits_pods_no_more() {
    let forbid_pods = async |scene: &Scene| {
        scene.gateway.rewrite(&scene.changed("AppProject", "shop", |project| {
            project["spec"]["namespaceResourceBlacklist"] = json!([{"group": "", "kind": "Pod"}]);
        }));
    };
    let track_by_label = async |scene: &Scene| {
        scene.gateway.rewrite(&scene.changed("ConfigMap", "argocd-cm", |map| {
            map["data"]["application.resourceTrackingMethod"] = "label".into();
        }));
    };
    tokio::join!(
        check(forbid_pods, [false, false, true]),
        check(track_by_label, [false, false, true]),
    );
}

#[tokio::test]
async fn what_a_changed_policy_refuses_ends() {
    let refuse = async |scene: &Scene| {
        let path = scene.gateway.path("policies/controlplane/policy.rego");
        let shipped = std::fs::read_to_string(&path).unwrap();
        let rule = "deny contains \"no maps\" if input.request.resource == \"configmaps\"";
        std::fs::write(path, format!("{shipped}\n{rule}\n")).unwrap();
    };
    check(refuse, [true, true, false]).await;
}
