//! `tests/reviews.md`: every finding of a review has a rule, and tests that exist.

use std::collections::BTreeMap;
use std::path::Path;

/// The findings of the third review: the letter of their page, and how many it has.
const THIRD: [(&str, u32); 7] = [("F", 15), ("I", 14), ("R", 27), ("W", 12), ("N", 7), ("U", 6), ("K", 4)];

/// Rows of the first review. There is no finding 20.
const FIRST: std::ops::RangeInclusive<u32> = 1..=38;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of the rows below a heading, by the first cell.
fn rows(page: &str, heading: &str) -> BTreeMap<String, Vec<String>> {
    let (_, below) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("there is no section `{heading}`"));
    let section = below.split("\n## ").next().unwrap();
    let mut found = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<_> = line
            .trim_matches('|')
            .split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect();
        let known = found.insert(cells[0].clone(), cells);
        assert!(known.is_none(), "two rows are called {}", known.unwrap()[0]);
    }
    found
}

/// Whether a function of this name is a test of the file.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let is_function = |line: &str| {
        let after = line.split_once("fn ").map(|(_, after)| after);
        after
            .and_then(|after| after.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    };
    let Some(at) = lines.iter().position(|line| is_function(line)) else {
        return false;
    };
    // Attributes and comments may stand between `#[test]` and the function.
    let attributes = lines[..at]
        .iter()
        .rev()
        .take_while(|line| !line.is_empty() && *line != &"}");
    let is_marked = attributes
        .into_iter()
        .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"));
    // Tests of the store run on both databases; a macro makes them of a list of names.
    let is_listed = text.contains("on_both!") && lines.contains(&format!("{name},").as_str());
    is_marked || is_listed
}

/// What is wrong with a reference to tests: `FILE.rs::NAME`, or `FILE.rs` for all tests of a file.
fn mistake(reference: &str) -> Option<String> {
    let (file, name) = match reference.split_once("::") {
        Some((file, name)) => (file, Some(name)),
        None => (reference, None),
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let Ok(text) = std::fs::read_to_string(path) else {
        return Some(format!("`{reference}`: there is no such file"));
    };
    let exists = match name {
        Some(name) => has_test(&text, name),
        None => text.contains("#[test]") || text.contains("#[tokio::test") || text.contains("on_both!"),
    };
    (!exists).then(|| format!("`{reference}`: the file has no such test"))
}

#[test]
fn every_finding_has_a_rule_and_tests_that_exist() {
    let page = read("tests/reviews.md");
    let first = rows(&page, "First review");
    for number in FIRST.filter(|number| *number != 20) {
        assert!(first.contains_key(&number.to_string()), "row {number} is missing");
    }
    let third = rows(&page, "Third review");
    for (letter, count) in THIRD {
        for id in (1..=count).map(|number| format!("{letter}{number}")) {
            assert!(third.contains_key(&id), "row {id} is missing");
        }
    }
    let rego = rows(&page, "Rego beside OPA");
    let mut mistakes = Vec::new();
    for cells in first.values().chain(third.values()).chain(rego.values()) {
        let quoted = cells.last().unwrap().split('`').skip(1).step_by(2);
        let found: Vec<_> = quoted.collect();
        if found.is_empty() {
            mistakes.push(format!("{} names no test", cells[0]));
        }
        mistakes.extend(
            found
                .into_iter()
                .filter_map(mistake)
                .map(|text| format!("{}: {text}", cells[0])),
        );
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
}

#[test]
fn a_test_that_does_not_exist_is_noticed() {
    let this = "tests/parts/reviews.rs";
    assert_eq!(mistake(&format!("{this}::a_test_that_does_not_exist_is_noticed")), None);
    assert_eq!(mistake(this), None);
    // A helper is no test.
    assert!(mistake(&format!("{this}::has_test")).is_some());
    assert!(mistake(&format!("{this}::a_test_that")).is_some());
    assert!(mistake("tests/parts/none.rs").is_some());
}
