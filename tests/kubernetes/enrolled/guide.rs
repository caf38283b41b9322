//! Follows `docs/tutorials/argocd-without-cluster-admin.md`, and then `docs/guides/enrolled-cluster.md`,
//! which uses the same shell: runs the commands in order, with a whole Argo CD, and compares what they
//! print with the pages.
//!
//! The first block of the tutorial sets variables and functions. The test then sets those that differ
//! here, such as addresses, and changes nothing else.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::application;
use super::argocd::SESSION_KEY;
use page::{End, Step, matches, steps};
use test_support::kubernetes::argocd::{ArgoCd, Cli, NAMESPACE, Wire, program};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::daemon::Daemon;
use test_support::kubernetes::gateway::{Layout, base64, kubeconfig};
use test_support::kubernetes::kubectl::Credential;
use test_support::port::free_port;

mod page;

const PAGES: [&str; 2] = [
    "docs/tutorials/argocd-without-cluster-admin.md",
    "docs/guides/enrolled-cluster.md",
];

/// How long both pages may take.
const LIMIT: Duration = Duration::from_secs(300);

/// The pause between two looks for [`RESTART`].
const PAUSE: Duration = Duration::from_millis(50);

/// Names on the page.
const CLUSTER: &str = "prod";
const PROJECT: &str = "shop";
const APPLICATION: &str = "cart";
const HOME: &str = "shop";
/// The Application of the project `default`, and its namespace.
const LEFT_OUT: &str = "legacy";
const CONTEXTS: [&str; 2] = ["argocd", "prod"];

/// A file with which the shell asks for another application controller. It is gone when that is done.
const RESTART: &str = "restart-controller";

/// Functions of the page that start and stop something, with the processes of the test.
const OWN_FUNCTIONS: &str = r#"
stop_tollgate() {
  if [ -e gateway.pid ]; then
    kill -TERM "$(cat gateway.pid)"
    wait "$(cat gateway.pid)" || true
    rm gateway.pid
  fi
}
start_tollgate() {
  stop_tollgate
  : >gateway.log
  tollgate serve --log-json --config "$TOLLGATE_CONFIG" >>gateway.log 2>&1 &
  echo $! >gateway.pid
  until grep -q '"message":"listening"' gateway.log; do kill -0 "$(cat gateway.pid)"; sleep 0.1; done
}
restart_controller() {
  touch restart-controller
  while [ -e restart-controller ]; do sleep 0.1; done
}
start_tollgate
"#;

/// Runs the blocks of the pages. A block that does not end as its page says ends everything.
fn script(steps: &[Step]) -> String {
    let mut script = String::from("set -euo pipefail\nexec </dev/null\n");
    for (number, step) in steps.iter().enumerate() {
        let run = format!(". ./{number}.sh >{number}.out 2>&1");
        let run = match step.end {
            End::Succeeds => run,
            // After a failure in a condition the shell goes on.
            End::Fails => format!("if {run}; then exit 1; fi"),
        };
        script.push_str(&format!("{run}\ntouch {number}.done\n"));
        if number == 0 {
            script.push_str(". ./own.sh\n");
        }
    }
    script
}

/// The shell that runs the page. What it started ends with this value.
struct Shell {
    process: Child,
    group: u32,
}

impl Shell {
    /// - `folder`: has `run.sh`, and programs in `bin`.
    fn start(folder: &Path) -> Self {
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut path = folder.join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let process = Command::new("bash")
            .arg("run.sh")
            .env_clear()
            .env("HOME", folder)
            .env("PATH", path)
            .current_dir(folder)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let group = process.id().unwrap();
        Self { process, group }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = format!("-{}", self.group);
        // Without the gateway nothing is left in the group, and this fails.
        let _ = std::process::Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
    }
}

/// Fields end in this order.
struct World {
    argocd: ArgoCd,
    _controllers: Daemon,
    control: Cluster,
    target: Cluster,
    layout: Layout,
    /// Of the gateway: where people come in, and of its admin listener.
    ports: [u16; 2],
    folder: TempDir,
}

impl World {
    /// An Argo CD that is the administrator of a cluster, where it has deployed an Application, and
    /// settings of a gateway that does not know Argo CD's components.
    async fn start() -> Self {
        let (control, target) = tokio::join!(Cluster::start(), Cluster::start());
        let controllers = target.start_controllers();
        let settings = json!({"timeout.reconciliation": "10s"});
        let mut layout = Layout::new_in(NAMESPACE, &[], "");
        layout.tls();
        layout.policies("applications");
        layout.policies("controlplane");
        let world = Self {
            argocd: ArgoCd::start(&control, Wire::Plain, &settings, SESSION_KEY).await,
            _controllers: controllers,
            control,
            target,
            layout,
            ports: [free_port(), free_port()],
            folder: tempfile::tempdir().unwrap(),
        };
        world.deploy().await;
        world.write_kubeconfig();
        world.install_gateway().await;
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Adds the cluster as people do, and syncs an Application there.
    async fn deploy(&self) {
        let cli = Cli::new(self.argocd.address(), &["--plaintext"]);
        let login = cli.login("admin", self.argocd.password()).await;
        assert!(login.status.success(), "{}", login.stderr);
        let admin = self.target.admin();
        // `argocd cluster add` keeps the certificate of a person who has one, and not the token it makes.
        let operator = self.target.service_account("kube-system", "operator").await;
        let bind = [
            "create",
            "clusterrolebinding",
            "operator",
            "--clusterrole=cluster-admin",
        ];
        let subject = "--serviceaccount=kube-system:operator";
        admin.succeed(&[&bind[..], &[subject]].concat()).await;
        let operator = self.target.kubectl(Credential::Token(operator));
        let context = operator.succeed(&["config", "current-context"]).await;
        let file = operator.kubeconfig().display().to_string();
        let add = ["cluster", "add", context.trim(), "--kubeconfig", &file];
        cli.succeed(&[&add[..], &["--name", CLUSTER, "--yes"]].concat()).await;
        for namespace in [HOME, LEFT_OUT] {
            admin.succeed(&["create", "namespace", namespace]).await;
        }
        let server = self.target.url();
        let project = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": PROJECT, "namespace": NAMESPACE},
            "spec": {"sourceRepos": ["*"], "destinations": [{"server": server, "namespace": HOME}]},
        });
        let of = |name: &str, project: &str, namespace: &str| {
            let mut application = application(name, project, server, namespace);
            application["spec"]["source"] = json!({"repoURL": self.argocd.repository(), "path": "app"});
            application
        };
        let applications = [of(APPLICATION, PROJECT, HOME), of(LEFT_OUT, "default", LEFT_OUT)];
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [project, applications[0], applications[1]]});
        self.control.admin().apply(&list.to_string()).await;
        for name in [APPLICATION, LEFT_OUT] {
            cli.succeed(&["app", "sync", name, "--timeout", "60"]).await;
            // Then the status has what was deployed.
            cli.succeed(&["app", "wait", name, "--sync", "--timeout", "60"]).await;
        }
    }

    /// Writes a kubeconfig with both clusters.
    fn write_kubeconfig(&self) {
        let mut merged = json!({"apiVersion": "v1", "kind": "Config"});
        for (cluster, name) in [&self.control, &self.target].into_iter().zip(CONTEXTS) {
            let text = std::fs::read_to_string(cluster.admin().kubeconfig()).unwrap();
            let one: Value = serde_json::from_str(&text).unwrap();
            for (key, part) in [
                (
                    "clusters",
                    json!({"name": name, "cluster": one["clusters"][0]["cluster"]}),
                ),
                ("users", json!({"name": name, "user": one["users"][0]["user"]})),
                (
                    "contexts",
                    json!({"name": name, "context": {"cluster": name, "user": name}}),
                ),
            ] {
                let mut parts = merged[key].as_array().cloned().unwrap_or_default();
                parts.push(part);
                merged[key] = json!(parts);
            }
        }
        self.write("kubeconfig", &merged.to_string());
    }

    /// Gives a gateway the rights of `deploy/kubernetes`, and writes its settings.
    async fn install_gateway(&self) {
        let token = self.control.service_account(NAMESPACE, "tollgate").await;
        let role = test_support::checkout().join("deploy/kubernetes/base/role.yaml");
        let role = std::fs::read_to_string(role).unwrap();
        let role = role.replace("    name: tollgate\n", "    name: tollgate\n    namespace: argocd\n");
        let apply = ["apply", "--namespace", NAMESPACE, "--filename=-"];
        let applied = self.control.admin().run_with(&apply, &role).await;
        assert!(applied.status.success(), "{}", applied.stderr);
        let cluster = json!({
            "server": self.control.url(),
            "certificate-authority-data": base64(self.control.authority()),
        });
        let own = kubeconfig(&cluster, &json!({ "token": token }));
        std::fs::write(self.layout.root().join("kubeconfig"), own).unwrap();
        let settings = format!(
            "listen: 127.0.0.1:{}\ntls: {{certificate: gateway.pem, key: gateway.key}}\n\
             admin: {{listen: 127.0.0.1:{}}}\nstate: {{namespace: {NAMESPACE}, kubernetes: {{kubeconfig: kubeconfig}}}}\n\
             policies: {{directory: policies}}\nplugins: {{directory: plugins, cache: cache}}\n\
             authentication: {{argocdSessions: true}}\napplications: {{}}\n",
            self.ports[0], self.ports[1],
        );
        std::fs::write(self.layout.root().join("tollgate.yaml"), settings).unwrap();
    }

    /// What the page sets in its first block, with the test's own values.
    fn own_variables(&self) -> Vec<(&'static str, String)> {
        let in_layout = |name: &str| self.layout.root().join(name).display().to_string();
        vec![
            ("KUBECONFIG", self.path("kubeconfig").display().to_string()),
            ("SERVER", self.target.url().to_owned()),
            ("PROXY_URL", format!("https://127.0.0.1:{}", self.ports[0])),
            ("ADMIN", format!("http://127.0.0.1:{}", self.ports[1])),
            ("CA", in_layout("gateway-ca.pem")),
            ("TOLLGATE_CONFIG", in_layout("tollgate.yaml")),
        ]
    }

    /// Writes everything that the shell needs.
    fn prepare(&self, steps: &[Step]) {
        std::fs::create_dir(self.path("bin")).unwrap();
        let kubectl = test_support::kubernetes::programs().join("kubectl");
        for (name, target) in [
            ("argocd", program()),
            ("kubectl", kubectl),
            ("tollgate", test_support::tollgate()),
        ] {
            symlink(target, self.path("bin").join(name)).unwrap();
        }
        let mut own = String::new();
        for (name, value) in self.own_variables() {
            let sets = format!("{name}=");
            let is_set = |line: &str| line.trim_start_matches("export ").starts_with(&sets);
            assert!(
                steps[0].commands.lines().any(is_set),
                "the first block does not set {name}"
            );
            own.push_str(&format!("{name}='{value}'\n"));
        }
        for function in ["start_tollgate", "stop_tollgate", "restart_controller"] {
            let starts = format!("{function}() {{");
            assert!(steps[0].commands.contains(&starts), "the first block has no {function}");
        }
        let login = format!(
            "argocd login {} --plaintext --username admin --password '{}'\n",
            self.argocd.address(),
            self.argocd.password(),
        );
        self.write("own.sh", &format!("{own}{login}{OWN_FUNCTIONS}"));
        for (number, step) in steps.iter().enumerate() {
            self.write(&format!("{number}.sh"), &step.commands);
        }
        self.write("run.sh", &script(steps));
    }

    /// Runs the page, and returns how far it came: the number of steps that ended as they should.
    async fn run(&mut self, steps: &[Step]) -> usize {
        self.prepare(steps);
        let mut shell = Shell::start(self.folder.path());
        let end = Instant::now() + LIMIT;
        while Instant::now() < end && timeout(PAUSE, shell.process.wait()).await.is_err() {
            if self.path(RESTART).exists() {
                self.argocd.restart_controller();
                std::fs::remove_file(self.path(RESTART)).unwrap();
            }
        }
        (0..steps.len())
            .take_while(|number| self.path(&format!("{number}.done")).exists())
            .count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_to_an_argocd_without_cluster_admin_works_as_written() {
    let texts = PAGES.map(|page| std::fs::read_to_string(test_support::checkout().join(page)).unwrap());
    let pages = texts.each_ref().map(|text| steps(text));
    let of_tutorial = pages[0].len();
    let steps: Vec<Step> = pages.into_iter().flatten().collect();
    let mut world = World::start().await;
    let done = world.run(&steps).await;
    for (number, step) in steps.iter().enumerate().take(done + 1) {
        let (output, line) = (world.read(&format!("{number}.out")), step.line);
        let page = PAGES[usize::from(number >= of_tutorial)];
        let about = format!("{page}:{line}\n{}\nprints\n{output}", step.commands);
        let log = || std::fs::read_to_string(world.path("gateway.log")).unwrap_or_default();
        assert!(
            number < done,
            "{about}\nand does not end as the page says:\n{}\n{}",
            world.read("log"),
            log()
        );
        let shown = step.shown.as_deref();
        assert!(
            shown.is_none_or(|shown| matches(shown, &output)),
            "{about}\nand not\n{shown:?}"
        );
    }
    assert_eq!(done, steps.len());
}
