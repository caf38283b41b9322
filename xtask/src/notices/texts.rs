//! The texts of licenses and notices: those that crates ship, and the standard texts where they ship none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use spdx::{Expression, LicenseItem, LicenseReq, ParseMode};

use super::Package;

/// How names of files begin that hold licenses, copyright lines and notices, in lower case.
const NAMES: [&str; 9] = [
    "license",
    "licence",
    "unlicense",
    "copying",
    "copyright",
    "notice",
    "authors",
    "patents",
    "third-party",
];

/// Words by which the text of a license or exception is recognized, in lower case.
const PHRASES: [(&str, &str); 13] = [
    ("Apache-2.0", "grant of patent license"),
    ("BSD-2-Clause", "redistributions of source code must retain"),
    ("BSD-3-Clause", "redistributions of source code must retain"),
    ("BSL-1.0", "boost software license"),
    ("CC0-1.0", "cc0 1.0 universal"),
    ("CDLA-Permissive-2.0", "community data license agreement"),
    ("ISC", "permission to use, copy, modify, and"),
    (
        "LLVM-exception",
        "as an exception, if, as a result of your compiling your source code",
    ),
    ("MIT", "permission is hereby granted, free of charge"),
    ("MIT-0", "permission is hereby granted, free of charge"),
    ("Unicode-3.0", "unicode license v3"),
    ("Unlicense", "this is free and unencumbered software"),
    ("Zlib", "altered source versions must be plainly marked"),
];

/// Distinct texts, by their words, so that line breaks make no difference.
#[derive(Debug, Default)]
pub(super) struct Texts(BTreeMap<String, Entry>);

#[derive(Debug, Default)]
struct Entry {
    text: String,
    /// The works that the text belongs to.
    works: BTreeSet<String>,
}

impl Texts {
    /// Adds the texts of a crate, and returns its license as an SPDX expression.
    ///
    /// # Errors
    /// The crate's license, or a text of it, is unknown.
    pub(super) fn add_crate(&mut self, package: &Package) -> Result<String> {
        let label = package.label();
        let mut shipped = Vec::new();
        let folder = package.manifest_path.parent().unwrap_or(Path::new("/"));
        collect(folder, &mut shipped).with_context(|| format!("reading the sources of {label}"))?;
        let Some(license) = &package.license else {
            ensure!(
                !shipped.is_empty(),
                "{label} names no license and ships none: ask its authors, or replace the crate"
            );
            self.add_all(&shipped, &label);
            return Ok("see its text".to_owned());
        };
        let expression = Expression::parse_mode(license, ParseMode::LAX).with_context(|| {
            format!("the license `{license}` of {label} is no SPDX expression: ask its authors, or replace the crate")
        })?;
        let words: String = shipped.iter().map(|text| words(text) + " ").collect();
        self.add_missing(&expression, &words, package)?;
        self.add_all(&shipped, &label);
        Ok(expression.to_string())
    }

    /// Adds the standard texts of those licenses whose texts are not among the `shipped` ones.
    fn add_missing(&mut self, expression: &Expression, shipped: &str, package: &Package) -> Result<()> {
        let mut unknown = None;
        let complete = expression.evaluate(|requirement| {
            let phrases = phrases(requirement);
            unknown = unknown
                .take()
                .or_else(|| phrases.is_none().then(|| requirement.to_string()));
            phrases.is_some_and(|phrases| phrases.iter().all(|phrase| shipped.contains(phrase)))
        });
        if complete {
            return Ok(());
        }
        let label = package.label();
        if let Some(unknown) = unknown {
            anyhow::bail!(
                "{label} has the license `{unknown}`, and none of its files was recognized as that: \
                 add words of its text to PHRASES in xtask/src/notices/texts.rs"
            );
        }
        let holders = match package.authors.is_empty() {
            true => format!("the authors of {}", package.name),
            false => package.authors.join(", "),
        };
        for requirement in expression.requirements() {
            self.add_standard(&requirement.req, &format!("{label} (copyright {holders})"));
        }
        Ok(())
    }

    fn add_standard(&mut self, requirement: &LicenseReq, work: &str) {
        let LicenseItem::Spdx { id, .. } = &requirement.license else {
            return;
        };
        let mut text = id.text().to_owned();
        for placeholder in [
            "<year> <copyright holders>",
            "<year> <owner>",
            "<YEAR> <COPYRIGHT HOLDER>",
        ] {
            text = text.replace(placeholder, "the copyright holders named above");
        }
        if let Some(spdx::AdditionItem::Spdx(exception)) = &requirement.addition {
            text = format!("{text}\n\n{}", exception.text());
        }
        self.add(&text, work);
    }

    /// Adds the texts of the Rust standard library, which its toolchain has, and of the C library, and
    /// returns both as they are listed.
    ///
    /// # Errors
    /// The toolchain has no such file.
    pub(super) fn add_toolchain(&mut self, host: &str) -> Result<String> {
        let sysroot = crate::output(Command::new("rustc").args(["--print", "sysroot"]))?;
        let file = Path::new(&sysroot).join("share/doc/rust/COPYRIGHT-library.html");
        let page = fs::read_to_string(&file).with_context(|| {
            format!(
                "cannot read {}, the licenses of Rust's standard library: use a toolchain of rustup, \
                 whose component `rustc` has it",
                file.display()
            )
        })?;
        let between = |start: &'static str, end: &'static str| {
            let parts = page.split(start).skip(1);
            parts
                .filter_map(move |part| part.split_once(end))
                .map(|(text, _)| unescape(text))
        };
        let holders: BTreeSet<String> = between("<b>Copyright:</b>", "</p>")
            .map(|line| line.trim().to_owned())
            .collect();
        let holders = Vec::from_iter(holders).join(", ");
        let texts: Vec<String> = between("<pre>", "</pre>").collect();
        ensure!(
            !texts.is_empty() && !holders.is_empty(),
            "{} has no license text in `<pre>`, or no copyright: its form changed, adapt xtask/src/notices/texts.rs",
            file.display()
        );
        let rust = "the Rust standard library";
        self.add_all(&texts, rust);
        for name in ["MIT", "Apache-2.0", "BSD-2-Clause", "Unicode-3.0"] {
            self.add_named(name, &format!("{rust} (copyright {holders})"))?;
        }
        let mut list = format!(
            "{rust}\n    License: (MIT OR Apache-2.0) AND BSD-2-Clause AND Unicode-3.0\n    \
             Source:  https://github.com/rust-lang/rust\n    Authors: {holders}\n"
        );
        if host.ends_with("-gnu") {
            let (library, authors) = ("the GNU C Library", "Free Software Foundation, Inc.");
            self.add_named("LGPL-2.1", &format!("{library} (copyright {authors})"))?;
            list += &format!(
                "{library}\n    License: LGPL-2.1-or-later\n    Source:  https://sourceware.org/glibc\n    \
                 Authors: {authors}\n"
            );
        }
        Ok(list)
    }

    fn add_named(&mut self, name: &str, work: &str) -> Result<()> {
        let id = spdx::license_id(name).with_context(|| format!("SPDX has no license `{name}`"))?;
        self.add_standard(&id.into(), work);
        Ok(())
    }

    fn add_all(&mut self, texts: &[String], work: &str) {
        for text in texts {
            self.add(text, work);
        }
    }

    fn add(&mut self, text: &str, work: &str) {
        let words = words(text);
        // An archive made without symbolic links has their targets as text, such as `../LICENSE-MIT`.
        if !words.contains(' ') {
            return;
        }
        let entry = self.0.entry(words).or_default();
        if entry.text.is_empty() {
            entry.text = text.to_owned();
        }
        entry.works.insert(work.to_owned());
    }

    /// All texts, each below the works that it belongs to, in the order of these.
    pub(super) fn render(&self) -> String {
        let mut entries: Vec<&Entry> = self.0.values().collect();
        entries.sort_by(|a, b| (&a.works, &a.text).cmp(&(&b.works, &b.text)));
        let mut all = String::new();
        for entry in entries {
            let works: Vec<&str> = entry.works.iter().map(String::as_str).collect();
            let line = "=".repeat(80);
            let text: Vec<&str> = entry.text.trim_matches('\n').lines().map(str::trim_end).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(
                all,
                "{line}\n{}\n{}\n\n{}\n",
                works.join("\n"),
                "-".repeat(80),
                text.join("\n")
            );
        }
        all
    }
}

/// The words that a text of this license, and of its exception, contains; `None` if they are not known.
fn phrases(requirement: &LicenseReq) -> Option<Vec<&'static str>> {
    let exception = requirement.addition.as_ref().map(ToString::to_string);
    let names = [requirement.license.id().map(|id| id.name.to_owned())]
        .into_iter()
        .chain(exception.map(Some));
    let known = |name: String| {
        PHRASES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, phrase)| *phrase)
    };
    names.map(|name| name.and_then(known)).collect()
}

/// The files below `folder` with licenses and notices, in the order of their names.
fn collect(folder: &Path, texts: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry?.path());
    }
    paths.sort();
    let in_licenses = folder
        .file_name()
        .is_some_and(|name| name == "LICENSES" || name == ".licenses");
    for path in paths {
        if path.is_dir() {
            collect(&path, texts)?;
        } else if in_licenses || path.file_name().is_some_and(|name| is_notice(&name.to_string_lossy())) {
            let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            texts.push(String::from_utf8_lossy(&content).replace('\r', ""));
        }
    }
    Ok(())
}

fn is_notice(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let ends = |rest: &str| rest.is_empty() || rest.starts_with(['-', '_', '.', 's']);
    !name.ends_with(".rs") && NAMES.iter().any(|start| name.strip_prefix(start).is_some_and(ends))
}

/// The words of a text in lower case, without comment signs at the start of its lines.
fn words(text: &str) -> String {
    let words: Vec<&str> = text
        .split_whitespace()
        .filter(|word| !matches!(*word, "*" | "//" | "#"))
        .collect();
    words.join(" ").to_lowercase()
}

/// Replaces the character references that rustc's page has.
fn unescape(text: &str) -> String {
    let references = [
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#38;", "&"),
    ];
    references
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}
