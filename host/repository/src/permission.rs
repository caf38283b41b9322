//! Decides whether the gateway may read a repository, and with which credentials. A fetch needs an
//! [`AllowedRepository`].
//!
//! A `repository` Secret with that URL allows it, and so does a pattern of the settings.
//! `repo-creds` Secrets do not: they only say how to log in below a prefix.
//!
//! Security: credentials of one host are never used at another. A local path needs a pattern that
//! is a path itself, so that `*` does not open the gateway's own disk.

use std::path::Path;
use std::sync::Arc;

use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use url::Url;

use crate::location::{Location, without_user};
use crate::spelling::{self, others};
use crate::{Error, address};
use tollgate_core::glob::{Pattern, normalize_repository, source_permitted};
use tollgate_objects::{Repository, RepositoryAuth, RepositoryKind, Resources, TlsVerification};

/// A repository the gateway may read.
#[derive(Clone, Debug)]
pub struct AllowedRepository {
    rbac_object: String,
    alternative_objects: Vec<String>,
    urls: Vec<String>,
    /// As requested, without a user.
    pub(crate) url: String,
    pub(crate) location: Location,
    pub(crate) secret: Option<Arc<Repository>>,
    /// Whether the host is a special address, or `localhost`, that an entry names.
    pub(crate) allows_special_address: bool,
}

impl AllowedRepository {
    /// The object a caller needs `repositories, get` on: the URL as in its Secret, with
    /// `<project>/` in front if the Secret belongs to a project; without a Secret, the URL as
    /// requested.
    ///
    /// Source: Argo CD's `createRBACObject`.
    pub fn rbac_object(&self) -> &str {
        &self.rbac_object
    }

    /// Other objects that refer to this repository. A row that denies one of them denies the
    /// repository; none of them allows anything.
    pub fn alternative_objects(&self) -> &[String] {
        &self.alternative_objects
    }

    /// The URL as requested, then other spellings of it, without duplicates. Policies are
    /// evaluated for all of them.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// A key that differs for different credentials: content that a withdrawn Secret gave access
    /// to is not shown without it.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        let mut parts = vec![self.url.as_str()];
        if let Some(secret) = &self.secret {
            parts.push(&secret.secret);
            match &secret.auth {
                RepositoryAuth::Anonymous => parts.push("anonymous"),
                RepositoryAuth::Unusable { reason } => parts.push(reason),
                RepositoryAuth::Bearer(token) => parts.extend(["bearer", token.expose_secret()]),
                RepositoryAuth::Basic { username, password } => {
                    parts.extend(["basic", username.expose_secret(), password.expose_secret()]);
                }
            }
            parts.push(match secret.verification {
                TlsVerification::On => "verified",
                TlsVerification::Off => "insecure",
            });
            if let Some((chain, key)) = &secret.client_certificate {
                parts.extend([chain.expose_secret(), key.expose_secret()]);
            }
        }
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

/// Decides whether and how the gateway may read `url` for a set of `project` (empty if that is
/// templated), without contacting the repository.
///
/// - `patterns`: `applicationSets.repositories`, matched as a project's `sourceRepos`.
///
/// # Errors
/// Why not, and what to do.
///
/// Source: Argo CD's `getRepositorySecret` (the project's own Secret, else one of no project) and
/// `getRepoCredsSecret` (the longest prefix); here a prefix ends at a `/` and never within a host.
pub fn allowed_repository(
    resources: &Resources,
    patterns: &[String],
    project: &str,
    url: &str,
) -> Result<AllowedRepository, Error> {
    let location = Location::parse(url)?;
    // SECURITY: not shortened, because rules and the cache depend on it.
    let shown = without_user(url);
    let parsed = match &location {
        Location::Remote(parsed) => parsed,
        Location::Local(path) => return local(&location, path, patterns, shown),
    };
    // SECURITY: another spelling must not bypass a pattern with `!`.
    let spellings = spelling::spellings(&location);
    let declared = declared(resources, project, url);
    let listed = source_permitted(patterns, url) && !spellings.iter().any(|spelling| excluded(patterns, spelling));
    if declared.is_none() && !listed {
        return Err(Error::NotListed { url: shown });
    }
    let patterns = patterns.iter().map(String::as_str);
    let named = patterns
        .chain(declared.as_ref().map(|secret| secret.url.as_str()))
        .any(|entry| has_host(entry, parsed));
    let special = address::special_host(parsed);
    if let Some(what) = special.filter(|_| !named) {
        let hint = "; list that host by name under `applicationSets.repositories` if it is meant";
        return Err(Error::Address { url: shown, what, hint });
    }
    let prefix = declared.as_deref().map_or_else(String::new, project_prefix);
    let declared_url = declared.as_ref().map_or(&shown, |secret| &secret.url);
    let rbac_object = format!("{prefix}{declared_url}");
    let secret = match declared {
        Some(secret) if has_no_credentials(&secret) => {
            let creds = credentials(resources, parsed);
            Some(creds.map_or_else(|| Arc::clone(&secret), |creds| with_credentials(&secret, &creds)))
        }
        Some(secret) => Some(secret),
        None => credentials(resources, parsed),
    };
    let spelled = spellings
        .iter()
        .chain([&shown])
        .map(|spelling| format!("{prefix}{spelling}"));
    let alternative_objects = others(&rbac_object, equal(resources, project, url).chain(spelled));
    Ok(AllowedRepository {
        rbac_object,
        alternative_objects,
        urls: urls(&shown, &location),
        url: shown,
        location,
        secret,
        // A listed name says nothing about the address it resolves to.
        allows_special_address: special.is_some(),
    })
}

/// What the RBAC object of a Secret has in front of the URL.
fn project_prefix(secret: &Repository) -> String {
    match secret.project.as_str() {
        "" => String::new(),
        project => format!("{project}/"),
    }
}

fn local(location: &Location, path: &Path, patterns: &[String], shown: String) -> Result<AllowedRepository, Error> {
    if !local_permitted(patterns, &path.to_string_lossy()) {
        return Err(Error::NotListed { url: shown });
    }
    Ok(AllowedRepository {
        rbac_object: shown.clone(),
        alternative_objects: others(&shown, spelling::spellings(location)),
        urls: urls(&shown, location),
        url: shown,
        location: location.clone(),
        secret: None,
        allows_special_address: false,
    })
}

/// Whether a pattern that is itself a path matches exactly, and none with `!` does.
pub(crate) fn local_permitted(patterns: &[String], path: &str) -> bool {
    let without_suffix = path.strip_suffix(".git").unwrap_or(path);
    let matches = |entry: &str| {
        let pattern = entry.strip_prefix("file://").unwrap_or(entry);
        let matches = |pattern: Pattern| pattern.matches(path) || pattern.matches(without_suffix);
        pattern.starts_with('/') && Pattern::compile_exact(pattern.trim_end_matches('/'), &['/']).is_ok_and(matches)
    };
    let denies = |entry: &String| entry.strip_prefix('!').is_some_and(matches);
    // An entry with `!` is no path.
    patterns.iter().any(|entry| matches(entry)) && !patterns.iter().any(denies)
}

/// Whether a pattern with `!` matches.
fn excluded(patterns: &[String], url: &str) -> bool {
    let all = std::iter::once("**".to_owned());
    let excluding = patterns.iter().filter(|pattern| pattern.starts_with('!')).cloned();
    let patterns: Vec<String> = all.chain(excluding).collect();
    patterns.len() > 1 && !source_permitted(&patterns, url)
}

/// The URL as requested, its canonical form, and that form with `.git`.
fn urls(shown: &str, location: &Location) -> Vec<String> {
    let canonical = spelling::canonical(location);
    let with_suffix = format!("{canonical}.git");
    let mut urls = vec![shown.to_owned()];
    urls.extend(others(shown, [canonical, with_suffix]));
    urls
}

/// The RBAC objects of Secrets for this repository, both the project's and those of no project,
/// regardless of the spelling of their URLs.
fn equal(resources: &Resources, project: &str, url: &str) -> impl Iterator<Item = String> {
    let (wanted, key) = (normalize_repository(url), spelling::key(url));
    let equal = usable(resources, project).filter(move |secret| {
        let same = key.is_some() && spelling::key(&secret.url) == key;
        same || normalize_repository(&secret.url) == wanted
    });
    equal.map(|secret| format!("{}{}", project_prefix(secret), secret.url))
}

/// The Secrets of repositories that are the project's or of no project.
fn usable<'r>(resources: &'r Resources, project: &str) -> impl Iterator<Item = &'r Arc<Repository>> {
    let all = resources.repositories.values();
    let usable = all.filter(|secret| secret.kind == RepositoryKind::Repository);
    usable.filter(move |secret| secret.project.is_empty() || secret.project == project)
}

/// The project's own Secret of the repository, else the first one of no project.
fn declared(resources: &Resources, project: &str, url: &str) -> Option<Arc<Repository>> {
    let wanted = normalize_repository(url);
    let fitting = || usable(resources, project).filter(|secret| normalize_repository(&secret.url) == wanted);
    let own = fitting().find(|secret| !secret.project.is_empty());
    own.or_else(|| fitting().next()).cloned()
}

fn has_no_credentials(secret: &Repository) -> bool {
    matches!(secret.auth, RepositoryAuth::Anonymous) && secret.client_certificate.is_none()
}

fn with_credentials(secret: &Repository, creds: &Repository) -> Arc<Repository> {
    Arc::new(Repository {
        auth: creds.auth.clone(),
        client_certificate: creds.client_certificate.clone(),
        ..secret.clone()
    })
}

/// Credentials of the longest matching prefix of the URL.
fn credentials(resources: &Resources, url: &Url) -> Option<Arc<Repository>> {
    let all = resources.repositories.values();
    let fitting = all.filter(|secret| secret.kind == RepositoryKind::Credentials);
    let fitting = fitting.filter_map(|secret| Some((matched_prefix_length(&secret.url, url)?, secret)));
    let (_, longest) = fitting.max_by_key(|(length, _)| *length)?;
    Some(Arc::clone(longest))
}

/// The length of the prefix if the URL is below it: same scheme, host and port, and whole segments
/// of the path.
fn matched_prefix_length(prefix: &str, url: &Url) -> Option<usize> {
    let prefix = Url::parse(prefix.trim()).ok()?;
    if prefix.origin() != url.origin() {
        return None;
    }
    let plain = |path: &str| path.trim_end_matches('/').to_lowercase();
    let (head, path) = (plain(prefix.path()), plain(url.path()));
    let rest = path.strip_prefix(head.as_str())?;
    (rest.is_empty() || rest.starts_with('/') || rest == ".git").then_some(head.len())
}

/// Whether an entry of the settings or a Secret names exactly the host of the URL.
fn has_host(entry: &str, url: &Url) -> bool {
    let Some((scheme, rest)) = entry.trim().split_once("://") else {
        return false;
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let host = url.host_str().unwrap_or_default();
    let written = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    // `127.0.0.1:*`.
    let any_port = format!("{host}:*");
    let is_host = authority.eq_ignore_ascii_case(&written) || authority.eq_ignore_ascii_case(&any_port);
    is_host && scheme.eq_ignore_ascii_case(url.scheme())
}
