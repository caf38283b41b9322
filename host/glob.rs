//! Patterns of gobwas/glob: a stand-in until the real module is merged.

use std::fmt;

/// A compiled pattern.
pub struct Pattern {
    regex: regex::Regex,
}

/// A pattern that does not compile.
#[derive(Debug, thiserror::Error)]
#[error("pattern does not compile")]
pub struct Error;

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.regex.as_str())
    }
}

impl Pattern {
    /// Compiles a pattern; `*`, `?` and `[..]` only.
    ///
    /// # Errors
    /// [`Error`] when the pattern does not compile.
    pub fn compile(pattern: &str, _separators: &[char]) -> Result<Self, Error> {
        let mut source = String::from("(?s)^");
        for symbol in pattern.chars() {
            match symbol {
                '*' => source.push_str(".*"),
                '?' => source.push('.'),
                '[' | ']' => source.push(symbol),
                other => source.push_str(&regex::escape(&other.to_string())),
            }
        }
        source.push('$');
        regex::Regex::new(&source)
            .map(|regex| Self { regex })
            .map_err(|_| Error)
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}
