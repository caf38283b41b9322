//! The argocd front: passes everything that is not Tollgate's own on to argocd-server, with the
//! caller's own credential.
//!
//! Security: argocd-server authenticates and authorizes the caller by itself. The gateway verifies
//! the same credential first, wherever argocd-server needs one, so that the caller it records, and
//! that `policies/argocd` judges, is the one that argocd-server sees.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, Version, request};
use tokio::time::sleep;

use crate::applicationsets::grpc;
use crate::front::{RequestContext, RouteHandler};
use crate::open_exchanges::{NotAdmitted, Reauthorize as _};
use crate::pipeline::Gateway;
use crate::sign_in;
use crate::snapshot::Snapshot;
use tollgate_config::ArgocdServer;
use tollgate_front::Denial;
use tollgate_front::grpc::Transport;
use tollgate_identity::authenticate::{self, Principal};
use tollgate_identity::sessions::EndReason;
use tollgate_proxy::forward::{ArgocdBackend, Body};
use tollgate_proxy::headers::{self, ClientFields};
use tollgate_proxy::record::{OpenRecord, Stage};
use tollgate_proxy::server::Client;
use tollgate_proxy::target;
use tollgate_runtime::followed::AuthorityFile;

mod api_request;
mod children;
pub(crate) mod message;
pub mod methods;
pub mod permit;
pub(crate) mod route;

pub(crate) use api_request::Error as RequestError;
pub(crate) use api_request::Operation;
pub(crate) use methods::MethodIndex;

use route::{ArgocdRoute, RootPath, SignIn};

/// Reads the authorities of argocd-server, and makes its connections. Connects nowhere.
///
/// # Errors
/// The file `argocd.ca` or the server's name cannot be used.
pub(crate) fn backend(settings: &ArgocdServer) -> anyhow::Result<ArgocdBackend> {
    let open = |path: &PathBuf| AuthorityFile::open("argocd.ca", path).map_err(anyhow::Error::msg);
    let authorities = settings.ca.as_ref().map(open).transpose()?;
    let root_path = settings.root_path.as_deref().unwrap_or("/");
    let server_name = settings.server_name.as_deref();
    ArgocdBackend::build(&settings.server, authorities.as_ref(), server_name, root_path)
        .context("`argocd` cannot be used")
}

/// Whether a browser asks for something to show, and not a script for data.
///
/// - `path`: without the root path of argocd-server.
pub(crate) fn asks_for_page(head: &request::Parts, path: &str) -> bool {
    let reads = head.method == Method::GET || head.method == Method::HEAD;
    let mut accepted = head.headers.get_all(ACCEPT).iter();
    let is_html = accepted.any(|kinds| kinds.to_str().is_ok_and(|kinds| kinds.contains("text/html")));
    reads && is_html && !path.starts_with("/api/")
}

/// How long the refusal of a stream is held. A browser with one page open makes a request in this time,
/// instead of a hundred in a second.
const REFUSED_STREAM_DELAY: Duration = Duration::from_secs(2);

/// Path at which argocd-server revokes the caller's session.
const SIGN_OUT: &str = "/auth/logout";

/// Key of `argocd-cm` that lets callers without a credential in.
const ANONYMOUS_KEY: &str = "users.anonymous.enabled";

/// Whether argocd-server lets callers without a credential in.
fn admits_anonymous(snapshot: &Snapshot) -> bool {
    let switch = snapshot.policies.resources.argocd_cm.data.get(ANONYMOUS_KEY);
    switch.is_some_and(|switch| &*switch.value == "true")
}

impl ArgocdRoute {
    /// Brings a call into the form in which argocd-server and the gateway read the same token, and
    /// which argocd-server recognizes.
    ///
    /// # Errors
    /// [`grpc::Error::NoMethod`], [`grpc::Error::Http1`] and [`grpc::Error::Token`].
    pub(crate) fn prepare(self, head: &mut request::Parts) -> Result<(), grpc::Error> {
        let Some(transport) = self.transport else {
            return Ok(());
        };
        if (transport, self.root_path) == (Transport::Grpc, RootPath::Removed) {
            let path = head.uri.path().trim_start_matches('/').to_owned();
            return Err(grpc::Error::NoMethod { path });
        }
        grpc::token_as_bearer(&mut head.headers)?;
        if transport == Transport::Grpc {
            if head.version < Version::HTTP_2 {
                return Err(grpc::Error::Http1);
            }
            // argocd-server closes the whole connection over `application/grpc+proto`.
            let content_type = HeaderValue::from_static("application/grpc");
            head.headers.insert(CONTENT_TYPE, content_type);
        }
        Ok(())
    }
}

impl RouteHandler<()> for ArgocdRoute {
    async fn serve(
        &self,
        context: RequestContext<'_, &()>,
        (mut head, mut body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        let RequestContext {
            gateway,
            client,
            snapshot,
            record,
            ..
        } = context;
        record.note(|record| record.front = "argocd");
        let backend = gateway.argocd.as_ref().ok_or_else(Denial::not_found)?;
        api_request::check_content_type(&head.headers).map_err(permit::Error::Request)?;
        self.prepare(&mut head)?;
        let principal = self.authenticate(&head, gateway, (client, &snapshot), record).await?;
        let principal = principal.as_ref();
        // Held from here on, because the content that a policy reads is in memory.
        let held = match principal {
            Some(principal) => gateway.persons.acquire(principal.limit_key())?,
            None => gateway.strangers_at_argocd.enter(client)?,
        };
        let request = (*self, &head, &mut body);
        let authenticated_by = snapshot.generation;
        let decided = permit::authorize(request, principal, (gateway, snapshot), record).await;
        let (permit, snapshot) = match decided {
            Err(error) if error.is_refusal() && self.is_stream((&head, gateway)) => {
                // Argo CD's UI asks again at once. The person's slot is held meanwhile.
                sleep(REFUSED_STREAM_DELAY).await;
                return Err(error.into());
            }
            decided => decided?,
        };
        record.finish_stage(Stage::Authorize);
        let reauthorization = permit.into_reauthorization(principal);
        if snapshot.generation != authenticated_by {
            record.note(|record| record.generation = snapshot.generation);
            if !reauthorization.is_allowed_by(&snapshot) {
                return Err(NotAdmitted(EndReason::Withdrawn).into());
            }
        }
        let connections = backend.connections(self.protocol());
        let upstream = connections.upstream();
        let signs_out = head.uri.path() == SIGN_OUT;
        let path = target::join(upstream.base(), head.uri.path(), head.uri.query())?;
        if let Some(sign_in) = &gateway.sign_in {
            // Both may be on one host.
            sign_in::remove_cookies(sign_in.logins.console(), &mut head.headers);
        }
        let cleaned = headers::clean_for(head, ClientFields::Argocd)?;
        let mut outbound = cleaned.seal_for_argocd(upstream, path, client)?;
        outbound.hold(held);
        if let Some(principal) = principal {
            outbound.expire_with_credential(principal.expires_at(), record.id());
        }
        let guard = Arc::new(gateway.open.register(reauthorization, (&snapshot, record.id()))?);
        drop(snapshot);
        outbound.terminate_on(guard.ending());
        // The content may go on after the response has ended.
        body.hold(Arc::clone(&guard));
        outbound.hold(guard);
        record.finish_stage(Stage::Headers);
        let forwarded = connections.forward(outbound, body).await;
        if signs_out {
            gateway.open.await_sign_out().await;
        }
        record.finish_stage(Stage::Forward);
        Ok(forwarded?)
    }
}

impl ArgocdRoute {
    fn is_stream(self, (head, gateway): (&request::Parts, &Gateway)) -> bool {
        let operation = Operation::of((self, head), &gateway.argocd_methods);
        matches!(operation, Ok(Some(Operation::Known(method))) if method.is_stream())
    }

    /// The caller; `None` where argocd-server needs no session.
    async fn authenticate(
        self,
        head: &request::Parts,
        gateway: &Gateway,
        at: (&Client, &Snapshot),
        record: &mut OpenRecord,
    ) -> Result<Option<Arc<Principal>>, Denial> {
        if self.sign_in == SignIn::NotRequired {
            return Ok(None);
        }
        match gateway.authenticate_by_token(head, at, record).await {
            Err(denial) if is_anonymous(&denial) && admits_anonymous(at.1) => Ok(None),
            principal => principal.map(Some),
        }
    }
}

fn is_anonymous(denial: &Denial) -> bool {
    matches!(denial.cause(), Some(authenticate::Error::NoCredential))
}
