//! Parses the string of `?selector=` into requirements, without recursion.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::vec::IntoIter;

use super::{AllowedValues, LabelOperator, Requirement, requirement};

/// A token as it was written, except that `==` is `=`: a symbol, or a word, which is an operator
/// where an operator is allowed.
type Tokens<'t> = Peekable<IntoIter<&'t str>>;

/// Parses all requirements. The error says in Kubernetes' words what was found and what was
/// expected.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, String> {
    let mut tokens = tokens(text).into_iter().peekable();
    let mut found = Vec::new();
    match tokens.peek() {
        None => return Ok(found),
        Some(token) if begins_requirement(token) => {}
        Some(other) => {
            return Err(format!("found '{other}', expected: !, identifier, or 'end of string'"));
        }
    }
    loop {
        found.push(one(&mut tokens).map_err(|what| format!("unable to parse requirement: {what}"))?);
        match tokens.next() {
            None => return Ok(found),
            Some(",") => {}
            Some(other) => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
        let next = tokens.peek().copied().unwrap_or_default();
        if !begins_requirement(next) {
            return Err(format!("found '{next}', expected: identifier after ','"));
        }
    }
}

fn begins_requirement(token: &str) -> bool {
    token == "!" || is_word(token)
}

fn is_word(token: &str) -> bool {
    token.starts_with(|first| !is_symbol(first))
}

fn one(tokens: &mut Tokens<'_>) -> Result<Requirement, String> {
    let negated = tokens.next_if_eq(&"!").is_some();
    let key = tokens.next().unwrap_or_default();
    if !is_word(key) {
        return Err(format!("found '{key}', expected: identifier"));
    }
    let operator = match (negated, tokens.peek()) {
        (true, None | Some(&",")) => LabelOperator::DoesNotExist,
        (false, None | Some(&",")) => LabelOperator::Exists,
        // Kubernetes reads `!key = value` as `key = value`.
        (_, Some(_)) => operation(tokens)?,
    };
    requirement(key, operator, AllowedValues::Labels)
}

fn operation(tokens: &mut Tokens<'_>) -> Result<LabelOperator, String> {
    Ok(match tokens.next().unwrap_or_default() {
        "in" => LabelOperator::In(set(tokens)?),
        "notin" => LabelOperator::NotIn(set(tokens)?),
        "=" => LabelOperator::In(vec![value(tokens)?]),
        "!=" => LabelOperator::NotIn(vec![value(tokens)?]),
        ">" => LabelOperator::Greater(integer(&value(tokens)?)?),
        "<" => LabelOperator::Less(integer(&value(tokens)?)?),
        other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
    })
}

fn integer(text: &str) -> Result<i64, String> {
    let what = || format!("`{text}`: for 'Gt', 'Lt' operators, the value must be an integer");
    text.parse().map_err(|_| what())
}

/// One value; a missing one is empty.
fn value(tokens: &mut Tokens<'_>) -> Result<String, String> {
    match tokens.peek().copied() {
        None | Some(",") => Ok(String::new()),
        Some(word) if is_word(word) => {
            tokens.next();
            Ok(word.to_owned())
        }
        Some(other) => Err(format!("found '{other}', expected: identifier")),
    }
}

/// `(a,b,,c)`; nothing between commas or beside a parenthesis is the empty value.
fn set(tokens: &mut Tokens<'_>) -> Result<Vec<String>, String> {
    let open = tokens.next().unwrap_or_default();
    if open != "(" {
        return Err(format!("found '{open}' expected: '('"));
    }
    let mut values = BTreeSet::new();
    loop {
        values.insert(match tokens.peek().copied().unwrap_or_default() {
            word if is_word(word) => {
                tokens.next();
                word.to_owned()
            }
            "," | ")" => String::new(),
            other => return Err(format!("found '{other}', expected: ',', ')' or identifier")),
        });
        match tokens.next().unwrap_or_default() {
            "," => {}
            ")" => return Ok(values.into_iter().collect()),
            other => return Err(format!("found '{other}', expected: ',' or ')'")),
        }
    }
}

fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else if rest.starts_with(is_symbol) {
            1
        } else {
            let end = rest.find(|symbol| is_space(symbol) || is_symbol(symbol));
            end.unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at(end);
        tokens.push(if token == "==" { "=" } else { token });
        rest = after.trim_start_matches(is_space);
    }
    tokens
}

fn is_space(symbol: char) -> bool {
    matches!(symbol, ' ' | '\t' | '\r' | '\n')
}

fn is_symbol(symbol: char) -> bool {
    matches!(symbol, '=' | '!' | '(' | ')' | ',' | '>' | '<' | '\0')
}
