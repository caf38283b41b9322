//! Executes a parsed Go template.
//!
//! Invariant: output, steps and nesting are bounded.
//!
//! Source: the documentation of Go's `text/template`; what it leaves open (nil against missing,
//! scopes of variables) as Go 1.26 does it.

use std::collections::BTreeMap;

use gotmpl::parse::{BranchNode, CommandNode, Expr, ListNode, Node, Number, PipeNode, SmolStr, TemplateNode};

use super::value::{Heap, Value, size};
use super::{ExecError, TEXT_BYTES, fields, functions, print};
use crate::MissingKey;

/// Maximum nesting of template calls and blocks.
const DEPTH: usize = 100;

enum Flow {
    Next,
    Break,
    Continue,
}

struct Executor<'r, 'a> {
    heap: &'r Heap<'a>,
    defines: &'r BTreeMap<String, ListNode>,
    missing_key: MissingKey,
    variables: Vec<(SmolStr, Value)>,
    /// Variables below this index belong to the caller of the template.
    frame: usize,
    depth: usize,
    output: String,
}

/// Executes `body` with `dot` and returns the output. `body` may call the templates in `defines`.
pub(super) fn run(
    heap: &Heap<'_>,
    body: &ListNode,
    dot: &Value,
    defines: &BTreeMap<String, ListNode>,
    missing_key: MissingKey,
) -> Result<String, ExecError> {
    let mut executor = Executor {
        heap,
        defines,
        missing_key,
        variables: vec![("$".into(), dot.clone())],
        frame: 0,
        depth: 0,
        output: String::new(),
    };
    match executor.walk(body, dot)? {
        Flow::Next => Ok(executor.output),
        Flow::Break | Flow::Continue => Err(exec_error("`break` or `continue` outside of `range`")),
    }
}

impl Executor<'_, '_> {
    fn walk(&mut self, list: &ListNode, dot: &Value) -> Result<Flow, ExecError> {
        for node in &list.nodes {
            self.heap.step()?;
            match self.node(node, dot)? {
                Flow::Next => {}
                flow @ (Flow::Break | Flow::Continue) => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, node: &Node, dot: &Value) -> Result<Flow, ExecError> {
        match node {
            Node::Text(text) => self.write(&text.text)?,
            Node::Action(action) => {
                let value = self.pipeline(&action.pipe, dot)?;
                if action.pipe.decl.is_empty() {
                    self.write_value(&value)?;
                }
            }
            Node::If(branch) | Node::With(branch) => {
                return self.branch(branch, dot, matches!(node, Node::With(_)));
            }
            Node::Range(branch) => return self.nested(|this| this.range(branch, dot)),
            Node::Template(call) => self.call_template(call, dot)?,
            Node::List(list) => return self.nested(|this| this.walk(list, dot)),
            Node::Define(_) => {}
            Node::Break(_) => return Ok(Flow::Break),
            Node::Continue(_) => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn write(&mut self, text: &str) -> Result<(), ExecError> {
        let observed = size(self.output.len()).saturating_add(size(text.len()));
        if observed > TEXT_BYTES {
            let text = format!("it writes {observed} bytes or more, at most {TEXT_BYTES} are allowed");
            return Err(ExecError::Limit(text));
        }
        self.heap.work(text.len())?;
        self.output.push_str(text);
        Ok(())
    }

    fn write_value(&mut self, value: &Value) -> Result<(), ExecError> {
        match value {
            Value::Missing | Value::Nil => self.write("<no value>"),
            other => self.write(&print::text_of(self.heap, other)?),
        }
    }

    /// Runs in a new scope; variables that it declares end with the scope.
    fn nested<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, ExecError>) -> Result<T, ExecError> {
        let mark = self.variables.len();
        let result = self.deeper(run);
        self.variables.truncate(mark);
        result
    }

    fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, ExecError>) -> Result<T, ExecError> {
        if self.depth >= DEPTH {
            return Err(ExecError::Limit(format!("its values nest more than {DEPTH} levels")));
        }
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }

    fn branch(&mut self, branch: &BranchNode, dot: &Value, with: bool) -> Result<Flow, ExecError> {
        self.nested(|this| {
            let value = this.pipeline(&branch.pipe, dot)?;
            match &branch.else_body {
                _ if value.is_truthy() => this.walk(&branch.body, if with { &value } else { dot }),
                Some(other) => this.walk(other, dot),
                None => Ok(Flow::Next),
            }
        })
    }

    fn range(&mut self, branch: &BranchNode, dot: &Value) -> Result<Flow, ExecError> {
        let over = self.expression_of(&branch.pipe, dot)?;
        // As in Go: the list is assigned before its elements are.
        for name in branch.pipe.decl.iter().filter(|_| branch.pipe.is_assign) {
            self.assign(name, over.clone())?;
        }
        let entries: Box<dyn Iterator<Item = (Value, Value)>> = match &over {
            Value::Missing | Value::Nil => Box::new(std::iter::empty()),
            Value::Int(_) | Value::Int64(_) if branch.pipe.decl.len() > 1 => {
                return Err(exec_error("cannot iterate over a number with two variables"));
            }
            Value::Int(count) => Box::new((0..*count).map(|number| (Value::Int(number), Value::Int(number)))),
            Value::Int64(count) => Box::new((0..*count).map(|number| (Value::Int64(number), Value::Int64(number)))),
            Value::List(list) => Box::new((0_i64..).map(Value::Int).zip(list.items.iter().cloned())),
            Value::Map(map) => {
                // `entries` copies the map, so that its body may change it.
                self.heap.fits(map.len(), 64)?;
                let entries = map.entries().into_iter();
                Box::new(entries.map(|(key, value)| (Value::Text(key), value)))
            }
            other => return Err(exec_error(format!("range cannot iterate over {}", other.type_name()))),
        };
        let mut any = false;
        for (key, item) in entries {
            any = true;
            if let Flow::Break = self.run_iteration(branch, key, &item)? {
                break;
            }
        }
        match &branch.else_body {
            Some(other) if !any => match self.walk(other, dot)? {
                // As in Go: this ends this loop, not the enclosing one.
                Flow::Break => Ok(Flow::Next),
                flow @ (Flow::Next | Flow::Continue) => Ok(flow),
            },
            Some(_) | None => Ok(Flow::Next),
        }
    }

    fn run_iteration(&mut self, branch: &BranchNode, key: Value, item: &Value) -> Result<Flow, ExecError> {
        self.heap.step()?;
        self.nested(|this| {
            // A single variable is the element.
            let values = [key, item.clone()].into_iter();
            let values = values.skip(usize::from(branch.pipe.decl.len() < 2));
            for (name, value) in branch.pipe.decl.iter().zip(values) {
                if branch.pipe.is_assign {
                    this.assign(name, value)?;
                } else {
                    this.variables.push((name.clone(), value));
                }
            }
            this.walk(&branch.body, item)
        })
    }

    fn call_template(&mut self, call: &TemplateNode, dot: &Value) -> Result<(), ExecError> {
        let body = self.defines.get(call.name.as_str());
        let body = body.ok_or_else(|| exec_error(format!("template `{}` is not defined", call.name)))?;
        let dot = match &call.pipe {
            Some(pipe) => self.pipeline(pipe, dot)?,
            None => Value::Missing,
        };
        self.nested(|this| {
            let frame = std::mem::replace(&mut this.frame, this.variables.len());
            this.variables.push(("$".into(), dot.clone()));
            let result = this.walk(body, &dot);
            this.frame = frame;
            result.map(|_| ())
        })
    }

    fn assign(&mut self, name: &str, value: Value) -> Result<(), ExecError> {
        *self.variable(name)? = value;
        Ok(())
    }

    fn variable(&mut self, name: &str) -> Result<&mut Value, ExecError> {
        let mut visible = self.variables.iter_mut().skip(self.frame).rev();
        let found = visible.find(|(known, _)| known == name).map(|(_, value)| value);
        found.ok_or_else(|| exec_error(format!("undefined variable `{name}`")))
    }

    /// Evaluates a pipeline, including its declarations and assignments.
    fn pipeline(&mut self, pipe: &PipeNode, dot: &Value) -> Result<Value, ExecError> {
        let value = self.expression_of(pipe, dot)?;
        for name in &pipe.decl {
            if pipe.is_assign {
                self.assign(name, value.clone())?;
            } else {
                // Variables of a scope add up while it is open.
                self.heap.charge(64)?;
                self.variables.push((name.clone(), value.clone()));
            }
        }
        Ok(value)
    }

    fn expression_of(&mut self, pipe: &PipeNode, dot: &Value) -> Result<Value, ExecError> {
        let mut last = None;
        for command in &pipe.commands {
            let value = self.command(command, dot, last.take())?;
            // Go unwraps an interface here; one that holds nil becomes no value at all.
            last = Some(if value.is_nil() { Value::Missing } else { value });
        }
        last.ok_or_else(|| exec_error("a pipeline without a command"))
    }

    fn command(&mut self, command: &CommandNode, dot: &Value, last: Option<Value>) -> Result<Value, ExecError> {
        let (first, rest) = command
            .args
            .split_first()
            .ok_or_else(|| exec_error("a command without a word"))?;
        if matches!(first, Expr::Nil(_)) && rest.is_empty() && last.is_none() {
            return Err(exec_error("nil is not a command"));
        }
        self.evaluate(first, dot, rest, last)
    }

    fn argument(&mut self, expression: &Expr, dot: &Value) -> Result<Value, ExecError> {
        self.evaluate(expression, dot, &[], None)
    }

    /// Evaluates an operand; only functions and methods take arguments.
    fn evaluate(
        &mut self,
        operand: &Expr,
        dot: &Value,
        rest: &[Expr],
        last: Option<Value>,
    ) -> Result<Value, ExecError> {
        self.heap.step()?;
        match operand {
            Expr::Identifier(_, name) => self.call(name, rest, dot, last),
            Expr::Field(_, path) => self.chain(dot.clone(), path, rest, dot, last),
            Expr::Variable(_, name, path) if !path.is_empty() => {
                let value = self.variable(name)?.clone();
                self.chain(value, path, rest, dot, last)
            }
            Expr::Chain(_, inner, path) => {
                let value = self.argument(inner, dot)?;
                self.chain(value, path, rest, dot, last)
            }
            _ if !rest.is_empty() || last.is_some() => {
                Err(exec_error("cannot give an argument to what is no function"))
            }
            Expr::Dot(_) => Ok(dot.clone()),
            Expr::Variable(_, name, _) => self.variable(name).cloned(),
            Expr::String(_, text) => self.heap.text(&**text),
            Expr::Number(_, Number::Int(number)) => Ok(Value::Int(*number)),
            Expr::Number(_, Number::Float(number)) => Ok(Value::Float(*number)),
            Expr::Number(_, Number::Uint(number)) => Err(exec_error(format!("{number} overflows int"))),
            Expr::Bool(_, yes) => Ok(Value::Bool(*yes)),
            Expr::Nil(_) => Ok(Value::Nil),
            Expr::Pipe(_, pipe) => self.deeper(|this| this.pipeline(pipe, dot)),
        }
    }

    /// Evaluates `.A.B.C` on `value`; arguments go to a method at its end.
    fn chain(
        &mut self,
        mut value: Value,
        path: &[SmolStr],
        rest: &[Expr],
        dot: &Value,
        last: Option<Value>,
    ) -> Result<Value, ExecError> {
        let Some((end, before)) = path.split_last() else {
            return Ok(value);
        };
        for name in before {
            self.heap.step()?;
            value = fields::field(self.heap, &value, name, &[], self.missing_key)?;
        }
        self.heap.step()?;
        // As in Go: a field of a missing value is missing too, and its arguments are not
        // evaluated.
        let arguments = match value {
            Value::Missing => Vec::new(),
            _ => self.arguments(rest, dot, last)?,
        };
        fields::field(self.heap, &value, end, &arguments, self.missing_key)
    }

    fn call(&mut self, name: &str, rest: &[Expr], dot: &Value, last: Option<Value>) -> Result<Value, ExecError> {
        if matches!(name, "and" | "or") {
            return self.decide(name == "or", rest, dot, last);
        }
        functions::call(self.heap, name, &self.arguments(rest, dot, last)?)
    }

    fn arguments(&mut self, rest: &[Expr], dot: &Value, last: Option<Value>) -> Result<Vec<Value>, ExecError> {
        let values = rest.iter().map(|expression| self.argument(expression, dot));
        values.chain(last.map(Ok)).collect()
    }

    /// `and` and `or`: arguments after the deciding one are not evaluated.
    fn decide(&mut self, or: bool, rest: &[Expr], dot: &Value, last: Option<Value>) -> Result<Value, ExecError> {
        let mut value = None;
        for expression in rest {
            let this = self.argument(expression, dot)?;
            if this.is_truthy() == or {
                return Ok(this);
            }
            value = Some(this);
        }
        last.or(value)
            .ok_or_else(|| exec_error("wrong number of args for and/or: want at least 1 got 0"))
    }
}

pub(super) fn exec_error(text: impl Into<String>) -> ExecError {
    ExecError::Message(text.into())
}
