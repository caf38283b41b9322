//! Runs Argo CD's own code, OPA and cel-go in a process, which answers questions in JSON, one a line.
//! Tests compare Tollgate with it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::programs::{self, Argocd};

/// Finds what `cargo xtask argocd` builds.
///
/// # Panics
/// If something is missing.
pub fn argocd() -> Argocd {
    let found = Argocd::find(crate::checkout()).unwrap();
    for path in [&found.judge, &found.files] {
        assert!(path.exists(), "{} is missing: run `cargo xtask argocd`", path.display());
    }
    found
}

/// A running process of the code that tests compare with. It ends when the value is dropped.
#[derive(Debug)]
pub struct Judge {
    pipes: Mutex<Option<(ChildStdin, BufReader<ChildStdout>)>>,
    child: Child,
}

impl Judge {
    /// Starts Argo CD's code.
    pub fn start() -> Self {
        Self::run(&argocd().judge)
    }

    /// Starts OPA and cel-go, which answer `rego` and `cel`.
    ///
    /// # Panics
    /// If the program is missing.
    pub fn engines() -> Self {
        let program = programs::engines(crate::checkout()).unwrap();
        assert!(
            program.is_file(),
            "{} is missing: run `cargo xtask setup`",
            program.display()
        );
        Self::run(&program)
    }

    fn run(program: &Path) -> Self {
        let mut command = Command::new(program);
        command
            // With fewer garbage collections, the differentials take a tenth less time.
            .env("GOGC", "800")
            // Below the bound of memory that the program of the engines gives itself.
            .env("GOMEMLIMIT", "4GiB")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It logs each call of git there.
            .stderr(Stdio::null());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let pipes = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        Self {
            pipes: Mutex::new(Some(pipes)),
            child,
        }
    }

    /// Asks a question. `Err` is an error of that code itself.
    pub fn ask(&self, question: &Value) -> Result<Value, String> {
        // Formatted into the pipe, it would be a system call for each token.
        let text = format!("{question}\n");
        let mut pipes = self.pipes.lock().unwrap();
        let (input, output) = pipes.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the judge ended at {question}");
        let mut answer: Value = serde_json::from_str(&line).unwrap();
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer.take()),
        }
    }

    /// Renders a Go template.
    pub fn render(&self, template: &str, parameters: &Value, options: &[&str]) -> Result<String, String> {
        let question = json!({
            "kind": "render", "template": template, "parameters": parameters, "goTemplate": true, "options": options,
        });
        let answer = self.ask(&question)?;
        Ok(answer
            .get("text")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned())
    }

    /// Returns the Applications as Argo CD writes them.
    pub fn normalize(&self, applications: &[Value]) -> Vec<Value> {
        let question = json!({"kind": "normalize", "applications": applications});
        let mut answer = self
            .ask(&question)
            .unwrap_or_else(|error| panic!("{error}: {applications:#?}"));
        serde_json::from_value(answer["value"].take()).unwrap()
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // At the end of its input it deletes its checkouts.
        *self.pipes.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        drop(self.child.wait());
    }
}
