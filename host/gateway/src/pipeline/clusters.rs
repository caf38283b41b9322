//! Runs the stages of requests about clusters in order, from the authenticated request and its
//! route to the answer of the cluster or of the gateway.
//!
//! Security: a request reaches a cluster only with a [`ClusterPermit`] and a credential, and a
//! credential is only given to the caller it was requested by.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, request};

use super::exchange::{Answered, Exchange, Told, lease, note_lease};
use super::open::{Question, Shared};
use super::{Gateway, Walk, json};
use crate::authorize::clusters::{ClusterPermit, Wanted, authorize_cluster, authorize_cluster_again, visible};
use crate::front::clusters::ClusterView;
use crate::front::clusters::exec::{Version, exec_credential, usable_until};
use crate::rejection::Rejection;
use crate::route::{ClusterPath, ClusterRoute};
use crate::snapshot::Snapshot;
use tollgate_config::ClusterFront;
use tollgate_core::attributes::Attributes;
use tollgate_identity::authenticate::Principal;
use tollgate_plugin::credential::cache::key::Key;
use tollgate_proxy::forward::Body;
use tollgate_proxy::headers::{self, client_impersonates};
use tollgate_proxy::record::{Open, Step};

/// A permitted request, to be judged again after a change.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ClusterQuestion {
    principal: Shared<Principal>,
    /// The name as the caller gave it.
    name: String,
    wanted: Wanted,
    server: String,
    connection: Key,
}

impl ClusterQuestion {
    fn new(principal: &Arc<Principal>, name: &str, permit: &ClusterPermit) -> Self {
        let access = permit.access();
        Self {
            principal: Shared(Arc::clone(principal)),
            name: name.to_owned(),
            wanted: permit.wanted(),
            server: access.cluster().server.clone(),
            connection: access.connection(),
        }
    }

    /// Whether the request would be permitted, and reach the same cluster in the same way.
    pub(super) fn passes(&self, now: &Snapshot) -> bool {
        let Shared(principal) = &self.principal;
        if !now.authenticator.still(principal) {
            return false;
        }
        let caller = now.callers.of(principal, &now.rbac);
        let permit = authorize_cluster_again(now, &caller, (&self.name, self.wanted));
        permit.is_ok_and(|permit| {
            let access = permit.access();
            access.cluster().server == self.server && access.is_still(self.connection)
        })
    }
}

impl Gateway {
    /// The stages after authentication, for each route about clusters.
    pub(super) async fn walk_cluster(
        &self,
        (head, body): (request::Parts, Body),
        route: &ClusterRoute<'_>,
        walk: Walk<'_>,
    ) -> Result<Response<Body>, Rejection> {
        walk.record.note(|record| record.front = "clusters");
        match route {
            ClusterRoute::List => self.list_clusters(&walk),
            ClusterRoute::Credential { name } => self.hand_out(name, walk).await,
            ClusterRoute::Forward(path) => match walk.snapshot.config.clusters {
                ClusterFront::Closed => Err(Rejection::NotFound),
                ClusterFront::Open => self.enter_cluster((head, body), path, walk).await,
            },
        }
    }

    fn list_clusters(&self, walk: &Walk<'_>) -> Result<Response<Body>, Rejection> {
        let _held = self.persons.acquire(walk.principal.key())?;
        let caller = walk.snapshot.callers.of(walk.principal, &walk.snapshot.rbac);
        let seen = visible(walk.snapshot, &caller);
        let items: Vec<ClusterView> = seen.into_iter().map(|access| ClusterView::of(access)).collect();
        Ok(json(serde_json::json!({ "items": items }).to_string()))
    }

    /// Returns a credential to a caller who is granted it.
    async fn hand_out(&self, name: &str, walk: Walk<'_>) -> Result<Response<Body>, Rejection> {
        let permit = permit((name, Wanted::Credential), walk.snapshot, walk.principal, walk.record)?;
        let question = Question::Cluster(ClusterQuestion::new(walk.principal, name, &permit));
        let _place = self.open.enter(question, (walk.snapshot, walk.record.id()))?;
        let _held = self.persons.acquire(walk.principal.key())?;
        let access = permit.access();
        let lease = lease(access, walk.record).await?;
        note_lease(walk.record, access, &lease);
        let until = usable_until(access, &lease);
        let document = exec_credential(&lease.credential, until, Version::V1).ok_or(Rejection::NotPortable)?;
        let mut response = Response::new(Body::from(Bytes::from_owner(document.as_bytes().to_vec())));
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    /// The stages authorize, credential, headers and forward.
    async fn enter_cluster(
        &self,
        (head, body): (request::Parts, Body),
        path: &ClusterPath<'_>,
        walk: Walk<'_>,
    ) -> Result<Response<Body>, Rejection> {
        let Walk {
            peer,
            snapshot,
            principal,
            record,
        } = walk;
        // SECURITY: without these fields the request would act with the gateway's own rights,
        // which are more than the caller asked for.
        if let Some(name) = client_impersonates(&head.headers) {
            return Err(Rejection::ClientImpersonates(name.clone()));
        }
        let cleaned = headers::clean(head)?;
        let attributes = Attributes::read(cleaned.method(), path.rest, path.query, cleaned.upgrade());
        let wanted = Wanted::of(cleaned.method(), &attributes);
        let permit = permit((&path.name, wanted), snapshot, principal, record)?;
        let question = Question::Cluster(ClusterQuestion::new(principal, &path.name, &permit));
        let place = self.open.enter(question, (snapshot, record.id()))?;
        let held = self.persons.acquire(principal.key())?;
        let exchange = Exchange {
            cluster: permit.access(),
            rest: path.rest,
            query: path.query,
            attributes: &attributes,
            told: Told::Nothing,
            peer,
            decision: record.id(),
            until: principal.expires_at(),
            ending: place.ending(),
        };
        let answered = exchange.send((cleaned, body), (held, place), record).await;
        record.step(Step::Forward);
        match answered? {
            // A 401 may be the cluster's answer to the gateway's credential. It is passed on
            // without its challenge, which would make clients ask people for a password.
            Answered::Answer(response) | Answered::Unknown(response) => Ok(response),
        }
    }
}

fn permit(
    asked: (&str, Wanted),
    snapshot: &Snapshot,
    principal: &Arc<Principal>,
    record: &mut Open,
) -> Result<ClusterPermit, Rejection> {
    let caller = snapshot.callers.of(principal, &snapshot.rbac);
    let permit = authorize_cluster(snapshot, &caller, asked, record);
    record.step(Step::Authorize);
    Ok(permit?)
}
