//! The trait [`RouteHandler`], and the [`RequestContext`] its stages take. A request's path determines
//! its [`FrontKind`], and with it the format of its errors and which other origins may call. The
//! caller plays no part in this.

use std::sync::Arc;

use http::header::{HeaderName, ORIGIN};
use http::{Extensions, HeaderMap, HeaderValue, Method, Response, Uri, request};

use crate::console::is_of_page;
use crate::error_format::{self, ErrorFormat};
use crate::kubernetes;
use crate::pipeline::Gateway;
use crate::route::Fallback;
use crate::sign_in::route::is_console;
use crate::sign_in::theme::Theme;
use crate::snapshot::Snapshot;
use crate::{applications, applicationsets, argocd, platform};
use tollgate_config::ConsoleHost;
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::shortened;
use tollgate_front::Denial;
use tollgate_front::grpc::Transport;
use tollgate_front::origin;
use tollgate_front::origin::Cors;
use tollgate_identity::authenticate::login::is_for_console;
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::OpenRecord;
use tollgate_proxy::server::Client;

/// What the stages know of a request. `P` is the authenticated caller, or `()` for a front that
/// authenticates by itself.
pub(crate) struct RequestContext<'a, P = &'a Arc<Principal>> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) client: &'a Arc<Client>,
    /// Whoever waits for somebody else's response drops it first: a snapshot is megabytes.
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) principal: P,
    pub(crate) record: &'a mut OpenRecord,
}

/// How a front authorizes and answers its requests. Implemented by its variant of
/// [`Route`](crate::route::Route).
///
/// `P` is what the front needs of the caller: a principal that the gateway authenticated, or
/// nothing, if a credential of the front's own says who calls.
pub(crate) trait RouteHandler<P = Arc<Principal>> {
    /// The safety of the request, as far as the route changes what the method implies.
    fn safety(&self, _method: &Method) -> Safety {
        Safety::ByMethod
    }

    /// Runs the stages authorize, impersonate, credential, headers and forward. A front may lack
    /// some of them.
    ///
    /// # Errors
    /// The denial of the first stage that refuses the request or fails.
    fn serve<'a>(
        &self,
        context: RequestContext<'a, &'a P>,
        request: (request::Parts, Body),
    ) -> impl Future<Output = Result<Response<Body>, Denial>> + Send;
}

/// The safety of a request into a cluster.
// SECURITY: it is judged by its Kubernetes verb, because some requests that come by `GET` run
// programs. An upgrade is unsafe by itself.
pub(crate) fn safety_in_cluster(method: &Method, rest: &str, query: Option<&str>) -> Safety {
    match Attributes::read(method, rest, query, None).is_plain_read(method) {
        true => Safety::ByMethod,
        false => Safety::Unsafe,
    }
}

/// Longest text of a refusal that a record keeps for its caller, in bytes.
const TOLD_BYTES: usize = 1_024;

const DECISION_ID: HeaderName = HeaderName::from_static("tollgate-decision-id");

/// The front that a request is for, even if the request is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrontKind {
    /// The clusters of agents.
    Agents,
    /// The clusters of Applications.
    Applications,
    /// The clusters that Argo CD's own components reach in tunnels.
    ControlPlane,
    ApplicationSets,
    /// A call of gRPC, about ApplicationSets or for argocd-server.
    Grpc(Transport),
    /// Everything else that is for argocd-server, from programs and scripts of its pages.
    Argocd,
    /// A page of argocd-server, for a browser to show.
    ArgocdPage,
    /// A page of the console.
    Console(Theme),
    Other(ErrorFormat),
}

impl FrontKind {
    pub(crate) fn of(snapshot: &Snapshot, client: &Client, head: Option<&request::Parts>) -> Self {
        if client.connect_authority().is_some() {
            return Self::ControlPlane;
        }
        let mut uri = head.map_or_else(Uri::default, |head| head.uri.clone());
        let (no_headers, no_extensions) = (HeaderMap::new(), Extensions::new());
        let fields = head.map_or((&no_headers, &no_extensions), |head| (&head.headers, &head.extensions));
        let config = &snapshot.policies.config;
        let fallback = Fallback::take(config, &mut uri, fields);
        let path = head.map_or("", |_| uri.path());
        if config.authentication.console.is_some() && is_console(path) {
            return Self::Console(Theme::of(fields.0));
        }
        let sets = snapshot.policies.config.application_sets.is_some();
        let is_argocd = fallback.serves(path);
        let transport = head.and_then(|head| Transport::of(&head.method, path, &head.headers));
        if let Some(transport) = transport.filter(|_| sets || is_argocd) {
            Self::Grpc(transport)
        } else if snapshot.policies.kubernetes.is_some() && kubernetes::route::is_kubernetes(path) {
            Self::Agents
        } else if snapshot.policies.config.applications.is_some() && applications::route::is_application(path) {
            Self::Applications
        } else if sets && applicationsets::route::is_application_sets(path) {
            Self::ApplicationSets
        } else if is_argocd {
            match head.is_some_and(|head| argocd::asks_for_page(head, path)) {
                true => Self::ArgocdPage,
                false => Self::Argocd,
            }
        } else if is_of_page(fields.1) {
            // A page reads the reason of a refusal, which Argo CD's format lacks.
            Self::Other(ErrorFormat::Tollgate)
        } else {
            Self::Other(ErrorFormat::of(snapshot.policies.config.extensions.compatibility))
        }
    }

    /// Whether a request for something else than the console was sent to the console's own host.
    pub(crate) fn is_beside_console(self, snapshot: &Snapshot, head: &request::Parts) -> bool {
        let console = snapshot.policies.config.authentication.console.as_ref();
        let console = console.filter(|console| console.host == ConsoleHost::Own && !matches!(self, Self::Console(_)));
        console.is_some_and(|console| is_for_console(&head.uri, &head.headers, console))
    }

    fn error_format(self) -> ErrorFormat {
        match self {
            Self::Agents | Self::Applications | Self::ControlPlane => ErrorFormat::Kubernetes,
            Self::ApplicationSets | Self::Grpc(_) | Self::Argocd => ErrorFormat::ApplicationSets,
            Self::ArgocdPage => ErrorFormat::Page,
            Self::Console(theme) => ErrorFormat::Console(theme),
            Self::Other(format) => format,
        }
    }

    /// What pages of other origins may do, on the fronts that they may call.
    pub(crate) fn cors(self, snapshot: &Snapshot, head: &request::Parts) -> Option<Result<Cors, origin::Forbidden>> {
        let settings = snapshot.policies.config.kubernetes.as_ref()?;
        if platform::route::allows_cors(head.uri.path()) && head.headers.contains_key(ORIGIN) {
            // As everywhere in the API, a request from an origin that is not allowed gets no CORS
            // fields and is otherwise treated as usual.
            return origin::check(head, &settings.allowed_origins).ok().map(Ok);
        }
        (self == Self::Agents).then(|| origin::check(head, &settings.allowed_origins))
    }

    /// Closes the record and makes the response.
    pub(crate) fn refuse(self, denial: &Denial, mut record: OpenRecord) -> Response<Body> {
        let format = match denial.is_for_kubernetes {
            true => ErrorFormat::Kubernetes,
            false => self.error_format(),
        };
        let decision = record.id();
        let (status, message) = denial.public(format == ErrorFormat::Argocd);
        record.note(|record| {
            record.detail = denial.detail();
            record.told = shortened(message, TOLD_BYTES);
        });
        record.close(denial.outcome, status, denial.reason);
        if let Self::Grpc(transport) = self {
            return tollgate_front::grpc::refuse(transport, denial);
        }
        error_format::response(denial, decision, format).map(Body::from)
    }
}

/// Sets the header that names the decision a response belongs to.
pub(crate) fn set_decision_header(response: &mut Response<Body>, decision: uuid::Uuid) {
    let mut text = uuid::Uuid::encode_buffer();
    if let Ok(value) = HeaderValue::from_str(decision.hyphenated().encode_lower(&mut text)) {
        response.headers_mut().insert(DECISION_ID, value);
    }
}
