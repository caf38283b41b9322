//! What `tollgate cluster join` writes.

use clap::Parser;
use serde_json::Value;

use super::Join;
use tollgate_core::agent::parse_hex;
use tollgate_objects::ClusterConfig;

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    join: Join,
}

/// The documents on standard output, and the Secret in the file.
fn join(options: &[&str]) -> (Vec<Value>, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret.yaml");
    let missing = folder.path().join("tollgate.yaml");
    let mut arguments = vec!["join", "prod", "--gateway", "https://tollgate.example", "--secret-file"];
    arguments.extend([file.to_str().unwrap(), "--config", missing.to_str().unwrap()]);
    arguments.extend(options);
    let command = Command::try_parse_from(arguments).unwrap();
    let mut out = Vec::new();
    command.join.run(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let documents = text.split("---\n").filter(|document| !document.is_empty());
    let documents = documents
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect();
    let secret = std::fs::read_to_string(&file).unwrap();
    (documents, serde_saphyr::from_str(&secret).unwrap())
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|document| document["kind"] == kind).unwrap()
}

#[test]
fn the_gateway_gets_only_the_hash_of_the_token() {
    let (documents, secret) = join(&["--user", "ann@corp.example"]);
    let token = of_kind(&documents, "Secret")["stringData"]["joinToken"]
        .as_str()
        .unwrap();
    assert!(token.starts_with("tgjoin-") && token.len() > 40);
    assert!(!secret.to_string().contains(token));
    let config = secret["stringData"]["config"].as_str().unwrap();
    let parsed: Value = serde_json::from_str(config).unwrap();
    let sha256 = parsed["agent"]["joinToken"]["sha256"].as_str().unwrap();
    let hash = tollgate_agent::token::hash(&secrecy::SecretString::from(token));
    assert_eq!(parse_hex(sha256), Some(hash));
    assert!(matches!(
        ClusterConfig::parse(config).auth,
        tollgate_objects::ClusterAuth::Agent(_)
    ));
    assert_eq!(secret["stringData"]["server"], "https://prod.clusters.invalid");
}

#[test]
fn the_account_may_act_as_no_more_than_is_needed() {
    let rules = |options: &[&str]| of_kind(&join(options).0, "ClusterRole")["rules"].clone();
    assert_eq!(
        rules(&["--service-account", "shop:deployer"]),
        serde_json::json!([
            {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"], "resourceNames": ["deployer"]},
        ])
    );
    let pattern = rules(&["--user", "ann@corp.example", "--user", "*@other.example"]);
    assert_eq!(pattern[0]["resources"], serde_json::json!(["users"]));
    assert!(pattern[0].get("resourceNames").is_none());
    let about = pattern[1]["resources"].as_array().unwrap();
    assert!(about.contains(&serde_json::json!("userextras/agent.gitlab.com/username")));
    assert!(
        about
            .iter()
            .all(|one| one.as_str().unwrap().starts_with("userextras/agent.gitlab.com/"))
    );
    // Nothing in no namespace has a name of Kubernetes.
    let (documents, _) = join(&["--namespace", "edit"]);
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        assert_eq!(
            of_kind(&documents, kind)["metadata"]["name"],
            "tollgate-agent:edit",
            "{kind}"
        );
    }
    assert_eq!(
        of_kind(&documents, "ClusterRoleBinding")["roleRef"]["name"],
        "tollgate-agent:edit"
    );
    assert_eq!(rules(&[]), serde_json::json!([]));
}

#[test]
fn the_settings_are_those_that_the_agent_reads() {
    let (documents, _) = join(&[
        "--group",
        "corp:*",
        "--proxy",
        "http://proxy.example:3128",
        "--processes",
        "2",
    ]);
    let files = &of_kind(&documents, "ConfigMap")["data"];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.yaml");
    std::fs::write(&file, files["agent.yaml"].as_str().unwrap()).unwrap();
    let pod = tollgate_config::KubernetesApi {
        server: "https://10.0.0.1:443".to_owned(),
        token_file: "token".into(),
        ca_file: "ca.pem".into(),
    };
    let settings = tollgate_agent::settings::Settings::load(&file, Some(pod)).unwrap();
    assert_eq!(settings.cluster, "prod");
    assert_eq!(settings.allow.groups.len(), 1);
    assert_eq!(of_kind(&documents, "Deployment")["spec"]["replicas"], 2);
    // The kubelet asks where the agent answers.
    let container = &of_kind(&documents, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    let probe = &container["livenessProbe"]["httpGet"];
    assert_eq!((&probe["path"], &probe["port"]), (&"/healthz".into(), &"health".into()));
    let port = &container["ports"][0];
    assert_eq!(port["name"], "health");
    let listens = settings.health.map(|address| address.port());
    assert_eq!(port["containerPort"].as_u64(), listens.map(u64::from));
}
