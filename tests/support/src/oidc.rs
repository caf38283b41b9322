//! Runs the OpenID provider of `tests/oidc` as a process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

/// A provider process. It ends when the value is dropped.
pub struct Provider {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Its URL.
    pub issuer: String,
}

impl Provider {
    /// Starts it.
    pub fn start() -> Self {
        let folder = crate::checkout().join("tests/oidc");
        assert!(
            folder.join("node_modules/oidc-provider").is_dir(),
            "the OpenID provider is not installed: run `npm ci` in tests/oidc"
        );
        let mut process = Command::new("node")
            .arg("provider.mjs")
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("`node` cannot be run: install Node.js 20 or newer");
        let commands = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut provider = Self {
            process,
            commands,
            answers,
            issuer: String::new(),
        };
        provider.issuer = provider.answer().as_str().unwrap().to_owned();
        provider
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("the provider said {line:?}"))
    }

    /// Sends one of the commands that provider.mjs lists.
    pub fn ask(&mut self, command: &str) -> Value {
        writeln!(self.commands, "{command}").unwrap();
        let answer = self.answer();
        assert!(answer.get("error").is_none(), "{command}: {answer}");
        answer
    }

    /// Sends a command that makes a token.
    pub fn token(&mut self, command: &str) -> String {
        self.ask(command).as_str().unwrap().to_owned()
    }

    /// Stops it. Connections to it then fail.
    pub fn stop(&mut self) {
        // It may have been stopped already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.stop();
    }
}
