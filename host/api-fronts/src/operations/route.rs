//! Paths of the API about the gateway itself.

use uuid::Uuid;

use tollgate_front::path::{Captures, Methods, Part, Path};
use tollgate_rego::Front;

/// What a row asks for. `None` if a name in the path is none.
pub(crate) type Read = fn(&Captures<'_>) -> Option<OperationsRoute>;

pub(crate) const PATHS: &[Path<Read>] = &[
    read(&["/api/v1/decisions"], &[], |_| Some(OperationsRoute::Decisions)),
    read(&["/api/v1/decisions/"], &[ID], |path| {
        Some(OperationsRoute::Decision(id(path)?))
    }),
    read(&["/api/v1/decisions/"], &[ID, Part::Text("/input")], |path| {
        Some(OperationsRoute::DecisionInput(id(path)?))
    }),
    read(&["/api/v1/rbac/explain"], &[], |_| Some(OperationsRoute::Explain)),
    read(&["/api/v1/rbac/who-can"], &[], |_| Some(OperationsRoute::WhoCan)),
    read(&["/api/v1/tollgate/extensions"], &[], |_| {
        Some(OperationsRoute::Extensions)
    }),
    read(&["/api/v1/tollgate/applications"], &[], |_| {
        Some(OperationsRoute::Identities)
    }),
    read(&["/api/v1/policies"], &[], |_| Some(OperationsRoute::Policies)),
    read(&["/api/v1/policies/"], &[FRONT], |path| {
        Some(OperationsRoute::Policy(front(path)?))
    }),
    Path::new(
        Methods::Post,
        &["/api/v1/policies/"],
        &[FRONT, Part::Text("/test")],
        |path| Some(OperationsRoute::TestPolicy(front(path)?)),
    ),
    Path::new(
        Methods::Post,
        &["/api/v1/policies/"],
        &[FRONT, Part::Text("/eval")],
        |path| Some(OperationsRoute::EvaluatePolicy(front(path)?)),
    ),
    read(&["/api/v1/plugins"], &[], |_| Some(OperationsRoute::Plugins)),
    read(&["/api/v1/system"], &[], |_| Some(OperationsRoute::System)),
];
const ID: Part = Part::Segment("id");
const FRONT: Part = Part::Segment("front");

const fn read(prefixes: &'static [&'static str], parts: &'static [Part], read: Read) -> Path<Read> {
    Path::new(Methods::Read, prefixes, parts, read)
}

fn id(path: &Captures<'_>) -> Option<Uuid> {
    Uuid::try_parse(path.name()).ok()
}

fn front(path: &Captures<'_>) -> Option<Front> {
    Front::try_from(path.name()).ok()
}

/// A request about the gateway itself. None of them changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationsRoute {
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

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::{Front, OperationsRoute};
    use crate::operations::OperationsFront;
    use tollgate_front::find_in_paths;
    use tollgate_front::path::Answerer;

    #[test]
    fn only_reads_of_known_paths_are_found() {
        let of = |method: &Method, path: &str| {
            let uri: Uri = path.parse().unwrap();
            let found = find_in_paths::<OperationsFront>(method, &uri, Answerer::ALL).unwrap();
            found.map(|(route, _)| route)
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
