//! TLS to backends: which certificates are trusted, and what the backend can verify.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use super::test_server::{Gateway, TestServer, limits, request, spec};
use super::{GET, text};
use test_support::authority::{Authority, Pair};
use test_support::client::Client;
use tollgate_objects::extensions::ExtensionSpec;

/// A backend that demands a client certificate of `clients` and answers with the HTTP version of
/// the request, and the user it names.
async fn backend(server: &Authority, clients: &Authority) -> std::net::SocketAddr {
    let mut config = server.mutual_tls(clients);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                    let user = request
                        .headers()
                        .get("x-remote-user")
                        .map(|user| user.to_str().unwrap().to_owned());
                    let payload = format!("{:?} {}", request.version(), user.unwrap_or_default());
                    Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(Bytes::from(payload))))
                });
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

/// Sends one request to a backend and returns status and content.
async fn call(edit: impl FnOnce(&mut ExtensionSpec, &Authority, &Authority)) -> (u16, String) {
    let (server, clients) = (Authority::new("tests"), Authority::new("tests"));
    let address = backend(&server, &clients).await;
    let mut spec = spec("metrics", &format!("https://{address}"));
    spec.tls.ca_pem = Some(server.pem.clone());
    spec.tls.server_name = Some("backend.example".to_owned());
    let Pair { certificate, key } = clients.client("gateway.example", None);
    spec.tls.client_certificate_pem = Some(certificate);
    spec.tls.client_key_pem = Some(key.into());
    edit(&mut spec, &server, &clients);
    let test_server = TestServer::with(Gateway::new(&[spec]).unwrap(), limits(), None).await;
    let answer = Client::connect(test_server.address)
        .await
        .exchange(&request(GET, ""))
        .await;
    (answer.status, text(&answer).to_owned())
}

#[tokio::test]
async fn mutual_tls_with_valid_certificates_succeeds() {
    let plain = call(|_, _, _| {}).await;
    assert_eq!(plain, (200, "HTTP/2.0 ".to_owned()));
    let named = call(|spec, _, _| spec.identity.request_header = true).await;
    assert_eq!(named, (200, "HTTP/2.0 ada".to_owned()));
}

#[tokio::test]
async fn a_wrong_certificate_on_either_side_is_502() {
    let none = call(|spec, _, _| {
        spec.tls.client_certificate_pem = None;
        spec.tls.client_key_pem = None;
    })
    .await;
    assert_eq!(none.0, 502, "without a client certificate");
    let foreign = call(|spec, server, _| {
        let Pair { certificate, key } = server.client("gateway.example", None);
        spec.tls.client_certificate_pem = Some(certificate);
        spec.tls.client_key_pem = Some(key.into());
    })
    .await;
    assert_eq!(foreign.0, 502, "with a certificate of another authority");
    let name = call(|spec, _, _| spec.tls.server_name = Some("other.example".to_owned())).await;
    assert_eq!(name.0, 502, "for another name");
    let address = call(|spec, _, _| spec.tls.server_name = None).await;
    assert_eq!(address.0, 502, "for the address in the url");
    let authority = call(|spec, _, clients| spec.tls.ca_pem = Some(clients.pem.clone())).await;
    assert_eq!(authority.0, 502, "of an authority that is not configured");
}

#[test]
fn an_incomplete_client_certificate_and_invalid_pem_are_refused() {
    let build = |edit: fn(&mut ExtensionSpec)| {
        let mut spec = spec("metrics", "https://backend");
        spec.tls.ca_pem = Some(Authority::new("tests").pem);
        edit(&mut spec);
        Gateway::new(&[spec]).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(build(|_| {}), Ok(()));
    assert!(
        build(|spec| spec.tls.client_key_pem = Some("x".to_owned().into()))
            .unwrap_err()
            .contains("needs its key")
    );
    assert!(
        build(|spec| spec.tls.ca_pem = Some("nothing".to_owned()))
            .unwrap_err()
            .contains("no certificate")
    );
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    assert!(build(|spec| spec.tls.ca_pem = Some("x".to_owned())).is_err());
    let mut spec = spec("metrics", "https://backend");
    spec.tls.ca_pem = Some(broken.to_owned());
    assert!(Gateway::new(&[spec]).is_err());
    assert!(
        build(|spec| spec.tls.server_name = Some("a b".to_owned()))
            .unwrap_err()
            .contains("`a b`")
    );
}
