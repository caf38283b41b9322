//! Finds the route of a request from its authority and the raw pieces of its path. Anything
//! ambiguous gets 400.
//!
//! Security: a path is never decoded and encoded again. A backend gets, byte for byte, what was
//! checked.

use crate::applications::route::{ApplicationPath, is_application};
use crate::applicationsets::grpc::Call;
use crate::applicationsets::route::ApplicationSetRoute;
use crate::argocd::route::{ApplicationSetsServer, ArgocdRoute, RootPath, argocd, is_argocd};
use crate::clusters::route::{ClusterRoute, is_forwarded};
use crate::console::is_of_page;
use crate::kubernetes::route::KubernetesPath;
use crate::operations::route::{OperationsRoute, operations};
use crate::platform::route::PlatformRoute;
use crate::projects::route::ProjectRoute;
use crate::sign_in::pages::STYLE_PATH;
use crate::sign_in::route::{ConsoleRoute, LoginRoute};
use http::{Extensions, HeaderMap, Method, Uri};
use tollgate_config::{Config, ConsoleHost};
use tollgate_front::grpc::Transport;
use tollgate_identity::access::endpoint;
use tollgate_identity::authenticate::login::is_for_console;
use tollgate_identity::authenticate::{self, CredentialTransport, Principal};
use tollgate_identity::logins::LoginScope;
use tollgate_proxy::forward::ArgocdProtocol;
use tollgate_proxy::target::{self, Error, authority, check_backend_path};

/// Prefixes under which extensions are reachable: the documented one and the
/// one Argo CD's own router uses.
const EXTENSION_PREFIXES: [&str; 2] = ["/api/v1/extensions", "/extensions"];

/// Longest extension name accepted, in bytes.
const EXTENSION_NAME_BYTES: usize = 253;

/// Where backends find the keys of assertions. Source: RFC 8615.
const ASSERTION_KEYS: &str = "/.well-known/jwks.json";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    Extension(ExtensionPath<'a>),
    Cluster(ClusterRoute<'a>),
    /// A request into the cluster of the caller's agent.
    Kubernetes(KubernetesPath<'a>),
    /// A request into the cluster of an Application.
    Application(ApplicationPath<'a>),
    /// Tokens, sessions, agents and audit.
    Platform(PlatformRoute),
    /// A call of gRPC or gRPC-Web.
    Grpc(Transport),
    /// A call of gRPC or gRPC-Web whose head was read.
    Call(Call),
    Project(ProjectRoute<'a>),
    /// A page of the console, or a form of one.
    Console(ConsoleRoute<'a>),
    /// A request about logins.
    Login(LoginRoute<'a>),
    ApplicationSet(ApplicationSetRoute<'a>),
    /// A request for argocd-server.
    Argocd(ArgocdRoute),
    /// A request of another gateway that asks whether a person may use an agent.
    AuthorizeProxyUser,
    /// A request about the gateway itself.
    Operations(OperationsRoute),
    /// The agent of a cluster, which proves who it is once the connection is open.
    Agent,
    /// The public keys of assertions. Nothing else can be read without authentication.
    AssertionKeys,
    Unknown,
}

/// What serves the paths that are not Tollgate's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// Nothing: they get 404.
    NotFound,
    Argocd(ApplicationSetsServer),
    /// argocd-server, which serves no gRPC below its root path.
    ArgocdBelowRoot(ApplicationSetsServer),
    /// argocd-server, which serves only gRPC outside its root path.
    ArgocdCalls(ApplicationSetsServer),
}

impl Fallback {
    /// What serves the request with this URI. Removes the root path of argocd-server from the URI,
    /// so that every path is read as if there were none; forwarding writes it again.
    // SECURITY: only what is left is judged, and only a path of which exactly the root path was
    // removed is forwarded, so no other spelling of the root path leads to argocd-server.
    // SECURITY: on the console's own host, no page of Argo CD can act as whoever looks at it.
    // SECURITY: what a page asks is for the gateway's own API, whatever else its host serves.
    pub(crate) fn take(config: &Config, uri: &mut Uri, (headers, extensions): (&HeaderMap, &Extensions)) -> Self {
        let argocd = match &config.argocd {
            Some(argocd) if !is_of_page(extensions) => argocd,
            Some(_) | None => return Self::NotFound,
        };
        let console = config.authentication.console.as_ref();
        let own = console.filter(|console| console.host == ConsoleHost::Own);
        if own.is_some_and(|console| is_for_console(uri, headers, console)) {
            return Self::NotFound;
        }
        let sets = match &config.application_sets {
            None => ApplicationSetsServer::Argocd,
            Some(_) => ApplicationSetsServer::Tollgate,
        };
        let Some(root_path) = &argocd.root_path else {
            return Self::Argocd(sets);
        };
        match below(root_path, uri) {
            Some(inner) => {
                *uri = inner;
                Self::ArgocdBelowRoot(sets)
            }
            None => Self::ArgocdCalls(sets),
        }
    }

    /// Whether argocd-server serves a path, even if it is malformed.
    pub(crate) fn serves(self, path: &str) -> bool {
        match self {
            Self::NotFound => false,
            Self::Argocd(sets) | Self::ArgocdBelowRoot(sets) | Self::ArgocdCalls(sets) => {
                let is_into_cluster = is_forwarded(path) || is_application(path);
                !is_into_cluster && is_argocd(path, sets)
            }
        }
    }
}

impl Route<'_> {
    /// Checks that a credential of a login is for requests of this kind.
    ///
    /// # Errors
    /// [`authenticate::Error::Scope`].
    // SECURITY: what comes from clusters and backends can be a page, so the console's cookie never leads
    // there; and what kubectl holds is for clusters alone.
    pub(crate) fn check_scope(&self, principal: &Principal) -> Result<(), authenticate::Error> {
        let Some(login) = principal.login() else { return Ok(()) };
        let is_into_cluster = matches!(self, Self::Cluster(ClusterRoute::Forward(_)) | Self::Application(_));
        let is_forwarded = is_into_cluster || matches!(self, Self::Extension(_));
        match (login.scope, principal.transport()) {
            (LoginScope::Clusters, _) if !is_into_cluster => Err(authenticate::Error::Scope(
                "it is kubectl's, for clusters by name and of Applications",
            )),
            (LoginScope::Everything, CredentialTransport::Cookie) if is_forwarded => Err(authenticate::Error::Scope(
                "the console's cookie is for the console and the API; use `tollgate login`",
            )),
            (_, _) => Ok(()),
        }
    }
}

/// The URI without the root path. `None` if its path is not below it.
fn below(root_path: &str, uri: &Uri) -> Option<Uri> {
    let rest = uri.path().strip_prefix(root_path)?;
    let rest = match rest {
        "" => "/",
        rest if rest.starts_with('/') => rest,
        _ => return None,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(target::join("/", rest, uri.query()).ok()?);
    Uri::from_parts(parts).ok()
}

/// Finds the route of a request.
///
/// # Errors
/// [`Error`] for a target that two parsers could read differently.
pub(crate) fn route<'a>(
    method: &Method,
    uri: &'a Uri,
    headers: &HeaderMap,
    fallback: Fallback,
) -> Result<Route<'a>, Error> {
    authority(method, uri, headers)?;
    if let Some(route) = crate::sign_in::route::console(method, uri, &STYLE_PATH)? {
        return Ok(Route::Console(route));
    }
    // Paths into clusters are Tollgate's, but have names in them.
    if let Some(path) = crate::clusters::route::forwarded(uri)? {
        return Ok(Route::Cluster(ClusterRoute::Forward(path)));
    }
    if let Some(path) = crate::applications::route::application(uri)? {
        return Ok(Route::Application(path));
    }
    match fallback {
        Fallback::NotFound => {}
        Fallback::Argocd(sets) => {
            if let Some(route) = argocd((method, uri, headers), sets)? {
                return Ok(Route::Argocd(route));
            }
        }
        Fallback::ArgocdBelowRoot(sets) => {
            if let Some(route) = argocd((method, uri, headers), sets)? {
                let root_path = RootPath::Removed;
                return Ok(Route::Argocd(ArgocdRoute { root_path, ..route }));
            }
        }
        Fallback::ArgocdCalls(sets) => {
            let route = argocd((method, uri, headers), sets)?;
            if let Some(route) = route.filter(|route| route.protocol() == ArgocdProtocol::Grpc) {
                return Ok(Route::Argocd(route));
            }
        }
    }
    if let Some(transport) = Transport::of(method, uri.path(), headers) {
        return Ok(Route::Grpc(transport));
    }
    if let Some(path) = extension(uri)? {
        return Ok(Route::Extension(path));
    }
    if method == Method::GET && uri.path() == tollgate_agent::CONNECT_PATH {
        return Ok(Route::Agent);
    }
    if let Some(route) = crate::clusters::route::api(method, uri)? {
        return Ok(Route::Cluster(route));
    }
    if let Some(path) = crate::kubernetes::route::kubernetes(uri)? {
        return Ok(Route::Kubernetes(path));
    }
    if let Some(path) = crate::platform::route::platform(method, uri)? {
        return Ok(Route::Platform(path));
    }
    if let Some(route) = crate::sign_in::route::login(method, uri)? {
        return Ok(Route::Login(route));
    }
    if let Some(route) = crate::projects::route::project(method, uri)? {
        return Ok(Route::Project(route));
    }
    if let Some(route) = crate::applicationsets::route::application_set(method, uri)? {
        return Ok(Route::ApplicationSet(route));
    }
    if method == Method::POST && uri.path() == endpoint::PATH {
        return Ok(Route::AuthorizeProxyUser);
    }
    let reads = method == Method::GET || method == Method::HEAD;
    if reads && uri.path() == ASSERTION_KEYS {
        return Ok(Route::AssertionKeys);
    }
    Ok(operations(method, uri).map_or(Route::Unknown, Route::Operations))
}

/// A path under an extension's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExtensionPath<'a> {
    /// Name of the extension: `[A-Za-z0-9_-]+`, at most 253 bytes.
    pub(crate) name: &'a str,
    /// What follows the name: empty, or from `/` on, encoded as the client sent it.
    pub(crate) rest: &'a str,
    /// What follows `?`, as the client sent it.
    pub(crate) query: Option<&'a str>,
}

/// Splits an extension's path. `None` if the path is not one.
pub(crate) fn extension(uri: &Uri) -> Result<Option<ExtensionPath<'_>>, Error> {
    let path = uri.path();
    let Some(tail) = EXTENSION_PREFIXES.iter().find_map(|prefix| {
        let tail = path.strip_prefix(prefix)?;
        (tail.is_empty() || tail.starts_with('/')).then_some(tail)
    }) else {
        return Ok(None);
    };
    check_backend_path(path)?;
    let tail = tail.strip_prefix('/').unwrap_or_default();
    let (name, rest) = tail
        .find('/')
        .and_then(|at| tail.split_at_checked(at))
        .unwrap_or((tail, ""));
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if name.is_empty() || name.len() > EXTENSION_NAME_BYTES || !name.bytes().all(valid) {
        return Err(Error::ExtensionName);
    }
    // The first segment of a backend's path is no encoded slash.
    if rest.starts_with("/%") {
        check_backend_path(rest)?;
    }
    Ok(Some(ExtensionPath {
        name,
        rest,
        query: uri.query(),
    }))
}

#[cfg(test)]
mod tests;
