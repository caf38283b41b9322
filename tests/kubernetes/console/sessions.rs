//! Sessions that somebody ends.

use reqwest::StatusCode;
use test_support::chromium::Chromium;

use super::Site;

#[tokio::test]
async fn a_session_is_ended_by_keyboard_and_the_list_follows_by_itself() {
    let site = Site::start().await;
    let chromium = Chromium::start().await;
    let mut page = site.tab(&chromium, "root").await;
    page.resize(1280, 900).await;
    page.go(&site.url("sessions?user=*")).await;
    let rows = "[...document.querySelectorAll('tbody tr')].filter(row => row.innerText.includes('sub:ann')).length";
    assert_eq!(page.evaluate(rows).await, 0);
    // The page is not loaded again: ann signs in, and her session comes up.
    page.evaluate("window.kept = true").await;
    let mut ann = site.person("ann").await;
    page.until(&format!("{rows} === 1")).await;
    assert_eq!(page.evaluate("window.kept").await, true);
    // From the top by Tab alone; each stop shows where the focus is.
    let focused = "document.activeElement";
    page.evaluate("document.body.focus()").await;
    let mut stops = 0;
    loop {
        page.press_key("Tab").await;
        stops += 1;
        assert!(stops < 200, "ann's session cannot be reached");
        let outline = page
            .evaluate(&format!("getComputedStyle({focused}).outlineStyle"))
            .await;
        assert_ne!(
            outline,
            "none",
            "{}",
            page.evaluate(&format!("{focused}.outerHTML")).await
        );
        let is_there = format!("{focused}.matches('summary') && {focused}.innerText.includes('sub:ann')");
        if page.evaluate(&is_there).await == true {
            break;
        }
    }
    page.press_key("Enter").await;
    page.until(&format!("{focused}.parentElement.open")).await;
    page.press_key("Tab").await;
    assert_eq!(page.evaluate(&format!("{focused}.innerText")).await, "End it");
    page.press_key("Enter").await;
    page.until(&format!("document.readyState === 'complete' && {rows} === 0"))
        .await;
    assert_eq!(page.evaluate("location.search").await, "?user=*");
    assert_eq!(page.complaints().await, [""; 0]);
    let visited = ann.open(&site.url("sessions")).await;
    assert_eq!(visited.url.path(), "/console/sign-in", "{visited:?}");
    let events = site
        .person("root")
        .await
        .open(&site.url("audit?user=*&action=session.revoked"))
        .await;
    assert!(events.text.contains("sub:root"), "{}", events.text);
}

#[tokio::test]
async fn all_of_a_person_is_ended_at_once() {
    let site = Site::start().await;
    let (mut ann, mut second) = (site.person("ann").await, site.person("ann").await);
    let mut root = site.person("root").await;
    let url = site.url("sessions");
    let listed = root.open(&site.url("sessions?user=sub:ann")).await;
    assert_eq!(listed.text.matches("End it</button>").count(), 2, "{}", listed.text);
    // Nobody ends everybody, and ann cannot end root.
    let refused = root.submit(&url, &[("all", "1"), ("user", "*")]).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text);
    let refused = ann.submit(&url, &[("all", "1"), ("user", "sub:root")]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text);
    let ended = root.submit(&url, &[("all", "1"), ("user", "sub:ann")]).await;
    assert_eq!(ended.url.query(), Some("user=sub%3Aann"), "{}", ended.text);
    assert!(ended.text.contains("Nothing is at work"), "{}", ended.text);
    for browser in [&mut ann, &mut second] {
        assert_eq!(browser.open(&url).await.url.path(), "/console/sign-in");
    }
    assert_eq!(root.open(&url).await.url.path(), "/console/sessions");
    let own = root.submit(&url, &[("all", "1")]).await;
    assert_eq!(own.url.path(), "/console/sign-in", "{}", own.text);
}
