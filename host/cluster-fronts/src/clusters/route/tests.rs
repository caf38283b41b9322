use http::{Method, Uri};
use proptest::prelude::*;

use crate::clusters::ClustersFront;
use crate::clusters::route::{ClusterRoute, Error};
use tollgate_front::path::Answerer;

/// The cluster and the rest of a path to its API server.
fn forwarded(uri: &Uri) -> Result<Option<(String, String)>, Error> {
    let found = tollgate_front::find_in_paths::<ClustersFront>(&Method::GET, uri, Answerer::ALL)?;
    Ok(found.and_then(|(route, _)| match route {
        ClusterRoute::Forward(name, rest) => Some((name, rest.path().to_owned())),
        _ => None,
    }))
}

fn forward(path: &str) -> Result<Option<(String, String)>, Error> {
    forwarded(&path.parse().unwrap())
}

#[test]
fn a_name_is_decoded_once_and_the_rest_not_at_all() {
    for (path, name, rest) in [
        ("/clusters/prod/k8s", "prod", ""),
        ("/clusters/prod/k8s/", "prod", "/"),
        ("/clusters/prod%20eu/k8s/api/v1/x%2Fy?z=1", "prod eu", "/api/v1/x%2Fy"),
        (
            "/clusters/https:%2F%2F10.0.0.1:6443/k8s/api",
            "https://10.0.0.1:6443",
            "/api",
        ),
        ("/clusters/caf%C3%A9/k8s/api", "café", "/api"),
        ("/clusters/50%25/k8s/api", "50%", "/api"),
        ("/clusters/k8s/k8s/k8s", "k8s", "/k8s"),
    ] {
        assert_eq!(forward(path), Ok(Some((name.to_owned(), rest.to_owned()))), "{path}");
    }
}

#[test]
fn ambiguous_names_and_paths_are_refused() {
    let long = format!("/clusters/{}/k8s/api", "a".repeat(1_025));
    for (path, error) in [
        ("/clusters//k8s/api", Error::ClusterName),
        (&*long, Error::ClusterName),
        ("/clusters/../k8s/api", Error::DotSegment),
        ("/clusters/%2e%2e/k8s/api", Error::DotSegment),
        ("/clusters/a%252Fb/k8s/api", Error::DoubleEncoding),
        ("/clusters/a%/k8s/api", Error::Encoding),
        ("/clusters/a%0a/k8s/api", Error::Control),
        ("/clusters/a%5Cb/k8s/api", Error::Backslash),
        ("/clusters/a%ff/k8s/api", Error::NotUtf8),
        ("/clusters/prod/k8s/../x", Error::DotSegment),
        ("/clusters/prod/k8s/a%2F..%2Fx", Error::DotSegment),
        ("/clusters/prod/k8s//x", Error::EmptySegment),
        ("/clusters/prod/k8s/%2e%2e/x", Error::EncodedDot),
    ] {
        assert_eq!(forward(path), Err(error), "{path}");
    }
}

#[test]
fn other_paths_do_not_belong_to_this_front() {
    for path in [
        "/clusters",
        "/clusters/",
        "/clusters/prod",
        "/clusters/prod/k8sx/api",
        "/clusters/prod/K8S/api",
        "/clusters/prod/x/k8s/api",
        "/clustersx/prod/k8s",
        "/x/clusters/prod/k8s",
    ] {
        assert_eq!(forward(path), Ok(None), "{path}");
    }
}

const KEY_PATH: &str = "/api/v1/tollgate/clusters/a/agents/keys/\
                        00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff";

#[test]
fn the_api_reads_and_revokes_keys_of_agents() {
    let route_of = |method: Method, path: &'static str| {
        let uri = Uri::from_static(path);
        let found = tollgate_front::find_in_paths::<ClustersFront>(&method, &uri, Answerer::ALL).unwrap();
        match found.map(|(route, _)| route) {
            Some(ClusterRoute::List) => "list".to_owned(),
            Some(ClusterRoute::Credential(name)) => format!("credential of {name}"),
            Some(ClusterRoute::Forward(..)) => "forward".to_owned(),
            Some(ClusterRoute::Agents(name)) => format!("agents of {name}"),
            Some(ClusterRoute::RevokeKey(name, _)) => format!("end of a key of {name}"),
            None => "nothing".to_owned(),
        }
    };
    for (method, path, what) in [
        (Method::GET, "/api/v1/clusters", "list"),
        (Method::GET, "/api/v1/clusters/a%2Fb/credential", "credential of a/b"),
        (Method::GET, "/api/v1/tollgate/clusters", "list"),
        (Method::GET, "/api/v1/tollgate/clusters/a/credential", "credential of a"),
        (Method::GET, "/api/v1/tollgate/clusters/a/agents", "agents of a"),
        (Method::DELETE, KEY_PATH, "end of a key of a"),
        (Method::GET, KEY_PATH, "nothing"),
        (Method::DELETE, "/api/v1/tollgate/clusters/a/agents/keys/00", "nothing"),
        (Method::POST, "/api/v1/clusters", "nothing"),
        (Method::DELETE, "/api/v1/clusters/a/credential", "nothing"),
        (Method::GET, "/api/v1/clusters/a", "nothing"),
        (Method::GET, "/api/v1/clusters/a/b/credential", "nothing"),
        (Method::GET, "/api/v1/clustersx", "nothing"),
    ] {
        assert_eq!(route_of(method, path), what, "{path}");
    }
}

proptest! {
    /// For every accepted path, the encoded name is routed to the same name, and the rest is a part
    /// of the path as it was sent.
    #[test]
    fn accepted_paths_are_unambiguous(name in "[ -~]{0,12}", rest in "(/[ -~]{0,16})?") {
        let path = format!("/clusters/{name}/k8s{rest}");
        let Ok(uri) = path.parse::<Uri>() else { return Ok(()) };
        if let Ok(Some((name, rest))) = forwarded(&uri) {
            prop_assert!(uri.path().ends_with(&rest));
            prop_assert!(!rest.split('/').any(|part| part == ".." || part == "."));
            prop_assert!(!name.contains(|letter: char| letter.is_control() || letter == '\\'));
            let all = percent_encoding::NON_ALPHANUMERIC;
            let encoded = percent_encoding::utf8_percent_encode(&name, all).to_string();
            let again: Uri = format!("/clusters/{encoded}/k8s{rest}").parse().unwrap();
            // Names that would be encoded twice were refused before.
            let Ok(Some(second)) = forwarded(&again) else {
                return Err(TestCaseError::fail(format!("{again} gives nothing")));
            };
            prop_assert_eq!(&second.0, &name);
            prop_assert_eq!(second.1, rest);
        }
    }
}
