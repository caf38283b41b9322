//! Paths into the clusters of Applications: the Application's namespace and name, and the raw rest
//! behind the prefix. Refusals get 400.
//!
//! Security: the API server reads the rest exactly as the project's restrictions did.

use http::Uri;

use tollgate_core::dns::{is_label, is_subdomain};
use tollgate_front::path::{Answerer, Captures, Methods, Part, Path, Rest};
use tollgate_objects::ObjectName;
use tollgate_proxy::target::{Error, check_cluster_path};

pub(super) const PATHS: &[Path<()>] = &[Path::new(
    Methods::Any,
    &["/applications/"],
    &[
        Part::Segment("namespace"),
        Part::Text("/"),
        Part::Segment("application"),
        Part::Text("/k8s"),
        Part::Rest("path"),
    ],
    (),
)
.answered_by(Answerer::Cluster)];

/// An Application, and what is asked of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationPath {
    pub(super) name: ObjectName,
    rest: Rest,
}

impl ApplicationPath {
    pub(super) fn read(captures: &Captures<'_>, uri: &Uri) -> Result<Self, Error> {
        let [namespace, name, _] = captures.segments;
        // Neither has a character that needs encoding, so every name has one spelling.
        if !is_label(namespace) || !is_subdomain(name) {
            return Err(Error::ApplicationName);
        }
        if !captures.rest.is_empty() {
            check_cluster_path(captures.rest)?;
        }
        Ok(Self {
            name: ObjectName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            rest: Rest::of(captures, uri),
        })
    }

    /// The path in the cluster, encoded as the client sent it.
    pub(super) fn path(&self) -> &str {
        match self.rest.path() {
            "" => "/",
            path => path,
        }
    }

    pub(super) fn query(&self) -> Option<&str> {
        self.rest.query()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::Error;
    use crate::applications::ApplicationsFront;
    use tollgate_front::path::Answerer;

    type Found<T> = Option<(T, T, T, Option<T>)>;

    fn application(target: &str) -> Result<Found<String>, Error> {
        let found =
            tollgate_front::find_in_paths::<ApplicationsFront>(&Method::GET, &target.parse().unwrap(), Answerer::ALL)?;
        Ok(found.map(|(path, _)| {
            let query = path.query().map(str::to_owned);
            (
                path.name.namespace.clone(),
                path.name.name.clone(),
                path.path().to_owned(),
                query,
            )
        }))
    }

    #[test]
    fn the_rest_is_kept_byte_for_byte() {
        let expectations: [(&str, Found<&str>); 8] = [
            (
                "/applications/argocd/guestbook/k8s",
                Some(("argocd", "guestbook", "/", None)),
            ),
            ("/applications/a/b.c/k8s/", Some(("a", "b.c", "/", None))),
            (
                "/applications/a/b/k8s/api/v1/x%2Fy?b=2&a=%31",
                Some(("a", "b", "/api/v1/x%2Fy", Some("b=2&a=%31"))),
            ),
            ("/applications/a/b/k8sx/api", None),
            ("/applications/a/b/c/k8s/api", None),
            ("/applications/a/b", None),
            ("/applications", None),
            ("/x/applications/a/b/k8s", None),
        ];
        for (target, expected) in expectations {
            let found = application(target).unwrap();
            let found = found.as_ref();
            let found = found.map(|(namespace, name, path, query)| (&**namespace, &**name, &**path, query.as_deref()));
            assert_eq!(found, expected, "{target}");
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
            assert_eq!(application(target), Err(error), "{target}");
        }
    }
}
