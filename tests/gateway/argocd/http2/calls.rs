//! Calls of gRPC and gRPC-Web by HTTP/2: by content type, by path, and with a root path.

use super::{BAD_TARGET, NOT_FOUND, RESET, check, check_below, request};
use crate::http2::Block;

/// A call of Tollgate itself, and one of argocd-server.
pub(super) const OWN: &str = "/applicationset.ApplicationSetService/List";
pub(super) const THEIRS: &str = "/application.ApplicationService/List";

/// Status of gRPC that Tollgate answers with: OK, INVALID_ARGUMENT and UNIMPLEMENTED.
const ANSWERED: &str = "tollgate: grpc-status 0";
const INVALID: &str = "tollgate: grpc-status 3";
const UNKNOWN: &str = "tollgate: grpc-status 12";

/// argocd-server gets a separate call, as one of gRPC or as something else.
const BY_GRPC: &str = "argocd-server: POST /application.ApplicationService/List HTTP/2.0";
const BY_HTTP1: &str = "argocd-server: POST /application.ApplicationService/List HTTP/1.1";

fn call(path: &str, kind: &str) -> Block {
    request("POST", path).and("content-type", kind)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_has_one_server_by_every_content_type() {
    let mut rows = Vec::new();
    for (kind, own, theirs) in [
        ("application/grpc", ANSWERED, BY_GRPC),
        ("application/grpc+proto", ANSWERED, BY_GRPC),
        ("application/grpc;charset=utf-8", ANSWERED, BY_GRPC),
        ("application/grpc ; x", ANSWERED, BY_GRPC),
        ("APPLICATION/GRPC", ANSWERED, BY_GRPC),
        ("Application/grpc+Proto", ANSWERED, BY_GRPC),
        ("application/grpc, application/json", NOT_FOUND, BY_HTTP1),
        ("application/grpc+json", NOT_FOUND, BY_HTTP1),
        ("application/grpcx", NOT_FOUND, BY_HTTP1),
        (" application/grpc", ANSWERED, BY_GRPC),
        ("application/grpc-web", "tollgate: 200", BY_HTTP1),
        ("application/grpc-web+proto", "tollgate: 200", BY_HTTP1),
        ("application/grpc-web-text", INVALID, BY_HTTP1),
        ("application/grpc-web-text+proto", INVALID, BY_HTTP1),
        ("application/json", NOT_FOUND, BY_HTTP1),
        ("application/json; application/grpc", NOT_FOUND, BY_HTTP1),
        ("text/plain", NOT_FOUND, BY_HTTP1),
        ("", NOT_FOUND, BY_HTTP1),
    ] {
        rows.push((call(OWN, kind), own));
        rows.push((call(THEIRS, kind), theirs));
    }
    let two = |path: &str, first: &str, second: &str| call(path, first).and("content-type", second);
    let (grpc, json) = ("application/grpc", "application/json");
    rows.extend([
        (request("POST", OWN), NOT_FOUND),
        (request("POST", THEIRS), BY_HTTP1),
        (two(OWN, grpc, json), ANSWERED),
        (two(OWN, json, grpc), NOT_FOUND),
        // Of two types, argocd-server could read another than Tollgate.
        (two(THEIRS, grpc, json), INVALID),
        (two(THEIRS, json, grpc), "tollgate: 400 bad_message"),
        (two(THEIRS, json, json), "tollgate: 400 bad_message"),
        (
            two("/x", json, "application/grpc-web+proto"),
            "tollgate: 400 bad_message",
        ),
    ]);
    check(b"\0\0\0\0\0", &rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_has_one_server_in_every_spelling_of_its_path() {
    let grpc = |path: &str| call(path, "application/grpc");
    let rows = [
        (
            grpc("/ApplicationSet.ApplicationSetService/List"),
            "argocd-server: POST /ApplicationSet.ApplicationSetService/List HTTP/2.0",
        ),
        (
            grpc("/applicationset.applicationsetservice/List"),
            "argocd-server: POST /applicationset.applicationsetservice/List HTTP/2.0",
        ),
        (grpc("/applicationset.ApplicationSetService/list"), UNKNOWN),
        (grpc("/applicationset.ApplicationSetService/Nothing"), UNKNOWN),
        (grpc("/applicationset.ApplicationSetService"), NOT_FOUND),
        (grpc("/applicationset.ApplicationSetService/"), NOT_FOUND),
        (grpc("/applicationset.ApplicationSetService/List/"), NOT_FOUND),
        (grpc("/applicationset.ApplicationSetService/List/x"), NOT_FOUND),
        (
            grpc("/x/applicationset.ApplicationSetService/List"),
            "argocd-server: POST /x/applicationset.ApplicationSetService/List HTTP/1.1",
        ),
        (grpc("//applicationset.ApplicationSetService/List"), BAD_TARGET),
        (grpc("/applicationset.ApplicationSetService//List"), BAD_TARGET),
        (grpc("/applicationset.ApplicationSetService%2FList"), NOT_FOUND),
        (grpc("/%2Fapplicationset.ApplicationSetService/List"), UNKNOWN),
        (
            grpc("/x%2Fapplicationset.ApplicationSetService/List"),
            "argocd-server: POST /x%2Fapplicationset.ApplicationSetService/List HTTP/1.1",
        ),
        (grpc("/applicationset%2EApplicationSetService/List"), BAD_TARGET),
        (grpc("/applicationset.%41pplicationSetService/List"), INVALID),
        (grpc("/applicationset.ApplicationSetService/%4cist"), INVALID),
        (
            grpc("/applicationset.ApplicationSetService/../applicationset.ApplicationSetService/List"),
            BAD_TARGET,
        ),
        (
            grpc("/applicationset.ApplicationSetService;x/List"),
            "argocd-server: POST /applicationset.ApplicationSetService;x/List HTTP/2.0",
        ),
        (grpc("/applicationset.ApplicationSetService/List;x"), UNKNOWN),
        (grpc("/applicationset.ApplicationSetService/List:"), INVALID),
        (grpc("/applicationset.ApplicationSetService/List?x"), ANSWERED),
        (grpc("/applicationset.ApplicationSetService/List#x"), ANSWERED),
        (grpc("/applicationset.ApplicationSetService/List%20"), UNKNOWN),
        (grpc("applicationset.ApplicationSetService/List"), RESET),
        (grpc("application.ApplicationService/List"), RESET),
        (
            grpc("http://argocd.test/applicationset.ApplicationSetService/List"),
            RESET,
        ),
        (
            grpc("/application.ApplicationService%2FList"),
            "argocd-server: POST /application.ApplicationService%2FList HTTP/2.0",
        ),
        (
            grpc("/application.ApplicationService/List/"),
            "argocd-server: POST /application.ApplicationService/List/ HTTP/1.1",
        ),
        (grpc("//application.ApplicationService/List"), BAD_TARGET),
        (
            grpc("/application.ApplicationService/List?x"),
            "argocd-server: POST /application.ApplicationService/List?x HTTP/2.0",
        ),
        (grpc("/application.ApplicationService/List#x"), BY_GRPC),
        (grpc("/application.ApplicationService/List:"), INVALID),
        (grpc(OWN).set(":method", "GET"), NOT_FOUND),
        (grpc(OWN).set(":method", "post"), NOT_FOUND),
        (
            grpc(THEIRS).set(":method", "GET"),
            "argocd-server: GET /application.ApplicationService/List HTTP/1.1, without the content",
        ),
        (
            grpc(THEIRS).set(":method", "PUT"),
            "argocd-server: PUT /application.ApplicationService/List HTTP/1.1",
        ),
        (
            grpc(THEIRS).set(":method", "GET").and("x-http-method-override", "POST"),
            "argocd-server: GET /application.ApplicationService/List HTTP/1.1, without the content",
        ),
        (
            grpc(OWN).set(":method", "GET").and("x-http-method-override", "POST"),
            NOT_FOUND,
        ),
    ];
    check(b"\0\0\0\0\0", &rows).await;
}

/// As at argocd-server: gRPC has no root path, and everything else has one.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_grpc_is_outside_the_root_path() {
    let below = |path: &str| format!("/argo-cd{path}");
    let (grpc, web) = ("application/grpc", "application/grpc-web+proto");
    let rows = [
        (call(THEIRS, grpc), BY_GRPC),
        (call(&below(THEIRS), grpc), UNKNOWN),
        (call(&below("/version.VersionService/Version"), grpc), UNKNOWN),
        (call(&below("/x.Y/Z"), grpc), UNKNOWN),
        (
            call(&below(&below(THEIRS)), grpc),
            "argocd-server: POST /argo-cd/argo-cd/application.ApplicationService/List HTTP/1.1",
        ),
        (call("/argo-cd%2Fapplication.ApplicationService/List", grpc), UNKNOWN),
        (call("/ARGO-CD/application.ApplicationService/List", grpc), NOT_FOUND),
        (call(THEIRS, web), UNKNOWN),
        (
            call(&below(THEIRS), web),
            "argocd-server: POST /argo-cd/application.ApplicationService/List HTTP/1.1",
        ),
        // Tollgate's own is there as well as here.
        (call(OWN, grpc), ANSWERED),
        (call(&below(OWN), grpc), ANSWERED),
        (call(OWN, web), "tollgate: 200"),
        (call(&below(OWN), web), "tollgate: 200"),
    ];
    check_below("/argo-cd", b"\0\0\0\0\0", &rows).await;
}
