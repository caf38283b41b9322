//! Sync windows and sources of projects.

use super::*;
use tollgate_objects::SyncWindow;

#[test]
fn sync_windows_of_global_projects_follow_those_of_the_project() {
    let window = |kind: &str, namespace: &str| SyncWindow {
        kind: kind.to_owned(),
        schedule: "* * * * *".to_owned(),
        duration: "24h".to_owned(),
        namespaces: vec![namespace.to_owned()],
        location: Location::new("project.yaml", 9),
        ..SyncWindow::default()
    };
    let (mut own, mut global) = (project("team", Vec::new()), project("global", Vec::new()));
    own.sync_windows = vec![window("allow", "guestbook")];
    global.sync_windows = vec![window("deny", "guestbook"), window("often", "*")];
    let mut resources = resources(vec![own, global], vec![application("argocd", "guestbook", "team")]);
    let check = |resources: &Resources| {
        let windows = found(&build(resources), "guestbook").applicable_windows();
        let checked = windows.check_manual_sync(std::time::SystemTime::UNIX_EPOCH);
        checked.err().map(|closed| closed.to_string()).unwrap_or_default()
    };
    assert_eq!(check(&resources), "");
    set(&mut resources, "globalProjects", "- projectName: global\n");
    let text = check(&resources);
    assert!(text.contains("`often * * * * *`"), "{text}");
    // Only the project that has the window is reported.
    let found = findings(&build(&resources));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("project.yaml:9: warning: `syncWindows[1]` cannot be used"),
        "{found:?}"
    );
}

#[test]
fn every_source_needs_the_project() {
    let refused = |permitted: &[&str], repositories: &[&str]| {
        let own = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        let mut team = project("team", Vec::new());
        team.source_repos = own(permitted);
        let mut application = application("argocd", "guestbook", "team");
        application.repositories = own(repositories);
        let index = build(&resources(vec![team], vec![application]));
        found(&index, "guestbook").refused_repository().map(str::to_owned)
    };
    for (permitted, repositories, expected) in [
        (&[][..], &["https://a/b"][..], Some("https://a/b")),
        (&["*"], &["https://a/b"], None),
        (&["https://a/*"], &["https://a/b", "https://A/c.git"], None),
        (
            &["https://a/*"],
            &["https://a/b", "https://other/b"],
            Some("https://other/b"),
        ),
        (
            &["*", "!https://a/secret"],
            &["https://a/b", "https://a/secret"],
            Some("https://a/secret"),
        ),
        (&["*"], &[], None),
        (&["https://a/*"], &[], Some("")),
    ] {
        let observed = refused(permitted, repositories);
        assert_eq!(observed.as_deref(), expected, "{permitted:?} {repositories:?}");
    }
}
