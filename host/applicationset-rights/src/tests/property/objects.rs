//! Models as objects.

use std::fmt::Write as _;

use serde_json::json;

use super::*;

fn pattern_text(which: Pattern, texts: [&str; 2]) -> String {
    match which {
        Pattern::All => "*".to_owned(),
        Pattern::One(one) => texts[one].to_owned(),
        Pattern::Not(one) => format!("!{}", texts[one]),
    }
}

impl Model {
    pub(super) fn state(&self) -> String {
        let mut state = String::from(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm, namespace: argocd}\ndata: {}\n---\n\
             apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-rbac-cm, namespace: argocd}\ndata:\n  \
             policy.default: \"\"\n  policy.csv: |\n    p, ann, applicationsets, *, *, allow\n",
        );
        for Row { action, object, allows } in &self.rows {
            let effect = if *allows { "allow" } else { "deny" };
            writeln!(state, "    p, ann, applications, {action}, {object}, {effect}").unwrap();
        }
        for (number, server) in SERVERS.iter().enumerate() {
            let labels = "labels: {argocd.argoproj.io/secret-type: cluster}";
            writeln!(
                state,
                "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: c{number}, namespace: argocd, {labels}}}\n\
                 stringData: {{name: c{number}, server: \"{server}\", config: \"{{}}\"}}"
            )
            .unwrap();
        }
        for (project, name) in self.projects.iter().zip(PROJECTS) {
            let from = project.from.iter().map(|from| match from {
                SourcePattern::Anywhere => "*".to_owned(),
                SourcePattern::Host => "https://git.example.org/*".to_owned(),
                SourcePattern::One(one) => REPOSITORIES[*one].to_owned(),
                SourcePattern::Not(one) => format!("!{}", REPOSITORIES[*one]),
            });
            let to = project.to.iter().map(|(server, namespace)| {
                json!({"server": pattern_text(*server, SERVERS), "namespace": pattern_text(*namespace, ["n0", "n1"])})
            });
            let spec = json!({
                "sourceRepos": from.collect::<Vec<_>>(),
                "destinations": to.collect::<Vec<_>>(),
                "sourceNamespaces": if project.takes_team { vec!["team"] } else { Vec::new() },
            });
            writeln!(
                state,
                "---\napiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {{name: {name}, namespace: \
                 argocd}}\nspec: {spec}"
            )
            .unwrap();
        }
        for (application, _) in &self.existing {
            writeln!(state, "---\n{}", self.json(application)).unwrap();
        }
        state
    }

    pub(super) fn json(&self, application: &ModelApplication) -> Value {
        let mut destination = json!({"namespace": format!("n{}", application.namespace)});
        match application.destination {
            ModelDestination::Name(one) => destination["name"] = json!(format!("c{one}")),
            ModelDestination::Server(one) => destination["server"] = json!(SERVERS[one]),
            ModelDestination::Nowhere => {}
            ModelDestination::Unknown => destination["name"] = json!("c9"),
            ModelDestination::Both(one) => {
                destination["name"] = json!(format!("c{one}"));
                destination["server"] = json!(SERVERS[one]);
            }
        }
        let sources = application.repositories.iter();
        let sources: Vec<Value> = sources
            .map(|one| json!({"repoURL": REPOSITORIES[*one], "path": "."}))
            .collect();
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": NAMES[application.name], "namespace": self.namespace()},
            "spec": {
                "project": PROJECTS.get(application.project).copied().unwrap_or("nope"),
                "sources": sources,
                "destination": destination,
            },
        })
    }

    pub(super) fn set(&self) -> ApplicationSet {
        // The caller may use every project for sets, so that the Applications decide.
        let project = if self.templated { "{{ .p }}" } else { "p0" };
        let mut set = set_in(self.namespace(), project);
        // This generator can lead into other projects.
        set.object["spec"]["generators"] = json!([{"list": {"elements": [], "template": {}}}]);
        if self.holds_back {
            set.spec.sync_policy.applications = ApplicationsSync::CreateOnly;
        }
        set
    }

    pub(super) fn existing(&self) -> StoredState {
        let mut object = self.set().object;
        object["metadata"]["uid"] = json!("u1");
        let owner = Owner::of("web", &object);
        let applications = self.existing.iter().map(|(application, whose)| {
            let application = self.json(application);
            match (whose, self.is_stored) {
                (ModelOwner::Own, true) => tollgate_applicationset::plan::with_owner_reference(application, &owner),
                (ModelOwner::Own, false) | (ModelOwner::Another, _) => application,
            }
        });
        StoredState {
            set: self.is_stored.then_some(object),
            applications: applications.collect(),
        }
    }
}
