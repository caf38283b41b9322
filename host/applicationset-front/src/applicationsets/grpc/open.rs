//! Serves calls of gRPC and gRPC-Web. A call gets the response that the same request gets by REST,
//! in frames.
//!
//! Invariant: a call runs the same stages as a REST request.

use std::sync::Arc;

use futures_util::StreamExt as _;
use http::{Response, request};
use tokio::time::timeout_at;

use crate::applicationsets::grpc::{self, Call, FinalStatus, Method};
use crate::applicationsets::request::{ApiResponse, Error, WatchEvent};
use crate::applicationsets::{ApplicationSetsFront, ApplicationSetsFrontState};
use tollgate_front::console::is_at_own_host;
use tollgate_front::grpc::{CallError, Transport, token_as_bearer};
use tollgate_front::snapshot::Snapshot;
use tollgate_front::{Denial, RequestContext};
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_proxy::forward::Body;

impl ApplicationSetsFront {
    /// Serves a call. Anybody may get the version.
    pub(in crate::applicationsets) async fn serve_call(
        &self,
        transport: Transport,
        mut context: RequestContext<'_>,
        mut head: request::Parts,
        body: Body,
    ) -> Result<Response<Body>, Denial> {
        if let Some(error) = console_host_error(&context.snapshot, &head) {
            return Err(error.into());
        }
        // A closed front responds as if it did not exist.
        let state = self.state.as_ref().ok_or_else(Denial::not_found)?;
        let call = Call::read(&head, transport)?;
        if call.method == Method::Version {
            let content = body.buffer_all(grpc::UNAUTHENTICATED_CONTENT_BYTES).await?;
            self.grpc.decode(&call, &content)?;
            let message = self.grpc.encode(call.path, &grpc::version())?;
            return Ok(grpc::unary(transport, &message, context.record.id()));
        }
        token_as_bearer(&mut head.headers)?;
        let principal = context.authenticate(&head, Safety::ByMethod).await?;
        let answered = self.answer_call(call, state, &principal, context, body);
        match call.deadline {
            // A write that has begun continues in a separate task. The deadline ends the wait for it.
            Some(deadline) => {
                let answered = timeout_at(deadline, answered).await;
                answered.map_err(|_| grpc::Error::Deadline)?
            }
            None => answered.await,
        }
    }

    async fn answer_call(
        &self,
        call: Call,
        state: &Arc<ApplicationSetsFrontState>,
        principal: &Arc<Principal>,
        context: RequestContext<'_>,
        body: Body,
    ) -> Result<Response<Body>, Denial> {
        let codec = &self.grpc;
        let held = context.services.persons.acquire(principal.limit_key())?;
        let decision = context.record.id();
        let content = body.buffer_all(grpc::CONTENT_BYTES).await?;
        let message = codec.decode(&call, &content)?;
        let answer = match grpc::request(call.method, message)? {
            Some(request) => Self::handle(context, state, principal, request).await?,
            None => ApiResponse::Document(grpc::user_info(principal)),
        };
        let response = match answer {
            ApiResponse::Document(document) => {
                let message = codec.encode(call.path, &document)?;
                grpc::unary(call.transport, &message, decision)
            }
            ApiResponse::Events(events) => {
                let codec = Arc::clone(codec);
                let events = events.map(|event| event.map_err(|error| final_status(&error))).boxed();
                // Making JSON of text and JSON does not fail.
                let write =
                    move |event: &WatchEvent| codec.encode(call.path, &serde_json::to_value(event).unwrap_or_default());
                grpc::stream(call, events, write, principal.expires_at(), decision)
            }
        };
        Ok(response.map(|mut body| {
            body.hold(held);
            body
        }))
    }
}

fn final_status(error: &Error) -> FinalStatus {
    FinalStatus {
        code: error.grpc(),
        message: error.text().into_owned(),
    }
}

/// The error for a call of argocd-server's that was sent to the console's own host.
fn console_host_error(snapshot: &Snapshot, head: &request::Parts) -> Option<CallError> {
    let config = &snapshot.policies.config;
    let console = config.authentication.console.as_ref()?;
    let is_own = is_at_own_host(config, &head.uri, &head.headers);
    if config.argocd.is_none() || !is_own || grpc::Method::is_served(head.uri.path()) {
        return None;
    }
    let url = snapshot.policies.resources.argocd_cm.data.get("url");
    Some(CallError::ConsoleHost {
        path: head.uri.path().trim_start_matches('/').to_owned(),
        host: console.url.authority().to_owned(),
        argocd: url.map(|url| url.value.to_string()).filter(|url| !url.is_empty()),
    })
}
