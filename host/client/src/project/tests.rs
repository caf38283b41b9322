use std::path::Path;

use clap::{CommandFactory, Parser};

use super::Command;

const PROJECT: &str = "# kept\napiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: shop}\nspec:\n  description: Shop\n  destinations:\n  - {server: '*', namespace: '*'} # all\n";

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

fn state_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    std::fs::create_dir_all(root.join("state")).expect("a folder");
    std::fs::create_dir_all(root.join("policies")).expect("a folder");
    let cm = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\n";
    std::fs::write(root.join("state/cm.yaml"), cm).expect("a file");
    std::fs::write(root.join("state/shop.yaml"), PROJECT).expect("a file");
    let settings = "listen: 127.0.0.1:0\nstate: {directory: state}\npolicies: {directory: policies}\nauthentication: {argocdSessions: true}\n";
    std::fs::write(root.join("tollgate.yaml"), settings).expect("a file");
    folder
}

fn run(root: &Path, arguments: &str) -> Result<String, String> {
    let config = root.join("tollgate.yaml");
    let words = std::iter::once("project").chain(arguments.split_whitespace());
    let words = words
        .map(str::to_owned)
        .chain(["--config".to_owned(), config.display().to_string()]);
    let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    line.command.run(&mut out).map_err(|failure| failure.to_string())?;
    Ok(String::from_utf8(out).expect("text"))
}

#[test]
fn definition_is_consistent() {
    Line::command().debug_assert();
}

#[test]
fn entries_are_added_and_removed_in_the_state() {
    let folder = state_folder();
    let root = folder.path();
    let output = run(
        root,
        "add-destination-service-account shop https://a guestbook deployer --service-account-namespace infra",
    );
    let expected = "project shop: added service account infra:deployer for server https://a, namespace guestbook\n";
    assert_eq!(output.as_deref(), Ok(expected));
    let file = || std::fs::read_to_string(root.join("state/shop.yaml")).expect("a file");
    let lines = "  destinationServiceAccounts:\n  - defaultServiceAccount: infra:deployer\n    namespace: guestbook\n    server: https://a\n";
    assert_eq!(file(), format!("{PROJECT}{lines}"));

    let again = run(
        root,
        "add-destination-service-account shop https://a guestbook infra:deployer",
    );
    let text = "project.present: specified destination service account is already defined in project";
    assert_eq!(again, Err(text.to_owned()));
    let other = run(root, "add-destination-service-account shop https://a guestbook other");
    let text = "project_invalid: `spec.destinationServiceAccounts[1]`: destinationServiceAccount 'https://a/guestbook' already added";
    assert_eq!(other, Err(text.to_owned()));
    let page = run(root, "get shop").expect("a page");
    assert!(page.contains("infra:deployer") && page.contains("Shop"), "{page}");
    let list = run(root, "list").expect("a list");
    assert!(
        list.contains("https://a,guestbook,infra:deployer") && list.contains("*,*"),
        "{list}"
    );
    let json = run(root, "get shop -o json").expect("a document");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["kind"], "AppProject");

    let removed = run(
        root,
        "remove-destination-service-account shop https://a guestbook deployer",
    );
    let text = "project.absent: specified destination service account does not exist in project";
    assert_eq!(removed, Err(text.to_owned()));
    run(
        root,
        "remove-destination-service-account shop https://a guestbook infra:deployer",
    )
    .expect("the entry is removed");
    assert_eq!(file(), format!("{PROJECT}  destinationServiceAccounts: []\n"));
}

#[test]
fn invalid_entries_are_not_written() {
    let folder = state_folder();
    let root = folder.path();
    for (arguments, expected) in [
        (
            "add-destination-service-account shop * * a*",
            "project.wildcard: service account of a destination service account must not contain wildcards",
        ),
        (
            "add-destination-service-account shop * * a --service-account-namespace n*",
            "project.wildcard: service-account-namespace of a destination service account must not contain wildcards",
        ),
        (
            "add-destination-service-account shop !x * a",
            "project_invalid: `spec.destinationServiceAccounts[0]`: server has an invalid format, '!x'",
        ),
        (
            "add-destination-service-account shop * * a:b --service-account-namespace n",
            "project.account: the service account names a namespace already (leave one of both out)",
        ),
        (
            "add-destination-service-account none * * a",
            "project_not_found: there is no AppProject `none` (`tollgate project list` shows those there are)",
        ),
    ] {
        assert_eq!(run(root, arguments), Err(expected.to_owned()), "{arguments}");
    }
    let usage = run(root, "add-destination-service-account shop * *").expect_err("an argument is missing");
    assert!(usage.contains("<SERVICE_ACCOUNT>"), "{usage}");
    let file = std::fs::read_to_string(root.join("state/shop.yaml")).expect("a file");
    assert_eq!(file, PROJECT);
}

#[test]
fn all_entries_are_replaced_in_the_state() {
    let folder = state_folder();
    let root = folder.path();
    run(root, "add-destination-service-account shop https://a guestbook old").expect("the entry is added");
    let output = run(
        root,
        "set shop --dest-service-accounts https://a,guestbook,deployer --dest-service-accounts *,*,infra:deployer",
    );
    assert_eq!(
        output.as_deref(),
        Ok("project shop: set 2 destination service accounts\n")
    );
    let json = run(root, "get shop -o json").expect("a document");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let expected = serde_json::json!([
        {"server": "https://a", "namespace": "guestbook", "defaultServiceAccount": "deployer"},
        {"server": "*", "namespace": "*", "defaultServiceAccount": "infra:deployer"},
    ]);
    assert_eq!(json["spec"]["destinationServiceAccounts"], expected);
    assert_eq!(json["spec"]["description"], "Shop");
    let before = std::fs::read_to_string(root.join("state/shop.yaml")).expect("a file");
    for (arguments, expected) in [
        ("set shop", "--dest-service-accounts <SERVER,NAMESPACE,ACCOUNT>"),
        ("set shop --dest-service-accounts *,*", "has 2 parts between commas"),
        ("set shop --dest-service-accounts *,*,a,b", "has 4 parts between commas"),
        (
            "set shop --dest-service-accounts *,*,a*",
            "defaultServiceAccount has an invalid format, 'a*'",
        ),
        (
            "set shop --dest-service-accounts *,*,a --dest-service-accounts *,*,b",
            "destinationServiceAccount '*/*' already added",
        ),
        (
            "set none --dest-service-accounts *,*,a",
            "there is no AppProject `none`",
        ),
    ] {
        let refused = run(root, arguments).expect_err(arguments);
        assert!(refused.contains(expected), "{arguments}: {refused}");
    }
    let after = std::fs::read_to_string(root.join("state/shop.yaml")).expect("a file");
    assert_eq!(after, before);
}
