//! Paths of the API about the gateway itself.

use http::{Method, Uri};
use uuid::Uuid;

use tollgate_front::path::{self, Answerer, Methods, Part, Path};
use tollgate_rego::Front;

pub(crate) const PATHS: &[Path<Endpoint>] = &[
    Path::new(Methods::Read, &["/api/v1/decisions"], &[], Endpoint::Decisions),
    Path::new(Methods::Read, &["/api/v1/decisions/"], &[ID], Endpoint::Decision),
    Path::new(
        Methods::Read,
        &["/api/v1/decisions/"],
        &[ID, Part::Text("/input")],
        Endpoint::DecisionInput,
    ),
    Path::new(Methods::Read, &["/api/v1/rbac/explain"], &[], Endpoint::Explain),
    Path::new(Methods::Read, &["/api/v1/rbac/who-can"], &[], Endpoint::WhoCan),
    Path::new(
        Methods::Read,
        &["/api/v1/tollgate/extensions"],
        &[],
        Endpoint::Extensions,
    ),
    Path::new(
        Methods::Read,
        &["/api/v1/tollgate/applicationsets"],
        &[],
        Endpoint::ApplicationSets,
    ),
    Path::new(
        Methods::Read,
        &["/api/v1/tollgate/applications"],
        &[],
        Endpoint::Identities,
    ),
    Path::new(Methods::Read, &["/api/v1/policies"], &[], Endpoint::Policies),
    Path::new(Methods::Read, &["/api/v1/policies/"], &[FRONT], Endpoint::Policy),
    Path::new(
        Methods::Post,
        &["/api/v1/policies/"],
        &[FRONT, Part::Text("/test")],
        Endpoint::TestPolicy,
    ),
    Path::new(
        Methods::Post,
        &["/api/v1/policies/"],
        &[FRONT, Part::Text("/eval")],
        Endpoint::EvaluatePolicy,
    ),
    Path::new(Methods::Read, &["/api/v1/plugins"], &[], Endpoint::Plugins),
    Path::new(Methods::Read, &["/api/v1/system"], &[], Endpoint::System),
];
const ID: Part = Part::Segment("id");
const FRONT: Part = Part::Segment("front");

#[derive(Clone, Copy, Debug)]
pub(crate) enum Endpoint {
    Decisions,
    Decision,
    DecisionInput,
    Explain,
    WhoCan,
    Extensions,
    ApplicationSets,
    Identities,
    Policies,
    Policy,
    TestPolicy,
    EvaluatePolicy,
    Plugins,
    System,
}

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
    let (row, captures) = path::find(PATHS, method, uri.path(), Answerer::ALL)?;
    let [segment, ..] = captures.segments;
    let id = || Uuid::try_parse(segment).ok();
    let front = || Front::try_from(segment).ok();
    Some(match row.operation {
        Endpoint::Decisions => OperationsRoute::Decisions,
        Endpoint::Decision => OperationsRoute::Decision(id()?),
        Endpoint::DecisionInput => OperationsRoute::DecisionInput(id()?),
        Endpoint::Explain => OperationsRoute::Explain,
        Endpoint::WhoCan => OperationsRoute::WhoCan,
        Endpoint::Extensions => OperationsRoute::Extensions,
        Endpoint::ApplicationSets => OperationsRoute::ApplicationSets,
        Endpoint::Identities => OperationsRoute::Identities,
        Endpoint::Policies => OperationsRoute::Policies,
        Endpoint::Policy => OperationsRoute::Policy(front()?),
        Endpoint::TestPolicy => OperationsRoute::TestPolicy(front()?),
        Endpoint::EvaluatePolicy => OperationsRoute::EvaluatePolicy(front()?),
        Endpoint::Plugins => OperationsRoute::Plugins,
        Endpoint::System => OperationsRoute::System,
    })
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
