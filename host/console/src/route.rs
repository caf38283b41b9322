//! Finds the page of a path.

use percent_encoding::percent_decode_str;

/// A page. Paths are below `/console/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Overview,
    Clusters,
    /// How to use a cluster.
    Cluster(String),
    Tokens,
    Sessions,
    Audit,
    /// The events of a search, one as JSON a line.
    AuditLines,
    Decisions,
    Decision(String),
    Permissions,
    Policies,
    /// The bundle of a front.
    Policy(String),
    Extensions,
    /// Who acts for which Application.
    Identities,
    Projects,
    Project(String),
    ApplicationSets,
    /// A set that does not exist yet.
    NewApplicationSet,
    ApplicationSet {
        namespace: String,
        name: String,
    },
    Credentials,
    Plugins,
    System,
    /// Choose a theme.
    Theme,
}

impl Route {
    /// `None` if there is no such page.
    pub(crate) fn find(path: &str) -> Option<Self> {
        let tail = path.strip_prefix("/console").unwrap_or_default();
        // Decoded after the split, so that an encoded slash stays within its segment.
        let decoded = |name: &str| {
            let name = percent_decode_str(name).decode_utf8().ok()?.into_owned();
            Some(name).filter(|name| !name.is_empty())
        };
        let parts: Vec<&str> = tail.split('/').skip(1).collect();
        Some(match *parts.as_slice() {
            [] | [""] => Self::Overview,
            ["clusters"] => Self::Clusters,
            ["clusters", name] => Self::Cluster(decoded(name)?),
            ["tokens"] => Self::Tokens,
            ["sessions"] => Self::Sessions,
            ["audit"] => Self::Audit,
            ["audit", "events.jsonl"] => Self::AuditLines,
            ["decisions"] => Self::Decisions,
            ["decisions", id] => Self::Decision(decoded(id)?),
            ["permissions"] => Self::Permissions,
            ["policies"] => Self::Policies,
            ["policies", front] => Self::Policy(decoded(front)?),
            ["extensions"] => Self::Extensions,
            ["identities"] => Self::Identities,
            ["projects"] => Self::Projects,
            ["projects", name] => Self::Project(decoded(name)?),
            ["applicationsets"] => Self::ApplicationSets,
            ["applicationsets", "new"] => Self::NewApplicationSet,
            ["applicationsets", namespace, name] => Self::ApplicationSet {
                namespace: decoded(namespace)?,
                name: decoded(name)?,
            },
            ["credentials"] => Self::Credentials,
            ["plugins"] => Self::Plugins,
            ["system"] => Self::System,
            ["theme"] => Self::Theme,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Route;

    #[test]
    fn names_in_paths_are_decoded_once() {
        assert_eq!(Route::find("/console"), Some(Route::Overview));
        assert_eq!(Route::find("/console/"), Some(Route::Overview));
        assert_eq!(
            Route::find("/console/clusters/a%252Fb"),
            Some(Route::Cluster("a%2Fb".to_owned()))
        );
        for path in [
            "/console/clusters/",
            "/console/nothing",
            "/console/clusters/a/b",
            "/console/clusters/%ff",
        ] {
            assert_eq!(Route::find(path), None, "{path}");
        }
    }
}
