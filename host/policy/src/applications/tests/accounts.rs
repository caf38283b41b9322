//! The accounts that act in each cluster, which the index keeps from snapshot to snapshot.

use std::collections::BTreeSet;

use super::*;

/// Every account with the Applications it acts for: server, username, name.
fn acting(index: &ApplicationIndex) -> BTreeSet<(String, String, String)> {
    let mut all = BTreeSet::new();
    for (server, accounts) in &*index.acting {
        assert!(!accounts.is_empty(), "{server}");
        for (username, account) in &**accounts {
            let names: Vec<_> = account.applications.iter().map(|own| &own.application.name).collect();
            assert!(names.is_sorted() && !names.is_empty(), "{names:?}");
            let projects: BTreeSet<_> = account
                .applications
                .iter()
                .map(|own| own.project.as_ref().map(|project| &project.name))
                .collect();
            assert_eq!(account.first_of_projects.len(), projects.len());
            for name in names {
                assert_eq!(account.find(name).unwrap().application.name, *name);
                all.insert((
                    server.clone(),
                    username.clone(),
                    format!("{}/{}", name.namespace, name.name),
                ));
            }
        }
    }
    all
}

/// Accounts of every Application, computed one by one.
fn expected(index: &ApplicationIndex, resources: &Resources) -> BTreeSet<(String, String, String)> {
    let acts = |own: &Arc<IndexedApplication>| {
        let (project, cluster) = (own.project.as_ref()?, own.destination.as_ref().ok()?);
        let account = own.derived_account.as_ref().ok()?.account.as_ref()?;
        let namespace = &own.application.destination.namespace;
        let permitted = tollgate_objects::destination::permitted(project, cluster, namespace, &resources.clusters);
        let name = &own.application.name;
        permitted.then(|| {
            let name = format!("{}/{}", name.namespace, name.name);
            (cluster.server.clone(), account.username(), name)
        })
    };
    index.iter().filter_map(acts).collect()
}

fn permitting(name: &str, servers: &[&str]) -> Project {
    let mut found = project(name, vec![entry("*", "*", name)]);
    let rule = |server: &&str| Destination {
        name: String::new(),
        server: (*server).to_owned(),
        namespace: "*".to_owned(),
    };
    found.destinations = servers.iter().map(rule).collect();
    found
}

fn at(name: &str, project: &str, cluster: &str, namespace: &str) -> Application {
    let mut found = application("argocd", name, project);
    found.destination.name = cluster.to_owned();
    found.destination.namespace = namespace.to_owned();
    found
}

fn change(resources: &mut Resources, application: Application) {
    resources
        .applications
        .insert(application.name.clone(), Arc::new(application));
}

/// After any change, the accounts that are kept are those that the objects give.
#[test]
fn accounts_that_are_kept_are_those_of_a_new_index() {
    let mut state = resources(
        vec![permitting("a", &["*"]), permitting("b", &["https://k1", "!https://k2"])],
        Vec::new(),
    );
    state.clusters = (0..3)
        .map(|number| Cluster {
            name: format!("c{number}"),
            server: format!("https://k{number}"),
            project: if number == 0 { "a".to_owned() } else { String::new() },
        })
        .collect();
    let mut seed = 7_u64;
    let mut next = |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut index = build(&state);
    let mut most = 0;
    for step in 0..600_u64 {
        match next(12) {
            0 => {
                let mut changed = Project::clone(&state.projects["a"]);
                changed.permit_only_project_scoped_clusters = !changed.permit_only_project_scoped_clusters;
                state.projects.insert("a".to_owned(), Arc::new(changed));
            }
            1 => {
                let servers: &[&str] = [&["https://k1"][..], &["*"], &[]][usize::try_from(next(3)).unwrap()];
                state
                    .projects
                    .insert("b".to_owned(), Arc::new(permitting("b", servers)));
            }
            2 => state.clusters[1].project = ["", "a", "b"][usize::try_from(next(3)).unwrap()].to_owned(),
            3..=5 => {
                let name = ObjectName {
                    namespace: "argocd".to_owned(),
                    name: format!("app{}", next(40)),
                };
                state.applications.remove(&name);
            }
            _ => {
                let project = ["a", "b", "none"][usize::try_from(next(3)).unwrap()];
                let (cluster, namespace) = (format!("c{}", next(4)), format!("ns{}", next(3)));
                change(
                    &mut state,
                    at(&format!("app{}", next(40)), project, &cluster, &namespace),
                );
            }
        }
        index = ApplicationIndex::build(&state, &ImpersonationRules::default(), None, Some(&index));
        let kept = acting(&index);
        assert_eq!(kept, expected(&index, &state), "step {step}");
        assert_eq!(kept, acting(&build(&state)), "step {step}");
        most = most.max(kept.len());
    }
    assert!(most > 15, "{most}");
}

/// A request after a change only looks accounts up, regardless of the number of Applications.
#[test]
fn a_change_of_one_application_makes_no_other_account_anew() {
    let mut state = resources(vec![permitting("a", &["*"])], Vec::new());
    for number in 0..100 {
        change(
            &mut state,
            at(&format!("app{number}"), "a", "prod", &format!("ns{number}")),
        );
    }
    let before = build(&state);
    change(&mut state, at("app7", "a", "prod", "moved"));
    let now = ApplicationIndex::build(&state, &ImpersonationRules::default(), None, Some(&before));
    let username = |namespace: &str| format!("system:serviceaccount:{namespace}:a");
    assert!(before.acting_in("https://k", &username("ns7")).is_some());
    assert!(now.acting_in("https://k", &username("ns7")).is_none());
    assert_eq!(
        now.acting_in("https://k", &username("moved"))
            .unwrap()
            .applications
            .len(),
        1
    );
    for number in (0..100).filter(|number| *number != 7) {
        let of = |index: &ApplicationIndex| Arc::clone(&index.acting["https://k"][&username(&format!("ns{number}"))]);
        assert!(Arc::ptr_eq(&of(&before), &of(&now)), "{number}");
    }
    let same = ApplicationIndex::build(&state, &ImpersonationRules::default(), None, Some(&now));
    assert!(Arc::ptr_eq(&now.acting, &same.acting));
}

/// An Application that its project does not let deploy there gives nobody an account there.
#[test]
fn an_account_acts_only_where_the_project_permits_the_destination() {
    let mut state = resources(
        vec![
            permitting("open", &["https://k"]),
            permitting("closed", &["https://other"]),
        ],
        vec![at("one", "open", "prod", "x"), at("other", "closed", "prod", "x")],
    );
    let index = build(&state);
    assert!(index.acting_in("https://k", "system:serviceaccount:x:open").is_some());
    assert!(index.acting_in("https://k", "system:serviceaccount:x:closed").is_none());
    assert!(index.acting_for(found(&index, "one"), "https://k").is_some());
    assert!(index.acting_for(found(&index, "one"), "https://other").is_none());
    assert!(index.acting_for(found(&index, "other"), "https://k").is_none());
    state
        .projects
        .insert("open".to_owned(), Arc::new(permitting("open", &[])));
    let now = ApplicationIndex::build(&state, &ImpersonationRules::default(), None, Some(&index));
    assert!(now.acting_in("https://k", "system:serviceaccount:x:open").is_none());
}
