//! Audit rows of requests, and the kubeconfig that the command line prints.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use super::fixture::{AccessAs, Fixture};
use test_support::kubernetes::kubectl::Kubectl;

/// The rows of alice's audit log for which `is` holds, newest first.
async fn rows(fixture: &Fixture, is: impl Fn(&Value) -> bool) -> Vec<Value> {
    let answer = fixture.api(Method::GET, "/api/v1/audit?limit=1000", &json!({})).await;
    let rows = answer["items"].as_array().unwrap().iter();
    rows.filter(|row| is(row)).cloned().collect()
}

/// Whether a row is about this verb and resource, with its subresource.
fn about(row: &Value, verb: &str, resource: &str) -> bool {
    let details = &row["details"];
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    details["verb"] == verb
        && details["resource"] == resource
        && details["subresource"].as_str().unwrap_or_default() == subresource
}

/// Reads are counted in buckets. Each shell, change and refusal has a row.
#[tokio::test]
async fn each_shell_change_and_refusal_is_a_row_and_reads_are_counted() {
    let fixture = Fixture::start().await;
    let token = fixture.token(AccessAs::User).await;
    let kubectl = fixture.kubectl(&token.bearer);
    let here = format!("--namespace={}", fixture.home);
    for name in ["one", "two"] {
        kubectl.succeed(&["create", "configmap", name, &here]).await;
        kubectl.succeed(&["exec", &here, "pod", "--", "true"]).await;
        kubectl.fail(&["delete", "configmap", name, &here, "--as=bob"]).await;
    }
    let path = format!("/api/v1/namespaces/{}/configmaps", fixture.home);
    let client = fixture.gateway.plain_client();
    for _ in 0..50 {
        let url = format!("{}/k8s-proxy{path}", fixture.gateway.url());
        let answer = client.get(url).bearer_auth(&token.bearer).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }

    let created = rows(&fixture, |row| about(row, "create", "configmaps")).await;
    let is_shell = |row: &Value| row["action"] == "access.allowed" && about(row, "create", "pods/exec");
    let shells = rows(&fixture, is_shell).await;
    let refused = rows(&fixture, |row| row["action"] == "access.denied").await;
    for (rows, count, action) in [(&created, 2, "access.allowed"), (&shells, 2, "access.allowed")] {
        assert_eq!(rows.len(), count, "{rows:?}");
        for row in rows {
            assert_eq!((&row["action"], &row["count"]), (&json!(action), &json!(1)), "{row}");
            assert_eq!(row["details"]["impersonated_user"], "gitlab:user:alice", "{row}");
            let id = row["details"]["audit_id"].as_str().unwrap();
            let event = fixture.cluster.audit().of(id).await;
            assert_eq!(event["impersonatedUser"]["username"], "gitlab:user:alice");
        }
    }
    // kubectl may repeat a refused request.
    assert!(refused.len() >= 2, "{refused:?}");
    assert!(refused.iter().all(|row| row["count"] == 1), "{refused:?}");
    // Rows of reads are written later.
    let listed = test_support::kubernetes::eventually("the reads are counted", async || {
        let rows = rows(&fixture, |row| about(row, "list", "configmaps")).await;
        let count: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
        (count == 50).then_some(rows)
    })
    .await;
    assert!(listed.len() <= 2, "more than two buckets: {listed:?}");
    assert_eq!(rows(&fixture, |row| row["action"] == "token.created").await.len(), 1);

    // The secret is in no file of the gateway.
    let secret = token.bearer.rsplit(':').next().unwrap();
    assert_nowhere(&fixture.gateway.path(""), secret.as_bytes());
}

/// What an investigator asks: which Secrets were read, what was run where, for how long, and how much
/// came out. The same is in the export.
#[tokio::test]
async fn reads_of_secrets_and_shells_are_found_and_exported() {
    let fixture = Fixture::start_with(|layout| {
        layout.setting(
            "/kubernetes/audit",
            json!({"bucket": "1s", "export": {"file": "audit.ocsf"}}),
        );
    })
    .await;
    let token = fixture.token(AccessAs::User).await;
    let kubectl = fixture.kubectl(&token.bearer);
    let here = format!("--namespace={}", fixture.home);
    for name in ["database", "tls"] {
        let create = [
            "create",
            "secret",
            "generic",
            name,
            "--from-literal=password=hunter2",
            &here,
        ];
        kubectl.succeed(&create).await;
    }
    for (name, times) in [("database", 3), ("tls", 1)] {
        for _ in 0..times {
            kubectl.succeed(&["get", "secret", name, &here]).await;
        }
    }
    kubectl.succeed(&["get", "secrets", &here]).await;
    kubectl
        .fail(&["get", "secret", "elsewhere", &format!("--namespace={}", fixture.other)])
        .await;
    let shell = ["exec", &here, "pod", "--", "head", "-c", "5000", "/dev/zero"];
    kubectl.succeed(&shell).await;

    let ended = test_support::kubernetes::eventually("the end of the shell is written", async || {
        rows(&fixture, |row| row["action"] == "stream.ended").await.pop()
    })
    .await;
    let begun = rows(&fixture, |row| {
        row["action"] == "access.allowed" && about(row, "create", "pods/exec")
    })
    .await;
    assert!(about(&ended, "create", "pods/exec"), "{ended}");
    assert_eq!(ended["details"]["audit_id"], begun[0]["details"]["audit_id"]);
    assert_eq!(
        (&ended["details"]["name"], &ended["user"]),
        (&json!("pod"), &json!("alice"))
    );
    let number = |key: &str| ended["details"][key].as_u64().unwrap();
    assert!((5_000..10_000).contains(&number("bytes_from_cluster")), "{ended}");
    assert!(number("bytes_from_client") > 0, "{ended}");
    let (begun, ended) = (&ended["details"]["opened_at"], &ended["lastAt"]);
    let time = |time: &Value| time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let lasted = time(ended).duration_since(time(begun)).as_millis();
    assert_eq!(lasted, i128::from(number("duration_ms")));

    // The command line finds them.
    let names = async |more: &[&str]| {
        let found = fixture.tollgate(&[&["audit", "-o", "json"][..], more].concat()).await;
        let found: Value = serde_json::from_str(&found).unwrap();
        let mut names: Vec<_> = found["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                format!(
                    "{} {}",
                    row["action"].as_str().unwrap(),
                    row["details"]["name"].as_str().unwrap_or("-")
                )
            })
            .collect();
        names.dedup();
        names
    };
    let home = fixture.home.as_str();
    let read = ["--resource", "secrets", "--verb", "get"];
    assert_eq!(
        names(&[&read[..], &["-n", home]].concat()).await,
        ["access.allowed database", "access.allowed tls"]
    );
    assert_eq!(
        names(&[&read[..], &["--name", "tls", "--since", "1h"]].concat()).await,
        ["access.allowed tls"]
    );
    assert_eq!(names(&[&read[..], &["--until", "1h"]].concat()).await, [""; 0]);
    assert_eq!(
        names(&["--resource", "secrets", "--verb", "list"]).await,
        ["access.allowed -"]
    );
    assert_eq!(
        names(&["--resource", "*/exec", "--session", &format!("pat:{}", token.id)]).await,
        ["access.allowed pod", "stream.ended pod"]
    );
    assert_eq!(names(&["--resource", "*/exec", "-n", &fixture.other]).await, [""; 0]);

    // The export has each of them once they are no longer counted.
    let file = fixture.gateway.path("audit.ocsf");
    let lines = test_support::kubernetes::eventually("all events are exported", async || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines
            .iter()
            .any(|line| line["activity_name"] == "Close")
            .then_some(lines)
    })
    .await;
    let of_secrets = lines
        .iter()
        .filter(|line| line["resources"][0]["type"] == "secrets" && line["activity_id"] == 2);
    let mut reads = std::collections::BTreeMap::new();
    for line in of_secrets {
        assert_eq!(
            (&line["class_uid"], &line["actor"]["user"]["name"]),
            (&json!(6003), &json!("alice"))
        );
        let name = line["resources"][0]["name"].as_str().unwrap_or("-").to_owned();
        *reads.entry(name).or_insert(0) += line["count"].as_u64().unwrap_or(1);
    }
    assert_eq!((reads["database"], reads["tls"], reads["-"]), (3, 1, 1), "{reads:?}");
    let stored = rows(&fixture, |_| true).await;
    for row in &stored {
        let sent = lines.iter().filter(|line| line["metadata"]["uid"] == row["id"]).count();
        assert_eq!(sent, 1, "{row}");
    }
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
}

/// Asserts that no file below `folder` contains `secret`.
fn assert_nowhere(folder: &Path, secret: &[u8]) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_nowhere(&path, secret);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let found = bytes.windows(secret.len()).any(|window| window == secret);
        assert!(!found, "{}", path.display());
    }
}

/// Two commands are enough to list the pods of a namespace.
#[tokio::test]
async fn kubectl_works_with_the_printed_kubeconfig() {
    let fixture = Fixture::start().await;
    let agents = fixture.tollgate(&["agent", "list"]).await;
    for name in ["agent-people", "agent-robots"] {
        assert!(agents.contains(name), "{agents}");
    }
    for (agent, username) in [
        ("9999", "gitlab:user:alice".to_owned()),
        ("agent-robots", fixture.account(AccessAs::Agent)),
    ] {
        let kubeconfig = fixture
            .tollgate(&["kubeconfig", "--agent", agent, "--namespace", &fixture.home])
            .await;
        let kubectl = Kubectl::with_kubeconfig(&kubeconfig);
        let whoami = kubectl.json(&["auth", "whoami"]).await;
        assert_eq!(whoami["status"]["userInfo"]["username"], username);
        assert_eq!(kubectl.succeed(&["get", "pods", "--output=name"]).await, "pod/pod\n");
    }
}
