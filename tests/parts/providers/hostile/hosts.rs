//! Attempts to reach other hosts and addresses, and unusual spellings of them.

use std::net::IpAddr;

use serde_json::json;
use tollgate_credential::MintErrorClass::Config;

use super::{Fixture, always, answers, case, check, observed};
use test_support::providers::{PUBLIC, Reply, Script};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_hosts_of_manifest_and_grant_are_reached() {
    let fixture = Fixture::new().await;
    let refused = [
        (
            "https://evil.example/",
            "egress.host",
            "`evil.example` is not among the granted hosts",
        ),
        (
            "https://issuer.example.evil.example/",
            "egress.host",
            "not among the granted hosts",
        ),
        (
            "https://a.b.wild.example/",
            "egress.host",
            "not among the granted hosts",
        ),
        ("https://wild.example/", "egress.host", "not among the granted hosts"),
        (
            "https://metadata.google.internal/computeMetadata/v1/",
            "egress.host",
            "not among the granted hosts",
        ),
        ("https://localhost/", "egress.host", "not among the granted hosts"),
        (
            "https://granted-only.example/",
            "egress.manifest",
            "granted, but not among the hosts of the manifest",
        ),
        (
            "https://issuer.example:8443/",
            "egress.port",
            "granted with port 443, not 8443",
        ),
        (
            "http://issuer.example/",
            "egress.scheme",
            "does not begin with `https://`",
        ),
        (
            "ftp://issuer.example/",
            "egress.scheme",
            "does not begin with `https://`",
        ),
        ("//issuer.example/", "egress.scheme", "does not begin with `https://`"),
        ("", "egress.scheme", "does not begin with `https://`"),
        ("https:///issuer.example/", "egress.empty-host", "no host"),
        (
            "https://93.184.216.34/",
            "egress.ip-literal",
            "is an address, and not among the granted hosts",
        ),
        (
            "https://169.254.169.254/latest/meta-data/",
            "egress.ip-literal",
            "is an address",
        ),
        ("https://[::1]/", "egress.ip-literal", "is an address"),
        (
            "https://[::ffff:169.254.169.254]/",
            "egress.ip-literal",
            "is an address",
        ),
        ("https://127.1/", "egress.ip-form", "unusual form"),
        ("https://0x7f000001/", "egress.ip-form", "unusual form"),
        ("https://2130706433/", "egress.ip-form", "unusual form"),
        (
            "https://user:pw@issuer.example/",
            "egress.userinfo",
            "a user or a password",
        ),
        (
            "https://issuer.example@evil.example/",
            "egress.userinfo",
            "a user or a password",
        ),
        ("https://issuer%2eexample/", "egress.percent-host", "percent sign"),
        ("https://issuer.example./", "egress.trailing-dot", "ends with a dot"),
        (
            "https://issuer.example\\@evil.example/",
            "egress.backslash",
            "backslash",
        ),
        ("https://issuer.example/a/../b", "egress.dot-segment", "`.` or `..`"),
        ("https://issuer.example/%2e%2e/b", "egress.dot-segment", "`.` or `..`"),
        ("https://issuer.example/#x", "egress.fragment", "fragment"),
        (
            "https://issuer.example/\r\nhost: evil.example",
            "egress.control-character",
            "control character",
        ),
    ];
    for (url, code, reason) in refused {
        let attack = case(json!({"attack": "reach-host", "url": url}), Config, code, reason);
        let outcome = attack.check(&fixture, always(&json!({}))).await;
        assert!(outcome.connected.is_empty(), "{url}: {:?}", outcome.connected);
    }
    for url in [
        "https://issuer.example/",
        "https://ISSUER.example:443/a%2Fb",
        "https://a.wild.example/?q=1",
    ] {
        let allowed = observed(json!({"attack": "reach-host", "url": url}), "answered 200").seen(1);
        allowed.check(&fixture, always(&json!({}))).await;
    }
    fixture.still_mints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_with_an_internal_address_is_refused() {
    let fixture = Fixture::new().await;
    let rebound: [(&[&str], &str); 17] = [
        (&["127.0.0.1"], "egress.address-loopback"),
        (&["::1"], "egress.address-loopback"),
        (&["169.254.169.254"], "egress.address-metadata"),
        (&["169.254.170.2"], "egress.address-metadata"),
        (&["169.254.170.23"], "egress.address-metadata"),
        (&["168.63.129.16"], "egress.address-metadata"),
        (&["fd00:ec2::254"], "egress.address-metadata"),
        (&["169.254.1.1"], "egress.address-link-local"),
        (&["fe80::1"], "egress.address-link-local"),
        (&["10.0.0.1"], "egress.address-private"),
        (&["fd12::1"], "egress.address-private"),
        (&["100.64.0.1"], "egress.address-shared"),
        (&["0.0.0.0"], "egress.address-unspecified"),
        (&["::ffff:127.0.0.1"], "egress.address-embedded"),
        (&["64:ff9b::a9fe:a9fe"], "egress.address-embedded"),
        (&["93.184.216.34", "127.0.0.1"], "egress.address-loopback"),
        (&["93.184.216.34", "::ffff:10.0.0.1"], "egress.address-embedded"),
    ];
    for (addresses, code) in rebound {
        let script = Script {
            addresses: Some(
                addresses
                    .iter()
                    .map(|address| address.parse::<IpAddr>().unwrap())
                    .collect(),
            ),
            ..always(&json!({}))
        };
        let config = json!({"attack": "reach-secret", "name": "bound", "url": "https://issuer.example/"});
        let attack = case(config, Config, code, "`issuer.example` leads to");
        let outcome = attack.check(&fixture, script).await;
        assert!(outcome.connected.is_empty(), "{addresses:?}: {:?}", outcome.connected);
        assert_eq!(outcome.exchanges.len(), 1, "the attempt is recorded");
    }
    let outcome = fixture
        .mint(
            &json!({"attack": "reach-host", "url": "https://issuer.example/"}),
            always(&json!({})),
        )
        .await;
    assert_eq!(outcome.connected, [PUBLIC]);
    fixture.still_mints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_are_not_followed_and_their_targets_are_checked() {
    let fixture = Fixture::new().await;
    for (place, code, reason) in [
        ("https://evil.example/", "egress.host", "not among the granted hosts"),
        (
            "https://other.example/",
            "egress.secret-host",
            "a secret may not be sent to `other.example`",
        ),
        ("http://issuer.example/", "egress.scheme", "https"),
        ("https://169.254.169.254/", "egress.ip-literal", "an address"),
    ] {
        let script = answers(302, &[("location", place)], place);
        let attack = case(json!({"attack": "reach-redirect"}), Config, code, reason).seen(1);
        let outcome = attack.check(&fixture, script).await;
        assert_eq!(outcome.exchanges[0].status, Some(302));
        assert_eq!(outcome.seen[0].method, "GET");
    }
    // The guest may follow a redirect to the same host itself.
    let here = observed(json!({"attack": "reach-redirect"}), "answered 302").seen(2);
    here.check(&fixture, answers(302, &[], "https://issuer.example/next"))
        .await;
    fixture.still_mints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn untrusted_and_unresponsive_servers_fail_the_mint() {
    let fixture = Fixture::new().await;
    let config = json!({"attack": "good"});
    for (reply, code) in [
        (Reply::Untrusted, "egress.tls"),
        (Reply::Timeout, "egress.connect"),
        (Reply::Cut, "egress.truncated"),
    ] {
        let script = Script {
            forever: Some(reply.clone()),
            ..Script::default()
        };
        let outcome = fixture.mint(&config, script).await;
        let error = outcome.minted.unwrap_err();
        assert_eq!(error.code, code, "{error}");
        let sent = outcome
            .seen
            .iter()
            .any(|seen| String::from_utf8_lossy(&seen.body).contains("secret="));
        assert_eq!(sent, matches!(reply, Reply::Cut), "{code}");
    }
    let silent = Script {
        forever: Some(Reply::Silent),
        ..Script::default()
    };
    let outcome = fixture.mint(&json!({"attack": "good", "number": 500}), silent).await;
    let error = outcome.minted.unwrap_err();
    assert_eq!(error.code, "egress.timeout", "{error}");
    check(&fixture, Vec::new()).await;
}
