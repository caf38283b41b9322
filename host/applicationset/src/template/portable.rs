//! Checks that Argo CD renders a Go template as the gateway does, and reports the first construct
//! that the two could treat differently. What is not known to be equal is refused.
//!
//! Security: the gateway authorizes what it renders, and Argo CD's controller applies what Go
//! renders. A template that the two read differently could escape the project it was authorized
//! for. Two parsers and two sets of functions are equal only where something proves it, so a
//! string that a decision depends on may have only tokens that both lexers read alike
//! (`check_source`), and only functions whose results a differential test compares (`check_tree`).

use std::sync::LazyLock;

use gotmpl::parse::{CommandNode, Expr, ListNode, Node, Number, PipeNode};
use regex::Regex;

use super::functions::{MUTATING_FUNCTIONS, PORTABLE_FUNCTIONS, listed};

/// The white space that Go accepts within an action and trims beside one.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];
/// Maximum nesting of blocks and parentheses.
const DEPTH: usize = 50;
/// Maximum number of digits that always fit in a 64-bit number.
const DIGITS: usize = 18;

/// Words that are not functions.
const KEYWORDS: &str = "block break continue define else end if range template with";

/// Whether a text names a function that could change parameters, however it is parsed.
pub(super) fn may_mutate_params(text: &str) -> bool {
    let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.any(|word| word == "sortAlpha" || listed(MUTATING_FUNCTIONS, word).is_some())
}

/// Looks for tokens that the two lexers read differently, and for blocks that the two parsers
/// close differently. The error says what was found and what is allowed.
pub(super) fn check_source(text: &str) -> Result<(), String> {
    let mut blocks = Blocks::default();
    let (mut rest, mut is_trimmed) = (text, false);
    loop {
        let Some((before, inside)) = rest.split_once("{{") else {
            edges(rest, is_trimmed, false)?;
            return blocks.finish();
        };
        let body = trimming(inside);
        edges(before, is_trimmed, body.is_some())?;
        let inside = body.unwrap_or(inside);
        if let Some(comment) = inside.strip_prefix("/*") {
            (rest, is_trimmed) = after_comment(comment, body.is_some())?;
            continue;
        }
        let tokens;
        (tokens, rest, is_trimmed) = action(inside)?;
        blocks.take(&tokens)?;
    }
}

/// The text after `- `, if the action begins with that.
fn trimming(action: &str) -> Option<&str> {
    action.strip_prefix('-')?.strip_prefix(BLANKS)
}

/// Go trims four kinds of white space; the parser here trims all that Unicode has.
fn edges(text: &str, start: bool, end: bool) -> Result<(), String> {
    let differs = (start && text.trim_start() != text.trim_start_matches(BLANKS))
        || (end && text.trim_end() != text.trim_end_matches(BLANKS));
    if differs {
        return Err("blanks that `-` trims must be spaces, tabs and line ends".to_owned());
    }
    Ok(())
}

/// The text after a comment, and whether it is trimmed.
fn after_comment(comment: &str, is_left_trimmed: bool) -> Result<(&str, bool), String> {
    let end = comment.split_once("*/").map(|(_, end)| end);
    let plain = end.and_then(|end| end.strip_prefix("}}"));
    let trimmed = end.and_then(|end| end.strip_prefix(BLANKS)?.strip_prefix("-}}"));
    match (plain, trimmed, is_left_trimmed) {
        (_, Some(rest), _) => Ok((rest, true)),
        (Some(rest), None, false) => Ok((rest, false)),
        (Some(_), None, true) => {
            Err("a comment that trims on its left alone; write `{{- /* … */ -}}` or `{{/* … */}}`".to_owned())
        }
        (None, None, _) => Err("a comment must be `{{/* … */}}` or `{{- /* … */ -}}`".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    /// A keyword or a function.
    Word,
    /// `.`
    Dot,
    /// `.a.b`
    Field,
    /// `$`, `$a`, `$a.b`
    Variable,
    /// A string, a number, `true`, `false`, `nil`.
    Literal,
    Open,
    /// `)`, with the fields after it.
    Close,
    Pipe,
    Comma,
    Declare,
    Assign,
}

impl TokenKind {
    fn is_operand(self) -> bool {
        matches!(
            self,
            Self::Word | Self::Dot | Self::Field | Self::Variable | Self::Literal | Self::Close
        )
    }
}

#[derive(Clone, Copy, Debug)]
struct Token<'t> {
    kind: TokenKind,
    text: &'t str,
    /// Whether white space precedes it.
    is_apart: bool,
}

/// The tokens of an action, the text after it, and whether that is trimmed.
fn action(inside: &str) -> Result<(Vec<Token<'_>>, &str, bool), String> {
    let (mut tokens, mut left) = (Vec::new(), inside);
    loop {
        let bare = left.trim_start_matches(BLANKS);
        let is_apart = bare.len() < left.len();
        // Go takes `-}}` as a trim only behind a blank.
        let trimmed = bare.strip_prefix("-}}").filter(|_| is_apart);
        if let Some(rest) = trimmed.or_else(|| bare.strip_prefix("}}")) {
            return Ok((tokens, rest, trimmed.is_some()));
        }
        let (kind, after) = token(bare)?;
        let text = bare.get(..bare.len() - after.len()).unwrap_or_default();
        if kind.is_operand() && !is_ended(after, kind) {
            return Err(format!(
                "`{text}` must be followed by a blank, `|`, `)` or the end of the action"
            ));
        }
        tokens.push(Token { kind, text, is_apart });
        left = after;
    }
}

/// Whether an operand ends before `after`.
fn is_ended(after: &str, kind: TokenKind) -> bool {
    after.starts_with("}}")
        || after.starts_with(BLANKS)
        || after.starts_with(['|', ')'])
        || (kind == TokenKind::Variable && (after.starts_with(',') || after.starts_with(":=")))
}

/// The first token of a text, and the rest.
fn token(text: &str) -> Result<(TokenKind, &str), String> {
    let mut letters = text.chars();
    let Some(first) = letters.next() else {
        return Err("an action is not closed".to_owned());
    };
    let after = letters.as_str();
    match first {
        '(' => Ok((TokenKind::Open, after)),
        ')' => Ok((TokenKind::Close, fields(after))),
        '|' => Ok((TokenKind::Pipe, after)),
        ',' => Ok((TokenKind::Comma, after)),
        '=' => Ok((TokenKind::Assign, after)),
        ':' => match after.strip_prefix('=') {
            Some(after) => Ok((TokenKind::Declare, after)),
            None => Err("`:` without `=`".to_owned()),
        },
        '"' => quoted(after),
        '`' => raw(after),
        '$' => Ok((TokenKind::Variable, fields(word(after)))),
        '.' => match fields(text) {
            whole if whole.len() == text.len() => Ok((TokenKind::Dot, after)),
            rest => Ok((TokenKind::Field, rest)),
        },
        '-' | '0'..='9' => number(text),
        letter if is_first(letter) => {
            let rest = word(text);
            let name = text.get(..text.len() - rest.len()).unwrap_or_default();
            match name {
                "true" | "false" | "nil" => Ok((TokenKind::Literal, rest)),
                _ => Ok((TokenKind::Word, rest)),
            }
        }
        other => Err(format!(
            "`{}` within an action; texts, plain whole numbers, names of ASCII letters, `.`, `$`, `|`, `(` and `)` are \
             allowed",
            other.escape_default()
        )),
    }
}

fn is_first(letter: char) -> bool {
    letter.is_ascii_alphabetic() || letter == '_'
}

fn word(text: &str) -> &str {
    text.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric() || letter == '_')
}

fn fields(mut text: &str) -> &str {
    while let Some(name) = text.strip_prefix('.').filter(|name| name.starts_with(is_first)) {
        text = word(name);
    }
    text
}

fn quoted(text: &str) -> Result<(TokenKind, &str), String> {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return Ok((TokenKind::Literal, letters.as_str())),
            '\\' => {
                let escaped = letters.next();
                if !escaped.is_some_and(|letter| matches!(letter, 'n' | 'r' | 't' | '"' | '\\')) {
                    return Err(r#"an escape in a text; `\n`, `\r`, `\t`, `\"` and `\\` are allowed"#.to_owned());
                }
            }
            letter if letter.is_control() => return Err("a control character in a text".to_owned()),
            _ => {}
        }
    }
    Err("a text is not closed".to_owned())
}

fn raw(text: &str) -> Result<(TokenKind, &str), String> {
    let (inside, rest) = text.split_once('`').ok_or("a text is not closed")?;
    let is_control = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    match inside.contains(is_control) {
        true => Err("a control character in a text".to_owned()),
        false => Ok((TokenKind::Literal, rest)),
    }
}

fn number(text: &str) -> Result<(TokenKind, &str), String> {
    let bare = text.strip_prefix('-').unwrap_or(text);
    let rest = bare.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let digits = bare.get(..bare.len() - rest.len()).unwrap_or_default();
    let is_plain = match digits.as_bytes() {
        [] => false,
        [b'0'] => bare.len() == text.len(),
        [first, ..] => *first != b'0' && digits.len() <= DIGITS,
    };
    match is_plain {
        true => Ok((TokenKind::Literal, rest)),
        false => Err("a number must be whole and have up to 18 digits, the first not `0`".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block<'t> {
    keyword: &'t str,
    has_else: bool,
}

/// The open blocks, the innermost last.
#[derive(Default)]
struct Blocks<'t>(Vec<Block<'t>>);

impl<'t> Blocks<'t> {
    fn take(&mut self, tokens: &[Token<'t>]) -> Result<(), String> {
        let Some((first, rest)) = tokens.split_first() else {
            return Err("an action without a word".to_owned());
        };
        let keyword = (first.kind == TokenKind::Word).then_some(first.text);
        match (keyword, rest) {
            (Some(keyword @ ("if" | "with" | "range")), pipe) => {
                pipeline(pipe, keyword == "range")?;
                if self.0.len() >= DEPTH {
                    return Err(format!("blocks nest more than {DEPTH} levels"));
                }
                let has_else = false;
                self.0.push(Block { keyword, has_else });
                Ok(())
            }
            (Some("else"), []) => self.otherwise(None),
            (Some("else"), [next, pipe @ ..]) if next.kind == TokenKind::Word => {
                self.otherwise(Some(next.text))?;
                pipeline(pipe, false)
            }
            (Some("end"), []) => match self.0.pop() {
                Some(_) => Ok(()),
                None => Err("`end` closes nothing".to_owned()),
            },
            (Some("break" | "continue"), []) => {
                match self.0.iter().any(|block| block.keyword == "range" && !block.has_else) {
                    true => Ok(()),
                    false => Err(format!("`{}` outside of `range`", first.text)),
                }
            }
            (Some(keyword @ ("define" | "template" | "block")), _) => {
                Err(format!("`{keyword}`; write the text where it is used"))
            }
            (Some("else" | "end" | "break" | "continue"), _) => Err(format!("words behind `{}`", first.text)),
            _ => pipeline(tokens, false),
        }
    }

    fn otherwise(&mut self, chained: Option<&str>) -> Result<(), String> {
        let block = self.0.last_mut().filter(|block| !block.has_else);
        let block = block.ok_or("`else` belongs to nothing")?;
        match chained {
            None => block.has_else = true,
            // The block stays open: one `end` closes the whole chain.
            Some(keyword) if keyword == block.keyword && keyword != "range" => {}
            Some(keyword) => return Err(format!("`else {keyword}` within `{}`", block.keyword)),
        }
        Ok(())
    }

    fn finish(self) -> Result<(), String> {
        match self.0.last() {
            None => Ok(()),
            Some(block) => Err(format!("`{}` is not closed", block.keyword)),
        }
    }
}

/// Checks that both parsers read the tokens as the same pipeline.
fn pipeline(tokens: &[Token<'_>], is_range: bool) -> Result<(), String> {
    use TokenKind::{Assign, Comma, Declare, Variable};
    let kinds: Vec<TokenKind> = tokens.iter().map(|token| token.kind).take(4).collect();
    let declared = match (kinds.as_slice(), is_range) {
        ([Variable, Comma, Variable, Declare], true) => 4,
        ([Variable, Declare, ..], _) | ([Variable, Assign, ..], false) => 2,
        _ => 0,
    };
    let (names, rest) = tokens.split_at_checked(declared).unwrap_or((&[], tokens));
    let named =
        |token: &Token<'_>| token.kind == TokenKind::Variable && (token.text == "$" || token.text.contains('.'));
    if names.iter().any(named) {
        return Err("only a variable with a name can be declared".to_owned());
    }
    let (mut depth, mut before) = (0_usize, None);
    for token in rest {
        let is_after = before.is_some_and(TokenKind::is_operand);
        match token.kind {
            TokenKind::Comma | TokenKind::Declare | TokenKind::Assign => {
                return Err(format!("`{}` where no variable is declared", token.text));
            }
            TokenKind::Pipe | TokenKind::Close if !is_after => {
                return Err(format!("nothing stands before `{}`", token.text));
            }
            TokenKind::Dot | TokenKind::Literal if before == Some(TokenKind::Pipe) => {
                return Err(format!("`{}` behind `|` is no function", token.text));
            }
            TokenKind::Word if listed(KEYWORDS, token.text).is_some() => {
                return Err(format!("`{}` within an action", token.text));
            }
            TokenKind::Pipe | TokenKind::Close => {}
            _ if is_after && !token.is_apart => return Err(format!("no blank before `{}`", token.text)),
            _ => {}
        }
        match token.kind {
            TokenKind::Open if depth >= DEPTH => return Err(format!("parentheses nest more than {DEPTH} levels")),
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.checked_sub(1).ok_or("`)` closes nothing")?,
            _ => {}
        }
        before = Some(token.kind);
    }
    if depth > 0 {
        return Err("`(` is not closed".to_owned());
    }
    match before.is_some_and(TokenKind::is_operand) {
        true => Ok(()),
        false => Err("an action without a value".to_owned()),
    }
}

/// Looks in a parsed template for functions and variables that Go could treat differently; functions
/// that change maps are allowed if they `may_change` them.
pub(super) fn check_tree(body: &ListNode, may_change: bool) -> Result<(), String> {
    let names = vec!["$"];
    TreeChecker { names, may_change }.list(body)
}

struct TreeChecker<'t> {
    /// The declared variables, the innermost last.
    names: Vec<&'t str>,
    may_change: bool,
}

impl<'t> TreeChecker<'t> {
    fn list(&mut self, list: &'t ListNode) -> Result<(), String> {
        list.nodes.iter().try_for_each(|node| self.node(node))
    }

    fn scoped(&mut self, run: impl FnOnce(&mut Self) -> Result<(), String>) -> Result<(), String> {
        let mark = self.names.len();
        let result = run(self);
        self.names.truncate(mark);
        result
    }

    fn node(&mut self, node: &'t Node) -> Result<(), String> {
        match node {
            Node::Text(_) | Node::Break(_) | Node::Continue(_) => Ok(()),
            Node::List(list) => self.body(Some(list)),
            Node::Action(action) => {
                self.commands(&action.pipe)?;
                self.declare(&action.pipe)
            }
            Node::If(branch) | Node::With(branch) => self.scoped(|this| {
                this.commands(&branch.pipe)?;
                this.declare(&branch.pipe)?;
                this.body(Some(&branch.body))?;
                this.body(branch.else_body.as_ref())
            }),
            // In Go, what `range` declares holds the whole list in the `else` branch.
            Node::Range(branch) => {
                self.commands(&branch.pipe)?;
                self.scoped(|this| {
                    this.declare(&branch.pipe)?;
                    this.body(Some(&branch.body))
                })?;
                self.body(branch.else_body.as_ref())
            }
            Node::Define(_) | Node::Template(_) => Err("`define`, `template` and `block`".to_owned()),
        }
    }

    fn body(&mut self, list: Option<&'t ListNode>) -> Result<(), String> {
        list.map_or(Ok(()), |list| self.scoped(|this| this.list(list)))
    }

    fn declare(&mut self, pipe: &'t PipeNode) -> Result<(), String> {
        for name in &pipe.decl {
            if pipe.is_assign {
                self.known(name)?;
            } else {
                self.names.push(name);
            }
        }
        Ok(())
    }

    fn known(&self, name: &str) -> Result<(), String> {
        match self.names.contains(&name) {
            true => Ok(()),
            false => Err(format!("the variable `{name}` is not declared")),
        }
    }

    fn commands(&mut self, pipe: &'t PipeNode) -> Result<(), String> {
        pipe.commands.iter().try_for_each(|command| self.command(command))
    }

    fn command(&mut self, command: &'t CommandNode) -> Result<(), String> {
        if let [Expr::Identifier(_, name), rest @ ..] = command.args.as_slice()
            && name.as_str() == "printf"
        {
            let Some(Expr::String(_, format)) = rest.first() else {
                return Err("a `printf` whose format is not written out as its first argument".to_owned());
            };
            if !is_plain_format(format) {
                return Err("a `printf` with another verb than `%s`, `%d`, `%v`, `%q`, `%t` and `%%`".to_owned());
            }
        }
        command.args.iter().try_for_each(|argument| self.expression(argument))
    }

    fn expression(&mut self, expression: &'t Expr) -> Result<(), String> {
        match expression {
            Expr::Identifier(_, name) => {
                let name = name.as_str();
                let is_equal = listed(PORTABLE_FUNCTIONS, name).is_some()
                    || (self.may_change && listed(MUTATING_FUNCTIONS, name).is_some());
                is_equal.then_some(()).ok_or_else(|| {
                    format!("the function `{name}` is not one of those that are known to give the same there")
                })
            }
            Expr::Variable(_, name, _) => self.known(name),
            Expr::Pipe(_, inner) => self.commands(inner),
            Expr::Chain(_, inner, _) => self.expression(inner),
            Expr::Number(_, Number::Float(_) | Number::Uint(_)) => Err("a number that is not plain".to_owned()),
            Expr::Dot(_)
            | Expr::Field(_, _)
            | Expr::String(_, _)
            | Expr::Number(_, Number::Int(_))
            | Expr::Bool(_, _)
            | Expr::Nil(_) => Ok(()),
        }
    }
}

/// Formats that use only verbs that the differential test compares, with widths and precisions of
/// at most two digits. With a precision, zeros do not pad.
static PLAIN_FORMAT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    const SIZE: &str = "[1-9][0-9]?";
    Regex::new(&format!(
        r"^(?:[^%]|%%|%0(?:{SIZE})?d|%-?(?:{SIZE})?(?:\.{SIZE})?[sdvqt])*$"
    ))
    .ok()
});

fn is_plain_format(format: &str) -> bool {
    PLAIN_FORMAT.as_ref().is_some_and(|plain| plain.is_match(format))
}

#[cfg(test)]
mod tests;
