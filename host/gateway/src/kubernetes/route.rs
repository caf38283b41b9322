//! Paths into clusters through agents: the raw rest behind the prefix. Refusals get 400.
//!
//! Security: the API server reads the rest exactly as the policy did.

use http::{Method, Uri};

use tollgate_front::path::{self, Answerer, Methods, Part, Path};
use tollgate_proxy::target::{Error, check_cluster_path};

/// Prefix under which people reach the API servers of agents. The credential names the agent.
pub(crate) const KUBERNETES_PREFIX: &str = "/k8s-proxy/";

pub(crate) const PATHS: &[Path<()>] =
    &[Path::new(Methods::Any, &["/k8s-proxy"], &[Part::Rest("path")], ()).answered_by(Answerer::Cluster)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KubernetesPath<'a> {
    /// What follows the prefix, with its slash: from `/` on, encoded as the
    /// client sent it.
    pub(crate) rest: &'a str,
    /// What follows `?`, as the client sent it.
    pub(crate) query: Option<&'a str>,
}

/// Whether a path is one of the Kubernetes front, even if it is malformed.
pub(crate) fn is_kubernetes(path: &str) -> bool {
    path.starts_with(KUBERNETES_PREFIX)
}

/// Splits such a path. `None` if the path is not one.
pub(crate) fn kubernetes(uri: &Uri) -> Result<Option<KubernetesPath<'_>>, Error> {
    let rest = match path::find(PATHS, &Method::GET, uri.path(), Answerer::ALL) {
        Some((_, captures)) if !captures.rest.is_empty() => captures.rest,
        Some(_) | None => return Ok(None),
    };
    check_cluster_path(rest)?;
    Ok(Some(KubernetesPath {
        rest,
        query: uri.query(),
    }))
}

#[cfg(test)]
mod tests {
    use super::{Error, KubernetesPath, kubernetes};

    #[test]
    fn the_rest_is_kept_byte_for_byte() {
        for (target, expected) in [
            ("/k8s-proxy/", Some(("/", None))),
            ("/k8s-proxy/version", Some(("/version", None))),
            (
                "/k8s-proxy/api/v1/x%2Fy?b=2&a=%31",
                Some(("/api/v1/x%2Fy", Some("b=2&a=%31"))),
            ),
            ("/k8s-proxy", None),
            ("/k8s-proxyx/version", None),
            ("/other/k8s-proxy/version", None),
            ("/K8s-proxy/version", None),
        ] {
            let uri = target.parse().unwrap();
            let expected = expected.map(|(rest, query)| KubernetesPath { rest, query });
            assert_eq!(kubernetes(&uri), Ok(expected), "{target}");
        }
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for (target, error) in [
            ("/k8s-proxy/api/../version", Error::DotSegment),
            ("/k8s-proxy//version", Error::EmptySegment),
            ("/k8s-proxy/%2e%2e/version", Error::EncodedDot),
            ("/k8s-proxy/a%252fb", Error::DoubleEncoding),
        ] {
            assert_eq!(kubernetes(&target.parse().unwrap()), Err(error), "{target}");
        }
    }
}
