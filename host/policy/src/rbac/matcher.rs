//! Compiles one field of a rule to a matcher. Equal patterns of a policy are compiled once and
//! shared.

use std::collections::HashMap;

use super::re2;
use tollgate_core::glob::{self, Pattern};

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

/// A compiled field.
#[derive(Debug)]
pub(super) enum Matcher {
    Glob(Pattern),
    Regex(Box<regex::Regex>),
    /// A pattern that Argo CD cannot use either.
    Broken {
        dialect: Dialect,
        what: String,
    },
    /// A pattern that Argo CD could use and this gateway does not.
    OutOfBounds {
        what: String,
    },
}

/// Result of matching one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Yes,
    No,
    /// Evaluation stops with an error, which denies.
    Error,
}

impl Matcher {
    fn compile(dialect: Dialect, pattern: &str) -> Self {
        let glob = match dialect {
            Dialect::Glob => Pattern::compile(pattern, &[]),
            Dialect::ExactGlob => Pattern::compile_exact(pattern, &[]),
            Dialect::Regex if pattern.len() > glob::MAX_PATTERN_BYTES => Err(glob::Error::TooLong(pattern.len())),
            Dialect::Regex => {
                return match re2::compile(pattern) {
                    Ok(regex) => Self::Regex(Box::new(regex)),
                    Err(error) => Self::Broken {
                        dialect,
                        what: error.to_string(),
                    },
                };
            }
        };
        match glob {
            Ok(pattern) => Self::Glob(pattern),
            Err(error) if error.is_gateway_limit() => Self::OutOfBounds {
                what: error.to_string(),
            },
            Err(error) => Self::Broken {
                dialect,
                what: error.to_string(),
            },
        }
    }

    /// Matches one text.
    pub(super) fn match_text(&self, text: &str) -> Match {
        let matched = match self {
            Self::Glob(pattern) => pattern.matches(text),
            Self::Regex(regex) => regex.is_match(text),
            Self::Broken {
                dialect: Dialect::Regex,
                ..
            } => return Match::Error,
            Self::Broken {
                dialect: Dialect::Glob | Dialect::ExactGlob,
                ..
            }
            | Self::OutOfBounds { .. } => false,
        };
        if matched { Match::Yes } else { Match::No }
    }
}

/// Position of a matcher in its [`PatternPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PatternId(u32);

/// Every distinct pattern of a policy.
#[derive(Debug, Default)]
pub(super) struct PatternPool {
    matchers: Vec<Matcher>,
    ids: HashMap<(Dialect, Box<str>), PatternId>,
}

impl PatternPool {
    /// The id of a pattern, which is compiled if it is new.
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

    /// The matcher with this id.
    pub(super) fn matcher(&self, id: PatternId) -> Option<&Matcher> {
        self.matchers.get(id.0 as usize)
    }

    /// Matches one text. An id of another pool matches nothing.
    pub(super) fn match_text(&self, id: PatternId, text: &str) -> Match {
        self.matcher(id).map_or(Match::No, |matcher| matcher.match_text(text))
    }
}
