use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::{Value, json};
use url::Url;

use super::{authority, check_token, proxy_url, server_name};
use tollgate_config::{ControlPlaneCaller, Tls};

fn token(claims: &Value) -> SecretString {
    SecretString::from(format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string())))
}

#[test]
fn only_tokens_of_callers_are_accepted() {
    let caller = |issuer: &str, user: &str| ControlPlaneCaller {
        issuer: issuer.to_owned(),
        user: user.to_owned(),
    };
    let callers = [caller("argocd", "controller"), caller("https://issuer", "x")];
    let now = Timestamp::from_second(1000).unwrap();
    let check = |claims: Value| check_token(&token(&claims), &callers, now);
    for claims in [
        json!({"iss": "argocd", "sub": "controller:apiKey"}),
        json!({"iss": "argocd", "sub": "controller"}),
        json!({"iss": "https://issuer", "sub": "anything"}),
    ] {
        assert_eq!(check(claims.clone()).unwrap(), None, "{claims}");
    }
    let expiring = check(json!({"iss": "argocd", "sub": "controller", "exp": 1001})).unwrap();
    assert!(expiring.unwrap().contains("expires on 1970-01-01T00:16:41Z"));
    for (claims, expected) in [
        (
            json!({"iss": "argocd", "sub": "admin:login"}),
            "is of admin (argocd), and `controlPlane.callers` has controller (argocd), x (https://issuer)",
        ),
        (json!({"iss": "argocd", "sub": "x"}), "is of x (argocd)"),
        (
            json!({"iss": "https://other", "sub": "controller"}),
            "is of the issuer https://other",
        ),
        (json!({"sub": "controller"}), "is of the issuer "),
        (
            json!({"iss": "argocd", "sub": "controller", "exp": 1000}),
            "expired on 1970-01-01T00:16:40Z",
        ),
    ] {
        let text = check(claims).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
    let opaque = check_token(&SecretString::from("opaque"), &callers, now)
        .unwrap_err()
        .to_string();
    assert!(opaque.contains("is not a JSON Web Token"), "{opaque}");
}

#[test]
fn a_proxy_url_is_https_with_only_a_host() {
    for (text, shown) in [("https://a", "https://a/"), ("https://a:8443/", "https://a:8443/")] {
        assert_eq!(proxy_url(text).unwrap().as_str(), shown);
    }
    for (text, expected) in [
        ("http://a", "is not https"),
        ("a:443", "is not https"),
        ("", "is not a URL"),
        ("https://a/path", "more than a host"),
        ("https://a/?q", "more than a host"),
        ("https://user:secret@a", "has a user or a password"),
    ] {
        let text = proxy_url(text).unwrap_err().to_string();
        assert!(text.contains(expected) && !text.contains("secret"), "{text}");
    }
}

#[test]
fn the_certificates_name_is_a_host_name_or_the_address() {
    let name = |option: Option<&str>, url: &str| server_name(option, &Url::parse(url).unwrap(), false);
    assert_eq!(name(None, "https://a.b:1").unwrap(), "a.b");
    assert_eq!(name(None, "https://[::1]:1").unwrap(), "::1");
    assert_eq!(name(Some("c.d"), "https://127.0.0.1").unwrap(), "c.d");
    assert_eq!(name(Some("127.0.0.1"), "https://127.0.0.1").unwrap(), "127.0.0.1");
    for wrong in ["127.0.0.2", "a b", ""] {
        assert!(name(Some(wrong), "https://127.0.0.1").is_err(), "{wrong}");
    }
    let in_cluster = |option: Option<&str>| server_name(option, &Url::parse("https://a.b").unwrap(), true);
    assert_eq!(in_cluster(None).unwrap(), "a.b");
    let text = in_cluster(Some("c.d")).unwrap_err().to_string();
    assert!(
        text.contains("must be for `a.b` and for `kubernetes.default.svc`"),
        "{text}"
    );
}

#[test]
fn a_certificate_that_signed_itself_is_its_own_authority() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let own = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = rcgen::Issuer::new(parameters, rcgen::KeyPair::generate().unwrap());
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
    let signed = leaf.signed_by(&key, &issuer).unwrap().pem();
    let now = Timestamp::now();
    let of_settings = |pem: &str| {
        let path = write("tls.crt", pem);
        let tls = Tls {
            key: path.clone(),
            certificate: path,
        };
        authority(None, Some(&tls), now)
    };
    assert_eq!(of_settings(&own).unwrap(), own);
    for (pem, expected) in [
        (signed.clone(), "that another authority signed"),
        (format!("{signed}{own}"), "that another authority signed"),
        ("none".to_owned(), "has no PEM certificate"),
    ] {
        let text = of_settings(&pem).unwrap_err().to_string();
        assert!(text.contains(expected) && text.contains("--ca FILE"), "{text}");
    }
    // Named, it needs no such property.
    assert_eq!(authority(Some(&write("ca.pem", &signed)), None, now).unwrap(), signed);
    assert!(authority(Some(&write("ca.pem", "none")), None, now).is_err());
    assert!(authority(Some(&folder.path().join("absent")), None, now).is_err());
    assert!(authority(None, None, now).is_err());
}
