//! Reads the Kubernetes attributes of a request from its method, path and query, as kube-apiserver
//! does. The verbs of requests that run programs are the one addition.
//!
//! Security: headers that override the method, such as `X-HTTP-Method-Override`, are not read.
//!
//! Source: `k8s.io/apiserver/pkg/endpoints/request/requestinfo.go`.

use http::Method;
use percent_encoding::percent_decode_str;
use serde::Serialize;

use crate::diagnostic::shortened;
use crate::upgrade::Protocol;

mod query;
#[cfg(test)]
mod tests;

use query::ListOptions;

/// First path segment of resource requests.
const PREFIXES: [&str; 2] = ["api", "apis"];
/// The one of [`PREFIXES`] without an API group.
const GROUPLESS_PREFIX: &str = "api";
/// Verbs that may stand in the path, as they did in old versions.
const PATH_VERBS: [&str; 2] = ["proxy", "watch"];
const READ_VERBS: [&str; 3] = ["get", "list", "watch"];
/// Segments after a namespace's name that are subresources of the namespace, not resources in it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// Longest text that records keep, in bytes. Kubernetes names have at most 253.
const KEPT_BYTES: usize = 256;

/// Attributes of one request, in the words of SubjectAccessReview.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attributes {
    /// The verb that RBAC is asked about: `get`, `list`, `watch`, `create`, `update`, `patch`,
    /// `delete` or `deletecollection`. For requests about no resource it is the method in lower
    /// case; for a method that no resource knows it is empty. Upgrades and `proxy` of nodes, pods
    /// and services that come by `GET` are `create`, because they run programs, also if their path
    /// says `watch`. Any other request whose path says `watch` has the verb of its method, unless
    /// that is `GET` or `HEAD`.
    pub verb: String,
    /// The verb that kube-apiserver uses, where it differs (`get` for an `exec` by WebSocket,
    /// `watch` where the path says it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub also_verb: Option<String>,
    /// Whether the request is about a resource.
    pub resource_request: bool,
    /// API group; empty for the core group.
    pub api_group: String,
    /// API version.
    pub api_version: String,
    /// Resource, plural.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// The namespace; for a request about a namespace, that namespace's own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The path, decoded once, as the API server sees it.
    pub path: String,
    /// The protocol the connection is upgraded to, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<&'static str>,
}

impl Attributes {
    /// Reads a request line.
    ///
    /// - `rest`: path after the front's prefix, as it was sent; with or without a leading slash.
    /// - `query`: as it was sent, without `?`.
    /// - `upgrade`: the protocol the connection is upgraded to, if it is.
    ///
    /// Never fails: a path that kube-apiserver cannot read has no resource here either.
    pub fn read(method: &Method, rest: &str, query: Option<&str>, upgrade: Option<Protocol>) -> Self {
        let path = decoded(rest);
        let mut read = Self {
            verb: method.as_str().to_ascii_lowercase(),
            upgrade: upgrade.map(Into::into),
            ..Self::default()
        };
        read.read_resource(&path, method, query);
        read.path = path;
        read.set_exec_verb(method);
        read
    }

    /// Whether a pod, service or node answers the request, through the API server.
    pub fn is_proxied(&self) -> bool {
        self.verb == "proxy" || self.subresource.as_deref() == Some("proxy")
    }

    /// Whether the path contains the verb, as before Kubernetes 1.11: `/api/v1/watch/pods`. Such a
    /// verb says nothing about the method.
    pub fn has_verb_in_path(&self) -> bool {
        let mut parts = self.path.trim_matches('/').split('/');
        let before = match parts.next() {
            Some(GROUPLESS_PREFIX) => 1,
            Some(_) | None => 2,
        };
        self.resource_request && parts.nth(before).is_some_and(|verb| PATH_VERBS.contains(&verb))
    }

    /// Whether the request changes nothing and runs nothing. The verb alone does not tell: a `POST`
    /// below `/watch/` has the verb `watch`.
    pub fn is_plain_read(&self, method: &Method) -> bool {
        let is_safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
        let reads = !self.resource_request || self.verbs().all(|verb| READ_VERBS.contains(&verb));
        is_safe && reads && self.upgrade.is_none()
    }

    /// A copy for records, with each text that a caller chose cut to 256 bytes: thousands of
    /// records stay in memory.
    #[must_use]
    pub fn shortened(&self) -> Self {
        let cut = |text: &String| shortened(text, KEPT_BYTES);
        Self {
            verb: cut(&self.verb),
            also_verb: self.also_verb.as_ref().map(cut),
            resource_request: self.resource_request,
            api_group: cut(&self.api_group),
            api_version: cut(&self.api_version),
            resource: self.resource.as_ref().map(cut),
            subresource: self.subresource.as_ref().map(cut),
            namespace: self.namespace.as_ref().map(cut),
            name: self.name.as_ref().map(cut),
            path: cut(&self.path),
            upgrade: self.upgrade,
        }
    }

    /// Every verb the request needs. A policy that allows the request must allow each of them.
    pub fn verbs(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.verb.as_str()).chain(self.also_verb.as_deref())
    }

    fn read_resource(&mut self, path: &str, method: &Method, query: Option<&str>) {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let [prefix, behind @ ..] = parts.as_slice() else {
            return;
        };
        // Shorter paths are discovery (`/apis`, `/api/v1`), which kube-apiserver does not count as requests for
        // resources.
        if !PREFIXES.contains(prefix) || behind.len() < 2 {
            return;
        }
        let (group, behind) = match behind {
            behind if *prefix == GROUPLESS_PREFIX => ("", behind),
            // `/apis/<group>/<version>` is discovery, too.
            [group, behind @ ..] if behind.len() >= 2 => (*group, behind),
            _ => return,
        };
        let [version, behind @ ..] = behind else { return };
        self.resource_request = true;
        group.clone_into(&mut self.api_group);
        (*version).clone_into(&mut self.api_version);
        let behind = match behind {
            // The API server refuses this path before it asks any authorizer.
            [verb] if PATH_VERBS.contains(verb) => return,
            [verb, behind @ ..] if PATH_VERBS.contains(verb) => {
                (*verb).clone_into(&mut self.verb);
                behind
            }
            behind => {
                verb_of(method).clone_into(&mut self.verb);
                behind
            }
        };
        self.read_object(behind);
        self.refine_verb(query);
    }

    fn read_object(&mut self, parts: &[&str]) {
        let parts = match parts {
            ["namespaces", namespace, behind @ ..] => {
                self.namespace = non_empty(namespace);
                match behind {
                    [first, ..] if !NAMESPACE_SUBRESOURCES.contains(first) => behind,
                    _ => parts,
                }
            }
            parts => parts,
        };
        let mut parts = parts.iter();
        self.resource = parts.next().and_then(|part| non_empty(part));
        self.name = parts.next().and_then(|part| non_empty(part));
        // Behind the verb `proxy`, the rest of the path belongs to the node, pod or service.
        if self.verb != "proxy" {
            self.subresource = parts.next().and_then(|part| non_empty(part));
        }
    }

    fn refine_verb(&mut self, query: Option<&str>) {
        // kube-apiserver ignores `watch` in the query of a named object, and reads that object once.
        if self.name.is_some() {
            return;
        }
        match self.verb.as_str() {
            "get" => {
                let options = ListOptions::read(query.unwrap_or_default());
                self.verb = if options.watch { "watch" } else { "list" }.to_owned();
                self.name = options.name;
            }
            "delete" => "deletecollection".clone_into(&mut self.verb),
            _ => {}
        }
    }

    /// Sets the verb of requests that run programs to one that is not a read, for any method.
    // SECURITY: `GET` of `nodes/proxy` reaches the kubelet's `exec`, and RBAC of older clusters
    // asks only for `get` where a WebSocket opens a shell. A log by WebSocket is still a read. A
    // verb in the path says nothing about the method, and an aggregated API server may act on the
    // method.
    fn set_exec_verb(&mut self, method: &Method) {
        let runs_program = match self.subresource.as_deref() {
            None | Some("log") => false,
            Some("proxy") => true,
            Some(_) => self.upgrade.is_some(),
        };
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let verb = match (self.verb.as_str(), self.has_verb_in_path()) {
            ("get", _) if runs_program => "create",
            ("watch", true) if runs_program || self.upgrade.is_some() => "create",
            ("watch", true) if !is_read => verb_of(method),
            (_, _) => return,
        };
        self.also_verb = Some(std::mem::replace(&mut self.verb, verb.to_owned()));
    }
}

fn verb_of(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

fn non_empty(part: &str) -> Option<String> {
    Some(part).filter(|part| !part.is_empty()).map(str::to_owned)
}

/// Decodes the path once. Bytes that are not UTF-8 match no name.
fn decoded(rest: &str) -> String {
    let path = percent_decode_str(rest).decode_utf8_lossy();
    if path.starts_with('/') {
        path.into_owned()
    } else {
        format!("/{path}")
    }
}
