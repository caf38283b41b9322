//! Paths about clusters: the cluster's name, decoded once, and the raw rest. Refusals get 400.
//!
//! Security: a name that could be decoded twice, and a dot segment, are refused. An encoded slash
//! is part of the name, because a server is a URL.

use http::Uri;

use tollgate_core::agent::AgentKey;
use tollgate_front::path::{Answerer, Captures, Methods, Part, Path, Rest};
use tollgate_proxy::target::{Error, check_cluster_path, parse_hex_pair};

/// Where the API is. argocd-server, if there is one, serves the shorter path.
const API: &[&str] = &["/api/v1/tollgate/clusters", "/api/v1/clusters"];
const OF_CLUSTER: &[&str] = &["/api/v1/tollgate/clusters/", "/api/v1/clusters/"];
const NAME: Part = Part::Segment("cluster");

pub(super) const PATHS: &[Path<Endpoint>] = &[
    Path::new(
        Methods::Any,
        &["/clusters/"],
        &[NAME, Part::Text("/k8s"), Part::Rest("path")],
        Endpoint::Forward,
    )
    .answered_by(Answerer::Cluster),
    Path::new(Methods::Read, API, &[], Endpoint::List),
    Path::new(
        Methods::Read,
        OF_CLUSTER,
        &[NAME, Part::Text("/credential")],
        Endpoint::Credential,
    ),
    Path::new(
        Methods::Read,
        OF_CLUSTER,
        &[NAME, Part::Text("/agents")],
        Endpoint::Agents,
    ),
    Path::new(
        Methods::Delete,
        OF_CLUSTER,
        &[NAME, Part::Text("/agents/keys/"), Part::Segment("key")],
        Endpoint::RevokeKey,
    ),
];

/// Longest cluster name or server, decoded, in bytes.
const NAME_BYTES: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Forward,
    List,
    Credential,
    Agents,
    RevokeKey,
}

/// What is asked, of the cluster with this name or server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterRoute {
    List,
    /// A request to its API server.
    Forward(String, Rest),
    Credential(String),
    /// The agents that are connected, and the keys that are known.
    Agents(String),
    /// A key of an agent is revoked.
    RevokeKey(String, AgentKey),
}

/// Reads a path. `None` if a key is none.
pub(super) fn read(endpoint: Endpoint, captures: &Captures<'_>, uri: &Uri) -> Result<Option<ClusterRoute>, Error> {
    let [name, key, _] = captures.segments;
    Ok(Some(match endpoint {
        Endpoint::List => ClusterRoute::List,
        Endpoint::Credential => ClusterRoute::Credential(decode(name)?),
        Endpoint::Agents => ClusterRoute::Agents(decode(name)?),
        Endpoint::RevokeKey => match AgentKey::parse(key) {
            Some(key) => ClusterRoute::RevokeKey(decode(name)?, key),
            None => return Ok(None),
        },
        Endpoint::Forward => {
            let name = decode(name)?;
            if !captures.rest.is_empty() {
                check_cluster_path(captures.rest)?;
            }
            ClusterRoute::Forward(name, Rest::of(captures, uri))
        }
    }))
}

/// A segment, decoded once. Encoded slashes are part of it: a server is a URL.
fn decode(segment: &str) -> Result<String, Error> {
    let mut bytes = segment.as_bytes();
    while let Some((byte, rest)) = bytes.split_first() {
        bytes = rest;
        if *byte == b'%' {
            let (value, rest) = parse_hex_pair(bytes)?;
            // After one decoding, the next reader would find another escape.
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
    // Some readers of URLs take it for a slash.
    if name.contains('\\') {
        return Err(Error::Backslash);
    }
    // Readers of URLs resolve an encoded dot as well.
    if name == "." || name == ".." {
        return Err(Error::DotSegment);
    }
    if name.is_empty() || name.len() > NAME_BYTES {
        return Err(Error::ClusterName);
    }
    Ok(name.into_owned())
}

#[cfg(test)]
mod tests;
