//! Paths about clusters: the cluster's name, decoded once, and the raw rest. Refusals get 400.
//!
//! Security: a name that could be decoded twice, and a dot segment, are refused. An encoded slash
//! is part of the name, because a server is a URL.

use std::borrow::Cow;

use http::{Method, Uri};

use tollgate_core::agent::AgentKey;
use tollgate_proxy::target::{Error, check_cluster_path, parse_hex_pair};

const CLUSTERS: &str = "/clusters/";

/// Where the API is. argocd-server, if there is one, serves the shorter path.
const API: [&str; 2] = ["/api/v1/tollgate/clusters", "/api/v1/clusters"];

/// Longest cluster name or server, decoded, in bytes.
const NAME_BYTES: usize = 1_024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClusterRoute<'a> {
    /// A request to a cluster's API server.
    Forward(ClusterPath<'a>),
    List,
    Credential {
        /// Name or server.
        name: Cow<'a, str>,
    },
    /// The agents that are connected, and the keys that are known.
    Agents {
        /// Name or server.
        name: Cow<'a, str>,
    },
    /// A key of an agent is revoked.
    RevokeKey {
        /// Name or server.
        name: Cow<'a, str>,
        key: AgentKey,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterPath<'a> {
    /// Name or server, decoded.
    pub(crate) name: Cow<'a, str>,
    /// What follows `/k8s`: empty, or from `/` on, encoded as the client sent it.
    pub(crate) rest: &'a str,
    /// What follows `?`, as the client sent it.
    pub(crate) query: Option<&'a str>,
}

/// Whether a path is one to a cluster's API server, even if it is malformed.
pub(crate) fn is_forwarded(path: &str) -> bool {
    split(path).is_some()
}

fn split(path: &str) -> Option<(&str, &str)> {
    let (name, rest) = path.strip_prefix(CLUSTERS)?.split_once('/')?;
    let rest = rest.strip_prefix("k8s")?;
    (rest.is_empty() || rest.starts_with('/')).then_some((name, rest))
}

/// Splits a path to a cluster's API server. `None` if the path is not one.
pub(crate) fn forwarded(uri: &Uri) -> Result<Option<ClusterPath<'_>>, Error> {
    let Some((name, rest)) = split(uri.path()) else {
        return Ok(None);
    };
    let name = decode(name)?;
    if !rest.is_empty() {
        check_cluster_path(rest)?;
    }
    let query = uri.query();
    Ok(Some(ClusterPath { name, rest, query }))
}

/// Finds what a request of the API for clusters asks for. `None` if it is not one.
pub(crate) fn api<'a>(method: &Method, uri: &'a Uri) -> Result<Option<ClusterRoute<'a>>, Error> {
    let reads = method == Method::GET || method == Method::HEAD;
    let Some(tail) = API.iter().find_map(|api| uri.path().strip_prefix(api)) else {
        return Ok(None);
    };
    if tail.is_empty() && reads {
        return Ok(Some(ClusterRoute::List));
    }
    let parts: Vec<&str> = tail.split('/').collect();
    Ok(match *parts.as_slice() {
        ["", name, "credential"] if reads => Some(ClusterRoute::Credential { name: decode(name)? }),
        ["", name, "agents"] if reads => Some(ClusterRoute::Agents { name: decode(name)? }),
        ["", name, "agents", "keys", key] if method == Method::DELETE => match AgentKey::parse(key) {
            Some(key) => Some(ClusterRoute::RevokeKey {
                name: decode(name)?,
                key,
            }),
            None => None,
        },
        _ => None,
    })
}

/// A segment, decoded once. Encoded slashes are part of it: a server is a URL.
fn decode(segment: &str) -> Result<Cow<'_, str>, Error> {
    let mut bytes = segment.as_bytes();
    while let Some((byte, rest)) = bytes.split_first() {
        bytes = rest;
        if *byte == b'%' {
            let (value, rest) = parse_hex_pair(bytes)?;
            if value == b'%' && parse_hex_pair(rest).is_ok() {
                return Err(Error::DoubleEncoding);
            }
            bytes = rest;
        }
    }
    let name = percent_encoding::percent_decode_str(segment)
        .decode_utf8()
        .map_err(|_| Error::NotUtf8)?;
    if name.chars().any(char::is_control) {
        return Err(Error::Control);
    }
    if name.contains('\\') {
        return Err(Error::Backslash);
    }
    if name == "." || name == ".." {
        return Err(Error::DotSegment);
    }
    if name.is_empty() || name.len() > NAME_BYTES {
        return Err(Error::ClusterName);
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
