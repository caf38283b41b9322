//! Paths into clusters through agents: the raw rest behind the prefix. Refusals get 400.
//!
//! Security: the API server reads the rest exactly as the policy did.

use http::Uri;

use tollgate_front::KUBERNETES_PREFIX;
use tollgate_front::path::{Answerer, Captures, Methods, Part, Path, Rest};
use tollgate_proxy::target::{Error, check_cluster_path};

pub(crate) const PATHS: &[Path<()>] =
    &[Path::new(Methods::Any, &["/k8s-proxy"], &[Part::Rest("path")], ()).answered_by(Answerer::Cluster)];

/// Whether a path is one of the Kubernetes front, even if it is malformed.
pub(crate) fn is_kubernetes(path: &str) -> bool {
    path.starts_with(KUBERNETES_PREFIX)
}

/// What a request asks the cluster for. `None` for the prefix alone.
pub(crate) fn read(captures: &Captures<'_>, uri: &Uri) -> Result<Option<Rest>, Error> {
    if captures.rest.is_empty() {
        return Ok(None);
    }
    check_cluster_path(captures.rest)?;
    Ok(Some(Rest::of(captures, uri)))
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::Error;
    use crate::kubernetes::KubernetesFront;
    use tollgate_front::find_in_paths;
    use tollgate_front::path::{Answerer, Rest};

    fn kubernetes(target: &str) -> Result<Option<Rest>, Error> {
        let uri: Uri = target.parse().unwrap();
        let found = find_in_paths::<KubernetesFront>(&Method::GET, &uri, Answerer::ALL)?;
        Ok(found.map(|(rest, _)| rest))
    }

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
            let found = kubernetes(target).unwrap();
            let found = found.as_ref().map(|found| (found.path(), found.query()));
            assert_eq!(found, expected, "{target}");
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
            assert_eq!(kubernetes(target), Err(error), "{target}");
        }
    }
}
