//! Parses a pattern into a tree, or reports the library's error.
//!
//! Invariant: parsing does not recurse, and no tree nests deeper than [`MAX_DEPTH`].

use std::iter::Peekable;
use std::str::Chars;

use super::{Error, MAX_DEPTH};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// This literal text; never empty.
    Text(String),
    /// `*`: any text without separators.
    Any,
    /// `**`: any text.
    Super,
    /// `?`: one character that is no separator.
    Single,
    /// `[…]`: one character.
    Class(Class),
    /// `{…}`: one of these.
    AnyOf(Vec<Vec<Self>>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class {
    set: Set,
    /// `[!…]`.
    negated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Set {
    List(Box<str>),
    Range(char, char),
}

impl Class {
    pub(super) fn contains(&self, c: char) -> bool {
        let inside = match &self.set {
            Set::List(list) => list.contains(c),
            Set::Range(low, high) => (*low..=*high).contains(&c),
        };
        inside != self.negated
    }

    /// Characters the class is written with, to try.
    pub(super) fn listed_chars(&self) -> Vec<char> {
        match &self.set {
            Set::List(list) => list.chars().collect(),
            Set::Range(low, high) => vec![*low, *high],
        }
    }
}

fn syntax(what: impl Into<String>) -> Error {
    Error::Syntax(what.into())
}

/// One open group, or the pattern itself.
#[derive(Default)]
struct Frame {
    alternatives: Vec<Vec<Node>>,
    current: Vec<Node>,
}

impl Frame {
    fn close(mut self) -> Node {
        self.alternatives.push(self.current);
        Node::AnyOf(self.alternatives)
    }
}

pub(super) fn parse(pattern: &str, separators: bool) -> Result<Vec<Node>, Error> {
    if pattern.contains('\0') {
        return Err(Error::Nul);
    }
    // Go's decoder returns this character for invalid bytes, and the library takes a genuine one for an error, too.
    if pattern.contains('\u{fffd}') {
        return Err(syntax("could not read rune"));
    }
    let mut chars = pattern.chars().peekable();
    let mut outer: Vec<Frame> = Vec::new();
    let mut frame = Frame::default();
    loop {
        let text = text(&mut chars, if outer.is_empty() { "?*[{" } else { "?*[{}," });
        if !text.is_empty() {
            frame.current.push(Node::Text(text));
        }
        let Some(breaker) = chars.next() else { break };
        match breaker {
            '{' => {
                if outer.len() >= MAX_DEPTH {
                    return Err(Error::TooDeep);
                }
                outer.push(std::mem::take(&mut frame));
            }
            ',' => {
                let done = std::mem::take(&mut frame.current);
                frame.alternatives.push(done);
            }
            '}' => {
                if let Some(mut parent) = outer.pop() {
                    parent.current.push(frame.close());
                    frame = parent;
                }
            }
            '*' => {
                let is_super = chars.next_if_eq(&'*').is_some();
                let node = if is_super { Node::Super } else { Node::Any };
                push_star(&mut frame.current, node, separators);
            }
            '?' => frame.current.push(Node::Single),
            // `[`: `text` stops at no other character.
            _ => frame.current.push(Node::Class(class(&mut chars)?)),
        }
    }
    while let Some(mut parent) = outer.pop() {
        parent.current.push(frame.close());
        frame = parent;
    }
    Ok(frame.current)
}

/// Adds a star. Two adjacent stars match what the wider of them matches.
///
/// With separators the library keeps `***` as two stars, so that in `text***text` the texts never
/// overlap.
fn push_star(nodes: &mut Vec<Node>, star: Node, separators: bool) {
    match (nodes.last(), &star) {
        (Some(Node::Super), Node::Super) => {}
        (Some(Node::Super), Node::Any) if !separators => {}
        _ => nodes.push(star),
    }
}

/// Reads literal characters up to one of `breakers`, which stays unread.
fn text(chars: &mut Peekable<Chars<'_>>, breakers: &str) -> String {
    let mut text = String::new();
    while let Some(c) = chars.next_if(|c| !breakers.contains(*c)) {
        match c {
            // A trailing backslash is dropped.
            '\\' => text.extend(chars.next()),
            c => text.push(c),
        }
    }
    text
}

fn class(chars: &mut Peekable<Chars<'_>>) -> Result<Class, Error> {
    let end = || syntax("unexpected end of input");
    let negated = chars.next_if_eq(&'!').is_some();
    let mut ahead = chars.clone();
    let low = ahead.next().ok_or_else(end)?;
    if ahead.next_if_eq(&'-').is_some() {
        let mut read = || ahead.next().ok_or_else(end);
        let high = read()?;
        let close = read()?;
        *chars = ahead;
        if close != ']' {
            return Err(syntax("expected close range character"));
        }
        if high < low {
            return Err(syntax(format!(
                "hi character '{high}' should be greater than lo '{low}'"
            )));
        }
        return Ok(Class {
            set: Set::Range(low, high),
            negated,
        });
    }
    let list = text(chars, "]");
    chars.next_if_eq(&']').ok_or_else(end)?;
    if list.is_empty() {
        return Err(syntax("could not parse range"));
    }
    Ok(Class {
        set: Set::List(list.into()),
        negated,
    })
}
