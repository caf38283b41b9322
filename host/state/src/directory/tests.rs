use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use secrecy::ExposeSecret;

use super::load;
use tollgate_objects::decode::load_text;
use tollgate_objects::{ObjectName, Resources, SyncWindow};

mod agents;

fn good(folder: &Path) -> Resources {
    let loaded = load(folder, "argocd");
    loaded.value.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))
}

fn lines(folder: &Path) -> Vec<String> {
    let loaded = load(folder, "argocd");
    let root = format!("{}/", folder.display());
    loaded
        .diagnostics
        .iter()
        .map(|finding| finding.to_string().replace(&root, ""))
        .collect()
}

fn text_lines(text: &str) -> Vec<String> {
    load_text(text, "f.yaml", "argocd")
        .diagnostics
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn errors(text: &str) -> Vec<String> {
    text_lines(text)
        .into_iter()
        .filter(|line| line.contains(" error: ") || line.starts_with("error: "))
        .collect()
}

fn samples(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/state")
        .join(name)
}

#[test]
fn application_sets_of_every_namespace_are_read_and_invalid_ones_left_out() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\n---\napiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: web, namespace: team, labels: {a: b}}\nspec: {goTemplate: true}\n---\napiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: broken}\n---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata:\n  name: one\n  ownerReferences:\n    - {apiVersion: argoproj.io/v1alpha1, kind: ApplicationSet, name: web, uid: u, controller: true}\nspec: {}\n---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata:\n  name: two\n  ownerReferences:\n    - {apiVersion: argoproj.io/v1alpha1, kind: ApplicationSet, name: web, uid: u}\nspec: {}\n";
    let loaded = load_text(text, "f.yaml", "argocd");
    let resources = loaded.value.unwrap();
    let name = |namespace: &str, name: &str| ObjectName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    assert_eq!(resources.application_sets.len(), 1);
    let set = &resources.application_sets[&name("team", "web")];
    assert_eq!(set["spec"]["goTemplate"], true);
    assert_eq!(set["metadata"]["labels"]["a"], "b");
    assert_eq!(set["metadata"]["resourceVersion"].as_str().unwrap().len(), 32);
    let findings = text_lines(text);
    assert!(
        findings
            .iter()
            .any(|line| line.contains("ApplicationSet `broken` has no `spec`")),
        "{findings:?}"
    );
    assert!(errors(text).is_empty());
    let owner = |of: &str| {
        resources.applications[&name("argocd", of)]
            .application_set
            .clone()
            .map(|owner| (owner.name, owner.uid))
    };
    assert_eq!(
        (owner("one"), owner("two")),
        (Some(("web".to_owned(), "u".to_owned())), None)
    );
}

#[test]
fn the_sources_of_an_application_are_those_that_argo_cd_selects() {
    let of = |spec: &str| {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-cm}}\n---\napiVersion: argoproj.io/v1alpha1\n\
             kind: Application\nmetadata: {{name: one}}\nspec: {{destination: {{name: a}}, {spec}}}\n"
        );
        let resources = load_text(&text, "f.yaml", "argocd").value.unwrap();
        let mut applications = resources.applications.into_values();
        applications.next().map(|application| application.repositories.clone())
    };
    for (spec, repositories) in [
        ("source: {repoURL: a}", Some(&["a"][..])),
        ("source: {repoURL: a}, sources: []", Some(&["a"])),
        (
            "source: {repoURL: a}, sources: [{repoURL: b}, {repoURL: c}]",
            Some(&["b", "c"]),
        ),
        ("sources: [{repoURL: b}, {}]", Some(&["b", ""])),
        ("project: p", Some(&[])),
        ("source: null", Some(&[])),
        (
            "source: {repoURL: a}, sources: [{repoURL: b}], sourceHydrator: {drySource: {repoURL: d}, syncSource: {path: p}}",
            Some(&["d"]),
        ),
        (
            "sourceHydrator: {drySource: {repoURL: d}, syncSource: {repoURL: s}}",
            Some(&["d", "s"]),
        ),
        ("sourceHydrator: {syncSource: {repoURL: s}}", Some(&["", "s"])),
        // The Application is set aside.
        ("source: {repoURL: 1}", None),
        ("sources: {repoURL: a}", None),
    ] {
        let own = |list: &[&str]| list.iter().map(|&url| url.to_owned()).collect::<Vec<String>>();
        assert_eq!(of(spec), repositories.map(own), "{spec}");
    }
}

#[test]
fn sync_windows_of_a_project_are_read() {
    let of = |windows: &str| {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-cm}}\n---\napiVersion: argoproj.io/v1alpha1\n\
             kind: AppProject\nmetadata: {{name: shop}}\nspec:\n  syncWindows: {windows}\n"
        );
        let resources = load_text(&text, "f.yaml", "argocd").value.unwrap();
        resources
            .projects
            .get("shop")
            .map(|project| project.sync_windows.clone())
    };
    let window = "{kind: deny, schedule: '0 22 * * *', duration: 8h, timeZone: Europe/Berlin, applications: [a], \
                  namespaces: [n], clusters: [c, d], andOperator: true, manualSync: true, syncOverrun: true, \
                  description: x}";
    let windows = of(&format!("[{window}, {{kind: allow}}]")).unwrap();
    let [window, other] = windows.as_slice() else {
        panic!("{windows:?}")
    };
    let expected = SyncWindow {
        kind: "deny".to_owned(),
        schedule: "0 22 * * *".to_owned(),
        duration: "8h".to_owned(),
        time_zone: "Europe/Berlin".to_owned(),
        applications: vec!["a".to_owned()],
        namespaces: vec!["n".to_owned()],
        clusters: vec!["c".to_owned(), "d".to_owned()],
        use_and_operator: true,
        manual_sync: true,
        location: window.location.clone(),
    };
    assert_eq!(*window, expected);
    assert_eq!((window.location.line, other.manual_sync), (9, false));
    // A project whose windows cannot be read is set aside.
    for odd in [
        "{kind: deny}",
        "[deny]",
        "[{manualSync: 'true'}]",
        "[{duration: 1}]",
        "[null]",
    ] {
        assert_eq!(of(odd), None, "{odd}");
    }
}

#[test]
fn the_good_sample_is_read_completely() {
    let resources = good(&samples("good"));
    assert_eq!(resources.control_plane_namespace, "argocd");
    let policy = &resources.rbac_cm.data["policy.csv"];
    assert!(policy.value.starts_with("p, role:dev"));
    assert_eq!(policy.location.line, 9);
    assert!(policy.location.file.ends_with("good/argocd-rbac-cm.yaml"));
    assert_eq!(
        resources.secrets["argocd-secret"].values["metrics.token"].expose_secret(),
        "s3cret\n"
    );
    assert!(
        resources.secrets["prod-cluster"].values["config"]
            .expose_secret()
            .contains("bearerToken")
    );
    let servers: Vec<&str> = resources
        .clusters
        .iter()
        .map(|cluster| cluster.server.as_str())
        .collect();
    assert_eq!(servers, ["https://kubernetes.default.svc", "https://prod.example.com"]);
    assert_eq!(resources.clusters[1].project, "shop");
    let project = &resources.projects["shop"];
    assert_eq!(project.roles[0].name, "ci");
    assert_eq!(project.roles[0].policies[0].location.line, 17);
    assert_eq!(project.roles[0].tokens.len(), 2, "spec and status");
    assert_eq!(project.destinations[1].namespace, "!kube-system");
    assert!(project.permit_only_project_scoped_clusters);
    let name = ObjectName {
        namespace: "team-a".into(),
        name: "cart".into(),
    };
    let application = &resources.applications[&name];
    assert_eq!(
        (application.project.as_str(), application.destination.name.as_str()),
        ("shop", "prod")
    );
    assert_eq!(application.labels["team"], "a");
    let plain = ObjectName {
        namespace: "argocd".into(),
        name: "plain".into(),
    };
    assert_eq!(resources.applications[&plain].project, "default");
    assert!(!resources.secrets.contains_key("elsewhere"), "another namespace");
}

#[test]
fn every_mistake_of_the_broken_sample_is_reported_with_its_position() {
    let found = lines(&samples("broken"));
    let expected = [
        "a-syntax.yaml:5",
        "b-types.yaml:8:13: error: `data.replicas` must be text, found a number (write it in quotes)",
        "b-types.yaml:12:9: warning: the object is set aside: `metadata.name` must be text",
        "c-missing.yaml:4:3: warning: the object is set aside: `metadata.name` is missing",
        "c-missing.yaml:7:1: error: not a Kubernetes object: `kind` is missing",
        "c-missing.yaml:9:1: warning: the object is set aside: AppProject `empty` has no `spec`",
        "d-secret.yaml:7: error: `data.password` is not base64",
        "e-twice.yaml:10:1: warning: Application `one` in namespace `argocd` is defined twice, first at ",
        "f-latin1.yaml:6: error: text is not UTF-8",
        "g-empty.yaml: error: file is empty",
    ];
    for line in expected {
        assert!(
            found.iter().any(|found| found.starts_with(line)),
            "missing `{line}` in {found:#?}"
        );
    }
    let is_about_sample = |line: &&String| !line.contains("no ConfigMap `argocd-cm`");
    assert_eq!(
        found.iter().filter(is_about_sample).count(),
        expected.len(),
        "{found:#?}"
    );
    assert!(!found.iter().any(|line| line.contains("hunter2")), "{found:#?}");
    assert!(load(&samples("broken"), "argocd").value.is_none());
}

#[test]
fn clusters_of_an_invalid_project_are_left_out() {
    let cluster = |name: &str, project: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n  labels: {{argocd.argoproj.io/secret-type: cluster}}\n\
             stringData: {{name: {name}, server: 'https://{name}', config: '{{}}', project: '{project}'}}\n---\n"
        )
    };
    let project = |destinations: &str| {
        format!(
            "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {{name: shop}}\n\
             spec: {{destinations: {destinations}}}\n---\n"
        )
    };
    let secrets = cluster("ours", "shop") + &cluster("all", "");
    let names = |text: &str| {
        let resources = load_text(text, "f.yaml", "argocd").value.unwrap();
        let clusters = resources.clusters.into_iter().map(|cluster| cluster.name);
        (clusters.collect::<Vec<_>>(), resources.invalid_objects.len())
    };
    let (good, broken) = (project("[]"), project("all"));
    let all = ["in-cluster", "all", "ours"].map(str::to_owned).to_vec();
    assert_eq!(names(&(secrets.clone() + &good)), (all.clone(), 0));
    // A project that does not exist is not a project with a mistake.
    assert_eq!(names(&secrets), (all, 0));
    let rest = ["in-cluster", "all"].map(str::to_owned).to_vec();
    assert_eq!(names(&(secrets.clone() + &broken)), (rest.clone(), 1));
    assert_eq!(names(&(secrets + &good + &good)), (rest, 1));
}

#[test]
fn values_have_the_line_on_which_their_text_starts() {
    for (header, first) in [("|", 6), ("|-", 6), (">", 6), ("|2 # why", 6)] {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-cm}}\ndata:\n  k: {header}\n    one\n    two\n"
        );
        let loaded = load_text(&text, "f.yaml", "argocd").value.unwrap();
        let value = &loaded.argocd_cm.data["k"];
        assert_eq!(value.location.line, first, "{header}");
        if header != ">" {
            let second = value.location.below(1);
            assert_eq!(
                text.lines().nth(second.line as usize - 1).unwrap().trim(),
                value.value.lines().nth(1).unwrap().trim()
            );
        }
    }
    for value in ["plain", "'quoted'", "\"quoted\\nmore\"", "\n    below"] {
        let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-cm}}\ndata:\n  k: {value}\n");
        let loaded = load_text(&text, "f.yaml", "argocd").value.unwrap();
        let expected = if value.starts_with('\n') { 6 } else { 5 };
        assert_eq!(loaded.argocd_cm.data["k"].location.line, expected, "{value}");
    }
}

#[test]
fn lists_of_both_forms_and_json_are_read() {
    let text = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "argocd-cm"}, "data": {"a": "b"}},
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "x"}, "spec": {}}]}"#;
    let resources = load_text(text, "f.json", "argocd").value.unwrap();
    assert_eq!((resources.argocd_cm.data.len(), resources.applications.len()), (1, 1));
    let text = "apiVersion: v1\nkind: SecretList\nitems:\n- metadata: {name: a}\n  stringData: {k: v}\n";
    let resources = load_text(text, "f.yaml", "argocd").value.unwrap();
    assert_eq!(resources.secrets["a"].values["k"].expose_secret(), "v");
    assert_eq!(
        errors("apiVersion: v1\nkind: List\nitems:\n- metadata: {name: a}\n"),
        ["f.yaml:4:3: error: `items[0].kind` is missing"]
    );
}

#[test]
fn unknown_kinds_and_versions_are_left_out() {
    let text =
        "apiVersion: app.k8s.io/v1beta1\nkind: Application\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Pod\n";
    let loaded = load_text(text, "f.yaml", "argocd");
    assert!(loaded.value.unwrap().applications.is_empty());
}

#[test]
fn misspelled_kinds_and_versions_are_warned_about() {
    let findings_of = |kind: &str, version: &str| {
        let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n");
        let lines = text_lines(&text)
            .into_iter()
            .filter(|line| line.contains("is not read"));
        lines.collect::<Vec<_>>()
    };
    for (kind, version) in [
        ("Appproject", "argoproj.io/v1alpha1"),
        ("AppProjct", "argoproj.io/v1alpha1"),
        ("AppProject", "argoproj.io/v1alpha2"),
        ("AppProject", "argoprj.io/v1alpha1"),
        ("application", "argoproj.io/v1alpha1"),
        ("ConfigMaps", "v1"),
        ("Secret", "v2"),
    ] {
        let findings = findings_of(kind, version);
        let start = format!("f.yaml:1:1: warning: `{kind}` of `{version}` is not read");
        assert!(
            matches!(findings.as_slice(), [one] if one.starts_with(&start)),
            "{kind} {version}: {findings:?}"
        );
    }
    // Other Kubernetes kinds are not mistakes.
    for (kind, version) in [
        ("Application", "app.k8s.io/v1beta1"),
        ("Event", "v1"),
        ("Pod", "v1"),
        ("Workflow", "argoproj.io/v1alpha1"),
        ("Agent", "agent.k8s.elastic.co/v1alpha1"),
    ] {
        assert_eq!(findings_of(kind, version), [""; 0], "{kind} {version}");
    }
}

#[test]
fn applications_without_a_project_or_with_two_destinations_are_warned_about() {
    let application = |name: &str, project: &str, destination: &str| {
        format!(
            "---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {{name: {name}}}\nspec:\n  project: \
             {project}\n  destination: {destination}\n"
        )
    };
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\n---\napiVersion: \
                argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: shop}\nspec: {}\n"
        .to_owned()
        + &application("good", "shop", "{name: a}")
        + &application("both", "shop", "{name: a, server: 'https://a'}")
        + &application("none", "shop", "{namespace: a}")
        + &application("one", "shp", "{name: a}")
        + &application("two", "shp", "{name: a}")
        // Reported already: the project exists and has a mistake.
        + "---\napiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: bad}\n"
        + &application("three", "bad", "{name: a}");
    let mut findings = text_lines(&text);
    findings.retain(|line| !line.contains("AppProject `bad` has no `spec`"));
    assert_eq!(findings.len(), 3, "{findings:#?}");
    for (line, expected) in findings.iter().zip([
        "f.yaml:22:16: warning: the destination of Application `both` has both `name` and `server`",
        "f.yaml:29:16: warning: the destination of Application `none` has neither `name` nor `server`",
        "f.yaml:31:1: warning: there is no project `shp`, which Application `argocd/one` and 1 more is in",
    ]) {
        assert!(line.starts_with(expected), "{findings:#?}");
    }
}

#[test]
fn oversized_objects_are_refused() {
    let text = |bytes: usize| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-cm}}\ndata:\n  k: \"{}\"\n",
            "x".repeat(bytes)
        )
    };
    assert_eq!(errors(&text(1024 * 1024 - 1)), [""; 0]);
    assert_eq!(
        errors(&text(1024 * 1024)),
        ["f.yaml:1:1: error: ConfigMap `argocd-cm` holds 1048577 bytes, at most 1048576 are allowed"]
    );
}

#[test]
fn truncated_files_are_refused_or_warned_about() {
    let whole = fs::read_to_string(samples("good/argocd-rbac-cm.yaml")).unwrap();
    let refused = (1..whole.len())
        .filter(|cut| whole.is_char_boundary(*cut))
        .filter(|cut| load_text(whole.split_at(*cut).0, "f.yaml", "argocd").value.is_none());
    assert!(refused.count() > 50, "cuts before the metadata are refused");
    let inside = whole.find("applications, get").unwrap();
    let found = text_lines(whole.split_at(inside).0);
    assert!(
        found.iter().any(|line| line.contains("the file ends inside this text")),
        "{found:?}"
    );
}

#[test]
fn mounted_config_maps_are_read_once_and_link_loops_end() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("..2026_01_01");
    fs::create_dir(&data).unwrap();
    fs::copy(samples("good/argocd-rbac-cm.yaml"), data.join("rbac.yaml")).unwrap();
    symlink("..2026_01_01", folder.path().join("..data")).unwrap();
    symlink("..data/rbac.yaml", folder.path().join("rbac.yaml")).unwrap();
    symlink("rbac.yaml", folder.path().join("same.yaml")).unwrap();
    symlink(folder.path(), folder.path().join("loop")).unwrap();
    fs::write(folder.path().join(".hidden.yaml"), "[").unwrap();
    fs::write(folder.path().join("#unsaved.yaml"), "[").unwrap();
    fs::write(folder.path().join("old.yaml~"), "[").unwrap();
    fs::write(folder.path().join("kustomization.yaml"), "resources: []\n").unwrap();
    let resources = good(folder.path());
    assert!(resources.rbac_cm.data.contains_key("policy.csv"));
    // The second link may have led to a folder.
    for name in ["dangling.yaml", "dangling"] {
        symlink("nothing", folder.path().join(name)).unwrap();
        let refused = format!("{name}: error: cannot be read");
        let findings = lines(folder.path());
        assert!(findings.iter().any(|line| line.starts_with(&refused)), "{findings:?}");
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    symlink("nothing", folder.path().join("..gone")).unwrap();
    good(folder.path());
}

#[test]
fn folders_are_read_recursively_and_a_missing_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("a/b")).unwrap();
    fs::copy(samples("good/argocd-rbac-cm.yaml"), folder.path().join("a/b/rbac.YML")).unwrap();
    assert!(good(folder.path()).rbac_cm.data.contains_key("policy.csv"));
    assert!(load(&folder.path().join("missing"), "argocd").value.is_none());
}

#[test]
fn cluster_secrets_need_a_unique_server() {
    let cluster = |name: &str, server: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n  labels: {{argocd.argoproj.io/secret-type: cluster}}\nstringData:\n  name: {name}\n  server: {server}\n---\n"
        )
    };
    let twin = cluster("a", "https://y").replacen("name: a", "name: twin", 1);
    let loaded = load_text(&(cluster("a", "https://x") + &twin), "f.yaml", "argocd");
    assert!(loaded.value.is_some());
    assert!(
        loaded
            .diagnostics
            .iter()
            .any(|finding| finding.message.starts_with("two clusters have the name `a`"))
    );
    // One mistake removes only the clusters it is about.
    let known = |text: &str| {
        let loaded = load_text(text, "f.yaml", "argocd");
        let findings: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
        let resources = loaded.value.unwrap();
        let servers: Vec<String> = resources.clusters.iter().map(|known| known.server.clone()).collect();
        let configured: Vec<&String> = resources.cluster_configs.keys().collect();
        assert_eq!(configured.len(), servers.len(), "{configured:?}");
        (servers, findings.join("\n"))
    };
    let own = "https://kubernetes.default.svc";
    let twins = cluster("a", "https://x/") + &cluster("b", "https://x");
    let (servers, findings) = known(&(twins.clone() + &cluster("c", "''") + &cluster("d", "https://d")));
    assert_eq!(servers, [own, "https://d"]);
    assert!(
        findings.contains("warning: cluster secret `c` has no `server`"),
        "{findings}"
    );
    assert!(
        findings.contains("warning: two cluster secrets name the server `https://x`"),
        "{findings}"
    );
    // A cluster that shares its name with one that is left out is left out as well.
    let (servers, _) =
        known(&(twins + &cluster("e", "https://e").replacen("  name: e\n  server", "  name: a\n  server", 1)));
    assert_eq!(servers, [own]);
    // Two Secrets for the control plane's own cluster leave it out; the default does not apply.
    let (servers, _) = known(&(cluster("a", own) + &cluster("b", own)));
    assert_eq!(servers, [""; 0]);
}

#[test]
fn invalid_destination_patterns_are_warned_about() {
    let text = "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: p}\nspec:\n  destinations:\n  - {server: '*', namespace: '*'}\n  - {server: '![', namespace: '!x'}\n";
    let loaded = load_text(text, "f.yaml", "argocd");
    assert!(loaded.value.is_some());
    let found: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    assert!(
        found[0].starts_with("f.yaml:7:5: warning: `spec.destinations[1].server` is `![`, which is not a pattern"),
        "{found:?}"
    );
    assert_eq!(found.len(), 2, "the other one is about argocd-cm: {found:?}");
}

#[test]
fn kubernetes_booleans_are_not_text() {
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata:\n";
    assert_eq!(
        errors(&format!("{head}  a: yes\n")),
        ["f.yaml:5:6: error: `data.a` must be text, found what Kubernetes reads as a boolean (write it in quotes)"]
    );
    assert_eq!(errors(&format!("{head}  a: 'yes'\n  b:\n  c: null\n")), [""; 0]);
}

#[test]
fn secrets_never_show_in_debug() {
    let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {k: aHVudGVyMg==, broken: aHVudGVyMg=}\nstringData: {l: hunter2}\n";
    let loaded = load_text(text, "f.yaml", "argocd");
    assert!(loaded.value.is_none());
    assert!(!format!("{:?}", loaded.diagnostics).contains("aHVudGVy"));
    let loaded = load_text(&text.replace(", broken: aHVudGVyMg=", ""), "f.yaml", "argocd");
    let shown = format!("{:?}", loaded.value.unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_project_of_exclusions_alone_is_warned_about() {
    let of = |spec: &str| {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: argocd-cm}}\n---\napiVersion: argoproj.io/v1alpha1\n\
             kind: AppProject\nmetadata: {{name: shop}}\nspec: {spec}\n"
        );
        text_lines(&text)
    };
    for (spec, key) in [
        (
            "{destinations: [{server: '!https://prod', namespace: '*'}]}",
            "destinations",
        ),
        (
            "{destinations: [{server: '*', namespace: '!kube-system'}, {name: '!a', namespace: b}]}",
            "destinations",
        ),
        (
            "{sourceRepos: ['!https://git.example/secret', '!https://git.example/x*']}",
            "sourceRepos",
        ),
    ] {
        let found = of(spec);
        let expected = format!("warning: `{key}` of project `shop` are only exclusions");
        assert!(found.len() == 1 && found[0].contains(&expected), "{spec}: {found:?}");
    }
    for spec in [
        "{destinations: [{server: '!https://prod', namespace: '*'}, {server: '*', namespace: '*'}]}",
        "{sourceRepos: ['*', '!https://git.example/secret']}",
        "{destinations: [], sourceRepos: []}",
    ] {
        assert_eq!(of(spec), Vec::<String>::new(), "{spec}");
    }
}

#[test]
fn the_sample_folder_configures_two_extensions_without_findings() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/state/good");
    let resources = load(&folder, "argocd").value.unwrap();
    let tollgate_core::diagnostic::Loaded { value, diagnostics } = tollgate_objects::extensions::parse(&resources);
    assert!(diagnostics.is_empty(), "{diagnostics:#?}");
    let specs = value.unwrap();
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["metrics", "rollouts"]);
    assert_eq!(specs[0].services[0].headers[0].1, "s3cret");
    assert_eq!(specs[0].services[0].url.path(), "/api");
    assert!(specs[0].location.file.ends_with("argocd-cm.yaml"));
    assert_eq!(specs[0].location.line, 12);
    assert_eq!(specs[1].services[1].location.line, 35);
    let prod = resources
        .clusters
        .iter()
        .find(|cluster| cluster.name == "prod")
        .unwrap();
    assert_eq!(
        specs[1].service_for(prod).unwrap().url.host_str(),
        Some("rollouts.prod.example.com")
    );
}
