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
use crate::front::{RequestContext, RouteHandler};
use crate::pipeline::Gateway;
use crate::snapshot::Snapshot;
use tollgate_front::Denial;
use tollgate_front::grpc::Transport;
use tollgate_identity::authenticate::Principal;
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::OpenRecord;

impl Gateway {
    /// Reads a call's head before authentication, because anybody may get the version. Moves the
    /// call's token to the header field where every front expects it.
    pub(crate) async fn open_call(
        &self,
        (mut head, body): (request::Parts, Body),
        transport: Transport,
        (snapshot, record): (&Snapshot, &mut OpenRecord),
    ) -> Result<Opened, Denial> {
        // A closed front responds as if it did not exist.
        if snapshot.policies.config.application_sets.is_none() {
            return Err(Denial::not_found());
        }
        record.note(|record| record.front = "applicationsets");
        let call = Call::read(&head, transport)?;
        if call.method == Method::Version {
            let content = body.buffer_all(grpc::UNAUTHENTICATED_CONTENT_BYTES).await?;
            self.grpc.decode(&call, &content)?;
            let message = self.grpc.encode(call.path, &grpc::version())?;
            return Ok(Opened::Answered(grpc::unary(transport, &message, record.id())));
        }
        grpc::token_as_bearer(&mut head.headers)?;
        Ok(Opened::Call(call, Box::new(head), body))
    }
}

impl RouteHandler for Call {
    async fn serve(
        &self,
        context: RequestContext<'_>,
        (_, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        let answered = context.answer_call(*self, body);
        match self.deadline {
            Some(deadline) => {
                let answered = timeout_at(deadline, answered).await;
                answered.map_err(|_| grpc::Error::Deadline)?
            }
            None => answered.await,
        }
    }
}

impl RequestContext<'_> {
    async fn answer_call(self, call: Call, body: Body) -> Result<Response<Body>, Denial> {
        let codec = &self.gateway.grpc;
        let held = self.gateway.persons.acquire(self.principal.limit_key())?;
        let principal: Arc<Principal> = Arc::clone(self.principal);
        let decision = self.record.id();
        let content = body.buffer_all(grpc::CONTENT_BYTES).await?;
        let message = codec.decode(&call, &content)?;
        let answer = match grpc::request(call.method, message)? {
            Some(request) => self.applicationset(request).await?,
            None => ApiResponse::Document(grpc::user_info(&principal)),
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
                grpc::stream(call, events, write, (principal.expires_at(), decision))
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

pub(crate) enum Opened {
    Answered(Response<Body>),
    Call(Call, Box<request::Parts>, Body),
}
