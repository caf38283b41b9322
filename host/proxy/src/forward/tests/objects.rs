//! What the Service of an `ArgoCDExtension` sees.

use super::*;
use tollgate_objects::decode::load_text;
use tollgate_objects::extensions;

/// A gateway with the extension of one object, `metrics` in the namespace of the control plane.
async fn server(backend: &str) -> TestServer {
    let text = format!(
        "apiVersion: argoproj.io/v1alpha1\nkind: ArgoCDExtension\nmetadata: {{name: metrics, namespace: argocd}}\n\
         spec: {{backend: {backend}}}\n"
    );
    let resources = load_text(&text, "extension.yaml", "argocd").value.unwrap();
    let specs = extensions::parse(&resources).value.unwrap();
    TestServer::with(Gateway::new(&specs).unwrap(), limits(), None).await
}

#[tokio::test]
async fn a_request_reaches_the_service_and_path_of_an_argocdextension() {
    let backend = backend::Backend::start(|_| Reply::ok("up")).await;
    let port = backend.address.port();
    let forged = "Argocd-Username: mallory\r\nAuthorization: Bearer t\r\nArgocd-Application-Name: a:b\r\n";
    for (endpoint, path) in [
        ("", "/up"),
        ("endpoint: /api", "/api/up"),
        ("endpoint: /a/b/", "/a/b/up"),
    ] {
        let server = server(&format!("{{serviceName: 'metrics-server:{port}', {endpoint}}}")).await;
        let mut client = Client::connect(server.address).await;
        let before = backend.seen().len();
        for (target, status) in [("metrics/up?x=1", 200), ("else/up", 404), ("metrics/../up", 400)] {
            let line = format!("GET /extensions/{target}");
            let answer = client.exchange(&request(&line, forged)).await;
            assert_eq!(answer.status, status, "{target}: {}", answer.head);
        }
        let seen = backend.seen().split_off(before);
        let [seen] = seen.as_slice() else {
            panic!("{} requests", seen.len());
        };
        assert_eq!(seen.line(), format!("GET {path}?x=1 HTTP/1.1"));
        assert_eq!(seen.values("host"), [format!("metrics-server.argocd.svc:{port}")]);
        assert_eq!(seen.values("argocd-username"), ["ada"]);
        assert_eq!(seen.values("argocd-user-groups"), ["dev,ops"]);
        assert_eq!(seen.values("argocd-application-name"), ["argocd:guestbook"]);
        assert!(seen.values("authorization").is_empty());
    }
}
