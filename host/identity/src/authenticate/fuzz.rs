//! Fuzz targets: where a request carries credentials, and their format.

use http::Request;
use http::request::Parts;
use secrecy::ExposeSecret as _;

use super::k8s_proxy::{self, CiTokenSupport, MAX_ID_TOKEN_BYTES, MAX_KEY_BYTES, PresentedCredential};
use super::request_token;
use super::token::{LEEWAY_SECONDS, TokenKind, TokenTimes, UnverifiedToken};
use crate::access::AccessKey;
use tollgate_fuzz::{Target, fields, first_line, inputs, strings, text};

pub(crate) const TARGETS: &[Target] = &[
    Target {
        name: "session_cookie",
        run: session_cookie,
        seeds: cookies,
    },
    Target {
        name: "agent_credentials",
        run: agent_credentials,
        seeds: agent_heads,
    },
    Target {
        name: "jwt",
        run: jwt,
        seeds: tokens,
    },
    Target {
        name: "author_statement",
        run: author_statement,
        seeds: tokens,
    },
];

fn cookies() -> Vec<Vec<u8>> {
    inputs([
        "cookie: argocd.token=a.b.c",
        "cookie: argocd.token=2:a.b; argocd.token-1=.c",
        "cookie: a=1; argocd.token=3:a\ncookie: argocd.token-1=b; argocd.token-2=c; argocd.token-3=d",
        "authorization: Bearer a.b.c\ncookie: argocd.token=a.b.c",
        "authorization: Bearer a\ncookie: argocd.token=b",
        "authorization: Basic YTpi",
    ])
}

/// At most one token, and no longer than the bound.
fn session_cookie(data: &[u8]) {
    let fields = fields(data);
    if let Ok(Some(credential)) = request_token::read(&fields) {
        assert!(credential.token.len() <= request_token::MAX_TOKEN_BYTES);
    }
}

const JWT: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2EiLCJleHAiOjF9.c2ln";

fn agent_heads() -> Vec<Vec<u8>> {
    let mut seeds = inputs([
        "/?a=1\nauthorization: Bearer pat:7:secret-token",
        "/\nauthorization: Bearer ci:7:job",
        "/?gitlab-agent-id=7&gitlab-csrf-token=c\ncookie: _gitlab_kas=abc",
        "/\ncookie: _gitlab_kas=a%20b\ngitlab-agent-id: 7\nx-csrf-token: c",
        "/\nupgrade: websocket\nsec-websocket-protocol: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.cGF0Ojc6eA",
        "/\nupgrade: websocket\nsec-websocket-protocol: base64url.bearer.authorization.other.eA,x",
    ]);
    seeds.push(format!("/\nauthorization: Bearer {JWT}").into_bytes());
    seeds.extend(inputs(
        strings(
            &["tests/cases/kubernetes_access.yaml"],
            &["Authorization", "authorization", "Cookie"],
        )
        .iter()
        .map(|value| format!("/\nauthorization: {value}")),
    ));
    seeds
}

fn head(target: &str, lines: &str) -> Option<Parts> {
    let mut request = Request::builder().uri(target).body(()).ok()?;
    *request.headers_mut() = fields(lines.as_bytes());
    Some(request.into_parts().0)
}

/// What is read is within its bounds and is not left for the cluster.
fn agent_credentials(data: &[u8]) {
    let Some(input) = text(data) else { return };
    let (target, lines) = first_line(input);
    let Some(mut head) = head(target, lines) else { return };
    for ci in [CiTokenSupport::Accepted, CiTokenSupport::Unknown] {
        let Ok(presented) = k8s_proxy::read(&head, ci) else {
            continue;
        };
        let (secret, most) = match &presented {
            PresentedCredential::IdToken(token) => (token, MAX_ID_TOKEN_BYTES),
            PresentedCredential::Query(query) => match &query.key {
                AccessKey::PersonalAccessToken(token) => (token, MAX_KEY_BYTES),
                AccessKey::CiJobToken(token) => {
                    assert_eq!(ci, CiTokenSupport::Accepted);
                    (token, MAX_KEY_BYTES)
                }
                AccessKey::SessionCookie { cookie, csrf_token } => {
                    assert!(!csrf_token.expose_secret().is_empty());
                    (cookie, MAX_KEY_BYTES)
                }
                AccessKey::OidcIdToken(_) => continue,
            },
        };
        let secret = secret.expose_secret();
        assert!(!secret.is_empty() && secret.len() <= most);
        // Short texts are in the names of the shown fields by chance.
        assert!(secret.len() < 16 || !format!("{presented:?}").contains(secret));
    }
    tollgate_core::subprotocol::strip(&mut head.headers);
    let offered = head.headers.get_all(http::header::SEC_WEBSOCKET_PROTOCOL);
    let left = offered
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    for offer in left {
        assert!(!offer.trim_ascii().starts_with(b"base64url.bearer.authorization."));
    }
}

fn tokens() -> Vec<Vec<u8>> {
    let mut seeds = inputs([
        JWT,
        "eyJhbGciOiJub25lIn0.e30.",
        "eyJhbGciOiJIUzI1NiIsImNyaXQiOlsiYjY0Il19.eyJleHAiOjEuNSwibmJmIjotMX0.eA",
        "a.b.c.d.e",
        "..",
    ]);
    seeds.extend(inputs(strings(
        &["tests/cases/kubernetes_access.yaml"],
        &["token", "id_token"],
    )));
    seeds
}

/// Nothing but the listed algorithms gets past the header; a token's times never overflow.
fn jwt(data: &[u8]) {
    use jsonwebtoken::Algorithm;
    let Some(input) = text(data) else { return };
    let Ok(token) = UnverifiedToken::parse(input) else {
        return;
    };
    let allowed = [Algorithm::RS256, Algorithm::ES256];
    if let Ok(algorithm) = token.checked_algorithm(TokenKind::Bearer, &allowed) {
        assert!(allowed.contains(&algorithm));
    }
    let _ = (token.issuer().len(), token.key_id().map(str::len));
    let claims = serde_json::from_slice(data).unwrap_or_default();
    for now in [0, i64::MAX] {
        drop(TokenTimes::check(&claims, now, LEEWAY_SECONDS));
    }
}

/// Nobody else signs.
fn author_statement(data: &[u8]) {
    let Some(text) = text(data) else { return };
    assert!(super::author::fuzz::verify(text).is_err(), "a foreign statement counts");
}
