//! Short expressions in CEL: claim mappings, claim rules, match conditions. Operators write the
//! expressions; the values may come from untrusted callers. An expression evaluates to a boolean, a
//! text or a list of texts.
//!
//! Security: work is bounded before evaluation, as the crate has no type check, no cost limit and
//! no interrupt. The bounds are on the source, on the parsed tree, on the work the tree can do
//! (`cel/cost.rs`) and on the size of the values (`cel/input.rs`).
//!
//! Source: <https://github.com/google/cel-spec>; names of functions as in Kubernetes'
//! `AuthenticationConfiguration`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{ExecutionError, Value};

mod cost;
mod input;
mod library;
mod limits;
mod literals;
mod strict;
#[cfg(test)]
mod tests;

pub use input::Variables;
pub use literals::ResultLiteral;

/// Maximum length of an expression's source, in bytes.
pub const MAX_SOURCE_BYTES: usize = 4096;
/// Maximum number of brackets open at once in the source.
pub const MAX_BRACKET_DEPTH: usize = 12;
/// Maximum number of nodes of the parsed expression, macros expanded.
pub const MAX_NODES: usize = 500;
/// Maximum number of nodes between the root of the parsed expression and a leaf.
pub const MAX_TREE_DEPTH: usize = 64;
/// Maximum nesting of `all`, `exists`, `exists_one`, `map` and `filter`.
pub const MAX_COMPREHENSION_DEPTH: usize = 2;
/// Maximum length of a text that an expression returns, in bytes.
pub const MAX_RESULT_BYTES: usize = 16 * 1024;
/// Maximum number of texts in a list that an expression returns.
pub const MAX_RESULT_ITEMS: usize = 4096;

/// Why an expression was refused, or what stopped it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing but white space.
    #[error("the expression is empty")]
    Empty,
    /// The source is too long.
    #[error("the expression has {0} bytes, {MAX_SOURCE_BYTES} are allowed")]
    TooLong(usize),
    /// Brackets are nested too deeply.
    #[error("brackets are nested {observed} deep at byte {at}, {MAX_BRACKET_DEPTH} are allowed")]
    TooDeep {
        /// Depth reached.
        observed: usize,
        /// Byte of the source, from 0.
        at: usize,
    },
    /// The source is not valid CEL.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// Line, from 1; 0 when unknown.
        line: u32,
        /// Column, from 1; 0 when unknown.
        column: u32,
        /// The parser's message, shortened.
        message: String,
    },
    /// The parser panicked, ran out of time or could not be started.
    #[error("the expression could not be parsed: {0}")]
    Parser(&'static str),
    /// The parsed tree has too many nodes.
    #[error("the expression has more than {MAX_NODES} parts")]
    TooManyNodes,
    /// The parsed tree is too deep.
    #[error("the expression is nested more than {MAX_TREE_DEPTH} deep")]
    TooNested,
    /// Comprehensions inside comprehensions.
    #[error("`{0}` stands inside {MAX_COMPREHENSION_DEPTH} others, {MAX_COMPREHENSION_DEPTH} levels are allowed")]
    ComprehensionTooDeep(&'static str),
    /// An undeclared name.
    #[error("`{name}` is not known here, known are {known}")]
    UnknownVariable {
        /// The name.
        name: String,
        /// What is declared, in backticks.
        known: String,
    },
    /// A function outside the allow-list.
    #[error("function `{0}` is not available")]
    UnknownFunction(String),
    /// A form that is not supported, such as a message literal.
    #[error("{0} cannot be used here")]
    Unsupported(&'static str),
    /// The expression would be too slow even with small inputs.
    #[error("the expression could do too much work: {observed} steps for lists of {items}, {allowed} are allowed")]
    TooMuchWork {
        /// Estimated steps.
        observed: u64,
        /// Length of the lists the estimate is for.
        items: u64,
        /// Steps allowed.
        allowed: u64,
    },
    /// An input list or map is longer than this expression allows.
    #[error("`{variable}` holds a list or map of {observed} items, this expression allows {allowed}")]
    TooManyItems {
        /// Variable.
        variable: String,
        /// Its items.
        observed: usize,
        /// Items allowed.
        allowed: usize,
    },
    /// An input value is too large or too deep.
    #[error("`{variable}` has {what} of {observed}, {allowed} are allowed")]
    InputTooLarge {
        /// Variable.
        variable: String,
        /// What is too large.
        what: &'static str,
        /// Observed.
        observed: usize,
        /// Allowed.
        allowed: usize,
    },
    /// Evaluation failed: a missing key, an overflow, a wrong type.
    #[error("{0}")]
    Evaluation(String),
    /// Evaluation panicked.
    #[error("evaluation panicked")]
    Panicked,
    /// The result has another type.
    #[error("the result is of type `{observed}`, `{expected}` is expected")]
    WrongType {
        /// Type of the result.
        observed: &'static str,
        /// Type wanted.
        expected: &'static str,
    },
    /// The result is too large.
    #[error("the result has {what} of {observed}, {allowed} are allowed")]
    ResultTooLarge {
        /// What is too large.
        what: &'static str,
        /// Observed.
        observed: usize,
        /// Allowed.
        allowed: usize,
    },
}

/// A compiled expression. Immutable.
#[derive(Debug)]
pub struct Expression {
    program: cel::Program,
    /// The program's expression as it is evaluated.
    evaluated: IdedExpr,
    patterns: Vec<library::Pattern>,
    /// Variables that it uses.
    names: Vec<String>,
    /// How many items an input list or map may have. The more work an expression does per item, the
    /// fewer.
    items: usize,
}

impl Expression {
    /// Checks and compiles `source`, an expression that may use `variables`.
    ///
    /// Takes some 100 µs and a short-lived thread with a large stack: call it
    /// at load, never per request.
    ///
    /// # Errors
    /// The source exceeds the bounds of this module, does not parse, or uses a variable or function
    /// that does not exist.
    pub fn compile(source: &str, variables: &[&str]) -> Result<Self, Error> {
        limits::scan(source)?;
        limits::parse_and_check(source, variables)
    }

    /// Whether the expression mentions `<variable>.<field>`, with dot, index, `?.` or `has`.
    /// Kubernetes requires `claims.email_verified` to be checked where `claims.email` is used.
    pub fn mentions(&self, variable: &str, field: &str) -> bool {
        limits::mentions(self.program.expression(), variable, field)
    }

    /// Evaluates a predicate.
    ///
    /// # Errors
    /// Anything but a boolean is [`Error::WrongType`]; all errors deny.
    pub fn eval_bool(&self, variables: &[(&str, &serde_json::Value)]) -> Result<bool, Error> {
        self.eval_bool_in(&self.convert(variables)?)
    }

    /// Like [`Expression::eval_bool`], over values that were converted before, so that several
    /// expressions can share them.
    pub fn eval_bool_in(&self, variables: &Variables) -> Result<bool, Error> {
        match self.run(variables)? {
            Value::Bool(value) => Ok(value),
            other => Err(wrong_type(&other, "bool")),
        }
    }

    /// Evaluates to a text of at most [`MAX_RESULT_BYTES`].
    ///
    /// # Errors
    /// Anything but a text is [`Error::WrongType`].
    pub fn eval_string(&self, variables: &[(&str, &serde_json::Value)]) -> Result<String, Error> {
        self.eval_string_in(&self.convert(variables)?)
    }

    /// Like [`Expression::eval_string`], over values that were converted before.
    pub fn eval_string_in(&self, variables: &Variables) -> Result<String, Error> {
        text(&self.run(variables)?, "string")
    }

    /// Evaluates to texts, over values that were converted before. The result may be a text, a list
    /// of texts or a list of such lists; the order is kept. `null` gives no text.
    ///
    /// # Errors
    /// Anything else is [`Error::WrongType`].
    pub fn eval_flattened_strings_in(&self, variables: &Variables) -> Result<Vec<String>, Error> {
        let mut texts = Vec::new();
        match self.run(variables)? {
            Value::Null => {}
            Value::List(values) => {
                for value in values.iter() {
                    match value {
                        Value::List(inner) => push_texts(inner, &mut texts)?,
                        value => push_texts(std::slice::from_ref(value), &mut texts)?,
                    }
                }
            }
            value => push_texts(&[value], &mut texts)?,
        }
        Ok(texts)
    }

    /// The text literals that can be the result, or the start of the result. Literals that are only
    /// compared are left out.
    pub fn result_literals(&self) -> Vec<ResultLiteral> {
        literals::collect(self.program.expression())
    }

    /// Evaluates to a list of texts. A single text is a list of one; `""` and `null` are the empty
    /// list, as in Kubernetes' group mappings.
    ///
    /// # Errors
    /// Anything else is [`Error::WrongType`].
    pub fn eval_strings(&self, variables: &[(&str, &serde_json::Value)]) -> Result<Vec<String>, Error> {
        match self.run(&self.convert(variables)?)? {
            Value::Null => Ok(Vec::new()),
            Value::String(value) if value.is_empty() => Ok(Vec::new()),
            Value::List(values) => {
                check_length(values.len())?;
                values.iter().map(|value| text(value, "list of strings")).collect()
            }
            value => Ok(vec![text(&value, "list of strings")?]),
        }
    }

    fn convert(&self, variables: &[(&str, &serde_json::Value)]) -> Result<Variables, Error> {
        // A value that is too large must not make an expression fail that does not use it.
        let used = variables
            .iter()
            .filter(|(name, _)| self.names.iter().any(|used| used == name));
        Variables::new(used.copied())
    }

    /// SECURITY: the only place where an expression is evaluated. The sizes of the caller's values
    /// are checked here against what the cost estimate assumed.
    fn run(&self, variables: &Variables) -> Result<Value, Error> {
        variables.check_items(&self.names, self.items)?;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // A scope within, because other expressions share `variables` and have other patterns of the same names.
            let mut context = variables.context.new_inner_scope();
            for pattern in &self.patterns {
                context.add_variable_as_val(pattern.name.clone(), Box::new(pattern.value.clone()));
            }
            Value::resolve(&self.evaluated, &context)
        }));
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Error::Evaluation(describe(&error))),
            Err(_) => Err(Error::Panicked),
        }
    }
}

/// The parts of a conjunction, in order, without brackets around it: of `a && (b || c)`, `a` and
/// `(b || c)`. An expression that is no conjunction is its only part.
pub fn conjuncts(source: &str) -> Vec<&str> {
    limits::conjuncts(source)
}

fn push_texts(values: &[Value], texts: &mut Vec<String>) -> Result<(), Error> {
    for value in values {
        check_length(texts.len().saturating_add(1))?;
        texts.push(text(value, "list of strings")?);
    }
    Ok(())
}

fn check_length(observed: usize) -> Result<(), Error> {
    if observed > MAX_RESULT_ITEMS {
        return Err(Error::ResultTooLarge {
            what: "a length",
            observed,
            allowed: MAX_RESULT_ITEMS,
        });
    }
    Ok(())
}

/// A text within the bound on results.
fn text(value: &Value, expected: &'static str) -> Result<String, Error> {
    match value {
        Value::String(text) if text.len() > MAX_RESULT_BYTES => Err(Error::ResultTooLarge {
            what: "a text",
            observed: text.len(),
            allowed: MAX_RESULT_BYTES,
        }),
        Value::String(text) => Ok(text.as_str().to_owned()),
        other => Err(wrong_type(other, expected)),
    }
}

fn wrong_type(value: &Value, expected: &'static str) -> Error {
    let observed = match value {
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Function(..) => "function",
        Value::Int(_) => "int",
        Value::UInt(_) => "uint",
        Value::Float(_) => "double",
        Value::String(_) => "string",
        Value::Bytes(_) => "bytes",
        Value::Bool(_) => "bool",
        Value::Duration(_) => "duration",
        Value::Timestamp(_) => "timestamp",
        Value::Opaque(_) => "optional",
        Value::Struct(_) => "struct",
        Value::Null => "null",
    };
    Error::WrongType { observed, expected }
}

/// What failed, without the values: they may come from an untrusted caller, or be claims that do
/// not belong in a log.
fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key `{}`", shorten(key)),
        ExecutionError::UndeclaredReference(name) => format!("`{}` has no value", shorten(name)),
        ExecutionError::NoSuchOverload(overload) => {
            let types = overload.argument_types().join("`, `");
            format!("`{}` does not take `{types}`", shorten(overload.function()))
        }
        ExecutionError::UnexpectedType { got, want } => {
            format!("a value is of type `{}`, `{}` is expected", shorten(got), shorten(want))
        }
        ExecutionError::FunctionError { function, .. } => format!("function `{}` failed", shorten(function)),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => "division by zero".to_owned(),
        ExecutionError::Overflow(operator, ..) => format!("overflow in `{operator}`"),
        ExecutionError::IndexOutOfBounds(_) => "an index is out of bounds".to_owned(),
        ExecutionError::ValuesNotComparable(..) => "two values cannot be compared".to_owned(),
        ExecutionError::UnsupportedBinaryOperator(operator, ..) => {
            format!("`{operator}` does not take these types")
        }
        ExecutionError::DuplicateKey(_) => "a map literal has a key twice".to_owned(),
        // The crate's enum may grow; any other failure is an error as well.
        _ => "evaluation failed".to_owned(),
    }
}

/// At most 64 characters, none of them a control character.
fn shorten(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

/// Whether an expression is an empty list literal, with which the macros that build lists start.
fn is_empty_list(expr: &Expr) -> bool {
    matches!(expr, Expr::List(list) if list.elements.is_empty())
}

/// The direct parts of an expression, in order. Message literals, which no expression may have,
/// count as having none.
fn parts(expr: &IdedExpr) -> Vec<&IdedExpr> {
    match &expr.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => Vec::new(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => {
            let entries = map.entries.iter().map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => [Some(&entry.key), Some(&entry.value)],
                EntryExpr::StructField(entry) => [None, Some(&entry.value)],
            });
            entries.flatten().flatten().collect()
        }
        Expr::Comprehension(c) => vec![&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result],
    }
}
