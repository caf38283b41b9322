//! Reads a request for Argo CD's API into the attributes that policies see: the same ones for REST,
//! gRPC, gRPC-Web and the terminal.
//!
//! Security: path and query are read as argocd-server reads them. What it could read in another way
//! is refused, or is a method that is not known.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, request};
use tokio::time::timeout;
use url::form_urlencoded;

use super::message::{
    self, json_has_list, json_is_set, json_text, json_whole_text, protobuf_has, protobuf_is_set, protobuf_text,
};
use super::methods::{ApiMethod, FieldPath, MethodIndex, ResourceChangeFields, ResourceFields, RestBody};
use super::route::{ArgocdRoute, is_below, read_path};
use tollgate_front::grpc::Transport;
use tollgate_proxy::forward::{self, Body};
use tollgate_rego::ArgocdRequest;

mod server_side_diff;
mod terminal;

use terminal::TERMINAL;

/// Longest message that is read for a policy, in bytes: the default of gRPC servers.
pub(crate) const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// Length of the head of a frame: a flag and the length of the message.
const FRAME_HEAD_BYTES: usize = 5;

/// Most letters that policies and records see of the path, service or method of an unknown method.
const MAX_UNKNOWN_LETTERS: usize = 256;

/// Longest name that Kubernetes has, in bytes.
const MAX_NAME_BYTES: usize = 253;

/// How long the content that a policy reads may take.
const READ_TIME_LIMIT: Duration = Duration::from_secs(30);

/// Paths below `/api/` that are not part of the API: badges, Dex, and webhooks of git servers.
const NOT_API: [&str; 3] = ["/api/badge", "/api/dex", "/api/webhook"];

/// What Go's `strconv.ParseBool` takes for false.
const GO_FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the content must be `application/json`")]
    ContentType,
    #[error("the content must begin with a whole message")]
    Frame,
    #[error("compressed messages are not read, and the gateway has to read this one")]
    Compressed,
    #[error("the message is longer than {allowed} bytes, and the gateway has to read it")]
    TooLong { allowed: usize },
    #[error("the message did not arrive within {READ_TIME_LIMIT:?}, and the gateway has to read it")]
    Slow,
    #[error("`{0}` is longer than {MAX_NAME_BYTES} bytes")]
    Name(&'static str),
    #[error("parameter `{0}` must be given once, in plain form")]
    Parameter(&'static str),
    #[error(transparent)]
    Diff(#[from] server_side_diff::Error),
    #[error(transparent)]
    Message(#[from] message::Error),
    #[error(transparent)]
    Content(#[from] forward::Error),
}

/// Which method of the API a request calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Known(&'static ApiMethod),
    Unknown(UnknownOperation),
}

/// A method that is not in the table: of a newer Argo CD, or of none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownOperation {
    /// Service and method of a call of gRPC.
    grpc: Option<(String, String)>,
    verb: String,
    path: String,
}

/// What a request names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFields {
    pub(crate) project: Option<String>,
    pub(crate) application: Option<String>,
    pub(crate) namespace: Option<String>,
    has_manifests: bool,
    /// Whether it updates the object if there is one.
    upserts: bool,
}

/// A request for Argo CD's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiRequest {
    operation: Operation,
    pub(crate) fields: RequestFields,
    /// Whether the fields are those of the request, and were not left out.
    pub(crate) is_whole: bool,
}

/// What a call does to an object of a resource tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceRequest {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) change: ResourceChange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResourceChange {
    /// - `kind`: media type of the patch.
    Patch {
        kind: String,
        patch: String,
    },
    Delete,
    Action,
}

fn has_fields(method: &ApiMethod) -> bool {
    method.fields.all().next().is_some()
}

/// Where the fields of a request are that are not in its path.
#[derive(Clone, Copy, Debug)]
enum Content<'a> {
    Protobuf(&'a [u8]),
    Json(&'a [u8]),
    /// In the query alone.
    Query,
}

impl Operation {
    /// `None` for requests that are not for the API, such as for files of the UI.
    ///
    /// # Errors
    /// [`Error::ContentType`]: from a form, argocd-server could take another HTTP method.
    pub(crate) fn of(route: ArgocdRoute, head: &request::Parts, methods: &MethodIndex) -> Result<Option<Self>, Error> {
        let path = read_path(head.uri.path());
        if let Some(transport) = route.transport {
            // argocd-server does not take messages in base64.
            let method = methods.by_grpc_path(&path).filter(|_| transport != Transport::WebText);
            return Ok(Some(method.map_or_else(|| Self::unknown_grpc(&path), Self::Known)));
        }
        if is_below(&path, "/terminal") {
            return Ok(Some(Self::Known(&TERMINAL)));
        }
        if !path.starts_with("/api/") || NOT_API.iter().any(|prefix| is_below(&path, prefix)) {
            return Ok(None);
        }
        if head.method == Method::POST && is_form(head) {
            return Err(Error::ContentType);
        }
        let unknown = || Self::Unknown(UnknownOperation::new(None, head.method.as_str(), &path));
        Ok(Some(
            methods.by_rest(&head.method, &path).map_or_else(unknown, Self::Known),
        ))
    }

    fn unknown_grpc(path: &str) -> Self {
        let names = path.trim_start_matches('/').rsplit_once('/');
        let names = names.map(|(service, method)| (start(service), start(method)));
        Self::Unknown(UnknownOperation::new(names, Method::POST.as_str(), path))
    }
}

impl UnknownOperation {
    fn new(grpc: Option<(String, String)>, verb: &str, path: &str) -> Self {
        Self {
            grpc,
            verb: verb.to_owned(),
            path: start(path),
        }
    }
}

// SECURITY: callers choose these texts, and thousands of records are kept.
fn start(text: &str) -> String {
    text.chars().take(MAX_UNKNOWN_LETTERS).collect()
}

/// Refuses a request whose `Content-Type` is given more than once.
// SECURITY: the type tells a call from everything else, so both servers must read the same one.
pub(super) fn check_content_type(fields: &HeaderMap) -> Result<(), Error> {
    match fields.get_all(CONTENT_TYPE).iter().nth(1) {
        Some(_) => Err(message::Error::Duplicate("Content-Type").into()),
        None => Ok(()),
    }
}

fn is_form(head: &request::Parts) -> bool {
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.to_ascii_lowercase().contains("form"))
}

impl ApiRequest {
    /// Reads what the request names, from its content only where it is there. The content stays
    /// whole.
    ///
    /// # Errors
    /// Every [`Error`]: the request does not fit the table.
    pub(crate) async fn read(
        operation: Operation,
        route: ArgocdRoute,
        head: &request::Parts,
        body: &mut Body,
    ) -> Result<Self, Error> {
        let read = timeout(READ_TIME_LIMIT, Self::read_all(operation, route, head, body)).await;
        read.unwrap_or(Err(Error::Slow))
    }

    async fn read_all(
        operation: Operation,
        route: ArgocdRoute,
        head: &request::Parts,
        body: &mut Body,
    ) -> Result<Self, Error> {
        let Operation::Known(method) = operation else {
            return Ok(Self::without_fields(operation));
        };
        // Nothing in the content matters, so it stays a stream.
        if !has_fields(method) {
            return Ok(Self::without_fields(operation));
        }
        let reader = FieldReader::of(method, route, head, body).await?;
        let fields = reader.fields()?;
        Ok(Self {
            operation,
            fields,
            is_whole: true,
        })
    }

    /// Reads what a call does to an object of a resource tree. `None` for calls that do nothing to one.
    /// The content stays whole.
    ///
    /// # Errors
    /// Every [`Error`]: the request does not fit the table.
    pub(crate) async fn read_resource(
        operation: &Operation,
        route: ArgocdRoute,
        head: &request::Parts,
        body: &mut Body,
    ) -> Result<Option<ResourceRequest>, Error> {
        let Operation::Known(method) = operation else {
            return Ok(None);
        };
        let Some(fields) = method.fields.resource else {
            return Ok(None);
        };
        let read = async {
            let reader = FieldReader::of(method, route, head, body).await?;
            reader.resource(fields).map(Some)
        };
        timeout(READ_TIME_LIMIT, read).await.unwrap_or(Err(Error::Slow))
    }

    /// A request of which only the method matters.
    pub(crate) fn without_fields(operation: Operation) -> Self {
        // Of a method without fields nothing can be missing.
        let is_whole = !matches!(operation, Operation::Known(method) if has_fields(method));
        Self {
            operation,
            fields: RequestFields::default(),
            is_whole,
        }
    }

    /// [`ApiMethod::may_end_own_session`]; false for methods that are not in the table.
    pub(crate) fn may_end_own_session(&self) -> bool {
        match &self.operation {
            Operation::Known(method) => method.may_end_own_session(),
            Operation::Unknown(_) => false,
        }
    }

    /// Whether argocd-server may check the permission to update instead of the one in
    /// [`ApiRequest::as_input`].
    pub(crate) fn upserts(&self) -> bool {
        self.fields.upserts
    }

    /// As policies see it.
    pub(crate) fn as_input(&self) -> ArgocdRequest<'_> {
        let fields = &self.fields;
        match &self.operation {
            Operation::Known(method) => ArgocdRequest {
                known: true,
                service: Some(method.service),
                method: Some(method.name),
                verb: method.rest.verb.as_ref(),
                resource: Some(method.resource).filter(|resource| !resource.is_empty()),
                action: match fields.has_manifests {
                    true => Some("override"),
                    false => Some(method.action).filter(|action| !action.is_empty()),
                },
                path: None,
                project: fields.project.as_deref(),
                application: fields.application.as_deref(),
                namespace: fields.namespace.as_deref(),
            },
            Operation::Unknown(UnknownOperation { grpc, verb, path }) => ArgocdRequest {
                known: false,
                service: grpc.as_ref().map(|(service, _)| service.as_str()),
                method: grpc.as_ref().map(|(_, method)| method.as_str()),
                verb,
                resource: None,
                action: None,
                path: Some(path),
                project: None,
                application: None,
                namespace: None,
            },
        }
    }

    /// Service and method, for records.
    pub(crate) fn name(&self) -> Option<String> {
        let input = self.as_input();
        input
            .service
            .zip(input.method)
            .map(|(service, method)| format!("{service}/{method}"))
    }
}

/// Whether the call is one of which [`check_diff`] reads the content.
pub(crate) fn is_diff(operation: &Operation) -> bool {
    matches!(operation, Operation::Known(method) if server_side_diff::is_method(method))
}

/// Refuses a diff that would read other objects than those that argocd-server checks. The content of
/// such a call is read regardless of what the policy reads; it stays whole.
///
/// # Errors
/// [`Error::Diff`], and those of content that cannot be read.
pub(crate) async fn check_diff(
    operation: &Operation,
    route: ArgocdRoute,
    head: &request::Parts,
    body: &mut Body,
) -> Result<(), Error> {
    if !is_diff(operation) {
        return Ok(());
    }
    if route.transport.is_none() {
        return Ok(server_side_diff::check_query(head.uri.query().unwrap_or_default())?);
    }
    let message = timeout(READ_TIME_LIMIT, first_message(body)).await;
    Ok(server_side_diff::check(message.unwrap_or(Err(Error::Slow))?)?)
}

/// The first message of a call. argocd-server reads no other of a call with one message.
async fn first_message(body: &mut Body) -> Result<&[u8], Error> {
    let head = body.peek(FRAME_HEAD_BYTES).await?;
    let ([flag, length @ ..], _) = head.split_first_chunk::<FRAME_HEAD_BYTES>().ok_or(Error::Frame)?;
    match flag {
        0 => {}
        1 => return Err(Error::Compressed),
        _ => return Err(Error::Frame),
    }
    let allowed = MAX_MESSAGE_BYTES;
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > allowed {
        return Err(Error::TooLong { allowed });
    }
    let end = FRAME_HEAD_BYTES.saturating_add(length);
    let content = body.peek(end).await?;
    content.get(FRAME_HEAD_BYTES..end).ok_or(Error::Frame)
}

async fn json<'a>(head: &request::Parts, body: &'a mut Body) -> Result<&'a [u8], Error> {
    let mut kinds = head.headers.get_all(CONTENT_TYPE).iter();
    let (kind, other) = (kinds.next(), kinds.next());
    // The whole value, without parameters, as argocd-server compares it.
    if other.is_some() || kind.is_none_or(|kind| !kind.as_bytes().eq_ignore_ascii_case(b"application/json")) {
        return Err(Error::ContentType);
    }
    let allowed = MAX_MESSAGE_BYTES;
    // One byte more tells whether the content is too long.
    let content = body.peek(allowed.saturating_add(1)).await?;
    match content.len() > allowed {
        true => Err(Error::TooLong { allowed }),
        false => Ok(content),
    }
}

struct FieldReader<'a> {
    method: &'static ApiMethod,
    head: &'a request::Parts,
    content: Content<'a>,
}

impl<'a> FieldReader<'a> {
    async fn of(
        method: &'static ApiMethod,
        route: ArgocdRoute,
        head: &'a request::Parts,
        body: &'a mut Body,
    ) -> Result<Self, Error> {
        let content = match (route.transport, method.rest.body) {
            (Some(_), _) => Content::Protobuf(first_message(body).await?),
            (None, RestBody::None) => Content::Query,
            (None, RestBody::Message | RestBody::Field(_)) => Content::Json(json(head, body).await?),
        };
        Ok(Self { method, head, content })
    }

    fn resource(&self, fields: ResourceFields) -> Result<ResourceRequest, Error> {
        // Without the bound of names: a patch is longer than any of them.
        let text = |field: FieldPath| self.any_text(field).map(Option::unwrap_or_default);
        Ok(ResourceRequest {
            group: text(fields.group)?,
            kind: text(fields.kind)?,
            namespace: text(fields.namespace)?,
            name: text(fields.name)?,
            change: match fields.change {
                ResourceChangeFields::Patch { patch, kind } => ResourceChange::Patch {
                    kind: text(kind)?,
                    patch: text(patch)?,
                },
                ResourceChangeFields::Delete => ResourceChange::Delete,
                ResourceChangeFields::Action => ResourceChange::Action,
            },
        })
    }

    fn fields(&self) -> Result<RequestFields, Error> {
        let text = |field: Option<FieldPath>| field.map_or(Ok(None), |field| self.text(field));
        Ok(RequestFields {
            project: text(self.method.fields.project)?,
            application: text(self.method.fields.application)?,
            namespace: text(self.method.fields.namespace)?,
            has_manifests: match self.method.fields.manifests {
                None => false,
                Some(field) => self.has(field)?,
            },
            upserts: match self.method.fields.upsert {
                None => false,
                Some(field) => self.is_set(field)?,
            },
        })
    }

    fn text(&self, field: FieldPath) -> Result<Option<String>, Error> {
        let text = self.any_text(field)?;
        match text.as_ref().is_some_and(|text| text.len() > MAX_NAME_BYTES) {
            true => Err(Error::Name(field.name)),
            false => Ok(text),
        }
    }

    fn any_text(&self, field: FieldPath) -> Result<Option<String>, Error> {
        if let Content::Protobuf(message) = self.content {
            return Ok(protobuf_text(message, field)?.map(str::to_owned));
        }
        // A field in the path takes precedence over the content and the query.
        if let Some(text) = self.in_path(field) {
            return Ok(Some(text).filter(|text| !text.is_empty()));
        }
        if let (Content::Json(content), RestBody::Field(whole)) = (self.content, self.method.rest.body)
            && whole == field.name
        {
            return Ok(json_whole_text(content, field.name)?);
        }
        match (self.content, self.in_content(field)) {
            (Content::Json(content), Some(path)) => Ok(json_text(content, path, field.name)?),
            (_, Some(_)) => Ok(None),
            (_, None) => self.in_query(field.name),
        }
    }

    fn has(&self, field: FieldPath) -> Result<bool, Error> {
        match (self.content, self.in_content(field)) {
            (Content::Protobuf(message), _) => Ok(protobuf_has(message, field)?),
            (Content::Json(content), Some(path)) => Ok(json_has_list(content, path, field.name)?),
            (Content::Json(_) | Content::Query, _) => Ok(false),
        }
    }

    /// Whether a truth value is set. One that argocd-server could not read counts as set.
    fn is_set(&self, field: FieldPath) -> Result<bool, Error> {
        match (self.content, self.in_content(field)) {
            (Content::Protobuf(message), _) => Ok(protobuf_is_set(message, field)?),
            (Content::Json(content), Some(path)) => Ok(json_is_set(content, path, field.name)?),
            (Content::Json(_) | Content::Query, _) => {
                let text = self.in_query(field.name)?;
                Ok(text.is_some_and(|text| !GO_FALSE.contains(&text.as_str())))
            }
        }
    }

    fn in_path(&self, field: FieldPath) -> Option<String> {
        let is_field = |segment: &str| {
            let named = segment.strip_prefix('{').and_then(|segment| segment.strip_suffix('}'));
            named == Some(field.name)
        };
        let index = self.method.rest.path.split('/').position(is_field)?;
        read_path(self.head.uri.path()).split('/').nth(index).map(str::to_owned)
    }

    /// The field's path in the content of the REST form. `None` if it comes by the query.
    fn in_content(&self, field: FieldPath) -> Option<&'static str> {
        match self.method.rest.body {
            RestBody::None => None,
            RestBody::Message => Some(field.name),
            RestBody::Field(whole) => field.name.strip_prefix(whole)?.strip_prefix('.'),
        }
    }

    // SECURITY: argocd-server takes the first of several values, and of `name[a]=b` it takes `a`.
    fn in_query(&self, name: &'static str) -> Result<Option<String>, Error> {
        let query = self.head.uri.query().unwrap_or_default();
        let mut value = None;
        for (key, found) in form_urlencoded::parse(query.as_bytes()) {
            let Some(rest) = key.strip_prefix(name) else { continue };
            match rest.chars().next() {
                None if value.is_none() => value = Some(found.into_owned()),
                None | Some('[') => return Err(Error::Parameter(name)),
                Some(_) => {}
            }
        }
        Ok(value.filter(|value| !value.is_empty()))
    }
}

#[cfg(test)]
mod tests;
