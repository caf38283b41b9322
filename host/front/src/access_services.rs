//! [`AccessServices`]: what people's access to agents needs besides the snapshot.

use std::sync::Arc;

use tollgate_identity::access::Authorizer;
use tollgate_identity::access::endpoint::PlatformEndpoint;
use tollgate_identity::audit::Audit;
use tollgate_identity::clock::Clock;
use tollgate_identity::sessions::SessionRegistry;
use tollgate_store::Store;

/// What decides, records and ends access to agents, for as long as the process runs.
#[derive(Debug)]
pub struct AccessServices {
    /// Tokens, sessions, audit.
    pub store: Arc<Store>,
    /// Sessions that are open, with all that they have open.
    pub sessions: Arc<SessionRegistry>,
    /// Where access is written down.
    pub audit: Arc<Audit>,
    /// Decides who may use which agent.
    pub authorizer: Authorizer,
    /// The endpoint that answers other gateways whether somebody may use an agent. `None` if the
    /// settings have no secret.
    pub endpoint: Option<PlatformEndpoint>,
    /// Wall time.
    pub clock: Clock,
}
