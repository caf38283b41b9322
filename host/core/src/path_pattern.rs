//! Patterns with the syntax of Go's `path.Match`, which Argo CD uses for directories of generators
//! and for the resources of projects. A pattern matches the whole text.
//!
//! `*` and `?` stop at `/`; `[a-z]` and `[^a-z]` are classes; `\` escapes. `{` and `!` are
//! themselves, unlike in [`glob`](crate::glob).
//!
//! Security: matching takes time at most proportional to the product of both lengths.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::Chars;

/// A pattern of Go's `path.Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    One(char),
    /// `?`.
    Any,
    /// `*`.
    Star,
    /// `[…]`: ranges of characters, and whether they are excluded.
    Class {
        ranges: Vec<(char, char)>,
        negated: bool,
    },
}

impl PathPattern {
    /// `None` if the pattern has a syntax error.
    pub fn compile(text: &str) -> Option<Self> {
        let mut symbols = text.chars().peekable();
        let mut tokens = Vec::new();
        while let Some(symbol) = symbols.next() {
            tokens.push(match symbol {
                // Consecutive stars are equal to one.
                '*' if tokens.last() == Some(&Token::Star) => continue,
                '*' => Token::Star,
                '?' => Token::Any,
                '[' => class(&mut symbols)?,
                '\\' => Token::One(symbols.next()?),
                other => Token::One(other),
            });
        }
        Some(Self(tokens))
    }

    /// Whether the pattern matches the whole `path`.
    pub fn matches(&self, path: &str) -> bool {
        let mut tokens = self.0.as_slice();
        let mut rest = path;
        // The pattern after the last star, and where the star may end next.
        let mut retry: Option<(&[Token], &str)> = None;
        loop {
            match (tokens.split_first(), rest.chars().next()) {
                (None, None) => return true,
                (Some((Token::Star, after)), _) => {
                    retry = Some((after, rest));
                    tokens = after;
                    continue;
                }
                (Some((token, after)), Some(symbol)) if token.takes(symbol) => {
                    tokens = after;
                    rest = rest.strip_prefix(symbol).unwrap_or_default();
                    continue;
                }
                (Some(_) | None, Some(_)) | (Some(_), None) => {}
            }
            // The star takes one more character, unless that is a `/`.
            let Some((after, from)) = retry else {
                return false;
            };
            let Some(longer) = from.chars().next().filter(|symbol| *symbol != '/') else {
                return false;
            };
            rest = from.strip_prefix(longer).unwrap_or_default();
            tokens = after;
            retry = Some((after, rest));
        }
    }

    /// Whether it matches every text without `/`.
    pub fn is_everything(&self) -> bool {
        self.0 == [Token::Star]
    }

    /// Whether it may match a path below a directory.
    pub fn reaches_below(&self, directory: &str) -> bool {
        let mut alive = BTreeSet::from([0]);
        for symbol in directory.chars().chain(['/']) {
            alive = self.after(&alive, symbol);
        }
        // Something is left of the pattern.
        alive.iter().any(|at| *at < self.0.len())
    }

    /// The positions that the pattern may have after one more character; a star stays where it is.
    fn after(&self, alive: &BTreeSet<usize>, symbol: char) -> BTreeSet<usize> {
        let mut after = BTreeSet::new();
        for at in alive {
            // There are no consecutive stars.
            let behind = matches!(self.0.get(*at), Some(Token::Star)).then(|| at.saturating_add(1));
            for at in std::iter::once(*at).chain(behind) {
                match self.0.get(at) {
                    Some(Token::Star) if symbol != '/' => after.insert(at),
                    Some(token) if token.takes(symbol) => after.insert(at.saturating_add(1)),
                    Some(_) | None => false,
                };
            }
        }
        after
    }
}

impl Token {
    fn takes(&self, symbol: char) -> bool {
        match self {
            Self::One(own) => *own == symbol,
            Self::Any => symbol != '/',
            Self::Star => false,
            Self::Class { ranges, negated } => {
                let within = ranges.iter().any(|(low, high)| (*low..=*high).contains(&symbol));
                within != *negated
            }
        }
    }
}

/// Parses what is between brackets: one range or more.
fn class(symbols: &mut Peekable<Chars<'_>>) -> Option<Token> {
    let negated = symbols.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        // As in Go, a class is never empty, and a `]` in its first place is an error rather than a member.
        if !ranges.is_empty() && symbols.next_if_eq(&']').is_some() {
            return Some(Token::Class { ranges, negated });
        }
        let low = bound(symbols)?;
        let high = match symbols.next_if_eq(&'-') {
            Some(_) => bound(symbols)?,
            None => low,
        };
        ranges.push((low, high));
    }
}

fn bound(symbols: &mut Peekable<Chars<'_>>) -> Option<char> {
    match symbols.next()? {
        '-' | ']' => None,
        '\\' => symbols.next(),
        symbol => Some(symbol),
    }
}

#[cfg(test)]
mod tests {
    use super::PathPattern;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, path, expected) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*", "", true),
            ("*", "a/b", false),
            ("*/*", "a/b", true),
            ("*/*", "a/b/c", false),
            ("**", "a/b", false),
            ("a*", "ab", true),
            ("a*/b", "a/b", true),
            ("a*/b", "a/c/b", false),
            ("a*b*c*d*e*/f", "axbxcxdxe/f", true),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/f", true),
            ("a*b*c*d*e*/f", "axbxcxdxe/xxx/f", false),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("a*b?c*x", "abxbbxdbxebxczzy", false),
            ("ab[c]", "abc", true),
            ("ab[b-d]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^e-g]", "abc", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("a?b", "aüb", true),
            ("a?b", "a/b", false),
            ("a[^a]b", "aüb", true),
            ("[\\]a]", "]", true),
            ("[\\-]", "-", true),
            ("[x\\-]", "-", true),
            ("[x\\-]", "z", false),
            ("a]", "a]", true),
            ("apps/*", "apps/one", true),
            ("apps/*", "apps", false),
            ("apps/*", "apps/one/two", false),
            ("apps/team-?", "apps/team-a", true),
            ("apps/team-?", "apps/team-", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(
                PathPattern::compile(pattern).unwrap().matches(path),
                expected,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn what_may_be_below_a_directory_is_known() {
        for (pattern, directory, expected) in [
            ("*/*", "vendor", true),
            ("*/*", "vendor/lib", false),
            ("*", "vendor", false),
            ("*/*/*", "vendor/lib", true),
            ("apps/*", "vendor", false),
            ("apps/*", "apps", true),
            ("apps/*/overlays", "apps/one", true),
            ("apps/*/overlays", "apps", true),
            ("v*r/l?b/[a-c]*", "vendor/lib", true),
            ("vendor/", "vendor", false),
            ("vendor", "vendor", false),
            ("vendor[^a]x", "vendor", true),
            ("", "vendor", false),
        ] {
            let found = PathPattern::compile(pattern).unwrap().reaches_below(directory);
            assert_eq!(found, expected, "{pattern} {directory}");
        }
    }

    #[test]
    fn patterns_go_refuses_are_refused() {
        for pattern in [
            "[", "[]", "[]a]", "[-]", "[x-]", "[-x]", "[a-b-c]", "a[", "a\\", "[^", "[^bc", "[\\",
        ] {
            assert_eq!(PathPattern::compile(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn many_stars_take_at_most_the_product_of_both_lengths() {
        let pattern = PathPattern::compile(&"a*".repeat(2000)).unwrap();
        assert!(!pattern.matches(&format!("{}/b", "a".repeat(4000))));
    }
}
