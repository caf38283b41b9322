//! Asks the program for its help.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The help of a command.
#[derive(Clone, Debug)]
pub struct Help {
    /// The names after `tollgate`; none for the program itself.
    pub command: Vec<String>,
    /// What `--help` prints.
    pub text: String,
}

/// What the program prints.
///
/// # Errors
/// It cannot be started, or fails.
pub fn output(program: &Path, arguments: &[&str]) -> Result<String> {
    // The help shows values of the environment.
    let mut command = Command::new(program);
    let output = command.args(arguments).env_clear().output();
    let output = output.with_context(|| format!("starting {}", program.display()))?;
    ensure!(output.status.success(), "{arguments:?} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// The help of the program and of every command, each before the commands below it.
///
/// # Errors
/// The program cannot be started, or fails.
pub fn help(program: &Path) -> Result<Vec<Help>> {
    let mut found = Vec::new();
    walk(program, &[], &mut found)?;
    Ok(found)
}

fn walk(program: &Path, command: &[&str], found: &mut Vec<Help>) -> Result<()> {
    let text = output(program, &[command, &["--help"]].concat())?;
    found.push(Help {
        command: command.iter().map(|name| (*name).to_owned()).collect(),
        text: text.clone(),
    });
    let below = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    // A long description goes on in lines that begin further to the right.
    let names = below
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        walk(program, &[command, &[name]].concat(), found)?;
    }
    Ok(())
}
