//! The person of the gateway's own directory whom a caller's claims mean.

use serde_json::Value;

use tollgate_config::Kubernetes;
use tollgate_core::principal::Kind;
use tollgate_core::user::User;
use tollgate_front::access_services::AccessServices;
use tollgate_front::api::Error;
use tollgate_front::snapshot::Snapshot;
use tollgate_identity::access::Agents;
use tollgate_identity::authenticate::Principal;
use tollgate_objects::people::PersonState;

/// The person of the gateway's own directory. `None` for anybody else, and while another platform
/// numbers people.
pub(crate) fn person_of(
    front_state: Option<&AccessServices>,
    snapshot: &Snapshot,
    principal: &Principal,
) -> Option<User> {
    let front_state = front_state?;
    let settings = snapshot.policies.config.kubernetes.as_ref()?;
    let agents = &snapshot.policies.kubernetes.as_ref()?.agents;
    let is_numbered_here = front_state.authorizer.is_embedded();
    // With a remote authorizer, the numbers are the platform's, and mean other people.
    is_numbered_here
        .then(|| find_user(principal, snapshot, settings, agents).ok().flatten())
        .flatten()
}

pub(crate) fn find_user(
    principal: &Principal,
    snapshot: &Snapshot,
    settings: &Kubernetes,
    agents: &Agents,
) -> Result<Option<User>, Error> {
    match principal.kind() {
        Kind::Local | Kind::Oidc => {}
        // None of these is a person, regardless of its name.
        Kind::Anonymous | Kind::ProjectToken | Kind::Kubernetes => return Ok(None),
    }
    // If an issuer has `claimMappings`, its own claims are under `token`.
    let issuers = &snapshot.policies.config.authentication.issuers;
    let is_mapped = principal.kind() == Kind::Oidc && issuers.iter().any(|issuer| issuer.url == principal.issuer());
    let claims = if is_mapped {
        principal.claims().get("token").and_then(Value::as_object)
    } else {
        Some(principal.claims())
    };
    let found = claims.and_then(|claims| agents.user_of(&settings.users, principal.issuer(), claims));
    found.map(unblocked).transpose()
}

pub(crate) fn unblocked(person: &tollgate_objects::people::Person) -> Result<User, Error> {
    match person.state {
        PersonState::Active => Ok(person.user.clone()),
        PersonState::Blocked => Err(Error::Blocked(person.user.username.clone())),
    }
}
