use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::access::api::cookie::{TransportSecurity, set_cookie};
use tollgate_config::{Authorizer, Kubernetes, SameSite};
use tollgate_front::api::Error;

fn settings(same_site: SameSite, public_url: Option<&str>) -> Kubernetes {
    Kubernetes {
        authorizer: Authorizer::Embedded,
        platform_secret: None,
        allowed_origins: Vec::new(),
        agent_claim: String::new(),
        issuers: Vec::new(),
        users: Vec::new(),
        memberships: Vec::new(),
        public_url: public_url.map(|url| Url::parse(url).unwrap()),
        cookie_lifetime: Duration::from_secs(3_600),
        same_site,
        success_ttl: Duration::from_secs(60),
        refusal_ttl: Duration::from_secs(10),
        longest_token: Duration::from_secs(86_400),
        max_groups: 1,
        audit_bucket: Duration::from_secs(60),
        audit_keep: Duration::from_secs(86_400),
        audit_export: None,
    }
}

#[test]
fn the_cookie_is_limited_to_the_path_of_the_front() {
    let public = Some("https://t.example/base/k8s-proxy/");
    for (same_site, public, certificate, expected) in [
        (
            SameSite::Strict,
            None,
            false,
            "_gitlab_kas=v; Path=/k8s-proxy/; HttpOnly; SameSite=Strict; Max-Age=3600",
        ),
        (
            SameSite::Lax,
            None,
            true,
            "_gitlab_kas=v; Path=/k8s-proxy/; HttpOnly; SameSite=Lax; Max-Age=3600; Secure",
        ),
        (
            SameSite::None,
            public,
            false,
            "_gitlab_kas=v; Path=/base/k8s-proxy/; HttpOnly; SameSite=None; Max-Age=3600; Secure",
        ),
    ] {
        let settings = settings(same_site, public);
        let transport = TransportSecurity::of(certificate, &settings);
        let field = set_cookie(&SecretString::from("v"), &settings, transport).unwrap();
        assert_eq!(field.to_str().unwrap(), expected);
        assert!(field.is_sensitive());
    }
    let settings = settings(SameSite::None, Some("http://t.example/k8s-proxy/"));
    let refused = set_cookie(
        &SecretString::from("v"),
        &settings,
        TransportSecurity::of(false, &settings),
    );
    assert!(matches!(refused, Err(Error::Cookie)), "{refused:?}");
}
