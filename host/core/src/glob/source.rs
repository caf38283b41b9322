//! URLs of repositories: whether `spec.sourceRepos` of an `AppProject` permits one, and how texts show
//! one.
//!
//! Security: two different malformed URLs are never treated as the same.

use super::list::{Negation, matches_negatable};

/// Whether the project's list permits the repository: some entry matches, and no `!` entry forbids
/// it. `*` stops at `/`, `**` does not. Both sides are normalized first.
pub fn source_permitted(source_repos: &[String], repository: &str) -> bool {
    let repository = normalize_repository(repository);
    let mut permitted = false;
    for entry in source_repos {
        let (pattern, denies) = match entry.strip_prefix('!') {
            Some(rest) => (format!("!{}", normalize_repository(rest)), true),
            None => (normalize_repository(entry), false),
        };
        match (
            matches_negatable(&pattern, &repository, Negation::Allowed, &['/']),
            denies,
        ) {
            // As in Argo CD, a `!` entry permits every repository that it does not forbid.
            (true, _) => permitted = true,
            (false, true) => return false,
            (false, false) => {}
        }
    }
    permitted
}

/// Gives all URLs of one repository the same spelling: lower case, no surrounding blanks, no
/// `.git`, `git@host:path` as `git@host/path`, no `ssh://`, and percent-encoding for characters
/// that a URL may not contain.
///
/// A malformed URL keeps its text in lower case. Argo CD maps every malformed URL to the empty one,
/// so there any of them matches any other.
pub fn normalize_repository(url: &str) -> String {
    let mut url = url.trim().to_lowercase();
    if is_scp_like(&url) && !url.starts_with("ssh://") {
        url = format!("ssh://{}", url.replacen(':', "/", 1));
    }
    let url = url.strip_suffix(".git").unwrap_or(&url);
    let encoded = encode_path(url);
    encoded.strip_prefix("ssh://").map(str::to_owned).unwrap_or(encoded)
}

/// `[ssh://]user@rest`, with one `@` and no `/` or `:` before it.
fn is_scp_like(url: &str) -> bool {
    let rest = url.strip_prefix("ssh://").unwrap_or(url);
    rest.split_once('@')
        .is_some_and(|(user, host)| !user.contains(['/', ':']) && !host.is_empty() && !host.contains('@'))
}

fn encode_path(url: &str) -> String {
    let path_end = url.find(['?', '#']).unwrap_or(url.len());
    let (path, rest) = url.split_at(path_end);
    let mut encoded = String::with_capacity(url.len());
    for c in path.chars() {
        if c.is_ascii_graphic() && !matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}') {
            encoded.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                encoded.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    encoded.push_str(rest);
    encoded
}

/// A repository's URL without the user and password in it.
pub fn redact_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    // The last `@`: a password may contain one that is not escaped.
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{host}{path}"),
        None => url.to_owned(),
    }
}
