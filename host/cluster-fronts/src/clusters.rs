//! Runs the stages of requests about clusters in order, from the authenticated request and its
//! route to the response of the cluster or of the gateway.
//!
//! Security: a request reaches a cluster only with a [`ClusterPermit`] and a credential, and a
//! credential is only returned to the caller that requested it.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, Uri, request};
use jiff::Timestamp;

use crate::agent_key_view::AgentKeyView;
use crate::cluster_request;
use crate::cluster_request::{ClusterRequest, RequestIdentity, SendOutcome, lease, record_credential};
use crate::clusters::permit::{ClusterOperation, ClusterPermit, authorize_cluster, visible};
use crate::clusters::route::{ClusterRoute, Endpoint};
use crate::clusters::view::ClusterView;
use tollgate_agent::Connections;
use tollgate_cluster::access::ClusterAccess;
use tollgate_config::{ClusterFront, Config};
use tollgate_core::agent::AgentKey;
use tollgate_core::attributes::Attributes;
use tollgate_credential::cache::key::CredentialKey;
use tollgate_credential::exec::{ExecCredentialVersion, exec_credential};
use tollgate_front::api::json;
use tollgate_front::open_exchanges::Change;
use tollgate_front::path::{Captures, Path, Rest};
use tollgate_front::{
    DecisionInputs, Denial, Front, Lookup, Permitted, RequestContext, Services, Steps, safety_in_cluster, serve_steps,
};
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_objects::ClusterAuth;
use tollgate_proxy::forward::Body;
use tollgate_proxy::headers::{self, CleanedRequest, client_impersonates};
use tollgate_proxy::record::{OpenRecord, Stage};
use tollgate_proxy::target;
use tollgate_store::{Actor, Store};

pub(crate) mod permit;
pub(crate) mod route;
pub(crate) mod view;

/// The front of clusters: their credentials, and requests into them.
#[derive(Debug)]
pub struct ClustersFront {
    agents: Arc<Connections>,
    /// Where agents that joined are remembered; `None` if nothing is stored.
    store: Option<Arc<Store>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Question {
    List,
    /// The cluster's name or server, as the caller wrote it.
    Cluster(String, ClusterOperation),
}

#[derive(Debug)]
pub enum Permit {
    /// The clusters that the caller may see.
    List(Vec<Arc<ClusterAccess>>),
    Cluster(ClusterPermit),
}

/// The cluster, and the connection over which it is reached.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    server: String,
    connection: Option<CredentialKey>,
}

/// What is answered.
#[derive(Debug)]
pub enum Request {
    List,
    Credential,
    Agents,
    RevokeKey(AgentKey),
    Forward(Box<Forwarded>),
}

/// A request to a cluster's API server.
#[derive(Debug)]
pub struct Forwarded {
    cleaned: CleanedRequest,
    attributes: Attributes,
    rest: Rest,
    body: Body,
}

impl Front for ClustersFront {
    const NAME: &'static str = "clusters";
    const PATHS: &'static [Path<Endpoint>] = route::PATHS;

    type Endpoint = Endpoint;
    type Target = ClusterRoute;

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(Some(Self {
            agents: Arc::clone(&services.agents),
            store: services.store.clone(),
        }))
    }

    fn is_open(config: &Config, endpoint: Endpoint) -> bool {
        endpoint != Endpoint::Forward || config.clusters == ClusterFront::Open
    }

    fn target(endpoint: Endpoint, captures: &Captures<'_>, uri: &Uri) -> Result<Option<ClusterRoute>, target::Error> {
        route::read(endpoint, captures, uri)
    }

    async fn serve(
        self: &Arc<Self>,
        target: ClusterRoute,
        context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        serve_steps(self, target, context, head, body).await
    }
}

impl Steps for ClustersFront {
    type Admitted = (Question, Request);
    type Question = Question;
    type Request = Request;
    type Permit = Permit;
    type Terms = Option<Terms>;

    // SECURITY: handing out a credential mints it first.
    fn safety(target: &ClusterRoute, method: &Method) -> Safety {
        match target {
            ClusterRoute::Forward(_, rest) => safety_in_cluster(method, rest.path(), rest.query()),
            ClusterRoute::Credential(_) => Safety::Unsafe,
            ClusterRoute::List | ClusterRoute::Agents(_) | ClusterRoute::RevokeKey(..) => Safety::ByMethod,
        }
    }

    fn admit(
        &self,
        DecisionInputs { now, .. }: DecisionInputs<'_>,
        target: ClusterRoute,
        head: request::Parts,
        _: &mut OpenRecord,
    ) -> Result<Self::Admitted, Denial> {
        let of = |name, operation, request| Ok((Question::Cluster(name, operation), request));
        match target {
            ClusterRoute::List => Ok((Question::List, Request::List)),
            ClusterRoute::Credential(name) => of(name, ClusterOperation::Credential, Request::Credential),
            ClusterRoute::Agents(name) => of(name, ClusterOperation::Agents, Request::Agents),
            ClusterRoute::RevokeKey(name, key) => of(name, ClusterOperation::RevokeKey, Request::RevokeKey(key)),
            ClusterRoute::Forward(..) if !Self::is_open(&now.policies.config, Endpoint::Forward) => {
                Err(Denial::not_found())
            }
            ClusterRoute::Forward(name, rest) => {
                // SECURITY: without these fields the request would act with the gateway's own permissions,
                // which are more than the caller asked for.
                if let Some(name) = client_impersonates(&head.headers) {
                    return Err(cluster_request::client_impersonates(name));
                }
                let cleaned = headers::clean(head)?;
                let attributes = Attributes::read(cleaned.method(), rest.path(), rest.query(), cleaned.upgrade());
                let operation = ClusterOperation::of(cleaned.method(), &attributes);
                let forwarded = Forwarded {
                    cleaned,
                    attributes,
                    rest,
                    // `read` puts the content in: the head is judged without it.
                    body: Body::empty(),
                };
                of(name, operation, Request::Forward(Box::new(forwarded)))
            }
        }
    }

    async fn read(
        &self,
        _: &mut Lookup<'_>,
        (question, mut request): Self::Admitted,
        body: Body,
    ) -> Result<(Question, Request), Denial> {
        if let Request::Forward(forwarded) = &mut request {
            forwarded.body = body;
        }
        Ok((question, request))
    }

    fn authorize(
        &self,
        DecisionInputs { now, caller }: DecisionInputs<'_>,
        question: &Question,
        record: Option<&mut OpenRecord>,
    ) -> Result<Permit, Denial> {
        Ok(match question {
            Question::List => Permit::List(visible(&now.policies, &now.clusters, caller)),
            Question::Cluster(name, operation) => {
                let (policies, clusters) = (&now.policies, &now.clusters);
                Permit::Cluster(authorize_cluster(policies, clusters, caller, name, *operation, record)?)
            }
        })
    }

    fn terms(permit: &Permit) -> Option<Terms> {
        match permit {
            // Each cluster is judged by itself, and the answer is made at once.
            Permit::List(_) => None,
            Permit::Cluster(permit) => Some(Terms {
                server: permit.access().cluster().server.clone(),
                connection: permit.access().usable_connection(),
            }),
        }
    }

    fn inputs_unchanged(change: &Change<'_>) -> bool {
        change.same_permissions() && change.same_clusters()
    }

    async fn answer(
        &self,
        permitted: Permitted<'_>,
        permit: Permit,
        request: Request,
    ) -> Result<Response<Body>, Denial> {
        let Permitted {
            client,
            principal,
            record,
            snapshot,
            guard,
            held,
        } = permitted;
        drop(snapshot);
        let (forwarded, permit) = match (request, permit) {
            (Request::List, Permit::List(seen)) => return Ok(list(&seen)),
            (Request::Credential, Permit::Cluster(permit)) => {
                let document = hand_out(&permit, record).await?;
                // SECURITY: minting takes seconds, in which access may have ended.
                guard.check()?;
                return Ok(document);
            }
            (Request::Agents, Permit::Cluster(permit)) => return self.show_agents(&permit).await,
            (Request::RevokeKey(key), Permit::Cluster(permit)) => {
                return self.revoke_key(&permit, key, principal).await;
            }
            (Request::Forward(forwarded), Permit::Cluster(permit)) => (*forwarded, permit),
            // The question of a list is one about all clusters, and every other about one.
            (Request::List, Permit::Cluster(_)) | (_, Permit::List(_)) => return Err(Denial::not_found()),
        };
        let Forwarded {
            cleaned,
            attributes,
            rest,
            body,
        } = forwarded;
        let cluster_request = ClusterRequest {
            cluster: permit.access(),
            rest: rest.path(),
            query: rest.query(),
            attributes: &attributes,
            identity: RequestIdentity::GatewayCredential,
            client,
            decision: record.id(),
            expires_at: principal.expires_at(),
            ending: guard.ending(),
        };
        let answered = cluster_request.send(cleaned, body, (held, guard), record).await;
        record.finish_stage(Stage::Forward);
        match answered? {
            // A 401 may be the cluster's response to the gateway's credential. It is passed on
            // without its challenge, which would make clients ask people for a password.
            SendOutcome::ClusterResponse(response) | SendOutcome::CredentialRejected(response) => Ok(response),
        }
    }
}

fn list(seen: &[Arc<ClusterAccess>]) -> Response<Body> {
    let items: Vec<ClusterView> = seen.iter().map(|access| ClusterView::of(access)).collect();
    json(serde_json::json!({ "items": items }).to_string())
}

async fn hand_out(permit: &ClusterPermit, record: &mut OpenRecord) -> Result<Response<Body>, Denial> {
    let access = permit.access();
    let lease = lease(access, record).await?;
    record_credential(record, access, Some(&lease));
    let until = access.usable_until(&lease);
    let document = exec_credential(&lease.credential, until, ExecCredentialVersion::V1).ok_or_else(not_portable)?;
    Ok(json(Bytes::from_owner(document)))
}

impl ClustersFront {
    /// The agents of a cluster that are connected, and the keys by which they are known.
    async fn show_agents(&self, permit: &ClusterPermit) -> Result<Response<Body>, Denial> {
        let server = &permit.access().cluster().server;
        let connections = self.agents.statuses(Some(server));
        let in_secret = match permit.access().auth() {
            ClusterAuth::Agent(agent) => agent.keys.as_slice(),
            _ => &[],
        };
        let mut keys: Vec<AgentKeyView> = in_secret.iter().map(AgentKeyView::in_secret).collect();
        if let Some(store) = &self.store {
            let stored = store.agent_keys().await?;
            let stored = stored.iter().filter(|stored| stored.server == *server);
            keys.extend(stored.map(AgentKeyView::joined));
        }
        Ok(json(
            serde_json::json!({ "connections": connections, "keys": keys }).to_string(),
        ))
    }

    /// Revokes the key of an agent that joined. Its connections end within a second, on every replica.
    async fn revoke_key(
        &self,
        permit: &ClusterPermit,
        key: AgentKey,
        principal: &Principal,
    ) -> Result<Response<Body>, Denial> {
        let store = self.store.as_ref().ok_or_else(Denial::not_found)?;
        let server = &permit.access().cluster().server;
        let by = Actor {
            user_id: None,
            name: principal.username().to_owned(),
        };
        let details = serde_json::json!({ "key": key.to_string(), "server": server });
        let at = Timestamp::now();
        match store.revoke_agent_key(key, server, at, &by, details).await? {
            true => Ok(json("{}")),
            false => Err(Denial::not_found()),
        }
    }
}

fn not_portable() -> Denial {
    let text = "this cluster's credential is neither a token nor a client certificate";
    Denial::failed(StatusCode::CONFLICT, "credential_not_portable", text)
}
