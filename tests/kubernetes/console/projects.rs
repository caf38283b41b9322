//! The editor of projects.

use reqwest::StatusCode;
use serde_json::json;
use test_support::chromium::Chromium;

use super::Site;
use crate::sign_in::browsing::Visited;

#[tokio::test]
async fn a_project_owner_sees_who_would_act_and_no_change_is_lost() {
    // Pages read the reason of a refusal regardless of the format that the fronts have for programs.
    let site = Site::start_with(|layout, _| layout.settings(json!({"extensions": {"compat": "argocd"}}))).await;
    let (mut owner, mut other) = (site.person("owner").await, site.person("other").await);
    let url = site.url("projects/shop");
    let page = owner.open(&url).await;
    assert!(
        page.text.contains("argocd/cart") && page.text.contains("web:web-deployer"),
        "{}",
        page.text
    );
    let version = hidden_value(&page, "version");
    let row = |server, namespace, account| [("server", server), ("namespace", namespace), ("account", account)];
    let form = |operation: &'static str, rows: &[[(&'static str, &'static str); 3]]| {
        [&[("version", version.as_str()), ("op", operation)][..], &rows.concat()].concat()
    };
    let (web, all) = (row("*", "web", "web-deployer"), row("*", "*", "deployer"));
    // An entry that matches everything first shadows the rest: cart would change, and a warning says
    // why.
    let moved = owner.submit(&url, &form("up:1", &[web, all])).await;
    assert_eq!(moved.status, StatusCode::OK);
    assert!(
        moved.text.contains("<strong>1</strong> would change, 1 stay"),
        "{}",
        moved.text
    );
    assert!(
        moved.text.contains("web:web-deployer") && moved.text.contains("<strong>web:deployer</strong>"),
        "{}",
        moved.text
    );
    assert!(moved.text.contains("entry 2"), "{}", moved.text);
    assert_eq!(site.entries().len(), 2, "a preview stores nothing");
    // A mistake comes back beside its entry, with what was typed.
    let wrong = owner
        .submit(&url, &form("save", &[web, row("*", "*", "not a <name>")]))
        .await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        wrong
            .text
            .contains("value=\"not a &#60;name&#62;\" aria-invalid=\"true\""),
        "{}",
        wrong.text
    );
    assert!(wrong.text.contains("id=\"problem-1\""), "{}", wrong.text);
    assert_eq!(site.entries().len(), 2);
    // Rows without a text do not count.
    let wrong = owner
        .submit(&url, &form("preview", &[row("", "", ""), web, row("*", "*", "")]))
        .await;
    assert!(
        wrong.text.contains("id=\"problem-1\"") && wrong.text.matches("<legend>Entry").count() == 2,
        "{}",
        wrong.text
    );
    // The other owner stores first. Nothing of theirs is lost, and both sides are shown.
    let theirs = other.submit(&url, &form("save", &[web])).await;
    assert_eq!(
        (theirs.status, theirs.url.query()),
        (StatusCode::OK, Some("saved=1")),
        "{}",
        theirs.text
    );
    // A person who only looks at what would happen learns of it, too.
    let note = "Somebody else changed this project since you opened it";
    let moved = owner
        .submit(&url, &form("preview", &[web, all, row("*", "db", "dba")]))
        .await;
    assert!(
        moved.text.contains(note) && moved.text.contains("<li>*, web → web-deployer</li>"),
        "{}",
        moved.text
    );
    assert!(moved.text.contains("value=\"dba\""), "{}", moved.text);
    let fresh = owner.open(&url).await;
    assert!(!fresh.text.contains(note), "{}", fresh.text);
    let conflict = owner
        .submit(&url, &form("save", &[web, all, row("*", "db", "dba")]))
        .await;
    assert_eq!(conflict.status, StatusCode::CONFLICT);
    assert!(
        conflict.text.contains("Somebody else changed this project meanwhile"),
        "{}",
        conflict.text
    );
    assert!(conflict.text.contains("*, web → web-deployer"), "{}", conflict.text);
    assert!(conflict.text.contains("value=\"dba\""), "{}", conflict.text);
    assert_eq!(site.entries().len(), 1);
    // Having seen them, the owner saves.
    let version = hidden_value(&conflict, "version");
    let fields = [
        &[("version", version.as_str()), ("op", "save")][..],
        &[web, all].concat(),
    ]
    .concat();
    let saved = owner.submit(&url, &fields).await;
    assert_eq!(saved.url.query(), Some("saved=1"), "{}", saved.text);
    assert_eq!(
        site.entries()[1],
        json!({"server": "*", "namespace": "*", "defaultServiceAccount": "deployer"})
    );
    // Who may not see the project learns nothing of it.
    let refused = site.person("ann").await.open(&url).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(!refused.text.contains("deployer"), "{}", refused.text);
}

#[tokio::test]
async fn the_preview_follows_what_is_typed_and_a_file_fills_a_set() {
    let site = Site::start().await;
    let chromium = Chromium::start().await;
    let mut page = site.tab(&chromium, "owner").await;
    page.resize(1280, 800).await;
    page.go(&site.url("projects/shop")).await;
    let preview = "document.querySelector('#preview-region').innerText";
    let text = page.evaluate(preview).await;
    assert!(text.as_str().unwrap().contains("web:web-deployer"), "{text}");
    page.evaluate("document.querySelector('#account-0').select()").await;
    page.type_text("blue").await;
    page.until(&format!(
        "{preview}.includes('web:blue') && {preview}.includes('1 would change')"
    ))
    .await;
    page.type_text("green").await;
    page.until(&format!("{preview}.includes('web:bluegreen')")).await;
    // What cannot be is said, too, and what is typed stays.
    page.evaluate("document.querySelector('#server-0').select()").await;
    page.type_text("[").await;
    page.until(&format!("!{preview}.includes('web:bluegreen')")).await;
    assert_eq!(
        page.evaluate("document.querySelector('#account-0').value").await,
        "bluegreen"
    );
    assert_eq!(site.entries()[0]["defaultServiceAccount"], "web-deployer");
    // Somebody else saves, of which the page tells by itself. What is typed stays.
    let mut other = site.person("other").await;
    let url = site.url("projects/shop");
    let version = hidden_value(&other.open(&url).await, "version");
    let fields = [
        ("version", &*version),
        ("op", "save"),
        ("server", "*"),
        ("namespace", "*"),
        ("account", "theirs"),
    ];
    assert_eq!(other.submit(&url, &fields).await.url.query(), Some("saved=1"));
    page.until("document.querySelector('#moved').innerText.includes('theirs')")
        .await;
    assert_eq!(
        page.evaluate("document.querySelector('#account-0').value").await,
        "bluegreen"
    );
    // A form that is refused is answered with 422, which the browser notes.
    page.complaints().await;
    page.go(&site.url("applicationsets/new")).await;
    page.evaluate(
        "const files = new DataTransfer(); files.items.add(new File(['kind: ApplicationSet'], 'set.yaml')); \
         const input = document.querySelector('#upload'); input.files = files.files; \
         input.dispatchEvent(new Event('change')); 0",
    )
    .await;
    page.until("document.querySelector('#text').value === 'kind: ApplicationSet'")
        .await;
    assert_eq!(page.complaints().await, [""; 0]);
}

#[tokio::test]
async fn forms_have_a_bound() {
    let site = Site::start().await;
    let mut owner = site.person("owner").await;
    let many = vec![("server", "*"); 5_001];
    let refused = owner.submit(&site.url("projects/shop"), &many).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text.contains("at most 5,000 fields"), "{}", refused.text);
}

/// The value of a hidden field.
fn hidden_value(visited: &Visited, name: &str) -> String {
    let start = format!("<input type=\"hidden\" name=\"{name}\" value=\"");
    let found = visited
        .text
        .split_once(&start)
        .and_then(|(_, rest)| rest.split_once('"'));
    let (value, _) = found.unwrap_or_else(|| panic!("no {name} in {}", visited.text));
    value.to_owned()
}
