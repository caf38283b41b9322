//! Serves a request: opens its record, finds its front, and closes the record with what the front answered. Every
//! request ends with exactly one response and one record.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::HeaderName;
use http::{HeaderValue, Request, Response, request};
use http_body::Body as _;
use uuid::Uuid;

use crate::fronts::{self, FrontTarget, Fronts};
use tollgate_config::Config;
use tollgate_core::diagnostic::shortened;
use tollgate_front::console::{self, ApiHandler, is_of_page};
use tollgate_front::error_format::{self, ErrorFormat};
use tollgate_front::path::Answerer;
use tollgate_front::request_record::open_record;
use tollgate_front::snapshot::Snapshot;
use tollgate_front::{Denial, Fallback, RecordedAs, RequestContext, Services};
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::{OpenRecord, Outcome};
use tollgate_proxy::server::{Client, Handler, HandshakeFailure, RequestReadError};

/// Longest text of a refusal that a record keeps for its caller, in bytes.
const TOLD_BYTES: usize = 1_024;

const DECISION_ID: HeaderName = HeaderName::from_static("tollgate-decision-id");

struct RoutedRequest {
    /// What the request is for, and who answers it. `None` if no front has it.
    found: Option<(FrontTarget, Answerer)>,
    head: request::Parts,
    body: Body,
}

#[derive(Debug)]
pub(crate) struct Gateway {
    services: Services,
    fronts: Fronts,
}

impl Gateway {
    /// # Errors
    /// A front cannot use its settings.
    pub(crate) fn new(services: Services) -> anyhow::Result<Self> {
        Ok(Self {
            fronts: Fronts::open(&services)?,
            services,
        })
    }

    fn open_record(&self, head: Option<&request::Parts>, client: &Client, snapshot: &Snapshot) -> OpenRecord {
        open_record(&self.services.recorder, head, client, snapshot)
    }

    /// Has a front serve a request, and closes the record with the outcome.
    async fn recorded(
        &self,
        request: RoutedRequest,
        client: &Arc<Client>,
        snapshot: Arc<Snapshot>,
        mut record: OpenRecord,
        format: ErrorFormat,
    ) -> Response<Body> {
        let RoutedRequest { found, head, body } = request;
        // Known for content with a length only; what is streamed has none yet.
        let sent_bytes = body.size_hint().exact();
        let serving = async {
            let mut context = RequestContext {
                services: &self.services,
                api: self,
                client,
                snapshot,
                record: &mut record,
                answerer: Answerer::Gateway,
            };
            match found {
                Some((target, answerer)) => {
                    context.answerer = answerer;
                    self.fronts.serve(target, context, head, body).await
                }
                None => Err(context.refuse_unknown(&head).await),
            }
        };
        // A panic denies this request, is recorded like any other failure, and ends no other request.
        let outcome = AssertUnwindSafe(serving).catch_unwind().await;
        match outcome {
            Ok(Ok(response)) => {
                let recorded = response.extensions().get::<RecordedAs>().copied();
                let RecordedAs(outcome, reason) = recorded.unwrap_or(RecordedAs(Outcome::Allowed, "allowed"));
                let mut front = "none";
                record.note(|record| front = record.front);
                let received_bytes = response.body().size_hint().exact();
                self.services
                    .metrics
                    .load
                    .observe_sizes(front, sent_bytes, received_bytes);
                record.close(outcome, response.status(), reason);
                response
            }
            Ok(Err(denial)) => refuse(&denial, record, format),
            Err(_) => refuse(&Denial::panicked(), record, format),
        }
    }
}

/// The format of a refusal of a request whose errors have this format otherwise.
fn format_of(denial: &Denial, format: ErrorFormat) -> ErrorFormat {
    match format {
        // A client of gRPC reads nothing else.
        ErrorFormat::Grpc(_) => format,
        _ if denial.is_for_kubernetes => ErrorFormat::Kubernetes,
        _ => format,
    }
}

/// Closes the record of a refusal, and renders that.
fn refuse(denial: &Denial, mut record: OpenRecord, format: ErrorFormat) -> Response<Body> {
    let format = format_of(denial, format);
    let decision = record.id();
    let (status, message) = denial.public(format == ErrorFormat::Argocd);
    record.note(|record| {
        record.detail = denial.detail();
        record.told = shortened(message, TOLD_BYTES);
    });
    record.close(denial.outcome, status, denial.reason);
    error_format::response(denial, decision, format)
}

fn set_decision_header(response: &mut Response<Body>, decision: Uuid) {
    let mut text = Uuid::encode_buffer();
    if let Ok(value) = HeaderValue::from_str(decision.hyphenated().encode_lower(&mut text)) {
        response.headers_mut().insert(DECISION_ID, value);
    }
}

impl ApiHandler for Gateway {
    fn handle<'a>(&'a self, request: Request<Body>, client: &'a Arc<Client>) -> BoxFuture<'a, Response<Body>> {
        Handler::handle(self, request, client).boxed()
    }
}

impl Handler for Gateway {
    async fn handle(&self, request: Request<Body>, client: &Arc<Client>) -> Response<Body> {
        // One snapshot from here to the end: a reload in between must not mix the rules of two.
        let snapshot = self.services.current.load_full();
        let (mut head, body) = request.into_parts();
        let mut record = self.open_record(Some(&head), client, &snapshot);
        // After the record has opened, because the span id that the upstream gets follows from its id.
        record.continue_trace(&mut head.headers);
        if is_of_page(&head.extensions) {
            record.note(|record| record.is_of_page = console::reads(&head.method));
        }
        let decision = record.id();
        let config = &*snapshot.policies.config;
        let fallback = Fallback::take(config, client, &mut head.uri, &head.headers, &head.extensions);
        let arrival = fronts::arrival(&head, &head.uri, client.connect_authority(), fallback, config);
        let routed = || (FrontTarget::find(&arrival), fronts::rules(&arrival, &snapshot).unzip());
        // Parsers read the client's bytes here: their panic must be a denial with a record, like any other.
        let (found, (front, rules)) = match catch_unwind(AssertUnwindSafe(routed)) {
            Ok((found, rules)) => (found.map_err(Denial::from), rules),
            Err(_) => (Err(Denial::panicked()), (None, None)),
        };
        let format = arrival.error_format(rules);
        // SECURITY: a page of a cluster or a backend gets a separate origin, so that it cannot act as
        // the person who is signed in to the console.
        let is_sandboxed = arrival.is_at_console_host() && !matches!(format, ErrorFormat::Console(_));
        // SECURITY: a page of a forbidden origin is refused before any front serves its request.
        let cors = arrival.cors(rules).transpose();
        let (cors, found) = match (cors, found) {
            (Err(error), _) => (None, Err(Denial::from(error))),
            (Ok(cors), found) => (cors, found),
        };
        // Answered before authentication: browsers send no credentials in a preflight (Fetch standard).
        let preflight = cors.as_ref().and_then(|cors| cors.preflight(&head));
        let mut response = if let Some(answer) = preflight {
            record.close(Outcome::Allowed, answer.status(), "preflight");
            answer.map(Body::from)
        } else {
            let mut response = match found {
                Err(denial) => {
                    // It is megabytes, and the audit row waits for the store.
                    drop(snapshot);
                    let fronts = &self.fronts;
                    if let Some(front) = front {
                        fronts.record_early_refusal(front, &denial, client, decision).await;
                    }
                    refuse(&denial, record, format)
                }
                Ok(found) => {
                    let request = RoutedRequest { found, head, body };
                    self.recorded(request, client, snapshot, record, format).await
                }
            };
            if let Some(cors) = cors {
                cors.apply(response.headers_mut());
            }
            response
        };
        if is_sandboxed {
            // Appended, because browsers enforce every policy: one that the page brings cannot lift this one.
            let sandbox = HeaderValue::from_static("sandbox");
            response
                .headers_mut()
                .append(http::header::CONTENT_SECURITY_POLICY, sandbox);
        }
        set_decision_header(&mut response, decision);
        response
    }

    fn refuse(&self, refusal: RequestReadError, head: Option<&request::Parts>, client: &Arc<Client>) -> Response<Body> {
        let snapshot = self.services.current.load();
        let record = self.open_record(head, client, &snapshot);
        let decision = record.id();
        let denial = Denial::from(refusal);
        let config = &*snapshot.policies.config;
        let Some(head) = head else {
            let mut response = refuse(&denial, record, unread_error_format(config, client));
            set_decision_header(&mut response, decision);
            return response;
        };
        let mut uri = head.uri.clone();
        let fallback = Fallback::take(config, client, &mut uri, &head.headers, &head.extensions);
        let arrival = fronts::arrival(head, &uri, client.connect_authority(), fallback, config);
        let rules = fronts::rules(&arrival, &snapshot).map(|(_, rules)| rules);
        let mut response = refuse(&denial, record, arrival.error_format(rules));
        // A page that is allowed to call may read why a request was refused.
        if let Some(Ok(cors)) = arrival.cors(rules) {
            cors.apply(response.headers_mut());
        }
        set_decision_header(&mut response, decision);
        response
    }

    fn accepts_connect(&self) -> bool {
        self.services.current.load().policies.config.control_plane.is_some()
    }

    fn on_failed_handshake(&self, failure: HandshakeFailure) {
        self.services.metrics.load.count_failed_handshake("public", failure);
    }

    fn on_incomplete_head(&self, client: &Arc<Client>) {
        // Dropping the record closes it with the outcome `cancelled`.
        self.open_record(None, client, &self.services.current.load())
            .note(|record| {
                "the client went away in the request head".clone_into(&mut record.detail);
            });
    }
}

/// The format of errors of a client whose request was not read.
fn unread_error_format(config: &Config, client: &Client) -> ErrorFormat {
    match (client.connect_authority(), &config.argocd) {
        (Some(_), _) => ErrorFormat::Kubernetes,
        (None, Some(_)) => ErrorFormat::ApplicationSets,
        (None, None) => ErrorFormat::of(config.extensions.compatibility),
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::{Denial, ErrorFormat, format_of};
    use tollgate_front::grpc::Transport;

    #[test]
    fn a_refusal_for_kubectl_is_one_of_grpc_in_a_call() {
        let mut denial = Denial::denied(StatusCode::BAD_REQUEST, "wrong_prefix", "no prefix");
        denial.is_for_kubernetes = true;
        assert_eq!(format_of(&denial, ErrorFormat::Page), ErrorFormat::Kubernetes);
        for transport in [Transport::Grpc, Transport::Web, Transport::WebText] {
            let format = ErrorFormat::Grpc(transport);
            assert_eq!(format_of(&denial, format), format);
        }
        denial.is_for_kubernetes = false;
        assert_eq!(format_of(&denial, ErrorFormat::Page), ErrorFormat::Page);
    }
}
