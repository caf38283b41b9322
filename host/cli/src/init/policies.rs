//! The policy bundles of this version, as `policies` of the repository has them.

/// A file of the repository's folder `policies`: its path in it, and its content.
macro_rules! bundled {
    ($($path:literal),* $(,)?) => {
        &[$((
            $path,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/", $path)),
        )),*]
    };
}

/// Path below `policies`, and content.
pub(super) const FILES: &[(&str, &str)] = bundled![
    "applications/cases.yaml",
    "applications/data/labels.yaml",
    "applications/data/resources.yaml",
    "applications/impersonation.cel.yaml",
    "applications/policy.rego",
    "applicationsets/cases.yaml",
    "applicationsets/data/projects.yaml",
    "applicationsets/policy.rego",
    "argocd/cases.yaml",
    "argocd/data/services.yaml",
    "argocd/policy.rego",
    "controlplane/cases.yaml",
    "controlplane/data/labels.yaml",
    "controlplane/policy.rego",
    "extensions/cases.yaml",
    "extensions/data/blocked.yaml",
    "extensions/policy.rego",
    "kubernetes/cases.yaml",
    "kubernetes/data/agents.yaml",
    "kubernetes/impersonation.cel.yaml",
    "kubernetes/policy.rego",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_file_of_the_bundles_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
        let mut folders = vec![root.clone()];
        let mut found = BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let named: BTreeSet<String> = super::FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(named, found);
    }
}
