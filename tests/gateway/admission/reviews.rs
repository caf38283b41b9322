//! Reviews as API servers send them, and what strangers send to the listener.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

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

impl Scene {
    async fn stranger(&self) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
        use tokio_rustls::rustls::pki_types::pem::PemObject as _;
        use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
        use tokio_rustls::rustls::{ClientConfig, RootCertStore};
        let mut roots = RootCertStore::empty();
        let authority = self.gateway.authority().unwrap();
        roots
            .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
            .unwrap();
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.webhook.port()))
            .await
            .unwrap();
        connector
            .connect(ServerName::try_from("localhost").unwrap(), stream)
            .await
            .unwrap()
    }
}
