//! A separate network for a program: it reaches this machine at one address only, and nothing that
//! listens on loopback.
//!
//! It needs root and the program `ip`.

use std::net::Ipv4Addr;
use std::path::Path;

use tokio::process::Command;

/// A network namespace, joined to this one by a pair of addresses. It is removed when the value is dropped.
pub struct Network {
    name: String,
    inside: Ipv4Addr,
    outside: Ipv4Addr,
}

impl Network {
    /// # Panics
    /// Without root, or without `ip`.
    pub async fn start() -> Self {
        let mut random = [0; 3];
        aws_lc_rs::rand::fill(&mut random).unwrap();
        let [high, low, other] = random;
        // A network of four addresses, two of them usable.
        let subnet = low & !3;
        let network = Self {
            name: format!("tg{high:02x}{low:02x}{other:02x}"),
            outside: Ipv4Addr::new(10, 231, high, subnet | 1),
            inside: Ipv4Addr::new(10, 231, high, subnet | 2),
        };
        let Self { name, inside, outside } = &network;
        let (near, far) = (format!("{name}a"), format!("{name}b"));
        let (inside, outside) = (format!("{inside}/30"), format!("{outside}/30"));
        for arguments in [
            &["netns", "add", name][..],
            &[
                "link", "add", &near, "type", "veth", "peer", "name", &far, "netns", name,
            ],
            &["addr", "add", &outside, "dev", &near],
            &["link", "set", &near, "up"],
            &["-n", name, "addr", "add", &inside, "dev", &far],
            &["-n", name, "link", "set", &far, "up"],
            &["-n", name, "link", "set", "lo", "up"],
        ] {
            network.ip(arguments).await;
        }
        network
    }

    async fn ip(&self, arguments: &[&str]) {
        let output = Command::new("ip").args(arguments).output().await;
        let output = output.unwrap_or_else(|error| panic!("`ip` of iproute2 is needed: {error}"));
        assert!(
            output.status.success(),
            "ip {arguments:?}, which needs root: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// The address of programs in the network.
    pub fn inside(&self) -> Ipv4Addr {
        self.inside
    }

    /// This machine's address in the network.
    pub fn outside(&self) -> Ipv4Addr {
        self.outside
    }

    /// Runs a program in the network: the first words of its command.
    pub fn command(&self, program: &Path) -> Vec<String> {
        let namespace = format!("--net=/var/run/netns/{}", self.name);
        vec!["nsenter".to_owned(), namespace, program.display().to_string()]
    }

    /// From now on, what the network sends to this machine is lost without a word, until
    /// [`Network::heal`].
    pub async fn black_hole(&self) {
        let route = format!("{}/32", self.outside);
        self.ip(&["-n", &self.name, "route", "add", "blackhole", &route]).await;
    }

    /// Ends [`Network::black_hole`].
    pub async fn heal(&self) {
        let route = format!("{}/32", self.outside);
        self.ip(&["-n", &self.name, "route", "del", "blackhole", &route]).await;
    }

    /// Whether a program in the network can connect to a port there.
    pub async fn reaches(&self, address: &str) -> bool {
        let (host, port) = address.rsplit_once(':').unwrap();
        let script = format!("exec 3<>/dev/tcp/{host}/{port}");
        let command = self.command(Path::new("timeout"));
        let status = Command::new(&command[0])
            .args(&command[1..])
            .args(["5", "bash", "-c", &script])
            .stderr(std::process::Stdio::null())
            .status();
        status.await.unwrap().success()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Its addresses go with it.
        let _ = std::process::Command::new("ip")
            .args(["netns", "delete", &self.name])
            .status();
    }
}
