//! The REST transport of the API for ApplicationSets, as Argo CD's gateway has it: decodes HTTP
//! requests into a [`Request`], and encodes an [`ApiResponse`] as an HTTP response. It decides
//! nothing.

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, request};
use http_body::Frame;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::applicationsets::request::{ApiResponse, CONTENT_BYTES, Query, Request, RequestKind, content};
use crate::applicationsets::route::ApplicationSetRoute;
use crate::platform::api::content::buffer;
use crate::rejection::Rejection;
use tollgate_proxy::forward::Body;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Lines,
    /// The format of browsers' `EventSource`.
    /// Source: <https://html.spec.whatwg.org/#server-sent-events>
    ServerSent,
}

impl Encoding {
    pub(super) fn of(fields: &HeaderMap) -> Self {
        let accept = fields.get(ACCEPT).and_then(|value| value.to_str().ok());
        if accept.is_some_and(|accept| accept.contains("text/event-stream")) {
            Self::ServerSent
        } else {
            Self::Lines
        }
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Lines => "application/json",
            Self::ServerSent => "text/event-stream",
        })
    }

    fn event(self, event: &impl Serialize) -> Bytes {
        let (begin, end) = match self {
            Self::Lines => ("{\"result\":", "}\n"),
            Self::ServerSent => ("data: {\"result\":", "}\n\n"),
        };
        let mut line = begin.as_bytes().to_vec();
        // Writing JSON to memory does not fail.
        let _ = serde_json::to_writer(&mut line, event);
        line.extend_from_slice(end.as_bytes());
        Bytes::from(line)
    }
}

pub(super) async fn read(
    route: &ApplicationSetRoute<'_>,
    (head, body): (request::Parts, Body),
) -> Result<Request, Rejection> {
    let mut query = Query::read(head.uri.query(), route.kind)?;
    if let Some(name) = &route.name {
        query.name = name.to_string();
    }
    let set = match route.kind {
        RequestKind::Create | RequestKind::Update => sent(&head.headers, body).await?,
        RequestKind::Generate => content::application_set_to_preview(sent(&head.headers, body).await?),
        RequestKind::List
        | RequestKind::Watch
        | RequestKind::Get
        | RequestKind::ResourceTree
        | RequestKind::Events
        | RequestKind::Delete => Value::Null,
    };
    let kind = route.kind;
    Ok(Request { kind, query, set })
}

async fn sent(fields: &HeaderMap, body: Body) -> Result<Value, Rejection> {
    let content = buffer(body, CONTENT_BYTES).await?;
    Ok(content::read(fields, &content)?)
}

/// A response that must not be cached, because the next write needs the current version.
///
/// - `until`: when the caller's credential expires, and the id of the decision record.
/// - `held`: dropped when the response has ended.
pub(super) fn answer(
    answer: ApiResponse,
    encoding: Encoding,
    (until, held): ((Option<Timestamp>, Uuid), impl Send + 'static),
) -> Response<Body> {
    let (content_type, mut body) = match answer {
        ApiResponse::Document(document) => (
            HeaderValue::from_static("application/json"),
            Body::from(Bytes::from(document.to_string())),
        ),
        ApiResponse::Events(events) => {
            let frames = events.map(move |event| Frame::data(encoding.event(&event)));
            let (expires_at, decision) = until;
            (encoding.content_type(), Body::generated(frames, expires_at, decision))
        }
    };
    body.hold(held);
    let mut response = Response::new(body);
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, content_type);
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::{ACCEPT, HeaderValue};
    use serde_json::json;

    use super::Encoding;

    #[test]
    fn events_are_json_lines_or_server_sent_events() {
        let event = json!({"type": "ADDED"});
        let lines = Encoding::of(&HeaderMap::new());
        assert_eq!(
            lines.event(&event).as_ref(),
            b"{\"result\":{\"type\":\"ADDED\"}}\n".as_slice()
        );
        let accept = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("text/event-stream"))]);
        let sent = Encoding::of(&accept);
        assert_eq!(sent.content_type(), "text/event-stream");
        assert_eq!(
            sent.event(&event).as_ref(),
            b"data: {\"result\":{\"type\":\"ADDED\"}}\n\n".as_slice()
        );
    }
}
