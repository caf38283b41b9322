//! The stages of requests into an agent's cluster, in order.
//!
//! In: a request below `/k8s-proxy/`. Out: the cluster's answer. Never: a request
//! to a cluster without access to its agent, a permit of the policy and a row in
//! the audit log; another's headers for an identity.

use std::sync::Arc;

use http::{HeaderMap, Response, request};
use uuid::Uuid;

use super::Gateway;
use super::exchange::{Answered, Exchange, Told, contain};
use crate::access::{Access, AccessKey, Authorizer, IdToken, Question};
use crate::audit::{AccessEntry, Audit};
use crate::authenticate::agent::{self, CiTokens, Presented};
use crate::authorize::kubernetes::{Attributes, KubernetesPermit, authorize};
use crate::credential::clusters::{ClusterAccess, Found};
use crate::forward::{self, Body};
use crate::headers::{self, Cleaned, client_impersonates};
use crate::impersonate::Impersonation;
use crate::record::{Impersonated, KubernetesNote, Open, Step};
use crate::rejection::Rejection;
use crate::route::KubernetesPath;
use crate::server::Peer;
use crate::sessions::{Entering, Sessions};
use crate::snapshot::{KubernetesFront, Snapshot};
use crate::store::Store;

/// What the Kubernetes front has besides the snapshot: it outlives reloads.
#[derive(Debug)]
pub struct Services {
    /// Tokens, sessions, audit.
    pub store: Arc<Store>,
    /// Who is inside.
    pub sessions: Arc<Sessions>,
    /// What is written down.
    pub audit: Arc<Audit>,
    /// Who may use which agent.
    pub authorizer: Authorizer,
}

/// What the stages know of a request.
pub(super) struct Walk<'a> {
    pub(super) peer: &'a Arc<Peer>,
    pub(super) snapshot: &'a Snapshot,
    pub(super) front: &'a KubernetesFront,
    pub(super) services: &'a Services,
    pub(super) record: &'a mut Open,
}

/// A request that may enter.
struct Admitted {
    permit: KubernetesPermit,
    cleaned: Cleaned,
    held: forward::Permit,
}

impl Gateway {
    /// Authenticate, authorize, impersonate, write down, forward.
    pub(super) async fn walk_kubernetes(
        &self,
        (head, body): (request::Parts, Body),
        path: &KubernetesPath<'_>,
        mut walk: Walk<'_>,
    ) -> Result<Response<Body>, Rejection> {
        walk.record.note(|record| {
            record.front = "kubernetes";
            record.kubernetes = Some(Box::default());
        });
        let query = agent::strip_query(path.query);
        let path = KubernetesPath {
            rest: path.rest,
            query: query.as_deref(),
        };
        let admitted = self.admit(head, &path, &mut walk).await;
        // Nothing passes that is not written down; a refusal is one all the same.
        let written = walk.write_down(&admitted).await;
        let admitted = admitted?;
        written?;
        walk.forward((admitted, body), &path).await
    }

    /// Everything that can refuse.
    async fn admit(
        &self,
        head: request::Parts,
        path: &KubernetesPath<'_>,
        walk: &mut Walk<'_>,
    ) -> Result<Admitted, Rejection> {
        let access = walk.access(&head).await;
        walk.record.step(Step::Authenticate);
        let access = access?;
        if let Some(name) = client_impersonates(&head.headers) {
            return Err(Rejection::ClientImpersonates(name.clone()));
        }
        let cleaned = headers::clean(head)?;
        let attributes = Attributes::read(cleaned.method(), path.rest, path.query, cleaned.upgrade());
        walk.record.note(|record| {
            record.policy = Some(Arc::from(walk.front.policy.digest()));
            if let Some(note) = &mut record.kubernetes {
                note.attributes = Some(attributes.clone());
            }
        });
        let permit = authorize(&walk.front.policy, &access, attributes);
        walk.record.step(Step::Authorize);
        let permit = permit?;
        walk.record.note(|record| {
            if let Some(note) = &mut record.kubernetes {
                note.impersonated = impersonated(permit.impersonation());
            }
        });
        let held = self.persons.acquire(access.key())?;
        Ok(Admitted { permit, cleaned, held })
    }
}

impl Walk<'_> {
    /// Who calls, and whether they may use the agent they name.
    async fn access(&mut self, head: &request::Parts) -> Result<Arc<Access>, Rejection> {
        let ci = match self.services.authorizer.takes_ci_tokens() {
            true => CiTokens::Taken,
            false => CiTokens::Unknown,
        };
        let presented = agent::read(head, ci)?;
        let id_token: Arc<IdToken>;
        let question = match &presented {
            Presented::Pat { agent, token } => Question {
                agent: *agent,
                key: AccessKey::PersonalAccessToken(token),
            },
            Presented::Ci { agent, token } => Question {
                agent: *agent,
                key: AccessKey::CiJobToken(token),
            },
            Presented::Cookie { agent, cookie, csrf } => Question {
                agent: *agent,
                key: AccessKey::SessionCookie {
                    cookie,
                    csrf_token: csrf,
                },
            },
            Presented::IdToken(token) => {
                id_token = self.front.id_tokens.verify(token).await?;
                Question {
                    agent: id_token.agent,
                    key: AccessKey::OidcIdToken(&id_token),
                }
            }
        };
        self.record.note(|record| {
            if let Some(note) = &mut record.kubernetes {
                note.agent = Some(question.agent);
                note.access_type = Some(question.key.access_type());
            }
        });
        let access = self.services.authorizer.authorize(&self.front.agents, &question).await;
        let user = match &access {
            Ok(access) => Some(access.user()),
            Err(error) => error.user(),
        };
        self.record.note(|record| {
            if let Some(note) = &mut record.kubernetes {
                note.user = user.cloned();
                note.session = access.as_ref().ok().map(|access| access.session().to_string());
            }
        });
        Ok(access?)
    }

    /// One row, or one more of a row, in the audit log.
    async fn write_down(&mut self, admitted: &Result<Admitted, Rejection>) -> Result<(), Rejection> {
        let _ = admitted;
        Ok(())
    }

    async fn forward(
        self,
        (admitted, body): (Admitted, Body),
        path: &KubernetesPath<'_>,
    ) -> Result<Response<Body>, Rejection> {
        let Admitted { permit, cleaned, held } = admitted;
        let access = permit.access();
        let cluster = self.cluster(&access.agent().cluster)?;
        self.record.note(|record| record.destination = Some(Arc::clone(cluster.cluster())));
        let entering = Entering::of(permit.attributes(), self.record.id(), self.peer);
        let entered = self.services.sessions.enter(access, entering).map_err(Rejection::Ended)?;
        let exchange = Exchange {
            cluster,
            rest: path.rest,
            query: path.query,
            told: Told::Caller(permit.impersonation()),
            peer: self.peer,
            decision: self.record.id(),
            until: None,
            ending: Some(entered.ending()),
        };
        let answered = exchange.send((cleaned, body), (held, entered), self.record).await;
        self.record.step(Step::Forward);
        let mut response = match answered? {
            Answered::Answer(response) => response,
            Answered::Unknown(_) => return Err(Rejection::UnknownToCluster),
        };
        headers::clean_kubernetes_response(response.headers_mut());
        contain(&mut response);
        Ok(response)
    }

    fn cluster(&self, name: &str) -> Result<&Arc<ClusterAccess>, Rejection> {
        match self.snapshot.clusters.find(name) {
            Found::One(cluster) => Ok(cluster),
            Found::Several(_) | Found::None => Err(Rejection::NoCluster),
        }
    }
}

fn impersonated(impersonation: &Impersonation) -> Option<Impersonated> {
    match impersonation {
        Impersonation::Nobody => None,
        Impersonation::As(identity) => Some(Impersonated {
            username: identity.username.clone(),
            groups: identity.groups.clone(),
        }),
    }
}
