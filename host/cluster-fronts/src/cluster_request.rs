//! Sends one permitted request to a cluster, with the gateway's credential for it, and tries once
//! more with another credential where that is safe.
//!
//! Invariant: a request that may have had an effect is never sent twice.
//!
//! Security: a 401 of the cluster to the gateway's credential is kept apart from other responses, so that no
//! front passes on its challenge.

use http::HeaderName;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use http_body::Body as _;
use jiff::Timestamp;
use tokio::time::timeout;
use uuid::Uuid;

use tollgate_cluster::access::ClusterAccess;
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::with_causes;
use tollgate_credential::cache::Lease;
use tollgate_front::Denial;
use tollgate_identity::sessions::EndSignal;
use tollgate_policy::impersonate::Impersonation;
use tollgate_proxy::forward::{self, Body};
use tollgate_proxy::headers::{self, CleanedRequest, Outbound, Upstream};
use tollgate_proxy::record::{CredentialNote, OpenRecord, Stage};
use tollgate_proxy::server::Client;
use tollgate_proxy::target;

/// Longest wait for a cluster's response head. An API server gives up its own short requests after
/// 60 s and sends the head of a watch at once.
const RESPONSE_HEAD_TIMEOUT: Duration = Duration::from_secs(90);

pub(crate) enum RequestIdentity<'a> {
    /// The gateway's own, without impersonation.
    GatewayCredential,
    /// The impersonated identity. The request also carries the id that both audit logs share.
    Impersonated(&'a Impersonation),
}

/// A request to a cluster that lacks only its credential.
pub(crate) struct ClusterRequest<'a> {
    pub(crate) cluster: &'a ClusterAccess,
    /// The part after the cluster's URL, encoded as the client sent it.
    pub(crate) rest: &'a str,
    pub(crate) query: Option<&'a str>,
    /// Its verb and object, as Kubernetes reads them.
    pub(crate) attributes: &'a Attributes,
    pub(crate) identity: RequestIdentity<'a>,
    pub(crate) client: &'a Arc<Client>,
    pub(crate) decision: Uuid,
    /// When the caller's credential expires.
    pub(crate) expires_at: Option<Timestamp>,
    /// Signal that terminates the exchange for any other reason.
    pub(crate) ending: EndSignal,
}

pub(crate) enum SendOutcome {
    ClusterResponse(Response<Body>),
    /// A 401 of the cluster to the gateway's credential. It says nothing about the caller's
    /// credential.
    CredentialRejected(Response<Body>),
}

impl ClusterRequest<'_> {
    /// Gets a credential and sends the request. If the cluster does not accept the credential and
    /// the request only reads, sends it once more with another credential.
    ///
    /// SECURITY: a 401 may come from behind the API server, from an aggregated one or a webhook
    /// that has already had an effect. A request that may have an effect is therefore sent once.
    /// Its 401 is passed on, and the next request gets another credential.
    ///
    /// - `held`: dropped when the response's content or the tunnel has ended.
    pub(crate) async fn send<H: Send + Sync + 'static>(
        &self,
        cleaned: CleanedRequest,
        body: Body,
        held: H,
        record: &mut OpenRecord,
    ) -> Result<SendOutcome, Denial> {
        let lease = lease(self.cluster, record).await?;
        let held = Arc::new(held);
        let only_reads = self.attributes.is_plain_read(cleaned.method()) && body.is_end_stream();
        // Content is gone once it was sent, so a request that has any is sent once.
        let retry = only_reads.then(|| cleaned.clone());
        record_credential(record, self.cluster, Some(&lease));
        let generation = lease.generation;
        let first = self.attempt(cleaned, body, &lease, &held, record).await?;
        // A response from behind the API server's own proxy says nothing about the gateway's
        // credential.
        if first.status() != StatusCode::UNAUTHORIZED || self.attributes.is_proxied() {
            return Ok(SendOutcome::ClusterResponse(first));
        }
        let Some(cleaned) = retry else {
            self.cluster.report_unauthorized(generation).await;
            return Ok(SendOutcome::CredentialRejected(first));
        };
        let Some(lease) = self.cluster.lease_after_unauthorized(generation).await else {
            return Ok(SendOutcome::CredentialRejected(first));
        };
        // Its content is never read, and would hold a connection until then.
        drop(first);
        record_credential(record, self.cluster, Some(&lease));
        note_credential(record, |credential| credential.replayed = true);
        let second = self.attempt(cleaned, Body::empty(), &lease, &held, record).await?;
        Ok(if second.status() == StatusCode::UNAUTHORIZED {
            SendOutcome::CredentialRejected(second)
        } else {
            SendOutcome::ClusterResponse(second)
        })
    }

    async fn attempt<H: Send + Sync + 'static>(
        &self,
        cleaned: CleanedRequest,
        mut body: Body,
        lease: &Lease,
        held: &Arc<H>,
        record: &mut OpenRecord,
    ) -> Result<Response<Body>, Denial> {
        // The content may go on after the response has ended.
        body.hold(Arc::clone(held));
        let switches = cleaned.upgrade().is_some();
        let connections = self.cluster.backend().ok_or_else(Denial::not_found)?;
        let backend = connections
            .for_credential(lease)
            .map_err(|error| unusable_certificate(&error))?;
        let mut outbound = self.seal(cleaned, &backend.upstream, lease)?;
        outbound.hold(Arc::clone(held));
        outbound.expire_with_credential(self.expires_at, self.decision);
        outbound.terminate_on(self.ending.clone());
        record.finish_stage(Stage::Headers);
        let sending = backend.forward(outbound, body);
        let answered = match follows_log(self.rest, self.query) {
            true => Ok(sending.await),
            false => timeout(RESPONSE_HEAD_TIMEOUT, sending).await,
        };
        let mut response = answered.unwrap_or(Err(forward::Error::ExchangeTimeout(RESPONSE_HEAD_TIMEOUT)))?;
        headers::restrict_cluster_response(response.headers_mut());
        match switches {
            true => check_upgrade_response(response),
            false => Ok(response),
        }
    }

    fn seal(&self, cleaned: CleanedRequest, upstream: &Arc<Upstream>, lease: &Lease) -> Result<Outbound, Denial> {
        let path = target::join(&upstream.base, self.rest, self.query)?;
        Ok(match self.identity {
            RequestIdentity::GatewayCredential => {
                cleaned.seal_for_cluster(upstream, path, &lease.credential, self.decision, self.client)?
            }
            RequestIdentity::Impersonated(impersonation) => cleaned.seal_for_kubernetes(
                upstream,
                path,
                &lease.credential,
                impersonation,
                self.decision,
                self.client,
            )?,
        })
    }
}

/// Checks the response to a request to switch protocols: it must be the switch, or an error.
// SECURITY: a redirect of an upgrade would lead a client, and its credential, to wherever a
// kubelet says (CVE-2020-8559).
fn check_upgrade_response(response: Response<Body>) -> Result<Response<Body>, Denial> {
    let status = response.status();
    if status == StatusCode::SWITCHING_PROTOCOLS || status.as_u16() >= 400 {
        Ok(response)
    } else {
        Err(forward::Error::UpgradeRefused(status).into())
    }
}

/// Whether the response begins with the first line of a log, however late that line comes.
fn follows_log(rest: &str, query: Option<&str>) -> bool {
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    // As kube-apiserver reads a boolean of a query: everything else is true, also an empty value.
    rest.ends_with("/log") && pairs.any(|(name, value)| name == "follow" && value != "false" && value != "0")
}

/// The certificate with which a cluster would be entered cannot be used.
fn unusable_certificate(error: &forward::BuildError) -> Denial {
    let text = "the cluster's certificate cannot be used";
    let mut denial = Denial::failed(StatusCode::BAD_GATEWAY, "credential_unavailable", text);
    denial.code = Some("config.certificate".to_owned());
    denial.with_detail(format!("{text}: {}", with_causes(error)))
}

/// The cluster answered 401 to every credential of the gateway's.
pub(crate) fn cluster_unauthorized() -> Denial {
    let text = "the cluster refused the gateway's own credential";
    Denial::failed(StatusCode::BAD_GATEWAY, "credential_refused", text)
}

/// There is not exactly one cluster of the name that an agent or Application has.
pub(crate) fn unknown_cluster() -> Denial {
    Denial::failed(
        StatusCode::BAD_GATEWAY,
        "cluster_unknown",
        "the agent's cluster is not known",
    )
}

/// The client names whom to act as, which only the gateway does.
pub(crate) fn client_impersonates(field: &HeaderName) -> Denial {
    let text =
        format!("impersonation by the client is not allowed here: remove `{field}` (`kubectl --as` and its like)");
    Denial::denied(StatusCode::BAD_REQUEST, "client_impersonates", text)
}

/// Runs the credential stage. Records the class and code of a failure.
pub(crate) async fn lease(access: &ClusterAccess, record: &mut OpenRecord) -> Result<Lease, Denial> {
    access.lease().await.map_err(|error| {
        record_credential(record, access, None);
        note_credential(record, |credential| {
            credential.failure = Some(format!("{} {}", error.class().as_ref(), error.code()));
        });
        error.into()
    })
}

/// Records the credential of a cluster; `lease` is `None` if there is none.
pub(crate) fn record_credential(record: &mut OpenRecord, access: &ClusterAccess, lease: Option<&Lease>) {
    record.note(|record| {
        record.credential = Some(CredentialNote {
            provider: Arc::clone(&access.provider),
            generation: lease.map_or(0, |lease| lease.generation),
            failure: None,
            replayed: false,
        });
    });
}

fn note_credential(record: &mut OpenRecord, change: impl FnOnce(&mut CredentialNote)) {
    record.note(|record| {
        if let Some(credential) = &mut record.credential {
            change(credential);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::follows_log;

    #[test]
    fn only_followed_logs_may_stay_silent() {
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
