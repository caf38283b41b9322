//! The head of a request before anybody has looked at its caller: what finds the request's front, the format of its
//! errors, and which pages of other origins may make it.

use http::header::ORIGIN;
use http::uri::Authority;
use http::{Method, Uri, request};

use crate::console::{is_at_own_host, is_of_page};
use crate::error_format::ErrorFormat;
use crate::front::Fallback;
use tollgate_config::Config;
use tollgate_front::grpc::Transport;
use tollgate_front::origin::{self, Cors};
use tollgate_front::path::Answerer;

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) head: &'a request::Parts,
    /// Its URI, without the root path of argocd-server.
    pub(crate) uri: &'a Uri,
    /// The host and port of the tunnel (`CONNECT`) in which it came, if it came in one.
    pub(crate) tunnel: Option<&'a Authority>,
    /// What serves it if it is not Tollgate's own.
    pub(crate) fallback: Fallback,
    /// Whether the path leads into a cluster, even if it is malformed.
    pub(crate) leads_into_cluster: bool,
    pub(crate) config: &'a Config,
}

/// The passes in which a request is compared with the fronts. The first front that has it serves it.
// Paths into clusters have names in them that argocd-server could take for its own, and the names of argocd-server's API
// are ones that Tollgate could take for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Paths into clusters, and pages of the console.
    BeforeArgocd,
    Argocd,
    AfterArgocd,
}

impl Pass {
    pub(crate) const ALL: [Self; 3] = [Self::BeforeArgocd, Self::Argocd, Self::AfterArgocd];

    /// The rows of a table that are looked at.
    pub(crate) fn answerers(self) -> &'static [Answerer] {
        match self {
            Self::BeforeArgocd => &[Answerer::Cluster],
            Self::Argocd => &[],
            Self::AfterArgocd => &[Answerer::Gateway, Answerer::Backend],
        }
    }
}

/// How a front differs from the rest of the API before it serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathRules {
    /// The format of errors; `None` for that of the API.
    pub(crate) error_format: Option<ErrorFormat>,
    pub(crate) cross_origin: CrossOrigin,
}

/// What pages of other origins may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrossOrigin {
    /// Nothing: no answer has a field of CORS.
    Closed,
    /// Those of `kubernetes.allowedOrigins` may read the answer. All others are treated as if they sent no origin.
    Shared,
    /// The same, and all others get 403.
    Checked,
}

impl PathRules {
    pub(crate) fn errors(format: ErrorFormat) -> Self {
        Self {
            error_format: Some(format),
            cross_origin: CrossOrigin::Closed,
        }
    }
}

impl<'a> Arrival<'a> {
    pub(crate) fn method(&self) -> &'a Method {
        &self.head.method
    }

    pub(crate) fn path(&self) -> &'a str {
        self.uri.path()
    }

    /// How it carries a call of gRPC or gRPC-Web; `None` if it is none.
    pub(crate) fn transport(&self) -> Option<Transport> {
        Transport::of(self.method(), self.path(), &self.head.headers)
    }

    /// Whether it was sent to the console's own host.
    pub(crate) fn is_at_console_host(&self) -> bool {
        is_at_own_host(self.config, &self.head.uri, &self.head.headers)
    }

    /// The format of errors: that of the front, or of the API.
    pub(crate) fn error_format(&self, rules: Option<PathRules>) -> ErrorFormat {
        match rules.and_then(|rules| rules.error_format) {
            Some(format) => format,
            // A page reads the reason of a refusal, which Argo CD's format lacks.
            None if is_of_page(&self.head.extensions) => ErrorFormat::Tollgate,
            None => ErrorFormat::of(self.config.extensions.compatibility),
        }
    }

    /// What the page that makes the request may do. `None` if the request is not one of a page of another origin.
    pub(crate) fn cors(&self, rules: Option<PathRules>) -> Option<Result<Cors, origin::Forbidden>> {
        let allowed = &self.config.kubernetes.as_ref()?.allowed_origins;
        match rules?.cross_origin {
            CrossOrigin::Closed => None,
            CrossOrigin::Shared if !self.head.headers.contains_key(ORIGIN) => None,
            CrossOrigin::Shared => origin::check(self.head, allowed).ok().map(Ok),
            CrossOrigin::Checked => Some(origin::check(self.head, allowed)),
        }
    }
}
