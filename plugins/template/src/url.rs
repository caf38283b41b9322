//! Checks a rendered URL and splits it at its `?`. The text stays as it is.
//!
//! Security: no value can send the request to another path, and no secret comes before the `?`,
//! because that part may be logged. The sender checks scheme and host, with the parser that it
//! connects with.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::{Code, Error};
use crate::part::Part;
use crate::text::{Origin, Piece, Text};

/// The URL of a token request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Scheme, host, port and path, without secrets.
    pub base: String,
    /// The text after the `?`, encoded as the template writes it. `None` if there is no `?`.
    pub query: Option<Vec<Part>>,
}

/// Checks `rendered` and splits it at the `?`.
///
/// # Errors
/// [`Code::Url`], [`Code::SecretInUrl`].
pub(crate) fn check(rendered: &Text) -> Result<Url, Error> {
    let (base, query) = split_query(rendered);
    let path = path_start(&base)?;
    let mut text = String::new();
    for piece in base.pieces() {
        match piece {
            Piece::Secret(part) => {
                let text = format!(
                    "`{}` is a secret and cannot stand before the `?` of a URL",
                    part.first_secret().unwrap_or_default()
                );
                return Err(Error::without_position(Code::SecretInUrl, text));
            }
            Piece::Text(piece, origin) => {
                if *origin == Origin::Value {
                    check_value(piece, path.saturating_sub(text.len()))?;
                }
                text.push_str(piece);
            }
        }
    }
    check_base(&text, path)?;
    if let Some(query) = &query {
        check_query(query)?;
    }
    Ok(Url {
        base: text,
        query: query.map(Text::into_parts),
    })
}

fn invalid<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::without_position(Code::Url, text))
}

/// The text before and after the first `?` in the template's own text.
fn split_query(rendered: &Text) -> (Text, Option<Text>) {
    let mut base = Text::default();
    let mut query: Option<Text> = None;
    for piece in rendered.pieces() {
        match (&mut query, piece) {
            (Some(query), piece) => query.push(piece.clone()),
            (None, Piece::Text(text, Origin::Template)) => match text.split_once('?') {
                Some((before, after)) => {
                    base.push(Piece::Text(before.into(), Origin::Template));
                    query = Some(Text::new(after, Origin::Template));
                }
                None => base.push(piece.clone()),
            },
            (None, piece) => base.push(piece.clone()),
        }
    }
    (base, query)
}

/// The offset of the path in bytes, or 0 if there is a secret, which the caller refuses.
fn path_start(base: &Text) -> Result<usize, Error> {
    let mut known = String::new();
    for piece in base.pieces() {
        match piece {
            Piece::Text(text, _) => known.push_str(text),
            Piece::Secret(_) => return Ok(0),
        }
    }
    let Some((scheme, rest)) = known.split_once("://") else {
        return invalid("no absolute URL: it has to begin with `https://`");
    };
    if scheme.is_empty() || !scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) {
        return invalid("no absolute URL: it has to begin with `https://`");
    }
    let authority = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
    Ok(scheme.len() + 3 + authority)
}

/// Refuses characters of a value that would change the path. The bytes of `value` from `path` on
/// are in the URL's path.
fn check_value(value: &str, path: usize) -> Result<(), Error> {
    let in_path = |(at, character): (usize, char)| match character {
        '/' | '\\' => at >= path,
        '?' | '#' => true,
        _ => false,
    };
    match value.char_indices().find(|found| in_path(*found)) {
        Some((_, character)) => invalid(format!(
            "a value has `{character}`, which would change the path; `pathescape` writes it as part of a segment"
        )),
        None => Ok(()),
    }
}

/// Checks the text before the `?`.
fn check_base(text: &str, path: usize) -> Result<(), Error> {
    if let Some(character) = text.chars().find(|c| c.is_control() || matches!(c, '\\' | '#')) {
        return invalid(match character {
            '#' => "a URL to ask a token of has no fragment".into(),
            _ => format!("U+{:04X} may not stand in a URL", u32::from(character)),
        });
    }
    if text.starts_with(' ') || text.ends_with(' ') {
        return invalid("a URL neither begins nor ends with a space");
    }
    let (front, path) = text.split_at_checked(path).unwrap_or((text, ""));
    let authority = front.split_once("://").map_or("", |(_, authority)| authority);
    if authority.is_empty() {
        return invalid("this URL has no host");
    }
    if authority.contains('@') {
        return invalid("user and password may not stand in a URL; send them in a header");
    }
    let dots = |segment: &str| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".."
    };
    match path.split('/').find(|segment| dots(segment)) {
        Some(segment) => invalid(format!("the segment `{segment}` would change the path")),
        None => Ok(()),
    }
}

/// Checks the text after the `?`. The sender checks secrets.
fn check_query(query: &Text) -> Result<(), Error> {
    for piece in query.pieces() {
        let Piece::Text(text, _) = piece else { continue };
        match text.chars().find(|c| c.is_control() || *c == '#') {
            Some('#') => return invalid("a URL to ask a token of has no fragment; `urlquery` writes `#` as `%23`"),
            Some(character) => {
                let text = format!("U+{:04X} may not stand in a URL; use `urlquery`", u32::from(character));
                return invalid(text);
            }
            None => {}
        }
    }
    Ok(())
}
