//! Parses one line of `policy.csv` into a rule, a grant or nothing.
//!
//! Invariant: a broken line is an error. Its meaning is never guessed.
//!
//! Source: Argo CD `util/rbac` (one CSV record a line, blanks in front of a field dropped, blanks
//! behind it kept, no comment after a rule).

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Blank or a comment.
    Nothing,
    /// `p, subject, resource, action, object, effect`.
    Rule([String; 5]),
    /// `g, member, role`.
    Grant([String; 2]),
    /// A line that starts with another section of the enforcer's model (`e`, `m`, `r`). Argo CD
    /// accepts the line, and it has no effect.
    Inert(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("bare `\"` in field {0}: quote the whole field and double the quotes in it")]
    BareQuote(usize),
    /// Text between a closing quote and the comma, or no closing quote.
    #[error("field {0} does not end after its closing quote")]
    OpenQuote(usize),
    #[error("a line starts with `p` or `g`, not with `{0}`")]
    Kind(String),
    #[error("`{kind}` takes {allowed} fields, this line has {observed}")]
    Fields {
        kind: char,
        observed: usize,
        allowed: usize,
    },
}

pub(super) fn parse(line: &str) -> Result<Line, Error> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(Line::Nothing);
    }
    let mut fields = fields(line)?;
    let observed = fields.len();
    let kind = fields.remove(0);
    let wrong_number = |kind, allowed| Error::Fields {
        kind,
        observed,
        allowed,
    };
    match kind.as_str() {
        "p" => fields.try_into().map(Line::Rule).map_err(|_| wrong_number('p', 6)),
        "g" => fields.try_into().map(Line::Grant).map_err(|_| wrong_number('g', 3)),
        "e" | "m" | "r" => Ok(Line::Inert(kind)),
        other => Err(Error::Kind(shorten(other))),
    }
}

/// Fields of a CSV record; always at least one.
pub(super) fn fields(line: &str) -> Result<Vec<String>, Error> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let number = fields.len() + 1;
        rest = rest.trim_start();
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted).ok_or(Error::OpenQuote(number))?,
            None => {
                let split = rest.split_once(',');
                let (field, after) = split.map_or((rest, None), |(field, after)| (field, Some(after)));
                if field.contains('"') {
                    return Err(Error::BareQuote(number));
                }
                (field.to_owned(), after)
            }
        };
        fields.push(field);
        match after {
            Some(after) => rest = after,
            None => return Ok(fields),
        }
    }
}

/// A field after its opening quote, and the rest behind the comma after it.
fn quoted_field(mut rest: &str) -> Option<(String, Option<&str>)> {
    let mut field = String::new();
    loop {
        let (text, after) = rest.split_once('"')?;
        field.push_str(text);
        match after.strip_prefix('"') {
            Some(more) => {
                field.push('"');
                rest = more;
            }
            None if after.is_empty() => return Some((field, None)),
            None => return after.strip_prefix(',').map(|after| (field, Some(after))),
        }
    }
}

/// At most 40 characters of a text, for messages.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read better without borrows")]
    fn check(line: &str, expected: Result<Line, Error>) {
        assert_eq!(parse(line), expected, "{line}");
    }

    fn rule(fields: [&str; 5]) -> Result<Line, Error> {
        Ok(Line::Rule(fields.map(str::to_owned)))
    }

    #[test]
    fn reads_rules_and_grants() {
        check(
            "p, a, applications, get, p/*, allow",
            rule(["a", "applications", "get", "p/*", "allow"]),
        );
        check("  p,a,b,c,d,deny\r", rule(["a", "b", "c", "d", "deny"]));
        check("g, a, role:b", Ok(Line::Grant(["a".into(), "role:b".into()])));
        check(
            "p, \"role,x\", \"\"\"q\"\"\", get, , allow",
            rule(["role,x", "\"q\"", "get", "", "allow"]),
        );
    }

    #[test]
    fn keeps_blanks_after_a_field() {
        check("p, u , r, a, o, allow", rule(["u ", "r", "a", "o", "allow"]));
    }

    #[test]
    fn skips_blank_lines_and_comments_but_not_trailing_comments() {
        check("", Ok(Line::Nothing));
        check(" \t ", Ok(Line::Nothing));
        check("  # p, a", Ok(Line::Nothing));
        check(
            "p, u, r, a, o, allow # note",
            rule(["u", "r", "a", "o", "allow # note"]),
        );
    }

    #[test]
    fn lines_of_other_model_sections_are_inert() {
        check("e, a, b", Ok(Line::Inert("e".into())));
        check("m", Ok(Line::Inert("m".into())));
        check("\"r\", x", Ok(Line::Inert("r".into())));
        check("E, a", Err(Error::Kind("E".into())));
    }

    #[test]
    fn refuses_malformed_lines() {
        check(
            "p",
            Err(Error::Fields {
                kind: 'p',
                observed: 1,
                allowed: 6,
            }),
        );
        check(
            "p, a, b, c, d, e, f",
            Err(Error::Fields {
                kind: 'p',
                observed: 7,
                allowed: 6,
            }),
        );
        check(
            "g, a",
            Err(Error::Fields {
                kind: 'g',
                observed: 2,
                allowed: 3,
            }),
        );
        check("agh, a, b", Err(Error::Kind("agh".into())));
        check(", a, b", Err(Error::Kind(String::new())));
        check("p, a\"b, r, a, o, allow", Err(Error::BareQuote(2)));
        check("p, \"ab, r, a, o, allow", Err(Error::OpenQuote(2)));
        check("p, \"ab\" , r, a, o, allow", Err(Error::OpenQuote(2)));
    }
}
