//! Paths of the API for ApplicationSets, as Argo CD has them, and `PUT`.
//!
//! Security: names are decoded once, and an encoding that two readers could read differently gets
//! 400.

use crate::applicationsets::request::RequestKind;
use tollgate_front::path::{Captures, Methods, Part, Path};
use tollgate_proxy::target::{Error, check_path};

const API: &str = "/api/v1/applicationsets";

const STREAM: &str = "/api/v1/stream/applicationsets";
const OF_SET: &[&str] = &["/api/v1/applicationsets/"];
const NAME: Part = Part::Segment("applicationset");

pub(crate) const PATHS: &[Path<RequestKind>] = &[
    Path::new(Methods::Read, &[API], &[], RequestKind::List),
    Path::new(Methods::Post, &[API], &[], RequestKind::Create),
    Path::new(
        Methods::Post,
        &["/api/v1/applicationsets/generate"],
        &[],
        RequestKind::Generate,
    ),
    Path::new(Methods::Get, &[STREAM], &[], RequestKind::Watch),
    Path::new(Methods::Read, OF_SET, &[NAME], RequestKind::Get),
    Path::new(Methods::Put, OF_SET, &[NAME], RequestKind::Update),
    Path::new(Methods::Delete, OF_SET, &[NAME], RequestKind::Delete),
    Path::new(
        Methods::Read,
        OF_SET,
        &[NAME, Part::Text("/resource-tree")],
        RequestKind::ResourceTree,
    ),
    Path::new(
        Methods::Read,
        OF_SET,
        &[NAME, Part::Text("/events")],
        RequestKind::Events,
    ),
];

/// Longest name, decoded, in bytes, as Kubernetes has it.
const NAME_BYTES: usize = 253;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationSetRoute {
    pub(crate) kind: RequestKind,
    pub(crate) name: Option<String>,
}

/// Whether a path is one of this API, even if it is malformed.
pub(crate) fn is_application_sets(path: &str) -> bool {
    let below = |prefix| {
        let tail = path.strip_prefix(prefix);
        tail.is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
    };
    below(API) || path == STREAM
}

/// Checks a path, if it is one about a set.
pub(crate) fn check(path: &str) -> Result<(), Error> {
    match path.strip_prefix(API) {
        Some(tail) if tail.starts_with('/') => check_path(path),
        Some(_) | None => Ok(()),
    }
}

impl ApplicationSetRoute {
    /// What a row asks for. `None` if its name is none of an object.
    pub(crate) fn read(kind: RequestKind, captures: &Captures<'_>) -> Result<Option<Self>, Error> {
        let has_name = match kind {
            RequestKind::List | RequestKind::Create | RequestKind::Generate | RequestKind::Watch => false,
            RequestKind::Get
            | RequestKind::Update
            | RequestKind::Delete
            | RequestKind::ResourceTree
            | RequestKind::Events => true,
        };
        if !has_name {
            return Ok(Some(Self { kind, name: None }));
        }
        let name = captures.decoded_name(NAME_BYTES)?;
        Ok(name.map(|name| Self { kind, name: Some(name) }))
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::{Error, is_application_sets};
    use crate::applicationsets::{ApplicationSetsFront, SetTarget};
    use tollgate_front::find_in_paths;
    use tollgate_front::path::Answerer;

    fn of(method: &Method, path: &str) -> Result<Option<String>, Error> {
        let uri: Uri = path.parse().expect("a path");
        let found = find_in_paths::<ApplicationSetsFront>(method, &uri, Answerer::ALL)?;
        Ok(found.map(|(target, _)| match target {
            SetTarget::Rest(route) => match route.name {
                Some(name) => format!("{:?} {name}", route.kind),
                None => format!("{:?}", route.kind),
            },
            SetTarget::Call(transport) => panic!("{transport:?}"),
        }))
    }

    #[test]
    fn methods_and_paths_are_routed() {
        let (get, post, put, delete) = (&Method::GET, &Method::POST, &Method::PUT, &Method::DELETE);
        for (method, path, expected) in [
            (get, "", "List"),
            (&Method::HEAD, "?selector=a", "List"),
            (post, "?upsert=true", "Create"),
            (post, "/generate", "Generate"),
            (get, "/generate", "Get generate"),
            (get, "/a", "Get a"),
            (get, "/a%2Fb", "Get a/b"),
            (put, "/a", "Update a"),
            (delete, "/a", "Delete a"),
            (get, "/a/resource-tree", "ResourceTree a"),
            (get, "/a/events", "Events a"),
        ] {
            let path = format!("/api/v1/applicationsets{path}");
            assert_eq!(of(method, &path), Ok(Some(expected.to_owned())), "{method} {path}");
        }
        assert_eq!(
            of(get, "/api/v1/stream/applicationsets?name=a"),
            Ok(Some("Watch".to_owned()))
        );
    }

    #[test]
    fn other_requests_are_not_served() {
        for (method, path) in [
            (Method::PATCH, "/api/v1/applicationsets/a"),
            (Method::POST, "/api/v1/applicationsets/a"),
            (Method::PUT, "/api/v1/applicationsets"),
            (Method::PUT, "/api/v1/applicationsets/a/events"),
            (Method::GET, "/api/v1/applicationsets/"),
            (Method::GET, "/api/v1/applicationsets/a/other"),
            (Method::GET, "/api/v1/applicationsetsx"),
            (Method::POST, "/api/v1/stream/applicationsets"),
        ] {
            assert_eq!(of(&method, path), Ok(None), "{method} {path}");
        }
        let dots = of(&Method::GET, "/api/v1/applicationsets/..");
        assert_eq!(dots, Err(Error::DotSegment));
        let twice = of(&Method::GET, "/api/v1/applicationsets/a%252e");
        assert_eq!(twice, Err(Error::DoubleEncoding));
        assert!(is_application_sets("/api/v1/applicationsets/%"));
        assert!(is_application_sets("/api/v1/stream/applicationsets"));
        assert!(!is_application_sets("/api/v1/applicationsetsx"));
    }
}
