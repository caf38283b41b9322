//! Calls of Argo CD's API that change an Application, a set or a project as an object of the resource tree
//! of the Application that deployed it.

use reqwest::Method;
use test_support::backend::Reply;

use super::*;

/// What `application.ApplicationService/DeleteResource` gets for `Application` `theirs`, in its frame.
fn delete_by_grpc() -> Vec<u8> {
    let fields = [
        (1, "cart"),
        (2, NAMESPACE),
        (3, "theirs"),
        (4, "v1alpha1"),
        (5, "argoproj.io"),
        (6, "Application"),
    ];
    let field = |(number, text): &(u8, &str)| {
        let head = [number << 3 | 2, u8::try_from(text.len()).unwrap()];
        [&head[..], text.as_bytes()].concat()
    };
    let message: Vec<u8> = fields.iter().flat_map(field).collect();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, &message].concat()
}

impl Scene {
    /// Calls the API for an object of the tree of `cart`, as `mallory`, and returns status and text.
    async fn call(
        &self,
        (method, path): (Method, &str),
        (kind, name): (&str, &str),
        more: &str,
        content: &str,
    ) -> (u16, String) {
        let url = format!(
            "{}/api/v1/applications/cart/{path}?namespace={NAMESPACE}&resourceName={name}&version=v1alpha1\
             &group=argoproj.io&kind={kind}{more}",
            self.gateway.url()
        );
        let request = self.gateway.client("mallory").request(method, url);
        let request = request
            .header("content-type", "application/json")
            .body(content.to_owned());
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    async fn patch(&self, name: &str, kind: &str, patch: &Value) -> (u16, String) {
        let content = Value::String(patch.to_string()).to_string();
        let more = format!("&patchType=application/{kind}");
        self.call((Method::POST, "resource"), ("Application", name), &more, &content)
            .await
    }
}

/// The request lines of the calls that argocd-server got. At its start, the gateway also asks whether it
/// is there.
fn calls(backend: &Backend) -> Vec<String> {
    let lines = backend.seen().into_iter().map(|seen| seen.line().to_owned());
    lines
        .filter(|line| line.to_lowercase().contains("application"))
        .collect()
}

#[tokio::test]
async fn a_child_is_changed_by_the_rights_on_it_and_not_on_its_parent() {
    let backend = Backend::start(|_| Reply::ok("{}")).await;
    let objects = [application("mine", "shop"), set("apps", "other"), set("hers", "shop")];
    let scene = Scene::start_before(&objects, &json!({}), Some(&backend)).await;
    let merge = "merge-patch%2Bjson";
    let move_away = json!({"spec": {"project": "other"}});
    let operation = json!({"operation": {"sync": {"manifests": ["{}"]}}});
    let path = json!({"spec": {"source": {"path": "elsewhere"}}});
    let by_path = json!([{"op": "replace", "path": "/spec/project", "value": "other"}]);
    for ((status, text), missing) in [
        (scene.patch("theirs", merge, &path).await, "`applications, update`"),
        (scene.patch("mine", merge, &move_away).await, "`applications, create`"),
        (
            scene.patch("mine", "json-patch%2Bjson", &by_path).await,
            "`applications, create`",
        ),
        (scene.patch("mine", merge, &operation).await, "`applications, sync`"),
        (
            scene.patch("mine", "strategic-merge-patch%2Bjson", &path).await,
            "is not judged",
        ),
        (
            scene
                .call((Method::DELETE, "resource"), ("Application", "theirs"), "", "")
                .await,
            "`applications, delete`",
        ),
        (
            scene
                .call((Method::DELETE, "resource"), ("AppProject", "other"), "", "")
                .await,
            "`projects, delete`",
        ),
        (
            scene
                .call((Method::DELETE, "resource"), ("ApplicationSet", "apps"), "", "")
                .await,
            "apps",
        ),
        (
            scene
                .call(
                    (Method::POST, "resource/actions"),
                    ("Application", "theirs"),
                    "",
                    "\"toggle-auto-sync\"",
                )
                .await,
            "`applications, update`",
        ),
    ] {
        assert!(status == 403 && text.contains(missing), "{missing}: {status}: {text}");
    }
    let client = scene.gateway.client("mallory");
    let url = format!("{}/application.ApplicationService/DeleteResource", scene.gateway.url());
    let call = client
        .post(url)
        .header("content-type", "application/grpc-web+proto")
        .body(delete_by_grpc());
    let answer = call.send().await.unwrap();
    let status = format!("{:?}", answer.headers());
    let text = answer.text().await.unwrap();
    assert!(
        format!("{status}{text}").contains("applications, delete"),
        "{status} {text}"
    );
    assert_eq!(calls(&backend), [""; 0]);
    // What she may write, and what is no child of this kind.
    for (status, text) in [
        scene.patch("mine", merge, &path).await,
        scene
            .call((Method::DELETE, "resource"), ("Application", "mine"), "", "")
            .await,
        scene
            .call(
                (Method::DELETE, "resource"),
                ("Application", "of-another-cluster"),
                "",
                "",
            )
            .await,
        scene
            .call((Method::DELETE, "resource"), ("Rollout", "theirs"), "", "")
            .await,
    ] {
        assert_eq!(status, 200, "{text}");
    }
    assert_eq!(calls(&backend).len(), 4);
}
