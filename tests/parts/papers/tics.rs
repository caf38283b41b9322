//! Searches texts for phrases that the style guide refuses (docs/style.md, "Prose").

use std::path::{Path, PathBuf};

use super::root;

/// Each phrase in lower case, and what to write instead.
const TICS: [(&str, &str); 14] = [
    ("of its own", "`separate`, or `its own` before the noun"),
    ("of their own", "`separate`, or `their own` before the noun"),
    ("of his own", "`his own` before the noun"),
    ("of her own", "`her own` before the noun"),
    ("as whom", "`which identity ... acts as`"),
    ("is told", "`receives`, `is notified` or `learns`"),
    ("are told", "`receive`, `are notified` or `learn`"),
    ("whoever", "`anyone who` or `a caller who`"),
    ("whatever", "`regardless of`, `any` or `everything that`"),
    ("what there is", "what it is, such as `the inventory`"),
    ("mended", "`fixed`"),
    ("good again", "`valid again`"),
    ("nobody gets in", "`all requests get 401`"),
    ("nobody can dial", "`behind NAT or a firewall`"),
];

/// The files and folders that are searched.
const SEARCHED: [&str; 10] = [
    "host",
    "xtask",
    "deploy",
    "wit",
    "policies",
    "plugins",
    "docs",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
];

/// Generated pages, frozen ones, and the page that lists the phrases.
const LEFT_OUT: [&str; 3] = ["docs/reference", "docs/releases", "docs/style.md"];

/// Adds the files at `path`, except those that builds leave behind.
fn collect(path: &Path, found: &mut Vec<PathBuf>) {
    let relative = path.strip_prefix(root()).unwrap();
    if LEFT_OUT.iter().any(|left_out| relative == Path::new(left_out)) {
        return;
    }
    if !path.is_dir() {
        found.push(path.to_owned());
        return;
    }
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.starts_with('.') && !["target", "node_modules"].contains(&name) {
            collect(&path, found);
        }
    }
}

/// The words of a text in lower case, each with the number of its line.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let words = words.filter(|word| !word.is_empty());
        found.extend(words.map(|word| (at + 1, word.to_lowercase())));
    }
    found
}

/// The phrases in a text, as `file:line: "phrase": say ...`.
fn tics(file: &str, text: &str) -> Vec<String> {
    let words = words(text);
    let mut found = Vec::new();
    for (phrase, advice) in TICS {
        let sought: Vec<&str> = phrase.split(' ').collect();
        for window in words.windows(sought.len()) {
            if window.iter().map(|(_, word)| word.as_str()).eq(sought.iter().copied()) {
                found.push(format!("{file}:{}: \"{phrase}\": say {advice}", window[0].0));
            }
        }
    }
    found
}

#[test]
fn no_text_has_a_phrase_that_the_style_guide_refuses() {
    let mut files = Vec::new();
    for start in SEARCHED {
        collect(&root().join(start), &mut files);
    }
    files.sort();
    let mut seen = 0;
    let mut found = Vec::new();
    for file in files {
        // Pictures and plugins are no text.
        let Ok(text) = String::from_utf8(std::fs::read(&file).unwrap()) else {
            continue;
        };
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        found.extend(tics(&name, &text));
        seen += 1;
    }
    assert!(seen > 1_000, "{seen}");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn phrases_are_found_in_any_case_and_across_lines_but_not_within_words() {
    let text = "/// Recommended: a port of\n/// its own.\n/// WHOEVER asks gets it.\nfn for_whoever_asks() {}\n";
    let expected = [
        "a.rs:1: \"of its own\": say `separate`, or `its own` before the noun",
        "a.rs:3: \"whoever\": say `anyone who` or `a caller who`",
    ];
    assert_eq!(tics("a.rs", text), expected);
}
