//! Glob patterns as Argo CD understands them (library gobwas/glob v0.2.3). A pattern must match the
//! whole text.
//!
//! `*` and `?` stop at separators, `**` does not; `[abc]`, `[!abc]`, `[a-z]`
//! are one list or one range; `{a,b}` nests; `\` escapes; an unclosed `{` ends
//! with the pattern; `]`, and outside groups `}` and `,`, are themselves.
//! Classes match separators, as they do upstream.
//!
//! One defect of the library decides permissions in real policies, so [`Pattern::compile`] keeps
//! it: in `text*text` both texts may overlap, so `prod/*/x` also matches `prod/x`.
//! [`Pattern::compile_exact`] does not have it. The library's defects with texts outside ASCII
//! (patterns that fail to match) are not kept.
//!
//! Security: patterns and texts may be hostile. Matching time is never exponential in the pattern,
//! recursion is at most [`MAX_DEPTH`] deep, and matching a plain pattern allocates nothing.

mod include;
mod list;
mod parse;
mod program;
mod source;
#[cfg(test)]
mod tests;
mod witness;

pub use list::{ListMode, Negation, PatternList, matches_list, matches_negatable, namespace_enabled};
pub use source::{normalize_repository, redact_credentials, source_permitted};

use parse::Node;
use program::{Program, Sequence};

/// Longest pattern, in bytes.
pub const MAX_PATTERN_BYTES: usize = 8192;
/// Deepest nesting of `{`.
pub const MAX_DEPTH: usize = 64;

/// Why a pattern does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Argo CD refuses it too, with this message; such a pattern never matches there.
    #[error("{0}")]
    Syntax(String),
    /// The pattern has this many bytes, more than [`MAX_PATTERN_BYTES`]. Argo CD accepts it.
    #[error("pattern has {0} bytes, at most {MAX_PATTERN_BYTES} are allowed")]
    TooLong(usize),
    /// The pattern has a NUL. Argo CD ends the pattern there, or only the text before it.
    #[error("pattern has a NUL character")]
    Nul,
    /// Groups nest deeper than [`MAX_DEPTH`]. Argo CD accepts it.
    #[error("pattern nests groups deeper than {MAX_DEPTH}")]
    TooDeep,
}

impl Error {
    /// Whether Argo CD would accept the pattern and only this gateway refuses it. Such a rule must
    /// never be dropped silently.
    pub fn is_gateway_limit(&self) -> bool {
        !matches!(self, Self::Syntax(_))
    }
}

/// A compiled pattern.
#[derive(Clone, derive_more::Debug)]
#[debug("Pattern({:?})", self.source)]
pub struct Pattern {
    source: Box<str>,
    shape: Shape,
    /// Text every match starts with.
    prefix: Box<str>,
    /// Text every match ends with; empty for a literal.
    suffix: Box<str>,
}

#[derive(Clone)]
enum Shape {
    Literal(Box<str>),
    Everything,
    /// `text*`; the text is `Pattern::prefix`.
    Prefix,
    /// `*text`; the text is `Pattern::suffix`.
    Suffix,
    /// `text*text`, and the fewest bytes a match has.
    PrefixSuffix(usize),
    Contains(Box<str>),
    Sequence(Sequence),
    Program(Program),
}

/// Whether prefix and suffix of `text*text` may share characters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overlap {
    Kept,
    Refused,
}

impl Pattern {
    /// Compiles a pattern with the library's semantics.
    ///
    /// - `separators`: characters that `*` and `?` do not match; empty for RBAC.
    ///
    /// # Errors
    /// [`Error::Syntax`] if the library refuses the pattern; the other variants for patterns over
    /// the bounds.
    pub fn compile(pattern: &str, separators: &[char]) -> Result<Self, Error> {
        Self::build(pattern, separators, Overlap::Kept)
    }

    /// Like [`Pattern::compile`], but the two texts of `text*text` never overlap.
    ///
    /// # Errors
    /// As [`Pattern::compile`].
    pub fn compile_exact(pattern: &str, separators: &[char]) -> Result<Self, Error> {
        Self::build(pattern, separators, Overlap::Refused)
    }

    fn build(pattern: &str, separators: &[char], overlap: Overlap) -> Result<Self, Error> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(Error::TooLong(pattern.len()));
        }
        let nodes = parse::parse(pattern, !separators.is_empty())?;
        let shape = shape(&nodes, separators, overlap);
        let text_of = |node: Option<&Node>| match node {
            Some(Node::Text(text)) => text.as_str().into(),
            _ => Box::default(),
        };
        Ok(Self {
            source: pattern.into(),
            shape,
            prefix: text_of(nodes.first()),
            suffix: text_of(nodes.last().filter(|_| nodes.len() > 1)),
        })
    }

    /// Whether the whole text matches. Case-sensitive.
    pub fn matches(&self, text: &str) -> bool {
        match &self.shape {
            Shape::Literal(literal) => **literal == *text,
            Shape::Everything => true,
            Shape::Prefix => text.starts_with(&*self.prefix),
            Shape::Suffix => text.ends_with(&*self.suffix),
            Shape::PrefixSuffix(least) => {
                text.len() >= *least && text.starts_with(&*self.prefix) && text.ends_with(&*self.suffix)
            }
            Shape::Contains(needle) => text.contains(&**needle),
            Shape::Sequence(sequence) => {
                text.starts_with(&*self.prefix) && text.ends_with(&*self.suffix) && sequence.matches(text)
            }
            Shape::Program(program) => program.matches(text),
        }
    }

    /// The only text that matches, if the pattern is a literal.
    pub fn literal(&self) -> Option<&str> {
        let Shape::Literal(literal) = &self.shape else {
            return None;
        };
        Some(literal)
    }

    /// The pattern as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether every text matches.
    pub fn is_everything(&self) -> bool {
        matches!(self.shape, Shape::Everything)
    }

    /// Text every match starts with. An index can use it as its key.
    pub fn literal_prefix(&self) -> &str {
        &self.prefix
    }

    /// Text every match ends with; empty for a literal. An index can use it as its key.
    pub fn literal_suffix(&self) -> &str {
        &self.suffix
    }
}

fn shape(nodes: &[Node], separators: &[char], overlap: Overlap) -> Shape {
    let star = |node: &Node| match node {
        Node::Super => true,
        Node::Any => separators.is_empty(),
        Node::Text(_) | Node::Single | Node::Class(_) | Node::AnyOf(_) => false,
    };
    match nodes {
        [] => Shape::Literal(Box::default()),
        [Node::Text(text)] => Shape::Literal(text.as_str().into()),
        [only] if star(only) => Shape::Everything,
        [Node::Text(_), only] if star(only) => Shape::Prefix,
        [only, Node::Text(_)] if star(only) => Shape::Suffix,
        [Node::Text(left), only, Node::Text(right)] if star(only) => Shape::PrefixSuffix(match overlap {
            Overlap::Kept => 0,
            Overlap::Refused => left.len() + right.len(),
        }),
        [left, Node::Text(text), right] if star(left) && star(right) => Shape::Contains(text.as_str().into()),
        nodes => match Sequence::new(nodes, separators) {
            Some(sequence) => Shape::Sequence(sequence),
            None => Shape::Program(Program::new(nodes, separators)),
        },
    }
}

/// A pattern that matches only this text: every meta character is escaped.
pub fn quote_meta(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '\\' | '[' | ']' | '{' | '}') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}
