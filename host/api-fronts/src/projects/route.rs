//! Paths of the API for AppProjects.
//!
//! Security: names are decoded once, and an encoding that two readers could read differently gets
//! 400.

use tollgate_front::path::{Captures, Methods, Part, Path};
use tollgate_proxy::target::{Error, check_path};

/// Where the API is. argocd-server, if there is one, serves the shorter path.
const API: &[&str] = &["/api/v1/tollgate/projects", "/api/v1/projects"];
const OF_PROJECT: &[&str] = &["/api/v1/tollgate/projects/", "/api/v1/projects/"];
const NAME: Part = Part::Segment("project");

pub(crate) const PATHS: &[Path<Endpoint>] = &[
    Path::new(Methods::Read, API, &[], Endpoint::List),
    Path::new(Methods::Read, OF_PROJECT, &[NAME], Endpoint::Get),
    Path::new(Methods::Put, OF_PROJECT, &[NAME], Endpoint::Update),
    Path::new(Methods::Read, OF_PROJECT, PREVIEW, Endpoint::Preview),
    Path::new(Methods::Post, OF_PROJECT, PREVIEW, Endpoint::PreviewSent),
];
const PREVIEW: &[Part] = &[NAME, Part::Text("/preview")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    List,
    Get,
    Update,
    Preview,
    PreviewSent,
}

/// Longest name, decoded, in bytes, as Kubernetes has it.
const NAME_BYTES: usize = 253;

/// Checks a path below those of projects.
pub(super) fn check(path: &str) -> Result<(), Error> {
    match OF_PROJECT.iter().any(|prefix| path.starts_with(prefix)) {
        true => check_path(path),
        false => Ok(()),
    }
}

/// What is asked, of the project with this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectRoute {
    List,
    Get(String),
    Update(String),
    /// Who acts with the project's accounts.
    Preview(String),
    /// The same, with others that are sent.
    PreviewSent(String),
}

impl ProjectRoute {
    /// `None` if the path names no project.
    pub(super) fn read(endpoint: Endpoint, captures: &Captures<'_>) -> Result<Option<Self>, Error> {
        let route = match endpoint {
            Endpoint::List => return Ok(Some(Self::List)),
            Endpoint::Get => Self::Get,
            Endpoint::Update => Self::Update,
            Endpoint::Preview => Self::Preview,
            Endpoint::PreviewSent => Self::PreviewSent,
        };
        Ok(captures.decoded_name(NAME_BYTES)?.map(route))
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::{Error, ProjectRoute};
    use crate::projects::ProjectsFront;
    use tollgate_front::path::Answerer;

    fn of(method: &Method, path: &str) -> Result<Option<String>, Error> {
        let uri: Uri = path.parse().expect("a path");
        let found = tollgate_front::find_in_paths::<ProjectsFront>(method, &uri, Answerer::ALL)?;
        Ok(found.map(|(route, _)| match route {
            ProjectRoute::List => "list".to_owned(),
            ProjectRoute::Preview(name) => format!("preview {name} false"),
            ProjectRoute::PreviewSent(name) => format!("preview {name} true"),
            ProjectRoute::Get(name) => format!("get {name}"),
            ProjectRoute::Update(name) => format!("update {name}"),
        }))
    }

    #[test]
    fn methods_and_paths_are_routed() {
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(of(&Method::GET, "/api/v1/projects"), some("list"));
        assert_eq!(of(&Method::HEAD, "/api/v1/projects/a"), some("get a"));
        assert_eq!(of(&Method::GET, "/api/v1/projects/a%2Fb"), some("get a/b"));
        assert_eq!(of(&Method::PUT, "/api/v1/projects/a"), some("update a"));
        for (method, path) in [
            (Method::POST, "/api/v1/projects"),
            (Method::DELETE, "/api/v1/projects/a"),
            (Method::GET, "/api/v1/projects/"),
            (Method::GET, "/api/v1/projects/a/detailed"),
            (Method::GET, "/api/v1/projectsx"),
        ] {
            assert_eq!(of(&method, path), Ok(None), "{method} {path}");
        }
        assert_eq!(of(&Method::GET, "/api/v1/projects/.."), Err(Error::DotSegment));
        assert_eq!(of(&Method::GET, "/api/v1/projects/a%252e"), Err(Error::DoubleEncoding));
        // Also where there is nothing.
        assert_eq!(of(&Method::DELETE, "/api/v1/projects/a//b"), Err(Error::EmptySegment));
    }
}
