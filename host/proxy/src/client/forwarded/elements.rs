//! The elements of one line of `Forwarded`.
//!
//! Security: a comma within quotes separates nothing. The crates that read this field split at every
//! comma, or take the last of two parameters with one name.
//!
//! Source: RFC 7239, section 4. Refused although allowed there: empty elements, and quoted pairs
//! (`\"`), because no address or host needs them.

use super::Error;

/// What one proxy says of the side from which it got the request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Element<'a> {
    /// `for`
    pub(super) node: Option<&'a str>,
    pub(super) proto: Option<&'a str>,
    pub(super) host: Option<&'a str>,
    by: Option<&'a str>,
}

/// Reads a line, element by element. After an error nothing more comes.
pub(super) fn elements(line: &str) -> impl Iterator<Item = Result<Element<'_>, Error>> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let mut text = rest.take()?;
        let element = element(&mut text);
        rest = match text.strip_prefix(',') {
            Some(text) if element.is_some() => Some(text),
            Some(_) | None => None,
        };
        let is_whole = rest.is_some() || text.is_empty();
        Some(element.filter(|_| is_whole).ok_or(Error::Syntax))
    })
}

/// `forwarded-pair *( ";" forwarded-pair )`, with blanks around.
fn element<'a>(text: &mut &'a str) -> Option<Element<'a>> {
    let mut element = Element::default();
    loop {
        *text = text.trim_start_matches([' ', '\t']);
        let name = token(text)?;
        *text = text.strip_prefix('=')?;
        let value = value(text)?;
        *text = text.trim_start_matches([' ', '\t']);
        let known = [
            ("for", &mut element.node),
            ("proto", &mut element.proto),
            ("host", &mut element.host),
            ("by", &mut element.by),
        ];
        if let Some((_, place)) = known.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known))
            // Of two parameters with one name, readers choose differently.
            && place.replace(value).is_some()
        {
            return None;
        }
        match text.strip_prefix(';') {
            Some(rest) => *text = rest,
            None => return Some(element),
        }
    }
}

fn token<'a>(text: &mut &'a str) -> Option<&'a str> {
    let end = text.bytes().position(|byte| !is_tchar(byte)).unwrap_or(text.len());
    let (token, rest) = text.split_at_checked(end)?;
    *text = rest;
    Some(token).filter(|token| !token.is_empty())
}

/// A token or a quoted string.
fn value<'a>(text: &mut &'a str) -> Option<&'a str> {
    let Some(quoted) = text.strip_prefix('"') else {
        return token(text);
    };
    let (value, rest) = quoted.split_once('"')?;
    *text = rest;
    Some(value).filter(|value| !value.contains('\\'))
}

/// Source: RFC 9110, section 5.6.2.
fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
