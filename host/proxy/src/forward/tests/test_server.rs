//! A test gateway on port 0 that allows every request and uses one caller for all.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode, Uri};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::forward::{Backend, Body, BuildError, Limiter};
use crate::headers::{HostHeaders, IdentityHeaders, UserInfo, clean};
use crate::server::{Certificates, Client, Handler, Limits, Server};
use crate::target;
use tollgate_core::diagnostic::Location;
use tollgate_identity::sessions::EndSignal;
use tollgate_objects::extensions::{
    ConnectionSpec, ExtensionSpec, IdentitySpec, LimitSpec, Scope, ServiceSpec, TimeoutSpec, TlsSpec,
};

/// An extension with one service and the documented defaults.
pub(crate) fn spec(name: &str, url: &str) -> ExtensionSpec {
    let location = Location::new("test.yaml", 1);
    let service = ServiceSpec {
        url: url.parse().unwrap(),
        cluster: None,
        headers: Vec::new(),
        location: location.clone(),
    };
    ExtensionSpec {
        name: name.to_owned(),
        scope: Scope::Application,
        services: vec![service],
        connection: ConnectionSpec {
            connect_timeout: Duration::from_secs(2),
            keep_alive: Duration::from_secs(15),
            idle_connection_timeout: Duration::from_secs(60),
            max_idle_connections: 30,
        },
        timeouts: TimeoutSpec {
            idle: None,
            total: None,
            upgrade_lifetime: None,
        },
        limits: LimitSpec::default(),
        tls: TlsSpec::default(),
        identity: IdentitySpec::default(),
        location,
    }
}

pub(crate) fn limits() -> Limits {
    Limits {
        header_bytes: 16 * 1024,
        header_count: 100,
        header_timeout: Duration::from_secs(10),
        body_bytes: 100 * 1024 * 1024,
        body_idle: Duration::from_secs(10),
        keep_alive: Duration::from_secs(60),
        write_stall: Duration::from_secs(60),
        streams: 100,
        connections: 1000,
        connections_per_address: 1000,
        drain: Duration::from_secs(10),
    }
}

/// Extensions by name, and the signal that ends every exchange except those of `/spared`.
pub(crate) struct Gateway(BTreeMap<String, (Backend, Arc<Limiter>)>, Option<EndSignal>);

/// The name of an extension, and what follows it.
struct Path<'a> {
    name: &'a str,
    rest: &'a str,
    query: Option<&'a str>,
}

impl<'a> Path<'a> {
    fn of(uri: &'a Uri) -> Option<Self> {
        let tail = uri.path().strip_prefix("/api/v1").unwrap_or(uri.path());
        let tail = tail.strip_prefix("/extensions/")?;
        let end = tail.find('/').unwrap_or(tail.len());
        let (name, rest) = tail.split_at(end);
        Some(Self {
            name,
            rest,
            query: uri.query(),
        })
    }
}

impl Gateway {
    pub(crate) fn new(specs: &[ExtensionSpec]) -> Result<Self, BuildError> {
        let entry = |spec: &ExtensionSpec| {
            let backend = Backend::build(spec, &spec.services[0])?;
            Ok((spec.name.clone(), (backend, Limiter::new(&spec.limits))))
        };
        specs
            .iter()
            .map(entry)
            .collect::<Result<_, _>>()
            .map(|all| Self(all, None))
    }

    async fn pass(&self, request: Request<Body>, client: &Arc<Client>) -> Result<Response<Body>, (StatusCode, String)> {
        let refuse = |status: StatusCode| move |error: &dyn std::fmt::Display| (status, error.to_string());
        let bad = refuse(StatusCode::BAD_REQUEST);
        let (head, body) = request.into_parts();
        let path = Path::of(&head.uri).ok_or_else(|| refuse(StatusCode::NOT_FOUND)(&"no extension"))?;
        target::check_path(head.uri.path()).map_err(|error| bad(&error))?;
        let (backend, limiter) = self
            .0
            .get(path.name)
            .ok_or_else(|| refuse(StatusCode::NOT_FOUND)(&"extension not found"))?;
        let spared = path.rest == "/spared";
        let target = target::join(&backend.upstream.base, path.rest, path.query).map_err(|error| bad(&error))?;
        let permit = limiter
            .acquire(1)
            .map_err(|refused| (StatusCode::TOO_MANY_REQUESTS, refused.retry_after_seconds.to_string()))?;
        // Some fronts drop trailers.
        let body = if path.rest == "/without-trailers" {
            body.without_trailers()
        } else {
            body
        };
        let cleaned = clean(head).map_err(|error| bad(&error))?;
        let groups = ["dev".to_owned(), "ops".to_owned()];
        let caller = UserInfo {
            user_id: "id-1",
            username: "ada",
            groups: &groups,
            extra: &[],
        };
        let identity = IdentityHeaders::new(&caller)
            .and_then(|identity| identity.with_request_header(&caller))
            .unwrap();
        let resource = crate::headers::ResourceHeaders::new(&crate::headers::ResourceNames {
            namespace: "argocd",
            application: Some(("argocd", "guestbook")),
            project: Some("default"),
            cluster: None,
        });
        let resource = resource.unwrap();
        let host_headers = HostHeaders {
            identity: &identity,
            groups: crate::headers::GroupEncoding::Escaped,
            resource: &resource,
            assertion: None,
        };
        let sealed = cleaned.seal(&backend.upstream, target, &host_headers, client);
        let mut outbound = sealed.map_err(|error| refuse(StatusCode::INTERNAL_SERVER_ERROR)(&error))?;
        outbound.hold(permit);
        if let Some(signal) = self.1.as_ref().filter(|_| !spared) {
            outbound.terminate_on(signal.clone());
        }
        backend
            .forward(outbound, body)
            .await
            .map_err(|error| (error.status(), error.to_string()))
    }
}

impl Handler for Gateway {
    async fn handle(&self, request: Request<Body>, client: &Arc<Client>) -> Response<Body> {
        match self.pass(request, client).await {
            Ok(response) => response,
            Err((status, text)) => {
                let mut response = Response::new(Body::from(text.clone()));
                *response.status_mut() = status;
                if status == StatusCode::TOO_MANY_REQUESTS {
                    response.headers_mut().insert(RETRY_AFTER, text.parse().unwrap());
                }
                response
            }
        }
    }
}

/// A gateway on loopback.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) done: JoinHandle<()>,
    pub(crate) gateway: Arc<Gateway>,
}

impl TestServer {
    /// One extension `metrics` for the backend at `address`, changed by `edit`.
    pub(crate) async fn start(address: SocketAddr, edit: impl FnOnce(&mut ExtensionSpec)) -> Self {
        let mut spec = spec("metrics", &format!("http://{address}/base"));
        edit(&mut spec);
        Self::with(Gateway::new(&[spec]).unwrap(), limits(), None).await
    }

    /// As [`TestServer::start`], with exchanges that `signal` ends.
    pub(crate) async fn ended_by(address: SocketAddr, signal: EndSignal) -> Self {
        Self::ended_within(address, signal, limits()).await
    }

    /// As [`TestServer::ended_by`].
    pub(crate) async fn ended_within(address: SocketAddr, signal: EndSignal, limits: Limits) -> Self {
        let spec = spec("metrics", &format!("http://{address}/base"));
        let mut gateway = Gateway::new(&[spec]).unwrap();
        gateway.1 = Some(signal);
        Self::with(gateway, limits, None).await
    }

    pub(crate) async fn with(gateway: Gateway, limits: Limits, tls: Option<Arc<Certificates>>) -> Self {
        Self::changed(gateway, limits, tls, |server| server).await
    }

    /// As [`TestServer::with`], with the server that `change` returns.
    pub(crate) async fn changed(
        gateway: Gateway,
        limits: Limits,
        tls: Option<Arc<Certificates>>,
        change: impl FnOnce(Server) -> Server,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (gateway, stop) = (Arc::new(gateway), CancellationToken::new());
        let server = change(Server::new(listener, tls, limits));
        let done = tokio::spawn(server.serve(gateway.clone(), stop.clone()));
        Self {
            address,
            stop,
            done,
            gateway,
        }
    }

    /// Requests the extension has open.
    pub(crate) fn open(&self, name: &str) -> u32 {
        self.gateway.0[name].1.open()
    }

    /// Waits until no request is open.
    pub(crate) async fn idle(&self, name: &str) {
        eventually(|| self.open(name) == 0).await;
    }
}

/// Lets other tasks run until `condition` holds.
pub(crate) async fn eventually(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .expect("the condition holds in time");
}

/// A request line and `Host`, with further lines.
pub(crate) fn request(line: &str, lines: &str) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\nHost: gateway\r\n{lines}\r\n").into_bytes()
}
