//! Template functions for paths and URLs.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::Args;
use crate::template::ExecError;
use crate::template::value::{ElementType, Heap, Value};

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    match args.name {
        "base" | "osBase" => heap.text(base(args.text(0)?)),
        "clean" | "osClean" => heap.text(clean(args.text(0)?)),
        "dir" | "osDir" => heap.text(dir(args.text(0)?)),
        "ext" | "osExt" => heap.text(extension(args.text(0)?)),
        "isAbs" | "osIsAbs" => Ok(Value::Bool(args.text(0)?.starts_with('/'))),
        "urlJoin" => join(heap, args),
        "urlParse" => parse(heap, args),
        _ => Err(args.unknown()),
    }
}

fn base(path: &str) -> &str {
    if path.is_empty() {
        return ".";
    }
    let path = path.trim_end_matches('/');
    let last = path.rsplit('/').next().unwrap_or(path);
    if last.is_empty() { "/" } else { last }
}

fn dir(path: &str) -> String {
    let before = path.rfind('/').and_then(|at| path.get(..=at)).unwrap_or("");
    clean(before)
}

fn extension(path: &str) -> &str {
    let last = path.rsplit('/').next().unwrap_or(path);
    last.rfind('.').and_then(|at| last.get(at..)).unwrap_or("")
}

/// The shortest equivalent path.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            other => parts.push(other),
        }
    }
    let joined = parts.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

/// The parts of a URL by their names; `None` if it is invalid.
fn take_apart(text: &str) -> Option<[(&'static str, Cow<'_, str>); 8]> {
    if text.chars().any(|letter| letter.is_ascii_control()) {
        return None;
    }
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (scheme, rest) = match rest.split_once(':') {
        Some(("", _)) => return None,
        Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
        // Text without a scheme is a path, whose first segment must not contain a colon.
        Some((before, _)) if !before.contains(['/', '?']) => return None,
        _ => (String::new(), rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (userinfo, host, path, opaque) = if let Some(authority) = rest.strip_prefix("//") {
        let end = authority.find('/').unwrap_or(authority.len());
        let (authority, path) = authority.split_at_checked(end)?;
        let (userinfo, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let port = host.rsplit_once(':').filter(|_| !host.ends_with(']'));
        if port.is_some_and(|(_, port)| !port.bytes().all(|byte| byte.is_ascii_digit())) || host.contains(' ') {
            return None;
        }
        (userinfo, host, path, "")
    } else if !scheme.is_empty() && !rest.starts_with('/') {
        ("", "", "", rest)
    } else {
        ("", "", rest, "")
    };
    let hostname = match host.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((inner, _)) => inner,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    Some([
        ("scheme", scheme.into()),
        ("host", host.into()),
        ("hostname", hostname.into()),
        ("path", decoded(path)?),
        ("query", query.into()),
        ("opaque", opaque.into()),
        ("fragment", decoded(fragment)?),
        ("userinfo", userinfo.into()),
    ])
}

fn is_scheme(text: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.chars().all(is_allowed)
}

fn decoded(text: &str) -> Option<Cow<'_, str>> {
    let bytes = text.as_bytes();
    let escapes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    for (at, _) in escapes {
        let digits = bytes.get(at + 1..at + 3)?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
    }
    percent_decode_str(text).decode_utf8().ok()
}

fn parse(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let text = args.text(0)?;
    let parts = take_apart(text).ok_or_else(|| args.error(format!("unable to parse url: `{text}`")))?;
    let map = heap.map(ElementType::Any)?;
    for (key, part) in parts {
        heap.put(&map, key, heap.text(part)?)?;
    }
    Ok(Value::Map(map))
}

/// What a URL path may contain unencoded is removed.
const PATH: &AsciiSet = &{
    let mut set = NON_ALPHANUMERIC.remove(b'-');
    let mut left: &[u8] = b"_.~$&+/:=@,;!'()*";
    while let [first, rest @ ..] = left {
        set = set.remove(*first);
        left = rest;
    }
    set
};
/// As [`PATH`], for a fragment.
const FRAGMENT: &AsciiSet = &PATH.remove(b'?');

fn join(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let map = args.map(0)?;
    let part = |key: &str| match map.get(key) {
        None => Ok(String::new()),
        Some(Value::Text(text)) => Ok(text.to_string()),
        Some(other) => Err(args.error(format!(
            "unable to parse {key} key, must be of type string, but {} found",
            other.kind_name()
        ))),
    };
    let (scheme, host, path) = (part("scheme")?, part("host")?, part("path")?);
    let (query, opaque, fragment, userinfo) = (part("query")?, part("opaque")?, part("fragment")?, part("userinfo")?);
    let mut text = unless_empty("", &scheme, ":");
    if opaque.is_empty() {
        let has_host = !host.is_empty() || !userinfo.is_empty();
        if has_host || (!scheme.is_empty() && !path.is_empty()) {
            text.push_str("//");
        }
        text.push_str(&unless_empty("", &userinfo, "@"));
        text.push_str(&host);
        if !path.is_empty() && !path.starts_with('/') && !host.is_empty() {
            text.push('/');
        }
        text.extend(utf8_percent_encode(&path, PATH));
    } else {
        text.push_str(&opaque);
    }
    text.push_str(&unless_empty("?", &query, ""));
    text.push_str(&unless_empty(
        "#",
        &utf8_percent_encode(&fragment, FRAGMENT).to_string(),
        "",
    ));
    heap.text(text)
}

fn unless_empty(before: &str, text: &str, after: &str) -> String {
    match text {
        "" => String::new(),
        text => format!("{before}{text}{after}"),
    }
}
