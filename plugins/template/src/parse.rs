//! Parses a template into nodes, and refuses what is outside the supported subset.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use crate::correct;
use crate::error::{Code, Error, Position};
use crate::lex::{self, Kind, Token};
use crate::syntax::{Branch, BranchKind, Call, Command, Function, Node, Operand, Pipeline};
use crate::{MAX_DEPTH, MAX_SOURCE_BYTES};

mod refuse;

use refuse::{check_call, missing_end, unknown_word, whole_data};

/// Parses `source` into nodes, the number of variable slots they use, and warnings.
///
/// # Errors
/// See [`crate::Template::parse`].
pub(crate) fn parse(source: &str) -> Result<(Vec<Node>, usize, Vec<String>), Error> {
    if source.len() > MAX_SOURCE_BYTES {
        let text = format!(
            "the template has {} bytes; at most {MAX_SOURCE_BYTES} are allowed",
            source.len()
        );
        return Err(Error::without_position(Code::TooLarge, text));
    }
    let tokens = lex::lex(source)?;
    correct::refuse(source, &tokens)?;
    let warnings = dollar_warnings(source, &tokens);
    let mut parser = Parser {
        source,
        tokens,
        at: 0,
        depth: 0,
        dot: Dot::Data,
        scope: Vec::new(),
        slots: 0,
    };
    let (nodes, end) = parser.nodes()?;
    match end {
        End::Source => Ok((nodes, parser.slots, warnings)),
        End::Closed(at) => Err(Error::new(Code::Syntax, at, "`end` without `if` or `with`")),
        End::Else(at) => Err(Error::new(Code::Syntax, at, "`else` without `if` or `with`")),
    }
}

/// Warns about `${{ .name }}`, which renders the dollar sign too.
fn dollar_warnings(source: &str, tokens: &[Token]) -> Vec<String> {
    let mut warnings = Vec::new();
    for pair in tokens.windows(2) {
        let [
            Token {
                kind: Kind::Text(text, range),
                ..
            },
            Token { kind: Kind::Open, .. },
        ] = pair
        else {
            continue;
        };
        if text.ends_with('$') {
            let Position { line, column } = lex::position(source, range.end - 1);
            warnings.push(format!(
                "line {line}, column {column}: the `$` of `${{{{` is sent as it is; a value is `{{{{ .name }}}}`"
            ));
        }
    }
    warnings
}

/// What ends a list of nodes, and where.
enum End {
    Source,
    Closed(Position),
    Else(Position),
}

/// What the dot refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dot {
    /// The data: all values by name.
    Data,
    /// The value of the enclosing `with`.
    Value,
}

struct Parser<'a> {
    source: &'a str,
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    dot: Dot,
    /// Variables in scope with their slots, innermost last.
    scope: Vec<(String, usize)>,
    slots: usize,
}

impl Parser<'_> {
    fn kind(&self) -> Option<&Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    fn position(&self) -> Position {
        match self.tokens.get(self.at) {
            Some(token) => token.at,
            None => lex::position(self.source, self.source.len()),
        }
    }

    fn skip_space(&mut self) {
        while self.kind() == Some(&Kind::Space) {
            self.at += 1;
        }
    }

    fn fail<T>(&self, code: Code, text: impl Into<String>) -> Result<T, Error> {
        Err(Error::new(code, self.position(), text))
    }

    /// Enters a nested level, which `leave` ends.
    fn enter(&mut self) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fail(Code::TooLarge, format!("nested deeper than {MAX_DEPTH} levels"));
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Parses nodes up to the end of the source, an `{{ end }}` or an `{{ else`, and takes these
    /// tokens.
    fn nodes(&mut self) -> Result<(Vec<Node>, End), Error> {
        let mut nodes = Vec::new();
        loop {
            match self.tokens.get(self.at).map(|token| token.kind.clone()) {
                None => return Ok((nodes, End::Source)),
                Some(Kind::Text(text, _)) => {
                    self.at += 1;
                    if !text.is_empty() {
                        nodes.push(Node::Text(text));
                    }
                }
                Some(_) => {
                    self.at += 1;
                    self.skip_space();
                    let at = self.position();
                    match self.keyword()? {
                        Some(Keyword::Branch(kind)) => nodes.push(self.branch(kind)?),
                        Some(Keyword::Else) => return Ok((nodes, End::Else(at))),
                        Some(Keyword::End) => {
                            self.close("end")?;
                            return Ok((nodes, End::Closed(at)));
                        }
                        None => {
                            let pipeline = self.pipeline(&Kind::Close)?;
                            nodes.push(Node::Action(pipeline));
                        }
                    }
                }
            }
        }
    }

    /// Takes a supported keyword, if there is one.
    fn keyword(&mut self) -> Result<Option<Keyword>, Error> {
        let Some(Kind::Word(word)) = self.kind() else {
            return Ok(None);
        };
        let keyword = match word.as_str() {
            "if" => Keyword::Branch(BranchKind::If),
            "with" => Keyword::Branch(BranchKind::With),
            "else" => Keyword::Else,
            "end" => Keyword::End,
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(keyword))
    }

    /// Takes the end of the action, with nothing else before it.
    fn close(&mut self, after: &str) -> Result<(), Error> {
        self.skip_space();
        if self.kind() != Some(&Kind::Close) {
            return self.fail(Code::Syntax, format!("nothing may follow `{after}` here"));
        }
        self.at += 1;
        Ok(())
    }

    /// Parses what follows `if` or `with`, through its `end`.
    fn branch(&mut self, kind: BranchKind) -> Result<Node, Error> {
        let opened = self.position();
        self.enter()?;
        let outer = self.scope.len();
        let condition = self.pipeline(&Kind::Close)?;
        let inner = self.scope.len();
        let dot = self.dot;
        if kind == BranchKind::With {
            self.dot = Dot::Value;
        }
        let (then, end) = self.nodes()?;
        self.dot = dot;
        self.scope.truncate(inner);
        let otherwise = match end {
            End::Closed(_) => Vec::new(),
            End::Source => return Err(missing_end(opened)),
            End::Else(_) => self.otherwise(kind, opened)?,
        };
        self.scope.truncate(outer);
        self.leave();
        Ok(Node::Branch(Branch {
            kind,
            condition,
            then,
            otherwise,
        }))
    }

    /// Parses what follows `else`, through the `end`.
    fn otherwise(&mut self, kind: BranchKind, opened: Position) -> Result<Vec<Node>, Error> {
        self.skip_space();
        let at = self.position();
        match self.keyword()? {
            // `else if` shares the `end` of its `if`, and `else with` that of its `with`.
            Some(Keyword::Branch(next)) if next == kind => return Ok(Vec::from([self.branch(next)?])),
            Some(_) => {
                let text = "after `else` comes `}}`, in an `if` also `if`, in a `with` also `with`";
                return Err(Error::new(Code::Syntax, at, text));
            }
            None => self.close("else")?,
        }
        let (nodes, end) = self.nodes()?;
        match end {
            End::Closed(_) => Ok(nodes),
            End::Source => Err(missing_end(opened)),
            End::Else(at) => Err(Error::new(Code::Syntax, at, "a second `else`")),
        }
    }

    /// Parses a pipeline and takes the token `end` after it.
    fn pipeline(&mut self, end: &Kind) -> Result<Pipeline, Error> {
        self.skip_space();
        let at = self.position();
        let target = self.target(end)?;
        let first = self.command()?;
        let mut calls = Vec::new();
        while self.kind() == Some(&Kind::Pipe) {
            self.at += 1;
            let position = self.position();
            match self.command()? {
                Command::Call(call) => calls.push(call),
                Command::Operand(_) => {
                    let text = "what follows `|` has to be a function";
                    return Err(Error::new(Code::Syntax, position, text));
                }
            }
        }
        if self.kind() != Some(end) {
            return self.unexpected();
        }
        self.at += 1;
        if let Command::Call(call) = &first {
            check_call(call, 0)?;
        }
        for call in &calls {
            check_call(call, 1)?;
        }
        Ok(Pipeline {
            variable: target.map(|target| self.slot(target)),
            first,
            calls,
            at,
        })
    }

    /// Takes `$name :=` or `$name =`.
    fn target(&mut self, end: &Kind) -> Result<Option<Target>, Error> {
        let Some(Kind::Variable(name)) = self.kind().cloned() else {
            return Ok(None);
        };
        let (start, at) = (self.at, self.position());
        self.at += 1;
        self.skip_space();
        let declares = match self.kind() {
            Some(Kind::Declare) => true,
            Some(Kind::Assign) => false,
            _ => {
                self.at = start;
                return Ok(None);
            }
        };
        self.at += 1;
        if name.is_empty() || end != &Kind::Close {
            let text = "a variable is set as `{{ $name := … }}`, on its own, and has a name";
            return Err(Error::new(Code::Unsupported, at, text));
        }
        if declares {
            return Ok(Some(Target::New(name)));
        }
        self.variable(&name, at).map(|slot| Some(Target::Known(slot)))
    }

    /// The slot of a target. A new variable is in scope from here on.
    fn slot(&mut self, target: Target) -> usize {
        match target {
            Target::Known(slot) => slot,
            Target::New(name) => {
                let slot = self.slots;
                self.slots += 1;
                self.scope.push((name, slot));
                slot
            }
        }
    }

    fn variable(&self, name: &str, at: Position) -> Result<usize, Error> {
        let found = self.scope.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, slot)| *slot).ok_or_else(|| {
            let text = format!("no variable `${name}` here; `${name} := …` declares one up to the next `end`");
            Error::new(Code::Syntax, at, text)
        })
    }

    /// Parses an operand, or a function with its arguments.
    fn command(&mut self) -> Result<Command, Error> {
        self.skip_space();
        let at = self.position();
        let Some(Kind::Word(word)) = self.kind().cloned() else {
            let operand = self.operand()?;
            self.skip_space();
            if !matches!(self.kind(), Some(Kind::Pipe | Kind::Close | Kind::CloseParen)) {
                return self.unexpected();
            }
            return Ok(Command::Operand(operand));
        };
        self.at += 1;
        if let Some(value) = bool_literal(&word) {
            self.skip_space();
            return Ok(Command::Operand(Operand::Bool(value)));
        }
        let function = Function::by_name(&word).ok_or_else(|| unknown_word(&word, at))?;
        if function == Function::Index {
            return self.index(at);
        }
        let mut arguments = Vec::new();
        loop {
            let separated = self.kind() == Some(&Kind::Space);
            self.skip_space();
            match self.kind() {
                Some(Kind::Pipe | Kind::Close | Kind::CloseParen) | None => break,
                Some(_) if !separated => return self.unexpected(),
                Some(_) => arguments.push(self.operand()?),
            }
        }
        Ok(Command::Call(Call {
            function,
            arguments,
            at,
        }))
    }

    /// Parses what follows `index`: the data and a key.
    fn index(&mut self, at: Position) -> Result<Command, Error> {
        self.skip_space();
        let of_data = match self.kind() {
            Some(Kind::Dot) => self.dot == Dot::Data,
            Some(Kind::Variable(name)) => name.is_empty(),
            _ => false,
        };
        self.at += 1;
        self.skip_space();
        let key = self.kind().cloned();
        self.at += 1;
        self.skip_space();
        let ends = matches!(self.kind(), Some(Kind::Pipe | Kind::Close | Kind::CloseParen));
        match key {
            Some(Kind::Literal(key)) if of_data && ends => Ok(Command::Operand(Operand::Value(key, at))),
            _ => {
                let text =
                    "`index` is written `index . \"key\"`, within `with` `index $ \"key\"`, with the key as a string";
                Err(Error::new(Code::Unsupported, at, text))
            }
        }
    }

    fn operand(&mut self) -> Result<Operand, Error> {
        let at = self.position();
        let Some(kind) = self.kind().cloned() else {
            return self.unexpected();
        };
        self.at += 1;
        match kind {
            Kind::Literal(text) => self.without_field(Operand::Text(text)),
            Kind::Dot if self.dot == Dot::Value => self.without_field(Operand::Dot),
            Kind::Dot => Err(whole_data(at)),
            Kind::Field(name) if self.dot == Dot::Data => self.without_field(Operand::Value(name, at)),
            Kind::Field(name) => {
                let text = format!("within `with`, `.` is its value, which has no fields; write `$.{name}`");
                Err(Error::new(Code::Type, at, text))
            }
            Kind::Variable(name) if name.is_empty() => {
                let Some(Kind::Field(field)) = self.kind().cloned() else {
                    return Err(whole_data(at));
                };
                self.at += 1;
                self.without_field(Operand::Value(field, at))
            }
            Kind::Variable(name) => self.without_field(Operand::Variable(self.variable(&name, at)?, at)),
            Kind::OpenParen => {
                self.enter()?;
                let inner = self.pipeline(&Kind::CloseParen)?;
                self.leave();
                self.without_field(Operand::Pipeline(Box::new(inner)))
            }
            Kind::Word(word) => match bool_literal(&word) {
                Some(value) => self.without_field(Operand::Bool(value)),
                None if Function::by_name(&word).is_some() => {
                    let text = format!("a function as an argument stands in parentheses: `({word} …)`");
                    Err(Error::new(Code::Unsupported, at, text))
                }
                None => Err(unknown_word(&word, at)),
            },
            _ => {
                self.at -= 1;
                self.unexpected()
            }
        }
    }

    /// Refuses a field directly after `operand`, because values are texts.
    fn without_field(&self, operand: Operand) -> Result<Operand, Error> {
        let Some(Kind::Field(field)) = self.kind() else {
            return Ok(operand);
        };
        let text = match &operand {
            Operand::Value(name, _) => format!(
                "values are texts and have no fields; the value with the key `{name}.{field}` is \
                 `{{{{ index . \"{name}.{field}\" }}}}`"
            ),
            _ => format!("`.{field}` may not follow: texts have no fields, and arguments stand after a space"),
        };
        self.fail(Code::Type, text)
    }

    fn unexpected<T>(&self) -> Result<T, Error> {
        let text = match self.kind() {
            Some(Kind::Close) => "a value is missing before `}}`".to_string(),
            Some(Kind::CloseParen) => "a value is missing before `)`".to_string(),
            Some(Kind::Pipe) => "a value is missing before `|`".to_string(),
            Some(Kind::Other(character)) => format!("`{character}` may not stand here"),
            Some(Kind::Declare | Kind::Assign) => "only `$name` can be set, at the start of an action".to_string(),
            Some(
                Kind::Field(_) | Kind::Dot | Kind::Variable(_) | Kind::Literal(_) | Kind::Word(_) | Kind::OpenParen,
            ) => "only functions take arguments, each after a space".to_string(),
            Some(Kind::Text(..) | Kind::Open | Kind::Space) | None => "the action is not complete".to_string(),
        };
        self.fail(Code::Syntax, text)
    }
}

enum Keyword {
    Branch(BranchKind),
    Else,
    End,
}

/// The variable that a pipeline sets.
enum Target {
    New(String),
    Known(usize),
}

fn bool_literal(word: &str) -> Option<bool> {
    match word {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}
