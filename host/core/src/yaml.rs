//! YAML documents as trees in which each value has its line and column. The text may be a whole
//! file or one value inside a file.
//!
//! Security: no error text and no `Debug` output contains a value, and alias expansion is bounded.

use std::rc::Rc;

mod deserialize;
mod json;
mod parse;

pub use deserialize::deserialize;
pub use json::{from_json, to_json};
pub use parse::parse;

/// What one text contains.
#[derive(Debug, Default)]
pub struct Parsed {
    /// Documents in order, empty ones left out.
    pub documents: Vec<Rc<Node>>,
    /// Every mistake, in order.
    pub problems: Vec<Problem>,
}

/// A mistake in the text itself.
#[derive(Debug)]
pub struct Problem {
    /// Line from 1.
    pub line: u32,
    /// Column from 1.
    pub column: u32,
    /// What is wrong; never a value.
    pub message: String,
}

/// Where a value starts, from 1; 0 for a value that stands in no text.
#[derive(Clone, Copy, Default)]
struct Position {
    line: u32,
    column: u32,
}

/// A value and its position.
#[derive(Clone, derive_more::Debug)]
#[debug("{} at {}:{}", self.kind(), self.line, self.column)]
pub struct Node {
    /// The value.
    pub content: Content,
    /// Line of its first character, from 1.
    pub line: u32,
    /// Column of its first character, from 1.
    pub column: u32,
    /// Line on which its text begins: for a block scalar, the line below the `|`.
    pub text_line: u32,
    /// Nodes in this tree. An alias counts as often as it is used, and a long text counts as
    /// several.
    node_count: u64,
    /// Depth of nested collections.
    depth: usize,
}

/// The three kinds of YAML nodes.
#[derive(Clone, Debug)]
pub enum Content {
    /// A scalar.
    Scalar(Scalar),
    /// A list.
    Sequence(Vec<Rc<Node>>),
    /// A mapping, in the order it is written; keys are unique.
    Mapping(Vec<Entry>),
}

/// A scalar before its type is decided.
#[derive(Clone, derive_more::Debug)]
#[debug("{}", self.kind())]
pub struct Scalar {
    /// Text after escapes and folding.
    pub text: Rc<str>,
    /// How it is written.
    pub style: Style,
}

/// How a scalar is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Without quotes: may be null, a boolean or a number.
    Plain,
    /// In quotes, or tagged `!!str`.
    Quoted,
    /// A `|` or `>` block.
    Block,
}

/// The type of a scalar in YAML's core schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarType {
    /// Nothing, `~` or `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// An integer or a floating point number.
    Number,
    /// Anything else.
    Text,
}

/// One key of a mapping.
#[derive(Clone, derive_more::Debug)]
#[debug("{} at {}:{}", self.value.kind(), self.line, self.column)]
pub struct Entry {
    /// The key's text.
    pub key: Rc<str>,
    /// Line of the key, from 1.
    pub line: u32,
    /// Column of the key, from 1.
    pub column: u32,
    /// The value.
    pub value: Rc<Node>,
}

impl Content {
    fn scalar(text: &str, style: Style) -> Self {
        let text = Rc::from(text);
        Self::Scalar(Scalar { text, style })
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Scalar(scalar) => scalar.kind(),
            Self::Sequence(_) => "a list",
            Self::Mapping(_) => "a mapping",
        }
    }
}

impl Scalar {
    fn kind(&self) -> &'static str {
        match self.scalar_type() {
            ScalarType::Null => "nothing",
            ScalarType::Boolean(_) => "a boolean",
            ScalarType::Number => "a number",
            ScalarType::Text => "text",
        }
    }

    /// The type of the scalar. A scalar that is not plain is always text.
    pub fn scalar_type(&self) -> ScalarType {
        if self.style != Style::Plain {
            return ScalarType::Text;
        }
        match &*self.text {
            "" | "~" | "null" | "Null" | "NULL" => ScalarType::Null,
            "true" | "True" | "TRUE" => ScalarType::Boolean(true),
            "false" | "False" | "FALSE" => ScalarType::Boolean(false),
            text if is_number(text) => ScalarType::Number,
            _ => ScalarType::Text,
        }
    }

    /// Whether Kubernetes reads this as a boolean although the core schema of YAML 1.2 does not:
    /// its YAML reader follows version 1.1.
    pub fn is_yaml_1_1_boolean(&self) -> bool {
        const OLD: [&str; 4] = ["yes", "no", "on", "off"];
        self.style == Style::Plain && OLD.contains(&self.text.to_ascii_lowercase().as_str())
    }
}

fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(digits) = unsigned.strip_prefix("0x") {
        return !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    }
    if let Some(digits) = unsigned.strip_prefix("0o") {
        return !digits.is_empty() && digits.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    }
    if matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let starts = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    // `f64` also parses `inf`, `infinity` and `nan`, which are text in YAML.
    let numeric = unsigned
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    starts && numeric && unsigned.parse::<f64>().is_ok()
}

impl Node {
    /// `text`, `number`, `list` and so on, for error texts.
    pub fn kind(&self) -> &'static str {
        self.content.kind()
    }

    /// The scalar, if it is one.
    pub fn scalar(&self) -> Option<&Scalar> {
        match &self.content {
            Content::Scalar(scalar) => Some(scalar),
            Content::Sequence(_) | Content::Mapping(_) => None,
        }
    }

    /// Whether the value is null.
    pub fn is_null(&self) -> bool {
        self.scalar()
            .is_some_and(|scalar| scalar.scalar_type() == ScalarType::Null)
    }

    /// The entries, if it is a mapping.
    pub fn entries(&self) -> Option<&[Entry]> {
        match &self.content {
            Content::Mapping(entries) => Some(entries),
            Content::Scalar(_) | Content::Sequence(_) => None,
        }
    }

    /// The items, if it is a list.
    pub fn items(&self) -> Option<&[Rc<Self>]> {
        match &self.content {
            Content::Sequence(items) => Some(items),
            Content::Scalar(_) | Content::Mapping(_) => None,
        }
    }

    /// A key's value, if this is a mapping that has it and it is not null.
    pub fn get(&self, key: &str) -> Option<&Rc<Self>> {
        let entry = self.entries()?.iter().find(|entry| &*entry.key == key)?;
        (!entry.value.is_null()).then_some(&entry.value)
    }

    /// A mapping without keys, at the start of its text.
    pub fn empty_mapping() -> Self {
        Self {
            depth: 1,
            ..Self::new(Content::Mapping(Vec::new()), Position { line: 1, column: 1 })
        }
    }

    fn position(&self) -> Position {
        Position {
            line: self.line,
            column: self.column,
        }
    }

    /// A scalar whose text begins where it does, unless the caller says otherwise.
    fn new(content: Content, at: Position) -> Self {
        Self {
            content,
            line: at.line,
            column: at.column,
            text_line: at.line,
            node_count: 1,
            depth: 0,
        }
    }
}

#[cfg(test)]
mod tests;
