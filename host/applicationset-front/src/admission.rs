//! The admission webhook: judges writes of ApplicationSets, Applications and AppProjects for the API
//! server of the control plane's cluster, however they are written: by kubectl, by Argo CD's
//! controllers, or from Git.
//!
//! `/admission` is for a `ValidatingWebhookConfiguration`, `/admission/author` for a
//! `MutatingWebhookConfiguration` that adds who wrote an ApplicationSet. Both answer 200 with an
//! `AdmissionReview` of `admission.k8s.io/v1`, also if they refuse, or cannot judge what is reviewed.
//! What is no review gets 400, 404, 405, 413 or 503.
//!
//! Every review has one decision record. It names who wrote, the object, and the author or the parent
//! Application by whose rights it was judged.
//!
//! Security: the API server vouches for the writer within the review. Any other client that reaches the
//! listener learns what a user may write, so keep it for API servers. Nothing is signed unless they
//! authenticate with a client certificate: anyone who could send a review could sign for anybody. A
//! failure refuses.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode, request};
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, ConvertAdmissionReviewError};
use kube::core::response::StatusSummary;
use kube::core::{DynamicObject, TypeMeta};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::admission::author::AuthorPatch;
use crate::admission::judge::{Judge, Refusal};
use crate::admission::review::WrittenObject;
use tollgate_config::{Admission, AdmissionMode, AdmissionTls};
use tollgate_front::request_record::open_record;
use tollgate_front::snapshot::{CurrentSnapshot, Snapshot};
use tollgate_identity::clock::Clock;
use tollgate_proxy::forward::{self, Body};
use tollgate_proxy::metrics::Metrics;
use tollgate_proxy::record::{OpenRecord, Outcome, Recorder, Stage};
use tollgate_proxy::server::{Certificates, Client, Handler, HandshakeFailure, Limits};
use tollgate_runtime::followed;
use tollgate_state::source::Source;

mod author;
mod certificate;
mod changes;
mod judge;
mod operation;
pub mod review;
mod stored_sets;

pub use stored_sets::StoredSets;

/// Longest review that is read, in bytes: an object and its predecessor, each of at most the 3 MiB of
/// a request to kube-apiserver, with what JSON adds.
const CONTENT_BYTES: u64 = 8 << 20;

/// Bytes of all reviews that are read or judged at a time.
const TOTAL_BYTES: usize = 24 << 20;

/// Most values and keys of a review, whose memory is a multiple of their bytes.
const MAX_VALUES: usize = 1_000_000;

/// Time for the whole of a review. API servers wait ten seconds for the answer.
const READ_TIME_LIMIT: Duration = Duration::from_secs(5);

/// Connections at once, of which one address has half. API servers keep one each.
const CONNECTIONS: usize = 64;

/// Reviews at once in a connection.
const STREAMS: u32 = 32;

const VALIDATE: &str = "/admission";
const ADD_AUTHOR: &str = "/admission/author";

/// Answers the API server.
#[derive(Debug)]
pub struct AdmissionHandler {
    /// What decides.
    pub current: CurrentSnapshot,
    /// Records each review.
    pub recorder: Arc<Recorder>,
    /// Counts each review.
    pub metrics: Arc<Metrics>,
    /// The sets as they are stored.
    pub sets: Arc<StoredSets>,
    /// Wall time.
    pub clock: Clock,
    /// Bounds the bytes of all reviews at once.
    pub memory: ReviewMemory,
}

/// The memory for all reviews: a permit a byte.
#[derive(Debug)]
pub struct ReviewMemory(Arc<Semaphore>);

impl Default for ReviewMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(TOTAL_BYTES)))
    }
}

/// Why a request is no review. Each text is for who set up the webhook.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("the webhook is at `{VALIDATE}` and `{ADD_AUTHOR}`")]
    Path,
    #[error("a review is sent by POST")]
    Method,
    #[error("the review cannot be received: {0}")]
    Content(forward::Error),
    #[error("the review did not arrive within {READ_TIME_LIMIT:?}, or others take all {TOTAL_BYTES} bytes for reviews")]
    Overloaded,
    #[error("the review has {observed} values or more, at most {MAX_VALUES} are allowed")]
    Values { observed: usize },
    #[error("this is no `AdmissionReview` of `admission.k8s.io/v1` with a request: {0}")]
    Review(String),
    #[error("the settings have no section `admission`")]
    Off,
    #[error(
        "authors are signed only for API servers with a client certificate: set \
         `admission.clientCertificateAuthority`"
    )]
    Unauthenticated,
}

impl RequestError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Path | Self::Off | Self::Unauthenticated => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Content(error) => error.status(),
            Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Values { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Review(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// Reads the certificate of the listener, or makes it if the gateway is to do so.
///
/// # Errors
/// A file that cannot be used, or a right that is missing in the cluster.
pub async fn certificates(
    settings: &Admission,
    source: &Arc<dyn Source>,
    namespace: &str,
    clock: &Clock,
    helpers: &mut JoinSet<()>,
) -> anyhow::Result<Arc<Certificates>> {
    let clients = settings.client_certificate_authority.as_deref();
    let managed = match &settings.tls {
        AdmissionTls::Files(files) => {
            let certificates = Arc::new(Certificates::load(files.clone(), clients)?);
            followed::register("admission.tls", &certificates);
            return Ok(certificates);
        }
        AdmissionTls::Managed(managed) => managed,
    };
    let started = certificate::start(managed, source, namespace, clients, clock.clone(), helpers);
    started.await.context("`admission.tls.secret`")
}

/// The bounds of the listener. The only clients are API servers, but anybody may be able to connect.
pub fn limits(limits: &tollgate_config::RequestLimits, drain: Duration) -> Limits {
    Limits {
        body_bytes: CONTENT_BYTES,
        body_idle: READ_TIME_LIMIT,
        streams: STREAMS,
        connections: limits.connections.min(CONNECTIONS),
        connections_per_address: limits.connections_per_address.min(CONNECTIONS / 2),
        ..Limits::new(limits, drain)
    }
}

impl Handler for AdmissionHandler {
    fn on_failed_handshake(&self, failure: HandshakeFailure) {
        self.metrics.load.count_failed_handshake("admission", failure);
    }

    async fn handle(&self, request: Request<Body>, client: &Arc<Client>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let snapshot = self.current.load_full();
        let mut record = open_record(&self.recorder, Some(&head), client, &snapshot);
        record.note(|record| record.front = "admission");
        let settings = snapshot.policies.config.admission.as_ref();
        if settings.is_some_and(|settings| settings.client_certificate_authority.is_some()) {
            // Nobody gets here without a certificate then. Connections of others give way to this one.
            client.mark_authenticated();
        }
        let answered = AssertUnwindSafe(self.answer(&head, body, &snapshot, &mut record))
            .catch_unwind()
            .await;
        match answered {
            Ok(Ok((outcome, reason, response))) => {
                record.close(outcome, StatusCode::OK, reason);
                json(&response)
            }
            Ok(Err(error)) => {
                let text = error.to_string();
                record.note(|record| record.detail.clone_from(&text));
                record.close(Outcome::Denied, error.status(), "no_review");
                let mut response = Response::new(Body::from(format!("{text}\n")));
                *response.status_mut() = error.status();
                response
            }
            Err(_) => {
                record.close(Outcome::Failed, StatusCode::INTERNAL_SERVER_ERROR, "panicked");
                let mut response = Response::new(Body::from("the review failed\n"));
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response
            }
        }
    }
}

type Answer = (Outcome, &'static str, AdmissionReview<DynamicObject>);

impl AdmissionHandler {
    async fn answer(
        &self,
        head: &request::Parts,
        body: Body,
        snapshot: &Arc<Snapshot>,
        record: &mut OpenRecord,
    ) -> Result<Answer, RequestError> {
        let adds_author = match head.uri.path() {
            VALIDATE => false,
            ADD_AUTHOR => true,
            _ => return Err(RequestError::Path),
        };
        if head.method != Method::POST {
            return Err(RequestError::Method);
        }
        // The share of the memory is held until the answer.
        let (content, _share) = self.receive(body).await?;
        let settings = snapshot.policies.config.admission.as_ref().ok_or(RequestError::Off)?;
        if adds_author && settings.client_certificate_authority.is_none() {
            return Err(RequestError::Unauthenticated);
        }
        let incomplete = |why: String| Err(Refusal::new("object_incomplete", format!("it cannot be judged: {why}")));
        let request = match read(&content) {
            Ok(request) => request,
            Err(error) => {
                // Answered as a review rather than by an HTTP error, so that mode `audit` can let it pass with a
                // warning.
                let response = unread_response(&content).ok_or(error)?;
                let why = "an object in it cannot be read".to_owned();
                return Ok(self.conclude(settings, response, incomplete(why), record));
            }
        };
        let mut response = AdmissionResponse::from(&request);
        let object = match WrittenObject::read(&request) {
            Ok(object) => object,
            // The validating webhook is asked once there is a name.
            Err(_) if adds_author => return Ok((Outcome::Allowed, "author_kept", response.into_review())),
            Err(why) => return Ok(self.conclude(settings, response, incomplete(why), record)),
        };
        let Some(object) = object else {
            let text = "Tollgate judges ApplicationSets, Applications and AppProjects only".to_owned();
            response.warnings = Some(vec![text]);
            return Ok((Outcome::Allowed, "kind_not_judged", response.into_review()));
        };
        let judge = Judge::new(&self.current, &self.sets, snapshot, settings);
        let writer = judge.writer(&request.user_info);
        record.note(|record| {
            record.principal = Some(Arc::clone(&writer.principal));
            record.notes.extend(object.notes());
        });
        record.finish_stage(Stage::Authenticate);
        if adds_author {
            let patch = AuthorPatch::of(&judge, &writer, &object, self.clock.unix_seconds()).await;
            let response = match patch.apply(response) {
                Ok(response) => response,
                Err(error) => return Err(RequestError::Review(error.to_string())),
            };
            return Ok((Outcome::Allowed, patch.reason(), response.into_review()));
        }
        let judged = judge.judge(&writer, &object, record).await;
        record.finish_stage(Stage::Authorize);
        Ok(self.conclude(settings, response, judged, record))
    }

    async fn receive(&self, body: Body) -> Result<(Bytes, OwnedSemaphorePermit), RequestError> {
        let received = timeout(READ_TIME_LIMIT, body.buffer_within(CONTENT_BYTES, &self.memory.0)).await;
        let received = received.map_err(|_| {
            self.metrics.admission_overloaded.inc();
            RequestError::Overloaded
        })?;
        let (content, share) = received.map_err(RequestError::Content)?;
        // Counted in the text, before a parser allocates values. The same bytes within texts count as well.
        let starts = content.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{'));
        match starts.count() {
            observed if observed > MAX_VALUES => Err(RequestError::Values { observed }),
            _ => Ok((content, share)),
        }
    }

    fn conclude(
        &self,
        settings: &Admission,
        mut response: AdmissionResponse,
        judged: Result<&'static str, Refusal>,
        record: &mut OpenRecord,
    ) -> Answer {
        let refusal = match judged {
            Ok(reason) => return (Outcome::Allowed, reason, response.into_review()),
            Err(refusal) => refusal,
        };
        let text = format!("{} (decision {})", refusal.text, record.id());
        match settings.mode {
            AdmissionMode::Enforce => {
                record.note(|record| record.detail = refusal.text);
                response = response.deny(text);
                response.result.status = Some(StatusSummary::Failure);
                response.result.code = StatusCode::FORBIDDEN.as_u16();
                (Outcome::Denied, refusal.reason, response.into_review())
            }
            AdmissionMode::Audit => {
                self.metrics.admission_would_refuse.inc();
                tracing::warn!(reason = refusal.reason, decision = %record.id(), "admission in mode enforce would refuse a write");
                record.note_would_refuse(refusal.reason, refusal.text);
                response.warnings = Some(vec![format!("Tollgate would refuse this: {text}")]);
                (Outcome::Allowed, "allowed", response.into_review())
            }
        }
    }
}

fn read(content: &Bytes) -> Result<AdmissionRequest<DynamicObject>, RequestError> {
    let review: Result<AdmissionReview<DynamicObject>, _> = serde_json::from_slice(content);
    let request = review
        .map_err(|error| RequestError::Review(error.to_string()))?
        .try_into();
    request.map_err(|error: ConvertAdmissionReviewError| RequestError::Review(error.to_string()))
}

/// The answer to a review whose request cannot be read. `None` if it is no review.
fn unread_response(content: &Bytes) -> Option<AdmissionResponse> {
    #[derive(serde::Deserialize)]
    struct Envelope {
        #[serde(flatten)]
        types: TypeMeta,
        request: Request,
    }
    #[derive(serde::Deserialize)]
    pub(crate) struct Request {
        uid: String,
    }
    let Envelope { types, request } = serde_json::from_slice(content).ok()?;
    let is_review = types.kind == "AdmissionReview" && types.api_version == "admission.k8s.io/v1";
    is_review.then(|| {
        // `invalid` is the constructor that takes no request. `conclude` denies if the mode enforces.
        let mut response = AdmissionResponse::invalid("");
        response.types = types;
        response.uid = request.uid;
        response.allowed = true;
        response
    })
}

fn json(review: &AdmissionReview<DynamicObject>) -> Response<Body> {
    let text = serde_json::to_vec(review).unwrap_or_default();
    let mut response = Response::new(Body::from(Bytes::from(text)));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz {
    use bytes::Bytes;

    use super::judge::derived;
    use super::review::WrittenObject;

    /// Reads a review as the handler does, with everything that is derived from its objects.
    pub(crate) fn read_review(content: &Bytes) {
        let Ok(request) = super::read(content) else { return };
        if let Ok(Some(object)) = WrittenObject::read(&request) {
            assert!(object.before().or(object.after()).is_some(), "a write has an object");
            derived(&object);
        }
    }
}
