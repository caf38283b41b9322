//! Paths of the API about the gateway itself.

use http::{Method, Uri};
use uuid::Uuid;

use tollgate_policy::rego::Front;

const API: &str = "/api/v1/";

/// A request about the gateway itself. None of them changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationsRoute {
    /// The latest decisions.
    Decisions,
    Decision(Uuid),
    /// What the policy was given for a decision.
    DecisionInput(Uuid),
    /// Why somebody has a permission, or has not.
    Explain,
    /// Who has a permission.
    WhoCan,
    Extensions,
    /// The ApplicationSets that the caller may see.
    ApplicationSets,
    /// Who acts for each Application.
    Identities,
    Policies,
    /// The bundle of a front.
    Policy(Front),
    /// Run its cases.
    TestPolicy(Front),
    /// Ask what it would decide.
    EvaluatePolicy(Front),
    Plugins,
    System,
}

/// Finds what a request asks for. `None` if it is not one about the gateway itself.
pub(crate) fn operations(method: &Method, uri: &Uri) -> Option<OperationsRoute> {
    let tail = uri.path().strip_prefix(API)?;
    if *method == Method::POST {
        let (front, action) = tail.strip_prefix("policies/")?.split_once('/')?;
        let front = Front::try_from(front).ok()?;
        return match action {
            "test" => Some(OperationsRoute::TestPolicy(front)),
            "eval" => Some(OperationsRoute::EvaluatePolicy(front)),
            _ => None,
        };
    }
    if *method != Method::GET && *method != Method::HEAD {
        return None;
    }
    match tail {
        "decisions" => Some(OperationsRoute::Decisions),
        "rbac/explain" => Some(OperationsRoute::Explain),
        "rbac/who-can" => Some(OperationsRoute::WhoCan),
        "tollgate/extensions" => Some(OperationsRoute::Extensions),
        "tollgate/applicationsets" => Some(OperationsRoute::ApplicationSets),
        "tollgate/applications" => Some(OperationsRoute::Identities),
        "policies" => Some(OperationsRoute::Policies),
        "plugins" => Some(OperationsRoute::Plugins),
        "system" => Some(OperationsRoute::System),
        _ => match tail.split_once('/')? {
            ("policies", front) => Front::try_from(front).ok().map(OperationsRoute::Policy),
            ("decisions", rest) => {
                let id = |text| Uuid::try_parse(text).ok();
                match rest.strip_suffix("/input") {
                    Some(text) => id(text).map(OperationsRoute::DecisionInput),
                    None => id(rest).map(OperationsRoute::Decision),
                }
            }
            (_, _) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::{Front, OperationsRoute, operations};

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
        assert_eq!(
            of(&Method::POST, "/api/v1/policies/extensions/eval"),
            Some(OperationsRoute::EvaluatePolicy(Front::Extensions))
        );
        assert_eq!(of(&Method::GET, "/api/v1/policies/extensions/eval"), None);
        assert_eq!(of(&Method::GET, "/api/v1/policies/nothing"), None);
        let id = uuid::Uuid::now_v7();
        assert_eq!(
            of(&Method::HEAD, &format!("/api/v1/decisions/{id}")),
            Some(OperationsRoute::Decision(id))
        );
    }
}
