//! The editor of ApplicationSets.

use reqwest::StatusCode;

use super::Site;
use crate::sign_in::browsing::Visited;

#[tokio::test]
async fn a_set_is_previewed_stored_changed_and_deleted() {
    let site = Site::start().await;
    let (mut owner, mut ann) = (site.person("owner").await, site.person("ann").await);
    let set = |project: &str, stages: &str| {
        format!(
            "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {{name: stages, namespace: argocd}}\nspec:\n  \
             goTemplate: true\n  generators: [{{list: {{elements: [{stages}]}}}}]\n  template:\n    metadata: {{name: 'shop-{{{{.stage}}}}'}}\n    \
             spec: {{project: {project}, source: {{repoURL: 'https://git.example/shop.git', path: .}}, destination: {{name: people, namespace: web}}}}\n"
        )
    };
    let (one, two) = (
        set("shop", "{stage: test}"),
        set("shop", "{stage: test}, {stage: production}"),
    );
    let new = site.url("applicationsets/new");
    let preview = owner.submit(&new, &[("op", "preview"), ("text", &one)]).await;
    assert_eq!(preview.status, StatusCode::OK, "{}", preview.text);
    assert!(preview.text.contains("<strong>1</strong> created"), "{}", preview.text);
    let list = owner.open(&site.url("applicationsets")).await;
    assert!(
        list.text.contains("There is no set"),
        "a preview stores nothing: {}",
        list.text
    );
    // ann may not, and reads why, with what she typed.
    let refused = ann.submit(&new, &[("op", "save"), ("text", &one)]).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        refused.text.contains("permission_denied") && refused.text.contains("name: stages"),
        "{}",
        refused.text
    );
    let stored = owner.submit(&new, &[("op", "save"), ("text", &one)]).await;
    assert_eq!(
        (stored.url.path(), stored.url.query()),
        ("/console/applicationsets/argocd/stages", Some("saved=1")),
        "{}",
        stored.text
    );
    assert!(stored.text.contains("resourceVersion"), "{}", stored.text);
    let url = site.url("applicationsets/argocd/stages");
    // Without the version that it is based on, nothing is replaced.
    let blind = owner.submit(&url, &[("op", "save"), ("text", &two)]).await;
    assert_eq!(blind.status, StatusCode::CONFLICT, "{}", blind.text);
    let text = textarea(&stored);
    let changed = text.replace("stage: test", "stage: staging");
    assert_ne!(changed, text);
    let preview = owner.submit(&url, &[("op", "preview"), ("text", &changed)]).await;
    assert!(
        preview.text.contains("shop-staging") && preview.text.contains("class=\"add\""),
        "{}",
        preview.text
    );
    let broken = owner.submit(&url, &[("op", "save"), ("text", "spec: [")]).await;
    assert_eq!(broken.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(broken.text.contains("spec: ["), "{}", broken.text);
    assert_eq!(ann.open(&url).await.status, StatusCode::NOT_FOUND);
    let deleted = owner.submit(&url, &[("op", "delete"), ("text", &text)]).await;
    assert_eq!(deleted.url.path(), "/console/applicationsets", "{}", deleted.text);
    assert!(deleted.text.contains("There is no set"), "{}", deleted.text);
}

fn textarea(visited: &Visited) -> String {
    let (_, rest) = visited.text.split_once("autocapitalize=\"off\">").unwrap();
    let (text, _) = rest.split_once("</textarea>").unwrap();
    let named = [
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#38;", "&"),
    ];
    named
        .into_iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}
