//! A reference matcher for globs, which follows the documentation in the simplest way. It shows
//! whether a difference is the library's fault, and shares no code with the matchers it checks.

use std::iter::Peekable;
use std::str::Chars;

enum Node {
    Char(char),
    Star { crossing: bool },
    Single,
    Class { ranges: Vec<(char, char)>, negated: bool },
    Group(Vec<Vec<Self>>),
}

/// Whether the whole text matches. `None` if the pattern is invalid.
pub(super) fn matches(pattern: &str, separators: &[char], text: &str) -> Option<bool> {
    let mut chars = pattern.chars().peekable();
    let mut alternatives = parse(&mut chars, 0)?;
    let nodes = alternatives.pop()?;
    let text: Vec<char> = text.chars().collect();
    Some(match_nodes(&nodes, &text, separators, &|rest| rest.is_empty()))
}

/// Parses alternatives up to the end of their group. The end of the pattern ends all groups.
fn parse(chars: &mut Peekable<Chars<'_>>, depth: usize) -> Option<Vec<Vec<Node>>> {
    let mut alternatives = vec![Vec::new()];
    while let Some(c) = chars.next() {
        let node = match c {
            '{' => Node::Group(parse(chars, depth + 1)?),
            '}' if depth > 0 => return Some(alternatives),
            ',' if depth > 0 => {
                alternatives.push(Vec::new());
                continue;
            }
            '*' => Node::Star {
                crossing: chars.next_if_eq(&'*').is_some(),
            },
            '?' => Node::Single,
            '[' => class(chars)?,
            '\\' => match chars.next() {
                Some(escaped) => Node::Char(escaped),
                None => continue,
            },
            '\u{fffd}' => return None,
            other => Node::Char(other),
        };
        alternatives.last_mut()?.push(node);
    }
    Some(alternatives)
}

/// Parses a class: one range, or a list of characters.
fn class(chars: &mut Peekable<Chars<'_>>) -> Option<Node> {
    let negated = chars.next_if_eq(&'!').is_some();
    let mut ahead = chars.clone();
    let low = ahead.next()?;
    if ahead.next() == Some('-') {
        let high = ahead.next()?;
        *chars = ahead;
        return (chars.next()? == ']' && low <= high).then(|| Node::Class {
            ranges: vec![(low, high)],
            negated,
        });
    }
    let mut ranges = Vec::new();
    loop {
        let listed = match chars.next()? {
            ']' => break,
            '\\' => chars.next()?,
            other => other,
        };
        ranges.push((listed, listed));
    }
    (!ranges.is_empty()).then_some(Node::Class { ranges, negated })
}

/// Whether the nodes match a prefix of the text for which `then` accepts the rest.
fn match_nodes(nodes: &[Node], text: &[char], separators: &[char], then: &dyn Fn(&[char]) -> bool) -> bool {
    let Some((node, following)) = nodes.split_first() else {
        return then(text);
    };
    let one = |fits: &dyn Fn(char) -> bool| {
        let (first, rest) = text.split_first()?;
        (fits(*first) && match_nodes(following, rest, separators, then)).then_some(())
    };
    match node {
        Node::Char(wanted) => one(&|c| c == *wanted).is_some(),
        Node::Single => one(&|c| !separators.contains(&c)).is_some(),
        Node::Class { ranges, negated } => {
            one(&|c| ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated).is_some()
        }
        Node::Star { crossing } => {
            let end = text
                .iter()
                .position(|c| !crossing && separators.contains(c))
                .unwrap_or(text.len());
            (0..=end).any(|taken| match_nodes(following, &text[taken..], separators, then))
        }
        Node::Group(alternatives) => alternatives.iter().any(|alternative| {
            match_nodes(alternative, text, separators, &|rest| {
                match_nodes(following, rest, separators, then)
            })
        }),
    }
}
