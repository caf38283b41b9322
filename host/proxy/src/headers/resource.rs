//! Header values that tell a backend what a request is about: the names of the control plane's
//! namespace, application, project and cluster. They are made once and used for every request about
//! the same objects. Names that a header cannot carry unchanged are refused.
//!
//! Security: a name that the client sent is never used unchecked.

use http::{HeaderName, HeaderValue};

use super::{Error, identity};

const NAMESPACE: HeaderName = HeaderName::from_static("argocd-namespace");
const APPLICATION: HeaderName = HeaderName::from_static("argocd-application-name");
const PROJECT: HeaderName = HeaderName::from_static("argocd-project-name");
const CLUSTER_NAME: HeaderName = HeaderName::from_static("argocd-target-cluster-name");
const CLUSTER_URL: HeaderName = HeaderName::from_static("argocd-target-cluster-url");

/// The names of what a request is about, as they were looked up.
#[derive(Clone, Copy, Debug)]
pub struct ResourceNames<'a> {
    /// Namespace of the control plane.
    pub namespace: &'a str,
    /// Namespace and name of the application, when the request is about one.
    pub application: Option<(&'a str, &'a str)>,
    /// Project, when the request is about one.
    pub project: Option<&'a str>,
    /// Name and server of the canonical destination, when there is one. An
    /// empty one is not sent.
    pub cluster: Option<(&'a str, &'a str)>,
}

/// Header values that say what a request is about. Cloning one only increments reference counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceHeaders(Vec<(HeaderName, HeaderValue)>);

impl ResourceHeaders {
    /// The `Argocd-*` fields of `names`.
    ///
    /// # Errors
    /// [`Error::Value`] for a name with control characters or blanks at either
    /// end: HTTP parsers trim, and another name would arrive.
    ///
    /// Source: Argo CD, `server/extension` `prepareRequest`.
    pub fn new(names: &ResourceNames<'_>) -> Result<Self, Error> {
        let mut fields = Vec::with_capacity(5);
        let mut put = |name: HeaderName, value: &str| match identity::single("", value) {
            Ok(Some(value)) => {
                fields.push((name, value));
                Ok(())
            }
            Ok(None) | Err(_) => Err(Error::Value(name)),
        };
        put(NAMESPACE, names.namespace)?;
        if let Some((namespace, name)) = names.application {
            put(APPLICATION, &[namespace, ":", name].concat())?;
        }
        if let Some(project) = names.project {
            put(PROJECT, project)?;
        }
        let (name, server) = names.cluster.unwrap_or_default();
        for (field, value) in [(CLUSTER_NAME, name), (CLUSTER_URL, server)] {
            if !value.is_empty() {
                put(field, value)?;
            }
        }
        Ok(Self(fields))
    }

    pub(super) fn fields(&self) -> &[(HeaderName, HeaderValue)] {
        &self.0
    }
}
