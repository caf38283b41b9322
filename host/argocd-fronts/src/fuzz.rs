//! Fuzz targets of requests for argocd-server and extensions: paths, queries, messages of protobuf, JSON.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use percent_encoding::percent_decode_str;

use crate::argocd::message::{json_has_list, json_text, protobuf_has, protobuf_text};
use crate::argocd::methods::all;
use crate::argocd::route::{argocd, is_argocd};
use crate::argocd::{MethodIndex, Operation};
use crate::extensions::ExtensionsFront;
use tollgate_front::path::Answerer;
use tollgate_front::{ApplicationSetsServer, find_in_paths};
use tollgate_fuzz::{Target, inputs, strings, text};

/// Every target of this crate.
pub fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "argocd_path",
            run: path,
            seeds: paths,
        },
        Target {
            name: "argocd_protobuf",
            run: protobuf,
            seeds: messages,
        },
        Target {
            name: "argocd_json",
            run: json,
            seeds: documents,
        },
        Target {
            name: "extension_path",
            run: extension_path,
            seeds: extension_paths,
        },
        Target {
            name: "extension_query",
            run: extension_query,
            seeds: extension_queries,
        },
    ]
}

fn paths() -> Vec<Vec<u8>> {
    inputs([
        "/api/v1/applications/shop/sync?appNamespace=a",
        "/api/v1/applications/a%2Fsync",
        "/api/v1%2Fapplicationsets/a",
        "/api/v1/clusters/https:%2F%2Fa.example:6443/rotate-auth",
        "/application.ApplicationService%2FSync",
        "/applicationset.ApplicationSetService/List",
        "/terminal?pod=a&appName=b&projectName=c",
        "/extensions%2Fmetrics",
    ])
}

/// What goes to argocd-server is not Tollgate's own, however it is decoded, and what would be a call
/// of the API there is one here.
fn path(data: &[u8]) {
    let Some(line) = text(data) else { return };
    let Ok(uri) = line.parse::<Uri>() else { return };
    let Ok(methods) = MethodIndex::try_new() else { return };
    for kind in ["application/json", "application/grpc", "application/grpc-web+proto"] {
        let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let Ok(Some(route)) = argocd(&method, &uri, &fields, ApplicationSetsServer::Tollgate) else {
                continue;
            };
            let decoded = percent_decode_str(uri.path()).decode_utf8_lossy().into_owned();
            for own in [
                "/api/v1/applicationsets",
                "/extensions",
                "/applicationset.ApplicationSetService",
            ] {
                let rest = decoded.strip_prefix(own);
                assert!(
                    !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
                    "{decoded}"
                );
            }
            assert!(is_argocd(uri.path(), ApplicationSetsServer::Tollgate));
            let mut request = Request::new(());
            (*request.method_mut(), *request.uri_mut()) = (method.clone(), uri.clone());
            *request.headers_mut() = fields.clone();
            let (head, ()) = request.into_parts();
            let operation = Operation::of(route, &head, &methods);
            let is_api = decoded.starts_with("/api/v1/") || route.transport.is_some();
            assert!(!is_api || !matches!(operation, Ok(None)), "{decoded}");
        }
    }
}

fn messages() -> Vec<Vec<u8>> {
    [
        &b"\x0a\x04shop\x62\x04apps\x6a\x04prod"[..],
        b"\x0a\x0c\x0a\x03\x0a\x01a\x12\x05\x1a\x03dev",
        b"\x42\x01x\x18\x01",
    ]
    .map(<[u8]>::to_vec)
    .to_vec()
}

/// A text that is read occurs in the message.
fn protobuf(data: &[u8]) {
    for field in all().flat_map(|method| method.fields.all()) {
        if let Ok(Some(text)) = protobuf_text(data, field) {
            assert!(memchr::memmem::find(data, text.as_bytes()).is_some());
        }
        drop(protobuf_has(data, field));
    }
}

fn documents() -> Vec<Vec<u8>> {
    inputs([
        r#"{"name":"a","appNamespace":"n","project":"p","manifests":["x"]}"#,
        r#"{"metadata":{"name":"a","namespace":"n"},"spec":{"project":"p"}}"#,
        r#"{"Spec":{"\u0070roject":"p"},"x":[[[{}]]]}"#,
    ])
}

/// A text that is read is the only one that a reader of any case could find.
fn json(data: &[u8]) {
    for (path, name) in [
        ("project", "project"),
        ("spec.project", "project"),
        ("metadata.name", "name"),
    ] {
        let Ok(Some(found)) = json_text(data, path, name) else {
            continue;
        };
        let whole: serde_json::Value = match serde_json::from_slice(data) {
            Ok(whole) => whole,
            // Deeper than this reader goes.
            Err(_) => continue,
        };
        let mut values = vec![&whole];
        for segment in path.split('.') {
            let members = values.iter().filter_map(|value| value.as_object()).flatten();
            values = members
                .filter(|(key, _)| key.eq_ignore_ascii_case(segment))
                .map(|(_, value)| value)
                .collect();
        }
        assert!(
            values.iter().all(|value| value.as_str() == Some(&*found)),
            "{path}: {found}"
        );
    }
    drop(json_has_list(data, "manifests", "manifests"));
}

fn extension_paths() -> Vec<Vec<u8>> {
    let cases = ["tests/cases/extension_requests.yaml", "tests/data/attacks.yaml"];
    let mut found = strings(&cases, &["path", "url", "target", "uri"]);
    found.push("/api/v1/extensions/metrics/a%2Fb?x=1".to_owned());
    inputs(found)
}

fn extension_path(data: &[u8]) {
    let Some(line) = text(data) else { return };
    let Ok(uri) = line.parse::<Uri>() else { return };
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let Ok(Some((found, _))) = find_in_paths::<ExtensionsFront>(&method, &uri, &[Answerer::Backend]) else {
            continue;
        };
        let (name, rest) = found.parts();
        assert!(!name.contains(['/', '%', '.']));
        assert!(uri.path().ends_with(rest.path()));
        assert!(rest.path().is_empty() || rest.path().starts_with('/'));
        assert_eq!(rest.query(), uri.query());
        let joined = tollgate_proxy::target::join("/base", rest.path(), rest.query());
        assert!(joined.is_err() || joined.is_ok_and(|joined| joined.path().starts_with("/base")));
    }
}

fn extension_queries() -> Vec<Vec<u8>> {
    inputs([
        "argocd-application-name=argocd%3Acart&argocd%2dproject-name=shop&a=+",
        "watch=1",
    ])
}

/// None of the gateway's own parameters is left for the backend of an extension, in any spelling.
fn extension_query(data: &[u8]) {
    let Some(raw) = text(data) else { return };
    let stripped = crate::extensions::call::names::strip(Some(raw)).unwrap_or_default();
    for (name, _) in url::form_urlencoded::parse(stripped.as_bytes()) {
        assert!(name != "argocd-application-name" && name != "argocd-project-name");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_target_holds_on_its_seeds_earlier_finds_and_mutations() {
        tollgate_fuzz::check(&super::targets());
    }
}
