//! The README's "Five minutes", command by command in one shell, as somebody types them who reads from top to
//! bottom. Later scenes must not depend on what earlier ones left behind.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::until;

/// The heading of the section, and the one after it.
const SECTION: (&str, &str) = ("\n## Five minutes\n", "\n## ");
/// Ends the output of each block.
const END: &str = "__END_OF_BLOCK__";

/// What a block shows, by the beginning of its first line.
struct Scene {
    begins: &'static str,
    /// Texts of its output, in this order.
    shows: &'static [&'static str],
    /// What is sent then until it shows the text: the gateway takes a changed file within seconds.
    then: Option<(&'static str, &'static str)>,
}

const fn scene(begins: &'static str, shows: &'static [&'static str]) -> Scene {
    Scene {
        begins,
        shows,
        then: None,
    }
}

const BOB: &str = r#"curl -is "$series" "${app[@]}" -H "Authorization: Bearer $BOB""#;

/// Every block after the one that starts the demo.
const SCENES: &[Scene] = &[
    scene("source target/demo/env", &[]),
    scene(
        r#"curl -i "$series" "${app[@]}" -H "Authorization: Bearer $BOB""#,
        &["403 Forbidden", "decision"],
    ),
    scene(
        r#"curl -i "$series" "${app[@]}" -H "Authorization: Bearer $ALICE""#,
        &["200 OK", "alice"],
    ),
    scene(
        "curl -s \"$ADMIN/decisions?most=2\"",
        &["alice", "bob", "OUTCOME", "bob", "alice"],
    ),
    Scene {
        begins: "sed -i 's/g, bob, role:viewer/g, bob, role:shop/'",
        shows: &[],
        then: Some((BOB, "200 OK")),
    },
    Scene {
        begins: "sed -i 's/g, bob, role:shop/g, bob, role:viewer/'",
        shows: &[],
        then: Some((BOB, "403 Forbidden")),
    },
    scene("cargo run -q -- check", &["0 errors, 2 warnings"]),
    Scene {
        begins: "cp $GUESTS/tenant-router.yaml",
        shows: &[],
        then: Some((
            r#"curl -s "$series" "${app[@]}" -H "Authorization: Bearer $ALICE""#,
            "x-scope-orgid",
        )),
    },
    scene(
        "curl -s \"$GATE/clusters/demo/k8s/api\"",
        &["APIVersions", "APIVersions", "demo", "demo"],
    ),
    scene("token() {", &["agent_not_found", "alice", "400", "access"]),
    scene(
        "write() {",
        &[
            "checkout-deployer",
            "you may not sync",
            "namespaceResourceBlacklist",
            "secrets is forbidden: User \\\"bob\\\"",
            "checkout-deployer",
        ],
    ),
    scene(
        "export TOLLGATE_SERVER=$GATE",
        &["stages", "not permitted", "created", "deleted"],
    ),
];

/// Runs the section's blocks and compares what they show.
pub(super) async fn run(root: &Path, program: &Path) -> Result<()> {
    let readme = tokio::fs::read_to_string(root.join("README.md")).await?;
    let mut shell = Shell::start(root, program)?;
    for (block, scene) in scenes(&readme)? {
        let shown = shell.run(&block).await?;
        let mut rest = shown.as_str();
        for text in scene.shows {
            let at = rest.find(text);
            let at = at.with_context(|| format!("README.md:\n{block}\ndoes not show `{text}` there:\n{shown}"))?;
            rest = rest.get(at + text.len()..).unwrap_or_default();
        }
        if let Some((command, text)) = scene.then {
            let shell = tokio::sync::Mutex::new(&mut shell);
            until(command, async || {
                let shown = shell.lock().await.run(command).await?;
                ensure!(shown.contains(text), "no `{text}` in:\n{shown}");
                Ok(())
            })
            .await?;
        }
    }
    shell.process.kill().await?;
    Ok(())
}

/// The blocks of commands of the section, each with what it shows.
fn scenes(readme: &str) -> Result<Vec<(String, &'static Scene)>> {
    let blocks = blocks(readme)?;
    ensure!(
        blocks.len() == SCENES.len(),
        "README.md has {} blocks of commands in its five minutes after the one that starts the demo, and {} are known \
         in xtask/src/demo/readme.rs",
        blocks.len(),
        SCENES.len()
    );
    for (block, scene) in blocks.iter().zip(SCENES) {
        ensure!(
            block.starts_with(scene.begins),
            "README.md has `{block}` where `{}` is expected",
            scene.begins
        );
    }
    Ok(blocks.into_iter().zip(SCENES).collect())
}

/// The blocks of commands of the section, without the one that starts the demo.
fn blocks(readme: &str) -> Result<Vec<String>> {
    let (begin, end) = SECTION;
    let (_, section) = readme
        .split_once(begin)
        .context("README.md has no section `Five minutes`")?;
    let (section, _) = section.split_once(end).unwrap_or((section, ""));
    let blocks = section.split("```sh\n").skip(1);
    let blocks: Vec<_> = blocks
        .filter_map(|block| Some(block.split_once("\n```")?.0.to_owned()))
        .collect();
    match blocks.split_first() {
        Some((first, rest)) if first == "cargo xtask demo" => Ok(rest.to_vec()),
        first => bail!("README.md does not begin its five minutes with `cargo xtask demo`: {first:?}"),
    }
}

/// A shell that takes one block after the other.
struct Shell {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Shell {
    fn start(root: &Path, program: &Path) -> Result<Self> {
        let mut process = Command::new("bash")
            .current_dir(root)
            .env("TOLLGATE_PROGRAM", program)
            .env("TOLLGATE_DEMO_ENV", super::target(root).join("demo/env"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().context("no output")?;
        Ok(Self {
            input: process.stdin.take().context("no input")?,
            output: BufReader::new(output).lines(),
            process,
        })
    }

    /// Returns everything that a block printed.
    async fn run(&mut self, block: &str) -> Result<String> {
        // The program is built already, and the target folder may be another one.
        let block = block
            .replace("cargo run -q --", "\"$TOLLGATE_PROGRAM\"")
            .replace("source target/demo/env", "source \"$TOLLGATE_DEMO_ENV\"");
        let script = format!("{{\n{block}\n}} 2>&1 </dev/null\necho\necho {END}\n");
        self.input.write_all(script.as_bytes()).await?;
        let mut shown = String::new();
        while let Some(line) = self.output.next_line().await? {
            if line == END {
                return Ok(shown);
            }
            shown.push_str(&line);
            shown.push('\n');
        }
        bail!("the shell ended in the middle of:\n{block}")
    }
}

#[cfg(test)]
mod tests {
    use super::{SCENES, scenes};

    const README: &str = include_str!("../../../README.md");

    #[test]
    fn every_command_of_the_five_minutes_is_run_by_the_demo() {
        assert_eq!(scenes(README).unwrap().len(), SCENES.len());
        let other = README.replacen("source target/demo/env", "source env", 1);
        let error = scenes(&other).err().unwrap().to_string();
        assert!(error.contains("`source target/demo/env` is expected"), "{error}");
    }
}
