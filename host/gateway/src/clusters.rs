//! Runs the stages of requests about clusters in order, from the authenticated request and its
//! route to the response of the cluster or of the gateway.
//!
//! Security: a request reaches a cluster only with a [`ClusterPermit`] and a credential, and a
//! credential is only returned to the caller that requested it.

use http::StatusCode;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, request};
use jiff::Timestamp;

use crate::agents::AgentKeyView;
use crate::cluster_request;
use crate::cluster_request::{ClusterRequest, RequestIdentity, SendOutcome, lease, record_credential};
use crate::clusters::exec::{ExecCredentialVersion, exec_credential, usable_until};
use crate::clusters::permit::{ClusterOperation, ClusterPermit, authorize_cluster, reauthorize_cluster, visible};
use crate::clusters::route::{ClusterPath, ClusterRoute};
use crate::clusters::view::ClusterView;
use crate::front::{RequestContext, RouteHandler, safety_in_cluster};
use crate::open_exchanges::{Change, PtrEqArc, Reauthorize};
use crate::snapshot::Snapshot;
use tollgate_config::ClusterFront;
use tollgate_core::agent::AgentKey;
use tollgate_core::attributes::Attributes;
use tollgate_credential::cache::key::CredentialKey;
use tollgate_front::Denial;
use tollgate_front::api::json;
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_identity::store::Actor;
use tollgate_objects::ClusterAuth;
use tollgate_proxy::forward::Body;
use tollgate_proxy::headers::{self, client_impersonates};
use tollgate_proxy::record::{OpenRecord, Stage};

pub mod exec;
pub mod permit;
pub(crate) mod route;
pub(crate) mod view;

/// A permitted request, to be authorized again after a change.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClusterReauthorization {
    principal: PtrEqArc<Principal>,
    /// The cluster's name as the caller wrote it.
    name: String,
    operation: ClusterOperation,
    server: String,
    connection: CredentialKey,
}

impl ClusterReauthorization {
    fn new(principal: &Arc<Principal>, name: &str, permit: &ClusterPermit) -> Self {
        let access = permit.access();
        Self {
            principal: PtrEqArc(Arc::clone(principal)),
            name: name.to_owned(),
            operation: permit.operation(),
            server: access.cluster().server.clone(),
            connection: access.connection(),
        }
    }
}

impl Reauthorize for ClusterReauthorization {
    fn front(&self) -> &'static str {
        "clusters"
    }

    fn principal(&self) -> Option<&Principal> {
        Some(&self.principal.0)
    }

    fn inputs_unchanged(&self, change: &Change<'_>) -> bool {
        change.same_permissions() && change.same_clusters()
    }

    /// Whether `now` permits the request, to the same cluster over the same connection.
    fn is_allowed_by(&self, now: &Snapshot) -> bool {
        let PtrEqArc(principal) = &self.principal;
        if !now.authenticator.is_still_valid(principal) {
            return false;
        }
        let caller = now.policies.caller(principal);
        let permit = reauthorize_cluster((&now.policies, &now.clusters), &caller, (&self.name, self.operation));
        permit.is_ok_and(|permit| {
            let access = permit.access();
            access.cluster().server == self.server && access.is_reached_by(self.connection)
        })
    }
}

impl RouteHandler for ClusterRoute<'_> {
    // SECURITY: handing out a credential mints it first.
    fn safety(&self, method: &Method) -> Safety {
        match self {
            Self::Forward(path) => safety_in_cluster(method, path.rest, path.query),
            Self::Credential { .. } => Safety::Unsafe,
            Self::List | Self::Agents { .. } | Self::RevokeKey { .. } => Safety::ByMethod,
        }
    }

    async fn serve(
        &self,
        context: RequestContext<'_>,
        request: (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        context.record.note(|record| record.front = "clusters");
        match self {
            Self::List => context.list_clusters(),
            Self::Credential { name } => context.hand_out(name).await,
            Self::Agents { name } => context.show_agents(name).await,
            Self::RevokeKey { name, key } => context.revoke_key(name, *key).await,
            Self::Forward(path) => match context.snapshot.policies.config.clusters {
                ClusterFront::Closed => Err(Denial::not_found()),
                ClusterFront::Open => context.enter_cluster(request, path).await,
            },
        }
    }
}

impl RequestContext<'_> {
    fn list_clusters(&self) -> Result<Response<Body>, Denial> {
        let _held = self.gateway.persons.acquire(self.principal.limit_key())?;
        let caller = self.snapshot.policies.caller(self.principal);
        let seen = visible(&self.snapshot.policies, &self.snapshot.clusters, &caller);
        let items: Vec<ClusterView> = seen.into_iter().map(|access| ClusterView::of(access)).collect();
        Ok(json(serde_json::json!({ "items": items }).to_string()))
    }

    async fn hand_out(self, name: &str) -> Result<Response<Body>, Denial> {
        let (snapshot, principal, record) = (self.snapshot, self.principal, self.record);
        let permit = permit((name, ClusterOperation::Credential), &snapshot, principal, record)?;
        let reauthorization = ClusterReauthorization::new(principal, name, &permit);
        let _guard = self.gateway.open.register(reauthorization, (&snapshot, record.id()))?;
        drop(snapshot);
        let _held = self.gateway.persons.acquire(principal.limit_key())?;
        let access = permit.access();
        let lease = lease(access, record).await?;
        record_credential(record, access, Some(&lease));
        let until = usable_until(access, &lease);
        let document = exec_credential(&lease.credential, until, ExecCredentialVersion::V1).ok_or_else(not_portable)?;
        Ok(json(Bytes::from_owner(document)))
    }

    /// The agents of a cluster that are connected, and the keys by which they are known.
    async fn show_agents(self, name: &str) -> Result<Response<Body>, Denial> {
        let (snapshot, principal, record) = (self.snapshot, self.principal, self.record);
        let permit = permit((name, ClusterOperation::Agents), &snapshot, principal, record)?;
        let _held = self.gateway.persons.acquire(principal.limit_key())?;
        let server = &permit.access().cluster().server;
        let connections = self.gateway.status.agents.statuses(Some(server));
        let in_secret = match permit.access().auth() {
            ClusterAuth::Agent(agent) => agent.keys.as_slice(),
            _ => &[],
        };
        let mut keys: Vec<AgentKeyView> = in_secret.iter().map(AgentKeyView::in_secret).collect();
        if let Some(store) = &self.gateway.store {
            let stored = store.agent_keys().await?;
            let stored = stored.iter().filter(|stored| stored.server == *server);
            keys.extend(stored.map(AgentKeyView::joined));
        }
        Ok(json(
            serde_json::json!({ "connections": connections, "keys": keys }).to_string(),
        ))
    }

    /// Revokes the key of an agent that joined. Its connections end within a second, on every replica.
    async fn revoke_key(self, name: &str, key: AgentKey) -> Result<Response<Body>, Denial> {
        let (snapshot, principal, record) = (self.snapshot, self.principal, self.record);
        let permit = permit((name, ClusterOperation::RevokeKey), &snapshot, principal, record)?;
        let _held = self.gateway.persons.acquire(principal.limit_key())?;
        let store = self.gateway.store.as_ref().ok_or_else(Denial::not_found)?;
        let server = &permit.access().cluster().server;
        let by = Actor {
            user_id: None,
            name: principal.username().to_owned(),
        };
        let details = serde_json::json!({ "key": key.to_string(), "server": server });
        let at = Timestamp::now();
        match store.revoke_agent_key((key, server), at, &by, details).await? {
            true => Ok(json("{}")),
            false => Err(Denial::not_found()),
        }
    }

    /// The stages authorize, credential, headers and forward.
    async fn enter_cluster(
        self,
        (head, body): (request::Parts, Body),
        path: &ClusterPath<'_>,
    ) -> Result<Response<Body>, Denial> {
        let (snapshot, principal, record) = (self.snapshot, self.principal, self.record);
        // SECURITY: without these fields the request would act with the gateway's own permissions,
        // which are more than the caller asked for.
        if let Some(name) = client_impersonates(&head.headers) {
            return Err(cluster_request::client_impersonates(name));
        }
        let cleaned = headers::clean(head)?;
        let attributes = Attributes::read(cleaned.method(), path.rest, path.query, cleaned.upgrade());
        let operation = ClusterOperation::of(cleaned.method(), &attributes);
        let permit = permit((&path.name, operation), &snapshot, principal, record)?;
        let reauthorization = ClusterReauthorization::new(principal, &path.name, &permit);
        let guard = self.gateway.open.register(reauthorization, (&snapshot, record.id()))?;
        drop(snapshot);
        let held = self.gateway.persons.acquire(principal.limit_key())?;
        let cluster_request = ClusterRequest {
            cluster: permit.access(),
            rest: path.rest,
            query: path.query,
            attributes: &attributes,
            identity: RequestIdentity::GatewayCredential,
            client: self.client,
            decision: record.id(),
            expires_at: principal.expires_at(),
            ending: guard.ending(),
        };
        let answered = cluster_request.send((cleaned, body), (held, guard), record).await;
        record.finish_stage(Stage::Forward);
        match answered? {
            // A 401 may be the cluster's response to the gateway's credential. It is passed on
            // without its challenge, which would make clients ask people for a password.
            SendOutcome::ClusterResponse(response) | SendOutcome::CredentialRejected(response) => Ok(response),
        }
    }
}

fn permit(
    request: (&str, ClusterOperation),
    snapshot: &Snapshot,
    principal: &Arc<Principal>,
    record: &mut OpenRecord,
) -> Result<ClusterPermit, Denial> {
    let caller = snapshot.policies.caller(principal);
    let permit = authorize_cluster((&snapshot.policies, &snapshot.clusters), &caller, request, record);
    record.finish_stage(Stage::Authorize);
    Ok(permit?)
}

fn not_portable() -> Denial {
    let text = "this cluster's credential is neither a token nor a client certificate";
    Denial::failed(StatusCode::CONFLICT, "credential_not_portable", text)
}
