use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderValue;
use http::header::SEC_WEBSOCKET_PROTOCOL;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_util::sync::CancellationToken;

use crate::key::SigningKey;
use crate::settings::Settings;
use crate::{Agent, SUBPROTOCOL};
use secrecy::ExposeSecret as _;

/// Long enough for several attempts of the agent on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    fn server(&self) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let chain = vec![parameters.signed_by(&key, &self.0).unwrap().der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
    }
}

/// What an agent's attempt came to.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    Refused,
    Connected,
}

/// A gateway that presents whichever certificate is current, and holds a connection until the test drops it.
struct Gateway {
    port: u16,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    attempts: mpsc::Receiver<Attempt>,
    drop_connection: mpsc::Sender<()>,
}

impl Gateway {
    async fn start(authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(Mutex::new(authority.server()));
        let (seen, attempts) = mpsc::channel(64);
        let (drop_connection, mut dropped) = mpsc::channel(1);
        let current = Arc::clone(&config);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = TlsAcceptor::from(Arc::clone(&current.lock().unwrap()));
                let Ok(stream) = acceptor.accept(stream).await else {
                    seen.send(Attempt::Refused).await.unwrap();
                    continue;
                };
                #[expect(clippy::result_large_err, reason = "the library has this signature")]
                let answer = |_: &Request, mut response: Response| {
                    let protocol = HeaderValue::from_static(SUBPROTOCOL);
                    response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
                    Ok(response)
                };
                // A client that refuses the certificate may say so only after the server's handshake.
                let Ok(socket) = accept_hdr_async(stream, answer).await else {
                    seen.send(Attempt::Refused).await.unwrap();
                    continue;
                };
                seen.send(Attempt::Connected).await.unwrap();
                dropped.recv().await;
                drop(socket);
            }
        });
        Self {
            port,
            config,
            attempts,
            drop_connection,
        }
    }

    async fn attempt(&mut self) -> Attempt {
        let attempt = timeout(PATIENCE, self.attempts.recv()).await;
        attempt.expect("the agent connects again").unwrap()
    }
}

fn settings(folder: &Path, port: u16) -> Settings {
    let key = SigningKey::generate_pem().unwrap();
    std::fs::write(folder.join("key.pem"), key.expose_secret()).unwrap();
    std::fs::write(folder.join("token"), "token").unwrap();
    std::fs::write(folder.join("api.pem"), Authority::new().0.pem()).unwrap();
    let text = format!(
        "gateway: 'https://localhost:{port}'\ncertificateAuthority: gateway.pem\ncluster: prod\nkey: key.pem\n\
         apiServer: {{url: 'https://localhost:1', certificateAuthority: api.pem, token: token}}\n"
    );
    let file = folder.join("agent.yaml");
    std::fs::write(&file, text).unwrap();
    Settings::load(&file, None).unwrap()
}

#[tokio::test]
async fn a_renewed_authority_of_the_gateway_counts_from_the_next_connection_on() {
    let (first, second) = (Authority::new(), Authority::new());
    let mut gateway = Gateway::start(&first).await;
    let folder = tempfile::tempdir().unwrap();
    let trusted = folder.path().join("gateway.pem");
    std::fs::write(&trusted, first.0.pem()).unwrap();
    let agent = Arc::new(Agent::new(settings(folder.path(), gateway.port)).unwrap());
    let test = async {
        assert_eq!(gateway.attempt().await, Attempt::Connected);
        // The gateway's certificate is of an authority that the agent does not know yet.
        *gateway.config.lock().unwrap() = second.server();
        gateway.drop_connection.send(()).await.unwrap();
        assert_eq!(gateway.attempt().await, Attempt::Refused);
        std::fs::write(&trusted, second.0.pem()).unwrap();
        let mut next = gateway.attempt().await;
        // One attempt may have read the file before.
        if next == Attempt::Refused {
            next = gateway.attempt().await;
        }
        assert_eq!(next, Attempt::Connected);
        // The former authority is trusted no more.
        *gateway.config.lock().unwrap() = first.server();
        gateway.drop_connection.send(()).await.unwrap();
        assert_eq!(gateway.attempt().await, Attempt::Refused);
    };
    tokio::select! {
        ended = agent.run(CancellationToken::new(), Duration::ZERO) => panic!("{ended:?}"),
        () = test => {}
    }
}
