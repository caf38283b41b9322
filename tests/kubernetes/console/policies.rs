//! Policies that are tried, and permissions that are explained.

use reqwest::StatusCode;

use super::{Site, link};
use crate::access::fixture::AccessAs;

#[tokio::test]
async fn permissions_are_explained_to_each_for_themselves() {
    let site = Site::start().await;
    let (mut ann, mut root) = (site.person("ann").await, site.person("root").await);
    let question = "permissions?resource=sessions&action=get&object=*/*";
    let explained = root.open(&site.url(question)).await;
    assert!(
        explained.text.contains("p, role:on-call, sessions, *, *, allow"),
        "{}",
        explained.text
    );
    // ann does not learn of roles that she has not.
    let explained = ann.open(&site.url(question)).await;
    assert!(explained.text.contains("refused"), "{}", explained.text);
    assert!(!explained.text.contains("role:on-call"), "{}", explained.text);
    let other = ann.open(&site.url(&format!("{question}&user=sub:root"))).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(other.text.contains("`rbac, get` of `*`"), "{}", other.text);
    let other = root.open(&site.url(&format!("{question}&user=sub:ann"))).await;
    assert!(other.text.contains("sub:ann"), "{}", other.text);
}

#[tokio::test]
async fn a_policy_is_tried_with_a_decision_and_with_a_changed_file() {
    let site = Site::start().await;
    let token = site.fixture.token(AccessAs::User).await;
    let read = reqwest::Client::new()
        .get(format!("{}/k8s-proxy/api/v1/nodes", site.console))
        .bearer_auth(&token.bearer);
    let answer = read.send().await.unwrap();
    let id = answer.headers()["tollgate-decision-id"].to_str().unwrap().to_owned();
    let mut root = site.person("root").await;
    let decision = root.open(&site.url(&format!("decisions/{id}"))).await;
    let again = link(&decision, "/console/policies/kubernetes?");
    let page = root.open(&format!("{}{again}", site.console)).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text.contains(&format!("value=\"{id}\"")), "{}", page.text);
    let url = site.url("policies/kubernetes");
    let decided = root
        .submit(&url, &[("op", "eval"), ("decision", &id), ("file", "policy.rego")])
        .await;
    assert!(
        decided.text.contains("<span class=\"badge good\">allowed</span>"),
        "{}",
        decided.text
    );
    assert!(decided.text.contains("class=\"hit\""), "{}", decided.text);
    assert!(decided.text.contains("want: {allow: true}"), "{}", decided.text);
    let deny = "package tollgate.kubernetes\n\ndecision := {\"allow\": false, \"reason\": \"no <b>nodes</b>\"}\n";
    let fields = [
        ("op", "eval"),
        ("decision", &*id),
        ("file", "policy.rego"),
        ("text", deny),
    ];
    let changed = root.submit(&url, &fields).await;
    assert!(
        changed.text.contains("no &#60;b&#62;nodes") && changed.text.contains("which is stored nowhere"),
        "{}",
        changed.text
    );
    let tested = root
        .submit(&url, &[("op", "test"), ("file", "policy.rego"), ("text", deny)])
        .await;
    assert!(
        tested.text.contains("cases fail") && tested.text.contains(">fails<"),
        "{}",
        tested.text
    );
    let wrong = root.submit(&url, &[("op", "eval"), ("input", "{not json")]).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        wrong.text.contains("the input is not JSON") && wrong.text.contains("{not json"),
        "{}",
        wrong.text
    );
    let refused = site.person("ann").await.submit(&url, &fields).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    // Who can, from the page of permissions.
    let who = root
        .open(&site.url("permissions?resource=projects&action=update&object=shop&who=can"))
        .await;
    assert!(
        who.text.contains("role:owner") && who.text.contains("sub:owner"),
        "{}",
        who.text
    );
    let refused = site
        .person("ann")
        .await
        .open(&site.url("permissions?resource=projects&action=update&object=shop&who=can"))
        .await;
    assert!(
        refused.text.contains("`rbac, get`") && !refused.text.contains("sub:owner"),
        "{}",
        refused.text
    );
}
