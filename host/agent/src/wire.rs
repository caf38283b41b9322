//! How requests and answers look inside a connection, where HTTP/2 has neither `Upgrade` nor 101.
//!
//! | request to the API server | inside |
//! |---|---|
//! | any | the same; the authority is `cluster.invalid` |
//! | with `Upgrade` | extended `CONNECT` with `:protocol`; the method in `tollgate-method` |
//! | its 101 | 200, with 101 in `tollgate-status` |
//! | any other answer to it | 400, with the status in `tollgate-status` |
//!
//! hyper takes a 2xx to `CONNECT` for a tunnel, regardless of what the agent means by it, so a real 2xx
//! without a switch of protocols comes as 400 (RFC 8441, section 5).
//!
//! Security: fields that begin with `tollgate-` are read here and go no further.

use http::header::{CONNECTION, HOST, UPGRADE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::ext::Protocol as ConnectProtocol;

use tollgate_core::header_map::retain;
use tollgate_core::upgrade::Protocol;

/// Authority of requests for the API server.
pub(crate) const CLUSTER: &str = "cluster.invalid";

/// Authority of requests for the agent itself.
pub(crate) const AGENT: &str = "agent.invalid";

const PREFIX: &str = "tollgate-";
const METHOD: HeaderName = HeaderName::from_static("tollgate-method");
const STATUS: HeaderName = HeaderName::from_static("tollgate-status");

/// What comes through a connection is not as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WireError(&'static str);

/// A URI inside a connection.
pub(crate) fn uri(authority: &'static str, path: PathAndQuery) -> Option<Uri> {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTPS);
    parts.authority = Some(Authority::from_static(authority));
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

/// Turns a request to the API server into the one inside. Returns the protocol that it asks for.
pub(crate) fn encode_request<B>(request: &mut Request<B>) -> Result<Option<Protocol>, WireError> {
    let path = request.uri().path_and_query().cloned();
    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = uri(CLUSTER, path).ok_or(WireError("the request's path is too long"))?;
    *request.version_mut() = Version::HTTP_2;
    let fields = request.headers_mut();
    // The authority says it. With `Connection`, a request of HTTP/2 is malformed (RFC 9113, section 8.2.2).
    fields.remove(HOST);
    fields.remove(CONNECTION);
    let Some(wanted) = fields.remove(UPGRADE) else {
        return Ok(None);
    };
    let protocol = wanted.to_str().ok().and_then(|text| text.parse::<Protocol>().ok());
    let protocol = protocol.ok_or(WireError("the request asks for a protocol that is not known"))?;
    let method = HeaderValue::from_str(request.method().as_str());
    let method = method.map_err(|_| WireError("the request's method cannot be sent"))?;
    // `insert` replaces what a client sent under this name.
    request.headers_mut().insert(METHOD, method);
    *request.method_mut() = Method::CONNECT;
    request
        .extensions_mut()
        .insert(ConnectProtocol::from_static(protocol.into()));
    Ok(Some(protocol))
}

/// Turns an answer inside into the one of the API server.
///
/// - `asked`: the protocol that the request asked for.
pub(crate) fn decode_response<B>(response: &mut Response<B>, asked: Option<Protocol>) -> Result<(), WireError> {
    let status = response.headers().get(STATUS).cloned();
    remove_own(response.headers_mut());
    let Some(protocol) = asked else { return Ok(()) };
    let status = status.and_then(|status| StatusCode::from_bytes(status.as_bytes()).ok());
    let status = status.ok_or(WireError(
        "the connector does not say how a request to switch protocols was answered",
    ))?;
    let is_open = response.status() == StatusCode::OK;
    if is_open != (status == StatusCode::SWITCHING_PROTOCOLS) {
        return Err(WireError(
            "the connector opened a tunnel for an answer without one, or the other way round",
        ));
    }
    if is_open {
        let name = HeaderValue::from_static(protocol.into());
        response.headers_mut().insert(UPGRADE, name);
    }
    *response.status_mut() = status;
    Ok(())
}

/// Turns a request inside into the one for the API server. Returns the protocol that it asks for.
pub(crate) fn decode_request<B>(request: &mut Request<B>) -> Result<Option<Protocol>, WireError> {
    let method = request.headers().get(METHOD).cloned();
    let connect = request.extensions_mut().remove::<ConnectProtocol>();
    remove_own(request.headers_mut());
    if request.method() != Method::CONNECT {
        return Ok(None);
    }
    let protocol = connect.and_then(|protocol| protocol.as_str().parse::<Protocol>().ok());
    let protocol = protocol.ok_or(WireError("the gateway asks for a protocol that is not known"))?;
    let method = method.and_then(|method| Method::from_bytes(method.as_bytes()).ok());
    // Inside, `CONNECT` stands for a switch of protocols. The API server never gets one.
    let method = method.filter(|method| *method != Method::CONNECT);
    *request.method_mut() = method.ok_or(WireError("the gateway does not say the method of a request"))?;
    let fields = request.headers_mut();
    fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    fields.insert(UPGRADE, HeaderValue::from_static(protocol.into()));
    Ok(Some(protocol))
}

/// Turns an answer of the API server into the one inside.
///
/// - `asked`: the protocol that the request asked for.
pub(crate) fn encode_response<B>(response: &mut Response<B>, asked: Option<Protocol>) {
    let status = response.status();
    let fields = response.headers_mut();
    remove_own(fields);
    // They are of the connection to the API server; HTTP/2 forbids them (RFC 9113, section 8.2.2).
    for name in [CONNECTION, UPGRADE, http::header::TRANSFER_ENCODING, KEEP_ALIVE] {
        fields.remove(name);
    }
    *response.version_mut() = Version::HTTP_2;
    if asked.is_none() {
        return;
    }
    let value = HeaderValue::from(status.as_u16());
    response.headers_mut().insert(STATUS, value);
    *response.status_mut() = match status {
        StatusCode::SWITCHING_PROTOCOLS => StatusCode::OK,
        _ => StatusCode::BAD_REQUEST,
    };
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

fn remove_own(fields: &mut HeaderMap) {
    retain(fields, |name| !name.as_str().starts_with(PREFIX));
}

#[cfg(test)]
mod tests {
    use http::header::{CONNECTION, UPGRADE};
    use http::{Method, Request, Response, StatusCode};

    use super::{STATUS, decode_request, decode_response, encode_request, encode_response};
    use tollgate_core::upgrade::Protocol;

    fn exec() -> Request<()> {
        let request = Request::get("https://a.example/api/v1/namespaces/n/pods/p/exec?command=sh");
        let request = request.header(CONNECTION, "upgrade").header(UPGRADE, "SPDY/3.1");
        request.header("tollgate-method", "DELETE").body(()).unwrap()
    }

    #[test]
    fn a_request_to_switch_protocols_arrives_as_it_was() {
        let mut request = exec();
        assert_eq!(encode_request(&mut request), Ok(Some(Protocol::Spdy)));
        assert_eq!(request.method(), Method::CONNECT);
        assert!(request.headers().get(UPGRADE).is_none());
        assert_eq!(decode_request(&mut request), Ok(Some(Protocol::Spdy)));
        assert_eq!(
            (request.method(), &request.headers()[UPGRADE]),
            (&Method::GET, &"SPDY/3.1".parse().unwrap())
        );
        assert_eq!(
            request.uri().path_and_query().unwrap(),
            "/api/v1/namespaces/n/pods/p/exec?command=sh"
        );
        assert!(request.headers().get("tollgate-method").is_none());
    }

    #[test]
    fn only_a_switch_of_protocols_opens_a_tunnel() {
        for (status, inside) in [(101, 200), (200, 400), (403, 400), (302, 400)] {
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            encode_response(&mut response, Some(Protocol::WebSocket));
            assert_eq!(response.status(), inside);
            assert_eq!(decode_response(&mut response, Some(Protocol::WebSocket)), Ok(()));
            assert_eq!(response.status(), status);
            assert_eq!(response.headers().contains_key(UPGRADE), status == 101);
            assert!(!response.headers().contains_key(STATUS));
        }
    }

    #[test]
    fn an_agent_cannot_open_a_tunnel_that_nobody_asked_for() {
        let answer = |inside: u16, status: Option<&str>| {
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::from_u16(inside).unwrap();
            if let Some(status) = status {
                response.headers_mut().insert(STATUS, status.parse().unwrap());
            }
            response
        };
        for (inside, status) in [
            (200, None),
            (200, Some("200")),
            (400, Some("101")),
            (200, Some("x")),
            (400, None),
        ] {
            let decoded = decode_response(&mut answer(inside, status), Some(Protocol::WebSocket));
            assert!(decoded.is_err(), "{inside} {status:?}");
        }
        // Of a request that asked for none, its status is the status.
        let mut plain = answer(200, Some("101"));
        assert_eq!(decode_response(&mut plain, None), Ok(()));
        assert_eq!(plain.status(), 200);
    }
}
