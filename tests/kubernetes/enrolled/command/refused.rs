//! What the commands refuse, and with which text. Nothing is changed then.

use serde_json::{Value, json};

use super::super::{COMPONENT, STRANGER};
use super::World;
use test_support::kubernetes::gateway::{base64, session};

#[tokio::test]
async fn clusters_that_would_not_work_are_refused() {
    let world = World::start().await;
    let (config, itself) = (world.config(&world.administrator), world.gateway.url());
    for (name, server) in [
        ("plain", "http://127.0.0.1:2"),
        ("pod", "https://kubernetes.default.svc"),
        ("loop", itself.as_str()),
        ("twin-a", "https://twin.invalid"),
        ("twin-b", "https://TWIN.invalid:443"),
    ] {
        world.secret(name, server, &config).await;
    }
    world
        .secret(
            "aws",
            "https://aws.invalid",
            r#"{"awsAuthConfig": {"clusterName": "a"}}"#,
        )
        .await;
    world.secret("gone", "https://127.0.0.1:1", &config).await;
    for (cluster, expected) in [
        ("plain", "cluster.server: the server `http://127.0.0.1:2` is not https"),
        // Nothing says whether its pods trust the gateway.
        ("pod", "has no ConfigMap `kube-root-ca.crt`"),
        ("loop", "is the gateway itself, which would then reach itself"),
        (
            "twin-a",
            "cluster.duplicate: 2 secrets of Argo CD lead to the server `https://twin.invalid`: `twin-a`, `twin-b`",
        ),
        ("aws", "`awsAuthConfig` is not used"),
        (
            "gone",
            "cluster.access: the credential cannot be used at `https://127.0.0.1:1`: it cannot be reached",
        ),
        (
            "absent",
            "cluster_not_found: Argo CD has no secret of a cluster `absent`",
        ),
    ] {
        let refused = world.enroll(cluster, &["--yes"]).await;
        assert_eq!(refused.code, Some(1), "{cluster}: {refused:?}");
        assert!(refused.stderr.contains(expected), "{cluster}: {}", refused.stderr);
    }

    // The server is right, and something else is not.
    let powerless = world.cluster.service_account(&world.argocd, "powerless").await;
    for (token, expected) in [
        ("nobody", "cluster.access: the credential cannot be used at"),
        (
            &powerless,
            "cluster.accounts: the credential may not impersonate 2 accounts in",
        ),
    ] {
        world.secret("prod", world.cluster.url(), &world.config(token)).await;
        let refused = world.enroll("prod", &["--yes"]).await;
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    world.prod().await;
    for (change, expected) in [
        (
            ("application.sync.impersonation.enabled", "false"),
            "cluster.impersonation: argocd-cm has",
        ),
        (
            ("resource.respectRBAC", ""),
            &format!("cluster.reader: the reader {}:reader may not list and watch", world.own),
        ),
    ] {
        world.argocd_cm(&[change]).await;
        let refused = world.enroll("prod", &["--yes"]).await;
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    // Argo CD does not read what it excludes.
    let excluded = [
        ("resource.respectRBAC", ""),
        ("resource.exclusions", "- apiGroups: ['*']\n"),
    ];
    world.argocd_cm(&excluded).await;
    let accepted = world.enroll("prod", &["--dry-run"]).await;
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    assert!(!world.exists(&world.own, "prod").await);
    world.check_output();
}

#[tokio::test]
async fn a_gateway_that_would_refuse_argo_cd_is_found_before() {
    let world = World::start().await;
    world.prod().await;
    let (mut forged, own) = (session(COMPONENT), world.files.path().join("own-token"));
    forged.truncate(forged.len() - 4);
    forged.push_str("AAAA");
    let (forged, stranger) = (
        world.file("forged", &forged),
        world.file("stranger", &session(STRANGER)),
    );
    let other_ca = world.file("other-ca", world.cluster.authority());
    let own = own.display().to_string();
    for (options, expected) in [
        (
            ["--token-file", forged.as_str()],
            "gateway.token: the gateway does not accept the token of `--token-file`",
        ),
        (
            ["--token-file", &stranger],
            "cluster.token: the token of `--token-file` is of mallory (argocd), and `controlPlane.callers` has controller",
        ),
        (
            ["--token-file", &own],
            "cluster.token: the token of `--token-file` is of the issuer",
        ),
        (["--ca", &other_ca], "its certificate is signed by an unknown authority"),
        (
            ["--server-name", "other.example"],
            "its certificate is for another name",
        ),
        (["--proxy-url", world.cluster.url()], "cluster.loop: "),
        (["--proxy-url", "https://127.0.0.1:1"], "gateway.unreachable: "),
    ] {
        let refused = world.enroll("prod", &[&options[..], &["--yes"]].concat()).await;
        assert_eq!(refused.code, Some(1), "{options:?}: {refused:?}");
        assert!(refused.stderr.contains(expected), "{options:?}: {}", refused.stderr);
    }
    assert!(!world.exists(&world.own, "prod").await);
    // Several problems are all named.
    let options = ["--proxy-url", "http://a", "--token-file", "/absent", "--yes"];
    let refused = world.enroll("prod", &options).await;
    for expected in [
        "cluster.checks: 2 checks failed",
        "cluster.proxy_url: ",
        "cluster.token: ",
    ] {
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
    // Where only Argo CD reaches the gateway, the rest is checked.
    let skipped = [
        "--proxy-url",
        "https://127.0.0.1:1",
        "--skip-gateway-check",
        "--dry-run",
    ];
    let accepted = world.enroll("prod", &skipped).await;
    assert_eq!(accepted.code, Some(0), "{accepted:?}");

    // Settings for which there is nothing to change.
    let text = std::fs::read_to_string(world.gateway.path("tollgate.yaml")).unwrap();
    for (change, expected) in [
        (json!({"controlPlane": null}), "the settings have no `controlPlane`"),
        (
            json!({"state": {"directory": "state"}, "controlPlane": {"reader": "a:b", "callers": [{"issuer": "argocd", "user": "c"}]}}),
            "cluster.state: the state is a folder",
        ),
    ] {
        let mut settings: Value = serde_json::from_str(&text).unwrap();
        for (key, value) in change.as_object().unwrap() {
            settings[key] = value.clone();
        }
        if settings["controlPlane"].is_null() {
            settings.as_object_mut().unwrap().remove("controlPlane");
        }
        std::fs::write(world.gateway.path("other.yaml"), settings.to_string()).unwrap();
        for command in [
            world.enrollment("prod", &["--yes"]),
            vec!["release".to_owned(), "prod".to_owned()],
        ] {
            let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
            let refused = world.run_with(&arguments, "other.yaml").await;
            assert_eq!(refused.code, Some(1), "{refused:?}");
            assert!(refused.stderr.contains(expected), "{}", refused.stderr);
        }
    }
    world.check_output();
}

#[tokio::test]
async fn a_secret_that_others_manage_is_left_alone() {
    let world = World::start().await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "prod", "namespace": world.argocd,
            "labels": {"argocd.argoproj.io/secret-type": "cluster"},
        },
        "stringData": {"name": "prod", "server": world.cluster.url(), "config": world.config(&world.administrator)},
    });
    // `stringData` would be owned as such.
    let mut secret = secret;
    let data = secret["stringData"].as_object().unwrap().clone();
    let data = data
        .into_iter()
        .map(|(key, value)| (key, json!(base64(value.as_str().unwrap()))));
    secret["data"] = Value::Object(data.collect());
    secret.as_object_mut().unwrap().remove("stringData");
    let apply = ["apply", "--server-side", "--field-manager=gitops", "--filename=-"];
    let run = world.cluster.admin().run_with(&apply, &secret.to_string()).await;
    assert!(run.status.success(), "{run:?}");
    let refused = world.enroll("prod", &["--yes"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let expected = "cluster.managed: the secret `prod` is managed by `gitops`, which would undo the change";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    assert!(!world.exists(&world.own, "prod").await);
    world.check_output();
}
