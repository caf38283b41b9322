//! The [`FrontKind`] of a request, which its path determines: the format of its errors, and which other origins may
//! call. The caller plays no part in this.

use http::header::{HeaderName, ORIGIN};
use http::{HeaderValue, Response, Uri, request};

use crate::console::is_of_page;
use crate::error_format::{self, ErrorFormat};
use crate::fronts;
use crate::kubernetes;
use crate::route::Fallback;
use crate::sign_in::route::is_console;
use crate::sign_in::theme::Theme;
use crate::snapshot::Snapshot;
use crate::{applicationsets, argocd, platform};
use tollgate_config::ConsoleHost;
use tollgate_core::diagnostic::shortened;
use tollgate_front::Denial;
use tollgate_front::grpc::Transport;
use tollgate_front::origin;
use tollgate_front::origin::Cors;
use tollgate_identity::authenticate::login::is_for_console;
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::OpenRecord;
use tollgate_proxy::server::Client;

/// Longest text of a refusal that a record keeps for its caller, in bytes.
const TOLD_BYTES: usize = 1_024;

const DECISION_ID: HeaderName = HeaderName::from_static("tollgate-decision-id");

/// The front that a request is for, even if the request is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrontKind {
    /// The clusters of agents.
    Agents,
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

/// The head of a request, with what its path says of its front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) head: &'a request::Parts,
    /// Its URI, without the root path of argocd-server.
    pub(crate) uri: &'a Uri,
    /// What serves it if it is not Tollgate's own.
    pub(crate) fallback: Fallback,
}

impl FrontKind {
    /// - `arrival`: `None` if the head was not read.
    pub(crate) fn of(snapshot: &Snapshot, client: &Client, arrival: Option<Arrival<'_>>) -> Self {
        if client.connect_authority().is_some() {
            return Self::ControlPlane;
        }
        let config = &snapshot.policies.config;
        let Some(Arrival { head, uri, fallback }) = arrival else {
            return match config.argocd {
                Some(_) => Self::Argocd,
                None => Self::Other(ErrorFormat::of(config.extensions.compatibility)),
            };
        };
        let path = uri.path();
        if config.authentication.console.is_some() && is_console(path) {
            return Self::Console(Theme::of(&head.headers));
        }
        let sets = config.application_sets.is_some();
        let is_argocd = fallback.serves(path);
        let transport = Transport::of(&head.method, path, &head.headers);
        if let Some(transport) = transport.filter(|_| sets || is_argocd) {
            Self::Grpc(transport)
        } else if snapshot.policies.kubernetes.is_some() && kubernetes::route::is_kubernetes(path) {
            Self::Agents
        } else if let Some(format) = fronts::error_format(path, snapshot) {
            Self::Other(format)
        } else if sets && applicationsets::route::is_application_sets(path) {
            Self::ApplicationSets
        } else if is_argocd {
            match argocd::asks_for_page(head, path) {
                true => Self::ArgocdPage,
                false => Self::Argocd,
            }
        } else if is_of_page(&head.extensions) {
            // A page reads the reason of a refusal, which Argo CD's format lacks.
            Self::Other(ErrorFormat::Tollgate)
        } else {
            Self::Other(ErrorFormat::of(config.extensions.compatibility))
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
            Self::Agents | Self::ControlPlane => ErrorFormat::Kubernetes,
            Self::ApplicationSets | Self::Grpc(_) | Self::Argocd => ErrorFormat::ApplicationSets,
            Self::ArgocdPage => ErrorFormat::Page,
            Self::Console(theme) => ErrorFormat::Console(theme),
            Self::Other(format) => format,
        }
    }

    /// What pages of other origins may do, on the fronts that they may call.
    ///
    /// - `path`: without the root path of argocd-server.
    pub(crate) fn cors(
        self,
        snapshot: &Snapshot,
        head: &request::Parts,
        path: &str,
    ) -> Option<Result<Cors, origin::Forbidden>> {
        let settings = snapshot.policies.config.kubernetes.as_ref()?;
        if platform::route::allows_cors(path) && head.headers.contains_key(ORIGIN) {
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
