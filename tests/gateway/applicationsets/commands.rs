//! `tollgate appset` against a gateway.

use std::path::PathBuf;

use super::{names, set, start, stored};
use test_support::token;
use test_support::world::{SESSION_KEY, World};

async fn run(world: &World, user: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .arg("appset")
        .args(arguments)
        .arg("--server")
        .arg(format!("http://{}", world.address()))
        .stdin(std::process::Stdio::null())
        .env("TOLLGATE_AUTH_TOKEN", token::session(SESSION_KEY, user));
    let output = command.output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn file(world: &World, name: &str, text: &str) -> String {
    let path: PathBuf = world.path(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn yaml(name: &str, applications: &[&str]) -> String {
    serde_saphyr::to_string(&set(name, "dev", applications)).unwrap()
}

#[tokio::test]
async fn sets_are_created_applied_listed_and_deleted() {
    let world = start().await;
    let both = format!("{}---\n{}", yaml("one", &["a", "b"]), yaml("two", &["c"]));
    let both = file(&world, "both.yaml", &both);
    let (code, out, err) = run(&world, "alice", &["create", "--dry-run", &both]).await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("applicationset argocd/one created (dry run)\n"), "{out}");
    assert!(out.contains("application a: create\n"), "{out}");
    assert!(out.contains("\n+  name: a\n") && !out.contains('\u{1b}'), "{out}");
    assert!(out.contains("2 applications: 2 create\n"), "{out}");
    assert!(stored(&world, "ApplicationSet").is_empty());
    let (_, out, _) = run(&world, "alice", &["create", "--dry-run", "--color", "always", &both]).await;
    assert!(out.contains("\u{1b}[32m+  name: a\u{1b}[0m"), "{out}");
    let (code, _, err) = run(&world, "alice", &["create", &both]).await;
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(names(&stored(&world, "Application")), ["a", "b", "c"]);
    let (code, out, _) = run(&world, "carol", &["list", "-o", "name"]).await;
    assert_eq!((code, out.as_str()), (Some(0), "argocd/one\nargocd/two\n"));
    let (code, out, _) = run(&world, "carol", &["get", "argocd/one", "-o", "yaml"]).await;
    assert_eq!(code, Some(0));
    assert!(out.contains("kind: ApplicationSet"), "{out}");
    // `create` refuses a change that `apply` makes.
    let less = file(&world, "less.yaml", &yaml("one", &["a"]));
    let (code, _, err) = run(&world, "alice", &["create", &less]).await;
    assert_eq!(code, Some(1));
    assert!(
        err.starts_with("tollgate: exists_differently: `one`: existing ApplicationSet"),
        "{err}"
    );
    let (code, out, err) = run(&world, "alice", &["apply", &less]).await;
    assert_eq!(code, Some(0), "{err}");
    assert!(
        out.contains("applicationset argocd/one updated\n") && out.contains("application b: delete"),
        "{out}"
    );
    let (code, out, err) = run(&world, "alice", &["generate", &less]).await;
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(out, "application a: unchanged\n1 applications: 1 unchanged\n");
    // Without a terminal, nobody can confirm.
    let (code, _, err) = run(&world, "alice", &["delete", "one"]).await;
    assert_eq!(code, Some(1));
    assert!(
        err.contains(
            "nobody can confirm: delete ApplicationSet `one` and delete its 1 Applications (a)? (`--yes` agrees)"
        ),
        "{err}"
    );
    let (code, out, _) = run(&world, "alice", &["delete", "one", "-y", "--cascade", "orphan"]).await;
    assert_eq!(code, Some(0));
    assert!(out.starts_with("applicationset one deleted"), "{out}");
    assert_eq!(names(&stored(&world, "Application")), ["a", "c"]);
}

#[tokio::test]
async fn refusals_are_listed_and_nothing_is_sent_of_a_bad_file() {
    let world = start().await;
    let one = file(&world, "one.yaml", &yaml("one", &["a"]));
    let (code, _, err) = run(&world, "bob", &["create", &one]).await;
    assert_eq!(code, Some(1));
    let mut lines = err.lines();
    assert!(
        lines
            .next()
            .is_some_and(|line| line.starts_with("tollgate: permission_denied: `one`: ")),
        "{err}"
    );
    assert!(err.contains("\ntollgate:   applicationset `dev/one`: "), "{err}");
    let mixed = file(
        &world,
        "mixed.yaml",
        &format!("{}---\nkind: ConfigMap\n", yaml("one", &["a"])),
    );
    let (code, _, err) = run(&world, "alice", &["create", &mixed]).await;
    assert_eq!(code, Some(1));
    assert!(
        err.contains("object 2 is `ConfigMap`, ApplicationSet is expected"),
        "{err}"
    );
    let (code, _, err) = run(&world, "bob", &["update", &one]).await;
    assert_eq!(code, Some(1));
    assert!(err.starts_with("tollgate: applicationset_not_found: "), "{err}");
    let (code, _, _) = run(&world, "alice", &["create"]).await;
    assert_eq!(code, Some(64));
    assert!(stored(&world, "ApplicationSet").is_empty());
}
