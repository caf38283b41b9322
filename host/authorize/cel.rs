//! CEL expressions, compiled once.
//!
//! In: source. Out: a value of the type asked for. Never: I/O.

use cel::{Context, Program, Value};

use crate::diagnostic::Location;

/// Why an expression was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The source does not parse or names what does not exist.
    #[error("the expression is invalid")]
    Invalid,
    /// Evaluation failed.
    #[error("evaluation failed")]
    Evaluation,
    /// The result has another type.
    #[error("the result is not a {expected}")]
    WrongType {
        /// Type asked for.
        expected: &'static str,
    },
}

/// One compiled expression.
#[derive(Debug)]
pub struct Expression {
    source: String,
    program: Program,
}

impl Expression {
    /// Compiles `source` over `variables`.
    ///
    /// # Errors
    /// What does not parse or uses other variables.
    pub fn compile(source: &str, variables: &[&str], _location: Option<Location>) -> Result<Self, Error> {
        let program = Program::compile(source).map_err(|_| Error::Invalid)?;
        if program.references().variables().iter().any(|name| !variables.contains(name)) {
            return Err(Error::Invalid);
        }
        Ok(Self { source: source.to_owned(), program })
    }

    /// Whether the source mentions `variable.field`.
    pub fn mentions(&self, variable: &str, field: &str) -> bool {
        let wanted = format!("{variable}.{field}");
        self.source.match_indices(&wanted).any(|(at, _)| {
            let rest = self.source.get(at + wanted.len()..).unwrap_or_default();
            !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        })
    }

    /// Evaluates a predicate.
    ///
    /// # Errors
    /// Anything but a boolean.
    pub fn eval_bool(&self, variables: &[(&str, &serde_json::Value)]) -> Result<bool, Error> {
        match self.run(variables)? {
            Value::Bool(value) => Ok(value),
            _ => Err(Error::WrongType { expected: "bool" }),
        }
    }

    /// Evaluates to a text.
    ///
    /// # Errors
    /// Anything but a text.
    pub fn eval_string(&self, variables: &[(&str, &serde_json::Value)]) -> Result<String, Error> {
        match self.run(variables)? {
            Value::String(value) => Ok(value.as_str().to_owned()),
            _ => Err(Error::WrongType { expected: "string" }),
        }
    }

    /// Evaluates to texts; a single text is a list of one, `""` and `null` none.
    ///
    /// # Errors
    /// Anything else.
    pub fn eval_strings(&self, variables: &[(&str, &serde_json::Value)]) -> Result<Vec<String>, Error> {
        let wrong = Error::WrongType { expected: "list of strings" };
        match self.run(variables)? {
            Value::Null => Ok(Vec::new()),
            Value::String(value) if value.is_empty() => Ok(Vec::new()),
            Value::String(value) => Ok(vec![value.as_str().to_owned()]),
            Value::List(values) => values
                .iter()
                .map(|value| match value {
                    Value::String(value) => Ok(value.as_str().to_owned()),
                    _ => Err(wrong.clone()),
                })
                .collect(),
            _ => Err(wrong),
        }
    }

    fn run(&self, variables: &[(&str, &serde_json::Value)]) -> Result<Value, Error> {
        let mut context = Context::default();
        for (name, value) in variables {
            context.add_variable(name.to_string(), value).map_err(|_| Error::Evaluation)?;
        }
        self.program.execute(&context).map_err(|_| Error::Evaluation)
    }
}
