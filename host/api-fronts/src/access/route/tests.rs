use http::{Method, Uri};
use uuid::Uuid;

use crate::access::AccessFront;
use crate::access::route::AccessRoute;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_front::find_in_paths;
use tollgate_front::path::Answerer;
use tollgate_proxy::target::Error;

const ID: &str = "0190d4a8-1c1c-7000-8000-000000000001";

fn route(method: &Method, path: &str) -> Result<Option<AccessRoute>, Error> {
    let found = find_in_paths::<AccessFront>(method, &Uri::try_from(path).unwrap(), Answerer::ALL)?;
    Ok(found.map(|(route, _)| route))
}

#[test]
fn methods_and_paths_are_routed() {
    let id = Uuid::try_parse(ID).unwrap();
    let session = |kind, id: &str| AccessRoute::RevokeSession(SessionId::new(kind, id));
    for (method, path, expected) in [
        (Method::GET, "/api/v1/agents", AccessRoute::Agents),
        (Method::HEAD, "/api/v1/agents?all=true", AccessRoute::Agents),
        (Method::GET, "/api/v1/tokens?user=bob", AccessRoute::Tokens),
        (Method::POST, "/api/v1/tokens", AccessRoute::CreateToken),
        (Method::GET, "/api/v1/sessions", AccessRoute::Sessions),
        (Method::POST, "/api/v1/sessions", AccessRoute::CreateSession),
        (Method::GET, "/api/v1/audit?limit=2", AccessRoute::Audit),
    ] {
        assert_eq!(route(&method, path), Ok(Some(expected)), "{method} {path}");
    }
    for written in [ID.to_owned(), ID.replace('-', "%2D")] {
        let path = format!("/api/v1/tokens/{written}");
        assert_eq!(route(&Method::DELETE, &path), Ok(Some(AccessRoute::RevokeToken(id))));
    }
    for (path, expected) in [
        (
            format!("/api/v1/sessions/pat:{ID}"),
            session(AccessType::PersonalAccessToken, ID),
        ),
        (
            format!("/api/v1/sessions/cookie%3A{ID}"),
            session(AccessType::SessionCookie, ID),
        ),
        (
            "/api/v1/sessions/oidc%3aabc_-1".to_owned(),
            session(AccessType::OidcIdToken, "abc_-1"),
        ),
    ] {
        assert_eq!(route(&Method::DELETE, &path), Ok(Some(expected)), "{path}");
    }
}

#[test]
fn other_requests_are_not_served() {
    for (method, path) in [
        (Method::DELETE, "/api/v1/tokens"),
        (Method::PUT, "/api/v1/tokens"),
        (Method::POST, "/api/v1/agents"),
        (Method::GET, "/api/v1/tokens/7"),
        (Method::DELETE, "/api/v1/tokens/7"),
        (Method::DELETE, "/api/v1/tokens/0190d4a8-1c1c-7000-8000-000000000001/x"),
        (Method::DELETE, "/api/v1/sessions/7"),
        (Method::DELETE, "/api/v1/sessions/pat%253Ax"),
        (Method::DELETE, "/api/v1/sessions/ftp:x"),
        (Method::OPTIONS, "/api/v1/sessions"),
        (Method::GET, "/api/v1/tokensx"),
        (Method::GET, "/api/v2/tokens"),
        (Method::GET, "/tokens"),
    ] {
        let found = route(&method, path);
        assert!(
            matches!(found, Ok(None) | Err(Error::DoubleEncoding)),
            "{method} {path} {found:?}"
        );
    }
    assert_eq!(
        route(&Method::DELETE, "/api/v1/sessions/%2e%2e"),
        Err(Error::EncodedDot)
    );
    assert_eq!(
        route(&Method::DELETE, "/api/v1/sessions/pat%253Ax"),
        Err(Error::DoubleEncoding)
    );
}
