//! Calls of extensions by browsers, whose WebSockets and EventSources cannot carry header fields that
//! name an application and project.

use serde_json::{Value, json};

use crate::wire::reason;
use test_support::backend::{Backend, Reply, Seen};
use test_support::client::{Answer, Client};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World};

/// `argocd:cart` and `shop`, encoded.
const SUBPROTOCOLS: &str = "base64url.argocd-application-name.tollgate.dev.YXJnb2NkOmNhcnQ, \
                            base64url.argocd-project-name.tollgate.dev.c2hvcA";
const PARAMETERS: &str = "argocd-application-name=argocd%3Acart&argocd-project-name=shop";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A backend that accepts every WebSocket with the subprotocol `chat`.
async fn backend() -> Backend {
    Backend::start(|seen: &Seen| match seen.values("upgrade").as_slice() {
        [] => Reply::ok("x"),
        _ => Reply::Stall(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
              sec-websocket-protocol: chat\r\n\r\n"
                .to_vec(),
        ),
    })
    .await
}

async fn world() -> (World, Backend) {
    let backend = backend().await;
    (Setup::with_backend(backend.address).start().await, backend)
}

/// A GET of `target` below the extension `echo`, with the cookie of `user` and these header lines.
async fn browse(world: &World, user: &str, target: &str, lines: &str) -> Answer {
    let token = token::session(SESSION_KEY, user);
    let host = world.address();
    let request = format!(
        "GET /api/v1/extensions/echo{target} HTTP/1.1\r\nHost: {host}\r\nCookie: argocd.token={token}\r\n{lines}\r\n"
    );
    Client::connect(host).await.exchange(request.as_bytes()).await
}

/// Status and reason of a refusal.
async fn refusal(world: &World, user: &str, target: &str, lines: &str) -> (u16, String) {
    let answer = browse(world, user, target, lines).await;
    (answer.status, reason(&answer))
}

/// The only request of a backend, whose names are the gateway's own.
fn only(backend: &Backend) -> Seen {
    let seen = backend.seen();
    let [seen] = seen.as_slice() else { panic!("{seen:#?}") };
    assert_eq!(seen.values("argocd-application-name"), ["argocd:cart"]);
    assert_eq!(seen.values("argocd-project-name"), ["shop"]);
    assert_eq!(seen.head.matches("argocd-application-name").count(), 1, "{}", seen.head);
    assert!(!seen.head.contains("base64url"), "{}", seen.head);
    seen.clone()
}

const OWN: &str = "Sec-Fetch-Site: same-origin\r\n";

#[tokio::test]
async fn an_eventsource_names_its_application_by_parameters() {
    let (world, backend) = world().await;
    let target = format!("/x?a=%31&{PARAMETERS}&&b=+");
    let denied = refusal(&world, "bob", &target, OWN).await;
    assert_eq!(denied, (403, "permission_denied".to_owned()));
    let answer = browse(&world, "alice", &target, OWN).await;
    assert_eq!(answer.status, 200);
    let record = world
        .admin(&format!("/decisions/{}", answer.values("tollgate-decision-id")[0]))
        .await;
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!(
        (&record["project"], &record["reason"]),
        (&json!("shop"), &json!("allowed"))
    );
    assert_eq!(only(&backend).line(), "GET /x?a=%31&&b=+ HTTP/1.1");
}

#[tokio::test]
async fn a_websocket_names_its_application_by_parameters_or_subprotocols() {
    for (target, offers) in [
        (format!("/x?{PARAMETERS}"), "chat".to_owned()),
        ("/x".to_owned(), format!("{SUBPROTOCOLS}, chat")),
        (format!("/x?{PARAMETERS}"), format!("chat, {SUBPROTOCOLS}")),
    ] {
        let (world, backend) = world().await;
        let own = format!("Origin: http://{}\r\n", world.address());
        let lines = format!("{UPGRADE}Sec-WebSocket-Protocol: {offers}\r\n");
        // SECURITY: browsers open WebSockets across sites, and send the cookie with them.
        for site in ["Origin: https://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n", ""] {
            let refused = refusal(&world, "alice", &target, &format!("{lines}{site}")).await;
            assert_eq!(refused, (403, "cross_site_request".to_owned()), "{target} {site}");
        }
        let denied = refusal(&world, "bob", &target, &format!("{lines}{own}")).await;
        assert_eq!(denied, (403, "permission_denied".to_owned()), "{target}");
        assert!(backend.seen().is_empty());
        let answer = browse(&world, "alice", &target, &format!("{lines}{own}")).await;
        assert_eq!(answer.status, 101, "{target}");
        assert_eq!(answer.values("sec-websocket-protocol"), ["chat"]);
        let seen = only(&backend);
        assert_eq!(seen.line(), "GET /x HTTP/1.1");
        assert_eq!(seen.values("sec-websocket-protocol"), ["chat"]);
    }
}

#[tokio::test]
async fn what_names_two_things_is_refused() {
    let (world, backend) = world().await;
    let own = format!("{OWN}Origin: http://{}\r\n", world.address());
    let header = "Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\n";
    for (target, lines, reason) in [
        ("/x?argocd-application-name=argocd:other", header, "different_names"),
        ("/x?argocd-project-name=other", header, "different_names"),
        (
            "/x?argocd-project-name=shop&%61rgocd-project-name=shop",
            header,
            "repeated_parameter",
        ),
        ("/x?argocd-project-name=%zz", header, "malformed_parameter"),
        ("/x?argocd-project-name=shop", "", "missing_application_header"),
        ("/x?argocd-application-name=cart", "", "malformed_application_header"),
    ] {
        let refused = refusal(&world, "alice", target, &format!("{own}{lines}")).await;
        assert_eq!(refused, (400, reason.to_owned()), "{target}");
    }
    let websocket = |offers: &str| format!("{own}{UPGRADE}Sec-WebSocket-Protocol: {offers}\r\n");
    for (offers, reason) in [
        (SUBPROTOCOLS.to_owned(), "only_subprotocol"),
        (format!("{SUBPROTOCOLS}, {SUBPROTOCOLS}, chat"), "repeated_subprotocol"),
        (format!("{SUBPROTOCOLS}=, chat"), "malformed_subprotocol"),
    ] {
        let refused = refusal(&world, "alice", "/x", &websocket(&offers)).await;
        assert_eq!(refused, (400, reason.to_owned()), "{offers}");
    }
    let other = "/x?argocd-application-name=argocd:other";
    let refused = refusal(&world, "alice", other, &websocket(&format!("{SUBPROTOCOLS}, chat"))).await;
    assert_eq!(refused, (400, "different_names".to_owned()));
    assert!(backend.seen().is_empty());
    // The twin: all of them name the same.
    let answer = browse(&world, "alice", &format!("/x?{PARAMETERS}"), &format!("{own}{header}")).await;
    assert_eq!((answer.status, only(&backend).line()), (200, "GET /x HTTP/1.1"));
}

/// The header fields kept other sites from making a browser send a call: no page can set them
/// without asking first. Parameters do not.
#[tokio::test]
async fn another_site_names_no_application() {
    let (world, backend) = world().await;
    for site in [
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: none\r\n",
        "Origin: https://evil.example\r\n",
        "",
    ] {
        for parameters in [
            PARAMETERS,
            "argocd-application-name=argocd:cart",
            "%61rgocd-project-name=shop",
        ] {
            let refused = refusal(&world, "alice", &format!("/x?{parameters}"), site).await;
            assert_eq!(refused, (403, "cross_site_request".to_owned()), "{parameters} {site}");
        }
    }
    assert!(backend.seen().is_empty());
    let answer = browse(&world, "alice", &format!("/x?{PARAMETERS}"), OWN).await;
    assert_eq!((answer.status, only(&backend).line()), (200, "GET /x HTTP/1.1"));
}
