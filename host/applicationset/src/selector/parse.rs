//! Parses the string of `?selector=` into requirements, without recursion.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::vec::IntoIter;

use super::{AllowedValues, LabelOperator, Requirement, requirement};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    /// A key, a value, or a word that is an operator where an operator is allowed.
    Word(&'t str),
    Comma,
    Open,
    Close,
    Not,
    Equal,
    NotEqual,
    Greater,
    Less,
    /// Characters that form no operator.
    Unknown(char),
}

type Tokens<'t> = Peekable<IntoIter<Token<'t>>>;

/// Parses all requirements. The error says in Kubernetes' words what was found and what was
/// expected.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut tokens = tokens(text).into_iter().peekable();
    let mut found = Vec::new();
    match tokens.peek() {
        None => return Ok(found),
        Some(Token::Word(_) | Token::Not) => {}
        Some(other) => {
            return Err(format!(
                "found '{}', expected: !, identifier, or 'end of string'",
                shown(*other)
            ));
        }
    }
    loop {
        found.push(one(&mut tokens).map_err(|what| format!("unable to parse requirement: {what}"))?);
        match tokens.next() {
            None => return Ok(found),
            Some(Token::Comma) => {}
            Some(other) => return Err(format!("found '{}', expected: ',' or 'end of string'", shown(other))),
        }
        if !matches!(tokens.peek(), Some(Token::Word(_) | Token::Not)) {
            let other = tokens.peek().map_or_else(String::new, |token| shown(*token));
            return Err(format!("found '{other}', expected: identifier after ','"));
        }
    }
}

fn one(tokens: &mut Tokens<'_>) -> Result<Requirement, String> {
    let negated = tokens.next_if_eq(&Token::Not).is_some();
    let key = match tokens.next() {
        Some(Token::Word(key)) => key,
        other => return Err(format!("found '{}', expected: identifier", found(other))),
    };
    let operator = match (negated, tokens.peek()) {
        (true, None | Some(Token::Comma)) => LabelOperator::DoesNotExist,
        (false, None | Some(Token::Comma)) => LabelOperator::Exists,
        // Kubernetes reads `!key = value` as `key = value`.
        (_, Some(_)) => operation(tokens)?,
    };
    requirement(key, operator, AllowedValues::Labels)
}

fn operation(tokens: &mut Tokens<'_>) -> Result<LabelOperator, String> {
    let operator = match tokens.next() {
        Some(Token::Word("in")) => LabelOperator::In(set(tokens)?),
        Some(Token::Word("notin")) => LabelOperator::NotIn(set(tokens)?),
        Some(Token::Equal) => LabelOperator::In(vec![value(tokens)?]),
        Some(Token::NotEqual) => LabelOperator::NotIn(vec![value(tokens)?]),
        Some(Token::Greater) => LabelOperator::Greater(integer(&value(tokens)?)?),
        Some(Token::Less) => LabelOperator::Less(integer(&value(tokens)?)?),
        other => {
            return Err(format!(
                "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                found(other)
            ));
        }
    };
    Ok(operator)
}

fn integer(text: &str) -> Result<i64, String> {
    let what = || format!("`{text}`: for 'Gt', 'Lt' operators, the value must be an integer");
    text.parse().map_err(|_| what())
}

/// One value; a missing one is empty.
fn value(tokens: &mut Tokens<'_>) -> Result<String, String> {
    match tokens.peek().copied() {
        None | Some(Token::Comma) => Ok(String::new()),
        Some(Token::Word(word)) => {
            tokens.next();
            Ok(word.to_owned())
        }
        Some(other) => Err(format!("found '{}', expected: identifier", shown(other))),
    }
}

/// `(a,b,,c)`; nothing between commas or beside a parenthesis is the empty value.
fn set(tokens: &mut Tokens<'_>) -> Result<Vec<String>, String> {
    match tokens.next() {
        Some(Token::Open) => {}
        other => return Err(format!("found '{}' expected: '('", found(other))),
    }
    let mut values = BTreeSet::new();
    loop {
        values.insert(match tokens.peek().copied() {
            Some(Token::Word(word)) => {
                tokens.next();
                word.to_owned()
            }
            Some(Token::Comma | Token::Close) => String::new(),
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", found(other))),
        });
        match tokens.next() {
            Some(Token::Comma) => {}
            Some(Token::Close) => return Ok(values.into_iter().collect()),
            other => return Err(format!("found '{}', expected: ',' or ')'", found(other))),
        }
    }
}

fn found(token: Option<Token<'_>>) -> String {
    token.map_or_else(String::new, shown)
}

fn shown(token: Token<'_>) -> String {
    match token {
        Token::Word(word) => word.to_owned(),
        Token::Comma => ",".to_owned(),
        Token::Open => "(".to_owned(),
        Token::Close => ")".to_owned(),
        Token::Not => "!".to_owned(),
        Token::Equal => "=".to_owned(),
        Token::NotEqual => "!=".to_owned(),
        Token::Greater => ">".to_owned(),
        Token::Less => "<".to_owned(),
        Token::Unknown(symbol) => symbol.to_string(),
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            ',' => (Token::Comma, rest.strip_prefix(',')),
            '(' => (Token::Open, rest.strip_prefix('(')),
            ')' => (Token::Close, rest.strip_prefix(')')),
            '>' => (Token::Greater, rest.strip_prefix('>')),
            '<' => (Token::Less, rest.strip_prefix('<')),
            '=' => (Token::Equal, rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))),
            '!' => match rest.strip_prefix("!=") {
                Some(after) => (Token::NotEqual, Some(after)),
                None => (Token::Not, rest.strip_prefix('!')),
            },
            '\0' => (Token::Unknown(first), rest.strip_prefix('\0')),
            _ => {
                let end = rest.find(|symbol| is_space(symbol) || is_symbol(symbol));
                let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
                (Token::Word(word), Some(after))
            }
        };
        tokens.push(token);
        rest = after.unwrap_or_default().trim_start_matches(is_space);
    }
    tokens
}

fn is_space(symbol: char) -> bool {
    matches!(symbol, ' ' | '\t' | '\r' | '\n')
}

fn is_symbol(symbol: char) -> bool {
    matches!(symbol, '=' | '!' | '(' | ')' | ',' | '>' | '<' | '\0')
}
