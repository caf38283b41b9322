//! Runs programs on this machine as in pods of a [`Cluster`]: `https://kubernetes.default.svc` is the
//! cluster's API server, and a program finds its account in the files of a pod.
//!
//! It needs root: each program has its own mounts, and the API server gets a port 443.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::cluster::Cluster;

/// The host of the API server in a pod.
pub const API_SERVER: &str = "kubernetes.default.svc";

/// Mounts `$1` as `/etc/hosts` and the folder `$2` where a pod has its account, then becomes the
/// program. Nobody else sees these mounts.
const SCRIPT: &str = r#"
account=/var/run/secrets/kubernetes.io/serviceaccount
mount --bind "$1" /etc/hosts
mount -t tmpfs none /var/run
mkdir -p "$account"
mount --bind "$2" "$account"
shift 2
exec "$@"
"#;

/// The network of a cluster's pods. It ends when the value is dropped.
pub struct PodNetwork {
    folder: TempDir,
    relay: JoinHandle<()>,
}

/// What a pod sees.
#[derive(Clone)]
pub struct Pod {
    hosts: PathBuf,
    account: PathBuf,
}

impl PodNetwork {
    /// Gives the API server of a cluster an address for pods.
    ///
    /// # Panics
    /// Without root.
    pub async fn start(cluster: &Cluster) -> Self {
        let target = cluster.url().trim_start_matches("https://").to_owned();
        let (address, listener) = listen().await;
        let folder = tempfile::tempdir().unwrap();
        let hosts = format!("127.0.0.1 localhost\n{address} {API_SERVER}\n");
        fs::write(folder.path().join("hosts"), hosts).unwrap();
        let relay = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(pass(near, target.clone()));
            }
        });
        Self { folder, relay }
    }

    /// A pod with this account.
    ///
    /// - `authorities`: PEM, of the API server for example.
    pub fn pod(&self, name: &str, token: &str, authorities: &str) -> Pod {
        let account = self.folder.path().join(name);
        fs::create_dir(&account).unwrap();
        for (file, text) in [("token", token), ("ca.crt", authorities), ("namespace", "argocd")] {
            fs::write(account.join(file), text).unwrap();
        }
        Pod {
            hosts: self.folder.path().join("hosts"),
            account,
        }
    }
}

impl Drop for PodNetwork {
    fn drop(&mut self) {
        self.relay.abort();
    }
}

impl Pod {
    /// The program that runs another one in the pod, and its first arguments. Those of the other one
    /// follow.
    pub fn command(&self, program: &Path) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        let mounts = [path(&self.hosts), path(&self.account), path(program)];
        let shell = ["unshare", "--mount", "sh", "-ec", SCRIPT, "sh"].map(str::to_owned);
        shell.into_iter().chain(mounts).collect()
    }

    /// The variables by which a program finds the API server.
    pub fn environment() -> [(&'static str, String); 2] {
        [
            ("KUBERNETES_SERVICE_HOST", API_SERVER.to_owned()),
            ("KUBERNETES_SERVICE_PORT", "443".to_owned()),
        ]
    }

    /// Replaces the authorities of the account.
    pub fn trust(&self, authorities: &str) {
        fs::write(self.account.join("ca.crt"), authorities).unwrap();
    }
}

/// Listens at port 443 of an address of loopback that nobody else uses.
async fn listen() -> (Ipv4Addr, TcpListener) {
    loop {
        let mut random = [0; 2];
        aws_lc_rs::rand::fill(&mut random).unwrap();
        let address = Ipv4Addr::new(127, 1, random[0], random[1]);
        match TcpListener::bind((address, 443)).await {
            Ok(listener) => return (address, listener),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => panic!("port 443 of {address} cannot be used, so run this test as root: {error}"),
        }
    }
}

async fn pass(mut near: TcpStream, target: String) {
    if let Ok(mut far) = TcpStream::connect(target).await {
        // An end of either connection ends both.
        let _ = copy_bidirectional(&mut near, &mut far).await;
    }
}
