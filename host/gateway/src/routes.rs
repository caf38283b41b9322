//! The table of routes that `tollgate check --routes` prints.

use serde::Serialize;

use crate::fronts;
use tollgate_argocd_fronts::is_argocd;
use tollgate_config::Config;
use tollgate_front::ApplicationSetsServer;
use tollgate_front::path::{Answerer, PathLine};

/// A row of the table of routes: what a front serves at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteLine {
    /// The front, as decision records name it.
    pub front: &'static str,
    /// Methods, with commas; `*` for all.
    pub methods: String,
    /// With `{name}` for a segment, and `{name...}` for everything that is left.
    pub path: String,
    /// `gateway`, `backend` or `cluster`.
    pub answered_by: String,
    /// Whether the settings open it. Otherwise its requests get 404.
    pub open: bool,
}

/// All routes, front by front. No two fronts have the same path, but for argocd-server, which serves what no other does.
/// Paths that it takes from the others are left out.
pub fn routes(config: &Config) -> Vec<RouteLine> {
    // Without a root path, argocd-server's paths are compared before Tollgate's own, see `Pass`.
    let sets = ApplicationSetsServer::of(config);
    let argocd_has_root = config.argocd.as_ref().is_some_and(|argocd| argocd.root_path.is_none());
    let is_taken = |line: &PathLine| {
        argocd_has_root
            && line.path.starts_with('/')
            && line.answerer != Answerer::Cluster
            && is_argocd(&line.path, sets)
    };
    let of_front = |(front, lines): (&'static str, Vec<PathLine>)| {
        let kept = lines.into_iter().filter(|line| !is_taken(line));
        kept.map(move |line| RouteLine {
            front,
            methods: line.methods,
            path: line.path,
            answered_by: line.answerer.to_string(),
            open: line.is_open,
        })
        .collect::<Vec<_>>()
    };
    fronts::paths(config).into_iter().flat_map(of_front).collect()
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use crate::fronts::{self, FrontTarget, config};
    use tollgate_argocd_fronts::is_argocd;
    use tollgate_front::{ApplicationSetsServer, Fallback};
    use tollgate_proxy::target::Error;

    /// A path for which a line stands.
    fn sample(line: &str) -> Uri {
        let (mut path, mut rest) = (String::new(), line);
        while let Some((text, tail)) = rest.split_once('{') {
            let (name, tail) = tail.split_once('}').unwrap();
            path.push_str(text);
            match name {
                "key" => path.push_str(&"00ff".repeat(16)),
                rest if rest.ends_with("...") => path.push_str("/version"),
                "id" if line.contains("/sessions/") => path.push_str("pat:0190d4a8-1c1c-7000-8000-000000000001"),
                "id" => path.push_str("0190d4a8-1c1c-7000-8000-000000000001"),
                "front" => path.push_str("extensions"),
                _ => path.push_str("abc"),
            }
            rest = tail;
        }
        format!("{path}{rest}").parse().unwrap()
    }

    /// A path of the API that argocd-server serves is its own, however Tollgate would read it.
    #[test]
    fn a_name_that_only_tollgate_refuses_goes_to_argocd_server() {
        let uri: Uri = format!("/api/v1/clusters/{}/credential", "a".repeat(2_000))
            .parse()
            .unwrap();
        let of = |fallback| FrontTarget::of(&config(), &Method::GET, &uri, fallback);
        let found = of(Fallback::Argocd(ApplicationSetsServer::Tollgate));
        assert!(matches!(found, Ok(Some(FrontTarget::Argocd(_)))), "{found:?}");
        assert_eq!(of(Fallback::NotFound), Err(Error::ClusterName));
    }

    /// A path below `/k8s-proxy/` is the cluster's, also one that argocd-server would read in another way.
    #[test]
    fn a_path_into_a_cluster_is_read_as_the_cluster_reads_it() {
        let of = |path: &str, fallback| FrontTarget::of(&config(), &Method::GET, &path.parse().unwrap(), fallback);
        let fallback = Fallback::Argocd(ApplicationSetsServer::Argocd);
        for path in [
            "/k8s-proxy/apis/rbac.authorization.k8s.io/v1/clusterroles/a:",
            "/k8s-proxy/api/v1/namespaces/%64efault/pods",
        ] {
            for fallback in [Fallback::NotFound, fallback] {
                let found = of(path, fallback);
                assert!(
                    matches!(found, Ok(Some(FrontTarget::Kubernetes(_)))),
                    "{path}: {found:?}"
                );
            }
        }
        assert_eq!(of("/k8s-proxy/api/../version", fallback), Err(Error::DotSegment));
        assert_eq!(of("/api/v1/x:", fallback), Err(Error::TrailingColon));
    }

    /// Fronts with paths that argocd-server has, too, and serves if it is behind the gateway.
    const SHARED_WITH_ARGOCD: [&str; 3] = ["applicationsets", "clusters", "projects"];

    /// What is printed is what is served, by the front that it is printed for, or by argocd-server.
    #[test]
    fn every_line_of_the_table_has_a_route() {
        let mut checked = 0;
        for (front, lines) in fronts::paths(&config()) {
            // Calls of gRPC and tunnels are known by more than their path, and the rest is
            // argocd-server's.
            for line in lines
                .iter()
                .filter(|line| line.path.starts_with('/') && !line.path.contains("Service/"))
            {
                let uri = sample(&line.path);
                let method = match &*line.methods {
                    "*" | "GET,HEAD" | "GET,HEAD,POST" => Method::GET,
                    other => other.parse().unwrap(),
                };
                let served_by = |fallback| match FrontTarget::of(&config(), &method, &uri, fallback) {
                    Ok(found) => found.map(|found| found.front()),
                    // A path of extensions without a name is refused.
                    Err(error) => (error == Error::ExtensionName).then_some("extensions"),
                };
                assert_eq!(served_by(Fallback::NotFound), Some(front), "{method} {uri}");
                let sets = ApplicationSetsServer::Argocd;
                let is_its = !fronts::leads_into_cluster(uri.path()) && is_argocd(uri.path(), sets);
                // Otherwise a front that is left out of `OWN` is open only where there is no argocd-server.
                assert!(
                    !is_its || SHARED_WITH_ARGOCD.contains(&front),
                    "argocd-server would get {uri} of `{front}`: add it to `OWN` of host/argocd-fronts"
                );
                let expected = if is_its { "argocd" } else { front };
                assert_eq!(served_by(Fallback::Argocd(sets)), Some(expected), "{method} {uri}");
                checked += 1;
            }
        }
        assert!(checked > 50, "{checked}");
    }
}
