//! The syntax tree of a template: `parse` builds it, `analyze` and `render` read it. Positions are
//! for errors only.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::Position;

/// A node of a template.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// Literal text, after trim markers were applied.
    Text(String),
    /// `{{ pipeline }}`, printed unless it declares a variable.
    Action(Pipeline),
    /// `{{ if }}` or `{{ with }}`.
    Branch(Branch),
}

/// `{{ if }} … {{ else }} … {{ end }}`, or `with`.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) kind: BranchKind,
    pub(crate) condition: Pipeline,
    pub(crate) then: Vec<Node>,
    pub(crate) otherwise: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BranchKind {
    If,
    /// Like `if`, but the condition's value becomes the dot inside.
    With,
}

/// `$x := first | call | call`.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    /// The slot of the variable that the value is assigned to. With `None` the value is printed.
    pub(crate) variable: Option<usize>,
    pub(crate) first: Command,
    /// Each call gets the preceding value as its last argument.
    pub(crate) calls: Vec<Call>,
    pub(crate) at: Position,
}

#[derive(Clone, Debug)]
pub(crate) enum Command {
    Operand(Operand),
    Call(Call),
}

/// `function argument argument`.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) function: Function,
    pub(crate) arguments: Vec<Operand>,
    pub(crate) at: Position,
}

/// A value within a command.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Text(String),
    Bool(bool),
    /// `.` within a `with`.
    Dot,
    /// A declared variable, by slot.
    Variable(usize, Position),
    /// A value by its key: `.name`, `$.name` or `index . "name"`.
    Value(String, Position),
    /// `( pipeline )`.
    Pipeline(Box<Pipeline>),
}

/// The supported functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    And,
    Base64,
    Eq,
    /// Occurs only while parsing, which turns it into an [`Operand::Value`].
    Index,
    Json,
    Ne,
    Not,
    Or,
    PathEscape,
    Printf,
    Trim,
    UrlQuery,
}

impl Function {
    /// All functions by name, in the order in which messages list them.
    pub(crate) const ALL: [(&'static str, Self); 12] = [
        ("and", Self::And),
        ("b64", Self::Base64),
        ("eq", Self::Eq),
        ("index", Self::Index),
        ("json", Self::Json),
        ("ne", Self::Ne),
        ("not", Self::Not),
        ("or", Self::Or),
        ("pathescape", Self::PathEscape),
        ("printf", Self::Printf),
        ("trim", Self::Trim),
        ("urlquery", Self::UrlQuery),
    ];

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find_map(|(known, function)| (*known == name).then_some(*function))
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find_map(|(name, function)| (*function == self).then_some(*name))
            .unwrap_or_default()
    }

    /// Minimum and maximum number of arguments, including the piped one.
    pub(crate) fn arity(self) -> (usize, usize) {
        match self {
            Self::And | Self::Or | Self::Printf | Self::UrlQuery => (1, usize::MAX),
            Self::Eq => (2, usize::MAX),
            Self::Index | Self::Ne => (2, 2),
            Self::Base64 | Self::Json | Self::Not | Self::PathEscape | Self::Trim => (1, 1),
        }
    }
}
