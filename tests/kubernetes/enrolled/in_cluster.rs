//! The cluster that Argo CD itself runs in, with a whole Argo CD as in pods there: enrolled, Argo CD enters
//! it through the gateway, and has by itself only its own namespace.

use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::argocd::{SESSION_KEY, commit, component, config_map, grant, is_done, judged, project, until_may};
use super::{COMPONENT, OWN, STRANGER, Scene, prepare};
use crate::deployment::argocd_with;
use test_support::kubernetes::argocd::{ArgoCd, Cli, NAMESPACE};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout, base64, kubeconfig};
use test_support::kubernetes::kubectl::{Kubectl, Run};
use test_support::kubernetes::pod::PodNetwork;
use test_support::token;

const SERVER: &str = "https://kubernetes.default.svc";

/// The Application of the project `shop`, and its namespace, whose account `deployer` edits ConfigMaps.
const HOME: &str = "shop";

/// The Application that deploys an Application into Argo CD's namespace, and its account.
const APPS: &str = "apps";

const CONTROLLER: &str = "argocd-application-controller";

/// Fields end in this order.
struct World {
    gateway: Gateway,
    argocd: ArgoCd,
    _network: PodNetwork,
    cluster: Cluster,
    files: TempDir,
    cli: Cli,
}

impl World {
    /// An Argo CD that may do everything in its cluster, and a gateway that nobody enrolled there.
    ///
    /// - `names`: of the gateway's certificate.
    async fn start(names: &[&str]) -> Self {
        let cluster = Cluster::start().await;
        let network = PodNetwork::start(&cluster).await;
        let settings = json!({
            "accounts.controller": "apiKey, login",
            "accounts.mallory": "apiKey, login",
            "application.sync.impersonation.enabled": "true",
            "resource.respectRBAC": "normal",
            "timeout.reconciliation": "10s",
        });
        let pods = (&network, cluster.authority());
        let argocd = ArgoCd::start_in_pods(&cluster, &settings, SESSION_KEY, pods).await;
        for namespace in [OWN, HOME] {
            cluster.admin().succeed(&["create", "namespace", namespace]).await;
        }
        let own_token = prepare(&cluster, OWN, HOME).await;
        let mut layout = Layout::new_in(NAMESPACE, &[], "");
        layout.tls_for(names);
        layout.policies("applications");
        layout.policies("controlplane");
        layout.settings(json!({
            "applications": {},
            "controlPlane": {
                "reader": format!("{OWN}:reader"),
                "callers": [{"issuer": "argocd", "user": COMPONENT}],
                "credentialsNamespace": OWN,
            },
            "state": {"namespace": NAMESPACE, "kubernetes": {"kubeconfig": cluster.admin().kubeconfig()}},
        }));
        layout.run_in(&network.pod("tollgate", "unused", cluster.authority()));
        let gateway = layout.start().await;
        let cli = Cli::new(argocd.address(), &["--plaintext"]);
        let login = cli.login("admin", argocd.password()).await;
        assert!(login.status.success(), "{}", login.stderr);
        let world = Self {
            gateway,
            argocd,
            _network: network,
            cluster,
            files: tempfile::tempdir().unwrap(),
            cli,
        };
        world.file("token", &component());
        world.file("own-token", &own_token);
        // As kube-controller-manager does.
        let authority = json!({"ca.crt": world.cluster.authority()});
        world.write_config_map("kube-root-ca.crt", &authority).await;
        world.create_applications().await;
        world
    }

    async fn create_applications(&self) {
        self.cluster.service_account(NAMESPACE, APPS).await;
        let all = ["argoproj.io/applications"];
        grant(&self.cluster, APPS, (NAMESPACE, APPS), (Some(NAMESPACE), &["*"], &all)).await;
        let reads = ["get", "list", "watch"];
        grant(&self.cluster, "applications", (OWN, "reader"), (None, &reads, &all)).await;
        let child = self.application("child", HOME, HOME);
        commit(
            self.argocd.repository(),
            &[
                ("shop/hello.yaml", Some(config_map("hello", "1"))),
                ("apps/child.yaml", Some(child)),
            ],
        )
        .await;
        for object in [
            project(HOME, &[(SERVER, HOME)], &[(SERVER, HOME, "deployer")]),
            project(APPS, &[(SERVER, NAMESPACE)], &[(SERVER, NAMESPACE, APPS)]),
            self.application(HOME, HOME, HOME),
            self.application(APPS, APPS, NAMESPACE),
            self.application("nobody", "default", HOME),
        ] {
            self.cluster.admin().apply(&object.to_string()).await;
        }
    }

    /// An Application for a folder of the repository: that of its name, or else that of `shop`.
    fn application(&self, name: &str, project: &str, namespace: &str) -> Value {
        let path = if name == APPS { APPS } else { HOME };
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "project": project,
                "source": {"repoURL": self.argocd.repository(), "path": path},
                "destination": {"name": "in-cluster", "namespace": namespace},
            },
        })
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.files.path().join(name), format!("{text}\n")).unwrap();
    }

    async fn write_config_map(&self, name: &str, data: &Value) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": NAMESPACE}, "data": data,
        });
        self.cluster.admin().apply(&map.to_string()).await;
    }

    /// Makes the pods of workloads, which run nothing here.
    async fn write_pods(&self, workloads: &[Value]) {
        for workload in workloads {
            let template = &workload["spec"]["template"];
            let name = &workload["metadata"]["name"];
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": template["metadata"]["labels"]},
                "spec": template["spec"],
            });
            let delete = ["delete", "pod", name.as_str().unwrap(), "--namespace", NAMESPACE];
            let delete = [&delete[..], &["--ignore-not-found", "--grace-period=0", "--force"]].concat();
            self.cluster.admin().succeed(&delete).await;
            self.cluster.admin().apply(&pod.to_string()).await;
        }
    }

    /// Prepares Argo CD as the page says.
    async fn prepare_pods(&self) {
        std::fs::write(self.files.path().join("ca.pem"), self.gateway.authority().unwrap()).unwrap();
        let mut path = test_support::kubernetes::programs().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", &commands_of_page()]);
        shell.current_dir(self.files.path()).env("PATH", path);
        let shell = shell.env("KUBECONFIG", self.cluster.admin().kubeconfig());
        let output = shell.stdin(Stdio::null()).output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let both = std::fs::read_to_string(self.files.path().join("authorities.pem")).unwrap();
        let workloads = argocd_with(&self.cluster, NAMESPACE, "argocd-in-cluster").await;
        self.write_pods(&workloads).await;
        self.argocd.trust(&both);
    }

    /// Runs `tollgate cluster …`.
    async fn run(&self, arguments: &[&str]) -> Run {
        let mut command = Command::new(test_support::tollgate());
        command.arg("cluster").args(arguments).stdin(Stdio::null());
        command.arg("--config").arg(self.gateway.path("tollgate.yaml"));
        let output = command.output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let run = Run {
            status: output.status,
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        // SECURITY: no command prints a credential.
        for name in ["token", "own-token"] {
            let token = std::fs::read_to_string(self.files.path().join(name)).unwrap();
            let signature = token.trim().rsplit('.').next().unwrap();
            assert!(!format!("{run:?}").contains(signature), "{run:?}");
        }
        run
    }

    async fn enroll(&self, more: &[&str]) -> Run {
        let path = |name: &str| self.files.path().join(name).display().to_string();
        let (token, own_token) = (path("token"), path("own-token"));
        let (url, ca) = (self.gateway.url(), self.gateway.path("gateway-ca.pem"));
        let ca = ca.display().to_string();
        let enroll = ["enroll", "in-cluster", "--proxy-url", &url, "--ca", &ca];
        let tokens = ["--token-file", &token, "--credential-token-file", &own_token];
        self.run(&[&enroll[..], &tokens, more].concat()).await
    }

    async fn exists(&self, kind: &str, name: &str, namespace: &str) -> bool {
        let get = ["get", kind, name, "--namespace", namespace];
        self.cluster.admin().run(&get).await.status.success()
    }

    /// Waits until Argo CD can compare an Application, and syncs it.
    async fn sync(&self, name: &str) {
        eventually(&format!("{name} is compared"), async || {
            let run = self.cli.run(&["app", "get", name, "--refresh"]).await;
            (run.status.success() && !run.stdout.contains("ComparisonError")).then_some(())
        })
        .await;
        self.cli.succeed(&["app", "sync", name, "--timeout", "60"]).await;
    }

    /// kubectl that enters the cluster as Argo CD does, with this token.
    fn kubectl(&self, token: &str) -> Kubectl {
        let cluster = json!({
            "server": SERVER,
            "proxy-url": self.gateway.url(),
            "certificate-authority-data": base64(&self.gateway.authority().unwrap()),
        });
        Kubectl::with_kubeconfig(&kubeconfig(&cluster, &json!({ "token": token })))
    }

    /// Takes every right beyond its own namespace from Argo CD's accounts.
    async fn take_rights(&self) {
        // Source: Argo CD, `manifests/base`, the Roles of both components.
        let resources = [
            "/secrets",
            "/configmaps",
            "/events",
            "argoproj.io/applications",
            "argoproj.io/applicationsets",
            "argoproj.io/appprojects",
            "apps/deployments",
        ];
        for name in [CONTROLLER, "argocd-server"] {
            let account = (NAMESPACE, name);
            grant(&self.cluster, name, account, (Some(NAMESPACE), &["*"], &resources)).await;
        }
        let delete = ["delete", "clusterrolebinding", "argocd"];
        self.cluster.admin().succeed(&delete).await;
        let controller = format!("--as={}", Scene::account(NAMESPACE, CONTROLLER));
        let may = [
            "auth",
            "can-i",
            "create",
            "configmaps",
            "--namespace",
            HOME,
            &controller,
        ];
        eventually("the API server took the rights", async || {
            (!self.cluster.admin().run(&may).await.status.success()).then_some(())
        })
        .await;
    }
}

/// The commands of the page that make the ConfigMap with both authorities.
fn commands_of_page() -> String {
    let page = test_support::checkout().join("docs/behind-argocd.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut blocks = page.split("```sh\n").filter_map(|rest| rest.split("```").next());
    let block = blocks.find(|block| block.contains("create configmap")).unwrap();
    let lines: Vec<&str> = block.lines().map(str::trim).collect();
    lines.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn argo_cd_enters_its_own_cluster_through_the_gateway() {
    let mut world = World::start(&["127.0.0.1", "kubernetes.default.svc"]).await;
    world.sync(HOME).await;
    let workloads = argocd_with(&world.cluster, NAMESPACE, "credential-helper").await;
    world.write_pods(&workloads).await;
    let refused = world.enroll(&["--yes"]).await;
    let text = "cluster.pods: Argo CD's pod `argocd-application-controller` looks for the API server at `the address \
                of its service`, and not at `kubernetes.default.svc`";
    assert!(refused.stderr.contains(text), "{}", refused.stderr);
    assert!(!world.exists("secret", "in-cluster", NAMESPACE).await);

    world.prepare_pods().await;
    // SECURITY: with Argo CD's token, everybody could read the credentials of all clusters.
    let reader = (OWN, "reader");
    grant(&world.cluster, "secrets", reader, (Some(OWN), &["get"], &["/secrets"])).await;
    let refused = world.enroll(&["--yes"]).await;
    let text = "cluster.reader: the reader tollgate:reader may read Secrets in one of the namespaces argocd, tollgate";
    assert!(refused.stderr.contains(text), "{}", refused.stderr);
    for kind in ["rolebinding", "role"] {
        let delete = ["delete", kind, "secrets", "--namespace", OWN];
        world.cluster.admin().succeed(&delete).await;
    }
    until_may(&world.cluster, reader, (Some(OWN), "get", "secrets"), false).await;
    let enrolled = world.enroll(&["--yes"]).await;
    assert!(enrolled.status.success(), "{enrolled:?}");
    let warning = "ApplicationSets whose cluster generator has a `selector`";
    assert!(enrolled.stderr.contains(warning), "{}", enrolled.stderr);
    for line in [
        "+++ secret/tollgate/in-cluster",
        "+++ secret/argocd/in-cluster",
        &format!("+  proxyUrl: {}", world.gateway.url()),
    ] {
        assert!(enrolled.stdout.contains(line), "{}", enrolled.stdout);
    }
    world.take_rights().await;

    // Argo CD acts only through the gateway, as the accounts of projects.
    let received = |event: &Value| event["requestReceivedTimestamp"].as_str().unwrap().to_owned();
    let begin = world.cluster.audit().events().iter().map(received).max().unwrap();
    let changed = ("shop/hello.yaml", Some(config_map("hello", "2")));
    commit(world.argocd.repository(), &[changed]).await;
    world.sync(HOME).await;
    world.sync(APPS).await;
    assert!(world.exists("application", "child", NAMESPACE).await);
    let refused = world.cli.run(&["app", "sync", "nobody", "--timeout", "60"]).await;
    assert!(!refused.status.success(), "{refused:?}");
    let gateway = Scene::account(OWN, "gateway");
    for (account, resource, name) in [
        (Scene::account(HOME, "deployer"), "configmaps", "hello"),
        (Scene::account(NAMESPACE, APPS), "applications", "child"),
    ] {
        let wanted = |event: &Value| {
            event["user"]["username"] == gateway.as_str()
                && event["impersonatedUser"]["username"] == account
                && event["objectRef"]["resource"] == resource
                && event["objectRef"]["name"] == name
                && is_done(event)
        };
        world.cluster.audit().find_with(&account, wanted).await;
    }
    let accounts = [Scene::account(HOME, "deployer"), Scene::account(NAMESPACE, APPS)];
    for (who, event) in judged(&world.cluster, &gateway) {
        assert!(!is_done(&event) || accounts.contains(&who), "{who}: {event}");
    }
    let argocd = format!("system:serviceaccount:{NAMESPACE}:argocd-");
    for event in world.cluster.audit().events() {
        if received(&event) <= begin {
            continue;
        }
        let user = event["user"]["username"].as_str().unwrap();
        let of_namespace = event["objectRef"]["namespace"] == NAMESPACE || event["objectRef"].is_null();
        // A watch that began has no status yet.
        let is_permitted = event["responseStatus"]["code"].as_u64().is_none_or(|code| code < 400);
        let is_own = of_namespace && event["impersonatedUser"].is_null();
        assert!(!user.starts_with(&argocd) || !is_permitted || is_own, "{event}");
    }

    // A thief of the token has no more.
    let there = ["--namespace", HOME];
    let create = [&["create", "configmap", "stolen"][..], &there].concat();
    let as_controller = format!("--as={}", Scene::account(NAMESPACE, CONTROLLER));
    let as_gateway = format!("--as={gateway}");
    let secrets = ["get", "secrets", "--namespace", NAMESPACE];
    let stranger = token::session(SESSION_KEY, STRANGER);
    for (token, arguments, expected) in [
        (component(), create.clone(), "without impersonation"),
        (
            component(),
            [&create[..], &[&as_controller]].concat(),
            "no Application in this cluster has that account",
        ),
        (
            component(),
            [&create[..], &[&as_gateway]].concat(),
            "no Application in this cluster has that account",
        ),
        (component(), secrets.to_vec(), "cannot list resource \"secrets\""),
        (stranger, create.clone(), "this is for Argo CD's own components"),
    ] {
        let refused = world.kubectl(&token).fail(&arguments).await;
        assert!(refused.contains(expected), "{arguments:?}: {refused}");
    }
    // The gateway gets no credential of an API server from anybody.
    let own_token = std::fs::read_to_string(world.files.path().join("own-token")).unwrap();
    let refused = world.kubectl(own_token.trim()).fail(&["get", "configmaps"]).await;
    assert!(refused.contains("must be logged in"), "{refused}");
    assert!(!world.exists("configmap", "stolen", HOME).await);

    // The way back needs no gateway.
    world.gateway.kill().await;
    let back = [
        "create",
        "clusterrolebinding",
        "argocd",
        "--clusterrole=cluster-admin",
        &format!("--group=system:serviceaccounts:{NAMESPACE}"),
    ];
    world.cluster.admin().succeed(&back).await;
    let released = world.run(&["release", "in-cluster", "--yes"]).await;
    assert!(released.status.success(), "{released:?}");
    for namespace in [NAMESPACE, OWN] {
        assert!(!world.exists("secret", "in-cluster", namespace).await, "{namespace}");
    }
    let changed = ("shop/hello.yaml", Some(config_map("hello", "3")));
    commit(world.argocd.repository(), &[changed]).await;
    world.sync(HOME).await;
    let get = ["get", "configmap", "hello", "--namespace", HOME];
    assert_eq!(world.cluster.admin().json(&get).await["data"]["value"], "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_argo_cd_could_not_verify_there_is_found_before() {
    let world = World::start(&["127.0.0.1", "localhost"]).await;
    world.prepare_pods().await;
    let refused = world.enroll(&["--yes"]).await;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let text = ", as `kubernetes.default.svc` cannot be reached: its certificate is for another name";
    assert!(refused.stderr.contains(text), "{}", refused.stderr);
    let refused = world.enroll(&["--server-name", "localhost", "--yes"]).await;
    assert!(refused.stderr.contains("cluster.server_name: "), "{}", refused.stderr);
    // Argo CD deploys nothing there.
    let patch = r#"--patch={"data": {"cluster.inClusterEnabled": "false"}}"#;
    let patch = [
        "patch",
        "configmap",
        "argocd-cm",
        "--namespace",
        NAMESPACE,
        "--type=merge",
        patch,
    ];
    world.cluster.admin().succeed(&patch).await;
    let refused = world.enroll(&["--skip-gateway-check", "--yes"]).await;
    assert!(refused.stderr.contains("cluster.in_cluster: "), "{}", refused.stderr);
    assert!(!world.exists("secret", "in-cluster", NAMESPACE).await);
    assert!(!world.exists("secret", "in-cluster", OWN).await);
}
