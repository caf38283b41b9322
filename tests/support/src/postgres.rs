//! A real PostgreSQL server that ends with the tests, however they end.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::port::free_port;

/// The only account.
pub const USER: &str = "gatekeeper";
/// Its password. No output of the store may contain it.
pub const PASSWORD: &str = "correct-horse-staple";

/// Waits until its standard input closes: when the [`Server`] is dropped or the process of the
/// tests ends, however that happens. Then it stops the server (`"$@"`) and removes its folder
/// (`$0`).
const WATCHER: &str = r#"
read -r _
"$@" >/dev/null 2>&1
rm -rf -- "$0"
"#;

/// How long a server may take to start, including the time an old one takes to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with its own folder.
pub struct Server {
    folder: PathBuf,
    port: u16,
    databases: AtomicU32,
    watcher: Child,
}

/// The server that all tests of the process share.
pub fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

impl Server {
    /// Starts a server with TLS on a free loopback port.
    ///
    /// # Panics
    /// If its programs are missing (the text has the command that installs them), or if it does
    /// not start (the text has its log).
    pub fn start() -> Self {
        let programs =
            xtask::postgres::folder().unwrap_or_else(|| panic!("PostgreSQL is missing: {}", xtask::postgres::REMEDY));
        let folder = tempfile::Builder::new()
            .prefix("tollgate-postgres-")
            .tempdir()
            .unwrap()
            .keep();
        own(&folder);
        let data = folder.join("data");
        let watcher = Command::new("sh")
            .args(["-c", WATCHER])
            .arg(&folder)
            .args(words(&as_user(programs.join("pg_ctl"))))
            .args(["-D".as_ref(), data.as_os_str()])
            .args(["-m", "immediate", "-t", "20", "stop"])
            .stdin(Stdio::piped())
            // In its own process group, because Ctrl-C must not kill the watcher: it cleans up.
            .process_group(0)
            .spawn()
            .expect("`sh` can be run");
        let server = Self {
            folder,
            port: free_port(),
            databases: AtomicU32::new(0),
            watcher,
        };
        server.initialize(&programs);
        server.launch();
        server
    }

    /// URL of a new, empty database.
    pub async fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut connection = PgConnection::connect(&self.url("postgres")).await.unwrap();
        // SECURITY: the name contains no input, only a number.
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .execute(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        self.url(&name)
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// The file of the certificate that clients verify the server with.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    /// Kills every process of the server at once, and starts it again on the same
    /// data and port.
    pub fn kill_and_restart(&self) {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let status = Command::new("kill")
            .args(["-KILL", &pid])
            .args(children.split_whitespace())
            .status();
        assert!(status.unwrap().success());
        self.launch();
    }

    fn pid(&self) -> String {
        let file = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        file.lines().next().unwrap().trim().to_owned()
    }

    fn initialize(&self, programs: &Path) {
        let certificate = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        self.write("server.pem", &certificate.cert.pem());
        self.write("server.key", &certificate.signing_key.serialize_pem());
        self.write("password", PASSWORD);
        let password = self.folder.join("password");
        self.run(
            as_user(programs.join("initdb"))
                .args(["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"])
                .arg(format!("--username={USER}"))
                .arg(format!("--pwfile={}", password.display()))
                .arg("-D"),
        );
        let folder = self.folder.display();
        let settings = format!(
            "port = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nmax_connections = 400\n\
             fsync = on\nssl = on\nssl_cert_file = '{folder}/server.pem'\nssl_key_file = '{folder}/server.key'\n",
            self.port
        );
        self.write("data/postgresql.auto.conf", &settings);
    }

    /// Starts the server and waits until it answers. Tries again, because remaining processes of a
    /// killed server can prevent a start for a moment.
    fn launch(&self) {
        let programs = xtask::postgres::folder().unwrap();
        let end = SystemTime::now() + PATIENCE;
        loop {
            let log = self.folder.join("log");
            let mut start = as_user(programs.join("pg_ctl"));
            start.args(["-w", "-t", "60", "-l"]).arg(&log).args(["start", "-D"]);
            let output = start
                .arg(self.folder.join("data"))
                .current_dir(&self.folder)
                .output()
                .unwrap();
            if output.status.success() {
                return;
            }
            let log = fs::read_to_string(log).unwrap_or_default();
            assert!(SystemTime::now() < end, "PostgreSQL does not start:\n{log}");
        }
    }

    fn run(&self, command: &mut Command) {
        let output = command
            .arg(self.folder.join("data"))
            .current_dir(&self.folder)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{command:?} ended with {}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        // The server refuses a key that others may read.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        own(&path);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// The account that servers run as when the tests run as root. PostgreSQL refuses to run as root.
fn account() -> Option<(u32, u32)> {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").unwrap();
    let number = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let account = number("postgres").or_else(|| number("nobody"));
    Some(account.expect("root needs an account `postgres` or `nobody` to run PostgreSQL as"))
}

fn as_user(program: PathBuf) -> Command {
    let Some((user, group)) = account() else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    command
        .args([format!("--reuid={user}"), format!("--regid={group}")])
        .arg("--clear-groups")
        .arg(program);
    command
}

fn own(path: &Path) {
    if let Some((user, group)) = account() {
        chown(path, Some(user), Some(group)).unwrap();
    }
}

fn words(command: &Command) -> Vec<std::ffi::OsString> {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(ToOwned::to_owned)
        .collect()
}
