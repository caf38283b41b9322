//! Sign-in with a real browser: the console's pages without scripts, the issuer's form, and the page that
//! approves a login of the command line. Pictures of the pages in both themes are in `target/pictures`.

use std::path::Path;

use super::command_line::{Home, finished};
use super::{CLIENT, Site};
use test_support::chromium::{Chromium, Page};

/// Takes pictures of a page in both themes.
async fn pictures(page: &mut Page, name: &str) {
    for theme in ["light", "dark"] {
        let file = format!("target/pictures/{name}-{theme}.png");
        page.picture(theme, &Path::new(env!("CARGO_MANIFEST_DIR")).join(file))
            .await;
    }
}

/// Presses a button, or follows a link.
async fn press(page: &mut Page, selector: &str) {
    page.evaluate(&format!("document.querySelector({selector:?}).click()"))
        .await;
}

#[tokio::test]
async fn a_person_signs_in_and_approves_the_command_line() {
    let site = Site::start().await;
    let chromium = Chromium::start().await;
    let mut page = chromium.open(&format!("{}/console/sign-in", site.console)).await;
    page.until("document.querySelector('h1')?.textContent == 'Sign in'")
        .await;
    // The style is allowed by the policy of the page, and there is no script.
    let styled = "getComputedStyle(document.querySelector('.button')).display";
    assert_ne!(page.evaluate(styled).await, "inline");
    assert_eq!(page.evaluate("document.scripts.length").await, 0);
    pictures(&mut page, "sign-in").await;
    press(&mut page, &format!("a[href^='/console/sign-in/{CLIENT}']")).await;
    page.until("document.title == 'Identity provider'").await;
    page.evaluate("document.querySelector('#account').value = 'ann'").await;
    press(&mut page, "button").await;
    page.until("document.body?.textContent.includes('Signed in as sub:ann')")
        .await;
    assert_eq!(page.evaluate("location.pathname").await, "/console/");
    // No script of any page can read the session.
    assert_eq!(page.evaluate("document.cookie").await, "");
    pictures(&mut page, "home").await;

    let home = Home::new();
    let (process, address, _errors) = home.start_login(&site.console, &[]).await;
    page.evaluate(&format!("location.href = {:?}", address.as_str())).await;
    page.until("document.querySelector('button[value=approve]') != null")
        .await;
    pictures(&mut page, "approve").await;
    press(&mut page, "button[value=approve]").await;
    page.until("document.body?.textContent.includes('You are signed in on the command line')")
        .await;
    pictures(&mut page, "approved").await;
    let output = finished(process).await;
    assert!(output.contains("sub:ann"), "{output}");
    assert!(home.run(&["whoami"]).await.contains("sub:ann"));
}
