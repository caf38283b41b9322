//! The size of the crates below `host/`, which is the table of ARCHITECTURE.md, and the circles between the
//! modules of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The lines between which ARCHITECTURE.md has the table.
const BEGIN: &str = "<!-- cargo xtask figures -->";
const END: &str = "<!-- end -->";

/// Lines outside tests and fuzz targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Code.
    pub code: usize,
    /// Documentation: `///` and `//!`.
    pub doc: usize,
    /// Other comments.
    pub comment: usize,
    /// Blank lines.
    pub blank: usize,
}

/// A crate, and what was counted in it.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Its folder in `host/`.
    pub name: String,
    /// Its size.
    pub lines: Lines,
    /// Groups of modules at its top level that need each other, in order.
    pub circles: Vec<BTreeSet<String>>,
}

impl Lines {
    /// All of them.
    pub fn all(self) -> usize {
        self.code + self.doc + self.comment + self.blank
    }

    fn add(&mut self, text: &str) {
        for line in text.lines().map(str::trim_start) {
            match line {
                "" => self.blank += 1,
                line if line.starts_with("///") || line.starts_with("//!") => self.doc += 1,
                line if line.starts_with("//") => self.comment += 1,
                _ => self.code += 1,
            }
        }
    }
}

/// Counts every crate, in the order of their names.
///
/// # Errors
/// A folder or file cannot be read.
pub fn crates(root: &Path) -> Result<Vec<Crate>> {
    let host = root.join("host");
    let mut crates = Vec::new();
    for entry in fs::read_dir(&host).with_context(|| format!("reading {}", host.display()))? {
        let source = entry?.path().join("src");
        if source.is_dir() {
            crates.push(measured(&source)?);
        }
    }
    crates.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(crates)
}

fn measured(source: &Path) -> Result<Crate> {
    let mut lines = Lines::default();
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in files(source)? {
        let inside = path.strip_prefix(source)?.to_string_lossy().into_owned();
        let module = inside.split(['/', '.']).next().unwrap_or_default().to_owned();
        let is_test = inside.split(['/', '.']).any(|part| matches!(part, "tests" | "fuzz"));
        if is_test {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        lines.add(text);
        if !matches!(module.as_str(), "lib" | "main") {
            // In a file at the top, `super` is the crate.
            let is_at_top = !inside.contains('/');
            let text = if is_at_top {
                text.replace("super::", "crate::")
            } else {
                text.to_owned()
            };
            let mut to = modules(&text);
            to.remove(&module);
            arrows.entry(module).or_default().extend(to);
        }
    }
    let known: BTreeSet<String> = arrows.keys().cloned().collect();
    for to in arrows.values_mut() {
        to.retain(|name| known.contains(name));
    }
    let folder = source
        .parent()
        .and_then(Path::file_name)
        .context("a crate has no folder")?;
    Ok(Crate {
        name: folder.to_string_lossy().into_owned(),
        lines,
        circles: circles(&arrows),
    })
}

/// The files with Rust code below a folder.
///
/// # Errors
/// A folder cannot be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The modules that paths from `crate::` on name in a text.
pub fn modules(text: &str) -> BTreeSet<String> {
    let name = |text: &str| -> String {
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        text[..end.unwrap_or(text.len())].to_owned()
    };
    let mut found = BTreeSet::new();
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = code.flat_map(|line| [line, "\n"]).collect();
    for after in code.split("crate::").skip(1) {
        match after.strip_prefix('{') {
            None => _ = found.insert(name(after)),
            // `crate::{a::B, c::{D, E}}`: the names at the first level.
            Some(list) => {
                let mut depth = 0_usize;
                let mut begins = true;
                for (at, symbol) in list.char_indices() {
                    match symbol {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => begins = true,
                        symbol if begins && !symbol.is_whitespace() => {
                            found.insert(name(&list[at..]));
                            begins = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    found
}

/// The groups of more than one in which each reaches every other.
fn circles(arrows: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let mut reached: BTreeSet<&String> = BTreeSet::new();
        let mut waiting = vec![from];
        while let Some(at) = waiting.pop() {
            for next in arrows.get(at).into_iter().flatten() {
                if reached.insert(next) {
                    waiting.push(next);
                }
            }
        }
        reached
    };
    let all: BTreeMap<&String, BTreeSet<&String>> = arrows.keys().map(|name| (name, reached(name))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (name, from) in &all {
        let circle: BTreeSet<String> = from
            .iter()
            .filter(|other| *other != name && all.get(*other).is_some_and(|back| back.contains(name)))
            .map(|other| (*other).clone())
            .chain([(*name).clone()])
            .collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

/// The table, as ARCHITECTURE.md has it.
///
/// # Errors
/// A file cannot be read.
pub fn table(root: &Path) -> Result<String> {
    let crates = crates(root)?;
    let mut text = String::from("| crate | code | docs | comments | blank | all |\n|---|---:|---:|---:|---:|---:|\n");
    let mut sum = Lines::default();
    for one in &crates {
        let Lines {
            code,
            doc,
            comment,
            blank,
        } = one.lines;
        writeln!(
            text,
            "| `{}` | {code} | {doc} | {comment} | {blank} | {} |",
            one.name,
            one.lines.all()
        )?;
        sum.code += code;
        sum.doc += doc;
        sum.comment += comment;
        sum.blank += blank;
    }
    writeln!(
        text,
        "| all | {} | {} | {} | {} | {} |",
        sum.code,
        sum.doc,
        sum.comment,
        sum.blank,
        sum.all()
    )?;
    Ok(text)
}

/// The table that ARCHITECTURE.md has.
///
/// # Errors
/// The page cannot be read, or has no place for the table.
pub fn written(root: &Path) -> Result<String> {
    let page = fs::read_to_string(root.join("ARCHITECTURE.md"))?;
    let (_, after) = page
        .split_once(BEGIN)
        .context("ARCHITECTURE.md has no place for the table")?;
    let (table, _) = after
        .split_once(END)
        .context("the table of ARCHITECTURE.md has no end")?;
    Ok(table.trim_start().to_owned())
}

/// Writes the table into ARCHITECTURE.md.
///
/// # Errors
/// A file cannot be read or written.
pub fn write(root: &Path) -> Result<()> {
    let path = root.join("ARCHITECTURE.md");
    let page = fs::read_to_string(&path)?;
    let page = page.replace(&written(root)?, &table(root)?);
    fs::write(&path, page).context("writing ARCHITECTURE.md")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{circles, modules};

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn modules_are_found_in_paths_and_lists() {
        let text = "use crate::a::B;\n// crate::no\nuse crate::{c::{D, E}, f};\nlet x = crate::g::h();\n";
        assert_eq!(modules(text), set(&["a", "c", "f", "g"]));
    }

    #[test]
    fn a_circle_is_found_and_a_chain_is_none() {
        let arrows = |pairs: &[(&str, &[&str])]| -> BTreeMap<String, BTreeSet<String>> {
            pairs.iter().map(|(from, to)| ((*from).to_owned(), set(to))).collect()
        };
        assert!(circles(&arrows(&[("a", &["b"]), ("b", &["c"]), ("c", &[])])).is_empty());
        let found = circles(&arrows(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"])]));
        assert_eq!(found, [set(&["a", "b", "c"])]);
    }
}
