//! A whole, unmodified Argo CD deploys to a cluster that neither it nor the gateway can dial.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use super::super::argocd::{HOME, World, component, config_map, is_done, project};
use super::super::{OWN, Scene};
use crate::joined::{AGENT, JoinedCluster};
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::Layout;
use test_support::kubernetes::network::Network;

/// Lets the gateway in its network reach the API server of Argo CD's cluster, and no other one.
fn reach_control_plane(layout: &mut Layout, outside: Ipv4Addr, kubeconfig: &std::path::Path) {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let mut config: Value = serde_saphyr::from_str(&text).unwrap();
    let cluster = &mut config["clusters"][0]["cluster"];
    let target: SocketAddr = cluster["server"]
        .as_str()
        .unwrap()
        .trim_start_matches("https://")
        .parse()
        .unwrap();
    let listener = std::net::TcpListener::bind((outside, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    cluster["server"] = json!(format!("https://{address}"));
    cluster["tls-server-name"] = json!("127.0.0.1");
    let path = layout.root().join("control.json");
    std::fs::write(&path, config.to_string()).unwrap();
    layout.setting("/state/kubernetes/kubeconfig", json!(path));
    tokio::spawn(async move {
        let listener = TcpListener::from_std(listener).unwrap();
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut far = TcpStream::connect(target).await.unwrap();
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
}

/// Has Argo CD reach a joined cluster, which it does not know yet, by the command.
async fn enroll(world: &World, name: &str) {
    let token = world.gateway.path("component-token");
    std::fs::write(&token, component()).unwrap();
    let mut command = Command::new(test_support::tollgate());
    command
        .args(["cluster", "enroll", name, "--yes", "--proxy-url", &world.gateway.url()])
        .arg("--ca")
        .arg(world.gateway.path("gateway-ca.pem"))
        .arg("--token-file")
        .arg(&token)
        .arg("--kubeconfig")
        .arg(world.control.admin().kubeconfig())
        .arg("--config")
        .arg(world.gateway.path("tollgate.yaml"));
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("+++ secret/argocd/cluster-destination"), "{stdout}");
    assert!(!stdout.contains("secret/own/"), "{stdout}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("only the gateway reaches the cluster's connector"),
        "{stderr}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unmodified_argo_cd_deploys_to_a_cluster_that_nobody_can_dial() {
    let network = Network::start().await;
    let (world, _) = World::start_without_clusters(|layout, control| {
        layout.run_in_network(&network);
        layout.settings(json!({"connectors": {}}));
        reach_control_plane(layout, network.outside(), &control.admin().kubeconfig());
    })
    .await;
    let server = world.destination.url();
    assert!(!network.reaches(server.trim_start_matches("https://")).await);

    let joined = JoinedCluster::new(&world.destination).await;
    let kubeconfig = world.control.admin().kubeconfig().display().to_string();
    let (reader, deployer) = (format!("{OWN}:reader"), format!("{HOME}:deployer"));
    let accounts = ["--service-account", &reader, "--service-account", &deployer];
    let in_cluster = ["--kubeconfig", &kubeconfig, "--yes"];
    joined
        .join("destination", &world.gateway, &[&accounts[..], &in_cluster].concat())
        .await;
    let _agent = joined.run(&json!({})).await;
    enroll(&world, "destination").await;
    let project = project("shop", &[(server, HOME)], &[(server, HOME, "deployer")]);
    world.control.admin().apply(&project.to_string()).await;
    world
        .commit(&[("shop/hello.yaml", Some(config_map("hello", "1")))])
        .await;
    let cli = world.cli().await;
    world.create_application(&cli, HOME, &[]).await;
    world.until_acting(server, &Scene::account(HOME, "deployer")).await;
    cli.succeed(&["app", "sync", HOME, "--timeout", "60"]).await;
    cli.succeed(&["app", "wait", HOME, "--timeout", "60"]).await;
    let namespace = format!("--namespace={HOME}");
    let map = world
        .destination
        .admin()
        .json(&["get", "configmap", "hello", &namespace])
        .await;
    assert_eq!(map["data"]["value"], "1");

    // Argo CD watches through the agent, and heals.
    cli.succeed(&["app", "set", HOME, "--sync-policy", "automated", "--self-heal"])
        .await;
    let admin = world.destination.admin();
    admin.succeed(&["delete", "configmap", "hello", &namespace]).await;
    eventually("the ConfigMap is back", async || {
        let get = admin.run(&["get", "configmap", "hello", &namespace]).await;
        get.status.success().then_some(())
    })
    .await;

    // Everything came from the agent's account, and was written as that of the project.
    let agent = Scene::account(&joined.namespace, AGENT);
    let events = world.destination.audit().events();
    let writes: Vec<&Value> = events
        .iter()
        .filter(|event| event["user"]["username"] == agent.as_str())
        .filter(|event| event["objectRef"]["resource"] == "configmaps" && is_done(event))
        .collect();
    assert!(writes.len() >= 2, "{writes:?}");
    for event in writes {
        let who = Scene::account(HOME, "deployer");
        assert_eq!(event["impersonatedUser"]["username"], who.as_str(), "{event}");
    }
    for event in &events {
        let user = event["userAgent"].as_str().unwrap_or_default();
        assert!(
            !user.starts_with("argocd") || event["user"]["username"] == agent.as_str(),
            "{event}"
        );
    }
}
