//! File patterns with the syntax of `git ls-files`.
//!
//! A pattern without wildcards matches a file, or everything in a directory; `*` and `?` also
//! match `/`. Source: gitglossary(7), pathspec; Argo CD lists files this way unless its new
//! globbing is on.
//!
//! Security: a pattern never matches a path outside the repository.

use bstr::BStr;
use gix_glob::wildmatch::Mode;

/// A pattern, with `.`, `..` and doubled `/` resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pathspec {
    text: String,
    is_wild: bool,
}

impl Pathspec {
    /// # Errors
    /// It leaves the repository, or uses the syntax of a pathspec with other rules.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        // Git reads what follows as options of the pattern, such as `:(exclude)`.
        if text.starts_with(':') {
            return Err(format!(
                "`{text}` begins with `:`, which has a meaning that is not supported"
            ));
        }
        let outside = || format!("`{text}` is outside repository");
        if text.starts_with('/') {
            return Err(outside());
        }
        let mut parts = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop().ok_or_else(outside)?;
                }
                part => parts.push(part),
            }
        }
        let mut normalized = parts.join("/");
        if text.ends_with('/') && !normalized.is_empty() {
            normalized.push('/');
        }
        Ok(Self {
            is_wild: normalized.contains(['*', '?', '[', '\\']),
            text: normalized,
        })
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        let below = path.strip_prefix(&self.text);
        let literal = below.is_some_and(|rest| {
            rest.is_empty() || rest.starts_with('/') || self.text.is_empty() || self.text.ends_with('/')
        });
        let wild = || gix_glob::wildmatch(BStr::new(&self.text), BStr::new(path), Mode::empty());
        literal || self.is_wild && wild()
    }
}

#[cfg(test)]
mod tests {
    use super::Pathspec;

    #[test]
    fn patterns_match_files_as_in_git() {
        for (pattern, path, expected) in [
            ("config.json", "config.json", true),
            ("config.json", "a/config.json", false),
            ("*.json", "a/b/config.json", true),
            ("**/config.json", "a/b/config.json", true),
            ("**/config.json", "config.json", false),
            ("a/**/config.json", "a/b/c/config.json", true),
            ("a/**/config.json", "a/config.json", false),
            ("a/*/config.json", "a/b/c/config.json", true),
            ("a/*/config.json", "a/b/other.json", false),
            ("a", "a/b/config.json", true),
            ("a/", "a/b/config.json", true),
            ("a/", "a", false),
            ("a", "ab/config.json", false),
            ("", "x/y", true),
            (".", "x/y", true),
            ("./x//y", "x/y", true),
            ("x/../z", "z", true),
            ("x/../z", "x/z", false),
            ("a[", "a[", true),
            ("a[", "ab", false),
            ("a[bc]", "ab", true),
            ("a[!b]", "ab", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a?c", "a/c", true),
        ] {
            assert_eq!(
                Pathspec::new(pattern).unwrap().matches(path),
                expected,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn patterns_outside_the_repository_and_pathspec_magic_are_refused() {
        for (pattern, why) in [
            ("..", "is outside repository"),
            ("a/../../b", "is outside repository"),
            ("/etc/passwd", "is outside repository"),
            (":(top)a", "is not supported"),
            (":!a", "is not supported"),
        ] {
            let error = Pathspec::new(pattern).unwrap_err();
            assert!(error.contains(why), "{pattern}: {error}");
        }
    }
}
