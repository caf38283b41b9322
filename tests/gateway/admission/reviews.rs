//! Reviews as API servers send them, and what strangers send to the listener.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;

#[tokio::test]
async fn every_review_is_answered_with_a_review() {
    let scene = Scene::start().await;
    let cart = application("cart", "shop");
    let whole = review("alice", &[], Some(&cart), Some(&cart));
    let with = |pointer: &str, value: Value| with(whole.clone(), pointer, value);
    let unnamed = json!({"metadata": {"generateName": "cart-"}, "spec": cart["spec"]});
    let create = |object: Value| {
        let mut review = with("/request/operation", json!("CREATE"));
        review["request"]["object"] = object;
        review["request"]["oldObject"] = Value::Null;
        review["request"].as_object_mut().unwrap().remove("name");
        review
    };
    for (incomplete, text) in [
        (create(unnamed.clone()), "no name yet"),
        (with("/request/oldObject", Value::Null), "without `oldObject`"),
        (with("/request/object", Value::Null), "without `object`"),
        (with("/request/namespace", json!("")), "no namespace"),
        (with("/request/subResource", json!("scale")), "`scale`"),
        (with("/request/object/metadata/labels", json!([1])), "cannot be read"),
    ] {
        let (status, answer) = scene.post("/admission", &incomplete).await;
        assert_eq!((status, &answer["kind"]), (200, &json!("AdmissionReview")), "{answer}");
        assert_eq!(answer["response"]["uid"], whole["request"]["uid"]);
        let answer = scene.answer(&answer).await;
        assert!(!answer.allowed && answer.text.contains(text), "{text}: {answer:?}");
        assert_eq!(answer.reason, "object_incomplete");
    }
    // Before there is a name nothing is signed, and the validating webhook is asked again.
    let (status, answer) = scene.post("/admission/author", &create(unnamed)).await;
    assert_eq!((status, &answer["response"]["allowed"]), (200, &json!(true)));
    assert_eq!(answer["response"]["patch"], Value::Null);
    let (status, answer) = scene
        .post("/admission", &with("/request/subResource", json!("status")))
        .await;
    assert_eq!(
        (status, &answer["response"]["allowed"]),
        (200, &json!(true)),
        "{answer}"
    );
    let (status, _) = scene
        .post(
            "/admission",
            &json!({"apiVersion": "v1", "kind": "Pod", "request": {"uid": "1"}}),
        )
        .await;
    assert_eq!(status, 400);
}

/// Without a client certificate anybody can send reviews.
#[tokio::test]
async fn strangers_who_send_slowly_take_no_memory_from_api_servers() {
    let webhook = Webhook::new();
    let mut layout = Layout::new_in(NAMESPACE, &[], POLICY);
    webhook.configure(&mut layout, &json!({"clientCertificateAuthority": null}));
    let scene = Scene {
        gateway: layout.start().await,
        webhook,
    };
    let before = scene.gateway.memory_kib();
    let mut slow = Vec::new();
    for _ in 0..30 {
        let mut stream = scene.stranger().await;
        let head =
            "POST /admission HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 8388608\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        // The gateway stops reading when all memory for reviews is taken.
        let _ = tokio::time::timeout(Duration::from_millis(200), stream.write_all(&vec![b' '; 7 << 20])).await;
        slow.push(stream);
    }
    let used = scene.gateway.memory_kib().saturating_sub(before);
    assert!(used < 100 << 10, "{used} KiB for reviews that are not whole");
    // They are given up, and counted, and reviews are answered again.
    let mut answer = String::new();
    slow[0].read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503") || answer.starts_with("HTTP/1.1 408"),
        "{answer}"
    );
    drop(slow);
    let cart = application("cart", "shop");
    eventually("a review is answered", async || {
        let (status, _) = scene.post("/admission", &review("alice", &[], None, Some(&cart))).await;
        (status == 200).then_some(())
    })
    .await;
    let metrics = scene.gateway.admin_text("/metrics").await;
    let counted = |line: &str| line.starts_with("tollgate_admission_overloaded_total ") && !line.ends_with(" 0");
    assert!(metrics.lines().any(counted), "{metrics}");
    // A review of which each value takes many times its bytes is refused before it is read.
    let many = format!("[{}0]", "0,".repeat(1_100_000));
    let request = scene
        .client()
        .post(format!("{}/admission", scene.webhook.url()))
        .body(many);
    assert_eq!(request.send().await.unwrap().status(), 413);
}

#[tokio::test]
async fn strangers_who_connect_displace_no_connection_of_an_api_server() {
    let scene = Scene::start().await;
    let mut connection = scene.connect(Some(scene.webhook.client_certificate())).await;
    let cart = review("alice", &[], None, Some(&application("cart", "shop"))).to_string();
    review_on(&mut connection, &cart).await;
    // The listener has 64 connections. Those of strangers never get beyond the handshake.
    let mut strangers = Vec::new();
    eventually("the listener is full", async || {
        for host in 1..=100 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 6, 0, host], 0).into()).unwrap();
            let target = ([127, 0, 0, 1], scene.webhook.port()).into();
            strangers.push(socket.connect(target).await.unwrap());
        }
        let metrics = scene.gateway.admin_text("/metrics").await;
        let closed = metrics.lines().find(|line| {
            line.starts_with("tollgate_connections_closed_total")
                && line.contains("listener=\"admission\"")
                && line.contains("bound=\"total\"")
        });
        let closed: f64 = closed.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        (closed > 20.0).then_some(())
    })
    .await;
    review_on(&mut connection, &cart).await;
}

/// Sends a review on a connection, which stays open.
async fn review_on(connection: &mut TlsStream<TcpStream>, review: &str) {
    let head = "POST /admission HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length:";
    let request = format!("{head} {}\r\n\r\n{review}", review.len());
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let whole = loop {
        if let Some((head, content)) = answer.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if content.len() == length.unwrap().parse::<usize>().unwrap() {
                break content;
            }
        }
        let mut read = [0; 4096];
        let length = connection.read(&mut read).await.unwrap();
        assert!(length > 0, "the connection was closed after {answer:?}");
        answer.push_str(std::str::from_utf8(&read[..length]).unwrap());
    };
    assert!(
        answer.starts_with("HTTP/1.1 200") && whole.contains("\"allowed\":true"),
        "{answer}"
    );
}

impl Scene {
    async fn stranger(&self) -> TlsStream<TcpStream> {
        self.connect(None).await
    }

    async fn connect(&self, certificate: Option<Pair>) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        let authority = self.gateway.authority().unwrap();
        roots
            .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
            .unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots);
        let config = match certificate {
            None => config.with_no_client_auth(),
            Some(Pair { certificate, key }) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        let stream = TcpStream::connect(("127.0.0.1", self.webhook.port())).await.unwrap();
        connector
            .connect(ServerName::try_from("localhost").unwrap(), stream)
            .await
            .unwrap()
    }
}
