//! Paths of the API about the gateway itself.

use http::{Method, Uri};
use uuid::Uuid;

const API: &str = "/api/v1/";

/// A request about the gateway itself. All of them read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationsRoute {
    /// The latest decisions.
    Decisions,
    Decision(Uuid),
    /// Why somebody has a permission, or has not.
    Explain,
    Plugins,
    System,
}

/// Finds what a request asks for. `None` if it is not one about the gateway itself.
pub(crate) fn operations(method: &Method, uri: &Uri) -> Option<OperationsRoute> {
    if *method != Method::GET && *method != Method::HEAD {
        return None;
    }
    let tail = uri.path().strip_prefix(API)?;
    match tail {
        "decisions" => Some(OperationsRoute::Decisions),
        "rbac/explain" => Some(OperationsRoute::Explain),
        "plugins" => Some(OperationsRoute::Plugins),
        "system" => Some(OperationsRoute::System),
        _ => {
            let id = Uuid::try_parse(tail.strip_prefix("decisions/")?).ok()?;
            Some(OperationsRoute::Decision(id))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::{OperationsRoute, operations};

    #[test]
    fn only_reads_of_known_paths_are_found() {
        let of = |method: &Method, path: &str| {
            let uri: Uri = path.parse().unwrap();
            operations(method, &uri)
        };
        assert_eq!(
            of(&Method::GET, "/api/v1/decisions?user=*"),
            Some(OperationsRoute::Decisions)
        );
        assert_eq!(of(&Method::POST, "/api/v1/decisions"), None);
        assert_eq!(of(&Method::GET, "/api/v1/decisions/x"), None);
        assert_eq!(of(&Method::GET, "/api/v1/system/"), None);
        let id = uuid::Uuid::now_v7();
        assert_eq!(
            of(&Method::HEAD, &format!("/api/v1/decisions/{id}")),
            Some(OperationsRoute::Decision(id))
        );
    }
}
