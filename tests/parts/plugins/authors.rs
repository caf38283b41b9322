//! The commands for plugin authors: a new provider is created, built, inspected and tested, and a
//! transcript test reports differences.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::{Value, json};
use tollgate_config::Plugins;

use crate::plugins::commands::command;
use crate::plugins::support::guests;

/// Settings with this folder and a cache that all tests share.
fn settings(folder: PathBuf) -> Plugins {
    static CACHE: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        folder
    });
    Plugins {
        directory: Some(folder),
        cache: Some(CACHE.path().to_owned()),
        ..Plugins::default()
    }
}

/// Runs `plugin test NAME --transcript` with this transcript: whether it passed, its JSON report
/// and its errors.
fn replay(name: &str, transcript: &str) -> (bool, Value, String) {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("transcript.yaml");
    fs::write(&file, transcript).unwrap();
    let arguments = ["test", name, "--transcript", file.to_str().unwrap(), "-o", "json"];
    let (done, out, err) = command(&arguments, settings(guests()));
    (done, serde_json::from_str(&out).unwrap_or_default(), err)
}

/// The sources are new each time, in a folder that keeps the compiled dependencies.
#[test]
fn a_new_provider_builds_and_passes_its_own_transcript() {
    let root = tempfile::tempdir().unwrap();
    let into = root.path().to_str().unwrap();
    let (done, out, err) = command(&["new", "provider", "my-broker", "--into", into], Plugins::default());
    assert!(done && out.contains("build/Cargo.toml"), "{err}");
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-provider");
    refresh(&root.path().join("my-broker"), &kept);

    let built = Command::new(env!("CARGO"))
        .current_dir(&kept)
        .args(["run", "--release", "--manifest-path", "build/Cargo.toml"])
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let built_plugins = || settings(kept.join("target/guests"));
    let component = kept.join("target/guests/my-broker.wasm");
    let (done, out, err) = command(&["inspect", component.to_str().unwrap()], built_plugins());
    assert!(done && err.is_empty(), "{err}");
    assert!(
        out.contains("secrets   apiKey -> {broker}\n") && out.contains("hosts     {broker}\n"),
        "{out}"
    );

    let transcript = kept.join("transcript.yaml");
    let arguments = ["test", "my-broker", "--transcript", transcript.to_str().unwrap()];
    let (done, out, err) = command(&arguments, built_plugins());
    assert!(done, "{out}{err}");
    assert!(out.contains("\n6 passed, 0 failed\n"), "{out}");
    assert!(out.contains("hosts: [broker.example.com]\n"), "{out}");

    // The same transcript with one changed expectation.
    let changed = fs::read_to_string(&transcript).unwrap();
    let changed = changed.replace("role: deployer, cluster", "role: admin, cluster");
    fs::write(&transcript, changed).unwrap();
    let (done, out, _) = command(&arguments, built_plugins());
    assert!(!done && out.contains("\n5 passed, 1 failed\n"), "{out}");
    assert!(
        out.contains("- request 1: json `$.role`: expected `admin`, observed `deployer`"),
        "{out}"
    );
    for secret in ["key-of-the-test", "an-old-key", "token-of-the-test"] {
        assert!(!out.contains(secret), "{out}");
    }
}

/// Copies the files of `new` into `kept`, whose other files stay.
fn refresh(new: &Path, kept: &Path) {
    fs::create_dir_all(kept).unwrap();
    for entry in fs::read_dir(new).unwrap() {
        let path = entry.unwrap().path();
        let to = kept.join(path.file_name().unwrap());
        if path.is_dir() {
            refresh(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

/// Cases of the table are valid transcripts.
#[test]
fn cases_of_the_tables_are_transcripts() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/providers.yaml");
    let table: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for provider in ["upbound", "vault", "webapi"] {
        let cases = table["cases"].as_array().unwrap().iter();
        let cases: Vec<&Value> = cases
            .filter(|case| case["kind"] == "exchange" && case["provider"] == provider)
            .collect();
        let (done, report, err) = replay(provider, &json!({ "cases": cases }).to_string());
        assert!(done, "{provider}: {err} {report:#}");
        assert!(
            report["passed"].as_u64() >= Some(3) && report["failed"] == 0,
            "{report}"
        );
    }
}

const UPBOUND: &str = r#"
now: "2026-01-02T03:04:05Z"
config: { organization: acme }
secret: { token: robot-token-of-acme }
requests:
  - expect:
      method: POST
      url: https://auth.upbound.io/apis/tokenexchange.upbound.io/v1alpha1/orgscopedtokens
      headers: { authorization: Bearer robot-token-of-acme }
    answer: { status: 200, json: { access_token: token-of-acme, expires_in: 60 } }
expect: { token: token-of-acme, expiry: "2026-01-02T03:05:05Z" }
"#;

#[test]
fn differences_fail_without_a_secret_in_the_report() {
    let (done, report, err) = replay("upbound", UPBOUND);
    assert!(done, "{err} {report:#}");
    for (from, to, difference) in [
        ("POST", "GET", "request 1: method: expected `GET`, observed `POST`"),
        (
            "Bearer robot-token-of-acme",
            "Bearer another",
            "request 1: field `authorization`: expected `Bearer <7 bytes>`, observed `Bearer <secret token>`",
        ),
        (
            "{ token: token-of-acme,",
            "{ token: another-token,",
            "token: expected <the expected token>, observed <answer 1 $.access_token>",
        ),
        (
            "03:05:05Z",
            "03:06:05Z",
            "expiry: expected 2026-01-02T03:06:05Z, observed 2026-01-02T03:05:05Z",
        ),
        (
            "status: 200, json: { access_token: token-of-acme, expires_in: 60 }",
            "fail: tls",
            "expected a credential, observed an error (config, egress.tls",
        ),
    ] {
        assert!(UPBOUND.contains(from), "{from}");
        let (done, report, _) = replay("upbound", &UPBOUND.replace(from, to));
        assert!(!done, "{to}: {report:#}");
        let text = report.to_string();
        assert!(
            report["cases"][0]["differences"].to_string().contains(difference),
            "{to}: {report:#}"
        );
        assert!(
            !text.contains("robot-token-of-acme") && !text.contains("token-of-acme\""),
            "{text}"
        );
    }
}

/// The guest sees each simulated failure of a request as such.
#[test]
fn requests_fail_as_the_transcript_says() {
    for (fail, class, code) in [
        ("dns", "retryable", "egress.dns"),
        ("connect", "retryable", "egress.connect"),
        ("tls", "config", "egress.tls"),
        ("timeout", "retryable", "egress.timeout"),
        ("truncated", "retryable", "egress.truncated"),
    ] {
        let transcript = UPBOUND
            .replace(
                "status: 200, json: { access_token: token-of-acme, expires_in: 60 }",
                &format!("fail: {fail}"),
            )
            .replace(
                "{ token: token-of-acme, expiry: \"2026-01-02T03:05:05Z\" }",
                &format!("{{ error_class: {class}, code: {code} }}"),
            );
        let (done, report, err) = replay("upbound", &transcript);
        assert!(done, "{fail}: {err} {report:#}");
        let sent = &report["cases"][0]["requests"][0];
        assert!(
            sent["host"] == "auth.upbound.io" && sent["error"].is_string(),
            "{fail}: {report:#}"
        );
    }
}

/// A replay grants exactly what the manifest asks for.
#[test]
fn a_replay_stays_within_the_manifest() {
    let transcript = UPBOUND.replace("organization: acme", "organization: acme, audience: x");
    let (done, report, _) = replay("upbound", &transcript);
    assert!(
        !done && report["cases"][0]["outcome"]["code"] == "config.schema",
        "{report:#}"
    );
    let (done, report, _) = replay("upbound", UPBOUND);
    assert!(done);
    let granted = json!({"hosts": ["auth.upbound.io"], "imports": ["clock"], "audiences": []});
    assert_eq!(report["granted"], granted);
    // `*` in a manifest grants only the hosts of the case. Another host is refused.
    let other = r#"
now: "2026-01-02T03:04:05Z"
config: { method: GET, url: "https://b.example/token", tokenPath: $.token }
requests: [{ expect: { method: GET, url: "https://a.example/token" }, answer: { status: 200, json: { token: T } } }]
expect: { error_class: config, code: egress.host }
"#;
    let (done, report, _) = replay("webapi", other);
    let differences = report["cases"][0]["differences"].as_array().unwrap();
    assert!(!done && differences.len() == 1, "{report:#}");
    assert_eq!(differences[0], "request 1 was not sent: GET https://a.example/token");
    assert_eq!(report["cases"][0]["outcome"]["class"], "config");
}

#[test]
fn a_lease_is_revoked_where_the_case_says_so() {
    let vault = r#"
now: "2026-01-02T03:04:05Z"
config: { address: "https://vault.example.com:8200", role: deployer, kubernetesNamespace: default }
secret: { token: hvs.of-the-test }
revoke: true
requests:
  - answer:
      status: 200
      json:
        lease_id: kubernetes/creds/deployer/l1
        lease_duration: 3600
        data: { service_account_token: token-of-the-test }
  - expect:
      method: PUT
      url: https://vault.example.com:8200/v1/sys/leases/revoke
      json: { lease_id: kubernetes/creds/deployer/l1 }
    answer: { status: 204 }
expect: { token: token-of-the-test }
"#;
    let (done, report, err) = replay("vault", vault);
    assert!(done, "{err} {report:#}");
    let (done, report, _) = replay("vault", &vault.replace("status: 204", "status: 403"));
    assert!(!done, "{report:#}");
    assert!(
        report["cases"][0]["differences"][0]
            .as_str()
            .unwrap()
            .starts_with("revoke: denied"),
        "{report:#}"
    );
}

#[test]
fn invalid_replays_are_reported() {
    for (name, transcript, reason) in [
        ("baseline", UPBOUND, "`baseline` is not a credential provider"),
        ("nobody", UPBOUND, "cannot read the manifest"),
        ("upbound", "cases: []", "there is no case"),
        ("upbound", "expect: {token: T}", "case `1`: missing field `now`"),
    ] {
        let (done, report, err) = replay(name, transcript);
        assert!(!done && report.is_null(), "{report:#}");
        assert!(err.contains(reason), "{name}: {err}");
    }
}

#[test]
fn inspect_lists_what_a_provider_asks_for() {
    let component = guests().join("aws-eks.wasm");
    let (done, out, err) = command(&["inspect", component.to_str().unwrap()], Plugins::default());
    assert!(done, "{err}");
    for line in [
        "asks for  clock, crypto, ambient, memo\n",
        "hosts     sts.{region}.amazonaws.com, ",
        "secrets   accessKeyId -> the cluster (the plugin reads it)\n",
        "          secretAccessKey -> nowhere\n",
        "audiences sts.amazonaws.com -> sts.{region}.amazonaws.com, ",
        "field x-amzn-requestid\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
    assert!(!out.contains("called "), "{out}");
    let component = guests().join("gcp-gke.wasm");
    let (_, out, _) = command(
        &["inspect", component.to_str().unwrap(), "-o", "json"],
        Plugins::default(),
    );
    let seen: Value = serde_json::from_str(&out).unwrap();
    let secret = &seen["manifest"]["provider"]["secrets"][0];
    assert_eq!(
        secret["publicFields"],
        json!(["$['client_email']", "$['private_key_id']", "$['token_uri']"])
    );
    let filter = guests().join("baseline.wasm");
    let (_, out, _) = command(&["inspect", filter.to_str().unwrap(), "-o", "json"], Plugins::default());
    let seen: Value = serde_json::from_str(&out).unwrap();
    assert!(seen["manifest"].get("provider").is_none(), "{seen:#}");
}
