use http::Method;

use super::Attributes;
use crate::upgrade::Protocol;

/// `verb[+also] group/version resource[/sub] namespace name`, `-` for none.
fn described(read: &Attributes) -> String {
    if !read.resource_request {
        return format!("{} {}", read.verb, read.path);
    }
    let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let also = read
        .also_verb
        .as_ref()
        .map(|also| format!("+{also}"))
        .unwrap_or_default();
    let sub = read
        .subresource
        .as_ref()
        .map(|sub| format!("/{sub}"))
        .unwrap_or_default();
    format!(
        "{}{also} {}/{} {}{sub} {} {}",
        read.verb,
        read.api_group,
        read.api_version,
        dash(&read.resource),
        dash(&read.namespace),
        dash(&read.name)
    )
}

fn check(method: &str, target: &str, expected: &str) {
    check_upgrade(method, target, None, expected);
}

fn check_upgrade(method: &str, target: &str, upgrade: Option<Protocol>, expected: &str) {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let (path, query) = target
        .split_once('?')
        .map_or((target, None), |(path, query)| (path, Some(query)));
    let read = Attributes::read(&method, path, query, upgrade);
    assert_eq!(described(&read), expected, "{method} {target} {upgrade:?}");
}

#[test]
fn verbs_follow_the_method() {
    for (method, one, many) in [
        ("GET", "get", "list"),
        ("HEAD", "get", "list"),
        ("POST", "create", "create"),
        ("PUT", "update", "update"),
        ("PATCH", "patch", "patch"),
        ("DELETE", "delete", "deletecollection"),
        ("OPTIONS", "", ""),
        ("PROPFIND", "", ""),
    ] {
        check(method, "/api/v1/namespaces/n/pods/p", &format!("{one} /v1 pods n p"));
        check(method, "/api/v1/namespaces/n/pods", &format!("{many} /v1 pods n -"));
    }
}

#[test]
fn paths_are_read_as_kube_apiserver_reads_them() {
    for (path, expected) in [
        ("/api/v1/pods", "list /v1 pods - -"),
        (
            "/apis/apps/v1/namespaces/n/deployments/d/scale",
            "get apps/v1 deployments/scale n d",
        ),
        ("/apis/apps/v1/deployments", "list apps/v1 deployments - -"),
        ("/api/v1/namespaces", "list /v1 namespaces - -"),
        ("/api/v1/namespaces/n", "get /v1 namespaces n n"),
        ("/api/v1/namespaces/n/status", "get /v1 namespaces/status n n"),
        ("/api/v1/namespaces/n/finalize", "get /v1 namespaces/finalize n n"),
        ("/api/v1/namespaces/n/pods/p/log", "get /v1 pods/log n p"),
        ("/api/v1/nodes/a", "get /v1 nodes - a"),
        ("/api/v1/namespaces/n/pods/", "list /v1 pods n -"),
        ("//api/v1/pods", "list /v1 pods - -"),
        ("/api/v1/%70ods", "list /v1 pods - -"),
        ("/api/v1/namespaces/n%2Fpods%2Fp%2Fexec", "get /v1 pods/exec n p"),
        ("/api/v1/namespaces//pods", "list /v1 pods - -"),
        ("/api/v1/watch/namespaces/n/secrets", "watch /v1 secrets n -"),
        ("/api/v1/watch/namespaces/n/pods/p", "watch /v1 pods n p"),
        ("/apis/apps/v1/watch/deployments", "watch apps/v1 deployments - -"),
        ("/api/v1/proxy/nodes/a/run", "proxy /v1 nodes - a"),
        ("/api/v1/proxy/namespaces/n/pods/p", "proxy /v1 pods n p"),
        ("/api/v1/watch", "get /v1 - - -"),
        ("/api", "get /api"),
        ("/api/v1", "get /api/v1"),
        ("/apis/apps/v1", "get /apis/apps/v1"),
        ("/apis/apps", "get /apis/apps"),
        ("/API/v1/pods", "get /API/v1/pods"),
        ("/version", "get /version"),
        ("version", "get /version"),
        ("/", "get /"),
        ("", "get /"),
        ("/logs/kube.log", "get /logs/kube.log"),
        ("/foo/v1/pods", "get /foo/v1/pods"),
    ] {
        check("GET", path, expected);
    }
    check("POST", "/version", "post /version");
}

#[test]
fn the_watch_parameter_is_read_as_kube_apiserver_reads_it() {
    for (query, verb) in [
        ("watch=true", "watch"),
        ("watch=1", "watch"),
        ("watch", "watch"),
        ("watch=", "watch"),
        ("watch=no", "watch"),
        ("%77atch=t", "watch"),
        ("a=%zz&watch=1", "watch"),
        ("watch=true&watch=false", "watch"),
        ("limit=x&watch=1", "watch"),
        ("watch=false", "list"),
        ("watch=FALSE", "list"),
        ("watch=fal%C5%BFe", "list"),
        ("watch=0", "list"),
        ("watch=false&watch=true", "list"),
        ("watch=%zz", "list"),
        ("watch=1;a=2", "list"),
        ("Watch=1", "list"),
        ("", "list"),
    ] {
        check("GET", &format!("/api/v1/pods?{query}"), &format!("{verb} /v1 pods - -"));
    }
    let many = |count: usize| format!("/api/v1/pods?watch=1{}", "&".repeat(count - 1));
    check("GET", &many(10_000), "watch /v1 pods - -");
    check("GET", &many(10_001), "list /v1 pods - -");
    check("GET", "/api/v1/namespaces/n/pods/p?watch=1", "get /v1 pods n p");
    check("POST", "/api/v1/namespaces/n/pods?watch=1", "create /v1 pods n -");
}

#[test]
fn a_selector_names_one_object() {
    for (selector, name) in [
        ("metadata.name=p", "p"),
        ("metadata.name%3D%3Dp", "p"),
        ("status.phase!=Failed,metadata.name=p", "p"),
        ("metadata.name=p,metadata.name=q", "p"),
        ("metadata.name=q,metadata.name=p", "p"),
        ("metadata.name==a%5C%5C,metadata.name==P", "P"),
        (",,metadata.name=p", "p"),
        ("metadata.name=a%5C%2Cb", "a,b"),
        ("metadata.name!=p", "-"),
        ("metadata.name=p,broken", "-"),
        ("metadata.name=p,x=a%5Cb", "-"),
        ("metadata.name=p=q", "-"),
        ("metadata.name=a/b", "-"),
        ("metadata.name=..", "-"),
        ("metadata.name=", "-"),
        ("metadata.name=p&limit=many", "-"),
        ("metadata.name=p&timeoutSeconds=", "-"),
        ("metadata.namespace=p", "-"),
        // Of several terms the API server takes the first in sorted order, not in written order.
        ("metadata.name=q,metadata.name=p", "p"),
        ("metadata.name=p,metadata.name=q", "p"),
        ("metadata.name==a,metadata.name=b", "a"),
        ("metadata.name==q,metadata.name=p", "q"),
        ("metadata.name=q,metadata.name!=a,metadata.name=p", "p"),
        ("metadata.name=p,metadata.name=", "-"),
        ("metadata.name=p,metadata.name=..,a=b", "-"),
        ("spec.nodeName=a,metadata.name=p", "p"),
    ] {
        let target = format!("/api/v1/namespaces/n/pods?fieldSelector={selector}");
        check("GET", &target, &format!("list /v1 pods n {name}"));
    }
    check(
        "GET",
        "/api/v1/namespaces/n/pods?watch=1&fieldSelector=metadata.name=p&labelSelector=a",
        "watch /v1 pods n p",
    );
    check(
        "DELETE",
        "/api/v1/namespaces/n/pods?fieldSelector=metadata.name=p",
        "deletecollection /v1 pods n -",
    );
}

#[test]
fn exec_attach_portforward_and_proxy_need_create() {
    let pod = "/api/v1/namespaces/n/pods/p";
    for (method, path, upgrade, expected) in [
        ("GET", "exec", Some(Protocol::WebSocket), "create+get /v1 pods/exec n p"),
        (
            "GET",
            "attach",
            Some(Protocol::WebSocket),
            "create+get /v1 pods/attach n p",
        ),
        (
            "GET",
            "portforward",
            Some(Protocol::Spdy),
            "create+get /v1 pods/portforward n p",
        ),
        ("GET", "proxy", None, "create+get /v1 pods/proxy n p"),
        ("HEAD", "proxy/x", None, "create+get /v1 pods/proxy n p"),
        (
            "GET",
            "proxy/ws",
            Some(Protocol::WebSocket),
            "create+get /v1 pods/proxy n p",
        ),
        ("POST", "exec", Some(Protocol::Spdy), "create /v1 pods/exec n p"),
        ("POST", "proxy", None, "create /v1 pods/proxy n p"),
        ("DELETE", "proxy", None, "delete /v1 pods/proxy n p"),
        ("GET", "log", None, "get /v1 pods/log n p"),
        ("GET", "log", Some(Protocol::WebSocket), "get /v1 pods/log n p"),
        ("GET", "status", None, "get /v1 pods/status n p"),
    ] {
        check_upgrade(method, &format!("{pod}/{path}"), upgrade, expected);
    }
    check("GET", "/api/v1/nodes/a/proxy/run", "create+get /v1 nodes/proxy - a");
    check(
        "GET",
        "/api/v1/namespaces/n/services/s:80/proxy/",
        "create+get /v1 services/proxy n s:80",
    );
    let watch = "/api/v1/pods?watch=1";
    check_upgrade("GET", watch, Some(Protocol::WebSocket), "watch /v1 pods - -");
}

#[test]
fn a_watch_that_stands_in_the_path_is_one_only_where_the_method_agrees() {
    let exec = "/apis/g.io/v1/watch/namespaces/n/pods/p/exec";
    let ws = Some(Protocol::WebSocket);
    for (method, path, upgrade, expected) in [
        ("GET", exec, ws, "create+watch g.io/v1 pods/exec n p"),
        ("POST", exec, Some(Protocol::Spdy), "create+watch g.io/v1 pods/exec n p"),
        ("GET", "/apis/g.io/v1/watch/pods", ws, "create+watch g.io/v1 pods - -"),
        (
            "GET",
            "/api/v1/watch/nodes/a/proxy",
            None,
            "create+watch /v1 nodes/proxy - a",
        ),
        ("POST", "/api/v1/watch/pods", None, "create+watch /v1 pods - -"),
        (
            "DELETE",
            "/apis/g.io/v1/watch/namespaces/n/pods/p",
            None,
            "delete+watch g.io/v1 pods n p",
        ),
        ("GET", "/api/v1/watch/pods", None, "watch /v1 pods - -"),
        ("HEAD", "/api/v1/watch/pods", None, "watch /v1 pods - -"),
    ] {
        check_upgrade(method, path, upgrade, expected);
    }
}

#[test]
fn a_plain_read_runs_nothing() {
    let reads = |method: &Method, target: &str, upgrade| {
        let (path, query) = target
            .split_once('?')
            .map_or((target, None), |(path, query)| (path, Some(query)));
        Attributes::read(method, path, query, upgrade).is_plain_read(method)
    };
    let pod = "/api/v1/namespaces/n/pods/p";
    for path in [
        "/version",
        "/api/v1/pods?watch=1",
        pod,
        "/api/v1/watch/namespaces/n/secrets",
        "/api/v1/namespaces/n/pods/p/log?follow=1",
        "/apis/apps/v1/namespaces/n/deployments/d/scale",
    ] {
        assert!(reads(&Method::GET, path, None), "{path}");
        assert!(reads(&Method::HEAD, path, None), "{path}");
        assert!(!reads(&Method::GET, path, Some(Protocol::WebSocket)), "{path}");
        for method in [
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
            Method::CONNECT,
        ] {
            assert!(!reads(&method, path, None), "{method} {path}");
        }
    }
    for path in [
        "/api/v1/namespaces/n/services/admin:80/proxy/shutdown",
        "/api/v1/namespaces/n/services/admin:80/%70roxy/shutdown",
        "/api/v1/namespaces/n%2Fpods%2Fp%2Fproxy",
        "/api/v1/nodes/a/proxy/run/n/p/c?cmd=id",
        "/api/v1/proxy/namespaces/n/pods/p",
        "/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api/v1/pods",
    ] {
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            assert!(!reads(&method, path, None), "{method} {path}");
        }
    }
}

#[test]
fn attributes_serialize_as_policies_read_them() {
    let path = "/api/v1/namespaces/default/pods/web-0/exec";
    let read = Attributes::read(&Method::GET, path, Some("command=sh"), Some(Protocol::WebSocket));
    let expected = serde_json::json!({
        "verb": "create", "alsoVerb": "get", "resourceRequest": true, "apiGroup": "", "apiVersion": "v1",
        "resource": "pods", "subresource": "exec", "namespace": "default", "name": "web-0",
        "path": path, "upgrade": "websocket",
    });
    assert_eq!(serde_json::to_value(&read).unwrap(), expected);
    assert_eq!(read.verbs().collect::<Vec<_>>(), ["create", "get"]);
}

/// Request lines made of meaningful pieces: none panics, and the attributes always follow from the
/// path.
#[test]
fn no_request_line_panics() {
    let pieces = [
        "/",
        "api",
        "apis",
        "v1",
        "watch",
        "proxy",
        "namespaces",
        "n",
        "status",
        "%2F",
        "%",
        "%zz",
        "%ff",
        "é",
        "..",
        "pods",
        "exec",
        "",
    ];
    let queries = [
        "",
        "watch",
        "&;&=",
        "fieldSelector=metadata.name=%",
        "fieldSelector=%5C",
        "limit=%ff&watch=é",
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % below
    };
    for _ in 0..20_000 {
        let path: String = (0..next(14)).map(|_| pieces[next(pieces.len())]).collect();
        let query = queries[next(queries.len())];
        let upgrade = [None, Some(Protocol::WebSocket), Some(Protocol::Spdy)][next(3)];
        let method = [Method::GET, Method::POST, Method::DELETE][next(3)].clone();
        let read = Attributes::read(&method, &path, Some(query), upgrade);
        assert!(read.path.starts_with('/'), "{path}");
        let named = [&read.resource, &read.subresource, &read.namespace];
        for part in named.into_iter().flatten() {
            assert!(!part.is_empty() && read.path.contains(part.as_str()), "{path}: {part}");
        }
        assert!(read.resource_request || read.resource.is_none(), "{path}");
        match read.also_verb.as_deref() {
            None | Some("watch") => {}
            Some(also) => assert_eq!((also, read.verb.as_str()), ("get", "create"), "{path}"),
        }
    }
}
