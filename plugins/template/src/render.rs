//! Renders the nodes of a template with values to a [`Text`].
//!
//! Security: no condition and no comparison reads a secret.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use crate::error::{Code, Error, Position};
use crate::part::Operation;
use crate::syntax::{Branch, BranchKind, Call, Command, Function, Node, Operand, Pipeline};
use crate::text::{Origin, Piece, Text};
use crate::{Value, Values};

/// Renders `nodes`, which use `slots` variable slots.
///
/// # Errors
/// See [`crate::Template::render`].
pub(crate) fn render(nodes: &[Node], slots: usize, values: &dyn Values) -> Result<Text, Error> {
    let mut renderer = Renderer {
        values,
        slots: alloc::vec![Evaluated::Bool(false); slots],
        dot: Evaluated::Bool(false),
        output: Text::default(),
    };
    renderer.nodes(nodes)?;
    renderer.output.check_size()?;
    Ok(renderer.output)
}

/// The value of a pipeline or an argument.
#[derive(Clone)]
enum Evaluated {
    Text(Text),
    Bool(bool),
}

struct Renderer<'a> {
    values: &'a dyn Values,
    slots: Vec<Evaluated>,
    dot: Evaluated,
    output: Text,
}

impl Renderer<'_> {
    fn nodes(&mut self, nodes: &[Node]) -> Result<(), Error> {
        for node in nodes {
            match node {
                Node::Text(text) => self.output.push(Piece::Text(text.clone(), Origin::Template)),
                Node::Action(pipeline) => {
                    let value = self.pipeline(pipeline)?;
                    if pipeline.variable.is_none() {
                        self.output.append(printed(value));
                        self.output.check_size()?;
                    }
                }
                Node::Branch(branch) => self.branch(branch)?,
            }
        }
        Ok(())
    }

    fn branch(&mut self, branch: &Branch) -> Result<(), Error> {
        let value = self.pipeline(&branch.condition)?;
        if !truth(&value, branch.condition.at)? {
            return self.nodes(&branch.otherwise);
        }
        if branch.kind == BranchKind::If {
            return self.nodes(&branch.then);
        }
        let outer = core::mem::replace(&mut self.dot, value);
        let result = self.nodes(&branch.then);
        self.dot = outer;
        result
    }

    fn pipeline(&mut self, pipeline: &Pipeline) -> Result<Evaluated, Error> {
        let mut value = match &pipeline.first {
            Command::Operand(operand) => self.operand(operand)?,
            Command::Call(call) => self.call(call, None)?,
        };
        for call in &pipeline.calls {
            value = self.call(call, Some(value))?;
        }
        if let Some(slot) = pipeline.variable.and_then(|slot| self.slots.get_mut(slot)) {
            *slot = value.clone();
        }
        Ok(value)
    }

    fn operand(&mut self, operand: &Operand) -> Result<Evaluated, Error> {
        match operand {
            Operand::Text(text) => Ok(Evaluated::Text(Text::new(text, Origin::Template))),
            Operand::Bool(value) => Ok(Evaluated::Bool(*value)),
            Operand::Dot => Ok(self.dot.clone()),
            Operand::Variable(slot, at) => self.slots.get(*slot).cloned().ok_or_else(|| {
                // Cannot happen: the parser counts every slot that it assigns.
                Error::new(Code::Syntax, *at, "no such variable")
            }),
            Operand::Value(name, at) => match self.values.value(name) {
                Some(Value::Public(text)) => Ok(Evaluated::Text(Text::new(&text, Origin::Value))),
                Some(Value::Secret) => Ok(Evaluated::Text(Text::secret(name))),
                None => {
                    let text = format!("there is no value `{name}`");
                    Err(Error::new(Code::Missing, *at, text))
                }
            },
            Operand::Pipeline(pipeline) => self.pipeline(pipeline),
        }
    }

    fn call(&mut self, call: &Call, piped: Option<Evaluated>) -> Result<Evaluated, Error> {
        if let Function::And | Function::Or = call.function {
            return self.choose(call, piped);
        }
        let mut arguments = Vec::with_capacity(call.arguments.len() + 1);
        for operand in &call.arguments {
            arguments.push(self.operand(operand)?);
        }
        arguments.extend(piped);
        let operation = match call.function {
            Function::Eq => return Ok(Evaluated::Bool(equal(call, &arguments)?)),
            Function::Ne => return Ok(Evaluated::Bool(!equal(call, &arguments)?)),
            Function::Not => return Ok(Evaluated::Bool(!truth(only(call, &arguments)?, call.at)?)),
            Function::Printf => return printf(call, arguments),
            Function::UrlQuery => return urlquery(call, arguments),
            Function::Base64 => Operation::Base64,
            Function::Json => Operation::Json,
            Function::PathEscape => Operation::Percent,
            Function::Trim => Operation::Trim,
            // Cannot happen: the parser turns `index` into a value, and the other two return above.
            Function::Index | Function::And | Function::Or => return Err(type_error(call, "may not stand here")),
        };
        let text = text_of(call, only(call, &arguments)?.clone())?;
        applied(call, operation, text)
    }

    /// Evaluates `and` and `or`: returns the first argument that decides the result, else the last
    /// one. As in Go, arguments after the deciding one are not evaluated.
    fn choose(&mut self, call: &Call, piped: Option<Evaluated>) -> Result<Evaluated, Error> {
        let decisive = call.function == Function::Or;
        let count = call.arguments.len() + usize::from(piped.is_some());
        for (index, operand) in call.arguments.iter().enumerate() {
            let value = self.operand(operand)?;
            if index + 1 == count || truth(&value, call.at)? == decisive {
                return Ok(value);
            }
        }
        piped.ok_or_else(|| type_error(call, "takes at least one argument"))
    }
}

/// Whether `value` counts as true. A text does unless it is empty.
fn truth(value: &Evaluated, at: Position) -> Result<bool, Error> {
    match value {
        Evaluated::Bool(value) => Ok(*value),
        Evaluated::Text(text) if text.is_secret() => readable(text, at).map(|text| !text.is_empty()),
        Evaluated::Text(text) => Ok(!text.pieces().is_empty()),
    }
}

/// The text as a string that conditions may read. Refuses a text that contains a secret.
fn readable(text: &Text, at: Position) -> Result<String, Error> {
    text.public().ok_or_else(|| {
        let names: Vec<_> = text.pieces().iter().filter_map(secret_name).collect();
        let text = format!(
            "`{}` is a secret and cannot decide what is rendered; only public values can",
            names.first().copied().unwrap_or_default()
        );
        Error::new(Code::SecretBranch, at, text)
    })
}

/// The name of the first secret in a piece.
fn secret_name(piece: &Piece) -> Option<&str> {
    match piece {
        Piece::Text(..) => None,
        Piece::Secret(part) => part.first_secret(),
    }
}

fn printed(value: Evaluated) -> Text {
    match value {
        Evaluated::Text(text) => text,
        Evaluated::Bool(value) => Text::new(if value { "true" } else { "false" }, Origin::Template),
    }
}

fn type_error(call: &Call, what: &str) -> Error {
    Error::new(Code::Type, call.at, format!("`{}` {what}", call.function.name()))
}

/// The argument of a function that takes one.
fn only<'a>(call: &Call, arguments: &'a [Evaluated]) -> Result<&'a Evaluated, Error> {
    match arguments {
        [only] => Ok(only),
        _ => Err(type_error(call, "takes one argument")),
    }
}

fn text_of(call: &Call, value: Evaluated) -> Result<Text, Error> {
    match value {
        Evaluated::Text(text) => Ok(text),
        Evaluated::Bool(_) => Err(type_error(call, "takes texts, and this is true or false")),
    }
}

/// Applies `operation` to `text`. Errors have the position of the call.
fn applied(call: &Call, operation: Operation, text: Text) -> Result<Evaluated, Error> {
    let positioned = |error: Error| Error::new(error.code(), call.at, error.to_string());
    let text = text.apply(operation).map_err(positioned)?;
    text.check_size().map_err(positioned)?;
    Ok(Evaluated::Text(text))
}

fn urlquery(call: &Call, arguments: Vec<Evaluated>) -> Result<Evaluated, Error> {
    let single = arguments.len() == 1;
    let mut joined = Text::default();
    for value in arguments {
        // Go puts a space between two arguments if neither is a string, so several must be texts.
        joined.append(if single { printed(value) } else { text_of(call, value)? });
    }
    applied(call, Operation::Form, joined)
}

fn printf(call: &Call, arguments: Vec<Evaluated>) -> Result<Evaluated, Error> {
    let mut arguments = arguments.into_iter();
    let format = arguments.next().ok_or_else(|| type_error(call, "takes a format"))?;
    let format = readable(&text_of(call, format)?, call.at)?;
    let mut result = Text::default();
    let mut rest = format.as_str();
    while let Some((before, after)) = rest.split_once('%') {
        result.push(Piece::Text(before.to_string(), Origin::Template));
        if let Some(after) = after.strip_prefix('s') {
            let value = arguments.next().ok_or_else(|| type_error(call, "has too few values"))?;
            result.append(text_of(call, value)?);
            rest = after;
        } else {
            result.push(Piece::Text("%".to_string(), Origin::Template));
            rest = after.strip_prefix('%').unwrap_or(after);
        }
    }
    result.push(Piece::Text(rest.to_string(), Origin::Template));
    result
        .check_size()
        .map_err(|error| Error::new(error.code(), call.at, error.to_string()))?;
    Ok(Evaluated::Text(result))
}

/// Whether the first argument equals one of the others.
fn equal(call: &Call, arguments: &[Evaluated]) -> Result<bool, Error> {
    let Some((first, others)) = arguments.split_first() else {
        return Err(type_error(call, "takes two arguments"));
    };
    for other in others {
        let same = match (first, other) {
            (Evaluated::Bool(a), Evaluated::Bool(b)) => a == b,
            (Evaluated::Text(a), Evaluated::Text(b)) => readable(a, call.at)? == readable(b, call.at)?,
            (Evaluated::Bool(_), Evaluated::Text(_)) | (Evaluated::Text(_), Evaluated::Bool(_)) => {
                return Err(type_error(call, "cannot compare a text with true or false"));
            }
        };
        if same {
            return Ok(true);
        }
    }
    Ok(false)
}
