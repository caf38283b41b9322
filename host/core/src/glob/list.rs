//! Lists of patterns, such as the setting `application.namespaces`, and patterns with a leading
//! `!`.
//!
//! Security: backtracking of a regular expression is bounded.

use super::Pattern;

/// Most steps that an expression with look-around takes on one text. An expression that runs out
/// does not match.
const BACKTRACK_LIMIT: usize = 100_000;

/// How entries of a list are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListMode {
    /// Entries are compared literally.
    Exact,
    /// Entries are globs without separators.
    Glob,
    /// `/…/` is a regular expression with look-around, unanchored; an entry
    /// that does not match as one is also tried as a glob.
    Regexp,
}

/// A compiled list of patterns. Entries that do not compile never match.
#[derive(Debug, Default)]
pub struct PatternList {
    entries: Vec<Entry>,
}

#[derive(Debug)]
enum Entry {
    Exact(Box<str>),
    Glob(Pattern),
    Regexp(Box<fancy_regex::Regex>),
}

impl PatternList {
    /// Compiles every entry once.
    pub fn compile(mode: ListMode, list: &[String]) -> Self {
        let mut entries = Vec::new();
        for text in list {
            if mode == ListMode::Exact {
                entries.push(Entry::Exact(text.as_str().into()));
                continue;
            }
            let expression = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
            // `//` has no expression inside and is a glob like others.
            let expression = expression.filter(|expression| !expression.is_empty());
            if let (ListMode::Regexp, Some(expression)) = (mode, expression) {
                let regex = fancy_regex::RegexBuilder::new(expression)
                    .backtrack_limit(BACKTRACK_LIMIT)
                    .build();
                entries.extend(regex.ok().map(|regex| Entry::Regexp(Box::new(regex))));
            }
            entries.extend(Pattern::compile(text, &[]).ok().map(Entry::Glob));
        }
        Self { entries }
    }

    /// Whether some entry matches the text.
    pub fn matches(&self, text: &str) -> bool {
        self.entries.iter().any(|entry| match entry {
            Entry::Exact(exact) => **exact == *text,
            Entry::Glob(pattern) => pattern.matches(text),
            Entry::Regexp(regex) => regex.is_match(text).unwrap_or(false),
        })
    }
}

/// Whether some entry of the list matches the text. Compiles the list on each call; use a
/// [`PatternList`] to match many texts.
pub fn matches_list(mode: ListMode, list: &[String], text: &str) -> bool {
    PatternList::compile(mode, list).matches(text)
}

/// Whether the control plane manages Applications in `namespace`: it is the control plane's own
/// namespace, or one the list permits.
///
/// Source: `application.namespaces` of Argo CD.
pub fn namespace_enabled(namespace: &str, control_plane_namespace: &str, enabled: &[String]) -> bool {
    namespace == control_plane_namespace || matches_list(ListMode::Regexp, enabled, namespace)
}

/// Matches a field of an `AppProject` as Argo CD does. With negation, a pattern with a leading `!`
/// matches what the rest does not. A pattern that does not compile matches nothing, and its
/// negation matches everything. `*` also matches separators.
pub fn matches_negatable(pattern: &str, text: &str, negation: Negation, separators: &[char]) -> bool {
    let positive = |pattern: &str| Pattern::compile(pattern, separators).is_ok_and(|pattern| pattern.matches(text));
    match (negation, pattern.strip_prefix('!')) {
        (Negation::Allowed, Some(rest)) => !positive(rest),
        (Negation::Allowed | Negation::Literal, _) => pattern == "*" || positive(pattern),
    }
}

/// What a leading `!` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Negation {
    /// It negates the pattern.
    Allowed,
    /// It is an ordinary character.
    Literal,
}
