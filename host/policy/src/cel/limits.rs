//! Bounds the source and the parsed tree of an expression: a program that passes is small, shallow
//! and refers only to names that exist.
//!
//! Security: parsing runs on a separate thread, never on the caller's stack.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use cel::ParseErrors;
use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, operators};
use tollgate_core::diagnostic::one_line;

use super::{
    Error, Expression, MAX_BRACKET_DEPTH, MAX_COMPREHENSION_DEPTH, MAX_NODES, MAX_SOURCE_BYTES, MAX_TREE_DEPTH, cost,
    is_empty_list, library, parts, strict,
};

/// Stack of the parsing thread. 4 KiB of `a.a.a…` or `!!!…` cause a recursion every one or two
/// characters.
const PARSER_STACK_BYTES: usize = 64 * 1024 * 1024;

/// After this wall time the parser is abandoned. Its thread cannot be stopped, so this is only a
/// safety net: the bounds above keep parsing short. It leaves room for a machine that gives the
/// thread a small share of a processor.
const PARSER_TIME: Duration = Duration::from_secs(60);

/// Bounds the source before the parser sees it: its length, and the brackets open at once outside
/// of texts and comments. The parser is exponential in dense brackets (cel-rust#306).
pub(super) fn scan(source: &str) -> Result<(), Error> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(Error::TooLong(source.len()));
    }
    if source.trim().is_empty() {
        return Err(Error::Empty);
    }
    let mut depth = 0_usize;
    for (at, byte) in code(source) {
        match byte {
            b'(' | b'[' | b'{' => {
                depth += 1;
                if depth > MAX_BRACKET_DEPTH {
                    return Err(Error::TooDeep { observed: depth, at });
                }
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// The parts of a conjunction, in order, without brackets around it: of `a && (b || c)`, `a` and
/// `(b || c)`. An expression that is no conjunction is its only part.
pub(super) fn conjuncts(source: &str) -> Vec<&str> {
    let whole = without_brackets(source.trim());
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    let mut before = 0;
    for (at, byte) in code(whole) {
        match (depth, byte) {
            (_, b'(' | b'[' | b'{') => depth += 1,
            (_, b')' | b']' | b'}') => depth = depth.saturating_sub(1),
            // `||` and `?:` bind less than `&&`. `.?` is an optional field.
            (0, b'|') => return vec![whole],
            (0, b'?') if before != b'.' => return vec![whole],
            (0, b'&') if before == b'&' => {
                parts.extend(whole.get(start..at.saturating_sub(1)));
                start = at.saturating_add(1);
            }
            _ => {}
        }
        before = byte;
    }
    parts.extend(whole.get(start..));
    parts.into_iter().map(str::trim).collect()
}

/// The source without brackets that are around all of it.
fn without_brackets(source: &str) -> &str {
    let Some(inner) = source.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) else {
        return source;
    };
    let mut depth = 0_usize;
    for (_, byte) in code(inner) {
        match (depth, byte) {
            (_, b'(') => depth += 1,
            // It closes the bracket at the start.
            (0, b')') => return source,
            (_, b')') => depth -= 1,
            _ => {}
        }
    }
    without_brackets(inner.trim())
}

/// The bytes outside of texts and comments, with their places.
fn code(source: &str) -> impl Iterator<Item = (usize, u8)> + '_ {
    let bytes = source.as_bytes();
    let mut next = 0;
    std::iter::from_fn(move || {
        loop {
            let at = next;
            let byte = *bytes.get(at)?;
            match byte {
                b'/' if bytes.get(at + 1) == Some(&b'/') => {
                    while bytes.get(next).is_some_and(|&b| b != b'\n') {
                        next += 1;
                    }
                }
                b'"' | b'\'' => next = end_of_text(bytes, at) + 1,
                _ => {
                    next += 1;
                    return Some((at, byte));
                }
            }
        }
    })
}

/// The last byte of the text literal that starts at `start`, or the end of the source if it is
/// unterminated. Handles raw (`r"…"`) and triple-quoted texts.
fn end_of_text(bytes: &[u8], start: usize) -> usize {
    let Some(&quote) = bytes.get(start) else { return start };
    let before = |back: usize| bytes.get(start.checked_sub(back)?).map(u8::to_ascii_lowercase);
    // `r"…"`, `br"…"` and `rb"…"`.
    let raw = before(1) == Some(b'r') || (before(1) == Some(b'b') && before(2) == Some(b'r'));
    let triple = bytes.get(start + 1) == Some(&quote) && bytes.get(start + 2) == Some(&quote);
    let mut at = start + if triple { 3 } else { 1 };
    while let Some(&byte) = bytes.get(at) {
        if byte == b'\\' && !raw {
            at += 2;
            continue;
        }
        if byte == quote {
            if !triple {
                return at;
            }
            if bytes.get(at + 1) == Some(&quote) && bytes.get(at + 2) == Some(&quote) {
                return at + 2;
            }
        }
        // For the lexer a newline ends a plain text: brackets behind it count again.
        if byte == b'\n' && !triple {
            return at;
        }
        at += 1;
    }
    at
}

/// Parses and checks on a thread with a large stack, so that neither deep recursion nor a panic of
/// the parser reaches the caller. The tree of a refused expression is dropped there as well.
pub(super) fn parse_and_check(source: &str, variables: &[&str]) -> Result<Expression, Error> {
    let (answer, result) = mpsc::sync_channel(1);
    let source = source.to_owned();
    let variables: Vec<String> = variables.iter().map(|&name| name.to_owned()).collect();
    let spawned = std::thread::Builder::new()
        .name("cel-compile".into())
        .stack_size(PARSER_STACK_BYTES)
        .spawn(move || {
            let parsed = catch_unwind(AssertUnwindSafe(|| parse(&source, &variables)))
                .unwrap_or(Err(Error::Parser("the parser panicked")));
            // The receiver is gone only after the timeout.
            drop(answer.send(parsed));
        });
    let Ok(thread) = spawned else {
        return Err(Error::Parser("no thread could be started"));
    };
    let Ok(parsed) = result.recv_timeout(PARSER_TIME) else {
        return Err(Error::Parser("the parser took too long"));
    };
    // Frees the stack before the next parse: the child process with limits has room for only a few.
    drop(thread.join());
    parsed
}

fn parse(source: &str, variables: &[String]) -> Result<Expression, Error> {
    let (env, patterns) = library::compile_env();
    let program = env.compile(source).map_err(|errors| syntax_error(&errors))?;
    let mut visitor = TreeVisitor {
        variables,
        bound: Vec::new(),
        used: BTreeSet::new(),
        nodes: 0,
    };
    visitor.visit(program.expression(), 0, 0)?;
    Ok(Expression {
        names: visitor.used.into_iter().collect(),
        // Of the expression as parsed: the estimate does not know the functions by which `strict` replaces operators.
        items: cost::items_allowed(program.expression())?,
        patterns: patterns.take(),
        evaluated: strict::strict(program.expression()),
        program,
    })
}

/// SECURITY: never formats the parser's error, whose `Display` can panic. Reads its fields instead,
/// still under the `catch_unwind` above.
fn syntax_error(errors: &ParseErrors) -> Error {
    let first = errors.errors.first();
    let (line, column) = first.map_or((0, 0), |error| error.pos);
    let number = |value: isize| u32::try_from(value).unwrap_or(0);
    Error::Syntax {
        line: number(line),
        column: number(column),
        message: first.map_or_else(
            || "not an expression".to_owned(),
            |error| one_line(&plain(&error.msg), 160),
        ),
    }
}

/// The parser's message without the tokens that it could have read instead.
fn plain(message: &str) -> String {
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    let mismatch = ["mismatched input ", "extraneous input "]
        .into_iter()
        .find_map(|start| message.strip_prefix(start)?.split_once(" expecting "));
    match mismatch {
        Some(("<EOF>" | "'<EOF>'", _)) => "the expression ends too early".to_owned(),
        Some((found, _)) => format!("unexpected {found}"),
        None => match message.strip_prefix("no viable alternative at input ") {
            Some(found) => format!("unexpected {found}"),
            None => message.to_owned(),
        },
    }
}

struct TreeVisitor<'e> {
    variables: &'e [String],
    bound: Vec<&'e str>,
    used: BTreeSet<String>,
    nodes: usize,
}

impl<'e> TreeVisitor<'e> {
    fn visit(&mut self, expr: &'e IdedExpr, depth: usize, loops: usize) -> Result<(), Error> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Error::TooManyNodes);
        }
        if depth > MAX_TREE_DEPTH {
            return Err(Error::TooNested);
        }
        let is_message_field = |entry: &IdedEntryExpr| matches!(entry.expr, EntryExpr::StructField(_));
        match &expr.expr {
            Expr::Unspecified => Err(Error::Unsupported("an empty expression")),
            Expr::Ident(name) => self.name(name),
            Expr::Struct(_) => Err(Error::Unsupported("a message literal")),
            Expr::Map(map) if map.entries.iter().any(is_message_field) => Err(Error::Unsupported("a message field")),
            Expr::Call(call) if !library::is_function(&call.func_name) => {
                Err(Error::UnknownFunction(super::shorten(&call.func_name)))
            }
            Expr::Comprehension(comprehension) => {
                if loops >= MAX_COMPREHENSION_DEPTH {
                    let builds_list = is_empty_list(&comprehension.accu_init.expr);
                    let kind = if builds_list { "map or filter" } else { "all or exists" };
                    return Err(Error::ComprehensionTooDeep(kind));
                }
                // Evaluated once, before the loop, and so outside of it.
                self.visit(&comprehension.iter_range, depth + 1, loops)?;
                self.visit(&comprehension.accu_init, depth + 1, loops)?;
                let bound = self.bound.len();
                self.bound.push(&comprehension.iter_var);
                self.bound.extend(comprehension.iter_var2.as_deref());
                self.bound.push(&comprehension.accu_var);
                for part in [
                    &comprehension.loop_cond,
                    &comprehension.loop_step,
                    &comprehension.result,
                ] {
                    self.visit(part, depth + 1, loops + 1)?;
                }
                self.bound.truncate(bound);
                Ok(())
            }
            Expr::Literal(_) | Expr::Select(_) | Expr::Call(_) | Expr::List(_) | Expr::Map(_) => parts(expr)
                .into_iter()
                .try_for_each(|part| self.visit(part, depth + 1, loops)),
        }
    }

    fn name(&mut self, name: &str) -> Result<(), Error> {
        if self.bound.contains(&name) || library::is_type(name) || name.starts_with(library::PATTERN_PREFIX) {
            return Ok(());
        }
        if self.variables.iter().any(|variable| variable == name) {
            self.used.insert(name.to_owned());
            return Ok(());
        }
        let known: Vec<String> = self.variables.iter().map(|variable| format!("`{variable}`")).collect();
        Err(Error::UnknownVariable {
            name: super::shorten(name),
            known: known.join(", "),
        })
    }
}

pub(super) fn mentions(expr: &IdedExpr, variable: &str, field: &str) -> bool {
    let is_variable = |expr: &IdedExpr| matches!(&expr.expr, Expr::Ident(name) if name == variable);
    let is_field =
        |expr: &IdedExpr| matches!(&expr.expr, Expr::Literal(LiteralValue::String(text)) if text.inner() == field);
    let here = match &expr.expr {
        Expr::Select(select) => select.field == field && is_variable(&select.operand),
        Expr::Call(call) => {
            let index = [operators::INDEX, operators::OPT_INDEX, operators::OPT_SELECT];
            index.contains(&call.func_name.as_str())
                && matches!(call.args.as_slice(), [of, key] if is_variable(of) && is_field(key))
        }
        _ => false,
    };
    here || parts(expr).into_iter().any(|part| mentions(part, variable, field))
}
