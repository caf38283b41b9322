//! Paths of the API for AppProjects.
//!
//! Security: names are decoded once, and an encoding that two readers could read differently gets
//! 400.

use std::borrow::Cow;

use http::{Method, Uri};

use tollgate_proxy::target::{Error, check_path};

/// Where the API is. argocd-server, if there is one, serves the shorter path.
const API: [&str; 2] = ["/api/v1/tollgate/projects", "/api/v1/projects"];

/// Longest name, decoded, in bytes, as Kubernetes has it.
const NAME_BYTES: usize = 253;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProjectRoute<'a> {
    List,
    Get {
        name: Cow<'a, str>,
    },
    Update {
        name: Cow<'a, str>,
    },
    /// Who acts with the project's accounts, or would with others that are sent.
    Preview {
        name: Cow<'a, str>,
        is_sent: bool,
    },
}

/// Finds what a request about AppProjects asks for. `None` if it is not about them.
pub(crate) fn project<'a>(method: &Method, uri: &'a Uri) -> Result<Option<ProjectRoute<'a>>, Error> {
    let Some(tail) = API.iter().find_map(|api| uri.path().strip_prefix(api)) else {
        return Ok(None);
    };
    let reads = *method == Method::GET || *method == Method::HEAD;
    if tail.is_empty() {
        return Ok(reads.then_some(ProjectRoute::List));
    }
    let Some(segment) = tail.strip_prefix('/') else {
        return Ok(None);
    };
    check_path(uri.path())?;
    let (segment, is_preview) = match segment.strip_suffix("/preview") {
        Some(segment) => (segment, true),
        None => (segment, false),
    };
    let name = percent_encoding::percent_decode_str(segment);
    let name = name.decode_utf8().map_err(|_| Error::NotUtf8)?;
    if segment.contains('/') || name.is_empty() || name.len() > NAME_BYTES {
        return Ok(None);
    }
    Ok(match *method {
        Method::POST if is_preview => Some(ProjectRoute::Preview { name, is_sent: true }),
        _ if is_preview => reads.then_some(ProjectRoute::Preview { name, is_sent: false }),
        Method::PUT => Some(ProjectRoute::Update { name }),
        _ if reads => Some(ProjectRoute::Get { name }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::{Error, ProjectRoute, project};

    fn of(method: &Method, path: &str) -> Result<Option<String>, Error> {
        let uri: Uri = path.parse().expect("a path");
        Ok(project(method, &uri)?.map(|route| match route {
            ProjectRoute::List => "list".to_owned(),
            ProjectRoute::Preview { name, is_sent } => format!("preview {name} {is_sent}"),
            ProjectRoute::Get { name } => format!("get {name}"),
            ProjectRoute::Update { name } => format!("update {name}"),
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
    }
}
