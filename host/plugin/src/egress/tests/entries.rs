//! Allow-list entries: which ones parse, and the error of each mistake.

use super::super::address::AddressScope;
use super::super::entry::{AllowedHost, HostPortPattern};
use super::fake_network::Authority;
use tollgate_config::EgressEntry;

fn text(host: &str) -> EgressEntry {
    EgressEntry {
        host: host.to_owned(),
        ..EgressEntry::default()
    }
}

#[test]
fn entries_are_normalized_for_display() {
    for (written, shown) in [
        ("auth.upbound.io", "auth.upbound.io"),
        ("AUTH.Upbound.IO", "auth.upbound.io"),
        ("auth.upbound.io:443", "auth.upbound.io"),
        ("vault.corp.example:8200", "vault.corp.example:8200"),
        ("*.corp.example", "*.corp.example"),
        ("*.corp.example:8443", "*.corp.example:8443"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("93.184.216.34", "93.184.216.34"),
        ("[2606:4700::1111]:8443", "[2606:4700::1111]:8443"),
        ("localhost", "localhost"),
    ] {
        assert_eq!(AllowedHost::new(&text(written)).unwrap().pattern.to_string(), shown);
    }
}

#[test]
fn each_mistake_has_its_own_message() {
    for (written, message) in [
        ("*", "`*` alone"),
        ("*:443", "`*` alone"),
        ("a*.example", "exactly one label"),
        ("*.*.example", "exactly one label"),
        ("*.10.0.0.1", "exactly one label"),
        ("a.*.example", "exactly one label"),
        ("https://auth.upbound.io", "without a scheme"),
        ("http://auth.upbound.io", "without a scheme"),
        ("auth.upbound.io/apis", "without a path"),
        ("auth.upbound.io\\x", "without a path"),
        ("auth.upbound.io?x", "without a query"),
        ("auth.upbound.io#x", "without a fragment"),
        ("auth%2eupbound.io", "without percent signs"),
        ("auth. upbound.io", "without white space"),
        ("", "no host"),
        (":443", "no host"),
        ("*.", "no host"),
        ("auth.upbound.io.", "ends with a dot"),
        ("auth..upbound.io", "1 to 63 bytes"),
        ("auth.upbound.io:0", "1 to 65535"),
        ("auth.upbound.io:65536", "1 to 65535"),
        ("auth.upbound.io:+443", "1 to 65535"),
        ("auth.upbound.io:", "1 to 65535"),
        ("auth.upbound.io:https", "1 to 65535"),
        ("2606:4700::1111", "in brackets"),
        ("127.1", "four decimal numbers"),
        ("0x7f.0.0.1", "four decimal numbers"),
        ("2130706433", "four decimal numbers"),
        ("10.0.0.1", "`private: true` permits it"),
        ("127.0.0.1", "`loopback: true` permits it"),
        ("[::1]", "`loopback: true` permits it"),
        ("169.254.169.254", "no entry permits it"),
        ("[::ffff:10.0.0.1]", "no entry permits it"),
        ("a b", "white space"),
        ("a<b", "is not a host"),
    ] {
        let error = AllowedHost::new(&text(written)).unwrap_err().to_string();
        assert!(error.contains(message), "{written}: {error}");
    }
    let error = HostPortPattern::parse("user:hunter2@auth.upbound.io")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("user or password") && !error.contains("hunter2"),
        "{error}"
    );
}

#[test]
fn contradictory_fields_are_refused() {
    let with = |host: &str, port, private, loopback| {
        let spec = EgressEntry {
            host: host.to_owned(),
            port,
            private,
            loopback,
            ca: None,
        };
        AllowedHost::new(&spec).map_err(|error| error.to_string())
    };
    let entry = with("127.0.0.1", Some(9443), false, true).unwrap();
    assert_eq!(
        (entry.pattern.port(), entry.address_scope),
        (9443, AddressScope::Loopback)
    );
    assert_eq!(
        with("10.0.0.1", None, true, false).unwrap().address_scope,
        AddressScope::Private
    );
    assert_eq!(with("a.example:1", Some(1), false, false).unwrap().pattern.port(), 1);
    for (refused, message) in [
        (with("a.example:1", Some(2), false, false), "another one"),
        (with("a.example", Some(0), false, false), "1 to 65535"),
        (with("a.example", None, false, true), "`localhost`"),
        (with("*.example", None, false, true), "`localhost`"),
        (with("127.0.0.1", None, true, true), "exclude each other"),
        (with("10.0.0.1", None, false, true), "address-private"),
        (with("127.0.0.1", None, true, false), "address-loopback"),
    ] {
        let error = refused.unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn authorities_are_read_from_text_or_file() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, &authority.pem).unwrap();
    let with = |ca: &str| {
        AllowedHost::new(&EgressEntry {
            ca: Some(ca.to_owned()),
            ..text("a.example")
        })
    };
    assert!(with(&authority.pem).unwrap().tls.is_some());
    assert!(with(path.to_str().unwrap()).unwrap().tls.is_some());
    assert!(AllowedHost::new(&text("a.example")).unwrap().tls.is_none());
    let missing = with("/nonexistent/ca.pem").unwrap_err().to_string();
    assert!(missing.contains("/nonexistent/ca.pem"), "{missing}");
    std::fs::write(&path, "nothing").unwrap();
    let empty = with(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(empty.contains("no certificate in it"), "{empty}");
}

#[test]
fn an_entry_is_a_string_or_an_object() {
    let read = |text: &str| serde_saphyr::from_str::<Vec<EgressEntry>>(text);
    let specs =
        read("- auth.upbound.io\n- { host: '*.corp.example', port: 8443, private: true, ca: /etc/ca.pem }").unwrap();
    assert_eq!(specs[0], text("auth.upbound.io"));
    assert_eq!(
        (specs[1].port, specs[1].private, specs[1].loopback),
        (Some(8443), true, false)
    );
    let error = read("- { host: a.example, privat: true }").unwrap_err().to_string();
    assert!(error.contains("privat"), "{error}");
    assert!(read("- { port: 443 }").is_err(), "an object needs a host");
}
