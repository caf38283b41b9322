//! Patterns of the resources a project allows and denies. A pattern must match the whole name.
//!
//! Security: a pattern that cannot be read matches nothing. Matching takes time at most
//! proportional to the product of both lengths.
//!
//! Source: Argo CD matches these by Go's `path/filepath.Match`, not by the globs of
//! destinations and RBAC: `*` and `?` stop at `/`, `[^a-z]` is a class, `{` and `!`
//! are themselves.

use std::iter::Peekable;
use std::str::Chars;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Literal(Box<str>),
    Tokens(Box<[Token]>),
    Broken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Many,
    One,
    Letter(char),
    Class { negated: bool, ranges: Box<[(char, char)]> },
}

impl Pattern {
    pub(super) fn compile(pattern: &str) -> Self {
        if !pattern.contains(['*', '?', '[', '\\']) {
            return Self::Literal(pattern.into());
        }
        tokens(pattern).map_or(Self::Broken, |tokens| Self::Tokens(tokens.into()))
    }

    /// Whether `text` matches; `None` when the pattern cannot be read.
    pub(super) fn matches(&self, text: &str) -> Option<bool> {
        match self {
            Self::Literal(literal) => Some(**literal == *text),
            Self::Tokens(tokens) => Some(matches(tokens, text)),
            Self::Broken => None,
        }
    }

    /// Whether the pattern matches every object name. Names contain no `/`.
    pub(super) fn is_everything(&self) -> bool {
        match self {
            Self::Tokens(tokens) => tokens.iter().all(|token| *token == Token::Many),
            Self::Literal(_) | Self::Broken => false,
        }
    }
}

fn tokens(pattern: &str) -> Option<Vec<Token>> {
    let mut letters = pattern.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(letter) = letters.next() {
        tokens.push(match letter {
            '*' => Token::Many,
            '?' => Token::One,
            '\\' => Token::Letter(letters.next()?),
            '[' => class(&mut letters)?,
            letter => Token::Letter(letter),
        });
    }
    Some(tokens)
}

/// Reads the class that follows `[`, including the `]`.
fn class(letters: &mut Peekable<Chars<'_>>) -> Option<Token> {
    let negated = letters.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        if !ranges.is_empty() && letters.next_if_eq(&']').is_some() {
            let ranges = ranges.into();
            return Some(Token::Class { negated, ranges });
        }
        let low = bound(letters)?;
        let high = match letters.next_if_eq(&'-') {
            Some(_) => bound(letters)?,
            None => low,
        };
        ranges.push((low, high));
    }
}

fn bound(letters: &mut Peekable<Chars<'_>>) -> Option<char> {
    match letters.next()? {
        '-' | ']' => None,
        '\\' => letters.next(),
        letter => Some(letter),
    }
}

fn matches(tokens: &[Token], text: &str) -> bool {
    let (mut tokens, mut rest) = (tokens, text);
    // The pattern after the last `*`, and the text it has not consumed yet.
    let mut backtrack: Option<(&[Token], &str)> = None;
    loop {
        match tokens {
            [] if rest.is_empty() => return true,
            [Token::Many, behind @ ..] => {
                tokens = behind;
                backtrack = Some((behind, rest));
                continue;
            }
            [token, behind @ ..] => {
                let mut letters = rest.chars();
                if letters.next().is_some_and(|letter| token.accepts(letter)) {
                    (tokens, rest) = (behind, letters.as_str());
                    continue;
                }
            }
            [] => {}
        }
        let Some((behind, left)) = backtrack else { return false };
        let mut letters = left.chars();
        match letters.next() {
            None | Some('/') => return false,
            Some(_) => {
                (tokens, rest) = (behind, letters.as_str());
                backtrack = Some((behind, rest));
            }
        }
    }
}

impl Token {
    fn accepts(&self, letter: char) -> bool {
        match self {
            Self::Many => false,
            Self::One => letter != '/',
            Self::Letter(own) => *own == letter,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&letter)) != *negated
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn check(pattern: &str, text: &str, expected: Option<bool>) {
        assert_eq!(Pattern::compile(pattern).matches(text), expected, "{pattern} {text}");
    }

    /// Each outcome is what Go's `filepath.Match` gives.
    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "Deployment"),
            ("**", "a"),
            ("Deploy*", "Deployment"),
            ("*Set", "ReplicaSet"),
            ("*e*t", "Deployment"),
            ("D?ployment", "Deployment"),
            ("[A-E]*", "Deployment"),
            ("[^a-z]*", "Deployment"),
            ("a[]-]", "a-"),
            ("\\*", "*"),
            ("[\\]]", "]"),
            ("[\\-x]", "-"),
            ("a]", "a]"),
            ("!Pod", "!Pod"),
            ("{a,b}", "{a,b}"),
            ("*.example.com", "a.b.example.com"),
            ("a/*", "a/b"),
            ("[^a]", "/"),
        ] {
            let expected = if pattern == "a[]-]" { None } else { Some(true) };
            check(pattern, text, expected);
        }
        for (pattern, text) in [
            ("", "a"),
            ("*", "a/b"),
            ("?", "/"),
            ("?", ""),
            ("deployment", "Deployment"),
            ("Deploy", "Deployment"),
            ("*.example.com", "example.com"),
            ("[!a]", "b"),
            ("[^a-z]*", "deployment"),
            ("a*b", "ab/b"),
            ("*a*a", "a"),
            ("[z-a]", "m"),
        ] {
            check(pattern, text, Some(false));
        }
        for pattern in ["[", "[a", "[]", "[^]", "[-a]", "[a-]", "a\\", "*[", "[a\\", "[]a]"] {
            check(pattern, "a", None);
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = format!("{}b", "a*".repeat(200));
        check(&pattern, &"a".repeat(5000), Some(false));
    }
}
