//! Finds the route of a request from its authority and the raw pieces of its path. Anything
//! ambiguous gets 400.
//!
//! Security: a path is never decoded and encoded again. A backend gets, byte for byte, what was
//! checked.

use crate::applicationsets::grpc::Call;
use crate::applicationsets::route::ApplicationSetRoute;
use crate::argocd::route::{ApplicationSetsServer, ArgocdRoute, RootPath, argocd, is_argocd};
use crate::console::is_of_page;
use crate::fronts::{self, FrontTarget};
use crate::kubernetes::route::KubernetesPath;
use crate::operations::route::{OperationsRoute, operations};
use crate::platform::route::PlatformRoute;
use crate::sign_in::pages::STYLE_PATH;
use crate::sign_in::route::{ConsoleRoute, LoginRoute};
use http::{Extensions, HeaderMap, Method, Uri};
use serde::Serialize;
use tollgate_config::{Config, ConsoleHost};
use tollgate_front::grpc::Transport;
use tollgate_front::path::{self, Answerer, Methods, Path, PathLine};
use tollgate_identity::access::endpoint;
use tollgate_identity::authenticate::login::is_for_console;
use tollgate_identity::authenticate::{self, CredentialTransport, Principal};
use tollgate_identity::logins::LoginScope;
use tollgate_proxy::forward::ArgocdProtocol;
use tollgate_proxy::server::Client;
use tollgate_proxy::target::{self, Error, authority};

const AGENTS: &[Path<()>] = &[Path::new(Methods::Get, &[tollgate_agent::CONNECT_PATH], &[], ())];

/// Where another gateway asks whether a person may use an agent.
const AUTHORIZE: &[Path<()>] = &[Path::new(Methods::Post, &[endpoint::PATH], &[], ())];

/// Where backends find the keys of assertions. Source: RFC 8615.
const ASSERTION_KEYS: &[Path<()>] = &[Path::new(Methods::Read, &["/.well-known/jwks.json"], &[], ())];

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Route<'a> {
    Front(FrontTarget, Answerer),
    /// A request into the cluster of the caller's agent.
    Kubernetes(KubernetesPath<'a>),
    /// Tokens, sessions, agents and audit.
    Platform(PlatformRoute),
    /// A call of gRPC or gRPC-Web.
    Grpc(Transport),
    /// A call of gRPC or gRPC-Web whose head was read.
    Call(Call),
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
    // SECURITY: in a tunnel to a cluster, paths are the cluster's.
    pub(crate) fn take(
        (config, client): (&Config, &Client),
        uri: &mut Uri,
        (headers, extensions): (&HeaderMap, &Extensions),
    ) -> Self {
        let argocd = match &config.argocd {
            Some(argocd) if !is_of_page(extensions) && client.connect_authority().is_none() => argocd,
            Some(_) | None => return Self::NotFound,
        };
        let console = config.authentication.console.as_ref();
        let own = console.filter(|console| console.host == ConsoleHost::Own);
        if own.is_some_and(|console| is_for_console(uri, headers, console)) {
            return Self::NotFound;
        }
        let sets = ApplicationSetsServer::of(config);
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
            Self::Argocd(sets) | Self::ArgocdBelowRoot(sets) | Self::ArgocdCalls(sets) => is_at_argocd(path, sets),
        }
    }
}

/// Whether argocd-server, which has no root path, serves a path.
fn is_at_argocd(path: &str, sets: ApplicationSetsServer) -> bool {
    !fronts::leads_into_cluster(path) && is_argocd(path, sets)
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
        let is_into_cluster = matches!(self, Self::Front(_, Answerer::Cluster));
        let is_forwarded = is_into_cluster || matches!(self, Self::Front(_, Answerer::Backend));
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
    if let Some((target, answerer)) = FrontTarget::find(method, uri, &[Answerer::Cluster])? {
        return Ok(Route::Front(target, answerer));
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
    if path::find(AGENTS, method, uri.path(), Answerer::ALL).is_some() {
        return Ok(Route::Agent);
    }
    if let Some((target, answerer)) = FrontTarget::find(method, uri, &[Answerer::Gateway, Answerer::Backend])? {
        return Ok(Route::Front(target, answerer));
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
    if let Some(route) = crate::applicationsets::route::application_set(method, uri)? {
        return Ok(Route::ApplicationSet(route));
    }
    if path::find(AUTHORIZE, method, uri.path(), Answerer::ALL).is_some() {
        return Ok(Route::AuthorizeProxyUser);
    }
    if path::find(ASSERTION_KEYS, method, uri.path(), Answerer::ALL).is_some() {
        return Ok(Route::AssertionKeys);
    }
    Ok(operations(method, uri).map_or(Route::Unknown, Route::Operations))
}

/// A row of the table of routes: what a front serves at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteLine {
    /// The front, as decision records name it.
    pub front: &'static str,
    /// Methods, with commas; `*` for all.
    pub methods: String,
    /// With `{name}` for a segment, and `{name...}` for everything that is left.
    pub path: String,
    /// `gateway`, `backend` or `cluster`.
    pub answered_by: String,
    /// Whether the settings open it. Otherwise its requests get 404.
    pub open: bool,
}

/// All routes in the order in which a request is compared with them. The first that matches serves it. Paths that
/// argocd-server serves are left out.
pub fn routes(config: &Config) -> Vec<RouteLine> {
    let has_console = config.authentication.console.is_some();
    let has_agents = config.kubernetes.is_some();
    let has_sets = config.application_sets.is_some();
    let (into_clusters, others): (Vec<_>, Vec<_>) = fronts::paths(config)
        .into_iter()
        .flat_map(|(front, lines)| lines.into_iter().map(move |line| line_of(front, line)))
        .partition(|line| line.answered_by == Answerer::Cluster.to_string());
    let always = |_: ()| true;
    let of = |front: &'static str, lines: Vec<PathLine>| lines.into_iter().map(move |line| line_of(front, line));
    let mut all = vec![words(
        "control-plane",
        ("CONNECT", "{host}:{port}", Answerer::Cluster),
        config.control_plane.is_some(),
    )];
    all.extend(of(
        "sign-in",
        path::lines(crate::sign_in::route::CONSOLE_PATHS, |_| has_console),
    ));
    all.extend(into_clusters);
    all.push(words(
        "applicationsets",
        (
            "POST",
            "/applicationset.ApplicationSetService/{method}",
            Answerer::Gateway,
        ),
        has_sets,
    ));
    all.extend(of("agents", path::lines(AGENTS, always)));
    all.extend(others);
    all.extend(of(
        "kubernetes",
        path::lines(crate::kubernetes::route::PATHS, |()| has_agents),
    ));
    all.extend(of(
        "platform",
        path::lines(crate::platform::route::PATHS, |_| has_agents),
    ));
    all.extend(of(
        "sign-in",
        path::lines(crate::sign_in::route::LOGIN_PATHS, |_| has_console),
    ));
    all.extend(of(
        "applicationsets",
        path::lines(crate::applicationsets::route::PATHS, |_| has_sets),
    ));
    all.extend(of("platform", path::lines(AUTHORIZE, |()| has_agents)));
    all.extend(of("none", path::lines(ASSERTION_KEYS, always)));
    all.extend(of("operations", path::lines(crate::operations::route::PATHS, |_| true)));
    if let Some(argocd) = &config.argocd
        && argocd.root_path.is_none()
    {
        let sets = ApplicationSetsServer::of(config);
        all.retain(|line| line.front == "control-plane" || !is_at_argocd(&line.path, sets));
    }
    let rest = ("*", "everything else", Answerer::Backend);
    all.push(words("argocd", rest, config.argocd.is_some()));
    all
}

fn line_of(front: &'static str, line: PathLine) -> RouteLine {
    RouteLine {
        front,
        methods: line.methods,
        path: line.path,
        answered_by: line.answerer.to_string(),
        open: line.is_open,
    }
}

fn words(front: &'static str, (methods, path, answerer): (&str, &str, Answerer), open: bool) -> RouteLine {
    RouteLine {
        front,
        methods: methods.to_owned(),
        path: path.to_owned(),
        answered_by: answerer.to_string(),
        open,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method, Uri};

    use super::{ApplicationSetsServer, Error, Fallback, Route, is_at_argocd, route};
    use crate::fronts;
    use tollgate_config::raw;

    /// A path for which a line stands.
    fn sample(line: &str) -> Uri {
        let (mut path, mut rest) = (String::new(), line);
        while let Some((text, tail)) = rest.split_once('{') {
            let (name, tail) = tail.split_once('}').unwrap();
            path.push_str(text);
            match name {
                "key" => path.push_str(&"00ff".repeat(16)),
                rest if rest.ends_with("...") => path.push_str("/version"),
                _ => path.push('a'),
            }
            rest = tail;
        }
        format!("{path}{rest}").parse().unwrap()
    }

    /// A path of the API that argocd-server serves is its own, however Tollgate would read it.
    #[test]
    fn a_name_that_only_tollgate_refuses_goes_to_argocd_server() {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::HOST, HeaderValue::from_static("gateway.example"));
        let uri: Uri = format!("/api/v1/clusters/{}/credential", "a".repeat(2_000))
            .parse()
            .unwrap();
        let of = |fallback| route(&Method::GET, &uri, &headers, fallback);
        let found = of(Fallback::Argocd(ApplicationSetsServer::Tollgate));
        assert!(matches!(found, Ok(Route::Argocd(_))), "{found:?}");
        assert_eq!(of(Fallback::NotFound), Err(Error::ClusterName));
    }

    /// What is printed is what is served, by Tollgate or by argocd-server.
    #[test]
    fn every_line_of_the_table_has_a_route() {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::HOST, HeaderValue::from_static("gateway.example"));
        let settings = "state: {directory: s}\npolicies: {directory: p}";
        let config = raw::parse(settings, "t.yaml", std::path::Path::new("/")).value.unwrap();
        for (front, lines) in fronts::paths(&config) {
            for line in lines {
                let uri = sample(&line.path);
                let method = match &*line.methods {
                    "*" | "GET,HEAD" => Method::GET,
                    other => other.parse().unwrap(),
                };
                let found = route(&method, &uri, &headers, Fallback::NotFound);
                assert!(!matches!(found, Ok(Route::Unknown)), "{front} {method} {uri}");
                let sets = ApplicationSetsServer::Argocd;
                let found = route(&method, &uri, &headers, Fallback::Argocd(sets));
                let is_argocd = matches!(found, Ok(Route::Argocd(_)));
                assert_eq!(is_argocd, is_at_argocd(uri.path(), sets), "{front} {method} {uri}");
            }
        }
    }
}
