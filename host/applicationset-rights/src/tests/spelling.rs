//! Other spellings of a repository's URL.

use crate::Operation;
use crate::tests::policy::bundle;
use crate::tests::{Fixture, set};
use tollgate_applicationset::InputAuthorizer as _;
use tollgate_applicationset::plan::StoredState;

const ROWS: &str =
    "p, ann, applicationsets, *, *, allow\np, ann, applications, *, */*, allow\np, ann, repositories, get, *, allow";

/// The refusals that ann gets for reading each of these.
fn check_repositories(fixture: &Fixture, urls: &[&str]) -> Vec<Option<String>> {
    let permit = Fixture::new(ROWS)
        .authorize_operation(Operation::Create, Some(&set("dev")), &StoredState::default())
        .unwrap();
    let caller = fixture.caller("ann");
    let authorizer = fixture.authorizer(&caller);
    let input_authorizer = authorizer.input_authorizer(&permit);
    let refusal_of = |url: &&str| {
        input_authorizer
            .check_repository(url)
            .err()
            .map(|refusal| refusal.to_string())
    };
    urls.iter().map(refusal_of).collect()
}

const SAME: [&str; 6] = [
    "https://git.example.org/guestbook",
    "https://git.example.org/guestbook.git",
    "https://GIT.example.org/Guestbook/",
    "https://git.example.org/%67uestbook",
    "https://git.example.org/guestbook%2Egit",
    "https:///git.example.org/guestbook.GIT",
];
const OTHERS: [&str; 2] = [
    "https://git.example.org/guestbook2",
    "https://git.example.org/guestbook/git",
];

#[test]
fn a_row_that_denies_a_repository_denies_each_spelling_of_it() {
    for object in [
        "https://git.example.org/guestbook",
        "https://git.example.org/guestbook.git",
    ] {
        let mut fixture = Fixture::new(&format!("{ROWS}\np, ann, repositories, get, {object}, deny"));
        fixture.settings.repositories = vec!["https://**".to_owned()];
        let port = "https://git.example.org:443/guestbook";
        for (url, answer) in SAME
            .iter()
            .chain([&port])
            .zip(check_repositories(&fixture, &[&SAME[..], &[port]].concat()))
        {
            let answer = answer.unwrap_or_else(|| panic!("{object}: {url} passes"));
            assert!(
                answer.contains("`repositories, get` is not permitted"),
                "{url}: {answer}"
            );
            assert!(answer.contains(object), "the row is named: {answer}");
        }
        assert_eq!(check_repositories(&fixture, &OTHERS), [None, None], "{object}");
    }
}

#[test]
fn no_spelling_allows_what_the_url_itself_does_not() {
    let rows = ROWS.replace("get, *, allow", "get, https://git.example.org/guestbook, allow");
    let mut fixture = Fixture::new(&rows);
    fixture.settings.repositories = vec!["https://**".to_owned()];
    let answers = check_repositories(&fixture, &SAME);
    assert_eq!(answers[0], None);
    for (url, answer) in SAME.iter().zip(&answers).skip(1) {
        assert!(answer.is_some(), "{url}");
    }
}

#[test]
fn a_bundle_that_denies_a_url_denies_each_spelling_of_it() {
    let rego = "package tollgate.applicationsets\n\n\
                default decision := {\"allow\": true, \"reason\": \"yes\"}\n\n\
                decision := {\"allow\": false, \"reason\": \"not this one\"} if input.repository.url == \"https://git.example.org/guestbook\"";
    let mut fixture = Fixture::new(ROWS);
    fixture.settings.repositories = vec!["https://**".to_owned()];
    fixture.policy = bundle(rego);
    let lower = SAME
        .iter()
        .filter(|url| !url.contains("Guestbook"))
        .copied()
        .collect::<Vec<_>>();
    for (url, answer) in lower.iter().zip(check_repositories(&fixture, &lower)) {
        assert!(answer.is_some_and(|answer| answer.contains("not this one")), "{url}");
    }
    assert_eq!(check_repositories(&fixture, &OTHERS), [None, None]);
}
