//! A server process that ends with the tests, however they end.

use std::fs;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// Starts a watcher, then becomes the program (`"$@"`). The watcher waits until its pipe closes:
/// when the [`Daemon`] is dropped or the process of the tests ends, however that happens. Then it
/// kills the program and removes its folder (`$0`), and the parent folder if that is empty.
const SCRIPT: &str = r#"
exec 3<&0
{
    read -r _ <&3
    kill -KILL $$
    rm -rf -- "$0" || rm -rf -- "$0"
    rmdir -- "${0%/*}"
} &
exec "$@" </dev/null >"$0/log" 2>&1 3<&-
"#;

/// A running program with its own folder.
pub struct Daemon {
    name: &'static str,
    folder: PathBuf,
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Daemon {
    /// Starts a program of the cache, with a new folder of the same name below `parent`.
    pub fn start(name: &'static str, parent: &Path, arguments: &[String]) -> Self {
        Self::run(name, &super::programs().join(name), parent, arguments)
    }

    /// Starts any program, with a new folder `name` below `parent`.
    pub fn run(name: &'static str, program: &Path, parent: &Path, arguments: &[String]) -> Self {
        Self::run_with(name, program, parent, (arguments, &[]), |_| {})
    }

    /// Starts any program with these environment variables, after `fill` wrote files to its folder,
    /// which is also on its `PATH`.
    pub fn run_with(
        name: &'static str,
        program: &Path,
        parent: &Path,
        (arguments, environment): (&[String], &[(&str, String)]),
        fill: impl FnOnce(&Path),
    ) -> Self {
        let folder = parent.join(name);
        fs::create_dir(&folder).unwrap();
        fill(&folder);
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        path.push(":");
        path.push(&folder);
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT])
            .arg(&folder)
            .arg(program)
            .args(arguments)
            .current_dir(&folder)
            .env_clear()
            .env("PATH", path)
            // Go's programs take more memory and a fifth less time of the processor, most of all while they start.
            .env("GOGC", "400")
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // In its own process group, because Ctrl-C must not kill the watcher: it cleans up.
            .process_group(0)
            .spawn()
            .expect("`sh` can be run");
        let stdin = child.stdin.take();
        Self {
            name,
            folder,
            child,
            stdin,
        }
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Panics if the program has ended.
    pub fn check(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("{} ended with {status}:\n{}", self.name, self.log());
        }
    }

    /// The last lines of its log.
    pub fn log(&self) -> String {
        let text = fs::read(self.folder.join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Only the watcher holds the other end of this pipe. When the pipe closes, the watcher is
        // done, or was itself killed; `kill` covers the second case.
        if let Some(mut watcher) = self.child.stdout.take() {
            let _ = watcher.read_to_end(&mut Vec::new());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
