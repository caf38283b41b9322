//! The page of the commands.

use std::fmt::Write as _;

use anyhow::Result;

use super::program::Help;

const INTRODUCTION: &str = "\
# Commands

What `--help` prints for each command. Every command also has `-h`, `--help`, `-V` and `--version`.
";

pub(super) fn page(help: &[Help]) -> Result<String> {
    let mut page = INTRODUCTION.to_owned();
    for one in help {
        let name = [&["tollgate".to_owned()], one.command.as_slice()].concat().join(" ");
        write!(page, "\n## `{name}`\n\n```text\n{}\n```\n", shortened(&one.text))?;
    }
    Ok(page)
}

/// Without the options that every command has, and without trailing blanks.
fn shortened(help: &str) -> String {
    let blocks = help.trim_end().split("\n\n");
    let mut kept: Vec<String> = Vec::new();
    for block in blocks {
        let is_common = |line: &str| {
            let line = line.trim_start();
            line.starts_with("-h, --help") || line.starts_with("-V, --version")
        };
        // The long form has a block for each option, and the short one a line.
        let first = block.lines().find(|line| *line != "Options:").unwrap_or_default();
        let lines: Vec<&str> =
            match is_common(first) && block.lines().last().is_some_and(|line| line.starts_with("          ")) {
                true => Vec::new(),
                false => block
                    .lines()
                    .filter(|line| !is_common(line))
                    .map(str::trim_end)
                    .collect(),
            };
        if !lines.is_empty() && lines != ["Options:"] {
            kept.push(lines.join("\n"));
        }
    }
    kept.join("\n\n")
}
