//! Fuzz targets: what either end of a connection makes of bytes of the other one.

use std::future::pending;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;

use crate::Agent;
use crate::connections::Connections;
use crate::hello::{BindingRule, Challenge, Channel, EndsTls, Proof};
use crate::key::SigningKey;
use crate::settings::Settings;
use crate::{websocket, wire};
use tollgate_core::upgrade::Protocol;
use tollgate_fuzz::{Target, fields, inputs};

/// Every target of this crate.
pub fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "agent_gateway_end",
            run: gateway_end,
            seeds: frames,
        },
        Target {
            name: "agent_agent_end",
            run: agent_end,
            seeds: frames,
        },
        Target {
            name: "agent_proof",
            run: proof,
            seeds: proofs,
        },
        Target {
            name: "agent_answer",
            run: answer,
            seeds: heads,
        },
    ]
}

/// The longest an end may look at bytes after which nothing comes.
const PATIENCE: Duration = Duration::from_secs(20);

static RUNTIME: LazyLock<Option<Runtime>> = LazyLock::new(|| Runtime::new().ok());

static CONNECTIONS: LazyLock<Connections> = LazyLock::new(Connections::default);

/// An agent whose API server is not there.
static AGENT: LazyLock<Option<Arc<Agent>>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().ok()?;
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).ok();
    let authority = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).ok()?;
    write("ca.pem", &authority.cert.pem())?;
    let key = SigningKey::generate_pem().ok()?;
    write("key.pem", secrecy::ExposeSecret::expose_secret(&key))?;
    write("token", "token")?;
    write(
        "agent.yaml",
        "gateway: https://127.0.0.1:1\ncertificateAuthority: ca.pem\ncluster: fuzzed\nkey: key.pem\n\
         apiServer: {url: 'https://127.0.0.1:1', certificateAuthority: ca.pem, token: token}\n",
    )?;
    let settings = Settings::load(&folder.path().join("agent.yaml"), None).ok()?;
    Agent::new(settings).ok().map(Arc::new)
});

/// Frames of HTTP/2: settings, a ping, a request and an answer, one that is too long.
fn frames() -> Vec<Vec<u8>> {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = b"\0\0\0\x04\0\0\0\0\0";
    // `:method: GET`, `:scheme: https`, `:path: /`, `:authority: cluster.invalid`
    let head = b"\0\0\x13\x01\x05\0\0\0\x01\x82\x87\x84\x41\x0fcluster.invalid";
    let answer = b"\0\0\x01\x01\x05\0\0\0\x01\x88";
    let ping = b"\0\0\x08\x06\0\0\0\0\0abcdefgh";
    let long = b"\xff\xff\xff\0\0\0\0\0\x01";
    vec![
        [&preface[..], settings, head].concat(),
        [&preface[..], settings, ping, long].concat(),
        [&settings[..], answer].concat(),
        [&settings[..], ping, long].concat(),
        b"\x82\x04abcd".to_vec(),
    ]
}

/// Writes bytes and then nothing, and reads until the other end closes.
async fn speak(mut near: DuplexStream, data: &[u8]) {
    let _ = near.write_all(data).await;
    let _ = near.shutdown().await;
    let mut rest = Vec::new();
    let _ = near.read_to_end(&mut rest).await;
}

/// No agent is let in, and the connection ends.
fn gateway_end(data: &[u8]) {
    let Some(runtime) = &*RUNTIME else { return };
    // The first byte says whether what follows is in a message of the WebSocket.
    let (is_message, data) = data
        .split_first()
        .map_or((false, data), |(first, rest)| (first & 1 == 0, rest));
    runtime.block_on(async {
        let (near, far) = duplex(1 << 16);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let serving = timeout(PATIENCE, CONNECTIONS.serve(far, EndsTls::No, address, None, pending()));
        let speaking = async {
            if is_message {
                let mut stream = websocket::bytes(websocket::wrap(near, Role::Client).await);
                let _ = stream.write_all(data).await;
                let _ = stream.shutdown().await;
            } else {
                speak(near, data).await;
            }
        };
        let (served, ()) = tokio::join!(serving, speaking);
        assert!(
            matches!(served, Ok(Err(_))),
            "a connector that proved nothing was served: {served:?}"
        );
    });
    assert!(
        CONNECTIONS.statuses(None).is_empty(),
        "a connector that proved nothing is connected"
    );
}

/// The agent's end of it ends.
fn agent_end(data: &[u8]) {
    let (Some(runtime), Some(agent)) = (&*RUNTIME, &*AGENT) else {
        return;
    };
    runtime.block_on(async {
        let (near, far) = duplex(1 << 16);
        let channel = Channel {
            host: "gateway".to_owned(),
            value: None,
        };
        let stop = CancellationToken::new();
        let serving = timeout(PATIENCE, agent.serve(far, channel, 0, &stop, Duration::ZERO));
        let (served, ()) = tokio::join!(serving, speak(near, data));
        assert!(served.is_ok(), "the connector goes on with a connection that is closed");
    });
}

fn proofs() -> Vec<Vec<u8>> {
    let key = "00".repeat(32);
    inputs([
        &*format!(
            r#"{{"key":"{key}","signature":"AA==","instance":"00000000-0000-0000-0000-000000000000","cluster":"a","version":"1"}}"#
        ),
        &*format!(
            r#"{{"key":"{key}","signature":"","instance":"00000000-0000-0000-0000-000000000000","cluster":"a","version":"1","join_token":"t"}}"#
        ),
    ])
}

/// Nobody guesses a signature.
fn proof(data: &[u8]) {
    let Some(challenge) = Challenge::new(uuid::Uuid::nil(), 1) else {
        return;
    };
    if let Ok(proof) = serde_json::from_slice::<Proof>(data) {
        assert!(
            proof.verify(&challenge, &BindingRule::default(), EndsTls::No).is_err(),
            "a guessed proof is good"
        );
    }
}

fn heads() -> Vec<Vec<u8>> {
    inputs([
        "tollgate-status: 101\nupgrade: websocket",
        "tollgate-status: 200",
        "tollgate-status: 999\ntollgate-status: 101",
        "tollgate-method: GET\nupgrade: SPDY/3.1\nconnection: upgrade",
    ])
}

/// A tunnel is open at one end exactly if it is at the other one, and the ends' own fields go no further.
fn answer(data: &[u8]) {
    let fields = fields(data);
    for inside in [StatusCode::OK, StatusCode::BAD_REQUEST] {
        for asked in [None, Some(Protocol::WebSocket)] {
            let mut response = Response::new(());
            *response.status_mut() = inside;
            *response.headers_mut() = fields.clone();
            let decoded = wire::decode_response(&mut response, asked);
            let is_own = |name: &HeaderName| name.as_str().starts_with("tollgate-");
            assert!(!response.headers().keys().any(is_own), "{fields:?}");
            if decoded.is_ok() && response.status() == StatusCode::SWITCHING_PROTOCOLS {
                assert!(asked.is_some() && inside == StatusCode::OK, "{fields:?}");
            }
        }
    }
    let mut request = Request::new(());
    *request.method_mut() = Method::CONNECT;
    *request.headers_mut() = fields;
    let upgrade = HeaderValue::from_static("websocket");
    if wire::decode_request(&mut request).is_ok() {
        // Only the gateway's own `:protocol`, which fields cannot set, asks for a protocol.
        assert_ne!(request.headers().get(http::header::UPGRADE), Some(&upgrade));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_target_holds_on_its_seeds_earlier_finds_and_mutations() {
        tollgate_fuzz::check(&super::targets());
    }
}
