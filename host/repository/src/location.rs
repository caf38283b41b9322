//! Parses the URL of a repository, from an ApplicationSet, a Secret or the settings, into a
//! location that the gateway can read.
//!
//! Security: a URL with a user, a query or a fragment is refused, as are a path with `..` and a
//! scheme that needs another program.

use std::path::PathBuf;

use url::Url;

use crate::Error;
use tollgate_config::is_loopback;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// `https://`, or `http://` on this machine.
    Remote(Url),
    /// A path on this machine, absolute and without `.` and `..`.
    Local(PathBuf),
}

impl Location {
    /// Parses a URL as git does.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        read(text.trim()).map_err(|reason| Error::Url {
            url: shown(text),
            reason,
        })
    }
}

const MAX_URL_BYTES: usize = 2048;

const NO_SSH: &str =
    "the gateway does not read by ssh, which would start a program; use the repository's `https://` URL";

fn read(text: &str) -> Result<Location, &'static str> {
    if text.is_empty() {
        return Err("the URL is empty");
    }
    if text.len() > MAX_URL_BYTES {
        return Err("the URL has more than 2048 bytes");
    }
    if text.contains(|c: char| c.is_control() || c == '\\') {
        return Err("the URL has a backslash or a control character");
    }
    let is_path = text.starts_with('/') && !text.starts_with("//");
    if let Some(path) = text.strip_prefix("file://").or(is_path.then_some(text)) {
        return local(path);
    }
    match text.split_once("://") {
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http") => {
            remote(text)
        }
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("ssh") => Err(NO_SSH),
        Some(_) => Err("only `https://` is read"),
        None if text.contains(':') => Err(NO_SSH),
        None => Err("it is no URL; begin with `https://`"),
    }
}

fn local(path: &str) -> Result<Location, &'static str> {
    if !path.starts_with('/') {
        return Err("a local path must be absolute (`file:///…`), of this machine");
    }
    let parts = path.trim_end_matches('/').split('/').skip(1);
    if parts.clone().any(|part| matches!(part, "" | "." | "..")) {
        return Err("the path has an empty part, `.` or `..`");
    }
    let plain: PathBuf = parts.fold(PathBuf::from("/"), |path, part| path.join(part));
    Ok(Location::Local(plain))
}

fn remote(text: &str) -> Result<Location, &'static str> {
    let climbs = |part: &str| {
        let decoded = part.replace("%2e", ".").replace("%2E", ".");
        matches!(decoded.as_str(), "." | "..")
    };
    if text.split('/').any(climbs) {
        return Err("the path has `.` or `..`");
    }
    let url = Url::parse(text).map_err(|_| "it is no URL")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL names a user; credentials belong into a repository Secret");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the URL has a query or a fragment");
    }
    if url.path().trim_end_matches('/').contains("//") {
        return Err("the path has an empty part");
    }
    if url.path().to_ascii_lowercase().contains("%2f") {
        return Err("the path has an encoded `/`");
    }
    if url.scheme() == "http" && !is_loopback(&url) {
        return Err("`http://` is read of this machine only; use `https://`");
    }
    Ok(Location::Remote(url))
}

/// A URL for display: without user and password, on one line, shortened.
pub(crate) fn shown(text: &str) -> String {
    crate::error::sanitized(&without_user(text))
}

/// A URL without user and password, in full: rules are looked up by it.
pub(crate) fn without_user(text: &str) -> String {
    let text = text.trim().to_owned();
    let Some((scheme, rest)) = text.split_once("://") else {
        return text;
    };
    let (authority, path) = match rest.find(['/', '?', '#', '\\']) {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{host}{path}"),
        None => text,
    }
}
