//! Requests to clusters with the credentials of their Secrets.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};

use super::{ask, bearer, cluster, get, refusal, setup};
use test_support::api_server::{Answer, Api, Seen};
use test_support::authority::{Authority, Pair};

fn pods(_: &Seen) -> Answer {
    (
        200,
        vec![("content-type", "application/json".into())],
        "{\"kind\":\"PodList\"}".into(),
    )
}

#[tokio::test]
async fn the_api_server_sees_the_clusters_token_and_nothing_of_the_caller() {
    let api = Api::start(pods).await;
    let world = setup(vec![cluster("prod", &api.url(), &bearer(&api, "cluster-token"), &[])])
        .start()
        .await;
    let path = "/clusters/prod/k8s/api/v1/namespaces/a%2Fb/pods?watch=0&x=%20";
    let answer = get(&world, "carol", path)
        .header("cookie", "other=c0okie")
        .header("x-remote-user", "root")
        .header("audit-id", "somebody-elses")
        .header("audit-id", "and-another")
        .header("audit_id", "in-another-spelling")
        .header("accept", "application/json")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/json");
    let record = world.decision(&answer).await;
    assert_eq!(answer.text().await.unwrap(), "{\"kind\":\"PodList\"}");
    let seen = api.seen();
    let [seen] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(
        (&*seen.method, &*seen.target),
        ("GET", "/api/v1/namespaces/a%2Fb/pods?watch=0&x=%20")
    );
    assert_eq!(seen.value("authorization"), Some("Bearer cluster-token"));
    assert_eq!(seen.value("host"), Some(&*api.address.to_string()));
    let audit_ids: Vec<_> = seen.headers.get_all("audit-id").iter().collect();
    assert_eq!(audit_ids, [record["decision_id"].as_str().unwrap()]);
    let names: BTreeSet<&str> = seen.headers.keys().map(http::HeaderName::as_str).collect();
    let allowed = [
        "accept",
        "audit-id",
        "authorization",
        "host",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
    ];
    assert_eq!(names, BTreeSet::from(allowed));
    assert_eq!(record["front"], "clusters");
    assert_eq!(record["destination"]["name"], "prod");
    assert_eq!(
        record["credential"],
        json!({"provider": "bearer", "generation": 1, "replayed": false})
    );
    assert!(!record.to_string().contains("cluster-token"));
}

#[tokio::test]
async fn callers_without_permission_are_refused_and_do_not_learn_what_exists() {
    let api = Api::start(pods).await;
    let world = setup(vec![cluster("prod", &api.url(), &bearer(&api, "t"), &[])])
        .start()
        .await;
    let body = |text: String| {
        let mut body: Value = serde_json::from_str(&text).unwrap();
        body.as_object_mut().unwrap().remove("decision");
        body
    };
    let mut refused = Vec::new();
    for name in ["prod", "none"] {
        let answer = get(&world, "bob", &format!("/clusters/{name}/k8s/api"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 403);
        let text = answer.text().await.unwrap().replace(name, "NAME");
        refused.push(body(text));
    }
    assert_eq!(refused[0], refused[1]);
    assert_eq!(refused[0]["reason"], "permission_denied");
    // The twins: carol may see clusters, so she gets in or learns that there is none.
    let answer = get(&world, "carol", "/clusters/prod/k8s/api").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer = get(&world, "carol", "/clusters/none/k8s/api").send().await.unwrap();
    assert_eq!(refusal(answer).await, (404, "cluster_not_found".into(), String::new()));
    let stranger = reqwest::get(format!("http://{}/clusters/prod/k8s/api", world.address()))
        .await
        .unwrap();
    assert_eq!(refusal(stranger).await.0, 401);
    assert_eq!(api.seen().len(), 1);
}

#[tokio::test]
async fn writes_and_tunnels_need_update() {
    let api = Api::start(pods).await;
    let world = setup(vec![cluster("prod", &api.url(), &bearer(&api, "t"), &[])])
        .start()
        .await;
    let path = "/clusters/prod/k8s/api/v1/pods";
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let send = |user| ask(&world, method.clone(), user, path).body("{}").send();
        let refused = send("carol").await.unwrap();
        assert_eq!(refusal(refused).await, (403, "permission_denied".into(), String::new()));
        assert_eq!(send("alice").await.unwrap().status(), 200, "{method}");
    }
    let tunnel = |user| {
        get(&world, user, path)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .send()
    };
    assert_eq!(tunnel("carol").await.unwrap().status(), 403);
    // alice's request reaches the cluster. Its answer does not switch protocols, which is an error.
    assert_eq!(tunnel("alice").await.unwrap().status(), 502);
    let methods: Vec<String> = api.seen().into_iter().map(|seen| seen.method).collect();
    assert_eq!(methods, ["POST", "PUT", "PATCH", "DELETE", "GET"]);
    assert_eq!(api.seen()[4].value("upgrade"), Some("websocket"));
}

#[tokio::test]
async fn who_may_only_see_clusters_does_not_enter_them() {
    let api = Api::start(pods).await;
    let mut setup = setup(vec![cluster("prod", &api.url(), &bearer(&api, "t"), &[])]);
    let policy = setup.rbac_cm.get_mut("policy.csv").unwrap();
    policy.push_str("g, erik, role:readonly\n");
    setup.argocd_cm.insert("accounts.erik".into(), "login".into());
    let world = setup.start().await;
    let secrets = "/clusters/prod/k8s/api/v1/namespaces/n/secrets";
    for user in ["erik", "dora"] {
        for method in [Method::GET, Method::HEAD, Method::POST, Method::DELETE] {
            let answer = ask(&world, method.clone(), user, secrets).send().await.unwrap();
            assert_eq!(answer.status(), 403, "{user} {method}");
            let record = world.decision(&answer).await;
            assert_eq!(record["reason"], "permission_denied");
            let checks = record["checks"].as_array().unwrap();
            let last = checks.last().unwrap();
            assert_eq!(
                (&last["action"], &last["allowed"]),
                (&json!("connect"), &json!(false)),
                "{checks:?}"
            );
        }
        // They see that the cluster exists, as in Argo CD.
        let listed: Value = get(&world, user, "/api/v1/clusters")
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        assert!(listed.to_string().contains("prod"), "{user}: {listed}");
    }
    assert!(api.seen().is_empty());
    let answer = get(&world, "carol", secrets).send().await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn a_get_that_runs_something_is_no_read() {
    let api = Api::start(pods).await;
    let world = setup(vec![cluster("prod", &api.url(), &bearer(&api, "t"), &[])])
        .start()
        .await;
    let mut passed = 0;
    for rest in [
        "/api/v1/namespaces/n/pods/p/proxy/shutdown",
        "/api/v1/nodes/a/%70roxy/run/n/p/c?cmd=id",
        "/api/v1/proxy/nodes/a/run",
    ] {
        let path = format!("/clusters/prod/k8s{rest}");
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            let refused = ask(&world, method.clone(), "carol", &path).send().await.unwrap();
            assert_eq!(refused.status(), 403, "{method} {path}");
            let record = world.decision(&refused).await;
            assert_eq!(record["checks"].as_array().unwrap().last().unwrap()["action"], "update");
        }
        let before = api.seen().len();
        let answer = get(&world, "alice", &path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        passed += 1;
        assert_eq!((before, api.seen().len()), (passed - 1, passed), "{path}");
    }
}

#[tokio::test]
async fn who_tries_to_impersonate_is_refused_and_does_not_act_as_the_gateway() {
    let api = Api::start(pods).await;
    let world = setup(vec![cluster("prod", &api.url(), &bearer(&api, "t"), &[])])
        .start()
        .await;
    let path = "/clusters/prod/k8s/api/v1/namespaces/n/pods";
    for name in [
        "Impersonate-User",
        "Impersonate-Group",
        "Impersonate-Uid",
        "Impersonate-Extra-a",
        "impersonate_user",
        "Impersonate.User",
        "Impersonate-",
    ] {
        for also in [None, Some(name)] {
            let mut request = get(&world, "alice", path).header(name, "dev");
            if let Some(also) = also {
                request = request.header("connection", also);
            }
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 400, "{name}");
            let record = world.decision(&answer).await;
            assert_eq!(record["reason"], "client_impersonates", "{name}");
        }
    }
    assert!(api.seen().is_empty());
    // Fields that no cluster reads as impersonation pass.
    let answer = get(&world, "alice", path)
        .header("impersonated-by", "dev")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(api.seen().len(), 1);
}

#[tokio::test]
async fn the_front_is_disabled_by_default() {
    let api = Api::start(pods).await;
    let mut closed = setup(vec![cluster("prod", &api.url(), &bearer(&api, "t"), &[])]);
    closed.settings = json!({});
    let world = closed.start().await;
    let answer = get(&world, "alice", "/clusters/prod/k8s/api").send().await.unwrap();
    assert_eq!(refusal(answer).await, (404, "not_found".into(), String::new()));
    assert!(api.seen().is_empty());
}

#[tokio::test]
async fn a_shared_name_means_no_cluster_and_a_server_means_one() {
    let (one, other) = (Api::start(pods).await, Api::start(pods).await);
    let mut second = cluster("prod", &other.url(), &bearer(&other, "second"), &[]);
    second["metadata"]["name"] = "cluster-second".into();
    let world = setup(vec![cluster("prod", &one.url(), &bearer(&one, "first"), &[]), second])
        .start()
        .await;
    let answer = get(&world, "carol", "/clusters/prod/k8s/api").send().await.unwrap();
    assert_eq!(refusal(answer).await, (409, "cluster_ambiguous".into(), String::new()));
    let answer = get(&world, "bob", "/clusters/prod/k8s/api").send().await.unwrap();
    assert_eq!(refusal(answer).await.0, 403);
    let path = format!("/clusters/https:%2F%2F{}/k8s/api", other.address);
    assert_eq!(get(&world, "carol", &path).send().await.unwrap().status(), 200);
    assert!(one.seen().is_empty());
    assert_eq!(other.seen()[0].value("authorization"), Some("Bearer second"));
}

#[tokio::test]
async fn a_projects_cluster_is_an_object_of_that_project() {
    let api = Api::start(pods).await;
    let prod = cluster("prod", &api.url(), &bearer(&api, "t"), &[("project", "shop")]);
    let mut setup = setup(vec![prod]);
    let policy = format!(
        "p, alice, clusters, get, shop/{0}, allow\np, alice, clusters, connect, shop/{0}, allow\n\
         p, carol, clusters, get, {0}, allow\np, carol, clusters, connect, {0}, allow\n",
        api.url()
    );
    setup.rbac_cm.insert("policy.csv".into(), policy);
    let world = setup.start().await;
    for (user, status) in [("alice", 200), ("carol", 403)] {
        let answer = get(&world, user, "/clusters/prod/k8s/api").send().await.unwrap();
        assert_eq!(answer.status(), status, "{user}");
    }
}

#[tokio::test]
async fn a_client_certificate_is_shown_in_the_handshake() {
    let people = Authority::new("tests");
    let api = Api::with_clients(Some(&people), pods).await;
    let Pair { certificate, key } = people.client("gateway", None);
    let ca = STANDARD.encode(&api.ca_pem);
    let tls = json!({"caData": ca, "certData": STANDARD.encode(certificate), "keyData": STANDARD.encode(key)});
    let world = setup(vec![cluster("prod", &api.url(), &json!({"tlsClientConfig": tls}), &[])])
        .start()
        .await;
    let answer = get(&world, "carol", "/clusters/prod/k8s/api").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let seen = &api.seen()[0];
    assert!(seen.certified);
    assert_eq!(seen.value("authorization"), None);
    // The twin: without a certificate, the cluster refuses the connection.
    let bare = json!({"tlsClientConfig": {"caData": ca}});
    let world = setup(vec![cluster("prod", &api.url(), &bare, &[])]).start().await;
    let answer = get(&world, "carol", "/clusters/prod/k8s/api").send().await.unwrap();
    assert_eq!(answer.status(), 502);
}

#[tokio::test]
async fn a_server_of_another_authority_is_not_trusted_unless_insecure() {
    let api = Api::start(pods).await;
    let other = STANDARD.encode(Authority::new("tests").pem);
    for (tls, status) in [
        (json!({"caData": other}), 502),
        (json!({"insecure": true}), 200),
        (
            json!({"caData": STANDARD.encode(&api.ca_pem), "serverName": "other.example"}),
            502,
        ),
    ] {
        let config = json!({"bearerToken": "t", "tlsClientConfig": tls});
        let world = setup(vec![cluster("prod", &api.url(), &config, &[])]).start().await;
        let answer = get(&world, "carol", "/clusters/prod/k8s/api").send().await.unwrap();
        assert_eq!(answer.status(), status, "{tls}");
    }
}

#[tokio::test]
async fn unusable_settings_are_reported_only_to_those_who_may_see_the_cluster() {
    let config = json!({"bearerToken": "s3cret", "username": "u", "password": "p"});
    let plain = json!({"bearerToken": "s3cret"});
    let world = setup(vec![
        cluster("two", "https://two.example", &config, &[]),
        cluster("plain", "http://127.0.0.1:1", &plain, &[]),
        cluster(
            "none",
            "https://none.example",
            &json!({"provider": {"name": "nowhere"}}),
            &[],
        ),
    ])
    .start()
    .await;
    for (name, code) in [
        ("two", "config.cluster"),
        ("plain", "config.cluster"),
        ("none", "config.provider"),
        ("in-cluster", "ambient.unavailable"),
    ] {
        let path = format!("/clusters/{name}/k8s/api");
        let answer = get(&world, "carol", &path).send().await.unwrap();
        let record = world.decision(&answer).await;
        assert_eq!(record["credential"]["failure"], format!("config {code}"));
        assert_eq!(
            refusal(answer).await,
            (502, "credential_unavailable".into(), code.into())
        );
        let answer = get(&world, "bob", &path).send().await.unwrap();
        assert_eq!(refusal(answer).await, (403, "permission_denied".into(), String::new()));
    }
    let page = world.admin("/configuration").await;
    assert!(
        page.contains("the cluster `none` cannot be used: config.provider"),
        "{page}"
    );
    assert!(!page.contains("s3cret"));
}

#[tokio::test]
async fn a_401_of_the_cluster_passes_without_its_challenge() {
    let api = Api::start(|_| {
        (
            401,
            vec![("www-authenticate", "Basic realm=\"k8s\"".into())],
            "no".into(),
        )
    })
    .await;
    let world = setup(vec![cluster("prod", &api.url(), &bearer(&api, "t"), &[])])
        .start()
        .await;
    let answer = get(&world, "carol", "/clusters/prod/k8s/api").send().await.unwrap();
    assert_eq!(answer.status(), 401);
    assert!(!answer.headers().contains_key("www-authenticate"));
    assert_eq!(answer.text().await.unwrap(), "no");
    assert_eq!(api.seen().len(), 1, "a credential that never changes is tried once");
}
