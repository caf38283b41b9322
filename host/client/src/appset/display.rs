//! Formats ApplicationSets and changes for people.
//!
//! Security: no control character reaches a terminal, except those of the command's own colors.

use std::ffi::OsString;
use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::list_output::{Table, find_text, items, render_facts, render_items, text_at};
use crate::terminal::{escape_block, escape_line};

const MAX_LISTED_APPLICATIONS: usize = 10;

#[derive(Debug, Args)]
pub(super) struct Colors {
    /// Whether to color diffs
    #[arg(long, value_enum, default_value_t)]
    color: ColorMode,
    /// Any non-empty value turns `--color auto` off (<https://no-color.org>)
    #[arg(long, env = "NO_COLOR", hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    no_color: Option<OsString>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ColorMode {
    /// If standard output is a terminal
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiffStyle {
    Plain,
    /// Added, removed and hunk lines each have a color.
    Colored,
}

impl Colors {
    pub(super) fn diff_style(&self) -> DiffStyle {
        let forbidden = self.no_color.as_ref().is_some_and(|value| !value.is_empty());
        match self.color {
            ColorMode::Always => DiffStyle::Colored,
            ColorMode::Auto if !forbidden && std::io::stdout().is_terminal() => DiffStyle::Colored,
            ColorMode::Auto | ColorMode::Never => DiffStyle::Plain,
        }
    }
}

impl DiffStyle {
    /// Formats a diff: escapes each line and gives it its color.
    fn diff(self, diff: &str) -> String {
        let mut painted = String::with_capacity(diff.len());
        for line in diff.lines() {
            let line = escape_block(line);
            let color = match line.chars().next() {
                Some('+') => "32",
                Some('-') => "31",
                Some('@') => "36",
                _ => "",
            };
            match (self, color) {
                (Self::Plain, _) | (Self::Colored, "") => painted.push_str(&line),
                (Self::Colored, color) => painted.push_str(&format!("\u{1b}[{color}m{line}\u{1b}[0m")),
            }
            painted.push('\n');
        }
        painted
    }
}

/// `namespace/name`, or the name alone.
pub(super) fn qualified(item: &Value) -> String {
    let name = escape_line(&text_at(item, "/metadata/name")).into_owned();
    match find_text(item, "/metadata/namespace") {
        Some(namespace) => format!("{}/{name}", escape_line(&namespace)),
        None => name,
    }
}

pub(super) fn row(item: &Value) -> Vec<String> {
    // Of several sources the first is shown.
    let source = |key: &str| {
        let first = || text_at(item, &format!("/spec/template/spec/sources/0/{key}"));
        find_text(item, &format!("/spec/template/spec/source/{key}")).unwrap_or_else(first)
    };
    vec![
        qualified(item),
        project(item),
        generators(item),
        find_text(item, "/spec/syncPolicy/applicationsSync").unwrap_or_else(|| "sync".to_owned()),
        source("repoURL"),
        source("path"),
        source("targetRevision"),
    ]
}

fn project(item: &Value) -> String {
    find_text(item, "/spec/template/spec/project").unwrap_or_else(|| "default".to_owned())
}

fn generators(item: &Value) -> String {
    let names = items(item, "/spec/generators").iter().filter_map(Value::as_object);
    let names = names.flat_map(|entry| entry.keys().filter(|key| *key != "selector"));
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        "<none>".to_owned()
    } else {
        names.join(",")
    }
}

const CONDITIONS: Table = Table {
    columns: &["CONDITION", "STATUS", "MESSAGE"],
    row: |item| ["/type", "/status", "/message"].map(|key| text_at(item, key)).to_vec(),
    empty_message: "",
};

pub(super) fn describe(object: &Value) -> String {
    let facts = render_facts([
        ("Name", qualified(object)),
        ("Project", project(object)),
        ("Generators", generators(object)),
        ("Version", text_at(object, "/metadata/resourceVersion")),
        ("Server", text_at(object, "/spec/template/spec/destination/server")),
        (
            "Namespace",
            text_at(object, "/spec/template/spec/destination/namespace"),
        ),
        ("Repo", text_at(object, "/spec/template/spec/source/repoURL")),
        ("Path", text_at(object, "/spec/template/spec/source/path")),
        ("Target", text_at(object, "/spec/template/spec/source/targetRevision")),
    ]);
    match items(object, "/status/conditions") {
        [] => facts,
        conditions => format!("{facts}\n\n{}", render_items(conditions, &CONDITIONS)),
    }
}

/// Describes a change of a set and of its Applications, made or previewed.
pub(super) fn change(answer: &Value, dry_run: bool, style: DiffStyle) -> String {
    let action = match answer.get("action").and_then(Value::as_str) {
        Some("create") => "created",
        Some("unchanged") => "unchanged",
        Some("delete") => "deleted",
        Some(_) | None => "updated",
    };
    let dry = if dry_run { " (dry run)" } else { "" };
    let head = format!("applicationset {} {action}{dry}\n", qualified(answer));
    let own = answer.get("diff").and_then(Value::as_str).unwrap_or_default();
    let text = warnings(answer) + &head + &style.diff(own) + &changes(answer, style);
    text.trim_end().to_owned()
}

pub(super) fn generated(answer: &Value, style: DiffStyle) -> String {
    let text = match changes(answer, style) {
        text if text.is_empty() => "no applications".to_owned(),
        text => text.trim_end().to_owned(),
    };
    warnings(answer) + &text
}

/// What is doubtful about the set that was sent, a line each.
fn warnings(answer: &Value) -> String {
    let found = items(answer, "/warnings").iter().filter_map(Value::as_str);
    found
        .map(|text| escape_line(&format!("warning: {text}")).into_owned() + "\n")
        .collect()
}

/// A line and the diff of each Application, then the number of each action.
fn changes(answer: &Value, style: DiffStyle) -> String {
    let changes = items(answer, "/changes");
    let mut shown = String::new();
    let mut counts: Vec<(String, usize)> = Vec::new();
    for change in changes {
        let action = text_at(change, "/action");
        match counts.iter_mut().find(|(known, _)| *known == action) {
            Some((_, count)) => *count += 1,
            None => counts.push((action.clone(), 1)),
        }
        let word = format!("application {}: {action}", text_at(change, "/application"));
        shown.push_str(&escape_line(&word));
        if let Some(held) = change.get("heldBack").and_then(Value::as_str) {
            shown.push_str(&escape_line(&format!(" (`applicationsSync` does not let it {held})")));
        }
        shown.push('\n');
        let diff = change.get("diff").and_then(Value::as_str).unwrap_or_default();
        shown.push_str(&style.diff(diff));
    }
    if !counts.is_empty() {
        let counts = counts.iter().map(|(action, count)| format!("{count} {action}"));
        let counts: Vec<String> = counts.collect();
        shown.push_str(&format!("{} applications: {}\n", changes.len(), counts.join(", ")));
    }
    shown
}

pub(super) fn deleted(name: &str, answer: &Value) -> String {
    let changes = changes(answer, DiffStyle::Plain);
    let text = format!("applicationset {} deleted\n{changes}", escape_line(name));
    text.trim_end().to_owned()
}

pub(super) fn question(name: &str, tree: &Value, orphan: bool) -> String {
    let nodes = items(tree, "/nodes");
    let name = escape_line(name);
    if nodes.is_empty() {
        return format!("delete ApplicationSet `{name}`, which has no Applications?");
    }
    let listed = nodes.iter().take(MAX_LISTED_APPLICATIONS);
    let listed: Vec<String> = listed.map(|node| text_at(node, "/name")).collect();
    let mut shown = escape_line(&listed.join(", ")).into_owned();
    let count = nodes.len();
    if count > MAX_LISTED_APPLICATIONS {
        shown.push_str(&format!(" and {} more", count - MAX_LISTED_APPLICATIONS));
    }
    let fate = if orphan { "keep" } else { "delete" };
    format!("delete ApplicationSet `{name}` and {fate} its {count} Applications ({shown})?")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DiffStyle, change, generated, question};

    #[test]
    fn changes_have_diffs_and_counts() {
        let answer = json!({
            "metadata": {"name": "a", "namespace": "argocd"},
            "action": "update",
            "changes": [
                {"application": "x", "action": "create", "diff": "@@ -0,0 +1 @@\n+kind: Application\n"},
                {"application": "y", "action": "unchanged", "heldBack": "delete"},
            ],
        });
        let plain = "applicationset argocd/a updated (dry run)\napplication x: create\n@@ -0,0 +1 @@\n\
                     +kind: Application\napplication y: unchanged (`applicationsSync` does not let it delete)\n\
                     2 applications: 1 create, 1 unchanged";
        assert_eq!(change(&answer, true, DiffStyle::Plain), plain);
        let colored = change(&answer, false, DiffStyle::Colored);
        assert!(
            colored.contains("\u{1b}[32m+kind: Application\u{1b}[0m\n"),
            "{colored:?}"
        );
        assert!(colored.contains("\u{1b}[36m@@ -0,0 +1 @@\u{1b}[0m\n"), "{colored:?}");
        assert_eq!(
            generated(&json!({"applications": []}), DiffStyle::Plain),
            "no applications"
        );
    }

    #[test]
    fn escape_sequences_of_the_server_are_removed() {
        let answer = json!({"metadata": {"name": "a\u{1b}[2J"}, "changes": [
            {"application": "x", "action": "update", "diff": "+\u{1b}]0;x\n"},
        ]});
        let shown = change(&answer, false, DiffStyle::Plain);
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }

    #[test]
    fn the_confirmation_names_the_affected_applications() {
        let nodes: Vec<_> = (0..12).map(|number| json!({"name": format!("app-{number}")})).collect();
        let prompt = question("a", &json!({ "nodes": nodes }), false);
        assert!(
            prompt.starts_with("delete ApplicationSet `a` and delete its 12 Applications (app-0, "),
            "{prompt}"
        );
        assert!(prompt.ends_with("app-9 and 2 more)?"), "{prompt}");
        let prompt = question("a", &json!({}), true);
        assert_eq!(prompt, "delete ApplicationSet `a`, which has no Applications?");
        let prompt = question("a", &json!({"nodes": [{"name": "x"}]}), true);
        assert_eq!(prompt, "delete ApplicationSet `a` and keep its 1 Applications (x)?");
    }
}
