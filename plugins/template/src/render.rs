//! The parsed template and values to text in pieces.
//!
//! In: nodes, values. Out: [`Text`]. Never: a branch on a secret.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use crate::error::{Code, Error, Position};
use crate::part::Operation;
use crate::syntax::{Branch, BranchKind, Call, Command, Function, Node, Operand, Pipeline};
use crate::text::{Origin, Piece, Text};
use crate::{Value, Values};

/// Renders `nodes`.
///
/// # Errors
/// See [`crate::Template::render`].
pub(crate) fn render(nodes: &[Node], slots: usize, values: &dyn Values) -> Result<Text, Error> {
    let mut run = Run {
        values,
        slots: alloc::vec![Given::Bool(false); slots],
        dot: Given::Bool(false),
        output: Text::default(),
    };
    run.nodes(nodes)?;
    run.output.check_size()?;
    Ok(run.output)
}

/// What a pipeline gives.
#[derive(Clone)]
enum Given {
    Text(Text),
    Bool(bool),
}

struct Run<'a> {
    values: &'a dyn Values,
    slots: Vec<Given>,
    dot: Given,
    output: Text,
}

impl Run<'_> {
    fn nodes(&mut self, nodes: &[Node]) -> Result<(), Error> {
        for node in nodes {
            match node {
                Node::Text(text) => self.output.push(Piece::Text(text.clone(), Origin::Template)),
                Node::Action(pipeline) => {
                    let given = self.pipeline(pipeline)?;
                    if pipeline.variable.is_none() {
                        self.output.append(printed(given));
                        self.output.check_size()?;
                    }
                }
                Node::Branch(branch) => self.branch(branch)?,
            }
        }
        Ok(())
    }

    fn branch(&mut self, branch: &Branch) -> Result<(), Error> {
        let given = self.pipeline(&branch.condition)?;
        if !truth(&given, branch.condition.at)? {
            return self.nodes(&branch.otherwise);
        }
        if branch.kind == BranchKind::If {
            return self.nodes(&branch.then);
        }
        let outer = core::mem::replace(&mut self.dot, given);
        let result = self.nodes(&branch.then);
        self.dot = outer;
        result
    }

    fn pipeline(&mut self, pipeline: &Pipeline) -> Result<Given, Error> {
        let mut given = match &pipeline.first {
            Command::Operand(operand) => self.operand(operand)?,
            Command::Call(call) => self.call(call, None)?,
        };
        for call in &pipeline.calls {
            given = self.call(call, Some(given))?;
        }
        if let Some(slot) = pipeline.variable.and_then(|slot| self.slots.get_mut(slot)) {
            *slot = given.clone();
        }
        Ok(given)
    }

    fn operand(&mut self, operand: &Operand) -> Result<Given, Error> {
        match operand {
            Operand::Text(text) => Ok(Given::Text(Text::new(text, Origin::Template))),
            Operand::Bool(value) => Ok(Given::Bool(*value)),
            Operand::Dot => Ok(self.dot.clone()),
            Operand::Variable(slot, at) => self.slots.get(*slot).cloned().ok_or_else(|| {
                // The parser hands out no slot it does not count.
                Error::new(Code::Syntax, *at, "no such variable")
            }),
            Operand::Value(name, at) => match self.values.value(name) {
                Some(Value::Public(text)) => Ok(Given::Text(Text::new(&text, Origin::Value))),
                Some(Value::Secret) => Ok(Given::Text(Text::secret(name))),
                None => {
                    let text = format!("there is no value `{name}`");
                    Err(Error::new(Code::Missing, *at, text))
                }
            },
            Operand::Pipeline(pipeline) => self.pipeline(pipeline),
        }
    }

    fn call(&mut self, call: &Call, piped: Option<Given>) -> Result<Given, Error> {
        if let Function::And | Function::Or = call.function {
            return self.choose(call, piped);
        }
        let mut given = Vec::with_capacity(call.arguments.len() + 1);
        for operand in &call.arguments {
            given.push(self.operand(operand)?);
        }
        given.extend(piped);
        let operation = match call.function {
            Function::Eq => return Ok(Given::Bool(equal(call, &given)?)),
            Function::Ne => return Ok(Given::Bool(!equal(call, &given)?)),
            Function::Not => return Ok(Given::Bool(!truth(only(call, &given)?, call.at)?)),
            Function::Printf => return printf(call, given),
            Function::UrlQuery => return urlquery(call, given),
            Function::Base64 => Operation::Base64,
            Function::Json => Operation::Json,
            Function::PathEscape => Operation::Percent,
            Function::Trim => Operation::Trim,
            // The parser makes values of `index`; the other two are above.
            Function::Index | Function::And | Function::Or => return Err(wrong(call, "may not stand here")),
        };
        let text = text_of(call, only(call, &given)?.clone())?;
        applied(call, operation, text)
    }

    /// `and` and `or`: the first argument that settles it, else the last. What
    /// comes after the settling one is not looked at, as in Go.
    fn choose(&mut self, call: &Call, piped: Option<Given>) -> Result<Given, Error> {
        let settles = call.function == Function::Or;
        let count = call.arguments.len() + usize::from(piped.is_some());
        for (index, operand) in call.arguments.iter().enumerate() {
            let given = self.operand(operand)?;
            if index + 1 == count || truth(&given, call.at)? == settles {
                return Ok(given);
            }
        }
        piped.ok_or_else(|| wrong(call, "takes at least one argument"))
    }
}

/// Whether `given` counts as true: a text when it is not empty.
fn truth(given: &Given, at: Position) -> Result<bool, Error> {
    match given {
        Given::Bool(value) => Ok(*value),
        Given::Text(text) if text.is_secret() => readable(text, at).map(|text| !text.is_empty()),
        Given::Text(text) => Ok(!text.pieces().is_empty()),
    }
}

/// The text, which must not hold a secret, because something depends on it.
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

/// The first name within a secret piece.
fn secret_name(piece: &Piece) -> Option<&str> {
    match piece {
        Piece::Text(..) => None,
        Piece::Secret(part) => part.first_secret(),
    }
}

fn printed(given: Given) -> Text {
    match given {
        Given::Text(text) => text,
        Given::Bool(value) => Text::new(if value { "true" } else { "false" }, Origin::Template),
    }
}

fn wrong(call: &Call, what: &str) -> Error {
    Error::new(Code::Type, call.at, format!("`{}` {what}", call.function.name()))
}

/// The argument of a function that takes one.
fn only<'a>(call: &Call, given: &'a [Given]) -> Result<&'a Given, Error> {
    match given {
        [only] => Ok(only),
        _ => Err(wrong(call, "takes one argument")),
    }
}

fn text_of(call: &Call, given: Given) -> Result<Text, Error> {
    match given {
        Given::Text(text) => Ok(text),
        Given::Bool(_) => Err(wrong(call, "takes texts, and this is true or false")),
    }
}

/// The operation, with the call's place in its error.
fn applied(call: &Call, operation: Operation, text: Text) -> Result<Given, Error> {
    let placed = |error: Error| Error::new(error.code(), call.at, error.to_string());
    let text = text.apply(operation).map_err(placed)?;
    text.check_size().map_err(placed)?;
    Ok(Given::Text(text))
}

fn urlquery(call: &Call, given: Vec<Given>) -> Result<Given, Error> {
    let single = given.len() == 1;
    let mut joined = Text::default();
    for given in given {
        // Go prints several arguments with spaces between those that are no texts.
        joined.append(if single { printed(given) } else { text_of(call, given)? });
    }
    applied(call, Operation::Form, joined)
}

fn printf(call: &Call, given: Vec<Given>) -> Result<Given, Error> {
    let mut given = given.into_iter();
    let format = given.next().ok_or_else(|| wrong(call, "takes a format"))?;
    let format = readable(&text_of(call, format)?, call.at)?;
    let mut result = Text::default();
    let mut rest = format.as_str();
    while let Some((before, after)) = rest.split_once('%') {
        result.push(Piece::Text(before.to_string(), Origin::Template));
        if let Some(after) = after.strip_prefix('s') {
            let value = given.next().ok_or_else(|| wrong(call, "has too few values"))?;
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
    Ok(Given::Text(result))
}

/// Whether the first equals one of the others.
fn equal(call: &Call, given: &[Given]) -> Result<bool, Error> {
    let Some((first, others)) = given.split_first() else {
        return Err(wrong(call, "takes two arguments"));
    };
    for other in others {
        let same = match (first, other) {
            (Given::Bool(a), Given::Bool(b)) => a == b,
            (Given::Text(a), Given::Text(b)) => readable(a, call.at)? == readable(b, call.at)?,
            (Given::Bool(_), Given::Text(_)) | (Given::Text(_), Given::Bool(_)) => {
                return Err(wrong(call, "cannot compare a text with true or false"));
            }
        };
        if same {
            return Ok(true);
        }
    }
    Ok(false)
}
