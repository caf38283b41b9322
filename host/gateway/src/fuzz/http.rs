//! Fuzz targets of HTTP: paths and queries.

use http::Method;
use percent_encoding::percent_decode_str;

use tollgate_core::attributes::Attributes;
use tollgate_core::upgrade::Protocol;
use tollgate_front::api;
use tollgate_fuzz::{Target, first_line, inputs, strings, text};
use tollgate_proxy::target::check_path;

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "request_path",
        run: request_path,
        seeds: paths,
    },
    Target {
        name: "queries",
        run: queries,
        seeds: query_seeds,
    },
    Target {
        name: "attributes",
        run: attributes,
        seeds: attribute_seeds,
    },
];

const CASES: [&str; 4] = [
    "tests/cases/extension_requests.yaml",
    "tests/cases/kubernetes_access.yaml",
    "tests/cases/impersonation.yaml",
    "tests/data/attacks.yaml",
];

fn paths() -> Vec<Vec<u8>> {
    let mut found = strings(&CASES, &["path", "url", "target", "uri"]);
    found.extend([
        "/api/v1/extensions/metrics/a%2Fb?x=1".to_owned(),
        "/k8s-proxy/api/v1/namespaces/a/pods/b/exec?command=sh".to_owned(),
        "/applications/argocd/shop/k8s/apis/apps/v1/deployments".to_owned(),
        "/api/v1/clusters/https:%2F%2Fa.example/credential".to_owned(),
        "/api/v1/applicationsets/x?appsetNamespace=y".to_owned(),
    ]);
    inputs(found)
}

/// An accepted path has one meaning: the WHATWG parser, which backends and browsers follow, finds
/// nothing to normalize, and no decoding makes a dot segment.
fn request_path(data: &[u8]) {
    let Some(line) = text(data) else { return };
    let path = line.split_once('?').map_or(line, |(path, _)| path);
    if check_path(path).is_ok() {
        let decoded = percent_decode_str(path).decode_utf8_lossy();
        assert!(decoded.split('/').all(|segment| segment != "." && segment != ".."));
        assert!(!decoded.contains(['\\', '\0', '\r', '\n']));
        if !path.contains(['?', '#']) {
            let seen = url::Url::parse(&format!("http://gateway.example{path}"));
            let seen = seen.map(|url| percent_decode_str(url.path()).collect::<Vec<u8>>());
            assert_eq!(seen, Ok(percent_decode_str(path).collect()), "{path:?}");
        }
    }
}

fn query_seeds() -> Vec<Vec<u8>> {
    inputs([
        "user=*&agent=7&action=access.allowed&before=0198a1b2-0000-7000-8000-000000000000&limit=10",
        "projects=a&projects=b&selector=env%3Dprod&appsetNamespace=argocd&fields=items.metadata.name",
        "name=x&resourceVersion=12&appSetNamespace=y",
        "upsert=true&dryRun=true&deletions=3",
        "cascade=false",
        "gitlab-agent-id=7&gitlab-csrf-token=abc&watch=1",
        "%67itlab-csrf-token=abc&a=%zz",
        "argocd-application-name=argocd%3Acart&argocd%2dproject-name=shop&a=+",
    ])
}

fn queries(data: &[u8]) {
    use api::query::{AGENT_PARAMETERS, AUDIT_PARAMETERS, Query, ROW_PARAMETERS};
    let Some(raw) = text(data) else { return };
    for names in [AGENT_PARAMETERS, ROW_PARAMETERS, AUDIT_PARAMETERS] {
        drop(Query::read(Some(raw), names));
    }
    // None of the gateway's own parameters is left for the cluster, regardless of its spelling.
    let stripped = tollgate_identity::authenticate::k8s_proxy::strip_query(Some(raw)).unwrap_or_default();
    for (name, _) in url::form_urlencoded::parse(stripped.as_bytes()) {
        assert_ne!(name, tollgate_identity::authenticate::k8s_proxy::AGENT_PARAMETER);
        assert_ne!(name, tollgate_identity::authenticate::k8s_proxy::CSRF_PARAMETER);
    }
    assert_eq!(
        tollgate_identity::authenticate::k8s_proxy::strip_query(Some(&stripped)).unwrap_or_default(),
        stripped
    );
}

fn attribute_seeds() -> Vec<Vec<u8>> {
    let mut found: Vec<String> = strings(&CASES, &["path"])
        .into_iter()
        .map(|path| format!("GET\n{path}"))
        .collect();
    found.extend([
        "GET\n/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name%3Dx".to_owned(),
        "DELETE\n/apis/apps/v1/namespaces/a/deployments".to_owned(),
        "GET\n/api/v1/proxy/nodes/n/exec".to_owned(),
        "POST\n/api/v1/namespaces/a/pods/b/exec?command=sh".to_owned(),
    ]);
    inputs(found)
}

/// A request that runs a program needs `create`, regardless of its method.
fn attributes(data: &[u8]) {
    let Some(input) = text(data) else { return };
    let (method, target) = first_line(input);
    let Ok(method) = Method::from_bytes(method.as_bytes()) else {
        return;
    };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    for upgrade in [None, Some(Protocol::WebSocket), Some(Protocol::Spdy)] {
        let read = Attributes::read(&method, path, query, upgrade);
        let runs = matches!(
            (read.resource.as_deref(), read.subresource.as_deref()),
            (Some("pods"), Some("exec" | "attach" | "portforward"))
        );
        if runs && read.api_group.is_empty() && upgrade.is_some() && method == Method::GET {
            assert!(read.verbs().any(|verb| verb == "create"), "{read:?}");
        }
        let cut = read.shortened();
        assert!(cut.path.len() <= 512);
    }
}
