//! A cluster leaves nothing behind, no process, no folder; and without its
//! programs there is none.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;

/// Processes that have `word` in their command line.
fn processes(word: &str) -> Vec<String> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(word))
        .collect()
}

#[tokio::test]
async fn a_dropped_cluster_is_gone() {
    let cluster = Cluster::start().await;
    let (root, port) = (cluster.root().to_owned(), cluster.url().to_owned());
    assert_eq!(cluster.client().get(&port).send().await.unwrap().status(), 401);
    // A client without an open connection.
    let client = cluster.client();
    assert!(!processes(root.to_str().unwrap()).is_empty());

    drop(cluster);
    assert!(client.get(&port).send().await.unwrap_err().is_connect());
    assert!(!root.exists());
    ended(&root).await;
}

/// A test of this binary, with its shared cluster, in a process of its own.
fn alone() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "control_plane::the_administrator_sees_all_of_the_pinned_release",
    ]);
    command
}

fn run_alone(temporary: &Path) -> Child {
    alone()
        .env("TMPDIR", temporary)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until no process has a path below `folder` in its command line.
async fn ended(folder: &Path) {
    eventually("its processes have ended", async || {
        processes(folder.to_str().unwrap()).is_empty().then_some(())
    })
    .await;
}

/// Waits until nothing is left of a cluster below `temporary`.
async fn gone(temporary: &Path) {
    eventually("its folder is empty", async || {
        fs::read_dir(temporary).unwrap().next().is_none().then_some(())
    })
    .await;
    ended(temporary).await;
}

#[tokio::test]
async fn a_shared_cluster_ends_with_its_tests() {
    let temporary = tempfile::tempdir().unwrap();
    let mut tests = run_alone(temporary.path());
    let status = tokio::task::spawn_blocking(move || tests.wait()).await.unwrap();
    assert!(status.unwrap().success());
    gone(temporary.path()).await;
}

#[tokio::test]
async fn a_cluster_ends_when_its_tests_are_killed() {
    let temporary = tempfile::tempdir().unwrap();
    let mut tests = run_alone(temporary.path());
    eventually("the cluster serves somebody", async || {
        let root = fs::read_dir(temporary.path()).unwrap().next()?.unwrap().path();
        let log = fs::metadata(root.join("kube-apiserver/audit.log")).ok()?;
        (log.len() > 0).then_some(())
    })
    .await;
    assert!(!processes(temporary.path().to_str().unwrap()).is_empty());
    // SIGKILL: nothing of it runs any more.
    tests.kill().unwrap();
    tests.wait().unwrap();
    gone(temporary.path()).await;
}

#[test]
fn missing_programs_fail_a_test_and_name_the_remedy() {
    let empty = tempfile::tempdir().unwrap();
    let check = |variable: &str, remedy: &str| {
        let output = alone()
            .env_remove("KUBEBUILDER_ASSETS")
            .env(variable, empty.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{text}");
        for word in ["etcd, kube-apiserver, kubectl", empty.path().to_str().unwrap(), remedy] {
            assert!(text.contains(word), "no {word} in {text}");
        }
    };
    check("XDG_CACHE_HOME", "kubectl: run `cargo xtask kubernetes`");
    check("KUBEBUILDER_ASSETS", "kubectl: KUBEBUILDER_ASSETS names that folder");
}
