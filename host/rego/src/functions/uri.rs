//! `uri.parse` and `uri.is_valid`: Go's `url.Parse`.

use std::net::Ipv6Addr;

use regorus::Value;

use super::encoding::digit;
use super::opa::text;

/// Why there is no URI.
enum Problem {
    /// For OPA as well.
    Invalid,
    /// OPA's answer depends on its settings, or is not known.
    Unclear,
}

/// What OPA shows of a URI. The texts of a path and a host need not be UTF-8.
#[derive(Default)]
struct Uri<'a> {
    scheme: String,
    host: Vec<u8>,
    path: Vec<u8>,
    /// The path as it was written, if Go would write it otherwise.
    raw_path: Option<&'a str>,
    query: &'a str,
    fragment: Vec<u8>,
}

/// The bytes of a text without escapes.
fn unescaped(text: &str) -> Result<Vec<u8>, Problem> {
    let mut bytes = text.bytes();
    let mut unescaped = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        unescaped.push(match byte {
            b'%' => {
                let mut next = || bytes.next().and_then(digit).ok_or(Problem::Invalid);
                16 * next()? + next()?
            }
            byte => byte,
        });
    }
    Ok(unescaped)
}

/// The bytes of a host, in which only what is not ASCII may be escaped, and `%` itself.
fn unescaped_host(text: &str) -> Result<Vec<u8>, Problem> {
    let is_plain = |part: &str| {
        let mut bytes = part.bytes();
        bytes.all(|byte| !byte.is_ascii() || byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte))
    };
    let is_escape = |part: &str| {
        let is_not_ascii = part.starts_with(|digit| matches!(digit, '8' | '9' | 'a'..='f' | 'A'..='F'));
        (is_not_ascii || part.starts_with("25")) && part.get(2..).is_some_and(is_plain)
    };
    let (before, escapes) = text
        .split_once('%')
        .map_or((text, None), |(before, rest)| (before, Some(rest)));
    let is_host = is_plain(before) && escapes.is_none_or(|escapes| escapes.split('%').all(is_escape));
    if is_host {
        unescaped(text)
    } else {
        Err(Problem::Invalid)
    }
}

/// Whether Go writes a byte of a path as it is.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte)
}

/// Whether a text is what Go writes for these bytes of a path.
fn is_default_escape(text: &str, path: &[u8]) -> bool {
    let mut written = text.bytes();
    let is_next = |byte: &u8| match is_plain(*byte) {
        true => written.next() == Some(*byte),
        false => {
            let escaped = format!("%{byte:02X}");
            escaped.bytes().all(|byte| written.next() == Some(byte))
        }
    };
    path.iter().all(is_next) && written.next().is_none()
}

/// The scheme of a URI and what follows; the scheme of one that has none is empty.
fn scheme(uri: &str) -> Result<(&str, &str), Problem> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.');
    match uri.split_once(':') {
        Some(("", _)) => Err(Problem::Invalid),
        Some((scheme, rest))
            if scheme.starts_with(|letter: char| letter.is_ascii_alphabetic()) && scheme.chars().all(is_letter) =>
        {
            Ok((scheme, rest))
        }
        _ => Ok(("", uri)),
    }
}

fn is_optional_port(text: &str) -> bool {
    let digits = text.strip_prefix(':');
    text.is_empty() || digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A host with its port.
fn host(text: &str, scheme: &str) -> Result<Vec<u8>, Problem> {
    match text.rfind('[') {
        Some(0) => {
            let (address, port) = text
                .get(1..)
                .and_then(|rest| rest.rsplit_once(']'))
                .ok_or(Problem::Invalid)?;
            if !is_optional_port(port) {
                return Err(Problem::Invalid);
            }
            if address.contains('%') {
                // A zone.
                return Err(Problem::Unclear);
            }
            match address.parse::<Ipv6Addr>() {
                Ok(_) => Ok(text.as_bytes().to_vec()),
                Err(_) => Err(Problem::Invalid),
            }
        }
        Some(_) => Err(Problem::Invalid),
        None => {
            if let Some((_, port)) = text.split_once(':') {
                if port.contains(':') && matches!(scheme, "http" | "https") {
                    return Err(Problem::Unclear);
                }
                let port = text.rfind(':').and_then(|colon| text.get(colon..));
                if !port.is_some_and(is_optional_port) {
                    return Err(Problem::Invalid);
                }
            }
            unescaped_host(text)
        }
    }
}

/// A host with its port, and userinfo before it.
fn authority(text: &str, scheme: &str) -> Result<Vec<u8>, Problem> {
    let Some((user, after)) = text.rsplit_once('@') else {
        return host(text, scheme);
    };
    let host = host(after, scheme)?;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(is_allowed) {
        return Err(Problem::Invalid);
    }
    unescaped(user)?;
    Ok(host)
}

impl<'a> Uri<'a> {
    fn parse(text: &'a str) -> Result<Self, Problem> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut uri = Self::without_fragment(before)?;
        uri.fragment = unescaped(fragment)?;
        Ok(uri)
    }

    fn without_fragment(text: &'a str) -> Result<Self, Problem> {
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(Problem::Invalid);
        }
        let mut uri = Self::default();
        if text == "*" {
            uri.path = text.into();
            return Ok(uri);
        }
        let (scheme, rest) = scheme(text)?;
        uri.scheme = scheme.to_ascii_lowercase();
        let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        uri.query = query;
        if !rest.starts_with('/') {
            if !uri.scheme.is_empty() {
                // OPA does not show the rest.
                return Ok(uri);
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err(Problem::Invalid);
            }
        }
        if let Some(after) = rest.strip_prefix("//")
            && (!uri.scheme.is_empty() || !after.starts_with('/'))
        {
            let (start, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            uri.host = authority(start, &uri.scheme)?;
            rest = path;
        }
        uri.path = unescaped(rest)?;
        uri.raw_path = Some(rest).filter(|rest| !is_default_escape(rest, &uri.path));
        Ok(uri)
    }

    /// The name of the host, and its port.
    fn host_and_port(&self) -> Option<(&str, &str)> {
        let host = std::str::from_utf8(&self.host).ok()?;
        let (name, port) = match host.rfind(':').and_then(|colon| host.split_at_checked(colon)) {
            Some((name, port)) if is_optional_port(port) => (name, port.strip_prefix(':').unwrap_or(port)),
            _ => (host, ""),
        };
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        Some((address.unwrap_or(name), port))
    }

    fn show(&self) -> Option<Value> {
        let (hostname, port) = self.host_and_port()?;
        let path = std::str::from_utf8(&self.path).ok()?;
        let fields = [
            ("scheme", self.scheme.as_str()),
            ("hostname", hostname),
            ("port", port),
            ("path", path),
            ("raw_path", self.raw_path.unwrap_or(path)),
            ("raw_query", self.query),
            ("fragment", std::str::from_utf8(&self.fragment).ok()?),
        ];
        let fields = fields.into_iter().filter(|(_, text)| !text.is_empty());
        let fields = fields.map(|(name, text)| (Value::from(name), Value::from(text)));
        Some(Value::from(fields.collect::<std::collections::BTreeMap<_, _>>()))
    }
}

pub(super) fn parse(arguments: &[Value]) -> Option<Value> {
    let [uri] = arguments else { return None };
    Uri::parse(text(uri)?).ok()?.show()
}

pub(super) fn is_valid(arguments: &[Value]) -> Option<Value> {
    let [uri] = arguments else { return None };
    let Some(uri) = text(uri).filter(|uri| !uri.is_empty()) else {
        return Some(false.into());
    };
    match Uri::parse(uri) {
        Ok(_) => Some(true.into()),
        Err(Problem::Invalid) => Some(false.into()),
        Err(Problem::Unclear) => None,
    }
}
