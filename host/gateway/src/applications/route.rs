//! Paths into the clusters of Applications: the Application's namespace and name, and the raw rest
//! behind the prefix. Refusals get 400.
//!
//! Security: the API server reads the rest exactly as the project's restrictions did.

use http::Uri;

use tollgate_core::dns::{is_label, is_subdomain};
use tollgate_proxy::target::{Error, check_cluster_path};

/// Prefix of paths to the clusters of Applications: `/applications/{namespace}/{name}/k8s`.
const APPLICATIONS: &str = "/applications/";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ApplicationPath<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// What follows `/k8s`: empty, or from `/` on, encoded as the client sent it.
    pub rest: &'a str,
    /// What follows `?`, as the client sent it.
    pub query: Option<&'a str>,
}

/// Whether a path is one of the Applications front, even if it is malformed.
pub(crate) fn is_application(path: &str) -> bool {
    split(path).is_some()
}

/// Splits such a path. `None` if the path is not one.
pub(crate) fn application(uri: &Uri) -> Result<Option<ApplicationPath<'_>>, Error> {
    let Some((namespace, name, rest)) = split(uri.path()) else {
        return Ok(None);
    };
    if !is_label(namespace) || !is_subdomain(name) {
        return Err(Error::ApplicationName);
    }
    if !rest.is_empty() {
        check_cluster_path(rest)?;
    }
    Ok(Some(ApplicationPath {
        namespace,
        name,
        rest,
        query: uri.query(),
    }))
}

fn split(path: &str) -> Option<(&str, &str, &str)> {
    let (namespace, tail) = path.strip_prefix(APPLICATIONS)?.split_once('/')?;
    let (name, tail) = tail.split_once('/')?;
    let rest = tail.strip_prefix("k8s")?;
    (rest.is_empty() || rest.starts_with('/')).then_some((namespace, name, rest))
}

#[cfg(test)]
mod tests {
    use super::{ApplicationPath, Error, application};

    #[test]
    fn the_rest_is_kept_byte_for_byte() {
        let path = |namespace, name, rest, query| {
            Some(ApplicationPath {
                namespace,
                name,
                rest,
                query,
            })
        };
        for (target, expected) in [
            (
                "/applications/argocd/guestbook/k8s",
                path("argocd", "guestbook", "", None),
            ),
            ("/applications/a/b.c/k8s/", path("a", "b.c", "/", None)),
            (
                "/applications/a/b/k8s/api/v1/x%2Fy?b=2&a=%31",
                path("a", "b", "/api/v1/x%2Fy", Some("b=2&a=%31")),
            ),
            ("/applications/a/b/k8sx/api", None),
            ("/applications/a/b/c/k8s/api", None),
            ("/applications/a/b", None),
            ("/applications", None),
            ("/x/applications/a/b/k8s", None),
        ] {
            assert_eq!(application(&target.parse().unwrap()), Ok(expected), "{target}");
        }
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for (target, error) in [
            ("/applications/a/b/k8s/api/../version", Error::DotSegment),
            ("/applications/a/b/k8s//version", Error::EmptySegment),
            ("/applications/a/b/k8s/%2e%2e/version", Error::EncodedDot),
            ("/applications/a/b/k8s/a%252fb", Error::DoubleEncoding),
            ("/applications/a%2Fb/c/k8s/api", Error::ApplicationName),
            ("/applications//c/k8s/api", Error::ApplicationName),
            ("/applications/../c/k8s/api", Error::ApplicationName),
            ("/applications/A/c/k8s/api", Error::ApplicationName),
        ] {
            assert_eq!(application(&target.parse().unwrap()), Err(error), "{target}");
        }
    }
}
