//! What the Service of an `ArgoCDExtension` sees.

use super::*;
use tollgate_core::diagnostic::Location;
use tollgate_state::extensions;
use tollgate_state::{ExtensionObject, Resources};

#[tokio::test]
async fn a_request_reaches_the_service_of_an_argocdextension() {
    let backend = backend::Backend::start(|_| Reply::ok("up")).await;
    let object = ExtensionObject {
        name: "metrics".to_owned(),
        // In a cluster, `http://<service>.<namespace>.svc`.
        url: format!("http://{}/api", backend.address).parse().unwrap(),
        location: Location::new("extension.yaml", 1),
    };
    let resources = Resources {
        extensions: [("metrics".to_owned(), Arc::new(object))].into(),
        ..Resources::default()
    };
    let specs = extensions::parse(&resources).value.unwrap();
    let server = TestServer::with(Gateway::new(&specs).unwrap(), limits(), None).await;
    let mut client = Client::connect(server.address).await;
    let forged = "Argocd-Username: mallory\r\nAuthorization: Bearer t\r\nArgocd-Application-Name: a:b\r\n";
    for (target, status) in [("metrics/up?x=1", 200), ("else/up", 404), ("metrics/../up", 400)] {
        let line = format!("GET /extensions/{target}");
        let answer = client.exchange(&request(&line, forged)).await;
        assert_eq!(answer.status, status, "{target}: {}", answer.head);
    }
    let seen = backend.seen();
    let [seen] = seen.as_slice() else {
        panic!("{} requests", seen.len());
    };
    assert_eq!(seen.line(), "GET /api/up?x=1 HTTP/1.1");
    assert_eq!(seen.values("host"), [backend.address.to_string()]);
    assert_eq!(seen.values("argocd-username"), ["ada"]);
    assert_eq!(seen.values("argocd-user-groups"), ["dev,ops"]);
    assert_eq!(seen.values("argocd-application-name"), ["argocd:guestbook"]);
    assert!(seen.values("authorization").is_empty());
}
