//! What newcomers get wrong: for each mistake, the whole of what `tollgate` answers, and its exit code.
//!
//! `mistakes/cases.yaml` has them. Each runs in a separate folder with small settings that are good, the
//! shipped policies, and what the mistake changes. Spaces at the ends of lines do not count. Mistakes
//! about connections are in `tests/gateway/terminal.rs`, which has servers.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use test_support::checkout;
use test_support::world::copy_tree;
use tokio::process::Command;

/// What every settings file begins with.
const SETTINGS: &str = "state: {directory: state}\npolicies: {directory: policies}\n\
                        authentication: {argocdSessions: true}\n";

/// Objects with which [`SETTINGS`] are good.
const OBJECTS: [(&str, &str); 3] = [
    (
        "argocd-cm.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\n\
         data: {accounts.alice: login}\n",
    ),
    (
        "argocd-secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: argocd-secret, namespace: argocd}\n\
         stringData: {server.secretkey: a-key-of-the-tests-that-is-no-secret}\n",
    ),
    (
        "default.yaml",
        "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: default, namespace: argocd}\n\
         spec: {destinations: [{server: '*', namespace: '*'}], sourceRepos: ['*']}\n",
    ),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    mistake: String,
    /// What is added to [`SETTINGS`].
    #[serde(default)]
    settings: String,
    /// Files that are written; `@name` stands for the file of that name beside the cases.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// A change of a shipped file.
    replace: Option<Replacement>,
    /// The arguments, separated by spaces.
    run: String,
    exit: i32,
    /// Standard output and then standard error.
    output: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replacement {
    file: String,
    text: String,
    by: String,
}

impl Case {
    fn write(&self, folder: &Path) {
        let put = |path: &str, text: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for front in ["extensions", "kubernetes"] {
            let policies = format!("policies/{front}");
            copy_tree(&checkout().join(&policies), &folder.join(&policies));
        }
        for (name, text) in OBJECTS {
            put(&format!("state/{name}"), text);
        }
        put("tollgate.yaml", &format!("{SETTINGS}{}\n", self.settings.trim_end()));
        for (path, text) in &self.files {
            match text.strip_prefix('@') {
                Some(name) => {
                    let file = checkout().join("tests/parts/mistakes").join(name);
                    put(path, &std::fs::read_to_string(file).unwrap());
                }
                None => put(path, text),
            }
        }
        if let Some(Replacement { file, text, by }) = &self.replace {
            let path = folder.join(file);
            let before = std::fs::read_to_string(&path).unwrap();
            assert!(before.contains(text), "{}: {file} has no {text}", self.mistake);
            std::fs::write(path, before.replace(text, by)).unwrap();
        }
    }

    /// Runs the command; says how its answer differs from the expected one.
    async fn run(&self) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        self.write(folder.path());
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(self.run.split(' '))
            .current_dir(folder.path())
            .env_clear()
            .env("HOME", folder.path())
            .output()
            .await
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let text = text.replace(folder.path().to_str().unwrap(), "FOLDER");
        let found = (output.status.code(), without_padding(&text));
        let expected = (Some(self.exit), without_padding(&self.output));
        match found == expected {
            true => Ok(()),
            false => Err(format!(
                "{}: `tollgate {}`\nexit {:?}, expected {:?}\n{}\nexpected:\n{}",
                self.mistake, self.run, found.0, expected.0, found.1, expected.1
            )),
        }
    }
}

fn without_padding(text: &str) -> String {
    let lines: Vec<_> = text.trim_end().lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[tokio::test]
async fn get_the_whole_answer() {
    let text = std::fs::read_to_string(checkout().join("tests/parts/mistakes/cases.yaml")).unwrap();
    let cases: Vec<Case> = serde_saphyr::from_str(&text).unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        wrong.extend(case.run().await.err());
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n\n")
    );
}

/// The twin: what every case starts from is good.
#[tokio::test]
async fn are_none_in_what_the_cases_start_from() {
    let good = Case {
        mistake: "none".to_owned(),
        settings: String::new(),
        files: BTreeMap::new(),
        replace: None,
        run: "check".to_owned(),
        exit: 0,
        output: "listen    127.0.0.1:8080, without TLS\n\
                 admin     127.0.0.1:8081\n\
                 state     folder `state`, namespace `argocd`\n\
                 objects   1 project\n\
                 clusters  in-cluster\n\
                 fronts    none is open\n\
                 sign-in   Argo CD's sessions and tokens\n\
                 rbac      42 rows, semantics `argocd`\n\
                 policies  policies\n\
                 plugins   none\n\n\
                 0 errors, 0 warnings"
            .to_owned(),
    };
    good.run().await.unwrap();
}
