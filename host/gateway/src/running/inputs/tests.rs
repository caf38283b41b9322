use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::findings;
use tollgate_config::raw::{self, SettingLocations};
use tollgate_identity::clock::Clock;

const NEEDED: &str = "state: {directory: s}\npolicies: {directory: p}\n";

/// The findings about settings in a folder: `location: severity: text`.
async fn found(folder: &Path, settings: &str) -> Vec<String> {
    let path = folder.join("tollgate.yaml");
    std::fs::write(&path, format!("{NEEDED}{settings}")).unwrap();
    let config = raw::load(&path).value.unwrap();
    let found = findings(&config, &SettingLocations::read(&path), &Clock::default()).await;
    let prefix = format!("{}/", folder.display());
    found
        .iter()
        .map(|finding| finding.to_string().replace(&prefix, ""))
        .collect()
}

/// Writes a certificate that is valid for `seconds` from now, and its key.
fn signed(folder: &Path, name: &str, seconds: i64) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["t.example".to_owned()]).unwrap();
    let day = |seconds: i64| {
        let at = Timestamp::from_second(Timestamp::now().as_second() + seconds).unwrap();
        let date = at.to_zoned(jiff::tz::TimeZone::UTC).date();
        rcgen::date_time_ymd(
            i32::from(date.year()),
            date.month().unsigned_abs(),
            date.day().unsigned_abs(),
        )
    };
    params.not_before = day(-40 * 86_400);
    params.not_after = day(seconds);
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
    std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

const DAY: i64 = 86_400;

#[tokio::test]
async fn unusable_certificates_are_reported_by_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    signed(folder, "one", 60 * DAY);
    signed(folder, "two", 60 * DAY);
    std::fs::copy(folder.join("one.pem"), folder.join("no.key")).unwrap();
    std::fs::write(folder.join("garbage.pem"), "-----BEGIN CERTIFICATE-----\n%%%\n").unwrap();
    assert_eq!(
        found(folder, "tls:\n  certificate: one.pem\n  key: one.key\n").await,
        [""; 0]
    );
    for (certificate, key, at, text) in [
        (
            "none.pem",
            "one.key",
            "tollgate.yaml:4:16: error: `tls.certificate`",
            "none.pem",
        ),
        (
            "garbage.pem",
            "one.key",
            "tollgate.yaml:4:16: error: `tls.certificate`",
            "garbage.pem",
        ),
        (
            "one.key",
            "one.key",
            "tollgate.yaml:4:16: error: `tls.certificate`",
            "no certificate",
        ),
        ("one.pem", "none.key", "tollgate.yaml:5:8: error: `tls.key`", "none.key"),
        ("one.pem", "no.key", "tollgate.yaml:5:8: error: `tls.key`", "no.key"),
        (
            "one.pem",
            "two.key",
            "tollgate.yaml:5:8: error: `tls.key`",
            "`two.key` is not the key of the certificate",
        ),
    ] {
        let found = found(folder, &format!("tls:\n  certificate: {certificate}\n  key: {key}\n")).await;
        assert!(
            matches!(found.as_slice(), [one] if one.starts_with(at) && one.contains(text)),
            "{certificate} {key}: {found:?}"
        );
    }
}

#[tokio::test]
async fn expiring_certificates_are_warned_about() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (days, expected) in [(-2, "expired on "), (5, "expires on ")] {
        signed(folder, "one", days * DAY);
        let found = found(folder, "tls:\n  certificate: one.pem\n  key: one.key\n").await;
        let start = format!("tollgate.yaml:4:16: warning: `tls.certificate`: the certificate {expected}");
        assert!(
            matches!(found.as_slice(), [one] if one.starts_with(&start)),
            "{found:?}"
        );
    }
}

#[tokio::test]
async fn missing_folders_are_reported_and_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let settings = "kubernetes: {}\ndecisions: {file: none/d.jsonl}\nstore: {url: 'sqlite:none/t.db'}\n";
    let text = found(folder, settings).await;
    assert_eq!(text.len(), 2, "{text:?}");
    assert!(
        text[0].starts_with("tollgate.yaml:4:19: error: `decisions.file`: `none/d.jsonl`"),
        "{text:?}"
    );
    assert!(
        text[1].starts_with("tollgate.yaml:5:14: error: `store`: `none/t.db`"),
        "{text:?}"
    );
    assert!(
        text.iter().all(|line| line.contains("make the folder first")),
        "{text:?}"
    );

    let good = "kubernetes: {}\ndecisions: {file: d.jsonl}\nstore: {url: 'sqlite:t.db'}\n";
    assert_eq!(found(folder, good).await, [""; 0]);
    let files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(files, ["tollgate.yaml"]);

    std::fs::write(folder.join("t.db"), "not a database").unwrap();
    let text = found(folder, good).await;
    assert!(
        matches!(text.as_slice(), [one] if one.contains("is not an SQLite database")),
        "{text:?}"
    );
    let missing = "kubernetes: {}\nstore: {urlFile: none}\n";
    let text = found(folder, missing).await;
    assert!(
        matches!(text.as_slice(), [one] if one.contains("`store.urlFile`: `none`")),
        "{text:?}"
    );
}

#[tokio::test]
async fn an_unreachable_database_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let settings = format!("kubernetes: {{}}\nstore: {{url: 'postgres://u:secret@127.0.0.1:{port}/t'}}\n");
    let text = tokio::time::timeout(Duration::from_secs(30), found(folder.path(), &settings))
        .await
        .unwrap();
    assert!(
        matches!(text.as_slice(), [one] if one.contains("the store cannot be opened: the connection failed")),
        "{text:?}"
    );
    assert!(!text[0].contains("secret"), "{text:?}");
}

#[tokio::test]
async fn assertion_keys_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.pem"), "nothing").unwrap();
    let text = found(folder.path(), "extensions: {assertion: {issuer: t, key: a.pem}}\n").await;
    assert!(
        matches!(text.as_slice(), [one] if one.starts_with("tollgate.yaml:3:42: error: `extensions.assertion.key`")),
        "{text:?}"
    );
}

#[tokio::test]
async fn authorities_of_argocd_server_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("empty.pem"), "").unwrap();
    for (file, why) in [
        ("missing.pem", "missing.pem`: cannot be read: No such file"),
        ("empty.pem", "empty.pem`: no certificate in it"),
    ] {
        let settings = format!("argocd: {{server: 'https://argocd-server', ca: {file}}}\n");
        let text = found(folder.path(), &settings).await;
        assert!(
            matches!(text.as_slice(), [one] if one.starts_with("tollgate.yaml:3:9: error: `argocd") && one.contains(why)),
            "{text:?}"
        );
    }
}

/// A server that gives every request this answer.
async fn answering(answer: &'static str) -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, task)
}

#[tokio::test]
async fn an_argocd_server_of_another_scheme_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let redirect = "HTTP/1.1 307 Temporary Redirect\r\nlocation: https://a/\r\ncontent-length: 0\r\n\r\n";
    let plain = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
    for (scheme, answer) in [("http", redirect), ("https", plain)] {
        let (address, _task) = answering(answer).await;
        let settings = format!("argocd: {{server: '{scheme}://{address}'}}\n");
        let text = found(folder.path(), &settings).await;
        let expected = format!("warning: `argocd.server`: `{scheme}://{address}` does not answer: ");
        assert!(matches!(text.as_slice(), [one] if one.contains(&expected)), "{text:?}");
    }
}

#[tokio::test]
async fn an_admin_listener_for_everybody_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    for (listen, warns) in [("0.0.0.0:8082", true), ("127.0.0.1:8082", false), ("[::1]:8082", false)] {
        let text = found(folder.path(), &format!("admin: {{listen: '{listen}'}}\n")).await;
        let is_warned = text.iter().any(|one| one.contains("warning: `admin.listen`"));
        assert_eq!(is_warned, warns, "{text:?}");
    }
}

#[tokio::test]
async fn an_argocd_server_that_nobody_reaches_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let (address, listener) = answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await;
    let settings = format!("argocd: {{server: 'http://{address}'}}\n");
    assert_eq!(found(folder.path(), &settings).await, [""; 0]);
    listener.abort();
    let _ = listener.await;
    let text = found(folder.path(), &settings).await;
    assert!(
        matches!(text.as_slice(), [one] if one.starts_with("tollgate.yaml:3:18: warning: `argocd.server`")),
        "{text:?}"
    );
}
