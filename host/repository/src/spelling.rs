//! Alternative spellings of a repository's URL, by which rules may refer to it.
//!
//! `https://HOST:443/team/%61pp.git/` reads what `https://host/team/app` reads. Argo CD's RBAC
//! compares strings, so a row that denies one would let the other pass.
//!
//! Security: another spelling can only deny. It never makes two repositories equal in order to
//! allow something.

use url::Url;

use crate::location::Location;

const GIT: &str = ".git";

/// The canonical form of the URL: lower-case scheme and host; no user, no redundant port or dot;
/// no `.git` or `/` at the end; letters not percent-encoded.
pub(crate) fn canonical(location: &Location) -> String {
    match location {
        Location::Remote(url) => {
            let (host, path) = parts(url);
            format!("{}://{host}/{path}", url.scheme())
        }
        Location::Local(path) => format!("file://{}", without_suffix(&path.to_string_lossy())),
    }
}

/// All spellings by which a rule is looked up, the canonical one first, without duplicates.
pub(crate) fn spellings(location: &Location) -> Vec<String> {
    let canonical_form = canonical(location);
    let mut stems = vec![canonical_form.clone(), canonical_form.to_lowercase()];
    match location {
        Location::Remote(url) => {
            let (host, path) = parts(url);
            let decoded = decoded(&path, |_| true);
            stems.push(format!("{}://{host}/{decoded}", url.scheme()));
        }
        Location::Local(path) => stems.push(without_suffix(&path.to_string_lossy()).to_owned()),
    }
    let all = stems.into_iter().flat_map(|stem| [format!("{stem}{GIT}"), stem]);
    let others = others(&canonical_form, all);
    [vec![canonical_form], others].concat()
}

/// All of them except the known one, without duplicates.
pub(crate) fn others(known: &str, all: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut others: Vec<String> = Vec::new();
    for one in all {
        if one != known && !others.contains(&one) {
            others.push(one);
        }
    }
    others
}

/// A key that is equal for two URLs of one repository, regardless of the protocol; `None` if the
/// text is not a URL.
pub(crate) fn key(url: &str) -> Option<String> {
    let url = url.trim();
    if let Some(path) = url
        .strip_prefix("file://")
        .or_else(|| url.starts_with('/').then_some(url))
    {
        return Some(without_suffix(path).to_owned());
    }
    let parsed = match url.split_once("://") {
        Some(("ssh" | "SSH", rest)) => Url::parse(&format!("https://{rest}")),
        Some(_) => Url::parse(url),
        // `git@host:path`.
        None => Url::parse(&format!("https://{}", url.replacen(':', "/", 1))),
    };
    let (host, path) = parts(&parsed.ok()?);
    Some(format!("{host}/{path}").to_lowercase())
}

/// The host, with its port unless that is redundant, and the path.
fn parts(url: &Url) -> (String, String) {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_lowercase();
    let host = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host,
    };
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let path = decoded(url.path().trim_start_matches('/'), unreserved);
    (host, without_suffix(&path).to_owned())
}

/// The path without optional endings.
fn without_suffix(path: &str) -> &str {
    let path = path.trim_end_matches('/');
    match path
        .len()
        .checked_sub(GIT.len())
        .and_then(|at| path.split_at_checked(at))
    {
        Some((before, end)) if end.eq_ignore_ascii_case(GIT) => before.trim_end_matches('/'),
        _ => path,
    }
}

/// The path with those encoded bytes decoded that `wanted` accepts; unchanged if the result is not
/// UTF-8.
fn decoded(path: &str, wanted: impl Fn(u8) -> bool) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let digit = |digit: &u8| char::from(*digit).to_digit(16);
        if let ([high, low, after @ ..], b'%') = (rest, first)
            && let Some((high, low)) = digit(high).zip(digit(low))
            && let Ok(byte) = u8::try_from(high << 4 | low)
            && wanted(byte)
        {
            bytes.push(byte);
            rest = after;
            continue;
        }
        bytes.push(*first);
    }
    String::from_utf8(bytes).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{canonical, key, spellings};
    use crate::location::Location;

    #[test]
    fn spellings_of_one_repository_have_one_canonical_form() {
        for url in [
            "https://git.example/team/app",
            "https://git.example/team/app.git",
            "https://git.example/team/app.GIT/",
            "HTTPS://GIT.example:443/team/app/",
            "https://git.example./team/app",
            "https:///git.example/team/app",
            "https://git.example/team/%61pp",
            "https://git.example/te%61m/app%2Egit",
        ] {
            let location = Location::parse(url).unwrap();
            assert_eq!(canonical(&location), "https://git.example/team/app", "{url}");
            assert_eq!(key(url).as_deref(), Some("git.example/team/app"), "{url}");
        }
        for url in ["/srv/git/app", "file:///srv/git/app.git", "/srv/git/app/"] {
            assert_eq!(
                canonical(&Location::parse(url).unwrap()),
                "file:///srv/git/app",
                "{url}"
            );
            assert_eq!(key(url).as_deref(), Some("/srv/git/app"), "{url}");
        }
        for url in [
            "git@git.example:team/app.git",
            "ssh://git@git.example/Team/app",
            "https://user:pass@git.example/team/app",
        ] {
            assert_eq!(key(url).as_deref(), Some("git.example/team/app"), "{url}");
        }
    }

    #[test]
    fn different_repositories_have_different_canonical_forms() {
        for url in [
            "https://git.example/team/app2",
            "https://git.example:8443/team/app",
            "https://git.example/team/app/git",
            "https://git.example/team%2520/app",
            "https://other.example/team/app",
            "/team/app",
        ] {
            let location = Location::parse(url).unwrap();
            assert_ne!(canonical(&location), "https://git.example/team/app", "{url}");
            assert_ne!(key(url).as_deref(), Some("git.example/team/app"), "{url}");
        }
    }

    #[test]
    fn common_spellings_of_a_repository_are_listed() {
        let all = spellings(&Location::parse("https://GIT.example:443/Team/a%20%62.git/").unwrap());
        assert_eq!(
            all,
            [
                "https://git.example/Team/a%20b",
                "https://git.example/Team/a%20b.git",
                "https://git.example/team/a%20b.git",
                "https://git.example/team/a%20b",
                "https://git.example/Team/a b.git",
                "https://git.example/Team/a b",
            ]
        );
        let local = spellings(&Location::parse("file:///srv/App.git").unwrap());
        for spelling in ["file:///srv/App", "/srv/App", "/srv/App.git", "file:///srv/app"] {
            assert!(local.iter().any(|known| known == spelling), "{spelling}");
        }
    }
}
