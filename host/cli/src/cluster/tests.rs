//! Which Secrets are found and refused, what becomes of them, and what is shown of that.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use url::Url;

use super::Command;
use super::diff;
use super::find::{argocd_secret, check_managers, check_server, management_warnings};
use super::gateway::Route;
use super::plan::{ArgocdChange, OwnToken, Return, agent_config, gateway_config, plan_enrollment, plan_return};
use tollgate_objects::ObjectName;
use tollgate_state::write::cluster_secret::{ClusterSecret, own_secret};

const SERVER: &str = "https://prod.example:6443";
const IN_CLUSTER: &str = "https://kubernetes.default.svc";
const PROXY: &str = "https://tollgate.tollgate.svc";
const OLD: &str = r#"{"tlsClientConfig": {"insecure": true}, "bearerToken": "old-token"}"#;

/// Argo CD's Secret of a cluster.
fn secret(name: &str, server: &str, config: &str) -> ClusterSecret {
    let values = [("name", name), ("server", server), ("config", config), ("shard", "1")];
    let values = values.map(|(key, value)| (key.to_owned(), SecretString::from(value)));
    ClusterSecret {
        labels: BTreeMap::from([("argocd.argoproj.io/secret-type".to_owned(), "cluster".to_owned())]),
        version: "7".to_owned(),
        ..own_secret(object_name("argocd", name), values.into(), BTreeMap::new())
    }
}

/// The gateway's Secret for [`SERVER`].
fn own(config: &str, annotations: &[(&str, &str)]) -> ClusterSecret {
    let values = [("server", SERVER), ("config", config)];
    let values = values.map(|(key, value)| (key.to_owned(), SecretString::from(value)));
    let annotations = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    own_secret(object_name("tollgate", "prod"), values.into(), annotations.collect())
}

fn object_name(namespace: &str, name: &str) -> ObjectName {
    ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn route() -> Route {
    Route {
        proxy_url: Url::parse(PROXY).unwrap(),
        server_name: "tollgate.tollgate.svc".to_owned(),
        is_in_cluster: false,
        authority: "pem".to_owned(),
        token: SecretString::from("component-token"),
        projected_token: None,
    }
}

fn enrolled() -> ClusterSecret {
    let moved = SecretString::from(OLD);
    let plan = plan_enrollment(&secret("prod", SERVER, OLD), &[], "tollgate", &moved, false, &route());
    secret("prod", SERVER, plan.unwrap().config.expose_secret())
}

/// The new `config` of Argo CD's Secret.
fn returned(plan: Return<'_>) -> Option<SecretString> {
    match plan.change? {
        ArgocdChange::Config(config) => Some(config),
        ArgocdChange::Deletion => panic!("the secret is deleted"),
    }
}

fn parsed(config: &SecretString) -> Value {
    serde_json::from_str(config.expose_secret()).unwrap()
}

#[test]
fn a_cluster_is_found_by_name_and_by_server() {
    let secrets = [secret("prod", SERVER, OLD), secret("dev", "https://dev.example/", OLD)];
    for (text, expected) in [
        ("prod", SERVER),
        ("dev", "https://dev.example"),
        ("https://dev.example/", "https://dev.example"),
    ] {
        assert_eq!(argocd_secret(&secrets, &[], text, "argocd").unwrap().server(), expected);
    }
    let refused =
        |secrets: &[ClusterSecret], text: &str| argocd_secret(secrets, &[], text, "argocd").unwrap_err().to_string();
    assert_eq!(
        refused(&secrets, "test"),
        "cluster_not_found: Argo CD has no secret of a cluster `test` (there are prod, dev)"
    );
    assert!(refused(&[], "test").ends_with("(add the cluster first, with `argocd cluster add`)"));
    // Argo CD needs no Secret of the cluster that it runs in.
    for text in ["in-cluster", IN_CLUSTER, "https://kubernetes.default.svc/"] {
        let own = argocd_secret(&secrets, &[], text, "argocd").unwrap();
        assert_eq!(
            (own.server(), own.cluster_name(), own.config()),
            (IN_CLUSTER, "in-cluster", "{}")
        );
        assert!(!own.is_stored() && own.is_dispensable());
    }
    let named = [secret("home", IN_CLUSTER, "{}")];
    assert_eq!(
        argocd_secret(&named, &[], IN_CLUSTER, "argocd").unwrap().cluster_name(),
        "home"
    );
    assert!(refused(&named, "in-cluster").ends_with("(there are home)"));
    let same_name = [secret("prod", SERVER, OLD), secret("prod", "https://b.example", OLD)];
    assert_eq!(
        refused(&same_name, "prod"),
        "cluster_ambiguous: 2 clusters have the name `prod` (name one by its server: https://prod.example:6443, https://b.example)"
    );
    for other in [SERVER, "https://PROD.example:6443/"] {
        let same_server = [secret("prod", SERVER, OLD), secret("other", other, OLD)];
        assert_eq!(
            refused(&same_server, "prod"),
            "cluster.duplicate: 2 secrets of Argo CD lead to the server `https://prod.example:6443`: `prod`, `other` (delete all but one)"
        );
    }
}

#[test]
fn servers_that_cannot_be_enrolled_are_refused() {
    let proxy = Url::parse(PROXY).unwrap();
    let codes = |server: &str| -> Vec<String> {
        let problems = check_server(server, Some(&proxy));
        problems.into_iter().map(|problem| problem.code).collect()
    };
    assert_eq!(codes(SERVER), [""; 0]);
    assert_eq!(codes("https://tollgate.tollgate.svc:6443"), [""; 0]);
    assert_eq!(codes(IN_CLUSTER), [""; 0]);
    assert_eq!(codes("http://prod.example"), ["cluster.server"]);
    assert_eq!(codes("https://"), ["cluster.server"]);
    for itself in [
        "https://tollgate.tollgate.svc",
        "https://Tollgate.tollgate.svc:443/clusters/a",
    ] {
        assert_eq!(codes(itself), ["cluster.loop"]);
    }
}

#[test]
fn whoever_manages_the_secret_is_named() {
    let mut managed = secret("prod", SERVER, OLD);
    assert!(check_managers(&managed).is_none() && management_warnings(&managed).is_empty());
    managed.managers = vec!["ExternalSecret `prod`".to_owned()];
    let text = check_managers(&managed).unwrap().to_string();
    assert!(text.contains("is managed by ExternalSecret `prod`"), "{text}");
    let tracked = "clusters:/Secret:argocd/prod".to_owned();
    managed
        .annotations
        .insert("argocd.argoproj.io/tracking-id".to_owned(), tracked);
    managed.repeats_values = true;
    let warnings = management_warnings(&managed);
    assert!(
        warnings[0].contains("the Application `clusters` deploys"),
        "{warnings:?}"
    );
    assert!(warnings[1].contains("made with `kubectl apply`"), "{warnings:?}");
}

#[test]
fn a_credential_is_moved_byte_by_byte() {
    let before = secret("prod", SERVER, OLD);
    let moved = gateway_config(&before, None, PROXY).unwrap();
    assert_eq!(moved.expose_secret(), OLD);
    let plan = plan_enrollment(&before, &[], "tollgate", &moved, false, &route()).unwrap();
    let created = plan.created.unwrap();
    assert_eq!(created.name, object_name("tollgate", "prod"));
    assert_eq!(created.labels["tollgate.dev/secret-type"], "cluster");
    assert_eq!((created.server(), created.cluster_name()), (SERVER, "prod"));
    assert_eq!(created.config(), OLD);
    assert!(!created.values.contains_key("shard") && created.annotations.is_empty());
    let expected = json!({
        "proxyUrl": PROXY, "bearerToken": "component-token",
        "tlsClientConfig": {"caData": "cGVt", "serverName": "tollgate.tollgate.svc"},
    });
    assert_eq!(parsed(&plan.config), expected);

    let renewed = Route {
        projected_token: Some("/run/token".to_owned()),
        ..route()
    };
    let plan = plan_enrollment(&before, &[], "tollgate", &moved, false, &renewed).unwrap();
    let expected = json!({
        "proxyUrl": PROXY,
        "execProviderConfig": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/tollgate/tollgate",
            "args": ["credential", "exec", "--token-file", "/run/token"],
        },
        "tlsClientConfig": {"caData": "cGVt", "serverName": "tollgate.tollgate.svc"},
    });
    assert_eq!(parsed(&plan.config), expected);

    let secrets = [created];
    let back = plan_return(&enrolled(), &secrets, None).unwrap();
    assert_eq!(returned(back).unwrap().expose_secret(), OLD);
}

#[test]
fn a_token_of_the_gateways_own_replaces_every_credential() {
    let token = SecretString::from("own-token");
    let own_token = Some(OwnToken {
        token: &token,
        authority: None,
    });
    let aws = r#"{"awsAuthConfig": {"clusterName": "a"}, "tlsClientConfig": {"caData": "Y2E=", "serverName": "a"}}"#;
    let certificate =
        r#"{"tlsClientConfig": {"insecure": true, "certData": "Yw==", "keyData": "aw=="}, "username": "u"}"#;
    for (config, tls) in [
        (OLD, json!({"insecure": true})),
        (certificate, json!({"insecure": true})),
        (
            r#"{"execProviderConfig": {"command": "x"}, "disableCompression": true}"#,
            Value::Null,
        ),
    ] {
        let own = parsed(&gateway_config(&secret("prod", SERVER, config), own_token, PROXY).unwrap());
        assert_eq!(
            (&own["bearerToken"], &own["tlsClientConfig"]),
            (&json!("own-token"), &tls),
            "{config}"
        );
        assert!(
            own.as_object()
                .unwrap()
                .keys()
                .all(|key| ["bearerToken", "tlsClientConfig", "disableCompression"].contains(&&**key))
        );
    }
    // An authority that is no certificate stays a mistake.
    assert!(gateway_config(&secret("prod", SERVER, aws), own_token, PROXY).is_err());

    let before = secret("prod", SERVER, OLD);
    let own = gateway_config(&before, own_token, PROXY).unwrap();
    let plan = plan_enrollment(&before, &[], "tollgate", &own, true, &route()).unwrap();
    let created = [plan.created.unwrap()];
    assert_eq!(created[0].annotations["tollgate.dev/credential-for"], "gateway");
    // Argo CD could not deploy with that credential.
    let refused = plan_return(&enrolled(), &created, None).unwrap_err();
    assert_eq!(refused.code, "cluster.gateway_only");
    let back = plan_return(&enrolled(), &created, Some(&SecretString::from("new"))).unwrap();
    let expected = json!({"bearerToken": "new", "tlsClientConfig": {"insecure": true}});
    assert_eq!(parsed(&returned(back).unwrap()), expected);
}

#[test]
fn the_cluster_that_argo_cd_runs_in_has_no_credential_to_move() {
    let before = argocd_secret(&[], &[], "in-cluster", "argocd").unwrap().into_owned();
    let refused = gateway_config(&before, None, PROXY).unwrap_err();
    assert_eq!(refused.code, "cluster.credential");
    let token = SecretString::from("own-token");
    let authority = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
    let own = gateway_config(
        &before,
        Some(OwnToken {
            token: &token,
            authority: Some(&authority),
        }),
        PROXY,
    );
    let own = own.unwrap();
    let expected = json!({"bearerToken": "own-token", "tlsClientConfig": {"caData": STANDARD.encode(&authority)}});
    assert_eq!(parsed(&own), expected);

    let route = Route {
        is_in_cluster: true,
        ..route()
    };
    let plan = plan_enrollment(&before, &[], "tollgate", &own, true, &route).unwrap();
    // Argo CD reads nothing else there.
    let expected = json!({"proxyUrl": PROXY, "bearerToken": "component-token"});
    assert_eq!(parsed(&plan.config), expected);
    let created = [plan.created.unwrap()];
    assert_eq!(
        (created[0].server(), created[0].cluster_name()),
        (IN_CLUSTER, "in-cluster")
    );

    // Argo CD has its own account again, without the Secret, or with one that was there before.
    let made = before.with_config(&plan.config);
    let back = plan_return(&made, &created, None).unwrap();
    assert!(matches!(back.change, Some(ArgocdChange::Deletion)), "{back:?}");
    let there = secret("home", IN_CLUSTER, plan.config.expose_secret());
    let back = plan_return(&there, &created, None).unwrap();
    assert_eq!(returned(back).unwrap().expose_secret(), "{}");
    let back = plan_return(&made, &created, Some(&SecretString::from("new"))).unwrap();
    assert_eq!(parsed(&returned(back).unwrap())["bearerToken"], "new");
    // A run broke off before it deleted the gateway's Secret.
    assert!(plan_return(&before, &created, None).unwrap().change.is_none());
    assert_eq!(
        plan_return(&before, &[], None).unwrap_err().code,
        "cluster.not_enrolled"
    );
}

#[test]
fn a_cluster_with_an_agent_gets_a_secret_of_argo_cd() {
    let token = json!({"sha256": "0".repeat(64), "expiresAt": "2030-01-01T00:00:00Z"});
    let config = json!({"agent": {"joinToken": token}}).to_string();
    let mut joined = secret("prod", SERVER, &config);
    joined.name = object_name("tollgate", "cluster-prod");
    let own = [joined.clone(), secret("dev", "https://dev.example", OLD)];
    for text in ["prod", SERVER] {
        let created = argocd_secret(&[], &own, text, "argocd").unwrap();
        assert_eq!(created.name, object_name("argocd", "cluster-prod"));
        assert_eq!(created.labels["argocd.argoproj.io/secret-type"], "cluster");
        assert!(!created.is_stored() && created.server() == SERVER && created.config() == "{}");
    }
    // One with a credential is not known to Argo CD by that.
    let code = |own: &[ClusterSecret], text: &str| argocd_secret(&[], own, text, "argocd").unwrap_err().code;
    assert_eq!(code(&own, "dev"), "cluster_not_found");
    assert_eq!(code(&[joined.clone(), joined.clone()], "prod"), "cluster.duplicate");

    let before = argocd_secret(&[], &own, "prod", "argocd").unwrap();
    let refused = agent_config(&before, &joined, true, PROXY).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cluster.agent: a connector serves this cluster, and the gateway needs no credential of it (leave \
         `--credential-token-file` out)"
    );
    let kept = agent_config(&before, &joined, false, PROXY).unwrap();
    let plan = plan_enrollment(&before, &own, "tollgate", &kept, false, &route()).unwrap();
    assert!(plan.created.is_none(), "{plan:?}");
    let expected = json!({
        "proxyUrl": PROXY, "bearerToken": "component-token",
        "tlsClientConfig": {"caData": "cGVt", "serverName": "tollgate.tollgate.svc"},
    });
    assert_eq!(parsed(&plan.config), expected);

    // The credential that Argo CD had is gone then, too.
    let known = secret("prod", SERVER, OLD);
    let plan = plan_enrollment(&known, &own, "tollgate", &kept, false, &route()).unwrap();
    assert!(plan.created.is_none() && parsed(&plan.config) == expected, "{plan:?}");
    let enrolled = known.with_config(&plan.config);
    let refused = agent_config(&enrolled, &joined, false, PROXY).unwrap_err();
    assert_eq!(refused.code, "cluster.enrolled");
    for token in [None, Some(&SecretString::from("new"))] {
        assert_eq!(plan_return(&enrolled, &own, token).unwrap_err().code, "cluster.agent");
    }
}

#[test]
fn credentials_that_cannot_be_moved_are_named() {
    let refused = |config: &str| {
        let refused = gateway_config(&secret("prod", SERVER, config), None, PROXY);
        refused.unwrap_err().to_string()
    };
    for (config, expected) in [
        ("", "cluster.config: `config` of the cluster's secret is missing"),
        ("[]", "is not a JSON object"),
        ("{}", "has no credential to move"),
        (
            r#"{"awsAuthConfig": {"clusterName": "a"}}"#,
            "`awsAuthConfig` is not used",
        ),
        (
            r#"{"execProviderConfig": {"command": "aws"}}"#,
            "the gateway runs no programs",
        ),
        (r#"{"provider": {"name": "vault"}}"#, "is made by the plugin `vault`"),
        (
            r#"{"bearerToken": "a", "username": "b"}"#,
            "several ways of authentication",
        ),
        (
            r#"{"proxyUrl": "https://tollgate.tollgate.svc/", "bearerToken": "a"}"#,
            "cluster.enrolled: ",
        ),
        (
            r#"{"proxyUrl": "http://proxy:3128", "bearerToken": "a"}"#,
            "another `proxyUrl` already: http://proxy:3128",
        ),
        (
            r#"{"proxyUrl": "http://u:secret@proxy", "bearerToken": "a"}"#,
            "another `proxyUrl` already: …",
        ),
    ] {
        let text = refused(config);
        assert!(text.contains(expected), "{config}: {text}");
        assert!(!text.contains("u:secret"), "{text}");
    }
}

#[test]
fn a_run_that_broke_off_is_continued() {
    let before = secret("prod", SERVER, OLD);
    let moved = SecretString::from(OLD);
    let plan = |own: &[ClusterSecret]| plan_enrollment(&before, own, "tollgate", &moved, false, &route());
    // Spelled otherwise, it is the same credential.
    let same = own(
        r#"{"bearerToken":"old-token","tlsClientConfig":{"insecure":true}}"#,
        &[],
    );
    assert!(plan(&[same]).unwrap().created.is_none());
    assert_eq!(plan(&[own("{}", &[])]).unwrap_err().code, "cluster.credential_exists");
    assert_eq!(
        plan(&[own(OLD, &[]), own(OLD, &[])]).unwrap_err().code,
        "cluster.duplicate"
    );

    // Argo CD has its credential again, and only the gateway's Secret is left.
    let copies = [own(OLD, &[])];
    assert!(plan_return(&before, &copies, None).unwrap().change.is_none());
    let gateway_only = [own("{}", &[("tollgate.dev/credential-for", "gateway")])];
    assert!(plan_return(&before, &gateway_only, None).unwrap().change.is_none());
    let code = |own: &[ClusterSecret], secret: &ClusterSecret| plan_return(secret, own, None).unwrap_err().code;
    assert_eq!(code(&[own("{}", &[])], &before), "cluster.credential_exists");
    assert_eq!(code(&[], &before), "cluster.not_enrolled");
    assert_eq!(code(&[], &enrolled()), "cluster.no_credential");
    assert_eq!(code(&[own(OLD, &[]), own(OLD, &[])], &enrolled()), "cluster.duplicate");
}

#[test]
fn a_diff_has_no_secret() {
    let before = ClusterSecret {
        repeats_values: true,
        ..secret("prod", SERVER, OLD)
    };
    let after = before.with_config(&SecretString::from(enrolled().config()));
    let text = diff::change(Some(&before), Some(&after));
    let expected = "\
--- secret/argocd/prod
+++ secret/argocd/prod
@@ -1,11 +1,11 @@
 name: prod
-annotations:
-  kubectl.kubernetes.io/last-applied-configuration: …
 config:
-  bearerToken: …
+  bearerToken: … (new)
+  proxyUrl: https://tollgate.tollgate.svc
   tlsClientConfig:
-    insecure: true
+    caData: … (new)
+    serverName: tollgate.tollgate.svc
 labels:
   argocd.argoproj.io/secret-type: cluster
 server: https://prod.example:6443
 shard: \"1\"
";
    assert_eq!(text, expected);
    let created = diff::change(None, Some(&own(OLD, &[])));
    assert!(
        created.starts_with("--- /dev/null\n+++ secret/tollgate/prod\n"),
        "{created}"
    );
    let deleted = diff::change(Some(&own(OLD, &[])), None);
    for text in [text, created, deleted] {
        assert!(!text.contains("-token"), "{text}");
    }
}

#[test]
fn connectors_are_shown_by_the_former_name_as_well() {
    let commands = Command::augment_subcommands(clap::Command::new("cluster"));
    for name in ["connectors", "agents"] {
        let found = commands.find_subcommand(name).map(clap::Command::get_name);
        assert_eq!(found, Some("connectors"));
    }
}
