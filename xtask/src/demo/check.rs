//! `cargo xtask demo --check`: sends requests like those of the README and checks the responses.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{World, until};

const SERIES: &str = "/api/v1/extensions/metrics/api/series?range=1h";

struct Answer {
    status: u16,
    decision: String,
    body: Value,
}

/// Sends the requests and checks the responses.
pub async fn run(world: &mut World) -> Result<()> {
    say("a request without a token is refused");
    let anonymous = call(world, None, "cart").await?;
    ensure!(
        anonymous.status == 401,
        "a request without a token got {}",
        anonymous.status
    );

    say("bob is denied, with a reason");
    let bob = call(world, Some(&world.bob), "cart").await?;
    ensure!(bob.status == 403, "bob got {}: {}", bob.status, bob.body);
    ensure!(
        bob.body["reason"].is_string(),
        "the refusal has no reason: {}",
        bob.body
    );
    check_record(world, &bob, "denied", "bob").await?;

    say("alice is allowed, and the backend sees only what it should");
    let alice = call(world, Some(&world.alice), "cart").await?;
    ensure!(alice.status == 200, "alice got {}: {}", alice.status, alice.body);
    ensure!(alice.body["backend"] == "backend-a", "wrong backend: {}", alice.body);
    ensure!(
        alice.body["path"] == "/base/api/series?range=1h",
        "wrong path: {}",
        alice.body
    );
    let headers = &alice.body["headers"];
    ensure!(headers["argocd-username"][0] == "alice", "no identity: {headers}");
    ensure!(
        headers["authorization"][0] == "Bearer the-backends-own-token",
        "not the backend's own token: {headers}"
    );
    ensure!(headers["cookie"].is_null(), "a cookie got through: {headers}");
    check_record(world, &alice, "allowed", "alice").await?;

    say("another cluster has another backend, and a destination that the project does not permit is denied");
    let production = call(world, Some(&world.alice), "cart-production").await?;
    ensure!(
        production.body["backend"] == "backend-b",
        "wrong backend: {}",
        production.body
    );
    let elsewhere = call(world, Some(&world.alice), "cart-elsewhere").await?;
    ensure!(
        elsewhere.status == 403,
        "a forbidden destination got {}",
        elsewhere.status
    );

    say("a cluster gets a token minted for it, which two requests share");
    cluster(world).await?;

    say("people reach a cluster through its agent, as themselves");
    agent(world).await?;

    say("an Application acts as its own service account, within the limits of its project");
    application(world).await?;

    say("an ApplicationSet is written only if everything it generates is permitted");
    application_set(world).await?;

    say("an edited policy takes effect");
    edit(
        &world.folder.join("state/argocd-rbac-cm.yaml"),
        "g, bob, role:viewer",
        "g, bob, role:viewer\n    g, bob, role:shop",
    )?;
    wait_for(world, Some(&world.bob), "bob to be allowed", |answer| {
        answer.status == 200
    })
    .await?;

    say("a broken policy does not take effect");
    let rego = world.folder.join("policies/extensions/policy.rego");
    let good = std::fs::read_to_string(&rego)?;
    std::fs::write(&rego, format!("{good}\nallow if {{ input.\n"))?;
    until("the broken policy to be reported", || async {
        let text = reqwest::get(format!("{}/metrics", world.admin)).await?.text().await?;
        ensure!(
            text.contains("tollgate_configuration_broken{part=\"policies\"} 1"),
            "not reported"
        );
        Ok(())
    })
    .await?;
    let check = tokio::process::Command::new(&world.binary)
        .arg("check")
        .arg("--config")
        .arg(world.folder.join("tollgate.yaml"))
        .output()
        .await?;
    ensure!(
        check.status.code() == Some(1),
        "tollgate check ended with {} for a broken policy",
        check.status
    );
    ensure!(
        call(world, Some(&world.alice), "cart").await?.status == 200,
        "the last good policy did not stay in effect"
    );
    std::fs::write(&rego, good)?;
    until("the repaired policy to take effect", || async {
        let text = reqwest::get(format!("{}/metrics", world.admin)).await?.text().await?;
        ensure!(
            text.contains("tollgate_configuration_broken{part=\"policies\"} 0"),
            "still broken"
        );
        Ok(())
    })
    .await?;

    say("a plugin takes effect when its files are added, and stops when they are removed");
    let plugins = world.folder.join("plugins");
    for ending in ["yaml", "wasm"] {
        let file = format!("tenant-router.{ending}");
        std::fs::copy(world.guests.join(&file), plugins.join(&file)).with_context(|| file)?;
    }
    wait_for(world, Some(&world.alice), "the plugin's header", |answer| {
        !answer.body["headers"]["x-scope-orgid"].is_null()
    })
    .await?;
    for ending in ["yaml", "wasm"] {
        std::fs::remove_file(plugins.join(format!("tenant-router.{ending}")))?;
    }
    wait_for(world, Some(&world.alice), "the plugin to be gone", |answer| {
        answer.status == 200 && answer.body["headers"]["x-scope-orgid"].is_null()
    })
    .await?;
    say("every check passed");
    Ok(())
}

fn say(what: &str) {
    println!("demo: {what}");
}

async fn call(world: &World, token: Option<&str>, application: &str) -> Result<Answer> {
    let mut request = reqwest::Client::new()
        .get(format!("{}{SERIES}", world.gateway))
        .header("Argocd-Application-Name", format!("argocd:{application}"))
        .header("Argocd-Project-Name", "shop")
        .header("Argocd-Username", "mallory")
        .header("Cookie", "theme=dark");
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await?;
    let decision = response
        .headers()
        .get("tollgate-decision-id")
        .and_then(|id| id.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let status = response.status().as_u16();
    let body = response.text().await?;
    let body = serde_json::from_str(&body).unwrap_or(Value::String(body));
    Ok(Answer { status, decision, body })
}

/// alice reaches the demo cluster, and only one token is minted for her; bob does not reach it.
async fn cluster(world: &World) -> Result<()> {
    let get = async |token: &str| -> Result<(u16, Value)> {
        let url = format!("{}/clusters/demo/k8s/api", world.gateway);
        let response = reqwest::Client::new().get(url).bearer_auth(token).send().await?;
        let status = response.status().as_u16();
        Ok((
            status,
            serde_json::from_str(&response.text().await?).unwrap_or_default(),
        ))
    };
    let (status, refused) = get(&world.bob).await?;
    ensure!(
        status == 403 && refused["reason"] == "permission_denied",
        "bob reached the cluster: {status} {refused}"
    );
    for _ in 0..2 {
        let (status, body) = get(&world.alice).await?;
        ensure!(status == 200, "alice got {status} from the cluster: {body}");
        ensure!(body["path"] == "/api", "wrong path: {body}");
        ensure!(body["tokensMinted"] == 1, "not one token: {body}");
    }
    Ok(())
}

/// alice may write objects of the Application, bob may only read. The project excludes Secrets.
async fn application(world: &World) -> Result<()> {
    let client = reqwest::Client::new();
    let write = async |token: &str, resource: &str| -> Result<(u16, Value)> {
        let front = format!("{}/applications/argocd/checkout/k8s", world.gateway);
        let request = client.post(format!("{front}/api/v1/namespaces/checkout/{resource}"));
        let request = request.bearer_auth(token).header("content-type", "application/json");
        let response = request.body("{}").send().await?;
        let status = response.status().as_u16();
        Ok((
            status,
            serde_json::from_str(&response.text().await?).unwrap_or_default(),
        ))
    };
    let (status, body) = write(&world.alice, "configmaps").await?;
    ensure!(
        status == 200 && body["impersonated"]["user"] == "system:serviceaccount:checkout:checkout-deployer",
        "not the Application's account: {status} {body}"
    );
    for (token, resource, reason) in [
        (&world.bob, "configmaps", "you may not sync this application"),
        (&world.alice, "secrets", "namespaceResourceBlacklist"),
    ] {
        let (status, refused) = write(token, resource).await?;
        let message = refused["message"].as_str().unwrap_or_default();
        ensure!(
            status == 403 && message.contains(reason),
            "{resource}: {status} {refused}"
        );
    }
    Ok(())
}

/// alice's set is written with its Applications. bob's is refused with reasons, and a set that
/// leads out of the project is refused as a whole.
async fn application_set(world: &World) -> Result<()> {
    let client = reqwest::Client::new();
    let sets = format!("{}/api/v1/applicationsets", world.gateway);
    let create = async |token: &str, set: String| -> Result<(u16, Value)> {
        let request = client
            .post(&sets)
            .bearer_auth(token)
            .header("content-type", "application/yaml");
        let response = request.body(set).send().await?;
        let status = response.status().as_u16();
        Ok((
            status,
            serde_json::from_str(&response.text().await?).unwrap_or_default(),
        ))
    };
    let set = std::fs::read_to_string(world.folder.join("stages.yaml"))?;
    let (status, refused) = create(&world.bob, set.clone()).await?;
    ensure!(
        status == 403 && refused["refusals"][0]["about"].is_string(),
        "bob was not refused with reasons: {status} {refused}"
    );
    let (status, refused) = create(&world.alice, set.replace("namespace: shop", "namespace: kube-system")).await?;
    let refusals = refused["refusals"].as_array().map_or(0, Vec::len);
    ensure!(
        matches!(status, 400 | 403) && refusals == 2,
        "not every refusal was reported: {status} {refused}"
    );
    let (status, made) = create(&world.alice, set).await?;
    ensure!(status == 200, "alice could not create the set: {status} {made}");
    let made: Vec<&Value> = made["changes"].as_array().into_iter().flatten().collect();
    ensure!(made.len() == 2, "not two Applications: {made:?}");
    let deleted = client
        .delete(format!("{sets}/stages"))
        .bearer_auth(&world.alice)
        .send()
        .await?;
    ensure!(
        deleted.status() == 200,
        "alice's set was not deleted: {}",
        deleted.status()
    );
    Ok(())
}

/// alice creates a token, and the cluster sees her as alice. bob, a reporter, may not create one. A
/// revoked token is refused.
async fn agent(world: &World) -> Result<()> {
    let client = reqwest::Client::new();
    let tokens = format!("{}/api/v1/tokens", world.gateway);
    let create = async |owner: &str| -> Result<(u16, Value)> {
        let wanted = serde_json::json!({"name": "laptop", "agent": 7});
        let response = client.post(&tokens).bearer_auth(owner).body(wanted.to_string());
        let response = response.header("content-type", "application/json").send().await?;
        let status = response.status().as_u16();
        Ok((
            status,
            serde_json::from_str(&response.text().await?).unwrap_or_default(),
        ))
    };
    let (status, refused) = create(&world.bob).await?;
    ensure!(status == 404, "bob got a token: {status} {refused}");
    let (status, made) = create(&world.alice).await?;
    ensure!(status == 201, "alice got no token: {status} {made}");
    let bearer = made["bearer"].as_str().context("no bearer")?;
    let get = async || -> Result<(u16, Value)> {
        let response = client.get(format!("{}/k8s-proxy/api", world.gateway));
        let response = response.bearer_auth(bearer).send().await?;
        let status = response.status().as_u16();
        Ok((
            status,
            serde_json::from_str(&response.text().await?).unwrap_or_default(),
        ))
    };
    let (status, body) = get().await?;
    ensure!(status == 200, "alice got {status} through the agent: {body}");
    let impersonated = &body["impersonated"];
    ensure!(
        impersonated["user"] == "gitlab:user:alice",
        "the cluster received {impersonated}"
    );
    ensure!(
        impersonated["groups"]
            .as_array()
            .is_some_and(|groups| groups.iter().any(|group| group == "gitlab:project_role:11:maintainer")),
        "the cluster received {impersonated}"
    );
    let id = made["token"]["id"].as_str().context("no id")?;
    let revoked = client
        .delete(format!("{tokens}/{id}"))
        .bearer_auth(&world.alice)
        .send()
        .await?;
    ensure!(
        revoked.status().is_success(),
        "the token was not revoked: {}",
        revoked.status()
    );
    let (status, body) = get().await?;
    ensure!(
        status == 401 && body["kind"] == "Status",
        "a revoked token got {status}: {body}"
    );
    Ok(())
}

/// Checks that the decision record of `answer` has this outcome and caller.
async fn check_record(world: &World, answer: &Answer, outcome: &str, who: &str) -> Result<()> {
    ensure!(!answer.decision.is_empty(), "the response names no decision");
    let text = reqwest::get(format!("{}/decisions/{}", world.admin, answer.decision))
        .await?
        .text()
        .await?;
    let record: Value = serde_json::from_str(&text).with_context(|| format!("not a decision record: {text}"))?;
    ensure!(record["outcome"] == outcome, "recorded as {record}");
    ensure!(record["principal"]["username"] == who, "recorded for {record}");
    Ok(())
}

async fn wait_for(world: &World, token: Option<&str>, what: &str, wanted: impl Fn(&Answer) -> bool) -> Result<()> {
    until(what, || async {
        let answer = call(world, token, "cart").await?;
        ensure!(wanted(&answer), "{}: {}", answer.status, answer.body);
        Ok(())
    })
    .await
}

fn edit(file: &std::path::Path, from: &str, to: &str) -> Result<()> {
    let text = std::fs::read_to_string(file)?;
    ensure!(text.contains(from), "{} does not contain `{from}`", file.display());
    Ok(std::fs::write(file, text.replace(from, to))?)
}
