//! Patterns of the resources a project allows and denies. A pattern must match the whole name.
//!
//! Security: a pattern that cannot be read matches nothing.
//!
//! Source: Argo CD matches these by Go's `path/filepath.Match`, not by the globs of destinations
//! and RBAC.

use tollgate_core::path_pattern::PathPattern;

/// `None` if the pattern cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Option<PathPattern>);

impl Pattern {
    pub(super) fn compile(pattern: &str) -> Self {
        Self(PathPattern::compile(pattern))
    }

    /// Whether `text` matches; `None` when the pattern cannot be read.
    pub(super) fn matches(&self, text: &str) -> Option<bool> {
        self.0.as_ref().map(|pattern| pattern.matches(text))
    }

    /// Whether the pattern matches every object name. Names contain no `/`.
    pub(super) fn is_everything(&self) -> bool {
        self.0.as_ref().is_some_and(PathPattern::is_everything)
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn check(pattern: &str, text: &str, expected: Option<bool>) {
        assert_eq!(Pattern::compile(pattern).matches(text), expected, "{pattern} {text}");
    }

    /// Each expected result is that of Go's `filepath.Match`.
    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "Deployment"),
            ("**", "a"),
            ("Deploy*", "Deployment"),
            ("*Set", "ReplicaSet"),
            ("*e*t", "Deployment"),
            ("D?ployment", "Deployment"),
            ("[A-E]*", "Deployment"),
            ("[^a-z]*", "Deployment"),
            ("a[]-]", "a-"),
            ("\\*", "*"),
            ("[\\]]", "]"),
            ("[\\-x]", "-"),
            ("a]", "a]"),
            ("!Pod", "!Pod"),
            ("{a,b}", "{a,b}"),
            ("*.example.com", "a.b.example.com"),
            ("a/*", "a/b"),
            ("[^a]", "/"),
        ] {
            let expected = if pattern == "a[]-]" { None } else { Some(true) };
            check(pattern, text, expected);
        }
        for (pattern, text) in [
            ("", "a"),
            ("*", "a/b"),
            ("?", "/"),
            ("?", ""),
            ("deployment", "Deployment"),
            ("Deploy", "Deployment"),
            ("*.example.com", "example.com"),
            ("[!a]", "b"),
            ("[^a-z]*", "deployment"),
            ("a*b", "ab/b"),
            ("*a*a", "a"),
            ("[z-a]", "m"),
        ] {
            check(pattern, text, Some(false));
        }
        for pattern in ["[", "[a", "[]", "[^]", "[-a]", "[a-]", "a\\", "*[", "[a\\", "[]a]"] {
            check(pattern, "a", None);
        }
    }

    #[test]
    fn patterns_with_many_stars_match_quickly() {
        let pattern = format!("{}b", "a*".repeat(200));
        check(&pattern, &"a".repeat(5000), Some(false));
    }
}
