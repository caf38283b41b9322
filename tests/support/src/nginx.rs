//! A real nginx as a balancer that ends TLS in front of a gateway.

use std::path::PathBuf;

use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::authority::{Authority, Pair};
use crate::kubernetes::daemon::Daemon;
use crate::kubernetes::eventually;
use crate::kubernetes::gateway::Gateway;
use crate::port::free_port;

/// A balancer on loopback. It ends when the value is dropped.
pub struct Nginx {
    _daemon: Daemon,
    port: u16,
    folder: TempDir,
}

impl Nginx {
    /// Starts a balancer with its own certificate for `localhost`.
    ///
    /// - `idle_seconds`: after how long without a byte it cuts a connection.
    ///
    /// # Panics
    /// nginx is not installed.
    pub async fn before(gateway: &Gateway, idle_seconds: u32) -> Self {
        let folder = tempfile::Builder::new().prefix("nginx-").tempdir().unwrap();
        let authority = Authority::new("balancer");
        let Pair { certificate, key } = authority.server(&["localhost"]);
        let port = free_port();
        let file = |name: &str| folder.path().join(name).display().to_string();
        for (name, text) in [
            ("ca.pem", &authority.pem),
            ("server.pem", &certificate),
            ("server.key", &key),
            ("nginx.conf", &settings(gateway, (port, idle_seconds), &file)),
        ] {
            std::fs::write(file(name), text).unwrap();
        }
        let arguments = ["-p", &file(""), "-c", &file("nginx.conf")].map(str::to_owned);
        let mut daemon = Daemon::run("nginx", &program(), folder.path(), &arguments);
        eventually("nginx listens", async || {
            daemon.check();
            TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop)
        })
        .await;
        Self {
            _daemon: daemon,
            port,
            folder,
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// File with the PEM of the authority of its certificate.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

/// As operators write them: the certificate of the gateway is verified, and protocols are switched.
fn settings(gateway: &Gateway, (port, idle_seconds): (u16, u32), file: &dyn Fn(&str) -> String) -> String {
    let (certificate, key, scratch) = (file("server.pem"), file("server.key"), file("scratch"));
    let authority = gateway.path("gateway-ca.pem").display().to_string();
    let url = gateway.url();
    format!(
        "daemon off; master_process off; pid {scratch}.pid; error_log stderr;
events {{}}
http {{
  access_log off;
  client_body_temp_path {scratch}-1; proxy_temp_path {scratch}-2; fastcgi_temp_path {scratch}-3;
  uwsgi_temp_path {scratch}-4; scgi_temp_path {scratch}-5;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    location / {{
      proxy_pass {url};
      proxy_ssl_trusted_certificate {authority};
      proxy_ssl_verify on;
      proxy_ssl_name localhost;
      proxy_http_version 1.1;
      proxy_set_header Host $host:$server_port;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection upgrade;
      proxy_read_timeout {idle_seconds}s;
      proxy_send_timeout {idle_seconds}s;
    }}
  }}
}}
"
    )
}

/// Where Debian and others have it; a user's PATH may lack it.
fn program() -> PathBuf {
    let places = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"].map(PathBuf::from);
    let found = places.into_iter().find(|place| place.exists());
    found.expect("nginx is missing: `cargo xtask setup` or `apt-get install nginx-light` installs it")
}
