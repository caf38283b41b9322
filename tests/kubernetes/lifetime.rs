//! A test cluster leaves no process or folder behind, and does not start without its programs.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;

/// The command lines of processes that contain `word`.
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
    // A new client, which has no open connection.
    let client = cluster.client();
    assert!(!processes(root.to_str().unwrap()).is_empty());

    drop(cluster);
    assert!(client.get(&port).send().await.unwrap_err().is_connect());
    assert!(!root.exists());
    ended(&root).await;
}

/// A command that runs one test of this binary, which starts a shared cluster, in its own process.
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

/// Waits until no process has `folder` in its command line.
async fn ended(folder: &Path) {
    eventually("its processes have ended", async || {
        processes(folder.to_str().unwrap()).is_empty().then_some(())
    })
    .await;
}

/// Waits until a cluster below `temporary` has left no files and no processes.
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
    eventually("the cluster serves requests", async || {
        let root = fs::read_dir(temporary.path()).unwrap().next()?.unwrap().path();
        let log = fs::metadata(root.join("kube-apiserver/audit.log")).ok()?;
        (log.len() > 0).then_some(())
    })
    .await;
    assert!(!processes(temporary.path().to_str().unwrap()).is_empty());
    // SIGKILL, so that no cleanup code of the tests runs.
    tests.kill().unwrap();
    tests.wait().unwrap();
    gone(temporary.path()).await;
}

#[test]
fn missing_programs_fail_a_test_with_the_command_that_helps() {
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
