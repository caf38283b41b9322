//! The stages of requests about clusters, in order.
//!
//! In: an authenticated request and its route. Out: the cluster's answer, or the
//! gateway's own. Never: a request to a cluster without a [`ClusterPermit`] and a
//! credential; a credential given to somebody it was not asked for by.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode, request};
use tokio::time::timeout;

use super::{Gateway, json};
use crate::authenticate::Principal;
use crate::authorize::clusters::{ClusterPermit, Wanted, authorize_cluster, visible};
use crate::config::ClusterFront;
use crate::credential::cache::Lease;
use crate::credential::clusters::ClusterAccess;
use crate::forward::{self, Body, Gathered};
use crate::front::clusters::ClusterView;
use crate::front::clusters::exec::{Version, exec_credential, usable_until};
use crate::headers::{self, Cleaned};
use crate::record::{CredentialNote, Open, Step};
use crate::rejection::Rejection;
use crate::route::{self, ClusterPath, ClusterRoute};
use crate::server::Peer;
use crate::snapshot::Snapshot;

/// Longest content that is kept for a second try, in bytes.
const REPLAYED_BYTES: u64 = 64 * 1024;

/// Longest wait for a cluster's response head. An API server gives up its own
/// short requests after 60 s and begins to answer watches at once.
const HEAD_WITHIN: Duration = Duration::from_secs(90);

/// What the stages know of a request.
pub(super) struct Walk<'a> {
    pub(super) peer: &'a Arc<Peer>,
    pub(super) snapshot: &'a Snapshot,
    pub(super) principal: &'a Arc<Principal>,
    pub(super) record: &'a mut Open,
}

/// A request to a cluster that is ready but for its credential.
struct Ready<'a> {
    permit: &'a ClusterPermit,
    path: &'a ClusterPath<'a>,
    principal: &'a Principal,
    peer: &'a Arc<Peer>,
    decision: uuid::Uuid,
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

    /// Gives a credential to a caller who is granted it.
    async fn hand_out(&self, name: &str, walk: Walk<'_>) -> Result<Response<Body>, Rejection> {
        let permit = permit((name, Wanted::Credential), walk.snapshot, walk.principal, walk.record)?;
        let _held = self.persons.acquire(walk.principal.key())?;
        let access = permit.access();
        let lease = lease(access, walk.record).await?;
        note(walk.record, access, Some(&lease), Tries::One);
        let until = usable_until(access, &lease);
        let document = exec_credential(&lease.credential, until, Version::V1).ok_or(Rejection::NotPortable)?;
        let mut response = Response::new(Body::from(Bytes::from_owner(document.as_bytes().to_vec())));
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }

    /// Authorize, credential, headers, forward.
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
        let cleaned = headers::clean(head)?;
        let wanted = Wanted::of(cleaned.method(), cleaned.upgrade().is_some());
        let permit = permit((&path.name, wanted), snapshot, principal, record)?;
        let held = self.persons.acquire(principal.key())?;
        let lease = lease(permit.access(), record).await?;
        let ready = Ready {
            permit: &permit,
            path,
            principal,
            peer,
            decision: record.id(),
        };
        let forwarded = ready.send((cleaned, body), (lease, held), record).await;
        record.step(Step::Forward);
        forwarded.map(|mut response| {
            contain(&mut response);
            response
        })
    }
}

/// How often a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tries {
    One,
    Two,
}

impl Ready<'_> {
    /// Sends the request, and once more with another credential when the
    /// cluster does not know the first and the request can be sent again.
    async fn send(
        &self,
        (cleaned, body): (Cleaned, Body),
        (lease, held): (Lease, forward::Permit),
        record: &mut Open,
    ) -> Result<Response<Body>, Rejection> {
        let access = self.permit.access();
        let held = Arc::new(held);
        let (body, again) = match body.gather(REPLAYED_BYTES).await? {
            Gathered::Whole(bytes) => (Body::from(bytes.clone()), Some((cleaned.clone(), bytes))),
            Gathered::Stream(body) => (body, None),
        };
        note(record, access, Some(&lease), Tries::One);
        let generation = lease.generation;
        let first = self.attempt((cleaned, body), (&lease, &held), record).await?;
        // What answers behind the API server's own proxy says nothing of the
        // gateway's credential.
        if first.status() != StatusCode::UNAUTHORIZED || is_proxied(self.path.rest) {
            return Ok(first);
        }
        let Some((cleaned, bytes)) = again else {
            access.note_refused(generation).await;
            return Ok(unchallenged(first));
        };
        let Some(lease) = access.refused(generation).await else {
            return Ok(unchallenged(first));
        };
        drop(first);
        note(record, access, Some(&lease), Tries::Two);
        let second = self
            .attempt((cleaned, Body::from(bytes)), (&lease, &held), record)
            .await?;
        Ok(unchallenged(second))
    }

    async fn attempt(
        &self,
        (cleaned, body): (Cleaned, Body),
        (lease, held): (&Lease, &Arc<forward::Permit>),
        record: &mut Open,
    ) -> Result<Response<Body>, Rejection> {
        let connections = self.permit.access().backend().ok_or(Rejection::NotFound)?;
        let backend = connections.for_credential(lease).map_err(Rejection::Unreachable)?;
        let upstream = backend.upstream();
        let path = route::join(upstream.base(), self.path.rest, self.path.query)?;
        let mut outbound = cleaned.seal_for_cluster((upstream, path), &lease.credential, self.peer)?;
        outbound.hold(Arc::clone(held));
        outbound.end_with(self.principal.expires_at(), self.decision);
        record.step(Step::Headers);
        let sending = backend.forward(outbound, body);
        if follows_log(self.path.rest, self.path.query) {
            return Ok(sending.await?);
        }
        let answered = timeout(HEAD_WITHIN, sending).await;
        Ok(answered.unwrap_or(Err(forward::Error::Total { allowed: HEAD_WITHIN }))?)
    }
}

/// Takes from an answer what would make it more than data in a browser: any pod
/// can be behind a cluster's path, and the gateway's origin has cookies.
fn contain(response: &mut Response<Body>) {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return;
    }
    let fields = response.headers_mut();
    fields.remove(SET_COOKIE);
    fields.remove("service-worker-allowed");
    fields.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Whether a pod, service or node answers, not the API server. An encoded
/// letter changes nothing.
fn is_proxied(rest: &str) -> bool {
    let decoded = percent_encoding::percent_decode_str(rest).decode_utf8_lossy();
    decoded.split('/').any(|segment| segment == "proxy")
}

/// Whether the answer begins with the first line of a log, whenever that comes.
fn follows_log(rest: &str, query: Option<&str>) -> bool {
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    rest.ends_with("/log") && pairs.any(|(name, value)| name == "follow" && value != "false" && value != "0")
}

/// A 401 that is the cluster's word about the gateway's credential, not the
/// gateway's about the caller's: it passes without its challenge, which would
/// make clients ask people for another password.
fn unchallenged(mut response: Response<Body>) -> Response<Body> {
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().remove(WWW_AUTHENTICATE);
    }
    response
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

/// The credential stage: a failure is in the record with its class and code.
async fn lease(access: &ClusterAccess, record: &mut Open) -> Result<Lease, Rejection> {
    access.lease().await.map_err(|error| {
        note(record, access, None, Tries::One);
        record.note(|record| {
            if let Some(credential) = &mut record.credential {
                credential.failure = Some(format!("{} {}", error.class().as_str(), error.code()));
            }
        });
        Rejection::Credential(error)
    })
}

fn note(record: &mut Open, access: &ClusterAccess, lease: Option<&Lease>, tries: Tries) {
    record.note(|record| {
        record.credential = Some(CredentialNote {
            provider: Arc::clone(access.provider()),
            generation: lease.map_or(0, |lease| lease.generation),
            failure: None,
            replayed: tries == Tries::Two,
        });
    });
}

#[cfg(test)]
mod tests {
    use super::{follows_log, is_proxied};

    #[test]
    fn what_answers_behind_the_api_server_is_told_by_its_path() {
        for (rest, proxied) in [
            ("/api/v1/namespaces/n/services/s/proxy/login", true),
            ("/api/v1/nodes/n/%70roxy/metrics", true),
            ("/api/v1/namespaces/n/pods/p/proxy", true),
            ("/api/v1/namespaces/proxy-tools/pods", false),
            ("/api/v1/namespaces", false),
            ("", false),
        ] {
            assert_eq!(is_proxied(rest), proxied, "{rest}");
        }
    }

    #[test]
    fn a_log_that_is_followed_may_stay_silent() {
        let log = "/api/v1/namespaces/n/pods/p/log";
        for (rest, query, follows) in [
            (log, Some("follow=true&tailLines=0"), true),
            (log, Some("container=c&follow=1"), true),
            (log, Some("follow=false"), false),
            (log, None, false),
            ("/api/v1/namespaces/n/pods", Some("follow=true"), false),
        ] {
            assert_eq!(follows_log(rest, query), follows, "{rest} {query:?}");
        }
    }
}
