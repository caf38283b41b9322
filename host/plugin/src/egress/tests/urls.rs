//! URLs against allow-lists.

use super::super::{EgressAllowList, HostPortPattern};
use tollgate_config::EgressEntry;

fn allow_list(entries: &[&str]) -> EgressAllowList {
    let specs: Vec<EgressEntry> = entries
        .iter()
        .map(|host| EgressEntry {
            host: (*host).to_owned(),
            loopback: *host == "127.0.0.1",
            ..EgressEntry::default()
        })
        .collect();
    EgressAllowList::new(&specs).unwrap()
}

/// The verdict: `host:port/path`, or the reason.
fn verdict(entries: &[&str], url: &str) -> String {
    match allow_list(entries).allow(url) {
        Ok(target) => format!("{}:{}{}", target.host(), target.port(), target.path()),
        Err(denied) => <&str>::from(denied.code).to_owned(),
    }
}

#[test]
fn hosts_and_ports_are_compared_after_one_parse() {
    let one = ["auth.upbound.io"];
    for (url, expected) in [
        ("https://auth.upbound.io/apis/x", "auth.upbound.io:443/apis/x"),
        ("https://auth.upbound.io", "auth.upbound.io:443/"),
        ("https://auth.upbound.io:443/x", "auth.upbound.io:443/x"),
        ("https://auth.upbound.io:/x", "auth.upbound.io:443/x"),
        ("https://AUTH.Upbound.IO/x", "auth.upbound.io:443/x"),
        ("HTTPS://auth.upbound.io/x", "auth.upbound.io:443/x"),
        ("https://auth.upbound.io/a@b:c", "auth.upbound.io:443/a@b:c"),
        ("https://auth.upbound.io/a%2Fb", "auth.upbound.io:443/a%2Fb"),
        ("https://auth.upbound.io/...", "auth.upbound.io:443/..."),
        ("https://auth.upbound.io:8443/x", "port"),
        ("https://auth.upbound.io:0/x", "malformed"),
        ("https://auth.upbound.io:99999/x", "malformed"),
        ("https://auth.upbound.io.evil.example/x", "host"),
        ("https://evil-auth.upbound.io/x", "host"),
        ("https://a.auth.upbound.io/x", "host"),
        ("https://upbound.io/x", "host"),
        ("https://xauth.upbound.io/x", "host"),
    ] {
        assert_eq!(verdict(&one, url), expected, "{url}");
    }
    assert_eq!(verdict(&[], "https://auth.upbound.io/x"), "host");
}

#[test]
fn urls_that_a_parser_would_correct_are_refused() {
    let one = ["auth.upbound.io"];
    for (url, reason) in [
        ("http://auth.upbound.io/x", "scheme"),
        ("ftp://auth.upbound.io/x", "scheme"),
        ("wss://auth.upbound.io/x", "scheme"),
        ("//auth.upbound.io/x", "scheme"),
        ("auth.upbound.io/x", "scheme"),
        ("https:auth.upbound.io/x", "scheme"),
        ("https:/auth.upbound.io/x", "scheme"),
        ("https:///auth.upbound.io/x", "empty-host"),
        ("https:///", "empty-host"),
        ("https://", "empty-host"),
        ("https://:443/x", "empty-host"),
        ("", "scheme"),
        ("https://user@auth.upbound.io/x", "userinfo"),
        ("https://user:pass@auth.upbound.io/x", "userinfo"),
        ("https://@auth.upbound.io/x", "userinfo"),
        ("https://auth.upbound.io@evil.example/x", "userinfo"),
        ("https://evil.example\\@auth.upbound.io/x", "backslash"),
        ("https://auth.upbound.io\\.evil.example/x", "backslash"),
        ("https:\\\\auth.upbound.io\\x", "backslash"),
        ("https://auth.upbound.io/a\\b", "backslash"),
        ("https://auth.upbound.io./x", "trailing-dot"),
        ("https://auth.upbound.io.:443/x", "trailing-dot"),
        ("https://auth.upbound.io\u{3002}/x", "trailing-dot"),
        ("https://auth%2eupbound.io/x", "percent-host"),
        ("https://auth.upbound.io%2f.evil.example/x", "percent-host"),
        ("https://auth.upbound.io%00.evil.example/", "percent-host"),
        ("https://auth.upbound.io/x#f", "fragment"),
        ("https://auth.upbound.io#@evil.example/", "fragment"),
        ("https://auth.upbound.io/x?y=1", "query"),
        ("https://auth.upbound.io?@evil.example/", "query"),
        ("https://auth.upbound.io/x?", "query"),
        ("https://auth.upbound.io/a/../b", "dot-segment"),
        ("https://auth.upbound.io/a/./b", "dot-segment"),
        ("https://auth.upbound.io/a/%2e%2E/b", "dot-segment"),
        ("https://auth.upbound.io/a/.%2e", "dot-segment"),
        (" https://auth.upbound.io/x", "control-character"),
        ("https://auth.upbound.io/x\n", "control-character"),
        ("https://auth.up\tbound.io/x", "control-character"),
        ("ht\ntps://auth.upbound.io/x", "control-character"),
        ("https://auth.upbound.io/\0", "control-character"),
        ("https://auth.upbound.io/a b", "control-character"),
        ("https://auth.upbound.io/\u{85}", "control-character"),
        ("https://auth<.upbound.io/x", "malformed"),
        ("https://[::1/x", "malformed"),
    ] {
        assert_eq!(verdict(&one, url), reason, "{url:?}");
    }
    let long = format!("https://auth.upbound.io/{}", "a".repeat(8 * 1024));
    assert_eq!(verdict(&one, &long), "malformed");
}

#[test]
fn a_wildcard_matches_exactly_one_label() {
    let wild = ["*.upbound.io"];
    for (url, expected) in [
        ("https://auth.upbound.io/x", "auth.upbound.io:443/x"),
        ("https://AUTH.upbound.io/x", "auth.upbound.io:443/x"),
        ("https://upbound.io/x", "host"),
        ("https://a.b.upbound.io/x", "host"),
        ("https://authupbound.io/x", "host"),
        ("https://.upbound.io/x", "host"),
        ("https://auth.upbound.io:8443/x", "port"),
        ("https://auth.upbound.io.evil.example/x", "host"),
    ] {
        assert_eq!(verdict(&wild, url), expected, "{url}");
    }
    assert_eq!(
        verdict(&["*.upbound.io:8443"], "https://a.upbound.io:8443/"),
        "a.upbound.io:8443/"
    );
    assert_eq!(verdict(&["*.upbound.io:8443"], "https://a.upbound.io/"), "port");
}

#[test]
fn international_names_are_compared_as_a_labels() {
    let expected = "xn--bcher-kva.example:443/";
    for entry in ["bücher.example", "xn--bcher-kva.example", "BÜCHER.example"] {
        assert_eq!(verdict(&[entry], "https://bücher.example/"), expected);
        assert_eq!(verdict(&[entry], "https://xn--bcher-kva.example/"), expected);
        assert_eq!(verdict(&[entry], "https://bucher.example/"), "host");
    }
    // A Cyrillic letter that looks Latin is another name.
    assert_eq!(verdict(&["apple.example"], "https://\u{430}pple.example/"), "host");
}

#[test]
fn addresses_are_allowed_only_when_listed_and_written_plainly() {
    for (url, reason) in [
        ("https://93.184.216.34/x", "ip-literal"),
        ("https://[2606:4700::1111]/x", "ip-literal"),
        ("https://[::ffff:93.184.216.34]/x", "ip-literal"),
        ("https://127.0.0.1/x", "ip-literal"),
        ("https://2130706433/x", "ip-form"),
        ("https://0x7f000001/x", "ip-form"),
        ("https://0177.0.0.1/x", "ip-form"),
        ("https://127.1/x", "ip-form"),
        ("https://\u{ff11}27.0.0.1/x", "ip-form"),
        ("https://169.254.169.254/latest", "ip-literal"),
    ] {
        assert_eq!(verdict(&["auth.upbound.io"], url), reason, "{url}");
    }
    let listed = ["93.184.216.34", "[2606:4700::1111]:8443", "127.0.0.1"];
    assert_eq!(verdict(&listed, "https://93.184.216.34/x"), "93.184.216.34:443/x");
    assert_eq!(verdict(&listed, "https://93.184.216.35/x"), "ip-literal");
    assert_eq!(
        verdict(&listed, "https://[2606:4700:0::1111]:8443/"),
        "[2606:4700::1111]:8443/"
    );
    assert_eq!(verdict(&listed, "https://[2606:4700::1111]/"), "port");
    assert_eq!(verdict(&listed, "https://127.1/"), "ip-form");
    assert_eq!(verdict(&["*.0.0.example"], "https://127.0.0.1/"), "ip-literal");
}

#[test]
fn a_refusal_message_names_only_the_host() {
    let secrets = "s3cr3t";
    for url in [
        "https://s3cr3t@auth.upbound.io/s3cr3t",
        "https://evil.example/s3cr3t",
        "https://auth.upbound.io/x?token=s3cr3t",
        "https://auth.upbound.io/x#s3cr3t",
        "http://auth.upbound.io/s3cr3t",
        "https://auth.upbound.io:8443/s3cr3t",
    ] {
        let denied = allow_list(&["auth.upbound.io"]).allow(url).unwrap_err();
        assert!(!denied.to_string().contains(secrets), "{denied}");
    }
}

#[test]
fn one_bad_entry_refuses_the_list() {
    let specs = ["auth.upbound.io", "*", "https://x"].map(|host| EgressEntry {
        host: host.to_owned(),
        ..EgressEntry::default()
    });
    assert_eq!(EgressAllowList::new(&specs).unwrap_err().len(), 2);
}

#[test]
fn patterns_of_a_manifest_narrow_a_target() {
    let target = allow_list(&["*.upbound.io"]).allow("https://auth.upbound.io/").unwrap();
    let matches = |text: &str| {
        let pattern = HostPortPattern::parse(text).unwrap();
        pattern.matches(target.host(), target.port())
    };
    assert!(matches("auth.upbound.io") && matches("*.upbound.io"));
    assert!(!matches("spaces.upbound.io") && !matches("auth.upbound.io:8443"));
}
