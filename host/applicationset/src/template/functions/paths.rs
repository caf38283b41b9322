//! Template functions for paths and URLs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::{Args, Signature};
use crate::template::ExecError;
use crate::template::value::{ElementType, Heap, Value};

pub(super) const NAMES: &[Signature] = &[(
    1,
    1,
    "base clean dir ext isAbs osBase osClean osDir osExt osIsAbs urlJoin urlParse",
)];

pub(super) fn call(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
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

struct Parts<'t> {
    scheme: String,
    userinfo: &'t str,
    host: &'t str,
    path: &'t str,
    query: &'t str,
    opaque: &'t str,
    fragment: &'t str,
}

fn take_apart(text: &str) -> Option<Parts<'_>> {
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
    let mut parts = Parts {
        scheme,
        userinfo: "",
        host: "",
        path: rest,
        query,
        opaque: "",
        fragment,
    };
    if let Some(authority) = rest.strip_prefix("//") {
        let end = authority.find('/').unwrap_or(authority.len());
        let (authority, path) = authority.split_at_checked(end)?;
        let (userinfo, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let port = host
            .rsplit_once(':')
            .map(|(_, port)| port)
            .filter(|_| !host.ends_with(']'));
        if port.is_some_and(|port| !port.bytes().all(|byte| byte.is_ascii_digit())) || host.contains(' ') {
            return None;
        }
        (parts.userinfo, parts.host, parts.path) = (userinfo, host, path);
    } else if !parts.scheme.is_empty() && !rest.starts_with('/') {
        (parts.opaque, parts.path) = (rest, "");
    }
    Some(parts)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let escapes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    for (at, _) in escapes {
        let digits = bytes.get(at + 1..at + 3)?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
    }
    percent_decode_str(text)
        .decode_utf8()
        .ok()
        .map(std::borrow::Cow::into_owned)
}

fn parse(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let text = args.text(0)?;
    let wrong = || args.error(format!("unable to parse url: `{text}`"));
    let parts = take_apart(text).ok_or_else(wrong)?;
    let path = decoded(parts.path).ok_or_else(wrong)?;
    let fragment = decoded(parts.fragment).ok_or_else(wrong)?;
    let hostname = match parts.host.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((inner, _)) => inner,
        None => parts.host.rsplit_once(':').map_or(parts.host, |(name, _)| name),
    };
    let map = heap.map(ElementType::Any)?;
    let fields = [
        ("scheme", parts.scheme.as_str()),
        ("host", parts.host),
        ("hostname", hostname),
        ("path", &path),
        ("query", parts.query),
        ("opaque", parts.opaque),
        ("fragment", &fragment),
        ("userinfo", parts.userinfo),
    ];
    for (key, value) in fields {
        let value = heap.text(value)?;
        heap.put(&map, key, value)?;
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

fn join(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
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
    let mut text = String::new();
    if !scheme.is_empty() {
        text.push_str(&format!("{scheme}:"));
    }
    if opaque.is_empty() {
        if !scheme.is_empty() || !host.is_empty() || !userinfo.is_empty() {
            if !host.is_empty() || !path.is_empty() || !userinfo.is_empty() {
                text.push_str("//");
            }
            if !userinfo.is_empty() {
                text.push_str(&format!("{userinfo}@"));
            }
            text.push_str(&host);
        }
        if !path.is_empty() && !path.starts_with('/') && !host.is_empty() {
            text.push('/');
        }
        text.extend(utf8_percent_encode(&path, PATH));
    } else {
        text.push_str(&opaque);
    }
    if !query.is_empty() {
        text.push_str(&format!("?{query}"));
    }
    if !fragment.is_empty() {
        text.push_str(&format!("#{}", utf8_percent_encode(&fragment, FRAGMENT)));
    }
    heap.text(text)
}
