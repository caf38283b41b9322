//! What commands print when a server answers with hostile text, or does not answer.

use std::net::SocketAddr;
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;

use crate::memory::Process;
use test_support::world::Setup;

/// Text that would set a terminal's clipboard, clear its screen, change the direction of text and
/// return to the start of the line.
const HOSTILE: &str = "x\u{1b}]52;c;eA==\u{7}\u{9b}2J\u{202e}\r\u{7f}y";

async fn tollgate(arguments: &[&str], server: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(arguments)
        .env_clear()
        .env("TOLLGATE_SERVER", server)
        .env("TOLLGATE_AUTH_TOKEN", "t")
        .output()
        .await
        .unwrap()
}

/// Starts a server that gives every request this answer.
async fn answering(status: u16, body: &Value) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let body = body.to_string();
    let answer = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut read = vec![0; 1 << 16];
                // Over loopback, one read gets the whole request.
                let _ = stream.read(&mut read).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

/// A body that fits every request: an item of every list, a set, a decision and a refusal. Every
/// text in it is hostile.
fn everything() -> Value {
    let mut item = json!({
        "id": HOSTILE, "name": HOSTILE, "username": HOSTILE, "user": HOSTILE, "agent": {"id": 7, "name": HOSTILE},
        "action": HOSTILE, "lastAt": HOSTILE, "count": 1, "session": HOSTILE, "state": HOSTILE, "token": HOSTILE,
        "details": {"verb": HOSTILE, "resource": HOSTILE, "name": HOSTILE, "reason": HOSTILE},
        "metadata": {"name": HOSTILE, "namespace": HOSTILE, "resourceVersion": HOSTILE},
        "spec": {
            "description": HOSTILE, "generators": [{HOSTILE: {}}],
            "destinations": [{"server": HOSTILE, "namespace": HOSTILE, "name": HOSTILE}],
            "template": {"spec": {"project": HOSTILE, "source": {"repoURL": HOSTILE, "path": HOSTILE}}},
        },
        "status": {"conditions": [{"type": HOSTILE, "status": HOSTILE, "message": HOSTILE}], "token": HOSTILE},
        "changes": [{"application": HOSTILE, "action": HOSTILE, "heldBack": HOSTILE, "diff": format!("+{HOSTILE}\n")}],
        "diff": format!("-{HOSTILE}\n"),
        "timestamp": HOSTILE, "outcome": HOSTILE, "principal": {"username": HOSTILE}, "extension": HOSTILE,
        "detail": HOSTILE, "decision_id": HOSTILE, "checks": [{"rule": HOSTILE}],
        "error": HOSTILE, "reason": HOSTILE, "code": HOSTILE, "decision": HOSTILE,
        "refusals": [{"about": HOSTILE, "reason": HOSTILE, "rule": HOSTILE}],
    });
    let one = item.clone();
    item["items"] = json!([one]);
    item
}

#[tokio::test]
async fn nothing_that_servers_say_moves_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("set.yaml");
    let text = "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: a}\nspec: {}\n";
    std::fs::write(&set, text).unwrap();
    let set = set.to_str().unwrap();
    for status in [200, 403] {
        let address = answering(status, &everything()).await;
        let server = format!("http://{address}");
        let mut commands: Vec<Vec<&str>> = Vec::new();
        for list in ["token", "session", "agent", "appset"] {
            commands.push(vec![list, "list"]);
            commands.push(vec![list, "list", "-o", "json"]);
            commands.push(vec![list, "list", "-o", "yaml"]);
        }
        for format in [&[][..], &["-o", "json"], &["-o", "yaml"]] {
            for command in [
                &["audit"][..],
                &["appset", "get", "a"],
                &["appset", "generate", set],
                &["appset", "create", set],
                &["appset", "apply", set],
                &["decisions", "--admin", &server],
            ] {
                commands.push([command, format].concat());
            }
        }
        commands.push(vec!["appset", "list", "-o", "name"]);
        commands.push(vec!["appset", "delete", "-y", "a"]);
        commands.push(vec!["credential", "get", "c"]);
        for command in commands {
            let output = tollgate(&command, &server).await;
            let shown = [output.stdout, output.stderr].concat();
            let shown = String::from_utf8(shown).unwrap();
            assert!(
                shown.contains('x') && shown.contains('y'),
                "{command:?} {status}: {shown:?}"
            );
            let is_hostile = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || c == '\u{202e}';
            assert!(!shown.contains(is_hostile), "{command:?} {status}: {shown:?}");
        }
    }
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_error() {
    let items: Vec<Value> = (0..5_000)
        .map(|number| json!({"name": format!("token-{number}")}))
        .collect();
    let address = answering(200, &json!({ "items": items })).await;
    let command = format!("'{}' token list | head -1", env!("CARGO_BIN_EXE_tollgate"));
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", &command])
        .env("TOLLGATE_SERVER", format!("http://{address}"))
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

/// Starts a TLS server with a certificate for `name`, which has expired if `days` is negative.
/// Returns its address and the PEM of its authority.
async fn secured(name: &str, days: i64) -> (SocketAddr, String) {
    let authority = KeyPair::generate().unwrap();
    let mut of_authority = CertificateParams::new(Vec::new()).unwrap();
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = of_authority.self_signed(&authority).unwrap().pem();
    let issuer = Issuer::new(of_authority, authority);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let day = Duration::from_secs(86_400);
    let now = SystemTime::now();
    params.not_before = (now - 40 * day).into();
    params.not_after = if days < 0 { now - day } else { now + day }.into();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.pem().as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move { serve(acceptor, stream).await });
        }
    });
    (address, pem)
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream) {
    let Ok(mut stream) = acceptor.accept(stream).await else {
        return;
    };
    let mut read = vec![0; 1 << 16];
    let _ = stream.read(&mut read).await;
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 12\r\nconnection: close\r\n\r\n{\"items\":[]}";
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

#[tokio::test]
async fn a_connection_that_fails_names_its_cause_and_the_option_that_helps() {
    let folder = tempfile::tempdir().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let plain = answering(200, &json!({"items": []})).await;
    let (good, good_pem) = secured("127.0.0.1", 1).await;
    let (expired, expired_pem) = secured("127.0.0.1", -1).await;
    let (other, other_pem) = secured("other.example", 1).await;
    let pem = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (good_pem, expired_pem, other_pem) = (
        pem("good", &good_pem),
        pem("expired", &expired_pem),
        pem("other", &other_pem),
    );
    let works = tollgate(
        &["token", "list", "--certificate-authority", &good_pem],
        &format!("https://{good}"),
    )
    .await;
    assert!(works.status.success(), "{works:?}");
    for (server, authority, cause, hint) in [
        (
            format!("http://{closed}"),
            None,
            "Connection refused (os error 111)",
            "nothing listens there; name the server with `--server`",
        ),
        (
            format!("https://{good}"),
            None,
            "its certificate is signed by an unknown authority",
            "name the authority that signed it with `--certificate-authority`",
        ),
        (
            format!("https://{good}"),
            Some(&other_pem),
            "its certificate is signed by an unknown authority",
            "name the authority that signed it with `--certificate-authority`",
        ),
        (
            format!("https://{expired}"),
            Some(&expired_pem),
            "its certificate has expired",
            "the server needs a new one",
        ),
        (
            format!("https://{other}"),
            Some(&other_pem),
            "its certificate is for another name",
            "name the server as its certificate does, with `--server`",
        ),
        (
            format!("http://{good}"),
            None,
            "invalid HTTP version parsed",
            "write `https://` in `--server` where it serves with TLS",
        ),
        (
            format!("https://{plain}"),
            None,
            "it does not speak TLS",
            "write `http://` in `--server` where it serves without TLS",
        ),
    ] {
        let mut arguments = vec!["token", "list"];
        arguments.extend(authority.iter().flat_map(|path| ["--certificate-authority", path]));
        let output = tollgate(&arguments, &server).await;
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        let whole =
            format!("tollgate: gateway.unreachable: the gateway at `{server}` cannot be reached: {cause} ({hint})\n");
        assert_eq!(text, whole);
    }
    let output = tollgate(&["decisions", "--admin", &format!("http://{closed}")], "").await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("Connection refused") && text.contains("`--admin`"),
        "{text}"
    );
}

#[tokio::test]
async fn the_log_is_json_from_its_first_line() {
    let folder = tempfile::tempdir().unwrap();
    for settings in [
        "listen: nowhere\n",
        "state: {directory: none}\npolicies: {directory: none}\nlisten: '127.0.0.1:0'\nadmin: {listen: '127.0.0.1:0'}\n",
        "state: {directory: s}\npolicies: {directory: p}\ndecisions: {file: none/d}\n",
    ] {
        let path = folder.path().join("tollgate.yaml");
        std::fs::write(&path, settings).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["serve", "--log-json", "--config"])
            .arg(&path)
            .output()
            .await
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?} in {text}")))
            .collect();
        assert!(lines.iter().any(|line| line["level"] == "ERROR"), "{text}");
        assert!(text.contains("tollgate.yaml") || text.contains("none"), "{text}");
    }
}

#[tokio::test]
async fn serve_and_check_refuse_the_same_with_file_and_line() {
    let world = Setup::default().start().await;
    let settings = world.path("tollgate.yaml");
    let text = std::fs::read_to_string(&settings).unwrap();
    let mut document: Value = serde_saphyr::from_str(&text).unwrap();
    document["decisions"]["file"] = json!("none/decisions.jsonl");
    std::fs::write(&settings, serde_json::to_string_pretty(&document).unwrap()).unwrap();
    let run = |command: &'static str| {
        let settings = settings.clone();
        async move {
            let mut process = Command::new(env!("CARGO_BIN_EXE_tollgate"));
            process.args([command, "--config"]).arg(settings);
            let output = process.output().await.unwrap();
            let text = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8(text).unwrap())
        }
    };
    for command in ["check", "serve"] {
        let (code, text) = run(command).await;
        assert_eq!(code, Some(1), "{text}");
        assert!(
            text.contains("tollgate.yaml:")
                && text.contains("`decisions.file`")
                && text.contains("make the folder first"),
            "{command}: {text}"
        );
    }
    // The twin: good settings pass, and the gateway starts.
    std::fs::write(&settings, text).unwrap();
    let (code, text) = run("check").await;
    assert_eq!(code, Some(0), "{text}");
    drop(Process::start(&world).await);
}

#[tokio::test]
async fn impersonation_cannot_be_enabled_where_nobody_acts_for_applications() {
    const VARIABLE: &str = "ARGOCD_APPLICATION_CONTROLLER_ENABLE_IMPERSONATION";
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("tollgate.yaml");
    let serve = async |text: &str, flag: Option<&str>, variable: Option<&str>| {
        std::fs::write(&settings, text).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        process.args(["serve", "--config"]).arg(&settings).args(flag);
        process
            .env_remove(VARIABLE)
            .envs(variable.map(|value| (VARIABLE, value)));
        let output = process.output().await.unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // Neither starts, because there is no state. The flag is checked before.
    let without = "state: {directory: none}\npolicies: {directory: none}\nlisten: '127.0.0.1:0'\n\
                   admin: {listen: '127.0.0.1:0'}\nauthentication: {argocdSessions: true}\n";
    let with = format!("{without}applications: {{}}\n");
    let error = "has no section `applications`";
    for (flag, variable) in [
        (Some("--enable-impersonation"), None),
        (Some("--enable-impersonation=false"), None),
        (None, Some("true")),
    ] {
        let text = serve(without, flag, variable).await;
        assert!(
            text.contains(error) && text.contains("`--enable-impersonation`") && text.contains(VARIABLE),
            "{text}"
        );
        let text = serve(&with, flag, variable).await;
        assert!(!text.contains(error) && text.contains("none"), "{text}");
    }
    let text = serve(without, None, None).await;
    assert!(!text.contains(error) && text.contains("none"), "{text}");
}
