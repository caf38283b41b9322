//! The facts that policies evaluate when a person or a CI job accesses an agent's cluster.

use std::sync::Arc;

use crate::agent::Agent;
use crate::session::SessionId;
use crate::user::{AccessAs, User};

/// The facts about one access. They prove nothing by themselves: the identity crate makes the proof
/// from a checked credential, and the proof contains them.
#[derive(Clone, Debug)]
pub struct AccessFacts {
    /// The agent whose cluster is accessed.
    pub agent: Arc<Agent>,
    /// The person; for a CI job, the user who runs it.
    pub user: User,
    /// Groups of the person by their ID token or login, as `claimMappings` give them. `None` if they
    /// name none, and for other credentials: groups are not known then.
    pub issuer_groups: Option<Arc<[String]>>,
    /// The identity the cluster sees.
    pub access_as: AccessAs,
    /// The credential that was presented.
    pub session: SessionId,
}
