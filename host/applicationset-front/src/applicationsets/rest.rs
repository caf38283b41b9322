//! The REST transport of the API for ApplicationSets, as Argo CD's gateway has it: decodes HTTP
//! requests into a [`Request`], and encodes an [`ApiResponse`] as an HTTP response. It decides
//! nothing.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::ready;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response, request};
use http_body::Frame;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::applicationsets::request::{
    ApiResponse, CONTENT_BYTES, Error, EventType, FieldFilter, Query, Request, RequestKind, WatchEvent, content,
};
use crate::applicationsets::route::ApplicationSetRoute;
use tollgate_front::Denial;
use tollgate_front::api::content::buffer;
use tollgate_proxy::forward::Body;

/// Encodes the events of one stream.
pub(super) struct EventEncoder {
    format: StreamFormat,
    fields: Option<FieldFilter>,
    /// Hashes of what was sent last of each set, by its name, if not all fields are sent.
    sent: HashMap<String, u64>,
    hasher: RandomState,
}

/// An event as the stream has it.
#[derive(Serialize)]
struct StreamedEvent<'a> {
    result: &'a WatchEvent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamFormat {
    Lines,
    /// The format of browsers' `EventSource`.
    /// Source: <https://html.spec.whatwg.org/#server-sent-events>
    ServerSent,
}

impl EventEncoder {
    pub(super) fn of(head: &request::Parts) -> Self {
        let mut pairs = url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
        let fields = pairs.find(|(name, _)| name == "fields");
        Self {
            format: match is_event_source(&head.headers) {
                true => StreamFormat::ServerSent,
                false => StreamFormat::Lines,
            },
            fields: fields.and_then(|(_, fields)| FieldFilter::parse(&fields)),
            sent: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static(match self.format {
            StreamFormat::Lines => "application/json",
            StreamFormat::ServerSent => "text/event-stream",
        })
    }

    /// `None` if the selected fields are those that were sent last of the set.
    fn encode(&mut self, event: &WatchEvent) -> Option<Bytes> {
        let Some(fields) = &self.fields else {
            return Some(self.line(&StreamedEvent { result: event }));
        };
        let mut selected = json!({ "result": event });
        fields.apply(&mut selected);
        let line = self.line(&selected);
        let text = |pointer: &str| event.set.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let name = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
        // A hash, because the line can be as long as the set.
        let hash = self.hasher.hash_one(&line);
        let last = match event.event {
            EventType::Deleted => self.sent.remove(&name),
            EventType::Added | EventType::Modified => self.sent.insert(name, hash),
        };
        (last != Some(hash)).then_some(line)
    }

    /// The last line of a stream that failed, as Argo CD's gateway has it.
    fn final_error(&self, error: &Error) -> Bytes {
        let (status, _) = error.answer();
        let error = json!({"error": {
            "grpc_code": error.grpc().number(),
            "http_code": status.as_u16(),
            "http_status": status.canonical_reason().unwrap_or_default(),
            "message": error.text(),
        }});
        self.line(&error)
    }

    fn line(&self, event: &impl Serialize) -> Bytes {
        let (begin, end) = match self.format {
            StreamFormat::Lines => ("", "\n"),
            StreamFormat::ServerSent => ("data: ", "\n\n"),
        };
        let mut line = begin.as_bytes().to_vec();
        // Writing JSON to memory does not fail.
        let _ = serde_json::to_writer(&mut line, event);
        line.extend_from_slice(end.as_bytes());
        Bytes::from(line)
    }
}

/// Whether a browser's `EventSource` asks.
fn is_event_source(fields: &HeaderMap) -> bool {
    let accept = fields.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/event-stream"))
}

pub(super) async fn read(route: &ApplicationSetRoute, head: request::Parts, body: Body) -> Result<Request, Denial> {
    let mut query = Query::read(head.uri.query(), route.kind)?;
    query.is_for_page = is_event_source(&head.headers);
    if let Some(name) = &route.name {
        query.name.clone_from(name);
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

async fn sent(fields: &HeaderMap, body: Body) -> Result<Value, Denial> {
    let content = buffer(body, CONTENT_BYTES).await?;
    Ok(content::read(fields, &content)?)
}

/// A response that must not be cached, because the next write needs the current version.
///
/// - `expires_at`: when the caller's credential expires.
/// - `decision`: the id of the decision record.
/// - `held`: dropped when the response has ended.
pub(super) fn answer(
    answer: ApiResponse,
    mut encoder: EventEncoder,
    expires_at: Option<Timestamp>,
    decision: Uuid,
    held: impl Send + 'static,
) -> Response<Body> {
    let (content_type, mut body) = match answer {
        ApiResponse::Document(document) => (
            HeaderValue::from_static("application/json"),
            Body::from(Bytes::from(document.to_string())),
        ),
        ApiResponse::Events(events) => {
            let content_type = encoder.content_type();
            let frames = events.filter_map(move |event| {
                let line = match event {
                    Ok(event) => encoder.encode(&event),
                    Err(error) => Some(encoder.final_error(&error)),
                };
                ready(line.map(Frame::data))
            });
            (content_type, Body::generated(frames, expires_at, decision))
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
    use std::sync::Arc;

    use http::header::ACCEPT;
    use http::{Request, request};
    use serde_json::{Value, json};

    use super::EventEncoder;
    use crate::applicationsets::request::{EventType, WatchEvent};

    fn head(query: &str, accept: &str) -> request::Parts {
        let request = Request::get(format!("/api/v1/stream/applicationsets{query}")).header(ACCEPT, accept);
        request.body(()).expect("a request").into_parts().0
    }

    fn event(event: EventType, set: Value) -> WatchEvent {
        let set = Arc::new(set);
        WatchEvent { event, set }
    }

    #[test]
    fn events_are_json_lines_or_server_sent_events() {
        let added = event(EventType::Added, json!({"metadata": {"name": "a"}}));
        let expected = r#"{"result":{"type":"ADDED","applicationSet":{"metadata":{"name":"a"}}}}"#;
        let mut lines = EventEncoder::of(&head("?fields=", "*/*"));
        assert_eq!(lines.encode(&added).expect("a line"), format!("{expected}\n"));
        assert_eq!(lines.content_type(), "application/json");
        let mut sent = EventEncoder::of(&head("", "text/event-stream"));
        assert_eq!(sent.encode(&added).expect("an event"), format!("data: {expected}\n\n"));
        assert_eq!(sent.content_type(), "text/event-stream");
    }

    #[test]
    fn events_whose_selected_fields_were_sent_are_left_out() {
        let set = |name: &str, label: &str| json!({"metadata": {"name": name, "namespace": "n"}, "label": label});
        let query = "?fields=result.applicationSet.metadata.name,result.type";
        let mut encoder = EventEncoder::of(&head(query, "*/*"));
        let mut is_sent = |kind, set| encoder.encode(&event(kind, set)).is_some();
        assert!(is_sent(EventType::Added, set("a", "1")));
        assert!(is_sent(EventType::Modified, set("a", "2")));
        assert!(is_sent(EventType::Modified, set("b", "2")));
        assert!(!is_sent(EventType::Modified, set("a", "3")));
        assert!(is_sent(EventType::Deleted, set("a", "3")));
        assert!(is_sent(EventType::Added, set("a", "1")));
        let nothing = EventEncoder::of(&head("?fields=other", "*/*")).encode(&event(EventType::Added, json!({})));
        assert_eq!(nothing.expect("a line"), "{}\n");
    }
}
