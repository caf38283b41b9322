//! Everything can be done with the keys of a keyboard alone.

use serde_json::json;
use test_support::chromium::{Chromium, Page};

use super::Site;

/// Moves the focus with Tab until it is on an element of this selector. Each stop shows where it is.
/// Behind the last one it begins again from the top, which is no stop.
async fn reach(page: &mut Page, selector: &str) {
    let is_there = format!("document.activeElement.matches({})", json!(selector));
    let stop = "(it => it === document.body ? 'top' : getComputedStyle(it).outlineStyle)(document.activeElement)";
    for _ in 0..200 {
        page.press_key("Tab").await;
        let outline = page.evaluate(stop).await;
        if outline == "none" {
            let element = page.evaluate("document.activeElement.outerHTML").await;
            panic!("the focus cannot be seen: {element}");
        }
        if page.evaluate(&is_there).await == true {
            return;
        }
    }
    panic!("Tab never reaches {selector}");
}

/// Moves the focus to an element and presses Enter, after which the page is at this path and query.
async fn follow(page: &mut Page, selector: &str, there: &str) {
    reach(page, selector).await;
    page.press_key("Enter").await;
    let here = "location.pathname + location.search";
    page.until(&format!(
        "document.readyState === 'complete' && {here} === {}",
        json!(there)
    ))
    .await;
}

#[tokio::test]
async fn an_owner_needs_no_mouse() {
    let site = Site::start().await;
    let chromium = Chromium::start().await;
    let mut page = site.tab(&chromium, "owner").await;
    page.resize(1280, 900).await;
    page.go(&site.url("")).await;
    // The first stop leads past the navigation.
    page.press_key("Tab").await;
    assert_eq!(
        page.evaluate("document.activeElement.innerText").await,
        "Skip to content"
    );
    page.press_key("Enter").await;
    page.until("document.activeElement.id === 'content'").await;

    // An account of a project is changed; to reach a field selects what is in it.
    follow(&mut page, "nav a[href='/console/projects']", "/console/projects").await;
    follow(
        &mut page,
        "main a[href='/console/projects/shop']",
        "/console/projects/shop",
    )
    .await;
    reach(&mut page, "#account-0").await;
    page.type_text("blue").await;
    page.until("document.querySelector('#preview-region').innerText.includes('web:blue')")
        .await;
    follow(
        &mut page,
        "button[name='op'][value='save']",
        "/console/projects/shop?saved=1",
    )
    .await;
    assert_eq!(site.entries()[0]["defaultServiceAccount"], "blue");

    // A set is previewed. Tab leaves the text, as it leaves every field.
    follow(
        &mut page,
        "nav a[href='/console/applicationsets']",
        "/console/applicationsets",
    )
    .await;
    follow(
        &mut page,
        "main a[href='/console/applicationsets/new']",
        "/console/applicationsets/new",
    )
    .await;
    reach(&mut page, "#text").await;
    reach(&mut page, "button[name='op'][value='preview']").await;
    page.press_key("Enter").await;
    page.until("document.readyState === 'complete' && document.querySelector('#plan') !== null")
        .await;

    // A question is asked with Enter in its field.
    follow(&mut page, "nav a[href='/console/permissions']", "/console/permissions").await;
    for (field, text) in [("resource", "projects"), ("action", "update"), ("object", "shop")] {
        reach(&mut page, &format!("[name='{field}']")).await;
        page.type_text(text).await;
    }
    page.press_key("Enter").await;
    page.until("document.readyState === 'complete' && document.querySelector('main .badge.good') !== null")
        .await;

    reach(&mut page, "button[name='theme'][value='dark']").await;
    page.press_key("Enter").await;
    page.until("document.readyState === 'complete' && document.documentElement.dataset.theme === 'dark'")
        .await;
    assert_eq!(page.complaints().await, [""; 0]);
    reach(&mut page, "form[action='/console/sign-out'] button").await;
    page.press_key("Enter").await;
    // Signing out leads from `/console/signed-out?from=…` to the issuer, whose page sends a form by
    // itself, and back from there without the query. The issuer's origin counts as a complaint.
    let signed_out = "location.pathname + location.search === '/console/signed-out'";
    page.until(&format!("document.readyState === 'complete' && {signed_out}"))
        .await;
    page.complaints().await;
    assert_eq!(page.evaluate("document.documentElement.dataset.theme").await, "dark");
    page.go(&site.url("sign-in")).await;
    assert_eq!(page.evaluate("document.documentElement.dataset.theme").await, "dark");
    assert_eq!(page.complaints().await, [""; 0]);
}
