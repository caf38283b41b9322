//! The demo's folder and processes.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, Command};

use super::{backend, cluster, token, until};

/// The gateway's log, in the folder of the demo.
const LOG: &str = "gateway.log";

/// A running demo.
#[derive(Debug)]
pub struct World {
    /// Folder with everything that the gateway reads. It reloads edited files.
    pub folder: PathBuf,
    /// Folder of the built guests.
    pub guests: PathBuf,
    /// Base URL of the gateway.
    pub gateway: String,
    /// Base URL of its admin listener.
    pub admin: String,
    /// alice's session token.
    pub alice: String,
    /// bob's session token.
    pub bob: String,
    /// The gateway's binary.
    pub binary: PathBuf,
    child: Child,
}

impl World {
    /// Prepares the folder, starts the backends and the gateway, and waits until it is ready.
    pub async fn start(root: &Path, binary: &Path, port: u16) -> Result<Self> {
        let target = super::target(root);
        let folder = target.join("demo");
        let guests = target.join("guests");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        copy_tree(&root.join("deploy/demo"), &folder)?;
        copy_tree(&root.join("policies"), &folder.join("policies"))?;
        std::fs::create_dir_all(folder.join("plugins"))?;
        for name in ["baseline", "webapi"] {
            for ending in ["wasm", "yaml"] {
                let file = format!("{name}.{ending}");
                std::fs::copy(guests.join(&file), folder.join("plugins").join(&file))
                    .with_context(|| format!("copying {file} out of {}", guests.display()))?;
            }
        }
        let backends = [backend::start("backend-a").await?, backend::start("backend-b").await?];
        set_backends(&folder.join("state/argocd-cm.yaml"), &backends)?;
        let cluster = cluster::start().await?;
        set_cluster(&folder, &cluster)?;
        let key = random_key()?;
        write_secret(&folder.join("state/argocd-secret.yaml"), &key)?;
        let (gateway, admin) = addresses(port)?;
        set_addresses(&folder.join("tollgate.yaml"), gateway, admin)?;
        // Apart from the instructions, which its warnings about the demo's small cluster would hide.
        let log = folder.join(LOG);
        let log = std::fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let child = Command::new(binary)
            .arg("serve")
            .arg("--config")
            .arg(folder.join("tollgate.yaml"))
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", binary.display()))?;
        let mut world = Self {
            gateway: format!("http://{gateway}"),
            admin: format!("http://{admin}"),
            alice: token::mint(key.as_bytes(), "alice", 12 * 3600)?,
            bob: token::mint(key.as_bytes(), "bob", 12 * 3600)?,
            binary: binary.to_owned(),
            folder,
            guests,
            child,
        };
        world.write_environment()?;
        world.wait_ready().await?;
        Ok(world)
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let url = format!("{}/readyz", self.admin);
        let ready = until("the gateway to become ready", || async {
            let answer = reqwest::get(&url).await?;
            anyhow::ensure!(answer.status() == 200, "readyz says {}", answer.status());
            Ok(())
        });
        tokio::select! {
            ready = ready => ready,
            status = self.child.wait() => {
                let log = std::fs::read_to_string(self.folder.join(LOG)).unwrap_or_default();
                bail!("{log}the gateway ended at start: {}", status?)
            }
        }
    }

    /// Waits for the gateway to end by itself.
    pub async fn gateway_ended(&mut self) -> ExitStatus {
        self.child.wait().await.unwrap_or_default()
    }

    /// Stops the gateway with SIGTERM, as an operator does, and expects exit status 0.
    pub async fn stop(mut self) -> Result<()> {
        if let Some(pid) = self.child.id() {
            Command::new("kill").arg("-TERM").arg(pid.to_string()).status().await?;
        }
        let status = tokio::time::timeout(Duration::from_secs(40), self.child.wait())
            .await
            .context("the gateway did not stop")??;
        anyhow::ensure!(status.success(), "the gateway stopped with {status}");
        Ok(())
    }

    fn write_environment(&self) -> Result<()> {
        let mut text = String::new();
        writeln!(text, "export GATE={}", self.gateway)?;
        writeln!(text, "export ADMIN={}", self.admin)?;
        writeln!(text, "export DEMO={}", self.folder.display())?;
        writeln!(text, "export GUESTS={}", self.guests.display())?;
        writeln!(text, "export ALICE={}", self.alice)?;
        writeln!(text, "export BOB={}", self.bob)?;
        write_private(&self.folder.join("env"), &text)
    }

    /// Text with commands to try.
    pub fn instructions(&self) -> String {
        let folder = self.folder.display();
        format!(
            r#"
The gateway listens on {gateway}, its admin listener on {admin}.
In another terminal:

  source {folder}/env

  # bob is denied, with a reason and the decision's id
  curl -i "$GATE/api/v1/extensions/metrics/api/series?range=1h" -H "Authorization: Bearer $BOB" \
    -H 'Argocd-Application-Name: argocd:cart' -H 'Argocd-Project-Name: shop'

  # alice is allowed; the backend shows what it received
  curl -i "$GATE/api/v1/extensions/metrics/api/series?range=1h" -H "Authorization: Bearer $ALICE" \
    -H 'Argocd-Application-Name: argocd:cart' -H 'Argocd-Project-Name: shop'

  # the cluster `demo`, with a token that the plugin `webapi` mints for it; both requests use the same token
  curl -s "$GATE/clusters/demo/k8s/api" -H "Authorization: Bearer $ALICE"
  curl -s "$GATE/clusters/demo/k8s/api" -H "Authorization: Bearer $ALICE"

  # the state of the cluster's credential
  curl -s "$GATE/api/v1/tollgate/clusters" -H "Authorization: Bearer $ALICE"

  # a token for the agent `shop-cluster`, and the identity that the cluster receives
  curl -s "$GATE/api/v1/tokens" -H "Authorization: Bearer $ALICE" -H 'Content-Type: application/json' \
    -d '{{"name": "laptop", "agent": 7}}'
  curl -s "$GATE/k8s-proxy/api" -H "Authorization: Bearer <the bearer it shows>"

  # the Application `checkout` writes as its own service account; its project excludes Secrets
  curl -s -X POST "$GATE/applications/argocd/checkout/k8s/api/v1/namespaces/checkout/configmaps" -d '{{}}' \
    -H 'Content-Type: application/json' -H "Authorization: Bearer $ALICE"
  curl -s -X POST "$GATE/applications/argocd/checkout/k8s/api/v1/namespaces/checkout/secrets" -d '{{}}' \
    -H 'Content-Type: application/json' -H "Authorization: Bearer $ALICE"

  # an ApplicationSet: what it would generate, why bob may not create it, and its creation by alice
  export TOLLGATE_SERVER=$GATE
  TOLLGATE_AUTH_TOKEN=$ALICE {binary} appset generate {folder}/stages.yaml
  TOLLGATE_AUTH_TOKEN=$BOB {binary} appset create {folder}/stages.yaml
  TOLLGATE_AUTH_TOKEN=$ALICE {binary} appset create {folder}/stages.yaml

  # the records of the last two decisions
  curl -s "$ADMIN/decisions?most=2"

The gateway reloads everything under {folder} when it changes, and logs to {folder}/{LOG}.
Stop with Ctrl-C.
"#,
            binary = self.binary.display(),
            gateway = self.gateway,
            admin = self.admin,
        )
    }
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn set_backends(file: &Path, backends: &[SocketAddr; 2]) -> Result<()> {
    let [a, b] = backends;
    let text = std::fs::read_to_string(file)?;
    let text = text
        .replace("$BACKEND_A/", &format!("http://{a}/"))
        .replace("$BACKEND_B\n", &format!("http://{b}\n"));
    Ok(std::fs::write(file, text)?)
}

/// Writes the demo cluster's address and certificate authority to the files that the gateway reads.
fn set_cluster(folder: &Path, cluster: &cluster::Cluster) -> Result<()> {
    std::fs::write(folder.join("cluster-ca.pem"), &cluster.ca_pem)?;
    let ca_data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &cluster.ca_pem);
    for file in ["state/clusters.yaml", "tollgate.yaml"] {
        let file = folder.join(file);
        let text = std::fs::read_to_string(&file)?
            .replace("$CLUSTER_PORT", &cluster.address.port().to_string())
            .replace("$CLUSTER", &cluster.address.to_string())
            .replace("$CA_DATA", &ca_data)
            .replace("$CA_FILE", &folder.join("cluster-ca.pem").display().to_string())
            .replace("$BROKER_KEY", cluster::BROKER_KEY);
        write_private(&file, &text)?;
    }
    Ok(())
}

fn random_key() -> Result<String> {
    use std::io::Read;
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn write_secret(file: &Path, key: &str) -> Result<()> {
    let text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: argocd-secret\n  namespace: argocd\nstringData:\n  \
         server.secretkey: {key}\n  extension.metrics.token: Bearer the-backends-own-token\n"
    );
    write_private(file, &text)
}

fn write_private(file: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut open = options.create(true).truncate(true).write(true).mode(0o600).open(file)?;
    Ok(open.write_all(text.as_bytes())?)
}

/// Addresses of the gateway and its admin listener; two free ones if `port` is 0.
fn addresses(port: u16) -> Result<(SocketAddr, SocketAddr)> {
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    if port != 0 {
        return Ok((at(port), at(port.checked_add(1).context("the port is too high")?)));
    }
    // Both are open at the same time, so that they differ.
    let (one, two) = (std::net::TcpListener::bind(at(0))?, std::net::TcpListener::bind(at(0))?);
    Ok((one.local_addr()?, two.local_addr()?))
}

fn set_addresses(file: &Path, gateway: SocketAddr, admin: SocketAddr) -> Result<()> {
    let text = std::fs::read_to_string(file)?;
    // In one pass, because either new address may be one of the old ones.
    let replaced = |line: &str| match line.trim_start() {
        "listen: 127.0.0.1:8080" => line.replace("127.0.0.1:8080", &gateway.to_string()),
        "listen: 127.0.0.1:8081" => line.replace("127.0.0.1:8081", &admin.to_string()),
        _ => line.to_owned(),
    };
    let text: String = text.lines().map(|line| replaced(line) + "\n").collect();
    Ok(std::fs::write(file, text)?)
}
