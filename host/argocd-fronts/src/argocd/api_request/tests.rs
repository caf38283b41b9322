use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, request};

use super::{ApiRequest, Error, Operation};
use crate::argocd::message;
use crate::argocd::methods::MethodIndex;
use crate::argocd::route::{ArgocdRoute, argocd};
use tollgate_front::ApplicationSetsServer;
use tollgate_front::grpc::wire::put_bytes;
use tollgate_proxy::forward::Body;

const GRPC: &str = "application/grpc";
const JSON: &str = "application/json";

fn head(method: Method, target: &str, kind: &'static str) -> (ArgocdRoute, request::Parts) {
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().expect("a target");
    if !kind.is_empty() {
        request
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    let (head, ()) = request.into_parts();
    let route = argocd(&head.method, &head.uri, &head.headers, ApplicationSetsServer::Argocd);
    (route.expect("a valid path").expect("argocd-server's"), head)
}

async fn read(method: Method, target: &str, kind: &'static str, content: Vec<u8>) -> Result<Option<ApiRequest>, Error> {
    let (route, head) = head(method, target, kind);
    let methods = MethodIndex::try_new().expect("an index");
    let Some(operation) = Operation::of(route, &head, &methods)? else {
        return Ok(None);
    };
    let mut body = Body::from(bytes::Bytes::from(content.clone()));
    let request = ApiRequest::read(operation, route, &head, &mut body).await?;
    let whole = body.buffer_all(u64::MAX).await.expect("the content");
    assert_eq!(whole, content, "the content is not whole");
    Ok(Some(request))
}

/// `service method verb resource action project/application@namespace`, with `-` for what is absent.
fn summary(request: &ApiRequest) -> String {
    let input = request.as_input();
    let or = |text: Option<&str>| text.unwrap_or("-").to_owned();
    let service = or(input
        .service
        .map(|service| service.rsplit('.').next().unwrap_or(service)));
    let names = [or(input.project), or(input.application), or(input.namespace)].join(" ");
    format!(
        "{service} {} {} {} {} {names}",
        or(input.method),
        input.verb,
        or(input.resource),
        or(input.action)
    )
}

fn framed(fields: &[(u32, &str)]) -> Vec<u8> {
    let mut message = Vec::new();
    for (number, text) in fields {
        put_bytes(&mut message, *number, text.as_bytes());
    }
    let length = u32::try_from(message.len()).expect("short");
    [&[0][..], &length.to_be_bytes(), &message].concat()
}

#[tokio::test]
async fn a_sync_looks_the_same_by_every_way() {
    let expected = "ApplicationService Sync POST applications sync prod shop apps";
    let message = framed(&[(1, "shop"), (12, "apps"), (13, "prod")]);
    for kind in [GRPC, "application/grpc-web+proto"] {
        let call = read(
            Method::POST,
            "/application.ApplicationService/Sync",
            kind,
            message.clone(),
        )
        .await;
        assert_eq!(summary(&call.expect("fits").expect("a call")), expected);
    }
    let content = br#"{"name":"other","appNamespace":"apps","project":"prod"}"#.to_vec();
    for path in ["/api/v1/applications/shop/sync", "/api/v1/applications/shop%2Fsync"] {
        // The name in the path takes precedence. The query is not read for a message.
        let target = format!("{path}?appNamespace=x&project=dev");
        let call = read(Method::POST, &target, JSON, content.clone()).await;
        assert_eq!(summary(&call.expect("fits").expect("a call")), expected, "{path}");
    }
}

#[tokio::test]
async fn what_is_asked_for_is_read_from_where_argocd_server_reads_it() {
    let long = r#"{"metadata":{"name":"a","namespace":"n"},"spec":{"project":"p"}}"#;
    for (method, target, content, expected) in [
        (
            "GET",
            "/api/v1/applications",
            "",
            "ApplicationService List GET applications get - - -",
        ),
        (
            "GET",
            "/api/v1/applications/a?appNamespace=n&project=p",
            "",
            "ApplicationService Get GET applications get - a n",
        ),
        (
            "DELETE",
            "/api/v1/applications/a?project=p",
            "",
            "ApplicationService Delete DELETE applications delete p a -",
        ),
        (
            "POST",
            "/api/v1/applications",
            long,
            "ApplicationService Create POST applications create p a n",
        ),
        (
            "PUT",
            "/api/v1/applications/b",
            long,
            "ApplicationService Update PUT applications update p b n",
        ),
        (
            "PUT",
            "/api/v1/applications/b/spec?appNamespace=n",
            r#"{"project":"p"}"#,
            "ApplicationService UpdateSpec PUT applications update p b n",
        ),
        (
            "POST",
            "/api/v1/applications/a/sync",
            r#"{"manifests":["x"]}"#,
            "ApplicationService Sync POST applications override - a -",
        ),
        (
            "POST",
            "/api/v1/applications/a/sync",
            r#"{"manifestS":[]}"#,
            "ApplicationService Sync POST applications override - a -",
        ),
        (
            "POST",
            "/api/v1/applications/a/sync",
            "",
            "ApplicationService Sync POST applications sync - a -",
        ),
        (
            "POST",
            "/api/v1/applications/a/resource/actions?project=p",
            "\"restart\"",
            "ApplicationService RunResourceAction POST applications action p a -",
        ),
        (
            "GET",
            "/api/v1/applications/a/logs?project=p",
            "",
            "ApplicationService PodLogs GET logs get p a -",
        ),
        (
            "GET",
            "/terminal?pod=x&appName=a&projectName=p&appNamespace=n&namespace=other",
            "",
            "terminal Exec GET exec create p a n",
        ),
        (
            "GET",
            "/api/v1/projects/p/detailed",
            "",
            "ProjectService GetDetailedProject GET projects get p - -",
        ),
        (
            "PUT",
            "/api/v1/projects/p",
            r#"{"project":{"metadata":{"name":"q"}}}"#,
            "ProjectService Update PUT projects update p - -",
        ),
        (
            "POST",
            "/api/v1/clusters/https:%2F%2Fa/rotate-auth",
            "",
            "ClusterService RotateAuth POST clusters update - - -",
        ),
        (
            "POST",
            "/api/v1/repositories",
            r#"{"repo":"u","project":"p"}"#,
            "RepositoryService CreateRepository POST repositories create p - -",
        ),
        (
            "GET",
            "/api/v1/repositories/https:%2F%2Fa%2Fb/apps?appProject=p",
            "",
            "RepositoryService ListApps GET repositories get p - -",
        ),
        (
            "GET",
            "/api/v1/account/can-i/applications/sync/p%2F*",
            "",
            "AccountService CanI GET - - - - -",
        ),
        ("GET", "/api/v1/settings", "", "SettingsService Get GET - - - - -"),
        ("GET", "/api/version", "", "VersionService Version GET - - - - -"),
        ("POST", "/api/v1/applications/a", "", "- - POST - - - - -"),
        ("PURGE", "/api/v2/new", "", "- - PURGE - - - - -"),
    ] {
        let verb = method.parse().expect("a method");
        let call = read(verb, target, JSON, content.as_bytes().to_vec()).await;
        let call = call.unwrap_or_else(|error| panic!("{method} {target}: {error}"));
        assert_eq!(summary(&call.expect("a call")), expected, "{method} {target}");
    }
}

#[tokio::test]
async fn calls_that_are_not_in_the_table_are_not_known() {
    let call = read(Method::POST, "/application.ApplicationService/New", GRPC, framed(&[])).await;
    let call = call.expect("fits").expect("a call");
    assert!(!call.as_input().known);
    assert_eq!(summary(&call), "ApplicationService New POST - - - - -");
    // argocd-server does not take messages in base64.
    let kind = "application/grpc-web-text";
    let call = read(Method::POST, "/application.ApplicationService/Sync", kind, Vec::new()).await;
    assert!(!call.expect("fits").expect("a call").as_input().known);
}

#[tokio::test]
async fn what_is_not_part_of_the_api_is_not_a_call() {
    for target in [
        "/",
        "/applications/argocd/shop",
        "/api/badge?name=a",
        "/api/dex/auth",
        "/auth/login",
        "/swagger.json",
    ] {
        assert_eq!(
            read(Method::GET, target, "", Vec::new()).await.expect("passes"),
            None,
            "{target}"
        );
    }
    let form = "application/x-www-form-urlencoded";
    assert_eq!(
        read(Method::POST, "/api/dex/token", form, Vec::new())
            .await
            .expect("passes"),
        None
    );
    assert_eq!(
        read(Method::POST, "/api/webhook", form, Vec::new())
            .await
            .expect("passes"),
        None
    );
}

#[tokio::test]
async fn what_can_be_read_in_two_ways_is_refused() {
    let sync = "/api/v1/applications/a/sync";
    for (method, target, kind, content) in [
        (Method::POST, sync, "application/x-www-form-urlencoded", ""),
        (
            Method::POST,
            "/api/v1/applications/a",
            "Application/X-WWW-Form-Urlencoded; charset=utf-8",
            "",
        ),
        (
            Method::POST,
            "/api/v1/applications/a",
            "multipart/form-data; boundary=a",
            "",
        ),
        (Method::POST, sync, "application/json; charset=utf-8", "{}"),
        (Method::POST, sync, "text/plain", "{}"),
        (Method::POST, sync, "", "{}"),
    ] {
        let read = read(method, target, kind, content.into()).await;
        assert!(matches!(read, Err(Error::ContentType)), "{target} {kind}: {read:?}");
    }
    for target in [
        "/api/v1/applications/a?appNamespace=n&appNamespace=m",
        "/api/v1/applications/a?appNamespace[n]=m",
        "/api/v1/applications/a?appNamespace%5Bn%5D=m",
    ] {
        let read = read(Method::GET, target, "", Vec::new()).await;
        assert!(
            matches!(read, Err(Error::Parameter("appNamespace"))),
            "{target}: {read:?}"
        );
    }
    let twice = br#"{"project":"dev","Project":"prod"}"#.to_vec();
    let read_twice = read(Method::POST, sync, JSON, twice).await;
    assert!(matches!(
        read_twice,
        Err(Error::Message(message::Error::Duplicate("project")))
    ));
}

#[tokio::test]
async fn calls_begin_with_one_whole_message() {
    let call = |content: Vec<u8>| read(Method::POST, "/application.ApplicationService/Sync", GRPC, content);
    let mut compressed = framed(&[(1, "a")]);
    compressed[0] = 1;
    assert!(matches!(call(compressed).await, Err(Error::Compressed)));
    for content in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x05ab", b"\x80\0\0\0\0"] {
        assert!(matches!(call(content.to_vec()).await, Err(Error::Frame)), "{content:?}");
    }
    assert!(matches!(
        call(b"\0\x10\0\0\0".to_vec()).await,
        Err(Error::TooLong { .. })
    ));
    let twice = framed(&[(13, "dev"), (13, "prod")]);
    assert!(matches!(
        call(twice).await,
        Err(Error::Message(message::Error::Duplicate("project")))
    ));
    // Only the first message counts.
    let two = [framed(&[(1, "a")]), framed(&[(1, "b")])].concat();
    let read = call(two).await.expect("fits").expect("a call");
    assert_eq!(summary(&read), "ApplicationService Sync POST applications sync - a -");
}
