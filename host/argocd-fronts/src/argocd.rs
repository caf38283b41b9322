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
use http::{HeaderValue, Method, Response, Uri, Version, request};
use tokio::time::sleep;

use tollgate_config::{ArgocdServer, Config};
use tollgate_front::error_format::ErrorFormat;
use tollgate_front::grpc::{self, CallError, Transport};
use tollgate_front::open_exchanges::{NotAdmitted, Reauthorize as _};
use tollgate_front::path::{Answerer, Captures, Path, PathLine};
use tollgate_front::snapshot::Snapshot;
use tollgate_front::strangers::Strangers;
use tollgate_front::{
    Arrival, Denial, Front, Pass, PathRules, RequestContext, Services, console, refuse_credential_of_agent,
};
use tollgate_identity::authenticate::{self, Principal};
use tollgate_identity::sessions::EndReason;
use tollgate_proxy::forward::{ArgocdBackend, Body};
use tollgate_proxy::headers::{self, ClientFields};
use tollgate_proxy::record::Stage;
use tollgate_proxy::target;
use tollgate_runtime::followed::AuthorityFile;

mod api_request;
mod children;
pub(crate) mod message;
pub mod methods;
pub(crate) mod permit;
pub(crate) mod route;

pub(crate) use api_request::{Error as RequestError, Operation};
pub(crate) use methods::MethodIndex;

use route::{ArgocdRoute, RootPath, SignIn};

/// Reads the authorities of argocd-server, and makes its connections. Connects nowhere.
///
/// # Errors
/// The file `argocd.ca` or the server's name cannot be used.
pub fn backend(settings: &ArgocdServer) -> anyhow::Result<ArgocdBackend> {
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
fn asks_for_page(head: &request::Parts, path: &str) -> bool {
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
    /// [`CallError::NoMethod`], [`CallError::Http1`] and [`CallError::Token`].
    pub(crate) fn prepare(self, head: &mut request::Parts) -> Result<(), CallError> {
        let Some(transport) = self.transport else {
            return Ok(());
        };
        if (transport, self.root_path) == (Transport::Grpc, RootPath::Removed) {
            let path = head.uri.path().trim_start_matches('/').to_owned();
            // argocd-server serves no gRPC below its root path.
            return Err(CallError::NoMethod { path });
        }
        grpc::token_as_bearer(&mut head.headers)?;
        if transport == Transport::Grpc {
            if head.version < Version::HTTP_2 {
                return Err(CallError::Http1);
            }
            // argocd-server closes the whole connection over `application/grpc+proto`.
            let content_type = HeaderValue::from_static("application/grpc");
            head.headers.insert(CONTENT_TYPE, content_type);
        }
        Ok(())
    }
}

/// The front of argocd-server.
#[derive(Debug)]
pub struct ArgocdFront {
    backend: ArgocdBackend,
    methods: MethodIndex,
    /// What argocd-server serves to people who are not signed in.
    strangers: Strangers,
}

impl Front for ArgocdFront {
    const NAME: &'static str = "argocd";
    /// Empty: this front serves all paths that no other front has.
    const PATHS: &'static [Path<()>] = &[];

    type Endpoint = ();
    type Target = ArgocdRoute;

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        let Some(settings) = &services.config.argocd else {
            return Ok(None);
        };
        Ok(Some(Self {
            backend: backend(settings)?,
            methods: MethodIndex::try_new()?,
            strangers: Strangers::at_argocd(&services.config.limits),
        }))
    }

    fn lines(config: &Config) -> Vec<PathLine> {
        vec![PathLine {
            methods: "*".to_owned(),
            path: "everything else".to_owned(),
            answerer: Answerer::Backend,
            is_open: config.argocd.is_some(),
        }]
    }

    fn rules(arrival: &Arrival<'_>, _: &Snapshot) -> Option<PathRules> {
        let sets = arrival.fallback.argocd()?;
        // Names in a path into a cluster can look like a path of argocd-server.
        if (arrival.leads_into_cluster)(arrival.path()) || !route::is_argocd(arrival.path(), sets) {
            return None;
        }
        let format = match arrival.transport() {
            Some(transport) => ErrorFormat::Grpc(transport),
            None if asks_for_page(arrival.head, arrival.path()) => ErrorFormat::Page,
            None => ErrorFormat::ApplicationSets,
        };
        Some(PathRules::errors(format))
    }

    fn find(arrival: &Arrival<'_>, pass: Pass) -> Result<Option<(ArgocdRoute, Answerer)>, target::Error> {
        if pass != Pass::Argocd {
            return Ok(None);
        }
        Ok(route::find(arrival)?.map(|route| (route, Answerer::Backend)))
    }

    fn target((): (), _: &Captures<'_>, _: &Uri) -> Result<Option<ArgocdRoute>, target::Error> {
        Ok(None)
    }

    async fn serve(
        self: &Arc<Self>,
        target: ArgocdRoute,
        mut context: RequestContext<'_>,
        (mut head, mut body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        refuse_credential_of_agent(&context.snapshot, &head)?;
        api_request::check_content_type(&head.headers).map_err(permit::Error::Request)?;
        // Before authentication, which does not look into `token`.
        target.prepare(&mut head)?;
        let principal = authenticate(target.sign_in, &mut context, &head).await?;
        let principal = principal.as_ref();
        let RequestContext {
            services,
            client,
            snapshot,
            record,
            ..
        } = context;
        // Held from here on, because the content that a policy reads is in memory.
        let held = match principal {
            Some(principal) => services.persons.acquire(principal.limit_key())?,
            None => self.strangers.enter(client)?,
        };
        let call = permit::ReceivedCall {
            route: target,
            head: &head,
            body: &mut body,
        };
        let authenticated_by = snapshot.generation;
        let decided = permit::authorize(call, principal, services, &self.methods, snapshot, record).await;
        let (permit, snapshot) = match decided {
            Err(error) if error.is_refusal() && self.is_stream(target, &head) => {
                // Argo CD's UI asks again at once. The person's slot is held meanwhile.
                sleep(REFUSED_STREAM_DELAY).await;
                return Err(error.into());
            }
            decided => decided?,
        };
        record.finish_stage(Stage::Authorize);
        let reauthorization = permit.into_reauthorization(principal);
        // The snapshot that decided may not accept the caller whom the one before authenticated.
        if snapshot.generation != authenticated_by {
            record.note(|record| record.generation = snapshot.generation);
            if !reauthorization.is_allowed_by(&snapshot) {
                return Err(NotAdmitted(EndReason::Withdrawn).into());
            }
        }
        let connections = self.backend.connections(target.protocol());
        let upstream = &connections.upstream;
        let signs_out = head.uri.path() == SIGN_OUT;
        let path = target::join(&upstream.base, head.uri.path(), head.uri.query())?;
        // Both may be on one host.
        if let Some(console) = &services.config.authentication.console {
            console::remove_cookies(console, &mut head.headers);
        }
        let cleaned = headers::clean_for(head, ClientFields::Argocd)?;
        let mut outbound = cleaned.seal_for_argocd(upstream, path, client)?;
        outbound.hold(held);
        if let Some(principal) = principal {
            outbound.expire_with_credential(principal.expires_at(), record.id());
        }
        let guard = Arc::new(services.open.register(reauthorization, &snapshot, record.id())?);
        drop(snapshot);
        outbound.terminate_on(guard.ending());
        // The content may go on after the response has ended.
        body.hold(Arc::clone(&guard));
        outbound.hold(guard);
        record.finish_stage(Stage::Headers);
        let forwarded = connections.forward(outbound, body).await;
        // The browser's next request must find the session revoked.
        if signs_out {
            services.open.await_sign_out().await;
        }
        record.finish_stage(Stage::Forward);
        Ok(forwarded?)
    }
}

impl ArgocdFront {
    fn is_stream(&self, route: ArgocdRoute, head: &request::Parts) -> bool {
        let operation = Operation::of(route, head, &self.methods);
        matches!(operation, Ok(Some(Operation::Known(method))) if method.is_stream())
    }
}

/// The caller; `None` where argocd-server needs no session.
async fn authenticate(
    sign_in: SignIn,
    context: &mut RequestContext<'_>,
    head: &request::Parts,
) -> Result<Option<Arc<Principal>>, Denial> {
    if sign_in == SignIn::NotRequired {
        return Ok(None);
    }
    match context.authenticate_by_token(head).await {
        // Only without a credential: argocd-server refuses one that is wrong.
        Err(denial) if is_anonymous(&denial) && admits_anonymous(&context.snapshot) => Ok(None),
        principal => principal.map(Some),
    }
}

fn is_anonymous(denial: &Denial) -> bool {
    matches!(denial.cause(), Some(authenticate::Error::NoCredential))
}
