//! Which requests are for argocd-server, and which of those need no sign-in there.
//!
//! Security: argocd-server decodes a path before it looks for its handler. So a path is Tollgate's
//! own if it is so after decoding, and never reaches argocd-server by another spelling.

use std::borrow::Cow;

use http::{HeaderMap, Method, Uri};
use percent_encoding::percent_decode_str;

use tollgate_front::grpc::Transport;
use tollgate_front::{ApplicationSetsServer, Arrival, Fallback};
use tollgate_identity::access::endpoint;
use tollgate_proxy::forward::ArgocdProtocol;
use tollgate_proxy::target::{Error, check_argocd_path};

/// Paths of Tollgate itself, with everything below them.
const OWN: [&str; 19] = [
    "/.well-known/jwks.json",
    "/api/v1/agents",
    "/api/v1/audit",
    "/api/v1/decisions",
    "/api/v1/extensions",
    "/api/v1/login",
    "/api/v1/me",
    "/api/v1/people",
    "/api/v1/plugins",
    "/api/v1/policies",
    "/api/v1/rbac",
    "/api/v1/sessions",
    "/api/v1/system",
    "/api/v1/tokens",
    "/api/v1/tollgate",
    "/console",
    "/extensions",
    "/k8s-proxy",
    endpoint::PATH,
];

/// Paths of the ApplicationSet front, with everything below them.
const APPLICATION_SETS: [&str; 3] = [
    "/api/v1/applicationsets",
    "/api/v1/stream/applicationsets",
    "/applicationset.ApplicationSetService",
];

/// Paths that argocd-server serves without a session, with everything below them. Outside `/api/`
/// and `/terminal`, it serves all without one.
const PUBLIC: [&str; 5] = [
    "/api/badge",
    "/api/dex",
    "/api/v1/session",
    "/api/version",
    "/api/webhook",
];

/// gRPC services that argocd-server serves without a session.
const PUBLIC_SERVICES: [&str; 2] = ["/session.SessionService/", "/version.VersionService/"];

/// The one method of its service without a session.
const PUBLIC_METHOD: &str = "/cluster.SettingsService/Get";

/// A request for argocd-server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgocdRoute {
    pub(crate) sign_in: SignIn,
    /// How it carries a call of gRPC or gRPC-Web, if it is one.
    pub(crate) transport: Option<Transport>,
    pub(crate) root_path: RootPath,
}

/// Whether the client's path began with the root path of argocd-server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootPath {
    Absent,
    /// It did. The path that is judged is what follows.
    Removed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignIn {
    Required,
    /// argocd-server answers anybody, or lets people sign in there.
    NotRequired,
}

impl ArgocdRoute {
    pub(crate) fn protocol(self) -> ArgocdProtocol {
        match self.transport {
            Some(Transport::Grpc) => ArgocdProtocol::Grpc,
            // argocd-server takes gRPC-Web by HTTP/1.1 only.
            Some(Transport::Web | Transport::WebText) | None => ArgocdProtocol::Http1,
        }
    }
}

/// Whether a path is argocd-server's, even if it is malformed.
pub fn is_argocd(path: &str, sets: ApplicationSetsServer) -> bool {
    let decoded = decoded(path);
    let is_below = |prefix: &&str| is_below(&decoded, prefix);
    let is_set = sets == ApplicationSetsServer::Tollgate && APPLICATION_SETS.iter().any(is_below);
    !is_set && !OWN.iter().any(is_below)
}

/// Finds how argocd-server takes a request. `None` if it does not.
///
/// # Errors
/// [`Error`] for a path that it would read in another way.
pub(crate) fn find(arrival: &Arrival<'_>) -> Result<Option<ArgocdRoute>, Error> {
    let of = |sets| argocd(arrival.method(), arrival.uri, &arrival.head.headers, sets);
    match arrival.fallback {
        Fallback::NotFound => Ok(None),
        Fallback::Argocd(sets) => of(sets),
        Fallback::ArgocdBelowRoot(sets) => {
            let root_path = RootPath::Removed;
            Ok(of(sets)?.map(|route| ArgocdRoute { root_path, ..route }))
        }
        Fallback::ArgocdCalls(sets) => Ok(of(sets)?.filter(|route| route.protocol() == ArgocdProtocol::Grpc)),
    }
}

/// Finds out how argocd-server takes a request. `None` if the path is Tollgate's own.
pub(crate) fn argocd(
    method: &Method,
    uri: &Uri,
    fields: &HeaderMap,
    sets: ApplicationSetsServer,
) -> Result<Option<ArgocdRoute>, Error> {
    check_argocd_path(uri.path())?;
    check_segments(uri.path())?;
    if !is_argocd(uri.path(), sets) {
        return Ok(None);
    }
    let path = decoded(uri.path());
    // argocd-server decodes the path of a call of gRPC-Web, too.
    let transport = Transport::of(method, &path, fields);
    let required = match transport {
        Some(_) => path != PUBLIC_METHOD && !PUBLIC_SERVICES.iter().any(|service| path.starts_with(service)),
        None => needs_session(method, &path),
    };
    let sign_in = match required {
        true => SignIn::Required,
        false => SignIn::NotRequired,
    };
    Ok(Some(ArgocdRoute {
        sign_in,
        transport,
        root_path: RootPath::Absent,
    }))
}

/// Refuses paths of the API that argocd-server would read in another way.
// SECURITY: its router takes a colon at the end off, and lets empty segments stand for a name.
// Source: grpc-gateway 1.16, `runtime/mux.go` and `runtime/pattern.go`.
fn check_segments(path: &str) -> Result<(), Error> {
    let whole = percent_decode_str(path).decode_utf8_lossy();
    // Their backends read what follows the name.
    if is_below(&whole, "/api/v1/extensions") {
        return Ok(());
    }
    if read_path(path).ends_with(':') {
        return Err(Error::TrailingColon);
    }
    let is_api = is_below(&whole, "/api/v1") && !is_below(&whole, "/api/v1/session");
    let read = if is_decoded(path) { whole.as_ref() } else { path };
    match is_api && (read.contains("//") || read.ends_with('/')) {
        true => Err(Error::EmptySegment),
        false => Ok(()),
    }
}

/// Source: Argo CD's `server/server.go`, where the handlers are registered.
fn needs_session(method: &Method, path: &str) -> bool {
    let reads = *method == Method::GET || *method == Method::HEAD;
    let is_settings = reads && path == "/api/v1/settings";
    let is_public = is_settings || PUBLIC.iter().any(|prefix| is_below(path, prefix));
    !is_public && (path.starts_with("/api/") || is_below(path, "/terminal"))
}

/// The path as argocd-server reads it, without empty segments.
fn decoded(path: &str) -> Cow<'_, str> {
    // Lossy only for the format of errors: `check_argocd_path` refuses what is not UTF-8.
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    if !decoded.contains("//") {
        return decoded;
    }
    let segments: Vec<&str> = decoded.split('/').filter(|segment| !segment.is_empty()).collect();
    Cow::Owned(format!("/{}", segments.join("/")))
}

/// Paths that argocd-server takes apart before it decodes them, because names there have slashes.
/// Source: `pathPatters` in `server/server.go`.
const SPLIT_ENCODED: [&str; 6] = [
    "/api/v1/clusters/",
    "/api/v1/repocreds/",
    "/api/v1/repositories/",
    "/api/v1/write-repocreds/",
    "/api/v1/write-repositories/",
    "/settings/clusters/",
];

/// The path whose segments argocd-server reads.
pub(crate) fn read_path(path: &str) -> Cow<'_, str> {
    match is_decoded(path) {
        true => decoded(path),
        false => Cow::Borrowed(path),
    }
}

/// Whether argocd-server decodes a path before it takes it apart.
fn is_decoded(path: &str) -> bool {
    let is_name = |rest: &str| !rest.is_empty() && !rest.starts_with('/');
    let is_split_encoded = |prefix: &&str| path.split(prefix).skip(1).any(is_name);
    !(path.contains('%') && SPLIT_ENCODED.iter().any(is_split_encoded))
}

pub(super) fn is_below(path: &str, prefix: &str) -> bool {
    let tail = path.strip_prefix(prefix);
    tail.is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderValue, Method, Uri};

    use super::{ApplicationSetsServer, SignIn, argocd, is_argocd, read_path};
    use tollgate_proxy::forward::ArgocdProtocol;
    use tollgate_proxy::target::Error;

    #[test]
    fn names_with_slashes_stay_one_segment() {
        for (path, read) in [
            ("/api/v1/applications/a%2Fsync", "/api/v1/applications/a/sync"),
            (
                "/api/v1/clusters/https:%2F%2Fa/rotate-auth",
                "/api/v1/clusters/https:%2F%2Fa/rotate-auth",
            ),
            // The pattern holds anywhere in the path.
            (
                "/api/v1/applications/a%2Fsync/api/v1/clusters/b",
                "/api/v1/applications/a%2Fsync/api/v1/clusters/b",
            ),
            (
                "/api/v1/applications/a%2Fsync/api/v1/clusters/",
                "/api/v1/applications/a/sync/api/v1/clusters/",
            ),
        ] {
            assert_eq!(read_path(path), read);
        }
    }

    fn of(method: &Method, path: &str, content_type: Option<&'static str>) -> Result<&'static str, Error> {
        let uri: Uri = path.parse().expect("a path");
        let content_type = content_type.map(|kind| (CONTENT_TYPE, HeaderValue::from_static(kind)));
        let fields = HeaderMap::from_iter(content_type);
        let route = argocd(method, &uri, &fields, ApplicationSetsServer::Tollgate)?;
        Ok(match route.map(|route| (route.sign_in, route.protocol())) {
            None => "own",
            Some((SignIn::Required, ArgocdProtocol::Http1)) => "session",
            Some((SignIn::NotRequired, ArgocdProtocol::Http1)) => "public",
            Some((SignIn::Required, ArgocdProtocol::Grpc)) => "session by gRPC",
            Some((SignIn::NotRequired, ArgocdProtocol::Grpc)) => "public by gRPC",
        })
    }

    #[test]
    fn what_argocd_server_serves_without_a_session_needs_none() {
        let get = |path| of(&Method::GET, path, None).expect("a valid path");
        for path in [
            "/",
            "/applications/argocd/shop",
            "/assets/favicon.png",
            "/extensions.js",
            "/swagger.json",
            "/healthz",
            "/auth/login?return_url=x",
            "/auth/callback",
            "/auth/logout",
            "/api/dex/auth/github",
            "/api/badge",
            "/api/version",
            "/api/v1/settings",
            "/api/v1/session",
            "/api/v1/session/userinfo",
        ] {
            assert_eq!(get(path), "public", "{path}");
        }
        for path in [
            "/api/v1/applications",
            "/api/v1/settings/plugins",
            "/api/v1/sessionx",
            "/api/v1/stream/applications",
            "/api/v1/clusters",
            "/api/v1/projects",
            "/api/unknown",
            "/terminal?pod=a",
            // argocd-server decodes a slash before it looks for the handler.
            "/api%2Fv1%2Fapplications",
            "/%2Fapi/v1/applications",
        ] {
            assert_eq!(get(path), "session", "{path}");
        }
        assert_eq!(of(&Method::POST, "/api/webhook", None), Ok("public"));
        assert_eq!(of(&Method::PUT, "/api/v1/settings", None), Ok("session"));
    }

    #[test]
    fn calls_are_told_apart_by_their_service() {
        let call = |path, kind| of(&Method::POST, path, Some(kind)).expect("a valid path");
        let grpc = "application/grpc";
        assert_eq!(call("/application.ApplicationService/Sync", grpc), "session by gRPC");
        assert_eq!(call("/version.VersionService/Version", grpc), "public by gRPC");
        assert_eq!(call("/session.SessionService/Create", grpc), "public by gRPC");
        assert_eq!(call("/cluster.SettingsService/Get", grpc), "public by gRPC");
        assert_eq!(call("/cluster.SettingsService/GetPlugins", grpc), "session by gRPC");
        assert_eq!(call("/cluster.ClusterService/List", grpc), "session by gRPC");
        let web = "application/grpc-web+proto";
        assert_eq!(call("/application.ApplicationService/Sync", web), "session");
        assert_eq!(call("/version.VersionService/Version", web), "public");
        assert_eq!(call("/application.ApplicationService%2FSync", web), "session");
    }

    #[test]
    fn what_is_tollgates_own_stays_so_in_every_spelling() {
        for path in [
            "/api/v1/applicationsets",
            "/api/v1/applicationsets/a/b/c",
            "/api%2Fv1/applicationsets",
            "/api/v1%2Fapplicationsets%2Fa",
            "/%2Fapi/v1/applicationsets",
            "/api/v1/stream/applicationsets",
            "/applicationset.ApplicationSetService/List",
            "/extensions%2Fmetrics",
            "/extensions/metrics",
            "/api/v1/tollgate/clusters",
            "/k8s-proxy/api",
        ] {
            assert_eq!(of(&Method::GET, path, None), Ok("own"), "{path}");
            assert_eq!(of(&Method::POST, path, Some("application/json")), Ok("own"), "{path}");
        }
        // argocd-server reads these without the colon, and these with an empty name.
        for path in [
            "/api/v1/applicationsets:",
            "/api/v1%2Fapplicationsets:",
            "/api/v1/applicationsets%3A",
            "/api/v1/applications/shop:",
            "/api/v1/applications/shop/sync:",
            "/api/v1/clusters/https:%2F%2Fa:",
            "/api/v1/gpgkeys:",
            "/applicationset.ApplicationSetService/List:",
        ] {
            assert_eq!(of(&Method::POST, path, None), Err(Error::TrailingColon), "{path}");
        }
        for path in [
            "/api/v1/applicationsets/",
            "/api/v1%2F%2Fapplicationsets",
            "/api/v1/applications/shop/pods%2F%2Flogs",
            "/api/v1/applications/",
        ] {
            assert_eq!(of(&Method::GET, path, None), Err(Error::EmptySegment), "{path}");
        }
        // What follows the name of an extension is its backend's.
        for path in ["/api/v1/extensions/echo/", "/api/v1/extensions/echo/a:"] {
            assert_eq!(of(&Method::GET, path, None), Ok("own"), "{path}");
        }
        assert_eq!(
            of(&Method::GET, "/api/v1//extensions/echo/", None),
            Err(Error::EmptySegment)
        );
        assert_eq!(
            of(&Method::GET, "/api/v1/clusters/https:%2F%2Fa:6443", None),
            Ok("session")
        );
        // A name of a repository may end with a slash: argocd-server takes the path apart first.
        assert_eq!(
            of(
                &Method::DELETE,
                "/api/v1/repositories/https%3A%2F%2Fcharts.example%2F",
                None
            ),
            Ok("session")
        );
        assert_eq!(
            of(&Method::GET, "/api/v1/repositories/", None),
            Err(Error::EmptySegment)
        );
        // Encoded twice, Tollgate's own paths are one segment that no server has.
        for path in [
            "/api/v1%252Fapplicationsets",
            "/api%252Fv1%252Fapplicationsets",
            "/k8s-proxy%252Fapi",
        ] {
            assert_ne!(of(&Method::GET, path, None), Ok("own"), "{path}");
        }
        assert_eq!(
            of(&Method::GET, "/api/v1/%61pplicationsets", None),
            Err(Error::NeedlessEncoding)
        );
        assert_eq!(
            of(&Method::GET, "//api/v1/applicationsets", None),
            Err(Error::EmptySegment)
        );
        assert_eq!(
            of(&Method::GET, "/api/v1/applicationsets/../applicationsets", None),
            Err(Error::DotSegment)
        );
    }

    #[test]
    fn sets_are_argocd_servers_while_the_front_is_closed() {
        for path in ["/api/v1/applicationsets", "/applicationset.ApplicationSetService/List"] {
            assert!(is_argocd(path, ApplicationSetsServer::Argocd), "{path}");
            assert!(!is_argocd(path, ApplicationSetsServer::Tollgate), "{path}");
        }
        assert!(!is_argocd("/extensions/a", ApplicationSetsServer::Argocd));
    }
}
