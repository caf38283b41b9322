//! The program as a whole.

#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as tests do")]

use assert_cmd::Command;

fn connector() -> Command {
    Command::cargo_bin("tollgate-connector").unwrap()
}

#[test]
fn a_key_is_written_once_and_only_its_public_half_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    let made = connector().arg("key").arg(&file).assert().success();
    let public = String::from_utf8(made.get_output().stdout.clone()).unwrap();
    let private = std::fs::read_to_string(&file).unwrap();
    assert!(private.starts_with("-----BEGIN PRIVATE KEY-----"), "{private}");
    assert_eq!(public.lines().count(), 1, "{public}");
    let again = connector().args(["connector", "key"]).arg(&file).assert().code(1);
    let text = String::from_utf8(again.get_output().stderr.clone()).unwrap();
    assert!(
        text.contains("connector.key: ") && text.contains("File exists"),
        "{text}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), private);
}

#[test]
fn settings_are_named_by_the_argument_or_either_variable() {
    let run = |variable: &str, file: &str| {
        let done = connector().args(["agent", "run"]).env(variable, file).assert().code(1);
        let output = done.get_output();
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    };
    let text = run("TOLLGATE_CONNECTOR_CONFIG", "/nowhere/a.yaml");
    assert!(
        text.contains("/nowhere/a.yaml") && !text.contains("deprecated"),
        "{text}"
    );
    let text = run("TOLLGATE_AGENT_CONFIG", "/nowhere/b.yaml");
    assert!(
        text.contains("/nowhere/b.yaml") && text.contains("deprecated"),
        "{text}"
    );
    connector().arg("run").assert().code(64);
}

#[test]
fn wrong_usage_is_64() {
    connector().arg("serve").assert().code(64);
    connector().arg("--help").assert().success();
}
