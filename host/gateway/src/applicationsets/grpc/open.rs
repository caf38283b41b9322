//! Serves calls of gRPC and gRPC-Web. A call gets what the same request gets by REST, in frames.
//!
//! Invariant: a call takes only the stages that REST takes.

use std::sync::Arc;

use http::{Response, request};
use serde_json::json;
use tokio::time::timeout_at;

use crate::applicationsets::grpc;
use crate::applicationsets::grpc::{Call, Method, Transport};
use crate::applicationsets::request::{ApiResponse, WatchEvent};
use crate::front::RequestContext;
use crate::pipeline::Gateway;
use crate::rejection::Rejection;
use crate::snapshot::Snapshot;
use tollgate_identity::authenticate::Principal;
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::Open;

impl Gateway {
    /// Reads a call's head before authentication, because anybody may ask for the version. Moves
    /// the call's token to where every front expects it.
    pub(crate) async fn open_call(
        &self,
        (mut head, body): (request::Parts, Body),
        transport: Transport,
        (snapshot, record): (&Snapshot, &mut Open),
    ) -> Result<Opened, Rejection> {
        // Answered as if the front did not exist.
        if snapshot.config.application_sets.is_none() {
            return Err(Rejection::NotFound);
        }
        record.note(|record| record.front = "applicationsets");
        let call = Call::read(&head, transport)?;
        if call.method == Method::Version {
            let content = body.whole(grpc::UNAUTHENTICATED_CONTENT_BYTES).await?;
            self.grpc.read(&call, &content)?;
            let message = self.grpc.write(call.method, &grpc::version())?;
            return Ok(Opened::Answered(grpc::unary(transport, &message, record.id())));
        }
        grpc::token_as_bearer(&mut head.headers)?;
        Ok(Opened::Call(call, Box::new(head), body))
    }
}

impl RequestContext<'_> {
    /// The stages after authentication.
    pub(crate) async fn serve_call(self, call: Call, body: Body) -> Result<Response<Body>, Rejection> {
        let answered = self.answer_call(call, body);
        match call.deadline {
            Some(deadline) => {
                let answered = timeout_at(deadline, answered).await;
                answered.map_err(|_| grpc::Error::Deadline)?
            }
            None => answered.await,
        }
    }

    async fn answer_call(self, call: Call, body: Body) -> Result<Response<Body>, Rejection> {
        let api = &self.gateway.grpc;
        let held = self.gateway.persons.acquire(self.principal.key())?;
        let principal: Arc<Principal> = Arc::clone(self.principal);
        let decision = self.record.id();
        let content = body.whole(grpc::CONTENT_BYTES).await?;
        let message = api.read(&call, &content)?;
        let answer = match grpc::request(call.method, message)? {
            Some(request) => self.applicationset(request).await?,
            None => ApiResponse::Document(grpc::user_info(&principal)),
        };
        let response = match answer {
            ApiResponse::Document(document) => {
                let message = api.write(call.method, &document)?;
                grpc::unary(call.transport, &message, decision)
            }
            ApiResponse::Events(events) => {
                let api = Arc::clone(api);
                let write = move |event: &WatchEvent| {
                    let event = json!({ "type": event.event, "applicationSet": event.set });
                    api.write(call.method, &event)
                };
                grpc::stream(call, events, write, (principal.expires_at(), decision))
            }
        };
        Ok(response.map(|mut body| {
            body.hold(held);
            body
        }))
    }
}

/// A call whose head was read.
pub(crate) enum Opened {
    /// The call is answered already.
    Answered(Response<Body>),
    /// The call needs an authenticated caller.
    Call(Call, Box<request::Parts>, Body),
}
