//! The README's "Five minutes" and the tutorials that use the demo, command by command, as somebody types
//! them who reads from top to bottom. Each page has its own shell. Later pages, and later scenes of a
//! page, must not depend on what earlier ones left behind.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::until;

/// Ends the output of each block.
const END: &str = "__END_OF_BLOCK__";

/// A page whose blocks are run.
struct Page {
    /// Path in the checkout.
    file: &'static str,
    /// The heading of the section to run; without one, the whole page.
    section: Option<&'static str>,
    /// Every block after the one that starts the demo.
    scenes: &'static [Scene],
}

/// What a block shows, by the beginning of its first line.
struct Scene {
    begins: &'static str,
    /// Texts of its output, in this order.
    shows: &'static [&'static str],
    /// What is sent then until it shows the text: the gateway takes a changed file within seconds.
    then: Option<(&'static str, &'static str)>,
}

impl Scene {
    const fn then(self, command: &'static str, shows: &'static str) -> Self {
        Self {
            then: Some((command, shows)),
            ..self
        }
    }
}

const fn scene(begins: &'static str, shows: &'static [&'static str]) -> Scene {
    Scene {
        begins,
        shows,
        then: None,
    }
}

const PAGES: &[Page] = &[
    Page {
        file: "README.md",
        section: Some("Five minutes"),
        scenes: FIVE_MINUTES,
    },
    Page {
        file: "docs/tutorials/extensions.md",
        section: None,
        scenes: EXTENSIONS,
    },
    Page {
        file: "docs/tutorials/demo-tour.md",
        section: None,
        scenes: TOUR,
    },
];

const ALICE: &str = r#"curl -is "$series" "${app[@]}" -H "Authorization: Bearer $ALICE""#;
const BOB: &str = r#"curl -is "$series" "${app[@]}" -H "Authorization: Bearer $BOB""#;

const ENVIRONMENT: Scene = scene("source target/demo/env", &[]);
const GRANT: Scene = scene("sed -i 's/g, bob, role:viewer/g, bob, role:shop/'", &[]).then(BOB, "200 OK");
const WITHDRAW: Scene = scene("sed -i 's/g, bob, role:shop/g, bob, role:viewer/'", &[]).then(BOB, "403 Forbidden");

const FIVE_MINUTES: &[Scene] = &[
    ENVIRONMENT,
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
    GRANT,
    WITHDRAW,
];

const EXTENSIONS: &[Scene] = &[
    ENVIRONMENT,
    scene(
        r#"call -H "Authorization: Bearer $BOB""#,
        &["403 Forbidden", "permission_denied", "200 OK", "backend-a"],
    ),
    scene(
        "cargo run -q -- decisions",
        &["OUTCOME", "bob", "alice", "No: extensions, invoke, metrics", "Yes"],
    ),
    GRANT,
    WITHDRAW,
    scene(
        "cat >> $DEMO/policies/extensions/policy.rego",
        &["a developer of the project may write: FAIL", "FAIL: 1/"],
    ),
    scene(
        "cargo run -q -- check",
        &["a developer of the project may write", "200 OK"],
    ),
    scene("sed -i 's/not input.request.method", &["nobody deletes series: PASS"]).then(
        r#"call -X DELETE -H "Authorization: Bearer $ALICE""#,
        "nobody deletes series",
    ),
    scene("call -X DELETE", &["403 Forbidden", "refused by ", "policy.rego:"]),
    scene("cp $GUESTS/tenant-router.yaml", &[]).then(ALICE, "x-scope-orgid"),
    scene("rm $DEMO/plugins/tenant-router.yaml", &[]),
];

const TOUR: &[Scene] = &[
    ENVIRONMENT,
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
        "cargo run -q -- appset generate",
        &["stages", "not permitted", "created", "deleted"],
    ),
    scene("cargo run -q -- rbac can", &["Yes", "alice"]),
];

/// Runs the blocks of all pages and compares what they show.
pub(super) async fn run(root: &Path, program: &Path) -> Result<()> {
    for page in PAGES {
        let text = tokio::fs::read_to_string(root.join(page.file)).await?;
        let mut shell = Shell::start(root, program)?;
        for (block, scene) in scenes(page, &text)? {
            play(page, &block, scene, &mut shell).await?;
        }
        shell.process.kill().await?;
    }
    Ok(())
}

async fn play(page: &Page, block: &str, scene: &Scene, shell: &mut Shell) -> Result<()> {
    let shown = shell.run(block).await?;
    let mut rest = shown.as_str();
    for text in scene.shows {
        let at = rest.find(text);
        let at = at.with_context(|| format!("{}:\n{block}\ndoes not show `{text}` there:\n{shown}", page.file))?;
        rest = rest.get(at + text.len()..).unwrap_or_default();
    }
    if let Some((command, text)) = scene.then {
        let shell = tokio::sync::Mutex::new(shell);
        until(command, async || {
            let shown = shell.lock().await.run(command).await?;
            ensure!(shown.contains(text), "no `{text}` in:\n{shown}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The blocks of commands of a page, each with what it shows.
fn scenes(page: &Page, text: &str) -> Result<Vec<(String, &'static Scene)>> {
    let blocks = blocks(page, text)?;
    ensure!(
        blocks.len() == page.scenes.len(),
        "{} has {} blocks of commands after the one that starts the demo, and {} are known in \
         xtask/src/demo/readme.rs",
        page.file,
        blocks.len(),
        page.scenes.len()
    );
    for (block, scene) in blocks.iter().zip(page.scenes) {
        ensure!(
            block.starts_with(scene.begins),
            "{} has `{block}` where `{}` is expected",
            page.file,
            scene.begins
        );
    }
    Ok(blocks.into_iter().zip(page.scenes).collect())
}

/// The blocks of commands of a page, without the one that starts the demo.
fn blocks(page: &Page, text: &str) -> Result<Vec<String>> {
    let section = match page.section {
        None => text,
        Some(heading) => {
            let heading = format!("\n## {heading}\n");
            let (_, section) = text
                .split_once(heading.as_str())
                .with_context(|| format!("{} has no section `{}`", page.file, heading.trim()))?;
            section.split_once("\n## ").map_or(section, |(section, _)| section)
        }
    };
    let blocks = section.split("```sh\n").skip(1);
    let blocks: Vec<_> = blocks
        .filter_map(|block| Some(block.split_once("\n```")?.0.to_owned()))
        .collect();
    match blocks.split_first() {
        Some((first, rest)) if first == "cargo xtask demo" => Ok(rest.to_vec()),
        first => bail!("{} does not begin with `cargo xtask demo`: {first:?}", page.file),
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
    use super::{PAGES, scenes};

    #[test]
    fn every_command_of_the_pages_is_run_by_the_demo() {
        for page in PAGES {
            let file = format!("{}/../{}", env!("CARGO_MANIFEST_DIR"), page.file);
            let text = std::fs::read_to_string(file).unwrap();
            assert_eq!(scenes(page, &text).unwrap().len(), page.scenes.len());
            let other = text.replacen("source target/demo/env", "source env", 1);
            let error = scenes(page, &other).err().unwrap().to_string();
            assert!(error.contains("`source target/demo/env` is expected"), "{error}");
        }
    }
}
