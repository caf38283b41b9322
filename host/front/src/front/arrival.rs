//! The head of a request before anybody has looked at its caller: what finds the request's front, the format of its
//! errors, and which pages of other origins may make it.

use http::header::ORIGIN;
use http::uri::Authority;
use http::{Method, Uri, request};

use crate::console::{is_at_own_host, is_of_page};
use crate::error_format::ErrorFormat;
use crate::front::Fallback;
use crate::grpc::Transport;
use crate::origin::{self, Cors};
use crate::path::Answerer;
use tollgate_config::Config;

/// The head of a request.
#[derive(Clone, Copy, derive_more::Debug)]
pub struct Arrival<'a> {
    /// The head as it came.
    #[debug(skip)]
    pub head: &'a request::Parts,
    /// Its URI, without the root path of argocd-server.
    #[debug(skip)]
    pub uri: &'a Uri,
    /// The host and port of the tunnel (`CONNECT`) in which it came, if it came in one.
    pub tunnel: Option<&'a Authority>,
    /// What serves it if it is not Tollgate's own.
    pub fallback: Fallback,
    /// Whether the path leads into a cluster, even if it is malformed.
    #[debug(skip)]
    pub leads_into_cluster: fn(&str) -> bool,
    /// The settings.
    pub config: &'a Config,
}

/// The passes in which a request is compared with the fronts. The first front that has it serves it.
// Paths into clusters have names in them that argocd-server could take for its own, and the names of argocd-server's API
// are ones that Tollgate could take for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Paths into clusters, and pages of the console.
    BeforeArgocd,
    /// What argocd-server serves.
    Argocd,
    /// Everything else of Tollgate's own.
    AfterArgocd,
}

impl Pass {
    /// All, in their order.
    pub const ALL: [Self; 3] = [Self::BeforeArgocd, Self::Argocd, Self::AfterArgocd];

    /// The rows of a table that are looked at.
    pub fn answerers(self) -> &'static [Answerer] {
        match self {
            Self::BeforeArgocd => &[Answerer::Cluster],
            // argocd-server has no table: its front finds its requests by itself.
            Self::Argocd => &[],
            Self::AfterArgocd => &[Answerer::Gateway, Answerer::Backend],
        }
    }
}

/// How a front differs from the rest of the API before it serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRules {
    /// The format of errors; `None` for that of the API.
    pub error_format: Option<ErrorFormat>,
    /// What pages of other origins may do.
    pub cross_origin: CrossOrigin,
}

/// What pages of other origins may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossOrigin {
    /// Nothing: no answer has a field of CORS.
    Closed,
    /// Those of `kubernetes.allowedOrigins` may read the answer. All others are treated as if they sent no origin.
    Shared,
    /// The same, and all others get 403.
    Checked,
}

impl PathRules {
    /// Another format of errors, and nothing for pages of other origins.
    pub fn errors(format: ErrorFormat) -> Self {
        Self {
            error_format: Some(format),
            cross_origin: CrossOrigin::Closed,
        }
    }
}

impl<'a> Arrival<'a> {
    /// The method.
    pub fn method(&self) -> &'a Method {
        &self.head.method
    }

    /// The path, without the root path of argocd-server.
    pub fn path(&self) -> &'a str {
        self.uri.path()
    }

    /// How it carries a call of gRPC or gRPC-Web; `None` if it is none.
    pub fn transport(&self) -> Option<Transport> {
        Transport::of(self.method(), self.path(), &self.head.headers)
    }

    /// Whether it was sent to the console's own host.
    pub fn is_at_console_host(&self) -> bool {
        is_at_own_host(self.config, &self.head.uri, &self.head.headers)
    }

    /// The format of errors: that of the front, or of the API.
    pub fn error_format(&self, rules: Option<PathRules>) -> ErrorFormat {
        match rules.and_then(|rules| rules.error_format) {
            Some(format) => format,
            // A page reads the reason of a refusal, which Argo CD's format lacks.
            None if is_of_page(&self.head.extensions) => ErrorFormat::Tollgate,
            None => ErrorFormat::of(self.config.extensions.compatibility),
        }
    }

    /// What the page that makes the request may do. `None` if the request is not one of a page of another origin.
    pub fn cors(&self, rules: Option<PathRules>) -> Option<Result<Cors, origin::Forbidden>> {
        let allowed = &self.config.kubernetes.as_ref()?.allowed_origins;
        match rules?.cross_origin {
            CrossOrigin::Closed => None,
            CrossOrigin::Shared if !self.head.headers.contains_key(ORIGIN) => None,
            CrossOrigin::Shared => origin::check(self.head, allowed).ok().map(Ok),
            CrossOrigin::Checked => Some(origin::check(self.head, allowed)),
        }
    }
}
