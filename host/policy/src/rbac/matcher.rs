//! Compiles one field of a rule to a matcher. Equal patterns of a policy are compiled once and
//! shared.

use std::collections::HashMap;

use tollgate_core::glob::{self, Pattern};
use tollgate_core::re2;

/// The syntax of the patterns of one policy text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Dialect {
    /// Globs of Argo CD's library.
    Glob,
    /// Globs whose prefix and suffix may not overlap, unlike in that library.
    ExactGlob,
    /// Go's regular expressions, unanchored.
    Regex,
}

#[derive(Debug)]
pub(super) enum Matcher {
    Glob(Pattern),
    Regex(Box<regex::Regex>),
    /// A glob that Argo CD cannot use either, and why: it matches nothing.
    BrokenGlob(String),
    /// An expression that Argo CD cannot use either, and why: evaluating it denies.
    BrokenRegex(String),
    /// A pattern that Argo CD could use and this gateway does not, and why.
    OutOfBounds(String),
}

impl Matcher {
    fn compile(dialect: Dialect, pattern: &str) -> Self {
        let glob = match dialect {
            Dialect::Glob => Pattern::compile(pattern, &[]),
            Dialect::ExactGlob => Pattern::compile_exact(pattern, &[]),
            Dialect::Regex if pattern.len() > glob::MAX_PATTERN_BYTES => Err(glob::Error::TooLong(pattern.len())),
            Dialect::Regex => {
                return re2::compile(pattern).map_or_else(Self::BrokenRegex, |regex| Self::Regex(Box::new(regex)));
            }
        };
        match glob {
            Ok(pattern) => Self::Glob(pattern),
            Err(error) if error.is_gateway_limit() => Self::OutOfBounds(error.to_string()),
            Err(error) => Self::BrokenGlob(error.to_string()),
        }
    }

    /// An expression that cannot be evaluated matches nothing here; [`super::index`] lets it deny.
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Glob(pattern) => pattern.matches(text),
            Self::Regex(regex) => regex.is_match(text),
            Self::BrokenGlob(_) | Self::BrokenRegex(_) | Self::OutOfBounds(_) => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PatternId(u32);

/// Every distinct pattern of a policy.
#[derive(Debug, Default)]
pub(super) struct PatternPool {
    matchers: Vec<Matcher>,
    ids: HashMap<(Dialect, Box<str>), PatternId>,
}

impl PatternPool {
    pub(super) fn intern(&mut self, dialect: Dialect, pattern: &str) -> PatternId {
        let key = (dialect, Box::from(pattern));
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let id = PatternId(u32::try_from(self.matchers.len()).unwrap_or(u32::MAX));
        self.matchers.push(Matcher::compile(dialect, pattern));
        self.ids.insert(key, id);
        id
    }

    /// Drops what is only needed while building.
    pub(super) fn seal(&mut self) {
        self.ids = HashMap::new();
        self.matchers.shrink_to_fit();
    }

    pub(super) fn matcher(&self, id: PatternId) -> Option<&Matcher> {
        self.matchers.get(id.0 as usize)
    }

    /// Whether a pattern matches. An id of another pool matches nothing.
    pub(super) fn matches(&self, id: PatternId, text: &str) -> bool {
        self.matcher(id).is_some_and(|matcher| matcher.matches(text))
    }
}
